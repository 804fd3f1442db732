//! Where a value goes, and what it becomes on the way.

use std::borrow::Cow;

use aws_lc_rs::digest::{SHA256, digest};
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Map, Value, json};

use super::method::{From, Method};
use super::{RESERVED, Record};
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

    /// Says whether it may write to a record: over what is there only where it says so.
    pub(super) fn is_open(&self, record: &dyn Record) -> bool {
        self.overwrite || record.get(&self.name).is_none_or(|value| value.is_empty())
    }

    pub(super) fn from(&self) -> &From {
        &self.from
    }

    /// Makes the value; none: nothing is written. An error comes with what is written instead.
    pub(super) fn value(&self, raw: Option<Cow<'_, str>>) -> Result<Option<Value>, (String, Option<Value>)> {
        let found = raw.ok_or_else(|| "was not found".to_owned());
        let made = found.and_then(|raw| self.typed(&self.transformed(&raw)?));
        match made {
            Ok(value) => Ok(Some(value)),
            Err(why) => match self.on_error.as_str() {
                "null" => Err((why, Some(Value::Null))),
                "default" => Err((why, Some(self.default.clone()))),
                _ => Err((why, None)),
            },
        }
    }

    fn transformed<'a>(&self, raw: &'a str) -> Result<Cow<'a, str>, String> {
        Ok(match self.transform.as_str() {
            "trim" => Cow::Borrowed(raw.trim()),
            "lower" => Cow::Owned(raw.to_lowercase()),
            "upper" => Cow::Owned(raw.to_uppercase()),
            "urlDecode" => Cow::Owned(url_decoded(raw).ok_or("is no text when it is decoded")?),
            "hash" => {
                let hash = digest(&SHA256, raw.as_bytes());
                Cow::Owned(crate::hex(hash.as_ref()))
            }
            "redact" => Cow::Borrowed("***"),
            _ => Cow::Borrowed(raw),
        })
    }

    fn typed(&self, text: &str) -> Result<Value, String> {
        let plain = text.trim();
        let wrong = |what: &str| format!("is no {what}");
        match self.kind {
            Type::Text => Ok(Value::String(text.to_owned())),
            Type::Int => plain.parse::<i64>().map(|n| json!(n)).map_err(|_| wrong("whole number")),
            Type::Double => {
                let number = plain.parse::<f64>().ok().filter(|n| n.is_finite());
                number.map(|n| json!(n)).ok_or_else(|| wrong("number"))
            }
            Type::Bool => match plain.to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" => Ok(json!(true)),
                "false" | "0" | "no" => Ok(json!(false)),
                _ => Err(wrong("truth value")),
            },
            Type::DurationMs => duration_ms(plain).map(|n| json!(n)).ok_or_else(|| wrong("duration")),
            Type::Timestamp => timestamp(plain).map(|t| json!(t)).ok_or_else(|| wrong("time")),
        }
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
