//! Limits for the label phase of a query: memory, which is reserved before it is used, and time.
//!
//! Tables of labels may grow with the query text alone, independent of the data (`label_replace`, joins,
//! `count_values`), and the work on them is not limited by batches.

use std::ops::Range;

use datafusion::execution::memory_pool::MemoryReservation;
use quiver_query::{Pace, QueryContext, QueryEngine, from_datafusion};
use quiver_types::{Result, SeriesTable};

/// Rows between two checks for cancellation.
const PIECE: usize = 16_384;
/// Bytes of text that count as one unit of work.
const UNIT_BYTES: usize = 16;

/// The memory and time of a query's label phase.
#[derive(Debug)]
pub(crate) struct Room {
    pace: Pace,
    memory: MemoryReservation,
}

/// Memory that is released on drop.
#[derive(Debug)]
pub(crate) struct ReservedMemory {
    _memory: MemoryReservation,
}

impl Room {
    /// Starts the label phase of a query.
    pub(crate) fn new(engine: &QueryEngine, ctx: &QueryContext) -> Self {
        let pace = Pace::new(ctx, "query preparation");
        Self { pace, memory: engine.reservation("labels", ctx) }
    }

    #[cfg(test)]
    pub(crate) fn unbounded() -> Self {
        Self::bounded(usize::MAX)
    }

    #[cfg(test)]
    pub(crate) fn bounded(bytes: usize) -> Self {
        use std::sync::Arc;

        use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(bytes));
        let ctx = QueryContext::new(quiver_types::Access::full(), quiver_query::Limits::default());
        Self { pace: Pace::new(&ctx, "a test"), memory: MemoryConsumer::new("labels").register(&pool) }
    }

    /// Reserves memory that is used as long as the query lives.
    ///
    /// # Errors
    /// LimitExceeded.
    pub(crate) fn take(&self, bytes: usize) -> Result<()> {
        self.memory.try_grow(bytes).map_err(from_datafusion)
    }

    /// Passes the reservation on to the result, which owns the labels.
    pub(crate) fn into_memory(self) -> MemoryReservation {
        self.memory
    }

    /// Reserves memory for one number per row.
    ///
    /// # Errors
    /// LimitExceeded.
    pub(crate) fn take_codes(&self, rows: usize) -> Result<()> {
        self.take(rows.saturating_mul(size_of::<u32>()))
    }

    /// Reserves memory for temporary data.
    ///
    /// # Errors
    /// LimitExceeded.
    pub(crate) fn lend(&self, bytes: usize) -> Result<ReservedMemory> {
        let memory = self.memory.new_empty();
        memory.try_grow(bytes).map_err(from_datafusion)?;
        Ok(ReservedMemory { _memory: memory })
    }

    /// Accounts work on this number of rows or values; checks for cancellation.
    ///
    /// # Errors
    /// Timeout, Cancelled, LimitExceeded.
    pub(crate) fn did(&self, units: usize) -> Result<()> {
        self.pace.did(units)
    }

    /// Accounts work on a text of this length; checks for cancellation.
    ///
    /// # Errors
    /// As [`Self::did`].
    pub(crate) fn did_text(&self, bytes: usize) -> Result<()> {
        self.pace.did(1 + bytes / UNIT_BYTES)
    }

    /// Splits rows into pieces, checking for cancellation before each.
    pub(crate) fn pieces(&self, rows: usize) -> impl Iterator<Item = Result<Range<usize>>> + '_ {
        (0..rows).step_by(PIECE).map(move |from| {
            let piece = from..rows.min(from + PIECE);
            self.did(piece.len()).map(|()| piece)
        })
    }

    /// Selects rows of a table like [`SeriesTable::take`], reserving memory.
    ///
    /// # Errors
    /// LimitExceeded, Timeout, Cancelled.
    pub(crate) fn rows_of(&self, table: &SeriesTable, rows: &[u32]) -> Result<SeriesTable> {
        self.take_codes(rows.len().saturating_mul(table.names().len()))?;
        self.did(rows.len().saturating_mul(table.names().len()))?;
        Ok(table.take(rows))
    }
}
