//! Connects index look-ups with the query that they are for: they reserve its memory, check its deadline and
//! cancellation, and report the CPU time that they take.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use datafusion::execution::memory_pool::MemoryReservation;
use parking_lot::Mutex;
use quiver_types::stats::Gate;
use quiver_types::{Error, ErrorKind, Result};
use tokio_util::sync::CancellationToken;

use crate::error::from_datafusion;
use crate::failpoint;
use crate::pool::QueryPool;

/// The gate of one query. It knows parts of the context, not the context, whose counters know the gate.
///
/// A query may run more than once, and the end of a run cancels what belongs to it: look-ups go on as long as any run
/// does.
#[derive(Debug)]
pub(crate) struct QueryGate {
    memory: MemoryReservation,
    /// What functions take for it.
    values: Arc<QueryPool>,
    cpu_nanos: Arc<AtomicU64>,
    runs: Mutex<Vec<CancellationToken>>,
    deadline: Instant,
}

impl QueryGate {
    /// Makes the gate of a query out of a part of its memory, and of what functions may take for it; where its CPU time is
    /// counted, and when it must be done.
    pub(crate) fn new(
        memory: MemoryReservation,
        values: QueryPool,
        cpu_nanos: Arc<AtomicU64>,
        deadline: Instant,
    ) -> Self {
        Self { memory, values: Arc::new(values), cpu_nanos, runs: Mutex::default(), deadline }
    }

    /// A run begins that ends with a token.
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

    fn values(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::clone(&self.values) as _)
    }
}
