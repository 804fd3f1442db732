//! Quantiles of durations: exact up to about a thousand values, then from buckets, within 2 %.

pub(crate) mod aggregate;

use quiver_types::spans::{Durations, bucket};

/// Number of values that are kept exactly.
const EXACT_MAX: usize = 1024;

/// Markers in the serialized form: exact values, or buckets.
const EXACT: u8 = 0;
const COUNTED: u8 = 1;

/// A set of durations; see the module documentation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sketch {
    exact: Vec<i64>,
    buckets: Durations,
    count: u64,
    sum: i128,
}

impl Sketch {
    pub(crate) fn add(&mut self, value: i64) {
        self.sum += i128::from(value);
        if self.count == self.exact.len() as u64 && self.exact.len() < EXACT_MAX {
            self.count += 1;
            self.exact.push(value);
            return;
        }
        self.spill();
        self.count += 1;
        self.buckets.add(bucket(value), 1);
    }

    /// Adds durations from the buckets of a roll-up; the mean does not include them.
    fn merge_buckets(&mut self, bytes: &[u8]) {
        self.spill();
        self.buckets.merge_bytes(bytes);
        self.count = self.buckets.count();
    }

    /// Adds what [`Sketch::write`] wrote; malformed bytes are ignored.
    pub(crate) fn merge_bytes(&mut self, bytes: &[u8]) {
        let Some((sum, rest)) = bytes.split_first_chunk::<16>() else { return };
        let Some((kind, rest)) = rest.split_first() else { return };
        self.sum += i128::from_le_bytes(*sum);
        if *kind == EXACT {
            let (values, _) = rest.as_chunks::<8>();
            if self.count == self.exact.len() as u64 && self.exact.len() + values.len() <= EXACT_MAX {
                self.exact.extend(values.iter().map(|value| i64::from_le_bytes(*value)));
                self.count = self.exact.len() as u64;
                return;
            }
            self.spill();
            for value in values {
                self.buckets.add(bucket(i64::from_le_bytes(*value)), 1);
            }
        } else {
            self.spill();
            self.buckets.merge_bytes(rest);
        }
        self.count = self.buckets.count();
    }

    /// Serializes the sketch: sum, marker, values or buckets.
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.sum.to_le_bytes());
        if self.count == self.exact.len() as u64 {
            out.push(EXACT);
            self.exact.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
        } else {
            out.push(COUNTED);
            self.buckets.encode(out);
        }
    }

    /// Reads a sketch.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let mut sketch = Self::default();
        sketch.merge_bytes(bytes);
        sketch
    }

    /// The durations as buckets of a roll-up.
    pub(crate) fn into_buckets(mut self) -> Durations {
        self.spill();
        self.buckets
    }

    /// Heap memory in bytes.
    fn heap_bytes(&self) -> usize {
        self.exact.capacity() * size_of::<i64>() + self.buckets.heap_bytes()
    }

    fn spill(&mut self) {
        for value in std::mem::take(&mut self.exact) {
            self.buckets.add(bucket(value), 1);
        }
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The value at a quantile (nearest rank); 0 without values.
    pub(crate) fn quantile(&mut self, q: f64) -> i64 {
        if self.exact.is_empty() {
            return self.buckets.quantile(q);
        }
        let rank = ((q * self.count as f64).ceil() as usize).clamp(1, self.exact.len());
        self.exact.sort_unstable();
        self.exact[rank - 1]
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::spans::middle;

    use super::*;

    #[test]
    fn quantiles() {
        let mut sketch = Sketch::default();
        (1..=100).for_each(|i| sketch.add(i));
        assert_eq!([0.5, 0.95, 0.99, 1.0].map(|q| sketch.quantile(q)), [50, 95, 99, 100]);
        (101..=100_000).for_each(|i| sketch.add(i));
        let median = sketch.quantile(0.5) as f64;
        assert!((median / 50_000.0 - 1.0).abs() < 0.021, "{median}");
        assert!((sketch.mean() - 50_000.5).abs() < 1e-6);
        let mut both = Sketch::default();
        both.add(7);
        let mut bytes = Vec::new();
        sketch.buckets.encode(&mut bytes);
        both.merge_buckets(&bytes);
        assert_eq!(both.count(), 100_001);
    }
    /// Breaks if a value is lost, or counts twice, as exact values become buckets.
    #[test]
    fn values_are_exact_up_to_a_bound() {
        let most = EXACT_MAX as i64;
        let mut sketch = Sketch::default();
        (1..=most).rev().for_each(|value| sketch.add(value));
        assert_eq!([0.0, 0.25, 0.5, 1.0].map(|q| sketch.quantile(q)), [1, most / 4, most / 2, most]);
        sketch.add(5_000);
        assert_eq!((sketch.count(), sketch.exact.len()), (EXACT_MAX as u64 + 1, 0));
        assert_eq!([0.0, 1.0].map(|q| sketch.quantile(q)), [1, middle(bucket(5_000))]);
        assert_eq!(sketch.mean(), (most * (most + 1) / 2 + 5_000) as f64 / (most + 1) as f64);
        assert_eq!(sketch.into_buckets().count(), EXACT_MAX as u64 + 1);
    }

    #[test]
    fn sketches_of_nothing_and_of_the_greatest_values() {
        let mut sketch = Sketch::default();
        assert_eq!((sketch.quantile(0.5), sketch.mean(), sketch.count()), (0, 0.0, 0));
        for value in [i64::MAX, i64::MIN, i64::MAX, i64::MIN] {
            sketch.add(value);
        }
        // Sums are of more bits than their values.
        assert_eq!(sketch.mean(), -0.5);
        assert_eq!([0.5, 0.51].map(|q| sketch.quantile(q)), [i64::MIN, i64::MAX]);
    }

    fn written(values: impl Iterator<Item = i64>) -> Vec<u8> {
        let (mut sketch, mut out) = (Sketch::default(), Vec::new());
        values.for_each(|value| sketch.add(value));
        sketch.write(&mut out);
        out
    }

    #[test]
    fn what_is_written_is_read_and_what_is_cut_adds_nothing() {
        for count in [0, 1, 5, EXACT_MAX as i64, EXACT_MAX as i64 + 1, 3_000] {
            let bytes = written(1..=count);
            let mut read = Sketch::read(&bytes);
            assert_eq!(read.count(), count as u64);
            let mut again = Vec::new();
            read.write(&mut again);
            assert_eq!(again, bytes, "{count}");
            assert_eq!(read.mean(), if count == 0 { 0.0 } else { (count + 1) as f64 / 2.0 });
            let expected = (count + 1) / 2;
            assert!((read.quantile(0.5) - expected).abs() <= expected / 40, "{count}: {}", read.quantile(0.5));
            for cut in 0..bytes.len().min(60) {
                let part = Sketch::read(&bytes[..cut]);
                assert!(part.count() <= count as u64 && (cut > 17 || part.count() == 0), "{count} cut at {cut}");
            }
        }
    }

    /// Breaks if sketches that are put together in another order, or in other parts, are others.
    #[test]
    fn parts_may_come_in_any_order() {
        let parts = [written(0..700), written(700..1_300), written(1_300..6_000), written(6_000..6_001)];
        let whole = Sketch::read(&written(0..6_001)).into_buckets();
        for turn in 0..parts.len() {
            let mut sketch = Sketch::default();
            parts.iter().cycle().skip(turn).take(parts.len()).for_each(|part| sketch.merge_bytes(part));
            assert_eq!((sketch.count(), sketch.mean()), (6_001, 3_000.0), "{turn}");
            assert_eq!(sketch.into_buckets(), whole, "{turn}");
        }
    }
}
