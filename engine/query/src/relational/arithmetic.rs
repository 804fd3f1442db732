//! Operators on dates, intervals and decimals with the results of PostgreSQL and DuckDB. They are replaced while a
//! statement is planned, when types are known. DataFusion would reject some of them, and drop the time of day or digits
//! in others.

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable as _, cast, lit};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::functions::{decimals, intervals, text_list};
use crate::time_literals::has_date;

/// The expression planner for operators.
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

/// The value of a text literal.
fn written(value: &Expr) -> Option<&str> {
    match value {
        Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) => Some(text),
        _ => None,
    }
}

/// The boolean that a text means in PostgreSQL: `t`, `yes`, `on`, `1` and so on, or a unique prefix of these.
pub(crate) fn truth(value: &Expr) -> Option<bool> {
    let word = written(value)?.trim().to_ascii_lowercase();
    let begins = |whole: &str, least: usize| word.len() >= least && whole.starts_with(&word);
    if begins("true", 1) || begins("yes", 1) || begins("on", 2) || word == "1" {
        Some(true)
    } else if begins("false", 1) || begins("no", 1) || begins("off", 2) || word == "0" {
        Some(false)
    } else {
        None
    }
}

/// The interval that a text literal may be: these begin with a number, a sign, a `P` or an `@`.
pub(crate) fn interval(value: &Expr) -> Option<Expr> {
    let begins = |letter: char| letter.is_ascii_digit() || matches!(letter, '+' | '-' | '.' | '@' | 'P');
    let is_one = written(value)?.trim_start().starts_with(begins);
    is_one.then(|| cast(value.clone(), DataType::Interval(IntervalUnit::MonthDayNano)))
}

/// Whether a value is an interval, or the difference of two times.
pub(crate) fn is_length(value: &Expr, schema: &DFSchema) -> bool {
    value.get_type(schema).is_ok_and(|kind| is_interval(&kind) || matches!(kind, DataType::Duration(_)))
}

/// Casts the text in a comparison with an interval to an interval.
fn with_interval(expr: RawBinaryExpr, schema: &DFSchema) -> RawBinaryExpr {
    let RawBinaryExpr { op, left, right } = expr;
    let (left, right) = match (interval(&left), interval(&right)) {
        (Some(value), None) if is_length(&right, schema) => (value, right),
        (None, Some(value)) if is_length(&left, schema) => (left, value),
        _ => (left, right),
    };
    RawBinaryExpr { op, left, right }
}

/// Replaces the text in a comparison with a boolean by the boolean that it means.
fn with_truth(expr: RawBinaryExpr, schema: &DFSchema) -> RawBinaryExpr {
    let RawBinaryExpr { op, left, right } = expr;
    let is_condition = |side: &Expr| side.get_type(schema).is_ok_and(|kind| kind == DataType::Boolean);
    let (left, right) = match (truth(&left), truth(&right)) {
        (Some(value), None) if is_condition(&right) => (lit(value), right),
        (None, Some(value)) if is_condition(&left) => (left, lit(value)),
        _ => (left, right),
    };
    RawBinaryExpr { op, left, right }
}

/// A date as the timestamp at which it begins.
fn begin(date: Expr) -> Expr {
    cast(date, DataType::Timestamp(TimeUnit::Nanosecond, None))
}

/// Casts unsigned integers (ranks, lengths of lists) to signed ones, as PostgreSQL has them. Beside signed ones,
/// DataFusion would calculate with decimals, and a difference of two could not be negative.
fn signed(value: Expr, own: &DataType, op: &BinaryOperator, other: &DataType) -> Expr {
    let is_difference = *op == BinaryOperator::Minus && *other == DataType::UInt64;
    if *own == DataType::UInt64 && calculates(op) && (is_difference || other.is_signed_integer()) {
        cast(value, DataType::Int64)
    } else {
        value
    }
}

/// The type of a parameter that is not that of the operand beside it, which DataFusion would give it.
fn open_beside(value: &Expr, op: &BinaryOperator, other: &DataType) -> Option<DataType> {
    use BinaryOperator::{Divide, Multiply, Plus};
    let Expr::Placeholder(Placeholder { field: None, .. }) = value else { return None };
    match (other, op) {
        (other, Multiply | Divide) if is_interval(other) => Some(DataType::Float64),
        (DataType::Timestamp(..) | DataType::Time64(_), Plus) => Some(DataType::Interval(IntervalUnit::MonthDayNano)),
        _ => None,
    }
}

/// Casts a literal text to the type that PostgreSQL gives it beside another operand: that of a number or an interval.
/// Beside a time it becomes a time in a difference, else an interval. A parameter without a type gets one like this.
fn typed_beside(value: Expr, kind: DataType, op: &BinaryOperator, other: &DataType) -> (Expr, DataType) {
    use BinaryOperator::{Divide, Minus, Multiply, Plus};
    let interval = || DataType::Interval(IntervalUnit::MonthDayNano);
    let to = match written(&value) {
        None => open_beside(&value, op, other),
        Some(_) if other.is_numeric() => Some(other.clone()),
        Some(_) if is_interval(other) && matches!(op, Multiply | Divide) => Some(DataType::Float64),
        Some(text) if is_interval(other) && matches!(op, Plus | Minus) => (!has_date(text)).then(interval),
        Some(text) => match (other, op) {
            (DataType::Date32 | DataType::Timestamp(..), Minus) if has_date(text) => Some(other.clone()),
            (DataType::Timestamp(..) | DataType::Time64(_), Plus | Minus) => (!has_date(text)).then(interval),
            _ => None,
        },
    };
    match to {
        Some(to) => (cast(value, to.clone()), to),
        None => (value, kind),
    }
}

/// Casts a number of half the digits to a double beside a whole number or a decimal, of which PostgreSQL makes doubles.
fn widened(value: Expr, kind: DataType, other: &DataType) -> (Expr, DataType) {
    if kind == DataType::Float32 && (other.is_integer() || other.is_decimal()) {
        (cast(value, DataType::Float64), DataType::Float64)
    } else {
        (value, kind)
    }
}

/// The type of a value that is a list.
pub(crate) fn list_type(value: &Expr, schema: &DFSchema) -> Option<DataType> {
    value.get_type(schema).ok().filter(|kind| matches!(kind, DataType::List(_)))
}

/// The list of a type that a text literal is beside one.
pub(crate) fn list(value: &Expr, kind: &DataType) -> Option<Expr> {
    written(value).map(|_| cast(text_list().call(vec![value.clone()]), kind.clone()))
}

/// Reads a literal text beside a list as a list: `list = '{1,2}'`.
fn with_list(expr: RawBinaryExpr, schema: &DFSchema) -> RawBinaryExpr {
    let RawBinaryExpr { op, left, right } = expr;
    let beside = |value: &Expr, other: &Expr| {
        let kind = written(value).and_then(|_| list_type(other, schema))?;
        list(value, &kind)
    };
    let (left, right) = match (beside(&left, &right), beside(&right, &left)) {
        (Some(read), _) => (read, right),
        (None, Some(read)) => (left, read),
        (None, None) => (left, right),
    };
    RawBinaryExpr { op, left, right }
}

/// What `||` makes of a list and a literal that has no type, which is a list beside one: NULL is no list, and a text is
/// read as one.
fn beside_list(expr: RawBinaryExpr, schema: &DFSchema) -> PlannerResult<RawBinaryExpr> {
    let is_list = |side: &Expr| side.get_type(schema).is_ok_and(|kind| matches!(kind, DataType::List(_)));
    let is_null = |side: &Expr| matches!(side, Expr::Literal(ScalarValue::Null, _));
    if is_null(&expr.right) && is_list(&expr.left) {
        PlannerResult::Planned(expr.left)
    } else if is_null(&expr.left) && is_list(&expr.right) {
        PlannerResult::Planned(expr.right)
    } else {
        PlannerResult::Original(with_list(expr, schema))
    }
}

/// Converts the difference of two times to an interval where it is calculated with.
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
        if compares(&expr.op) {
            let expr = with_interval(with_truth(expr, schema), schema);
            return Ok(PlannerResult::Original(with_list(expr, schema)));
        }
        if expr.op == BinaryOperator::StringConcat {
            return Ok(beside_list(expr, schema));
        }
        if !calculates(&expr.op) {
            return Ok(PlannerResult::Original(expr));
        }
        // A parameter that is left without a type gets that of its neighbour later.
        let (Ok(left), Ok(right)) = (expr.left.get_type(schema), expr.right.get_type(schema)) else {
            return Ok(PlannerResult::Original(expr));
        };
        let RawBinaryExpr { op, left: a, right: b } = expr;
        let (a, left) = typed_beside(a, left, &op, &right);
        let (b, right) = typed_beside(b, right, &op, &left);
        let (a, left) = widened(a, left, &right);
        let (b, right) = widened(b, right, &left);
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
            BinaryOperator::Divide => match decimals::quotient(&a, &left, &b, &right) {
                Some(quotient) => PlannerResult::Planned(quotient),
                None => PlannerResult::Original(RawBinaryExpr { op, left: a, right: b }),
            },
            BinaryOperator::Plus | BinaryOperator::Minus if is_date(&left) && is_interval(&right) => {
                PlannerResult::Original(RawBinaryExpr { op, left: begin(a), right: b })
            }
            BinaryOperator::Plus if is_interval(&left) && is_date(&right) => {
                PlannerResult::Original(RawBinaryExpr { op, left: a, right: begin(b) })
            }
            _ => PlannerResult::Original(RawBinaryExpr { op, left: a, right: b }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_say_what_holds() {
        for (text, expected) in [
            ("t", Some(true)),
            (" TRUE ", Some(true)),
            ("ye", Some(true)),
            ("on", Some(true)),
            ("1", Some(true)),
            ("f", Some(false)),
            ("of", Some(false)),
            ("No", Some(false)),
            ("0", Some(false)),
            ("o", None),
            ("", None),
            ("truer", None),
        ] {
            assert_eq!(truth(&lit(text)), expected, "{text}");
        }
        assert_eq!(truth(&lit(1)), None);
    }

    #[tokio::test]
    async fn texts_beside_intervals_are_intervals() {
        let from = "from (values (1, timestamp '2024-01-01 00:00:00', interval '1 day'), \
                    (2, timestamp '2024-01-02 12:00:00', interval '2 hours')) as t(n, d, i)";
        for (condition, expected) in [
            ("i > '3 hours'", "1"),
            ("'24:00:00' = i", "1"),
            ("i <> 'P1D'", "2"),
            ("d - timestamp '2024-01-01 00:00:00' >= '36h'", "2"),
            ("i in ('120 minutes', '5 days')", "2"),
            ("i not in ('120 minutes', '5 days')", "1"),
            ("i between '1 hour' and '5 hours'", "2"),
            ("d - timestamp '2024-01-01 00:00:00' between '0' and '1 day'", "1"),
        ] {
            let statement = format!("select n {from} where {condition}");
            assert_eq!(crate::testing::answered(&statement).await.unwrap(), [expected], "{statement}");
        }
        assert!(crate::testing::answered(&format!("select i {from} where i > 'soon'")).await.is_err());
    }
}
