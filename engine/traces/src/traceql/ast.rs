//! The syntax tree of a query: sets of spans, the stages that follow them, and the metrics computed from them.

use std::sync::Arc;

use quiver_types::spans::AttributeTest;

use super::expressions::{Compare, End, ExprValue, Sign, Term};
use super::fields::Field;

/// A parsed TraceQL query: sets of spans, the stages that follow them, and the metrics computed from them.
#[derive(Debug, Clone)]
pub struct Query {
    pub(crate) spans: Spanset,
    pub(crate) stages: Vec<Stage>,
    /// The metric that is computed from its spans, instead of listing them.
    pub(crate) metric: Option<Metric>,
    /// Number of exemplars that its hints request.
    pub(crate) exemplars: Option<usize>,
}

/// Selects spans of a trace.
#[derive(Debug, Clone)]
pub(crate) enum Spanset {
    /// The matching spans: `{ … }`.
    Filter(Expr),
    /// Spans from two sets in a relation.
    Both(Relation, Box<Spanset>, Box<Spanset>),
    /// The spans that stages leave of a set. If a `by` stage has split a trace into several sets, these are joined
    /// afterwards.
    Piped(Box<Spanset>, Vec<Stage>),
}

/// How two sets of spans are combined. Structural relations give the right side; with `union`, the related spans of
/// both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    /// Both sets must be non-empty.
    And,
    /// The spans of both sides.
    Or,
    /// Spans of the right side, by their position relative to spans of the left side.
    Structure {
        /// Position of the right side: below, above or beside the left one.
        kind: Structure,
        /// Negated: spans that are not in this position, such as `!>>`.
        negated: bool,
        /// Whether spans of the left side are given as well: `&>>`.
        union: bool,
    },
}

/// The position of a span relative to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Structure {
    /// `>>`: at any depth below
    Descendant,
    /// `>`: right below
    Child,
    /// `<<`: anywhere on the path to the root
    Ancestor,
    /// `<`: right above
    Parent,
    /// `~`: another child of the same parent
    Sibling,
}

/// A condition on a span.
#[derive(Debug, Clone)]
pub(crate) enum Expr {
    True,
    False,
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    Is(Field, Check),
    /// A comparison of two values, each a field, a constant or arithmetic.
    Compare(Term, Compare, Term),
}

/// The test of a field.
#[derive(Debug, Clone)]
pub(crate) enum Check {
    /// It has a value that passes the test.
    Passes(AttributeTest),
    /// It has a value that fails the test.
    Fails(AttributeTest),
    /// It has no value: `= nil`.
    Missing,
    /// It has a value: `!= nil`.
    There,
}

/// A stage after `|`: what is done with the sets of spans found in a trace.
#[derive(Debug, Clone)]
pub(crate) enum Stage {
    /// `select(…)`: returns these fields with each span.
    Select(Vec<Field>),
    /// Keeps matching spans.
    Filter(Expr),
    /// Keeps the spans that a relation of sets gives.
    Within(Spanset),
    /// Keeps a set of spans if this comparison of its numbers is true.
    Scalar(Scalar, Compare, Scalar),
    /// `by(…)`: splits into sets of spans with equal values; with the field's text in the query.
    By(Term, Arc<str>),
    /// `by(…)` of a condition: splits into those that it holds of and the others; with its text in the query.
    ByWhether(Expr, Arc<str>),
    /// `coalesce()`: joins all sets of a trace into one.
    Coalesce,
}

/// A number computed from a set of spans.
#[derive(Debug, Clone)]
pub(crate) enum Scalar {
    /// A constant.
    Fixed(ExprValue),
    /// An aggregate of a value computed for each span (`count()` has none); with its text in the query.
    Aggregate(Aggregate, Option<Term>, Arc<str>),
    /// Arithmetic on two numbers of the same set.
    Worked(Box<Scalar>, Sign, Box<Scalar>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aggregate {
    Count,
    Avg,
    Min,
    Max,
    Sum,
}

/// A metrics function: how spans become numbers over time.
#[derive(Debug, Clone)]
pub(crate) struct Metric {
    /// What is computed from the spans of a step.
    pub(crate) function: MetricFunction,
    /// Fields whose values distinguish series (`by (…)`); if empty, there is one series.
    pub(crate) by: Vec<Field>,
    /// Which of the numbers are returned; applied one after the other.
    pub(crate) choices: Vec<Choice>,
    /// Whether a span counts as many times as it stands for by the sampling of its sender: hint `extrapolate`.
    pub(crate) extrapolates: bool,
}

impl Metric {
    /// Tells whether it compares a selection with all other spans.
    pub(super) fn is_comparison(&self) -> bool {
        matches!(self.function, MetricFunction::Compare(_))
    }
}

/// Selects from the numbers over time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Choice {
    /// Those for which a comparison is true.
    Kept(Compare, f64),
    /// The greatest or the least numbers of each step, this many.
    Picked(End, usize),
}

/// What is computed from the spans of a step.
#[derive(Debug, Clone)]
pub(crate) enum MetricFunction {
    /// `rate()`: number of spans per second.
    Rate,
    /// `count_over_time()`: number of spans in the step.
    Count,
    /// An aggregate of the values of a field.
    Of(Aggregate, Field),
    /// Quantiles of the values of a field.
    Quantiles(Field, Vec<f64>),
    /// The number of values of a field between consecutive powers of two.
    Histogram(Field),
    /// The number of spans with each value of each attribute, inside and outside a selection.
    Compare(Comparison),
}

/// The parameters of `compare`.
#[derive(Debug, Clone)]
pub(crate) struct Comparison {
    /// Spans that match are the selection,
    pub(crate) selection: Expr,
    /// if they start within this range: Unix nanoseconds, behind its start and up to its end.
    pub(crate) window: Option<(i64, i64)>,
    /// Maximum number of values returned per attribute; others are dropped.
    pub(crate) values: usize,
}

impl Comparison {
    /// Tells whether a span that starts at a time may be selected.
    pub(super) fn has_time(&self, time: i64) -> bool {
        self.window.is_none_or(|(from, to)| from < time && time <= to)
    }
}

impl Query {
    /// Tells whether it computes metrics instead of listing spans.
    pub fn is_metric(&self) -> bool {
        self.metric.is_some()
    }

    /// Tells whether the numbers are per second.
    pub fn is_rate(&self) -> bool {
        self.metric.as_ref().is_some_and(|m| matches!(m.function, MetricFunction::Rate))
    }

    /// Tells whether steps without spans have no number, where other functions give 0.
    pub fn leaves_gaps(&self) -> bool {
        self.metric.as_ref().is_some_and(|m| {
            let leaves_0_out = |choice: &Choice| match *choice {
                Choice::Kept(compare, number) => !compare.holds(0.0, number),
                Choice::Picked(..) => true,
            };
            matches!(m.function, MetricFunction::Of(..)) || m.choices.iter().any(leaves_0_out)
        })
    }

    /// Has spans count as many times as each stands for.
    pub(super) fn extrapolate(&mut self) {
        if let Some(metric) = &mut self.metric {
            metric.extrapolates = true;
        }
    }

    /// Number of exemplars that its hints request.
    pub fn exemplars(&self) -> Option<usize> {
        self.exemplars
    }
}
