//! What look-ups in indexes ask of the query that they are for: its memory, its time, its caller.

use std::time::Instant;

use datafusion::execution::memory_pool::MemoryReservation;
use quiver_types::stats::Gate;
use quiver_types::{Error, ErrorKind, Result};
use tokio_util::sync::CancellationToken;

use crate::context::QueryContext;
use crate::error::from_datafusion;
use crate::failpoint;

/// The gate of one query. It knows parts of the context, not the context, whose counters know the gate.
#[derive(Debug)]
pub(crate) struct QueryGate {
    memory: MemoryReservation,
    cancel: CancellationToken,
    deadline: Instant,
}

impl QueryGate {
    /// Makes the gate of a query out of a part of its memory.
    pub(crate) fn new(ctx: &QueryContext, memory: MemoryReservation) -> Self {
        Self { memory, cancel: ctx.cancel.clone(), deadline: ctx.deadline }
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
        if self.cancel.is_cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, "query was canceled in query preparation"));
        }
        if Instant::now() >= self.deadline {
            return Err(Error::new(ErrorKind::Timeout, "query timed out in query preparation"));
        }
        Ok(())
    }
}
