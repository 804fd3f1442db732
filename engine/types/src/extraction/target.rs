//! Where an extracted value is written, and how it is converted.

use std::borrow::Cow;

use chrono::{DateTime, SecondsFormat, Utc};
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};

use super::RESERVED;
use super::method::{From, Method};
use crate::condition::{ConditionError, FieldName};
use crate::text::form_decoded;
use crate::time::duration::sum_of_units;

/// Maximum length of a field name in bytes.
const FIELD_BYTES_MAX: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Text,
    Int,
    Double,
    Bool,
    DurationMs,
    Timestamp,
}

/// What a conversion made of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum ConvertedValue<'a> {
    /// A text, written unchanged.
    Text(Cow<'a, str>),
    /// Anything else; null removes the field.
    Other(Cow<'a, Value>),
}

impl<'a> ConvertedValue<'a> {
    /// Wraps an existing value.
    pub fn of(value: &'a Value) -> Self {
        match value {
            Value::String(text) => Self::Text(Cow::Borrowed(text)),
            other => Self::Other(Cow::Borrowed(other)),
        }
    }

    /// Copies the value: a text becomes a JSON string.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Text(text) => Value::String(text.to_string()),
            Self::Other(value) => Value::clone(value),
        }
    }
}

/// A target of a rule.
#[derive(Debug, Clone)]
pub struct Target {
    field: String,
    /// The parsed field name.
    name: FieldName,
    from: From,
    kind: Type,
    transform: String,
    on_error: String,
    default: Value,
    overwrite: bool,
}

impl Target {
    pub(super) fn parse(
        map: &Map<String, Value>,
        method: Option<&Method>,
        reserved: bool,
    ) -> Result<Self, Vec<ConditionError>> {
        let mut errors = Vec::new();
        let text = |key: &str| map.get(key).and_then(Value::as_str).filter(|t| !t.is_empty());
        let field = text("field").unwrap_or_default();
        if field.is_empty() {
            errors.push(ConditionError::new("/field", "REQUIRED", "is required"));
        } else if field.len() > FIELD_BYTES_MAX {
            errors.push(ConditionError::new(
                "/field",
                "TOO_LONG",
                format!("must have at most {FIELD_BYTES_MAX} bytes"),
            ));
        } else if RESERVED.contains(&field) && !reserved {
            let why = "is a field of the service itself; `allowReserved` and the right admin let it be written";
            errors.push(ConditionError::new("/field", "INVALID_VALUE", why));
        }
        let from = match method.map(|method| method.from(text("from"))) {
            None => From::Nothing,
            Some(Ok(from)) => from,
            Some(Err((code, why))) => {
                errors.push(ConditionError::new("/from", code, why));
                From::Nothing
            }
        };
        let kind = match text("type").unwrap_or("string") {
            "int" => Type::Int,
            "double" => Type::Double,
            "bool" => Type::Bool,
            "durationMs" => Type::DurationMs,
            "timestamp" => Type::Timestamp,
            _ => Type::Text,
        };
        let default = map.get("default").cloned().unwrap_or(Value::Null);
        if text("onError") == Some("default") && default.is_null() {
            errors.push(ConditionError::new(
                "/default",
                "REQUIRED",
                "goes with `onError` `default`; for none use `null`",
            ));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Self {
            field: field.to_owned(),
            name: FieldName::parse(field),
            from,
            kind,
            transform: text("transform").unwrap_or("none").to_owned(),
            on_error: text("onError").unwrap_or("skip").to_owned(),
            default,
            overwrite: map.get("overwrite").and_then(Value::as_bool).unwrap_or_default(),
        })
    }

    /// The field that it writes.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// The parsed name of that field.
    pub(super) fn name(&self) -> &FieldName {
        &self.name
    }

    /// Tells whether it overwrites an existing value.
    pub(super) fn overwrites(&self) -> bool {
        self.overwrite
    }

    pub(super) fn from(&self) -> &From {
        &self.from
    }

    /// Converts an extracted text. On error, also returns the value to write instead, if any.
    pub(super) fn converted<'a>(
        &'a self,
        raw: Option<Cow<'a, str>>,
    ) -> Result<ConvertedValue<'a>, (String, Option<ConvertedValue<'a>>)> {
        let found = raw.ok_or_else(|| "was not found".to_owned());
        found.and_then(|raw| self.typed(self.transformed(raw)?)).map_err(|why| {
            let instead = match self.on_error.as_str() {
                "null" => Some(ConvertedValue::Other(Cow::Owned(Value::Null))),
                "default" => Some(ConvertedValue::of(&self.default)),
                _ => None,
            };
            (why, instead)
        })
    }

    fn transformed<'a>(&self, raw: Cow<'a, str>) -> Result<Cow<'a, str>, String> {
        Ok(match self.transform.as_str() {
            "trim" => match raw {
                Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
                Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
            },
            "lower" => Cow::Owned(raw.to_lowercase()),
            "upper" => Cow::Owned(raw.to_uppercase()),
            "urlDecode" => Cow::Owned(url_decoded(&raw).ok_or("is no text when it is decoded")?),
            "hash" => {
                let hash = digest(&SHA256, raw.as_bytes());
                Cow::Owned(crate::hex(hash.as_ref()))
            }
            "redact" => Cow::Borrowed("***"),
            _ => raw,
        })
    }

    fn typed<'a>(&self, text: Cow<'a, str>) -> Result<ConvertedValue<'a>, String> {
        let plain = text.trim();
        let (value, what) = match self.kind {
            Type::Text => return Ok(ConvertedValue::Text(text)),
            Type::Int => (plain.parse::<i64>().ok().map(|n| json!(n)), "whole number"),
            Type::Double => (plain.parse::<f64>().ok().filter(|n| n.is_finite()).map(|n| json!(n)), "number"),
            Type::Bool => {
                let truth = match plain.to_ascii_lowercase().as_str() {
                    "true" | "1" | "yes" => Some(json!(true)),
                    "false" | "0" | "no" => Some(json!(false)),
                    _ => None,
                };
                (truth, "truth value")
            }
            Type::DurationMs => (duration_ms(plain).map(|n| json!(n)), "duration"),
            Type::Timestamp => {
                return timestamp(plain)
                    .map(|t| ConvertedValue::Text(Cow::Owned(t)))
                    .ok_or_else(|| "is no time".to_owned());
            }
        };
        value.map(|value| ConvertedValue::Other(Cow::Owned(value))).ok_or_else(|| format!("is no {what}"))
    }
}

fn url_decoded(text: &str) -> Option<String> {
    String::from_utf8(form_decoded(text)).ok()
}

/// Parses `250`, `1.5s` or `2m30s` to milliseconds.
fn duration_ms(text: &str) -> Option<f64> {
    if let Ok(number) = text.parse::<f64>() {
        return Some(number).filter(|n| n.is_finite());
    }
    let millis = |unit: &str| {
        Some(match unit.trim() {
            "ns" => 1e-6,
            "us" | "µs" => 1e-3,
            "ms" => 1.0,
            "s" => 1e3,
            "m" | "min" => 6e4,
            "h" => 3.6e6,
            "d" => 8.64e7,
            _ => return None,
        })
    };
    sum_of_units(text, |number| number.parse().ok(), millis).filter(|total| total.is_finite())
}

/// Parses RFC 3339, or Unix seconds, milliseconds, microseconds or nanoseconds, distinguished by magnitude.
fn timestamp(text: &str) -> Option<String> {
    let time = match text.parse::<f64>() {
        // NaN would convert to 0, which is 1970.
        Ok(number) if number.is_nan() => return None,
        Ok(number) => {
            let ms = match number.abs() {
                n if n < 1e11 => number * 1e3,
                n if n < 1e14 => number,
                n if n < 1e17 => number / 1e3,
                _ => number / 1e6,
            };
            DateTime::<Utc>::from_timestamp_millis(ms as i64)?
        }
        Err(_) => DateTime::parse_from_rfc3339(text).ok()?.to_utc(),
    };
    Some(time.to_rfc3339_opts(SecondsFormat::Millis, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(members: &Value) -> Target {
        let mut map = members.as_object().expect("an object").clone();
        map.insert("field".to_owned(), json!("x"));
        Target::parse(&map, None, false).unwrap_or_else(|e| panic!("{members}: {e:?}"))
    }

    /// What a target makes of a text: the value, or why it is none.
    fn made(members: &Value, text: &str) -> Result<Value, String> {
        target(members).converted(Some(Cow::Borrowed(text))).map(|made| made.to_json()).map_err(|(why, _)| why)
    }

    #[test]
    fn numbers_that_fit() {
        let check = |kind: &str, text: &str, expected: Result<Value, &str>| {
            assert_eq!(made(&json!({"type": kind}), text), expected.map_err(str::to_owned), "{kind} {text:?}");
        };
        check("int", " -12 ", Ok(json!(-12)));
        check("int", "9223372036854775807", Ok(json!(i64::MAX)));
        check("int", "-9223372036854775808", Ok(json!(i64::MIN)));
        for text in ["9223372036854775808", "1.0", "1e3", "0x10", "", " ", "1_000", "١"] {
            check("int", text, Err("is no whole number"));
        }
        check("double", "-1.5e-3", Ok(json!(-0.0015)));
        check("double", "+7", Ok(json!(7.0)));
        for text in ["NaN", "inf", "-infinity", "1e999", "1,5", "", "1.5s"] {
            check("double", text, Err("is no number"));
        }
        for text in ["true", "TRUE", "1", "Yes", " yes\n"] {
            check("bool", text, Ok(json!(true)));
        }
        for text in ["false", "0", "No"] {
            check("bool", text, Ok(json!(false)));
        }
        for text in ["", "on", "2", "y", "truе"] {
            check("bool", text, Err("is no truth value"));
        }
        check("string", " as it is ", Ok(json!(" as it is ")));
        check("no such type", "x", Ok(json!("x")));
    }

    #[test]
    fn durations_become_milliseconds() {
        for (text, expected) in [
            ("250", Some(250.0)),
            ("-1.5", Some(-1.5)),
            ("1e3", Some(1000.0)),
            ("1.5s", Some(1500.0)),
            ("2m30s", Some(150_000.0)),
            ("1h 30 min", Some(5_400_000.0)),
            ("1d", Some(86_400_000.0)),
            ("250us", Some(0.25)),
            ("250µs", Some(0.25)),
            ("1000000ns", Some(1.0)),
            ("0s", Some(0.0)),
            ("5ms5ms", Some(10.0)),
            ("", None),
            ("s", None),
            ("-5s", None),
            ("1.2.3s", None),
            ("5 parsecs", None),
            ("5s5", None),
            ("NaN", None),
            ("inf", None),
        ] {
            assert_eq!(duration_ms(text), expected, "{text}");
        }
        // What is beyond all numbers would be null as JSON.
        assert_eq!(duration_ms(&format!("{}d", "9".repeat(400))), None);
        assert!(made(&json!({"type": "durationMs"}), &format!("{}d", "9".repeat(400))).is_err());
    }

    #[test]
    fn times_are_told_apart_by_their_size() {
        for (text, expected) in [
            ("0", Some("1970-01-01T00:00:00.000Z")),
            ("1700000000", Some("2023-11-14T22:13:20.000Z")),
            ("1700000000.25", Some("2023-11-14T22:13:20.250Z")),
            ("1700000000123", Some("2023-11-14T22:13:20.123Z")),
            ("1700000000123456", Some("2023-11-14T22:13:20.123Z")),
            ("1700000000123456789", Some("2023-11-14T22:13:20.123Z")),
            ("1.7e9", Some("2023-11-14T22:13:20.000Z")),
            ("-1", Some("1969-12-31T23:59:59.000Z")),
            ("-1700000000000", Some("1916-02-18T01:46:40.000Z")),
            ("2024-02-29T12:00:00+01:00", Some("2024-02-29T11:00:00.000Z")),
            ("2024-02-29T23:59:59.9999Z", Some("2024-02-29T23:59:59.999Z")),
            ("2024-02-30T00:00:00Z", None),
            ("2024-02-29", None),
            ("2024-02-29T12:00:00", None),
            ("yesterday", None),
            ("", None),
            ("NaN", None),
            ("inf", None),
            ("-inf", None),
        ] {
            assert_eq!(timestamp(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        for (text, expected) in [
            ("a%20b+c", Some("a b c")),
            ("%C3%A4ä", Some("ää")),
            ("100%", Some("100%")),
            ("%", Some("%")),
            ("%4", Some("%4")),
            ("%zz%41", Some("%zzA")),
            ("%2B%25", Some("+%")),
            ("", Some("")),
            ("%ff", None),
            ("%c3", None),
        ] {
            assert_eq!(url_decoded(text).as_deref(), expected, "{text}");
        }
        let why = made(&json!({"transform": "urlDecode"}), "%ff");
        assert_eq!(why, Err("is no text when it is decoded".to_owned()));
    }

    #[test]
    fn transforms_come_before_types() {
        let check = |members: Value, text: &str, expected: Value| {
            assert_eq!(made(&members, text), Ok(expected), "{members} {text}");
        };
        check(json!({"transform": "trim"}), " \u{a0}a b\t", json!("a b"));
        check(json!({"transform": "lower"}), "ÄÖ STRASSE", json!("äö strasse"));
        check(json!({"transform": "upper"}), "straße", json!("STRASSE"));
        check(json!({"transform": "redact"}), "", json!("***"));
        check(json!({"transform": "urlDecode", "type": "int"}), "%31%32", json!(12));
        check(json!({"transform": "lower", "type": "durationMs"}), "5MIN", json!(300_000.0));
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        check(json!({"transform": "hash"}), "", json!(empty));
        check(json!({"transform": "none"}), "A", json!("A"));
    }

    #[test]
    fn errors_come_with_what_is_written_instead() {
        let instead = |members: Value, text: Option<&str>| {
            let target = target(&members);
            let (why, instead) = target.converted(text.map(Cow::Borrowed)).expect_err("it cannot be made");
            (why, instead.map(|made| made.to_json()))
        };
        let missing = || "was not found".to_owned();
        assert_eq!(instead(json!({}), None), (missing(), None));
        assert_eq!(instead(json!({"onError": "skip"}), None), (missing(), None));
        assert_eq!(instead(json!({"onError": "null"}), None), (missing(), Some(json!(null))));
        let default = json!({"onError": "default", "default": {"a": [1]}, "type": "bool"});
        assert_eq!(instead(default, Some("maybe")), ("is no truth value".to_owned(), Some(json!({"a": [1]}))));
        let time = json!({"onError": "default", "default": "never", "type": "timestamp"});
        assert_eq!(instead(time, Some("NaN")), ("is no time".to_owned(), Some(json!("never"))));
    }

    #[test]
    fn fields_have_names() {
        let errors = |members: Value, reserved: bool| {
            let map = members.as_object().expect("an object");
            let errors = Target::parse(map, None, reserved).err().unwrap_or_default();
            errors.into_iter().map(|e| format!("{} {}", e.pointer, e.code)).collect::<Vec<_>>()
        };
        assert_eq!(errors(json!({}), false), ["/field REQUIRED"]);
        assert_eq!(errors(json!({"field": ""}), false), ["/field REQUIRED"]);
        assert_eq!(errors(json!({"field": 7}), false), ["/field REQUIRED"]);
        assert_eq!(errors(json!({"field": "ä".repeat(64)}), false), Vec::<String>::new());
        assert_eq!(errors(json!({"field": "ä".repeat(65)}), false), ["/field TOO_LONG"]);
        assert_eq!(errors(json!({"field": "_time"}), false), ["/field INVALID_VALUE"]);
        assert_eq!(errors(json!({"field": "_time"}), true), Vec::<String>::new());
        assert_eq!(errors(json!({"field": "x", "onError": "default"}), false), ["/default REQUIRED"]);
        let both = json!({"field": "", "onError": "default", "default": null});
        assert_eq!(errors(both, false), ["/field REQUIRED", "/default REQUIRED"]);
    }
}
