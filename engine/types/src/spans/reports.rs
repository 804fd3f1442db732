//! Which rows report one span, and which of them counts as its call. Live spans, parts, merged parts and all of them
//! together follow this one rule.
//!
//! - **One span**: rows with one trace, one span id, one service and one side (caller, called or neither;
//!   `traces-api` 1) whose starts lie at most [`APART_MINUTES`] apart. A trace settles in that time; without a bound
//!   each part would have to be compared with every other one of all days. A look-up of the trace has no such bound: it
//!   has all rows at hand.
//! - **Rows that are equal** but for the time of their receipt are one row: the copy that came later is left out.
//! - **Rows that differ** are rows of their own in lists and counts of spans, and together one call: that of the
//!   [`FirstReport`], as that row tells it. It depends on nothing but the rows, neither on their order nor on where they
//!   are stored. `service_edges` of SQL and `ServiceDependencies` of analytics, which read rows and no roll-ups, count
//!   the same calls, but tell the longest duration of the rows, and an error if any has one.
//! - **What a span is** is told by all of its rows; where they contradict each other, by what was received last
//!   (`traces-api` 1). So of copies of a row between which another report came the later one is kept when parts are
//!   written. A mark ([`FIRST`]) says that the earlier one was the first of those that started with it: it goes on to be.
//!   When it was received is lost, so of such a span and a report of another start the marked one counts; to keep that
//!   time would cost all spans a column.

use super::FIRST;
use crate::tables::spans::{MINUTE_NS, minute_of};

/// Rows of one span and side that start further apart are two spans.
pub const APART_MINUTES: i64 = 10;

/// What tells the reports of a side of a span apart, the first one least: received, start, bucket of the duration, error.
pub type FirstReport = (i64, i64, u16, bool);

/// Gives when a row was received, as far as it matters for which report is the first.
pub fn first_received(received: i64, marks: u8) -> i64 {
    if marks & FIRST == 0 { received } else { i64::MIN }
}

/// Says whether rows of one span and side with these starts report one span.
pub fn are_one_span(start: i64, other: i64) -> bool {
    minute_of(start).abs_diff(minute_of(other)) <= APART_MINUTES.unsigned_abs()
}

/// Gives the first and the last start that reports of spans of a range may have.
pub fn reports_near((from, to): (i64, i64)) -> (i64, i64) {
    let minute = |minute: i64| minute.saturating_mul(MINUTE_NS);
    (minute(minute_of(from) - APART_MINUTES), minute(minute_of(to) + APART_MINUTES).saturating_add(MINUTE_NS - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_what_may_be_one_span() {
        for (from, to) in [(0, 0), (5, MINUTE_NS), (-MINUTE_NS - 1, 3), (i64::MIN, i64::MAX)] {
            let (first, last) = reports_near((from, to));
            assert!(are_one_span(from, first) && are_one_span(to, last), "{from} {to}");
            assert!(first.checked_sub(1).is_none_or(|before| !are_one_span(from, before)), "{from} {to}");
            assert!(last.checked_add(1).is_none_or(|after| !are_one_span(to, after)), "{from} {to}");
        }
    }
}
