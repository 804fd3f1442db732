//! Parameter values as clients send them: as text, or in PostgreSQL's binary format.

use std::fmt::Write as _;

use bytes::{Buf as _, Bytes};
use chrono::{DateTime, NaiveDate, NaiveTime, TimeDelta};
use quiver_sql::{PG_TYPES, Param, PgType, pg_type};

use self::lists::{binary_items, text_items};
use super::error::Fault;

mod lists;

/// 2000-01-01, PostgreSQL's epoch, in Unix microseconds.
pub(super) const EPOCH_US: i64 = 946_684_800_000_000;
/// The same in days since 1970.
pub(super) const EPOCH_DAYS: i32 = 10_957;
/// The OID of `bytea`.
const BYTES: u32 = 17;

fn malformed(pg_type: &PgType) -> Fault {
    Fault::new("22P02", format!("a parameter is no value of type {}", pg_type.sql))
}

fn unknown(what: impl std::fmt::Display) -> Fault {
    Fault::new("0A000", format!("parameters {what} are not read here"))
}

/// The item type of an array type.
fn item_of(oid: u32) -> Option<&'static PgType> {
    PG_TYPES.iter().find(|known| known.array == oid && oid != 0)
}

/// Reads a value of a type.
///
/// # Errors
/// It is not valid for its type, or the type is not supported.
pub(super) fn read(oid: u32, binary: bool, value: Option<&Bytes>) -> Result<Param, Fault> {
    if let Some(item) = item_of(oid) {
        let Some(value) = value else { return Ok(Param::Null) };
        let items = if binary { binary_items(value, item)? } else { text_items(value, item)? };
        return Ok(Param::List(items));
    }
    let known = pg_type(oid).ok_or_else(|| unknown(format_args!("of the type with number {oid}")))?;
    let Some(value) = value else { return Ok(Param::Typed(None, known)) };
    let text = if binary { binary_text(value, known)? } else { checked(value, known)? };
    Ok(Param::Typed(Some(text), known))
}

/// Validates a text for its type, as far as possible without the engine.
fn checked(value: &Bytes, known: &PgType) -> Result<String, Fault> {
    let text = std::str::from_utf8(value).map_err(|_| Fault::new("22021", "a parameter is no UTF-8 text"))?;
    let number = text.trim();
    let good = match known.oid {
        20 | 26 => number.parse::<i64>().is_ok(),
        21 => number.parse::<i16>().is_ok(),
        23 => number.parse::<i32>().is_ok(),
        700 | 701 | 1700 => number.parse::<f64>().is_ok(),
        BYTES => return bytes_of(text).map(|bytes| hexadecimal(&bytes)).ok_or_else(|| malformed(known)),
        16 => {
            return match number.to_ascii_lowercase().as_str() {
                "t" | "tr" | "tru" | "true" | "y" | "ye" | "yes" | "on" | "1" => Ok("true".to_owned()),
                "f" | "fa" | "fal" | "fals" | "false" | "n" | "no" | "of" | "off" | "0" => Ok("false".to_owned()),
                _ => Err(malformed(known)),
            };
        }
        _ => return Ok(text.to_owned()),
    };
    if good { Ok(number.to_owned()) } else { Err(malformed(known)) }
}

/// Bytes in the notation of a literal.
fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("\\x");
    quiver_types::write_hex(bytes, &mut text);
    text
}

/// Parses the text form of bytes: `\x6162`, or characters with escapes `\ooo`.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("\\x") {
        return quiver_types::hex_bytes(digits);
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'\\' {
            bytes.push(*first);
        } else if let Some(behind) = rest.strip_prefix(b"\\") {
            bytes.push(b'\\');
            rest = behind;
        } else {
            let (octal, behind) = rest.split_at_checked(3)?;
            let digit = |byte: &u8| matches!(byte, b'0'..=b'7').then(|| u32::from(byte - b'0'));
            let value = octal.iter().try_fold(0, |value, byte| Some(value * 8 + digit(byte)?))?;
            bytes.push(u8::try_from(value).ok()?);
            rest = behind;
        }
    }
    Some(bytes)
}

/// Converts a value in binary format to text.
fn binary_text(value: &Bytes, known: &PgType) -> Result<String, Fault> {
    let mut rest = value.clone();
    let sized = known.len > 0 && !matches!(known.oid, 18 | 19);
    if sized && rest.len() != known.len as usize {
        return Err(malformed(known));
    }
    let micros = |us: i64| us.checked_add(EPOCH_US).and_then(DateTime::from_timestamp_micros);
    let text = match known.oid {
        16 => Some((rest.get_u8() != 0).to_string()),
        20 => Some(rest.get_i64().to_string()),
        21 => Some(rest.get_i16().to_string()),
        23 => Some(rest.get_i32().to_string()),
        26 => Some(rest.get_u32().to_string()),
        700 => Some(rest.get_f32().to_string()),
        701 => Some(rest.get_f64().to_string()),
        1082 => {
            let days = i64::from(rest.get_i32()) + i64::from(EPOCH_DAYS);
            let epoch = NaiveDate::from_ymd_opt(1970, 1, 1);
            epoch.and_then(|date| date.checked_add_signed(TimeDelta::try_days(days)?)).map(|date| date.to_string())
        }
        1083 => {
            let us = rest.get_i64();
            let time = u32::try_from(us / 1_000_000).ok().zip(u32::try_from(us % 1_000_000 * 1000).ok());
            time.and_then(|(s, ns)| NaiveTime::from_num_seconds_from_midnight_opt(s, ns)).map(|time| time.to_string())
        }
        1114 => micros(rest.get_i64()).map(|time| time.format("%Y-%m-%dT%H:%M:%S%.6f").to_string()),
        1184 => micros(rest.get_i64()).map(|time| time.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()),
        1186 => {
            let (us, days, months) = (rest.get_i64(), rest.get_i32(), rest.get_i32());
            Some(format!("{months} months {days} days {us} microseconds"))
        }
        BYTES => Some(hexadecimal(value)),
        2950 => {
            let hex = quiver_types::hex(value);
            Some(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
        }
        1700 => numeric(rest),
        3802 => {
            // A version byte precedes the text.
            (rest.first() == Some(&1)).then(|| String::from_utf8(rest[1..].to_vec()).ok()).flatten()
        }
        18 | 19 | 25 | 114 | 705 | 1042 | 1043 => String::from_utf8(rest.to_vec()).ok(),
        _ => return Err(unknown(format_args!("of type {} in binary form", known.sql))),
    };
    text.ok_or_else(|| malformed(known))
}

/// Converts binary `numeric`: digits in base 10000, where `weight` is the exponent of the first one.
fn numeric(mut rest: Bytes) -> Option<String> {
    if rest.len() < 8 {
        return None;
    }
    let (count, weight, sign, scale) = (rest.get_u16(), rest.get_i16(), rest.get_u16(), rest.get_u16());
    if sign == 0xC000 {
        return Some("NaN".to_owned());
    }
    if rest.len() != usize::from(count) * 2
        || !matches!(sign, 0 | 0x4000)
        || weight.unsigned_abs() > 1000
        || scale > 1000
    {
        return None;
    }
    let digits: Vec<u16> = (0..count).map(|_| rest.get_u16()).collect();
    if digits.iter().any(|four| *four > 9999) {
        return None;
    }
    let digit = |at: i32| usize::try_from(at).ok().and_then(|at| digits.get(at)).copied().unwrap_or(0);
    let mut text = String::from(if sign == 0 { "" } else { "-" });
    for at in 0..=i32::from(weight).max(0) {
        let four = if weight < 0 { 0 } else { digit(at) };
        let _ = if at == 0 { write!(text, "{four}") } else { write!(text, "{four:04}") };
    }
    if scale > 0 {
        let first = i32::from(weight) + 1;
        let fours = (0..=i32::from(scale).div_euclid(4)).map(|at| format!("{:04}", digit(first + at)));
        let fraction: String = fours.collect();
        text.push('.');
        text.push_str(&fraction[..usize::from(scale)]);
    }
    Some(text)
}

#[cfg(test)]
mod tests;
