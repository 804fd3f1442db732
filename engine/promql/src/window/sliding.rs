//! Compensated sums over moving windows, with the cheapest method that gives the same digits as a rescan.
//!
//! - Integers whose sums all stay below 2^53: differences of running sums are exact.
//! - Finite numbers of one sign: two stacks (sums from the left end to a middle, and from the middle on). Each element
//!   is added twice whatever the window's length; nothing cancels, so the result is within rounding.
//! - Everything else (mixed signs, NaN, infinities, overflowing sums): rescan in the order of the samples.

use quiver_types::text::EXACT_INTEGERS_MAX;

use super::cursor::Cursor;
use crate::kahan;

/// Shorter windows are rescanned, as that is as fast as anything else.
const SHORT: usize = 16;

/// Sums over any window of a series.
#[derive(Debug)]
pub(crate) enum Sums<'a> {
    /// `running[i]` is the exact sum of the first `i` values.
    Exact { running: &'a mut Vec<f64> },
    /// Values of one sign.
    Stacks(SlidingSum<'a>),
    /// Arbitrary values: each window is added up anew.
    Rescan(&'a [f64]),
}

impl<'a> Sums<'a> {
    /// Selects the method; `floats` and `pairs` are reusable buffers.
    pub(crate) fn new(values: &'a [f64], floats: &'a mut Vec<f64>, pairs: &'a mut Vec<(f64, f64)>) -> Self {
        // NaN or an infinity makes the total one of these.
        let (mut total, mut whole, mut negative, mut positive) = (0.0, true, false, false);
        for &v in values {
            total += v.abs();
            whole &= is_whole(v.abs());
            negative |= v < 0.0;
            positive |= v > 0.0;
        }
        if whole && total < EXACT_INTEGERS_MAX as f64 {
            floats.clear();
            floats.reserve(values.len() + 1);
            floats.push(0.0);
            let mut sum = 0.0;
            floats.extend(values.iter().map(|v| {
                sum += v;
                sum
            }));
            return Self::Exact { running: floats };
        }
        if total.is_finite() && !(negative && positive) {
            return Self::Stacks(SlidingSum::new(values, pairs));
        }
        Self::Rescan(values)
    }

    /// Sum and compensation of a window; windows must not move backwards.
    #[inline]
    pub(crate) fn get(&mut self, window: Cursor) -> (f64, f64) {
        match self {
            Self::Exact { running } => (running[window.hi] - running[window.lo], 0.0),
            Self::Stacks(stacks) => stacks.get(window),
            Self::Rescan(values) => rescan(&values[window.lo..window.hi]),
        }
    }

    /// Tells whether sums of this series may overflow or be NaN.
    pub(crate) fn is_rescan(&self) -> bool {
        matches!(self, Self::Rescan(_))
    }
}

/// Tells whether a magnitude is an integer, without a library call to `trunc`: adding and subtracting a number so large
/// that doubles around it have no fractions restores only integers.
#[inline]
fn is_whole(size: f64) -> bool {
    const NO_FRACTIONS: f64 = 4_503_599_627_370_496.0;
    size >= NO_FRACTIONS || (size + NO_FRACTIONS) - NO_FRACTIONS == size
}

fn rescan(values: &[f64]) -> (f64, f64) {
    values.iter().fold((0.0, 0.0), |(sum, c), &v| kahan::inc(v, sum, c))
}

/// Two stacks over the samples: `left[i]` is the sum of `values[lo + i..middle]`, `right` that of `middle..end`.
#[derive(Debug)]
pub(crate) struct SlidingSum<'a> {
    values: &'a [f64],
    left: &'a mut Vec<(f64, f64)>,
    left_start: usize,
    middle: usize,
    end: usize,
    right: (f64, f64),
}

impl<'a> SlidingSum<'a> {
    fn new(values: &'a [f64], left: &'a mut Vec<(f64, f64)>) -> Self {
        Self { values, left, left_start: 0, middle: 0, end: 0, right: (0.0, 0.0) }
    }

    fn get(&mut self, window: Cursor) -> (f64, f64) {
        if window.len() <= SHORT {
            return rescan(&self.values[window.lo..window.hi]);
        }
        if window.lo >= self.middle {
            self.turn(window);
        }
        for &v in &self.values[self.end..window.hi] {
            self.right = kahan::inc(v, self.right.0, self.right.1);
        }
        self.end = self.end.max(window.hi);
        // Sums grow from the middle to the left end; the buffer has them in reverse.
        let left = self.left[self.middle - 1 - window.lo];
        kahan::merge(left, self.right)
    }

    fn turn(&mut self, window: Cursor) {
        self.left_start = window.lo;
        self.middle = window.hi;
        self.end = window.hi;
        self.right = (0.0, 0.0);
        self.left.clear();
        let mut sum = (0.0, 0.0);
        self.left.extend(self.values[window.lo..window.hi].iter().rev().map(|&v| {
            sum = kahan::inc(v, sum.0, sum.1);
            sum
        }));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(values: &[f64], length: usize, stride: usize) {
        let (mut floats, mut pairs) = (Vec::new(), Vec::new());
        let mut sums = Sums::new(values, &mut floats, &mut pairs);
        let mut lo = 0;
        while lo + length <= values.len() {
            let got = kahan::total(sums.get(Cursor { lo, hi: lo + length }));
            let expected = kahan::total(rescan(&values[lo..lo + length]));
            let close = (got - expected).abs() <= 1e-14 * expected.abs();
            assert!(close || got == expected || (got.is_nan() && expected.is_nan()), "{got} {expected}");
            lo += stride;
        }
    }

    proptest! {
        #[test]
        fn equals_a_rescan(
            values in prop::collection::vec(prop_oneof![
                8 => 0.0_f64..1e9, 2 => (0_i32..1000).prop_map(f64::from)], 0..300),
            signs in 0..3, length in 1_usize..120, stride in 1_usize..40,
        ) {
            let sign = |i: usize| if signs == 0 || (signs == 1 && i.is_multiple_of(3)) { 1.0 } else { -1.0 };
            let values: Vec<f64> = values.iter().enumerate().map(|(i, v)| v * sign(i)).collect();
            check(&values, length, stride);
            let whole: Vec<f64> = values.iter().map(|v| v.trunc()).collect();
            check(&whole, length, stride);
        }
    }

    #[test]
    fn poison_does_not_spread() {
        let mut values = vec![0.5; 100];
        values[10] = f64::NAN;
        values[20] = f64::INFINITY;
        values[30] = 1e308;
        values[31] = 1e308;
        check(&values, 25, 1);
    }

    #[test]
    fn sizes_are_whole_as_they_are_truncated() {
        let large = 4_503_599_627_370_496.0;
        for size in [0.0, 0.5, 1.0, 1.5, 1e-300, 0.1 + 0.2, large - 0.5, large - 1.0, large, large * 2.0 - 1.0, 1e300] {
            assert_eq!(is_whole(size), size.trunc() == size, "{size}");
        }
        assert!(!is_whole(f64::NAN));
    }
}
