//! The result of evaluating a query, by whichever method.

use std::sync::Arc;
use std::time::Duration;

use quiver_query::QueryMemory;
use quiver_types::{Error, ErrorKind};

use crate::annotation::Annotations;
use crate::result::QueryValue;
use crate::sample_stats::SampleStats;

/// The result of evaluating a query.
#[derive(Debug, Clone)]
pub(crate) struct EvaluationResult {
    pub(super) value: Arc<QueryValue>,
    pub(super) annotations: Annotations,
    pub(super) timings: QueryTimings,
    pub(super) samples: Option<SampleStats>,
    pub(super) memory: Arc<QueryMemory>,
}

/// Time spent in the phases of a query.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueryTimings {
    /// Waiting for one of the slots for concurrent queries.
    pub queue: Duration,
    /// Parsing and type checking.
    pub parse: Duration,
    /// Resolving series, computing the labels of the result, and planning.
    pub plan: Duration,
    /// Creating operators and evaluating samples.
    pub execute: Duration,
    /// Dropping names, merging and sorting.
    pub arrange: Duration,
}

impl QueryTimings {
    /// Adds the times of another part of the query.
    pub(super) fn add(&mut self, other: &Self) {
        self.plan += other.plan;
        self.execute += other.execute;
        self.arrange += other.arrange;
    }
}

/// The error if a result has more series than allowed.
pub(super) fn too_many_rows(rows: usize, max: u64) -> Error {
    Error::new(
        ErrorKind::LimitExceeded,
        format!("the answer has {rows} series, more than the limit of {max}; aggregate them, or select fewer"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_told() {
        let rows = too_many_rows(5, 4);
        let expected = (
            ErrorKind::LimitExceeded,
            "the answer has 5 series, more than the limit of 4; aggregate them, or select fewer",
        );
        assert_eq!((rows.kind, rows.message.as_str()), expected);
    }
}
