//! Time from the calendar alone: wall time is looked up in the zone, buckets are found by counting days and months.

use chrono::{DateTime, Datelike as _, Days, Months, NaiveDate, NaiveDateTime, TimeZone as _, Timelike as _};
use chrono_tz::Tz;

/// A length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    Months(i32),
    Minutes(i64),
}

impl Span {
    pub(crate) fn negated(self) -> Self {
        match self {
            Self::Months(n) => Self::Months(-n),
            Self::Minutes(n) => Self::Minutes(-n),
        }
    }

    /// Moves a wall time.
    pub(crate) fn move_wall(self, wall_ms: i64) -> i64 {
        match self {
            Self::Minutes(n) => wall_ms + n * 60_000,
            Self::Months(n) => {
                let months = Months::new(n.unsigned_abs());
                let at = naive(wall_ms);
                of_naive(if n < 0 { at.checked_sub_months(months) } else { at.checked_add_months(months) }.unwrap())
            }
        }
    }
}

pub(crate) fn naive(ms: i64) -> NaiveDateTime {
    DateTime::from_timestamp_millis(ms).unwrap().naive_utc()
}

pub(crate) fn of_naive(at: NaiveDateTime) -> i64 {
    at.and_utc().timestamp_millis()
}

/// Wall time of an instant.
pub(crate) fn wall(tz: Tz, utc_ms: i64) -> i64 {
    of_naive(tz.from_utc_datetime(&naive(utc_ms)).naive_local())
}

/// The first instant of a wall time; of one that never comes the instant at which the clock leaps.
pub(crate) fn first_instant(tz: Tz, wall_ms: i64) -> i64 {
    match tz.from_local_datetime(&naive(wall_ms)).earliest() {
        Some(found) => found.timestamp_millis(),
        None => leap(tz, wall_ms),
    }
}

/// The instant at which a range ends that goes to before a wall time: behind the last millisecond that belongs to it.
pub(crate) fn end_instant(tz: Tz, wall_ms: i64) -> i64 {
    match tz.from_local_datetime(&naive(wall_ms - 1)).latest() {
        Some(found) => found.timestamp_millis() + 1,
        None => leap(tz, wall_ms - 1),
    }
}

/// The instant at which the clock leaps over a wall time; clocks leap on whole minutes.
fn leap(tz: Tz, wall_ms: i64) -> i64 {
    let mut at = wall_ms.div_euclid(60_000) * 60_000;
    loop {
        at += 60_000;
        if let Some(found) = tz.from_local_datetime(&naive(at)).earliest() {
            return found.timestamp_millis();
        }
    }
}

/// Names of granularities: those that all have, then those of the models.
pub(crate) const GRAINS: [&str; 13] = [
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
    "year",
    "five_minutes",
    "six_hours",
    "fortnight",
    "fiscal_year",
    "sunday_week",
];

/// How models write theirs.
pub(crate) const OWN_GRAINS: &str = "[{name: five_minutes, interval: 5 minutes}, {name: six_hours, interval: 6 hours}, \
    {name: fortnight, interval: 2 weeks, origin: '2026-03-23'}, {name: fiscal_year, interval: 1 year, offset: 1 month}, \
    {name: sunday_week, interval: 1 week, offset: -1 day}]";

fn midnight(day: NaiveDate) -> NaiveDateTime {
    day.and_hms_opt(0, 0, 0).unwrap()
}

/// Start of the bucket of a wall time, and of the next one.
pub(crate) fn bucket(grain: &str, wall_ms: i64) -> (i64, i64) {
    let at = naive(wall_ms);
    let day = at.date();
    let minutes = |n: i64| {
        let length = n * 60_000;
        let start = wall_ms - (wall_ms - of_naive(midnight(day))) % length;
        (start, start + length)
    };
    let days = |back: i64, length: i64| {
        let start = of_naive(midnight(day - Days::new(back as u64)));
        (start, start + length * 86_400_000)
    };
    let months = |year: i32, month: u32, length: u32| {
        let start = midnight(NaiveDate::from_ymd_opt(year, month, 1).unwrap());
        (of_naive(start), of_naive(start.checked_add_months(Months::new(length)).unwrap()))
    };
    match grain {
        "second" => {
            let start = of_naive(at.with_nanosecond(0).unwrap());
            (start, start + 1_000)
        }
        "minute" => minutes(1),
        "five_minutes" => minutes(5),
        "hour" => minutes(60),
        "six_hours" => minutes(360),
        "day" => days(0, 1),
        "week" => days(day.weekday().num_days_from_monday().into(), 7),
        "sunday_week" => days(day.weekday().num_days_from_sunday().into(), 7),
        "fortnight" => {
            let origin = NaiveDate::from_ymd_opt(2026, 3, 23).unwrap();
            days((day - origin).num_days().rem_euclid(14), 14)
        }
        "month" => months(at.year(), at.month(), 1),
        "quarter" => months(at.year(), at.month0() / 3 * 3 + 1, 3),
        "year" => months(at.year(), 1, 12),
        "fiscal_year" => months(if at.month() == 1 { at.year() - 1 } else { at.year() }, 2, 12),
        other => panic!("no granularity {other}"),
    }
}

/// About how long buckets are: finer ones are less.
pub(crate) fn about(grain: &str) -> i64 {
    let (start, end) = bucket(grain, 0);
    end - start
}

pub(crate) fn written(wall_ms: i64) -> String {
    naive(wall_ms).format("%Y-%m-%dT%H:%M:%S%.3f").to_string()
}

/// A range of wall time: from the first millisecond to before the second.
pub(crate) type Range = (i64, i64);

/// The clock of questions that have phrases.
pub(crate) const NOW_MS: i64 = 1_774_951_500_000;

/// A day, a millisecond, or a phrase.
pub(crate) fn point(text: &str, tz: Tz) -> Range {
    if PHRASES.contains(&text) {
        return phrase(text, tz);
    }
    if text.len() == 10 {
        let start = of_naive(midnight(text.parse().unwrap()));
        return (start, start + 86_400_000);
    }
    let at = of_naive(text.parse().unwrap());
    (at, at + 1)
}

/// Phrases, as they are meant at the time of the clock.
fn phrase(text: &str, tz: Tz) -> Range {
    let now = wall(tz, NOW_MS);
    let unit = |grain: &str, count: i64, ahead: i64| {
        let mut start = bucket(grain, now).0;
        for _ in 0..count {
            start = if ahead < 0 { bucket(grain, start - 1).0 } else { bucket(grain, start).1 };
        }
        start
    };
    match text {
        "today" => bucket("day", now),
        "yesterday" => (unit("day", 1, -1), unit("day", 0, 0)),
        "this month" => bucket("month", now),
        "last week" => (unit("week", 1, -1), unit("week", 0, 0)),
        "last 10 days" => (unit("day", 10, -1), unit("day", 0, 0)),
        "last 2 quarters" => (unit("quarter", 2, -1), unit("quarter", 0, 0)),
        "next 3 days" => (unit("day", 1, 1), unit("day", 4, 1)),
        "from 7 days ago to now" => (unit("day", 7, -1), unit("day", 1, 1)),
        other => panic!("no phrase {other}"),
    }
}

pub(crate) const PHRASES: [&str; 8] = [
    "today",
    "yesterday",
    "this month",
    "last week",
    "last 10 days",
    "last 2 quarters",
    "next 3 days",
    "from 7 days ago to now",
];
