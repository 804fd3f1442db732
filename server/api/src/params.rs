//! Parameters of a request: query string and form body together, whatever the language of the query.

use axum::extract::Request;
use http::{HeaderMap, Method, header};
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

    /// Like [`Self::of`], for callers that apply the segments themselves.
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
}

/// Makes the error of a bad parameter.
pub(crate) fn invalid(name: &str, reason: &str) -> Error {
    Error::invalid(format!("invalid parameter \"{name}\": {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Breaks if a form is read whole before anybody asks how many parameters it has.
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
        let listed = params("match[]=&match%5B%5D&match[]=x");
        assert_eq!(listed.all("match[]").collect::<Vec<_>>(), ["", "", "x"], "entries of lists count");
    }

    fn params(query: &str) -> Params {
        Params::read(&Method::GET, &HeaderMap::new(), Some(query), b"").expect(query)
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
