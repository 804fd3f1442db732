//! Queries with outputs that return several rows (`SELECT unnest(tags) FROM t ORDER BY id`), sorted by something that
//! is no output: the planner looks for the key below the unnested list, and does not find it above. Also sort keys
//! with correlated subqueries, which it supports only among outputs, and aggregates of subqueries (`ORDER BY sum(CASE
//! WHEN EXISTS (…) THEN 1 END)`), whose rows are joined for outputs. The keys become outputs of an inner query.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, Ident, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, TableFactor, Value, Visitor,
};

use super::empty_queries::{self, IsAggregate};
use super::expressions::{arguments, bare, expr};
use super::{equality_lookups, naming, set_returning_functions};
use crate::names::normal;
use crate::statement_walk::{has_expression, walk};

/// Wraps such a query in another one, if its order needs it.
pub(super) fn ordered(query: &mut Query, is_aggregate: IsAggregate<'_>) {
    let Some(mut order) = query.order_by.clone() else { return };
    let (SetExpr::Select(select), OrderByKind::Expressions(keys)) = (&*query.body, &mut order.kind) else { return };
    let gathers = keys.iter().any(|key| gathers_query(&key.expr, is_aggregate));
    let needs_values = || select.projection.iter().any(is_of_rows) || keys.iter().any(|key| asks_of_row(&key.expr));
    let is_apart = gathers || (empty_queries::is_ungrouped(select) && needs_values());
    if select.distinct.is_some() || !is_apart {
        return;
    }
    let Some(names) = names_of(select) else { return };
    let mut inner = (**select).clone();
    let mut added = 0;
    for key in keys.iter_mut() {
        if is_output(key, &names) {
            continue;
        }
        added += 1;
        let alias = Ident::with_quote('"', format!("order {added}"));
        let key = std::mem::replace(&mut key.expr, Expr::Identifier(alias.clone()));
        inner.projection.push(SelectItem::ExprWithAlias { expr: key, alias });
    }
    if added == 0 {
        return;
    }
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let sql = format!("(SELECT {} FROM (SELECT 1) AS \"rows of it\")", names.join(", "));
    let Ok(Expr::Subquery(mut outer)) = expr(&sql) else { return };
    let SetExpr::Select(around) = &mut *outer.body else { return };
    let Some(TableFactor::Derived { subquery, .. }) = around.from.first_mut().map(|from| &mut from.relation) else {
        return;
    };
    *subquery.body = SetExpr::Select(Box::new(inner));
    query.body = outer.body;
    query.order_by = Some(order);
}

/// The names of all outputs; `None` if some have no name, or two the same.
fn names_of(select: &Select) -> Option<Vec<Ident>> {
    let name = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.clone()),
        SelectItem::UnnamedExpr(column @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) => {
            Some(naming::name(column))
        }
        _ => None,
    };
    let names = select.projection.iter().map(name).collect::<Option<Vec<_>>>()?;
    let different: HashSet<String> = names.iter().map(normal).collect();
    (different.len() == names.len()).then_some(names)
}

/// Whether a sort key is the name or position of an output.
fn is_output(key: &OrderByExpr, names: &[Ident]) -> bool {
    match &key.expr {
        Expr::Identifier(name) => names.iter().any(|own| normal(own) == normal(name)),
        Expr::Value(value) => matches!(value.value, Value::Number(..)),
        _ => false,
    }
}

/// Whether a sort key contains a correlated subquery.
fn asks_of_row(key: &Expr) -> bool {
    has_expression(key, |part| match part {
        Expr::Subquery(query) | Expr::Exists { subquery: query, .. } => equality_lookups::reads_row(query),
        _ => false,
    })
}

/// Whether a sort key contains an aggregate of a subquery.
fn gathers_query(key: &Expr, is_aggregate: IsAggregate<'_>) -> bool {
    struct QueryFinder;
    impl Visitor for QueryFinder {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    has_expression(key, |part| match part {
        Expr::Function(call) => {
            call.over.is_none()
                && bare(&call.name).is_some_and(|name| is_aggregate(&name))
                && walk(part, &mut QueryFinder).is_break()
        }
        _ => false,
    })
}

/// Whether an output returns several rows.
fn is_of_rows(item: &SelectItem) -> bool {
    let (SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }) = item else { return false };
    has_expression(value, |part| matches!(part, Expr::Function(call) if gives_rows(call)))
}

fn gives_rows(function: &Function) -> bool {
    let (Some(name), Some(args)) = (bare(&function.name), arguments(&function.args)) else { return false };
    name == "unnest" || set_returning_functions::output(&name, &args).is_some()
}
