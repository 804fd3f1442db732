//! Numbers with a fraction that a statement writes where their digits matter: they are decimals in PostgreSQL, and doubles to
//! the planner.

use datafusion::sql::sqlparser::ast::{CastKind, DataType, ExactNumberInfo, Expr, UnaryOperator, Value};

use super::expressions::text;

/// Digits of a decimal, at most.
const DIGITS_MAX: usize = 38;

/// A number that is written with a fraction as the decimal that it is, where the planner has a double, which knows no
/// zeros at the end and rounds halves to even; `None`: it is none.
pub(super) fn exact(value: &Expr) -> Option<Expr> {
    match value {
        Expr::Nested(inner) | Expr::UnaryOp { op: UnaryOperator::Plus, expr: inner } => exact(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            Some(Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(exact(expr)?) })
        }
        Expr::Value(value) => match &value.value {
            Value::Number(written, _) if written.contains('.') => decimal(written),
            _ => None,
        },
        _ => None,
    }
}

/// The decimal that digits say, with all of them; `None`: they are none, or too many.
pub(super) fn decimal(written: &str) -> Option<Expr> {
    let (whole, fraction) = written.split_once('.').unwrap_or((written, ""));
    let length = whole.len() + fraction.len();
    let are_digits = whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
    if !are_digits || !(1..=DIGITS_MAX).contains(&length) {
        return None;
    }
    let point = if fraction.is_empty() { "" } else { "." };
    let digits = text(&format!("{}{point}{fraction}", if whole.is_empty() { "0" } else { whole }));
    let info = ExactNumberInfo::PrecisionAndScale(length as u64, fraction.len() as i64);
    Some(Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(digits),
        data_type: DataType::Decimal(info),
        array: false,
        format: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::expressions::expr;
    use super::*;

    #[test]
    fn digits_stay_as_they_are_written() {
        let check = |written: &str, expected: Option<&str>| {
            let found = exact(&expr(written).unwrap()).map(|found| found.to_string());
            assert_eq!(found.as_deref(), expected, "{written}");
        };
        check("8.4100", Some("CAST('8.4100' AS DECIMAL(5,4))"));
        check("-(.5)", Some("-CAST('0.5' AS DECIMAL(1,1))"));
        check("+0.25", Some("CAST('0.25' AS DECIMAL(3,2))"));
        for other in ["7", "1.5e3", "'1.5'", "a", "1.5 + 1", "null"] {
            check(other, None);
        }
        check(&format!("1.{}", "0".repeat(37)), Some(&format!("CAST('1.{}' AS DECIMAL(38,37))", "0".repeat(37))));
        check(&format!("1.{}", "0".repeat(38)), None);
        assert!(
            decimal("7").is_some() && decimal("").is_none() && decimal("1e3").is_none() && decimal("1.2.3").is_none()
        );
    }
}
