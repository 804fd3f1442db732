//! Ambiguous columns: a name that a subquery or common table has twice refers to neither column. The planner would
//! pick the first one, because the other has been renamed, or comes through `*`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Ident, Query, Select, SetExpr, TableFactor, Visit, Visitor};
use quiver_types::{Error, Result};

use super::columns::factors;
use super::name_scope::{self, Scope};
use super::naming::AGAIN;
use super::sort_keys::ORDERED;
use crate::names::{FixedColumnLookup, alias_of, normal};
use crate::statement_walk::{look_outside_subqueries, refused, walk};

/// Refuses references to ambiguous columns.
///
/// # Errors
///
/// Invalid.
pub(super) fn none(query: &Query, fixed: FixedColumnLookup<'_>) -> Result<()> {
    match walk(query, &mut Names { scope: Scope::new(fixed) }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// A table in a `FROM`.
type Table = name_scope::Table<()>;

fn has_twice(table: &Table, column: &str) -> bool {
    // A duplicate that is written out has a number behind its name (see `AGAIN`); one that `*` gives has the name
    // alone.
    let is_it = |known: &&String| known.split(AGAIN).next() == Some(column);
    table.columns.iter().flatten().filter(is_it).count() > 1
}

struct Names<'n> {
    scope: Scope<'n, ()>,
}

impl Names<'_> {
    fn tables(&self, select: &Select) -> Vec<Table> {
        let table = |factor: &TableFactor| {
            let mut table = self.scope.table(factor, ());
            // Its outputs were told apart already, and only generated SQL reads them.
            if table.is_called(ORDERED) {
                table.columns = None;
            }
            table
        };
        select.from.iter().flat_map(factors).map(table).collect()
    }

    /// Checks the names in a part of a select, except names of the select's own outputs.
    fn look(&self, own: &[Table], part: &impl Visit, outputs: &[String]) -> Result<()> {
        let mut found: Option<Ident> = None;
        look_outside_subqueries(part, |expr| {
            if found.is_none() {
                found = self.ambiguous(own, expr, outputs).cloned();
            }
        });
        let Some(name) = found else { return Ok(()) };
        let at = name.span.start;
        let place = if at.line > 0 { format!(" at line {}, column {}", at.line, at.column) } else { String::new() };
        Err(Error::invalid(format!("column reference \"{}\" is ambiguous{place}", normal(&name))))
    }

    fn ambiguous<'e>(&self, own: &[Table], expr: &'e Expr, outputs: &[String]) -> Option<&'e Ident> {
        match expr {
            Expr::Identifier(name) => {
                let column = normal(name);
                let is_one = !outputs.contains(&column) && own.iter().any(|table| has_twice(table, &column));
                is_one.then_some(name)
            }
            Expr::CompoundIdentifier(names) => {
                let [.., table, name] = names.as_slice() else { return None };
                let (table, column) = (normal(table), normal(name));
                let mut seen = own.iter().chain(self.scope.visible().flatten());
                let owner = seen.find(|known| known.is_called(&table))?;
                has_twice(owner, &column).then_some(name)
            }
            _ => None,
        }
    }

    fn of_select(&self, select: &Select, own: &[Table]) -> Result<()> {
        self.look(own, &select.projection, &[])?;
        self.look(own, &select.from, &[])?;
        self.look(own, &select.selection, &[])?;
        self.look(own, &select.named_window, &[])?;
        let outputs: Vec<String> = select.projection.iter().filter_map(alias_of).collect();
        self.look(own, &select.distinct, &outputs)?;
        self.look(own, &select.group_by, &outputs)?;
        self.look(own, &select.having, &outputs)
    }
}

impl Visitor for Names<'_> {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        for table in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.scope.add_common(table);
        }
        let (SetExpr::Select(select), Some(order)) = (&*query.body, &query.order_by) else {
            return ControlFlow::Continue(());
        };
        let outputs: Vec<String> = select.projection.iter().filter_map(alias_of).collect();
        self.look(&self.tables(select), order, &outputs).map_or_else(refused, ControlFlow::Continue)
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Self::Break> {
        let own = self.tables(select);
        let done = self.of_select(select, &own);
        self.scope.enter(own);
        done.map_or_else(refused, ControlFlow::Continue)
    }

    fn post_visit_select(&mut self, _select: &Select) -> ControlFlow<Self::Break> {
        self.scope.leave();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Self::Break> {
        self.scope.enter_table(factor);
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Self::Break> {
        self.scope.leave_table(factor);
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::name_outputs;
    use crate::names::TableName;
    use crate::parse::{Params, ReadStatement, parse};

    fn looked_at(text: &str) -> Result<()> {
        let ReadStatement::Query(mut query) = parse(text, &Params::default()).expect(text).statement else {
            panic!("{text}")
        };
        name_outputs(&mut query).expect(text);
        none(&query, &|table: &TableName| (table.1 == "h").then(|| vec!["a".to_owned(), "b".to_owned()]))
    }

    #[test]
    fn names_of_two_columns_are_refused() {
        for (text, at) in [
            ("select a from (select 1 as a, 2 as a) s", "line 1, column 8"),
            ("select 1,\n s.a from (select x as a, b, a from t) s", "line 2, column 4"),
            ("select 1 from (select t.a, u.a from t, u) s where a > 1", "line 1, column 51"),
            ("select count(*) from (select 1 as a, 2 as a) s group by a", "line 1, column 57"),
            ("select count(*) from (select 1 as a, 2 as a) s order by \"a\"", "line 1, column 57"),
            ("with c as (select 1 as a, 2 as a) select c.A from c", "line 1, column 44"),
            ("select (select max(x) from t where x = s.a) from (select 1 as a, 2 as a) s", "line 1, column 42"),
            ("select 1 from t join (select 1 as a, 2 as a) s on a = x", "line 1, column 51"),
            ("select a from (select *, 1 as a from h) s", "line 1, column 8"),
            ("select s.a from (select h.*, b as a from h) s", "line 1, column 10"),
            ("select 1 from (select * from h, h as i) s where a > 1", "line 1, column 49"),
            (
                "with c as (select * from (select *, 2 as a from h) s) select b from c group by b, a",
                "line 1, column 83",
            ),
        ] {
            let error = looked_at(text).expect_err(text).message;
            assert_eq!(error, format!("column reference \"a\" is ambiguous at {at}"), "{text}");
        }
    }

    #[test]
    fn other_names_are_left() {
        for text in [
            "select count(*), b from (select 1 as a, 2 as a, 3 as b) s group by b",
            "select * from (select 1 as a, 2 as a) s",
            "select x, y from (select 1 as a, 2 as a) s (x, y) where x < y",
            "with c (x, y) as (select 1 as a, 2 as a) select x from c order by y",
            "select b as a, count(*) from (select 1 as a, 2 as a, 3 as b) s group by 1 order by a",
            "select s.a from (select 1 as a, 2 as b) s, (select 1 as a, 2 as a) r",
            "select (select a from (select 3 as a) r) from (select 1 as a, 2 as a) s",
            "select b from (select *, 1 as a from h) s order by b",
            "select a from (select h.*, 1 as c from h) s",
            "select a from (select *, 1 as a from other) s",
            "select x from (select *, 1 as a from h) s (x, y, z)",
            "select value from unnest(array[1, 2]) value",
            // References that this translation generates itself.
            "select * from (select t.x as a, t.y as a, -t.z as z from t order by t.z) s",
        ] {
            assert!(looked_at(text).is_ok(), "{text}");
        }
    }
}
