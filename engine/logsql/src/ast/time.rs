//! Time filters. Times relative to "now" stay relative until a query is planned.

use serde::{Deserialize, Serialize};

use super::Literal;

/// `_time:...`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum TimeFilter {
    /// A range; the text is what stands after `_time:`, with `offset`.
    Range {
        /// The first moment that matches.
        start: Moment,
        /// Last moment, included.
        end: Moment,
        /// Moves the range into the past; nanoseconds.
        offset_ns: i64,
        /// As written.
        text: String,
    },
    /// `day_range[a, b]`: nanoseconds of the day, both included.
    DayRange {
        /// First nanosecond of the day.
        start_ns: i64,
        /// Last nanosecond of the day.
        end_ns: i64,
        /// East of UTC; nanoseconds.
        offset_ns: i64,
        /// As written.
        text: String,
    },
    /// `week_range[a, b]`: days of the week from 0 (Sunday), both included.
    WeekRange {
        /// First day.
        first_day: u8,
        /// Last day.
        last_day: u8,
        /// East of UTC; nanoseconds.
        offset_ns: i64,
        /// As written.
        text: String,
    },
}

/// A moment, fixed or counted from the time of evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Moment {
    /// Nanoseconds since 1970.
    At(i64),
    /// "now" plus this many nanoseconds.
    Now(i64),
}

impl Moment {
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
