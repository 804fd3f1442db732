//! Quantiles of durations: exact up to a thousand values, then of buckets, within 2 %.

use quiver_types::spans::{Durations, bucket};

/// Values that are kept as they are.
const EXACT_MAX: usize = 1024;

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

    /// Adds durations that were counted before; the mean does not know them.
    pub(crate) fn merge(&mut self, other: &Durations) {
        self.spill();
        self.count += other.count();
        self.buckets.merge(other);
    }

    fn spill(&mut self) {
        for value in std::mem::take(&mut self.exact) {
            self.buckets.add(bucket(value), 1);
        }
    }

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
        both.merge(&sketch.buckets);
        assert_eq!(both.count(), 100_001);
    }
}
