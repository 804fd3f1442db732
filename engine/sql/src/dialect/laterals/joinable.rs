//! Decides which correlated subqueries can become joins: those whose rows depend on one outer row only, once windows,
//! groups and limits are partitioned by it.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, LimitClause, ObjectName, OrderBy, OrderByKind, Query, Select, SetExpr, SetQuantifier, Value, Visitor,
};

use super::super::empty_queries::{self, IsAggregate};
use super::super::expressions::bare;
use super::super::set_returning_functions;
use super::grouped_rows;
use super::outer_references::reads_only_keys;
use crate::catalog::Catalog;
use crate::statement_walk::{has_expression, walk};

/// Whether a query consists only of selects, set operations and `VALUES`.
pub(super) fn is_plain(query: &Query, is_aggregate: IsAggregate<'_>) -> bool {
    has_plain_rows(query, is_aggregate) && !has_expression(query, gives_rows) && !reads_nothing(query)
}

fn has_plain_rows(query: &Query, is_aggregate: IsAggregate<'_>) -> bool {
    let order = query.order_by.as_ref();
    let has_plain_body = match &*query.body {
        SetExpr::Select(select) => is_plain_select(select, order, is_aggregate),
        other => is_of_columns(order) && is_plain_set(other, is_aggregate),
    };
    has_plain_body && is_limited(query.limit_clause.as_ref()) && query.with.is_none() && query.fetch.is_none()
}

fn is_plain_set(set: &SetExpr, is_aggregate: IsAggregate<'_>) -> bool {
    match set {
        SetExpr::Select(select) => is_plain_select(select, None, is_aggregate),
        SetExpr::Query(inner) => has_plain_rows(inner, is_aggregate),
        SetExpr::SetOperation { left, right, set_quantifier, .. } => {
            matches!(set_quantifier, SetQuantifier::All | SetQuantifier::Distinct | SetQuantifier::None)
                && is_plain_set(left, is_aggregate)
                && is_plain_set(right, is_aggregate)
        }
        SetExpr::Values(_) => true,
        _ => false,
    }
}

fn is_plain_select(select: &Select, order: Option<&OrderBy>, is_aggregate: IsAggregate<'_>) -> bool {
    select.qualify.is_none()
        && select.named_window.is_empty()
        && grouped_rows::is_plain(select, is_aggregate)
        && grouped_rows::is_ordered(select, order)
}

/// Whether an order consists of column names or positions, as the order of a set operation must.
fn is_of_columns(order: Option<&OrderBy>) -> bool {
    match order.map(|order| &order.kind) {
        None => true,
        Some(OrderByKind::Expressions(keys)) => {
            keys.iter().all(|key| matches!(&key.expr, Expr::Identifier(_) | Expr::Value(_)))
        }
        Some(OrderByKind::All(_)) => false,
    }
}

/// Whether `LIMIT` and `OFFSET` are constants, or calculated from the outer row.
fn is_limited(clause: Option<&LimitClause>) -> bool {
    // A parameter has been replaced by a cast of its value.
    let number = |value: &Expr| match value {
        Expr::Value(value) => matches!(value.value, Value::Number(..) | Value::Placeholder(_) | Value::Null),
        other => reads_only_keys(other),
    };
    match clause {
        None => true,
        Some(LimitClause::LimitOffset { limit, offset, limit_by }) => {
            limit_by.is_empty()
                && limit.as_ref().is_none_or(number)
                && offset.as_ref().is_none_or(|offset| number(&offset.value))
        }
        Some(LimitClause::OffsetCommaLimit { .. }) => false,
    }
}

/// Whether a query names a table of the catalog that is known to be empty: such queries are folded where they stand.
fn reads_nothing(query: &Query) -> bool {
    struct Finder;
    impl Visitor for Finder {
        type Break = ();

        fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<()> {
            let is_empty = Catalog::is_empty(&empty_queries::named(name));
            if is_empty { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    walk(query, &mut Finder).is_break()
}

/// Whether an expression is a function that returns several rows for one.
fn gives_rows(part: &Expr) -> bool {
    matches!(part, Expr::Function(call)
        if bare(&call.name).is_some_and(|name| set_returning_functions::gives_rows(&name)))
}
