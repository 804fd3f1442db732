//! One partition of a log scan in any order: takes block after block from the common queue.
//!
//! Decoding and matching happen on the polling thread. The stream yields between blocks, so that a dropped or cancelled
//! query ends soon. Memory is one block and its output, reserved in the query's pool before it is made. If the rows of a
//! block are large, only a window of a few megabytes is held, as readers may be slow.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{BooleanBufferBuilder, RecordBatch};
use arrow::buffer::BooleanBuffer;
use async_trait::async_trait;
use quiver_types::Result;
use quiver_types::logs::LogForm;
use quiver_types::scan::{ScanBatches, ScanCounters, ScanMemory, ScanTask, ScanTimer, batch_bytes};

use super::block::{Block, STEP_ROWS};
use super::evaluation::{eval, none, within};
use super::output::{by_stream, field_counts, output, prefetch};
use super::output_size::OutputSize;
use super::scan::{Scan, ScanRun, count};
use super::value_counts::{to_batch, value_counts};
use crate::error::leave_out;

/// Approximate rows of a batch.
const BATCH_ROWS: usize = 16 * 1024;
/// Approximate rows of a batch with few columns, all in stored form: there the fixed cost of a batch is higher than
/// that of its rows.
const NARROW_BATCH_ROWS: usize = 64 * 1024;
/// Maximum columns of such a batch.
const NARROW_COLUMNS: usize = 4;

/// The stream's state.
#[derive(Debug)]
pub(super) struct AnyOrder {
    scan: Arc<Scan>,
    run: Arc<ScanRun>,
    rows_left: usize,
    memory: Arc<dyn ScanMemory>,
    counters: Arc<dyn ScanCounters>,
    /// The current block, with the rows that are still to be returned.
    open: Option<OpenBlock>,
}

/// Approximate bytes of rows that are returned at once; a slow reader holds this much of a block.
pub(super) const WINDOW_BYTES: f32 = (2 << 20) as f32;
/// Blocks up to this size are read completely.
pub(super) const WIDE_BYTES: u64 = 4 << 20;

/// A reader that wants at most `FEW_ROWS` more rows gets them from windows of `PROBE_ROWS` rows.
const FEW_ROWS: usize = 1024;
const PROBE_ROWS: usize = 8192;

/// A block that [`AnyOrder`] reads in windows.
struct OpenBlock {
    block: Box<dyn Block>,
    /// Rows that match, or (if `unfiltered`) may match.
    rows: BooleanBuffer,
    windows: VecDeque<Range<usize>>,
    /// Whether the filter still has to be evaluated.
    unfiltered: bool,
    /// Whether data read for a window is freed after it.
    wide: bool,
    /// Rows of the current window that are still to be returned.
    left: Option<BooleanBuffer>,
    /// What is expected of returned rows, where that is more than what is read.
    size: OutputSize,
}

impl std::fmt::Debug for OpenBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenBlock").field("windows", &self.windows.len()).finish_non_exhaustive()
    }
}

impl OpenBlock {
    /// Finds the matching rows and reads what is returned of them. If that would be large, or there is no memory for it,
    /// both are done window by window instead.
    async fn of(
        mut block: Box<dyn Block>,
        scan: &Scan,
        matching: Option<BooleanBuffer>,
        most: usize,
        memory: &dyn ScanMemory,
    ) -> Result<Self> {
        let filter = &scan.request.filter;
        let (mut rows, mut unfiltered) = if let Some(rows) = matching {
            (rows, false)
        } else {
            let rows = block.allowed().await?;
            (block.candidates(filter, rows).await?, true)
        };
        let (gives, asks) = (|name: &str| scan.gives(name), |name: &str| scan.filter_fields.contains(name));
        let all = block.wanted_bytes(&gives);
        let mut wide = !none(&rows) && all > WIDE_BYTES;
        if unfiltered && most <= FEW_ROWS && scan.filter_fields.any() && rows.count_set_bits() > PROBE_ROWS {
            // A reader that wants few rows mostly has them before all rows are examined.
            let row_bytes = if wide { block.row_bytes(&gives, &rows) } else { Vec::new() };
            let windows = windows(&rows, PROBE_ROWS, &row_bytes);
            let size = OutputSize::of(&*block, scan);
            return Ok(Self { block, rows, windows, unfiltered, wide: true, left: None, size });
        }
        if unfiltered {
            let is_read = wide && block.sweep();
            block.narrow(&rows);
            if !is_read || block.wanted_bytes(&asks) <= WIDE_BYTES {
                rows = first(eval(&mut *block, filter, rows).await?, most);
                unfiltered = false;
                block.narrow(&rows);
            }
        } else {
            rows = first(rows, most);
            block.narrow(&rows);
        }
        if !wide && !none(&rows) && block.is_read() {
            // Many readers that come at once would all hold theirs before the first one is refused.
            let part = rows.count_set_bits() as f64 / block.len().max(1) as f64;
            wide = memory.try_resize(block.bytes() + (all as f64 * part) as usize).is_err();
            if wide {
                block.sweep();
            }
        }
        let mut row_bytes = if wide { block.row_bytes(&gives, &rows) } else { Vec::new() };
        if unfiltered {
            let filter_bytes = block.row_bytes(&asks, &rows);
            row_bytes.iter_mut().zip(filter_bytes).for_each(|(bytes, more)| *bytes = bytes.max(more));
        }
        let windows = windows(&rows, batch_rows(scan), &row_bytes);
        if !wide && !windows.is_empty() {
            prefetch(&mut *block, &scan.request, &scan.projection, &rows).await?;
        }
        let size = OutputSize::of(&*block, scan);
        Ok(Self { block, rows, windows, unfiltered, wide, left: None, size })
    }

    /// The matching rows of a window; at most `most`.
    async fn matching(&mut self, scan: &Scan, window: Range<usize>, most: usize) -> Result<BooleanBuffer> {
        let rows = within(&self.rows, window.start, window.end);
        if !self.unfiltered {
            return Ok(rows);
        }
        self.block.narrow(&self.rows);
        let rows = first(eval(&mut *self.block, &scan.request.filter, rows).await?, most);
        // The returned columns are read only for matching rows, however many were examined.
        self.block.narrow(&rows);
        Ok(rows)
    }

    /// The next of the rows of the current window, or of a new one; `None` if there are none in it. At most `most`.
    async fn give(&mut self, scan: &Scan, most: usize, memory: &dyn ScanMemory) -> Result<Option<RecordBatch>> {
        let begun = self.left.take();
        let is_begun = begun.is_some();
        let rows = if let Some(rows) = begun {
            rows
        } else {
            let Some(window) = self.windows.pop_front() else { return Ok(None) };
            self.matching(scan, window, most).await?
        };
        let mut batch = None;
        if !none(&rows) {
            let Scan { request, projection, schema, .. } = scan;
            let all = rows.count_set_bits();
            let part = self.size.reserve(all, 1, self.block.bytes(), memory)?;
            let is_all = part >= all;
            if self.wide && !is_begun && !is_all {
                // Once for all parts.
                prefetch(&mut *self.block, request, projection, &rows).await?;
            }
            let now = first(rows.clone(), part);
            let given = output(&mut *self.block, request, projection, schema, &now).await?;
            self.size.measure(&given);
            batch = Some(given);
            self.left = (!is_all).then(|| &rows & &!&now);
        }
        if self.wide && self.left.is_none() {
            self.block.forget_wide();
        }
        memory.try_resize(self.block.bytes() + batch.as_ref().map_or(0, batch_bytes))?;
        Ok(batch)
    }
}

#[async_trait]
impl ScanBatches for AnyOrder {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        tokio::task::yield_now().await;
        while self.rows_left > 0 {
            if let Some(batch) = self.window().await? {
                return Ok(Some(batch));
            }
            self.memory.free();
            let Some(handle) = self.run.queue.next().await? else { break };
            tokio::task::yield_now().await;
            let _timer = ScanTimer::start(&self.counters);
            let mut block = handle.open();
            let taken = take(&mut *block, &self.scan, &self.run, &*self.memory).await;
            count(&block.take_stats(), &*self.counters, &self.run.blocks.stats);
            match taken {
                Ok(BlockResult::Counted(batch, bytes)) => {
                    self.memory.try_resize(bytes)?;
                    return Ok(Some(batch));
                }
                Ok(BlockResult::Rows(matching)) => self.open(block, matching).await?,
                Err(e) => leave_out(&self.run.blocks.stats, e)?,
            }
        }
        self.memory.free();
        Ok(None)
    }
}

impl AnyOrder {
    pub(super) fn new(scan: Arc<Scan>, run: Arc<ScanRun>, limit: Option<usize>, task: ScanTask) -> Self {
        let ScanTask { memory, counters, .. } = task;
        Self { scan, run, rows_left: limit.unwrap_or(usize::MAX), memory, counters, open: None }
    }

    /// Opens a block to return its rows; `matching` are the matching ones, if known.
    async fn open(&mut self, block: Box<dyn Block>, matching: Option<BooleanBuffer>) -> Result<()> {
        match OpenBlock::of(block, &self.scan, matching, self.rows_left, &*self.memory).await {
            Ok(mut open) => {
                count(&open.block.take_stats(), &*self.counters, &self.run.blocks.stats);
                self.memory.try_resize(open.block.bytes())?;
                self.open = Some(open);
                Ok(())
            }
            Err(e) => leave_out(&self.run.blocks.stats, e),
        }
    }

    /// The next rows of the current block; `None` if there are no more.
    async fn window(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(open) = &mut self.open {
            if open.left.is_none() && open.windows.is_empty() {
                self.open = None;
                break;
            }
            let _timer = ScanTimer::start(&self.counters);
            let given = open.give(&self.scan, self.rows_left, &*self.memory).await;
            count(&open.block.take_stats(), &*self.counters, &self.run.blocks.stats);
            match given {
                Ok(Some(batch)) => {
                    self.rows_left -= batch.num_rows();
                    return Ok(Some(batch));
                }
                Ok(None) => tokio::task::yield_now().await,
                Err(e) => {
                    leave_out(&self.run.blocks.stats, e)?;
                    self.open = None;
                }
            }
        }
        Ok(None)
    }
}

/// What a block yields.
enum BlockResult {
    /// Its complete result, and the memory used to compute it.
    Counted(RecordBatch, usize),
    /// Rows; with those that match, if known.
    Rows(Option<BooleanBuffer>),
}

async fn take(block: &mut dyn Block, scan: &Scan, run: &ScanRun, memory: &dyn ScanMemory) -> Result<BlockResult> {
    if scan.request.form == LogForm::Rows {
        return Ok(BlockResult::Rows(None));
    }
    let rows = matching(block, scan).await?;
    let Scan { request, projection, schema, .. } = scan;
    Ok(match request.form {
        LogForm::ValueCounts(limits) => {
            let counts = value_counts(block, limits, &run.left_out, &rows, memory).await?;
            let bytes = block.bytes() + counts.memory_bytes();
            BlockResult::Counted(to_batch(counts, projection)?, bytes)
        }
        LogForm::FieldCounts => BlockResult::Counted(field_counts(block, projection, schema, &rows).await?, 0),
        LogForm::Counted => match by_stream(block, request, projection, schema, &rows).await? {
            Some(batch) => BlockResult::Counted(batch, 0),
            None => BlockResult::Rows(Some(rows)),
        },
        LogForm::Rows => BlockResult::Rows(Some(rows)),
    })
}

/// The rows of a block that match and that the caller may see.
pub(super) async fn matching(block: &mut dyn Block, scan: &Scan) -> Result<BooleanBuffer> {
    let filter = &scan.request.filter;
    let rows = block.allowed().await?;
    let rows = block.candidates(filter, rows).await?;
    eval(block, filter, rows).await
}

/// Keeps the first of the selected rows.
fn first(rows: BooleanBuffer, most: usize) -> BooleanBuffer {
    if most >= rows.len() || rows.count_set_bits() <= most {
        return rows;
    }
    let mut bits = BooleanBufferBuilder::new(rows.len());
    bits.append_n(rows.len(), false);
    rows.set_indices().take(most).for_each(|row| bits.set_bit(row, true));
    bits.finish()
}

/// Maximum rows of a batch.
fn batch_rows(scan: &Scan) -> usize {
    let counted = scan.request.form == LogForm::Counted;
    let stored_or_count = |at: &usize| scan.request.columns.get(*at).map_or(counted, |column| column.stored);
    let narrow = scan.projection.len() <= NARROW_COLUMNS && scan.projection.iter().all(stored_or_count);
    if narrow { NARROW_BATCH_ROWS } else { BATCH_ROWS }
}

/// Number of steps that are checked together before each is examined separately.
const STEPS_AT_ONCE: usize = 64;

/// Splits the selected rows into windows of at most `most` rows, and of limited bytes if the size of rows is given.
fn windows(rows: &BooleanBuffer, most: usize, row_bytes: &[f32]) -> VecDeque<Range<usize>> {
    let mut out = VecDeque::new();
    let step = if row_bytes.is_empty() { most / 2 } else { STEP_ROWS };
    let (mut start, mut count, mut bytes) = (0, 0, 0.0);
    // If few rows are selected, most steps have none: skip many steps at once.
    let far = step * STEPS_AT_ONCE;
    let any = |from: &usize| rows.slice(*from, far.min(rows.len() - from)).count_set_bits() > 0;
    let parts = (0..rows.len()).step_by(far).filter(any);
    for at in parts.flat_map(|from| (from..rows.len().min(from + far)).step_by(step)) {
        let len = step.min(rows.len() - at);
        let here = rows.slice(at, len).count_set_bits();
        let bytes_here = here as f32 * row_bytes.get(at / step).unwrap_or(&0.0);
        if count > 0 && (count + here > most || bytes + bytes_here > WINDOW_BYTES) {
            out.push_back(start..at);
            (start, count, bytes) = (at, 0, 0.0);
        }
        count += here;
        bytes += bytes_here;
    }
    if count > 0 {
        out.push_back(start..rows.len());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_hold_all_rows_once() {
        let rows = BooleanBuffer::collect_bool(100_000, |i| i % 3 != 0 && !(30_000..60_000).contains(&i));
        let all_of = |windows: &VecDeque<Range<usize>>| -> Vec<usize> {
            windows.iter().flat_map(|w| within(&rows, w.start, w.end).set_indices().collect::<Vec<_>>()).collect()
        };
        let whole = windows(&rows, BATCH_ROWS, &[]);
        assert!(whole.iter().all(|w| rows.slice(w.start, w.len()).count_set_bits() <= BATCH_ROWS));
        assert_eq!(all_of(&whole), rows.set_indices().collect::<Vec<_>>());
        // Rows that are long towards the end.
        let row_bytes: Vec<f32> =
            (0..rows.len().div_ceil(STEP_ROWS)).map(|i| if i < 2000 { 1.0 } else { 5e3 }).collect();
        let by_bytes = windows(&rows, BATCH_ROWS, &row_bytes);
        assert_eq!(all_of(&by_bytes), all_of(&whole));
        let bytes = |w: &Range<usize>| {
            within(&rows, w.start, w.end).set_indices().map(|row| row_bytes[row / STEP_ROWS]).sum::<f32>()
        };
        assert!(by_bytes.iter().all(|w| bytes(w) <= WINDOW_BYTES) && by_bytes.len() > whole.len());
        assert_eq!(first(rows.clone(), 10).set_indices().collect::<Vec<_>>(), all_of(&whole)[..10]);
        assert!(windows(&BooleanBuffer::new_unset(10), BATCH_ROWS, &[]).is_empty());
        // Few rows, far apart, at both ends too.
        let few = BooleanBuffer::collect_bool(100_000, |i| [0, 31, 2048, 70_001, 99_999].contains(&i));
        for own in [Vec::new(), row_bytes.clone()] {
            let found = windows(&few, BATCH_ROWS, &own);
            assert_eq!((found.len(), found.front().cloned()), (1, Some(0..few.len())));
        }
    }
}
