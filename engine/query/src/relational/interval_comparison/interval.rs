//! Helpers for expressions of intervals.

use arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::DFSchema;
use datafusion::logical_expr::{Expr, ExprSchemable as _, SortExpr};

use crate::functions::intervals;

/// Whether an expression is an interval.
pub(super) fn is_interval(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|kind| kind == DataType::Interval(IntervalUnit::MonthDayNano))
}

/// The length of an interval, as an expression.
pub(super) fn length(interval: Expr) -> Expr {
    intervals::length().call(vec![interval])
}

/// Replaces interval sort keys by their lengths; returns whether there were any.
pub(super) fn in_order(order: &mut [SortExpr], schema: &DFSchema) -> bool {
    let mut is_changed = false;
    for key in order.iter_mut().filter(|key| is_interval(&key.expr, schema)) {
        key.expr = length(key.expr.clone());
        is_changed = true;
    }
    is_changed
}
