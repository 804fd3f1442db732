//! A batch of metrics between a decoder and the store: columns, filled directly from the wire format.

use crate::{Histogram, Millis, SeriesId};

/// What a decoder gives and `Store::write_metrics` takes: series once, samples as columns that refer to them by number.
///
/// `series[i]` owns `label_bytes[series[i].start..series[i].end]`, canonical bytes of [`crate::LabelSet`]: sorted unique
/// names, no empty value, `__name__` not empty, valid UTF-8 (the decoder has checked). A series may occur twice.
#[derive(Debug, Default, Clone)]
pub struct MetricsBatch {
    /// Canonical label bytes of all series, one after the other.
    pub label_bytes: Vec<u8>,
    /// The series that samples refer to by index.
    pub series: Vec<BatchSeries>,
    /// For each float sample: index into `series`.
    pub sample_series: Vec<u32>,
    /// For each float sample: time.
    pub ts: Vec<Millis>,
    /// For each float sample: value, bits kept (stale markers, NaN payloads, -0).
    pub values: Vec<f64>,
    /// For each float sample: start time, 0 = unset. Empty when no sample of the batch has one.
    pub start_ts: Vec<Millis>,
    /// Native histograms of these series.
    pub histograms: Vec<HistogramSample>,
    /// Exemplars of these series.
    pub exemplars: Vec<Exemplar>,
    /// Type, help and unit of metrics.
    pub metadata: Vec<MetricMetadata>,
    /// Time of arrival, if there are float samples that came without a time and so bear this one.
    pub arrival: Option<Millis>,
}

/// A series of a batch: its labels are a range of canonical bytes.
#[derive(Debug, Clone, Copy)]
pub struct BatchSeries {
    /// First byte in `label_bytes`.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
    /// Hash of these bytes.
    pub id: SeriesId,
}

/// A native histogram of a series at a time.
#[derive(Debug, Clone)]
pub struct HistogramSample {
    /// Index into `series`.
    pub series: u32,
    /// Time of the histogram, Unix milliseconds.
    pub ts: Millis,
    /// Start time, 0 = unset.
    pub start_ts: Millis,
    /// The histogram, with absolute bucket counts.
    pub histogram: Histogram,
}

/// An exemplar: a measured value with labels (a trace id, mostly) that lead to what was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar {
    /// Index into `series`.
    pub series: u32,
    /// When the value was measured, Unix milliseconds.
    pub ts: Millis,
    /// The value that was measured.
    pub value: f64,
    /// Canonical bytes of its own labels (`trace_id`, …).
    pub labels: Vec<u8>,
}

/// What a sender says of a metric beside its samples.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MetricMetadata {
    /// Name of the metric; of a classic histogram without `_bucket`.
    pub metric: String,
    /// `counter`, `gauge`, `histogram`, `gaugehistogram`, `summary`, `info`, `stateset` or `unknown`.
    pub metric_type: String,
    /// What the metric measures, in the sender's words; empty: not said.
    pub help: String,
    /// Unit, such as `seconds` or `bytes`; empty: not said.
    pub unit: String,
}

impl MetricsBatch {
    /// Appends a series from canonical bytes and gives its index.
    pub fn push_series(&mut self, canonical: &[u8]) -> u32 {
        let start = self.label_bytes.len() as u32;
        self.label_bytes.extend_from_slice(canonical);
        let series = BatchSeries { start, end: self.label_bytes.len() as u32, id: SeriesId::of(canonical) };
        self.series.push(series);
        (self.series.len() - 1) as u32
    }

    /// Appends a float sample. Start times of a batch are either given for all samples or for none.
    pub fn push_sample(&mut self, series: u32, ts: Millis, value: f64, start_ts: Millis) {
        if start_ts != 0 && self.start_ts.is_empty() {
            self.start_ts.resize(self.ts.len(), 0);
        }
        let has_start = start_ts != 0 || !self.start_ts.is_empty();
        self.sample_series.push(series);
        self.ts.push(ts);
        self.values.push(value);
        if has_start {
            self.start_ts.push(start_ts);
        }
    }

    /// Gives the times of samples and histograms that the sender gave.
    pub fn given_times(&self) -> impl Iterator<Item = Millis> {
        let floats = self.ts.iter().copied().filter(|&ts| Some(ts) != self.arrival);
        floats.chain(self.histograms.iter().map(|h| h.ts))
    }

    /// Gives the canonical label bytes of a series.
    pub fn labels(&self, series: u32) -> &[u8] {
        let s = &self.series[series as usize];
        &self.label_bytes[s.start as usize..s.end as usize]
    }

    /// Counts samples, histograms and exemplars.
    pub fn records(&self) -> usize {
        self.ts.len() + self.histograms.len() + self.exemplars.len()
    }

    /// Says whether there is nothing to store.
    pub fn is_empty(&self) -> bool {
        self.ts.is_empty() && self.histograms.is_empty() && self.exemplars.is_empty() && self.metadata.is_empty()
    }
}
