//! Dates in queries: time zones, phrases such as "last 7 days", ranges, granularities (`olap-api.md` 3).
//!
//! Wall-clock time is `i64` nanoseconds as if the local clock were UTC; instants are Unix nanoseconds. Pure functions:
//! the current time is an argument.

pub mod granularity;
pub mod parse;
pub mod phrase;
pub mod range;
pub mod zone;

/// Nanoseconds of a second.
pub const SECOND_NS: i64 = 1_000_000_000;
/// Nanoseconds of a millisecond.
pub const MILLI_NS: i64 = 1_000_000;
/// Nanoseconds of a day without a change of the clock.
pub const DAY_NS: i64 = 86_400 * SECOND_NS;

/// Cuts a time to whole units; the first times that nanoseconds reach are those of the unit that begins before them.
pub(crate) fn cut(ns: i64, unit_ns: i64) -> i64 {
    ns.saturating_sub(ns.rem_euclid(unit_ns))
}
