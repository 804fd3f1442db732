//! Durations in the notations of queries, settings, rule files and policies: Prometheus (`1d12h`), vmalert (`1.5d`,
//! `90`), Go (`1.5h`), and trace queries (`1.5ms`, `300` for nanoseconds).

use std::fmt::Write as _;

use crate::go_format::quote;

/// Longest duration in milliseconds: what 64 bits of nanoseconds hold.
pub const MILLIS_MAX: i64 = i64::MAX / 1_000_000;

const UNITS: [(&str, i64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Parses a duration of Prometheus; gives milliseconds.
///
/// # Errors
/// Why it is none.
pub fn parse(text: &str) -> Result<i64, String> {
    let invalid = || format!("not a valid duration string: {}", quote(text));
    match text {
        "0" => return Ok(0),
        "" => return Err("empty duration string".to_owned()),
        _ => {}
    }
    let (mut rest, mut total, mut units) = (text, 0_i64, &UNITS[..]);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(invalid)?;
        let count: u64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = &rest[..end];
        if !UNITS.iter().any(|(known, _)| *known == unit) {
            return Err(format!("unknown unit {} in duration {}", quote(unit), quote(text)));
        }
        let at = units.iter().position(|(left, _)| *left == unit).ok_or_else(invalid)?;
        let part = i64::try_from(count).ok().and_then(|count| count.checked_mul(units[at].1));
        total = part
            .and_then(|part| total.checked_add(part))
            .filter(|t| *t <= MILLIS_MAX)
            .ok_or_else(|| "duration out of range".to_owned())?;
        units = &units[at + 1..];
        rest = &rest[end..];
    }
    Ok(total)
}

/// Parses a duration of Prometheus that may be negative; gives milliseconds.
///
/// # Errors
/// As [`parse`].
pub fn parse_signed(text: &str) -> Result<i64, String> {
    match text.strip_prefix('-') {
        Some(rest) => parse(rest).map(|ms| -ms),
        None => parse(text),
    }
}

/// Parses a duration of vmalert: parts as those of Prometheus in any order, with fractions; behind a part below zero all
/// are; a number alone is seconds. Gives milliseconds, or nothing where it is none.
pub fn parse_vmalert(text: &str) -> Option<i64> {
    if text.ends_with(|c: char| c.is_ascii_digit() || c == '.')
        && let Ok(seconds) = text.parse::<f64>()
    {
        return Some((seconds * 1000.0) as i64);
    }
    let (mut rest, mut total, mut is_minus) = (text, 0.0, false);
    while !rest.is_empty() {
        let from = usize::from(rest.starts_with('-'));
        let end = from + rest[from..].find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (length, unit) = match &rest.as_bytes()[end..] {
            [b'm' | b'M', b's' | b'S', ..] => (2, 1.0),
            // `Mi` and `MB` are no minutes, nor is `M`.
            [b'm', b'i' | b'I' | b'b' | b'B', ..] => return None,
            [b'm', ..] => (1, 60_000.0),
            [b's' | b'S', ..] => (1, 1000.0),
            [b'h' | b'H', ..] => (1, 3_600_000.0),
            [b'd' | b'D', ..] => (1, 86_400_000.0),
            [b'w' | b'W', ..] => (1, 7.0 * 86_400_000.0),
            [b'y' | b'Y', ..] => (1, 365.0 * 86_400_000.0),
            _ => return None,
        };
        let number = Some(&rest[..end]).filter(|_| rest[from..].starts_with(|c: char| c.is_ascii_digit()))?;
        let part = number.parse::<f64>().ok()? * unit;
        is_minus |= part < 0.0;
        total += if is_minus { -part.abs() } else { part };
        rest = &rest[end + length..];
    }
    (!text.is_empty()).then_some(total as i64)
}

/// Adds up numbers with units that are joined (`1h30m`, `1.5KiB`): each is multiplied by what `unit` says of the text behind
/// it. `None` without any part, or where `number` or `unit` knows none.
pub fn sum_of_units(
    text: &str,
    number: impl Fn(&str) -> Option<f64>,
    unit: impl Fn(&str) -> Option<f64>,
) -> Option<f64> {
    let (mut rest, mut total) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '_')).filter(|&n| n > 0)?;
        let behind = &rest[digits..];
        let end = behind.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(behind.len());
        total += number(&rest[..digits])? * unit(&behind[..end])?;
        rest = &behind[end..];
    }
    (!text.is_empty()).then_some(total)
}

/// Parses a duration of queries of traces: `1.5ms`, `1h30m`, or a number of nanoseconds; gives nanoseconds, or nothing where it
/// is none.
pub fn parse_nanos(text: &str) -> Option<i64> {
    if let Ok(nanos) = text.parse::<i64>() {
        return (nanos >= 0).then_some(nanos);
    }
    let nanos = |unit: &str| {
        Some(match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            "d" => 86_400e9,
            "w" => 604_800e9,
            "y" => 31_536_000e9,
            _ => return None,
        })
    };
    let total = sum_of_units(text, |number| number.parse().ok(), nanos)?;
    (total < 9.2e18).then_some(total.round() as i64)
}

/// Writes milliseconds as Prometheus does: `1h30m`; years and weeks only when nothing remains; nothing is `0s`.
pub fn format(ms: i64) -> String {
    if ms == 0 {
        return "0s".to_owned();
    }
    let mut out = if ms < 0 { "-".to_owned() } else { String::new() };
    let mut rest = ms.unsigned_abs();
    for (unit, length) in UNITS {
        let length = length.unsigned_abs();
        if rest >= length && (!matches!(unit, "y" | "w") || rest.is_multiple_of(length)) {
            let _ = write!(out, "{}{unit}", rest / length);
            rest %= length;
        }
    }
    out
}

/// Parses a duration of Go (`1h15m30.5s`); gives nanoseconds.
///
/// # Errors
/// Why it is none.
pub fn parse_go(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {}", quote(text));
    let (negative, body) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if body == "0" {
        return Ok(0);
    }
    if body.is_empty() {
        return Err(invalid());
    }
    let mut rest = body;
    let mut total = 0_i128;
    while !rest.is_empty() {
        let whole = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let mut end = whole;
        if rest[whole..].starts_with('.') {
            let after = &rest[whole + 1..];
            end = whole + 1 + after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        }
        if end == 0 || &rest[..end] == "." {
            return Err(invalid());
        }
        let number = &rest[..end];
        rest = &rest[end..];
        let unit_end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
        let unit: i128 = match &rest[..unit_end] {
            "ns" => 1,
            "us" | "µs" | "μs" => 1000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "" => return Err(format!("time: missing unit in duration {}", quote(text))),
            unit => return Err(format!("time: unknown unit {} in duration {}", quote(unit), quote(text))),
        };
        let digits: i128 = if whole == 0 { 0 } else { number[..whole].parse().map_err(|_| invalid())? };
        total = digits.checked_mul(unit).and_then(|part| total.checked_add(part)).ok_or_else(invalid)?;
        if let Some(fraction) = number.get(whole + 1..).filter(|f| !f.is_empty()) {
            // What lies below a nanosecond of an hour is lost, as in Go.
            let fraction = &fraction[..fraction.len().min(18)];
            let value: i128 = fraction.parse().map_err(|_| invalid())?;
            let part = value * unit / 10_i128.pow(fraction.len() as u32);
            total = total.checked_add(part).ok_or_else(invalid)?;
        }
        rest = &rest[unit_end..];
    }
    i64::try_from(if negative { -total } else { total }).map_err(|_| invalid())
}

/// Writes nanoseconds as Go does: `1h15m30.5s`, `1.5ms`, `0s`.
pub fn format_go(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let rest = nanos.unsigned_abs();
    let fraction = |value: u64, unit: u64| {
        let (whole, part) = (value / unit, value % unit);
        let width = unit.ilog10() as usize;
        let digits = format!("{part:0width$}");
        let digits = digits.trim_end_matches('0');
        if part == 0 { whole.to_string() } else { format!("{whole}.{digits}") }
    };
    match rest {
        0 => "0s".to_owned(),
        1..1000 => format!("{sign}{rest}ns"),
        1000..1_000_000 => format!("{sign}{}µs", fraction(rest, 1000)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", fraction(rest, 1_000_000)),
        _ => {
            let (minutes, nanos) = (rest / 60_000_000_000, rest % 60_000_000_000);
            let seconds = fraction(nanos, 1_000_000_000);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_prometheus() {
        let check = |text: &str, expected: Option<i64>| assert_eq!(parse(text).ok(), expected, "{text}");
        check("0", Some(0));
        check("1d12h", Some(129_600_000));
        check("1y2w3d4h5m6s7ms", Some(33_019_506_007));
        check("292y", Some(292 * 365 * 86_400_000));
        check("293y", None);
        check("1m1h", None);
        check("1m1m", None);
        check("1hs", None);
        check("5", None);
        check("1.5h", None);
        check("-1m", None);
        check("", None);
        check("99999999999999999999999s", None);
        assert_eq!(parse_signed("-30m"), Ok(-1_800_000));
        let told = |text: &str| parse(text).expect_err(text);
        assert_eq!(told("1h5x"), "unknown unit \"x\" in duration \"1h5x\"");
        assert_eq!(told("5m1h"), "not a valid duration string: \"5m1h\"");
        assert_eq!(told("99999999999999999999s"), "not a valid duration string: \"99999999999999999999s\"");
        assert_eq!(told("9999999999999999999s"), "duration out of range");
        for t in ["1h30m", "90d", "2w", "3y", "400d4h5m6s7ms"] {
            assert_eq!(format(parse(t).expect(t)), t);
        }
        assert_eq!([0, -420_000, 14 * 86_400_000].map(format), ["0s", "-7m", "2w"]);
    }

    #[test]
    fn joined_parts_are_added_up() {
        let number = |text: &str| text.parse::<f64>().ok();
        let unit = |text: &str| [("s", 1.0), ("m", 60.0)].iter().find(|(name, _)| *name == text).map(|(_, by)| *by);
        let check =
            |text: &str, expected: Option<f64>| assert_eq!(sum_of_units(text, number, unit), expected, "{text}");
        check("1m30s", Some(90.0));
        check("1.5m", Some(90.0));
        check("5s.5m", Some(35.0));
        for none in ["", "s", "5", "5s5", "-5s", "5h", "1.2.3s", "1_0s", "5s ", "5sm"] {
            check(none, None);
        }
    }

    /// Breaks if a duration overflows, or its unit is taken for another.
    #[test]
    fn of_queries_of_traces() {
        let check = |text: &str, expected: Option<i64>| assert_eq!(parse_nanos(text), expected, "{text}");
        check("1.5ms", Some(1_500_000));
        check("2s", Some(2_000_000_000));
        check("5", Some(5));
        check("1h30m", Some(5_400_000_000_000));
        check("9223372036854775807", Some(i64::MAX));
        check("106481d", Some(9_199_958_400_000_000_000));
        check("106482d", None);
        check("0.5ns", Some(1));
        check("1us", Some(1_000));
        check("1µs", Some(1_000));
        check("1μs", Some(1_000));
        check("1w2d", Some(777_600_000_000_000));
        check(".5s", Some(500_000_000));
        for none in ["", "-1", "ms", "1x", "s1", "1.2.3s", ".s", "1 s"] {
            check(none, None);
        }
    }

    #[test]
    fn of_vmalert() {
        let check = |text: &str, expected: Option<i64>| assert_eq!(parse_vmalert(text), expected, "{text}");
        check("1.5h", Some(5_400_000));
        check("90", Some(90_000));
        check("1.25", Some(1250));
        check("1e2", Some(100_000));
        check("-90", Some(-90_000));
        check("5m1h", Some(3_900_000));
        check("1h5m", Some(3_900_000));
        check("2h-5m", Some(6_900_000));
        check("-1h5m", Some(-3_900_000));
        check("1H30S5MS", Some(3_630_005));
        check("0.5ms", Some(0));
        check("1.5y", Some(47_304_000_000));
        for none in ["", "h", "-h", ".5h", "5M", "5Mi", "5mb", "5x", "1.2.3s", "5 m", "m5", "1h "] {
            check(none, None);
        }
    }

    #[test]
    fn of_go() {
        let check = |text: &str, nanos: i64, written: &str| {
            assert_eq!(parse_go(text), Ok(nanos), "{text}");
            assert_eq!(format_go(nanos), written);
        };
        check("1.5h", 5_400_000_000_000, "1h30m0s");
        check("-1m2.25s", -62_250_000_000, "-1m2.25s");
        check("1ms", 1_000_000, "1ms");
        check("1500us", 1_500_000, "1.5ms");
        check("0", 0, "0s");
        check("300ns", 300, "300ns");
        check("-61.05s", -61_050_000_000, "-1m1.05s");
        assert_eq!(format_go(i64::MIN), "-2562047h47m16.854775808s");
        for t in ["", "5", "1x", ".s", "1h1"] {
            assert!(parse_go(t).is_err(), "{t}");
        }
        assert!(parse_go("3000000h").is_err());
    }

    proptest::proptest! {
        #[test]
        fn written_and_read_back(ms in 0..MILLIS_MAX, nanos in proptest::prelude::any::<i64>()) {
            proptest::prop_assert_eq!(parse(&format(ms)), Ok(ms));
            proptest::prop_assume!(nanos != i64::MIN);
            proptest::prop_assert_eq!(parse_go(&format_go(nanos)), Ok(nanos));
        }
    }

    #[test]
    fn durations_of_go_that_are_none_say_why() {
        let told = |text: &str| parse_go(text).expect_err(text);
        assert_eq!(told("5"), "time: missing unit in duration \"5\"");
        assert_eq!(told("1h5"), "time: missing unit in duration \"1h5\"");
        assert_eq!(told("1d"), "time: unknown unit \"d\" in duration \"1d\"");
        assert_eq!(told("1hours2m"), "time: unknown unit \"hours\" in duration \"1hours2m\"");
        for text in ["", "-", "+", ".", ".s", "-.s", "h", "--1s", "1..5s", "1s ", " 1s"] {
            let why = told(text);
            assert!(why.starts_with("time: ") && why.ends_with(&quote(text)), "{text}: {why}");
        }
        // One nanosecond less, and one more, than 64 bits hold.
        assert_eq!(parse_go("9223372036854775807ns"), Ok(i64::MAX));
        assert_eq!(parse_go("-9223372036854775808ns"), Ok(i64::MIN));
        assert!(parse_go("9223372036854775808ns").is_err() && parse_go("-9223372036854775809ns").is_err());
        // Sums that no number holds are no durations either.
        let most = i128::MAX;
        for text in [format!("{most}ns1ns"), format!("{most}ns0.9h"), format!("{most}h"), format!("0{most}0ns")] {
            assert!(parse_go(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_of_go_in_all_units() {
        for (text, nanos) in [
            ("+1h", 3_600_000_000_000),
            ("1.h", 3_600_000_000_000),
            (".5m", 30_000_000_000),
            ("1µs", 1000),
            ("1μs", 1000),
            ("1.5us1.5ns", 1501),
            ("-0", 0),
            ("+0", 0),
            ("0.1ns", 0),
            ("-1.9ns", -1),
            ("1m1m", 120_000_000_000),
            ("1s1h", 3_601_000_000_000),
            ("0.3333333333333333333h", 1_200_000_000_000 - 1),
        ] {
            assert_eq!(parse_go(text), Ok(nanos), "{text}");
        }
        for (nanos, text) in [
            (999, "999ns"),
            (1000, "1µs"),
            (1001, "1.001µs"),
            (999_999, "999.999µs"),
            (1_000_000, "1ms"),
            (-999_999_999, "-999.999999ms"),
            (1_000_000_000, "1s"),
            (59_999_999_999, "59.999999999s"),
            (60_000_000_000, "1m0s"),
            (3_600_000_000_001, "1h0m0.000000001s"),
            (i64::MAX, "2562047h47m16.854775807s"),
        ] {
            assert_eq!(format_go(nanos), text);
        }
    }

    #[test]
    fn durations_of_prometheus_as_they_are_written() {
        for (ms, text) in [
            (1, "1ms"),
            (61_001, "1m1s1ms"),
            (86_400_000, "1d"),
            (7 * 86_400_000, "1w"),
            (8 * 86_400_000, "8d"),
            (364 * 86_400_000, "52w"),
            (365 * 86_400_000, "1y"),
            (366 * 86_400_000, "366d"),
            (7 * 86_400_000 + 1, "7d1ms"),
            (-1, "-1ms"),
            (i64::MIN, "-106751991167d7h12m55s808ms"),
        ] {
            assert_eq!(format(ms), text);
        }
        assert_eq!((parse_signed("-0"), parse_signed("0")), (Ok(0), Ok(0)));
        assert!(parse_signed("--1m").is_err() && parse_signed("-").is_err() && parse_signed("+1m").is_err());
        assert_eq!(parse("1é"), Err("unknown unit \"é\" in duration \"1é\"".to_owned()));
        assert_eq!(parse("0s"), Ok(0));
        assert_eq!(parse("0m0s"), Ok(0));
    }
}
