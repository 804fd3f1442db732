//! Quantile and fraction of a native histogram. Within an exponential bucket observations are taken to be spread
//! evenly on a logarithmic scale, within custom and zero buckets on a linear one.

use quiver_types::Histogram;

use crate::histogram::{self, Bucket, uses_custom_buckets};

/// What observations of NaN did to a result; see `notes::{quantile_nan_result, quantile_nan_skew, fraction_nan}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NanNote {
    /// The quantile lies among them: it is NaN.
    Result,
    /// They moved the quantile upwards (they rank above all others).
    Skew,
    /// They are in no fraction.
    Fraction,
}

/// Gives the quantile, and a note when NaN observations matter.
pub fn histogram_quantile(q: f64, h: &Histogram) -> (f64, Option<NanNote>) {
    if q < 0.0 {
        return (f64::NEG_INFINITY, None);
    }
    if q > 1.0 {
        return (f64::INFINITY, None);
    }
    if h.count == 0.0 || q.is_nan() {
        return (f64::NAN, None);
    }
    // Counting from the nearer end keeps ranks small; with NaN observations, which are in no bucket, only the lower
    // end is where it should be.
    if h.sum.is_nan() || q < 0.5 {
        from_end(q * h.count, h, histogram::all(h), true)
    } else {
        from_end((1.0 - q) * h.count, h, histogram::all_reverse(h), false)
    }
}

fn from_end(
    mut rank: f64,
    h: &Histogram,
    mut buckets: impl Iterator<Item = Bucket>,
    forward: bool,
) -> (f64, Option<NanNote>) {
    let custom = uses_custom_buckets(h);
    let mut count = 0.0;
    let nothing =
        Bucket { lower: 0.0, upper: 0.0, count: 0.0, index: 0, lower_inclusive: false, upper_inclusive: false };
    let mut b = nothing;
    for bucket in buckets.by_ref() {
        b = bucket;
        if b.count == 0.0 {
            continue;
        }
        count += b.count;
        if count >= rank {
            break;
        }
    }
    if custom {
        if b.lower == f64::NEG_INFINITY {
            if b.upper <= 0.0 {
                return (b.upper, None);
            }
            b.lower = 0.0;
        } else if b.upper == f64::INFINITY {
            return (b.lower, None);
        }
    } else if b.lower < 0.0 && b.upper > 0.0 {
        narrow_zero_bucket(h, &mut b);
    }
    count = if count > h.count { h.count } else { count };
    if count < rank {
        // NaN observations count, but are in no bucket.
        return if h.sum.is_nan() { (f64::NAN, Some(NanNote::Result)) } else { (b.upper, None) };
    }
    rank = if forward { rank - (count - b.count) } else { count - rank };
    let mut note = None;
    if h.sum.is_nan() {
        // As upstream: the bucket interpolated in is then the last one, not the one that holds the rank.
        for bucket in buckets {
            b = bucket;
            count += b.count;
        }
        if count < h.count {
            note = Some(NanNote::Skew);
        }
    }
    let fraction = rank / b.count;
    if custom || (b.lower <= 0.0 && b.upper >= 0.0) {
        return (b.lower + (b.upper - b.lower) * fraction, note);
    }
    let (lower, upper) = (b.lower.abs().log2(), b.upper.abs().log2());
    let value = if b.lower > 0.0 {
        (lower + (upper - lower) * fraction).exp2()
    } else {
        -(upper + (lower - upper) * (1.0 - fraction)).exp2()
    };
    (value, note)
}

/// If all observations are on one side of zero, the zero bucket is taken to extend to that side only.
fn narrow_zero_bucket(h: &Histogram, b: &mut Bucket) {
    match (h.negative.is_empty(), h.positive.is_empty()) {
        (true, false) => b.lower = 0.0,
        (false, true) => b.upper = 0.0,
        _ => {}
    }
}

/// Gives the share of observations between two values, and a note when NaN observations are left out.
pub fn histogram_fraction(lower: f64, upper: f64, h: &Histogram) -> (f64, Option<NanNote>) {
    if h.count == 0.0 || lower.is_nan() || upper.is_nan() {
        return (f64::NAN, None);
    }
    if lower >= upper {
        return (0.0, None);
    }
    let custom = uses_custom_buckets(h);
    let mut ranks = [None, None];
    let (mut below, mut in_buckets) = (0.0, 0.0);
    for mut b in histogram::all(h) {
        in_buckets += b.count;
        let zero = b.lower <= 0.0 && b.upper >= 0.0;
        if zero {
            narrow_zero_bucket(h, &mut b);
        }
        for (rank, v) in ranks.iter_mut().zip([lower, upper]) {
            if rank.is_some() {
                continue;
            }
            if b.lower >= v {
                *rank = Some(below);
            } else if b.upper > v {
                let linear = custom || zero;
                let unknown = linear && b.lower == f64::NEG_INFINITY;
                *rank = Some(if unknown { b.count } else { below + b.count * b.fraction_below(v, linear) });
            }
        }
        below += b.count;
    }
    let mut note = None;
    let mut count = h.count;
    if h.sum.is_nan() {
        count = in_buckets;
        if count < h.count {
            note = Some(NanNote::Fraction);
        }
    }
    #[expect(clippy::neg_cmp_op_on_partial_ord, reason = "a rank that is NaN stays one")]
    let [lower, upper] = ranks.map(|rank| rank.filter(|&r| !(r > count)).unwrap_or(count));
    ((upper - lower) / h.count, note)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::testing::{custom, exponential, with_negative, with_zero};

    fn check(q: f64, h: &Histogram, expected: f64) {
        let (got, _) = histogram_quantile(q, h);
        let close = (got - expected).abs() <= 1e-12 * expected.abs().max(1e-9);
        assert!(close || got == expected || (got.is_nan() && expected.is_nan()), "{q}: {got} {expected}");
    }

    #[test]
    fn exponential_interpolation() {
        let h = exponential(0, 1, &[4.0, 4.0]);
        check(0.25, &h, 2.0_f64.sqrt());
        check(0.5, &h, 2.0);
        check(0.75, &h, 8.0_f64.sqrt());
        check(1.0, &h, 4.0);
        check(0.0, &h, 1.0);
        check(-0.1, &h, f64::NEG_INFINITY);
        check(1.1, &h, f64::INFINITY);
        let h = with_negative(exponential(0, 1, &[]), 1, &[4.0]);
        check(0.5, &h, -(2.0_f64.sqrt()));
        check(0.5, &Histogram::default(), f64::NAN);
    }

    #[test]
    fn zero_bucket_is_linear() {
        check(0.25, &with_zero(exponential(0, 1, &[4.0]), 0.5, 4.0), 0.25);
        check(0.25, &with_zero(exponential(0, 1, &[]), 0.5, 4.0), -0.25);
    }

    #[test]
    fn custom_is_linear() {
        let h = custom(&[5.0, 10.0], &[4.0, 4.0, 2.0]);
        check(0.2, &h, 2.5);
        check(0.6, &h, 7.5);
        check(1.0, &h, 10.0);
        check(0.5, &custom(&[-5.0], &[4.0, 0.0]), -5.0);
    }

    #[test]
    fn nan_observations() {
        let mut h = exponential(0, 1, &[4.0, 4.0]);
        h.count = 10.0;
        h.sum = f64::NAN;
        assert_eq!(histogram_quantile(0.95, &h).1, Some(NanNote::Result));
        assert_eq!(histogram_quantile(0.4, &h).1, Some(NanNote::Skew));
        assert_eq!(histogram_fraction(0.0, f64::INFINITY, &h), (0.8, Some(NanNote::Fraction)));
    }

    #[test]
    fn fractions() {
        let h = with_zero(exponential(0, 1, &[4.0, 4.0]), 0.5, 2.0);
        let check = |lower, upper, expected: f64| {
            let (got, note) = histogram_fraction(lower, upper, &h);
            assert!((got - expected).abs() < 1e-12, "{lower} {upper}: {got}");
            assert_eq!(note, None);
        };
        check(f64::NEG_INFINITY, f64::INFINITY, 1.0);
        check(1.0, 2.0, 0.4);
        check(2.0_f64.sqrt(), 4.0, 0.6);
        check(0.25, 1.0, 0.1);
        check(3.0, 2.0, 0.0);
        check(-10.0, 0.0, 0.0);
        let h = custom(&[5.0, 10.0], &[4.0, 4.0, 2.0]);
        // Zero stands in for the lower end of the first bucket.
        assert_eq!(histogram_fraction(f64::NEG_INFINITY, 2.5, &h).0, 0.2);
        assert_eq!(histogram_fraction(5.0, 7.5, &h).0, 0.2);
    }

    #[test]
    fn fraction_inverts_quantile() {
        let h = with_negative(with_zero(exponential(2, -3, &[1.0, 5.0, 2.0, 7.0]), 0.01, 3.0), 0, &[2.0, 4.0]);
        for i in 1..20 {
            let q = f64::from(i) / 20.0;
            let (value, _) = histogram_quantile(q, &h);
            let (back, _) = histogram_fraction(f64::NEG_INFINITY, value, &h);
            assert!((back - q).abs() < 1e-9, "{q} {value} {back}");
        }
    }

    #[test]
    fn parts_of_the_line_make_the_whole() {
        let wide = with_negative(with_zero(exponential(1, -3, &[1.0, 5.0, 2.0, 7.0]), 0.125, 3.0), -2, &[2.0, 4.0]);
        let narrow = custom(&[-2.0, 0.5, 3.0], &[1.0, 2.0, 3.0, 4.0]);
        let cuts = [f64::NEG_INFINITY, -3.0, -0.6, -0.1, 0.0, 0.05, 0.3, 0.9, 2.5, f64::INFINITY];
        for h in [wide, narrow, with_zero(exponential(0, 1, &[]), 1.0, 5.0), exponential(-2, 0, &[1.0, 0.0, 9.0])] {
            let parts = cuts.windows(2).map(|w| histogram_fraction(w[0], w[1], &h).0);
            let parts: Vec<f64> = parts.collect();
            assert!(parts.iter().all(|part| (0.0..=1.0).contains(part)), "{parts:?} of {h:?}");
            assert!((parts.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{parts:?} of {h:?}");
        }
    }

    #[test]
    fn quantiles_ascend() {
        let h = with_negative(with_zero(exponential(1, -3, &[1.0, 5.0, 0.0, 7.0]), 0.125, 3.0), -2, &[2.0, 4.0]);
        for h in [h, custom(&[-2.0, 0.5, 3.0], &[1.0, 2.0, 3.0, 4.0]), exponential(3, 100, &[0.5, 0.0, 0.25])] {
            let values: Vec<f64> = (0..=100).map(|i| histogram_quantile(f64::from(i) / 100.0, &h).0).collect();
            assert!(values.windows(2).all(|w| w[0] <= w[1] + 1e-12 * w[1].abs()), "{values:?} of {h:?}");
        }
    }

    #[test]
    fn observations_on_one_side_narrow_the_zero_bucket() {
        let negative = with_zero(with_negative(exponential(0, 1, &[]), 1, &[4.0]), 0.5, 4.0);
        check(0.75, &negative, -0.25);
        check(1.0, &negative, 0.0);
        check(0.25, &negative, -(2.0_f64.sqrt()));
        let share = |lower, upper| histogram_fraction(lower, upper, &negative).0;
        assert_eq!((share(-0.25, 0.0), share(0.0, 1.0), share(-2.0, -1.0)), (0.25, 0.0, 0.5));
        let positive = with_zero(exponential(0, 1, &[4.0]), 0.5, 4.0);
        check(0.0, &positive, 0.0);
        assert_eq!(histogram_fraction(-1.0, 0.0, &positive).0, 0.0);
        // Without any other it reaches to both.
        let alone = with_zero(exponential(0, 1, &[]), 0.5, 4.0);
        check(0.5, &alone, 0.0);
        check(1.0, &alone, 0.5);
        assert_eq!(histogram_fraction(-0.25, 0.25, &alone).0, 0.5);
    }

    #[test]
    fn custom_buckets_without_an_end() {
        let h = custom(&[2.0, 4.0], &[2.0, 1.0, 1.0]);
        for (q, expected) in [(0.0, 0.0), (0.25, 1.0), (0.5, 2.0), (0.75, 4.0), (0.9, 4.0), (1.0, 4.0)] {
            check(q, &h, expected);
        }
        let below = custom(&[-2.0, 4.0], &[2.0, 2.0]);
        check(0.25, &below, -2.0);
        check(0.75, &below, 1.0);
        let share = |lower, upper, h: &Histogram| histogram_fraction(lower, upper, h).0;
        assert_eq!(share(4.0, f64::INFINITY, &h), 0.25);
        assert_eq!(share(3.0, 4.0, &h), 0.125);
        assert!(share(f64::NAN, 1.0, &h).is_nan() && share(0.0, 1.0, &Histogram::default()).is_nan());
        assert_eq!((share(1.0, 1.0, &h), share(2.0, 1.0, &h)), (0.0, 0.0));
    }

    #[test]
    fn nan_observations_only_where_there_are_some() {
        let mut h = exponential(0, 1, &[4.0, 4.0]);
        h.sum = f64::NAN;
        // A sum that is NaN of observations that are all in buckets tells of infinities of both signs.
        assert_eq!(histogram_quantile(0.25, &h).1, None);
        assert_eq!(histogram_fraction(1.0, 2.0, &h), (0.5, None));
        h.count = 16.0;
        assert_eq!(histogram_fraction(1.0, f64::INFINITY, &h), (0.5, Some(NanNote::Fraction)));
        assert_eq!(histogram_fraction(5.0, 1.0, &h), (0.0, None), "nothing is between");
        let (value, note) = histogram_quantile(0.75, &h);
        assert!(value.is_nan() && note == Some(NanNote::Result));
        assert_eq!(histogram_quantile(-1.0, &h), (f64::NEG_INFINITY, None));
        assert_eq!(histogram_quantile(1.5, &h), (f64::INFINITY, None));
    }
}
