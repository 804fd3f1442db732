//! The syntax tree of PromQL as of Prometheus 3.14, with byte spans into the query text.

mod chain;
mod text;

use quiver_types::Matcher;
use serde::{Deserialize, Serialize};

pub use text::Text;

use crate::range_ends::RangeEnds;

/// A range of bytes in the query text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct PosRange {
    /// Offset of the first byte, from 0.
    pub start: u32,
    /// Offset one past the last byte; equal to `start` when the range is empty.
    pub end: u32,
}

/// What an expression evaluates to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// One number per step.
    Scalar,
    /// One number or histogram per series and step.
    Vector,
    /// Samples of a range per series and step.
    Matrix,
    /// A text, without series or steps.
    String,
}

/// An expression, and where the query has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// What it is, with its operands.
    pub kind: ExprKind,
    /// Where it stands, its operands included.
    pub pos: PosRange,
}

/// The kinds of expressions.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// `1.5`, `0x1f`, `Inf`, `5m` (a duration stands for its seconds; `duration` remembers that it was written so).
    Number {
        /// The number; of a duration its seconds.
        value: f64,
        /// Whether it was written as a duration.
        duration: bool,
    },
    /// A quoted text, unquoted.
    String(Text),
    /// `(expr)`: kept, so that what is printed has the parentheses that were written
    Paren(Box<Expr>),
    /// `-expr` (or `+expr`)
    Unary {
        /// Whether it is `-`.
        negate: bool,
        /// What the sign stands before.
        expr: Box<Expr>,
    },
    /// `lhs op rhs`
    Binary(Box<BinaryExpr>),
    /// `sum by (a) (expr)`
    Aggregate(Box<AggregateExpr>),
    /// `rate(m[5m])`: a call of a function
    Call {
        /// The function, as in the registry.
        function: String,
        /// Arguments in order, those that were left out not among them.
        args: Vec<Expr>,
    },
    /// `m{a="b"} offset 5m @ 10`
    VectorSelector(VectorSelector),
    /// `m[5m] offset 5m @ 10`: offset and `@` stand in the inner selector.
    MatrixSelector {
        /// Its offset and `@` are those of the whole range.
        selector: VectorSelector,
        /// Length of the window, above 0.
        range: DurationExpr,
    },
    /// `expr[1h:5m] offset 5m @ 10`
    Subquery(Box<SubqueryExpr>),
}

/// A vector selector: matchers, and which times they are looked up at.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorSelector {
    /// The metric name when it was written before the braces; it is also the last of `matchers`.
    pub name: Option<String>,
    /// All matchers, that of the name included.
    pub matchers: Vec<Matcher>,
    /// `offset 5m`: positive looks into the past, negative into the future.
    pub offset: Option<DurationExpr>,
    /// `@ 10`: the time that takes the place of the step's.
    pub at: Option<At>,
    /// `anchored` or `smoothed`: what the ends of a range get as their values.
    pub ends: RangeEnds,
    /// Where name and matchers stand (without range, offset and `@`).
    pub pos: PosRange,
}

/// A subquery: an instant expression that is evaluated at many times to give a range vector.
#[derive(Debug, Clone, PartialEq)]
pub struct SubqueryExpr {
    /// What is evaluated at each time.
    pub expr: Expr,
    /// Length of the window, above 0.
    pub range: DurationExpr,
    /// The step; `None`: the default resolution.
    pub step: Option<DurationExpr>,
    /// `offset 5m`: positive looks into the past, negative into the future.
    pub offset: Option<DurationExpr>,
    /// `@ 10`: the time that takes the place of the step's.
    pub at: Option<At>,
}

/// The `@` modifier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum At {
    /// `@ 123.4`: Unix time in milliseconds.
    Time(i64),
    /// `@ start()`: the first step of the query
    Start,
    /// `@ end()`: the end of the query's range
    End,
}

/// A duration, or an expression over durations that is evaluated with the query's step and range.
#[derive(Debug, Clone, PartialEq)]
pub struct DurationExpr {
    /// What it is, with its operands.
    pub kind: DurationKind,
    /// Where it stands.
    pub pos: PosRange,
}

/// The kinds of duration expressions.
#[derive(Debug, Clone, PartialEq)]
pub enum DurationKind {
    /// A literal in seconds; `duration`: written as `5m` rather than `300`.
    Literal {
        /// Its length in seconds, fractions included.
        seconds: f64,
        /// Whether it was written as a duration.
        duration: bool,
    },
    /// `step()`: the step of the query
    Step,
    /// `range()`: from start to end of the query
    Range,
    /// `-d` or `+d`
    Unary {
        /// Whether it is `-`.
        negate: bool,
        /// What the sign stands before.
        expr: Box<DurationExpr>,
    },
    /// `a + b` and the like, `min_of(a, b)`, `max_of(a, b)`
    Binary {
        /// How two durations become one.
        op: DurationOp,
        /// Left operand, or first argument.
        lhs: Box<DurationExpr>,
        /// Right operand, or second argument.
        rhs: Box<DurationExpr>,
    },
    /// `(d)`: kept, so that what is printed has the parentheses that were written
    Paren(Box<DurationExpr>),
}

/// Operators of duration expressions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DurationOp {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `%`: the remainder, with the sign of the left side
    Mod,
    /// `^`: the power
    Pow,
    /// `min_of(a, b)`: the shorter one
    Min,
    /// `max_of(a, b)`: the longer one
    Max,
}

/// Operators between two expressions: arithmetic, comparisons, sets of series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BinaryOp {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `%`: the remainder, with the sign of the left side
    Mod,
    /// `^`: the power
    Pow,
    /// `atan2`: the angle of the point (right, left) in radians
    Atan2,
    /// `==`
    Eql,
    /// `!=`
    Neq,
    /// `<`
    Lss,
    /// `<=`
    Lte,
    /// `>`
    Gtr,
    /// `>=`
    Gte,
    /// `</`: keep the observations of a native histogram up to a value
    TrimUpper,
    /// `>/`: keep the observations of a native histogram above a value
    TrimLower,
    /// `and`: elements of the left side that have a match on the right
    And,
    /// `or`: all of the left side, and what of the right has no match there
    Or,
    /// `unless`: elements of the left side that have no match on the right
    Unless,
}

impl BinaryOp {
    /// All operators, each once.
    pub const ALL: [Self; 18] = [
        Self::Add,
        Self::Sub,
        Self::Mul,
        Self::Div,
        Self::Mod,
        Self::Pow,
        Self::Atan2,
        Self::Eql,
        Self::Neq,
        Self::Lss,
        Self::Lte,
        Self::Gtr,
        Self::Gte,
        Self::TrimUpper,
        Self::TrimLower,
        Self::And,
        Self::Or,
        Self::Unless,
    ];

    /// Gives the operator as written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Sub => "-",
            Self::Mul => "*",
            Self::Div => "/",
            Self::Mod => "%",
            Self::Pow => "^",
            Self::Atan2 => "atan2",
            Self::Eql => "==",
            Self::Neq => "!=",
            Self::Lss => "<",
            Self::Lte => "<=",
            Self::Gtr => ">",
            Self::Gte => ">=",
            Self::TrimUpper => "</",
            Self::TrimLower => ">/",
            Self::And => "and",
            Self::Or => "or",
            Self::Unless => "unless",
        }
    }

    /// Says whether it compares.
    pub fn is_comparison(self) -> bool {
        matches!(self, Self::Eql | Self::Neq | Self::Lss | Self::Lte | Self::Gtr | Self::Gte)
    }

    /// Says whether it is a set operator.
    pub fn is_set(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::Unless)
    }
}

/// A binary expression. Left operands may nest tens of thousands deep (`1 + 1 + …`), everything else some hundred:
/// code that descends must loop over left operands ([`Expr::left_spine`]). Equality, copy and drop do.
pub struct BinaryExpr {
    /// What is done with both sides.
    pub op: BinaryOp,
    /// Left operand, which may nest deep (see above).
    pub lhs: Expr,
    /// Right operand, which does not.
    pub rhs: Expr,
    /// `bool`: a comparison gives 0 or 1 instead of filtering.
    pub return_bool: bool,
    /// How vectors match; present when both sides are vectors (set by the parser even when nothing was written).
    pub matching: Option<VectorMatching>,
}

/// How the rows of two vectors find each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VectorMatching {
    /// Which side may have several rows per match.
    pub card: MatchCardinality,
    /// Labels of `on` or `ignoring`, as listed; empty when neither was written.
    pub labels: Vec<String>,
    /// Whether they were given by `on`; otherwise all labels but these must be equal.
    pub on: bool,
    /// Labels of `group_left` or `group_right`: taken over from the side that has one row.
    pub include: Vec<String>,
    /// `fill_left` (or `fill`): value of a missing row of the left side.
    pub fill_left: Option<f64>,
    /// `fill_right` (or `fill`): value of a missing row of the right side.
    pub fill_right: Option<f64>,
}

/// Cardinality of a vector match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MatchCardinality {
    /// One to one.
    OneToOne,
    /// `group_left`: the left side may have several rows
    ManyToOne,
    /// `group_right`: the right side may have several rows
    OneToMany,
    /// Set operators (`and`, `or`, `unless`): any number on both sides.
    ManyToMany,
}

/// Operators that aggregate over the series of an instant vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are the operators")]
pub enum AggregateOp {
    Sum,
    Avg,
    Count,
    Min,
    Max,
    Group,
    Stddev,
    Stdvar,
    Topk,
    Bottomk,
    CountValues,
    Quantile,
    Limitk,
    LimitRatio,
}

impl AggregateOp {
    /// All operators, each once.
    pub const ALL: [Self; 14] = [
        Self::Sum,
        Self::Avg,
        Self::Count,
        Self::Min,
        Self::Max,
        Self::Group,
        Self::Stddev,
        Self::Stdvar,
        Self::Topk,
        Self::Bottomk,
        Self::CountValues,
        Self::Quantile,
        Self::Limitk,
        Self::LimitRatio,
    ];

    /// Gives the operator as written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Count => "count",
            Self::Min => "min",
            Self::Max => "max",
            Self::Group => "group",
            Self::Stddev => "stddev",
            Self::Stdvar => "stdvar",
            Self::Topk => "topk",
            Self::Bottomk => "bottomk",
            Self::CountValues => "count_values",
            Self::Quantile => "quantile",
            Self::Limitk => "limitk",
            Self::LimitRatio => "limit_ratio",
        }
    }

    /// Says whether it takes a parameter.
    pub fn has_param(self) -> bool {
        matches!(
            self,
            Self::Topk | Self::Bottomk | Self::CountValues | Self::Quantile | Self::Limitk | Self::LimitRatio
        )
    }
}

/// An aggregation: a vector's series, grouped by labels, become one each or a few.
#[derive(Debug, Clone, PartialEq)]
pub struct AggregateExpr {
    /// How the elements of a group become one, or which of them are kept.
    pub op: AggregateOp,
    /// What is aggregated.
    pub expr: Expr,
    /// k of `topk` and the like, quantile, ratio, or label of `count_values`; `None` for operators that take none.
    pub param: Option<Expr>,
    /// Labels of `by` or `without`, as listed; empty when neither was written.
    pub grouping: Vec<String>,
    /// Whether they were given by `without`.
    pub without: bool,
}
