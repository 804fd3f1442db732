//! The product's functions as the catalog lists them.

use quiver_query::functions::FUNCTIONS;

use super::schemas::number;
use crate::table_functions::CALLS;

pub(crate) struct CatalogFunction {
    pub(crate) oid: i64,
    pub(crate) name: &'static str,
    /// Its arguments, without the parentheses.
    pub(crate) form: &'static str,
    /// `f` for a function, `a` for an aggregate.
    pub(crate) kind: &'static str,
    pub(crate) is_table: bool,
}

impl CatalogFunction {
    fn of(form: &'static str, kind: &'static str, is_table: bool) -> Self {
        let (name, rest) = form.split_once('(').unwrap_or((form, ""));
        let form = rest.strip_suffix(')').unwrap_or(rest);
        Self { oid: number(&["function", name]), name, form, kind, is_table }
    }

    /// Names of its arguments.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &'static str> {
        self.form.split(',').map(|name| name.trim().trim_matches('\'')).filter(|name| !name.is_empty())
    }
}

/// All functions of the product.
pub(crate) fn known() -> Vec<CatalogFunction> {
    let plain = FUNCTIONS.iter().map(|(form, _)| CatalogFunction::of(form, "f", false));
    plain.chain(CALLS.iter().map(|(_, form)| CatalogFunction::of(form, "f", true))).collect()
}
