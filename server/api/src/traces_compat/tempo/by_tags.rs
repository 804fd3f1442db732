//! Searches without TraceQL: by tags, whose values match substrings, and by the duration of traces.

use std::collections::BTreeSet;

use quiver_traces::ParamError;
use quiver_types::spans::{AttributeTest, STATUS_ERROR, STATUS_OK, STATUS_UNSET, SpanFilter, TextTest};

use super::params::{duration, text_error};
use crate::segments::is_segment;
use crate::traces_api::Call;
use crate::traces_compat::jaeger::condition;

/// Parameters of a search that are never tags.
const NO_TAGS: [&str; 9] = ["q", "tags", "minDuration", "maxDuration", "limit", "spss", "start", "end", "explain"];

/// Conditions of a search on spans, and on their traces in TraceQL.
#[derive(Debug, Default)]
pub(super) struct TagSearch {
    pub(super) spans: Vec<SpanFilter>,
    traces: Vec<String>,
}

impl TagSearch {
    /// Parses the parameters of a search; with a TraceQL query, durations are those of spans.
    pub(super) fn of(call: &Call, with_query: bool) -> Result<Self, ParamError> {
        let has_window = ["start", "end"].iter().any(|name| call.params.all(name).any(|second| second != "0"));
        let mut asked = match call.params.one("tags")? {
            Some(tags) => Self::of_tags(tags)?,
            None if with_query || has_window => Self::default(),
            None => Self::of_names(call.params.pairs()),
        };
        if with_query && call.params.has("tags") {
            return Err(text_error("invalid request: can't specify tags and q in the same query"));
        }
        let (min, max) = (duration(call, "minDuration")?, duration(call, "maxDuration")?);
        if min.zip(max).is_some_and(|(min, max)| max < min) {
            return Err(text_error("invalid maxDuration: must be greater than minDuration"));
        }
        if with_query && (min.is_some() || max.is_some()) {
            asked.spans.push(SpanFilter::Duration(min.unwrap_or(0), max.unwrap_or(i64::MAX)));
        } else {
            asked.traces.extend(min.map(|nanos| format!("traceDuration >= {nanos}ns")));
            asked.traces.extend(max.map(|nanos| format!("traceDuration <= {nanos}ns")));
        }
        Ok(asked)
    }

    /// Parses tags given as separate parameters, used only if there is neither `tags` nor a query or time range; the
    /// first of each name counts.
    fn of_names<'a>(given: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let (mut asked, mut known) = (Self::default(), BTreeSet::from(NO_TAGS));
        for (key, value) in given.filter(|(key, _)| !is_segment(key)) {
            if known.insert(key) {
                asked.add(key, value);
            }
        }
        asked
    }

    /// Adds a condition on a tag.
    fn add(&mut self, key: &str, value: &str) {
        match key {
            "root.name" => self.traces.push(format!("rootName =~ {}", holding(value))),
            "root.service.name" => self.traces.push(format!("rootServiceName =~ {}", holding(value))),
            _ => self.spans.push(tag(key, value)),
        }
    }

    /// Parses pairs `key=value`.
    fn of_tags(text: &str) -> Result<Self, ParamError> {
        let (mut asked, mut known) = (Self::default(), BTreeSet::new());
        for (key, value) in pairs(text)? {
            if !known.insert(key) {
                return Err(text_error(format!("invalid tags: tag {key} has been set twice")));
            }
            asked.add(key, &value);
        }
        Ok(asked)
    }

    /// The TraceQL query for the conditions on traces.
    pub(super) fn query(&self) -> String {
        let all = self.traces.join(" && ");
        format!("{{{all}}}")
    }
}

/// Parses logfmt pairs: a key alone has an empty value; values with blanks, quotes or `=` are quoted. Positions in
/// errors are bytes from 1.
fn pairs(text: &str) -> Result<Vec<(&str, String)>, ParamError> {
    let bytes = text.as_bytes();
    let wrong = |reason: String, at: usize| text_error(format!("invalid tags: {reason} at pos {}", at + 1));
    let plain_to = |at: usize| {
        let is_plain = |b: &&u8| **b > b' ' && !matches!(**b, b'=' | b'"');
        at + bytes[at..].iter().take_while(is_plain).count()
    };
    let unexpected = |at: usize| wrong(format!("unexpected '{}'", char::from(bytes[at])), at);
    let (mut at, mut out) = (0, Vec::new());
    loop {
        at += bytes[at..].iter().take_while(|b| **b <= b' ').count();
        if at == bytes.len() {
            return Ok(out);
        }
        let begin = at;
        at = plain_to(begin);
        if bytes.get(at) == Some(&b'"') || at == begin {
            return Err(unexpected(at));
        }
        let (key, mut value) = (&text[begin..at], String::new());
        if bytes.get(at) == Some(&b'=') {
            at += 1;
            if bytes.get(at) == Some(&b'"') {
                let (inner, rest) = unquoted(&text[at..]).map_err(|(why, length)| wrong(why.into(), at + length))?;
                (value, at) = (inner, text.len() - rest.len());
            } else {
                let begin = at;
                at = plain_to(begin);
                if matches!(bytes.get(at), Some(b'=' | b'"')) {
                    return Err(unexpected(at));
                }
                text[begin..at].clone_into(&mut value);
            }
        }
        out.push((key, value));
    }
}

/// Parses the quoted value at the beginning of a text, in which `\` escapes a quote; returns the rest as well. The
/// error has the byte offset at which it was found.
fn unquoted(text: &str) -> Result<(String, &str), (&'static str, usize)> {
    let mut is_escaped = false;
    let ends = |c: char| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    };
    let Some(end) = text[1..].find(ends) else { return Err(("unterminated quoted value", text.len())) };
    let (quoted, rest) = text.split_at(end + 2);
    let inner = &quoted[1..=end];
    if !inner.contains('\\') {
        return Ok((inner.to_owned(), rest));
    }
    serde_json::from_str(quoted).map(|inner| (inner, rest)).map_err(|_| ("invalid quoted value", quoted.len()))
}

/// A TraceQL regular expression that matches strings that contain this one.
fn holding(text: &str) -> String {
    let pattern = format!("(?s).*{}.*", regex::escape(text));
    format!("\"{}\"", pattern.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Converts a tag to a condition. Strings must contain the value; numbers must equal it.
fn tag(key: &str, value: &str) -> SpanFilter {
    let holds = || TextTest::Contains(value.to_owned());
    match (key, value) {
        ("service.name", _) => SpanFilter::Service(holds()),
        ("name", _) => SpanFilter::Name(holds()),
        ("status.code", "unset") => SpanFilter::Status(STATUS_UNSET),
        ("status.code", "ok") => SpanFilter::Status(STATUS_OK),
        ("status.code", "error") => SpanFilter::Status(STATUS_ERROR),
        _ => match condition(key.to_owned(), value) {
            SpanFilter::Attribute { place, key, test: AttributeTest::Equals(_, None) } => {
                SpanFilter::Attribute { place, key, test: AttributeTest::Text(holds()) }
            }
            other => other,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags() {
        let asked = |text: &str| {
            let asked = TagSearch::of_tags(text).unwrap();
            (format!("{:?}", asked.spans), asked.query())
        };
        let (spans, query) = asked("service.name=ca name=\"GET /\" status.code=error code=200 route=items");
        let expected = "[Service(Contains(\"ca\")), Name(Contains(\"GET /\")), Status(2), \
            Attribute { place: None, key: \"code\", test: Equals(\"200\", Some(200.0)) }, \
            Attribute { place: None, key: \"route\", test: Text(Contains(\"items\")) }]";
        assert_eq!((spans.as_str(), query.as_str()), (expected, "{}"));
        let (spans, query) = asked(r"root.name=a.b root.service.name=\x");
        let expected = r#"{rootName =~ "(?s).*a\\.b.*" && rootServiceName =~ "(?s).*\\\\x.*"}"#;
        assert_eq!((spans.as_str(), query.as_str()), ("[]", expected));
        let (spans, _) = asked(r#"a="say \"x\" b=c" d=e"#);
        assert!(spans.contains(r#"say \"x\" b=c"#) && spans.contains("key: \"d\""), "{spans}");
        for wrong in ["=x", "a=\"b", "a=b a=c", r#"a="\q""#] {
            assert!(TagSearch::of_tags(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_tags_where_nothing_else_is_said() {
        let given = [
            ("limit", "5"),
            ("service.name", "ca"),
            ("segment", "x"),
            ("root.name", "a"),
            ("code", "200"),
            ("service.name", "other"),
            ("segment.y", "z"),
            ("explain", "true"),
        ];
        let asked = TagSearch::of_names(given.into_iter());
        let spans: Vec<String> = asked.spans.iter().map(ToString::to_string).collect();
        let by_tags = TagSearch::of_tags("service.name=ca root.name=a code=200").unwrap();
        let expected: Vec<String> = by_tags.spans.iter().map(ToString::to_string).collect();
        assert_eq!((&spans, asked.query()), (&expected, by_tags.query()));
        assert_eq!(spans.len(), 2, "{spans:?}");
    }

    #[test]
    fn texts_in_quotes_end_at_their_quote() {
        for (text, expected) in [
            (r#""""#, Some(("", ""))),
            (r#""a""#, Some(("a", ""))),
            (r#""a" b"#, Some(("a", " b"))),
            (r#""a"b"#, Some(("a", "b"))),
            (r#""a\"b" c"#, Some(("a\"b", " c"))),
            (r#""a\\" b"#, Some(("a\\", " b"))),
            (r#""a\\\"" b"#, Some(("a\\\"", " b"))),
            (r#""\u00e4ö""#, Some(("äö", ""))),
            ("\"", None),
            (r#""a"#, None),
            (r#""a\""#, None),
            (r#""a\x""#, None),
        ] {
            let found = unquoted(text);
            let found = found.as_ref().ok().map(|(value, rest)| (value.as_str(), *rest));
            assert_eq!(found, expected, "{text}");
        }
    }

    /// Would fail if special characters of regular expressions or TraceQL strings were not escaped.
    #[test]
    fn roots_are_found_by_parts_of_their_names() {
        for name in ["", "a", "GET /a?b=(c)|[d]*", "back\\slash", "a \"quoted\" b", "new\nline", "$1^", "ä{2}"] {
            let quoted = holding(name);
            let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).expect("quotes");
            // As TraceQL parses it.
            let mut pattern = String::new();
            let mut letters = inner.chars();
            while let Some(c) = letters.next() {
                pattern.push(if c == '\\' { letters.next().expect("a letter") } else { c });
            }
            let whole = regex::Regex::new(&format!("^(?:{pattern})$")).expect("a pattern");
            for (text, expected) in [
                (name.to_owned(), true),
                (format!("x\n{name}\ny"), true),
                (format!("{}{name}", "z".repeat(50)), true),
                ("q".to_owned(), name.is_empty()),
            ] {
                assert_eq!(whole.is_match(&text), expected, "{name:?} in {text:?}");
            }
            let query = format!("{{rootName =~ {quoted}}}");
            assert!(quiver_traces::traceql::Query::parse(&query).is_ok(), "{query}");
        }
    }

    #[test]
    fn tags_with_a_meaning_of_their_own() {
        let shown = |key: &str, value: &str| tag(key, value).to_string();
        for (key, value) in [("status.code", "unset"), ("status.code", "ok"), ("status.code", "error")] {
            assert!(shown(key, value).starts_with("status = "), "{}", shown(key, value));
        }
        // Other words, and other cases, are not states.
        for value in ["OK", "Error", "2", ""] {
            assert!(!shown("status.code", value).starts_with("status = "), "{value}");
        }
        assert!(shown("error", "true").contains("status = 2"));
        assert_eq!(shown("span.kind", "server"), "kind in [2]");
        let [exact, part] = [tag("n", "5"), tag("n", "5x")].map(|filter| format!("{filter:?}"));
        assert!(exact.contains("Equals(\"5\", Some(5.0))") && part.contains("Contains(\"5x\")"), "{exact} {part}");
    }

    #[test]
    fn pairs_stand_apart_by_blanks() {
        let count = |text: &str| TagSearch::of_tags(text).map(|asked| asked.spans.len()).map_err(|e| e.reason);
        for (text, expected) in [
            ("", 0),
            ("   ", 0),
            ("a=b", 1),
            ("  a=b   c=d  ", 2),
            ("a=", 1),
            ("a= b=", 2),
            ("a", 1),
            ("a b", 2),
            ("a=b\tc", 2),
            ("a=\"b\" c", 2),
            ("a=\"b\"c", 2),
        ] {
            assert_eq!(count(text), Ok(expected), "`{text}`");
        }
        assert_eq!(count("a=b a=c"), Err("invalid tags: tag a has been set twice".to_owned()));
        for (wrong, expected) in [
            ("=b", "unexpected '=' at pos 1"),
            ("service.name=foo =error", "unexpected '=' at pos 18"),
            ("service.name=foo=bar", "unexpected '=' at pos 17"),
            ("service.name=\"foo bar", "unterminated quoted value at pos 22"),
            ("\"service name\"=foo", "unexpected '\"' at pos 1"),
            ("a=b\"c", "unexpected '\"' at pos 4"),
            (r#"a="\q" b"#, "invalid quoted value at pos 7"),
        ] {
            assert_eq!(count(wrong), Err(format!("invalid tags: {expected}")), "`{wrong}`");
        }
        assert_eq!(TagSearch::default().query(), "{}");
    }
}
