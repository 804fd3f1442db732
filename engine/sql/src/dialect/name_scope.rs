//! Name scopes: the common tables and the tables of outer selects that are visible from a place of a statement.

use datafusion::sql::sqlparser::ast::{Cte, TableFactor};

use super::columns::{ColumnSources, Common, called};
use crate::names::{FixedColumnLookup, normal};

/// A table in a `FROM`.
pub(super) struct Table<B> {
    /// The name that the statement uses for it: its alias or its own name.
    pub(super) name: Option<String>,
    /// Its columns; `None` if they are not known.
    pub(super) columns: Option<Vec<String>>,
    /// Additional data that the caller keeps for each table.
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

/// A select that encloses the visited place.
struct EnclosingSelect<B> {
    tables: Vec<Table<B>>,
    /// How many derived tables of its `FROM` enclose the place; without `LATERAL` these do not see its other tables.
    hidden: usize,
}

/// The names that are visible from the visited place.
pub(super) struct Scope<'s, B> {
    fixed: FixedColumnLookup<'s>,
    /// Common tables, innermost last.
    common: Vec<Common>,
    around: Vec<EnclosingSelect<B>>,
}

impl<'s, B> Scope<'s, B> {
    /// The scope of a whole statement.
    pub(super) fn new(fixed: FixedColumnLookup<'s>) -> Self {
        Self { fixed, common: Vec::new(), around: Vec::new() }
    }

    pub(super) fn known(&self) -> ColumnSources<'_> {
        ColumnSources { fixed: self.fixed, common: &self.common }
    }

    /// Adds a common table, which later common tables and the query can read.
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

    /// Enters a select that reads these tables.
    pub(super) fn enter(&mut self, tables: Vec<Table<B>>) {
        self.around.push(EnclosingSelect { tables, hidden: 0 });
    }

    /// Leaves a select.
    pub(super) fn leave(&mut self) {
        self.around.pop();
    }

    /// Enters a table of a `FROM`.
    pub(super) fn enter_table(&mut self, factor: &TableFactor) {
        if let (TableFactor::Derived { lateral: false, .. }, Some(around)) = (factor, self.around.last_mut()) {
            around.hidden += 1;
        }
    }

    /// Leaves a table of a `FROM`.
    pub(super) fn leave_table(&mut self, factor: &TableFactor) {
        if let (TableFactor::Derived { lateral: false, .. }, Some(around)) = (factor, self.around.last_mut()) {
            around.hidden -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::SetExpr;

    use super::*;
    use crate::names::TableName;
    use crate::testing::query;

    fn factor(text: &str) -> TableFactor {
        match *query(&format!("select 1 from {text}")).body {
            SetExpr::Select(select) => select.from[0].relation.clone(),
            other => panic!("no select: {other}"),
        }
    }

    fn nothing(_: &TableName) -> Option<Vec<String>> {
        None
    }

    /// What is kept for the tables that are visible, by select.
    fn visible(scope: &Scope<'_, u8>) -> Vec<Vec<u8>> {
        scope.visible().map(|tables| tables.iter().map(|table| table.beside).collect()).collect()
    }

    #[test]
    fn tables_around_are_seen_from_lateral_ones_alone() {
        let mut scope = Scope::new(&nothing);
        let (outer, inner) = (scope.table(&factor("a"), 1), scope.table(&factor("b"), 2));
        scope.enter(vec![outer]);
        assert_eq!(visible(&scope), [[1]]);
        let (derived, lateral) = (factor("(select 1) as d"), factor("lateral (select 1) as d"));
        scope.enter_table(&derived);
        assert!(visible(&scope).is_empty());
        scope.leave_table(&derived);
        scope.enter_table(&lateral);
        scope.enter(vec![inner]);
        assert_eq!(visible(&scope), [[2], [1]]);
        scope.leave();
        scope.leave_table(&lateral);
        assert_eq!(visible(&scope), [[1]]);
    }

    #[test]
    fn tables_may_have_columns_that_are_not_known() {
        let mut scope = Scope::new(&nothing);
        let known = scope.table(&factor("(select 1 as x) as \"D\""), 0_u8);
        assert!(known.is_called("D") && known.has("x") && known.may_have("x"));
        assert!(!known.has("y") && !known.may_have("y"));
        let unknown = scope.table(&factor("t"), 0);
        assert!(unknown.is_called("t") && !unknown.has("x") && unknown.may_have("x"));
        let with = query("with t(y) as (select 1) select 1").with.expect("a common table");
        scope.add_common(&with.cte_tables[0]);
        let common = scope.table(&factor("t as r"), 0);
        assert!(common.is_called("r") && common.has("y") && !common.may_have("x"));
    }
}
