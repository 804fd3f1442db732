//! What a comparison works out: fields, constants, arithmetic.

use std::cmp::Ordering;
use std::fmt;

use quiver_types::spans::Value;
use quiver_types::time::duration::format_go;

use super::fields::Field;

/// One side of a comparison.
#[derive(Debug, Clone)]
pub(crate) enum Term {
    /// The value of a field.
    Field(Field),
    Fixed(ExprValue),
    /// Arithmetic between two values of the same span.
    Worked(Box<Term>, Sign, Box<Term>),
}

/// A constant, or the value that a span has.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ExprValue {
    Number(f64),
    /// A whole number, with which arithmetic stays whole.
    Whole(i64),
    /// A duration in nanoseconds; with it, arithmetic gives a double.
    Nanos(i64),
    Text(String),
    Bool(bool),
}

/// What arithmetic does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    Plus,
    Minus,
    Times,
    By,
    Remainder,
    Power,
}

/// An end of the order of numbers, from which some are picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Greatest,
    Least,
}

impl End {
    /// The end that `topk` or `bottomk` picks from.
    pub(super) fn of_function(name: &str) -> Option<Self> {
        match name {
            "topk" => Some(Self::Greatest),
            "bottomk" => Some(Self::Least),
            _ => None,
        }
    }
}

/// A comparison of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compare {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl Compare {
    /// Whether two numbers compare so.
    pub(super) fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::Less => left < right,
            Self::LessEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterEqual => left >= right,
        }
    }
}

impl Term {
    /// Adds the fields that it names.
    pub(super) fn fields<'t>(&'t self, out: &mut Vec<&'t Field>) {
        match self {
            Self::Field(field) => out.push(field),
            Self::Fixed(_) => {}
            Self::Worked(left, _, right) => {
                left.fields(out);
                right.fields(out);
            }
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(field) => write!(f, "{field}"),
            // With a point, as what is no whole number is written.
            Self::Fixed(ExprValue::Number(value)) => write!(f, "{value:?}"),
            Self::Fixed(ExprValue::Whole(value)) => write!(f, "{value}"),
            Self::Fixed(ExprValue::Nanos(value)) => f.write_str(&format_go(*value)),
            Self::Fixed(ExprValue::Text(text)) => write!(f, "`{text}`"),
            Self::Fixed(ExprValue::Bool(value)) => write!(f, "{value}"),
            Self::Worked(left, sign, right) => {
                let side = |term: &Term| match term {
                    Term::Worked(..) => format!("({term})"),
                    _ => term.to_string(),
                };
                write!(f, "{} {} {}", side(left), sign.text(), side(right))
            }
        }
    }
}

impl Sign {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Plus => "+",
            Self::Minus => "-",
            Self::Times => "*",
            Self::By => "/",
            Self::Remainder => "%",
            Self::Power => "^",
        }
    }

    /// Works it out.
    pub(super) fn of(self, left: f64, right: f64) -> f64 {
        match self {
            Self::Plus => left + right,
            Self::Minus => left - right,
            Self::Times => left * right,
            Self::By => left / right,
            Self::Remainder => left % right,
            Self::Power => left.powf(right),
        }
    }

    /// Works it out for whole numbers; none where the outcome is none.
    fn of_whole(self, left: i64, right: i64) -> Option<i64> {
        match self {
            Self::Plus => left.checked_add(right),
            Self::Minus => left.checked_sub(right),
            Self::Times => left.checked_mul(right),
            Self::By => left.checked_div(right),
            Self::Remainder => left.checked_rem(right),
            Self::Power => left.checked_pow(u32::try_from(right).ok()?),
        }
    }
}

impl ExprValue {
    /// Takes the value of an attribute.
    pub(super) fn of(value: Value<'_>) -> Self {
        match value {
            Value::Int(v) => Self::Whole(v),
            Value::Double(v) => Self::Number(v),
            Value::Bool(v) => Self::Bool(v),
            other => Self::Text(other.text().into_owned()),
        }
    }

    /// Gives it as a number, a text that is one included.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Self::Number(v) => Some(*v),
            Self::Whole(v) | Self::Nanos(v) => Some(*v as f64),
            Self::Text(text) => text.parse().ok(),
            Self::Bool(_) => None,
        }
    }

    /// Works arithmetic with another value out; none without numbers, and where the outcome has no bounds.
    pub(super) fn worked(&self, sign: Sign, other: &Self) -> Option<Self> {
        if let (Self::Whole(left), Self::Whole(right)) = (self, other)
            && let Some(whole) = sign.of_whole(*left, *right)
        {
            return Some(Self::Whole(whole));
        }
        let number = sign.of(self.number()?, other.number()?);
        number.is_finite().then_some(Self::Number(number))
    }

    /// Compares with another value; of different types only numbers compare.
    pub(super) fn compares(&self, compare: Compare, other: &Self) -> bool {
        let in_order = |order: Ordering| match compare {
            Compare::Equal => order.is_eq(),
            Compare::NotEqual => order.is_ne(),
            Compare::Less => order.is_lt(),
            Compare::LessEqual => order.is_le(),
            Compare::Greater => order.is_gt(),
            Compare::GreaterEqual => order.is_ge(),
        };
        match (self, other) {
            (Self::Whole(left), Self::Whole(right)) => in_order(left.cmp(right)),
            (Self::Text(left), Self::Text(right)) => in_order(left.cmp(right)),
            (Self::Bool(left), Self::Bool(right)) => in_order(left.cmp(right)),
            _ => match (self.number(), other.number()) {
                (Some(left), Some(right)) => compare.holds(left, right),
                _ => false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_stays_whole_as_long_as_it_can() {
        let whole = |sign: Sign, left: i64, right: i64| ExprValue::Whole(left).worked(sign, &ExprValue::Whole(right));
        assert_eq!(whole(Sign::Plus, 1, 2), Some(ExprValue::Whole(3)));
        assert_eq!(whole(Sign::By, 7, 2), Some(ExprValue::Whole(3)));
        assert_eq!(whole(Sign::Remainder, -7, 3), Some(ExprValue::Whole(-1)));
        assert_eq!(whole(Sign::Power, 2, 3), Some(ExprValue::Whole(8)));
        assert_eq!(whole(Sign::Power, 2, -1), Some(ExprValue::Number(0.5)));
        assert_eq!(whole(Sign::Power, 10, 19), Some(ExprValue::Number(1e19)));
        assert_eq!(ExprValue::Nanos(7).worked(Sign::By, &ExprValue::Whole(2)), Some(ExprValue::Number(3.5)));
        assert_eq!(whole(Sign::Times, i64::MAX, 2), Some(ExprValue::Number(i64::MAX as f64 * 2.0)));
        assert_eq!((whole(Sign::By, 1, 0), whole(Sign::Remainder, 1, 0)), (None, None));
        let half = ExprValue::Number(0.5);
        assert_eq!(half.worked(Sign::Minus, &ExprValue::Text("2".into())), Some(ExprValue::Number(-1.5)));
        assert_eq!(half.worked(Sign::Plus, &ExprValue::Text("x".into())), None);
        assert_eq!(half.worked(Sign::Plus, &ExprValue::Bool(true)), None);
        assert_eq!(ExprValue::Number(f64::MAX).worked(Sign::Times, &ExprValue::Number(2.0)), None);
    }

    #[test]
    fn values_of_one_type_compare_and_numbers_of_all() {
        let text = |text: &str| ExprValue::Text(text.to_owned());
        let check = |left: &ExprValue, compare: Compare, right: &ExprValue, expected: bool| {
            assert_eq!(left.compares(compare, right), expected, "{left:?} {compare:?} {right:?}");
        };
        // As doubles these two are one.
        check(&ExprValue::Whole(i64::MAX - 1), Compare::Less, &ExprValue::Whole(i64::MAX), true);
        check(&ExprValue::Whole(2), Compare::Equal, &ExprValue::Number(2.0), true);
        check(&text("10"), Compare::Less, &text("9"), true);
        check(&text("10"), Compare::Greater, &ExprValue::Whole(9), true);
        check(&text("x"), Compare::NotEqual, &ExprValue::Whole(9), false);
        check(&ExprValue::Bool(false), Compare::Less, &ExprValue::Bool(true), true);
        check(&ExprValue::Bool(true), Compare::Equal, &ExprValue::Whole(1), false);
        check(&ExprValue::Bool(true), Compare::NotEqual, &text("true"), false);
    }
}
