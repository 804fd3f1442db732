//! `to_char` of times, dates and intervals, with PostgreSQL's patterns (`Day, DDth FMMonth YYYY HH24:MI`). `quiver_sql`
//! translates calls to this function.
//!
//! Source: PostgreSQL's formatting.c, `DCH_to_char`, word by word.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{Array as _, ArrayRef, AsArray, StringBuilder, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit};
use chrono::{DateTime, Datelike as _, NaiveDate, NaiveDateTime, Offset as _, TimeZone as _, Timelike as _};
use datafusion::common::{exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use quiver_types::time::calendar::{MONTH_NAMES, WEEKDAY_NAMES};

use super::intervals::spread_out;
use super::result_memory::Room;
use super::row_builder::OutputMemory;

const SECOND_NS: i64 = 1_000_000_000;
/// Bytes that a word of a pattern gives at most.
const WORD_BYTES: usize = 24;

#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeFormat {
    room: Room,
    signature: Signature,
}

pub(super) fn function(room: &Room) -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::from(TimeFormat { room: room.clone(), signature }))
}

impl ScalarUDFImpl for TimeFormat {
    fn name(&self) -> &'static str {
        "time_to_char"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [value, pattern] = types else { return plan_err!("`to_char` takes a value and a pattern") };
        if !pattern.is_string() && !pattern.is_null() {
            return plan_err!("a pattern is a text, not `{pattern}`");
        }
        let value = match value {
            DataType::Timestamp(..) | DataType::Duration(_) => value.clone(),
            DataType::Interval(_) => DataType::Interval(IntervalUnit::MonthDayNano),
            DataType::Date32 | DataType::Date64 | DataType::Null => DataType::Timestamp(TimeUnit::Nanosecond, None),
            DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Nanosecond),
            other => return plan_err!("a pattern of times is for a time or an interval, not for `{other}`"),
        };
        Ok(vec![value, DataType::Utf8View])
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [values, patterns] = args.args.as_slice() else { return internal_err!("a value and a pattern are taken") };
        let is_constant = matches!(patterns, ColumnarValue::Scalar(_));
        let (values, patterns) = (values.to_array(args.number_rows)?, patterns.to_array(args.number_rows)?);
        let patterns = cast(&patterns, &DataType::Utf8View)?;
        let Some(patterns) = patterns.as_string_view_opt() else { return internal_err!("texts are none") };
        Ok(ColumnarValue::Array(self.texts(&values, patterns, is_constant)?))
    }
}

impl TimeFormat {
    fn texts(&self, values: &ArrayRef, patterns: &StringViewArray, is_constant: bool) -> Result<ArrayRef> {
        let values = Values::of(values)?;
        let mut making = OutputMemory::new("to_char", &self.room);
        let (mut out, mut text) = (StringBuilder::new(), String::new());
        let mut known: Option<Vec<FormatPart>> = None;
        for row in 0..patterns.len() {
            let Some(value) = values.value(row)?.filter(|_| patterns.is_valid(row)) else {
                out.append_null();
                continue;
            };
            let pattern = patterns.value(row);
            if known.is_none() || !is_constant {
                known = Some(parts_of(pattern));
            }
            let Some(parts) = &known else { return internal_err!("a pattern is lacking") };
            making.add(pattern.len().saturating_add(parts.len().saturating_mul(WORD_BYTES)))?;
            text.clear();
            for part in parts {
                match part {
                    FormatPart::Text(letter) => text.push(*letter),
                    FormatPart::Word(word) => word.write(&value, &mut text)?,
                }
            }
            // An empty pattern gives nothing, as in PostgreSQL.
            out.append_option((!pattern.is_empty()).then_some(&text));
        }
        Ok(Arc::new(out.finish()))
    }
}

/// A column of times.
enum Values {
    Moments {
        numbers: ArrayRef,
        per_second: i64,
        zone: Option<Tz>,
    },
    Intervals(ArrayRef),
    /// Nanoseconds of a day.
    Clock(ArrayRef),
}

impl Values {
    fn of(array: &ArrayRef) -> Result<Self> {
        Ok(match array.data_type() {
            DataType::Timestamp(unit, zone) => {
                let per_second = match unit {
                    TimeUnit::Second => 1,
                    TimeUnit::Millisecond => 1_000,
                    TimeUnit::Microsecond => 1_000_000,
                    TimeUnit::Nanosecond => SECOND_NS,
                };
                let zone = zone.as_deref().map(str::parse::<Tz>).transpose()?;
                Self::Moments { numbers: cast(array, &DataType::Int64)?, per_second, zone }
            }
            DataType::Duration(_) => Self::Intervals(spread_out(array)?),
            DataType::Interval(IntervalUnit::MonthDayNano) => Self::Intervals(Arc::clone(array)),
            DataType::Time64(TimeUnit::Nanosecond) => Self::Clock(cast(array, &DataType::Int64)?),
            other => return internal_err!("`{other}` is no time"),
        })
    }

    fn value(&self, row: usize) -> Result<Option<TimeParts>> {
        Ok(match self {
            Self::Moments { numbers, .. } if numbers.is_null(row) => None,
            Self::Moments { numbers, per_second, zone } => {
                let number = numbers.as_primitive::<Int64Type>().value(row);
                let fraction = number.rem_euclid(*per_second) * (SECOND_NS / per_second);
                let Some(utc) = DateTime::from_timestamp(number.div_euclid(*per_second), fraction as u32) else {
                    return exec_err!("a time is too far away to be shown");
                };
                let offset = zone.map(|zone| zone.offset_from_utc_datetime(&utc.naive_utc()).fix());
                let clock = match offset {
                    Some(offset) => utc.with_timezone(&offset).naive_local(),
                    None => utc.naive_utc(),
                };
                Some(TimeParts::of_clock(clock, offset.map(|offset| offset.local_minus_utc())))
            }
            Self::Intervals(intervals) => {
                let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
                intervals.is_valid(row).then(|| {
                    let interval = intervals.value(row);
                    TimeParts::of_length(interval.months, interval.days, interval.nanoseconds)
                })
            }
            Self::Clock(numbers) => {
                let numbers = numbers.as_primitive::<Int64Type>();
                numbers.is_valid(row).then(|| TimeParts::of_length(0, 0, numbers.value(row)))
            }
        })
    }
}

/// A value by its parts.
struct TimeParts {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
    /// None: an interval is on no day.
    date: Option<NaiveDate>,
    /// Seconds before UTC; none: it is in no zone.
    offset: Option<i32>,
}

impl TimeParts {
    fn of_clock(clock: NaiveDateTime, offset: Option<i32>) -> Self {
        let date = clock.date();
        Self {
            year: i64::from(date.year()),
            month: i64::from(date.month()),
            day: i64::from(date.day()),
            hour: i64::from(clock.hour()),
            minute: i64::from(clock.minute()),
            second: i64::from(clock.second()),
            micros: i64::from(clock.nanosecond() / 1_000),
            date: Some(date),
            offset,
        }
    }

    fn of_length(months: i32, days: i32, ns: i64) -> Self {
        let seconds = ns / SECOND_NS;
        Self {
            year: i64::from(months / 12),
            month: i64::from(months % 12),
            day: i64::from(days),
            hour: seconds / 3_600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            micros: ns % SECOND_NS / 1_000,
            date: None,
            offset: None,
        }
    }
}

/// How a word is written, and so what it gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Upper,
    Lower,
    First,
}

/// A part of a pattern.
#[derive(Debug, PartialEq, Eq)]
enum FormatPart {
    Text(char),
    Word(Word),
}

#[derive(Debug, PartialEq, Eq)]
struct Word {
    pattern: &'static str,
    case: Case,
    /// Without padding: `FM`.
    is_short: bool,
    /// `TH`, `th` behind it.
    ordinal: Option<Case>,
}

/// Words, longer ones before those that they begin with.
const WORDS: [&str; 54] = [
    "A.D.", "A.M.", "AD", "AM", "B.C.", "BC", "CC", "DAY", "DDD", "DD", "DY", "D", "FF1", "FF2", "FF3", "FF4", "FF5",
    "FF6", "FX", "HH24", "HH12", "HH", "IDDD", "ID", "IW", "IYYY", "IYY", "IY", "I", "J", "MI", "MM", "MONTH", "MON",
    "MS", "OF", "P.M.", "PM", "Q", "RM", "SSSSS", "SSSS", "SS", "TZH", "TZM", "TZ", "US", "WW", "W", "Y,YYY", "YYYY",
    "YYY", "YY", "Y",
];
const ROMAN: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

/// Words that are names, whose first letter alone may be large.
const NAMES: [(&str, &str); 4] = [("Month", "MONTH"), ("Mon", "MON"), ("Day", "DAY"), ("Dy", "DY")];

/// The word that a pattern begins with.
fn word_of(rest: &str) -> Option<(&'static str, Case, usize)> {
    if let Some((name, word)) = NAMES.iter().find(|(name, _)| rest.starts_with(*name)) {
        return Some((*word, Case::First, name.len()));
    }
    WORDS.iter().find_map(|word| {
        let begin = rest.get(..word.len())?;
        if begin == *word {
            Some((*word, Case::Upper, word.len()))
        } else {
            (begin == word.to_ascii_lowercase()).then_some((*word, Case::Lower, word.len()))
        }
    })
}

/// Reads a pattern.
fn parts_of(pattern: &str) -> Vec<FormatPart> {
    let (mut parts, mut rest) = (Vec::new(), pattern);
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            rest = quoted(&rest[1..], &mut parts);
            continue;
        }
        let behind = ["FM", "fm", "TM", "tm"].iter().find_map(|prefix| rest.strip_prefix(*prefix));
        let is_filling = behind.is_some() && first.eq_ignore_ascii_case(&'F');
        let begin = behind.unwrap_or(rest);
        if let Some((word, case, length)) = word_of(begin) {
            rest = &begin[length..];
            let ordinal = match rest.get(..2) {
                Some("TH") => Some(Case::Upper),
                Some("th") => Some(Case::Lower),
                _ => None,
            };
            if ordinal.is_some() {
                rest = &rest[2..];
            }
            // `TM` is for names alone.
            let is_short = behind.is_some() && (is_filling || matches!(word, "MONTH" | "DAY"));
            parts.push(FormatPart::Word(Word { pattern: word, case, is_short, ordinal }));
            continue;
        }
        if behind.is_some() {
            rest = begin;
            continue;
        }
        // Before a quote a backslash says that it is one.
        let (letter, length) = if rest.starts_with("\\\"") { ('"', 2) } else { (first, first.len_utf8()) };
        parts.push(FormatPart::Text(letter));
        rest = &rest[length..];
    }
    parts
}

/// Reads what is in quotes, and gives what is behind.
fn quoted<'p>(within: &'p str, parts: &mut Vec<FormatPart>) -> &'p str {
    let mut letters = within.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return &within[at + 1..],
            '\\' => parts.extend(letters.next().map(|(_, letter)| FormatPart::Text(letter))),
            other => parts.push(FormatPart::Text(other)),
        }
    }
    ""
}

impl Word {
    /// Writes what the word gives of a value.
    fn write(&self, value: &TimeParts, out: &mut String) -> Result<()> {
        match self.pattern {
            "HH24" => self.number(value.hour, 2, out)?,
            "HH12" | "HH" => self.number(if value.hour % 12 == 0 { 12 } else { value.hour % 12 }, 2, out)?,
            "MI" => self.number(value.minute, 2, out)?,
            "SS" => self.number(value.second, 2, out)?,
            "MS" => self.plain(format_args!("{:03}", value.micros / 1_000), value.micros / 1_000, out)?,
            "US" => self.plain(format_args!("{:06}", value.micros), value.micros, out)?,
            "SSSS" | "SSSSS" => {
                let seconds = value.hour * 3_600 + value.minute * 60 + value.second;
                self.plain(format_args!("{seconds}"), seconds, out)?;
            }
            "MM" => self.number(value.month, 2, out)?,
            // A sign is one of the two digits, as in PostgreSQL.
            "DD" => self.number(value.day, 2 - usize::from(value.day < 0), out)?,
            "Q" if value.date.is_none() && value.month == 0 => {}
            "Q" => self.number((value.month - 1) / 3 + 1, 1, out)?,
            "YYYY" => self.number(years(value.year, value), 4, out)?,
            "YYY" => self.number(years(value.year, value) % 1_000, 3, out)?,
            "YY" => self.number(years(value.year, value) % 100, 2, out)?,
            "Y" => self.number(years(value.year, value) % 10, 1, out)?,
            "Y,YYY" => {
                let year = years(value.year, value);
                self.plain(format_args!("{},{:03}", year / 1_000, year % 1_000), year, out)?;
            }
            "AM" | "A.M." | "PM" | "P.M." => {
                let is_late = value.hour % 24 >= 12;
                self.text(half(is_late, "PM", "AM", self.pattern), out);
            }
            "CC" => {
                let year = value.year;
                let century = match value.date {
                    None => year / 100,
                    Some(_) if year > 0 => (year - 1) / 100 + 1,
                    Some(_) => year / 100 - 1,
                };
                self.number(century, 2, out)?;
            }
            "RM" if value.month == 0 && value.year == 0 => {}
            "RM" => {
                // Of whole years it is the last month, or the first where they are below zero; months below it count back.
                let month = match value.month {
                    0 if value.year < 0 => 1,
                    0 => 12,
                    month if month < 0 => 13 + month,
                    month => month,
                };
                let name = ROMAN[(month - 1) as usize % 12];
                self.text(name, out);
                self.pad(name, 4, out);
            }
            word if word.starts_with("FF") => {
                let digits = usize::from(word.as_bytes()[2] - b'0');
                let number = value.micros / 10_i64.pow(6 - digits as u32);
                self.plain(format_args!("{number:0digits$}"), number, out)?;
            }
            "FX" => {}
            "OF" | "TZH" | "TZM" | "TZ" if value.date.is_some() => self.zone(value.offset, out)?,
            _ => match value.date {
                Some(date) => self.date(date, value, out)?,
                None => {
                    return exec_err!(
                        "`{}` in a pattern is for times: intervals are on no day of a calendar",
                        self.pattern
                    );
                }
            },
        }
        Ok(())
    }

    /// Writes what a day is part of.
    fn date(&self, date: NaiveDate, value: &TimeParts, out: &mut String) -> Result<()> {
        let weekday = date.weekday().num_days_from_sunday() as usize;
        let iso = date.iso_week();
        let iso_day = if weekday == 0 { 7 } else { weekday as i64 };
        let iso_year = years(i64::from(iso.year()), value);
        match self.pattern {
            "MONTH" => self.name(MONTH_NAMES[date.month0() as usize], out),
            "MON" => self.text(&MONTH_NAMES[date.month0() as usize][..3], out),
            "DAY" => self.name(WEEKDAY_NAMES[weekday], out),
            "DY" => self.text(&WEEKDAY_NAMES[weekday][..3], out),
            "D" => self.number(weekday as i64 + 1, 1, out)?,
            "ID" => self.number(iso_day, 1, out)?,
            "DDD" => self.number(i64::from(date.ordinal()), 3, out)?,
            "IDDD" => self.number(i64::from(iso.week0()) * 7 + iso_day, 3, out)?,
            "W" => self.number((value.day - 1) / 7 + 1, 1, out)?,
            "WW" => self.number(i64::from(date.ordinal0()) / 7 + 1, 2, out)?,
            "IW" => self.number(i64::from(iso.week()), 2, out)?,
            "J" => self.number(i64::from(date.num_days_from_ce()) + 1_721_425, 1, out)?,
            "IYYY" => self.number(iso_year, 4, out)?,
            "IYY" => self.number(iso_year % 1_000, 3, out)?,
            "IY" => self.number(iso_year % 100, 2, out)?,
            "I" => self.number(iso_year % 10, 1, out)?,
            "AD" | "A.D." | "BC" | "B.C." => self.text(half(value.year <= 0, "BC", "AD", self.pattern), out),
            other => return internal_err!("`{other}` is no word of a pattern"),
        }
        Ok(())
    }

    /// Writes where the clock is.
    fn zone(&self, offset: Option<i32>, out: &mut String) -> Result<()> {
        let seconds = offset.unwrap_or_default();
        let (sign, minutes) = (if seconds < 0 { '-' } else { '+' }, seconds.abs() / 60);
        match self.pattern {
            "TZM" => write!(out, "{:02}", minutes % 60)?,
            "TZ" if offset.is_none() => {}
            "TZ" if seconds == 0 => self.text("UTC", out),
            "OF" if self.is_short => write!(out, "{sign}{}", minutes / 60)?,
            _ => write!(out, "{sign}{:02}", minutes / 60)?,
        }
        if matches!(self.pattern, "OF" | "TZ") && minutes % 60 != 0 {
            write!(out, ":{:02}", minutes % 60)?;
        }
        Ok(())
    }

    /// Writes a number with zeros before it; a sign is beside these.
    fn number(&self, number: i64, digits: usize, out: &mut String) -> Result<()> {
        let digits = if self.is_short { 0 } else { digits + usize::from(number < 0) };
        self.plain(format_args!("{number:0digits$}"), number, out)
    }

    /// Writes a number as it is, and what makes it an ordinal.
    fn plain(&self, written: fmt::Arguments<'_>, number: i64, out: &mut String) -> Result<()> {
        out.write_fmt(written)?;
        let Some(case) = self.ordinal else { return Ok(()) };
        let number = number.abs();
        let ending = match (number % 100, number % 10) {
            (11..=13, _) => "th",
            (_, 1) => "st",
            (_, 2) => "nd",
            (_, 3) => "rd",
            _ => "th",
        };
        push_cased(ending, case, out);
        Ok(())
    }

    fn text(&self, text: &str, out: &mut String) {
        push_cased(text, self.case, out);
    }

    /// Writes a name in the room of the longest one.
    fn name(&self, name: &str, out: &mut String) {
        self.text(name, out);
        self.pad(name, 9, out);
    }

    fn pad(&self, text: &str, letters: usize, out: &mut String) {
        if !self.is_short {
            (text.len()..letters).for_each(|_| out.push(' '));
        }
    }
}

/// A year as it is counted: there is none between 1 and 1 before Christ.
fn years(year: i64, value: &TimeParts) -> i64 {
    if value.date.is_some() && year <= 0 { 1 - year } else { year }
}

/// One of two halves, with points where its word has them.
fn half(is_first: bool, first: &'static str, second: &'static str, word: &str) -> &'static str {
    let plain = if is_first { first } else { second };
    match (plain, word.contains('.')) {
        ("AM", true) => "A.M.",
        ("PM", true) => "P.M.",
        ("AD", true) => "A.D.",
        ("BC", true) => "B.C.",
        (plain, _) => plain,
    }
}

/// Writes a text in large or small letters. Names are written with a large first one.
fn push_cased(text: &str, case: Case, out: &mut String) {
    match case {
        Case::Upper => out.extend(text.chars().map(|letter| letter.to_ascii_uppercase())),
        Case::Lower => out.extend(text.chars().map(|letter| letter.to_ascii_lowercase())),
        Case::First => out.push_str(text),
    }
}

#[cfg(test)]
mod tests;
