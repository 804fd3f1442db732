//! The histogram message of remote write, the same in both versions (2.0 adds a start time).

use quiver_types::{Histogram, Millis, ResetHint, Span};

use crate::histogram::{self, BUCKETS_MAX};
use crate::wire::{self, BYTES, FIXED64, Reader, VARINT, WireError, tag, zigzag};

/// A histogram as received, not yet validated.
#[derive(Debug)]
pub(super) struct HistogramMessage {
    pub(super) histogram: Histogram,
    pub(super) ts: Millis,
    pub(super) start_ts: Millis,
    oversized: bool,
}

impl HistogramMessage {
    /// Validates the histogram and reduces it to what is stored. The error is the reason for refusal.
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

/// Reads the message. Which count is set decides whether buckets are given as deltas or as counts.
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

/// Appends to a list that must not become much larger than the message.
fn push<T>(list: &mut Vec<T>, value: T, oversized: &mut bool) {
    if list.len() < BUCKETS_MAX {
        list.push(value);
    } else {
        *oversized = true;
    }
}

/// Converts deltas between buckets to counts. Integer sums may wrap, which leads to a negative count or a wrong total
/// that validation refuses.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{put_bytes, put_varint};

    /// A field with a number.
    fn number(out: &mut Vec<u8>, field: u32, value: u64) {
        put_varint(out, u64::from(tag(field, VARINT)));
        put_varint(out, value);
    }

    fn double(out: &mut Vec<u8>, field: u32, value: f64) {
        put_varint(out, u64::from(tag(field, FIXED64)));
        out.extend(value.to_le_bytes());
    }

    fn packed(out: &mut Vec<u8>, field: u32, values: &[i64]) {
        let mut list = Vec::new();
        for v in values {
            put_varint(&mut list, (v << 1 ^ v >> 63) as u64);
        }
        put_bytes(out, field, &list);
    }

    fn built(build: impl FnOnce(&mut Vec<u8>)) -> HistogramMessage {
        let mut message = Vec::new();
        build(&mut message);
        read(&message).unwrap()
    }

    #[test]
    fn counts_say_what_buckets_are() {
        let both = |out: &mut Vec<u8>| {
            packed(out, 12, &[5, -2, 0]);
            double(out, 13, 0.5);
            put_bytes(out, 13, &[1.5_f64, 2.5].map(f64::to_le_bytes).concat());
        };
        let h = built(|out| {
            number(out, 1, 11);
            both(out);
        });
        assert_eq!((h.histogram.float, h.histogram.count, h.histogram.positive), (false, 11.0, vec![5.0, 3.0, 3.0]));
        let h = built(|out| {
            both(out);
            double(out, 2, 4.5);
        });
        assert_eq!((h.histogram.float, h.histogram.count, h.histogram.positive), (true, 4.5, vec![0.5, 1.5, 2.5]));
        // Unpacked as well as packed.
        let h = built(|out| [10, 3, 0].iter().for_each(|delta| number(out, 12, *delta)));
        assert_eq!(h.histogram.positive, [5.0, 3.0, 3.0]);
        let h = built(|out| packed(out, 9, &[-1, 3]));
        assert_eq!(h.histogram.negative, [-1.0, 2.0]);
    }

    #[test]
    fn numbers_at_their_borders() {
        let h = built(|out| {
            number(out, 4, 105); // -53
            number(out, 14, 2);
            number(out, 15, (-5_i64) as u64);
            number(out, 17, i64::MAX as u64);
            number(out, 99, 1);
        });
        assert_eq!((h.histogram.schema, h.histogram.reset_hint), (-53, ResetHint::NotReset));
        assert_eq!((h.ts, h.start_ts), (-5, i64::MAX));
        for (hint, expected) in
            [(0, ResetHint::Unknown), (3, ResetHint::Gauge), (4, ResetHint::Unknown), (257, ResetHint::Unknown)]
        {
            assert_eq!(built(|out| number(out, 14, hint)).histogram.reset_hint, expected, "{hint}");
        }
        // Deltas past 64 bits wrap, which makes counts negative.
        let mut wraps = built(|out| {
            number(out, 1, 1);
            put_bytes(out, 11, &[0x10, 2]);
            packed(out, 12, &[i64::MAX, 1]);
        });
        assert_eq!(wraps.check(), Err("negative count"));
        let spans = built(|out| put_bytes(out, 11, &[0x08, 0x03, 0x10, 0x07])).histogram.positive_spans;
        assert_eq!(spans, [Span { offset: -2, length: 7 }]);
        assert!(matches!(read(&[0x22, 0]), Err(WireError::WrongType)), "a schema of bytes");
        assert!(matches!(read(&[0x61, 0, 0, 0, 0, 0, 0, 0, 0]), Err(WireError::WrongType)), "deltas of doubles");
        assert!(matches!(read(&[0x5a, 2, 0x0a, 0]), Err(WireError::WrongType)), "an offset of bytes");
        assert!(matches!(read(&[0x6a, 3, 0, 0, 0]), Err(WireError::Truncated)), "three bytes of a double");
    }

    #[test]
    fn buckets_are_bounded() {
        let with = |buckets: usize| {
            built(|out| {
                put_bytes(out, 12, &vec![0_u8; buckets]);
                put_bytes(out, 11, &[0x10, 0x80, 0x80, 0x04]);
            })
        };
        assert_eq!(with(BUCKETS_MAX).check(), Ok(()));
        let mut more = with(BUCKETS_MAX + 1);
        assert_eq!((more.check(), more.histogram.positive.len()), (Err("too many buckets"), BUCKETS_MAX));
        let mut spans = built(|out| (0..=BUCKETS_MAX).for_each(|_| put_bytes(out, 8, &[])));
        assert_eq!((spans.check(), spans.histogram.negative_spans.len()), (Err("too many buckets"), BUCKETS_MAX));
    }
}
