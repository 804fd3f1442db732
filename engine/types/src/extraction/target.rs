//! Where a value goes, and what it becomes on the way.

use std::borrow::Cow;

use aws_lc_rs::digest::{SHA256, digest};
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Map, Value, json};

use super::RESERVED;
use super::method::{From, Method};
use crate::condition::{ConditionError, FieldName};

/// Longest name of a field, in bytes.
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

/// What a target made of what it took.
#[derive(Debug, Clone, PartialEq)]
pub enum Made<'a> {
    /// A text.
    Text(Cow<'a, str>),
    /// Anything else; null takes the field away.
    Other(Cow<'a, Value>),
}

impl<'a> Made<'a> {
    /// Takes a value that is there.
    pub fn of(value: &'a Value) -> Self {
        match value {
            Value::String(text) => Self::Text(Cow::Borrowed(text)),
            other => Self::Other(Cow::Borrowed(other)),
        }
    }

    /// The value.
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
    /// The field as it is looked up.
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

    /// The same as it is looked up.
    pub(super) fn name(&self) -> &FieldName {
        &self.name
    }

    /// Says whether it writes over what is there.
    pub(super) fn overwrites(&self) -> bool {
        self.overwrite
    }

    pub(super) fn from(&self) -> &From {
        &self.from
    }

    /// Makes the value. An error comes with what is written instead; none: nothing.
    pub(super) fn made<'a>(&'a self, raw: Option<Cow<'a, str>>) -> Result<Made<'a>, (String, Option<Made<'a>>)> {
        let found = raw.ok_or_else(|| "was not found".to_owned());
        found.and_then(|raw| self.typed(self.transformed(raw)?)).map_err(|why| {
            let instead = match self.on_error.as_str() {
                "null" => Some(Made::Other(Cow::Owned(Value::Null))),
                "default" => Some(Made::of(&self.default)),
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

    fn typed<'a>(&self, text: Cow<'a, str>) -> Result<Made<'a>, String> {
        let plain = text.trim();
        let (value, what) = match self.kind {
            Type::Text => return Ok(Made::Text(text)),
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
                return timestamp(plain).map(|t| Made::Text(Cow::Owned(t))).ok_or_else(|| "is no time".to_owned());
            }
        };
        value.map(|value| Made::Other(Cow::Owned(value))).ok_or_else(|| format!("is no {what}"))
    }
}

fn url_decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&byte, behind)) = rest.split_first() {
        let digit = |i: usize| behind.get(i).and_then(|b| char::from(*b).to_digit(16));
        match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &behind[2..];
            }
            (b'+', ..) => {
                bytes.push(b' ');
                rest = behind;
            }
            _ => {
                bytes.push(byte);
                rest = behind;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

/// Reads `250`, `1.5s`, `2m30s` as milliseconds.
fn duration_ms(text: &str) -> Option<f64> {
    if let Ok(number) = text.parse::<f64>() {
        return Some(number).filter(|n| n.is_finite());
    }
    let (mut total, mut rest) = (0.0, text);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let unit_end = rest[end..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |n| end + n);
        let factor = match rest[end..unit_end].trim() {
            "ns" => 1e-6,
            "us" | "µs" => 1e-3,
            "ms" => 1.0,
            "s" => 1e3,
            "m" | "min" => 6e4,
            "h" => 3.6e6,
            "d" => 8.64e7,
            _ => return None,
        };
        total += number * factor;
        rest = &rest[unit_end..];
    }
    Some(total)
}

/// Reads RFC 3339, or Unix seconds, milliseconds, microseconds or nanoseconds, told apart by their size.
fn timestamp(text: &str) -> Option<String> {
    let time = match text.parse::<f64>() {
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
