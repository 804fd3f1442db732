//! Names as written in a statement, before anything is resolved: of tables, columns, outputs.

use std::collections::BTreeSet;

use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, ObjectName, SelectItem, Visit, WildcardAdditionalOptions,
};

use crate::statement_walk::look_outside_subqueries;

/// A name as tables and columns have it.
pub(crate) fn normal(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// The parts of a name, unquoted ones in lower case.
pub(crate) fn parts(name: &ObjectName) -> Vec<String> {
    name.0.iter().filter_map(|part| part.as_ident()).map(normal).collect()
}

/// A table as a statement names it: schema, where one is written, and name.
pub(crate) type TableName = (Option<String>, String);

/// Fixed columns by name of a table; none: there is no such table.
pub(crate) type FixedColumnLookup<'f> = &'f dyn Fn(&TableName) -> Option<Vec<String>>;

/// A table as its name says it.
pub(crate) fn named(name: &ObjectName) -> Option<TableName> {
    match parts(name).as_slice() {
        [table] => Some((None, table.clone())),
        [.., schema, table] => Some((Some(schema.clone()), table.clone())),
        [] => None,
    }
}

/// The table whose attributes or labels a name speaks of.
pub(crate) fn table_of_prefix(column: &str) -> Option<&'static str> {
    let known = [("attributes.", "spans"), ("resource.", "spans"), ("labels.", "metric_samples")];
    known.into_iter().find(|(prefix, _)| column.starts_with(prefix)).map(|(_, table)| table)
}

/// The name of an output that is given one.
pub(crate) fn alias_of(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(normal(alias)),
        _ => None,
    }
}

/// Columns that `*` leaves out: those of both sides of a join stand before it, and what is read through it was not there.
pub(crate) fn left_out(options: &WildcardAdditionalOptions) -> Vec<String> {
    match &options.opt_exclude {
        Some(ExcludeSelectItem::Multiple(names)) => names.iter().filter_map(|name| parts(name).pop()).collect(),
        Some(ExcludeSelectItem::Single(name)) => parts(name).pop().into_iter().collect(),
        None => Vec::new(),
    }
}

/// Names of columns in parts of a statement, but for those in subqueries.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) found: BTreeSet<Vec<String>>,
}

impl Names {
    /// Reads one part more.
    pub(crate) fn read(&mut self, part: &impl Visit) {
        look_outside_subqueries(part, |expr| match expr {
            Expr::Identifier(ident) => _ = self.found.insert(vec![normal(ident)]),
            Expr::CompoundIdentifier(idents) => _ = self.found.insert(idents.iter().map(normal).collect()),
            _ => {}
        });
    }
}
