//! Parses times as senders of logs write them: RFC 3339 with some leniency, or Unix time whose unit follows from its
//! size.

use quiver_types::time::rfc3339::{Rfc3339, date};

/// The result of parsing a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// No time: the time of arrival is used.
    Arrival,
    /// This time, in Unix nanoseconds.
    At(i64),
    /// Before the range of nanoseconds in 64 bits (1677).
    Before,
    /// After that range (2262).
    After,
}

impl Stamp {
    /// A time from Unix nanoseconds.
    pub(crate) fn of(nanos: i128) -> Self {
        match i64::try_from(nanos) {
            Ok(nanos) => Self::At(nanos),
            Err(_) if nanos < 0 => Self::Before,
            Err(_) => Self::After,
        }
    }
}

/// Parses RFC 3339 (a space instead of `T` and a missing zone are accepted) or Unix time; `None` for anything else.
pub fn parse(text: &str) -> Option<Stamp> {
    match text.as_bytes() {
        b"" | b"0" | b"-" => Some(Stamp::Arrival),
        [_, _, _, _, b'-', ..] => rfc3339(text.as_bytes()),
        _ => unix(text),
    }
}

/// Like [`parse`], but also accepts a date (`2025-03-10`): midnight in UTC.
pub fn parse_or_date(text: &str) -> Option<Stamp> {
    match text.as_bytes() {
        bytes @ [_, _, _, _, b'-', _, _, b'-', _, _] => Some(Stamp::of(i128::from(date(bytes)?) * DAY_NANOS)),
        _ => parse(text),
    }
}

const DAY_NANOS: i128 = 86_400 * 1_000_000_000;

fn rfc3339(text: &[u8]) -> Option<Stamp> {
    let time = Rfc3339::read(text)?;
    let is_taken = time.hour < 24 && time.zone.seconds().abs() < 86_400;
    is_taken.then(|| Stamp::of(time.unix_nanos()))
}

/// Parses Unix time in s, ms, µs or ns: the largest unit in which the number is a time before 2262.
pub fn unix(text: &str) -> Option<Stamp> {
    let bytes = text.as_bytes();
    let (negative, digits) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, bytes),
    };
    // The number is exactly `mantissa * 10^exponent`; digits below a nanosecond are cut.
    let (mut mantissa, mut exponent, mut seen, mut point) = (0i128, 0i32, false, false);
    let mut at = 0;
    while let Some(&byte) = digits.get(at) {
        match byte {
            b'0'..=b'9' if mantissa < 1_000_000_000_000_000_000_000_000_000 => {
                mantissa = mantissa * 10 + i128::from(byte - b'0');
                exponent -= i32::from(point);
                seen = true;
            }
            b'0'..=b'9' => exponent = exponent.saturating_add(i32::from(!point)),
            b'.' if !point => point = true,
            _ => break,
        }
        at += 1;
    }
    if !seen {
        return None;
    }
    if let [b'e' | b'E', rest @ ..] = &digits[at..] {
        let shift: i32 = std::str::from_utf8(rest).ok()?.parse().ok()?;
        exponent = exponent.saturating_add(shift);
    } else if at < digits.len() {
        return None;
    }
    if mantissa == 0 {
        return Some(Stamp::Arrival);
    }
    let whole = scaled(mantissa, exponent).unwrap_or(i128::MAX);
    let unit = match whole {
        0..SECONDS_MAX => 9,
        SECONDS_MAX..MILLIS_MAX => 6,
        MILLIS_MAX..MICROS_MAX => 3,
        _ => 0,
    };
    let nanos = scaled(mantissa, exponent.saturating_add(unit)).unwrap_or(i128::MAX);
    Some(Stamp::of(if negative { -nanos } else { nanos }))
}

// As long as the time fits into 64-bit nanoseconds, like times in queries.
const SECONDS_MAX: i128 = i64::MAX as i128 / 1_000_000_000 + 1;
const MILLIS_MAX: i128 = i64::MAX as i128 / 1_000_000 + 1;
const MICROS_MAX: i128 = i64::MAX as i128 / 1_000 + 1;

/// `mantissa * 10^exponent`, truncated; `None` if it needs more than 128 bits.
fn scaled(mantissa: i128, exponent: i32) -> Option<i128> {
    if exponent < 0 {
        let divisor = 10i128.checked_pow(exponent.unsigned_abs());
        return Some(divisor.map_or(0, |d| mantissa / d));
    }
    mantissa.checked_mul(10i128.checked_pow(exponent.unsigned_abs())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let check = |text: &str, expected: Option<Stamp>| assert_eq!(parse(text), expected, "{text}");
        let at = |nanos| Some(Stamp::At(nanos));
        check("2024-06-18T23:37:20+08:00", at(1_718_725_040_000_000_000));
        check("2024-06-18 23:37:20.123-05:30", at(1_718_773_640_123_000_000));
        check("2024-06-18T23:37:20", at(1_718_753_840_000_000_000));
        check("2024-06-18T23:37:20.1234567891Z", at(1_718_753_840_123_456_789));
        check("2024-06-18T23:37:20+0800", at(1_718_725_040_000_000_000));
        check("1969-12-31T23:59:59Z", at(-1_000_000_000));
        check("2016-12-31T23:59:60Z", at(1_483_228_800_000_000_000));
        check("2000-02-29T00:00:00Z", at(951_782_400_000_000_000));
        check("1718773640123456789", at(1_718_773_640_123_456_789));
        check("1718773640123456", at(1_718_773_640_123_456_000));
        check("1718773640123", at(1_718_773_640_123_000_000));
        check("1718773640", at(1_718_773_640_000_000_000));
        check("1686026123.62", at(1_686_026_123_620_000_000));
        check("147.78369e9", at(147_783_690_000_000_000));
        check("1741600000.000000001", at(1_741_600_000_000_000_001));
        check("-1.5", at(-1_500_000_000));
        check("1e-5", at(10_000));
        for arrival in ["", "0", "-", "0.0"] {
            check(arrival, Some(Stamp::Arrival));
        }
        check("9999-01-01T00:00:00Z", Some(Stamp::After));
        check("0001-01-01T00:00:00Z", Some(Stamp::Before));
        check("1e300", Some(Stamp::After));
        check("-99999999999999999999999", Some(Stamp::Before));
        for bad in [
            "foobar",
            "2024-06-18T23:37",
            "2024-06-18",
            "2023-02-29T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-06-18T24:00:00Z",
            "2024-06-18T23:37:20.Z",
            "2024-06-18T23:37:20+8",
            "2024-06-18T23:37:20Zx",
            "1.2.3",
            "12e",
            ".",
            "1 2",
            "0x10",
            "true",
            "20é4-01-01T00:00:00Z",
        ] {
            check(bad, None);
        }
        assert_eq!(parse_or_date("2025-03-10"), at(1_741_564_800_000_000_000));
        assert_eq!(parse_or_date("2025-03-32"), None);
        assert_eq!(parse_or_date("1718773640"), at(1_718_773_640_000_000_000));
    }

    /// A number is in the largest unit in which it is before 2262.
    #[test]
    fn units_follow_from_size() {
        let check = |text: &str, expected: i64| assert_eq!(unix(text), Some(Stamp::At(expected)), "{text}");
        check("9223372036", 9_223_372_036_000_000_000);
        check("9223372037", 9_223_372_037_000_000);
        check("9223372036854", 9_223_372_036_854_000_000);
        check("9223372036855", 9_223_372_036_855_000);
        check("9223372036854775", 9_223_372_036_854_775_000);
        check("9223372036854776", 9_223_372_036_854_776);
        check("9223372036854775807", i64::MAX);
        check("-9223372036854775808", i64::MIN);
        check("-9223372036", -9_223_372_036_000_000_000);
        check("-9223372037", -9_223_372_037_000_000);
        assert_eq!(unix("9223372036854775808"), Some(Stamp::After));
        assert_eq!(unix("-9223372036854775809"), Some(Stamp::Before));
        check("+5", 5_000_000_000);
        check("0005", 5_000_000_000);
        check("5.", 5_000_000_000);
        check(".5", 500_000_000);
        check("1E3", 1_000_000_000_000);
        check("1e+3", 1_000_000_000_000);
        check("15e-1", 1_500_000_000);
        // Any number of digits below a nanosecond are cut.
        check(&format!("1741600000.{}", "1".repeat(1000)), 1_741_600_000_111_111_111);
        check(&format!("{}1741600000", "0".repeat(1000)), 1_741_600_000_000_000_000);
        assert_eq!(unix(&"9".repeat(1000)), Some(Stamp::After));
        assert_eq!(unix(&format!("-1{}", "0".repeat(1000))), Some(Stamp::Before));
        for none in ["", "+", "-", "--5", "+-5", "5e", "5e+", "5e1.5", "5e99999999999", " 5", "5 ", "٥", "1_000", "inf"]
        {
            assert_eq!(unix(none), None, "{none}");
        }
        for arrival in ["0", "-0", "0e9", "0.000", "00"] {
            assert_eq!(unix(arrival), Some(Stamp::Arrival), "{arrival}");
        }
    }

    #[test]
    fn dates_are_their_first_moment() {
        let check = |text: &str, expected: Option<Stamp>| assert_eq!(parse_or_date(text), expected, "{text}");
        check("1969-12-31", Some(Stamp::At(-86_400_000_000_000)));
        check("2024-02-29", Some(Stamp::At(1_709_164_800_000_000_000)));
        check("2023-02-29", None);
        check("9999-12-31", Some(Stamp::After));
        check("0001-01-01", Some(Stamp::Before));
        check("2024-2-9", None);
        check("2024-02-29T00:00:01Z", Some(Stamp::At(1_709_164_801_000_000_000)));
        assert_eq!(parse("2024-02-29"), None, "where a date alone is no time");
    }
}
