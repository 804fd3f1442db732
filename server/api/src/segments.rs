//! Segments, applied below queries (`config-api` 3.5): `segment=<key>`, repeatable and combined by AND, with
//! `segment.<variable>=<value>`.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::StatusCode;
use quiver_config::Entity;
use quiver_config::families::{SEGMENTS, is_of_type};
use quiver_types::condition::{Condition, bind};
use quiver_types::matcher::Patterns;
use quiver_types::{Error, Result};
use serde_json::{Map, Value, json};

use crate::encode::prometheus::error_response;
use crate::forbidden_records::problem_of;
use crate::identity::{RequestOrigin, caller};
use crate::state::AppState;

pub(crate) mod active_segments;
mod logs;
pub(crate) mod preview;
mod scan_filters;
mod series;

pub(crate) use logs::text_of;
pub(crate) use scan_filters::{acts_on, acts_on_traces, begin, is_segment};

/// Most segments of a query.
const SEGMENTS_MAX: usize = 20;

/// What a segment does to a signal.
#[derive(Debug, Clone)]
pub(crate) enum SegmentFilter {
    /// Only what fulfils a condition is there.
    To(Condition),
    /// Nothing is there: the segment is strict and says nothing of the signal.
    ToNothing,
}

/// Reads the segments of a request, as the caller sees them. Segments that do not narrow the signal are left out.
///
/// # Errors
/// Invalid: a segment that is not there, a variable that none of them has, a value of another type, or none.
pub(crate) fn of_request<'a>(
    state: &AppState,
    parameters: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    signal: &str,
) -> Result<Vec<SegmentFilter>> {
    Ok(bound(state, parameters, signal)?.into_iter().map(|(_, narrowed)| narrowed).collect())
}

/// The same, each with the text of its condition.
fn bound<'a>(
    state: &AppState,
    parameters: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    signal: &str,
) -> Result<Vec<(String, SegmentFilter)>> {
    let keys: Vec<&str> = parameters.clone().filter(|(name, _)| *name == "segment").map(|(_, key)| key).collect();
    let given: Vec<(&str, &str)> =
        parameters.filter_map(|(name, value)| Some((name.strip_prefix("segment.")?, value))).collect();
    if keys.len() > SEGMENTS_MAX {
        return Err(Error::invalid(format!("a query takes at most {SEGMENTS_MAX} segments")));
    }
    if keys.is_empty() {
        return match given.first() {
            Some((name, _)) => Err(Error::invalid(format!("`segment.{name}` without a `segment`"))),
            None => Ok(Vec::new()),
        };
    }
    let who = caller(&state.identity(), RequestOrigin::default());
    let all = state.effects.segments();
    let mut narrowed = Vec::new();
    let mut known: Vec<String> = Vec::new();
    let mut patterns = Patterns::default();
    for key in keys {
        let named = |e: &&Entity| e.body.get("key").and_then(Value::as_str) == Some(key);
        let found = all.iter().find(|e| named(e) && SEGMENTS.is_visible(&who, e));
        let segment = found.ok_or_else(|| unknown(key))?;
        narrowed.extend(filter_of(&segment.body, (key, signal), &given, &mut known, &mut patterns)?);
    }
    match given.iter().find(|(name, _)| known.iter().all(|k| k != name)) {
        Some((name, _)) => Err(Error::invalid(format!("no segment of the query has a variable `{name}`"))),
        None => Ok(narrowed),
    }
}

/// What is told of a segment that is not there, or not for this caller.
pub(crate) fn unknown(key: &str) -> Error {
    Error::invalid(format!("unknown segment `{key}`"))
}

/// What one segment does to a signal; `patterns` are those of all segments of the query.
fn filter_of(
    body: &Map<String, Value>,
    (key, signal): (&str, &str),
    given: &[(&str, &str)],
    known: &mut Vec<String>,
    patterns: &mut Patterns,
) -> Result<Option<(String, SegmentFilter)>> {
    let variables = variables_of(body, given, known)?;
    match body.get("conditions").and_then(|c| c.get(signal)).filter(|c| !c.is_null()) {
        Some(condition) => {
            let bound =
                bind(condition, &variables).map_err(|e| Error::invalid(format!("segment `{key}`: {}", e.message)))?;
            count_patterns(&bound, patterns)?;
            let compiled = Condition::parse(&bound).map_err(|errors| {
                let why = errors.first().map(ToString::to_string).unwrap_or_default();
                Error::invalid(format!("segment `{key}`: {why}"))
            })?;
            Ok(Some((bound.to_string(), SegmentFilter::To(compiled))))
        }
        None if body.get("strict") == Some(&Value::Bool(true)) => Ok(Some((String::new(), SegmentFilter::ToNothing))),
        None => Ok(None),
    }
}

/// Counts the regular expressions of a condition before they are compiled: a segment may hold 50, and a query 20 segments.
fn count_patterns(condition: &Value, patterns: &mut Patterns) -> Result<()> {
    match condition {
        Value::Object(leaf) if leaf.get("op") == Some(&json!("regex")) => {
            let text = leaf.get("value").and_then(Value::as_str).unwrap_or_default();
            let folded = leaf.get("caseSensitive") == Some(&json!(false));
            patterns.count(&if folded { format!("(?i){text}") } else { text.to_owned() })
        }
        Value::Object(parts) => parts.values().try_for_each(|part| count_patterns(part, patterns)),
        Value::Array(parts) => parts.iter().try_for_each(|part| count_patterns(part, patterns)),
        _ => Ok(()),
    }
}

/// The values of a segment's variables: given, or their defaults.
fn variables_of(
    body: &Map<String, Value>,
    given: &[(&str, &str)],
    known: &mut Vec<String>,
) -> Result<Map<String, Value>> {
    let mut values = Map::new();
    let variables = body.get("variables").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for variable in variables {
        let text = |key: &str| variable.get(key).and_then(Value::as_str).unwrap_or_default();
        let (name, kind, multi) = (text("name"), text("type"), variable.get("multi") == Some(&json!(true)));
        known.push(name.to_owned());
        let own: Vec<Value> = given.iter().filter(|(n, _)| *n == name).map(|(_, v)| typed(v, kind)).collect();
        let value = match (own.len(), multi) {
            (0, _) => variable.get("default").cloned().unwrap_or(Value::Null),
            (_, true) => Value::Array(own),
            (1, false) => own.into_iter().next().unwrap_or(Value::Null),
            (_, false) => return Err(Error::invalid(format!("`segment.{name}` takes one value"))),
        };
        if !value.is_null() && !is_of_type(&value, kind, multi) {
            return Err(Error::invalid(format!("`segment.{name}` must be of type {kind}")));
        }
        values.insert(name.to_owned(), value);
    }
    Ok(values)
}

/// A value as it is given; what is none of the variable's type stays a text, and is refused as one.
fn typed(text: &str, kind: &str) -> Value {
    let read = || serde_json::from_str(text).ok().filter(|value: &Value| !value.is_null());
    match kind {
        "number" | "bool" => read().unwrap_or_else(|| json!(text)),
        _ => json!(text),
    }
}

/// Refuses segments where they do not act: a query that would ignore one would show more than was asked for.
pub(crate) async fn refuse(request: Request, next: Next) -> Response {
    match refusal(&request) {
        Some(text) if request.uri().path().starts_with("/olap-api/") => {
            problem_of(StatusCode::BAD_REQUEST, "INVALID_PARAMETER", text)
        }
        Some(text) => error_response(&Error::invalid(text), "segment"),
        None => next.run(request).await,
    }
}

/// What is told of a request that names a segment where none acts.
pub(crate) fn refusal(request: &Request) -> Option<&'static str> {
    let path = request.uri().path();
    // What is sent to these paths is stored as it is.
    let acts = acts_on(path) || (request.method().is_safe() && acts_on_traces(path));
    let query = request.uri().query().unwrap_or_default();
    let named = || url::form_urlencoded::parse(query.as_bytes()).any(|(name, _)| is_segment(&name));
    (!acts && named()).then_some("`segment` is not supported on this path")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(values: &[(&str, &str)]) -> Result<Value> {
        let variables = json!([
            {"name": "n", "type": "number", "default": 5},
            {"name": "b", "type": "bool"},
            {"name": "s", "type": "string"},
            {"name": "many", "type": "number", "multi": true},
        ]);
        let body: Map<String, Value> = [("variables".to_owned(), variables)].into_iter().collect();
        let mut known = Vec::new();
        let found = variables_of(&body, values, &mut known)?;
        assert_eq!(known, ["n", "b", "s", "many"]);
        Ok(Value::Object(found))
    }

    #[test]
    fn variables_have_what_is_given_or_their_defaults() {
        let check = |values: &[(&str, &str)], expected: Value| {
            let mut all = json!({"n": 5, "b": null, "s": null, "many": null});
            for (name, value) in expected.as_object().unwrap() {
                all[name] = value.clone();
            }
            assert_eq!(given(values).unwrap(), all, "{values:?}");
        };
        check(&[], json!({}));
        check(&[("n", "7"), ("b", "false")], json!({"n": 7, "b": false}));
        check(&[("n", "-1.5"), ("s", "")], json!({"n": -1.5, "s": ""}));
        // A text is one, whatever it looks like.
        for text in ["7", "true", "null", "[1]"] {
            check(&[("s", text)], json!({"s": text}));
        }
        check(&[("many", "1")], json!({"many": [1]}));
        check(&[("many", "2"), ("s", "x"), ("many", "1"), ("many", "2")], json!({"many": [2, 1, 2], "s": "x"}));
        // Names of variables of other segments are not for this one.
        check(&[("other", "1")], json!({}));
    }

    /// Breaks if an unreadable value counts as missing: a signal whose condition does not name the variable was
    /// answered as if all were well, and others were told that the variable has no value.
    #[test]
    fn values_of_another_type_are_refused() {
        for text in ["x", "", "null", "true", "\"1\"", "[1]", "1,2", "NaN", "0x1"] {
            for name in ["n", "many"] {
                let why = given(&[(name, text)]).unwrap_err().message;
                assert_eq!(why, format!("`segment.{name}` must be of type number"), "{text}");
            }
        }
        for text in ["x", "", "null", "1", "TRUE", "yes"] {
            let why = given(&[("b", text)]).unwrap_err().message;
            assert_eq!(why, "`segment.b` must be of type bool", "{text}");
        }
        let why = given(&[("many", "1"), ("many", "x")]).unwrap_err().message;
        assert_eq!(why, "`segment.many` must be of type number");
        assert_eq!(given(&[("s", "a"), ("s", "a")]).unwrap_err().message, "`segment.s` takes one value");
    }

    #[test]
    fn texts_are_values_of_the_type_of_their_variable() {
        for (text, kind, expected) in [
            ("5", "number", json!(5)),
            ("-0.5e1", "number", json!(-5.0)),
            ("true", "number", json!(true)),
            ("null", "number", json!("null")),
            ("", "number", json!("")),
            (" 5 ", "number", json!(5)),
            ("5 6", "number", json!("5 6")),
            ("[5]", "number", json!([5])),
            ("true", "bool", json!(true)),
            ("True", "bool", json!("True")),
            ("\"a\"", "bool", json!("a")),
            ("5", "string", json!("5")),
            ("null", "string", json!("null")),
            ("5", "", json!("5")),
        ] {
            assert_eq!(typed(text, kind), expected, "{text} as {kind}");
        }
    }

    fn segment(body: Value) -> Map<String, Value> {
        body.as_object().cloned().expect("an object")
    }

    /// What a segment does to logs: the text of its condition, nothing at all, or no row.
    fn narrowed(body: Value, given: &[(&str, &str)]) -> std::result::Result<Option<String>, String> {
        let found = filter_of(&segment(body), ("k", "logs"), given, &mut Vec::new(), &mut Patterns::default())
            .map_err(|error| error.message)?;
        Ok(found.map(|(text, narrowed)| match narrowed {
            SegmentFilter::To(condition) => text_of(&condition),
            SegmentFilter::ToNothing => format!("nothing{text}"),
        }))
    }

    #[test]
    fn a_segment_narrows_the_signals_that_it_speaks_of() {
        let leaf = json!({"field": "a", "op": "eq", "value": "x"});
        for (body, expected) in [
            (json!({}), None),
            (json!({"conditions": {"spans": leaf}}), None),
            (json!({"conditions": {"logs": null}}), None),
            (json!({"strict": false, "conditions": {"spans": leaf}}), None),
            (json!({"strict": true, "conditions": {"spans": leaf}}), Some("nothing")),
            (json!({"strict": true, "conditions": {"logs": null}}), Some("nothing")),
            (json!({"strict": "true"}), None),
            (json!({"strict": true, "conditions": {"logs": leaf}}), Some(r#"("a":="x")"#)),
        ] {
            assert_eq!(narrowed(body.clone(), &[]), Ok(expected.map(str::to_owned)), "{body}");
        }
        let wrong = json!({"conditions": {"logs": {"field": "a", "op": "none", "value": "x"}}});
        assert!(narrowed(wrong, &[]).is_err_and(|text| text.starts_with("segment `k`: ")));
    }

    /// All of a query have the room of one query together: twelve segments of 49 large patterns took 8 s and 500 MiB.
    #[test]
    fn patterns_of_all_segments_are_bounded() {
        let leaf = |n: usize| json!({"field": "a", "op": "regex", "value": format!("x{n}\\pL{{20}}")});
        let many = |from: usize, to: usize| {
            let leaves: Vec<Value> = (from..to).map(leaf).collect();
            let body = json!({"conditions": {"logs": {"any": [{"not": {"all": leaves}}]}}});
            body.as_object().unwrap().clone()
        };
        let mut patterns = Patterns::default();
        let mut one = |body: Map<String, Value>| {
            let found = filter_of(&body, ("k", "logs"), &[], &mut Vec::new(), &mut patterns);
            found.map(|_| ()).map_err(|error| error.kind)
        };
        assert_eq!(one(many(0, 5)), Ok(()));
        assert_eq!(one(many(0, 5)), Ok(()), "the same ones");
        assert_eq!(one(many(5, 40)), Err(quiver_types::ErrorKind::LimitExceeded));
        // Small ones are not counted together with them.
        let mut patterns = Patterns::default();
        for n in 0..20 {
            let leaf = json!({"field": "a", "op": "regex", "value": format!("^cart-{n}.*"), "caseSensitive": false});
            assert!(count_patterns(&leaf, &mut patterns).is_ok(), "{n}");
        }
    }

    #[test]
    fn variables_stand_in_conditions() {
        let body = json!({
            "variables": [{"name": "env", "type": "string", "default": "prod"}, {"name": "no", "type": "string"}],
            "conditions": {"logs": {"field": "env", "op": "eq", "value": "$env"}},
        });
        assert_eq!(narrowed(body.clone(), &[]), Ok(Some(r#"("env":="prod")"#.to_owned())));
        assert_eq!(narrowed(body.clone(), &[("env", "a \"b\"")]), Ok(Some(r#"("env":="a \"b\"")"#.to_owned())));
        assert!(
            narrowed(body, &[("env", "a"), ("env", "b")]).is_err_and(|text| text == "`segment.env` takes one value")
        );
        // One without a value is asked for where a condition needs it.
        let lacking = json!({
            "variables": [{"name": "env", "type": "string"}],
            "conditions": {"logs": {"field": "env", "op": "eq", "value": "$env"}},
        });
        assert!(narrowed(lacking, &[]).is_err_and(|text| text.starts_with("segment `k`: ")));
    }
}
