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
    matches!(op, BinaryOperator::Plus | BinaryOperator::Minus | BinaryOperator::Multiply | BinaryOperator::Divide)
}

fn compares(op: &BinaryOperator) -> bool {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

/// A date as the time at which it begins.
fn begin(date: Expr) -> Expr {
    cast(date, DataType::Timestamp(TimeUnit::Nanosecond, None))
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
