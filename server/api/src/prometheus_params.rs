//! Times, durations and limits as the Prometheus API reads them from the parameters of a request.
//!
//! Source: Prometheus 3.14 `web/api/v1/api.go` (`parseTime`, `parseDuration`, `parseLimitParam`).

use std::num::{IntErrorKind, ParseIntError};

use quiver_types::Result;
use quiver_types::time::duration;

use crate::params::{Params, invalid};

impl Params {
    /// Reads a time; `None` when absent.
    pub(crate) fn time(&self, name: &str) -> Result<Option<i64>> {
        let bad = |text: &str| invalid(name, &format!("invalid time value for '{name}': {}", bad_time(text)));
        self.get(name).map(|text| time_ms(text).ok_or_else(|| bad(text))).transpose()
    }

    /// Reads a required time.
    pub(crate) fn required_time(&self, name: &str) -> Result<i64> {
        let text = self.get(name).unwrap_or_default();
        time_ms(text).ok_or_else(|| invalid(name, &bad_time(text)))
    }

    /// Reads a duration in milliseconds; `None` when absent.
    pub(crate) fn duration(&self, name: &str) -> Result<Option<i64>> {
        self.get(name).map(|text| duration_ms(text).ok_or_else(|| invalid(name, &bad_duration(text)))).transpose()
    }

    /// Reads `limit`; 0 = none.
    pub(crate) fn limit(&self) -> Result<usize> {
        let Some(text) = self.get("limit") else { return Ok(0) };
        match text.parse::<i64>() {
            Err(e) => Err(invalid("limit", &format!("strconv.Atoi: parsing {text:?}: {}", why_no_integer(&e)))),
            Ok(n) if n < 0 => Err(invalid("limit", "limit must be non-negative")),
            Ok(n) => Ok(n as usize),
        }
    }
}

/// Says why a text is no integer, as Go does.
pub(crate) fn why_no_integer(error: &ParseIntError) -> &'static str {
    match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    }
}

/// Says why a text is no duration.
pub(crate) fn bad_duration(text: &str) -> String {
    let why = if number(text).is_some() || is_infinite(text) { ". It overflows int64" } else { "" };
    format!("cannot parse {text:?} to a valid duration{why}")
}

/// Whether a text stands for an infinite number, which Go reads in any case.
fn is_infinite(text: &str) -> bool {
    let word = text.strip_prefix(['+', '-']).unwrap_or(text);
    ["inf", "infinity"].iter().any(|known| word.eq_ignore_ascii_case(known))
}

fn bad_time(text: &str) -> String {
    format!("cannot parse {text:?} to a valid timestamp")
}

/// The two texts that stand for "no bound".
const MIN_TIME: &str = "-292273086-05-16T16:47:06Z";
const MAX_TIME: &str = "292277025-08-18T07:12:54.999999999Z";

/// Reads Unix seconds with a fraction, or RFC 3339; gives milliseconds.
pub(crate) fn time_ms(text: &str) -> Option<i64> {
    if let Some(seconds) = number(text) {
        // The fraction is rounded separately, as Prometheus does, since the double nearest to 1.0005 is a little less.
        let whole = seconds.trunc();
        let ms = whole * 1000.0 + ((seconds - whole) * 1000.0).round();
        return (ms.abs() < 9.2e18).then_some(ms as i64);
    }
    match text {
        MIN_TIME => Some(i64::MIN),
        MAX_TIME => Some(i64::MAX),
        _ if is_rfc3339(text) => chrono::DateTime::parse_from_rfc3339(text).ok().map(|t| t.timestamp_millis()),
        _ => None,
    }
}

/// Says whether a text has the one form of RFC 3339 that Prometheus takes: capital letters, and no leap second.
fn is_rfc3339(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.get(10) == Some(&b'T') && bytes.get(17) != Some(&b'6') && !text.ends_with('z')
}

/// Reads seconds with a fraction, or a sequence of numbers with units; gives milliseconds.
pub(crate) fn duration_ms(text: &str) -> Option<i64> {
    if let Some(seconds) = number(text) {
        // Prometheus counts nanoseconds in 64 bits.
        return (seconds.abs() * 1e9 < 9_223_372_036_854_775_808.0).then_some((seconds * 1000.0) as i64);
    }
    // Prometheus's range checks let NaN pass, and its conversion to an integer yields the least duration.
    if text.eq_ignore_ascii_case("nan") {
        return Some(i64::MIN / 1_000_000);
    }
    duration::parse(text).ok()
}

/// Reads a decimal number; `NaN` and `inf` are not accepted.
fn number(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e' | b'E'));
    plain.then(|| text.parse::<f64>().ok()).flatten().filter(|n| n.is_finite())
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};
    use quiver_types::Error;

    use super::*;

    #[test]
    fn times() {
        let check = |text: &str, expected: Option<i64>| assert_eq!(time_ms(text), expected, "{text}");
        check("1435781451.781", Some(1_435_781_451_781));
        check("2015-07-01T20:10:51.781Z", Some(1_435_781_451_781));
        check("2015-07-01T22:10:51.781+02:00", Some(1_435_781_451_781));
        check("-0.001", Some(-1));
        check("1.0005", Some(1_000));
        check("1.0015", Some(1_002));
        check("2.9996", Some(3_000));
        check("-1.0005", Some(-1_000));
        check(MIN_TIME, Some(i64::MIN));
        check(MAX_TIME, Some(i64::MAX));
        check("inf", None);
        check("NaN", None);
        check("", None);
        check("tomorrow", None);
    }

    #[test]
    fn limits_and_durations() {
        let p = params("limit=-1&step=1h30m&d=x&a=1");
        assert!(p.limit().is_err());
        let told = params("limit=9999999999999999999").limit().expect_err("too large").message;
        assert!(told.ends_with("value out of range"), "{told}");
        assert_eq!(p.duration("a").unwrap(), Some(1000));
        assert_eq!(p.duration("step").unwrap(), Some(5_400_000));
        assert!(p.duration("d").unwrap_err().message.starts_with("invalid parameter \"d\": "));
        let p = params("d=148966367200.372&e=9223372036");
        assert!(p.duration("d").unwrap_err().message.ends_with("It overflows int64"));
        assert_eq!(p.duration("e").unwrap(), Some(9_223_372_036_000));
        for text in ["Inf", "-inf", "+Infinity"] {
            assert_eq!(bad_duration(text), format!("cannot parse {text:?} to a valid duration. It overflows int64"));
        }
        for text in ["infinite", "--inf", "in", "1e400"] {
            assert_eq!(bad_duration(text), format!("cannot parse {text:?} to a valid duration"));
        }
    }

    fn params(query: &str) -> Params {
        Params::read(&Method::GET, &HeaderMap::new(), Some(query), b"").expect(query)
    }

    /// Times as Prometheus' API reads them: seconds in any notation of a decimal, or RFC 3339 with a zone.
    #[test]
    fn times_in_all_forms() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("+1", Some(1000)),
            (".5", Some(500)),
            ("1.", Some(1000)),
            ("1e3", Some(1_000_000)),
            ("1.5E1", Some(15_000)),
            ("-1.5", Some(-1500)),
            ("1700000000.0004", Some(1_700_000_000_000)),
            ("1700000000.0006", Some(1_700_000_000_001)),
            ("9e15", Some(9_000_000_000_000_000_000)),
            ("1e16", None),
            ("-1e16", None),
            ("1e400", None),
            ("1970-01-01T00:00:00Z", Some(0)),
            ("1970-01-01T00:00:00.0009Z", Some(0)),
            ("1969-12-31T23:59:59.999Z", Some(-1)),
            ("1970-01-01T01:00:00+01:00", Some(0)),
            ("1970-01-01T00:00:00-00:30", Some(1_800_000)),
            ("1970-01-01T00:00:00", None),
            ("1970-01-01", None),
            ("1970-13-01T00:00:00Z", None),
            ("1970-01-01T24:00:00Z", None),
            ("1970-01-01t00:00:00Z", None),
            ("1970-01-01 00:00:00Z", None),
            ("1970-01-01T00:00:00z", None),
            ("1970-01-01T00:00:60Z", None),
            ("1970-01-01T00:00:59Z", Some(59_000)),
            ("now", None),
            ("now-1h", None),
            ("-inf", None),
            ("nan", None),
            ("1_000", None),
            ("0x10", None),
            (" 1", None),
            ("1 ", None),
            ("1s", None),
            ("--1", None),
            ("1e", None),
        ] {
            assert_eq!(time_ms(text), expected, "{text}");
        }
    }

    #[test]
    fn durations_in_all_forms() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1", Some(1000)),
            ("0.0015", Some(1)),
            ("-1.5", Some(-1500)),
            ("1e2", Some(100_000)),
            ("15s", Some(15_000)),
            ("1h30m", Some(5_400_000)),
            ("1d", Some(86_400_000)),
            ("1w", Some(604_800_000)),
            ("1y", Some(31_536_000_000)),
            ("1ms", Some(1)),
            ("9223372036", Some(9_223_372_036_000)),
            ("9223372037", None),
            ("-9223372037", None),
            ("1.5h", None),
            ("30m1h", None),
            ("-1m", None),
            ("1 m", None),
            ("m", None),
            ("1M", None),
            ("inf", None),
            ("NaN", Some(-9_223_372_036_854)),
            ("nan", Some(-9_223_372_036_854)),
            ("-NaN", None),
            ("nano", None),
        ] {
            assert_eq!(duration_ms(text), expected, "{text}");
        }
    }

    #[test]
    fn bad_parameters_are_told_in_the_words_of_prometheus() {
        let p = params("t=x&d=y&big=1e300&limit=1.5");
        let told = |e: Option<Error>| e.map(|e| (e.kind, e.message));
        let bad = |text: &str| Some((quiver_types::ErrorKind::Invalid, text.to_owned()));
        let time = "invalid parameter \"t\": invalid time value for 't': cannot parse \"x\" to a valid timestamp";
        assert_eq!(told(p.time("t").err()), bad(time));
        assert_eq!(p.time("none").ok(), Some(None));
        let required = "invalid parameter \"t\": cannot parse \"x\" to a valid timestamp";
        assert_eq!(told(p.required_time("t").err()), bad(required));
        let missing = "invalid parameter \"none\": cannot parse \"\" to a valid timestamp";
        assert_eq!(told(p.required_time("none").err()), bad(missing));
        let duration = "invalid parameter \"d\": cannot parse \"y\" to a valid duration";
        assert_eq!(told(p.duration("d").err()), bad(duration));
        let overflow = "invalid parameter \"big\": cannot parse \"1e300\" to a valid duration. It overflows int64";
        assert_eq!(told(p.duration("big").err()), bad(overflow));
        let limit = "invalid parameter \"limit\": strconv.Atoi: parsing \"1.5\": invalid syntax";
        assert_eq!(told(p.limit().err()), bad(limit));
    }

    #[test]
    fn limits() {
        for (query, expected) in [
            ("", Some(0)),
            ("limit=", Some(0)),
            ("limit=0", Some(0)),
            ("limit=7", Some(7)),
            ("limit=%2B7", Some(7)),
            ("limit=7&limit=8", Some(7)),
            ("Limit=7", Some(0)),
            ("limit=-1", None),
            ("limit=7x", None),
            ("limit=+7", None),
            ("limit=0x7", None),
            ("limit=-99999999999999999999", None),
        ] {
            assert_eq!(params(query).limit().ok(), expected, "{query}");
        }
        let range = params("limit=-99999999999999999999").limit().expect_err("too far below");
        assert!(range.message.ends_with("value out of range"), "{}", range.message);
    }
}
