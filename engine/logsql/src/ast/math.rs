//! Expressions of the `math` pipe.

use serde::{Deserialize, Serialize};

use super::literal::Literal;

/// An arithmetic expression over the fields of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum MathExpr {
    /// A number, duration, size, IPv4 address or time.
    Number(Literal<f64>),
    /// The value of a field as a number.
    Field(String),
    /// `left op right`.
    Binary {
        /// What is done with both sides.
        op: MathOp,
        /// Its left side.
        #[serde(with = "quiver_types::nesting")]
        left: Box<MathExpr>,
        /// Its right side.
        #[serde(with = "quiver_types::nesting")]
        right: Box<MathExpr>,
    },
    /// `-x`: the other sign.
    Negate(#[serde(with = "quiver_types::nesting")] Box<MathExpr>),
    /// A function over its arguments.
    Call {
        /// Which function of the pipe.
        func: MathFunc,
        /// Its arguments, as many as it takes.
        #[serde(with = "quiver_types::nesting")]
        args: Vec<MathExpr>,
    },
}

/// Binary operators, tightest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MathOp {
    /// `^`: power
    Pow,
    /// `*`: product
    Mul,
    /// `/`: quotient
    Div,
    /// `%`: remainder with the sign of the left side; NaN by zero
    Rem,
    /// `+`: sum
    Add,
    /// `-`: difference
    Sub,
    /// `&`: bits that both integers have
    And,
    /// `xor`: bits that one of the integers has
    Xor,
    /// `or`: bits that at least one of the integers has
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
    /// `abs(x)`: without its sign
    Abs,
    /// `ceil(x)`: the least integer that is not below
    Ceil,
    /// `exp(x)`: the power of e
    Exp,
    /// `floor(x)`: the greatest integer that is not above
    Floor,
    /// `ln(x)`: the logarithm to base e
    Ln,
    /// `max(x, ...)`: the greatest argument that is a number
    Max,
    /// `min(x, ...)`: the least argument that is a number
    Min,
    /// `now()`: Unix nanoseconds of the evaluation.
    Now,
    /// `rand()`: from 0 to 1.
    Rand,
    /// `round(x[, step])`: to the nearest multiple of the step (1 without it), halves away from zero
    Round,
}

impl MathFunc {
    /// The name in the language.
    pub fn name(self) -> &'static str {
        match self {
            Self::Abs => "abs",
            Self::Ceil => "ceil",
            Self::Exp => "exp",
            Self::Floor => "floor",
            Self::Ln => "ln",
            Self::Max => "max",
            Self::Min => "min",
            Self::Now => "now",
            Self::Rand => "rand",
            Self::Round => "round",
        }
    }
}
