//! Sum, difference, product and quotient of histograms, and equality.

use quiver_types::{Histogram, ResetHint};

use super::bounds::{SCHEMA_MIN, uses_custom_buckets};
use super::buckets::indexed;
use super::layout::{Addend, Buckets, Side, Summation, common_bounds, merge, merge_custom, reduce};
use super::reconcile::{IncompatibleBuckets, MergeOutcome, adjust_reset_hint, reconcile_zero_buckets};

/// Adds a histogram.
///
/// # Errors
/// When one has custom buckets and the other has not.
pub fn add(h: &mut Histogram, other: &Histogram) -> Result<MergeOutcome, IncompatibleBuckets> {
    combine(h, other, 1.0)
}

/// Subtracts a histogram. The hint is that of an addition; a plain difference is a gauge, which the caller sets.
///
/// # Errors
/// When one has custom buckets and the other has not.
pub fn sub(h: &mut Histogram, other: &Histogram) -> Result<MergeOutcome, IncompatibleBuckets> {
    combine(h, other, -1.0)
}

fn combine(h: &mut Histogram, other: &Histogram, sign: f64) -> Result<MergeOutcome, IncompatibleBuckets> {
    if uses_custom_buckets(h) != uses_custom_buckets(other) {
        return Err(IncompatibleBuckets);
    }
    let collision = adjust_reset_hint(h, other);
    if !uses_custom_buckets(h) {
        let zero = reconcile_zero_buckets(h, other, None);
        h.zero_count += sign * zero;
    }
    h.count += sign * other.count;
    h.sum += sign * other.sum;
    if uses_custom_buckets(h) {
        return Ok(MergeOutcome { collision, reconciled: combine_custom(h, other, sign) });
    }
    if other.schema < h.schema {
        reduce_schema(h, other.schema);
    }
    let (schema, zero_threshold) = (h.schema, h.zero_threshold);
    let side = |spans: &mut Vec<_>, counts: &mut Vec<f64>, other_spans: &[_], other_counts: &[f64]| {
        let mut buckets = Buckets::plain(other_spans, other_counts);
        let reduced: Side;
        if other.schema > schema {
            reduced = reduce(buckets, other.schema, schema, Summation::Plain);
            buckets = Buckets::plain(&reduced.spans, &reduced.counts);
        }
        add_side((spans, counts), Addend { buckets, sign, schema, zero_threshold });
    };
    side(&mut h.positive_spans, &mut h.positive, &other.positive_spans, &other.positive);
    side(&mut h.negative_spans, &mut h.negative, &other.negative_spans, &other.negative);
    Ok(MergeOutcome { collision, reconciled: false })
}

fn combine_custom(h: &mut Histogram, other: &Histogram, sign: f64) -> bool {
    let buckets = Buckets::plain(&other.positive_spans, &other.positive);
    if h.custom_bounds == other.custom_bounds {
        let other = Addend { buckets, sign, schema: h.schema, zero_threshold: 0.0 };
        add_side((&mut h.positive_spans, &mut h.positive), other);
        return false;
    }
    let common = common_bounds(&h.custom_bounds, &other.custom_bounds);
    let own = Buckets::plain(&h.positive_spans, &h.positive);
    let side = merge_custom((own, &h.custom_bounds), (buckets, &other.custom_bounds), sign, &common);
    (h.positive_spans, h.positive, h.custom_bounds) = (side.spans, side.counts, common);
    true
}

type OwnSide<'a> = (&'a mut Vec<quiver_types::Span>, &'a mut Vec<f64>);

fn add_side((spans, counts): OwnSide<'_>, other: Addend<'_>) {
    let added = other.buckets;
    if added.counts.is_empty() {
        return;
    }
    // The usual case: neighbours in time or in a group have the same buckets.
    if other.zero_threshold == 0.0 && spans.as_slice() == added.spans && counts.len() == added.counts.len() {
        counts.iter_mut().zip(added.counts).for_each(|(c, o)| *c += other.sign * o);
        return;
    }
    let side = merge(Buckets::plain(spans, counts), other, Summation::Plain);
    (*spans, *counts) = (side.spans, side.counts);
}

/// Lowers the resolution to a schema that is not above the histogram's; nothing happens to custom buckets.
pub fn reduce_schema(h: &mut Histogram, schema: i32) {
    if schema >= h.schema || uses_custom_buckets(h) || schema < SCHEMA_MIN {
        return;
    }
    let side = reduce(Buckets::plain(&h.positive_spans, &h.positive), h.schema, schema, Summation::Plain);
    (h.positive_spans, h.positive) = (side.spans, side.counts);
    let side = reduce(Buckets::plain(&h.negative_spans, &h.negative), h.schema, schema, Summation::Plain);
    (h.negative_spans, h.negative) = (side.spans, side.counts);
    h.schema = schema;
}

/// Multiplies all counts and the sum; a negative factor makes a gauge.
pub fn mul(h: &mut Histogram, factor: f64) {
    scale(h, |v| v * factor);
    if factor < 0.0 {
        h.reset_hint = ResetHint::Gauge;
    }
}

/// Divides all counts and the sum; zero removes the buckets, a negative divisor makes a gauge.
pub fn div(h: &mut Histogram, divisor: f64) {
    scale(h, |v| v / divisor);
    if divisor == 0.0 {
        for list in [&mut h.positive, &mut h.negative] {
            list.clear();
        }
        h.positive_spans.clear();
        h.negative_spans.clear();
    } else if divisor < 0.0 {
        h.reset_hint = ResetHint::Gauge;
    }
}

fn scale(h: &mut Histogram, f: impl Fn(f64) -> f64) {
    for v in [&mut h.zero_count, &mut h.count, &mut h.sum] {
        *v = f(*v);
    }
    h.positive.iter_mut().chain(&mut h.negative).for_each(|v| *v = f(*v));
}

/// Says whether two histograms hold the same data, bit for bit; hints do not count, empty buckets do.
pub fn equals(a: &Histogram, b: &Histogram) -> bool {
    let same = |x: f64, y: f64| x.to_bits() == y.to_bits();
    let side = |a: (&[_], &[f64]), b: (&[_], &[f64])| {
        a.1.len() == b.1.len() && indexed(a.0, a.1).zip(indexed(b.0, b.1)).all(|(x, y)| x.0 == y.0 && same(x.1, y.1))
    };
    a.schema == b.schema
        && same(a.count, b.count)
        && same(a.sum, b.sum)
        && (!uses_custom_buckets(a) || a.custom_bounds == b.custom_bounds)
        && a.zero_threshold == b.zero_threshold
        && same(a.zero_count, b.zero_count)
        && side((&a.negative_spans, &a.negative), (&b.negative_spans, &b.negative))
        && side((&a.positive_spans, &a.positive), (&b.positive_spans, &b.positive))
}

/// Says whether a count or the sum is infinite.
pub fn has_overflow(h: &Histogram) -> bool {
    let lists = [&h.positive, &h.negative, &h.custom_bounds];
    [h.zero_count, h.count, h.sum].iter().chain(lists.into_iter().flatten()).any(|v| v.is_infinite())
}

#[cfg(test)]
mod tests {
    use super::super::layout::compact;
    use super::super::testing::{custom, exponential, populated, with_negative, with_zero};
    use super::*;

    #[test]
    fn sums_on_the_lower_schema() {
        let mut a = exponential(1, 1, &[1.0, 2.0, 3.0]);
        let b = exponential(0, 1, &[10.0, 20.0]);
        assert_eq!(add(&mut a, &b), Ok(MergeOutcome::default()));
        assert_eq!(a.schema, 0);
        assert_eq!(populated(&a), [(1, 13.0), (2, 23.0)]);
        assert_eq!((a.count, a.sum), (36.0, 72.0));

        let mut b = exponential(0, 1, &[10.0, 20.0]);
        assert_eq!(sub(&mut b, &exponential(1, 1, &[1.0, 2.0, 3.0])), Ok(MergeOutcome::default()));
        assert_eq!(populated(&b), [(1, 7.0), (2, 17.0)]);
    }

    #[test]
    fn zero_buckets_widen_to_bounds() {
        let mut a = with_zero(exponential(0, 1, &[1.0, 2.0]), 0.5, 1.0);
        let b = with_zero(with_negative(exponential(0, 2, &[4.0, 8.0]), 1, &[3.0]), 1.5, 5.0);
        // 1.5 lies in the populated (1, 2] of a: the zero bucket becomes 2, and takes -2..-1 of b as well.
        assert!(add(&mut a, &b).is_ok());
        assert_eq!((a.zero_threshold, a.zero_count), (2.0, 1.0 + 1.0 + 5.0 + 3.0));
        assert_eq!(populated(&a), [(2, 6.0), (3, 8.0)]);
        assert!(a.negative.iter().all(|&c| c == 0.0));
        assert_eq!(a.count, 24.0);
    }

    #[test]
    fn hints_of_sums() {
        use ResetHint::{Gauge, NotReset, Reset, Unknown};
        let check = |a, b, expected, collision| {
            let mut h = Histogram { reset_hint: a, ..Histogram::default() };
            let merged = add(&mut h, &Histogram { reset_hint: b, ..Histogram::default() }).unwrap();
            assert_eq!((h.reset_hint, merged.collision), (expected, collision), "{a:?} {b:?}");
        };
        check(Gauge, Reset, Gauge, false);
        check(Reset, Gauge, Gauge, false);
        check(Unknown, NotReset, Unknown, false);
        check(NotReset, Unknown, Unknown, false);
        check(Reset, NotReset, Unknown, true);
        check(NotReset, NotReset, NotReset, false);
    }

    #[test]
    fn custom_buckets() {
        let mut a = custom(&[1.0, 2.0], &[1.0, 2.0, 3.0]);
        assert!(!add(&mut a, &custom(&[1.0, 2.0], &[1.0, 1.0, 1.0])).unwrap().reconciled);
        assert_eq!(a.positive, [2.0, 3.0, 4.0]);
        assert!(add(&mut a, &custom(&[2.0, 4.0], &[1.0, 1.0, 1.0])).unwrap().reconciled);
        assert_eq!((&a.custom_bounds[..], &a.positive[..]), (&[2.0][..], &[6.0, 6.0][..]));
        assert_eq!(add(&mut a, &exponential(0, 0, &[1.0])), Err(IncompatibleBuckets));
    }

    #[test]
    fn scaling() {
        let mut h = with_zero(exponential(0, 0, &[1.0, 2.0]), 0.1, 4.0);
        mul(&mut h, 2.0);
        assert_eq!((h.count, h.zero_count, h.positive[1]), (14.0, 8.0, 4.0));
        div(&mut h, -2.0);
        assert_eq!((h.count, h.reset_hint), (-7.0, ResetHint::Gauge));
        div(&mut h, 0.0);
        assert!(h.positive.is_empty() && h.count.is_infinite());
    }

    #[test]
    fn equality_is_about_data() {
        let a = exponential(0, 0, &[1.0, 0.0]);
        let mut b = a.clone();
        b.reset_hint = ResetHint::Gauge;
        assert!(equals(&a, &b));
        compact(&mut b);
        assert!(!equals(&a, &b));
    }

    #[test]
    fn differences_go_below_zero() {
        let mut h = with_zero(exponential(0, 1, &[1.0, 2.0]), 0.5, 1.0);
        assert_eq!(sub(&mut h, &with_zero(exponential(0, 1, &[3.0]), 0.5, 4.0)), Ok(MergeOutcome::default()));
        assert_eq!(populated(&h), [(1, -2.0), (2, 2.0)]);
        assert_eq!((h.zero_count, h.count, h.sum), (-3.0, -3.0, 0.0));
        let mut own = h.clone();
        assert!(sub(&mut own, &h).is_ok());
        compact(&mut own);
        assert_eq!((own.count, own.zero_count, own.positive.len(), own.positive_spans.len()), (0.0, 0.0, 0, 0));
    }

    #[test]
    fn thresholds_beyond_all_numbers_end_the_search() {
        let mut h = with_zero(exponential(0, 1, &[1.0]), f64::NAN, 1.0);
        assert!(add(&mut h, &with_zero(exponential(0, 1, &[1.0]), 0.5, 2.0)).is_ok());
        assert_eq!((h.zero_count, populated(&h)), (3.0, vec![(1, 2.0)]));
        let mut h = with_zero(exponential(0, 1, &[1.0, 2.0]), 0.5, 1.0);
        assert!(add(&mut h, &with_zero(exponential(0, 1, &[]), f64::INFINITY, 5.0)).is_ok());
        assert_eq!((h.zero_count, h.zero_threshold, populated(&h)), (9.0, f64::INFINITY, vec![]));
    }

    #[test]
    fn resolutions_only_fall() {
        let h = exponential(2, 1, &[1.0, 2.0, 3.0, 4.0, 5.0]);
        let mut coarse = with_negative(h.clone(), -3, &[1.0, 1.0, 1.0, 1.0, 1.0]);
        reduce_schema(&mut coarse, 0);
        // Four buckets of schema 2 make one of schema 0: 1 to 4 end at 2, 5 at 4; -3 to 0 end at 1, 1 at 2.
        assert_eq!((coarse.schema, populated(&coarse)), (0, vec![(1, 10.0), (2, 5.0)]));
        assert_eq!((&coarse.negative[..], coarse.negative_spans[0].offset), (&[4.0, 1.0][..], 0));
        assert_eq!((coarse.count, coarse.sum), (20.0, h.sum), "totals stay");
        for (mut h, schema) in [(h.clone(), 2), (h.clone(), 3), (h, -5), (custom(&[1.0], &[1.0, 2.0]), -60)] {
            let before = h.clone();
            reduce_schema(&mut h, schema);
            assert_eq!(h, before, "{schema}");
        }
    }

    #[test]
    fn factors_that_are_no_usual_numbers() {
        let h = || Histogram { reset_hint: ResetHint::NotReset, ..exponential(0, 0, &[1.0, 0.0]) };
        let scaled = |factor: f64| {
            let mut h = h();
            mul(&mut h, factor);
            (h.count, h.positive[1], h.reset_hint)
        };
        assert_eq!(scaled(0.0), (0.0, 0.0, ResetHint::NotReset));
        assert_eq!(scaled(-0.0), (0.0, 0.0, ResetHint::NotReset), "zero is not below zero");
        assert_eq!(scaled(-2.0), (-2.0, 0.0, ResetHint::Gauge));
        let (count, empty, hint) = scaled(f64::INFINITY);
        assert!(count.is_infinite() && empty.is_nan() && hint == ResetHint::NotReset);
        let mut nothing = exponential(0, 0, &[0.0]);
        div(&mut nothing, 0.0);
        assert!(nothing.count.is_nan() && nothing.sum.is_nan() && nothing.positive_spans.is_empty());
        let mut tiny = h();
        div(&mut tiny, f64::INFINITY);
        assert_eq!((tiny.count, tiny.positive.len()), (0.0, 2));
    }

    #[test]
    fn equality_looks_at_bits_and_places() {
        use quiver_types::Span;

        let h = || with_zero(exponential(0, 0, &[1.0, 2.0]), 0.5, 1.0);
        let same = |change: &dyn Fn(&mut Histogram)| {
            let mut other = h();
            change(&mut other);
            assert_eq!(equals(&h(), &other), equals(&other, &h()));
            equals(&h(), &other)
        };
        assert!(same(&|_| {}));
        assert!(same(&|h| h.custom_bounds = vec![1.0]), "of no account without custom buckets");
        assert!(same(&|h| h.positive_spans = vec![Span { offset: 0, length: 1 }, Span { offset: 0, length: 1 }]));
        assert!(!same(&|h| h.positive_spans[0].offset = 1));
        assert!(!same(&|h| h.schema = 1));
        assert!(!same(&|h| h.sum = -h.sum));
        assert!(!same(&|h| h.zero_threshold = 0.25));
        assert!(!same(&|h| h.zero_count = 2.0));
        assert!(!same(&|h| h.positive[1] = 2.5));
        assert!(!same(&|h| *h = with_negative(h.clone(), 0, &[0.0])));
        let nan = || Histogram { sum: f64::NAN, ..h() };
        assert!(equals(&nan(), &nan()) && !equals(&nan(), &h()));
        assert!(!equals(&Histogram { sum: 0.0, ..h() }, &Histogram { sum: -0.0, ..h() }));
        assert!(equals(&custom(&[1.0], &[1.0, 2.0]), &custom(&[1.0], &[1.0, 2.0])));
        assert!(!equals(&custom(&[1.0], &[1.0, 2.0]), &custom(&[2.0], &[1.0, 2.0])));
    }

    #[test]
    fn overflow_is_seen_wherever_it_is() {
        let inf = f64::INFINITY;
        let h = || with_negative(with_zero(exponential(0, 0, &[1.0, 2.0]), 0.5, 1.0), 0, &[1.0]);
        assert!(!has_overflow(&h()) && !has_overflow(&Histogram { sum: f64::NAN, ..h() }));
        assert!(has_overflow(&Histogram { sum: -inf, ..h() }) && has_overflow(&Histogram { count: inf, ..h() }));
        assert!(has_overflow(&Histogram { zero_count: inf, ..h() }));
        assert!(has_overflow(&Histogram { positive: vec![1.0, inf], ..h() }));
        assert!(has_overflow(&Histogram { negative: vec![-inf], ..h() }));
    }
}
