//! What two histograms are brought to before their buckets are combined: one hint, one zero bucket.

use quiver_types::{Histogram, ResetHint};

use super::bounds::uses_custom_buckets;
use super::buckets::{negative, positive};
use super::compensation::Compensation;
use super::layout::{Buckets, compact, without_empty};
use crate::kahan;

/// Exponential and custom buckets cannot be combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("histograms with exponential and custom buckets cannot be combined")]
pub struct IncompatibleBuckets;

/// What happened while two histograms were combined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MergeOutcome {
    /// One said that there was a counter reset, the other that there was none; the result says nothing.
    pub collision: bool,
    /// Custom bounds differed; the result has those that both have.
    pub reconciled: bool,
}

/// Brings the hint of a sum in line; says whether the hints contradict each other.
pub(super) fn adjust_reset_hint(h: &mut Histogram, other: &Histogram) -> bool {
    let (hint, collision) = hint_of_sum(h.reset_hint, other.reset_hint);
    h.reset_hint = hint;
    collision
}

/// The hint of a sum of histograms with these, and whether they contradict each other.
fn hint_of_sum(own: ResetHint, others: ResetHint) -> (ResetHint, bool) {
    use ResetHint::{Gauge, Unknown};
    match (own, others) {
        (own, others) if own == others => (own, false),
        (Gauge, _) | (_, Gauge) => (Gauge, false),
        (Unknown, _) | (_, Unknown) => (Unknown, false),
        _ => (Unknown, true),
    }
}

/// Says whether two histograms have no sum and no difference: their buckets are of different kinds, or their hints
/// contradict each other. Nothing is added up for that.
pub fn refuse_each_other(lhs: &Histogram, rhs: &Histogram) -> bool {
    uses_custom_buckets(lhs) != uses_custom_buckets(rhs) || hint_of_sum(lhs.reset_hint, rhs.reset_hint).1
}

/// Finds a zero bucket that holds those of both and cuts through no populated bucket of either; changes `h` (and its
/// compensation) to it and gives the zero count that the other would have.
pub(super) fn reconcile_zero_buckets(h: &mut Histogram, other: &Histogram, mut lost: Option<&mut Compensation>) -> f64 {
    let (mut count, mut threshold) = (other.zero_count, other.zero_threshold);
    while threshold != h.zero_threshold {
        // NaN thresholds would never agree.
        if threshold.is_nan() || h.zero_threshold.is_nan() {
            return count;
        }
        if h.zero_threshold > threshold {
            ((count, _), threshold) = zero_count_at(other, h.zero_threshold, None);
        }
        if threshold > h.zero_threshold {
            let ((own, own_lost), widened) = zero_count_at(h, threshold, lost.as_deref());
            (h.zero_count, h.zero_threshold) = (own, widened);
            if let Some(lost) = lost.as_deref_mut() {
                lost.zero_count = own_lost;
            }
            clear_inside_zero_bucket(h, lost.as_deref_mut());
        }
    }
    count
}

/// Gives the zero count (and its compensation) for a larger threshold, and that threshold, moved outwards to the end
/// of the populated bucket that it falls into.
pub(super) fn zero_count_at(h: &Histogram, threshold: f64, lost: Option<&Compensation>) -> ((f64, f64), f64) {
    let mut threshold = threshold;
    if threshold == h.zero_threshold {
        return ((h.zero_count, lost.map_or(0.0, |l| l.zero_count)), threshold);
    }
    loop {
        let mut count = (h.zero_count, lost.map_or(0.0, |l| l.zero_count));
        let mut take = |value: f64, lost: Option<f64>| {
            count = kahan::inc(value, count.0, count.1);
            if let Some(lost) = lost {
                count = kahan::inc(lost, count.0, count.1);
            }
        };
        for (i, b) in positive(h).enumerate() {
            if b.lower >= threshold {
                break;
            }
            take(b.count, lost.map(|l| l.positive[i]));
            if b.upper > threshold {
                if b.count != 0.0 {
                    threshold = b.upper;
                }
                break;
            }
        }
        let mut widened = None;
        for (i, b) in negative(h).enumerate() {
            if b.upper <= -threshold {
                break;
            }
            take(b.count, lost.map(|l| l.negative[i]));
            if b.lower < -threshold {
                if b.count != 0.0 {
                    // The positive side has to be done again with the wider bucket.
                    widened = Some(-b.lower);
                }
                break;
            }
        }
        match widened {
            Some(wider) => threshold = wider,
            None => return (count, threshold),
        }
    }
}

fn clear_inside_zero_bucket(h: &mut Histogram, lost: Option<&mut Compensation>) {
    let inside_positive = positive(h).take_while(|b| b.lower < h.zero_threshold).count();
    let inside_negative = negative(h).take_while(|b| b.upper > -h.zero_threshold).count();
    h.positive[..inside_positive].fill(0.0);
    h.negative[..inside_negative].fill(0.0);
    match lost {
        Some(lost) => {
            lost.positive[..inside_positive].fill(0.0);
            lost.negative[..inside_negative].fill(0.0);
            let side = without_empty(Buckets { spans: &h.positive_spans, counts: &h.positive, lost: &lost.positive });
            (h.positive_spans, h.positive, lost.positive) = (side.spans, side.counts, side.lost);
            let side = without_empty(Buckets { spans: &h.negative_spans, counts: &h.negative, lost: &lost.negative });
            (h.negative_spans, h.negative, lost.negative) = (side.spans, side.counts, side.lost);
        }
        None => compact(h),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{custom, exponential, with_negative, with_zero};
    use super::super::{add, sub};
    use super::*;

    /// Breaks if what is said to have no sum and what has none come apart.
    #[test]
    fn what_refuses_each_other_has_no_sum() {
        let hints = [ResetHint::Unknown, ResetHint::Reset, ResetHint::NotReset, ResetHint::Gauge];
        let kinds = [exponential(0, 1, &[4.0]), custom(&[1.0], &[1.0, 2.0])];
        let all: Vec<Histogram> =
            kinds.iter().flat_map(|kind| hints.map(|reset_hint| Histogram { reset_hint, ..kind.clone() })).collect();
        let mut refused = 0;
        for (lhs, rhs) in all.iter().flat_map(|lhs| all.iter().map(move |rhs| (lhs, rhs))) {
            let refuses = refuse_each_other(lhs, rhs);
            for merge in [add, sub] {
                let merged = merge(&mut lhs.clone(), rhs);
                assert_eq!(refuses, merged.map_or(true, |merged| merged.collision), "{lhs:?} {rhs:?}");
            }
            refused += usize::from(refuses);
        }
        // Those of different kinds, and of each kind a reset beside none.
        assert_eq!(refused, 2 * 4 * 4 + 2 * 2);
    }

    #[test]
    fn a_zero_bucket_ends_where_no_populated_bucket_is_cut() {
        let check = |h: &Histogram, threshold: f64, count: f64, widened: f64| {
            assert_eq!(zero_count_at(h, threshold, None), ((count, 0.0), widened), "{threshold} of {h:?}");
        };
        let h = with_zero(exponential(0, 1, &[1.0, 2.0, 4.0]), 0.5, 3.0);
        check(&h, 0.5, 3.0, 0.5);
        check(&h, 0.75, 3.0, 0.75);
        check(&h, 1.0, 3.0, 1.0);
        check(&h, 1.25, 4.0, 2.0);
        check(&h, 2.0, 4.0, 2.0);
        check(&h, 3.0, 6.0, 4.0);
        check(&h, 100.0, 10.0, 100.0);
        // Nobody is hurt by a cut through an empty bucket.
        check(&with_zero(exponential(0, 1, &[1.0, 0.0, 4.0]), 0.5, 3.0), 3.0, 4.0, 3.0);
        // Either side widens the bucket for both.
        check(&with_negative(h.clone(), 1, &[8.0]), 1.5, 12.0, 2.0);
        let wide = with_negative(with_zero(exponential(0, 1, &[1.0]), 0.5, 3.0), 2, &[8.0]);
        check(&wide, 3.0, 12.0, 4.0);
        check(&wide, 1.5, 4.0, 2.0);
    }
}
