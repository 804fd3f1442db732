//! A scan in time order. It goes through time in slices, from one end to the other; each slice is filtered in all
//! blocks that overlap it, and sorted. Columns are read only for rows that are returned, so a reader that stops early
//! has cost little more than the times of the first slices. Slices grow while they contain few rows.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, BooleanBufferBuilder, RecordBatch, RecordBatchOptions};
use arrow::buffer::BooleanBuffer;
use arrow::compute::interleave;
use async_trait::async_trait;
use quiver_types::logs::LogFilter;
use quiver_types::scan::{ScanBatches, ScanCounters, ScanMemory, ScanTask, ScanTimer, batch_bytes};
use quiver_types::{Error, Result};

use super::block::Block;
use super::blocks::{Handle, at_once, open};
use super::column::Values;
use super::evaluation::eval;
use super::output::{output, prefetch};
use super::output_size::OutputSize;
use super::part_selection::PartScan;
use super::scan::{Scan, ScanRun, count};
use super::stream::{WIDE_BYTES, WINDOW_BYTES};
use crate::error::{Context, leave_out};

/// Number of rows, before filtering, that the first slice should have.
const FIRST_SLICE_ROWS: f64 = 4096.0;
/// Maximum rows of a slice.
const SLICE_ROWS_MAX: f64 = 128.0 * 1024.0;
/// Rows of the first batch of a slice; later batches are larger.
const FIRST_BATCH_ROWS: usize = 1024;
const BATCH_ROWS: usize = 8192;

/// A matching row: its time, the index of its block in the slice, its row in the block.
type Address = (i64, u32, u32);

/// The stream's state.
pub(super) struct OrderedScan {
    scan: Arc<Scan>,
    run: Arc<ScanRun>,
    newest: bool,
    /// The remaining time range.
    left: Option<(i64, i64)>,
    handles: Vec<Handle>,
    parts: Vec<Arc<PartScan>>,
    slice_rows: f64,
    blocks: Vec<Box<dyn Block>>,
    found: Vec<Address>,
    given: usize,
    /// Estimated bytes of a row of the slice, if rows are large.
    row_bytes: f32,
    /// What is expected of returned rows, where that is more than what is read.
    size: OutputSize,
    /// Whether it was tried to read the columns of all rows of the slice.
    prefetched: bool,
    /// Whether these are held. If not, each batch reads its own.
    held: bool,
    rows_left: usize,
    memory: Arc<dyn ScanMemory>,
    counters: Arc<dyn ScanCounters>,
}

impl OrderedScan {
    pub(super) fn new(scan: Arc<Scan>, run: Arc<ScanRun>, newest: bool, limit: Option<usize>, task: ScanTask) -> Self {
        let ScanTask { memory, counters, .. } = task;
        let (handles, parts) = run.blocks.by_time();
        let (min, max) = scan.request.filter.time_bounds();
        let ranges = handles.iter().map(Handle::range).chain(parts.iter().map(|p| p.range()));
        let all = ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let left = all.map(|(first, last)| (first.max(min), last.min(max))).filter(|(first, last)| first <= last);
        let slice_rows = limit.map_or(FIRST_SLICE_ROWS, |n| (2.0 * n as f64).clamp(256.0, SLICE_ROWS_MAX));
        Self {
            newest,
            left,
            handles,
            parts,
            slice_rows,
            blocks: Vec::new(),
            found: Vec::new(),
            given: 0,
            row_bytes: 0.0,
            size: OutputSize::default(),
            prefetched: false,
            held: false,
            rows_left: limit.unwrap_or(usize::MAX),
            memory,
            counters,
            scan,
            run,
        }
    }

    /// Cuts the next slice off the remaining time, with about as many rows as wanted.
    fn slice(&mut self) -> Option<(i64, i64)> {
        let (first, last) = self.left?;
        let sources: Vec<((i64, i64), f64)> = (self.handles.iter().map(|h| (h.range(), h.len() as f64)))
            .chain(self.parts.iter().map(|p| (p.range(), p.part.meta.rows as f64)))
            .collect();
        let rows = |from: i64, to: i64| -> f64 {
            let share = |((min, max), rows): &((i64, i64), f64)| {
                let (a, b) = (from.max(*min) as f64, to.min(*max) as f64);
                let whole = *max as f64 - *min as f64 + 1.0;
                if a > b { 0.0 } else { rows * ((b - a + 1.0) / whole).min(1.0) }
            };
            sources.iter().map(share).sum()
        };
        // Find the shortest distance from the near end that has enough rows.
        let whole = last.abs_diff(first);
        let (mut low, mut high) = (0u64, whole);
        while low < high {
            let middle = low + (high - low) / 2;
            let held = if self.newest {
                rows(last.saturating_sub_unsigned(middle), last)
            } else {
                rows(first, first.saturating_add_unsigned(middle))
            };
            if held >= self.slice_rows { high = middle } else { low = middle + 1 }
        }
        let slice = if self.newest {
            (last.saturating_sub_unsigned(high), last)
        } else {
            (first, first.saturating_add_unsigned(high))
        };
        self.left = match (high < whole, self.newest) {
            (false, _) => None,
            (true, true) => Some((first, slice.0 - 1)),
            (true, false) => Some((slice.1 + 1, last)),
        };
        self.slice_rows = (self.slice_rows * 4.0).min(SLICE_ROWS_MAX);
        Some(slice)
    }

    /// Finds the matching rows of a slice.
    async fn find(&mut self, slice: (i64, i64)) -> Result<()> {
        let touches = |(min, max): (i64, i64)| min <= slice.1 && slice.0 <= max;
        let (touched, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.parts).into_iter().partition(|p: &Arc<PartScan>| touches(p.range()));
        self.parts = rest;
        let mut touched = touched.into_iter().peekable();
        while let Some(first) = touched.peek() {
            let count = at_once(first);
            let opened = open(touched.by_ref().take(count), &self.run.blocks.stats).await;
            self.handles.extend(opened?);
        }
        self.found.clear();
        self.given = 0;
        (self.prefetched, self.held) = (false, false);
        (self.row_bytes, self.size) = (0.0, OutputSize::default());
        let within = LogFilter::Time(vec![slice]);
        for handle in self.handles.iter().filter(|h| touches(h.range())) {
            tokio::task::yield_now().await;
            let _timer = ScanTimer::start(&self.counters);
            let mut block = handle.open();
            let found = addresses(&mut *block, &self.scan, &within, self.blocks.len() as u32, &mut self.found).await;
            count(&block.take_stats(), &*self.counters, &self.run.blocks.stats);
            match found {
                Ok(false) => {}
                Ok(true) => {
                    self.memory.try_grow(block.bytes())?;
                    let bytes = block.wanted_bytes(&|name| self.scan.gives(name));
                    if bytes > WIDE_BYTES {
                        self.row_bytes = self.row_bytes.max(bytes as f32 / block.len().max(1) as f32);
                    }
                    self.size = self.size.max(OutputSize::of(&*block, &self.scan));
                    self.blocks.push(block);
                }
                Err(e) => leave_out(&self.run.blocks.stats, e)?,
            }
        }
        // Blocks that end within this slice are done.
        let done = |(min, max): (i64, i64)| if self.newest { slice.0 <= min } else { max <= slice.1 };
        self.handles.retain(|h| !done(h.range()));
        self.memory.try_grow(self.address_bytes())?;
        let newest = self.newest;
        self.found
            .sort_unstable_by(|a, b| if newest { b.0.cmp(&a.0) } else { a.0.cmp(&b.0) }.then_with(|| order(a, b)));
        Ok(())
    }

    /// Bytes of what is held between two batches.
    fn held_bytes(&self) -> usize {
        self.address_bytes() + self.blocks.iter().map(|block| block.bytes()).sum::<usize>()
    }

    /// Bytes of what is held besides the columns.
    fn address_bytes(&self) -> usize {
        self.found.len() * size_of::<Address>()
    }

    /// Reads the rest of the slice at once: a reader that continues after the first batch will want all of it, and so
    /// each page is read once. If there is no memory for that, batches go on reading their own rows.
    async fn prefetch(&mut self) -> Result<()> {
        self.prefetched = true;
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); self.blocks.len()];
        self.found[self.given..].iter().for_each(|a| rows[a.1 as usize].push(a.2));
        let mut expected = Vec::with_capacity(rows.len());
        for (block, rows) in self.blocks.iter().zip(&rows) {
            let bytes = if block.is_read() { block.wanted_bytes(&|name| self.scan.gives(name)) } else { 0 };
            expected.push((bytes as f64 * rows.len() as f64 / block.len().max(1) as f64) as usize);
        }
        let mut missing: usize = expected.iter().sum();
        let addresses = self.address_bytes();
        if self.memory.try_resize(addresses + missing).is_err() {
            return self.memory.try_resize(self.held_bytes());
        }
        self.held = true;
        let (mut bytes, mut damaged) = (0, Vec::new());
        for (at, ((block, rows), expected)) in self.blocks.iter_mut().zip(&rows).zip(expected).enumerate() {
            let Scan { request, projection, .. } = &*self.scan;
            let set = set(rows, block.len());
            if let Err(e) = prefetch(&mut **block, request, projection, &set).await {
                leave_out(&self.run.blocks.stats, e)?;
                damaged.push(at);
            }
            count(&block.take_stats(), &*self.counters, &self.run.blocks.stats);
            bytes += block.bytes();
            missing -= expected;
            self.memory.try_resize(addresses + bytes + missing)?;
        }
        for at in damaged {
            self.drop_rows(at);
        }
        Ok(())
    }

    fn leave_out(&self, error: Error) -> Result<()> {
        leave_out(&self.run.blocks.stats, error)
    }

    /// Removes the remaining rows of a block from the list.
    fn drop_rows(&mut self, block: usize) {
        let rest = self.found.split_off(self.given);
        self.found.extend(rest.into_iter().filter(|a| a.1 as usize != block));
    }

    /// Reads the columns of the next rows and sorts them; `None` if a block is damaged and was left out.
    async fn batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.given > 0 && !self.prefetched && self.rows_left > BATCH_ROWS {
            self.prefetch().await?;
            if self.given == self.found.len() {
                return Ok(None);
            }
        }
        let most = if self.given == 0 { FIRST_BATCH_ROWS } else { BATCH_ROWS };
        let most = most.min((WINDOW_BYTES / self.row_bytes.max(1.0)) as usize).max(1);
        let most = most.min(self.rows_left).min(self.found.len() - self.given);
        let held = self.held_bytes();
        let end = self.given + self.size.reserve(most, 2, held, &*self.memory)?;
        let wanted = &self.found[self.given..end];
        let Scan { request, projection, schema, .. } = &*self.scan;
        let _timer = ScanTimer::start(&self.counters);
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); self.blocks.len()];
        for a in wanted {
            rows[a.1 as usize].push(a.2);
        }
        let mut batches = vec![None; self.blocks.len()];
        for (at, rows) in rows.iter_mut().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            rows.sort_unstable();
            let block = &mut self.blocks[at];
            let set = set(rows, block.len());
            let batch = output(&mut **block, request, projection, schema, &set).await;
            count(&block.take_stats(), &*self.counters, &self.run.blocks.stats);
            match batch {
                Ok(batch) => batches[at] = Some(batch),
                Err(e) => {
                    self.leave_out(e)?;
                    self.drop_rows(at);
                    return Ok(None);
                }
            }
        }
        // For each row, the batch and the row within it.
        let mut numbers = vec![0; self.blocks.len()];
        let mut used = Vec::new();
        for (at, batch) in batches.iter().enumerate() {
            if let Some(batch) = batch {
                numbers[at] = used.len();
                used.push(batch);
            }
        }
        let place = |a: &Address| {
            let rows = &rows[a.1 as usize];
            (numbers[a.1 as usize], rows.partition_point(|&row| row < a.2))
        };
        let places: Vec<(usize, usize)> = wanted.iter().map(place).collect();
        let mut columns = Vec::with_capacity(projection.len());
        for at in 0..projection.len() {
            let arrays: Vec<&dyn Array> = used.iter().map(|b| b.column(at).as_ref()).collect();
            columns.push(interleave(&arrays, &places).internal("cannot put rows of logs in order")?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
            .internal("cannot make a batch of logs")?;
        self.given = end;
        self.rows_left -= batch.num_rows();
        self.size.measure(&batch);
        if !self.held {
            self.blocks.iter_mut().for_each(|block| block.forget_wide());
        }
        self.memory.try_resize(self.held_bytes() + batch_bytes(&batch))?;
        Ok(Some(batch))
    }
}

#[async_trait]
impl ScanBatches for OrderedScan {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        tokio::task::yield_now().await;
        while self.rows_left > 0 {
            if self.given < self.found.len() {
                match self.batch().await? {
                    Some(batch) => return Ok(Some(batch)),
                    None => continue,
                }
            }
            self.blocks.clear();
            self.memory.free();
            let Some(slice) = self.slice() else { break };
            self.find(slice).await?;
        }
        self.memory.free();
        Ok(None)
    }
}

fn order(a: &Address, b: &Address) -> Ordering {
    (a.1, a.2).cmp(&(b.1, b.2))
}

fn set(rows: &[u32], len: usize) -> BooleanBuffer {
    let mut bits = BooleanBufferBuilder::new(len);
    bits.append_n(len, false);
    for &row in rows {
        bits.set_bit(row as usize, true);
    }
    bits.finish()
}

/// Adds the rows of a block that match within a slice; returns whether there are any.
async fn addresses(
    block: &mut dyn Block,
    scan: &Scan,
    slice: &LogFilter,
    number: u32,
    found: &mut Vec<Address>,
) -> Result<bool> {
    let filter = &scan.request.filter;
    let rows = block.allowed().await?;
    let rows = block.candidates(slice, rows).await?;
    let rows = block.candidates(filter, rows).await?;
    let rows = eval(&mut *block, slice, rows).await?;
    let rows = eval(&mut *block, filter, rows).await?;
    if rows.set_slices().next().is_none() {
        return Ok(false);
    }
    let times = block.times(&rows).await?;
    let Values::Time(array, _) = &times.values else {
        return Err(Error::internal("a block of logs gave no times"));
    };
    times.for_each(&rows, |row, at| found.push((array.value(at), number, row as u32)));
    Ok(true)
}
