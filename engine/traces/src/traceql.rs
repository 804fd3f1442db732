//! TraceQL (`traces-api` 5.3): a text becomes a [`Query`], which is answered in two steps.
//!
//! `lower` gives a filter of spans that none of the wanted spans fails, which the store's scan evaluates; `eval` then
//! decides over whole traces, as assembled. So every expression is exact, and what the scan can tell is left to it.
//!
//! What is not supported is named in the error.

mod cells;
mod compare;
mod eval;
mod found;
mod json;
mod lower;
mod math;
mod memory;
mod metrics;
mod parser;
mod search;
mod series;
mod shown;
mod stages;
mod terms;
mod unfinished;

use std::fmt;
use std::sync::Arc;

use quiver_types::spans::{AttributeTest, Place};

pub(crate) use eval::attribute;
pub use found::{Found, FoundSet};
pub use math::Figures;
pub use search::{HitSet, HitSpan, TraceqlHit, TraceqlSearch};
pub use series::{MetricExemplar, MetricSeries};
pub(crate) use terms::{Fixed, Sign, Term};

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

/// What of a span or its trace is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Field {
    /// An attribute; without a place that of the span, else that of the resource.
    Attribute(Option<Place>, String),
    /// What every span has.
    Intrinsic(Intrinsic),
}

/// What every span has beside its attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intrinsic {
    Name,
    Duration,
    Status,
    StatusMessage,
    Kind,
    SpanId,
    ParentId,
    /// The left number of the parent; below 0 on a root.
    NestedSetParent,
    NestedSetLeft,
    NestedSetRight,
    /// Number of the spans right below.
    ChildCount,
    TraceId,
    RootName,
    RootService,
    TraceDuration,
    EventName,
    /// From the start of the span to the event.
    EventSince,
    LinkTraceId,
    LinkSpanId,
    ScopeName,
    ScopeVersion,
}

impl Intrinsic {
    /// Names, the short form first.
    const NAMES: &[(&str, Self)] = &[
        ("name", Self::Name),
        ("span:name", Self::Name),
        ("duration", Self::Duration),
        ("span:duration", Self::Duration),
        ("status", Self::Status),
        ("span:status", Self::Status),
        ("statusMessage", Self::StatusMessage),
        ("span:statusMessage", Self::StatusMessage),
        ("kind", Self::Kind),
        ("span:kind", Self::Kind),
        ("span:id", Self::SpanId),
        ("span:parentID", Self::ParentId),
        ("nestedSetParent", Self::NestedSetParent),
        ("nestedSetLeft", Self::NestedSetLeft),
        ("nestedSetRight", Self::NestedSetRight),
        ("span:childCount", Self::ChildCount),
        ("childCount", Self::ChildCount),
        ("trace:id", Self::TraceId),
        ("rootName", Self::RootName),
        ("trace:rootName", Self::RootName),
        ("rootServiceName", Self::RootService),
        ("trace:rootService", Self::RootService),
        ("traceDuration", Self::TraceDuration),
        ("trace:duration", Self::TraceDuration),
        ("event:name", Self::EventName),
        ("event:timeSinceStart", Self::EventSince),
        ("link:traceID", Self::LinkTraceId),
        ("link:spanID", Self::LinkSpanId),
        ("instrumentation:name", Self::ScopeName),
        ("instrumentation:version", Self::ScopeVersion),
    ];

    /// Finds the one that a name, short or long, stands for.
    fn find(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, intrinsic)| *intrinsic)
    }

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// Whether its values are numbers of nanoseconds.
    fn is_duration(self) -> bool {
        matches!(self, Self::Duration | Self::TraceDuration | Self::EventSince)
    }

    /// Whether every span has a text of it, which may be empty.
    fn is_text_of_all(self) -> bool {
        matches!(self, Self::Name | Self::StatusMessage | Self::ScopeName | Self::ScopeVersion)
    }

    /// Whether its values are numbers.
    fn is_number(self) -> bool {
        let others = [Self::NestedSetParent, Self::NestedSetLeft, Self::NestedSetRight, Self::ChildCount];
        self.is_duration() || others.contains(&self)
    }
}

/// Names of intrinsics that completion offers.
pub const INTRINSIC_NAMES: [&str; 25] = [
    "duration",
    "event:name",
    "event:timeSinceStart",
    "instrumentation:name",
    "instrumentation:version",
    "kind",
    "link:spanID",
    "link:traceID",
    "name",
    "rootName",
    "rootServiceName",
    "span:duration",
    "span:id",
    "span:kind",
    "span:name",
    "span:parentID",
    "span:status",
    "span:statusMessage",
    "status",
    "statusMessage",
    "trace:duration",
    "trace:id",
    "trace:rootName",
    "trace:rootService",
    "traceDuration",
];

impl Field {
    /// The name under which an answer has the value.
    pub(crate) fn key(&self) -> &str {
        match self {
            Self::Attribute(_, key) => key,
            Self::Intrinsic(intrinsic) => intrinsic.name(),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attribute(place, key) => write!(f, "{}.{key}", place.map_or("", scope_name)),
            Self::Intrinsic(intrinsic) => f.write_str(intrinsic.name()),
        }
    }
}

/// The word for a place in this language.
pub fn scope_name(place: Place) -> &'static str {
    if place == Place::Scope { "instrumentation" } else { place.name() }
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
    fn holds(self, left: f64, right: f64) -> bool {
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
    fn is_comparison(&self) -> bool {
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

/// A text that is no query, or one that is not supported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceqlError {
    /// Line of the query, from 1.
    pub line: usize,
    /// Character of the line, from 1.
    pub column: usize,
    /// What is wrong.
    pub reason: String,
}

impl TraceqlError {
    /// Gives the one of two that stands later in the text.
    fn or_later(self, other: Self) -> Self {
        if (other.line, other.column) > (self.line, self.column) { other } else { self }
    }
}

impl fmt::Display for TraceqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "parse error at line {}, col {}: {}", self.line, self.column, self.reason)
    }
}

impl Query {
    /// Reads a query.
    ///
    /// # Errors
    /// Not TraceQL, or more of it than is supported; the reason names it.
    pub fn parse(text: &str) -> Result<Self, TraceqlError> {
        parser::parse(text)
    }

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

#[cfg(test)]
mod tests;
