//! One partition of a scan of logs in any order: block after block from the common queue.
//!
//! Decoding and matching happen on the thread that polls. Between two blocks the stream gives way, so that a dropped or
//! cancelled query ends soon; memory is one block and its output, accounted in the query's pool.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{BooleanBufferBuilder, RecordBatch};
use arrow::buffer::BooleanBuffer;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::metrics::BaselineMetrics;
use quiver_types::Error;
use quiver_types::logs::LogForm;

use super::block::Block;
use super::blocks::Queue;
use super::eval::{eval, within};
use super::exec::{Counters, Scan};
use super::output::{by_stream, field_counts, output, prefetch};
use super::values::{to_batch, value_counts};
use crate::error::leave_out;

/// Rows of a batch, about.
const BATCH_ROWS: usize = 16 * 1024;
/// The same of batches with few columns, all as they are stored: what a batch costs beside its rows is more than they do.
const NARROW_BATCH_ROWS: usize = 64 * 1024;
/// Columns of such a batch.
const NARROW_COLUMNS: usize = 4;

/// The stream's state.
#[derive(Debug)]
pub(super) struct AnyOrder {
    pub(super) scan: Arc<Scan>,
    pub(super) queue: Arc<Queue>,
    pub(super) rows_left: usize,
    pub(super) memory: MemoryReservation,
    pub(super) baseline: BaselineMetrics,
    pub(super) counters: Counters,
    /// The block at hand and the rows of it that are still to be given out.
    pub(super) open: Option<OpenBlock>,
}

/// See [`AnyOrder`].
pub(super) struct OpenBlock {
    block: Box<dyn Block>,
    windows: VecDeque<BooleanBuffer>,
}

impl std::fmt::Debug for OpenBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenBlock").field("windows", &self.windows.len()).finish_non_exhaustive()
    }
}

/// Turns an error of ours into DataFusion's.
pub(super) fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl AnyOrder {
    /// Gives the next batch.
    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        tokio::task::yield_now().await;
        while self.rows_left > 0 {
            if let Some(open) = &mut self.open {
                if let Some(rows) = open.windows.pop_front() {
                    let Scan { request, projection, schema, .. } = &*self.scan;
                    let timer = self.baseline.elapsed_compute().clone();
                    let _timer = timer.timer();
                    let batch = match output(&mut *open.block, request, projection, schema, &rows).await {
                        Ok(batch) => batch,
                        Err(e) => {
                            leave_out(&self.scan.blocks.stats, e).map_err(external)?;
                            self.open = None;
                            continue;
                        }
                    };
                    self.counters.add(&open.block.take_stats(), &self.scan.blocks.stats);
                    self.memory.try_resize(open.block.bytes() + batch.get_array_memory_size())?;
                    self.rows_left -= batch.num_rows();
                    self.baseline.record_output(batch.num_rows());
                    return Ok(Some(batch));
                }
                self.open = None;
            }
            self.memory.free();
            let Some(handle) = self.queue.next().await.map_err(external)? else { break };
            tokio::task::yield_now().await;
            let timer = self.baseline.elapsed_compute().clone();
            let _timer = timer.timer();
            let mut block = handle.open();
            let taken = take(&mut *block, &self.scan).await;
            self.counters.add(&block.take_stats(), &self.scan.blocks.stats);
            let matching = match taken {
                Ok(Taken::Counted(batch, bytes)) => {
                    self.memory.try_resize(bytes)?;
                    self.baseline.record_output(batch.num_rows());
                    return Ok(Some(batch));
                }
                Ok(Taken::Rows(rows)) => first(rows, self.rows_left),
                Err(e) => {
                    leave_out(&self.scan.blocks.stats, e).map_err(external)?;
                    continue;
                }
            };
            self.memory.try_resize(block.bytes())?;
            let windows = windows(&matching, batch_rows(&self.scan));
            if !windows.is_empty() {
                let Scan { request, projection, .. } = &*self.scan;
                match prefetch(&mut *block, request, projection, &matching).await {
                    Ok(()) => self.open = Some(OpenBlock { block, windows }),
                    Err(e) => leave_out(&self.scan.blocks.stats, e).map_err(external)?,
                }
            }
        }
        self.memory.free();
        Ok(None)
    }
}

/// What a block gives.
enum Taken {
    /// Its whole answer, and the memory that making it took.
    Counted(RecordBatch, usize),
    /// The rows that match.
    Rows(BooleanBuffer),
}

async fn take(block: &mut dyn Block, scan: &Scan) -> quiver_types::Result<Taken> {
    let rows = matching(block, scan).await?;
    let Scan { request, projection, schema, left_out, .. } = scan;
    match request.form {
        LogForm::ValueCounts(limits) => {
            let counts = value_counts(block, limits, left_out, &rows).await?;
            let bytes = block.bytes() + counts.memory_bytes();
            Ok(Taken::Counted(to_batch(counts, projection)?, bytes))
        }
        LogForm::FieldCounts => Ok(Taken::Counted(field_counts(block, projection, schema, &rows).await?, 0)),
        LogForm::Counted => match by_stream(block, request, projection, schema, &rows) {
            Some(batch) => Ok(Taken::Counted(batch?, 0)),
            None => Ok(Taken::Rows(rows)),
        },
        LogForm::Rows => Ok(Taken::Rows(rows)),
    }
}

/// Gives the rows of a block that match and that the caller may see.
pub(super) async fn matching(block: &mut dyn Block, scan: &Scan) -> quiver_types::Result<BooleanBuffer> {
    let filter = &scan.request.filter;
    let rows = block.allowed();
    let rows = block.candidates(filter, rows).await?;
    eval(block, filter, rows).await
}

/// Keeps the first of the rows that are set.
fn first(rows: BooleanBuffer, most: usize) -> BooleanBuffer {
    if most >= rows.len() || rows.count_set_bits() <= most {
        return rows;
    }
    let mut bits = BooleanBufferBuilder::new(rows.len());
    bits.append_n(rows.len(), false);
    rows.set_indices().take(most).for_each(|row| bits.set_bit(row, true));
    bits.finish()
}

/// How many rows a batch may have.
fn batch_rows(scan: &Scan) -> usize {
    let counted = scan.request.form == LogForm::Counted;
    let stored_or_count = |at: &usize| scan.request.columns.get(*at).map_or(counted, |column| column.stored);
    let narrow = scan.projection.len() <= NARROW_COLUMNS && scan.projection.iter().all(stored_or_count);
    if narrow { NARROW_BATCH_ROWS } else { BATCH_ROWS }
}

/// Cuts the rows that are set into batches of so many at most.
fn windows(rows: &BooleanBuffer, most: usize) -> VecDeque<BooleanBuffer> {
    let mut out = VecDeque::new();
    let (mut start, mut count) = (0, 0);
    for at in (0..rows.len()).step_by(most / 2) {
        let len = (most / 2).min(rows.len() - at);
        let here = rows.slice(at, len).count_set_bits();
        if count > 0 && count + here > most {
            out.push_back(within(rows, start, at));
            (start, count) = (at, 0);
        }
        count += here;
    }
    if count > 0 {
        out.push_back(within(rows, start, rows.len()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_hold_all_rows_once() {
        let rows = BooleanBuffer::collect_bool(100_000, |i| i % 3 != 0 && !(30_000..60_000).contains(&i));
        let windows = windows(&rows, BATCH_ROWS);
        assert!(windows.iter().all(|w| w.count_set_bits() <= BATCH_ROWS && w.len() == rows.len()));
        let all: Vec<usize> = windows.iter().flat_map(|w| w.set_indices().collect::<Vec<_>>()).collect();
        assert_eq!(all, rows.set_indices().collect::<Vec<_>>());
        assert_eq!(first(rows.clone(), 10).set_indices().collect::<Vec<_>>(), all[..10]);
        assert!(super::windows(&BooleanBuffer::new_unset(10), BATCH_ROWS).is_empty());
    }
}
