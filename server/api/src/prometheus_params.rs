//! Parameters of the Prometheus API: query string and form body together, times, durations, limits.
//!
//! Source: Prometheus 3.14 `web/api/v1/api.go` (`parseTime`, `parseDuration`, `parseLimitParam`).

use axum::extract::Request;
use http::{HeaderMap, Method, header};
use quiver_types::time::duration;
use quiver_types::{Domain, Error, Result};

use crate::body_memory::read_unpacked;
use crate::segments;
use crate::state::AppState;

/// Most parameters of a request; a parameter of a few bytes takes many times as much memory once parsed.
const PARAMS_MAX: usize = 100_000;

/// Most characters of a value that is shown to people.
const SHOWN_CHARS_MAX: usize = 64;

/// All parameters of a request in order, those of the body first. Empty values count as absent, except those of lists
/// (`match[]`), whose entries Prometheus reads one by one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    /// Reads the parameters of a request about metrics, whose body may be a form. Segments among them apply to its
    /// queries.
    ///
    /// # Errors
    /// Those of [`Self::with_segments`] and of segments; Invalid: a segment is given to a route that has none.
    pub(crate) async fn of(state: &AppState, request: Request) -> Result<Self> {
        let path = request.uri().path().to_owned();
        let params = Self::with_segments(state, request).await?;
        if segments::acts_on(&path) {
            segments::begin(state, params.pairs(), &[Domain::Metrics])?;
        } else {
            params.without_segments()?;
        }
        Ok(params)
    }

    /// As [`Self::of`], for callers that apply the segments themselves.
    ///
    /// # Errors
    /// TooLarge; those of [`read_unpacked`] and [`Self::read`].
    pub(crate) async fn with_segments(state: &AppState, request: Request) -> Result<Self> {
        let (head, body) = request.into_parts();
        let body = read_unpacked(&state.capacity.bodies, &head.headers, body, state.settings.form_bytes_max).await?;
        Self::read(&head.method, &head.headers, head.uri.query(), &body)
    }

    /// Refuses segments where they are not supported: ignoring them would show more than was asked for.
    ///
    /// # Errors
    /// Invalid: there is a segment.
    pub(crate) fn without_segments(&self) -> Result<()> {
        if self.pairs().any(|(name, _)| segments::is_segment(name)) {
            Err(Error::invalid("`segment` is not supported on this path"))
        } else {
            Ok(())
        }
    }

    /// Reads the query string and, of a POST with a form, the body.
    ///
    /// # Errors
    /// Invalid: a POST with a body of another content type, or too many parameters.
    pub(crate) fn read(method: &Method, headers: &HeaderMap, query: Option<&str>, body: &[u8]) -> Result<Self> {
        let mut form: &[u8] = &[];
        if method == Method::POST && !body.is_empty() {
            let content_type = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
            if content_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("multipart/form-data") {
                return Err(Error::invalid("error parsing form values: send application/x-www-form-urlencoded"));
            }
            form = body;
        }
        let all = [form, query.unwrap_or_default().as_bytes()].into_iter().flat_map(url::form_urlencoded::parse);
        let given = all.filter(|(name, value)| !value.is_empty() || name.ends_with("[]")).take(PARAMS_MAX + 1);
        let pairs: Vec<_> = given.map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        if pairs.len() > PARAMS_MAX {
            let text = format!("error parsing form values: more than {PARAMS_MAX} parameters");
            return Err(Error::invalid(text));
        }
        Ok(Self(pairs))
    }

    /// Gives the first value, as Prometheus does where a parameter is given twice.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Gives the value of a parameter of our own.
    ///
    /// # Errors
    /// Invalid: it is given more than once, and which of the values counts is not to be seen.
    pub(crate) fn one(&self, name: &str) -> Result<Option<&str>> {
        let mut all = self.0.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str());
        match (all.next(), all.next()) {
            (_, Some(_)) => Err(invalid(name, "it is given more than once")),
            (first, None) => Ok(first),
        }
    }

    /// Adds a parameter.
    pub(crate) fn push(&mut self, name: &str, value: &str) {
        self.0.push((name.to_owned(), value.to_owned()));
    }

    /// Gives all parameters with their names.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Gives all values.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Gives some parameters as they were sent, for people: `start=now-1h end=now`. Of long values the beginning.
    pub(crate) fn given(&self, names: &[&str]) -> String {
        let shown = |value: &str| value.chars().take(SHOWN_CHARS_MAX).collect::<String>();
        let given = names.iter().filter_map(|name| Some(format!("{name}={}", shown(self.get(name)?))));
        given.collect::<Vec<_>>().join(" ")
    }

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
            Err(e) => {
                use std::num::IntErrorKind::{NegOverflow, PosOverflow};
                let long = matches!(e.kind(), PosOverflow | NegOverflow);
                let why = if long { "value out of range" } else { "invalid syntax" };
                Err(invalid("limit", &format!("strconv.Atoi: parsing {text:?}: {why}")))
            }
            Ok(n) if n < 0 => Err(invalid("limit", "limit must be non-negative")),
            Ok(n) => Ok(n as usize),
        }
    }
}

/// Makes the error of a bad parameter.
pub(crate) fn invalid(name: &str, reason: &str) -> Error {
    Error::invalid(format!("invalid parameter \"{name}\": {reason}"))
}

/// Says why a text is no duration.
pub(crate) fn bad_duration(text: &str) -> String {
    let why = if number(text).is_some() { ". It overflows int64" } else { "" };
    format!("cannot parse {text:?} to a valid duration{why}")
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
    duration::parse(text).ok()
}

/// Reads a decimal number; `NaN` and `inf` are not accepted.
fn number(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e' | b'E'));
    plain.then(|| text.parse::<f64>().ok()).flatten().filter(|n| n.is_finite())
}

#[cfg(test)]
mod tests {
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

    /// Breaks where a form is read whole before anybody asks how many parameters it has.
    #[test]
    fn parameters_are_bounded() {
        let read = |body: &str| Params::read(&Method::POST, &HeaderMap::new(), Some("a=1"), body.as_bytes());
        let most = "a=1&".repeat(PARAMS_MAX - 1);
        assert_eq!(read(&most).unwrap().0.len(), PARAMS_MAX);
        assert_eq!(read(&format!("{most}&b&c=&")).unwrap().0.len(), PARAMS_MAX, "empty ones are absent");
        let text = read(&format!("{most}a=1")).unwrap_err().message;
        assert_eq!(text, "error parsing form values: more than 100000 parameters");
    }

    #[test]
    fn what_was_given_is_shown_as_it_was_sent() {
        let query = Some("end=2015-07-01T20%3A10%3A51Z&start=now-1h&start=5&step=");
        let params = Params::read(&Method::GET, &HeaderMap::new(), query, &[]).unwrap();
        assert_eq!(params.given(&["time", "start", "end", "step"]), "start=now-1h end=2015-07-01T20:10:51Z");
        assert_eq!(params.given(&["time"]), "");
        let long = format!("step={}1", "0".repeat(1000));
        let params = Params::read(&Method::GET, &HeaderMap::new(), Some(&long), &[]).unwrap();
        assert_eq!(params.given(&["step"]), format!("step={}", "0".repeat(SHOWN_CHARS_MAX)));
    }

    #[test]
    fn body_comes_first_and_empty_values_are_absent() {
        let p = Params::read(&Method::POST, &HeaderMap::new(), Some("a=2&b=&match[]=x"), b"a=1&match%5B%5D=y").unwrap();
        assert_eq!(p.get("a"), Some("1"));
        assert_eq!(p.get("b"), None);
        assert_eq!(p.all("match[]").collect::<Vec<_>>(), ["y", "x"]);
        assert_eq!(p.duration("a").unwrap(), Some(1000));
        let listed = params("match[]=&match%5B%5D&match[]=x");
        assert_eq!(listed.all("match[]").collect::<Vec<_>>(), ["", "", "x"], "entries of lists count");
        let p = Params::read(&Method::GET, &HeaderMap::new(), Some("limit=-1&step=1h30m&d=x"), b"").unwrap();
        assert!(p.limit().is_err());
        let p2 = Params::read(&Method::GET, &HeaderMap::new(), Some("limit=9999999999999999999"), b"").unwrap();
        assert!(p2.limit().unwrap_err().message.ends_with("value out of range"));
        assert_eq!(p.duration("step").unwrap(), Some(5_400_000));
        assert!(p.duration("d").unwrap_err().message.starts_with("invalid parameter \"d\": "));
        let long = Some("d=148966367200.372&e=9223372036");
        let p = Params::read(&Method::GET, &HeaderMap::new(), long, b"").unwrap();
        assert!(p.duration("d").unwrap_err().message.ends_with("It overflows int64"));
        assert_eq!(p.duration("e").unwrap(), Some(9_223_372_036_000));
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
        ] {
            assert_eq!(duration_ms(text), expected, "{text}");
        }
    }

    #[test]
    fn own_parameters_are_given_once() {
        let p = params("a=1&b=1&b=1&c=&c=2");
        assert_eq!((p.one("a").ok(), p.one("none").ok()), (Some(Some("1")), Some(None)));
        assert_eq!(p.one("c").ok(), Some(Some("2")), "empty values are absent");
        let told = p.one("b").err().map(|e| (e.kind, e.message));
        let text = "invalid parameter \"b\": it is given more than once";
        assert_eq!(told, Some((quiver_types::ErrorKind::Invalid, text.to_owned())));
        assert_eq!(p.get("b"), Some("1"));
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

    /// Query strings and forms are one encoding; the name of a parameter is taken as it is.
    #[test]
    fn encoded_parameters() {
        for (query, name, expected) in [
            ("query=a+b", "query", Some("a b")),
            ("query=a%2Bb", "query", Some("a+b")),
            ("query=a%20b%26c%3Dd", "query", Some("a b&c=d")),
            ("query=%C3%A9", "query", Some("é")),
            ("query=a=b", "query", Some("a=b")),
            ("match%5B%5D=up", "match[]", Some("up")),
            ("&&query=x&", "query", Some("x")),
            ("query", "query", None),
            ("QUERY=x", "query", None),
            ("query=%zz", "query", Some("%zz")),
        ] {
            assert_eq!(params(query).get(name), expected, "{query}");
        }
        let mut p = params("a=1&b=2&a=3");
        p.push("a", "4");
        assert_eq!(p.all("a").collect::<Vec<_>>(), ["1", "3", "4"]);
        assert_eq!(p.pairs().count(), 4);
    }

    /// A form is read of a POST alone, whatever its type is called; one of several parts is refused, as it would be lost.
    #[test]
    fn forms() {
        let read = |method: Method, kind: Option<&'static str>, body: &str| {
            let mut headers = HeaderMap::new();
            headers.extend(kind.map(|kind| (header::CONTENT_TYPE, http::HeaderValue::from_static(kind))));
            Params::read(&method, &headers, Some("a=1"), body.as_bytes()).map(|p| p.get("a").map(str::to_owned))
        };
        let form = "application/x-www-form-urlencoded";
        for (method, kind, expected) in [
            (Method::POST, Some(form), "2"),
            (Method::POST, Some("application/x-www-form-urlencoded; charset=utf-8"), "2"),
            (Method::POST, None, "2"),
            (Method::GET, Some(form), "1"),
            (Method::PUT, Some(form), "1"),
        ] {
            assert_eq!(
                read(method.clone(), kind, "a=2").expect("read").as_deref(),
                Some(expected),
                "{method} {kind:?}"
            );
        }
        for kind in ["multipart/form-data; boundary=x", "Multipart/Form-Data"] {
            let told = read(Method::POST, Some(kind), "--x").expect_err(kind).message;
            assert_eq!(told, "error parsing form values: send application/x-www-form-urlencoded");
            assert!(read(Method::POST, Some(kind), "").is_ok(), "without a body nothing is lost");
        }
    }

    #[test]
    fn segments_where_nothing_heeds_them() {
        assert!(params("query=x").without_segments().is_ok());
        let told = params("query=x&segment=a").without_segments().expect_err("a segment").message;
        assert_eq!(told, "`segment` is not supported on this path");
    }
}
