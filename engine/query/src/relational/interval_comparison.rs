//! Compares intervals by their length, as it sorts them: a day is shorter than 25 hours and equal to 24. Arrow compares
//! months, then days, then time. Groups, `DISTINCT` and joins by a column of both sides, which need equal intervals to
//! be identical, are handled by [`equal_groups`].

mod equal_groups;
mod interval;
mod window_frames;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::{
    AggregateFunction, Between, BinaryExpr, Case, InList, InSubquery, WindowFunction,
};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator, Projection, Subquery};
use datafusion::optimizer::AnalyzerRule;

use self::interval::{in_order, is_interval, length};
use crate::plan_walk::{change_expressions, change_nodes, change_parts};

/// The rule for comparisons, `ORDER BY`, `min`, `max`, groups and `DISTINCT`. It follows type coercion.
#[derive(Debug)]
pub(crate) struct Lengths;

impl AnalyzerRule for Lengths {
    fn name(&self) -> &'static str {
        "lengths"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        change_nodes(plan, &mut |node| measured(node)?.transform_data(equal_groups::gathered))
    }
}

/// Replaces intervals in a node's expressions by their lengths.
fn measured(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&node.inputs());
    let is_aggregate = matches!(node, LogicalPlan::Aggregate(_));
    // For a join, these are the columns that must be equal.
    let is_keyed = matches!(node, LogicalPlan::Sort(_) | LogicalPlan::Join(_));
    let names = NamePreserver::new(&node);
    node.map_expressions(|expr| {
        let name = names.save(&expr);
        let changed = change_parts(expr, &mut |e| {
            let changed = compared(e, &schema).transform_data(|e| Ok(with_ordered_input(e, &schema)))?;
            Ok(if is_aggregate && !changed.transformed { extreme(changed.data, &schema) } else { changed })
        })?;
        if is_keyed {
            return changed.transform_data(|key| Ok(by_length(key, &schema)));
        }
        Ok(if changed.transformed { changed.update_data(|e| name.restore(e)) } else { changed })
    })
}

/// Replaces an interval sort key by its length.
fn by_length(key: Expr, schema: &DFSchema) -> Transformed<Expr> {
    if !is_interval(&key, schema) {
        return Transformed::no(key);
    }
    Transformed::yes(length(key))
}

fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// Replaces a comparison of intervals by one of their lengths.
fn compared(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if compares(op) && is_interval(&left, schema) && is_interval(&right, schema) =>
        {
            let (left, right) = (Box::new(length(*left)), Box::new(length(*right)));
            Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right }))
        }
        Expr::Between(Between { expr, negated, low, high }) if is_interval(&expr, schema) => {
            Transformed::yes(Expr::Between(Between {
                expr: Box::new(length(*expr)),
                negated,
                low: Box::new(length(*low)),
                high: Box::new(length(*high)),
            }))
        }
        Expr::InList(InList { expr, list, negated }) if is_interval(&expr, schema) => {
            let (expr, list) = (Box::new(length(*expr)), list.into_iter().map(length).collect());
            Transformed::yes(Expr::InList(InList { expr, list, negated }))
        }
        Expr::InSubquery(InSubquery { expr, subquery, negated }) if is_interval(&expr, schema) => {
            let Some(lengths) = lengths_of(&subquery.subquery) else {
                return Transformed::no(Expr::InSubquery(InSubquery { expr, subquery, negated }));
            };
            let subquery = Subquery { subquery: Arc::new(lengths), ..subquery };
            Transformed::yes(Expr::InSubquery(InSubquery { expr: Box::new(length(*expr)), subquery, negated }))
        }
        Expr::Case(Case { expr: Some(value), when_then_expr, else_expr })
            if is_interval(&value, schema) && when_then_expr.iter().all(|(when, _)| is_interval(when, schema)) =>
        {
            let expr = Some(Box::new(length(*value)));
            let when_then_expr =
                when_then_expr.into_iter().map(|(when, then)| (Box::new(length(*when)), then)).collect();
            Transformed::yes(Expr::Case(Case { expr, when_then_expr, else_expr }))
        }
        other => Transformed::no(other),
    }
}

/// The lengths of the only column of a subquery; `None` if it is no interval.
fn lengths_of(subquery: &Arc<LogicalPlan>) -> Option<LogicalPlan> {
    let value = Expr::Column(subquery.schema().columns().into_iter().next()?);
    if !is_interval(&value, subquery.schema()) {
        return None;
    }
    Projection::try_new(vec![length(value)], Arc::clone(subquery)).ok().map(LogicalPlan::Projection)
}

/// The rule for window functions. It precedes type coercion, which refuses the default frame over intervals.
#[derive(Debug)]
pub(crate) struct WindowLengths;

impl AnalyzerRule for WindowLengths {
    fn name(&self) -> &'static str {
        "window_lengths"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        change_nodes(plan, &mut |node| {
            if !matches!(node, LogicalPlan::Window(_)) {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            change_expressions(node, &mut |e| windowed(e, &schema))
        })
    }
}

/// Sorts and partitions a window by length.
fn windowed(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::WindowFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
    let is_changed = of_window(&mut call, schema)?;
    Ok(Transformed::new_transformed(Expr::WindowFunction(call), is_changed))
}

/// Sorts the input of an ordered aggregate by length.
fn with_ordered_input(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        // With `DISTINCT` the order must be that of the arguments.
        Expr::AggregateFunction(mut call) if !call.params.distinct => {
            let is_changed = in_order(&mut call.params.order_by, schema);
            Transformed::new_transformed(Expr::AggregateFunction(call), is_changed)
        }
        other => Transformed::no(other),
    }
}

fn of_window(call: &mut WindowFunction, schema: &DFSchema) -> Result<bool> {
    let mut is_changed = false;
    for key in call.params.partition_by.iter_mut().filter(|key| is_interval(key, schema)) {
        *key = length(key.clone());
        is_changed = true;
    }
    Ok(is_changed | window_frames::translate(&mut call.params, schema)?)
}

/// Replaces `min` and `max` by the first interval in the order of lengths, and `count(DISTINCT …)` by the number of
/// different lengths.
fn extreme(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::AggregateFunction(AggregateFunction { func, params }) = &expr else { return Transformed::no(expr) };
    let is_least = match func.name() {
        "min" => true,
        "max" => false,
        "count" if params.distinct && params.args.iter().any(|value| is_interval(value, schema)) => {
            let mut params = params.clone();
            for value in params.args.iter_mut().filter(|value| is_interval(value, schema)) {
                *value = length(value.clone());
            }
            return Transformed::yes(Expr::AggregateFunction(AggregateFunction { func: Arc::clone(func), params }));
        }
        _ => return Transformed::no(expr),
    };
    let key = match params.args.as_slice() {
        [value] if is_interval(value, schema) => length(value.clone()),
        _ => return Transformed::no(expr),
    };
    let mut params = params.clone();
    params.distinct = false;
    params.order_by = vec![key.sort(is_least, false)];
    Transformed::yes(Expr::AggregateFunction(AggregateFunction { func: first_value_udaf(), params }))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::IntervalMonthDayNano;
    use datafusion::common::ScalarValue;
    use datafusion::functions_aggregate::expr_fn::{count_distinct, max};
    use datafusion::logical_expr::lit;

    use super::*;
    use crate::functions::intervals;

    #[test]
    fn intervals_alone_are_measured() {
        let schema = DFSchema::empty();
        let day = || lit(ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(0, 1, 0))));
        assert_eq!(by_length(day(), &schema).data, intervals::length().call(vec![day()]));
        assert!(!by_length(lit(1), &schema).transformed);
        let compare = |other: Expr| compared(day().gt(other), &schema).data;
        assert_eq!(compare(day()), length(day()).gt(length(day())));
        assert_eq!(compare(lit(1)), day().gt(lit(1)));
        let between = compared(day().between(day(), day()), &schema).data;
        assert_eq!(between, length(day()).between(length(day()), length(day())));
        let listed = compared(day().in_list(vec![day()], true), &schema).data;
        assert_eq!(listed, length(day()).in_list(vec![length(day())], true));
        let case = |value: Expr, when: Expr| {
            let when_then_expr = vec![(Box::new(when), Box::new(lit(1)))];
            Expr::Case(Case { expr: Some(Box::new(value)), when_then_expr, else_expr: None })
        };
        assert_eq!(compared(case(day(), day()), &schema).data, case(length(day()), length(day())));
        assert!(!compared(case(lit(1), lit(1)), &schema).transformed);
        assert!(!extreme(max(lit(1)), &schema).transformed);
        let Expr::AggregateFunction(found) = extreme(count_distinct(day()), &schema).data else { panic!("no count") };
        assert_eq!(found.params.args, [length(day())]);
        let Expr::AggregateFunction(found) = extreme(max(day()), &schema).data else { panic!("no aggregate") };
        assert_eq!(found.func.name(), "first_value");
        assert_eq!(found.params.order_by, [intervals::length().call(vec![day()]).sort(false, false)]);
    }
}
