//! Durations: `1h33m5s`, `1.5ms`, `-2d`; in nanoseconds.

use super::plain_number::parse_float;
use super::text::push_f64;

const US: i64 = 1_000;
const MS: i64 = 1_000 * US;
const SECOND: i64 = 1_000 * MS;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const WEEK: i64 = 7 * DAY;
const YEAR: i64 = 365 * DAY;

/// Reads a duration as nanoseconds: numbers with the units `ns µs ms s m h d w y`, several joined, a leading `-`; each
/// part cut off at the nanosecond. Values beyond what fits are the greatest that does. `us` is a unit in queries alone:
/// in values the reference takes `45us` for a text.
pub fn parse_duration(text: &str) -> Option<i64> {
    sum(text, |_, tail| unit(tail))
}

/// Adds up numbers with units, joined behind a sign: each product cut off, without running over. `unit` is told a number
/// and what follows it, and gives the unit that this begins with and how many bytes it has.
pub(super) fn sum(text: &str, unit: impl Fn(f64, &[u8]) -> Option<(i64, usize)>) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes() {
        [b'-', digit, ..] if digit.is_ascii_digit() => (true, &text[1..]),
        [digit, ..] if digit.is_ascii_digit() => (false, text),
        _ => return None,
    };
    let mut total: i64 = 0;
    while !rest.is_empty() {
        let end = rest.bytes().position(|b| !matches!(b, b'0'..=b'9' | b'.' | b'_')).unwrap_or(rest.len());
        let (number, tail) = (parse_float(&rest[..end])?, &rest[end..]);
        let (unit, width) = unit(number, tail.as_bytes())?;
        total = total.saturating_add((number * unit as f64) as i64);
        rest = &tail[width..];
    }
    Some(if negative { -total } else { total })
}

fn unit(bytes: &[u8]) -> Option<(i64, usize)> {
    Some(match bytes {
        [0xc2, 0xb5, b's', ..] | [0xce, 0xbc, b's', ..] => (US, 3),
        [b'm', b's', ..] => (MS, 2),
        [b'n', b's', ..] => (1, 2),
        [b's', ..] => (SECOND, 1),
        [b'm', ..] => (MINUTE, 1),
        [b'h', ..] => (HOUR, 1),
        [b'd', ..] => (DAY, 1),
        [b'w', ..] => (WEEK, 1),
        [b'y', ..] => (YEAR, 1),
        _ => return None,
    })
}

/// Writes nanoseconds as a duration: `2w6h56m7.890123457s`, `12µs345ns`, `0`.
pub fn push_duration(out: &mut String, ns: i64) {
    use std::fmt::Write;
    if ns == 0 {
        out.push('0');
        return;
    }
    if ns < 0 {
        out.push('-');
    }
    let mut left = ns.unsigned_abs();
    let whole_seconds = left >= SECOND as u64;
    let part = |out: &mut String, left: &mut u64, unit: i64, name: &str| {
        let count = *left / unit as u64;
        if count > 0 {
            *left %= unit as u64;
            // Writing to a text cannot fail.
            let _ = write!(out, "{count}{name}");
        }
    };
    for (unit, name) in [(WEEK, "w"), (DAY, "d"), (HOUR, "h"), (MINUTE, "m")] {
        part(out, &mut left, unit, name);
    }
    if whole_seconds && left >= SECOND as u64 {
        push_f64(out, left as f64 / SECOND as f64);
        out.push('s');
        return;
    }
    for (unit, name) in [(MS, "ms"), (US, "µs"), (1, "ns")] {
        part(out, &mut left, unit, name);
    }
}
