//! The histogram message of remote write, the same in both versions (2.0 adds a start time).

use quiver_types::{Histogram, Millis, ResetHint, Span};

use crate::histogram::{self, BUCKETS_MAX};
use crate::wire::{self, BYTES, FIXED64, Reader, VARINT, WireError, tag, zigzag};

/// A histogram as it came, not checked.
#[derive(Debug)]
pub(super) struct HistogramMessage {
    pub(super) histogram: Histogram,
    pub(super) ts: Millis,
    pub(super) start_ts: Millis,
    oversized: bool,
}

impl HistogramMessage {
    /// Checks the histogram, and reduces it to what is stored. The error says what is wrong.
    pub(super) fn check(&mut self) -> Result<(), &'static str> {
        if self.oversized { Err("too many buckets") } else { histogram::check(&mut self.histogram) }
    }
}

/// Field numbers of `prometheus.Histogram` and `io.prometheus.write.v2.Histogram`.
const KNOWN: &[u32] = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

const COUNT_INT: u32 = tag(1, VARINT);
const COUNT_FLOAT: u32 = tag(2, FIXED64);
const SUM: u32 = tag(3, FIXED64);
const SCHEMA: u32 = tag(4, VARINT);
const ZERO_THRESHOLD: u32 = tag(5, FIXED64);
const ZERO_COUNT_INT: u32 = tag(6, VARINT);
const ZERO_COUNT_FLOAT: u32 = tag(7, FIXED64);
const NEGATIVE_SPANS: u32 = tag(8, BYTES);
const POSITIVE_SPANS: u32 = tag(11, BYTES);
const RESET_HINT: u32 = tag(14, VARINT);
const TIMESTAMP: u32 = tag(15, VARINT);
const START_TIMESTAMP: u32 = tag(17, VARINT);

/// Reads the message. Which of deltas and counts are the buckets follows from which count is given.
pub(super) fn read(message: &[u8]) -> Result<HistogramMessage, WireError> {
    let mut h = Histogram::default();
    let (mut ts, mut start_ts) = (0, 0);
    let (mut positive_deltas, mut negative_deltas) = (Vec::new(), Vec::new());
    let mut oversized = false;
    let mut r = Reader::new(message);
    while !r.is_empty() {
        let tag = r.tag()?;
        match tag {
            COUNT_INT => (h.count, h.float) = (r.varint()? as f64, false),
            COUNT_FLOAT => (h.count, h.float) = (r.double()?, true),
            SUM => h.sum = r.double()?,
            SCHEMA => h.schema = zigzag(r.varint()?) as i32,
            ZERO_THRESHOLD => h.zero_threshold = r.double()?,
            ZERO_COUNT_INT => h.zero_count = r.varint()? as f64,
            ZERO_COUNT_FLOAT => h.zero_count = r.double()?,
            NEGATIVE_SPANS => push(&mut h.negative_spans, span(r.bytes()?)?, &mut oversized),
            POSITIVE_SPANS => push(&mut h.positive_spans, span(r.bytes()?)?, &mut oversized),
            RESET_HINT => h.reset_hint = ResetHint::from_number(r.varint()?.min(255) as u8),
            TIMESTAMP => ts = r.varint()? as i64,
            START_TIMESTAMP => start_ts = r.varint()? as i64,
            _ => match tag >> 3 {
                9 => wire::varints(&mut r, tag & 7, |v| push(&mut negative_deltas, zigzag(v), &mut oversized))?,
                10 => wire::fixed64s(&mut r, tag & 7, |v| push(&mut h.negative, f64::from_bits(v), &mut oversized))?,
                12 => wire::varints(&mut r, tag & 7, |v| push(&mut positive_deltas, zigzag(v), &mut oversized))?,
                13 => wire::fixed64s(&mut r, tag & 7, |v| push(&mut h.positive, f64::from_bits(v), &mut oversized))?,
                16 => {
                    wire::fixed64s(&mut r, tag & 7, |v| push(&mut h.custom_bounds, f64::from_bits(v), &mut oversized))?;
                }
                _ => r.skip(tag, KNOWN)?,
            },
        }
    }
    if !h.float {
        h.positive = absolute(&positive_deltas);
        h.negative = absolute(&negative_deltas);
    }
    Ok(HistogramMessage { histogram: h, ts, start_ts, oversized })
}

/// Appends to a list that must not outgrow the wire by much.
fn push<T>(list: &mut Vec<T>, value: T, oversized: &mut bool) {
    if list.len() < BUCKETS_MAX {
        list.push(value);
    } else {
        *oversized = true;
    }
}

/// Turns deltas from bucket to bucket into counts. Summed as integers; wrapping shows as a negative count or a wrong
/// sum, which the check refuses.
fn absolute(deltas: &[i64]) -> Vec<f64> {
    let counts = deltas.iter().scan(0i64, |count, delta| {
        *count = count.wrapping_add(*delta);
        Some(*count as f64)
    });
    counts.collect()
}

fn span(message: &[u8]) -> Result<Span, WireError> {
    let mut span = Span { offset: 0, length: 0 };
    let mut r = Reader::new(message);
    while !r.is_empty() {
        let tag = r.tag()?;
        match tag {
            0x08 => span.offset = zigzag(r.varint()?) as i32,
            0x10 => span.length = r.varint()? as u32,
            _ => r.skip(tag, &[1, 2])?,
        }
    }
    Ok(span)
}
