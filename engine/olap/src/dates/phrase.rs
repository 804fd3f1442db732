//! Phrases: `last 7 days`, `from 15 minutes ago to now`, `jan 1 2026 - jan 10 2026` (`olap-api.md` 3.2). Ambiguous
//! phrases are refused: a wrong range is worse than none.

use std::sync::LazyLock;

use chrono::{Datelike as _, Days, NaiveDate, NaiveDateTime, Weekday};
use chrono_tz::Tz;
use regex::{Captures, Regex};

use super::granularity::{Buckets, Granularity, Interval};
use super::range::{Point, WallRange};
use super::zone::{naive, of_naive, wall_ns};
use super::{MILLI_NS, SECOND_NS, cut};

/// The largest number of units in a phrase.
const COUNT_MAX: i64 = 1_000_000;

const UNITS: &str = "second|minute|hour|day|week|month|quarter|year";
/// Numbers in words, starting at one.
const NUMBERS: [&str; 12] =
    ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];

fn pattern(text: &str) -> Regex {
    let count = format!(r"(\d+|an?|{})", NUMBERS.join("|"));
    let text = text.replace("UNIT", &format!("({UNITS})")).replace("COUNT", &count);
    Regex::new(&text).expect("the patterns below compile")
}

static WHOLE: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b(this|last|next)\s+UNIT(s?)\b"));
static COUNTED: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b(last|next)\s+(\d+)\s+UNITs?\b"));
static FROM_TO: LazyLock<Regex> = LazyLock::new(|| pattern(r"^from\s+(.+?)\s+to\s+(.+)$"));
static AGO: LazyLock<Regex> = LazyLock::new(|| pattern(r"^COUNT\s+UNITs?\s+ago$"));
static FROM_NOW: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(?:in\s+COUNT\s+UNITs?|COUNT\s+UNITs?\s+from\s+now)$"));
static MONTH_DAY: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^([a-z]+)\.?\s+(\d{1,2})(?:st|nd|rd|th)?(?:,?\s+(\d{4}))?$"));
static DAY_MONTH: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^(\d{1,2})(?:st|nd|rd|th)?\s+([a-z]+)\.?(?:,?\s+(\d{4}))?$"));
static MONTH_YEAR: LazyLock<Regex> = LazyLock::new(|| pattern(r"^([a-z]+)\.?,?\s+(\d{4})$"));
static SLASHES: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(\d{1,2})/(\d{1,2})/(\d{4})$"));
static YEAR_BEHIND: LazyLock<Regex> = LazyLock::new(|| pattern(r"\s(\d{4})$"));
static BETWEEN: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(.+?)(?:\s+-\s+|\s+to\s+)(.+)$"));

/// Parses a phrase in a time zone; `now_ns` is the current instant.
///
/// # Errors
///
/// The part that is not understood.
pub fn parse(text: &str, tz: Tz, now_ns: i64) -> Result<WallRange, String> {
    let lower = text.trim().to_lowercase();
    let refused = || format!("`{text}` is no date range that is understood; write `last 7 days`, or a pair of dates");
    let clock = Clock { tz, now_ns };
    if let Some(found) = WHOLE.captures(&lower) {
        return clock.whole(&found).ok_or_else(refused);
    }
    if let Some(found) = COUNTED.captures(&lower) {
        return clock.counted(&found).ok_or_else(refused);
    }
    if let Some(shift) = ["today", "yesterday", "tomorrow"].iter().position(|word| lower.contains(word)) {
        let days = [0, -1, 1][shift];
        return Ok(clock.units("day", days, 1).expect("a day is a unit"));
    }
    clock.words(&lower).ok_or_else(refused)
}

/// The moment to which phrases are relative.
struct Clock {
    tz: Tz,
    now_ns: i64,
}

impl Clock {
    fn wall(&self) -> i64 {
        wall_ns(self.tz, self.now_ns)
    }

    fn today(&self) -> NaiveDate {
        naive(self.wall()).date()
    }

    /// A range of `count` units, starting `shift` units after the current one.
    fn units(&self, unit: &str, shift: i64, count: i64) -> Option<WallRange> {
        let buckets = Granularity::standard(unit)?.buckets;
        let start = buckets.floor(self.moved(unit, shift, buckets.floor(self.wall()))?);
        let end = end_of(unit, &buckets, start, count)?;
        Some(WallRange { start_ns: start, end_ns: end })
    }

    /// Shifts the start of the current unit. Units below a day are shifted as instants, so hours keep their length
    /// across clock changes.
    fn moved(&self, unit: &str, shift: i64, from: i64) -> Option<i64> {
        let length = Interval::unit(unit)?;
        if length.months == 0 && length.nanos < super::DAY_NS {
            let instant = self.now_ns.checked_add(length.nanos.checked_mul(shift)?)?;
            return Some(wall_ns(self.tz, instant));
        }
        let months = i32::try_from(i64::from(length.months).checked_mul(shift)?).ok()?;
        Some(Interval { months, nanos: length.nanos.checked_mul(shift)? }.add_to(from))
    }

    fn whole(&self, found: &Captures<'_>) -> Option<WallRange> {
        let shift = match &found[1] {
            "this" => 0,
            "last" => -1,
            _ => 1,
        };
        self.units(&found[2], shift, 1)
    }

    fn counted(&self, found: &Captures<'_>) -> Option<WallRange> {
        let count: i64 = found[2].parse().ok().filter(|n| (1..=COUNT_MAX).contains(n))?;
        let range = self.units(&found[3], if &found[1] == "last" { -count } else { 1 }, count)?;
        if &found[1] != "last" {
            return Some(range);
        }
        // A range that ends before the current unit ends at its start, even if the clock changed in between.
        let buckets = Granularity::standard(&found[3])?.buckets;
        Some(WallRange { end_ns: buckets.floor(self.wall()), ..range })
    }

    /// Patterns 5 and 6 of the specification.
    fn words(&self, text: &str) -> Option<WallRange> {
        let cut = ["second", "minute", "hour"].into_iter().find(|unit| text.contains(unit)).unwrap_or("day");
        let range = |from: i64, to: i64| {
            let buckets = Granularity::standard(cut)?.buckets;
            Some(WallRange { start_ns: buckets.floor(from), end_ns: buckets.next(buckets.floor(to)) })
        };
        if let Some(found) = FROM_TO.captures(text) {
            // Other readers disagree on a day in a range of hours: its noon, or its beginning.
            if cut != "day" && [&found[1], &found[2]].into_iter().any(|end| Form::of(end).is_day()) {
                return None;
            }
            return range(self.point(&found[1])?, self.point(&found[2])?);
        }
        if let Some(one) = self.point(text) {
            return range(one, one);
        }
        let found = BETWEEN.captures(text)?;
        let (from, to) = (found[1].trim(), found[2].trim());
        if !Form::of(from).leads_to(Form::of(to)) {
            return None;
        }
        // The year in `jan 1 - jan 10 2026` applies to both dates.
        let year = YEAR_BEHIND.captures(to).filter(|_| is_day_of_month(from));
        let year = year.map(|year| format!("{from} {}", &year[1]));
        let (from, to) = (self.point(year.as_deref().unwrap_or(from))?, self.point(to)?);
        if from <= to { range(from, to) } else { None }
    }

    /// Parses one date or time into wall time.
    fn point(&self, text: &str) -> Option<i64> {
        if text == "now" {
            return Some(self.wall());
        }
        let counted = |count: &str, unit: &str, sign: i64| {
            let count = read_count(count)?;
            let count = (count <= COUNT_MAX).then_some(count * sign)?;
            self.moved(unit, count, self.wall())
        };
        if let Some(found) = AGO.captures(text) {
            return counted(&found[1], &found[2], -1);
        }
        if let Some(found) = FROM_NOW.captures(text) {
            let (count, unit) = if found.get(1).is_some() { (1, 2) } else { (3, 4) };
            return counted(&found[count], &found[unit], 1);
        }
        match Point::parse(&text.to_uppercase(), self.tz) {
            Some(Point::Day(day)) => Some(midnight(day)),
            Some(Point::Time(time)) => Some(cut(of_naive(time), MILLI_NS)),
            None => self.date_in_words(text).map(midnight),
        }
    }

    fn date_in_words(&self, text: &str) -> Option<NaiveDate> {
        if let Some(day) = self.weekday(text) {
            return Some(day);
        }
        let date = |year: Option<&str>, month: u32, day: &str| {
            let day: u32 = day.parse().ok()?;
            match year {
                Some(year) => NaiveDate::from_ymd_opt(year.parse().ok()?, month, day),
                None => self.nearest_year(month, day),
            }
        };
        if let Some(found) = MONTH_DAY.captures(text) {
            return date(found.get(3).map(|y| y.as_str()), month(&found[1])?, &found[2]);
        }
        if let Some(found) = DAY_MONTH.captures(text) {
            return date(found.get(3).map(|y| y.as_str()), month(&found[2])?, &found[1]);
        }
        if let Some(found) = MONTH_YEAR.captures(text) {
            return date(Some(&found[2]), month(&found[1])?, "1");
        }
        let found = SLASHES.captures(text)?;
        date(Some(&found[3]), found[1].parse().ok()?, &found[2])
    }

    /// A day and month in the year that brings it closest to now.
    fn nearest_year(&self, month: u32, day: u32) -> Option<NaiveDate> {
        let today = self.today();
        let years = [today.year() - 1, today.year(), today.year() + 1];
        let dates = years.into_iter().filter_map(|year| NaiveDate::from_ymd_opt(year, month, day));
        dates.min_by_key(|date| (*date - today).num_days().abs())
    }

    /// `monday` is the closest one, `last monday` the one before today, `this friday` the next one.
    fn weekday(&self, text: &str) -> Option<NaiveDate> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (which, name) = match words[..] {
            [name] => ("", name),
            // With these words, `mon` could mean a month as well.
            ["last" | "this", "mon"] => return None,
            [which @ ("last" | "this"), name] => (which, name),
            _ => return None,
        };
        let wanted: Weekday = name.parse().ok()?;
        let today = self.today();
        let ahead = (7 + wanted.num_days_from_monday() - today.weekday().num_days_from_monday()) % 7;
        match which {
            "last" => today.checked_sub_days(Days::new(u64::from(7 - ahead))),
            "this" => today.checked_add_days(Days::new(ahead.into())),
            _ if ahead <= 3 => today.checked_add_days(Days::new(ahead.into())),
            _ => today.checked_sub_days(Days::new(u64::from(7 - ahead))),
        }
    }
}

/// How an end of a range is written. Two of different forms without `from` are one date to some readers, two to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Now,
    Day,
    Time,
    MonthDay {
        has_year: bool,
    },
    DayMonth,
    MonthYear,
    Slashes,
    Weekday,
    /// Hours or less ago.
    ShortAgo,
    /// Days, months or years ago.
    LongAgo,
    Other,
}

impl Form {
    fn of(text: &str) -> Self {
        if text == "now" {
            return Self::Now;
        }
        if let Some(found) = AGO.captures(text) {
            return match &found[2] {
                "second" | "minute" | "hour" => Self::ShortAgo,
                "day" | "month" | "year" => Self::LongAgo,
                _ => Self::Other,
            };
        }
        match Point::parse(&text.to_uppercase(), Tz::UTC) {
            Some(Point::Day(_)) => return Self::Day,
            Some(Point::Time(_)) => return Self::Time,
            None => {}
        }
        if let Some(found) = MONTH_DAY.captures(text) {
            return Self::MonthDay { has_year: found.get(3).is_some() };
        }
        if DAY_MONTH.is_match(text) {
            Self::DayMonth
        } else if MONTH_YEAR.is_match(text) {
            Self::MonthYear
        } else if SLASHES.is_match(text) {
            Self::Slashes
        } else if FROM_NOW.is_match(text) {
            Self::Other
        } else {
            Self::Weekday
        }
    }

    /// Whether it is a day without a time.
    fn is_day(self) -> bool {
        !matches!(self, Self::Now | Self::Time | Self::ShortAgo | Self::LongAgo | Self::Other)
    }

    /// Whether a range from it to another one has one reading.
    fn leads_to(self, to: Self) -> bool {
        match (self, to) {
            (Self::Other | Self::MonthYear, Self::Now) => false,
            (_, Self::Now) => true,
            (Self::MonthDay { has_year }, Self::MonthDay { has_year: is_said_again }) => is_said_again || !has_year,
            (from, to) => from == to && !matches!(from, Self::Other | Self::LongAgo),
        }
    }
}

/// The end of `count` units that start then.
fn end_of(unit: &str, buckets: &Buckets, start: i64, count: i64) -> Option<i64> {
    let length = Interval::unit(unit)?;
    let months = i32::try_from(i64::from(length.months).checked_mul(count)?).ok()?;
    let end = Interval { months, nanos: length.nanos.checked_mul(count)? }.add_to(start);
    // A time beyond the range of nanoseconds is not rounded.
    Some(if end == i64::MAX { end } else { buckets.floor(end) })
}

fn midnight(day: NaiveDate) -> i64 {
    cut(of_naive(NaiveDateTime::from(day)), SECOND_NS)
}

/// Parses a count: digits, `a`, or a number in words.
fn read_count(text: &str) -> Option<i64> {
    if matches!(text, "a" | "an") {
        return Some(1);
    }
    match NUMBERS.iter().position(|word| *word == text) {
        Some(place) => i64::try_from(place + 1).ok(),
        None => text.parse().ok(),
    }
}

/// Whether a text is a day of a month without a year.
fn is_day_of_month(text: &str) -> bool {
    let fits = |found: &Captures<'_>, name: usize| found.get(3).is_none() && month(&found[name]).is_some();
    MONTH_DAY.captures(text).is_some_and(|found| fits(&found, 1))
        || DAY_MONTH.captures(text).is_some_and(|found| fits(&found, 2))
}

fn month(name: &str) -> Option<u32> {
    name.parse::<chrono::Month>().ok().map(|m| m.number_from_month())
}

#[cfg(test)]
mod tests {

    use chrono::DateTime;
    use serde_json::Value;

    use super::*;
    use crate::dates::parse::of_text;

    /// Checks all recorded phrases: those that must parse, and those that may be refused but not parsed to anything
    /// else.
    #[test]
    fn recorded_phrases() {
        let Some(folder) = crate::testing::open_cases() else { return };
        let path = folder.join("golden/relative_dates.json");
        let cases: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let (mut wrong, mut refused) = (Vec::new(), 0);
        for case in cases.as_array().unwrap() {
            let text = |key: &str| case[key].as_str().unwrap();
            let tz: Tz = text("timezone").parse().unwrap();
            let now = DateTime::parse_from_rfc3339(text("now")).unwrap().timestamp_nanos_opt().unwrap();
            let got = of_text(text("phrase"), tz, now).ok().map(|range| range.written());
            let expected = case["range"].as_array().map(|r| r.iter().map(|t| t.as_str().unwrap()).collect::<Vec<_>>());
            let fits = match (&got, &expected) {
                (None, Some(_)) if text("tier") != "required" => {
                    refused += 1;
                    true
                }
                (None, None) => true,
                (Some(got), Some(expected)) => got[..] == expected[..],
                _ => false,
            };
            if !fits {
                wrong.push(format!("{} {tz}: {got:?}, not {expected:?}", text("phrase")));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(refused < 8, "{refused} free phrases are refused");
    }

    #[test]
    fn hours_over_a_change_of_the_clock() {
        let now = DateTime::parse_from_rfc3339("2026-03-29T03:30:00Z").unwrap().timestamp_nanos_opt().unwrap();
        let range = parse("last 4 hours", Tz::Europe__Berlin, now).unwrap();
        assert_eq!(
            range.written(),
            ["2026-03-29T00:00:00.000", "2026-03-29T04:59:59.999"],
            "02:00 to 03:00 is missing"
        );
    }

    #[test]
    fn years_that_are_said_once_and_numbers_in_words() {
        let now = DateTime::parse_from_rfc3339("2026-11-26T08:50:00Z").unwrap().timestamp_nanos_opt().unwrap();
        let check = |text: &str, expected: [&str; 2]| {
            assert_eq!(parse(text, Tz::UTC, now).unwrap().written(), expected, "{text}");
        };
        check("january 1 to january 10 2026", ["2026-01-01T00:00:00.000", "2026-01-10T23:59:59.999"]);
        check("1 jan - 31 mar 2026", ["2026-01-01T00:00:00.000", "2026-03-31T23:59:59.999"]);
        check("jan 1 2025 - jan 10 2026", ["2025-01-01T00:00:00.000", "2026-01-10T23:59:59.999"]);
        check("two hours ago", ["2026-11-26T06:00:00.000", "2026-11-26T06:59:59.999"]);
        check("from three days ago to an hour from now", ["2026-11-23T08:00:00.000", "2026-11-26T09:59:59.999"]);
        for text in ["last monday - last friday", "last mon", "this mon", "dec 31 2025 - dec 1 2025", "a few days ago"]
        {
            assert!(parse(text, Tz::UTC, now).is_err(), "{text}");
        }
    }

    /// The reference reads `6 weeks ago to now` as today, and `3 nov 2026 to 2026-12-05` as something else again.
    #[test]
    fn ends_of_different_forms() {
        let now = DateTime::parse_from_rfc3339("2026-11-26T08:50:00Z").unwrap().timestamp_nanos_opt().unwrap();
        let check = |text: &str, expected: Option<[&str; 2]>| {
            let found = parse(text, Tz::UTC, now).ok().map(|range| range.written());
            assert_eq!(found, expected.map(|ends| ends.map(str::to_owned)), "{text}");
        };
        check("2026-11-01 to now", Some(["2026-11-01T00:00:00.000", "2026-11-26T23:59:59.999"]));
        check("3 days ago - now", Some(["2026-11-23T00:00:00.000", "2026-11-26T23:59:59.999"]));
        check("2 hours ago to 1 hour ago", Some(["2026-11-26T06:00:00.000", "2026-11-26T07:59:59.999"]));
        check("2026-11-01 - 2026-11-03", Some(["2026-11-01T00:00:00.000", "2026-11-03T23:59:59.999"]));
        check("11/01/2026 to 11/03/2026", Some(["2026-11-01T00:00:00.000", "2026-11-03T23:59:59.999"]));
        check("march 2026 - may 2026", Some(["2026-03-01T00:00:00.000", "2026-05-01T23:59:59.999"]));
        for text in [
            "6 weeks ago to now",
            "2 quarters ago - now",
            "march 2026 to now",
            "march 2026 to dec 5",
            "3 nov 2026 to 2026-12-05",
            "nov 3 2026 - nov 5",
            "nov 3 to 1 week from now",
            "2 days ago to 1 week ago",
            "now to 2 days from now",
        ] {
            check(text, None);
        }
        // Readers disagree on whether a day means its noon or its beginning here.
        check("from 2026-11-01 to an hour ago", None);
        check("from monday to 5 minutes ago", None);
        check("from 2026-11-01t10:00 to an hour ago", Some(["2026-11-01T10:00:00.000", "2026-11-26T07:59:59.999"]));
        check("from 2 days ago to an hour ago", Some(["2026-11-24T08:00:00.000", "2026-11-26T07:59:59.999"]));
        check("from 6 weeks ago to now", Some(["2026-10-15T00:00:00.000", "2026-11-26T23:59:59.999"]));
    }

    #[test]
    fn more_than_nanoseconds_reach() {
        let now = DateTime::parse_from_rfc3339("2026-11-26T08:50:00Z").unwrap().timestamp_nanos_opt().unwrap();
        let range = |text: &str| parse(text, Tz::UTC, now).unwrap();
        assert_eq!(range("next 9000 years").end_ns, i64::MAX);
        assert_eq!(range("next 9000 years").written()[0], "2027-01-01T00:00:00.000");
        assert_eq!(range("last 9000 years").start_ns, i64::MIN);
        assert_eq!(range("last 9000 years").written()[1], "2025-12-31T23:59:59.999");
        assert_eq!(range("from now to 9000 years from now").end_ns, i64::MAX);
    }

    #[test]
    fn refused() {
        for text in
            ["", "7d", "2025", "q1 2026", "last fortnight", "last 0 days", "last 9999999999999999999 days", "noonish"]
        {
            assert!(parse(text, Tz::UTC, 0).is_err(), "{text}");
        }
    }
}
