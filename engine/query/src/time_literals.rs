//! Dates and times as people write them: `Jan 5, 2024`, `5/1/2024 10:00 PM`, `20240105T101112Z`, `2024-01-05 10:00
//! CET`. PostgreSQL accepts all of these (month, day, year in this order), Arrow only RFC 3339 with seconds. So
//! literals of a statement are rewritten to Arrow's form before they are cast.

use std::fmt::Write as _;

use arrow::array::timezone::Tz;
use arrow::compute::kernels::cast_utils::{Parser as _, string_to_datetime};
use arrow::datatypes::{Date32Type, Time64NanosecondType};
use chrono::Utc;

use crate::zone_names::{abbreviated, offset_of, zone_name};

/// What a text is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeLiteralKind {
    /// A date; a time behind it is passed over.
    Date,
    /// A time of a day; a date before it is passed over, and so is a zone.
    Time,
    /// A reading of a clock; a zone behind it is passed over.
    Reading,
    /// A reading of a clock in a zone.
    Zoned,
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const DAY_SECONDS: u32 = 86_400;
const DAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// A text in the form that arrow reads; none: it is in such a form, or is no such date or time.
pub fn in_form(text: &str, kind: TimeLiteralKind) -> Option<String> {
    if kind == TimeLiteralKind::Time
        && text.trim().bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        && let Some((clock, _)) = clock_of(text.trim())
    {
        // For arrow digits alone are nanoseconds.
        return Some(clock);
    }
    // As a part of a minute, this is what some leap seconds are; here it is where the next minute begins.
    let is_plain = !text.contains(":60");
    let is_read = match kind {
        TimeLiteralKind::Date => text.len() <= 10 && Date32Type::parse(text).is_some(),
        TimeLiteralKind::Time => is_plain && Time64NanosecondType::parse(text).is_some(),
        TimeLiteralKind::Reading => is_plain && string_to_datetime(&Utc, text).is_ok(),
        TimeLiteralKind::Zoned => is_plain && !is_abbreviated(text) && string_to_datetime(&Utc, text).is_ok(),
    };
    // A zone that has to be passed over would be heeded.
    if is_read && kind != TimeLiteralKind::Reading {
        return None;
    }
    let parts = Parts::read(text)?;
    if is_read && parts.zone.is_none() {
        return None;
    }
    let mut out = String::new();
    if kind != TimeLiteralKind::Time {
        let (year, month, day) = match parts.date? {
            date if parts.is_end && kind != TimeLiteralKind::Date => next_day(date)?,
            date => date,
        };
        write!(out, "{year:04}-{month:02}-{day:02}").ok()?;
        if kind == TimeLiteralKind::Date {
            return Some(out);
        }
        out.push(' ');
    }
    match (&parts.clock, kind) {
        (None, TimeLiteralKind::Time) => return None,
        (Some(_), TimeLiteralKind::Time) if parts.is_end => return None,
        (Some(_), _) if parts.is_end => out.push_str("00:00:00"),
        (Some(clock), _) => out.push_str(clock),
        (None, _) => out.push_str("00:00:00"),
    }
    if kind == TimeLiteralKind::Zoned {
        match parts.zone {
            Some(Zone::Offset(zone)) => out.push_str(&zone),
            Some(Zone::Name(zone)) => write!(out, " {zone}").ok()?,
            None => {}
        }
    }
    Some(out)
}

/// Whether the zone of a time is an abbreviation that arrow takes for a zone of that name, whose clocks may be put forward
/// (`CET`); the abbreviation is one of hours.
fn is_abbreviated(text: &str) -> bool {
    let word = text.trim_end().rsplit(|letter: char| !letter.is_ascii_alphanumeric()).next();
    let zone = word.map(|word| word.trim_start_matches(|letter: char| letter.is_ascii_digit()));
    zone.is_some_and(|zone| abbreviated(zone).is_some() && zone.parse::<Tz>().is_ok())
}

/// Whether a text is a date or a time but for fields that are out of their range: a 30th of February, 25 hours. So is the end
/// of a day where it is no moment, for no time of a day is it here.
pub(crate) fn is_beyond(text: &str) -> bool {
    Parts::any(text).is_some_and(|parts| parts.is_beyond || parts.is_end)
}

/// Whether a text is the end of a day: `24:00`, `23:59:60`.
pub(crate) fn is_end_of_day(text: &str) -> bool {
    Parts::read(text).is_some_and(|parts| parts.is_end)
}

/// Whether a text says a day.
pub(crate) fn has_date(text: &str) -> bool {
    Parts::read(text).is_some_and(|parts| parts.date.is_some())
}

enum Zone {
    Offset(String),
    Name(String),
}

/// What was found so far.
#[derive(Default)]
struct Parts {
    date: Option<(u32, u32, u32)>,
    clock: Option<String>,
    zone: Option<Zone>,
    /// The clock shows the end of the day, where the next one begins.
    is_end: bool,
    /// A field is out of its range.
    is_beyond: bool,
}

/// A date that is written in several words.
#[derive(Default)]
struct Words {
    year: Option<u32>,
    month: Option<u32>,
    day: Option<u32>,
}

impl Parts {
    fn read(text: &str) -> Option<Self> {
        Self::any(text).filter(|parts| !parts.is_beyond)
    }

    fn any(text: &str) -> Option<Self> {
        let (mut parts, mut words, mut half) = (Self::default(), Words::default(), None);
        let tokens = text.split(|letter: char| letter.is_whitespace() || letter == ',');
        for token in tokens.filter(|token| !token.is_empty()) {
            let low = token.to_ascii_lowercase();
            let is_number = low.bytes().all(|byte| byte.is_ascii_digit());
            if matches!(low.as_str(), "am" | "pm") {
                put(&mut half, low)?;
            } else if let Some(month) = month_of(&low) {
                put(&mut words.month, month)?;
            } else if is_number && parts.date.is_none() && (words.month.is_some() || low.len() <= 2) {
                words.number(&low)?;
            } else if !DAYS.iter().any(|day| is_word(&low, day)) {
                parts.token(token, &low, &mut half)?;
            }
        }
        if let Words { year: Some(year), month: Some(month), day: Some(day) } = words {
            put(&mut parts.date, (year, month, day))?;
        } else if words.year.is_some() || words.month.is_some() || words.day.is_some() {
            return None;
        }
        if let Some((year, month, day)) = parts.date
            && (year > 9999 || !(1..=days_of(year, month).unwrap_or(0)).contains(&day))
        {
            parts.is_beyond = true;
        }
        if let Some(half) = half {
            let clock = parts.clock.take()?;
            let whole = in_half(&clock, &half);
            parts.is_beyond |= whole.is_none();
            parts.clock = Some(whole.unwrap_or(clock));
        }
        (parts.date.is_some() || parts.clock.is_some()).then_some(parts)
    }

    /// Reads a word that is no name of a month.
    fn token(&mut self, token: &str, low: &str, half: &mut Option<String>) -> Option<()> {
        let is_named = low.split(['-', '/', '.']).next().and_then(month_of).is_some();
        if low.starts_with(['+', '-']) || (low.starts_with(|letter: char| letter.is_ascii_alphabetic()) && !is_named) {
            return self.zoned(token);
        }
        if self.date.is_some() || low.split(['t', '+', 'z']).next()?.contains(':') {
            return self.clocked(token, half);
        }
        let (date, rest) = token.split_at(end_of_date(low));
        // A zone of a sign of its own may stand right behind the date.
        let (date, rest) = match date.rsplit_once('-') {
            Some((before, _)) if date.matches('-').count() == 3 => (before, &token[before.len()..]),
            _ => (date, rest),
        };
        self.date = Some(date_of(&date.to_ascii_lowercase())?);
        match rest.strip_prefix(['T', 't']) {
            Some(clock) => self.clocked(clock, half),
            None if rest.is_empty() => Some(()),
            None => self.zoned(rest),
        }
    }

    /// Reads a time of a day, with what stands right behind it.
    fn clocked(&mut self, token: &str, half: &mut Option<String>) -> Option<()> {
        let end = token.find(|letter: char| !(letter.is_ascii_digit() || ":.".contains(letter))).unwrap_or(token.len());
        let (clock, rest) = token.split_at(end);
        let (clock, place) = clock_of(clock)?;
        self.is_beyond |= place == ClockPlace::Beyond;
        self.is_end |= place == ClockPlace::End;
        put(&mut self.clock, clock)?;
        match rest.to_ascii_lowercase().as_str() {
            "" => Some(()),
            am_pm @ ("am" | "pm") => put(half, am_pm.to_owned()),
            _ => self.zoned(rest),
        }
    }

    fn zoned(&mut self, zone: &str) -> Option<()> {
        let low = zone.to_ascii_lowercase();
        let found = if let Some(hours) = abbreviated(&low) {
            Zone::Offset(format!("{hours:+03}:00"))
        } else if low.starts_with(['+', '-']) {
            Zone::Offset(offset_of(&low)?)
        } else if low.contains('/') {
            Zone::Name(zone_name(zone).unwrap_or_else(|| zone.to_owned()))
        } else {
            return None;
        };
        put(&mut self.zone, found)
    }
}

impl Words {
    /// A number beside the name of a month.
    fn number(&mut self, digits: &str) -> Option<()> {
        let number: u32 = digits.parse().ok()?;
        match digits.len() {
            1 | 2 if self.day.is_none() => put(&mut self.day, number),
            1 | 2 => put(&mut self.year, of_century(number)),
            _ => put(&mut self.year, number),
        }
    }
}

/// Fills a place that was empty; none: it has something.
fn put<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.is_none().then(|| *place = Some(value))
}

/// Whether a word is a name, or its first letters with which it is still the only one.
fn is_word(word: &str, name: &str) -> bool {
    let word = word.strip_suffix('.').unwrap_or(word);
    word == name || (word.len() >= 3 && word.len() <= 4 && name.starts_with(word))
}

fn month_of(word: &str) -> Option<u32> {
    (1..).zip(MONTHS).find(|(_, name)| is_word(word, name)).map(|(month, _)| month)
}

fn days_of(year: u32, month: u32) -> Option<u32> {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    Some(match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        _ => return None,
    })
}

/// The day behind one that there is.
fn next_day((year, month, day): (u32, u32, u32)) -> Option<(u32, u32, u32)> {
    Some(match (month, day) {
        (month, day) if day < days_of(year, month)? => (year, month, day + 1),
        (12, _) => (year + 1, 1, 1),
        (month, _) => (year, month + 1, 1),
    })
}

/// Where the date ends that a word begins with. Letters of a month stand between its marks, a `T` or a zone behind a digit.
fn end_of_date(low: &str) -> usize {
    fn is_of_date(letter: char) -> bool {
        letter.is_ascii_digit() || "-/.".contains(letter)
    }
    let end = low.find(|letter: char| !is_of_date(letter)).unwrap_or(low.len());
    let (date, rest) = low.split_at(end);
    if !date.is_empty() && !date.ends_with(['-', '/', '.']) {
        return end;
    }
    let letters = rest.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(rest.len());
    let behind = &rest[letters..];
    end + letters + behind.find(|letter: char| !is_of_date(letter)).unwrap_or(behind.len())
}

/// Year, month and day of a date in one word.
fn date_of(date: &str) -> Option<(u32, u32, u32)> {
    if date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some((date[..4].parse().ok()?, date[4..6].parse().ok()?, date[6..].parse().ok()?));
    }
    let mark = date.chars().find(|letter| "-/.".contains(*letter))?;
    let mut fields = date.split(mark);
    let (a, b, c) = (fields.next()?, fields.next()?, fields.next()?);
    let number = |field: &str, digits_max: usize| {
        let is_number = (1..=digits_max).contains(&field.len()) && field.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { field.parse::<u32>().ok() } else { None }
    };
    let found = if let Some(month) = month_of(b) {
        if a.len() == 4 { (number(a, 4)?, month, number(c, 2)?) } else { (year_of(c)?, month, number(a, 2)?) }
    } else if let Some(month) = month_of(a) {
        (year_of(c)?, month, number(b, 2)?)
    } else if a.len() >= 4 {
        (number(a, 9)?, number(b, 2)?, number(c, 2)?)
    } else {
        (year_of(c)?, number(a, 2)?, number(b, 2)?)
    };
    fields.next().is_none().then_some(found)
}

/// A year of four digits, or of two.
fn year_of(digits: &str) -> Option<u32> {
    let year: u32 = if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok()? } else { return None };
    match digits.len() {
        4 => Some(year),
        2 => Some(of_century(year)),
        _ => None,
    }
}

/// The year that two digits mean: those from 70 on are of the last century.
fn of_century(digits: u32) -> u32 {
    digits + if digits < 70 { 2000 } else { 1900 }
}

/// Where a time is that a clock shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClockPlace {
    Within,
    /// At the end of the day.
    End,
    /// No day has it.
    Beyond,
}

/// `10:11:12.5` of that, of `10:11`, and of `101112.5`, where second 60 is the next minute; and whether a day has such a time.
fn clock_of(clock: &str) -> Option<(String, ClockPlace)> {
    let (whole, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let fields: Vec<&str> = if whole.contains(':') {
        whole.split(':').collect()
    } else {
        match whole.len() {
            4 => vec![&whole[..2], &whole[2..]],
            6 => vec![&whole[..2], &whole[2..4], &whole[4..]],
            _ => return None,
        }
    };
    let number = |field: &str| {
        let is_number = matches!(field.len(), 1 | 2) && field.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { field.parse::<u32>().ok() } else { None }
    };
    let (hours, minutes, seconds) = match fields.as_slice() {
        [hours, minutes] if fraction.is_empty() => (number(hours)?, number(minutes)?, 0),
        [hours, minutes, seconds] => (number(hours)?, number(minutes)?, number(seconds)?),
        _ => return None,
    };
    let whole = (hours * 60 + minutes) * 60 + seconds;
    let place = match whole {
        _ if minutes > 59 || seconds > 60 => ClockPlace::Beyond,
        ..DAY_SECONDS => ClockPlace::Within,
        DAY_SECONDS if fraction.bytes().all(|digit| digit == b'0') => ClockPlace::End,
        _ => ClockPlace::Beyond,
    };
    let (hours, minutes, seconds) = if place == ClockPlace::Within {
        (whole / 3600, whole / 60 % 60, whole % 60)
    } else {
        (hours, minutes, seconds)
    };
    let fraction = &fraction[..fraction.len().min(9)];
    let mark = if fraction.is_empty() { "" } else { "." };
    Some((format!("{hours:02}:{minutes:02}:{seconds:02}{mark}{fraction}"), place))
}

/// A time of a clock of twelve hours as one of a day.
fn in_half(clock: &str, half: &str) -> Option<String> {
    let (hours, rest) = clock.split_at(2);
    let hours: u32 = hours.parse().ok()?;
    let hours = match (hours, half) {
        (12, "am") => 0,
        (12, _) | (0..=11, "am") => hours,
        (1..=11, _) => hours + 12,
        _ => return None,
    };
    Some(format!("{hours:02}{rest}"))
}

/// Years of a part of times that the planner does not know, and how many years before 1 the first of them began: decades
/// count from the year 0, centuries from the year 1.
pub fn era(part: &str) -> Option<(i64, i64)> {
    Some(match part.to_lowercase().as_str() {
        "decade" | "decades" => (10, 0),
        "century" | "centuries" => (100, 99),
        "millennium" | "millenium" | "millennia" => (1000, 999),
        _ => return None,
    })
}

/// The name of a unit of time that is written in another way; none: it is that name, or there is no such unit.
pub fn unit_name(unit: &str) -> Option<&'static str> {
    Some(match unit.to_lowercase().as_str() {
        "microseconds" | "microsecon" | "us" | "usec" | "usecs" => "microsecond",
        "milliseconds" | "millisecon" | "ms" | "msec" | "msecs" => "millisecond",
        "seconds" | "sec" | "secs" | "s" => "second",
        "minutes" | "min" | "mins" | "m" => "minute",
        "hours" | "hr" | "hrs" | "h" => "hour",
        "days" | "d" => "day",
        "weeks" | "w" => "week",
        "months" | "mon" | "mons" => "month",
        "qtr" => "quarter",
        "years" | "yr" | "yrs" | "y" => "year",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
