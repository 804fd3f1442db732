//! Quantiles of durations: exact up to a thousand values, then within 1 %.

use std::collections::BTreeMap;

/// Values that are kept as they are.
const EXACT_MAX: usize = 1024;
/// Ratio of the bounds of a bucket.
const RATIO: f64 = 1.02;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sketch {
    exact: Vec<i64>,
    buckets: BTreeMap<i32, u64>,
    count: u64,
    sum: i128,
}

fn bucket(value: i64) -> i32 {
    if value <= 0 { i32::MIN } else { ((value as f64).ln() / RATIO.ln()).ceil() as i32 }
}

impl Sketch {
    pub(crate) fn add(&mut self, value: i64) {
        self.count += 1;
        self.sum += i128::from(value);
        if self.buckets.is_empty() && self.exact.len() < EXACT_MAX {
            self.exact.push(value);
            return;
        }
        for value in std::mem::take(&mut self.exact).into_iter().chain([value]) {
            *self.buckets.entry(bucket(value)).or_default() += 1;
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
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        if self.buckets.is_empty() {
            self.exact.sort_unstable();
            return self.exact.get(rank as usize - 1).copied().unwrap_or(0);
        }
        let mut seen = 0;
        for (&bucket, &n) in &self.buckets {
            seen += n;
            if seen >= rank {
                // The middle of a bucket is within half of its width.
                return if bucket == i32::MIN { 0 } else { (RATIO.powf(f64::from(bucket) - 0.5)).round() as i64 };
            }
        }
        0
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
        assert!((median / 50_000.0 - 1.0).abs() < 0.011, "{median}");
        assert!((sketch.mean() - 50_000.5).abs() < 1e-6);
    }
}
