//! The memtable: a list of generations, of which one is open.
//!
//! A [`Generation`] is append-only: only the WAL's thread inserts; readers copy what they need under the read lock of
//! one shard. Each row carries the sequence number of its write, so a reader sees exactly the writes up to its
//! snapshot. Labels are kept in the [`Registry`], which all generations share. A generation refers to its series by
//! *slot*, which is also their number in its WAL records.

pub(crate) mod flush_order;
mod idempotent_requests;
mod inserts;
pub(crate) mod log_streams;
pub(crate) mod logs;
mod rows;
pub(crate) mod series;
pub(crate) mod spans;
pub(crate) mod string_views;
#[cfg(test)]
pub(crate) mod testing;

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::RwLock;
use quiver_types::metrics::MetricMetadata;
use quiver_types::time::DAY_MS;
use quiver_types::{Access, Histogram, LabelSet, Matcher, Millis, MillisRange, SeriesId};
use roaring::RoaringBitmap;
use uuid::Uuid;

use crate::idempotency::AnsweredRequest;
use crate::memtable::flush_order::Order;
use crate::memtable::logs::{LiveLogs, LogsView};
use crate::memtable::rows::LiveRows;
use crate::memtable::series::SeriesData;
use crate::memtable::spans::{LiveSpans, SpanChunk};
use crate::registry::Registry;
use crate::registry::paged_table::PagedTable;
use crate::series_run::{FloatRun, HistRun, RunExemplar, SeriesRun};

/// Number of shards of a generation. [`BLOCK`] consecutive slots are in the same shard: the series of a request mostly
/// have neighbouring slots, so an insert takes few locks.
const SHARDS: usize = 64;
const BLOCK: usize = 256;

/// Identifies a generation of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GenerationId {
    /// The writer id of the process, a UUIDv7 made at its start.
    pub writer: Uuid,
    /// Number within the writer, from 1.
    pub number: u64,
}

impl fmt::Display for GenerationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.writer, self.number)
    }
}

/// A series in a generation.
#[derive(Debug, Clone)]
pub struct LiveSeries {
    /// Its slot in the generation, the argument of the `copy_` functions.
    pub slot: u32,
    /// Its number in the registry, the same in all generations of this process.
    pub number: u32,
    /// Its id, the hash of its labels.
    pub id: SeriesId,
    /// All its labels, including `__name__`.
    pub labels: LabelSet,
    /// Whether it may have native histograms.
    pub may_have_histograms: bool,
}

/// The writes since the last seal, in memory; see the module.
pub struct Generation {
    /// Number within the writer.
    pub number: u64,
    /// The process that wrote it.
    pub writer: Uuid,
    ordinal: u32,
    /// Sequence number of its first write; rows store their number relative to it, in 32 bits.
    base_seq: u64,
    registry: Arc<Registry>,
    slots: RwLock<Slots>,
    shards: Box<[RwLock<Vec<SeriesData>>]>,
    metadata: RwLock<Vec<MetadataRow>>,
    logs: LiveLogs,
    log_rows: AtomicU64,
    spans: LiveSpans,
    span_rows: AtomicU64,
    table_rows: LiveRows,
    requests: RwLock<Vec<Arc<AnsweredRequest>>>,
    days: RwLock<BTreeSet<i32>>,
    min_ts: AtomicI64,
    max_ts: AtomicI64,
    last_seq: AtomicU64,
    samples: AtomicU64,
    rows: AtomicU64,
    bytes: AtomicUsize,
    sealed: AtomicBool,
    aside: AtomicBool,
    order: OnceLock<Order>,
}

#[derive(Debug, Default)]
struct Slots {
    numbers: Vec<u32>,
    /// Index into `service_names` by slot.
    services: Vec<u32>,
    /// Slot plus one, by registry number.
    by_number: PagedTable<NonZeroU32>,
    service_names: Vec<Arc<str>>,
    service_codes: HashMap<Arc<str>, u32, FixedState>,
}

#[derive(Debug)]
struct MetadataRow {
    seq: u32,
    ts: Millis,
    metadata: MetricMetadata,
    service: String,
}

impl MetadataRow {
    fn memory_bytes(&self) -> usize {
        let MetricMetadata { metric, metric_type, help, unit } = &self.metadata;
        size_of::<Self>() + [metric, metric_type, help, unit, &self.service].map(String::len).iter().sum::<usize>()
    }
}

/// Float samples with their slots, as columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampleRows<'a> {
    pub(crate) slots: &'a [u32],
    pub(crate) ts: &'a [Millis],
    pub(crate) values: &'a [f64],
    /// Empty when none is given.
    pub(crate) start_ts: &'a [Millis],
}

/// A histogram with its slot.
#[derive(Debug)]
pub(crate) struct HistogramRow {
    pub(crate) slot: u32,
    pub(crate) ts: Millis,
    pub(crate) start_ts: Millis,
    pub(crate) histogram: Histogram,
}

/// Counts samples that repeat a known one (duplicates), and those whose time already has another value (conflicts).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Repeats {
    pub(crate) duplicates: u64,
    pub(crate) conflicts: u64,
}

/// The times of a day.
fn range_of(day: i32) -> MillisRange {
    let first = i64::from(day) * DAY_MS;
    MillisRange::new(first, first + DAY_MS - 1)
}

fn place(slot: u32) -> (usize, usize) {
    let (block, at) = (slot as usize / BLOCK, slot as usize % BLOCK);
    (block % SHARDS, block / SHARDS * BLOCK + at)
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generation")
            .field("id", &self.id())
            .field("samples", &self.samples())
            .field("bytes", &self.bytes())
            .field("sealed", &self.sealed())
            .finish_non_exhaustive()
    }
}

impl Generation {
    /// Makes an open generation whose first write will have the sequence number `base_seq`.
    pub(crate) fn new(id: GenerationId, base_seq: u64, registry: Arc<Registry>) -> Self {
        Self {
            number: id.number,
            writer: id.writer,
            ordinal: registry.next_ordinal(),
            base_seq,
            registry,
            slots: RwLock::default(),
            shards: std::iter::repeat_with(RwLock::default).take(SHARDS).collect(),
            metadata: RwLock::default(),
            logs: LiveLogs::default(),
            log_rows: AtomicU64::new(0),
            spans: LiveSpans::default(),
            span_rows: AtomicU64::new(0),
            table_rows: LiveRows::default(),
            requests: RwLock::default(),
            days: RwLock::default(),
            min_ts: AtomicI64::new(i64::MAX),
            max_ts: AtomicI64::new(i64::MIN),
            last_seq: AtomicU64::new(0),
            samples: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            bytes: AtomicUsize::new(0),
            sealed: AtomicBool::new(false),
            aside: AtomicBool::new(false),
            order: OnceLock::new(),
        }
    }

    /// Gives its identity.
    pub fn id(&self) -> GenerationId {
        GenerationId { writer: self.writer, number: self.number }
    }

    /// First and last time of samples, histograms and exemplars; `None` when there are none.
    pub fn range(&self) -> Option<MillisRange> {
        let range = MillisRange::new(self.min_ts.load(Acquire), self.max_ts.load(Acquire));
        (range.min <= range.max).then_some(range)
    }

    /// Says whether it is sealed: nothing will be added.
    pub fn sealed(&self) -> bool {
        self.sealed.load(Acquire)
    }

    /// Bytes of memory that it holds, not counting entries of the registry.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Number of float samples and histograms.
    pub fn samples(&self) -> u64 {
        self.samples.load(Relaxed)
    }

    /// Number of series, including those that have no row yet.
    pub fn series(&self) -> usize {
        self.slots.read().numbers.len()
    }

    /// Says whether there is nothing to flush.
    pub fn is_empty(&self) -> bool {
        self.rows.load(Acquire) == 0
    }

    /// Sequence number of the last write.
    pub fn last_seq(&self) -> u64 {
        self.last_seq.load(Acquire)
    }

    /// Sequence number of its first write.
    pub(crate) fn base_seq(&self) -> u64 {
        self.base_seq
    }

    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    pub(crate) fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// UTC days of samples, histograms and exemplars, ascending.
    pub fn days(&self) -> Vec<i32> {
        self.days.read().iter().copied().collect()
    }

    /// Number of days that it would have with these added.
    pub(crate) fn days_with(&self, days: &[i32]) -> usize {
        let known = self.days.read();
        known.len() + days.iter().filter(|d| !known.contains(d)).count()
    }

    /// Gives the relative sequence number of the last write that a snapshot at `seq` sees; `None`: it sees none.
    fn cut(&self, seq: u64) -> Option<u32> {
        seq.checked_sub(self.base_seq).map(|cut| cut.min(u64::from(u32::MAX)) as u32)
    }

    // Reading.

    /// Finds the series that all matchers match, that the caller may see, and that may have rows in the range, written
    /// up to `seq`. In no particular order.
    pub fn matching(&self, matchers: &[Matcher], access: &Access, range: MillisRange, seq: u64) -> Vec<LiveSeries> {
        if self.cut(seq).is_none() || !self.range().is_some_and(|own| own.overlaps(&range)) {
            return Vec::new();
        }
        self.held(&self.registry.matching(matchers), access, range, seq)
    }

    /// Like [`Self::matching`], for series that [`Registry::matching`] has found. All generations share one registry, so
    /// a caller that reads several of them evaluates the matchers only once.
    pub fn held(&self, numbers: &RoaringBitmap, access: &Access, range: MillisRange, seq: u64) -> Vec<LiveSeries> {
        let found = self.held_slots(numbers, access, range, seq);
        let mut out = Vec::with_capacity(found.len());
        let mut places = found.iter();
        self.registry.for_labels(found.iter().map(|f| f.1), |id, labels| {
            if let Some(&(slot, number, may_have_histograms)) = places.next() {
                out.push(LiveSeries { slot, number, id, labels, may_have_histograms });
            }
        });
        out
    }

    /// As [`Self::held`] without labels: slot, registry number, whether there are histograms; sorted by slot.
    pub(crate) fn held_slots(
        &self,
        numbers: &RoaringBitmap,
        access: &Access,
        range: MillisRange,
        seq: u64,
    ) -> Vec<(u32, u32, bool)> {
        let Some(cut) = self.cut(seq) else { return Vec::new() };
        let mut found: Vec<(u32, u32, bool)> = {
            let slots = self.slots.read();
            let allowed: Vec<bool> = slots.service_names.iter().map(|s| access.allows(s)).collect();
            let place_of = |number: u32| {
                let slot = slots.by_number.get(number)?.get() - 1;
                allowed[slots.services[slot as usize] as usize].then_some((slot, number, false))
            };
            if numbers.len() as usize > 4 * slots.numbers.len() {
                let own = slots.numbers.iter().copied().filter(|&n| numbers.contains(n));
                own.filter_map(place_of).collect()
            } else {
                numbers.iter().filter_map(place_of).collect()
            }
        };
        found.sort_unstable();
        let mut shard_at = usize::MAX;
        let mut shard = None;
        found.retain_mut(|(slot, _, histograms)| {
            let (at, item) = place(*slot);
            if at != shard_at {
                // Release the old lock before taking the next. A thread that holds one read lock and waits for another
                // could deadlock with a writer that waits for the first.
                drop(shard.take());
                (shard_at, shard) = (at, Some(self.shards[at].read()));
            }
            let data = &shard.as_ref().expect("just taken")[item];
            *histograms = data.has_histograms();
            data.visible(cut, range)
        });
        drop(shard);
        found
    }

    fn read<R: Default>(&self, slot: u32, seq: u64, read: impl FnOnce(&SeriesData, u32) -> R) -> R {
        let (shard, at) = place(slot);
        let Some(cut) = self.cut(seq) else { return R::default() };
        self.shards[shard].read().get(at).map_or_else(R::default, |data| read(data, cut))
    }

    /// Copies the float samples of a series in a range, written up to `seq`: sorted by time, one per time.
    pub fn copy_floats(&self, slot: u32, range: MillisRange, seq: u64) -> FloatRun {
        let mut run = FloatRun::default();
        self.append_floats(slot, range, seq, &mut run);
        run
    }

    /// Like [`Self::copy_floats`], appending to an existing run to reuse its memory.
    pub fn append_floats(&self, slot: u32, range: MillisRange, seq: u64, out: &mut FloatRun) {
        self.read(slot, seq, |data, cut| data.append_floats(range, cut, out));
    }

    /// Copies the native histograms of a series in the same way.
    pub fn copy_hists(&self, slot: u32, range: MillisRange, seq: u64) -> HistRun {
        self.read(slot, seq, |data, cut| data.copy_hists(range, cut))
    }

    /// Copies the exemplars of a series, by time.
    pub fn copy_exemplars(&self, slot: u32, range: MillisRange, seq: u64) -> Vec<RunExemplar> {
        self.read(slot, seq, |data, cut| data.copy_exemplars(range, cut))
    }

    /// Gives the metadata rows in order of arrival: time of arrival, metadata, service (empty: none).
    pub fn metadata(&self, seq: u64) -> Vec<(Millis, MetricMetadata, String)> {
        let Some(cut) = self.cut(seq) else { return Vec::new() };
        let rows = self.metadata.read();
        rows.iter().filter(|r| r.seq <= cut).map(|r| (r.ts, r.metadata.clone(), r.service.clone())).collect()
    }

    /// Like [`Self::metadata`], only rows that `wanted` (metric, service) accepts. `room` reserves their bytes first.
    pub(crate) fn wanted_metadata(
        &self,
        seq: u64,
        wanted: impl Fn(&str, &str) -> bool,
        room: impl FnOnce(usize) -> quiver_types::Result<()>,
    ) -> quiver_types::Result<Vec<(Millis, MetricMetadata, String)>> {
        let Some(cut) = self.cut(seq) else { return Ok(Vec::new()) };
        let rows = self.metadata.read();
        let is_wanted = |r: &&MetadataRow| r.seq <= cut && wanted(&r.metadata.metric, &r.service);
        room(rows.iter().filter(is_wanted).map(MetadataRow::memory_bytes).sum())?;
        Ok(rows.iter().filter(is_wanted).map(|r| (r.ts, r.metadata.clone(), r.service.clone())).collect())
    }

    /// Number of log rows.
    pub fn log_rows(&self) -> u64 {
        self.log_rows.load(Relaxed)
    }

    /// Gives the log rows of writes up to `seq` that may lie in a range of Unix nanoseconds.
    pub(crate) fn log_view(&self, range: (i64, i64), seq: u64) -> LogsView {
        // Counts the memory of indexes that earlier queries have built.
        self.account(self.logs.take_grown());
        self.cut(seq).map_or_else(LogsView::default, |cut| self.logs.view(cut, range))
    }

    /// The log rows.
    pub(crate) fn logs(&self) -> &LiveLogs {
        &self.logs
    }

    /// Number of spans.
    pub fn spans(&self) -> u64 {
        self.span_rows.load(Relaxed)
    }

    /// Gives the batches of spans of writes up to `seq` that may start in a closed range of Unix nanoseconds.
    pub(crate) fn span_view(&self, range: (i64, i64), seq: u64) -> Vec<Arc<SpanChunk>> {
        self.cut(seq).map_or_else(Vec::new, |cut| self.spans.view(cut, range))
    }

    /// Adds to `out` the rows of `chunk`, a batch of another generation, whose spans are also in this generation.
    pub(crate) fn span_repeats(&self, chunk: &SpanChunk, out: &mut BTreeSet<u32>) {
        self.spans.repeats(chunk, out);
    }

    /// Gives the content of one day for the flush, sorted by series, one series at a time. The generation must be
    /// sealed, since the order is computed only once.
    pub fn runs(&self, day: i32) -> impl Iterator<Item = SeriesRun> + '_ {
        let (order, range) = (self.flush_order(), range_of(day));
        (0..order.len(day)).filter_map(move |n| {
            let (slot, id, labels) = order.series(day, n)?;
            let mut run = SeriesRun {
                labels,
                id,
                service: self.service(slot),
                samples: self.copy_floats(slot, range, u64::MAX),
                hists: self.copy_hists(slot, range, u64::MAX),
                exemplars: self.copy_exemplars(slot, range, u64::MAX),
            };
            run.normalize();
            (!run.is_empty()).then_some(run)
        })
    }

    /// Says whether [`Self::runs`] gives something, without copying a series, which may be all that there is.
    pub fn has_runs(&self, day: i32) -> bool {
        let (order, range) = (self.flush_order(), range_of(day));
        let has_rows = |slot| self.read(slot, u64::MAX, |data, cut| data.has_rows(range, cut));
        (0..order.len(day)).any(|n| order.series(day, n).is_some_and(|(slot, ..)| has_rows(slot)))
    }

    fn flush_order(&self) -> &Order {
        assert!(self.sealed(), "an open generation has no order yet");
        self.order.get_or_init(|| {
            let slots = self.slots.read();
            Order::build(&self.registry, &slots.numbers, |slot, day| {
                let (shard, at) = place(slot);
                self.shards[shard].read()[at].for_days(day);
            })
        })
    }

    /// Gives the service of a series; empty = none.
    pub fn service(&self, slot: u32) -> Arc<str> {
        let slots = self.slots.read();
        Arc::clone(&slots.service_names[slots.services[slot as usize] as usize])
    }

    // Writing; by the WAL's thread only.

    /// Adds a series and gives its slot.
    pub(crate) fn define(&self, number: u32, service: &str) -> u32 {
        let slot = self.series() as u32;
        let (shard, at) = place(slot);
        let mut shard = self.shards[shard].write();
        // Make room in the shard before readers can find the slot.
        let len = shard.len().max(at + 1);
        shard.resize_with(len, SeriesData::default);
        drop(shard);
        let mut slots = self.slots.write();
        let code = if let Some(&code) = slots.service_codes.get(service) {
            code
        } else {
            let name: Arc<str> = Arc::from(service);
            let code = slots.service_names.len() as u32;
            slots.service_names.push(Arc::clone(&name));
            slots.service_codes.insert(name, code);
            code
        };
        slots.numbers.push(number);
        slots.services.push(code);
        slots.by_number.insert(number, NonZeroU32::new(slot + 1).expect("not 0"));
        drop(slots);
        self.account(size_of::<SeriesData>() + 16);
        slot
    }

    fn account(&self, grown: usize) {
        self.bytes.fetch_add(grown, Relaxed);
        self.registry.add_generation_bytes(grown);
    }

    fn relative(&self, seq: u64) -> u32 {
        let seq = u32::try_from(seq - self.base_seq).expect("a generation is sealed long before 4 billion writes");
        self.last_seq.fetch_max(self.base_seq + u64::from(seq), Release);
        seq
    }

    fn widen(&self, ts: impl Iterator<Item = Millis>, rows: usize) {
        let (mut min, mut max) = (i64::MAX, i64::MIN);
        for t in ts {
            min = min.min(t);
            max = max.max(t);
        }
        self.min_ts.fetch_min(min, Release);
        self.max_ts.fetch_max(max, Release);
        self.rows.fetch_add(rows as u64, Release);
    }

    /// Gives the batches of a table that stores rows unchanged, written up to `seq`.
    pub(crate) fn table_rows(&self, table: &str, seq: u64) -> Vec<RecordBatch> {
        self.cut(seq).map_or_else(Vec::new, |cut| self.table_rows.of(table, cut))
    }

    /// Notes that the generation takes no more writes.
    pub(crate) fn seal(&self) {
        self.sealed.store(true, Release);
    }

    /// Notes that it was set aside: no write waits for its flush any more.
    pub(crate) fn set_aside(&self) {
        self.aside.store(true, Release);
    }

    /// Says whether it was set aside.
    pub(crate) fn is_aside(&self) -> bool {
        self.aside.load(Acquire)
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.registry.sub_generation_bytes(self.bytes());
        self.registry.release(&self.slots.get_mut().numbers);
    }
}

#[cfg(test)]
mod tests;
