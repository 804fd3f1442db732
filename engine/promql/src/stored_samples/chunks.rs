//! Samples of a series as Prometheus chunks: floats XOR-encoded, native histograms in separate chunks.
//!
//! Layout: Prometheus 3.14 `tsdb/chunkenc` (`xor.go`, `histogram.go`, `float_histogram.go`, `histogram_meta.go`). A
//! histogram chunk contains a single histogram, so that each has its own buckets and counter reset hint, as in the
//! store. (The hint of a chunk's first histogram that there was no reset reads as unknown; readers that need it detect
//! resets themselves.)

use quiver_types::histogram::{CUSTOM_SCHEMA, Span};
use quiver_types::{Histogram, ResetHint};

use super::bit_writer::{BitWriter, fits};
use crate::kernel::SeriesSamples;

/// Samples per float chunk, as in Prometheus itself.
const SAMPLES_MAX: usize = 120;

/// The encoding of a chunk: the numbers of `prometheus.Chunk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Floats, as XOR of neighbours (Gorilla).
    Xor = 1,
    /// A histogram of whole counts.
    Histogram = 2,
    /// A histogram of float counts.
    FloatHistogram = 3,
}

impl Encoding {
    /// The encoding with this number.
    pub(crate) fn of(number: u8) -> Option<Self> {
        [Self::Xor, Self::Histogram, Self::FloatHistogram].into_iter().find(|encoding| *encoding as u8 == number)
    }
}

/// Some samples of one series, encoded as Prometheus' TSDB does.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// Time of the first sample, Unix milliseconds.
    pub min_ms: i64,
    /// Time of the last sample, Unix milliseconds.
    pub max_ms: i64,
    /// The encoding of `data`.
    pub encoding: Encoding,
    /// The bytes of the chunk, without its length and checksum.
    pub data: Vec<u8>,
}

/// Calls a function with the chunks of a series, in time order.
pub(crate) fn chunks(samples: &SeriesSamples<'_>, mut give: impl FnMut(Chunk)) {
    let (mut float, mut hist) = (0, 0);
    while float < samples.ts.len() || hist < samples.hist_ts.len() {
        let next_hist = samples.hist_ts.get(hist).copied().unwrap_or(i64::MAX);
        let end = float + samples.ts[float..].iter().take(SAMPLES_MAX).take_while(|t| **t < next_hist).count();
        if end > float {
            give(xor(&samples.ts[float..end], &samples.values[float..end]));
            float = end;
        } else {
            give(histogram(next_hist, &samples.hists[hist]));
            hist += 1;
        }
    }
}

/// Encodes floats; at least one and at most 65535.
fn xor(ts: &[i64], values: &[f64]) -> Chunk {
    let mut w = BitWriter::new((ts.len() as u16).to_be_bytes().to_vec());
    let (mut delta, mut window) = (0, None);
    for (i, (&t, &v)) in ts.iter().zip(values).enumerate() {
        if i == 0 {
            w.varint(t);
            w.double(v);
            continue;
        }
        let new = t.wrapping_sub(ts[i - 1]);
        if i == 1 {
            w.uvarint(new as u64);
        } else {
            delta_of_delta(&mut w, new.wrapping_sub(delta));
        }
        delta = new;
        difference(&mut w, values[i - 1].to_bits() ^ v.to_bits(), &mut window);
    }
    Chunk { min_ms: ts[0], max_ms: ts[ts.len() - 1], encoding: Encoding::Xor, data: w.finish() }
}

fn delta_of_delta(w: &mut BitWriter, value: i64) {
    if value == 0 {
        return w.bit(false);
    }
    for (prefix, prefix_bits, bits) in [(0b10, 2, 14), (0b110, 3, 17), (0b1110, 4, 20)] {
        if fits(value, bits) {
            w.bits(prefix, prefix_bits);
            return w.bits(value as u64, bits);
        }
    }
    w.bits(0b1111, 4);
    w.bits(value as u64, 64);
}

/// Writes the bits in which a value differs from the previous one; `window` is the last written range of bits.
fn difference(w: &mut BitWriter, xor: u64, window: &mut Option<(u32, u32)>) {
    if xor == 0 {
        return w.bit(false);
    }
    w.bit(true);
    // The number of leading zero bits is stored in five bits.
    let (leading, trailing) = (xor.leading_zeros().min(31), xor.trailing_zeros());
    if let Some((l, t)) = *window
        && leading >= l
        && trailing >= t
    {
        w.bit(false);
        return w.bits(xor >> t, 64 - l - t);
    }
    *window = Some((leading, trailing));
    w.bit(true);
    w.bits(u64::from(leading), 5);
    let significant = 64 - leading - trailing;
    // 64 is stored as 0, because there is always at least one bit.
    w.bits(u64::from(significant), 6);
    w.bits(xor >> trailing, significant);
}

/// Encodes one histogram.
fn histogram(ts: i64, h: &Histogram) -> Chunk {
    // Of a stale marker only the sum is significant.
    let empty = Histogram { sum: h.sum, float: h.float, reset_hint: h.reset_hint, ..Histogram::default() };
    let h = if h.is_stale() { &empty } else { h };
    let hint = match h.reset_hint {
        ResetHint::Unknown => 0,
        ResetHint::Reset => 0b1000_0000,
        ResetHint::NotReset => 0b0100_0000,
        ResetHint::Gauge => 0b1100_0000,
    };
    let mut w = BitWriter::new(vec![0, 1, hint]);
    zero_threshold(&mut w, h.zero_threshold);
    w.varbit(i64::from(h.schema));
    spans(&mut w, &h.positive_spans);
    spans(&mut w, &h.negative_spans);
    if h.schema == CUSTOM_SCHEMA {
        w.uvarbit(h.custom_bounds.len() as u64);
        h.custom_bounds.iter().for_each(|&bound| custom_bound(&mut w, bound));
    }
    w.varbit(ts);
    if h.float {
        for v in [h.count, h.zero_count, h.sum] {
            w.double(v);
        }
        h.positive.iter().chain(&h.negative).for_each(|&v| w.double(v));
    } else {
        w.uvarbit(h.count as u64);
        w.uvarbit(h.zero_count as u64);
        w.double(h.sum);
        for counts in [&h.positive, &h.negative] {
            deltas(counts).for_each(|delta| w.varbit(delta));
        }
    }
    let encoding = if h.float { Encoding::FloatHistogram } else { Encoding::Histogram };
    Chunk { min_ms: ts, max_ms: ts, encoding, data: w.finish() }
}

/// The counts of an integer histogram as deltas, as in its wire formats.
pub fn deltas(counts: &[f64]) -> impl Iterator<Item = i64> + '_ {
    let before = std::iter::once(0.0).chain(counts.iter().copied());
    counts.iter().zip(before).map(|(count, before)| *count as i64 - before as i64)
}

/// Powers of two take one byte, others nine.
fn zero_threshold(w: &mut BitWriter, threshold: f64) {
    if threshold == 0.0 {
        return w.bits(0, 8);
    }
    // A normal double without mantissa bits is a power of two; the exponent of `frexp` is one higher.
    let bits = threshold.to_bits();
    let exponent = (bits >> 52) as i64 - 1022;
    if bits << 12 == 0 && threshold > 0.0 && (-242..=11).contains(&exponent) {
        return w.bits((exponent + 243) as u64, 8);
    }
    w.bits(255, 8);
    w.double(threshold);
}

fn spans(w: &mut BitWriter, spans: &[Span]) {
    w.uvarbit(spans.len() as u64);
    for span in spans {
        w.uvarbit(u64::from(span.length));
        w.varbit(i64::from(span.offset));
    }
}

/// Multiples of 0.001 up to 33554.43 take few bits, others 65.
fn custom_bound(w: &mut BitWriter, bound: f64) {
    let thousands = (bound * 1000.0).round();
    let whole = thousands / 1000.0 == bound;
    if !whole || !(0.0..=33_554_430.0).contains(&(bound * 1000.0)) {
        w.bit(false);
        return w.double(bound);
    }
    w.uvarbit(thousands as u64 + 1);
}

#[cfg(test)]
mod tests {
    use quiver_types::stale_nan;

    use super::*;

    /// Reads bits back.
    struct Bits<'a>(&'a [u8], usize);

    impl Bits<'_> {
        fn take(&mut self, count: u32) -> u64 {
            (0..count).fold(0, |value, _| {
                let bit = self.0[self.1 / 8] >> (7 - self.1 % 8) & 1;
                self.1 += 1;
                value << 1 | u64::from(bit)
            })
        }

        fn uvarint(&mut self) -> u64 {
            let (mut value, mut shift) = (0, 0);
            loop {
                let byte = self.take(8);
                value |= (byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return value;
                }
            }
        }

        fn ones(&mut self, max: u32) -> u32 {
            (0..max).take_while(|_| self.take(1) == 1).count() as u32
        }

        fn signed(&mut self, bits: u32) -> i64 {
            let value = self.take(bits) as i64;
            if bits < 64 && value > 1 << (bits - 1) { value - (1 << bits) } else { value }
        }
    }

    /// A plain reader of float chunks, written from the format.
    fn read_xor(data: &[u8]) -> Vec<(i64, u64)> {
        let count = u16::from_be_bytes([data[0], data[1]]);
        let mut r = Bits(&data[2..], 0);
        let (mut t, mut delta, mut v, mut window) = (0i64, 0i64, 0u64, (0u32, 0u32));
        let mut out = Vec::new();
        for i in 0..count {
            if i == 0 {
                let raw = r.uvarint();
                t = (raw >> 1) as i64 ^ -((raw & 1) as i64);
                v = r.take(64);
            } else {
                if i == 1 {
                    delta = r.uvarint() as i64;
                } else {
                    let bits = [0, 14, 17, 20, 64][r.ones(4) as usize];
                    delta += if bits == 0 { 0 } else { r.signed(bits) };
                }
                t += delta;
                if r.take(1) == 1 {
                    if r.take(1) == 1 {
                        let leading = r.take(5) as u32;
                        let significant = match r.take(6) as u32 {
                            0 => 64,
                            n => n,
                        };
                        window = (leading, 64 - leading - significant);
                    }
                    v ^= r.take(64 - window.0 - window.1) << window.1;
                }
            }
            out.push((t, v));
        }
        out
    }

    #[test]
    fn floats_come_back() {
        let mut ts = vec![-5, 0, 15_000, 30_000, 45_001, 59_000, 200_000, 1_000_000, 5_000_000, 1_700_000_000_000];
        ts.extend((0..300).map(|i| 1_700_000_000_000 + 15_000 * (i + 1) + i % 7));
        let special = [0.0, -0.0, f64::NAN, stale_nan(), f64::INFINITY, 1.5, 1.5, -3e300, 1e-310, 7.0];
        let values: Vec<f64> =
            special.into_iter().chain((0..300).map(|i| f64::from(i * i) / 3.0 * (-1f64).powi(i / 50))).collect();
        let samples = SeriesSamples { ts: &ts, values: &values, ..SeriesSamples::default() };
        let (mut read, mut sizes) = (Vec::new(), Vec::new());
        chunks(&samples, |chunk| {
            let own = read_xor(&chunk.data);
            assert_eq!((own[0].0, own[own.len() - 1].0), (chunk.min_ms, chunk.max_ms));
            sizes.push(own.len());
            read.extend(own);
        });
        let expected: Vec<(i64, u64)> = ts.iter().zip(&values).map(|(t, v)| (*t, v.to_bits())).collect();
        assert_eq!(read, expected);
        assert_eq!(sizes, [120, 120, 70]);
    }

    #[test]
    fn histograms_cut_floats() {
        let h = |count: f64, float: bool| Histogram { count, sum: 1.0, float, ..Histogram::default() };
        let hists = [h(3.0, false), h(0.5, true)];
        let samples = SeriesSamples {
            ts: &[10, 20, 40],
            values: &[1.0, 2.0, 4.0],
            hist_ts: &[30, 50],
            hists: &hists,
            ..SeriesSamples::default()
        };
        let mut order = Vec::new();
        chunks(&samples, |c| order.push((c.encoding, c.min_ms, c.max_ms)));
        let expected = [
            (Encoding::Xor, 10, 20),
            (Encoding::Histogram, 30, 30),
            (Encoding::Xor, 40, 40),
            (Encoding::FloatHistogram, 50, 50),
        ];
        assert_eq!(order, expected);
    }

    #[test]
    fn histogram_bits() {
        let h = Histogram {
            schema: 1,
            zero_threshold: 2f64.powi(-128),
            zero_count: 2.0,
            count: 12.0,
            sum: 18.5,
            positive_spans: vec![Span { offset: -1, length: 2 }],
            positive: vec![4.0, 6.0],
            reset_hint: ResetHint::NotReset,
            ..Histogram::default()
        };
        let chunk = histogram(5, &h);
        let mut r = Bits(&chunk.data, 0);
        assert_eq!((r.take(16), r.take(8), r.take(8)), (1, 0x40, 116));
        assert_eq!((r.ones(8), r.signed(3)), (1, 1), "schema");
        assert_eq!((r.ones(8), r.take(3)), (1, 1), "one span");
        assert_eq!((r.ones(8), r.take(3), r.ones(8), r.signed(3)), (1, 2, 1, -1), "length, offset");
        assert_eq!(r.take(1), 0, "no negative span");
        assert_eq!((r.ones(8), r.signed(6)), (2, 5), "time");
        assert_eq!((r.ones(8), r.take(6), r.ones(8), r.take(3)), (2, 12, 1, 2), "count, zero count");
        assert_eq!(f64::from_bits(r.take(64)), 18.5);
        assert_eq!((r.ones(8), r.signed(3), r.ones(8), r.signed(3)), (1, 4, 1, 2), "buckets as differences");
        let stale = histogram(5, &Histogram { positive: vec![1.0], ..Histogram::stale() });
        assert!(stale.data.len() < 16, "{stale:?}");
    }

    #[test]
    fn thresholds_and_bounds() {
        let check = |threshold: f64, first: u64| {
            let mut w = BitWriter::default();
            zero_threshold(&mut w, threshold);
            let bytes = w.finish();
            assert_eq!((u64::from(bytes[0]), bytes.len()), (first, if first == 255 { 9 } else { 1 }), "{threshold}");
        };
        check(0.0, 0);
        check(2f64.powi(-243), 1);
        check(2f64.powi(10), 254);
        check(2f64.powi(11), 255);
        check(2f64.powi(-244), 255);
        check(0.001, 255);
        let bits = |bound: f64| {
            let mut w = BitWriter::default();
            custom_bound(&mut w, bound);
            w.len()
        };
        assert_eq!((bits(0.005), bits(33_554.43), bits(33_554.431), bits(-1.0), bits(0.0001)), (1, 4, 9, 9, 9));
    }

    #[test]
    fn chunks_hold_so_many_samples_and_no_more() {
        let sizes = |count: i64, hists: &[i64]| {
            let ts: Vec<i64> = (0..count).map(|i| 10 * i).collect();
            let (values, list) = (vec![1.0; ts.len()], vec![Histogram::default(); hists.len()]);
            let samples =
                SeriesSamples { ts: &ts, values: &values, hist_ts: hists, hists: &list, ..SeriesSamples::default() };
            let mut sizes = Vec::new();
            chunks(&samples, |c| {
                assert!(c.min_ms <= c.max_ms);
                sizes.push(if c.encoding == Encoding::Xor { u16::from_be_bytes([c.data[0], c.data[1]]) } else { 0 });
            });
            sizes
        };
        assert_eq!(sizes(0, &[]), [0_u16; 0]);
        assert_eq!(sizes(1, &[]), [1]);
        assert_eq!(sizes(120, &[]), [120]);
        assert_eq!(sizes(121, &[]), [120, 1]);
        assert_eq!(sizes(240, &[2405]), [120, 120, 0]);
        assert_eq!(sizes(3, &[-5, 5, 15]), [0, 1, 0, 1, 0, 1]);
        assert_eq!(sizes(0, &[1, 2]), [0, 0]);
    }

    #[test]
    fn times_at_their_ends_come_back() {
        let read = |ts: &[i64]| {
            let values: Vec<f64> = ts.iter().map(|t| *t as f64).collect();
            let chunk = xor(ts, &values);
            assert_eq!((chunk.min_ms, chunk.max_ms), (ts[0], ts[ts.len() - 1]));
            let read = read_xor(&chunk.data);
            assert!(read.iter().zip(&values).all(|((_, bits), value)| *bits == value.to_bits()));
            read.into_iter().map(|(t, _)| t).collect::<Vec<_>>()
        };
        // Differences of distances at the ends of each width.
        let mut ts = vec![-1_000_000_000_000, -999_999_000_000];
        let mut delta = 1_000_000;
        for change in
            [0, 1, -1, 8192, -8191, 8193, -8192, 65_536, -65_535, 65_537, 524_288, -524_287, 524_289, -524_288]
        {
            delta += change;
            ts.push(ts[ts.len() - 1] + delta);
        }
        assert_eq!(read(&ts), ts);
        assert_eq!(read(&[0]), [0]);
        assert_eq!(read(&[-(1 << 62), 1 << 61]), [-(1 << 62), 1 << 61]);
    }

    #[test]
    fn float_histograms_have_their_numbers_as_they_are() {
        let h = Histogram {
            schema: CUSTOM_SCHEMA,
            custom_bounds: vec![0.5, 1e9],
            count: 2.5,
            sum: -1.5,
            positive_spans: vec![Span { offset: 0, length: 1 }],
            positive: vec![2.5],
            reset_hint: ResetHint::Gauge,
            float: true,
            ..Histogram::default()
        };
        let chunk = histogram(0, &h);
        assert_eq!(chunk.encoding, Encoding::FloatHistogram);
        let mut r = Bits(&chunk.data, 0);
        assert_eq!((r.take(16), r.take(8), r.take(8)), (1, 0xc0, 0), "one, a gauge, no zero bucket");
        assert_eq!((r.ones(8), r.signed(9)), (3, i64::from(CUSTOM_SCHEMA)), "schema");
        assert_eq!((r.ones(8), r.take(3), r.ones(8), r.take(3)), (1, 1, 1, 1), "one span of one bucket");
        assert_eq!((r.take(1), r.take(1)), (0, 0), "that begins at 0; no negative span");
        assert_eq!((r.ones(8), r.take(3)), (1, 2), "two bounds");
        assert_eq!((r.ones(8), r.take(9)), (3, 501), "a bound of thousandths");
        assert_eq!((r.take(1), f64::from_bits(r.take(64))), (0, 1e9), "one that is too large for that");
        assert_eq!(r.take(1), 0, "time");
        let numbers: Vec<f64> = (0..4).map(|_| f64::from_bits(r.take(64))).collect();
        assert_eq!(numbers, [2.5, 0.0, -1.5, 2.5], "count, zero count, sum, bucket");
        assert_eq!(deltas(&[5.0, 7.0, 7.0, 1.0]).collect::<Vec<_>>(), [5, 2, 0, -6]);
        assert_eq!(deltas(&[]).count(), 0);
        assert_eq!((Encoding::of(0), Encoding::of(2), Encoding::of(4)), (None, Some(Encoding::Histogram), None));
    }
}
