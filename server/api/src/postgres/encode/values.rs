//! Formats single values as PostgreSQL does.

use std::fmt::{Display, LowerExp};

use arrow::array::timezone::Tz;
use arrow::datatypes::IntervalMonthDayNano;
use bytes::{BufMut as _, BytesMut};
use chrono::{
    DateTime, Datelike as _, FixedOffset, NaiveDate, NaiveDateTime, Offset as _, TimeDelta, TimeZone as _,
    Timelike as _,
};
use quiver_types::{Error, Result};

use super::push;

/// Numbers from here on are written with an exponent: of eight bytes, and of four.
pub(super) const FLOAT8_PLAIN: f64 = 1e15;
pub(super) const FLOAT4_PLAIN: f64 = 1e6;

/// Writes the shortest digits that yield the same number again; from `plain` on, and if small, with an exponent.
pub(super) fn push_float<F: Display + LowerExp + Copy + Into<f64>>(value: F, plain: f64, out: &mut BytesMut) {
    let size = value.into().abs();
    if size.is_nan() {
        out.put_slice(b"NaN");
    } else if size.is_infinite() {
        out.put_slice(if value.into() > 0.0 { &b"Infinity"[..] } else { b"-Infinity" });
    } else if size == 0.0 || (1e-3..plain).contains(&size) {
        push(out, value);
    } else {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
        // Small numbers have no exponent up to the fourth digit after the point. The four-byte `0.0001` is actually
        // slightly smaller.
        if sign == '-' && matches!(exponent, "1" | "2" | "3" | "4") {
            return push(out, value);
        }
        // The exponent has a sign and at least two digits.
        push(out, format_args!("{digits}e{sign}{exponent:0>2}"));
    }
}

fn push_day(date: NaiveDate, out: &mut BytesMut) {
    let year = date.year();
    let shown = if year > 0 { year } else { 1 - year };
    push(out, format_args!("{shown:04}-{:02}-{:02}", date.month(), date.day()));
}

fn push_era(date: NaiveDate, out: &mut BytesMut) {
    if date.year() <= 0 {
        out.put_slice(b" BC");
    }
}

/// Writes a date, given in days since 1970.
pub(super) fn push_date(days: i32, out: &mut BytesMut) {
    let date = NaiveDate::from_ymd_opt(1970, 1, 1)
        .and_then(|date| date.checked_add_signed(TimeDelta::try_days(i64::from(days))?));
    match date {
        Some(date) => {
            push_day(date, out);
            push_era(date, out);
        }
        None => out.put_slice(if days > 0 { &b"infinity"[..] } else { b"-infinity" }),
    }
}

fn push_clock(hours: u64, seconds: u64, micros: u64, out: &mut BytesMut) {
    push(out, format_args!("{hours:02}:{:02}:{:02}", seconds / 60, seconds % 60));
    if micros > 0 {
        let fraction = format!("{micros:06}");
        push(out, format_args!(".{}", fraction.trim_end_matches('0')));
    }
}

/// Writes a time of day.
pub(super) fn push_time(us: i64, out: &mut BytesMut) {
    let us = us.unsigned_abs();
    push_clock(us / 3_600_000_000, us / 1_000_000 % 3600, us % 1_000_000, out);
}

fn push_offset(offset: FixedOffset, out: &mut BytesMut) {
    let of_day = offset.local_minus_utc();
    let (hours, minutes, seconds) = (of_day.abs() / 3600, of_day.abs() / 60 % 60, of_day.abs() % 60);
    push(out, format_args!("{}{hours:02}", if of_day < 0 { '-' } else { '+' }));
    if minutes > 0 || seconds > 0 {
        push(out, format_args!(":{minutes:02}"));
    }
    // Local mean time, from before there were time zones, may have seconds in its offset.
    if seconds > 0 {
        push(out, format_args!(":{seconds:02}"));
    }
}

/// Writes a timestamp, in its zone if it has one.
pub(super) fn push_stamp(us: i64, zone: Option<Tz>, out: &mut BytesMut) {
    let Some(utc) = DateTime::from_timestamp_micros(us) else {
        out.put_slice(if us > 0 { &b"infinity"[..] } else { b"-infinity" });
        return;
    };
    let (local, offset): (NaiveDateTime, Option<FixedOffset>) = match zone {
        None => (utc.naive_utc(), None),
        Some(zone) => {
            let offset = zone.offset_from_utc_datetime(&utc.naive_utc()).fix();
            (utc.with_timezone(&offset).naive_local(), Some(offset))
        }
    };
    push_day(local.date(), out);
    out.put_u8(b' ');
    let seconds = u64::from(local.minute() * 60 + local.second());
    push_clock(u64::from(local.hour()), seconds, u64::from(local.nanosecond() / 1000), out);
    if let Some(offset) = offset {
        push_offset(offset, out);
    }
    push_era(local.date(), out);
}

/// Writes an interval in the style `postgres`.
pub(super) fn push_interval(value: IntervalMonthDayNano, out: &mut BytesMut) {
    let (years, months) = (value.months / 12, value.months % 12);
    let mut parts = Vec::new();
    // After a negative part all others have a sign.
    let mut is_below = false;
    let mut part = |count: i32, one: &str, more: &str| {
        if count != 0 {
            let sign = if is_below && count > 0 { "+" } else { "" };
            parts.push(format!("{sign}{count} {}", if count == 1 { one } else { more }));
            is_below = count < 0;
        }
    };
    part(years, "year", "years");
    part(months, "mon", "mons");
    part(value.days, "day", "days");
    push(out, parts.join(" "));
    let us = value.nanoseconds / 1000;
    if us != 0 || parts.is_empty() {
        if !parts.is_empty() {
            out.put_u8(b' ');
        }
        if us < 0 {
            out.put_u8(b'-');
        } else if is_below {
            out.put_u8(b'+');
        }
        push_time(us, out);
    }
}

/// Writes an array item, quoted if needed.
pub(super) fn push_item(text: &[u8], out: &mut BytesMut) {
    // PostgreSQL counts a vertical tab as a blank.
    let special = |byte: &u8| b"{},\"\\\x0b".contains(byte) || byte.is_ascii_whitespace();
    if !text.is_empty() && !text.eq_ignore_ascii_case(b"null") && !text.iter().any(special) {
        out.put_slice(text);
        return;
    }
    out.put_u8(b'"');
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.put_u8(b'\\');
        }
        out.put_u8(*byte);
    }
    out.put_u8(b'"');
}

/// Writes a decimal number in base 10000, the binary format of `numeric`.
pub(super) fn push_numeric(text: &str, out: &mut BytesMut) -> Result<()> {
    let wrong = || Error::internal("a decimal is no number");
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let scale = fraction.len();
    let whole = format!("{}{whole}", "0".repeat((4 - whole.len() % 4) % 4));
    let fraction = format!("{fraction}{}", "0".repeat((4 - fraction.len() % 4) % 4));
    let all = format!("{whole}{fraction}");
    let mut fours = Vec::new();
    for at in (0..all.len()).step_by(4) {
        fours.push(all[at..at + 4].parse::<u16>().map_err(|_| wrong())?);
    }
    let mut weight = (whole.len() / 4) as i16 - 1;
    while fours.first() == Some(&0) {
        fours.remove(0);
        weight -= 1;
    }
    while fours.last() == Some(&0) {
        fours.pop();
    }
    out.put_u16(fours.len() as u16);
    out.put_i16(if fours.is_empty() { 0 } else { weight });
    out.put_u16(if negative && !fours.is_empty() { 0x4000 } else { 0 });
    out.put_u16(scale as u16);
    for four in fours {
        out.put_u16(four);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
