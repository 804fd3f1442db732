//! One partition of a sample scan: reads windows of rows from all parts at once, and returns batches of whole series.
//!
//! Decoding happens on the polling thread. The stream yields between batches, so that a dropped or cancelled query ends
//! soon. Memory is one window (see `plan`) and one batch, accounted in the query's pool.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use arrow::array::RecordBatch;
use async_trait::async_trait;
use quiver_types::scan::{ScanBatches, ScanCounters, ScanMemory, ScanShape, ScanTask, ScanTimer};
use quiver_types::{ReadStats, Result, SampleRequest, read_stats};

use super::batch::{self, BatchBuilder, FloatView, FloatViews};
use super::plan::{HIST_WEIGHT, LIVE_WEIGHT, Weights, floats_in};
use crate::error::{Context, leave_out};
use crate::part::{PAGE_ROWS, Part, SeriesRows, StartTimes};
use crate::sample_blocks::{Place, SampleBlock, Use, Window as Times};
use crate::select::{LiveRows, PartRows, Selection};
use crate::series_run::{FloatRun, HistRun};
use crate::threads::leave_callers_thread;

/// A batch is returned when it has about this many samples.
const BATCH_SAMPLES: usize = 1 << 17;
/// Maximum series of a batch.
const BATCH_ROWS: usize = 1 << 14;
/// Fewer samples than this are copied out of a decoded block, so that batches do not get too small.
const DIRECT_SAMPLES_MIN: u32 = if cfg!(test) { 2 } else { 1 << 11 };
/// A partition that is estimated to have no more samples, in whole pages, ends without yielding.
const SHORT_SAMPLES: u64 = 2 * PAGE_ROWS as u64;
/// Error message if a batch cannot be built.
const NO_BATCH: &str = "cannot make a batch of samples";
/// Memory per sample of a window: as read, plus in the batch.
const SAMPLE_BYTES: u64 = 48;
/// Memory per sample that is only in the batch.
const BATCH_SAMPLE_BYTES: usize = 16;

/// What the partitions of one scan share.
#[derive(Debug)]
pub(super) struct ScanShared {
    pub(super) selection: Arc<Selection>,
    pub(super) request: SampleRequest,
    pub(super) weights: Weights,
    /// Whether histograms must be read though they are not requested: a histogram in one source hides the float sample
    /// of another.
    hists_hide_floats: bool,
}

impl ScanShared {
    pub(super) fn new(selection: Arc<Selection>, request: SampleRequest) -> Self {
        let several = selection.parts.len() + selection.live.len() > 1;
        Self {
            weights: Weights::new(&selection, request.range),
            hists_hide_floats: request.floats && several && selection.has_histograms(),
            selection,
            request,
        }
    }

    fn wants_hists(&self) -> bool {
        self.request.histograms || self.hists_hide_floats
    }
}

/// What the partitions of one run of a scan share.
#[derive(Debug)]
pub(super) struct ScanRun {
    /// For each part, whether its pages have been added to `pages_total`.
    counted: Vec<AtomicBool>,
    /// Statistics of the query.
    stats: Arc<ReadStats>,
}

impl ScanRun {
    pub(super) fn new(scan: &ScanShared, stats: Arc<ReadStats>) -> Self {
        Self { counted: scan.selection.parts.iter().map(|_| AtomicBool::new(false)).collect(), stats }
    }

    /// Adds the statistics of one read of a part to the query's. The pages of a part count once per run.
    fn count(&self, part: usize, read: &ReadStats, counters: &dyn ScanCounters) {
        if read.pages_total.load(Relaxed) > 0 && self.counted[part].swap(true, Relaxed) {
            read.pages_total.store(0, Relaxed);
        }
        counters.add(&read.drain_into(&self.stats));
    }
}

/// What a part holds of the rows of a window: one run for each of its entries.
#[derive(Debug)]
struct PartWindow {
    /// Index of the part in the selection.
    part: usize,
    entries: Range<usize>,
    /// Empty if floats are not requested.
    floats: Vec<Floats>,
    /// Empty if the part has no histograms of these series, or none are wanted.
    hists: Vec<HistRun>,
}

impl PartWindow {
    /// Number of samples; a histogram counts as [`HIST_WEIGHT`].
    fn samples(&self) -> u64 {
        let floats: usize = self.floats.iter().map(Floats::len).sum();
        let hists: usize = self.hists.iter().map(HistRun::len).sum();
        floats as u64 + HIST_WEIGHT * hists as u64
    }
}

/// Float samples of a series of a part.
#[derive(Debug)]
enum Floats {
    /// Read for this scan.
    Read(FloatRun),
    /// Held in a decoded block.
    Held(Arc<SampleBlock>, Place),
}

impl Floats {
    fn len(&self) -> usize {
        match self {
            Self::Read(run) => run.len(),
            Self::Held(_, place) => place.len as usize,
        }
    }

    fn view(&self) -> FloatView<'_> {
        match self {
            Self::Read(run) => FloatView::new(run),
            Self::Held(block, place) => FloatView::of_block(block, *place),
        }
    }
}

/// Rows that were read but not returned yet.
#[derive(Debug, Default)]
struct Window {
    rows: Range<u32>,
    parts: Vec<PartWindow>,
}

/// The stream's state.
#[derive(Debug)]
pub(super) struct SampleStream {
    scan: Arc<ScanShared>,
    run: Arc<ScanRun>,
    rows: Range<u32>,
    window: Window,
    /// First entry of each part that no window has covered yet.
    part_at: Vec<usize>,
    /// First entry of each generation that was not returned yet.
    live_at: Vec<usize>,
    batch: BatchBuilder,
    /// Batches that precede the one being collected in `batch`.
    ready: VecDeque<RecordBatch>,
    /// Whether all batches, and the end behind them, may come without giving others a turn first.
    short: bool,
    /// Columns that are returned; `None` means all.
    projection: Option<Vec<usize>>,
    rows_left: usize,
    memory: Arc<dyn ScanMemory>,
    counters: Arc<dyn ScanCounters>,
}

impl SampleStream {
    pub(super) fn new(
        scan: &Arc<ScanShared>,
        run: Arc<ScanRun>,
        rows: Range<u32>,
        shape: &ScanShape,
        task: ScanTask,
    ) -> Self {
        let before = |list: &[u32]| list.partition_point(|&row| row < rows.start);
        Self {
            part_at: scan.selection.parts.iter().map(|part| before(&part.rows)).collect(),
            live_at: scan.selection.live.iter().map(|live| before(&live.rows)).collect(),
            window: Window { rows: rows.start..rows.start, parts: Vec::new() },
            short: scan.weights.samples(rows.clone()) <= SHORT_SAMPLES,
            rows,
            batch: BatchBuilder::new(scan.request),
            ready: VecDeque::new(),
            projection: shape.projection.clone(),
            rows_left: shape.limit.unwrap_or(usize::MAX),
            memory: task.memory,
            counters: task.counters,
            scan: Arc::clone(scan),
            run,
        }
    }

    /// The next batch with all columns; `None` at the end.
    async fn next_whole(&mut self) -> Result<Option<RecordBatch>> {
        if !self.short {
            tokio::task::yield_now().await;
        }
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(Some(self.give(batch)));
            }
            if self.window.rows.is_empty() {
                if self.window.rows.end == self.rows.end || self.rows_left == 0 {
                    return self.finish_batch();
                }
                self.load().await?;
            }
            let _timer = ScanTimer::start(&self.counters);
            self.fill();
            if self.batch.weight() >= BATCH_SAMPLES || self.batch.rows() >= BATCH_ROWS {
                return self.finish_batch();
            }
        }
    }

    fn finish_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.batch.rows() == 0 {
            self.memory.free();
            return Ok(None);
        }
        let batch = self.batch.finish().internal(NO_BATCH)?;
        Ok(Some(self.give(batch)))
    }

    /// Trims a batch to the requested columns and remaining rows.
    fn give(&mut self, mut batch: RecordBatch) -> RecordBatch {
        if batch.num_rows() > self.rows_left {
            batch = batch.slice(0, self.rows_left);
        }
        self.rows_left -= batch.num_rows();
        if self.rows_left == 0 {
            self.window = Window { rows: self.rows.end..self.rows.end, parts: Vec::new() };
            self.ready.clear();
        }
        batch
    }

    /// Reads the next window from all parts that have rows in it, concurrently.
    async fn load(&mut self) -> Result<()> {
        let start = self.window.rows.end;
        // Free the previous window first.
        self.window.parts = Vec::new();
        let (scan, run) = (Arc::clone(&self.scan), Arc::clone(&self.run));
        let end = scan.weights.window_end(start..self.rows.end, scan.selection.parts.len());
        let bytes = (scan.weights.samples(start..end) * SAMPLE_BYTES) as usize;
        self.memory.try_resize(bytes)?;
        let mut reads = Vec::new();
        for (n, part) in scan.selection.parts.iter().enumerate() {
            let first = self.part_at[n];
            let len = part.rows[first..].partition_point(|&row| row < end);
            self.part_at[n] = first + len;
            if len > 0 {
                reads.push(read_part(&scan, &run, n, first..first + len));
            }
        }
        let timer = ScanTimer::start(&self.counters);
        let read = futures::future::try_join_all(reads).await?;
        drop(timer);
        for (window, stats) in read {
            run.count(window.part, &stats, &*self.counters);
            self.window.parts.push(window);
        }
        self.window.rows = start..end;
        // The pages have been freed by now, and decoded blocks count towards the cache.
        self.memory.try_resize(bytes.min(self.window_bytes()))?;
        if self.has_one_source() {
            self.give_out_blocks()?;
        }
        Ok(())
    }

    /// Memory of the window's rows: of parts as they were read, of generations estimated.
    fn window_bytes(&self) -> usize {
        let Range { start, end } = self.window.rows;
        let read: u64 = self.window.parts.iter().map(PartWindow::samples).sum();
        let rows =
            |live: &LiveRows| live.rows.partition_point(|&r| r < end) - live.rows.partition_point(|&r| r < start);
        let live: usize = self.scan.selection.live.iter().map(rows).sum();
        let window = (read + live as u64 * u64::from(LIVE_WEIGHT)) * SAMPLE_BYTES;
        // The batch also has rows of earlier windows.
        window as usize + self.batch.weight() * BATCH_SAMPLE_BYTES
    }

    /// Tells whether all samples of the window come from one part, and are floats.
    fn has_one_source(&self) -> bool {
        let rows = &self.window.rows;
        let lives = |(live, &at): (&LiveRows, &usize)| live.rows.get(at).is_some_and(|r| *r < rows.end);
        let [part] = &self.window.parts[..] else { return false };
        part.hists.is_empty()
            && part.floats.iter().any(|f| matches!(f, Floats::Held(..)))
            && !self.scan.selection.live.iter().zip(&self.live_at).any(lives)
    }

    /// Converts a window of one part to batches: samples in decoded blocks without copying, others by copying.
    fn give_out_blocks(&mut self) -> Result<()> {
        let Some(part) = self.window.parts.pop() else { return Ok(()) };
        self.window.rows.start = self.window.rows.end;
        let rows = &self.scan.selection.parts[part.part].rows[part.entries.clone()];
        let mut at = 0;
        while at < part.floats.len() {
            let Floats::Held(block, _) = &part.floats[at] else {
                self.batch.push(rows[at], &mut smallvec::smallvec![part.floats[at].view()], &HistRun::default());
                at += 1;
                continue;
            };
            let (mut places, mut given, mut samples) = (Vec::new(), Vec::new(), 0);
            let first = at;
            while let Some(Floats::Held(other, place)) = part.floats.get(at)
                && Arc::ptr_eq(block, other)
            {
                if place.len > 0 {
                    places.push(*place);
                    given.push(rows[at]);
                    samples += place.len;
                }
                at += 1;
            }
            if samples < DIRECT_SAMPLES_MIN {
                for (row, floats) in rows[first..at].iter().zip(&part.floats[first..at]) {
                    self.batch.push(*row, &mut smallvec::smallvec![floats.view()], &HistRun::default());
                }
                continue;
            }
            if self.batch.rows() > 0 {
                self.ready.push_back(self.batch.finish().internal(NO_BATCH)?);
            }
            let batch = batch::of_block(&self.scan.request, given, &places, block).internal(NO_BATCH)?;
            self.ready.push_back(batch);
        }
        Ok(())
    }

    /// Moves rows of the window into the batch until either is exhausted.
    fn fill(&mut self) {
        let selection = Arc::clone(&self.scan.selection);
        let range = self.scan.request.range;
        // Kept for all rows, so that each generation needs one allocation and not one per row.
        let mut live_runs: Vec<FloatRun> = vec![FloatRun::default(); selection.live.len()];
        // A window may last for several batches: what earlier ones took of each part lies before its next row.
        let mut at: Vec<usize> = vec![0; self.window.parts.len()];
        for (at, part) in at.iter_mut().zip(&self.window.parts) {
            let rows = &selection.parts[part.part].rows[part.entries.clone()];
            *at = rows.partition_point(|&row| row < self.window.rows.start);
        }
        let mut live_samples = 0;
        while !self.window.rows.is_empty() && self.batch.weight() < BATCH_SAMPLES && self.batch.rows() < BATCH_ROWS {
            let row = self.window.rows.start;
            self.window.rows.start += 1;
            let mut views = FloatViews::new();
            let mut hists = HistRun::default();
            for (at, part) in at.iter_mut().zip(&mut self.window.parts) {
                if selection.parts[part.part].rows.get(part.entries.start + *at) != Some(&row)
                    || *at == part.entries.len()
                {
                    continue;
                }
                if let Some(run) = part.hists.get_mut(*at) {
                    hists = hists.merged(std::mem::take(run));
                }
                if let Some(floats) = part.floats.get(*at) {
                    views.push(floats.view());
                }
                *at += 1;
            }
            for ((live, at), run) in selection.live.iter().zip(&mut self.live_at).zip(&mut live_runs) {
                if live.rows.get(*at) != Some(&row) {
                    continue;
                }
                let slot = live.slots[*at];
                *at += 1;
                // Series by series: writes to the same shard of the generation wait meanwhile.
                if live.may_have_histograms && self.scan.wants_hists() {
                    let copied = live.generation.copy_hists(slot, range, selection.seq);
                    live_samples += copied.len();
                    hists = hists.merged(copied);
                }
                if self.scan.request.floats {
                    run.ts.clear();
                    run.values.clear();
                    run.start_ts.clear();
                    live.generation.append_floats(slot, range, selection.seq, run);
                    live_samples += run.len();
                    views.push(FloatView::new(run));
                }
            }
            self.batch.push(row, &mut views, &hists);
        }
        if live_samples > 0 {
            let read = ReadStats::default();
            read_stats::add(&read.samples, live_samples as u64);
            self.counters.add(&read.drain_into(&self.run.stats));
        }
    }
}

#[async_trait]
impl ScanBatches for SampleStream {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(batch) = self.next_whole().await? else { return Ok(None) };
        Ok(Some(match &self.projection {
            Some(columns) => batch.project(columns).internal(NO_BATCH)?,
            None => batch,
        }))
    }
}

/// Reads some entries of a part. A damaged part counts as empty if the response can report that it was left out.
async fn read_part(
    scan: &ScanShared,
    run: &ScanRun,
    part: usize,
    entries: Range<usize>,
) -> Result<(PartWindow, ReadStats)> {
    match read_entries(scan, part, entries.clone()).await {
        Ok(read) => Ok(read),
        Err(e) => {
            leave_out(&run.stats, e)?;
            Ok((PartWindow { part, entries, floats: Vec::new(), hists: Vec::new() }, ReadStats::default()))
        }
    }
}

async fn read_entries(scan: &ScanShared, part: usize, entries: Range<usize>) -> Result<(PartWindow, ReadStats)> {
    let PartRows { part: source, series, numbers, .. } = &scan.selection.parts[part];
    let SampleRequest { range, floats, start_times, .. } = scan.request;
    let stats = ReadStats::default();
    let mut window = PartWindow { part, entries: entries.clone(), floats: Vec::new(), hists: Vec::new() };
    if floats && start_times && source.has_start_times(&stats).await? {
        let wanted: Vec<SeriesRows> = numbers[entries.clone()].iter().map(|&n| series.samples(n)).collect();
        let read = source.read_floats(&wanted, range, StartTimes::Read, &stats).await?;
        window.floats = read.into_iter().map(Floats::Read).collect();
    } else if floats {
        window.floats = read_floats(scan, part, &numbers[entries.clone()], &stats).await?;
    }
    if source.meta.has_histograms && scan.wants_hists() {
        let wanted: Vec<SeriesRows> = numbers[entries].iter().map(|&n| series.hists(n)).collect();
        if wanted.iter().any(|w| w.rows > 0) {
            let starts = if scan.request.histograms { StartTimes::Read } else { StartTimes::Skip };
            window.hists = source.read_hists(&wanted, range, starts, &stats).await?;
        }
    }
    Ok((window, stats))
}

/// Merges the statistics of one of several reads of a part; the part's pages count once.
fn count_once(read: &ReadStats, all: &ReadStats) {
    if read_stats::get(&all.pages_total) > 0 {
        read.pages_total.store(0, Relaxed);
    }
    read.drain_into(all);
}

/// Reads the float samples of some series of a part: from decoded blocks, or from the file; the file is decoded in
/// whole blocks if these are worth caching.
async fn read_floats(scan: &ScanShared, part: usize, numbers: &[u32], stats: &ReadStats) -> Result<Vec<Floats>> {
    let PartRows { part: source, series, .. } = &scan.selection.parts[part];
    let SampleRequest { range, read_repeatedly, .. } = scan.request;
    let (id, cache) = (source.meta.id, &source.cache().samples);
    let times = Times::around(range, source.meta.range());
    let mut floats: Vec<Option<Floats>> = Vec::with_capacity(numbers.len());
    let mut missing: Vec<SeriesRows> = Vec::new();
    let mut at = 0;
    while at < numbers.len() {
        let block_of = numbers[at];
        let members = series.block(block_of);
        // The cache knows blocks by their first series.
        let block = members.start;
        let end = at + numbers[at..].partition_point(|&n| n < members.end);
        let asked = &numbers[at..end];
        at = end;
        if let Some(held) = cache.get(id, block, times) {
            read_stats::add(&stats.cache_hits, 1);
            floats.extend(asked.iter().map(|&n| Some(Floats::Held(Arc::clone(&held), held.place(n, range)))));
            continue;
        }
        read_stats::add(&stats.cache_misses, 1);
        leave_callers_thread().await;
        let samples = series.block_samples(block_of);
        let kept = times.samples_of(samples, source.meta.range());
        // If only part of each series is kept, up to a page more is decoded for each.
        let pages = if kept < samples { PAGE_ROWS * members.len() } else { 0 };
        let wanted = asked.iter().map(|&n| floats_in(series, n, range)).sum();
        let own = Use { wanted, decoded: samples.min(kept + pages as u64), kept, read_repeatedly };
        let admitted = kept > 0 && cache.admits((id, block), own);
        let decoded = if admitted { block_of_part(source, members, times, stats).await } else { None };
        if let Some(decoded) = decoded {
            cache.insert((id, block, times), &decoded);
            // A batch of a few samples would keep the whole block in memory, cached or not.
            let give = |&n: &u32| {
                let place = decoded.place(n, range);
                if own.is_small() {
                    Floats::Read(decoded.run(place))
                } else {
                    Floats::Held(Arc::clone(&decoded), place)
                }
            };
            floats.extend(asked.iter().map(|n| Some(give(n))));
        } else {
            missing.extend(asked.iter().map(|&n| series.samples(n)));
            floats.extend(asked.iter().map(|_| None));
        }
    }
    let known = floats.iter().flatten().map(|floats| floats.len() as u64).sum();
    read_stats::add(&stats.samples, known);
    let own = ReadStats::default();
    let mut read = source.read_floats(&missing, range, StartTimes::Skip, &own).await?.into_iter();
    count_once(&own, stats);
    let read = |known: Option<Floats>| known.unwrap_or_else(|| Floats::Read(read.next().unwrap_or_default()));
    Ok(floats.into_iter().map(read).collect())
}

/// Decodes a block of a part. `None` if a page is damaged: for a series that was not requested this is no error, and a
/// requested one reports it when it is read by itself.
async fn block_of_part(
    source: &Part,
    members: Range<u32>,
    times: Times,
    stats: &ReadStats,
) -> Option<Arc<SampleBlock>> {
    let first = members.start;
    let page = source.series_page(first, stats).await.ok()?;
    let all: Vec<SeriesRows> = members.map(|n| page.samples(n)).collect();
    let own = ReadStats::default();
    let runs = source.read_floats(&all, times.range(), StartTimes::Skip, &own).await.ok()?;
    // Samples are counted by the caller, only for the requested series.
    own.samples.store(0, Relaxed);
    count_once(&own, stats);
    Some(Arc::new(SampleBlock::new(first, &runs)))
}
