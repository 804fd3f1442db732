//! Times: RFC 3339 and Unix times in nanoseconds, UTC.

const NS: i64 = 1_000_000_000;

/// Seconds at which a time no longer fits.
const SECONDS_MIN: i64 = i64::MIN / NS;
const SECONDS_MAX: i64 = i64::MAX / NS;

/// Reads an RFC 3339 time as Unix nanoseconds: `2025-03-10T09:46:41.5Z`. A blank may stand for the `T`; without a zone
/// it is UTC; at most nine digits of a fraction.
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    let b = text.as_bytes();
    if b.len() < 19 || b[4] != b'-' || b[7] != b'-' || b[13] != b':' || b[16] != b':' || !matches!(b[10], b'T' | b' ') {
        return None;
    }
    let year = i64::from(two(b, 0)?) * 100 + i64::from(two(b, 2)?);
    let (month, day) = (two(b, 5)?, two(b, 8)?);
    let (hour, minute, second) = (two(b, 11)?, two(b, 14)?, two(b, 17)?);
    if !(1677..=2262).contains(&year) || !(1..=12).contains(&month) || day == 0 || day > days_of_month(year, month) {
        return None;
    }
    if hour > 24 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days_from_civil(year, month, day) * 86_400
        + i64::from(hour) * 3600
        + i64::from(minute) * 60
        + i64::from(second);
    if !(SECONDS_MIN..SECONDS_MAX).contains(&seconds) {
        return None;
    }
    let (fraction, zone) = fraction(&b[19..])?;
    (seconds * NS).checked_add(fraction)?.checked_sub(zone_offset(zone)? * NS)
}

/// Reads a number of exactly two digits.
fn two(b: &[u8], at: usize) -> Option<u32> {
    let (tens, ones) = (b[at].wrapping_sub(b'0'), b[at + 1].wrapping_sub(b'0'));
    (tens < 10 && ones < 10).then_some(u32::from(tens) * 10 + u32::from(ones))
}

/// Nanoseconds of `.123`, and what follows.
fn fraction(b: &[u8]) -> Option<(i64, &[u8])> {
    let [b'.', digits @ ..] = b else { return Some((0, b)) };
    let count = digits.iter().take_while(|d| d.is_ascii_digit()).count();
    if count == 0 || count > 9 {
        return None;
    }
    let value = digits[..count].iter().fold(0, |n, d| n * 10 + i64::from(d - b'0'));
    Some((value * 10_i64.pow(9 - count as u32), &digits[count..]))
}

/// Seconds east of UTC.
fn zone_offset(b: &[u8]) -> Option<i64> {
    match b {
        [] | [b'Z'] => Some(0),
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let (hours, minutes) = (two(b, 1)?, two(b, 4)?);
            if hours > 24 || minutes > 59 {
                return None;
            }
            let seconds = i64::from(hours * 3600 + minutes * 60);
            Some(if *sign == b'-' { -seconds } else { seconds })
        }
        _ => None,
    }
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
    push_seconds(out, ns.div_euclid(NS));
    let mut fraction = ns.rem_euclid(NS);
    if fraction != 0 {
        let mut width = 9;
        while fraction % 10 == 0 {
            fraction /= 10;
            width -= 1;
        }
        out.push('.');
        push_digits(out, fraction as u32, width);
    }
    out.push('Z');
}

/// Writes Unix nanoseconds as RFC 3339 in UTC with `Z` and exactly three digits of a fraction, cut.
pub fn push_rfc3339_millis(out: &mut String, ns: i64) {
    push_seconds(out, ns.div_euclid(NS));
    out.push('.');
    push_digits(out, (ns.rem_euclid(NS) / 1_000_000) as u32, 3);
    out.push('Z');
}

fn push_seconds(out: &mut String, seconds: i64) {
    let (year, month, day) = civil_from_days(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400) as u32;
    push_digits(out, year as u32, 4);
    for (before, value) in [('-', month), ('-', day), ('T', of_day / 3600), (':', of_day / 60 % 60), (':', of_day % 60)]
    {
        out.push(before);
        push_digits(out, value, 2);
    }
}

fn push_digits(out: &mut String, value: u32, width: u32) {
    for place in (0..width).rev() {
        out.push(char::from(b'0' + (value / 10_u32.pow(place) % 10) as u8));
    }
}

/// First nanosecond of the month, UTC.
pub fn truncate_to_month(ns: i64) -> i64 {
    let (year, month, _) = civil_from_days(ns.div_euclid(86_400 * NS));
    days_from_civil(year, month, 1).saturating_mul(86_400 * NS)
}

/// First nanosecond of the year, UTC.
pub fn truncate_to_year(ns: i64) -> i64 {
    let (year, ..) = civil_from_days(ns.div_euclid(86_400 * NS));
    days_from_civil(year, 1, 1).saturating_mul(86_400 * NS)
}

fn days_of_month(year: i64, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days from 1970-01-01 of a date of the proleptic Gregorian calendar, by eras of 400 years that begin in March.
pub(crate) fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = i64::from((153 * ((month + 9) % 12) + 2) / 5 + day - 1);
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The date of a number of days from 1970-01-01.
pub(crate) fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 } as u32;
    let day = (of_year - (153 * shifted + 2) / 5 + 1) as u32;
    (year + era * 400 + i64::from(month <= 2), month, day)
}
