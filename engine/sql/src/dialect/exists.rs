//! `EXISTS (SELECT …)` among outputs: the planner makes joins of those in conditions alone. Counting says the same, of one
//! row at most where the query does not read the row at hand.

use datafusion::sql::sqlparser::ast::{Expr, LimitClause, Query, Select, SelectItem, SetExpr, UnaryOperator};
use quiver_types::Result;

use super::expressions::{expr, number, take};
use super::{empty, lookups};
use crate::walk::change_outside_subqueries;

/// Counts in the place of each `EXISTS` that is, or is part of, an output.
pub(super) fn in_outputs(select: &mut Select, is_aggregate: &dyn Fn(&str) -> bool) -> Result<()> {
    change_outside_subqueries(&mut select.projection, |place| {
        let Expr::Exists { subquery, negated } = place else { return Ok(()) };
        let negated = *negated;
        *place = counted(subquery, is_aggregate)?;
        if negated {
            let inner = Box::new(take(place));
            *place = Expr::Nested(Box::new(Expr::UnaryOp { op: UnaryOperator::Not, expr: inner }));
        }
        Ok(())
    })
}

/// Whether a query gives a row for each that it reads: it has some if these are there, in whatever order and however alike.
fn is_plain(query: &Query, is_aggregate: &dyn Fn(&str) -> bool) -> bool {
    let SetExpr::Select(select) = &*query.body else { return false };
    query.with.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && select.having.is_none()
        && empty::is_ungrouped(select)
        && !empty::aggregates(select, is_aggregate)
}

/// Has such a query give one value instead of its rows.
fn give(query: &mut Query, value: Expr) {
    if let SetExpr::Select(select) = &mut *query.body {
        select.distinct = None;
        select.projection = vec![SelectItem::UnnamedExpr(value)];
    }
    query.order_by = None;
}

/// How many rows a query has; none: it gives others than it reads.
pub(super) fn counting(query: &Query, is_aggregate: &dyn Fn(&str) -> bool) -> Result<Option<Query>> {
    if !is_plain(query, is_aggregate) {
        return Ok(None);
    }
    let mut query = query.clone();
    give(&mut query, expr("count(*)")?);
    Ok(Some(query))
}

/// Whether a query has rows, as a query of one value.
fn counted(query: &mut Query, is_aggregate: &dyn Fn(&str) -> bool) -> Result<Expr> {
    let reads_row = lookups::reads_row(query);
    if is_plain(query, is_aggregate) {
        if reads_row {
            give(query, expr("count(*) > 0")?);
            return expr(&format!("({query})"));
        }
        give(query, number(1));
        let limit = Some(number(1));
        query.limit_clause = Some(LimitClause::LimitOffset { limit, offset: None, limit_by: Vec::new() });
    }
    expr(&format!("(SELECT count(*) > 0 FROM ({query}) AS \"rows\")"))
}
