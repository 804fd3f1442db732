//! The operators `</` and `>/`: observations above or below a value are cut off, within a bucket by interpolation.
//!
//! The sum of what is left is estimated from the middles of the buckets (on the scale of the bucket).
//! Source: Prometheus 3.14 `FloatHistogram.TrimBuckets`.

use quiver_types::Histogram;

use super::bounds::uses_custom_buckets;
use super::buckets::{Bucket, negative, positive, zero};
use super::layout::compact;

/// Keeps the observations up to `limit` (`h </ limit`).
pub fn trim_upper(h: &mut Histogram, limit: f64) {
    trim(h, limit, Keep::Below);
}

/// Keeps the observations above `limit` (`h >/ limit`).
pub fn trim_lower(h: &mut Histogram, limit: f64) {
    trim(h, limit, Keep::Above);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Below,
    Above,
}

/// How the buckets on one side of zero are cut.
#[derive(Clone, Copy)]
struct Cut {
    limit: f64,
    keep: Keep,
    /// Whether observations are spread evenly within a bucket (custom buckets); else they are spread exponentially.
    linear: bool,
    /// Whether the buckets lie above zero.
    is_positive: bool,
}

/// Running totals of what is kept.
#[derive(Default)]
struct TrimTotals {
    count: f64,
    sum: f64,
    changed: bool,
    populated: bool,
}

fn trim(h: &mut Histogram, limit: f64, keep: Keep) {
    let above = Cut { limit, keep, linear: uses_custom_buckets(h), is_positive: true };
    let below = Cut { is_positive: false, ..above };
    let mut kept = TrimTotals::default();
    let upper: Vec<f64> = positive(h).map(|b| kept.side(&b, above)).collect();
    let has_positive = std::mem::take(&mut kept.populated);
    let lower: Vec<f64> = negative(h).map(|b| kept.side(&b, below)).collect();
    let has_negative = kept.populated;
    if h.zero_count > 0.0 {
        let (count, middle) = zero_part(&zero(h), limit, (has_negative, has_positive), keep);
        kept.changed |= h.zero_count != count;
        kept.sum += middle * count;
        kept.count += count;
        h.zero_count = count;
    }
    h.positive[..upper.len()].copy_from_slice(&upper);
    h.negative[..lower.len()].copy_from_slice(&lower);
    // Totals of a histogram that lost nothing stay exact.
    if kept.changed {
        h.count = kept.count;
        h.sum = kept.sum;
        compact(h);
    }
}

impl TrimTotals {
    /// Gives the new count of a bucket.
    fn side(&mut self, b: &Bucket, cut: Cut) -> f64 {
        if b.count == 0.0 {
            return b.count;
        }
        self.populated = true;
        let (whole, part) = match cut.keep {
            Keep::Below => (b.upper <= cut.limit, b.lower < cut.limit),
            Keep::Above => (b.lower >= cut.limit, b.upper > cut.limit),
        };
        let (count, middle) = if whole {
            (b.count, cut.middle(b.lower, b.upper))
        } else if part {
            cut.partial(b)
        } else {
            self.changed = true;
            return 0.0;
        };
        self.count += count;
        self.sum += middle * count;
        self.changed |= count != b.count;
        count
    }
}

impl Cut {
    /// Gives count and middle of the part of a bucket that is kept.
    fn partial(self, b: &Bucket) -> (f64, f64) {
        let limit = self.limit;
        if b.lower == f64::NEG_INFINITY || b.upper == f64::INFINITY {
            return infinite_bucket(b, limit, self.keep);
        }
        let below = if limit <= b.lower {
            0.0
        } else if limit >= b.upper {
            b.count
        } else {
            b.count * b.fraction_below(limit, self.linear)
        };
        match self.keep {
            Keep::Below => (below, self.middle(b.lower, limit)),
            Keep::Above => (b.count - below, self.middle(limit, b.upper)),
        }
    }

    /// Gives the middle between two bounds, on the scale of the buckets.
    fn middle(self, lower: f64, upper: f64) -> f64 {
        if lower.is_infinite() {
            return match upper {
                u if u.is_infinite() => 0.0,
                u if u > 0.0 => u / 2.0,
                u => u,
            };
        }
        if upper.is_infinite() {
            return lower;
        }
        if self.linear {
            return f64::midpoint(lower, upper);
        }
        let geometric = (lower * upper).abs().sqrt();
        if self.is_positive { geometric } else { -geometric }
    }
}

/// A bucket without one of its bounds tells nothing about where its observations are. Where zero can stand in for the
/// lower bound the part is linear; else the bucket is kept if only its open end was cut, and dropped if not.
fn infinite_bucket(b: &Bucket, limit: f64, keep: Keep) -> (f64, f64) {
    let finite = |v: f64| if v.is_infinite() { 0.0 } else { v };
    if b.lower == f64::NEG_INFINITY {
        let linear = b.upper.is_finite();
        return match keep {
            Keep::Below if limit >= b.upper => (b.count, 0.0),
            Keep::Below if limit > 0.0 && b.upper > 0.0 && linear => (b.count * limit / b.upper, limit / 2.0),
            Keep::Below if b.upper <= 0.0 => (b.count, limit),
            Keep::Above if limit <= b.lower => (b.count, 0.0),
            Keep::Above if limit >= 0.0 && b.upper > limit && linear => {
                (b.count * (1.0 - limit / b.upper), f64::midpoint(limit, b.upper))
            }
            _ => (0.0, finite(b.upper)),
        };
    }
    match keep {
        Keep::Above if limit >= b.lower => (b.count, limit),
        _ => (0.0, finite(b.lower)),
    }
}

/// Gives count and middle of the part of the zero bucket that is kept; it reaches to the side only where there are
/// observations.
fn zero_part(b: &Bucket, limit: f64, (has_negative, has_positive): (bool, bool), keep: Keep) -> (f64, f64) {
    let upper = if has_negative && !has_positive { 0.0 } else { b.upper };
    let lower = if has_positive && !has_negative { 0.0 } else { b.lower };
    let whole = (b.count, f64::midpoint(lower, upper));
    match keep {
        Keep::Below if limit <= lower => (0.0, 0.0),
        Keep::Below if limit >= upper => whole,
        Keep::Below => (b.count * ((limit - lower) / (upper - lower)), f64::midpoint(lower, limit)),
        Keep::Above if limit <= lower => whole,
        Keep::Above if limit >= upper => (0.0, 0.0),
        Keep::Above => (b.count * ((upper - limit) / (upper - lower)), f64::midpoint(limit, upper)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{custom, exponential, populated, with_negative, with_zero};
    use super::*;

    #[test]
    fn exponential_buckets() {
        let mut h = exponential(0, 1, &[4.0, 4.0, 4.0]);
        trim_upper(&mut h, 4.0);
        assert_eq!(populated(&h), [(1, 4.0), (2, 4.0)]);
        assert_eq!(h.count, 8.0);
        assert!((h.sum - 4.0 * (2.0_f64.sqrt() + 8.0_f64.sqrt())).abs() < 1e-12);
        trim_lower(&mut h, 2.0_f64.sqrt());
        assert!((h.positive[0] - 2.0).abs() < 1e-12);
    }

    #[test]
    fn nothing_cut_nothing_changed() {
        let mut h = with_negative(with_zero(exponential(0, 1, &[4.0]), 0.1, 1.0), 1, &[2.0]);
        let before = h.clone();
        trim_upper(&mut h, 2.0);
        trim_lower(&mut h, -2.0);
        assert_eq!(h, before);
        trim_lower(&mut h, f64::INFINITY);
        assert_eq!((h.count, h.sum), (0.0, 0.0));
    }

    #[test]
    fn zero_bucket_reaches_only_to_populated_sides() {
        let mut h = with_zero(exponential(0, 1, &[4.0]), 0.5, 4.0);
        trim_lower(&mut h, 0.25);
        assert_eq!(h.zero_count, 2.0);
        let mut h = with_zero(exponential(0, 1, &[]), 0.5, 4.0);
        trim_lower(&mut h, 0.25);
        assert_eq!(h.zero_count, 1.0);
    }

    #[test]
    fn custom_buckets_are_linear() {
        let mut h = custom(&[5.0, 10.0], &[4.0, 4.0, 4.0]);
        trim_upper(&mut h, 7.5);
        assert_eq!(populated(&h), [(0, 4.0), (1, 2.0)]);
        assert_eq!((h.count, h.sum), (6.0, 4.0 * 2.5 + 2.0 * 6.25));
        let mut h = custom(&[5.0, 10.0], &[4.0, 4.0, 4.0]);
        trim_lower(&mut h, 2.5);
        assert_eq!(populated(&h), [(0, 2.0), (1, 4.0), (2, 4.0)]);
    }

    /// What is left: buckets, count, sum.
    fn left(mut h: Histogram, limit: f64, keep: Keep) -> (Vec<(i32, f64)>, f64, f64) {
        trim(&mut h, limit, keep);
        (populated(&h), h.count, h.sum)
    }

    /// As upstream: a bucket without a lower end is taken to begin at zero where it ends above, and to be at the limit where
    /// it ends below.
    #[test]
    fn the_first_custom_bucket() {
        let above = || custom(&[4.0], &[8.0, 2.0]);
        assert_eq!(left(above(), 1.0, Keep::Below), (vec![(0, 2.0)], 2.0, 1.0));
        assert_eq!(left(above(), 4.0, Keep::Below), (vec![(0, 8.0)], 8.0, 16.0));
        assert_eq!(left(above(), 1.0, Keep::Above), (vec![(0, 6.0), (1, 2.0)], 8.0, 23.0));
        assert_eq!(left(above(), 0.0, Keep::Below), (vec![], 0.0, 0.0));
        let below = || custom(&[-5.0, 5.0], &[4.0, 4.0, 4.0]);
        assert_eq!(left(below(), -7.0, Keep::Below), (vec![(0, 4.0)], 4.0, -28.0));
        assert_eq!(left(below(), -7.0, Keep::Above), (vec![(1, 4.0), (2, 4.0)], 8.0, 20.0));
        assert_eq!(left(below(), f64::NEG_INFINITY, Keep::Below), (vec![], 0.0, 0.0));
    }

    /// What lies beyond the last bound is at the limit, or gone.
    #[test]
    fn the_last_custom_bucket() {
        let h = || custom(&[5.0, 10.0], &[4.0, 4.0, 4.0]);
        assert_eq!(left(h(), 11.0, Keep::Below), (vec![(0, 4.0), (1, 4.0)], 8.0, 40.0));
        assert_eq!(left(h(), 11.0, Keep::Above), (vec![(2, 4.0)], 4.0, 44.0));
        assert_eq!(left(h(), 10.0, Keep::Above), (vec![(2, 4.0)], 4.0, 40.0));
        let before = h();
        assert_eq!(
            left(h(), f64::INFINITY, Keep::Below),
            (populated(&before), before.count, before.sum),
            "nothing is cut"
        );
        assert_eq!(left(h(), f64::INFINITY, Keep::Above), (vec![], 0.0, 0.0));
    }

    #[test]
    fn the_zero_bucket_is_linear() {
        let positive = || with_zero(exponential(0, 1, &[4.0]), 0.5, 4.0);
        let negative = || with_zero(with_negative(exponential(0, 1, &[]), 1, &[4.0]), 0.5, 4.0);
        let both = || with_zero(with_negative(exponential(0, 1, &[4.0]), 1, &[4.0]), 0.5, 4.0);
        let zero = |mut h: Histogram, limit: f64, keep: Keep| {
            trim(&mut h, limit, keep);
            (h.zero_count, h.count, h.sum)
        };
        assert_eq!(zero(positive(), 0.25, Keep::Below), (2.0, 2.0, 0.25));
        assert_eq!(zero(positive(), -0.25, Keep::Below), (0.0, 0.0, 0.0));
        assert_eq!(zero(negative(), -0.25, Keep::Above), (2.0, 2.0, -0.25));
        assert_eq!(zero(negative(), 0.25, Keep::Above), (0.0, 0.0, 0.0));
        // With observations on both sides it reaches to both.
        assert_eq!(zero(both(), 0.0, Keep::Above).0, 2.0);
        assert_eq!(zero(both(), -0.25, Keep::Above).0, 3.0);
        assert_eq!(zero(both(), 0.5, Keep::Below).0, 4.0);
    }

    /// What is cut off above and what is cut off below are together what was there.
    #[test]
    fn both_parts_make_the_whole() {
        let h = with_negative(with_zero(exponential(1, -3, &[1.0, 5.0, 2.0, 7.0]), 0.125, 3.0), -2, &[2.0, 4.0]);
        for i in -40..=40 {
            let limit = f64::from(i) / 16.0;
            let (_, below, _) = left(h.clone(), limit, Keep::Below);
            let (_, above, _) = left(h.clone(), limit, Keep::Above);
            assert!((below + above - h.count).abs() < 1e-9, "{limit}: {below} and {above} of {}", h.count);
        }
    }
}
