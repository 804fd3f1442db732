//! Numbers of one native histogram.

use quiver_types::Histogram;

use super::definition::{FunctionDef, Kernel, VECTOR};
use super::elementwise::ElementwiseKernel;
use crate::ast::ValueType;
use crate::histogram::{self, uses_custom_buckets};
use crate::kahan;

const fn of_histogram(name: &'static str, f: fn(&Histogram) -> f64, doc: &'static str) -> FunctionDef {
    FunctionDef::new(name, VECTOR, ValueType::Vector, Kernel::Elementwise(ElementwiseKernel::Histogram(f)), doc)
}

pub(super) const HISTOGRAM_COUNT: FunctionDef =
    of_histogram("histogram_count", |h| h.count, "The number of observations of a native histogram.");
pub(super) const HISTOGRAM_SUM: FunctionDef =
    of_histogram("histogram_sum", |h| h.sum, "The sum of observations of a native histogram.");
pub(super) const HISTOGRAM_AVG: FunctionDef =
    of_histogram("histogram_avg", |h| h.sum / h.count, "The mean of observations of a native histogram.");
pub(super) const HISTOGRAM_STDDEV: FunctionDef = of_histogram(
    "histogram_stddev",
    |h| variance(h).sqrt(),
    "The estimated standard deviation of observations of a native histogram.",
);
pub(super) const HISTOGRAM_STDVAR: FunctionDef =
    of_histogram("histogram_stdvar", variance, "The estimated variance of observations of a native histogram.");

/// Takes all observations of a bucket for its middle: arithmetic for custom buckets, zero for the zero bucket,
/// geometric for others.
fn variance(h: &Histogram) -> f64 {
    let mean = h.sum / h.count;
    let mut sum = (0.0, 0.0);
    for b in histogram::all(h).filter(|b| b.count != 0.0) {
        let middle = if uses_custom_buckets(h) {
            f64::midpoint(b.upper, b.lower)
        } else if b.lower <= 0.0 && b.upper >= 0.0 {
            0.0
        } else {
            (b.upper * b.lower).sqrt().copysign(b.upper)
        };
        let delta = middle - mean;
        sum = kahan::inc(b.count * delta * delta, sum.0, sum.1);
    }
    (sum.0 + sum.1) / h.count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::testing::{custom, exponential, with_negative, with_zero};

    #[test]
    fn variances() {
        let h = Histogram { sum: 0.0, ..with_negative(with_zero(exponential(0, 3, &[1.0]), 0.1, 2.0), 3, &[1.0]) };
        // Middles: sqrt(32), 0 twice, -sqrt(32).
        assert!((variance(&h) - 16.0).abs() < 1e-12);
        let h = Histogram { sum: 15.0, ..custom(&[0.0, 10.0, 20.0], &[0.0, 1.0, 1.0]) };
        assert!((variance(&h) - f64::midpoint(2.5 * 2.5, 7.5 * 7.5)).abs() < 1e-12);
        assert!(variance(&Histogram::default()).is_nan());
    }

    #[test]
    fn numbers_of_one_histogram() {
        let of = |name: &str, h: &Histogram| match super::super::lookup(name).map(|f| f.kernel) {
            Some(Kernel::Elementwise(ElementwiseKernel::Histogram(f))) => f(h),
            other => panic!("{name}: {other:?}"),
        };
        // Four observations between 1 and 4, the middle of which is 2.
        let h = Histogram { sum: 8.0, ..exponential(-1, 1, &[4.0]) };
        for (name, expected) in [
            ("histogram_count", 4.0),
            ("histogram_sum", 8.0),
            ("histogram_avg", 2.0),
            ("histogram_stdvar", 0.0),
            ("histogram_stddev", 0.0),
        ] {
            assert!((of(name, &h) - expected).abs() < 1e-12, "{name}: {}", of(name, &h));
        }
        let shifted = Histogram { sum: -4.0, ..h };
        assert!((of("histogram_stddev", &shifted) - 3.0).abs() < 1e-12, "from a mean of -1");
        let nothing = Histogram::default();
        assert_eq!((of("histogram_count", &nothing), of("histogram_sum", &nothing)), (0.0, 0.0));
        assert!(of("histogram_avg", &nothing).is_nan() && of("histogram_stddev", &nothing).is_nan());
        // Negative buckets have negative middles; those that are empty do not count, nor do ends that are infinite then.
        let below = Histogram { sum: -8.0, ..with_negative(exponential(-1, 1, &[]), 1, &[4.0]) };
        assert!(of("histogram_stdvar", &below).abs() < 1e-12);
        let inner = Histogram { sum: 30.0, ..custom(&[5.0, 15.0], &[0.0, 3.0, 0.0]) };
        assert_eq!(of("histogram_stdvar", &inner), 0.0);
        assert!(!of("histogram_stdvar", &custom(&[5.0], &[1.0, 1.0])).is_finite(), "of ends that are nowhere");
    }
}
