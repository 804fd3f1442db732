//! Iteration over buckets, with or without their bounds.

use quiver_types::{Histogram, Span};

use super::bounds::{bound, uses_custom_buckets};

/// A bucket with its bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// Lower bound; of the lowest bucket it may be -Inf.
    pub lower: f64,
    /// Upper bound; of the highest bucket it may be +Inf.
    pub upper: f64,
    /// Observations in this bucket alone, not cumulative; may be a fraction.
    pub count: f64,
    /// Index in its schema; 0 for the zero bucket.
    pub index: i32,
    /// Whether the lower bound belongs to the bucket.
    pub lower_inclusive: bool,
    /// Whether the upper bound belongs to the bucket.
    pub upper_inclusive: bool,
}

impl Bucket {
    /// Gives the share of the bucket's width below `v`, which lies strictly between finite bounds: on a linear scale
    /// (custom and zero buckets) or a logarithmic one.
    pub fn fraction_below(&self, v: f64, linear: bool) -> f64 {
        if linear {
            return (v - self.lower) / (self.upper - self.lower);
        }
        let (lower, upper, v_log) = (self.lower.abs().log2(), self.upper.abs().log2(), v.abs().log2());
        if v > 0.0 { (v_log - lower) / (upper - lower) } else { 1.0 - (v_log - upper) / (lower - upper) }
    }
}

/// Gives index and count of each bucket, ascending.
pub(crate) fn indexed<'a>(spans: &'a [Span], counts: &'a [f64]) -> impl Iterator<Item = (i32, f64)> + 'a {
    let mut next = 0_i32;
    let indexes = spans.iter().flat_map(move |span| {
        let start = next.wrapping_add(span.offset);
        next = start.saturating_add_unsigned(span.length);
        start..next
    });
    indexes.zip(counts.iter().copied())
}

/// Gives index and count of each bucket, descending.
fn indexed_reverse<'a>(spans: &'a [Span], counts: &'a [f64]) -> impl Iterator<Item = (i32, f64)> + 'a {
    let end = |end: i32, s: &Span| end.wrapping_add(s.offset).saturating_add_unsigned(s.length);
    let mut next = spans.iter().fold(0, end);
    let indexes = spans.iter().rev().flat_map(move |span| {
        let start = next.saturating_sub_unsigned(span.length);
        let run = (start..next).rev();
        next = start.wrapping_sub(span.offset);
        run
    });
    indexes.zip(counts.iter().rev().copied())
}

fn positive_bucket(h: &Histogram, index: i32, count: f64) -> Bucket {
    let upper = bound(index, h.schema, &h.custom_bounds);
    let lower = bound(index.saturating_sub(1), h.schema, &h.custom_bounds);
    let custom = uses_custom_buckets(h);
    let (lower_inclusive, upper_inclusive) = if custom { (index == 0, true) } else { (lower < 0.0, upper > 0.0) };
    Bucket { lower, upper, count, index, lower_inclusive, upper_inclusive }
}

fn negative_bucket(h: &Histogram, index: i32, count: f64) -> Bucket {
    let lower = -bound(index, h.schema, &[]);
    let upper = -bound(index.saturating_sub(1), h.schema, &[]);
    Bucket { lower, upper, count, index, lower_inclusive: lower < 0.0, upper_inclusive: upper > 0.0 }
}

/// Gives the positive buckets, from zero upwards.
pub fn positive(h: &Histogram) -> impl Iterator<Item = Bucket> + '_ {
    indexed(&h.positive_spans, &h.positive).map(move |(i, c)| positive_bucket(h, i, c))
}

/// Gives the negative buckets, from zero downwards.
pub fn negative(h: &Histogram) -> impl Iterator<Item = Bucket> + '_ {
    indexed(&h.negative_spans, &h.negative).map(move |(i, c)| negative_bucket(h, i, c))
}

/// Gives the zero bucket.
pub(crate) fn zero(h: &Histogram) -> Bucket {
    Bucket {
        lower: -h.zero_threshold,
        upper: h.zero_threshold,
        count: h.zero_count,
        index: 0,
        lower_inclusive: true,
        upper_inclusive: true,
    }
}

/// A bucket that overlaps with the zero bucket starts where that one ends.
fn outside_zero(h: &Histogram, mut b: Bucket) -> Bucket {
    if b.upper < 0.0 && b.upper > -h.zero_threshold {
        b.upper = -h.zero_threshold;
    } else if b.lower > 0.0 && b.lower < h.zero_threshold {
        b.lower = h.zero_threshold;
    }
    b
}

/// Gives all buckets in ascending order: negative ones, the zero bucket if populated, positive ones.
pub fn all(h: &Histogram) -> impl Iterator<Item = Bucket> + '_ {
    let negative = indexed_reverse(&h.negative_spans, &h.negative).map(move |(i, c)| negative_bucket(h, i, c));
    let zero = (h.zero_count > 0.0).then(|| zero(h));
    negative.map(move |b| outside_zero(h, b)).chain(zero).chain(positive(h).map(move |b| outside_zero(h, b)))
}

/// Gives all buckets in descending order.
pub fn all_reverse(h: &Histogram) -> impl Iterator<Item = Bucket> + '_ {
    let positive = indexed_reverse(&h.positive_spans, &h.positive).map(move |(i, c)| positive_bucket(h, i, c));
    let zero = (h.zero_count > 0.0).then(|| zero(h));
    positive.map(move |b| outside_zero(h, b)).chain(zero).chain(negative(h).map(move |b| outside_zero(h, b)))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{exponential, with_negative, with_zero};
    use super::*;

    #[test]
    fn runs_and_gaps_both_ways() {
        let spans = [Span { offset: -2, length: 2 }, Span { offset: 3, length: 1 }, Span { offset: 0, length: 2 }];
        let counts = [1.0, 2.0, 3.0, 4.0, 5.0];
        let forward: Vec<_> = indexed(&spans, &counts).collect();
        assert_eq!(forward, [(-2, 1.0), (-1, 2.0), (3, 3.0), (4, 4.0), (5, 5.0)]);
        let mut backward: Vec<_> = indexed_reverse(&spans, &counts).collect();
        backward.reverse();
        assert_eq!(forward, backward);
    }

    #[test]
    fn all_buckets_ascend() {
        let h = with_negative(with_zero(exponential(0, 1, &[1.0, 2.0]), 0.5, 3.0), 1, &[4.0, 5.0]);
        let got: Vec<_> = all(&h).map(|b| (b.lower, b.upper, b.count)).collect();
        let expected = [(-4.0, -2.0, 5.0), (-2.0, -1.0, 4.0), (-0.5, 0.5, 3.0), (1.0, 2.0, 1.0), (2.0, 4.0, 2.0)];
        assert_eq!(got, expected);
        let mut reverse: Vec<_> = all_reverse(&h).map(|b| (b.lower, b.upper, b.count)).collect();
        reverse.reverse();
        assert_eq!(reverse, expected);
    }

    #[test]
    fn overlap_with_the_zero_bucket_is_cut_off() {
        let h = with_zero(exponential(0, 1, &[1.0]), 1.5, 3.0);
        let got: Vec<_> = all(&h).map(|b| (b.lower, b.upper)).collect();
        assert_eq!(got, [(-1.5, 1.5), (1.5, 2.0)]);
    }

    #[test]
    fn counts_without_a_place_and_places_without_a_count() {
        let spans = [Span { offset: 5, length: 3 }];
        assert_eq!(indexed(&spans, &[1.0]).collect::<Vec<_>>(), [(5, 1.0)]);
        assert_eq!(indexed(&spans[..0], &[1.0]).count(), 0);
        assert_eq!(indexed(&spans, &[1.0, 2.0, 3.0, 4.0]).count(), 3);
        assert_eq!(indexed_reverse(&spans, &[1.0, 2.0, 3.0]).collect::<Vec<_>>(), [(7, 3.0), (6, 2.0), (5, 1.0)]);
        // Runs that leave the numbers end there.
        let far = [Span { offset: i32::MAX - 1, length: 9 }];
        assert_eq!(indexed(&far, &[1.0, 2.0, 3.0]).collect::<Vec<_>>(), [(i32::MAX - 1, 1.0)]);
    }

    #[test]
    fn which_bounds_belong_to_a_bucket() {
        let of = |b: Bucket| (b.lower, b.lower_inclusive, b.upper, b.upper_inclusive);
        let h = with_negative(with_zero(exponential(0, 1, &[1.0]), 0.5, 1.0), 1, &[1.0]);
        assert_eq!(positive(&h).map(of).collect::<Vec<_>>(), [(1.0, false, 2.0, true)]);
        assert_eq!(negative(&h).map(of).collect::<Vec<_>>(), [(-2.0, true, -1.0, false)]);
        assert_eq!(of(zero(&h)), (-0.5, true, 0.5, true));
        let custom = super::super::testing::custom(&[-1.0, 3.0], &[1.0, 1.0, 1.0]);
        let (low, high) = (f64::NEG_INFINITY, f64::INFINITY);
        let expected = [(low, true, -1.0, true), (-1.0, false, 3.0, true), (3.0, false, high, true)];
        assert_eq!(positive(&custom).map(of).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn shares_of_a_bucket() {
        let bucket = |lower: f64, upper: f64| Bucket {
            lower,
            upper,
            count: 1.0,
            index: 0,
            lower_inclusive: false,
            upper_inclusive: true,
        };
        let check = |b: Bucket, v: f64, linear: f64, logarithmic: f64| {
            assert_eq!((b.fraction_below(v, true), b.fraction_below(v, false)), (linear, logarithmic), "{v} in {b:?}");
        };
        check(bucket(1.0, 4.0), 2.5, 0.5, 2.5_f64.log2() / 2.0);
        check(bucket(1.0, 4.0), 2.0, 1.0 / 3.0, 0.5);
        check(bucket(0.25, 4.0), 1.0, 0.2, 0.5);
        check(bucket(-4.0, -1.0), -2.5, 0.5, 1.0 - 2.5_f64.log2() / 2.0);
        check(bucket(-4.0, -1.0), -2.0, 2.0 / 3.0, 0.5);
        assert_eq!(bucket(-1.0, 3.0).fraction_below(0.0, true), 0.25);
    }

    #[test]
    fn an_empty_zero_bucket_is_left_out() {
        let h = with_negative(exponential(0, 1, &[1.0]), 1, &[2.0]);
        let counts = |h: &Histogram| all(h).map(|b| b.count).collect::<Vec<_>>();
        assert_eq!(counts(&h), [2.0, 1.0]);
        assert_eq!(counts(&with_zero(h.clone(), 0.5, 0.0)), [2.0, 1.0]);
        assert_eq!(counts(&with_zero(h, 0.5, 3.0)), [2.0, 3.0, 1.0]);
        // What reaches out of the zero bucket begins at its end.
        let h = with_negative(with_zero(exponential(0, 0, &[1.0, 2.0]), 1.5, 3.0), 0, &[4.0, 5.0]);
        let bounds: Vec<_> = all(&h).map(|b| (b.lower, b.upper, b.count)).collect();
        assert_eq!(bounds[0], (-2.0, -1.5, 5.0));
        assert_eq!(bounds[4], (1.5, 2.0, 2.0));
    }
}
