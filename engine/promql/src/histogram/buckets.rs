//! Iteration over buckets, with or without their bounds.

use quiver_types::{Histogram, Span};

use super::bounds::bound;
use super::uses_custom_buckets;

/// A bucket with its bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// Lower bound.
    pub lower: f64,
    /// Upper bound.
    pub upper: f64,
    /// Observations.
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
}
