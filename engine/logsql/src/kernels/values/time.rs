//! Times: RFC 3339 and Unix times in nanoseconds, UTC.

use quiver_types::time::calendar::{date_of, days_of};
use quiver_types::time::rfc3339::{self, Rfc3339, Zone};

const NS: i64 = 1_000_000_000;

/// Seconds at which a time no longer fits.
const SECONDS_MIN: i64 = i64::MIN / NS;
const SECONDS_MAX: i64 = i64::MAX / NS;

/// Reads an RFC 3339 time as Unix nanoseconds: `2025-03-10T09:46:41.5Z`. A blank may stand for the `T`; without a zone
/// it is UTC; at most nine digits of a fraction.
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    let time = Rfc3339::read(text.as_bytes())?;
    let is_taken = matches!(time.separator, b'T' | b' ')
        && time.point != Some(b',')
        && time.digits <= 9
        && matches!(time.zone, Zone::Unsaid | Zone::Upper | Zone::Colon(_));
    if !is_taken || !(SECONDS_MIN..SECONDS_MAX).contains(&time.local_seconds) {
        return None;
    }
    (time.local_seconds * NS).checked_add(i64::from(time.nanos))?.checked_sub(time.zone.seconds() * NS)
}

/// Reads a Unix time whose unit (s, ms, µs, ns) follows from its magnitude: a decimal, perhaps with an exponent that is not
/// negative. Digits below a nanosecond are cut.
pub fn parse_unix(text: &str) -> Option<i64> {
    let (decimal, exponent) = match text.split_once(['e', 'E']) {
        Some((decimal, exponent)) => (decimal, exponent.parse::<u32>().ok().filter(|&e| e <= 18)? as usize),
        None => (text, 0),
    };
    let (sign, digits) = match decimal.as_bytes() {
        [b'-', ..] => (-1, &decimal[1..]),
        [b'+', ..] => (1, &decimal[1..]),
        _ => (1, decimal),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digit = |b: u8| i64::from(b - b'0');
    let moved = fraction.bytes().chain(std::iter::repeat(b'0')).take(exponent);
    let mut n: i64 = 0;
    for b in whole.bytes().chain(moved) {
        n = n.checked_mul(10)?.checked_add(digit(b))?;
    }
    let unit = unit_of(n);
    let (mut below, mut scale) = (0, unit);
    for b in fraction.bytes().skip(exponent) {
        // 0 from the digit on that is too small.
        scale /= 10;
        below += digit(b) * scale;
    }
    n.checked_mul(unit)?.checked_add(below)?.checked_mul(sign)
}

/// Gives nanoseconds of a Unix time whose unit follows from its magnitude.
pub fn unix_to_ns(n: i64) -> i64 {
    n * unit_of(n)
}

/// The largest unit in which it is a time of 64 bits.
fn unit_of(n: i64) -> i64 {
    let fits = |unit: &i64| (i64::MIN / unit..=i64::MAX / unit).contains(&n);
    [NS, 1_000_000, 1_000].into_iter().find(fits).unwrap_or(1)
}

/// Writes Unix nanoseconds as RFC 3339 in UTC with `Z`, without trailing zeros in the fraction.
pub fn push_rfc3339(out: &mut String, ns: i64) {
    rfc3339::write(ns, None, out);
}

/// Writes Unix nanoseconds as RFC 3339 in UTC with `Z` and exactly three digits of a fraction, cut.
pub fn push_rfc3339_millis(out: &mut String, ns: i64) {
    rfc3339::write(ns, Some(3), out);
}

/// First nanosecond of the month, UTC.
pub fn truncate_to_month(ns: i64) -> i64 {
    let (year, month, _) = date_of(ns.div_euclid(86_400 * NS));
    days_of(year, month, 1).saturating_mul(86_400 * NS)
}

/// First nanosecond of the year, UTC.
pub fn truncate_to_year(ns: i64) -> i64 {
    let (year, ..) = date_of(ns.div_euclid(86_400 * NS));
    days_of(year, 1, 1).saturating_mul(86_400 * NS)
}
