//! Counters over all queries: how many began, wait, run and failed, and how long they took.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use quiver_types::ErrorKind;

use crate::running_queries::Query;

/// What all queries used so far.
#[derive(Debug, Default)]
pub struct QueryUse {
    /// Queries that asked for a place.
    pub started: AtomicU64,
    /// Queries that ended in an error.
    pub failed: AtomicU64,
    /// Queries whose caller went away.
    pub cancelled: AtomicU64,
    /// Queries that run now.
    pub running: AtomicU64,
    /// Queries that wait for a place.
    pub waiting: AtomicU64,
    /// Time that queries took, in microseconds.
    pub micros: AtomicU64,
}

/// Counts how a query ends. One that is dropped before it has an answer lost its caller, unless it panicked.
pub(crate) struct OutcomeCounter {
    used: Arc<QueryUse>,
    query: Arc<Query>,
    ended: bool,
}

impl OutcomeCounter {
    /// Counts a query that begins.
    pub(crate) fn begin(used: &Arc<QueryUse>, query: &Arc<Query>) -> Self {
        used.started.fetch_add(1, Relaxed);
        Self::again(used, query)
    }

    /// Continues the count of a query after [`Self::goes_on`].
    pub(crate) fn again(used: &Arc<QueryUse>, query: &Arc<Query>) -> Self {
        Self { used: Arc::clone(used), query: Arc::clone(query), ended: false }
    }

    /// Notes that the query goes on, because its work is repeated.
    pub(crate) fn goes_on(&mut self) {
        self.ended = true;
    }

    /// Says how it ended: with an error or an answer.
    pub(crate) fn end(&mut self, error: Option<ErrorKind>) {
        self.ended = true;
        if let Some(kind) = error {
            self.query.fail(kind);
        }
        match error {
            None => {}
            Some(ErrorKind::Cancelled) => _ = self.used.cancelled.fetch_add(1, Relaxed),
            Some(_) => _ = self.used.failed.fetch_add(1, Relaxed),
        }
    }
}

impl Drop for OutcomeCounter {
    fn drop(&mut self) {
        if !self.ended {
            let panicked = std::thread::panicking();
            self.end(Some(if panicked { ErrorKind::Internal } else { ErrorKind::Cancelled }));
        }
    }
}

/// Counts one more query of a kind for as long as it lives.
pub(crate) struct Gauge {
    used: Arc<QueryUse>,
    of: fn(&QueryUse) -> &AtomicU64,
}

impl Gauge {
    /// Counts one more.
    pub(crate) fn up(used: &Arc<QueryUse>, of: fn(&QueryUse) -> &AtomicU64) -> Self {
        of(used).fetch_add(1, Relaxed);
        Self { used: Arc::clone(used), of }
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        (self.of)(&self.used).fetch_sub(1, Relaxed);
    }
}
