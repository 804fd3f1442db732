//! Prometheus remote write 1.0, message `prometheus.WriteRequest`.
//!
//! This is the hot path of the service: one pass over the body, labels are copied once, and samples are pushed
//! directly into columns. A series with invalid labels is rolled back and counted; an invalid histogram or exemplar
//! is dropped alone.

use quiver_types::SeriesId;
use quiver_types::metrics::MetricMetadata;

use super::format::{ContentType, Format};
use super::native_histogram;
use crate::content_encoding::Encoding;
use crate::context::{Context, Limits};
use crate::decoded::{DecodedMetrics, Mark, Sink, series_text};
use crate::error::Result;
use crate::label_cache::KNOWN;
use crate::labels::{LabelBuilder, TEXT_MAX_BYTES};
use crate::rejection::Reason;
use crate::wire::{BYTES, FIXED64, Reader, VARINT, WireError, pair, tag};

/// The path, shared with version 2.0.
pub const PATHS: &[&str] = &["/metrics-api/api/v1/write"];

/// Prometheus remote write 1.0.
pub const FORMAT: Format = Format {
    name: "remote_write",
    paths: PATHS,
    content_types: &[
        ContentType { media: "application/x-protobuf", proto: Some("") },
        ContentType { media: "application/x-protobuf", proto: Some("prometheus.WriteRequest") },
    ],
    is_default: true,
    encodings: &[Encoding::Snappy, Encoding::Zstd],
    default_encoding: Encoding::Snappy,
    decode,
};

const TIMESERIES: u32 = tag(1, BYTES);
const METADATA: u32 = tag(3, BYTES);
const LABELS: u32 = tag(1, BYTES);
const SAMPLES: u32 = tag(2, BYTES);
const EXEMPLARS: u32 = tag(3, BYTES);
const HISTOGRAMS: u32 = tag(4, BYTES);

/// Decodes a `prometheus.WriteRequest`.
///
/// # Errors
/// Invalid: not this message. TooLarge: more than the limits allow.
pub fn decode(body: &[u8], ctx: &Context<'_>) -> Result<DecodedMetrics> {
    let mut sink = Sink::new(body.len(), ctx.limits.batch_bytes_max).of_sender(ctx.sender);
    let mut series = SeriesReader::new(&ctx.limits);
    let mut r = Reader::new(body);
    while !r.is_empty() {
        match r.tag()? {
            TIMESERIES => series.read(r.bytes()?, &mut sink)?,
            METADATA => metadata(r.bytes()?, &mut sink)?,
            other => r.skip(other, &[1, 3])?,
        }
    }
    Ok(sink.finish())
}

/// Buffers that are reused for all series of a request.
#[derive(Debug)]
struct SeriesReader<'a> {
    labels: LabelBuilder<'a>,
    exemplar_labels: LabelBuilder<'a>,
    known_labels_bytes_max: usize,
}

impl<'a> SeriesReader<'a> {
    fn new(limits: &Limits) -> Self {
        Self {
            labels: LabelBuilder::default(),
            exemplar_labels: LabelBuilder::default(),
            known_labels_bytes_max: limits.known_labels_bytes_max,
        }
    }

    fn read(&mut self, message: &'a [u8], sink: &mut Sink) -> Result<()> {
        self.labels.clear();
        let mark = sink.mark();
        // Fields may come in any order, so samples are pushed under the number that the series is going to get.
        let number = sink.next_series();
        let mut bad_histograms = None;
        let (labels, rest) = message.split_at(labels_end(message));
        let mut scattered = false;
        let mut r = Reader::new(rest);
        while !r.is_empty() {
            match r.tag()? {
                LABELS => {
                    if !std::mem::replace(&mut scattered, true) {
                        self.read_labels(labels)?;
                    }
                    let (name, value) = pair(r.bytes()?)?;
                    self.labels.push(name, value);
                }
                SAMPLES => {
                    let (ts, value) = sample(r.bytes()?)?;
                    sink.push_sample(number, ts, value, 0)?;
                }
                HISTOGRAMS => {
                    let mut h = native_histogram::read(r.bytes()?)?;
                    match h.check() {
                        Ok(()) => sink.push_histogram(number, h.ts, h.histogram, 0)?,
                        Err(what) => bad_histograms = Some((bad_histograms.map_or(1, |(n, _)| n + 1), what)),
                    }
                }
                EXEMPLARS => {
                    let (ts, value) = exemplar(r.bytes()?, &mut self.exemplar_labels)?;
                    sink.push_exemplar(number, ts, value, &mut self.exemplar_labels)?;
                }
                other => r.skip(other, &[1, 2, 3, 4])?,
            }
        }
        let pushed = if scattered {
            sink.push_series(|out| self.labels.write_series(out))?
        } else {
            self.push_series(labels, sink)?
        };
        if let Err(reason) = pushed {
            let count = records(reason, mark, sink);
            sink.rewind(mark);
            sink.charge(self.labels.bytes())?;
            sink.reject(reason, count, || text_of(self.labels.get(b"__name__")));
            return Ok(());
        }
        if let Some((count, what)) = bad_histograms {
            reject_histograms(sink, number, count, what);
        }
        if sink.mark() == mark {
            sink.pop_series();
        }
        Ok(())
    }

    fn read_labels(&mut self, fields: &'a [u8]) -> Result<()> {
        let mut r = Reader::new(fields);
        while !r.is_empty() {
            r.tag()?;
            let (name, value) = pair(r.bytes()?)?;
            self.labels.push(name, value);
        }
        Ok(())
    }

    /// Appends the series with these labels; the cache has those seen before.
    fn push_series(&mut self, labels: &'a [u8], sink: &mut Sink) -> Result<Result<u32, Reason>> {
        let key = SeriesId::of(labels);
        if let Some(pushed) = KNOWN.with(key, |canonical, id| sink.push_known(canonical, id)) {
            return pushed;
        }
        self.read_labels(labels)?;
        let pushed = sink.push_series(|out| self.labels.write_series(out))?;
        if let (Ok(_), false, Some((canonical, id))) = (&pushed, sink.was_named(), sink.last_series()) {
            KNOWN.insert(key, canonical, id, self.known_labels_bytes_max);
        }
        Ok(pushed)
    }
}

/// How many records a dropped series counts as: one, or its number of samples if its sender may not write it.
pub(super) fn records(reason: Reason, mark: Mark, sink: &Sink) -> u64 {
    let now = sink.mark();
    let samples = now.samples - mark.samples + now.histograms - mark.histograms;
    if reason == Reason::Service { samples.max(1) as u64 } else { 1 }
}

/// The end of the label fields at the beginning of a series; all senders write them first.
fn labels_end(message: &[u8]) -> usize {
    let mut r = Reader::new(message);
    let mut end = 0;
    while r.tag() == Ok(LABELS) && r.bytes().is_ok() {
        end = message.len() - r.rest_len();
    }
    end
}

/// Counts invalid histograms of the series that was pushed last.
#[cold]
pub(super) fn reject_histograms(sink: &mut Sink, number: u32, count: u64, what: &str) {
    let is_first = sink.rejected_first(Reason::InvalidHistogram);
    let example = if is_first { format!("{what}: {}", series_text(sink.batch.labels(number))) } else { String::new() };
    sink.reject(Reason::InvalidHistogram, count, || example);
}

/// Shows bytes that may not be valid text.
pub(super) fn text_of(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.map(|b| &b[..b.len().min(256)]).unwrap_or_default()).into_owned()
}

#[inline]
fn sample(message: &[u8]) -> Result<(i64, f64), WireError> {
    let (mut ts, mut value) = (0, 0.0);
    let mut r = Reader::new(message);
    while !r.is_empty() {
        match r.tag()? {
            0x09 => value = r.double()?,
            0x10 => ts = r.varint()? as i64,
            other => r.skip(other, &[1, 2])?,
        }
    }
    Ok((ts, value))
}

fn exemplar<'a>(message: &'a [u8], labels: &mut LabelBuilder<'a>) -> Result<(i64, f64), WireError> {
    const VALUE: u32 = tag(2, FIXED64);
    const TIMESTAMP: u32 = tag(3, VARINT);
    let (mut ts, mut value) = (0, 0.0);
    labels.clear();
    let mut r = Reader::new(message);
    while !r.is_empty() {
        match r.tag()? {
            LABELS => {
                let (name, value) = pair(r.bytes()?)?;
                labels.push(name, value);
            }
            VALUE => value = r.double()?,
            TIMESTAMP => ts = r.varint()? as i64,
            other => r.skip(other, &[1, 2, 3])?,
        }
    }
    Ok((ts, value))
}

/// Names of the metric types by number. Both versions use the same numbers.
pub(super) const METRIC_TYPES: [&str; 8] =
    ["unknown", "counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset"];

fn metadata(message: &[u8], sink: &mut Sink) -> Result<()> {
    let (mut kind, mut name, mut help, mut unit): (u64, &[u8], &[u8], &[u8]) = (0, b"", b"", b"");
    let mut r = Reader::new(message);
    while !r.is_empty() {
        match r.tag()? {
            0x08 => kind = r.varint()?,
            0x12 => name = r.bytes()?,
            0x22 => help = r.bytes()?,
            0x2a => unit = r.bytes()?,
            other => r.skip(other, &[1, 2, 4, 5])?,
        }
    }
    push_metadata(kind, name, help, unit, sink)
}

/// Appends metadata; entries that are no text, have no name or are too long are counted.
pub(super) fn push_metadata(kind: u64, name: &[u8], help: &[u8], unit: &[u8], sink: &mut Sink) -> Result<()> {
    let text = |bytes: &[u8]| {
        let text = (bytes.len() <= TEXT_MAX_BYTES).then(|| std::str::from_utf8(bytes).ok()).flatten();
        text.map(str::to_owned)
    };
    let texts = (text(name).filter(|n| !n.is_empty()), text(help), text(unit));
    let (Some(metric), Some(help), Some(unit)) = texts else {
        sink.reject(Reason::InvalidMetadata, 1, || text_of(Some(name)));
        return sink.charge(name.len() + help.len() + unit.len());
    };
    let metric_type = METRIC_TYPES.get(kind as usize).unwrap_or(&METRIC_TYPES[0]);
    sink.push_metadata(MetricMetadata { metric, metric_type: (*metric_type).to_owned(), help, unit })
}

#[cfg(test)]
mod tests;
