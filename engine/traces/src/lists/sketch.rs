//! Quantiles of durations: exact up to a thousand values, then of buckets, within 2 %.

pub(crate) mod aggregate;

use quiver_types::spans::{Durations, bucket};

/// Values that are kept as they are.
const EXACT_MAX: usize = 1024;

/// How what is written counts: by values, by buckets.
const EXACT: u8 = 0;
const COUNTED: u8 = 1;

/// See the module.
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

    /// Adds durations that were counted before, as roll-ups hold them; the mean does not know them.
    fn merge_buckets(&mut self, bytes: &[u8]) {
        self.spill();
        self.buckets.merge_bytes(bytes);
        self.count = self.buckets.count();
    }

    /// Adds what [`Sketch::write`] wrote; bytes that are none of it add nothing.
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

    /// Writes it: the sum, how it counts, values or buckets.
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

    /// Gives the durations as roll-ups hold them.
    pub(crate) fn into_buckets(mut self) -> Durations {
        self.spill();
        self.buckets
    }

    /// Bytes that it holds beside itself.
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

    /// Gives the value at a rank (nearest); 0 without values.
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
}
