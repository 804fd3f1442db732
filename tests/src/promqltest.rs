//! Runner of PromQL acceptance scripts (`.test` files of Prometheus' promqltest, see the conformance data's README).
//!
//! `script` reads a file into commands, `series` its series lines and histogram literals, `compare` judges answers,
//! `run` drives a [`Subject`]: whatever can be cleared, loaded and asked. Every eval is a case of its own, named by
//! file, kind, times, expression and how-manieth occurrence, so that the names hold in the full files too.

pub mod compare;
pub mod run;
pub mod script;

use quiver_types::LabelSet;

pub use quiver_alerting::unit_tests::series;
pub use series::Value;

/// One series to be loaded.
#[derive(Debug, Clone)]
pub struct LoadedSeries {
    /// Labels, the name included.
    pub labels: LabelSet,
    /// Time, start time (0 = unset), value; times ascend.
    pub samples: Vec<(i64, i64, Value)>,
}

/// What a query gave.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Number.
    Scalar(f64),
    /// Text.
    String(String),
    /// Instant vector, in order.
    Vector(Vec<(LabelSet, Value)>),
    /// Matrix or range vector, in order.
    Matrix(Vec<(LabelSet, Vec<(i64, Value)>)>),
}

/// An answer with its annotations, as clients see them.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The answer.
    pub answer: Answer,
    /// Texts of warnings.
    pub warnings: Vec<String>,
    /// Texts of infos.
    pub infos: Vec<String>,
}

/// What is tested. Errors are the bare messages.
pub trait Subject {
    /// Starts anew with an empty store.
    ///
    /// # Errors
    /// What failed.
    fn clear(&mut self) -> Result<(), String>;

    /// Writes samples through the ingest path.
    ///
    /// # Errors
    /// Why the samples were refused.
    fn load(&mut self, series: &[LoadedSeries]) -> Result<(), String>;

    /// Asks at one time.
    ///
    /// # Errors
    /// What the query was answered with.
    fn instant(&mut self, query: &str, time_ms: i64) -> Result<Outcome, String>;

    /// Asks over a range.
    ///
    /// # Errors
    /// What the query was answered with.
    fn range(&mut self, query: &str, start_ms: i64, end_ms: i64, step_ms: i64) -> Result<Outcome, String>;
}
