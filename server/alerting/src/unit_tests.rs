//! promtool's unit tests of rules: reads test files, and runs them on an engine that starts empty.

mod compare;
mod refused_samples;
mod run;
pub mod series;
mod test_engine;
mod test_files;
mod write_order;

use std::collections::BTreeMap;

use quiver_types::Millis;

use compare::histogram_text;
pub use run::{Case, Fault, Outcome, run};
pub use test_engine::Bench;
pub use test_files::{read, read_with};

/// A file of tests. Times are milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct TestFile {
    /// Files of rules, relative to this one; may hold `*`.
    pub rule_files: Vec<String>,
    /// Time from one evaluation to the next.
    pub evaluation_interval_ms: Millis,
    /// Names of groups in the order in which they are evaluated.
    pub group_eval_order: Vec<String>,
    /// Whether numbers may differ in their last place.
    pub fuzzy_compare: bool,
    /// The tests, each with series of its own.
    pub tests: Vec<TestGroup>,
}

/// A test: series, and what is expected of the rules over them.
#[derive(Debug, Clone, PartialEq)]
pub struct TestGroup {
    /// Its name, `unnamed#<n>` without one.
    pub name: String,
    /// Whether it has a name.
    pub is_named: bool,
    /// Time from one sample to the next.
    pub interval_ms: Millis,
    /// Series and their values in promtool's notation.
    pub input_series: Vec<(String, String)>,
    /// Alerts that must fire at certain times.
    pub alerts: Vec<AlertTest>,
    /// Results that expressions must have at certain times.
    pub exprs: Vec<ExprTest>,
    /// Labels that templates see.
    pub external_labels: BTreeMap<String, String>,
    /// Address that templates see.
    pub external_url: String,
    /// Time of the first sample.
    pub start_ms: Millis,
}

impl TestGroup {
    /// When the last expectation is, from the start.
    pub fn end_ms(&self) -> Millis {
        let alerts = self.alerts.iter().map(|alert| alert.eval_time_ms);
        alerts.chain(self.exprs.iter().map(|expr| expr.eval_time_ms)).max().unwrap_or(0)
    }
}

/// Expected alerts at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct AlertTest {
    /// When, from the start.
    pub eval_time_ms: Millis,
    /// Name of the alert.
    pub alertname: String,
    /// Labels, `alertname` included, and annotations of those that fire. A label without a value is no label of any alert.
    pub expected: Vec<(BTreeMap<String, String>, BTreeMap<String, String>)>,
}

/// An expected result at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct ExprTest {
    /// An expression of `PromQL`.
    pub expr: String,
    /// When, from the start.
    pub eval_time_ms: Millis,
    /// The samples that must come, and no others; empty: no result.
    pub samples: Vec<ExpectedSample>,
}

/// A sample of it, as written.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedSample {
    /// Name and labels in the notation of `PromQL`: `up{job="a"}`.
    pub labels: String,
    /// The float that is expected.
    pub value: f64,
    /// Native histogram; then the number does not count.
    pub histogram: String,
}
