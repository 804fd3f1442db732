//! JSON from clients: no repeated keys, no deep nesting, errors with their place; and merge patches (RFC 7396).

use std::fmt;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::problem::{Problem, ProblemKind, Result, shown};

/// Deepest nesting of a body.
const DEPTH_MAX: usize = 64;

/// Reads a body.
///
/// # Errors
/// `MALFORMED_JSON`, with line and column.
pub fn parse(text: &[u8]) -> Result<Value> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = Strict(DEPTH_MAX).deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    value.map_err(|error| {
        let whole = error.to_string();
        let what = whole.rsplit_once(" at line ").map_or(whole.as_str(), |(what, _)| what);
        let detail = format!("{what} (line {}, column {})", error.line(), error.column());
        Problem::new(ProblemKind::Malformed, "MALFORMED_JSON", detail)
            .with("line", error.line().into())
            .with("column", error.column().into())
    })
}

/// Reads a body that is an object.
///
/// # Errors
/// As [`parse`]; `INVALID_TYPE` when it is something else.
pub fn object(text: &[u8]) -> Result<Map<String, Value>> {
    match parse(text)? {
        Value::Object(map) => Ok(map),
        _ => Err(Problem::field("", "INVALID_TYPE", "the body must be an object")),
    }
}

/// A text of a body; empty where there is none.
pub fn text<'b>(body: &'b Map<String, Value>, key: &str) -> &'b str {
    body.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Changes a value by a merge patch: null removes, objects are merged, all else replaces.
pub fn merge(target: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (key, value) in patch {
        match (target.get_mut(&key), value) {
            (_, Value::Null) => {
                target.remove(&key);
            }
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (_, Value::Object(new)) => {
                let mut fresh = Map::new();
                merge(&mut fresh, new);
                target.insert(key, Value::Object(fresh));
            }
            (_, value) => {
                target.insert(key, value);
            }
        }
    }
}

/// Writes a time as the API shows it.
pub fn time_text(ms: i64) -> String {
    DateTime::<Utc>::from_timestamp_millis(ms)
        .map_or_else(|| ms.to_string(), |t| t.to_rfc3339_opts(SecondsFormat::Millis, true))
}

/// Reads a time (RFC 3339).
pub fn time_of(text: &str) -> Option<i64> {
    DateTime::parse_from_rfc3339(text).ok().map(|t| t.timestamp_millis())
}

/// A reader of values that refuses what `serde_json` lets pass.
struct Strict(usize);

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Strict {
    fn below<E: de::Error>(&self) -> Result<Self, E> {
        match self.0.checked_sub(1) {
            Some(left) => Ok(Self(left)),
            None => Err(E::custom(format!("nested deeper than {DEPTH_MAX}"))),
        }
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            match items.next_element_seed(self.below()?)? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(de::Error::custom(format!("key `{}` is given more than once", shown(&key))));
            }
            let value = members.next_value_seed(self.below()?)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_of_bodies() {
        let entity = crate::Entity::for_tests("e", json!({"name": "a", "count": 5, "none": null}));
        for (key, expected) in [("name", "a"), ("count", ""), ("none", ""), ("missing", "")] {
            assert_eq!((text(&entity.body, key), entity.text(key)), (expected, expected), "{key}");
        }
    }

    #[test]
    fn strict() {
        let check = |text: &str, part: &str| match parse(text.as_bytes()) {
            Ok(value) => panic!("{text} read as {value}"),
            Err(problem) => assert!(problem.detail.contains(part), "{text}: {}", problem.detail),
        };
        check(r#"{"a":1,"a":2}"#, "key `a` is given more than once");
        check(r#"{"a":{"b":1,"b":2}}"#, "is given more than once");
        check(&"[".repeat(1000), "nested deeper than 64");
        check("{\n  \"a\": }", "(line 2, column 8)");
        check("{} x", "trailing");
        check("", "EOF");
        assert_eq!(parse(br#"{"a":[1,-2,1.5,null,true,"x"]}"#).unwrap(), json!({"a": [1, -2, 1.5, null, true, "x"]}));
    }

    /// The examples of RFC 7396, appendix A, whose target is an object.
    #[test]
    fn merging() {
        let check = |target: Value, patch: Value, expected: Value| {
            let (Value::Object(mut target), Value::Object(patch)) = (target, patch) else { panic!("objects") };
            merge(&mut target, patch);
            assert_eq!(Value::Object(target), expected);
        };
        check(json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"}));
        check(json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"}));
        check(json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"}));
        check(json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"}));
        check(json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}}));
        check(json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1}));
        check(json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}}));
    }

    #[test]
    fn what_is_no_body() {
        for (text, part) in [
            (" ", "EOF"),
            ("{", "EOF"),
            ("[1,]", "(line 1, column 4)"),
            ("{\"a\":1,}", "(line 1, column 8)"),
            ("{a:1}", "(line 1, column 2)"),
            ("'a'", "(line 1, column 1)"),
            ("01", "(line 1, column 2)"),
            ("1e400", "number out of range"),
            ("NaN", "(line 1, column 1)"),
            ("\"\\ud800\"", "hex escape"),
            ("\"a\nb\"", "control character"),
            ("{}{}", "trailing characters"),
            ("{\"a\":{\"b\":1},\"a\":2}", "key `a` is given more than once"),
            ("[{\"\":1,\"\":2}]", "key `` is given more than once"),
        ] {
            let problem = parse(text.as_bytes()).expect_err(text);
            assert_eq!((problem.code, problem.kind), ("MALFORMED_JSON", ProblemKind::Malformed));
            assert!(problem.detail.contains(part), "{text}: {}", problem.detail);
            assert!(problem.more["line"].is_u64() && problem.more["column"].is_u64());
        }
        assert!(parse(b"\xff").is_err() && parse(b"\"\xff\"").is_err(), "no UTF-8");
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(parse(nested(DEPTH_MAX).as_bytes()).is_ok() && parse(nested(DEPTH_MAX + 2).as_bytes()).is_err());
        // The same key in another object is another one, and case tells keys apart.
        assert!(parse(br#"{"a":{"a":1},"A":[{"a":1},{"a":1}]}"#).is_ok());
    }

    #[test]
    fn bodies_are_objects() {
        assert_eq!(object(b"{}").unwrap(), Map::new());
        for text in ["[]", "null", "1", "\"{}\"", "true"] {
            let problem = object(text.as_bytes()).expect_err(text);
            assert_eq!((problem.code, problem.errors[0].code), ("VALIDATION_FAILED", "INVALID_TYPE"), "{text}");
        }
        assert_eq!(object(b"{").unwrap_err().code, "MALFORMED_JSON");
    }

    #[test]
    fn times() {
        for (text, ms, shown) in [
            ("1970-01-01T00:00:00Z", 0, "1970-01-01T00:00:00.000Z"),
            ("2026-01-31T13:00:00.1239+01:00", 1_769_860_800_123, "2026-01-31T12:00:00.123Z"),
            ("1969-12-31T23:59:59.999Z", -1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(time_of(text), Some(ms), "{text}");
            assert_eq!(time_text(ms), shown, "{text}");
            assert_eq!(time_of(shown), Some(ms), "{text}");
        }
        for text in ["", "2026-01-31", "2026-01-31T12:00:00", "2026-02-30T12:00:00Z", "1769860800", "now"] {
            assert_eq!(time_of(text), None, "{text}");
        }
        assert_eq!(time_text(i64::MAX), i64::MAX.to_string(), "no time that a calendar has");
    }

    #[test]
    fn merging_what_is_deep() {
        let check = |target: Value, patch: Value, expected: Value| {
            let (Value::Object(mut target), Value::Object(patch)) = (target, patch) else { panic!("objects") };
            merge(&mut target, patch);
            assert_eq!(Value::Object(target), expected);
        };
        check(json!({}), json!({}), json!({}));
        check(json!({"a": 1}), json!({"b": null}), json!({"a": 1}));
        check(json!({"a": {"b": {"c": 1, "d": 2}}}), json!({"a": {"b": {"c": null}}}), json!({"a": {"b": {"d": 2}}}));
        // Lists are replaced as a whole, with nulls in them.
        check(json!({"a": [1, 2]}), json!({"a": [null]}), json!({"a": [null]}));
        check(json!({"a": [{"b": 1}]}), json!({"a": [{"c": null}]}), json!({"a": [{"c": null}]}));
        // What was no object becomes one, without its nulls.
        check(json!({"a": 1}), json!({"a": {"b": null, "c": 2}}), json!({"a": {"c": 2}}));
        check(json!({"a": [1]}), json!({"a": {"b": {"c": null}}}), json!({"a": {"b": {}}}));
        check(json!({"a": {"b": 1}}), json!({"a": 5}), json!({"a": 5}));
        check(json!({"a": {"b": 1}}), json!({"a": {}}), json!({"a": {"b": 1}}));
        check(json!({"a": {"b": 1}}), json!({"a": null}), json!({}));
    }
}
