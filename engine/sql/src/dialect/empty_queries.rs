//! Queries that are known from the catalog to be empty: those about indexes, constraints, triggers and other things
//! that Quiver does not have. They are folded before planning, since clients write things into them that the planner
//! does not support.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, GroupByExpr, JoinOperator, ObjectName, Query, Select, SelectItem, SetExpr, SetOperator,
    SetQuantifier, TableFactor, Value, Values, Visit, Visitor,
};

use super::naming;
use crate::catalog::Catalog;
use crate::names::{TableName, normal, parts};
use crate::statement_walk::walk;

/// Columns of the catalog that list options and rights. They are always NULL.
const NO_LISTS: [&str; 5] = ["reloptions", "relacl", "attoptions", "attfdwoptions", "spcoptions"];

/// A relation as a statement names it.
pub(super) fn named(name: &ObjectName) -> TableName {
    match parts(name).as_slice() {
        [.., schema, table] => (Some(schema.clone()), table.clone()),
        [table] => (None, table.clone()),
        [] => (None, String::new()),
    }
}

/// Says whether a function is an aggregate.
pub(super) type IsAggregate<'a> = &'a dyn Fn(&str) -> bool;

fn is_empty_factor(factor: &TableFactor, is_aggregate: IsAggregate<'_>) -> bool {
    match factor {
        TableFactor::Table { name, args: None, .. } => Catalog::is_empty(&named(name)),
        TableFactor::UNNEST { array_exprs, .. } => array_exprs.iter().all(is_no_list),
        TableFactor::Derived { subquery, .. } => match &*subquery.body {
            SetExpr::Select(select) => is_void(select, is_aggregate),
            _ => false,
        },
        TableFactor::NestedJoin { table_with_joins, .. } => {
            is_empty_factor(&table_with_joins.relation, is_aggregate) && keeps_left(&table_with_joins.joins)
        }
        _ => false,
    }
}

/// Whether an expression is one of the list columns that are always NULL.
fn is_no_list(expr: &Expr) -> bool {
    let name = match expr {
        Expr::Identifier(ident) => Some(ident),
        Expr::CompoundIdentifier(idents) => idents.last(),
        _ => None,
    };
    name.is_some_and(|ident| NO_LISTS.contains(&normal(ident).as_str()))
}

/// Whether joins add no rows to those of their left side.
fn keeps_left(joins: &[datafusion::sql::sqlparser::ast::Join]) -> bool {
    joins.iter().all(|join| {
        !matches!(join.join_operator, JoinOperator::Right(_) | JoinOperator::RightOuter(_) | JoinOperator::FullOuter(_))
    })
}

/// Whether the tables that a select reads are known to be empty.
fn reads_nothing(select: &Select, is_aggregate: IsAggregate<'_>) -> bool {
    select.from.iter().any(|from| {
        let inner = |join: &datafusion::sql::sqlparser::ast::Join| {
            let inner = matches!(
                join.join_operator,
                JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_)
            );
            inner && is_empty_factor(&join.relation, is_aggregate)
        };
        keeps_left(&from.joins) && (is_empty_factor(&from.relation, is_aggregate) || from.joins.iter().any(inner))
    })
}

/// Whether a select has no rows, whatever its outputs are.
fn is_void(select: &Select, is_aggregate: IsAggregate<'_>) -> bool {
    reads_nothing(select, is_aggregate)
        && is_ungrouped(select)
        && select.having.is_none()
        && !aggregates(select, is_aggregate)
}

/// Whether there is no `GROUP BY`.
pub(super) fn is_ungrouped(select: &Select) -> bool {
    matches!(&select.group_by, GroupByExpr::Expressions(all, _) if all.is_empty())
}

/// Whether a select has no tables and gives exactly one row.
pub(super) fn is_single_row(select: &Select) -> bool {
    select.from.is_empty()
        && select.distinct.is_none()
        && select.selection.is_none()
        && select.having.is_none()
        && select.qualify.is_none()
        && is_ungrouped(select)
}

struct Aggregates<'a>(&'a dyn Fn(&str) -> bool, usize);

impl Visitor for Aggregates<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.1 += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.1 -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(Function { name, over: None, within_group, .. }) if self.1 == 0 => {
                let name = parts(name).pop().unwrap_or_default();
                // An ordered-set aggregate (`WITHIN GROUP`) is no window function.
                let is_one = !within_group.is_empty() || (self.0)(&name);
                if is_one { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Whether a select aggregates: then it has a row even if it reads none.
pub(super) fn aggregates(select: &Select, is_aggregate: IsAggregate<'_>) -> bool {
    has_aggregate(&select.projection, is_aggregate)
}

/// Whether a part of a select contains an aggregate.
pub(super) fn has_aggregate(part: &impl Visit, is_aggregate: IsAggregate<'_>) -> bool {
    walk(part, &mut Aggregates(is_aggregate, 0)).is_break()
}

fn is_false(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if value.value == Value::Boolean(false))
}

/// Whether a query is known to have no rows.
pub(super) fn is_empty(query: &Query) -> bool {
    let SetExpr::Select(select) = &*query.body else { return false };
    let is_null = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { expr: Expr::Value(value), .. } => value.value == Value::Null,
        _ => false,
    };
    let nothing = select.selection.as_ref().is_some_and(is_false) && select.projection.iter().all(is_null);
    nothing && is_ungrouped(select) && select.having.is_none()
}

/// Reduces a query without rows to the names of its outputs.
pub(super) fn fold(query: &mut Query, is_aggregate: IsAggregate<'_>) {
    let folded = fold_set(&mut query.body, is_aggregate);
    if folded && matches!(&*query.body, SetExpr::Select(_)) {
        query.order_by = None;
    }
}

fn fold_set(set: &mut SetExpr, is_aggregate: IsAggregate<'_>) -> bool {
    match set {
        SetExpr::Select(select) => fold_select(select, is_aggregate),
        SetExpr::SetOperation { left, op, set_quantifier, right } => {
            let (is_left, is_right) = (fold_set(left, is_aggregate), fold_set(right, is_aggregate));
            // The right side is empty, also if it is a recursion over nothing: the left side alone remains.
            if is_right && !is_left && *op == SetOperator::Union && *set_quantifier == SetQuantifier::All {
                let nothing = Values { explicit_row: false, value_keyword: false, rows: Vec::new() };
                let rows = std::mem::replace(&mut **left, SetExpr::Values(nothing));
                *set = rows;
                return false;
            }
            is_left && is_right
        }
        _ => false,
    }
}

fn fold_select(select: &mut Select, is_aggregate: IsAggregate<'_>) -> bool {
    let stars = |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    if !is_void(select, is_aggregate) || select.projection.iter().any(stars) {
        return false;
    }
    for item in &mut select.projection {
        let name = match &*item {
            SelectItem::ExprWithAlias { alias, .. } => alias.clone(),
            SelectItem::UnnamedExpr(expr) => naming::name(expr),
            _ => continue,
        };
        *item = SelectItem::ExprWithAlias { expr: Expr::Value(Value::Null.into()), alias: name };
    }
    select.selection = Some(Expr::Value(Value::Boolean(false).into()));
    select.distinct = None;
    // One of the joined tables is empty, so the join conditions do not matter.
    if let Some(at) = select.from.iter().position(|from| is_empty_factor(&from.relation, is_aggregate)) {
        let mut from = select.from.swap_remove(at);
        from.joins.clear();
        select.from = vec![from];
    }
    naming::make_unique(&mut select.projection);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::query;

    fn is_aggregate(name: &str) -> bool {
        ["count", "max"].contains(&name)
    }

    fn folded(text: &str) -> String {
        let mut query = query(text);
        fold(&mut query, &is_aggregate);
        query.to_string()
    }

    #[test]
    fn what_has_no_rows_keeps_its_names() {
        for (text, expected) in [
            (
                "select c.conname, c.oid as n, f(x) from pg_constraint c where odd(c.conkey) order by 1",
                "SELECT NULL AS conname, NULL AS n, NULL AS \"f\" FROM pg_constraint c WHERE false",
            ),
            // The join conditions add nothing, and need not be planned.
            (
                "select a from pg_class k join pg_catalog.pg_index i on odd(i.indkey) = k.oid",
                "SELECT NULL AS a FROM pg_class k JOIN pg_catalog.pg_index i ON odd(i.indkey) = k.oid WHERE false",
            ),
            (
                "select a from pg_index i left join pg_class k on true, pg_class l",
                "SELECT NULL AS a FROM pg_index i WHERE false",
            ),
            (
                "select distinct a from (select x as a from pg_trigger) s",
                "SELECT NULL AS a FROM (SELECT x AS a FROM pg_trigger) s WHERE false",
            ),
            ("select a, a from pg_index", "SELECT NULL AS a, NULL AS \"a_2\" FROM pg_index WHERE false"),
            // If one side of a union is empty, the other remains.
            ("select a from t union all select b from pg_index", "SELECT a FROM t"),
        ] {
            assert_eq!(folded(text), expected, "{text}");
            assert!(!expected.ends_with("false") || is_empty(&query(expected)), "{expected}");
        }
    }

    #[test]
    fn what_may_have_rows_stays() {
        for text in [
            "SELECT a FROM pg_class",
            "SELECT a FROM t",
            // An aggregate has a row of its own; an outer join keeps the rows of the other side.
            "SELECT count(*) FROM pg_index",
            "SELECT a FROM pg_index GROUP BY a",
            "SELECT 1 FROM pg_index HAVING true",
            "SELECT a FROM pg_class k LEFT JOIN pg_index i ON true",
            "SELECT a FROM pg_index i RIGHT JOIN pg_class k ON true",
            "SELECT a FROM pg_index i FULL JOIN pg_class k ON true",
            // The names behind `*` are not known here.
            "SELECT * FROM pg_index",
            "SELECT i.* FROM pg_index i",
            "SELECT a FROM t UNION SELECT b FROM u",
        ] {
            assert_eq!(folded(text), text);
            assert!(!is_empty(&query(text)), "{text}");
        }
        // A window function gives a row for each row; a subquery aggregates for itself.
        for text in ["select count(*) over () from pg_index", "select (select max(a) from t) from pg_index"] {
            assert!(folded(text).starts_with("SELECT NULL AS "), "{text}");
        }
    }

    #[test]
    fn emptiness_is_said_by_nulls_and_a_condition() {
        for (text, expected) in [
            ("select null as a where false", true),
            ("select null as a, null as b from t where false", true),
            ("select null as a where true", false),
            ("select null as a", false),
            ("select 1 as a where false", false),
            ("select null where false", false),
            ("select null as a from t where false group by b", false),
            ("select null as a where false having true", false),
            ("select null as a where false union select null as a where false", false),
        ] {
            assert_eq!(is_empty(&query(text)), expected, "{text}");
        }
    }
}
