//! `generate_series(0, 1, 0.1)`: the planner's series are of integers and times. One of decimal literals becomes the
//! list of its numbers, which are computed exactly, so that errors do not add up.

use datafusion::sql::sqlparser::ast::{Expr, UnaryOperator, Value};

use super::expressions::{call, expr};

/// The most numbers of a series, since they become part of the statement.
const NUMBERS_MAX: usize = 10_000;
/// The most digits of a number.
const DIGITS_MAX: usize = 18;

/// The list for a series of numbers with fractions; `None` if it is another series, or too long.
pub(super) fn of_fractions(args: &[Expr]) -> Option<Expr> {
    let numbers = args.iter().map(number).collect::<Option<Vec<(i128, usize)>>>()?;
    let scale = numbers.iter().map(|(_, scale)| *scale).max().filter(|scale| *scale > 0)?;
    let one = 10_i128.pow(u32::try_from(scale).ok()?);
    let mut scaled = Vec::with_capacity(3);
    for (digits, own) in numbers {
        scaled.push(digits.checked_mul(10_i128.pow(u32::try_from(scale - own).ok()?))?);
    }
    let (first, last, step) = match scaled[..] {
        [first, last] => (first, last, one),
        [first, last, step] if step != 0 => (first, last, step),
        _ => return None,
    };
    let count = if (last - first).signum() == -step.signum() { 0 } else { (last - first) / step + 1 };
    let count = usize::try_from(count).ok().filter(|count| *count <= NUMBERS_MAX)?;
    if count == 0 {
        return expr("CAST(make_array() AS DOUBLE PRECISION[])").ok();
    }
    let values = std::iter::successors(Some(first), |value| Some(value + step)).take(count);
    let items = values.map(|value| {
        let sign = if value < 0 { "-" } else { "" };
        let (whole, fraction) = (value.abs() / one, value.abs() % one);
        Expr::Value(Value::Number(format!("{sign}{whole}.{fraction:0scale$}"), false).into())
    });
    Some(call("make_array", items.collect()))
}

/// The digits of a numeric literal as an integer, and how many of them are behind the point.
fn number(value: &Expr) -> Option<(i128, usize)> {
    match value {
        Expr::Nested(inner) => number(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => number(expr).map(|(digits, scale)| (-digits, scale)),
        Expr::Value(value) => match &value.value {
            Value::Number(text, _) => {
                let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
                let digits = format!("{whole}{fraction}");
                if digits.len() > DIGITS_MAX {
                    return None;
                }
                digits.parse().ok().map(|digits| (digits, fraction.len()))
            }
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(args: &[&str]) -> Option<String> {
        let args: Vec<Expr> = args.iter().map(|arg| expr(arg).expect("an expression")).collect();
        of_fractions(&args).map(|list| list.to_string())
    }

    #[test]
    fn numbers_have_all_of_their_digits() {
        for (args, expected) in [
            (&["0", "0.3", "0.1"][..], "make_array(0.0, 0.1, 0.2, 0.3)"),
            (&["-0.25", "0.5", "0.25"][..], "make_array(-0.25, 0.00, 0.25, 0.50)"),
            (&["1", "-0.5", "-0.75"][..], "make_array(1.00, 0.25, -0.50)"),
            // The step is 1 by default, and the series ends at the last number that steps reach.
            (&["0.5", "3"][..], "make_array(0.5, 1.5, 2.5)"),
            (&["1.5", "1.5"][..], "make_array(1.5)"),
            (&["(1.5)", "-(-2.0)"][..], "make_array(1.5)"),
            (&["1.5", "0"][..], "CAST(make_array() AS DOUBLE PRECISION[])"),
            (&["0.5", "1", "-0.1"][..], "CAST(make_array() AS DOUBLE PRECISION[])"),
        ] {
            assert_eq!(series(args).as_deref(), Some(expected), "{args:?}");
        }
    }

    #[test]
    fn other_series_are_the_planners() {
        for args in [
            &["1", "3"][..],
            &["1", "3", "1"][..],
            &["0.5"][..],
            &["0.5", "1", "0"][..],
            &["0.5", "1", "0.0"][..],
            &["0.5", "1", "0.5", "1"][..],
            &["a", "1.5"][..],
            &["'0.5'", "1"][..],
            &["0.5e1", "9"][..],
            &["0.5", "1 + 1"][..],
            &["0.1234567890123456789", "1"][..],
        ] {
            assert_eq!(series(args), None, "{args:?}");
        }
        // The numbers become part of the statement, so their count is bounded.
        let numbers = |last: &str| series(&["0", last, "0.1"]).map(|list| list.matches(", ").count() + 1);
        assert_eq!((numbers("999.9"), numbers("1000")), (Some(NUMBERS_MAX), None));
    }
}
