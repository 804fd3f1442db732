//! Time filters. Times relative to "now" stay relative until a query is planned.

use serde::{Deserialize, Serialize};

use super::literal::Literal;

/// `_time:5m`, `_time:[a, b)`, `_time:day_range[08:00, 18:00]`, `_time:week_range[Mon, Fri]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum TimeFilter {
    /// A range; the text is what stands after `_time:`, with `offset`.
    Range {
        /// The first moment that matches.
        start: TimePoint,
        /// Last moment, included.
        end: TimePoint,
        /// Moves the range into the past; nanoseconds.
        offset_ns: i64,
        /// The filter as it is printed behind `_time:`, with `offset`.
        text: String,
    },
    /// `day_range[a, b]`: nanoseconds of the day, both included.
    DayRange {
        /// First nanosecond of the day.
        start_ns: i64,
        /// Last nanosecond of the day.
        end_ns: i64,
        /// Distance of the time zone east of UTC, nanoseconds.
        offset_ns: i64,
        /// The filter as it is printed behind `_time:`, with `offset`.
        text: String,
    },
    /// `week_range[a, b]`: days of the week from 0 (Sunday), both included.
    WeekRange {
        /// The first day of the week that matches; 0 is Sunday.
        first_day: u8,
        /// The last day of the week that matches, included.
        last_day: u8,
        /// Distance of the time zone east of UTC, nanoseconds.
        offset_ns: i64,
        /// The filter as it is printed behind `_time:`, with `offset`.
        text: String,
    },
}

/// A moment, fixed or counted from the time of evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimePoint {
    /// A fixed moment in Unix nanoseconds.
    At(i64),
    /// "now" plus this many nanoseconds; below 0 in the past.
    Now(i64),
}

impl TimePoint {
    /// The moment when "now" is `now_ns`.
    pub fn at(self, now_ns: i64) -> i64 {
        match self {
            Self::At(ns) => ns,
            Self::Now(shift_ns) => now_ns.saturating_add(shift_ns),
        }
    }
}

/// Width of a bucket of `by (f:step)`.
#[derive(Debug, Clone, PartialEq)]
pub enum TimeBucket {
    /// A number, duration, size: `floor(x/step)*step`.
    Step(Literal<f64>),
    /// `/24`: that many leading bits of an IPv4 address.
    Ipv4Mask(u8),
    /// `week`: begins on Monday.
    Week,
    /// `month`: the calendar's.
    Month,
    /// `year`: the calendar's.
    Year,
    /// `nanosecond` to `day` by name, with the nanoseconds.
    Named(Literal<f64>),
}
