//! The syntax tree of PromQL as of Prometheus 3.14, with byte spans into the query text.

mod chain;
mod text;

use quiver_types::Matcher;
use serde::{Deserialize, Serialize};

pub use text::Text;

/// A range of bytes in the query text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct PosRange {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
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
    /// A text.
    String,
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Where it stands.
    pub pos: PosRange,
}

/// The kinds of expressions.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// `1.5`, `0x1f`, `Inf`, `5m` (a duration stands for its seconds; `duration` remembers that it was written so).
    Number {
        /// The value.
        value: f64,
        /// Whether it was written as a duration.
        duration: bool,
    },
    /// A quoted text, unquoted.
    String(Text),
    /// `(expr)`
    Paren(Box<Expr>),
    /// `-expr` (or `+expr`)
    Unary {
        /// Whether it is `-`.
        negate: bool,
        /// The operand.
        expr: Box<Expr>,
    },
    /// `lhs op rhs`
    Binary(Box<BinaryExpr>),
    /// `sum by (a) (expr)`
    Aggregate(Box<AggregateExpr>),
    /// `rate(m[5m])`
    Call {
        /// The function, as in the registry.
        function: String,
        /// Arguments.
        args: Vec<Expr>,
    },
    /// `m{a="b"} offset 5m @ 10`
    VectorSelector(VectorSelector),
    /// `m[5m] offset 5m @ 10`: offset and `@` stand in the inner selector.
    MatrixSelector {
        /// The selector.
        selector: VectorSelector,
        /// The range.
        range: DurationExpr,
    },
    /// `expr[1h:5m] offset 5m @ 10`
    Subquery(Box<SubqueryExpr>),
}

/// A vector selector.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorSelector {
    /// The metric name when it was written before the braces; it is also the last of `matchers`.
    pub name: Option<String>,
    /// All matchers, that of the name included.
    pub matchers: Vec<Matcher>,
    /// `offset`, signed.
    pub offset: Option<DurationExpr>,
    /// `@`
    pub at: Option<At>,
    /// `anchored`
    pub anchored: bool,
    /// `smoothed`
    pub smoothed: bool,
    /// Where name and matchers stand (without range, offset and `@`).
    pub pos: PosRange,
}

/// A subquery.
#[derive(Debug, Clone, PartialEq)]
pub struct SubqueryExpr {
    /// The inner expression.
    pub expr: Expr,
    /// The range.
    pub range: DurationExpr,
    /// The step; `None`: the default resolution.
    pub step: Option<DurationExpr>,
    /// `offset`, signed.
    pub offset: Option<DurationExpr>,
    /// `@`
    pub at: Option<At>,
}

/// The `@` modifier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum At {
    /// `@ 123.4`, in milliseconds.
    Time(i64),
    /// `@ start()`
    Start,
    /// `@ end()`
    End,
}

/// A duration, or an expression over durations that is evaluated with the query's step and range.
#[derive(Debug, Clone, PartialEq)]
pub struct DurationExpr {
    /// What it is.
    pub kind: DurationKind,
    /// Where it stands.
    pub pos: PosRange,
}

/// The kinds of duration expressions.
#[derive(Debug, Clone, PartialEq)]
pub enum DurationKind {
    /// A literal in seconds; `duration`: written as `5m` rather than `300`.
    Literal {
        /// Seconds.
        seconds: f64,
        /// Whether it was written as a duration.
        duration: bool,
    },
    /// `step()`
    Step,
    /// `range()`
    Range,
    /// `-d` or `+d`
    Unary {
        /// Whether it is `-`.
        negate: bool,
        /// The operand.
        expr: Box<DurationExpr>,
    },
    /// `a + b` and the like, `min_of(a, b)`, `max_of(a, b)`
    Binary {
        /// Operator.
        op: DurationOp,
        /// Left operand.
        lhs: Box<DurationExpr>,
        /// Right operand.
        rhs: Box<DurationExpr>,
    },
    /// `(d)`
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
    /// `%`
    Mod,
    /// `^`
    Pow,
    /// `min_of(a, b)`
    Min,
    /// `max_of(a, b)`
    Max,
}

/// Binary operators.
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
    /// `%`
    Mod,
    /// `^`
    Pow,
    /// `atan2`
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
    /// `and`
    And,
    /// `or`
    Or,
    /// `unless`
    Unless,
}

impl BinaryOp {
    /// All operators.
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
    /// Operator.
    pub op: BinaryOp,
    /// Left side.
    pub lhs: Expr,
    /// Right side.
    pub rhs: Expr,
    /// `bool`
    pub return_bool: bool,
    /// How vectors match; present when both sides are vectors (set by the parser even when nothing was written).
    pub matching: Option<VectorMatching>,
}

/// How the rows of two vectors find each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VectorMatching {
    /// Which side may have several rows per match.
    pub card: MatchCardinality,
    /// Labels of `on` or `ignoring`.
    pub labels: Vec<String>,
    /// Whether they were given by `on`.
    pub on: bool,
    /// Labels of `group_left` or `group_right`.
    pub include: Vec<String>,
    /// `fill_left` (or `fill`).
    pub fill_left: Option<f64>,
    /// `fill_right` (or `fill`).
    pub fill_right: Option<f64>,
}

/// Cardinality of a vector match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MatchCardinality {
    /// One to one.
    OneToOne,
    /// `group_left`
    ManyToOne,
    /// `group_right`
    OneToMany,
    /// Set operators.
    ManyToMany,
}

/// Aggregation operators.
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
    /// All operators.
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

/// An aggregation.
#[derive(Debug, Clone, PartialEq)]
pub struct AggregateExpr {
    /// Operator.
    pub op: AggregateOp,
    /// What is aggregated.
    pub expr: Expr,
    /// Parameter.
    pub param: Option<Expr>,
    /// Labels of `by` or `without`.
    pub grouping: Vec<String>,
    /// Whether they were given by `without`.
    pub without: bool,
}
