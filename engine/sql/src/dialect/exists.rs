//! `EXISTS (SELECT …)` among outputs, in aggregates of a `HAVING` and conditions of full joins: the planner can turn only
//! those in other conditions into joins. The subquery is replaced by a count, over one row at most if it is not correlated.

use datafusion::sql::sqlparser::ast::{
    Expr, JoinConstraint, JoinOperator, LimitClause, Query, Select, SelectItem, SetExpr, UnaryOperator, Value, VisitMut,
};
use quiver_types::{Error, Result};

use super::empty_queries::IsAggregate;
use super::expressions::{bare, boolean, expr, number, take};
use super::{empty_queries, equality_lookups, queries};
use crate::error::unsupported;
use crate::statement_walk::change_outside_subqueries;

/// Replaces each `EXISTS` in an output, an aggregate of the `HAVING` or the condition of a full join by a count.
pub(super) fn in_outputs(select: &mut Select, is_aggregate: IsAggregate<'_>) -> Result<()> {
    all_counted(&mut select.projection, is_aggregate)?;
    for join in select.from.iter_mut().flat_map(|from| from.joins.iter_mut()) {
        if let JoinOperator::FullOuter(JoinConstraint::On(condition)) = &mut join.join_operator {
            all_counted(condition, is_aggregate)?;
        }
    }
    change_outside_subqueries(&mut select.having, |place| match place {
        Expr::Function(call) if bare(&call.name).is_some_and(|name| is_aggregate(&name)) => {
            all_counted(call, is_aggregate)
        }
        _ => Ok(()),
    })
}

/// Replaces each `EXISTS` in a part of a select by a count.
fn all_counted(part: &mut impl VisitMut, is_aggregate: IsAggregate<'_>) -> Result<()> {
    change_outside_subqueries(part, |place| {
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

/// Whether a query gives one row for each that it reads, so that neither its order nor its duplicates decide whether
/// it has rows.
fn is_plain(query: &Query, is_aggregate: &dyn Fn(&str) -> bool) -> bool {
    let SetExpr::Select(select) = &*query.body else { return false };
    query.with.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && select.having.is_none()
        && empty_queries::is_ungrouped(select)
        && !empty_queries::aggregates(select, is_aggregate)
}

/// Replaces `EXISTS` of a query that always has a row, such as an aggregate over all rows.
pub(super) fn always(place: &mut Expr, is_aggregate: &dyn Fn(&str) -> bool) {
    let Expr::Exists { subquery, negated } = &*place else { return };
    let SetExpr::Select(select) = &*subquery.body else { return };
    let has_row = subquery.limit_clause.is_none()
        && subquery.fetch.is_none()
        && select.having.is_none()
        && empty_queries::is_ungrouped(select)
        && empty_queries::aggregates(select, is_aggregate);
    if has_row {
        *place = boolean(!*negated);
    }
}

/// Refuses a correlated `EXISTS` with an `OFFSET`, since the planner would ignore it.
pub(super) fn whole(query: &Query) -> Result<()> {
    match &query.limit_clause {
        Some(LimitClause::LimitOffset { offset: Some(_), .. }) if equality_lookups::reads_row(query) => {
            Err(unsupported(
                "`OFFSET` in an `EXISTS` that reads the row at hand is supported in `WHERE` and among outputs, of columns that have \
             their table before them: compare with `(SELECT count(*) …)`",
            ))
        }
        _ => Ok(()),
    }
}

/// A query without the limits that cannot change whether it has rows.
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

/// Makes a query return the given value instead of its outputs.
fn give(query: &mut Query, value: Expr) {
    if let SetExpr::Select(select) = &mut *query.body {
        select.distinct = None;
        select.projection = vec![SelectItem::UnnamedExpr(value)];
    }
    query.order_by = None;
}

/// A query that counts the rows; `None` if the query does not give one row for each that it reads.
pub(super) fn counting(query: &Query, is_aggregate: &dyn Fn(&str) -> bool) -> Result<Option<Query>> {
    if !is_plain(query, is_aggregate) {
        return Ok(None);
    }
    let mut query = query.clone();
    give(&mut query, expr("count(*)")?);
    Ok(Some(query))
}

/// Counts the rows of any query by wrapping it.
pub(super) fn counting_around(query: &Query) -> Result<Query> {
    match expr(&format!("(SELECT count(*) FROM ({query}) AS \"rows\")"))? {
        Expr::Subquery(counting) => Ok(*counting),
        _ => Err(Error::internal("no subquery of ours")),
    }
}

/// Whether a query has rows, as a query that returns one boolean.
fn counted(query: &mut Query, is_aggregate: &dyn Fn(&str) -> bool) -> Result<Expr> {
    let reads_row = equality_lookups::reads_row(query);
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
