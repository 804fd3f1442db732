//! What a translation of a statement knows, and has done so far.

use std::collections::HashSet;

use datafusion::sql::sqlparser::ast::Query;
use quiver_types::{Error, ErrorKind, Result};

use super::columns::{Common, Known};
use crate::catalog::Catalog;
use crate::names::{Fixed, normal};
use crate::session::Session;

/// Most places of a statement that become an expression of the catalog: each may list all of its relations.
const PLACES_MAX: usize = 200;

/// Goes over a statement.
pub(super) struct Translator<'t> {
    pub(super) catalog: &'t Catalog,
    /// Fixed columns of its tables.
    pub(super) fixed: Fixed<'t>,
    pub(super) session: &'t Session,
    pub(super) aggregates: &'t dyn Fn(&str) -> bool,
    /// Bare names of columns.
    pub(super) names: HashSet<String>,
    /// Common tables of the queries that were seen.
    pub(super) common: Vec<Common>,
    pub(super) places: usize,
    /// How many expressions it still goes into.
    pub(super) left: usize,
    /// Where subqueries are that stand for a set (`= ANY (SELECT …)`), and not for a value.
    pub(super) compared: HashSet<*const Query>,
    /// Whether it asks the catalog about types.
    pub(super) reads_types: bool,
}

impl Translator<'_> {
    /// Where columns are looked up.
    pub(super) fn columns(&self) -> Known<'_> {
        Known { fixed: self.fixed, common: &self.common }
    }

    /// Notes the common tables of a query.
    pub(super) fn add_common(&mut self, query: &Query) {
        for table in query.with.iter().flat_map(|with| &with.cte_tables) {
            let columns = self.columns().of_common(table);
            self.common.push((normal(&table.alias.name), columns));
        }
    }

    /// Counts an expression of the catalog.
    pub(super) fn count(&mut self) -> Result<()> {
        self.places += 1;
        if self.places <= PLACES_MAX {
            return Ok(());
        }
        let text = format!("a statement asks the catalog at more than {PLACES_MAX} places");
        Err(Error::new(ErrorKind::LimitExceeded, text))
    }
}
