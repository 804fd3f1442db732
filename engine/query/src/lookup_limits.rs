//! Connects index look-ups with the query that they are for: they reserve its memory, check its deadline and
//! cancellation, and report the CPU time that they take.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use datafusion::execution::memory_pool::MemoryReservation;
use parking_lot::Mutex;
use quiver_types::read_stats::Gate;
use quiver_types::{Error, ErrorKind, Result};
use tokio_util::sync::CancellationToken;

use crate::current_query::make_room;
use crate::error::from_datafusion;
use crate::failpoint;
use crate::pool::QueryPool;
use crate::running_queries::Query;

/// The gate of one query. It holds parts of the context and not the context itself, whose counters refer to the gate.
///
/// A query may have several runs, and the end of a run cancels its token: look-ups go on as long as any run does.
#[derive(Debug)]
pub(crate) struct QueryGate {
    memory: MemoryReservation,
    /// The pool for values of functions.
    values: Arc<QueryPool>,
    cpu_nanos: Arc<AtomicU64>,
    runs: Mutex<Vec<CancellationToken>>,
    deadline: Instant,
    moment: DateTime<Utc>,
}

impl QueryGate {
    /// Makes the gate of a run of a query, with the memory for its look-ups, the pool for values of functions, and its
    /// deadline.
    pub(crate) fn new(memory: MemoryReservation, values: QueryPool, query: &Query, deadline: Instant) -> Self {
        let cpu_nanos = Arc::clone(&query.cpu_nanos);
        Self { memory, values: Arc::new(values), cpu_nanos, runs: Mutex::default(), deadline, moment: query.moment }
    }

    /// Registers a run that ends when the token is cancelled.
    pub(crate) fn begin(&self, cancel: &CancellationToken) {
        let mut runs = self.runs.lock();
        runs.retain(|run| !run.is_cancelled());
        runs.push(cancel.clone());
    }
}

impl Gate for QueryGate {
    fn take(&self, bytes: usize) -> Result<()> {
        self.memory.try_grow(bytes).map_err(from_datafusion)
    }

    fn give_back(&self, bytes: usize) {
        self.memory.shrink(bytes);
    }

    fn check(&self) -> Result<()> {
        failpoint::hit("query.check");
        make_room();
        if self.runs.lock().iter().all(CancellationToken::is_cancelled) {
            return Err(Error::new(ErrorKind::Cancelled, "query was canceled in query preparation"));
        }
        if Instant::now() >= self.deadline {
            return Err(Error::new(ErrorKind::Timeout, "query timed out in query preparation"));
        }
        Ok(())
    }

    fn spent(&self, cpu: Duration) {
        self.cpu_nanos.fetch_add(cpu.as_nanos() as u64, Relaxed);
    }

    fn moment(&self) -> Option<DateTime<Utc>> {
        Some(self.moment)
    }

    fn values(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::clone(&self.values) as _)
    }
}
