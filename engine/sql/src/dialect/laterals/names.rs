//! Names of outputs of `LATERAL` subqueries.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Ident, Query, SelectItem, SetExpr, TableFactor, VisitorMut};

use super::super::columns::{called, factors};
use super::super::expressions::take;
use super::super::naming;
use super::table_of;
use crate::statement_walk::walk_mut;

/// Names all outputs of a query before its expressions are rewritten. The first query of a set operation names the
/// columns of all.
pub(super) fn all(query: &mut Query) {
    let mut open = vec![(&mut *query.body, true)];
    while let Some((body, is_first)) = open.pop() {
        match body {
            SetExpr::Select(select) => {
                for (item, at) in select.projection.iter_mut().zip(1..) {
                    if let SelectItem::UnnamedExpr(value) = item {
                        let other = || Ident::with_quote('"', format!("column {at}"));
                        let alias = if is_first { naming::name(value) } else { other() };
                        *item = SelectItem::ExprWithAlias { expr: take(value), alias };
                    }
                }
            }
            SetExpr::SetOperation { left, right, .. } => {
                open.push((&mut **left, is_first));
                open.push((&mut **right, false));
            }
            SetExpr::Query(inner) => open.push((&mut *inner.body, is_first)),
            _ => {}
        }
    }
}

/// Names outputs that are columns of the outer row: the planner names `t.x` `outer_ref(t.x)` there, so `l.x` would
/// not exist.
pub(super) fn of_row(factor: &mut TableFactor) {
    if let TableFactor::Derived { lateral: true, subquery, .. } = factor {
        outer_columns(subquery);
    }
}

/// Does the same in the tables of a query, and in theirs: a column of the outer row becomes a key with another name.
pub(super) fn of_tables(query: &mut Query) {
    struct Tables;
    impl VisitorMut for Tables {
        type Break = ();

        fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
            if let TableFactor::Derived { subquery, .. } = factor {
                outer_columns(subquery);
            }
            ControlFlow::Continue(())
        }
    }
    let _ = walk_mut(query, &mut Tables);
}

/// Names the outputs of a query that are columns of other tables than its own.
fn outer_columns(query: &mut Query) {
    let mut body = &mut *query.body;
    let select = loop {
        match body {
            SetExpr::Select(select) => break select,
            SetExpr::Query(inner) => body = &mut *inner.body,
            // The first query of a set operation names the columns of all.
            SetExpr::SetOperation { left, .. } => body = &mut **left,
            _ => return,
        }
    };
    let own: HashSet<String> = select.from.iter().flat_map(factors).filter_map(called).collect();
    let mut is_named = false;
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(value) = item
            && table_of(value).is_some_and(|table| !own.contains(&table))
        {
            let alias = naming::name(value);
            *item = SelectItem::ExprWithAlias { expr: take(value), alias };
            is_named = true;
        }
    }
    if is_named {
        naming::make_unique(&mut select.projection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Params, ReadStatement, parse};

    /// The first table of a `FROM` after its outputs were named.
    fn named(table: &str) -> String {
        let text = format!("select 1 from {table}");
        let ReadStatement::Query(mut query) = parse(&text, &Params::default()).expect(table).statement else {
            panic!("no query: {table}")
        };
        let SetExpr::Select(select) = &mut *query.body else { panic!("no select: {table}") };
        of_row(&mut select.from[0].relation);
        select.from[0].relation.to_string()
    }

    #[test]
    fn columns_of_the_row_at_hand_have_their_names() {
        for (table, expected) in [
            ("lateral (select t.x) l", "LATERAL (SELECT t.x AS x) l"),
            ("lateral (select t.x, u.y from u) l", "LATERAL (SELECT t.x AS x, u.y FROM u) l"),
            (
                "lateral (select t.x from u union all select 1) l",
                "LATERAL (SELECT t.x AS x FROM u UNION ALL SELECT 1) l",
            ),
            ("lateral ((select t.\"X\")) l", "LATERAL ((SELECT t.\"X\" AS \"X\")) l"),
            // A second column of the same name gets a number.
            ("lateral (select t.x, v.x) l", "LATERAL (SELECT t.x AS x, v.x AS \"x_2\") l"),
            ("lateral (select u.x, t.x from u) l", "LATERAL (SELECT u.x, t.x AS \"x_2\" FROM u) l"),
            ("lateral (select t.x, u.x from u) l", "LATERAL (SELECT t.x AS x, u.x AS \"x_2\" FROM u) l"),
        ] {
            assert_eq!(named(table), expected);
        }
    }

    #[test]
    fn columns_of_the_row_at_hand_keep_their_names_in_tables() {
        let text = "select c.x from (select t.x, u.y from u) c join (select v.z from (select t.w from v) v) d on true";
        let ReadStatement::Query(mut query) = parse(text, &Params::default()).expect(text).statement else {
            panic!("no query")
        };
        of_tables(&mut query);
        assert_eq!(
            query.to_string(),
            "SELECT c.x FROM (SELECT t.x AS x, u.y FROM u) c JOIN (SELECT v.z FROM (SELECT t.w AS w FROM v) v) d ON true"
        );
    }

    #[test]
    fn other_outputs_stay() {
        for table in [
            "LATERAL (SELECT u.x, y, t.x + 1 FROM u) l",
            "LATERAL (SELECT v.x FROM u AS v) l",
            "LATERAL (SELECT t.x AS y) l",
            "LATERAL (VALUES (t.x)) l",
            "(SELECT t.x) l",
            "t",
        ] {
            assert_eq!(named(table), table);
        }
    }
}
