//! `EXISTS (SELECT …)` among outputs: the planner makes joins of those in conditions alone. Counting says the same, of one
//! row at most where the query does not read the row at hand.

use datafusion::sql::sqlparser::ast::{Expr, LimitClause, Query, Select, SelectItem, SetExpr, UnaryOperator, Value};
use quiver_types::{Error, Result};

use super::expressions::{boolean, expr, number, take};
use super::{empty, lookups, queries};
use crate::error::unsupported;
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

/// `EXISTS` of a query that has a row in any case, an aggregate of all rows.
pub(super) fn always(place: &mut Expr, is_aggregate: &dyn Fn(&str) -> bool) {
    let Expr::Exists { subquery, negated } = &*place else { return };
    let SetExpr::Select(select) = &*subquery.body else { return };
    let has_row = subquery.limit_clause.is_none()
        && subquery.fetch.is_none()
        && select.having.is_none()
        && empty::is_ungrouped(select)
        && empty::aggregates(select, is_aggregate);
    if has_row {
        *place = boolean(!*negated);
    }
}

/// Refuses an `EXISTS` that reads the row at hand and leaves rows out before it looks for some: the planner would not.
pub(super) fn whole(query: &Query) -> Result<()> {
    match &query.limit_clause {
        Some(LimitClause::LimitOffset { offset: Some(_), .. }) if lookups::reads_row(query) => Err(unsupported(
            "`OFFSET` in an `EXISTS` that reads the row at hand is supported in `WHERE` and among outputs, of columns that have \
             their table before them: compare with `(SELECT count(*) …)`",
        )),
        _ => Ok(()),
    }
}

/// A query without a limit that makes no difference to whether it has rows.
pub(super) fn unlimited(query: &Query) -> Result<Query> {
    let mut query = query.clone();
    if query.fetch.as_ref().is_some_and(|fetch| !fetch.with_ties) {
        queries::translate(&mut query)?;
    }
    let has_room = |rows: &Expr| match rows {
        Expr::Value(value) => match &value.value {
            Value::Number(rows, _) => rows.parse::<u64>().is_ok_and(|rows| rows > 0),
            _ => false,
        },
        _ => false,
    };
    if let Some(LimitClause::LimitOffset { limit, offset: None, limit_by }) = &query.limit_clause
        && limit_by.is_empty()
        && limit.as_ref().is_none_or(has_room)
    {
        query.limit_clause = None;
    }
    Ok(query)
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

/// How many rows any query has.
pub(super) fn counting_around(query: &Query) -> Result<Query> {
    match expr(&format!("(SELECT count(*) FROM ({query}) AS \"rows\")"))? {
        Expr::Subquery(counting) => Ok(*counting),
        _ => Err(Error::internal("no subquery of ours")),
    }
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
