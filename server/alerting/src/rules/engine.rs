//! What rules ask and write, as traits and values: who evaluates expressions and stores samples comes in from outside.

use std::time::Duration;

use quiver_types::{Histogram, LabelSet, Matcher, Millis};

use super::model::Language;

/// An element of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct Element {
    /// Labels, the name included where the expression keeps it.
    pub labels: LabelSet,
    /// The value at the time of the evaluation.
    pub value: ElementValue,
}

/// A value of an element.
#[derive(Debug, Clone, PartialEq)]
pub enum ElementValue {
    /// A float; it may be NaN or infinite.
    Float(f64),
    /// Native histogram, with its text.
    Histogram(Box<Histogram>, String),
}

/// A sample that a rule writes.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// Labels, the name included.
    pub labels: LabelSet,
    /// Time of the sample in Unix milliseconds: that of the evaluation less the query offset.
    pub ts: Millis,
    /// The value; a staleness mark ends the series.
    pub value: ElementValue,
}

/// What an expression reads of the series that rules may write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reads {
    /// Those that all matchers of one of these selectors accept.
    Series(Vec<Vec<Matcher>>),
    /// It is not known.
    Anything,
}

/// The newest sample of a series: its labels, the time, the value.
pub type NewestSample = (LabelSet, Millis, f64);

/// What rules ask and write. Called on threads that may wait.
pub trait Engine {
    /// Evaluates an expression at a time, for the rule of this number in its group.
    ///
    /// # Errors
    /// The text of the error.
    fn query(&self, rule: usize, language: Language, expr: &str, at: Millis) -> Result<Vec<Element>, String>;

    /// Writes samples, so that rules that come later in the same cycle see them.
    ///
    /// # Errors
    /// The text of the error.
    fn write(&self, samples: &[Written]) -> Result<(), String>;

    /// Gives the newest samples, between two times, of the series that all matchers accept and that have not ended, for
    /// the rule of this number in its group. Without a store there are none.
    ///
    /// # Errors
    /// The text of the error.
    fn newest(
        &self,
        rule: usize,
        matchers: &[Matcher],
        between: (Millis, Millis),
    ) -> Result<Vec<NewestSample>, String> {
        let _ = (rule, matchers, between);
        Ok(Vec::new())
    }

    /// Gives the bytes that queries of the rule of this number in its group have read so far; none: nobody counts them.
    fn scanned_bytes(&self, rule: usize) -> Option<u64> {
        let _ = rule;
        None
    }

    /// Whether the rule of this number in its group may make an alert or a series with these labels: whose it is they say,
    /// and not what the rule says of itself. A rule that may not fails, and nothing is written.
    fn may_write(&self, rule: usize, labels: &LabelSet) -> bool {
        let _ = (rule, labels);
        true
    }

    /// Says what an expression reads: rules that read nothing of each other may be evaluated at once.
    fn reads(&self, language: Language, expr: &str) -> Reads {
        let _ = (language, expr);
        Reads::Anything
    }

    /// Time since some moment, by which it is told how long evaluations take; without a clock: none.
    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
}
