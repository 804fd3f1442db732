//! Operators on dates and intervals as PostgreSQL and DuckDB have them, told apart while a statement is planned: types are
//! known there, and DataFusion would refuse some of them, or lose the time of a day.

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable as _, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::functions::intervals;

/// The planner of operators.
#[derive(Debug)]
pub(crate) struct Arithmetic;

fn is_interval(kind: &DataType) -> bool {
    matches!(kind, DataType::Interval(IntervalUnit::MonthDayNano))
}

fn is_date(kind: &DataType) -> bool {
    matches!(kind, DataType::Date32 | DataType::Date64)
}

fn calculates(op: &BinaryOperator) -> bool {
    use BinaryOperator::{Divide, Minus, Modulo, Multiply, Plus};
    matches!(op, Plus | Minus | Multiply | Divide | Modulo)
}

fn compares(op: &BinaryOperator) -> bool {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

/// A date as the time at which it begins.
fn begin(date: Expr) -> Expr {
    cast(date, DataType::Timestamp(TimeUnit::Nanosecond, None))
}

/// Numbers without a sign (ranks, lengths of lists) as those with one, beside which DataFusion would calculate with
/// decimals; a difference of two may be below zero. PostgreSQL has none without a sign.
fn signed(value: Expr, own: &DataType, op: &BinaryOperator, other: &DataType) -> Expr {
    let is_difference = *op == BinaryOperator::Minus && *other == DataType::UInt64;
    if *own == DataType::UInt64 && calculates(op) && (is_difference || other.is_signed_integer()) {
        cast(value, DataType::Int64)
    } else {
        value
    }
}

/// What lies between two times as an interval, where it is calculated with.
fn as_interval(value: Expr, kind: DataType) -> (Expr, DataType) {
    match kind {
        DataType::Duration(_) => {
            (intervals::spread().call(vec![value]), DataType::Interval(IntervalUnit::MonthDayNano))
        }
        kind => (value, kind),
    }
}

impl ExprPlanner for Arithmetic {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        if !(calculates(&expr.op) || compares(&expr.op)) {
            return Ok(PlannerResult::Original(expr));
        }
        // What has no type yet (a parameter) gets one later, of its neighbour.
        let (Ok(left), Ok(right)) = (expr.left.get_type(schema), expr.right.get_type(schema)) else {
            return Ok(PlannerResult::Original(expr));
        };
        let RawBinaryExpr { op, left: a, right: b } = expr;
        let (a, b) = (signed(a, &left, &op, &right), signed(b, &right, &op, &left));
        let is_length = |kind: &DataType| matches!(kind, DataType::Duration(_));
        let calculated = |other: &DataType| match &op {
            BinaryOperator::Multiply | BinaryOperator::Divide => other.is_numeric(),
            BinaryOperator::Plus | BinaryOperator::Minus => is_interval(other),
            _ => false,
        };
        let (is_left, is_right) = (is_length(&left) && calculated(&right), is_length(&right) && calculated(&left));
        let (a, left) = if is_left { as_interval(a, left) } else { (a, left) };
        let (b, right) = if is_right { as_interval(b, right) } else { (b, right) };
        Ok(match &op {
            BinaryOperator::Multiply if is_interval(&left) && right.is_numeric() => {
                PlannerResult::Planned(intervals::product().call(vec![a, cast(b, DataType::Float64)]))
            }
            BinaryOperator::Multiply if left.is_numeric() && is_interval(&right) => {
                PlannerResult::Planned(intervals::product().call(vec![b, cast(a, DataType::Float64)]))
            }
            BinaryOperator::Divide if is_interval(&left) && right.is_numeric() => {
                PlannerResult::Planned(intervals::quotient().call(vec![a, cast(b, DataType::Float64)]))
            }
            BinaryOperator::Plus | BinaryOperator::Minus if is_date(&left) && is_interval(&right) => {
                PlannerResult::Original(RawBinaryExpr { op, left: begin(a), right: b })
            }
            BinaryOperator::Plus if is_interval(&left) && is_date(&right) => {
                PlannerResult::Original(RawBinaryExpr { op, left: a, right: begin(b) })
            }
            _ if compares(&op) && is_interval(&left) && is_interval(&right) => {
                let length = |interval: Expr| intervals::length().call(vec![interval]);
                PlannerResult::Original(RawBinaryExpr { op, left: length(a), right: length(b) })
            }
            _ => PlannerResult::Original(RawBinaryExpr { op, left: a, right: b }),
        })
    }
}
