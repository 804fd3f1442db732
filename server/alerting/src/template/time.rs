//! Times as Go formats and parses them: layouts, zones, methods.

use std::fmt;

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, Offset, TimeDelta, TimeZone, Timelike, Utc};
use chrono_tz::Tz;
use quiver_types::time::calendar::{MONTH_NAMES, WEEKDAY_NAMES};

/// A time in a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time {
    utc: NaiveDateTime,
    zone: Zone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zone {
    Utc,
    Named(Tz),
    /// An offset in seconds east of UTC, parsed from a text without a zone name.
    Fixed(i32),
}

/// The name of a month, counted from 1.
pub(super) fn month_name(month: u32) -> &'static str {
    MONTH_NAMES[(month.clamp(1, 12) - 1) as usize]
}

impl Time {
    /// Makes a UTC time; times out of the calendar's range of 262,000 years are clamped.
    pub fn from_nanos(nanos: i128) -> Self {
        let end = if nanos < 0 { NaiveDateTime::MIN } else { NaiveDateTime::MAX };
        let seconds = i64::try_from(nanos.div_euclid(1_000_000_000)).ok();
        let rest = nanos.rem_euclid(1_000_000_000) as u32;
        let utc = seconds.and_then(|s| DateTime::from_timestamp(s, rest)).map_or(end, |t| t.naive_utc());
        Self { utc, zone: Zone::Utc }
    }

    /// Go's zero time: the first second of year 1.
    pub fn zero() -> Self {
        let date = NaiveDate::from_ymd_opt(1, 1, 1).expect("a day of the calendar");
        Self { utc: date.and_time(chrono::NaiveTime::MIN), zone: Zone::Utc }
    }

    /// Whether it is Go's zero time.
    pub fn is_zero(&self) -> bool {
        self.utc == Self::zero().utc
    }

    /// Nanoseconds since 1970.
    pub fn nanos(&self) -> i128 {
        let utc = self.utc.and_utc();
        i128::from(utc.timestamp()) * 1_000_000_000 + i128::from(utc.timestamp_subsec_nanos())
    }

    /// Converts to another zone.
    ///
    /// # Errors
    /// There is no such zone.
    pub fn in_zone(&self, name: &str) -> Result<Self, String> {
        let zone = match name {
            // The server has no local zone.
            "" | "UTC" | "Local" => Zone::Utc,
            name => Zone::Named(name.parse().map_err(|_| format!("unknown time zone {name}"))?),
        };
        Ok(Self { utc: self.utc, zone })
    }

    /// Converts to UTC.
    #[must_use]
    pub fn in_utc(&self) -> Self {
        Self { utc: self.utc, zone: Zone::Utc }
    }

    /// Adds nanoseconds; a sum beyond the calendar's range leaves the time as it is.
    #[must_use]
    pub fn add(&self, nanos: i64) -> Self {
        let utc = self.utc.checked_add_signed(TimeDelta::nanoseconds(nanos)).unwrap_or(self.utc);
        Self { utc, zone: self.zone }
    }

    /// Adds years, months and days, and keeps the time of day; days beyond the end of a month continue in the next
    /// one. A sum beyond the calendar's range leaves the time as it is.
    #[must_use]
    pub fn add_date(&self, years: i64, months: i64, days: i64) -> Self {
        let moved = || {
            let local = self.local();
            let years = i64::from(local.year()).checked_add(years)?;
            let months = years.checked_mul(12)?.checked_add(i64::from(local.month0()))?.checked_add(months)?;
            let year = i32::try_from(months.div_euclid(12)).ok()?;
            let first = NaiveDate::from_ymd_opt(year, months.rem_euclid(12) as u32 + 1, 1)?;
            let days = TimeDelta::try_days(days.checked_add(i64::from(local.day0()))?)?;
            self.at_clock(first.checked_add_signed(days)?.and_time(local.time()))
        };
        moved().unwrap_or(*self)
    }

    /// The time for a local time in the zone. If there is none, or two, the one that Go takes.
    fn at_clock(&self, local: NaiveDateTime) -> Option<Self> {
        let at = |utc| Self { utc, zone: self.zone };
        let east = |time: Self| TimeDelta::seconds(i64::from(time.zone_at().0));
        let near = local.checked_sub_signed(east(at(local)))?;
        local.checked_sub_signed(east(at(near))).map(at)
    }

    /// The offset in seconds, and the abbreviation of the zone.
    fn zone_at(&self) -> (i32, String) {
        match self.zone {
            Zone::Utc => (0, "UTC".to_owned()),
            Zone::Named(zone) => {
                let offset = zone.offset_from_utc_datetime(&self.utc);
                let seconds = offset.fix().local_minus_utc();
                (seconds, offset.to_string())
            }
            Zone::Fixed(seconds) => (seconds, offset_text(seconds, OffsetForm::Digits)),
        }
    }

    /// The local time in the zone.
    pub fn local(&self) -> NaiveDateTime {
        let (seconds, _) = self.zone_at();
        self.utc.checked_add_signed(TimeDelta::seconds(i64::from(seconds))).unwrap_or(self.utc)
    }

    /// Formats it by one of Go's layouts.
    pub fn format(&self, layout: &str) -> String {
        let (local, (offset, zone)) = (self.local(), self.zone_at());
        let mut out = String::with_capacity(layout.len() + 16);
        let mut rest = layout;
        while !rest.is_empty() {
            let (prefix, part, after) = next_part(rest);
            out.push_str(prefix);
            if let Some(part) = part {
                out += &part_text(part, &local, offset, &zone);
            }
            rest = after;
        }
        out
    }

    /// Formats it as RFC 3339, with as many fractional digits as it has.
    pub fn rfc3339(&self) -> String {
        self.format("2006-01-02T15:04:05.999999999Z07:00")
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.format("2006-01-02 15:04:05.999999999 -0700 MST"))
    }
}

/// How an offset from UTC is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OffsetForm {
    /// `+07:00`.
    Colon,
    /// `+0700`.
    Digits,
    /// `+07`.
    Hours,
}

/// Elements of a layout. Longer ones precede their prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LayoutElement {
    LongMonth,
    Month,
    LongWeekDay,
    WeekDay,
    Zone,
    ZeroMonth,
    ZeroDay,
    ZeroHour12,
    ZeroMinute,
    ZeroSecond,
    ZeroYearDay,
    Year,
    ShortYear,
    NumMonth,
    Day,
    UnderDay,
    UnderYearDay,
    Hour24,
    Hour12,
    Minute,
    Second,
    UpperPm,
    LowerPm,
    /// Like `Z07:00`; whether `Z` stands for UTC.
    Offset {
        z: bool,
        form: OffsetForm,
    },
    /// Separator, digits, whether trailing zeros are left out.
    Fraction(char, usize, bool),
}

const PARTS: [(&str, LayoutElement); 30] = [
    ("January", LayoutElement::LongMonth),
    ("Jan", LayoutElement::Month),
    ("Monday", LayoutElement::LongWeekDay),
    ("Mon", LayoutElement::WeekDay),
    ("MST", LayoutElement::Zone),
    ("002", LayoutElement::ZeroYearDay),
    ("01", LayoutElement::ZeroMonth),
    ("02", LayoutElement::ZeroDay),
    ("03", LayoutElement::ZeroHour12),
    ("04", LayoutElement::ZeroMinute),
    ("05", LayoutElement::ZeroSecond),
    ("06", LayoutElement::ShortYear),
    ("2006", LayoutElement::Year),
    ("15", LayoutElement::Hour24),
    ("__2", LayoutElement::UnderYearDay),
    ("_2006", LayoutElement::Year),
    ("_2", LayoutElement::UnderDay),
    ("1", LayoutElement::NumMonth),
    ("2", LayoutElement::Day),
    ("3", LayoutElement::Hour12),
    ("4", LayoutElement::Minute),
    ("5", LayoutElement::Second),
    ("PM", LayoutElement::UpperPm),
    ("pm", LayoutElement::LowerPm),
    ("-07:00", LayoutElement::Offset { z: false, form: OffsetForm::Colon }),
    ("-0700", LayoutElement::Offset { z: false, form: OffsetForm::Digits }),
    ("-07", LayoutElement::Offset { z: false, form: OffsetForm::Hours }),
    ("Z07:00", LayoutElement::Offset { z: true, form: OffsetForm::Colon }),
    ("Z0700", LayoutElement::Offset { z: true, form: OffsetForm::Digits }),
    ("Z07", LayoutElement::Offset { z: true, form: OffsetForm::Hours }),
];

/// Splits a layout at its next element: what precedes it, the element, the rest.
fn next_part(layout: &str) -> (&str, Option<LayoutElement>, &str) {
    for (i, c) in layout.char_indices() {
        let rest = &layout[i..];
        for (text, part) in PARTS.iter().filter(|(text, _)| rest.starts_with(text)) {
            let after = &rest[text.len()..];
            // `Jan` in `January` was tried before; `Month` does not contain `Mon`.
            let in_word = matches!(part, LayoutElement::Month | LayoutElement::WeekDay)
                && after.starts_with(|c: char| c.is_ascii_lowercase());
            if in_word {
                continue;
            }
            if *text == "_2006" {
                return (&layout[..=i], Some(LayoutElement::Year), after);
            }
            return (&layout[..i], Some(*part), after);
        }
        if matches!(c, '.' | ',') {
            let digits = &rest[1..];
            let digit = digits.chars().next().filter(|d| matches!(d, '0' | '9'));
            let count = digits.chars().take_while(|d| Some(*d) == digit).count();
            let after = &digits[count..];
            if count > 0 && !after.starts_with(|c: char| c.is_ascii_digit()) {
                return (&layout[..i], Some(LayoutElement::Fraction(c, count, digit == Some('9'))), after);
            }
        }
    }
    (layout, None, "")
}

fn offset_text(seconds: i32, form: OffsetForm) -> String {
    let sign = if seconds < 0 { '-' } else { '+' };
    let minutes = seconds.abs() / 60;
    let (hours, minutes) = (minutes / 60, minutes % 60);
    match form {
        OffsetForm::Colon => format!("{sign}{hours:02}:{minutes:02}"),
        OffsetForm::Digits => format!("{sign}{hours:02}{minutes:02}"),
        OffsetForm::Hours => format!("{sign}{hours:02}"),
    }
}

fn part_text(part: LayoutElement, t: &NaiveDateTime, offset: i32, zone: &str) -> String {
    let (_, hour12) = t.hour12();
    let month = MONTH_NAMES[t.month0() as usize];
    let day = WEEKDAY_NAMES[t.weekday().num_days_from_sunday() as usize];
    match part {
        LayoutElement::LongMonth => month.to_owned(),
        LayoutElement::Month => month[..3].to_owned(),
        LayoutElement::LongWeekDay => day.to_owned(),
        LayoutElement::WeekDay => day[..3].to_owned(),
        LayoutElement::Zone => zone.to_owned(),
        LayoutElement::ZeroMonth => format!("{:02}", t.month()),
        LayoutElement::ZeroDay => format!("{:02}", t.day()),
        LayoutElement::ZeroHour12 => format!("{hour12:02}"),
        LayoutElement::ZeroMinute => format!("{:02}", t.minute()),
        LayoutElement::ZeroSecond => format!("{:02}", t.second()),
        LayoutElement::ZeroYearDay => format!("{:03}", t.ordinal()),
        LayoutElement::UnderYearDay => format!("{:3}", t.ordinal()),
        LayoutElement::Year => format!("{:04}", t.year()),
        LayoutElement::ShortYear => format!("{:02}", t.year().rem_euclid(100)),
        LayoutElement::NumMonth => t.month().to_string(),
        LayoutElement::Day => t.day().to_string(),
        LayoutElement::UnderDay => format!("{:2}", t.day()),
        LayoutElement::Hour24 => format!("{:02}", t.hour()),
        LayoutElement::Hour12 => hour12.to_string(),
        LayoutElement::Minute => t.minute().to_string(),
        LayoutElement::Second => t.second().to_string(),
        LayoutElement::UpperPm => if t.hour() >= 12 { "PM" } else { "AM" }.to_owned(),
        LayoutElement::LowerPm => if t.hour() >= 12 { "pm" } else { "am" }.to_owned(),
        LayoutElement::Offset { z: true, .. } if offset == 0 => "Z".to_owned(),
        LayoutElement::Offset { form, .. } => offset_text(offset, form),
        LayoutElement::Fraction(separator, digits, trims) => {
            // More than nine digits count as nine, as in Go.
            let all = format!("{:09}", t.nanosecond() % 1_000_000_000);
            let cut = &all[..digits.min(9)];
            let cut = if trims { cut.trim_end_matches('0') } else { cut };
            if cut.is_empty() { String::new() } else { format!("{separator}{cut}") }
        }
    }
}

/// The parsed parts of a time.
#[derive(Default)]
struct Read {
    year: Option<i32>,
    month: Option<u32>,
    day: Option<u32>,
    year_day: Option<u32>,
    hour: u32,
    minute: u32,
    second: u32,
    nanos: u32,
    pm: Option<bool>,
    offset: Option<i32>,
    zone: Option<Tz>,
}

/// Reads a time by one of Go's layouts; without an offset it is UTC.
///
/// # Errors
/// The text is not as the layout says.
pub fn parse(layout: &str, text: &str) -> Result<Time, String> {
    let fail =
        |reason: &str| format!("parsing time {} as {}: {reason}", crate::text::quote(text), crate::text::quote(layout));
    let (mut form, mut rest) = (layout, text);
    let mut read = Read::default();
    while !form.is_empty() {
        let (prefix, part, after) = next_part(form);
        rest = rest.strip_prefix(prefix).ok_or_else(|| fail("cannot parse"))?;
        form = after;
        let Some(part) = part else { break };
        rest = read.part(part, rest, after).ok_or_else(|| fail("cannot parse"))?;
    }
    if !rest.is_empty() {
        return Err(fail(&format!("extra text: {}", crate::text::quote(rest))));
    }
    read.time().ok_or_else(|| fail("out of range"))
}

fn digits(text: &str, min: usize, max: usize) -> Option<(u32, &str)> {
    let count = text.bytes().take(max).take_while(u8::is_ascii_digit).count();
    (count >= min).then(|| text[..count].parse().ok().map(|value| (value, &text[count..])))?
}

fn word<'a>(text: &'a str, words: &[&str], length: usize) -> Option<(u32, &'a str)> {
    words.iter().enumerate().find_map(|(i, word)| {
        let word = &word[..length.min(word.len())];
        let head = text.get(..word.len())?;
        head.eq_ignore_ascii_case(word).then(|| (i as u32, &text[word.len()..]))
    })
}

impl Read {
    fn part<'a>(&mut self, part: LayoutElement, text: &'a str, form: &str) -> Option<&'a str> {
        let take = |min, max| digits(text, min, max);
        let rest = match part {
            LayoutElement::LongMonth | LayoutElement::Month => {
                let (month, rest) = word(text, &MONTH_NAMES, if part == LayoutElement::Month { 3 } else { 9 })?;
                self.month = Some(month + 1);
                rest
            }
            LayoutElement::LongWeekDay => word(text, &WEEKDAY_NAMES, 9)?.1,
            LayoutElement::WeekDay => word(text, &WEEKDAY_NAMES, 3)?.1,
            LayoutElement::Zone => {
                let end = text.find(|c: char| !c.is_ascii_uppercase()).unwrap_or(text.len());
                let name = &text[..end];
                if name == "UTC" || name == "GMT" {
                    self.offset = Some(0);
                } else {
                    self.zone = Some(name.parse().ok()?);
                }
                &text[end..]
            }
            LayoutElement::ZeroMonth => keep(self.month.get_or_insert(0), take(2, 2)?),
            LayoutElement::ZeroDay => keep(self.day.get_or_insert(0), take(2, 2)?),
            LayoutElement::NumMonth => keep(self.month.get_or_insert(0), take(1, 2)?),
            LayoutElement::Day | LayoutElement::UnderDay => {
                let text = if part == LayoutElement::UnderDay { text.trim_start_matches(' ') } else { text };
                keep(self.day.get_or_insert(0), digits(text, 1, 2)?)
            }
            LayoutElement::ZeroYearDay | LayoutElement::UnderYearDay => {
                keep(self.year_day.get_or_insert(0), digits(text.trim_start_matches(' '), 1, 3)?)
            }
            LayoutElement::Year => {
                let (value, rest) = take(4, 4)?;
                self.year = Some(value as i32);
                rest
            }
            LayoutElement::ShortYear => {
                let (value, rest) = take(2, 2)?;
                self.year = Some(value as i32 + if value >= 69 { 1900 } else { 2000 });
                rest
            }
            LayoutElement::Hour24 | LayoutElement::ZeroHour12 => keep(&mut self.hour, take(2, 2)?),
            LayoutElement::Hour12 => keep(&mut self.hour, take(1, 2)?),
            LayoutElement::ZeroMinute => keep(&mut self.minute, take(2, 2)?),
            LayoutElement::Minute => keep(&mut self.minute, take(1, 2)?),
            LayoutElement::ZeroSecond | LayoutElement::Second => {
                let rest = keep(&mut self.second, take(if part == LayoutElement::Second { 1 } else { 2 }, 2)?);
                // A fraction may follow the seconds, though the layout has none.
                let fraction = rest.strip_prefix(['.', ',']).filter(|r| r.starts_with(|c: char| c.is_ascii_digit()));
                match fraction {
                    Some(fraction) if !matches!(next_part(form), ("", Some(LayoutElement::Fraction(..)), _)) => {
                        self.fraction(fraction)?
                    }
                    _ => rest,
                }
            }
            LayoutElement::UpperPm | LayoutElement::LowerPm => {
                let (is_pm, rest) = match text.get(..2)? {
                    "PM" | "pm" => (true, &text[2..]),
                    "AM" | "am" => (false, &text[2..]),
                    _ => return None,
                };
                self.pm = Some(is_pm);
                rest
            }
            LayoutElement::Offset { z, form } => match text.strip_prefix('Z').filter(|_| z) {
                Some(rest) => {
                    self.offset = Some(0);
                    rest
                }
                None => self.offset(text, form)?,
            },
            LayoutElement::Fraction(_, _, trims) => match text.strip_prefix(['.', ',']) {
                Some(fraction) => self.fraction(fraction)?,
                None if trims => text,
                None => return None,
            },
        };
        Some(rest)
    }

    fn fraction<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let digits = &text[..end.min(9)];
        self.nanos = format!("{digits:0<9}").parse().ok()?;
        Some(&text[end..])
    }

    fn offset<'a>(&mut self, text: &'a str, form: OffsetForm) -> Option<&'a str> {
        let sign = match text.chars().next()? {
            '+' => 1,
            '-' => -1,
            _ => return None,
        };
        let (hours, mut rest) = digits(&text[1..], 2, 2)?;
        let mut minutes = 0;
        if form != OffsetForm::Hours {
            rest = if form == OffsetForm::Colon { rest.strip_prefix(':')? } else { rest };
            (minutes, rest) = digits(rest, 2, 2)?;
        }
        self.offset = Some(sign * (hours as i32 * 3600 + minutes as i32 * 60)).filter(|o| o.abs() < 86_400);
        self.offset.map(|_| rest)
    }

    fn time(self) -> Option<Time> {
        let hour = match self.pm {
            Some(true) if self.hour < 12 => self.hour + 12,
            Some(false) if self.hour == 12 => 0,
            _ => self.hour,
        };
        let year = self.year.unwrap_or(0);
        let date = match self.year_day {
            Some(day) => NaiveDate::from_yo_opt(year, day)?,
            None => NaiveDate::from_ymd_opt(year, self.month.unwrap_or(1), self.day.unwrap_or(1))?,
        };
        let local = date.and_hms_nano_opt(hour, self.minute, self.second, self.nanos)?;
        match (self.offset, self.zone) {
            (Some(0), _) | (None, None) => Some(Time { utc: local, zone: Zone::Utc }),
            (Some(offset), _) => {
                let utc = local.checked_sub_signed(TimeDelta::seconds(i64::from(offset)))?;
                Some(Time { utc, zone: Zone::Fixed(offset) })
            }
            (None, Some(zone)) => {
                let utc = zone.from_local_datetime(&local).earliest()?.with_timezone(&Utc).naive_utc();
                Some(Time { utc, zone: Zone::Named(zone) })
            }
        }
    }
}

/// Keeps a number that was read, and gives the text behind it.
fn keep<'a>(number: &mut u32, (value, rest): (u32, &'a str)) -> &'a str {
    *number = value;
    rest
}

#[cfg(test)]
mod tests;
