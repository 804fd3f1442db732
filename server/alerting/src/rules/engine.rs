//! The traits through which rules evaluate expressions and write samples. Their implementations are passed in.

use std::time::Duration;

use quiver_types::{Histogram, LabelSet, Matcher, Millis};

use super::model::Language;

/// An element of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct Element {
    /// Labels, including the metric name if the expression keeps it.
    pub labels: LabelSet,
    /// The value at the time of the evaluation.
    pub value: ElementValue,
}

/// A value of an element.
#[derive(Debug, Clone, PartialEq)]
pub enum ElementValue {
    /// A float; it may be NaN or infinite.
    Float(f64),
    /// A native histogram, with its text form.
    Histogram(Box<Histogram>, String),
}

/// A sample that a rule writes.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleSample {
    /// Labels, the name included.
    pub labels: LabelSet,
    /// Time of the sample in Unix milliseconds: that of the evaluation minus the query offset.
    pub ts: Millis,
    /// The value; the stale marker ends the series.
    pub value: ElementValue,
}

/// Which series written by rules an expression reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reads {
    /// Those that match one of these selectors.
    Series(Vec<Vec<Matcher>>),
    /// Unknown: possibly any.
    Anything,
}

/// The newest sample of a series: its labels, the time, the value.
pub type NewestSample = (LabelSet, Millis, f64);

/// Where rules query and write. Called on threads that may block.
pub trait Engine {
    /// Evaluates an expression at a time, for the rule with this index in its group.
    ///
    /// # Errors
    /// The text of the error.
    fn query(&self, rule: usize, language: Language, expr: &str, at: Millis) -> Result<Vec<Element>, String>;

    /// Writes samples, visible to later rules of the same cycle.
    ///
    /// # Errors
    /// The text of the error.
    fn write(&self, samples: &[RuleSample]) -> Result<(), String>;

    /// Gives the newest sample between two times of each series that matches and has not ended, for the rule with this
    /// index in its group. Without a store there are none.
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

    /// Gives the bytes that queries of the rule with this index have read so far; `None`: not counted.
    fn scanned_bytes(&self, rule: usize) -> Option<u64> {
        let _ = rule;
        None
    }

    /// Says whether the rule with this index may create an alert or a series with these labels. The labels decide
    /// which service that belongs to, whatever the rule itself claims. If not, the rule fails and nothing is written.
    fn may_write(&self, rule: usize, labels: &LabelSet) -> bool {
        let _ = (rule, labels);
        true
    }

    /// Says what an expression reads: rules that do not read each other's results may be evaluated in parallel.
    fn reads(&self, language: Language, expr: &str) -> Reads {
        let _ = (language, expr);
        Reads::Anything
    }

    /// Time since an arbitrary moment, to measure evaluations; zero without a clock.
    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
}
