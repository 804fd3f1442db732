//! Human-readable numbers, as in Prometheus's templates.

use std::borrow::Cow;

use super::time::Time;
use super::value::Value;
use crate::text::{general, quote};

/// Converts a value to a number: any number, or a string that is one.
pub(super) fn to_float(value: &Value) -> Result<f64, String> {
    match value {
        Value::Float(value) => Ok(*value),
        Value::Int(value) => Ok(*value as f64),
        Value::Uint(value) => Ok(*value as f64),
        Value::Duration(nanos) => Ok(*nanos as f64 / 1e9),
        Value::Text(text) => parse_float(text),
        other => Err(format!("can't convert {} to float", other.type_name())),
    }
}

/// Parses a number as Go's `strconv.ParseFloat` does.
pub(super) fn parse_float(text: &str) -> Result<f64, String> {
    let invalid = || format!("strconv.ParseFloat: parsing {}: invalid syntax", quote(text));
    let bare = without_underscores(text).ok_or_else(invalid)?;
    let body = bare.strip_prefix(['+', '-']).unwrap_or(&bare);
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    match body.to_ascii_lowercase().as_str() {
        "inf" | "infinity" => return Ok(sign * f64::INFINITY),
        "nan" if body.len() == bare.len() => return Ok(f64::NAN),
        _ => {}
    }
    if !body.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Err(invalid());
    }
    let value: f64 = if let Some(digits) = body.strip_prefix("0x").or_else(|| body.strip_prefix("0X")) {
        hex_float(digits).ok_or_else(invalid)?
    } else {
        body.parse().map_err(|_| invalid())?
    };
    if value.is_infinite() {
        return Err(format!("strconv.ParseFloat: parsing {}: value out of range", quote(text)));
    }
    Ok(sign * value)
}

/// Removes underscores between digits, and between `0x` and a digit.
fn without_underscores(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('_') {
        return Some(Cow::Borrowed(text));
    }
    let body = text.trim_start_matches(['+', '-']);
    let (is_hex, digits) = match body.strip_prefix("0x").or_else(|| body.strip_prefix("0X")) {
        Some(digits) => (true, digits),
        None => (false, body),
    };
    let is_digit = |c: Option<u8>| c.is_some_and(|c| if is_hex { c.is_ascii_hexdigit() } else { c.is_ascii_digit() });
    let bytes = digits.as_bytes();
    let stands_well = |i: usize| match i {
        0 => is_hex && is_digit(bytes.get(1).copied()),
        i => is_digit(bytes.get(i - 1).copied()) && is_digit(bytes.get(i + 1).copied()),
    };
    let all = (0..bytes.len()).filter(|i| bytes[*i] == b'_').all(stands_well);
    all.then(|| Cow::Owned(text.replace('_', "")))
}

/// Parses hexadecimal digits and a power of two after `0x`: `1.8p3`. At most as many digits as a float holds exactly;
/// a result out of range is infinite.
pub(super) fn hex_float(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once(['p', 'P'])?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let count = whole.len() + fraction.len();
    if count == 0 || count > 13 || !mantissa.bytes().all(|b| b.is_ascii_hexdigit() || b == b'.') {
        return None;
    }
    let digits = u64::from_str_radix(&format!("{whole}{fraction}"), 16).ok()?;
    let exponent: i32 = exponent.parse().ok()?;
    // Beyond these limits the result is the same. Scaled in two steps, so that the factor itself is finite.
    let exponent = exponent.saturating_sub(4 * fraction.len() as i32).clamp(-1200, 1100);
    let half = exponent / 2;
    Some(digits as f64 * 2f64.powi(half) * 2f64.powi(exponent - half))
}

fn four(value: f64) -> String {
    general(value, Some(4), false)
}

const SMALL: [&str; 8] = ["m", "u", "n", "p", "f", "a", "z", "y"];

fn small(mut value: f64) -> String {
    let mut prefix = "";
    for p in SMALL {
        if value.abs() >= 1.0 {
            break;
        }
        prefix = p;
        value *= 1000.0;
    }
    four(value) + prefix
}

/// `humanize`: four digits and an SI prefix, `1.235k`.
pub(super) fn humanize(mut value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return four(value);
    }
    if value.abs() < 1.0 {
        return small(value);
    }
    let mut prefix = "";
    for p in ["k", "M", "G", "T", "P", "E", "Z", "Y"] {
        if value.abs() < 1000.0 {
            break;
        }
        prefix = p;
        value /= 1000.0;
    }
    four(value) + prefix
}

/// `humanize1024`: four digits and a binary prefix, `1.206ki`.
pub(super) fn humanize1024(mut value: f64) -> String {
    if value.abs() <= 1.0 || !value.is_finite() {
        return four(value);
    }
    let mut prefix = "";
    for p in ["ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"] {
        if value.abs() < 1024.0 {
            break;
        }
        prefix = p;
        value /= 1024.0;
    }
    four(value) + prefix
}

/// `humanizeDuration`, of seconds.
pub(super) fn humanize_duration(value: f64) -> String {
    if !value.is_finite() {
        return four(value);
    }
    if value == 0.0 {
        return four(value) + "s";
    }
    if value.abs() < 1.0 {
        return small(value) + "s";
    }
    let sign = if value < 0.0 { "-" } else { "" };
    // Out of range of 64 bits it is the smallest integer, as in Go.
    let whole = if value.abs() < 9_223_372_036_854_775_808.0 { value.abs() as i64 } else { i64::MIN };
    let (days, hours, minutes, seconds) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60, whole % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{sign}{}s", four(value.abs())),
        (0, 0, _) => format!("{sign}{minutes}m {seconds}s"),
        (0, _, _) => format!("{sign}{hours}h {minutes}m {seconds}s"),
        _ => format!("{sign}{days}d {hours}h {minutes}m {seconds}s"),
    }
}

/// `humanizePercentage`, of a ratio: `0.1235` is `12.35%`.
pub(super) fn humanize_percentage(value: f64) -> String {
    four(value * 100.0) + "%"
}

/// Converts Unix seconds to a time; `None` if they are not finite.
pub(super) fn to_time(value: f64) -> Result<Option<Time>, String> {
    if !value.is_finite() {
        return Ok(None);
    }
    let nanos = value * 1e9;
    if nanos > i64::MAX as f64 || nanos < i64::MIN as f64 {
        let shown = general(value, None, false);
        return Err(format!("{shown} cannot be represented as a nanoseconds timestamp since it overflows int64"));
    }
    // Whole milliseconds, as in Prometheus.
    let nanos = nanos as i64;
    Ok(Some(Time::from_nanos(i128::from(nanos / 1_000_000) * 1_000_000)))
}

/// `humanizeTimestamp`: Unix seconds as a time in UTC; a number that is not finite stays a number.
pub(super) fn humanize_timestamp(value: f64) -> Result<String, String> {
    Ok(to_time(value)?.map_or_else(|| four(value), |time| time.to_string()))
}

/// Converts characters to upper case one by one, as Go does: `ß`, which would become two, stays.
pub(super) fn upper(text: &str) -> String {
    let one = |c: char| {
        let mut all = c.to_uppercase();
        match (all.next(), all.next()) {
            (Some(upper), None) => upper,
            _ => c,
        }
    };
    text.chars().map(one).collect()
}

/// Converts characters to lower case one by one, as Go does: `Σ` becomes `σ` even at the end of a word.
pub(super) fn lower(text: &str) -> String {
    text.chars().map(|c| c.to_lowercase().next().unwrap_or(c)).collect()
}

/// Converts the first letter of each word to upper case and leaves the rest, as Go's `cases` package does.
pub(super) fn title_as_is(text: &str) -> String {
    titled(text, false)
}

/// Converts the first letter of each word to upper case and the rest to lower case.
pub(super) fn title(text: &str) -> String {
    titled(text, true)
}

fn titled(text: &str, lowers: bool) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let (mut in_word, mut is_titled) = (false, false);
    for (i, c) in chars.iter().enumerate() {
        if !belongs(&chars, i, in_word) {
            (in_word, is_titled) = (false, false);
            out.push(*c);
            continue;
        }
        in_word = true;
        let cased = c.is_lowercase() || c.is_uppercase();
        if cased && !is_titled {
            is_titled = true;
            // One letter may become two (ß); only the first is in upper case.
            let mut upper = c.to_uppercase();
            out.extend(upper.next());
            out.extend(upper.flat_map(char::to_lowercase));
        } else if lowers {
            out.extend(c.to_lowercase());
        } else {
            out.push(*c);
        }
    }
    out
}

/// Whether a character belongs to a word; dots and apostrophes do between letters or between digits.
fn belongs(chars: &[char], i: usize, in_word: bool) -> bool {
    let c = chars[i];
    if c.is_alphanumeric() || c == '_' || matches!(c, '\u{300}'..='\u{36f}') {
        return true;
    }
    let around =
        |is: fn(char) -> bool| in_word && i > 0 && is(chars[i - 1]) && chars.get(i + 1).is_some_and(|c| is(*c));
    match c {
        '.' | '\'' | '\u{2019}' | '\u{2024}' => around(char::is_alphabetic) || around(char::is_numeric),
        ':' | '\u{b7}' => around(char::is_alphabetic),
        ',' | ';' => around(char::is_numeric),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!([0.0, 1.0, 1_234_567.0, 0.12].map(humanize).join(" "), "0 1 1.235M 120m");
        assert_eq!([1.0, 1_048_576.0, 0.12].map(humanize1024).join(" "), "1 1Mi 0.12");
        assert_eq!(
            [90_000.0, -183_845.0, 0.0001, 1.2345].map(humanize_duration).join(", "),
            "1d 1h 0m 0s, -2d 3h 4m 5s, 100us, 1.234s"
        );
        assert_eq!(humanize_duration(-1e24), "--106751991167300d -15h -30m -8s");
        assert_eq!(humanize_percentage(1.845e19), "1.845e+21%");
        assert_eq!(humanize_timestamp(1_435_065_584.128).as_deref(), Ok("2015-06-23 13:19:44.128 +0000 UTC"));
        assert_eq!(humanize_timestamp(f64::NAN).as_deref(), Ok("NaN"));
        assert!(humanize_timestamp(1e19).is_err());
        assert_eq!(["1_000", "-1_0.5_0", "0x_1p0"].map(|t| parse_float(t).unwrap()), [1000.0, -10.5, 1.0]);
        assert!(["_1", "1_", "1__0", "1_.5", "1_e3"].iter().all(|t| parse_float(t).is_err()));
        assert_eq!(parse_float("one"), Err("strconv.ParseFloat: parsing \"one\": invalid syntax".to_owned()));
        assert_eq!(
            (parse_float(".12"), parse_float("+Inf"), parse_float("0x1p-2")),
            (Ok(0.12), Ok(f64::INFINITY), Ok(0.25))
        );
    }

    #[test]
    fn letters_one_by_one() {
        assert_eq!((upper("straße é"), lower("ΑΣ İ")), ("STRAßE É".to_owned(), "ασ i".to_owned()));
    }

    #[test]
    fn titles() {
        assert_eq!(title_as_is("aa bb CC"), "Aa Bb CC");
        assert_eq!(title_as_is("don't foo_bar a.b 1st ßx é\u{a0}é"), "Don't Foo_bar A.b 1St Ssx É\u{a0}É");
        assert_eq!(title("aa bb CC"), "Aa Bb Cc");
        assert_eq!(title("don't foo_bar foo-bar a.b 1st"), "Don't Foo_bar Foo-Bar A.b 1St");
    }

    #[test]
    fn humanized_by_thousands() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (999.0, "999"),
            (999.94, "999.9"),
            (999.99, "1000"),
            (1000.0, "1k"),
            (-1000.0, "-1k"),
            (12_345.0, "12.35k"),
            (999_999.0, "1000k"),
            (1e6, "1M"),
            (1e9, "1G"),
            (1e12, "1T"),
            (1e15, "1P"),
            (1e18, "1E"),
            (1e21, "1Z"),
            (1e24, "1Y"),
            (1e28, "1e+04Y"),
            (0.5, "500m"),
            (-0.001, "-1m"),
            (0.000_1, "100u"),
            (1.5e-9, "1.5n"),
            (1e-24, "1y"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(humanize(value), expected, "{value:e}");
        }
    }

    #[test]
    fn humanized_by_1024() {
        for (value, expected) in [
            (0.0, "0"),
            (1.0, "1"),
            (-1.0, "-1"),
            (0.5, "0.5"),
            (1023.0, "1023"),
            (1024.0, "1ki"),
            (-2048.0, "-2ki"),
            (1536.0, "1.5ki"),
            (1_048_576.0, "1Mi"),
            (1_073_741_824.0, "1Gi"),
            (1_099_511_627_776.0, "1Ti"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(humanize1024(value), expected, "{value:e}");
        }
    }

    #[test]
    fn humanized_durations() {
        for (value, expected) in [
            (0.0, "0s"),
            (1.0, "1s"),
            (59.0, "59s"),
            (59.9999, "60s"),
            (60.0, "1m 0s"),
            (61.9, "1m 1s"),
            (3599.0, "59m 59s"),
            (3600.0, "1h 0m 0s"),
            (86_399.0, "23h 59m 59s"),
            (86_400.0, "1d 0h 0m 0s"),
            (899_999.0, "10d 9h 59m 59s"),
            (-1.5, "-1.5s"),
            (-60.0, "-1m 0s"),
            (0.1, "100ms"),
            (0.012_345_67, "12.35ms"),
            (-0.000_002, "-2us"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(humanize_duration(value), expected, "{value:e}");
        }
    }

    #[test]
    fn humanized_percentages_and_times() {
        for (value, expected) in
            [(0.0, "0%"), (0.5, "50%"), (1.0, "100%"), (-0.333_33, "-33.33%"), (12.345_6, "1235%"), (f64::NAN, "NaN%")]
        {
            assert_eq!(humanize_percentage(value), expected);
        }
        for (value, expected) in [
            (0.0, "1970-01-01 00:00:00 +0000 UTC"),
            (-1.0, "1969-12-31 23:59:59 +0000 UTC"),
            (1.5, "1970-01-01 00:00:01.5 +0000 UTC"),
            (1_700_000_000.0, "2023-11-14 22:13:20 +0000 UTC"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(humanize_timestamp(value).as_deref(), Ok(expected));
        }
        assert!(humanize_timestamp(-1e19).expect_err("too early").ends_with("since it overflows int64"));
        assert_eq!(to_time(f64::NAN), Ok(None));
    }

    #[test]
    fn numbers_of_values() {
        for (value, expected) in [
            (Value::Float(1.5), 1.5),
            (Value::Int(-2), -2.0),
            (Value::Uint(3), 3.0),
            (Value::Duration(1_500_000_000), 1.5),
            (Value::text("1e3"), 1000.0),
            (Value::text("-0x10p-1"), -8.0),
            (Value::text("-inf"), f64::NEG_INFINITY),
            (Value::text("+Infinity"), f64::INFINITY),
            (Value::text("1."), 1.0),
        ] {
            assert_eq!(to_float(&value), Ok(expected), "{value:?}");
        }
        assert!(to_float(&Value::text("nan")).expect("a number").is_nan());
        for text in ["", " 1", "1 ", "1,5", "+nan", "-NaN", "infinite", "0x", "0x1", "0xp1", "0x1.8", "1e", ".", "--1"]
        {
            let told = to_float(&Value::text(text)).expect_err(text);
            assert_eq!(told, format!("strconv.ParseFloat: parsing {}: invalid syntax", quote(text)));
        }
        assert!(to_float(&Value::text("1e400")).expect_err("too large").ends_with("value out of range"));
        assert_eq!(to_float(&Value::text("1e-400")), Ok(0.0));
        assert_eq!(to_float(&Value::Bool(true)), Err("can't convert bool to float".to_owned()));
    }

    /// As Go's `strconv.ParseFloat`: down to the smallest numbers; too large ones are errors.
    #[test]
    fn hexadecimal_numbers() {
        for (text, expected) in [
            ("0x1p0", 1.0),
            ("0X.8P1", 1.0),
            ("0x1.8p+1", 3.0),
            ("0xabcdefp-4", 703_710.937_5),
            ("0x1p1023", f64::from_bits(0x7fe0_0000_0000_0000)),
            ("0x1p-1022", f64::MIN_POSITIVE),
            ("0x1p-1074", f64::from_bits(1)),
            ("0x1.8p-1075", f64::from_bits(1)),
            ("0x1p-1075", 0.0),
            ("0x1.8p-2147483648", 0.0),
            ("0x0p5000", 0.0),
            ("0x0.0000p2147483647", 0.0),
        ] {
            assert_eq!(parse_float(text), Ok(expected), "{text}");
            assert_eq!(parse_float(&format!("-{text}")), Ok(-expected), "-{text}");
        }
        for text in ["0x1p1024", "-0x1p1024", "0x1p2147483647"] {
            let told = parse_float(text).expect_err(text);
            assert_eq!(told, format!("strconv.ParseFloat: parsing {}: value out of range", quote(text)));
        }
        for text in ["0x+1p0", "0x-1p0", "0x1.+8p0", "0x1.8.8p0", "0xgp0", "0x.p0", "0x1p", "0x1p1.5"] {
            let told = parse_float(text).expect_err(text);
            assert!(told.ends_with(": invalid syntax"), "{told}");
        }
    }
}
