//! The samples of a selector as chunks, as one plan: a scan, then the chunks of each series, sorted by labels. The
//! order is known before samples are read.

use std::fmt;
use std::sync::Arc;

use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::{LogicalPlanBuilder, ident};
use futures::StreamExt;
use quiver_query::{QueryContext, Rules, from_datafusion, gathered, operator_plan};
use quiver_types::{Matcher, MillisRange, Result, SeriesTable};

use super::RawReader;
use super::chunks::Chunk;
use crate::nodes::Step;
use crate::nodes::chunks::{PLACE, SampleChunks, each_row};
use crate::plan::labels::sorted;
use crate::plan::memory::Room;
use crate::run_state::RunState;

/// The chunks of each series, sorted by labels.
pub struct OrderedChunks {
    /// Labels of the series; row numbers refer to it.
    pub table: Arc<SeriesTable>,
    /// Row of the table for each place.
    rows: Vec<u32>,
    batches: SendableRecordBatchStream,
    ctx: QueryContext,
    /// Memory of the query for the order.
    _memory: MemoryReservation,
}

impl fmt::Debug for OrderedChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderedChunks").field("series", &self.table.len()).finish_non_exhaustive()
    }
}

impl RawReader {
    /// Starts reading the samples of a selector as chunks, including stale markers. The range is inclusive.
    ///
    /// # Errors
    /// LimitExceeded, Timeout, Cancelled, Internal.
    pub async fn ordered_chunks(&self, matchers: Vec<Matcher>, range: MillisRange) -> Result<OrderedChunks> {
        let selected = self.selected(matchers, range).await?;
        let table = Arc::clone(&selected.table);
        let room = Room::new(&self.engine, &self.ctx);
        let rows = sorted(&room, &table)?;
        room.take_codes(table.len())?;
        let mut places = vec![0u32; table.len()];
        rows.iter().zip(0..).for_each(|(&row, place)| places[row as usize] = place);
        let chunks = operator_plan(Step(Arc::new(SampleChunks { places })), vec![self.scan(&selected, range)?])?;
        let in_order = LogicalPlanBuilder::from(gathered(chunks)?).sort([ident(PLACE).sort(true, false)]);
        let plan = in_order.and_then(LogicalPlanBuilder::build).map_err(from_datafusion)?;
        let run = Arc::new(RunState::new(self.ctx.clone(), None));
        let batches = self.engine.execute(&plan, &self.ctx, Rules::Shared(run)).await?;
        Ok(OrderedChunks { table, rows, batches, ctx: self.ctx.clone(), _memory: room.into_memory() })
    }
}

impl OrderedChunks {
    /// Calls a function for each series with samples, in order: row of the table, chunks by time.
    ///
    /// # Errors
    /// Those of the function; LimitExceeded, Timeout, Cancelled, Internal.
    pub async fn each(&mut self, mut visit: impl FnMut(u32, Vec<Chunk>) -> Result<()>) -> Result<()> {
        while let Some(batch) = self.batches.next().await {
            self.ctx.check("query execution")?;
            each_row(&batch.map_err(from_datafusion)?, |place, chunks| visit(self.rows[place as usize], chunks))?;
        }
        Ok(())
    }
}
