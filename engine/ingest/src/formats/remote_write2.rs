//! Prometheus remote write 2.0, message `io.prometheus.write.v2.Request`: texts are stored once in a symbol table,
//! and metadata and start times come with each series.
//!
//! Start times are given per sample and histogram (2.0-rc.4 and later), else per series. A series that cannot be
//! stored is counted with the reason; the rest is kept.

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use super::format::{ContentType, Format};
use super::native_histogram;
use super::remote_write::{self, METRIC_TYPES, push_metadata, records, reject_histograms, text_of};
use crate::content_encoding::Encoding;
use crate::context::Context;
use crate::decoded::{DecodedMetrics, Sink};
use crate::error::Result;
use crate::labels::LabelBuilder;
use crate::rejection::Reason;
use crate::wire::{self, BYTES, FIXED64, Reader, VARINT, WireError, tag};

/// Prometheus remote write 2.0.
pub const FORMAT: Format = Format {
    name: "remote_write2",
    paths: remote_write::PATHS,
    content_types: &[ContentType { media: "application/x-protobuf", proto: Some("io.prometheus.write.v2.Request") }],
    is_default: false,
    encodings: &[Encoding::Snappy, Encoding::Zstd],
    default_encoding: Encoding::Snappy,
    decode,
};

const SYMBOLS: u32 = tag(4, BYTES);
const TIMESERIES: u32 = tag(5, BYTES);
const SAMPLES: u32 = tag(2, BYTES);
const HISTOGRAMS: u32 = tag(3, BYTES);
const EXEMPLARS: u32 = tag(4, BYTES);
const METADATA: u32 = tag(5, BYTES);
const CREATED_TIMESTAMP: u32 = tag(6, VARINT);

/// Decodes an `io.prometheus.write.v2.Request`.
///
/// # Errors
/// Invalid: not this message. TooLarge: more than the limits allow.
pub fn decode(body: &[u8], ctx: &Context<'_>) -> Result<DecodedMetrics> {
    let mut sink = Sink::new(body.len(), ctx.limits.batch_bytes_max).of_sender(ctx.sender);
    // Two passes, since the symbols may follow the series.
    let mut symbols = Vec::new();
    let mut r = Reader::new(body);
    while !r.is_empty() {
        match r.tag()? {
            SYMBOLS => {
                sink.charge(size_of::<&[u8]>())?;
                symbols.push(r.bytes()?);
            }
            TIMESERIES => drop(r.bytes()?),
            other => r.skip(other, &[4, 5])?,
        }
    }
    let mut series = SeriesReader {
        bad_table: symbols.first().is_some_and(|s| !s.is_empty()),
        symbols,
        labels: LabelBuilder::default(),
        exemplar_labels: LabelBuilder::default(),
        seen_metadata: HashSet::default(),
    };
    let mut r = Reader::new(body);
    while !r.is_empty() {
        match r.tag()? {
            TIMESERIES => series.read(r.bytes()?, &mut sink)?,
            other => r.skip_value(other & 7)?,
        }
    }
    Ok(sink.finish())
}

/// Metadata of a series: type, and references to help and unit.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
struct MetadataRefs {
    kind: u32,
    help: u32,
    unit: u32,
}

/// The symbols, and buffers that are reused for all series of a request.
#[derive(Debug)]
struct SeriesReader<'a> {
    symbols: Vec<&'a [u8]>,
    bad_table: bool,
    labels: LabelBuilder<'a>,
    exemplar_labels: LabelBuilder<'a>,
    /// Metadata comes with each series, but is stored once per metric.
    seen_metadata: HashSet<(&'a [u8], MetadataRefs), FixedState>,
}

impl<'a> SeriesReader<'a> {
    fn read(&mut self, message: &'a [u8], sink: &mut Sink) -> Result<()> {
        self.labels.clear();
        let mark = sink.mark();
        let number = sink.next_series();
        let (mut bad_histograms, mut bad_exemplars) = (None, 0);
        let (mut refs_ok, mut is_empty, mut created_ts) = (!self.bad_table, true, 0);
        let mut metadata = MetadataRefs::default();
        let mut label_refs = Refs::new(&self.symbols);
        let mut r = Reader::new(message);
        while !r.is_empty() {
            let tag = r.tag()?;
            match tag {
                SAMPLES => {
                    let (ts, value, start_ts) = sample(r.bytes()?)?;
                    sink.push_sample(number, ts, value, start_ts)?;
                    is_empty = false;
                }
                HISTOGRAMS => {
                    let mut h = native_histogram::read(r.bytes()?)?;
                    is_empty = false;
                    match h.check() {
                        Ok(()) => sink.push_histogram(number, h.ts, h.histogram, h.start_ts)?,
                        Err(what) => bad_histograms = Some((bad_histograms.map_or(1, |(n, _)| n + 1), what)),
                    }
                }
                EXEMPLARS => match exemplar(r.bytes()?, &self.symbols, &mut self.exemplar_labels)? {
                    Some((ts, value)) => sink.push_exemplar(number, ts, value, &mut self.exemplar_labels)?,
                    None => bad_exemplars += 1,
                },
                METADATA => metadata = metadata_refs(r.bytes()?)?,
                CREATED_TIMESTAMP => created_ts = r.varint()? as i64,
                _ if tag >> 3 == 1 => label_refs.read(&mut r, tag & 7, &mut self.labels)?,
                _ => r.skip(tag, &[1, 2, 3, 4, 5])?,
            }
        }
        refs_ok &= label_refs.finish();
        let written = if !refs_ok {
            Err(Reason::BadSymbols)
        } else if is_empty {
            Err(Reason::EmptySeries)
        } else {
            sink.push_series(|out| self.labels.write_series(out))?
        };
        let name = self.labels.get(b"__name__");
        if let Err(reason) = written {
            let count = records(reason, mark, sink);
            sink.rewind(mark);
            sink.charge(self.labels.bytes())?;
            sink.reject(reason, count, || text_of(name));
            return Ok(());
        }
        if created_ts != 0 {
            fill_start_times(sink, mark.samples, mark.histograms, created_ts);
        }
        sink.reject(Reason::InvalidExemplar, bad_exemplars, || text_of(name));
        if let Some((count, what)) = bad_histograms {
            reject_histograms(sink, number, count, what);
        }
        if sink.mark() == mark {
            sink.pop_series();
        }
        self.keep_metadata(name.unwrap_or_default(), metadata, sink)
    }

    fn keep_metadata(&mut self, series_name: &'a [u8], refs: MetadataRefs, sink: &mut Sink) -> Result<()> {
        if refs == MetadataRefs::default() {
            return Ok(());
        }
        let name = family(series_name, refs.kind);
        if !self.seen_metadata.insert((name, refs)) {
            return Ok(());
        }
        sink.charge(size_of::<(&[u8], MetadataRefs)>())?;
        let symbol = |idx: u32| self.symbols.get(idx as usize);
        let (Some(help), Some(unit)) = (symbol(refs.help), symbol(refs.unit)) else {
            sink.reject(Reason::InvalidMetadata, 1, || text_of(Some(name)));
            return Ok(());
        };
        if refs.kind == 0 && help.is_empty() && unit.is_empty() {
            return Ok(());
        }
        push_metadata(u64::from(refs.kind), name, help, unit, sink)
    }
}

/// The metric family of a series, by which `/api/v1/metadata` is queried.
fn family(name: &[u8], kind: u32) -> &[u8] {
    let suffixes: &[&[u8]] = match METRIC_TYPES.get(kind as usize) {
        Some(&"histogram" | &"gaugehistogram") => &[b"_bucket", b"_sum", b"_count"],
        Some(&"summary") => &[b"_sum", b"_count"],
        _ => &[],
    };
    let stripped = suffixes.iter().find_map(|suffix| name.strip_suffix(*suffix));
    stripped.filter(|family| !family.is_empty()).unwrap_or(name)
}

/// Sets the series' start time on samples and histograms from a mark on that have none of their own.
fn fill_start_times(sink: &mut Sink, samples: usize, histograms: usize, start_ts: i64) {
    let batch = &mut sink.batch;
    if batch.ts.len() > samples {
        batch.start_ts.resize(batch.ts.len(), 0);
        batch.start_ts[samples..].iter_mut().filter(|s| **s == 0).for_each(|s| *s = start_ts);
    }
    batch.histograms[histograms..].iter_mut().filter(|h| h.start_ts == 0).for_each(|h| h.start_ts = start_ts);
}

/// Reads pairs of references to symbols, across the chunks of a list.
struct Refs<'t, 'a> {
    symbols: &'t [&'a [u8]],
    name: Option<&'a [u8]>,
    ok: bool,
}

impl<'t, 'a> Refs<'t, 'a> {
    fn new(symbols: &'t [&'a [u8]]) -> Self {
        Self { symbols, name: None, ok: true }
    }

    #[inline]
    fn read(&mut self, r: &mut Reader<'_>, wire_type: u32, labels: &mut LabelBuilder<'a>) -> Result<(), WireError> {
        wire::varints(r, wire_type, |idx| {
            let Some(symbol) = usize::try_from(idx).ok().and_then(|idx| self.symbols.get(idx)) else {
                self.ok = false;
                return;
            };
            match self.name.take() {
                None => self.name = Some(symbol),
                Some(name) => labels.push(name, symbol),
            }
        })
    }

    /// Whether all references were valid and came in pairs.
    fn finish(self) -> bool {
        self.ok && self.name.is_none()
    }
}

#[inline]
fn sample(message: &[u8]) -> Result<(i64, f64, i64), WireError> {
    let (mut ts, mut value, mut start_ts) = (0, 0.0, 0);
    let mut r = Reader::new(message);
    while !r.is_empty() {
        match r.tag()? {
            0x09 => value = r.double()?,
            0x10 => ts = r.varint()? as i64,
            0x18 => start_ts = r.varint()? as i64,
            other => r.skip(other, &[1, 2, 3])?,
        }
    }
    Ok((ts, value, start_ts))
}

/// Reads an exemplar; `None` if its references are invalid.
fn exemplar<'a>(
    message: &[u8],
    symbols: &[&'a [u8]],
    labels: &mut LabelBuilder<'a>,
) -> Result<Option<(i64, f64)>, WireError> {
    const VALUE: u32 = tag(2, FIXED64);
    const TIMESTAMP: u32 = tag(3, VARINT);
    let (mut ts, mut value) = (0, 0.0);
    labels.clear();
    let mut refs = Refs::new(symbols);
    let mut r = Reader::new(message);
    while !r.is_empty() {
        let tag = r.tag()?;
        match tag {
            VALUE => value = r.double()?,
            TIMESTAMP => ts = r.varint()? as i64,
            _ if tag >> 3 == 1 => refs.read(&mut r, tag & 7, labels)?,
            _ => r.skip(tag, &[1, 2, 3])?,
        }
    }
    Ok(refs.finish().then_some((ts, value)))
}

/// Numbers beyond 32 bits become the greatest index, which is outside of any table.
fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn metadata_refs(message: &[u8]) -> Result<MetadataRefs, WireError> {
    let mut refs = MetadataRefs::default();
    let mut r = Reader::new(message);
    while !r.is_empty() {
        match r.tag()? {
            0x08 => refs.kind = narrow(r.varint()?),
            0x18 => refs.help = narrow(r.varint()?),
            0x20 => refs.unit = narrow(r.varint()?),
            other => r.skip(other, &[1, 3, 4])?,
        }
    }
    Ok(refs)
}

#[cfg(test)]
mod tests;
