//! Compensated sums of histograms.

use quiver_types::Histogram;

use super::bounds::uses_custom_buckets;
use super::compensation::Compensation;
use super::layout::{Addend, Buckets, Side, Summation, common_bounds, merge, merge_custom, reduce};
use super::reconcile::{IncompatibleBuckets, MergeOutcome, adjust_reset_hint, reconcile_zero_buckets};
use crate::kahan;

/// Adds a histogram to a compensated sum.
///
/// # Errors
/// When one has custom buckets and the other has not.
pub fn add_compensated(
    h: &mut Histogram,
    lost: &mut Compensation,
    other: &Histogram,
) -> Result<MergeOutcome, IncompatibleBuckets> {
    if uses_custom_buckets(h) != uses_custom_buckets(other) {
        return Err(IncompatibleBuckets);
    }
    let collision = adjust_reset_hint(h, other);
    if !uses_custom_buckets(h) {
        let zero = reconcile_zero_buckets(h, other, Some(lost));
        (h.zero_count, lost.zero_count) = kahan::inc(zero, h.zero_count, lost.zero_count);
    }
    (h.count, lost.count) = kahan::inc(other.count, h.count, lost.count);
    (h.sum, lost.sum) = kahan::inc(other.sum, h.sum, lost.sum);
    if uses_custom_buckets(h) {
        return Ok(MergeOutcome { collision, reconciled: add_custom(h, lost, other) });
    }
    if other.schema < h.schema {
        let own = Buckets { spans: &h.positive_spans, counts: &h.positive, lost: &lost.positive };
        let side = reduce(own, h.schema, other.schema, Summation::Compensated);
        (h.positive_spans, h.positive, lost.positive) = (side.spans, side.counts, side.lost);
        let own = Buckets { spans: &h.negative_spans, counts: &h.negative, lost: &lost.negative };
        let side = reduce(own, h.schema, other.schema, Summation::Compensated);
        (h.negative_spans, h.negative, lost.negative) = (side.spans, side.counts, side.lost);
        h.schema = other.schema;
    }
    let (schema, zero_threshold) = (h.schema, h.zero_threshold);
    let add = |own: OwnSide<'_>, spans: &[_], counts: &[f64]| {
        let mut buckets = Buckets::plain(spans, counts);
        let reduced: Side;
        if other.schema > schema {
            reduced = reduce(buckets, other.schema, schema, Summation::Compensated);
            buckets = Buckets { spans: &reduced.spans, counts: &reduced.counts, lost: &reduced.lost };
        }
        add_side(own, Addend { buckets, sign: 1.0, schema, zero_threshold });
    };
    add((&mut h.positive_spans, &mut h.positive, &mut lost.positive), &other.positive_spans, &other.positive);
    add((&mut h.negative_spans, &mut h.negative, &mut lost.negative), &other.negative_spans, &other.negative);
    Ok(MergeOutcome { collision, reconciled: false })
}

type OwnSide<'a> = (&'a mut Vec<quiver_types::Span>, &'a mut Vec<f64>, &'a mut Vec<f64>);

fn add_side((spans, counts, lost): OwnSide<'_>, other: Addend<'_>) {
    let added = other.buckets;
    if added.counts.is_empty() {
        return;
    }
    // The usual case: neighbours in time or in a group have the same buckets.
    let same = spans.as_slice() == added.spans && counts.len() == added.counts.len();
    if same && other.zero_threshold == 0.0 && added.lost.is_empty() {
        for ((count, lost), value) in counts.iter_mut().zip(lost).zip(added.counts) {
            (*count, *lost) = kahan::inc(*value, *count, *lost);
        }
        return;
    }
    let side = merge(Buckets { spans, counts, lost }, other, Summation::Compensated);
    (*spans, *counts, *lost) = (side.spans, side.counts, side.lost);
}

fn add_custom(h: &mut Histogram, lost: &mut Compensation, other: &Histogram) -> bool {
    let buckets = Buckets::plain(&other.positive_spans, &other.positive);
    if h.custom_bounds == other.custom_bounds {
        let other = Addend { buckets, sign: 1.0, schema: h.schema, zero_threshold: 0.0 };
        add_side((&mut h.positive_spans, &mut h.positive, &mut lost.positive), other);
        return false;
    }
    let common = common_bounds(&h.custom_bounds, &other.custom_bounds);
    let own = Buckets { spans: &h.positive_spans, counts: &h.positive, lost: &lost.positive };
    let side = merge_custom((own, &h.custom_bounds), (buckets, &other.custom_bounds), 1.0, &common);
    (h.positive_spans, h.positive, lost.positive) = (side.spans, side.counts, side.lost);
    h.custom_bounds = common;
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::arithmetic::{add, equals};
    use super::super::bounds::bound;
    use super::super::layout::compact;
    use super::super::testing::{custom, exponential, with_negative, with_zero};
    use super::*;

    #[test]
    fn small_counts_survive_large_ones() {
        let mut h = exponential(0, 0, &[1e17]);
        let mut lost = Compensation::new(&h);
        for _ in 0..10 {
            assert!(add_compensated(&mut h, &mut lost, &exponential(1, 0, &[1.0])).is_ok());
        }
        lost.restore_to(&mut h);
        assert_eq!(h.positive, [1e17 + 10.0 - 1e17 + 1e17]);
        assert_eq!(h.count, 1e17 + 16.0 - 6.0);
    }

    fn any_histogram() -> impl Strategy<Value = Histogram> {
        let counts = || prop::collection::vec((0_u32..50).prop_map(f64::from), 0..6);
        (-2..3, -4..5, counts(), -3..4, counts(), 0_usize..4, 0_u32..9).prop_map(|(schema, o, p, no, n, zero, zc)| {
            let threshold = [0.0, 0.25, 1.0, 3.0][zero];
            // Buckets do not lie within the zero bucket.
            let outside = |o: i32| (o..o + 64).find(|&i| bound(i, schema, &[]) > threshold).unwrap_or(o);
            let h = with_negative(exponential(schema, outside(o), &p), outside(no), &n);
            if threshold == 0.0 { h } else { with_zero(h, threshold, f64::from(zc)) }
        })
    }

    proptest! {
        #[test]
        fn plain_and_compensated_sums_agree_on_whole_numbers(
            first in any_histogram(), others in prop::collection::vec(any_histogram(), 1..5),
        ) {
            let (mut plain, mut compensated) = (first.clone(), first.clone());
            let mut lost = Compensation::new(&first);
            for other in &others {
                add(&mut plain, other).unwrap();
                add_compensated(&mut compensated, &mut lost, other).unwrap();
            }
            lost.restore_to(&mut compensated);
            compact(&mut plain);
            compact(&mut compensated);
            prop_assert!(equals(&plain, &compensated), "{plain:?}\n{compensated:?}");
            // As upstream does: a bucket within a wide zero bucket is counted there, and again if a lower resolution
            // merges it into one that reaches beyond. 0 and 1 are bounds of every resolution.
            let exact = |h: &Histogram| h.zero_threshold == 0.0 || h.zero_threshold == 1.0;
            if !std::iter::once(&first).chain(&others).all(exact) {
                return Ok(());
            }
            let inside: f64 = plain.positive.iter().chain(&plain.negative).sum::<f64>() + plain.zero_count;
            let expected: f64 = std::iter::once(&first).chain(&others).map(|h| h.count).sum();
            prop_assert_eq!((inside, plain.count), (expected, expected));
        }

        #[test]
        fn custom_sums_agree(counts in prop::collection::vec(
            (prop::collection::vec((0_u32..50).prop_map(f64::from), 4), 0..3_usize), 1..5)) {
            let layouts = [[1.0, 2.0, 5.0], [1.0, 3.0, 5.0], [0.5, 2.0, 5.0]];
            let list: Vec<Histogram> = counts.iter().map(|(c, l)| custom(&layouts[*l], c)).collect();
            let (mut plain, mut compensated) = (list[0].clone(), list[0].clone());
            let mut lost = Compensation::new(&list[0]);
            for other in &list[1..] {
                add(&mut plain, other).unwrap();
                add_compensated(&mut compensated, &mut lost, other).unwrap();
            }
            lost.restore_to(&mut compensated);
            compact(&mut plain);
            compact(&mut compensated);
            prop_assert!(equals(&plain, &compensated), "{plain:?}\n{compensated:?}");
        }
    }
}
