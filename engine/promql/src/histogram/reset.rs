//! Detection of counter resets between two histograms of a series.

use quiver_types::{Histogram, ResetHint, Span};

use super::bounds::{bound, exponential, uses_custom_buckets};
use super::buckets::indexed;
use super::layout::target_index;
use super::reconcile::zero_count_at;

/// Says whether the counter was reset between `previous` and `h`: the hint of `h` decides, else a count that fell, a
/// populated bucket that is gone, a higher resolution or a narrower zero bucket.
pub fn detect_reset(h: &Histogram, previous: &Histogram) -> bool {
    match h.reset_hint {
        ResetHint::Reset => return true,
        ResetHint::NotReset => return false,
        // A gauge here is the user's doing (rate of a gauge), who gets a warning and a counter's treatment.
        ResetHint::Unknown | ResetHint::Gauge => {}
    }
    if h.count < previous.count {
        return true;
    }
    match (uses_custom_buckets(h), uses_custom_buckets(previous)) {
        (true, true) if h.custom_bounds != previous.custom_bounds => return custom_reset(h, previous),
        (true, true) | (false, false) => {}
        (true, false) | (false, true) => return true,
    }
    if h.schema > previous.schema || h.zero_threshold < previous.zero_threshold {
        return true;
    }
    if !uses_custom_buckets(h) {
        let ((zero_count, _), threshold) = zero_count_at(previous, h.zero_threshold, None);
        // The new zero bucket would end within a populated bucket.
        if threshold != h.zero_threshold || h.zero_count < zero_count {
            return true;
        }
    }
    side_reset(h, (&h.positive_spans, &h.positive), previous, (&previous.positive_spans, &previous.positive))
        || side_reset(h, (&h.negative_spans, &h.negative), previous, (&previous.negative_spans, &previous.negative))
}

type Counts<'a> = (&'a [Span], &'a [f64]);

fn side_reset(h: &Histogram, now: Counts<'_>, previous: &Histogram, before: Counts<'_>) -> bool {
    if h.schema == previous.schema && h.zero_threshold == 0.0 && now.0 == before.0 {
        return now.1.iter().zip(before.1).any(|(n, b)| n < b);
    }
    let (schema, threshold) = (h.schema, h.zero_threshold);
    let below = move |idx: i32| !uses_custom_buckets(h) && threshold > 0.0 && exponential(idx, schema) <= threshold;
    let mut now = indexed(now.0, now.1).skip_while(|b| below(b.0)).peekable();
    let mut before = Coarser { buckets: indexed(before.0, before.1), from: previous.schema, to: schema, next: None }
        .skip_while(|b| below(b.0));
    before.any(|(idx, count)| {
        while now.next_if(|b| b.0 < idx).is_some() {}
        match now.peek() {
            Some(&(found, value)) if found == idx => value < count,
            _ => count != 0.0,
        }
    })
}

/// Buckets merged to a lower schema while iterating.
struct Coarser<I> {
    buckets: I,
    from: i32,
    to: i32,
    next: Option<(i32, f64)>,
}

impl<I: Iterator<Item = (i32, f64)>> Iterator for Coarser<I> {
    type Item = (i32, f64);

    fn next(&mut self) -> Option<(i32, f64)> {
        let index =
            |(i, c): (i32, f64)| (if self.from == self.to { i } else { target_index(i, self.from, self.to) }, c);
        let mut current = self.next.take().or_else(|| self.buckets.next().map(index))?;
        for bucket in self.buckets.by_ref().map(index) {
            if bucket.0 != current.0 {
                self.next = Some(bucket);
                break;
            }
            current.1 += bucket.1;
        }
        Some(current)
    }
}

/// Compares custom buckets on the bounds that both have.
fn custom_reset(h: &Histogram, previous: &Histogram) -> bool {
    let common = super::layout::common_bounds(&h.custom_bounds, &previous.custom_bounds);
    let rolled_up = |h: &Histogram| {
        let mut sums = vec![0.0; common.len() + 1];
        for (idx, count) in indexed(&h.positive_spans, &h.positive) {
            let upper = bound(idx, h.schema, &h.custom_bounds);
            sums[common.partition_point(|&b| b < upper)] += count;
        }
        sums
    };
    rolled_up(h).iter().zip(rolled_up(previous)).any(|(&now, before)| now < before)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{custom, exponential, with_negative, with_zero};
    use super::*;

    fn check(previous: &Histogram, h: &Histogram, expected: bool) {
        assert_eq!(detect_reset(h, previous), expected, "{previous:?}\n{h:?}");
    }

    #[test]
    fn counts_and_buckets() {
        let a = exponential(0, 0, &[1.0, 2.0, 3.0]);
        check(&a, &a, false);
        check(&a, &exponential(0, 0, &[1.0, 2.0, 4.0]), false);
        check(&a, &exponential(0, 0, &[0.0, 4.0, 4.0]), true);
        check(&a, &exponential(0, 1, &[9.0, 9.0]), true);
        check(&exponential(0, 0, &[0.0, 2.0]), &exponential(0, 1, &[3.0]), false);
        check(&a, &exponential(0, 0, &[1.0, 1.0]), true);
        check(&a, &with_negative(a.clone(), 0, &[1.0]), false);
        check(&with_negative(a.clone(), 0, &[1.0]), &exponential(0, 0, &[9.0, 9.0, 9.0]), true);
    }

    #[test]
    fn hints_decide() {
        let low = exponential(0, 0, &[1.0]);
        let high = exponential(0, 0, &[2.0]);
        check(&low, &Histogram { reset_hint: ResetHint::Reset, ..high.clone() }, true);
        check(&high, &Histogram { reset_hint: ResetHint::NotReset, ..low.clone() }, false);
        check(&high, &Histogram { reset_hint: ResetHint::Gauge, ..low }, true);
    }

    #[test]
    fn schemas_and_zero_buckets() {
        let fine = exponential(1, 1, &[1.0, 2.0, 3.0, 4.0]);
        check(&fine, &exponential(0, 1, &[3.0, 7.0]), false);
        check(&fine, &exponential(0, 1, &[2.0, 9.0]), true);
        check(&exponential(0, 1, &[3.0, 7.0]), &exponential(1, 1, &[9.0, 9.0, 9.0, 9.0]), true);
        let h = exponential(0, 1, &[1.0, 5.0]);
        check(&h, &with_zero(exponential(0, 2, &[5.0]), 2.0, 1.0), false);
        check(&h, &with_zero(exponential(0, 2, &[6.0]), 2.0, 0.5), true);
        check(&h, &with_zero(exponential(0, 2, &[9.0]), 1.5, 9.0), true);
        check(&with_zero(h.clone(), 1.0, 1.0), &with_zero(h.clone(), 0.5, 9.0), true);
    }

    #[test]
    fn custom_buckets() {
        let a = custom(&[1.0, 2.0], &[1.0, 2.0, 3.0]);
        check(&a, &custom(&[1.0, 2.0], &[1.0, 2.0, 3.0]), false);
        check(&a, &custom(&[1.0, 2.0], &[2.0, 1.0, 3.0]), true);
        check(&a, &custom(&[2.0, 3.0], &[3.0, 0.0, 3.0]), false);
        check(&a, &custom(&[2.0, 3.0], &[2.0, 9.0, 9.0]), true);
        check(&exponential(0, 0, &[1.0]), &custom(&[1.0], &[9.0, 9.0]), true);
        check(&custom(&[1.0], &[1.0, 1.0]), &exponential(0, 0, &[9.0]), true);
    }
}
