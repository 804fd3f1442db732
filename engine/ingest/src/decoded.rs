//! The result of a decoder: the batch to store, and what was rejected with the reason. And the sink through which all
//! decoders fill it, which enforces the memory limit.

use std::sync::Arc;

use quiver_types::label::Pairs;
use quiver_types::metrics::{BatchSeries, Exemplar, HistogramSample, MetricMetadata};
use quiver_types::{Histogram, MetricsBatch, Millis, SeriesId};

use crate::decode_memory;
use crate::error::{Error, Result};
use crate::labels::LabelBuilder;
use crate::rejection::Reason;
use crate::sender_rights::{Gate, Sender, Verdict};

/// What was rejected for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedItems {
    /// Why it was rejected.
    pub reason: Reason,
    /// How many, counted in series, histograms, exemplars, points or lines, depending on reason and format.
    pub count: u64,
    /// The first of them, shortened; may be empty.
    pub example: String,
}

/// The outcome of decoding one body.
#[derive(Debug, Default)]
pub struct DecodedMetrics {
    /// The series, samples, histograms, exemplars and metadata to store.
    pub batch: MetricsBatch,
    /// What was rejected, by reason, in order of appearance.
    pub rejected: Vec<RejectedItems>,
    /// Float samples in `batch`.
    pub samples: u64,
    /// Native histograms in `batch`.
    pub histograms: u64,
    /// Exemplars in `batch`.
    pub exemplars: u64,
}

impl DecodedMetrics {
    /// Number of records that the sender has no right to write.
    pub fn forbidden(&self) -> u64 {
        self.rejected_count(|r| r == Reason::Service)
    }

    /// The service of the first of them.
    pub fn first_forbidden(&self) -> Option<&str> {
        self.rejected.iter().find(|r| r.reason == Reason::Service).map(|r| &*r.example)
    }

    /// Number of rejected things whose reason the predicate accepts.
    pub fn rejected_count(&self, like: impl Fn(Reason) -> bool) -> u64 {
        self.rejected.iter().filter(|r| like(r.reason)).map(|r| r.count).sum()
    }

    /// Gives a message that counts the rejected things by reason, for reasons that the predicate accepts; `None` if
    /// there are none. At most about 2 KiB: the set of reasons is closed and examples are short.
    pub fn rejected_text(&self, like: impl Fn(Reason) -> bool) -> Option<String> {
        use std::fmt::Write;
        let mut text = String::new();
        for r in self.rejected.iter().filter(|r| like(r.reason)) {
            let separator = if text.is_empty() { "" } else { "; " };
            let _ = write!(text, "{separator}{} rejected: {}", r.count, r.reason.message());
            if !r.example.is_empty() {
                let _ = write!(text, ", first `{}`", r.example);
            }
        }
        (!text.is_empty()).then_some(text)
    }
}

/// Longest example of a rejected thing, in characters.
const EXAMPLE_MAX_CHARS: usize = 120;

/// The length of a batch before a series, so that the series can be removed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) samples: usize,
    pub(crate) histograms: usize,
    pub(crate) exemplars: usize,
}

/// Fills a batch, and refuses to grow beyond a number of bytes: a few bytes on the wire can stand for many in memory.
#[derive(Debug)]
pub(crate) struct Sink {
    pub(crate) batch: MetricsBatch,
    rejected: Vec<RejectedItems>,
    bytes_max: usize,
    samples_max: usize,
    other_bytes: usize,
    /// Checks whose series are accepted; `None`: all.
    gate: Option<Gate>,
    /// Whether the last series had no service and was given that of the sender.
    was_named: bool,
    /// A series with its service.
    named: Vec<u8>,
}

/// Bytes of a float sample in the columns, with its start time.
const SAMPLE_BYTES: usize = 4 + 8 + 8 + 8;
/// Labels of more bytes are counted twice when fewer are left of their place, which may move with the next series.
const MOVED_BYTES_MIN: usize = 1 << 20;
const ROOM_BYTES_MIN: usize = 64 << 10;
/// Entries of metadata for which there is room at first.
const METADATA_MIN: usize = 16;
/// The allocator gives texts multiples of so many bytes.
const TEXT_UNIT: usize = 16;
/// Samples of one series after which memory is asked for.
const SAMPLES_AT_ONCE: usize = 1 << 14;

impl Sink {
    /// Makes a sink for a body of `body_bytes`.
    pub(crate) fn new(body_bytes: usize, bytes_max: usize) -> Self {
        let mut batch = MetricsBatch::default();
        // Remote write: labels make up most of a body, and a series of one sample takes 100 bytes or more.
        batch.label_bytes.reserve(body_bytes.min(1 << 20));
        let series = (body_bytes / 128).min(1 << 14);
        batch.series.reserve(series);
        batch.sample_series.reserve(series);
        batch.ts.reserve(series);
        batch.values.reserve(series);
        Self {
            batch,
            rejected: Vec::new(),
            bytes_max,
            samples_max: bytes_max / SAMPLE_BYTES,
            other_bytes: 0,
            gate: None,
            was_named: false,
            named: Vec::new(),
        }
    }

    /// Accepts only what a sender may write.
    pub(crate) fn of_sender(mut self, sender: Option<&Arc<Sender>>) -> Self {
        self.gate = sender.map(|sender| Gate::new(Arc::clone(sender)));
        self
    }

    /// Says whether only some services are accepted.
    pub(crate) fn is_gated(&self) -> bool {
        self.gate.is_some()
    }

    /// Says whether the last series got the service that it lacked.
    pub(crate) fn was_named(&self) -> bool {
        self.was_named
    }

    /// Gives the id under which a series will be kept.
    pub(crate) fn id_of(&mut self, canonical: &[u8], id: SeriesId) -> Result<SeriesId, Reason> {
        let Some(gate) = &mut self.gate else { return Ok(id) };
        match gate.judge_series(canonical) {
            Verdict::Take => Ok(id),
            Verdict::Name => {
                self.named.clear();
                Ok(gate.name_series(canonical, &mut self.named))
            }
            Verdict::Refuse => Err(Reason::Service),
        }
    }

    /// Checks the series at the end of the batch, and adds the service if it has none.
    fn judge_last(&mut self, start: usize) -> Result<(), Reason> {
        self.was_named = false;
        let Some(gate) = &mut self.gate else { return Ok(()) };
        let bytes = &mut self.batch.label_bytes;
        match gate.judge_series(&bytes[start..]) {
            Verdict::Take => Ok(()),
            Verdict::Name => {
                self.named.clear();
                gate.name_series(&bytes[start..], &mut self.named);
                bytes.truncate(start);
                bytes.extend_from_slice(&self.named);
                self.was_named = true;
                Ok(())
            }
            Verdict::Refuse => {
                bytes.truncate(start);
                Err(Reason::Service)
            }
        }
    }

    fn too_large(&self) -> Error {
        Error::TooLarge { what: "decoded request", limit_bytes: self.bytes_max }
    }

    /// Charges memory outside of the columns, or work on input that is processed repeatedly.
    pub(crate) fn charge(&mut self, bytes: usize) -> Result<()> {
        self.other_bytes += bytes;
        let used = self.used();
        if used > self.bytes_max {
            return Err(self.too_large());
        }
        decode_memory::hold(used)
    }

    /// Estimates the bytes of the batch.
    pub(crate) fn used(&self) -> usize {
        self.batch.label_bytes.len()
            + self.batch.series.len() * size_of::<BatchSeries>()
            + self.batch.ts.len() * SAMPLE_BYTES
            + self.batch.metadata.capacity() * size_of::<MetricMetadata>()
            + self.other_bytes
    }

    fn check(&self) -> Result<()> {
        let used = self.used();
        if used > self.bytes_max || self.batch.label_bytes.len() > u32::MAX as usize {
            return Err(self.too_large());
        }
        decode_memory::hold(used + self.moving_bytes())
    }

    /// Bytes of labels that stand in memory twice while they move to a larger place, if that may be soon.
    #[inline]
    fn moving_bytes(&self) -> usize {
        let labels = &self.batch.label_bytes;
        let is_near = labels.capacity() - labels.len() < ROOM_BYTES_MIN;
        if is_near && labels.len() > MOVED_BYTES_MIN { labels.len() } else { 0 }
    }

    pub(crate) fn mark(&self) -> Mark {
        let b = &self.batch;
        Mark { samples: b.ts.len(), histograms: b.histograms.len(), exemplars: b.exemplars.len() }
    }

    /// Removes everything after a mark.
    pub(crate) fn rewind(&mut self, mark: Mark) {
        let b = &mut self.batch;
        b.sample_series.truncate(mark.samples);
        b.ts.truncate(mark.samples);
        b.values.truncate(mark.samples);
        b.start_ts.truncate(mark.samples);
        b.histograms.truncate(mark.histograms);
        b.exemplars.truncate(mark.exemplars);
    }

    /// The number that the next series will have.
    #[inline]
    pub(crate) fn next_series(&self) -> u32 {
        self.batch.series.len() as u32
    }

    /// Appends a series whose canonical bytes a function writes.
    #[inline]
    pub(crate) fn push_series(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), Reason>,
    ) -> Result<Result<u32, Reason>> {
        let b = &mut self.batch;
        let start = b.label_bytes.len();
        if let Err(reason) = write(&mut b.label_bytes) {
            return Ok(Err(reason));
        }
        if let Err(reason) = self.judge_last(start) {
            return Ok(Err(reason));
        }
        let b = &mut self.batch;
        let id = SeriesId::of(&b.label_bytes[start..]);
        b.series.push(BatchSeries { start: start as u32, end: b.label_bytes.len() as u32, id });
        self.check()?;
        Ok(Ok((self.batch.series.len() - 1) as u32))
    }

    /// Appends a series that is known to be valid.
    #[inline]
    pub(crate) fn push_known(&mut self, canonical: &[u8], id: SeriesId) -> Result<Result<u32, Reason>> {
        let start = self.batch.label_bytes.len();
        self.batch.label_bytes.extend_from_slice(canonical);
        let mut id = id;
        if self.gate.is_some() {
            if let Err(reason) = self.judge_last(start) {
                return Ok(Err(reason));
            }
            if self.was_named {
                id = SeriesId::of(&self.batch.label_bytes[start..]);
            }
        }
        let b = &mut self.batch;
        b.series.push(BatchSeries { start: start as u32, end: b.label_bytes.len() as u32, id });
        self.check()?;
        Ok(Ok((self.batch.series.len() - 1) as u32))
    }

    /// Gives canonical bytes and id of the last series.
    pub(crate) fn last_series(&self) -> Option<(&[u8], SeriesId)> {
        let series = self.batch.series.last()?;
        Some((&self.batch.label_bytes[series.start as usize..series.end as usize], series.id))
    }

    /// Removes the last series.
    pub(crate) fn pop_series(&mut self) {
        if let Some(series) = self.batch.series.pop() {
            self.batch.label_bytes.truncate(series.start as usize);
        }
    }

    /// Notes that a sample without a time gets that of its arrival.
    pub(crate) fn note_arrival(&mut self, now_ms: Millis) {
        self.batch.arrival = Some(now_ms);
    }

    /// Appends a float sample.
    #[inline]
    pub(crate) fn push_sample(&mut self, series: u32, ts: Millis, value: f64, start_ts: Millis) -> Result<()> {
        if self.batch.ts.len() >= self.samples_max {
            return Err(self.too_large());
        }
        // Memory is checked per series, but a single series may have all the samples.
        if self.batch.ts.len().is_multiple_of(SAMPLES_AT_ONCE) {
            decode_memory::hold(self.used())?;
        }
        self.batch.push_sample(series, ts, value, start_ts);
        Ok(())
    }

    /// Appends a native histogram.
    pub(crate) fn push_histogram(
        &mut self,
        series: u32,
        ts: Millis,
        histogram: Histogram,
        start_ts: Millis,
    ) -> Result<()> {
        self.charge(size_of::<HistogramSample>() + histogram.memory_bytes())?;
        self.batch.histograms.push(HistogramSample { series, ts, start_ts, histogram });
        Ok(())
    }

    /// Appends an exemplar, or counts it when its labels are not valid, or longer than exemplars may be.
    pub(crate) fn push_exemplar(
        &mut self,
        series: u32,
        ts: Millis,
        value: f64,
        labels: &mut LabelBuilder<'_>,
    ) -> Result<()> {
        let mut bytes = Vec::new();
        if labels.write_exemplar(&mut bytes).is_err() {
            self.charge(labels.bytes())?;
            self.reject(Reason::InvalidExemplar, 1, String::new);
            return Ok(());
        }
        self.charge(size_of::<Exemplar>() + bytes.capacity())?;
        self.batch.exemplars.push(Exemplar { series, ts, value, labels: bytes });
        Ok(())
    }

    /// Appends type, help and unit of a metric, within the memory of the request.
    pub(crate) fn push_metadata(&mut self, metadata: MetricMetadata) -> Result<()> {
        let all = &mut self.batch.metadata;
        if all.len() == all.capacity() {
            let more = (all.len() / 2).max(METADATA_MIN);
            // The old place and the new one.
            decode_memory::hold(self.used() + (self.batch.metadata.len() + more) * size_of::<MetricMetadata>())?;
            self.batch.metadata.reserve_exact(more);
        }
        let m = &metadata;
        let texts = [&m.metric, &m.help, &m.unit, &m.metric_type];
        self.charge(texts.iter().map(|text| text.len().next_multiple_of(TEXT_UNIT)).sum())?;
        self.batch.metadata.push(metadata);
        Ok(())
    }

    /// Says whether nothing has been rejected for this reason yet, so that an example is needed.
    pub(crate) fn rejected_first(&self, reason: Reason) -> bool {
        self.rejected.iter().all(|r| r.reason != reason)
    }

    /// Counts rejected things; the example is only made for the first.
    pub(crate) fn reject(&mut self, reason: Reason, count: u64, example: impl FnOnce() -> String) {
        if count == 0 {
            return;
        }
        if let Some(known) = self.rejected.iter_mut().find(|r| r.reason == reason) {
            known.count += count;
            return;
        }
        let example = match (&self.gate, reason) {
            // For rejected services the example is the first one's name.
            (Some(gate), Reason::Service) => gate.first_refused().to_owned(),
            _ => example(),
        };
        let example = example.chars().take(EXAMPLE_MAX_CHARS).collect();
        self.rejected.push(RejectedItems { reason, count, example });
    }

    pub(crate) fn finish(self) -> DecodedMetrics {
        let samples = self.batch.ts.len() as u64;
        let histograms = self.batch.histograms.len() as u64;
        let exemplars = self.batch.exemplars.len() as u64;
        DecodedMetrics { batch: self.batch, rejected: self.rejected, samples, histograms, exemplars }
    }
}

/// Writes a series as text for an error message: its canonical bytes as a selector.
pub(crate) fn series_text(canonical: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    let name = Pairs::new(canonical).find(|(n, _)| *n == quiver_types::label::METRIC_NAME).map_or("", |(_, v)| v);
    let _ = write!(text, "{name}{{");
    let others = Pairs::new(canonical).filter(|(n, _)| *n != quiver_types::label::METRIC_NAME);
    for (i, (name, value)) in others.enumerate() {
        let separator = if i == 0 { "" } else { ", " };
        let _ = write!(text, "{separator}{name}={value:?}");
        if text.len() > 4 * EXAMPLE_MAX_CHARS {
            break;
        }
    }
    text.push('}');
    text
}

#[cfg(test)]
mod tests {
    use quiver_types::ErrorKind;

    use super::*;

    #[test]
    fn bounds() {
        let mut sink = Sink::new(0, 100_000);
        let series = sink.push_series(|out| {
            out.extend([1, b'a', 1, b'b']);
            Ok(())
        });
        assert_eq!(series.unwrap(), Ok(0));
        let mut n = 0;
        let error = loop {
            match sink.push_sample(0, 1, 1.0, 0) {
                Ok(()) => n += 1,
                Err(e) => break e,
            }
        };
        assert_eq!((n, error.kind()), (100_000 / SAMPLE_BYTES, ErrorKind::TooLarge));
        let mut sink = Sink::new(0, 100_000);
        assert!((0..1000).any(|_| sink.push_histogram(0, 1, Histogram::default(), 0).is_err()));
        let mut sink = Sink::new(0, 1000);
        let write = |out: &mut Vec<u8>| {
            out.resize(out.len() + 600, 0);
            Ok(())
        };
        assert!(sink.push_series(write).is_ok());
        assert!(sink.push_series(write).is_err());
    }

    /// Breaks if memory is only reserved series by series: a single one may need all there is.
    #[test]
    fn one_series_asks_for_memory() {
        struct Nothing;
        impl decode_memory::DecodeRoom for Nothing {
            fn hold(&self, _: usize) -> bool {
                false
            }
        }
        let check = |push: &dyn Fn(&mut Sink) -> Result<()>| {
            let refused = decode_memory::within(Arc::new(Nothing), || {
                let mut sink = Sink::new(0, 1 << 30);
                (0..1 << 20).find_map(|_| push(&mut sink).err())
            });
            assert!(matches!(refused, Some(Error::NoRoom)), "{refused:?}");
        };
        check(&|sink| sink.push_sample(0, 1, 1.0, 0));
        check(&|sink| sink.push_histogram(0, 1, Histogram::default(), 0));
        check(&|sink| sink.charge(100));
    }

    #[test]
    fn metadata_counts_with_its_place() {
        let help = "h".repeat(100);
        let entry = || MetricMetadata {
            metric: "m".to_owned(),
            metric_type: "gauge".to_owned(),
            help: help.clone(),
            unit: String::new(),
        };
        // As the allocator rounds.
        let bytes = size_of::<MetricMetadata>() + 16 + 16 + 112;
        let mut sink = Sink::new(0, 1 << 20);
        let taken = (0..1 << 20).take_while(|_| sink.push_metadata(entry()).is_ok()).count();
        assert!(taken * bytes <= 1 << 20 && taken * bytes * 2 > 1 << 20, "{taken} entries");
    }

    /// Breaks if labels move to a larger place before there is memory for both.
    #[test]
    fn labels_that_move_take_memory_twice() {
        struct Few;
        impl decode_memory::DecodeRoom for Few {
            fn hold(&self, bytes: usize) -> bool {
                bytes <= 6 << 20
            }
        }
        let bytes = decode_memory::within(Arc::new(Few), || {
            let mut sink = Sink::new(1 << 20, 1 << 30);
            let write = |out: &mut Vec<u8>| {
                out.resize(out.len() + 30_000, 0);
                Ok(())
            };
            while sink.push_series(write).is_ok() {}
            sink.batch.label_bytes.len()
        });
        assert!((3 << 20..(4 << 20) + ROOM_BYTES_MIN).contains(&bytes), "{bytes} bytes, and as many beside them");
    }

    #[test]
    fn texts() {
        let mut sink = Sink::new(0, 1000);
        sink.reject(Reason::BadLine, 0, || unreachable!());
        sink.reject(Reason::BadLine, 1, || "x".repeat(1000));
        sink.reject(Reason::BadLine, 2, || unreachable!());
        sink.reject(Reason::InvalidExemplar, 1, String::new);
        let decoded = sink.finish();
        assert_eq!(decoded.rejected_count(|_| true), 4);
        let text = decoded.rejected_text(|r| !r.is_silent()).unwrap();
        assert_eq!(text, format!("3 rejected: bad line, first `{}`", "x".repeat(120)));
        assert_eq!(decoded.rejected_text(|_| false), None);
        assert_eq!(series_text(&[1, b'a', 1, b'b']), "{a=\"b\"}");
    }
}
