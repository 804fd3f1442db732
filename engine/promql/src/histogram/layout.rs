//! Lists of buckets rebuilt: merged, reduced in resolution, mapped to other bounds, freed of empty buckets.
//!
//! A [`Side`] is the positive or negative half of a histogram: runs, counts and, for compensated sums, what the counts
//! have lost. All operations give canonical runs: ascending, none empty, no two without a gap.

use quiver_types::{Histogram, Span};

use super::bounds::exponential;
use super::buckets::indexed;
use crate::kahan;

/// Half of a histogram.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Side {
    pub(super) spans: Vec<Span>,
    pub(super) counts: Vec<f64>,
    /// Compensation of each count; empty where sums are plain.
    pub(super) lost: Vec<f64>,
    end: i32,
}

impl Side {
    /// Appends a bucket; indexes ascend.
    fn push(&mut self, index: i32, (count, lost): (f64, f64), summation: Summation) {
        match self.spans.last_mut() {
            Some(span) if index == self.end => span.length += 1,
            last => {
                // Runs at both ends of the numbers are further apart than a number says: it wraps, as in Prometheus.
                let offset = if last.is_some() { index.wrapping_sub(self.end) } else { index };
                self.spans.push(Span { offset, length: 1 });
            }
        }
        self.end = index.saturating_add(1);
        self.counts.push(count);
        if summation == Summation::Compensated {
            self.lost.push(lost);
        }
    }
}

/// How counts are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Summation {
    Plain,
    /// What a sum loses to rounding is kept beside it (Kahan and Neumaier).
    Compensated,
}

/// What is known of an operand: runs, counts, compensation (empty: none).
#[derive(Debug, Clone, Copy)]
pub(super) struct Buckets<'a> {
    pub(super) spans: &'a [Span],
    pub(super) counts: &'a [f64],
    pub(super) lost: &'a [f64],
}

impl<'a> Buckets<'a> {
    pub(super) fn plain(spans: &'a [Span], counts: &'a [f64]) -> Self {
        Self { spans, counts, lost: &[] }
    }

    fn iter(&self) -> impl Iterator<Item = (i32, (f64, f64))> + 'a {
        let lost = self.lost.iter().copied().chain(std::iter::repeat(0.0));
        indexed(self.spans, self.counts).zip(lost).map(|((i, c), l)| (i, (c, l)))
    }
}

/// Buckets that are added to others of the same schema.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addend<'a> {
    pub(super) buckets: Buckets<'a>,
    /// 1 to add them, -1 to subtract them.
    pub(super) sign: f64,
    pub(super) schema: i32,
    /// Upper bound of the zero bucket. It holds the buckets at the start that end there or below, which are left out. 0
    /// for custom buckets, whose bounds no schema tells.
    pub(super) zero_threshold: f64,
}

impl Addend<'_> {
    fn iter(&self) -> impl Iterator<Item = (i32, (f64, f64))> {
        let Self { sign, schema, zero_threshold, .. } = *self;
        let is_zero = move |index| zero_threshold > 0.0 && exponential(index, schema) <= zero_threshold;
        self.buckets.iter().skip_while(move |(i, _)| is_zero(*i)).map(move |(i, (c, l))| (i, (c * sign, l * sign)))
    }
}

/// Adds up two lists of buckets.
pub(super) fn merge(own: Buckets<'_>, other: Addend<'_>, summation: Summation) -> Side {
    let compensated = summation == Summation::Compensated;
    let mut out = Side::default();
    out.counts.reserve(own.counts.len().max(other.buckets.counts.len()));
    let (mut left, mut right) = (own.iter().peekable(), other.iter().peekable());
    loop {
        let (index, value) = match (left.peek().copied(), right.peek().copied()) {
            (None, None) => return out,
            (Some(l), Some(r)) if l.0 == r.0 => {
                left.next();
                right.next();
                (l.0, if compensated { add_compensated(l.1, r.1) } else { (l.1.0 + r.1.0, 0.0) })
            }
            (Some(l), r) if r.is_none_or(|r| l.0 < r.0) => {
                left.next();
                l
            }
            (_, Some(r)) => {
                right.next();
                r
            }
            (Some(_), None) => unreachable!("the arm before takes a left bucket without a right one"),
        };
        out.push(index, value, summation);
    }
}

fn add_compensated(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    let (sum, lost) = kahan::inc(b.0, a.0, a.1);
    if b.1 == 0.0 { (sum, lost) } else { kahan::inc(b.1, sum, lost) }
}

/// Gives the bucket of a lower schema that holds a bucket.
pub(super) fn target_index(idx: i32, schema: i32, target: i32) -> i32 {
    // In 64 bits, as the lowest index has none before it.
    (((i64::from(idx) - 1) >> (schema - target)) + 1) as i32
}

/// Merges buckets until the resolution is that of `target`, which must not be above `schema`.
pub(super) fn reduce(buckets: Buckets<'_>, schema: i32, target: i32, summation: Summation) -> Side {
    let mut out = Side::default();
    for (index, (count, lost)) in buckets.iter() {
        let index = target_index(index, schema, target);
        if out.counts.is_empty() || index != out.end - 1 {
            out.push(index, (count, lost), summation);
            continue;
        }
        let last = out.counts.len() - 1;
        if summation == Summation::Compensated {
            let (sum, c) = kahan::inc(count, out.counts[last], out.lost[last]);
            (out.counts[last], out.lost[last]) = kahan::inc(lost, sum, c);
        } else {
            out.counts[last] += count;
        }
    }
    out
}

/// Leaves out empty buckets; with compensation those whose compensation is zero too.
pub(super) fn without_empty(buckets: Buckets<'_>) -> Side {
    let summation = if buckets.lost.is_empty() { Summation::Plain } else { Summation::Compensated };
    let mut out = Side::default();
    for (index, value) in buckets.iter().filter(|(_, v)| v.0 != 0.0 || v.1 != 0.0) {
        out.push(index, value, summation);
    }
    out
}

/// Says whether [`without_empty`] would change anything.
pub(super) fn is_compact(spans: &[Span], counts: &[f64]) -> bool {
    counts.iter().all(|&c| c != 0.0) && spans.iter().all(|s| s.length > 0) && spans.iter().skip(1).all(|s| s.offset > 0)
}

/// Gives the bounds that two custom layouts share.
pub(super) fn common_bounds(a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut out = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let (left, right) = (a[i], b[j]);
        if left == right {
            out.push(left);
        }
        i += usize::from(left <= right);
        j += usize::from(right <= left);
    }
    out
}

/// Adds or subtracts custom buckets with different bounds on the bounds that they share.
pub(super) fn merge_custom(a: (Buckets<'_>, &[f64]), b: (Buckets<'_>, &[f64]), sign: f64, common: &[f64]) -> Side {
    let mut sums = vec![(0.0, 0.0); common.len() + 1];
    let mut map = |buckets: Buckets<'_>, bounds: &[f64], sign: f64| {
        let mut target = 0;
        for (index, (count, lost)) in buckets.iter() {
            match usize::try_from(index).ok().and_then(|i| bounds.get(i)) {
                Some(bound) => {
                    while target < common.len() && common[target] < *bound {
                        target += 1;
                    }
                }
                None => target = common.len(),
            }
            let slot: &mut (f64, f64) = &mut sums[target];
            *slot = kahan::inc(count * sign, slot.0, slot.1);
            if lost != 0.0 {
                *slot = kahan::inc(lost * sign, slot.0, slot.1);
            }
        }
    };
    map(a.0, a.1, 1.0);
    map(b.0, b.1, sign);
    let mut out = Side::default();
    for (i, value) in sums.into_iter().enumerate().filter(|(_, v)| v.0 != 0.0 || v.1 != 0.0) {
        out.push(i as i32, value, Summation::Compensated);
    }
    out
}

/// Removes empty buckets.
pub fn compact(h: &mut Histogram) {
    if !is_compact(&h.positive_spans, &h.positive) {
        let side = without_empty(Buckets::plain(&h.positive_spans, &h.positive));
        (h.positive_spans, h.positive) = (side.spans, side.counts);
    }
    if !is_compact(&h.negative_spans, &h.negative) {
        let side = without_empty(Buckets::plain(&h.negative_spans, &h.negative));
        (h.negative_spans, h.negative) = (side.spans, side.counts);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn spans(list: &[(i32, u32)]) -> Vec<Span> {
        list.iter().map(|&(offset, length)| Span { offset, length }).collect()
    }

    fn of(buckets: Buckets<'_>, sign: f64) -> Addend<'_> {
        Addend { buckets, sign, schema: 0, zero_threshold: 0.0 }
    }

    #[test]
    fn merging_fills_gaps_and_joins_runs() {
        let (sa, sb) = (spans(&[(0, 2), (1, 1)]), spans(&[(2, 1), (2, 1)]));
        let a = Buckets::plain(&sa, &[1.0, 2.0, 3.0]);
        let b = Buckets::plain(&sb, &[10.0, 20.0]);
        let got = merge(a, of(b, 1.0), Summation::Plain);
        assert_eq!(got.spans, spans(&[(0, 4), (1, 1)]));
        assert_eq!(got.counts, [1.0, 2.0, 10.0, 3.0, 20.0]);
        let got = merge(b, of(b, -1.0), Summation::Plain);
        assert_eq!(got.counts, [0.0, 0.0]);
    }

    #[test]
    fn buckets_at_both_ends_are_merged() {
        let (low, high) = (spans(&[(i32::MIN, 1)]), spans(&[(i32::MAX - 3, 2)]));
        let (a, b) = (Buckets::plain(&low, &[1.0]), Buckets::plain(&high, &[2.0, 3.0]));
        for (a, b) in [(a, b), (b, a)] {
            let got = merge(a, of(b, 1.0), Summation::Plain);
            let found: Vec<_> = Buckets::plain(&got.spans, &got.counts).iter().map(|(i, (c, _))| (i, c)).collect();
            assert_eq!(found, [(i32::MIN, 1.0), (i32::MAX - 3, 2.0), (i32::MAX - 2, 3.0)]);
        }
        assert_eq!((target_index(i32::MIN, 8, -4), target_index(i32::MAX, 1, 0)), (i32::MIN >> 12, 1 << 30));
    }

    #[test]
    fn buckets_below_the_threshold_are_left_out() {
        let s = spans(&[(0, 3)]);
        let b = Buckets::plain(&s, &[1.0, 2.0, 3.0]);
        let other = Addend { zero_threshold: 2.0, ..of(b, 1.0) };
        let got = merge(Buckets::plain(&[], &[]), other, Summation::Plain);
        assert_eq!((got.spans, got.counts), (spans(&[(2, 1)]), vec![3.0]));
    }

    #[test]
    fn reducing_merges_neighbours() {
        let s = spans(&[(-1, 4), (3, 1)]);
        let got = reduce(Buckets::plain(&s, &[1.0, 2.0, 4.0, 8.0, 16.0]), 1, 0, Summation::Plain);
        // 2^(idx/2): indexes -1, 0 end at 1; 1, 2 at 2; 6 at 8.
        assert_eq!((got.spans, got.counts), (spans(&[(0, 2), (1, 1)]), vec![3.0, 12.0, 16.0]));
    }

    #[test]
    fn empty_buckets_go() {
        let s = spans(&[(0, 3), (0, 1), (2, 1)]);
        let counts = [0.0, 1.0, 0.0, 2.0, 0.0];
        assert!(!is_compact(&s, &counts));
        let got = without_empty(Buckets::plain(&s, &counts));
        assert_eq!((&got.spans, &got.counts), (&spans(&[(1, 1), (1, 1)]), &vec![1.0, 2.0]));
        assert!(is_compact(&got.spans, &got.counts));
    }

    #[test]
    fn custom_bounds_are_intersected() {
        let common = common_bounds(&[1.0, 2.0, 5.0], &[2.0, 3.0, 5.0]);
        assert_eq!(common, [2.0, 5.0]);
        let s = spans(&[(0, 4)]);
        let a = Buckets::plain(&s, &[1.0, 2.0, 3.0, 4.0]);
        let b = Buckets::plain(&s, &[10.0, 20.0, 30.0, 40.0]);
        let got = merge_custom((a, &[1.0, 2.0, 5.0]), (b, &[2.0, 3.0, 5.0]), 1.0, &common);
        assert_eq!(got.counts, [13.0, 53.0, 44.0]);
    }

    /// Buckets at random, ascending, some of them side by side.
    fn some_buckets(random: &mut SmallRng) -> BTreeMap<i32, f64> {
        let mut all = BTreeMap::new();
        let mut index = random.random_range(-20_i32..20);
        for _ in 0..random.random_range(0_usize..12) {
            all.insert(index, f64::from(random.random_range(1_i32..100)));
            index += random.random_range(1_i32..4);
        }
        all
    }

    fn side_of(buckets: &BTreeMap<i32, f64>) -> Side {
        let mut side = Side::default();
        for (&index, &count) in buckets {
            side.push(index, (count, 0.0), Summation::Plain);
        }
        side
    }

    fn of_side(side: &Side) -> Buckets<'_> {
        Buckets::plain(&side.spans, &side.counts)
    }

    /// The buckets of a side, whose runs must be canonical.
    fn map_of(side: &Side) -> BTreeMap<i32, f64> {
        assert!(side.spans.iter().all(|s| s.length > 0) && side.spans.iter().skip(1).all(|s| s.offset > 0), "{side:?}");
        let length: u32 = side.spans.iter().map(|s| s.length).sum();
        assert_eq!(length as usize, side.counts.len(), "{side:?}");
        indexed(&side.spans, &side.counts).collect()
    }

    #[test]
    fn merging_adds_bucket_by_bucket() {
        let mut random = SmallRng::seed_from_u64(11);
        for _ in 0..300 {
            let (a, b) = (some_buckets(&mut random), some_buckets(&mut random));
            let sign = if random.random_range(0_u32..2) == 0 { 1.0 } else { -1.0 };
            let (left, right) = (side_of(&a), side_of(&b));
            let mut expected = a.clone();
            for (index, count) in &b {
                *expected.entry(*index).or_default() += sign * count;
            }
            let (own, other) = (of_side(&left), of(of_side(&right), sign));
            assert_eq!(map_of(&merge(own, other, Summation::Plain)), expected);
            let compensated = merge(own, other, Summation::Compensated);
            assert_eq!((map_of(&compensated), compensated.lost.len()), (expected.clone(), expected.len()));
            assert!(compensated.lost.iter().all(|lost| *lost == 0.0), "whole numbers lose nothing");
            let rest: BTreeMap<i32, f64> = expected.into_iter().filter(|(_, count)| *count != 0.0).collect();
            let compact = without_empty(of_side(&compensated));
            assert!(is_compact(&compact.spans, &compact.counts));
            assert_eq!(map_of(&compact), rest);
        }
    }

    /// A bucket goes to the first one of the lower resolution that ends at its end or behind.
    #[test]
    fn reducing_keeps_ends_and_totals() {
        let mut random = SmallRng::seed_from_u64(12);
        for _ in 0..300 {
            let (buckets, fall) = (some_buckets(&mut random), random.random_range(0_u32..5));
            let schema = random.random_range(0_i32..5);
            let width = 1_i32 << fall;
            let mut expected = BTreeMap::new();
            for (index, count) in &buckets {
                let target = index.div_euclid(width) + i32::from(index.rem_euclid(width) > 0);
                *expected.entry(target).or_insert(0.0) += count;
            }
            let side = side_of(&buckets);
            for summation in [Summation::Plain, Summation::Compensated] {
                let got = reduce(of_side(&side), schema, schema - fall as i32, summation);
                assert_eq!(map_of(&got), expected, "{buckets:?} by {fall}");
            }
            // Step by step is the same as at once.
            let mut steps = side_of(&buckets);
            for by in 0..fall as i32 {
                steps = reduce(of_side(&steps), schema - by, schema - by - 1, Summation::Plain);
            }
            assert_eq!(map_of(&steps), expected);
        }
    }

    #[test]
    fn what_counts_have_lost_goes_along() {
        let s = spans(&[(1, 2), (1, 1)]);
        let (counts, lost) = ([1e17, 1.0, 0.0], [0.25, 0.5, 2.0]);
        let got = reduce(Buckets { spans: &s, counts: &counts, lost: &lost }, 1, 0, Summation::Compensated);
        // Indexes 1 and 2 become 1, 4 becomes 2.
        assert_eq!(
            (&got.spans, &got.counts[..], &got.lost[..]),
            (&spans(&[(1, 2)]), &[1e17, 0.0][..], &[1.75, 2.0][..])
        );
        // An empty bucket that has lost something is not empty.
        let kept = without_empty(Buckets { spans: &s, counts: &[0.0, 0.0, 3.0], lost: &[0.0, 1e-20, 0.0] });
        assert_eq!(
            (&kept.counts[..], &kept.lost[..], &kept.spans),
            (&[0.0, 3.0][..], &[1e-20, 0.0][..], &spans(&[(2, 1), (1, 1)]))
        );
        // Counts take over what they have lost where they can hold it.
        let totals =
            |side: &Side| side.counts.iter().zip(&side.lost).map(|(count, lost)| count + lost).collect::<Vec<_>>();
        let own = Buckets { spans: &s, counts: &counts, lost: &lost };
        assert_eq!(totals(&merge(own, of(own, 1.0), Summation::Compensated)), [2e17, 3.0, 4.0]);
        assert_eq!(totals(&merge(own, of(own, -1.0), Summation::Compensated)), [0.0; 3]);
    }

    #[test]
    fn bounds_that_both_have() {
        let check = |a: &[f64], b: &[f64], expected: &[f64]| {
            assert_eq!(
                (common_bounds(a, b), common_bounds(b, a)),
                (expected.to_vec(), expected.to_vec()),
                "{a:?} {b:?}"
            );
        };
        check(&[], &[], &[]);
        check(&[1.0], &[], &[]);
        check(&[1.0, 2.0], &[3.0, 4.0], &[]);
        check(&[1.0, 2.0], &[1.0, 2.0], &[1.0, 2.0]);
        check(&[0.1, 0.5, 1.0, 5.0], &[0.5, 2.0, 5.0, 10.0], &[0.5, 5.0]);
        check(&[-1.0, 0.0], &[-0.0], &[0.0]);
    }

    #[test]
    fn custom_buckets_on_few_bounds_or_none() {
        let s = spans(&[(0, 3)]);
        let buckets = Buckets::plain(&s, &[1.0, 2.0, 4.0]);
        let all = merge_custom((buckets, &[1.0, 2.0]), (buckets, &[5.0, 6.0]), 1.0, &[]);
        assert_eq!((&all.counts[..], &all.spans), (&[14.0][..], &spans(&[(0, 1)])));
        let none = merge_custom((buckets, &[1.0, 2.0]), (buckets, &[1.0, 2.0]), -1.0, &[1.0, 2.0]);
        assert_eq!((none.counts.len(), none.spans.len()), (0, 0), "empty buckets are left out");
        // Those beyond the last bound are in the last bucket, wherever they say that they are.
        let beyond = spans(&[(7, 1)]);
        let far = merge_custom((Buckets::plain(&beyond, &[3.0]), &[1.0, 2.0]), (buckets, &[2.0, 9.0]), 1.0, &[2.0]);
        assert_eq!((&far.counts[..], &far.spans), (&[1.0, 9.0][..], &spans(&[(0, 2)])));
    }
}
