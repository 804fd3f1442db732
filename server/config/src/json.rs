//! JSON as strangers send it: no key twice, no deep nesting, errors with their place; and RFC 7396.

use std::fmt;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::problem::{Problem, ProblemKind, Result};

/// Deepest nesting of a body.
const DEPTH_MAX: usize = 64;
/// Longest text of a sender that an error repeats, in characters.
const SHOWN_MAX: usize = 100;

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

/// Cuts a sender's text to what an error may repeat.
pub(crate) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().filter(|c| !c.is_control()).take(SHOWN_MAX).collect();
    if text.chars().count() > SHOWN_MAX {
        shown.push('…');
    }
    shown
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
                return Err(de::Error::custom(format!("key `{}` stands twice", shown(&key))));
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
    fn strict() {
        let check = |text: &str, part: &str| match parse(text.as_bytes()) {
            Ok(value) => panic!("{text} read as {value}"),
            Err(problem) => assert!(problem.detail.contains(part), "{text}: {}", problem.detail),
        };
        check(r#"{"a":1,"a":2}"#, "key `a` stands twice");
        check(r#"{"a":{"b":1,"b":2}}"#, "stands twice");
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
}
