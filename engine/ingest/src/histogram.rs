//! Native histograms at ingest: converts buckets in any layout to spans, reduces the resolution, adds two histograms, and
//! checks that all parts of a histogram are consistent.
//!
//! Facts: Prometheus 3 `model/histogram` (bucket i of schema s covers (2^((i-1)·2^-s), 2^(i·2^-s)]; schemas 9 to 52 are
//! reserved exponential ones; for integer histograms the buckets must add up to the count).

use quiver_types::histogram::CUSTOM_SCHEMA;
use quiver_types::{Histogram, Span};

/// Finest exponential schema that is stored.
pub(crate) const SCHEMA_MAX: i32 = 8;
/// Coarsest exponential schema.
pub(crate) const SCHEMA_MIN: i32 = -4;
/// Finest schema that a sender may use; it is reduced to [`SCHEMA_MAX`].
pub(crate) const SCHEMA_RESERVED_MAX: i32 = 52;
/// More buckets or spans on a side, or bounds, are refused; SDKs cap theirs at some hundred.
pub(crate) const BUCKETS_MAX: usize = 1 << 16;
/// Gaps up to this many buckets are filled with empty ones instead of starting a span (as `client_golang` does).
const GAP_MAX: i64 = 2;

/// Builds spans and counts from buckets in ascending order of index.
#[derive(Debug, Default)]
pub(crate) struct SpanBuilder {
    spans: Vec<Span>,
    counts: Vec<f64>,
    /// Index of the next bucket that would continue the last span.
    next: i64,
    overflow: bool,
}

impl SpanBuilder {
    /// Adds a bucket; empty ones are left out, the same index again adds up.
    pub(crate) fn push(&mut self, idx: i64, count: f64) {
        if count == 0.0 {
            return;
        }
        if let (true, Some(last)) = (idx == self.next - 1, self.counts.last_mut()) {
            *last += count;
            return;
        }
        let gap = idx - self.next;
        if self.spans.is_empty() || gap > GAP_MAX {
            self.overflow |= i32::try_from(gap).is_err();
            self.spans.push(Span { offset: gap as i32, length: 0 });
        } else {
            self.counts.extend((0..gap).map(|_| 0.0));
            self.grow(gap as u32);
        }
        self.counts.push(count);
        self.grow(1);
        self.next = idx + 1;
    }

    fn grow(&mut self, by: u32) {
        if let Some(span) = self.spans.last_mut() {
            span.length += by;
        }
    }

    /// Gives spans and counts; `None` when an index does not fit.
    pub(crate) fn finish(self) -> Option<(Vec<Span>, Vec<f64>)> {
        (!self.overflow).then_some((self.spans, self.counts))
    }
}

/// Walks (index, count) of buckets. Stops at the end of the shorter of spans and counts.
pub(crate) fn buckets<'a>(spans: &'a [Span], counts: &'a [f64]) -> impl Iterator<Item = (i64, f64)> + 'a {
    let indexes = spans.iter().scan(0i64, |next, span| {
        let start = *next + i64::from(span.offset);
        *next = start + i64::from(span.length);
        Some(start..*next)
    });
    indexes.flatten().zip(counts.iter().copied())
}

/// Gives the index that a bucket has when `2^by` buckets become one.
pub(crate) fn reduced_idx(idx: i64, by: u32) -> i64 {
    ((idx - 1) >> by.min(62)) + 1
}

/// Reduces an exponential histogram to a coarser schema.
pub(crate) fn reduce(h: &mut Histogram, schema: i32) {
    let by = u32::try_from(h.schema - schema).unwrap_or(0);
    if by == 0 {
        return;
    }
    for (spans, counts) in [(&mut h.positive_spans, &mut h.positive), (&mut h.negative_spans, &mut h.negative)] {
        let mut builder = SpanBuilder::default();
        buckets(spans, counts).for_each(|(idx, count)| builder.push(reduced_idx(idx, by), count));
        if let Some((new_spans, new_counts)) = builder.finish() {
            (*spans, *counts) = (new_spans, new_counts);
        }
    }
    h.schema = schema;
}

/// Adds `add` to `sum`; both exponential with the same zero threshold, schemas may differ. `false` when a bucket's
/// index does not fit, or the kinds differ: then `sum` is unchanged.
pub(crate) fn add(sum: &mut Histogram, add: &Histogram) -> bool {
    let custom = sum.schema == CUSTOM_SCHEMA || add.schema == CUSTOM_SCHEMA;
    if custom || sum.zero_threshold.to_bits() != add.zero_threshold.to_bits() {
        return false;
    }
    let schema = sum.schema.min(add.schema);
    let merge = |a: (&[Span], &[f64]), b: (&[Span], &[f64])| {
        let by = |h: &Histogram| (h.schema - schema) as u32;
        let mut left = buckets(a.0, a.1).map(|(i, c)| (reduced_idx(i, by(sum)), c)).peekable();
        let mut right = buckets(b.0, b.1).map(|(i, c)| (reduced_idx(i, by(add)), c)).peekable();
        let mut builder = SpanBuilder::default();
        loop {
            let take_left = match (left.peek(), right.peek()) {
                (None, None) => break builder.finish(),
                (Some(l), Some(r)) => l.0 <= r.0,
                (l, _) => l.is_some(),
            };
            let (idx, count) = if take_left { left.next() } else { right.next() }.expect("peeked above");
            builder.push(idx, count);
        }
    };
    let positive = merge((&sum.positive_spans, &sum.positive), (&add.positive_spans, &add.positive));
    let negative = merge((&sum.negative_spans, &sum.negative), (&add.negative_spans, &add.negative));
    let (Some(positive), Some(negative)) = (positive, negative) else { return false };
    (sum.positive_spans, sum.positive) = positive;
    (sum.negative_spans, sum.negative) = negative;
    sum.schema = schema;
    sum.zero_count += add.zero_count;
    sum.count += add.count;
    sum.sum += add.sum;
    true
}

/// Checks a histogram, and reduces it when its schema is finer than what is stored. The error says what is wrong.
pub(crate) fn check(h: &mut Histogram) -> Result<(), &'static str> {
    let custom = h.schema == CUSTOM_SCHEMA;
    if !custom && !(SCHEMA_MIN..=SCHEMA_RESERVED_MAX).contains(&h.schema) {
        return Err("unknown schema");
    }
    check_spans(&h.positive_spans, h.positive.len(), "positive spans and buckets do not match")?;
    check_spans(&h.negative_spans, h.negative.len(), "negative spans and buckets do not match")?;
    if custom {
        check_custom(h)?;
    } else if !h.custom_bounds.is_empty() {
        return Err("custom values with an exponential schema");
    }
    // NaN counts are neither below nor above zero; only float histograms can have them.
    let counts = h.positive.iter().chain(&h.negative).chain([&h.count, &h.zero_count]);
    if counts.into_iter().any(|c| *c < 0.0) {
        return Err("negative count");
    }
    if !h.float {
        // Exact below 2^53; above, the sender's integers are rounded like ours.
        let sum = h.positive.iter().chain(&h.negative).sum::<f64>() + h.zero_count;
        // Observations of NaN count, but fall into no bucket.
        if sum > h.count || (sum < h.count && !h.sum.is_nan()) {
            return Err("buckets do not add up to the count");
        }
    }
    if h.schema > SCHEMA_MAX {
        reduce(h, SCHEMA_MAX);
    }
    Ok(())
}

fn check_spans(spans: &[Span], buckets: usize, mismatch: &'static str) -> Result<(), &'static str> {
    if spans.iter().skip(1).any(|s| s.offset < 0) {
        return Err("span with a negative offset");
    }
    let end = spans.iter().map(|s| i64::from(s.offset) + i64::from(s.length)).try_fold(0i64, i64::checked_add);
    if end.is_none_or(|end| i32::try_from(end).is_err()) {
        return Err("bucket index out of range");
    }
    if spans.iter().map(|s| u64::from(s.length)).sum::<u64>() != buckets as u64 {
        return Err(mismatch);
    }
    Ok(())
}

fn check_custom(h: &Histogram) -> Result<(), &'static str> {
    let bounds = &h.custom_bounds;
    if bounds.iter().any(|b| b.is_nan()) || bounds.windows(2).any(|w| w[0] >= w[1]) {
        return Err("custom values are not ascending");
    }
    if bounds.last() == Some(&f64::INFINITY) {
        return Err("custom values hold +Inf");
    }
    if h.zero_count != 0.0 || h.zero_threshold != 0.0 {
        return Err("custom buckets with a zero bucket");
    }
    if !h.negative_spans.is_empty() || !h.negative.is_empty() {
        return Err("custom buckets with negative buckets");
    }
    let start = h.positive_spans.first().map_or(0, |s| s.offset);
    let end: i64 = h.positive_spans.iter().map(|s| i64::from(s.offset) + i64::from(s.length)).sum();
    if start < 0 || end > bounds.len() as i64 + 1 {
        return Err("custom buckets without a bound");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn spans(list: &[(i32, u32)]) -> Vec<Span> {
        list.iter().map(|&(offset, length)| Span { offset, length }).collect()
    }

    fn exponential(schema: i32, dense_from: i64, counts: &[f64]) -> Histogram {
        let mut b = SpanBuilder::default();
        counts.iter().enumerate().for_each(|(i, &c)| b.push(dense_from + i as i64, c));
        let (positive_spans, positive) = b.finish().unwrap();
        let count = counts.iter().sum();
        Histogram { schema, count, sum: 1.0, positive_spans, positive, zero_threshold: 1e-128, ..Histogram::default() }
    }

    #[test]
    fn builder() {
        let check = |buckets: &[(i64, f64)], expected_spans: &[(i32, u32)], expected_counts: &[f64]| {
            let mut b = SpanBuilder::default();
            for &(i, c) in buckets {
                b.push(i, c);
            }
            assert_eq!(b.finish(), Some((spans(expected_spans), expected_counts.to_vec())), "{buckets:?}");
        };
        check(&[], &[], &[]);
        check(&[(5, 0.0)], &[], &[]);
        check(&[(-3, 1.0), (-2, 2.0)], &[(-3, 2)], &[1.0, 2.0]);
        check(&[(0, 1.0), (0, 2.0), (3, 1.0)], &[(0, 4)], &[3.0, 0.0, 0.0, 1.0]);
        check(&[(0, 1.0), (4, 1.0)], &[(0, 1), (3, 1)], &[1.0, 1.0]);
        check(&[(2, 1.0)], &[(2, 1)], &[1.0]);
        check(&[(1, 1.0)], &[(1, 1)], &[1.0]);
        let mut b = SpanBuilder::default();
        b.push(i64::from(i32::MAX) + 1, 1.0);
        assert_eq!(b.finish(), None);
    }

    #[test]
    fn first_bucket_before_zero_is_no_repeat() {
        // A new builder stands at index 0; a first bucket at -1 must start a span, not add to a last one.
        let mut b = SpanBuilder::default();
        b.push(-1, 4.0);
        assert_eq!(b.finish(), Some((spans(&[(-1, 1)]), vec![4.0])));
    }

    #[test]
    fn reducing() {
        // Buckets 1 and 2 of schema 1 are bucket 1 of schema 0; 0 and -1 are bucket 0.
        assert_eq!([-1, 0, 1, 2, 3, 4].map(|i| reduced_idx(i, 1)), [0, 0, 1, 1, 2, 2]);
        assert_eq!([-4, -3, 0, 1, 4, 5].map(|i| reduced_idx(i, 2)), [-1, 0, 0, 1, 1, 2]);
        let mut h = exponential(10, -3, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        check(&mut h).unwrap();
        assert_eq!((h.schema, &h.positive_spans[..], &h.positive[..]), (8, &spans(&[(0, 2)])[..], &[10.0, 11.0][..]));
    }

    #[test]
    fn adding() {
        let mut sum = exponential(1, 1, &[1.0, 2.0, 3.0]);
        assert!(add(&mut sum, &exponential(0, 0, &[10.0, 20.0])));
        assert_eq!(sum.schema, 0);
        assert_eq!(sum.positive_spans, spans(&[(0, 3)]));
        assert_eq!(sum.positive, [10.0, 23.0, 3.0]);
        assert_eq!((sum.count, sum.sum), (36.0, 2.0));
        let other = Histogram { zero_threshold: 1.0, ..sum.clone() };
        assert!(!add(&mut sum, &other));
    }

    #[test]
    fn checks() {
        let good = exponential(3, 1, &[1.0, 2.0]);
        let custom = Histogram {
            schema: CUSTOM_SCHEMA,
            custom_bounds: vec![1.0, 2.0],
            count: 6.0,
            positive_spans: spans(&[(0, 3)]),
            positive: vec![1.0, 2.0, 3.0],
            ..Histogram::default()
        };
        let case = |base: &Histogram, change: &dyn Fn(&mut Histogram), expected: Result<(), &str>| {
            let mut h = base.clone();
            change(&mut h);
            assert_eq!(check(&mut h), expected, "{h:?}");
        };
        case(&good, &|_| (), Ok(()));
        case(&custom, &|_| (), Ok(()));
        case(&good, &|h| h.schema = -5, Err("unknown schema"));
        case(&good, &|h| h.schema = 53, Err("unknown schema"));
        case(&good, &|h| h.count = 4.0, Err("buckets do not add up to the count"));
        case(&good, &|h| (h.count, h.sum) = (4.0, f64::NAN), Ok(()));
        case(&good, &|h| (h.count, h.sum) = (2.0, f64::NAN), Err("buckets do not add up to the count"));
        case(&good, &|h| (h.count, h.float) = (4.0, true), Ok(()));
        case(&good, &|h| h.positive[0] = -1.0, Err("negative count"));
        case(&good, &|h| h.positive_spans[0].length = 3, Err("positive spans and buckets do not match"));
        case(&good, &|h| h.negative.push(1.0), Err("negative spans and buckets do not match"));
        case(&good, &|h| h.positive_spans = spans(&[(1, 1), (-1, 1)]), Err("span with a negative offset"));
        case(&good, &|h| h.positive_spans = spans(&[(i32::MAX, 2)]), Err("bucket index out of range"));
        case(&good, &|h| h.custom_bounds.push(1.0), Err("custom values with an exponential schema"));
        case(&custom, &|h| h.custom_bounds = vec![2.0, 1.0], Err("custom values are not ascending"));
        case(&custom, &|h| h.custom_bounds = vec![1.0, f64::NAN], Err("custom values are not ascending"));
        case(&custom, &|h| h.custom_bounds = vec![1.0, f64::INFINITY], Err("custom values hold +Inf"));
        case(&custom, &|h| h.custom_bounds = vec![1.0], Err("custom buckets without a bound"));
        case(&custom, &|h| h.zero_threshold = 1.0, Err("custom buckets with a zero bucket"));
        case(&custom, &|h| h.positive_spans[0].offset = -1, Err("custom buckets without a bound"));
    }

    type Model = BTreeMap<i64, f64>;

    fn histogram(schema: i32, positive: &Model, negative: &Model) -> Histogram {
        let side = |model: &Model| {
            let mut builder = SpanBuilder::default();
            for (idx, count) in model {
                builder.push(*idx, *count);
            }
            builder.finish().unwrap()
        };
        let ((positive_spans, positive), (negative_spans, negative)) = (side(positive), side(negative));
        let count = positive.iter().chain(&negative).sum();
        Histogram { schema, count, positive_spans, positive, negative_spans, negative, ..Histogram::default() }
    }

    fn sides(h: &Histogram) -> [Model; 2] {
        let side = |spans: &[Span], counts: &[f64]| {
            assert_eq!(spans.iter().map(|s| s.length as usize).sum::<usize>(), counts.len());
            buckets(spans, counts).filter(|(_, count)| *count != 0.0).collect()
        };
        [side(&h.positive_spans, &h.positive), side(&h.negative_spans, &h.negative)]
    }

    /// `2^by` buckets become one: those above `2^by * (i - 1)` up to `2^by * i` are bucket `i`.
    fn coarser(model: &Model, by: i32, into: &mut Model) {
        for (idx, count) in model {
            *into.entry((idx - 1).div_euclid(1 << by) + 1).or_default() += count;
        }
    }

    #[test]
    fn spans_agree_with_the_model() {
        let mut rng = StdRng::seed_from_u64(9);
        for _ in 0..300 {
            let mut model = || -> Model {
                (0..rng.random_range(0..12))
                    .map(|_| (rng.random_range(-40..40), f64::from(rng.random_range(1..100_i32))))
                    .collect()
            };
            let models = [[model(), model()], [model(), model()]];
            let schemas = [rng.random_range(SCHEMA_MIN..=SCHEMA_MAX), rng.random_range(SCHEMA_MIN..=SCHEMA_MAX)];
            let of = |i: usize| histogram(schemas[i], &models[i][0], &models[i][1]);
            assert_eq!(sides(&of(0)), models[0]);
            assert_eq!(check(&mut of(0)), Ok(()), "{models:?}");
            let schema = schemas[0].min(schemas[1]);
            let mut expected = [Model::new(), Model::new()];
            coarser(&models[0][0], schemas[0] - schema, &mut expected[0]);
            coarser(&models[0][1], schemas[0] - schema, &mut expected[1]);
            let mut reduced = of(0);
            reduce(&mut reduced, schema);
            assert_eq!((sides(&reduced), reduced.schema), (expected.clone(), schema), "{models:?} {schemas:?}");
            coarser(&models[1][0], schemas[1] - schema, &mut expected[0]);
            coarser(&models[1][1], schemas[1] - schema, &mut expected[1]);
            let (mut sum, mut other_way) = (of(0), of(1));
            assert!(add(&mut sum, &of(1)) && add(&mut other_way, &of(0)));
            assert_eq!((sides(&sum), sum.schema), (expected, schema), "{models:?} {schemas:?}");
            assert_eq!(sum, other_way, "in either order");
            assert_eq!(check(&mut sum), Ok(()), "counts still add up");
        }
    }

    #[test]
    fn what_cannot_be_added_stays() {
        let far = |idx: i64| histogram(0, &Model::from([(idx, 1.0)]), &Model::new());
        let custom = Histogram { schema: CUSTOM_SCHEMA, ..Histogram::default() };
        let mut sum = far(i64::from(i32::MIN));
        let before = sum.clone();
        // From one end of 32 bits to the other there is no gap that a span can say.
        assert!(!add(&mut sum, &far(i64::from(i32::MAX))));
        assert!(!add(&mut sum, &custom));
        assert_eq!(sum, before);
        // The finest schema that senders may use: a bucket of ours holds 2^44 of theirs.
        let mut fine = histogram(52, &Model::from([(0, 1.0), (1, 2.0), (2, 4.0)]), &Model::from([(-5, 8.0)]));
        assert_eq!(check(&mut fine), Ok(()));
        let expected = [Model::from([(0, 1.0), (1, 6.0)]), Model::from([(0, 8.0)])];
        assert_eq!((sides(&fine), fine.schema), (expected, SCHEMA_MAX));
    }
}
