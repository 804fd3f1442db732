//! A sketch of durations: counts in buckets whose bounds are powers of [`RATIO`]. Sketches can be added and subtracted
//! bucket by bucket.

use crate::spans::attributes::{put_varint, take_varint};

/// Ratio of the bounds of a bucket: quantiles are within 2 %.
pub const RATIO: f64 = 1.04;

static LN_RATIO: std::sync::LazyLock<f64> = std::sync::LazyLock::new(|| RATIO.ln());

/// Gives the bucket of a duration in nanoseconds; 0 for none.
pub fn bucket(duration: i64) -> u16 {
    if duration <= 0 { 0 } else { ((duration as f64).ln() / *LN_RATIO).ceil() as u16 + 1 }
}

/// Gives the duration that stands for a bucket: its middle.
pub fn middle(bucket: u16) -> i64 {
    match bucket {
        0 => 0,
        1 => 1,
        other => RATIO.powf(f64::from(other) - 1.5).round() as i64,
    }
}

/// The number of durations in each bucket ([`bucket`]), buckets ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Durations(Vec<(u16, u64)>);

impl Durations {
    /// Adds durations of a bucket.
    pub fn add(&mut self, bucket: u16, count: u64) {
        // What was encoded comes in order.
        if self.0.last().is_none_or(|last| last.0 < bucket) {
            self.0.push((bucket, count));
            return;
        }
        match self.0.binary_search_by_key(&bucket, |b| b.0) {
            Ok(at) => self.0[at].1 += count,
            Err(at) => self.0.insert(at, (bucket, count)),
        }
    }

    /// Takes durations of a bucket out again.
    pub fn remove(&mut self, bucket: u16, count: u64) {
        if let Ok(at) = self.0.binary_search_by_key(&bucket, |b| b.0) {
            self.0[at].1 = self.0[at].1.saturating_sub(count);
            if self.0[at].1 == 0 {
                self.0.remove(at);
            }
        }
    }

    /// Gives buckets and counts, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        self.0.iter().copied()
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(bucket, count)| self.add(bucket, count));
    }

    /// Adds what [`Durations::encode`] wrote; stops at bytes that are none of it.
    pub fn merge_bytes(&mut self, mut bytes: &[u8]) {
        let mut at = 0u64;
        while let Some((step, count)) = take_varint(&mut bytes).zip(take_varint(&mut bytes)) {
            at = at.saturating_add(step);
            let Ok(bucket) = u16::try_from(at) else { return };
            self.add(bucket, count);
        }
    }

    /// Writes steps from bucket to bucket, and counts, as LEB128.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut last = 0;
        for (bucket, count) in self.iter() {
            put_varint(out, u64::from(bucket - last));
            put_varint(out, count);
            last = bucket;
        }
    }

    /// Gives the bytes that it holds beside itself.
    pub fn heap_bytes(&self) -> usize {
        self.0.capacity() * size_of::<(u16, u64)>()
    }

    /// Gives the number of durations.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|b| b.1).sum()
    }

    /// Gives the duration at a rank (nearest), in nanoseconds; 0 without any.
    pub fn quantile(&self, q: f64) -> i64 {
        let count = self.count();
        let rank = ((q * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        for (bucket, n) in self.iter() {
            seen += n;
            if seen >= rank {
                return middle(bucket);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_add_up_and_come_back() {
        let mut all = Durations::default();
        for d in [0, 1, 2, 1_000, 1_000_000, 1_000_000, i64::MAX] {
            all.add(bucket(d), 1);
        }
        let mut bytes = Vec::new();
        all.encode(&mut bytes);
        let mut back = Durations::default();
        back.merge_bytes(&bytes);
        assert_eq!(back, all);
        back.merge(&all);
        assert_eq!(back.count(), 14);
        all.iter().for_each(|(b, n)| back.remove(b, n));
        assert_eq!(back, all);
        back.merge_bytes(&[0xff]);
        assert_eq!(back, all, "what is cut off is left out");
    }

    #[test]
    fn quantiles_are_within_two_percent() {
        for d in [1i64, 2, 3, 10, 999, 123_456, 10_000_000_000, i64::MAX / 2] {
            let mut one = Durations::default();
            one.add(bucket(d), 1);
            let found = one.quantile(0.5);
            assert!((found as f64 / d as f64 - 1.0).abs() <= 0.021 || (found - d).abs() <= 1, "{d}: {found}");
        }
        assert_eq!(Durations::default().quantile(0.9), 0);
    }

    #[test]
    fn what_is_taken_out_is_gone() {
        let mut some = Durations::default();
        for (bucket, count) in [(7, 2), (3, 1), (7, 1), (5, 4)] {
            some.add(bucket, count);
        }
        assert_eq!(some.iter().collect::<Vec<_>>(), [(3, 1), (5, 4), (7, 3)]);
        some.remove(5, 3);
        some.remove(3, 9);
        some.remove(4, 1);
        assert_eq!(some.iter().collect::<Vec<_>>(), [(5, 1), (7, 3)], "never less than none");
        assert_eq!(some.count(), 4);
    }

    #[test]
    fn bytes_that_are_none_of_it_end_it() {
        let read = |bytes: &[u8]| {
            let mut read = Durations::default();
            read.merge_bytes(bytes);
            read.iter().collect::<Vec<_>>()
        };
        assert_eq!(read(&[3, 1, 2, 0x80, 0x01]), [(3, 1), (5, 128)]);
        assert_eq!(read(&[3, 1, 2]), [(3, 1)], "half a pair");
        // A bucket beyond all, and steps that come to more than a number holds.
        let mut far = vec![3, 1];
        far.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 1, 2, 1]);
        assert_eq!(read(&far), [(3, 1)]);
        assert_eq!(read(&[0x80, 0x80, 0x04, 1, 1, 1]), [], "65536");
        assert_eq!(read(&[0xff, 0xff, 0x03, 1]), [(u16::MAX, 1)]);
    }

    #[test]
    fn buckets_ascend_and_their_middles_lie_in_them() {
        assert_eq!([i64::MIN, -1, 0, 1].map(bucket), [0, 0, 0, 1]);
        assert_eq!([0, 1].map(middle), [0, 1]);
        let mut last = 0;
        for power in 0..=620 {
            let duration = RATIO.powi(power) as i64;
            let own = bucket(duration);
            assert!(own >= last, "{duration}");
            last = own;
            // From a thousand on rounding moves nothing out of its bucket.
            if duration > 1000 {
                assert_eq!(bucket(middle(own)), own, "{duration}");
            }
        }
    }

    #[test]
    fn ranks_are_nearest() {
        let mut some = Durations::default();
        for bucket in [10, 20, 30, 40] {
            some.add(bucket, 1);
        }
        let at = |q: f64| some.quantile(q);
        let of = [10, 20, 30, 40].map(middle);
        assert_eq!([0.0, 0.25, 0.26, 0.5, 0.75, 0.76, 1.0].map(at), [of[0], of[0], of[1], of[1], of[2], of[3], of[3]]);
        assert_eq!([-1.0, 7.0].map(at), [of[0], of[3]], "what is no share is the nearest that is");
    }
}
