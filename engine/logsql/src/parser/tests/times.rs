//! What stands behind `_time:`: first and last moment, offsets, times of the day, days of the week.

use super::*;
use crate::ast::{Filter, TimeFilter};

const NOW: i64 = 1_000_000_000_000_000_000;
const MINUTE: i64 = 60_000_000_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

fn time(text: &str) -> TimeFilter {
    let query = parse(&format!("_time:{text}")).unwrap_or_else(|fault| panic!("{text}: {fault}"));
    match query.filter {
        Filter::Time(filter) => filter,
        other => panic!("{text}: {other:?}"),
    }
}

/// Breaks if a bound counts that is left out, or an age is taken for a time.
#[test]
fn ranges_have_a_first_and_a_last_moment() {
    let check = |text: &str, start: i64, end: i64, offset: i64| match time(text) {
        TimeFilter::Range { start: first, end: last, offset_ns, .. } => {
            assert_eq!((first.at(NOW), last.at(NOW), offset_ns), (start, end, offset), "{text}");
        }
        other => panic!("{text}: {other:?}"),
    };
    check("5m", NOW - 5 * MINUTE, NOW, 0);
    check("=5m", NOW - 5 * MINUTE, NOW, 0);
    check("<=5m", NOW - 5 * MINUTE, NOW, 0);
    check("<5m", NOW - 5 * MINUTE + 1, NOW, 0);
    check(">=5m", i64::MIN, NOW - 5 * MINUTE, 0);
    check("> = 5m", i64::MIN, NOW - 5 * MINUTE, 0);
    check("< =5m", NOW - 5 * MINUTE, NOW, 0);
    check(">5m", i64::MIN, NOW - 5 * MINUTE - 1, 0);
    // An age is the same with a sign.
    check("-5m", NOW - 5 * MINUTE, NOW, 0);
    check("=-5m offset 1h", NOW - 5 * MINUTE, NOW, HOUR);
    check("<-5m", NOW - 5 * MINUTE + 1, NOW, 0);
    check(">-5m", i64::MIN, NOW - 5 * MINUTE - 1, 0);
    check("1970", 0, YEAR - 1, 0);
    check(">=1970", 0, i64::MAX, 0);
    check("<1970", i64::MIN, -1, 0);
    check("<=1970", i64::MIN, YEAR - 1, 0);
    check("[1970, 1971)", 0, YEAR - 1, 0);
    check("[1970, 1971]", 0, 2 * YEAR - 1, 0);
    check("1970-01-02", DAY, 2 * DAY - 1, 0);
    check("[now-5m, now]", NOW - 5 * MINUTE, NOW, 0);
    check("5m offset 1h", NOW - 5 * MINUTE, NOW, HOUR);
    check("offset 1h", i64::MIN, NOW, HOUR);
    check("5m offset -1h", NOW - 5 * MINUTE, NOW, -HOUR);
    check(">5m offset 1h", i64::MIN, NOW - 5 * MINUTE - 1, HOUR);
    // Both ends left out, one, or none.
    check("(1970, 1971)", 1, YEAR - 1, 0);
    check("(1970, 1971]", 1, 2 * YEAR - 1, 0);
    check("[1970, 1970]", 0, YEAR - 1, 0);
    // Nothing is between the two.
    check("[1970, 1970)", 0, -1, 0);
    check("(now, now)", NOW + 1, NOW - 1, 0);
    // Durations within ranges are ages, and `now` may be ahead.
    check("[10m, 5m)", NOW - 10 * MINUTE, NOW - 5 * MINUTE - 1, 0);
    check("[now-1h30m, now+1d]", NOW - HOUR - 30 * MINUTE, NOW + DAY, 0);
    // A number with a sign is a number of seconds before now.
    check("[-3600, now-60.0]", NOW - HOUR, NOW - MINUTE, 0);
    check(">now-6e1", NOW - MINUTE + 1, i64::MAX, 0);
    // What is named is as long as its last part.
    check("1970-02", 31 * DAY, 59 * DAY - 1, 0);
    check("1970-01-01T01", HOUR, 2 * HOUR - 1, 0);
    check("1970-01-01T00:01", MINUTE, 2 * MINUTE - 1, 0);
    check("1970-01-01T00:01:00Z", MINUTE, MINUTE + MINUTE / 60 - 1, 0);
    check("<=1970-01-02", i64::MIN, 2 * DAY - 1, 0);
}

#[test]
fn times_of_the_day_and_days_of_the_week() {
    let day = |text: &str, start: i64, end: i64, offset: i64| match time(text) {
        TimeFilter::DayRange { start_ns, end_ns, offset_ns, .. } => {
            assert_eq!((start_ns, end_ns, offset_ns), (start, end, offset), "{text}");
        }
        other => panic!("{text}: {other:?}"),
    };
    day("day_range[08:00, 18:00)", 8 * HOUR, 18 * HOUR - 1, 0);
    day("day_range(08:00, 18:00]", 8 * HOUR + 1, 18 * HOUR, 0);
    day("day_range[08:00:30, 24:00]", 8 * HOUR + MINUTE / 2, DAY - 1, 0);
    day("day_range[00:00, 00:01) offset 2h", 0, MINUTE - 1, 2 * HOUR);
    day("day_range(00:00, 00:00)", 1, -1, 0);
    day("day_range[22:00, 06:00]", 22 * HOUR, 6 * HOUR, 0);
    day("day_range[00:00, 23:59:59] offset -30m", 0, DAY - MINUTE / 60, -MINUTE * 30);
    let week = |text: &str, first: u8, last: u8| match time(text) {
        TimeFilter::WeekRange { first_day, last_day, .. } => assert_eq!((first_day, last_day), (first, last), "{text}"),
        other => panic!("{text}: {other:?}"),
    };
    week("week_range[mon, fri]", 1, 5);
    week("week_range(Monday, FRI)", 2, 4);
    // After Saturday comes Sunday, and before Sunday is Saturday.
    week("week_range(Sat, Tue]", 0, 2);
    week("week_range[Fri, Sun)", 5, 6);
    week("week_range(sat, sunday)", 0, 6);
    // No day is after Saturday and before it.
    week("week_range(Fri, Sat)", 6, 5);
}

#[test]
fn wrong_times_say_where() {
    check_error("_time:tomorrow", "`tomorrow` is no time or duration at offset 6");
    check_error(
        "_time:day_range[25:00, 26:00]",
        "a time of the day such as `08:30` expected, got `25:00` at offset 16",
    );
    for wrong in ["8:00", "08", "08:60", "24:01", "08:00:60", "08:00:00:00", "+8:00", "0８:00"] {
        assert!(parse(&format!("_time:day_range[00:00, {wrong}]")).is_err(), "{wrong}");
    }
    for wrong in ["1970-13", "1970-02-30", "1970-01-01T24:00:00Z", "now*2", "now-", "5x", "-", "1970-1-1"] {
        assert!(parse(&format!("_time:[{wrong}, now]")).is_err(), "{wrong}");
    }
    for wrong in ["-60", ">-60", "<=-1.5", "[now+60, now]", "[-1K, now]", "[now-inf, now]", "[now-1h30, now]"] {
        assert!(parse(&format!("_time:{wrong}")).is_err(), "{wrong}");
    }
    check_error("_time:week_range[mon,someday]", "a day of the week expected, got `someday` at offset 21");
    let fraction = "`2024-01-02T03:04:05.5` is no time or duration; a time with a fraction needs a zone such as `Z`";
    check_error("_time:2024-01-02T03:04:05.5", &format!("{fraction} at offset 6"));
}
