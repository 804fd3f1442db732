//! Time: Unix milliseconds for metric samples, a clock that tests can set; dates, durations and their text forms.

pub mod calendar;
pub mod duration;
pub mod rfc3339;

use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Unix time in milliseconds, the resolution of metric samples.
pub type Millis = i64;

/// One UTC day in milliseconds.
pub const DAY_MS: Millis = 86_400_000;

/// A range of time, both ends included (metric samples have whole milliseconds, so nothing lies between).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MillisRange {
    /// First millisecond, included.
    pub min: Millis,
    /// Last millisecond, included.
    pub max: Millis,
}

impl MillisRange {
    /// All of time.
    pub const ALL: Self = Self { min: i64::MIN, max: i64::MAX };

    /// Makes a range; `min > max` is the empty range.
    pub fn new(min: Millis, max: Millis) -> Self {
        Self { min, max }
    }

    /// Says whether two ranges share a millisecond.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.min <= other.max && other.min <= self.max
    }

    /// Says whether the range holds a time.
    pub fn contains(&self, ts: Millis) -> bool {
        self.min <= ts && ts <= self.max
    }

    /// Gives the smallest range that holds both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// Gives the UTC day (days since the epoch) of a time.
pub fn day_of(ts: Millis) -> i32 {
    ts.div_euclid(DAY_MS) as i32
}

/// Writes a day as `yyyy-mm-dd`, the name of its partition.
pub fn day_name(day: i32) -> String {
    let date = chrono::DateTime::from_timestamp(i64::from(day) * 86_400, 0).map(|t| t.date_naive());
    date.map_or_else(|| format!("d{day}"), |d| d.format("%Y-%m-%d").to_string())
}

/// Formats a time as `yyyymmddThhmmssZ`, which sorts by time and can be part of a file name.
pub fn utc_text(ts: Millis) -> String {
    let time = chrono::DateTime::from_timestamp_millis(ts);
    time.map_or_else(|| format!("t{ts}"), |t| t.format("%Y%m%dT%H%M%SZ").to_string())
}

/// Gives wall-clock time. Passed in, so that tests can move it.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Unix time in milliseconds.
    fn now_ms(&self) -> Millis;

    /// Time since some moment of the process. It goes on evenly, whoever sets the clock.
    fn elapsed(&self) -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }
}

/// The clock of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    fn now_ms(&self) -> Millis {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days() {
        assert_eq!(day_of(-1), -1);
        assert_eq!(day_of(DAY_MS), 1);
        assert_eq!(day_name(0), "1970-01-01");
        assert_eq!(day_name(-1), "1969-12-31");
        assert_eq!(day_name(20_000), "2024-10-04");
    }

    #[test]
    fn ranges() {
        let range = MillisRange::new;
        for (one, other, overlap, union) in [
            (range(0, 5), range(5, 9), true, range(0, 9)),
            (range(0, 4), range(5, 9), false, range(0, 9)),
            (range(2, 3), range(0, 9), true, range(0, 9)),
            (range(-5, -5), MillisRange::ALL, true, MillisRange::ALL),
        ] {
            assert_eq!((one.overlaps(&other), other.overlaps(&one)), (overlap, overlap), "{one:?} {other:?}");
            assert_eq!((one.union(&other), other.union(&one)), (union, union), "{one:?} {other:?}");
        }
        assert!(range(3, 3).contains(3) && !range(3, 2).contains(3) && !range(3, 2).contains(2));
        assert!(MillisRange::ALL.contains(i64::MIN) && MillisRange::ALL.contains(i64::MAX));
    }

    #[test]
    fn times_as_names() {
        assert_eq!((utc_text(0), utc_text(-1)), ("19700101T000000Z".to_owned(), "19691231T235959Z".to_owned()));
        assert_eq!(utc_text(1_741_600_001_999), "20250310T094641Z");
        // What no calendar has still has a name of its own.
        assert_eq!((utc_text(i64::MAX), day_name(i32::MAX)), (format!("t{}", i64::MAX), format!("d{}", i32::MAX)));
        assert_eq!([day_of(DAY_MS - 1), day_of(-DAY_MS), day_of(-DAY_MS - 1)], [0, -1, -2]);
        let clock = SystemClock;
        let before = clock.elapsed();
        assert!(before <= clock.elapsed() && clock.now_ms() > 1_600_000_000_000);
    }
}
