//! Compensated summation (Kahan, in Neumaier's variant), step by step as Prometheus 3.14 `util/kahansum` does it.
//!
//! The running value is a pair (sum, compensation); the compensation is added once, at the end.

#![expect(clippy::inline_always, reason = "loops over samples were measured with and without")]

/// Adds a number to a sum with its compensation.
#[inline(always)]
pub(crate) fn inc(value: f64, sum: f64, compensation: f64) -> (f64, f64) {
    let total = sum + value;
    let (large, small) = if sum.abs() >= value.abs() { (sum, value) } else { (value, sum) };
    let lost = (large - total) + small;
    // Beyond the largest number there is nothing left to compensate; NaN must stay.
    if total.is_infinite() { (total, 0.0) } else { (total, compensation + lost) }
}

/// Adds numbers to as many sums with their compensations, side by side: as [`inc`], but the error of an addition is found
/// without a branch (Knuth's two-sum; both are exact), so that the processor does several at once.
#[inline(always)]
pub(crate) fn inc_all<const N: usize>(values: [f64; N], sums: &mut [f64; N], compensations: &mut [f64; N]) {
    inc_all_finite(values, sums, compensations);
    for i in 0..N {
        if sums[i].is_infinite() {
            compensations[i] = 0.0;
        }
    }
}

/// Like [`inc_all`], for sums that stay finite; where one does not, its compensation means nothing.
#[inline(always)]
pub(crate) fn inc_all_finite<const N: usize>(values: [f64; N], sums: &mut [f64; N], compensations: &mut [f64; N]) {
    for i in 0..N {
        let total = sums[i] + values[i];
        let part = total - sums[i];
        let lost = (sums[i] - (total - part)) + (values[i] - part);
        compensations[i] += lost;
        sums[i] = total;
    }
}

/// Adds one compensated sum to another.
#[inline(always)]
pub(crate) fn merge(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    let (sum, compensation) = inc(b.0, a.0, a.1);
    if sum.is_infinite() { (sum, 0.0) } else { (sum, compensation + b.1) }
}

/// Gives the value of a compensated sum.
#[inline(always)]
pub(crate) fn total((sum, compensation): (f64, f64)) -> f64 {
    if sum.is_infinite() { sum } else { sum + compensation }
}

/// Gives the mean: the pair is brought into its one normal form first, so that equal sums have equal means whatever the
/// order in which they came to be.
#[inline(always)]
pub(crate) fn mean((sum, compensation): (f64, f64), count: f64) -> f64 {
    let total = sum + compensation;
    if !total.is_finite() {
        return sum / count + compensation / count;
    }
    let rest = compensation - (total - sum);
    total / count + rest / count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(values: &[f64]) -> f64 {
        total(values.iter().fold((0.0, 0.0), |(s, c), &v| inc(v, s, c)))
    }

    #[test]
    fn keeps_small_numbers() {
        assert_eq!(sum(&[5e100, 1.0, -5e100]), 1.0);
        assert_eq!(sum(&[0.1; 10]), 1.0);
        assert_eq!(sum(&[f64::MAX, f64::MAX, -f64::MAX]), f64::INFINITY);
        assert!(sum(&[f64::NAN, 1.0]).is_nan());
        assert!(sum(&[f64::INFINITY, f64::NEG_INFINITY]).is_nan());
    }

    #[test]
    fn side_by_side_is_the_same() {
        let values = [5e100, 1.0, -5e100, 0.1, 1e-300, 3.7e15, -2.5, f64::MAX, f64::MAX];
        for end in 0..=values.len() {
            let (mut sums, mut lost) = ([0.0; 2], [0.0; 2]);
            values[..end].iter().for_each(|&v| inc_all([v, -v], &mut sums, &mut lost));
            let one = values[..end].iter().fold((0.0, 0.0), |(s, c), &v| inc(v, s, c));
            assert_eq!((sums[0].to_bits(), lost[0].to_bits()), (f64::to_bits(one.0), f64::to_bits(one.1)), "{end}");
        }
    }

    #[test]
    fn merging_keeps_them_too() {
        let (a, b) = (inc(1.0, 5e100, 0.0), inc(-5e100, 0.0, 0.0));
        assert_eq!(total(merge(a, b)), 1.0);
    }

    #[test]
    fn means_of_equal_sums_are_equal() {
        // One sum in different halves.
        let (a, b): ((f64, f64), (f64, f64)) = ((1e16, 1.5), (1e16 + 2.0, -0.5));
        assert_eq!(total(a), total(b));
        for count in [1.0, 3.0, 7.0] {
            assert_eq!(mean(a, count).to_bits(), mean(b, count).to_bits(), "{count}");
        }
        assert_eq!(mean((6.0, 0.0), 4.0), 1.5);
        assert_eq!(mean((f64::INFINITY, 0.0), 2.0), f64::INFINITY);
        assert!(mean((f64::NAN, 0.0), 2.0).is_nan() && mean((0.0, 0.0), 0.0).is_nan());
    }

    #[test]
    fn beyond_the_largest_number_nothing_is_compensated() {
        assert_eq!(inc(f64::MAX, f64::MAX, 5.0), (f64::INFINITY, 0.0));
        assert_eq!(total((f64::NEG_INFINITY, f64::NAN)), f64::NEG_INFINITY);
        assert_eq!(merge((f64::MAX, 1.0), (f64::MAX, 1.0)), (f64::INFINITY, 0.0));
        assert_eq!(merge((1.0, 0.25), (2.0, 0.5)), (3.0, 0.75));
        let (mut sums, mut lost) = ([f64::MAX, 1.0], [3.0, 4.0]);
        inc_all([f64::MAX, 2.0], &mut sums, &mut lost);
        assert_eq!((sums, lost), ([f64::INFINITY, 3.0], [0.0, 4.0]));
    }
}
