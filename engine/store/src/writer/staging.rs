//! Converts a batch to rows of a generation and records of the WAL.
//!
//! There is one lookup per series; columns of the batch are used unchanged. Series that are new to the generation are
//! defined before the first record that refers to them.

mod logs;

use std::sync::Arc;

use arrow::array::{Float64Array, Int64Array, UInt32Array};
use hashbrown::{HashMap, HashSet};
use quiver_types::label::{METRIC_NAME, Pairs};
use quiver_types::metrics::BatchSeries;
use quiver_types::tables::history::TableRows;
use quiver_types::{MetricsBatch, Millis, SpansBatch};

use super::limits::retain;
use super::metric_metadata::MetadataTracker;
use super::quota::SeriesQuota;
use super::reset_hints::HintTracker;
use crate::idempotency::{AnsweredRequest, Claim};
use crate::memtable::logs::{LogRows, PreparedLogs};
use crate::memtable::series::exemplar;
use crate::memtable::spans::starts;
use crate::memtable::{Generation, HistogramRow};
use crate::registry::{AttachOutcome, FreeSlots};
use crate::wal::codec::{Definition, Encoder, ExemplarRow, MetadataRow, RecordKind, SampleColumns};
use crate::wal::record;

/// Nanoseconds of a millisecond.
const MILLI_NS: i64 = 1_000_000;
/// About how many bytes of spans, and how many series, one record holds. What writes a record copies all of it twice, so
/// that the largest write would stand in memory four times if it were one.
const RECORD_BYTES: usize = 4 << 20;
const DEFINITIONS_MAX: usize = 16 << 10;
/// Bytes of records for a series besides its labels, and for a sample, with some to spare.
const DEFINITION_BYTES: usize = 48;
const SAMPLE_BYTES: usize = 32;
/// Room for more entries than this is given back after their write.
const ENTRIES_KEEP: usize = 16 << 10;

/// The rows of one write, ready to be inserted.
#[derive(Debug)]
pub(crate) struct StagedRows {
    pub(crate) seq: u64,
    pub(crate) samples: Option<SampleColumns>,
    pub(crate) histograms: Vec<HistogramRow>,
    pub(crate) exemplars: Vec<ExemplarRow>,
    pub(crate) metadata: Vec<MetadataRow>,
    pub(crate) logs: Option<LogRows>,
    pub(crate) spans: Option<SpansBatch>,
    pub(crate) rows: Vec<TableRows>,
    /// The request, if it has an idempotency key.
    pub(crate) request: Option<Box<KeyedRequest>>,
    /// Samples and histograms of series for which the registry has no space.
    pub(crate) refused: u64,
    /// Samples and histograms of series whose service has too many.
    pub(crate) barred: u64,
}

/// Used instead of a slot: the registry has no space for the series.
const REFUSED: u32 = u32::MAX;
/// Used instead of a slot: the service of the series has too many.
const BARRED: u32 = u32::MAX - 1;

/// Converts batches to rows and records; reuses its buffers.
#[derive(Debug, Default)]
pub(crate) struct Stager {
    encoder: Encoder,
    slots: Vec<u32>,
    unknown: Vec<u32>,
    /// Series of the open generation whose definition has not been written successfully yet.
    unlogged: Vec<UnloggedSeries>,
    /// How many of them are in the records of the current group.
    encoded: usize,
    described: MetadataTracker,
    hints: HintTracker,
    logs: logs::LogStager,
    quota: SeriesQuota,
}

/// A series of the open generation; its labels are in the registry for as long as the generation is open.
#[derive(Debug, Clone, Copy)]
struct UnloggedSeries {
    slot: u32,
    /// The number of the series in the registry.
    number: u32,
}

/// A request with an idempotency key, and the right to respond to it.
#[derive(Debug)]
pub(crate) struct KeyedRequest {
    pub(crate) request: Arc<AnsweredRequest>,
    pub(crate) claim: Claim,
}

/// The content of a write.
#[derive(Debug)]
pub(crate) enum Batch {
    /// Series with their samples, native histograms, exemplars and metadata.
    Metrics(MetricsBatch),
    /// Log rows, and the request if it has an idempotency key.
    Logs(Box<PreparedLogs>, Option<Box<KeyedRequest>>),
    /// Spans with their contexts.
    Spans(SpansBatch),
    /// Rows of tables without series.
    Rows(Vec<TableRows>),
}

/// What staging depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StageContext<'a> {
    pub(crate) generation: &'a Generation,
    pub(crate) service_labels: &'a [String],
    /// With more memory in use than this, the registry accepts no new series.
    pub(crate) registry_bytes_max: usize,
    /// How many new series one service may create per hour; 0 means no limit.
    pub(crate) new_series_per_hour: u64,
    /// Memory limit for the metadata of a day.
    pub(crate) metadata_bytes_max: usize,
    /// Memory limit for the last histogram of each series.
    pub(crate) hint_bytes_max: usize,
    pub(crate) now: Millis,
}

/// The service of a series: the value of the first of the labels that it has.
fn service<'a>(canonical: &'a [u8], labels: &[String]) -> &'a str {
    let find = |name: &String| Pairs::new(canonical).find(|(n, _)| n == name).map(|(_, v)| v);
    labels.iter().find_map(find).unwrap_or("")
}

fn canonical<'a>(batch: &'a MetricsBatch, series: &BatchSeries) -> &'a [u8] {
    &batch.label_bytes[series.start as usize..series.end as usize]
}

impl Stager {
    /// Starts a group; definitions of failed groups are written again first.
    pub(crate) fn begin_group(&mut self) {
        self.encoded = 0;
        self.logs.begin_group();
    }

    /// Ends a group whose records are durable.
    pub(crate) fn logged(&mut self) {
        self.unlogged.drain(..self.encoded);
        self.unlogged.shrink_to(ENTRIES_KEEP);
        self.encoded = 0;
        self.logs.logged();
    }

    /// Ends a group that could not be written.
    pub(crate) fn failed(&mut self) {
        self.encoded = 0;
        self.logs.begin_group();
        self.described.doubt();
        self.hints.clear();
    }

    /// Starts over for the next generation.
    pub(crate) fn new_generation(&mut self) {
        self.unlogged.clear();
        self.unlogged.shrink_to(ENTRIES_KEEP);
        self.encoded = 0;
        self.hints.new_generation();
        self.logs.new_generation();
    }

    /// Stages a batch under a sequence number; appends its records to `out`.
    pub(crate) fn stage(&mut self, ctx: StageContext<'_>, seq: u64, batch: Batch, out: &mut Vec<u8>) -> StagedRows {
        match batch {
            Batch::Metrics(batch) => self.stage_metrics(ctx, seq, batch, out),
            Batch::Logs(prepared, request) => {
                let answered = request.as_ref().map(|r| &*r.request);
                let records = &mut RecordWriter { seq, encoder: &mut self.encoder, out };
                let rows = self.logs.stage(ctx.generation, *prepared, answered, records);
                StagedRows { logs: rows, request, ..StagedRows::empty(seq) }
            }
            Batch::Spans(batch) => {
                self.encode_spans(&batch, seq, out);
                StagedRows { spans: Some(batch), ..StagedRows::empty(seq) }
            }
            Batch::Rows(rows) => {
                let last = rows.len().saturating_sub(1);
                let mut records = RecordWriter { seq, encoder: &mut self.encoder, out };
                for (i, rows) in rows.iter().enumerate() {
                    let flags = if i == last { record::LAST } else { 0 };
                    let kind = RecordKind::Rows(rows.table.number);
                    records.write(kind, i as u16, flags, |encoder, out| encoder.rows(rows, out));
                }
                StagedRows { rows, ..StagedRows::empty(seq) }
            }
        }
    }

    fn encode_spans(&mut self, batch: &SpansBatch, seq: u64, out: &mut Vec<u8>) {
        let mut records = RecordWriter { seq, encoder: &mut self.encoder, out };
        records.write(RecordKind::SpanContexts, 0, 0, |encoder, out| encoder.span_contexts(batch, out));
        let (rows, bytes) = (batch.len(), batch.memory_bytes());
        reserve(records.out, bytes);
        let step = rows.div_ceil(bytes.div_ceil(RECORD_BYTES).max(1)).max(1);
        for (i, start) in (0..rows.max(1)).step_by(step).enumerate() {
            let flags = if start + step >= rows { record::LAST } else { 0 };
            let spans = batch.spans.slice(start, step.min(rows - start));
            records.write(RecordKind::SpanRows, i as u16 + 1, flags, |encoder, out| encoder.span_rows(&spans, out));
        }
    }

    fn stage_metrics(
        &mut self,
        ctx: StageContext<'_>,
        seq: u64,
        mut batch: MetricsBatch,
        out: &mut Vec<u8>,
    ) -> StagedRows {
        self.resolve(ctx, &batch);
        let (refused, barred) = self.drop_refused(&mut batch);
        self.hints.apply(&mut batch, ctx.hint_bytes_max);
        let slots = &self.slots;
        let samples = (!batch.ts.is_empty()).then(|| SampleColumns {
            slots: UInt32Array::from(batch.sample_series.iter().map(|&s| slots[s as usize]).collect::<Vec<_>>()),
            ts: Int64Array::from(std::mem::take(&mut batch.ts)),
            values: Float64Array::from(std::mem::take(&mut batch.values)),
            start_ts: batch
                .start_ts
                .iter()
                .any(|&s| s != 0)
                .then(|| Int64Array::from(std::mem::take(&mut batch.start_ts))),
        });
        let histogram = |h: quiver_types::metrics::HistogramSample| HistogramRow {
            slot: slots[h.series as usize],
            ts: h.ts,
            start_ts: h.start_ts,
            histogram: h.histogram,
        };
        let histograms: Vec<_> = std::mem::take(&mut batch.histograms).into_iter().map(histogram).collect();
        let exemplars: Vec<ExemplarRow> =
            batch.exemplars.iter().map(|e| (slots[e.series as usize], exemplar(e.ts, e.value, &e.labels))).collect();
        let metadata = self.new_metadata(ctx, &mut batch);
        let staged = StagedRows { samples, histograms, exemplars, metadata, refused, barred, ..StagedRows::empty(seq) };
        // Labels take most of a large batch. Those of new series are in the registry by now.
        drop(batch);
        for numbers in [&mut self.slots, &mut self.unknown] {
            numbers.clear();
            numbers.shrink_to(ENTRIES_KEEP);
        }
        self.encode(ctx.generation, &staged, out);
        staged
    }

    /// Sets `self.slots` to the slot of each series of the batch, creating missing ones.
    fn resolve(&mut self, ctx: StageContext<'_>, batch: &MetricsBatch) {
        let registry = ctx.generation.registry();
        self.slots.clear();
        self.unknown.clear();
        registry.resolve(
            ctx.generation.ordinal(),
            batch.series.iter().map(|s| s.id),
            &mut self.slots,
            &mut self.unknown,
        );
        if self.unknown.is_empty() {
            return;
        }
        let mut used = vec![false; batch.series.len()];
        batch.sample_series.iter().for_each(|&s| used[s as usize] = true);
        batch.histograms.iter().for_each(|h| used[h.series as usize] = true);
        batch.exemplars.iter().for_each(|e| used[e.series as usize] = true);
        self.unknown.retain(|&i| used[i as usize]);
        let series = |&i: &u32| {
            let s = &batch.series[i as usize];
            (s.id, canonical(batch, s))
        };
        let mut attached = Vec::with_capacity(self.unknown.len());
        let quota = self.quota.at(ctx.now);
        registry.attach_where(
            FreeSlots { ordinal: ctx.generation.ordinal(), first: ctx.generation.series() as u32 },
            self.unknown.iter().map(series),
            ctx.registry_bytes_max,
            |id, labels, fill| quota.admit(service(labels, ctx.service_labels), id, ctx.new_series_per_hour, fill),
            |a| attached.push(a),
        );
        for (&i, attached) in self.unknown.iter().zip(attached) {
            self.slots[i as usize] = match attached {
                AttachOutcome::Known(slot) => slot,
                AttachOutcome::Refused => {
                    crate::metrics::METRICS.refused_series.inc();
                    REFUSED
                }
                AttachOutcome::Barred => {
                    crate::metrics::METRICS.barred_series.inc();
                    BARRED
                }
                AttachOutcome::New(number) => {
                    let labels = canonical(batch, &batch.series[i as usize]);
                    let slot = ctx.generation.define(number, service(labels, ctx.service_labels));
                    self.unlogged.push(UnloggedSeries { slot, number });
                    slot
                }
            };
        }
    }

    /// Removes the rows of series without a slot; returns the numbers of samples and histograms that were refused and
    /// that were barred.
    fn drop_refused(&self, batch: &mut MetricsBatch) -> (u64, u64) {
        let refused = |series: u32| self.slots[series as usize] >= BARRED;
        if self.unknown.iter().all(|&i| !refused(i)) {
            return (0, 0);
        }
        let of_barred = |series: u32| self.slots[series as usize] == BARRED;
        let barred = batch.sample_series.iter().filter(|&&s| of_barred(s)).count()
            + batch.histograms.iter().filter(|h| of_barred(h.series)).count();
        let before = batch.ts.len() + batch.histograms.len();
        let keep: Vec<bool> = batch.sample_series.iter().map(|&s| !refused(s)).collect();
        retain(&mut batch.sample_series, &keep);
        retain(&mut batch.ts, &keep);
        retain(&mut batch.values, &keep);
        retain(&mut batch.start_ts, &keep);
        batch.histograms.retain(|h| !refused(h.series));
        batch.exemplars.retain(|e| !refused(e.series));
        ((before - batch.ts.len() - batch.histograms.len() - barred) as u64, barred as u64)
    }

    /// Selects the metadata that must be written, with the services of the series in the batch.
    fn new_metadata(&mut self, ctx: StageContext<'_>, batch: &mut MetricsBatch) -> Vec<MetadataRow> {
        if batch.metadata.is_empty() {
            return Vec::new();
        }
        let all = std::mem::take(&mut batch.metadata);
        let services = services_by_metric(batch, ctx.service_labels);
        let mut rows = Vec::new();
        for metadata in all {
            let of_metric = services.get(metadata.metric.as_str()).unwrap_or(&Services::One(""));
            for service in of_metric.iter() {
                if let Some(ts) = self.described.admit(&metadata, service, ctx.now, ctx.metadata_bytes_max) {
                    rows.push((ts, metadata.clone(), service.to_owned()));
                }
            }
        }
        rows
    }

    fn encode(&mut self, generation: &Generation, staged: &StagedRows, out: &mut Vec<u8>) {
        let mut kinds = Vec::with_capacity(4);
        kinds.extend(staged.samples.is_some().then_some(RecordKind::Samples));
        kinds.extend((!staged.histograms.is_empty()).then_some(RecordKind::Histograms));
        kinds.extend((!staged.exemplars.is_empty()).then_some(RecordKind::Exemplars));
        kinds.extend((!staged.metadata.is_empty()).then_some(RecordKind::Metadata));
        let mut records = RecordWriter { seq: staged.seq, encoder: &mut self.encoder, out };
        if self.encoded < self.unlogged.len() && !kinds.is_empty() {
            let mut unlogged = self.unlogged[self.encoded..].chunks(DEFINITIONS_MAX);
            let samples = staged.samples.as_ref().map_or(0, |samples| samples.ts.values().len());
            let kind = RecordKind::Definitions;
            // The average of the first chunk estimates the size of the rest, so that the buffer is reserved once.
            if let Some(first) = unlogged.next() {
                let definitions = definitions_of(generation, first);
                let labels: usize = definitions.iter().map(|d| d.labels.len() + DEFINITION_BYTES).sum();
                let all = labels * (self.unlogged.len() - self.encoded) / first.len();
                reserve(records.out, all + all / 8 + samples * SAMPLE_BYTES);
                records.write(kind, 0, 0, |encoder, out| encoder.definitions(kind, &definitions, out));
            }
            for more in unlogged {
                let definitions = definitions_of(generation, more);
                records.write(kind, 0, 0, |encoder, out| encoder.definitions(kind, &definitions, out));
            }
            self.encoded = self.unlogged.len();
        }
        let last = kinds.len().saturating_sub(1);
        for (index, kind) in kinds.into_iter().enumerate() {
            let mut flags = if index == last { record::LAST } else { 0 };
            let samples = staged.samples.as_ref().filter(|_| kind == RecordKind::Samples);
            if samples.is_some_and(|samples| samples.start_ts.is_some()) {
                flags |= record::OPTIONAL;
            }
            records.write(kind, index as u16, flags, |encoder, out| match (kind, samples) {
                (_, Some(samples)) => encoder.samples(samples, out),
                (RecordKind::Histograms, _) => encoder.histograms(&staged.histograms, out),
                (RecordKind::Exemplars, _) => encoder.exemplars(&staged.exemplars, out),
                _ => encoder.metadata(&staged.metadata, out),
            });
        }
    }
}

/// Reads what the log needs of series of the open generation. Not kept with them: labels of many new series would stand in
/// memory once more beside their batch and the registry.
fn definitions_of(generation: &Generation, series: &[UnloggedSeries]) -> Vec<Definition> {
    let mut definitions = Vec::with_capacity(series.len());
    let mut slots = series.iter().map(|s| s.slot);
    generation.registry().for_labels(series.iter().map(|s| s.number), |id, labels| {
        if let Some(slot) = slots.next() {
            let service = generation.service(slot).to_string();
            definitions.push(Definition { slot, id, labels: labels.canonical().to_vec(), service });
        }
    });
    definitions
}

/// Makes room for many bytes at once: while it grows by doubling, a buffer stands in memory twice.
fn reserve(out: &mut Vec<u8>, bytes: usize) {
    if bytes > RECORD_BYTES {
        out.reserve(bytes);
    }
}

/// Appends the records of one write to those of its group.
struct RecordWriter<'w> {
    seq: u64,
    encoder: &'w mut Encoder,
    out: &'w mut Vec<u8>,
}

impl RecordWriter<'_> {
    /// Appends a record, whose body `encode` writes; `index` is its number among those of the write.
    fn write(&mut self, kind: RecordKind, index: u16, flags: u16, encode: impl FnOnce(&mut Encoder, &mut Vec<u8>)) {
        let at = record::begin(self.out);
        encode(self.encoder, self.out);
        let table = kind.table();
        let (table, version) = (table.number, table.version);
        let header = record::Header { seq: self.seq, table, version, kind: kind.number(), flags, index };
        record::finish(self.out, at, header);
    }
}

/// The services that have a metric. Most have one, and a request may name hundreds of thousands of metrics.
enum Services<'a> {
    One(&'a str),
    Many(HashSet<&'a str>),
}

impl<'a> Services<'a> {
    fn add(&mut self, service: &'a str) {
        match self {
            Self::One(known) if *known == service => {}
            Self::One(known) => *self = Self::Many([*known, service].into_iter().collect()),
            Self::Many(known) => _ = known.insert(service),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &'a str> + '_ {
        let (one, many) = match self {
            Self::One(service) => (Some(*service), None),
            Self::Many(services) => (None, Some(services.iter().copied())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

/// The services that have a metric, by its name and by the family name that metadata may use.
fn services_by_metric<'a>(batch: &'a MetricsBatch, service_labels: &[String]) -> HashMap<&'a str, Services<'a>> {
    const SUFFIXES: [&str; 6] = ["_bucket", "_count", "_sum", "_total", "_created", "_info"];
    let mut services: HashMap<&str, Services<'_>> = HashMap::default();
    for series in &batch.series {
        let labels = canonical(batch, series);
        let metric = Pairs::new(labels).find(|(n, _)| *n == METRIC_NAME).map_or("", |(_, v)| v);
        let family = SUFFIXES.iter().find_map(|s| metric.strip_suffix(s));
        let service = service(labels, service_labels);
        for name in [Some(metric), family].into_iter().flatten() {
            services.entry(name).and_modify(|known| known.add(service)).or_insert(Services::One(service));
        }
    }
    services
}

impl StagedRows {
    fn empty(seq: u64) -> Self {
        let (histograms, exemplars, metadata) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            seq,
            samples: None,
            histograms,
            exemplars,
            metadata,
            logs: None,
            spans: None,
            rows: Vec::new(),
            request: None,
            refused: 0,
            barred: 0,
        }
    }

    /// The times of its samples and histograms.
    pub(crate) fn times(&self) -> impl Iterator<Item = Millis> {
        let samples = self.samples.iter().flat_map(|s| s.ts.values().iter().copied());
        samples.chain(self.histograms.iter().map(|h| h.ts))
    }

    pub(crate) fn log_times(&self) -> impl Iterator<Item = Millis> {
        self.logs.iter().flat_map(|logs| logs.time.iter().map(|ns| ns.div_euclid(MILLI_NS)))
    }

    /// The start times of its spans.
    pub(crate) fn span_times(&self) -> impl Iterator<Item = Millis> {
        self.spans.iter().flat_map(|spans| starts(spans).iter().map(|ns| ns.div_euclid(MILLI_NS)))
    }

    /// Tells whether there is nothing to log.
    pub(crate) fn is_empty(&self) -> bool {
        self.samples.is_none()
            && self.histograms.is_empty()
            && self.exemplars.is_empty()
            && self.metadata.is_empty()
            && self.logs.is_none()
            && self.spans.is_none()
            && self.rows.is_empty()
            && self.request.is_none()
    }
}

#[cfg(test)]
mod tests;
