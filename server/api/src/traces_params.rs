//! Parameters of the trace APIs: reads names and values from a query string or a JSON object, and converts times,
//! durations, span kinds, and the places of attributes (span, resource and so on). The engine gets typed values and knows
//! no parameters.

use quiver_traces::ParamError;
use quiver_types::spans::{KIND_NAMES, Place};
use quiver_types::time::duration::parse_nanos;

type Result<T, E = ParamError> = std::result::Result<T, E>;

/// Longest value of a parameter in bytes.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// Names and values in order. Empty values count as absent.
#[derive(Debug, Clone, Default)]
pub(crate) struct TraceParams(Vec<(String, String)>);

impl TraceParams {
    /// Takes pairs.
    ///
    /// # Errors
    /// A value of more than 64 KiB.
    pub(crate) fn new(pairs: Vec<(String, String)>) -> Result<Self> {
        if let Some((name, _)) = pairs.iter().find(|(_, value)| value.len() > VALUE_BYTES_MAX) {
            return Err(ParamError::new(name, "longer than 64 KiB"));
        }
        Ok(Self(pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect()))
    }

    /// Reads a query string.
    ///
    /// # Errors
    /// As [`TraceParams::new`].
    pub(crate) fn of_query(query: Option<&str>) -> Result<Self> {
        Self::new(url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned().collect())
    }

    /// Reads a JSON object: lists stand for repeated parameters, objects for their text.
    ///
    /// # Errors
    /// Not an object.
    pub(crate) fn of_json(body: &[u8]) -> Result<Self> {
        let text = |value: &serde_json::Value| match value {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Null => String::new(),
            other => other.to_string(),
        };
        let Ok(serde_json::Value::Object(object)) = serde_json::from_slice(body) else {
            return Err(ParamError::new("body", "expected a JSON object"));
        };
        let mut pairs = Vec::new();
        for (name, value) in &object {
            match value {
                serde_json::Value::Array(list) => pairs.extend(list.iter().map(|v| (name.clone(), text(v)))),
                one => pairs.push((name.clone(), text(one))),
            }
        }
        Self::new(pairs)
    }

    /// Adds those of another source.
    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Gives a parameter that may stand once.
    ///
    /// # Errors
    /// It stands twice.
    pub(crate) fn one(&self, name: &str) -> Result<Option<&str>> {
        let mut all = self.0.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str());
        match (all.next(), all.next()) {
            (_, Some(_)) => Err(ParamError::new(name, "given more than once")),
            (first, None) => Ok(first),
        }
    }

    /// Gives all values.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// All parameters with their names, in order.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Says whether a parameter is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(n, _)| n == name)
    }

    /// Reads a switch, in the words that clients written in Go know.
    ///
    /// # Errors
    /// Neither `1`, `true`, `0` nor `false`.
    pub(crate) fn switch(&self, name: &str) -> Result<Option<bool>> {
        match self.one(name)? {
            None => Ok(None),
            Some("1" | "t" | "T" | "true" | "True" | "TRUE") => Ok(Some(true)),
            Some("0" | "f" | "F" | "false" | "False" | "FALSE") => Ok(Some(false)),
            Some(other) => Err(ParamError::new(name, format!("`{other}` is neither `true` nor `false`"))),
        }
    }

    /// Reads a whole number within bounds.
    ///
    /// # Errors
    /// No number, or outside.
    pub(crate) fn number(&self, name: &str, bounds: std::ops::RangeInclusive<u64>) -> Result<Option<u64>> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let number = text.parse::<u64>().ok().filter(|n| bounds.contains(n));
        let reason = || format!("`{text}` is no number from {} to {}", bounds.start(), bounds.end());
        number.map(Some).ok_or_else(|| ParamError::new(name, reason()))
    }

    /// Reads one of a few words.
    ///
    /// # Errors
    /// Another word.
    pub(crate) fn word<'w>(&self, name: &str, words: &[&'w str]) -> Result<Option<&'w str>> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let known = words.iter().copied().find(|w| *w == text);
        known.map(Some).ok_or_else(|| ParamError::new(name, format!("`{text}` is none of {}", words.join(", "))))
    }

    /// Reads a time in Unix nanoseconds.
    ///
    /// # Errors
    /// No time.
    pub(crate) fn time(&self, name: &str, now: i64) -> Result<Option<i64>> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        time(text, now).map(Some).ok_or_else(|| ParamError::new(name, format!("`{text}` is no time")))
    }

    /// Reads `from` and `to`; absent ones are `span` before `now`, and `now`.
    ///
    /// # Errors
    /// No times, or the first after the last.
    pub(crate) fn range(&self, now: i64, span: i64) -> Result<(i64, i64)> {
        let to = self.time("to", now)?.unwrap_or(now);
        let from = self.time("from", now)?.unwrap_or_else(|| to.saturating_sub(span));
        if from > to { Err(ParamError::new("from", "is after `to`")) } else { Ok((from, to)) }
    }

    /// Reads a duration in nanoseconds.
    ///
    /// # Errors
    /// No duration.
    pub(crate) fn duration(&self, name: &str) -> Result<Option<i64>> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        parse_nanos(text).map(Some).ok_or_else(|| ParamError::new(name, format!("`{text}` is no duration")))
    }

    /// Reads a duration as [`go_duration`] does.
    ///
    /// # Errors
    /// No duration.
    pub(crate) fn go_duration(&self, name: &str) -> Result<Option<i64>> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let wrong = || ParamError::new(name, format!("`{text}` is no duration such as 1.5s or 200ms"));
        go_duration(text).map(Some).ok_or_else(wrong)
    }
}

/// Reads a time: RFC 3339, a Unix time whose unit its size tells, or `now-1h`.
pub(crate) fn time(text: &str, now: i64) -> Option<i64> {
    if let Some(rest) = text.strip_prefix("now") {
        return match rest.split_at_checked(1) {
            None => Some(now),
            Some(("-", by)) => now.checked_sub(parse_nanos(by)?),
            Some(("+", by)) => now.checked_add(parse_nanos(by)?),
            Some(_) => None,
        };
    }
    if let Ok(number) = text.parse::<i64>() {
        return number.checked_mul(unit_of(number as f64));
    }
    if let Ok(number) = text.parse::<f64>() {
        let nanos = number * unit_of(number) as f64;
        return (nanos.is_finite() && nanos.abs() < 9.2e18).then_some(nanos as i64);
    }
    // A `+` that was not escaped comes as a blank.
    let time = chrono::DateTime::parse_from_rfc3339(&text.replace(' ', "+")).ok()?;
    time.timestamp_nanos_opt()
}

/// Gives the nanoseconds of the unit that a Unix time of this size is in.
fn unit_of(number: f64) -> i64 {
    match number.abs() {
        n if n < 1e11 => 1_000_000_000,
        n if n < 1e14 => 1_000_000,
        n if n < 1e17 => 1_000,
        _ => 1,
    }
}

/// Reads a duration as the tools do whose clients ask us, in nanoseconds: numbers with units from `ns` to `h`, of which 0
/// alone needs none. A bare number would mean another thing to each of them.
pub(crate) fn go_duration(text: &str) -> Option<i64> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let has_units = text.ends_with(char::is_alphabetic) && !text.contains(['d', 'w', 'y']);
    if text == "0" { Some(0) } else { parse_nanos(text).filter(|_| has_units) }
}

/// Reads the name of a kind.
///
/// # Errors
/// No kind of that name.
pub(crate) fn kind(name: &str, text: &str) -> Result<u8> {
    let short = text.strip_prefix("SPAN_KIND_").unwrap_or(text).to_ascii_lowercase();
    if matches!(short.as_str(), "unset" | "unspecified") {
        return Ok(0);
    }
    let known = KIND_NAMES.iter().position(|k| !k.is_empty() && *k == short);
    known.map(|k| k as u8).ok_or_else(|| ParamError::new(name, format!("`{text}` is no kind of span")))
}

/// Reads where an attribute stands, and its key: `resource.host.name`.
pub(crate) fn place(text: &str) -> (Option<Place>, &str) {
    let found = Place::ALL.into_iter().find_map(|place| {
        let key = text.strip_prefix(place.name())?.strip_prefix('.')?;
        (!key.is_empty()).then_some((place, key))
    });
    found.map_or((None, text), |(place, key)| (Some(place), key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_durations() {
        let now = 1_700_000_000_000_000_000;
        for text in ["1700000000", "1700000000000", "1700000000000000", "1700000000000000000", "now"] {
            assert_eq!(time(text, now), Some(now), "{text}");
        }
        assert_eq!(time("2023-11-14T22:13:20Z", 0), Some(now));
        assert_eq!(time("2023-11-14T23:13:20 01:00", 0), Some(now));
        assert_eq!(time("now-1h", now), Some(now - 3_600_000_000_000));
        for text in ["", "x", "now-", "now*1h", "nowhere", "1e400"] {
            assert_eq!(time(text, now), None, "{text}");
        }
        for (text, nanos) in [("1h2m", 3_720_000_000_000), ("1.5ms", 1_500_000), ("+2us", 2_000), ("0", 0), ("0s", 0)] {
            assert_eq!(go_duration(text), Some(nanos), "{text}");
        }
        for text in ["", "5", "1d", "1w", "1y", "-5ms", "++1s", "+", "1s5"] {
            assert_eq!(go_duration(text), None, "{text}");
        }
    }

    fn of(query: &str) -> TraceParams {
        TraceParams::of_query(Some(query)).unwrap()
    }

    #[test]
    fn sources_of_parameters() {
        let params = of("a=1&b=&a=x%20y&c=%26");
        assert_eq!(params.pairs().collect::<Vec<_>>(), [("a", "1"), ("a", "x y"), ("c", "&")]);
        assert!(!params.has("b") && params.has("c"), "an empty value is absent");
        assert_eq!(params.all("a").collect::<Vec<_>>(), ["1", "x y"]);
        let mut json = TraceParams::of_json(br#"{"a":["1",2,null],"b":{"x":1},"c":true,"d":null,"e":[]}"#).unwrap();
        assert_eq!(json.pairs().collect::<Vec<_>>(), [("a", "1"), ("a", "2"), ("b", r#"{"x":1}"#), ("c", "true")]);
        json.extend(params);
        assert_eq!(json.all("c").collect::<Vec<_>>(), ["true", "&"]);
        for bad in ["", "[]", "1", "{"] {
            assert_eq!(
                TraceParams::of_json(bad.as_bytes()).unwrap_err(),
                ParamError::new("body", "expected a JSON object")
            );
        }
        let long = "x".repeat((64 << 10) + 1);
        assert_eq!(TraceParams::new(vec![("q".into(), long)]).unwrap_err(), ParamError::new("q", "longer than 64 KiB"));
        assert!(TraceParams::new(vec![("q".into(), "x".repeat(64 << 10))]).is_ok());
    }

    /// Breaks if a value that is not understood is taken for none, or its error does not name the parameter.
    #[test]
    fn wrong_values_are_named() {
        let params = of("n=7&s=1&t=x&w=asc&d=5q&n2=1&n2=2&f=5&g=7");
        assert_eq!(params.number("n", 1..=7), Ok(Some(7)));
        assert_eq!(params.number("none", 1..=7), Ok(None));
        assert_eq!(params.number("n", 8..=9), Err(ParamError::new("n", "`7` is no number from 8 to 9")));
        assert_eq!(params.one("n2"), Err(ParamError::new("n2", "given more than once")));
        assert_eq!(params.switch("s"), Ok(Some(true)));
        assert_eq!((of("s=T").switch("s"), of("s=False").switch("s")), (Ok(Some(true)), Ok(Some(false))));
        assert_eq!(params.switch("t"), Err(ParamError::new("t", "`x` is neither `true` nor `false`")));
        assert_eq!(params.word("w", &["asc", "desc"]), Ok(Some("asc")));
        assert_eq!(params.word("w", &["up", "down"]), Err(ParamError::new("w", "`asc` is none of up, down")));
        assert_eq!(params.time("t", 0), Err(ParamError::new("t", "`x` is no time")));
        assert_eq!(params.duration("d"), Err(ParamError::new("d", "`5q` is no duration")));
        let wrong = ParamError::new("f", "`5` is no duration such as 1.5s or 200ms");
        assert_eq!((params.duration("f"), params.go_duration("f")), (Ok(Some(5)), Err(wrong)));
    }

    #[test]
    fn ranges_end_now() {
        let now = 1_700_000_000_000_000_000;
        assert_eq!(of("").range(now, 60), Ok((now - 60, now)));
        assert_eq!(of("to=now-1s").range(now, 60), Ok((now - 1_000_000_060, now - 1_000_000_000)));
        assert_eq!(of("from=5&to=5").range(now, 60), Ok((5_000_000_000, 5_000_000_000)));
        assert_eq!(of("from=6&to=5").range(now, 60), Err(ParamError::new("from", "is after `to`")));
        assert_eq!(of("to=-9223372036854775808").range(now, 60).map(|range| range.0), Ok(i64::MIN));
    }

    /// Breaks if a time overflows, or its unit is taken for another at a border.
    #[test]
    fn borders_of_times() {
        for (text, expected) in [
            ("99999999999", Some(99_999_999_999_000_000_000_i128)),
            ("100000000000", Some(100_000_000_000_000_000)),
            ("100000000000000", Some(100_000_000_000_000_000)),
            ("100000000000000000", Some(100_000_000_000_000_000)),
            ("-1", Some(-1_000_000_000)),
            ("1.5", Some(1_500_000_000)),
            ("1e3", Some(1_000_000_000_000)),
            ("9223372036854775807", Some(i128::from(i64::MAX))),
            ("9223372036854775808", None),
            ("NaN", None),
            ("inf", None),
            ("1969-12-31T23:59:59.999999999Z", Some(-1)),
            ("2300-01-01T00:00:00Z", None),
        ] {
            // What no `i64` holds is no time.
            let expected = expected.and_then(|ns| i64::try_from(ns).ok());
            assert_eq!(time(text, 0), expected, "{text}");
        }
        assert_eq!((time("now-1h", i64::MIN), time("now+1h", i64::MAX)), (None, None));
    }

    #[test]
    fn kinds_and_places() {
        for (text, expected) in [("server", 2), ("SPAN_KIND_CLIENT", 3), ("Unset", 0), ("SPAN_KIND_UNSPECIFIED", 0)] {
            assert_eq!(kind("kind", text), Ok(expected), "{text}");
        }
        assert_eq!(kind("kind", ""), Err(ParamError::new("kind", "`` is no kind of span")));
        for (text, expected) in [
            ("resource.a.b", (Some(Place::Resource), "a.b")),
            ("span.a", (Some(Place::Span), "a")),
            ("scope.a", (Some(Place::Scope), "a")),
            ("resource.", (None, "resource.")),
            ("resources.a", (None, "resources.a")),
            ("a", (None, "a")),
        ] {
            assert_eq!(place(text), expected, "{text}");
        }
    }
}
