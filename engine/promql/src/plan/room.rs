//! What the label phase of a query may use: memory, asked for before it is taken, and time.
//!
//! Tables of labels grow by what a query says, not by what it reads (`label_replace`, joins, `count_values`), and no
//! batch bounds the work on them.

use std::ops::Range;

use datafusion::execution::memory_pool::MemoryReservation;
use quiver_query::{Pace, QueryContext, QueryEngine, from_datafusion};
use quiver_types::{Result, SeriesTable};

/// Rows between two questions whether the query may go on.
const PIECE: usize = 16_384;
/// Bytes of text that are one unit of work.
const UNIT_BYTES: usize = 16;

/// See the module.
#[derive(Debug)]
pub(crate) struct Room {
    pace: Pace,
    memory: MemoryReservation,
}

/// Memory that is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Lent {
    _memory: MemoryReservation,
}

impl Room {
    /// Opens the label phase of a query.
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

    /// Takes memory for what lives as long as the query.
    ///
    /// # Errors
    /// LimitExceeded.
    pub(crate) fn take(&self, bytes: usize) -> Result<()> {
        self.memory.try_grow(bytes).map_err(from_datafusion)
    }

    /// Hands what was taken over to the answer, whose labels it is.
    pub(crate) fn into_memory(self) -> MemoryReservation {
        self.memory
    }

    /// Takes memory for one number per row.
    ///
    /// # Errors
    /// LimitExceeded.
    pub(crate) fn take_codes(&self, rows: usize) -> Result<()> {
        self.take(rows.saturating_mul(size_of::<u32>()))
    }

    /// Takes memory for what is soon gone again.
    ///
    /// # Errors
    /// LimitExceeded.
    pub(crate) fn lend(&self, bytes: usize) -> Result<Lent> {
        let memory = self.memory.new_empty();
        memory.try_grow(bytes).map_err(from_datafusion)?;
        Ok(Lent { _memory: memory })
    }

    /// Says that so many rows or values are about to be looked at.
    ///
    /// # Errors
    /// Timeout, Cancelled, LimitExceeded.
    pub(crate) fn did(&self, units: usize) -> Result<()> {
        self.pace.did(units)
    }

    /// Says that a text of so many bytes is about to be looked at.
    ///
    /// # Errors
    /// As [`Self::did`].
    pub(crate) fn did_text(&self, bytes: usize) -> Result<()> {
        self.pace.did(1 + bytes / UNIT_BYTES)
    }

    /// Cuts rows into pieces, and asks before each of them.
    pub(crate) fn pieces(&self, rows: usize) -> impl Iterator<Item = Result<Range<usize>>> + '_ {
        (0..rows).step_by(PIECE).map(move |from| {
            let piece = from..rows.min(from + PIECE);
            self.did(piece.len()).map(|()| piece)
        })
    }

    /// Keeps some rows of a table, as [`SeriesTable::take`] does.
    ///
    /// # Errors
    /// LimitExceeded, Timeout, Cancelled.
    pub(crate) fn rows_of(&self, table: &SeriesTable, rows: &[u32]) -> Result<SeriesTable> {
        self.take_codes(rows.len().saturating_mul(table.names().len()))?;
        self.did(rows.len().saturating_mul(table.names().len()))?;
        Ok(table.take(rows))
    }
}
