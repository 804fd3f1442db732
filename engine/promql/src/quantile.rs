//! Quantiles and fractions: of plain values, of classic histograms (buckets with `le`), of native histograms.
//!
//! Semantics: Prometheus 3.14 `promql/quantile.go`. Grouping of classic buckets and writing of annotations is the
//! planner's.

mod classic;
mod native;

pub use classic::{ClassicBucket, Fix, ForcedMonotonicity, bucket_fraction, bucket_quantile};
pub use native::{NanNote, histogram_fraction, histogram_quantile};

/// Gives the quantile of values, between two of them by their weighted mean; NaN counts as the smallest value. The
/// values are reordered. NaN when there are none or `q` is NaN; infinite when `q` is outside of 0 to 1.
pub fn quantile(q: f64, values: &mut [f64]) -> f64 {
    if values.is_empty() || q.is_nan() {
        return f64::NAN;
    }
    if q < 0.0 {
        return f64::NEG_INFINITY;
    }
    if q > 1.0 {
        return f64::INFINITY;
    }
    let rank = q * (values.len() - 1) as f64;
    let (lower, weight) = (rank.floor() as usize, rank - rank.floor());
    let (_, low, above) = values.select_nth_unstable_by(lower, |&a, &b| nan_first(a, b));
    let low = *low;
    let high = above.iter().copied().min_by(|&a, &b| nan_first(a, b)).unwrap_or(low);
    low * (1.0 - weight) + high * weight
}

fn nan_first(a: f64, b: f64) -> std::cmp::Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn of_values() {
        let check = |q, values: &[f64], expected: f64| {
            let got = quantile(q, &mut values.to_vec());
            assert!(got == expected || (got.is_nan() && expected.is_nan()), "{q} {values:?}: {got}");
        };
        check(0.5, &[3.0, 1.0, 2.0], 2.0);
        check(0.5, &[3.0, 1.0], 2.0);
        check(0.75, &[0.0, 1.0, 2.0], 1.5);
        check(1.0, &[0.0, 1.0, 2.0], 2.0);
        check(0.0, &[f64::NAN, 1.0], f64::NAN);
        check(1.0, &[f64::NAN, 1.0], 1.0);
        check(0.5, &[f64::NAN, 1.0], f64::NAN);
        check(0.5, &[], f64::NAN);
        check(-0.1, &[1.0], f64::NEG_INFINITY);
        check(1.1, &[1.0], f64::INFINITY);
        check(f64::NAN, &[1.0], f64::NAN);
    }

    proptest! {
        #[test]
        fn selecting_equals_sorting(q in 0.0_f64..=1.0, values in prop::collection::vec(-1e6_f64..1e6, 1..60)) {
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            let rank = q * (sorted.len() - 1) as f64;
            let (low, weight) = (rank.floor() as usize, rank - rank.floor());
            let expected = sorted[low] * (1.0 - weight) + sorted[(low + 1).min(sorted.len() - 1)] * weight;
            prop_assert_eq!(quantile(q, &mut values.clone()), expected);
        }
    }

    #[test]
    fn infinities_and_zeros() {
        let inf = f64::INFINITY;
        let of = |q: f64, values: &[f64]| quantile(q, &mut values.to_vec());
        assert_eq!(of(0.0, &[inf, 1.0, -inf]), -inf);
        // As upstream: no part of an infinite value is no number.
        assert!(of(0.5, &[inf, 1.0, -inf]).is_nan() && of(1.0, &[inf, 1.0, -inf]).is_nan());
        assert!(of(0.5, &[-inf, inf]).is_nan(), "between both");
        assert_eq!(of(0.25, &[1.0; 7]), 1.0);
        assert_eq!((of(-0.0, &[3.0, 2.0]), of(0.0, &[2.0])), (2.0, 2.0));
        assert_eq!((of(f64::NEG_INFINITY, &[3.0]), of(inf, &[3.0])), (-inf, inf));
        assert!(of(2.0, &[]).is_nan() && of(-1.0, &[]).is_nan(), "of nothing");
    }
}
