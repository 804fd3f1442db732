//! Queries as they are read: spans, the stages that follow them, and the numbers that are made of them.

use std::sync::Arc;

use quiver_types::spans::AttributeTest;

use super::fields::Field;
use super::terms::{Compare, Sign, Term};

/// A parsed TraceQL query: spans, the stages that follow them, and the numbers that are made of them.
#[derive(Debug, Clone)]
pub struct Query {
    pub(crate) spans: Spanset,
    pub(crate) stages: Vec<Stage>,
    /// What its spans are counted to, instead of being listed.
    pub(crate) metric: Option<Metric>,
    /// How many exemplars its hints ask for.
    pub(crate) exemplars: Option<usize>,
}

/// Which spans of a trace are wanted.
#[derive(Debug, Clone)]
pub(crate) enum Spanset {
    /// The spans that match: `{ … }`.
    Filter(Expr),
    /// Those of two sets that stand in a relation.
    Both(Relation, Box<Spanset>, Box<Spanset>),
    /// What stages leave of a set; several sets of one trace, of `by`, are one again behind them.
    Piped(Box<Spanset>, Vec<Stage>),
}

/// How two sets of spans become one. Of structures the right side is given, with `union` both that stand so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    /// Both must be there.
    And,
    /// The spans of either side.
    Or,
    /// Spans of the right side by where they stand to spans of the left one.
    Structure {
        /// Where the right side stands: below, above or beside the left one.
        kind: Structure,
        /// Whether they must not stand so: `!>>`.
        negated: bool,
        /// Whether those of the left side are given, too: `&>>`.
        union: bool,
    },
}

/// Where a span lies, seen from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Structure {
    /// `>>`: at any depth below
    Descendant,
    /// `>`: right below
    Child,
    /// `<<`: anywhere on the way up to the root
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
    /// Two values, each that of a field, a constant or arithmetic, compare so.
    Compare(Term, Compare, Term),
}

/// What is asked of the value of a field.
#[derive(Debug, Clone)]
pub(crate) enum Check {
    /// There is a value, and it passes.
    Passes(AttributeTest),
    /// There is a value, and it does not pass.
    Fails(AttributeTest),
    /// There is no value: `= nil`.
    Missing,
    /// There is a value: `!= nil`.
    There,
}

/// A stage behind `|`: what is done with the sets of spans that were found in a trace.
#[derive(Debug, Clone)]
pub(crate) enum Stage {
    /// `select(…)`: gives these fields with each span.
    Select(Vec<Field>),
    /// Keeps those that match.
    Filter(Expr),
    /// Keeps those that sets of them give, which stand in a relation.
    Within(Spanset),
    /// Keeps a set of spans if its numbers compare so.
    Scalar(Scalar, Compare, Scalar),
    /// `by(…)`: makes a set of the spans with equal values; with the text of the field in the query.
    By(Term, Arc<str>),
    /// `coalesce()`: makes one set of all sets of a trace again.
    Coalesce,
}

/// A number of a set of spans.
#[derive(Debug, Clone)]
pub(crate) enum Scalar {
    Fixed(f64),
    /// An aggregate over the spans, of a value worked out of each (`count()` has none); with its text in the query.
    Aggregate(Aggregate, Option<Term>, Arc<str>),
    /// Arithmetic between two numbers of the same set.
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

/// A function of metrics: how spans become numbers over time.
#[derive(Debug, Clone)]
pub(crate) struct Metric {
    /// What the spans of a step become.
    pub(crate) function: MetricFunction,
    /// Fields whose values tell series apart (`by (…)`); empty: one series.
    pub(crate) by: Vec<Field>,
    /// Which of its numbers are given, one choice after the other.
    pub(crate) choices: Vec<Choice>,
}

impl Metric {
    /// Whether its series are those of a selection beside all others.
    pub(super) fn is_comparison(&self) -> bool {
        matches!(self.function, MetricFunction::Compare(_))
    }
}

/// Which numbers over time are given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Choice {
    /// Those for which the comparison holds.
    Kept(Compare, f64),
    /// So many of each step, the greatest (`true`) or the least of them.
    Picked(bool, usize),
}

/// What the spans of a step become.
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
    /// How many values of a field lie between one power of two and the next.
    Histogram(Field),
    /// How many have each value of each attribute, inside of a selection and outside.
    Compare(Comparison),
}

/// What `compare` compares.
#[derive(Debug, Clone)]
pub(crate) struct Comparison {
    /// Spans that match are the selection,
    pub(crate) selection: Expr,
    /// if they start within: Unix nanoseconds, the end not included.
    pub(crate) window: Option<(i64, i64)>,
    /// Most values that are given of an attribute; others are left out.
    pub(crate) values: usize,
}

impl Query {
    /// Says whether it counts spans over time instead of listing them.
    pub fn is_metric(&self) -> bool {
        self.metric.is_some()
    }

    /// Says whether the counts are per second.
    pub fn is_rate(&self) -> bool {
        self.metric.as_ref().is_some_and(|m| matches!(m.function, MetricFunction::Rate))
    }

    /// Says whether a step without spans has no number, where others have 0.
    pub fn leaves_gaps(&self) -> bool {
        self.metric.as_ref().is_some_and(|m| {
            let leaves_0_out = |choice: &Choice| match *choice {
                Choice::Kept(compare, number) => !compare.holds(0.0, number),
                Choice::Picked(..) => true,
            };
            matches!(m.function, MetricFunction::Of(..)) || m.choices.iter().any(leaves_0_out)
        })
    }

    /// How many exemplars its hints ask for.
    pub fn exemplars(&self) -> Option<usize> {
        self.exemplars
    }
}
