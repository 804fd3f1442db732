//! Numbers with a fraction that a statement writes where their digits matter: they are decimals in PostgreSQL, and doubles to
//! the planner.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr, FunctionArguments, Query, UnaryOperator, Value,
    VisitorMut,
};

use super::data_types::is_text;
use super::expressions::{arguments, bare, calculates, literal, take, text, value_of};
use crate::statement_walk::walk_mut;

/// Digits of a decimal, at most.
const DIGITS_MAX: usize = 38;

/// A number that is written with a fraction as the decimal that it is, where the planner has a double, which knows no
/// zeros at the end and rounds halves to even; `None`: it is none.
pub(super) fn exact(value: &Expr) -> Option<Expr> {
    of_places(value, 0)
}

/// The same with a number of digits behind the point at least.
pub(super) fn of_places(value: &Expr, places: usize) -> Option<Expr> {
    match value {
        Expr::Nested(inner) | Expr::UnaryOp { op: UnaryOperator::Plus, expr: inner } => of_places(inner, places),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            Some(Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(of_places(expr, places)?) })
        }
        Expr::Value(value) => match &value.value {
            Value::Number(written, _) => {
                let (_, fraction) = written.split_once('.')?;
                let zeros = places.min(DIGITS_MAX).saturating_sub(fraction.len());
                decimal(&format!("{written}{}", "0".repeat(zeros)))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Functions that write numbers into texts and documents.
const WRITING: [&str; 11] = [
    "concat",
    "concat_ws",
    "format",
    "json_build_array",
    "json_build_object",
    "jsonb_build_array",
    "jsonb_build_object",
    "quote_literal",
    "quote_nullable",
    "to_json",
    "to_jsonb",
];

/// Keeps all digits of numbers in a call that writes them: `1.50` is not `1.5` there.
pub(super) fn keep_digits(name: &str, args: &mut FunctionArguments) {
    let FunctionArguments::List(list) = args else { return };
    if !WRITING.contains(&name) {
        return;
    }
    for value in list.args.iter_mut().filter_map(value_of) {
        if let Some(exact) = exact(value) {
            *value = exact;
        }
    }
}

/// The same of numbers that are joined to texts (`'x' || 1.50`). Beside other values they may be items of a list.
pub(super) fn keep_joined_digits(left: &mut Expr, right: &mut Expr) {
    fn is_of_text(value: &Expr) -> bool {
        match value {
            Expr::Nested(inner) => is_of_text(inner),
            Expr::Value(value) => matches!(value.value, Value::SingleQuotedString(_) | Value::EscapedStringLiteral(_)),
            Expr::Cast { data_type, .. } => is_text(data_type),
            Expr::BinaryOp { left, op: BinaryOperator::StringConcat, right } => is_of_text(left) || is_of_text(right),
            _ => false,
        }
    }
    let number = match (is_of_text(left), is_of_text(right)) {
        (true, false) => right,
        (false, true) => left,
        _ => return,
    };
    if let Some(exact) = exact(number) {
        *number = exact;
    }
}

/// A whole number that no `bigint` holds as the decimal that it is in PostgreSQL; `None`: it is none. The planner would
/// calculate with it as a `bigint`, or as a double.
pub(super) fn beyond_bigint(value: &Expr) -> Option<Expr> {
    match value {
        Expr::Nested(inner) => beyond_bigint(inner),
        Expr::Value(value) => match &value.value {
            Value::Number(written, _) if !written.contains('.') && written.parse::<i64>().is_err() => decimal(written),
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

/// Takes the sign from zeros that are calculated of numbers which the statement writes with a fraction (`round(-0.4)`,
/// `0 * -1.5`): a decimal zero has none, that of a double has.
pub(super) fn unsigned_zeros(query: &mut Query) {
    let _ = walk_mut(query, &mut Zeros { covered: 0 });
}

struct Zeros {
    /// How many expressions around the visited place are of one that is changed as a whole.
    covered: usize,
}

impl VisitorMut for Zeros {
    type Break = ();

    fn pre_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<()> {
        if self.covered > 0 || Calculation::of(place).is_some_and(Calculation::may_give_signed_zero) {
            self.covered += 1;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<()> {
        if self.covered == 1 {
            let unsigned = match &mut *place {
                // No more than a zero is written there.
                Expr::UnaryOp { expr, .. } if literal(expr).is_some() => take(expr),
                // The sum of a zero with a sign and one without has none.
                other => {
                    let left = Box::new(Expr::Nested(Box::new(take(other))));
                    let right = Box::new(Expr::Value(Value::Number("0.0".to_owned(), false).into()));
                    Expr::Nested(Box::new(Expr::BinaryOp { left, op: BinaryOperator::Plus, right }))
                }
            };
            *place = unsigned;
        }
        self.covered = self.covered.saturating_sub(1);
        ControlFlow::Continue(())
    }
}

/// What is calculated of written numbers alone.
#[derive(Debug, Clone, Copy)]
struct Calculation {
    has_fraction: bool,
    has_sign: bool,
    /// Whether the sign of a part may remain where the value becomes zero.
    keeps_sign: bool,
}

impl Calculation {
    /// `None` if there is more to it than written numbers.
    fn of(value: &Expr) -> Option<Self> {
        match value {
            Expr::Nested(inner) | Expr::UnaryOp { op: UnaryOperator::Plus, expr: inner } => Self::of(inner),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
                let is_other =
                    literal(expr).is_some_and(|digits| digits.bytes().any(|digit| matches!(digit, b'1'..=b'9')));
                let inner = Self::of(expr)?;
                Some(Self { has_sign: true, keeps_sign: inner.keeps_sign || !is_other, ..inner })
            }
            Expr::Value(value) => match &value.value {
                Value::Number(digits, _) => {
                    let has_fraction = digits.contains(['.', 'e', 'E']);
                    Some(Self { has_fraction, has_sign: false, keeps_sign: false })
                }
                _ => None,
            },
            Expr::BinaryOp { left, op, right } if calculates(op) || *op == BinaryOperator::Modulo => {
                let both = Self::of(left)?.and(Self::of(right)?);
                let adds = matches!(op, BinaryOperator::Plus | BinaryOperator::Minus);
                let has_sign = both.has_sign || *op == BinaryOperator::Minus;
                Some(Self { has_sign, keeps_sign: both.keeps_sign || !adds, ..both })
            }
            Expr::Ceil { expr, .. } | Expr::Floor { expr, .. } => Some(Self { keeps_sign: true, ..Self::of(expr)? }),
            Expr::Function(call) if call.over.is_none() => {
                let name = bare(&call.name)?;
                let args = arguments(&call.args)?;
                if !matches!(name.as_str(), "abs" | "ceil" | "ceiling" | "floor" | "mod" | "round" | "trunc") {
                    return None;
                }
                let mut parts = args.iter().map(Self::of);
                let first = parts.next()??;
                let whole = parts.try_fold(first, |whole, part| part.map(|part| whole.and(part)))?;
                Some(Self { keeps_sign: true, ..whole })
            }
            _ => None,
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            has_fraction: self.has_fraction || other.has_fraction,
            has_sign: self.has_sign || other.has_sign,
            keeps_sign: self.keeps_sign || other.keeps_sign,
        }
    }

    fn may_give_signed_zero(self) -> bool {
        self.has_fraction && self.has_sign && self.keeps_sign
    }
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
        let beyond = |written: &str| beyond_bigint(&expr(written).unwrap()).map(|found| found.to_string());
        assert_eq!(beyond("(9223372036854775808)").as_deref(), Some("CAST('9223372036854775808' AS DECIMAL(19,0))"));
        for within in ["9223372036854775807", "1e30", "99999999999999999999.5", "a"] {
            assert_eq!(beyond(within), None, "{within}");
        }
        check("8.4100", Some("CAST('8.4100' AS DECIMAL(5,4))"));
        check("-(.5)", Some("-CAST('0.5' AS DECIMAL(1,1))"));
        check("+0.25", Some("CAST('0.25' AS DECIMAL(3,2))"));
        for other in ["7", "1.5e3", "'1.5'", "a", "1.5 + 1", "null"] {
            check(other, None);
        }
        let joined = |written: &str| {
            let Expr::BinaryOp { mut left, mut right, .. } = expr(written).unwrap() else { panic!("{written}") };
            keep_joined_digits(&mut left, &mut right);
            format!("{left} || {right}")
        };
        assert_eq!(joined("'x' || 1.50"), "'x' || CAST('1.50' AS DECIMAL(3,2))");
        assert_eq!(joined("2.0 || (a || 'y')"), "CAST('2.0' AS DECIMAL(2,1)) || (a || 'y')");
        for same in ["a || 1.50", "ARRAY[1.5] || 2.50", "'x' || 1"] {
            assert_eq!(joined(same), same);
        }
        let places = |written: &str| of_places(&expr(written).unwrap(), 3).map(|found| found.to_string());
        assert_eq!(places("-1.5").as_deref(), Some("-CAST('1.500' AS DECIMAL(4,3))"));
        assert_eq!(places("1.0055").as_deref(), Some("CAST('1.0055' AS DECIMAL(5,4))"));
        assert_eq!(places("1.5e3"), None);
        check(&format!("1.{}", "0".repeat(37)), Some(&format!("CAST('1.{}' AS DECIMAL(38,37))", "0".repeat(37))));
        check(&format!("1.{}", "0".repeat(38)), None);
        for (written, expected) in [
            ("round(-0.4)", true),
            ("ceil(-0.5)", true),
            ("0 * -1.5", true),
            ("-0.0", true),
            ("-(0.0)", true),
            ("mod(-4.5, 1.5) + 1", true),
            ("-1.5", false),
            ("1.5 - 2.5", false),
            ("0 * -15", false),
            ("round(0.4)", false),
            ("round(-0.4::float8)", false),
            ("0 * -a", false),
        ] {
            let found = Calculation::of(&expr(written).unwrap()).is_some_and(Calculation::may_give_signed_zero);
            assert_eq!(found, expected, "{written}");
        }
        assert!(
            decimal("7").is_some() && decimal("").is_none() && decimal("1e3").is_none() && decimal("1.2.3").is_none()
        );
    }
}
