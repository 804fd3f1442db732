//! Expressions of the `math` pipe.

use serde::{Deserialize, Serialize};

use super::Literal;

/// An arithmetic expression over the fields of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum MathExpr {
    /// A number, duration, size, IPv4 address or time.
    Number(Literal<f64>),
    /// The value of a field as a number.
    Field(String),
    /// `left op right`.
    Binary {
        /// The operator.
        op: MathOp,
        /// Its left side.
        #[serde(with = "quiver_types::nested")]
        left: Box<MathExpr>,
        /// Its right side.
        #[serde(with = "quiver_types::nested")]
        right: Box<MathExpr>,
    },
    /// `-x`.
    Negate(#[serde(with = "quiver_types::nested")] Box<MathExpr>),
    /// A function over its arguments.
    Call {
        /// The function.
        func: MathFunc,
        /// Its arguments, as many as it takes.
        #[serde(with = "quiver_types::nested")]
        args: Vec<MathExpr>,
    },
}

/// Binary operators, tightest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MathOp {
    /// `^`
    Pow,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `%`
    Rem,
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `&`
    And,
    /// `xor`
    Xor,
    /// `or`
    Or,
    /// `default`: the right side where the left is not a number.
    Default,
}

impl MathOp {
    /// As written, and how tight it binds (smaller is tighter).
    pub fn text(self) -> (&'static str, u8) {
        match self {
            Self::Pow => ("^", 1),
            Self::Mul => ("*", 2),
            Self::Div => ("/", 2),
            Self::Rem => ("%", 2),
            Self::Add => ("+", 3),
            Self::Sub => ("-", 3),
            Self::And => ("&", 4),
            Self::Xor => ("xor", 5),
            Self::Or => ("or", 6),
            Self::Default => ("default", 10),
        }
    }
}

/// Functions of the `math` pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MathFunc {
    /// `abs(x)`
    Abs,
    /// `ceil(x)`
    Ceil,
    /// `exp(x)`
    Exp,
    /// `floor(x)`
    Floor,
    /// `ln(x)`
    Ln,
    /// `max(x, ...)`
    Max,
    /// `min(x, ...)`
    Min,
    /// `now()`: Unix nanoseconds of the evaluation.
    Now,
    /// `rand()`: from 0 to 1.
    Rand,
    /// `round(x[, step])`
    Round,
}
