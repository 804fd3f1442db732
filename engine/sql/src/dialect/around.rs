//! What is seen from a place of a statement: common tables, and the tables of the selects around it.

use datafusion::sql::sqlparser::ast::{Cte, TableFactor};

use super::columns::{Common, Known, called};
use crate::names::{Fixed, normal};

/// A table in a `FROM`.
pub(super) struct Table<B> {
    /// What it is called.
    pub(super) name: Option<String>,
    /// Its columns; none: they are not known.
    pub(super) columns: Option<Vec<String>>,
    /// What whoever asks knows of it beside that.
    pub(super) beside: B,
}

impl<B> Table<B> {
    /// Whether it is known to have a column.
    pub(super) fn has(&self, column: &str) -> bool {
        self.columns.as_ref().is_some_and(|columns| columns.iter().any(|known| known == column))
    }

    /// Whether it has a column, or may have it.
    pub(super) fn may_have(&self, column: &str) -> bool {
        self.columns.is_none() || self.has(column)
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name)
    }
}

/// A select around what is visited.
struct Around<B> {
    tables: Vec<Table<B>>,
    /// How many tables of its `FROM` are around, which do not see each other.
    hidden: usize,
}

/// What is seen from what is visited.
pub(super) struct Scope<'s, B> {
    fixed: Fixed<'s>,
    /// Common tables, inner ones last.
    common: Vec<Common>,
    around: Vec<Around<B>>,
}

impl<'s, B> Scope<'s, B> {
    /// That of a whole statement.
    pub(super) fn new(fixed: Fixed<'s>) -> Self {
        Self { fixed, common: Vec::new(), around: Vec::new() }
    }

    pub(super) fn known(&self) -> Known<'_> {
        Known { fixed: self.fixed, common: &self.common }
    }

    /// Notes a common table, which those behind it and the query see.
    pub(super) fn add_common(&mut self, table: &Cte) {
        let columns = self.known().of_common(table);
        self.common.push((normal(&table.alias.name), columns));
    }

    /// A table with its columns.
    pub(super) fn table(&self, factor: &TableFactor, beside: B) -> Table<B> {
        Table { name: called(factor), columns: self.known().of_factor(factor), beside }
    }

    /// The tables of each select around that is seen, the innermost first.
    pub(super) fn visible(&self) -> impl Iterator<Item = &[Table<B>]> {
        self.around.iter().rev().filter(|around| around.hidden == 0).map(|around| around.tables.as_slice())
    }

    /// Goes into a select of these tables.
    pub(super) fn enter(&mut self, tables: Vec<Table<B>>) {
        self.around.push(Around { tables, hidden: 0 });
    }

    /// Comes out of a select.
    pub(super) fn leave(&mut self) {
        self.around.pop();
    }

    /// Goes into a table of a `FROM`.
    pub(super) fn enter_table(&mut self, factor: &TableFactor) {
        if let (TableFactor::Derived { lateral: false, .. }, Some(around)) = (factor, self.around.last_mut()) {
            around.hidden += 1;
        }
    }

    /// Comes out of a table of a `FROM`.
    pub(super) fn leave_table(&mut self, factor: &TableFactor) {
        if let (TableFactor::Derived { lateral: false, .. }, Some(around)) = (factor, self.around.last_mut()) {
            around.hidden -= 1;
        }
    }
}
