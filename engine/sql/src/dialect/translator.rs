//! The state of the translation of one statement.

use std::collections::HashSet;

use datafusion::sql::sqlparser::ast::Query;
use quiver_types::{Error, ErrorKind, Result};

use super::columns::{ColumnSources, Common};
use super::table_factors;
use crate::catalog::Catalog;
use crate::names::{FixedColumnLookup, normal};
use crate::session::Session;

/// The most places of a statement that become expressions of the catalog: each may list all relations.
const PLACES_MAX: usize = 200;

/// Translates the expressions of a statement.
pub(super) struct Translator<'t> {
    pub(super) catalog: &'t Catalog,
    /// Fixed columns of the catalog's tables.
    pub(super) fixed: FixedColumnLookup<'t>,
    pub(super) session: &'t Session,
    pub(super) aggregates: &'t dyn Fn(&str) -> bool,
    /// Bare names of columns that the statement uses.
    pub(super) names: HashSet<String>,
    /// Common tables of the queries that were visited.
    pub(super) common: Vec<Common>,
    pub(super) places: usize,
    /// How many more expressions it may visit.
    pub(super) left: usize,
    /// Subqueries that are read as sets (`= ANY (SELECT …)`), and not as values.
    pub(super) compared: HashSet<*const Query>,
    /// Whether the statement reads `pg_type`.
    pub(super) reads_types: bool,
}

impl Translator<'_> {
    /// The sources to look up columns in.
    pub(super) fn columns(&self) -> ColumnSources<'_> {
        ColumnSources { fixed: self.fixed, common: &self.common }
    }

    /// Adds the common tables of a query.
    pub(super) fn add_common(&mut self, query: &mut Query) {
        for table in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            let given = self.columns().of_query(&table.query);
            table_factors::complete(&mut table.alias, given);
            let columns = self.columns().of_common(table);
            self.common.push((normal(&table.alias.name), columns));
        }
    }

    /// Counts a place that becomes an expression of the catalog.
    pub(super) fn count(&mut self) -> Result<()> {
        self.places += 1;
        if self.places <= PLACES_MAX {
            return Ok(());
        }
        let text = format!("a statement asks the catalog at more than {PLACES_MAX} places");
        Err(Error::new(ErrorKind::LimitExceeded, text))
    }
}
