//! Literals of queries: numbers, durations, sizes, addresses, times.
//!
//! Queries may write more than values of rows hold: `0xff`, `1_000`, `1.5KiB`, `inf`.

mod time;

pub(crate) use time::parse_span;

use quiver_types::time::duration::sum_of_units;

use crate::kernels::values::parse_rfc3339;

/// Reads a number of any kind as the language compares it: integers and floats in any base, sizes, durations
/// (nanoseconds), IPv4 addresses, times as rows hold them (Unix nanoseconds).
pub(crate) fn parse_number(text: &str) -> Option<f64> {
    parse_float(text)
        .or_else(|| parse_size(text))
        .or_else(|| parse_duration(text).map(|ns| ns as f64))
        .or_else(|| parse_ipv4(text).map(f64::from))
        .or_else(|| parse_rfc3339(text).map(|ns| ns as f64))
}

/// Reads an unsigned integer: `10`, `1_000`, `10K`, `0xff`.
pub(crate) fn parse_u64(text: &str) -> Option<u64> {
    if let Some(value) = integer(text) {
        return u64::try_from(value).ok();
    }
    let value = parse_size(text).or_else(|| parse_float(text))?;
    (value >= 0.0 && value.fract() == 0.0 && value <= u64::MAX as f64).then_some(value as u64)
}

/// Reads an integer or float: `1e3`, `0xff`, `0b101`, `0o7`, `_` between digits, `inf`, `nan`.
fn parse_float(text: &str) -> Option<f64> {
    if let Some(value) = integer(text) {
        return Some(value as f64);
    }
    let (negative, digits) = sign(text);
    let lower = digits.to_ascii_lowercase();
    let value = match lower.as_str() {
        "inf" | "infinity" => f64::INFINITY,
        "nan" => return (digits.len() == text.len()).then_some(f64::NAN),
        _ => {
            let first = lower.bytes().next()?;
            if !first.is_ascii_digit() && first != b'.' || !lower.bytes().any(|b| b.is_ascii_digit()) {
                return None;
            }
            // What is too large for a double is no number.
            without_underscores(&lower)?.parse::<f64>().ok().filter(|value| value.is_finite())?
        }
    };
    Some(if negative { -value } else { value })
}

fn sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

/// Reads an integer of base 2, 8, 10 or 16.
fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = sign(text);
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        _ => (10, lower.as_str()),
    };
    if !digits.bytes().next()?.is_ascii_alphanumeric() {
        return None;
    }
    let value = i128::from_str_radix(&without_underscores(digits)?, radix).ok()?;
    Some(if negative { -value } else { value })
}

/// Drops `_`, which may stand between digits only.
fn without_underscores(text: &str) -> Option<String> {
    if text.starts_with('_') || text.ends_with('_') || text.contains("__") {
        return None;
    }
    Some(text.replace('_', ""))
}

/// The number before a unit.
fn part(digits: &str) -> Option<f64> {
    without_underscores(digits)?.parse().ok()
}

/// Units of sizes.
const SIZES: &[(&str, f64)] = &[
    ("kib", 1024.0),
    ("mib", 1_048_576.0),
    ("gib", 1_073_741_824.0),
    ("tib", 1_099_511_627_776.0),
    ("ki", 1024.0),
    ("mi", 1_048_576.0),
    ("gi", 1_073_741_824.0),
    ("ti", 1_099_511_627_776.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("gb", 1e9),
    ("tb", 1e12),
    ("k", 1e3),
    ("m", 1e6),
    ("g", 1e9),
    ("t", 1e12),
    ("b", 1.0),
];

/// Reads a size, also of several parts: `1.5KiB`, `22MB100KB`. Units have large letters (`k` may be small), so that
/// `5m` stays a duration.
fn parse_size(text: &str) -> Option<f64> {
    let (negative, parts) = sign(text);
    let size = |unit: &str| {
        if !unit.starts_with(['K', 'k', 'M', 'G', 'T', 'B']) {
            return None;
        }
        let lower = unit.to_ascii_lowercase();
        SIZES.iter().find(|(name, _)| *name == lower).map(|(_, bytes)| *bytes)
    };
    let total = sum_of_units(parts, part, size)?;
    Some(if negative { -total } else { total })
}

/// Units of durations in nanoseconds.
const DURATIONS: &[(&str, f64)] = &[
    ("ns", 1.0),
    ("µs", 1e3),
    ("μs", 1e3),
    ("us", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
    ("d", 86_400e9),
    ("w", 604_800e9),
    ("y", 31_536_000e9),
];

/// Reads a duration in nanoseconds: `1h33m5s`, `-1.5d`.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, parts) = text.strip_prefix('-').map_or((false, text), |parts| (true, parts));
    let nanos = |unit: &str| DURATIONS.iter().find(|(name, _)| *name == unit).map(|(_, nanos)| *nanos);
    let total = sum_of_units(parts, part, nanos)?;
    (total < 9.3e18).then_some(if negative { -(total.round() as i64) } else { total.round() as i64 })
}

/// Reads a duration, or seconds as a decimal number: nanoseconds. Numbers that the language has besides are none: `1M`
/// would be a million seconds, and is a month to who asks for it.
pub(crate) fn parse_duration_or_seconds(text: &str) -> Option<i64> {
    let seconds = || text.parse::<f64>().ok().filter(|seconds| seconds.is_finite());
    parse_duration(text).or_else(|| seconds().map(|seconds| (seconds * 1e9) as i64))
}

/// Reads an IPv4 address.
pub(crate) fn parse_ipv4(text: &str) -> Option<u32> {
    let mut parts = text.split('.');
    let mut address = 0u32;
    for _ in 0..4 {
        let part = parts.next()?;
        if part.is_empty() || part.len() > 3 || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        address = address << 8 | u32::from(part.parse::<u8>().ok()?);
    }
    parts.next().is_none().then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<f64>) {
        assert_eq!(parse_number(text), expected, "{text}");
    }

    #[test]
    fn numbers() {
        check("1_234e3", Some(1_234_000.0));
        check("1_234e-3", Some(1.234));
        check("0xffffffff", Some(4_294_967_295.0));
        check("0b101", Some(5.0));
        check("-1.234e-5", Some(-1.234e-5));
        check("+InF", Some(f64::INFINITY));
        check("1KB", Some(1000.0));
        check("10MiB", Some(10_485_760.0));
        check("1G", Some(1e9));
        check("10.43K", Some(10_430.0));
        check("1y2w2.5m3s5ms", Some(32_745_753_005_000_000.0));
        check("-45ms", Some(-45e6));
        check("1.2.3.4", Some(16_909_060.0));
        check("1970-01-01T00:00:01Z", Some(1e9));
        check("1970-01-01 02:00:01.5+02:00", Some(1.5e9));
        // As in values, a time without a zone is of UTC.
        check("1970-01-01T00:00:01", Some(1e9));
        check("1970-01-01 00:00:01.5", Some(1.5e9));
        check("1970-01-01T00:00Z", None);
        check("1970-01-01", None);
        check("foo", None);
        check("", None);
        check("-", None);
        check("_1", None);
        check("e5", None);
        assert_eq!(parse_u64("12_345M"), Some(12_345_000_000));
        assert_eq!(parse_u64("12.34"), None);
        assert_eq!(parse_u64("-1"), None);
        assert_eq!(parse_duration("3d2h12m34s45ms"), Some(267_154_045_000_000));
        assert_eq!(parse_duration("5"), None);
    }

    /// A value stands below the numbers that a query may write, with units and signs.
    #[test]
    fn signs_bases_and_underscores() {
        for (text, expected) in [
            ("+5", Some(5.0)),
            ("-0x10", Some(-16.0)),
            ("0XfF", Some(255.0)),
            ("0o17", Some(15.0)),
            ("-0B11", Some(-3.0)),
            ("0x", None),
            ("0xg", None),
            ("0b2", None),
            ("0o8", None),
            ("0x+5", None),
            ("--5", None),
            ("+-5", None),
            ("-", None),
            ("+", None),
            ("1_0", Some(10.0)),
            ("1__0", None),
            ("10_", None),
            ("0x_f", None),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            (".", None),
            ("1.2.3", None),
            ("1e3", Some(1000.0)),
            ("1E+3", Some(1000.0)),
            ("1e", None),
            ("-inf", Some(f64::NEG_INFINITY)),
            ("Infinity", Some(f64::INFINITY)),
            ("infinite", None),
            ("1e400", None),
            (" 5", None),
            ("5 ", None),
            ("٣", None),
            ("170141183460469231731687303715884105728", Some(1.701_411_834_604_692_3e38)),
        ] {
            check(text, expected);
        }
        assert!(parse_number("NaN").is_some_and(f64::is_nan));
        // NaN has no sign.
        for text in ["-nan", "+nan"] {
            check(text, None);
        }
        assert!(parse_number("-0").is_some_and(|zero| zero == 0.0));
        assert!(parse_number("-0.0").is_some_and(|zero| zero == 0.0 && zero.is_sign_negative()));
    }

    #[test]
    fn sizes_have_large_letters() {
        for (text, expected) in [
            ("1B", Some(1.0)),
            ("1k", Some(1e3)),
            ("1kib", Some(1024.0)),
            ("1Ki", Some(1024.0)),
            ("2MB", Some(2e6)),
            ("2Mi", Some(2_097_152.0)),
            ("1GiB", Some(1_073_741_824.0)),
            ("1Tb", Some(1e12)),
            ("0.5TiB", Some(549_755_813_888.0)),
            ("22MB100KB", Some(22_100_000.0)),
            ("-1KB", Some(-1000.0)),
            ("1KB5", None),
            ("1KX", None),
            ("KB", None),
            ("1 KB", None),
            // Small letters are durations.
            ("5m", Some(300e9)),
            ("1b", None),
            ("1g", None),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn durations_end_where_nanoseconds_do() {
        for (text, expected) in [
            ("1ns", Some(1)),
            ("1us", Some(1_000)),
            ("1µs", Some(1_000)),
            ("1μs", Some(1_000)),
            ("1.5ms", Some(1_500_000)),
            ("1w", Some(604_800_000_000_000)),
            ("1y", Some(31_536_000_000_000_000)),
            ("1h30m", Some(5_400_000_000_000)),
            ("30m1h", Some(5_400_000_000_000)),
            ("-1h30m", Some(-5_400_000_000_000)),
            ("0s", Some(0)),
            ("1_000s", Some(1_000_000_000_000)),
            ("0.4ns", Some(0)),
            ("0.5ns", Some(1)),
            ("292y", Some(9_208_512_000_000_000_000)),
            ("300y", None),
            ("-300y", None),
            ("1e3s", None),
            ("1h-5m", None),
            ("+5m", None),
            ("5M", None),
            ("5", None),
            ("m", None),
            ("-", None),
            ("", None),
            ("1d ", None),
            ("1s٣m", None),
        ] {
            assert_eq!(parse_duration(text), expected, "{text}");
        }
        let long = format!("{}s", "9".repeat(400));
        assert_eq!(parse_duration(&long), None);
    }

    #[test]
    fn whole_numbers_and_addresses() {
        for (text, expected) in [
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("0xffffffffffffffff", Some(u64::MAX)),
            ("1e3", Some(1000)),
            ("1.5e1", Some(15)),
            ("1.5K", Some(1500)),
            ("1KiB", Some(1024)),
            ("0.5", None),
            ("-0", Some(0)),
            ("-1", None),
            ("inf", None),
            ("nan", None),
            ("5m", None),
            ("1e30", None),
            ("", None),
        ] {
            assert_eq!(parse_u64(text), expected, "{text}");
        }
        for (text, expected) in [
            ("0.0.0.0", Some(0)),
            ("255.255.255.255", Some(u32::MAX)),
            ("1.2.3.004", Some(0x0102_0304)),
            ("1.2.3.256", None),
            ("1.2.3", None),
            ("1.2.3.4.5", None),
            ("1.2..4", None),
            ("1.2.3.0004", None),
            ("1.2.3.+4", None),
            ("1.2.3.4 ", None),
            ("", None),
        ] {
            assert_eq!(parse_ipv4(text), expected, "{text}");
        }
    }
}
