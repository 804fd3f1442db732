//! The counter reset hint under which a histogram is stored.
//!
//! A client's hint is only trusted for `gauge` and for a reset. A histogram that continues the previous one gets a hint
//! that says so, which saves later steps from comparing buckets. One that starts anew gets none, even if it is known to
//! be a reset. Source: Prometheus 3.14 `tsdb/chunkenc/float_histogram.go` (`appendable`), `histogram_meta.go`
//! (`counterResetHint`).

use super::{Histogram, ResetHint, Span};

impl Histogram {
    /// The hint for storing a histogram after `previous`, the preceding sample of its series (`None` if there is none,
    /// or it is not a histogram).
    pub fn stored_hint(&self, previous: Option<&Self>) -> ResetHint {
        match self.reset_hint {
            ResetHint::Gauge => ResetHint::Gauge,
            ResetHint::Reset => ResetHint::Unknown,
            ResetHint::Unknown | ResetHint::NotReset => {
                if previous.is_some_and(|p| self.continues(p)) {
                    ResetHint::NotReset
                } else {
                    ResetHint::Unknown
                }
            }
        }
    }

    /// Tells whether this is the same counter as `previous` at a later time: same layout, and no count has decreased.
    pub fn continues(&self, previous: &Self) -> bool {
        previous.reset_hint != ResetHint::Gauge
            && !self.is_stale()
            && !previous.is_stale()
            && self.float == previous.float
            && self.schema == previous.schema
            && self.zero_threshold == previous.zero_threshold
            && self.custom_bounds == previous.custom_bounds
            && self.count >= previous.count
            && self.zero_count >= previous.zero_count
            && grew((&self.positive_spans, &self.positive), (&previous.positive_spans, &previous.positive))
            && grew((&self.negative_spans, &self.negative), (&previous.negative_spans, &previous.negative))
    }
}

type Side<'a> = (&'a [Span], &'a [f64]);

fn grew(now: Side<'_>, before: Side<'_>) -> bool {
    if now.0 == before.0 {
        return now.1.iter().zip(before.1).all(|(n, b)| n >= b);
    }
    let mut now = indexed(now).peekable();
    indexed(before).all(|(idx, count)| {
        while now.next_if(|b| b.0 < idx).is_some() {}
        match now.peek() {
            Some(&(found, value)) if found == idx => value >= count,
            _ => count == 0.0,
        }
    })
}

/// The buckets with their indexes. Spans come from outside: on overflow the result is wrong, but does not panic.
fn indexed((spans, counts): Side<'_>) -> impl Iterator<Item = (i64, f64)> {
    let mut next = 0_i64;
    let indices = spans.iter().flat_map(move |s| {
        let first = next + i64::from(s.offset);
        next = first + i64::from(s.length);
        first..next
    });
    indices.zip(counts.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ResetHint::{Gauge, NotReset, Reset, Unknown};

    fn histogram(offset: i32, counts: &[f64], reset_hint: ResetHint) -> Histogram {
        Histogram {
            count: counts.iter().sum(),
            positive_spans: vec![Span { offset, length: counts.len() as u32 }],
            positive: counts.to_vec(),
            reset_hint,
            float: true,
            ..Histogram::default()
        }
    }

    fn check(previous: Option<&Histogram>, h: &Histogram, expected: ResetHint) {
        assert_eq!(h.stored_hint(previous), expected, "{h:?} after {previous:?}");
    }

    #[test]
    fn hints_follow_from_neighbours() {
        let first = histogram(0, &[1.0, 2.0], Unknown);
        check(None, &first, Unknown);
        check(None, &histogram(0, &[1.0], NotReset), Unknown);
        check(Some(&first), &histogram(0, &[1.0, 2.0], Unknown), NotReset);
        check(Some(&first), &histogram(-1, &[1.0, 1.0, 2.0, 4.0], Unknown), NotReset);
        check(Some(&first), &histogram(0, &[9.0, 1.0], Unknown), Unknown);
        check(Some(&first), &histogram(1, &[9.0], Unknown), Unknown);
        check(Some(&first), &histogram(0, &[0.0], NotReset), Unknown);
        check(Some(&first), &Histogram { schema: 1, ..histogram(0, &[5.0, 5.0], Unknown) }, Unknown);
        check(Some(&first), &Histogram::stale(), Unknown);
        check(Some(&Histogram::stale()), &first, Unknown);
    }

    #[test]
    fn gauges_and_told_resets_are_trusted() {
        let gauge = histogram(0, &[1.0], Gauge);
        check(Some(&gauge), &histogram(0, &[0.0], Gauge), Gauge);
        check(Some(&gauge), &histogram(0, &[2.0], Unknown), Unknown);
        check(Some(&histogram(0, &[1.0], Unknown)), &histogram(0, &[2.0], Reset), Unknown);
    }

    #[test]
    fn spans_at_the_ends_of_integers_do_not_overflow() {
        let wild = |offset: i32, length: u32| Histogram {
            positive_spans: vec![Span { offset, length }; 3],
            positive: vec![1.0; 3],
            ..Histogram::default()
        };
        let _ = wild(i32::MAX, u32::MAX).continues(&wild(i32::MIN, 1));
        let _ = wild(i32::MIN, 1).continues(&wild(i32::MAX, u32::MAX));
    }
}
