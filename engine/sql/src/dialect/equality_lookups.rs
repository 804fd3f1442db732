//! Correlated scalar subqueries that look up a value: `(SELECT name FROM u WHERE u.id = t.id)`. The planner can join
//! only those that aggregate. So they are made aggregates: the first value of an order if there is a `LIMIT 1`, else
//! a list, which must have one item at most.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, LimitClause, OrderBy, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr,
    TableFactor, Value, Visitor,
};
use quiver_types::Result;

use super::empty_queries;
use super::expressions::{bare, call, expr, take};
use super::set_returning_functions::{gives_members, gives_rows};
use crate::error::unsupported;
use crate::names::{normal, parts};
use crate::statement_walk::{has_expression, walk};

/// The form that a look-up was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LookUp {
    /// The first value of an order, for `LIMIT 1`.
    Value,
    /// A list of values, which must have one item at most.
    List,
}

/// Makes a look-up an aggregate; `None` if the query is not correlated, or cannot be translated.
pub(super) fn translate(query: &mut Query, is_aggregate: &dyn Fn(&str) -> bool) -> Result<Option<LookUp>> {
    if !is_plain(query, is_aggregate) || !reads_row(query) {
        return Ok(None);
    }
    let is_first = match &query.limit_clause {
        None => false,
        Some(LimitClause::LimitOffset { limit: Some(Expr::Value(limit)), offset: None, limit_by })
            if limit_by.is_empty() && matches!(&limit.value, Value::Number(rows, _) if rows == "1") =>
        {
            true
        }
        Some(_) => return Ok(None),
    };
    let Query { body, order_by, limit_clause, .. } = query;
    let SetExpr::Select(select) = &mut **body else { return Ok(None) };
    let [SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }] =
        select.projection.as_mut_slice()
    else {
        return Ok(None);
    };
    if !is_first {
        *order_by = None;
        let inner = take(value);
        *value = expr(&format!("array_agg({inner})"))?;
        return Ok(Some(LookUp::List));
    }
    let keys = match order_by.as_ref().map(keys_of) {
        None => String::new(),
        Some(Some(keys)) => format!(" ORDER BY {keys}"),
        Some(None) => return Ok(None),
    };
    (*order_by, *limit_clause) = (None, None);
    let inner = take(value);
    *value = expr(&format!("first_value({inner}{keys})"))?;
    Ok(Some(LookUp::Value))
}

/// Removes `LIMIT 1` and the order from a query of one row, such as `(SELECT count(*) … LIMIT 1)`: the planner cannot
/// join a correlated query with a limit.
pub(super) fn unlimited(query: &mut Query, is_aggregate: &dyn Fn(&str) -> bool) {
    let Some(LimitClause::LimitOffset { limit: Some(Expr::Value(limit)), offset: None, limit_by }) =
        &query.limit_clause
    else {
        return;
    };
    let has_room = matches!(&limit.value, Value::Number(rows, _) if rows.parse::<u64>().is_ok_and(|rows| rows > 0));
    let SetExpr::Select(select) = &*query.body else { return };
    if has_room
        && limit_by.is_empty()
        && empty_queries::is_ungrouped(select)
        && empty_queries::aggregates(select, is_aggregate)
    {
        (query.limit_clause, query.order_by) = (None, None);
    }
}

/// Rewrites `x IN (SELECT count(*) …)` as a comparison, if the subquery is correlated and always returns one row: the
/// planner would look for `x` among the counted rows.
pub(super) fn compared(place: &mut Expr, is_aggregate: &dyn Fn(&str) -> bool) {
    let Expr::InSubquery { expr, subquery, negated } = place else { return };
    let SetExpr::Select(select) = &*subquery.body else { return };
    let has_one_row = select.having.is_none()
        && empty_queries::is_ungrouped(select)
        && empty_queries::aggregates(select, is_aggregate)
        && subquery.limit_clause.is_none()
        && subquery.fetch.is_none();
    let is_one =
        matches!(select.projection.as_slice(), [SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }]);
    if !has_one_row || !is_one || matches!(**expr, Expr::Tuple(_)) || !reads_row(subquery) {
        return;
    }
    let op = if *negated { BinaryOperator::NotEq } else { BinaryOperator::Eq };
    let left = Box::new(Expr::Nested(Box::new(take(expr))));
    let right = Box::new(Expr::Subquery(subquery.clone()));
    *place = Expr::Nested(Box::new(Expr::BinaryOp { left, op, right }));
}

/// Refuses a correlated `x NOT IN (SELECT …)` that did not become a join: the planner's would drop rows in which `x`
/// is NULL and the subquery is empty, which PostgreSQL keeps.
pub(super) fn without(query: &Query) -> Result<()> {
    if !reads_row(query) {
        return Ok(());
    }
    Err(unsupported(
        "`NOT IN` with a subquery about the row at hand is supported in `WHERE` and among outputs, of columns that have their \
         table before them: write `NOT EXISTS`",
    ))
}

/// Replaces a query without tables by its output, if that contains subqueries, `(SELECT NOT EXISTS (…))`, or reads the row at
/// hand, `(SELECT t.a + 1)`.
pub(super) fn unwrapped(place: &mut Expr, is_aggregate: &dyn Fn(&str) -> bool) {
    let Expr::Subquery(query) = place else { return };
    let Query { with: None, body, order_by: None, limit_clause: None, fetch: None, .. } = &mut **query else { return };
    let SetExpr::Select(select) = &mut **body else { return };
    let is_row = select.from.is_empty()
        && select.distinct.is_none()
        && select.selection.is_none()
        && select.having.is_none()
        && empty_queries::is_ungrouped(select)
        && !empty_queries::aggregates(select, is_aggregate)
        && !has_window(select);
    let [SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }] =
        select.projection.as_mut_slice()
    else {
        return;
    };
    let is_query = |part: &Expr| matches!(part, Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. });
    let is_column = |part: &Expr| matches!(part, Expr::CompoundIdentifier(_));
    // A bare name may mean something else in the outer query, and a function may return no row or several.
    let is_unfit = |part: &Expr| match part {
        Expr::Identifier(_) => true,
        Expr::Function(call) => bare(&call.name).is_some_and(|name| gives_rows(&name) || gives_members(&name)),
        _ => false,
    };
    let is_computed = has_expression(&*value, is_column) && !has_expression(&*value, is_unfit);
    if is_row && (is_computed || has_expression(&*value, is_query)) {
        let inner = take(value);
        *place = Expr::Nested(Box::new(inner));
    }
}

/// Marks the value of an uncorrelated query as nullable: it is NULL if the query has no rows, even if its column
/// cannot be.
pub(super) fn may_be_null(query: &mut Query, is_aggregate: &dyn Fn(&str) -> bool) {
    if reads_row(query) {
        return;
    }
    let SetExpr::Select(select) = &mut *query.body else { return };
    let has_one_row = select.having.is_none()
        && empty_queries::is_ungrouped(select)
        && empty_queries::aggregates(select, is_aggregate);
    let has_one_row = has_one_row || (select.from.is_empty() && select.selection.is_none());
    if has_one_row || select.distinct.is_some() {
        return;
    }
    if let [SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }] =
        select.projection.as_mut_slice()
    {
        let inner = take(value);
        *value = call("optional", vec![inner]);
    }
}

/// The sort keys; `None` if one of them may refer to an output.
fn keys_of(order: &OrderBy) -> Option<String> {
    let OrderByKind::Expressions(keys) = &order.kind else { return None };
    let is_own = |key: &OrderByExpr| !matches!(key.expr, Expr::Value(_)) && key.with_fill.is_none();
    keys.iter().all(is_own).then(|| keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
}

/// Whether a query returns one value for each row of its tables that it keeps.
fn is_plain(query: &Query, is_aggregate: &dyn Fn(&str) -> bool) -> bool {
    let SetExpr::Select(select) = &*query.body else { return false };
    let is_sorted_by_output = || {
        let alias = match select.projection.as_slice() {
            [SelectItem::ExprWithAlias { alias, .. }] => normal(alias),
            _ => return false,
        };
        let names_it = |part: &Expr| matches!(part, Expr::Identifier(name) if normal(name) == alias);
        query.order_by.as_ref().is_some_and(|order| has_expression(order, names_it))
    };
    query.with.is_none()
        && query.fetch.is_none()
        && select.distinct.is_none()
        && select.having.is_none()
        && !select.from.is_empty()
        && empty_queries::is_ungrouped(select)
        && !empty_queries::aggregates(select, is_aggregate)
        && !has_window(select)
        && !is_sorted_by_output()
}

/// Whether the outputs contain window functions.
fn has_window(select: &Select) -> bool {
    has_expression(&select.projection, |part| matches!(part, Expr::Function(call) if call.over.is_some()))
}

/// Whether a query is correlated: it refers to a table that is not in its `FROM`.
pub(super) fn reads_row(query: &Query) -> bool {
    let mut spoken = QualifierCollector::default();
    let _ = walk(query, &mut spoken);
    spoken.of.iter().any(|table| !spoken.known.contains(table))
}

/// Tables by the names that qualify their columns.
#[derive(Default)]
struct QualifierCollector {
    known: HashSet<String>,
    of: HashSet<String>,
}

impl Visitor for QualifierCollector {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        let name = match factor {
            TableFactor::Table { alias: Some(alias), .. }
            | TableFactor::Derived { alias: Some(alias), .. }
            | TableFactor::UNNEST { alias: Some(alias), .. }
            | TableFactor::Function { alias: Some(alias), .. }
            | TableFactor::NestedJoin { alias: Some(alias), .. } => Some(normal(&alias.name)),
            TableFactor::Table { name, .. } => parts(name).pop(),
            _ => None,
        };
        self.known.extend(name);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(name) = expr
            && let [.., table, _] = name.as_slice()
        {
            self.of.insert(normal(table));
        }
        ControlFlow::Continue(())
    }
}
