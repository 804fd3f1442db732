//! Responses as messages of Tempo's `tempopb`: JSON by field names, or protobuf by field numbers. All of them have a
//! list in field 1 and statistics in field 2, which are always empty here.

use std::io::Write;

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use quiver_ingest::wire::{VARINT, put_bytes, put_varint, tag};
use quiver_traces::TraceError;
use quiver_types::text::from_base64;
use serde_json::Value;

use crate::encode::protobuf::{put_double, put_message, put_text};
use crate::traces_api::Call;

/// Field of the list.
pub(super) const LIST: u32 = 1;
/// Field of the statistics.
const FIGURES: u32 = 2;
/// Field of the status, and its value `PARTIAL`.
const STATUS: u32 = 3;
const PARTIAL: u64 = 1;
/// Field of the reason for that.
const REASON: u32 = 4;

/// The type of a field; a repeated one is a list in JSON.
#[derive(Debug)]
pub(super) enum FieldType {
    Text,
    /// Base64 in JSON.
    Bytes,
    /// An integer; may be a string in JSON, as may a double.
    Whole,
    Double,
    Bool,
    Message(&'static [Field]),
}

/// A field: name in JSON, number, type.
#[derive(Debug)]
pub(super) struct Field(&'static str, u32, FieldType);

static ANY: [Field; 7] = [
    Field("stringValue", 1, FieldType::Text),
    Field("boolValue", 2, FieldType::Bool),
    Field("intValue", 3, FieldType::Whole),
    Field("doubleValue", 4, FieldType::Double),
    Field("arrayValue", 5, FieldType::Message(&VALUES)),
    Field("kvlistValue", 6, FieldType::Message(&PAIRS)),
    Field("bytesValue", 7, FieldType::Bytes),
];
static VALUES: [Field; 1] = [Field("values", 1, FieldType::Message(&ANY))];
static PAIRS: [Field; 1] = [Field("values", 1, FieldType::Message(&PAIR))];
static PAIR: [Field; 2] = [Field("key", 1, FieldType::Text), Field("value", 2, FieldType::Message(&ANY))];

static SCOPE_FIELDS: [Field; 2] = [Field("name", 1, FieldType::Text), Field("tags", 2, FieldType::Text)];
static TYPED_FIELDS: [Field; 2] = [Field("type", 1, FieldType::Text), Field("value", 2, FieldType::Text)];

/// Tags of a scope (`SearchTagsV2Scope`).
pub(super) static SCOPE: FieldType = FieldType::Message(&SCOPE_FIELDS);
/// A value with its type (`TagValue`).
pub(super) static TYPED: FieldType = FieldType::Message(&TYPED_FIELDS);

/// Appends a JSON value as a field; null and values of the wrong type are left out.
pub(super) fn put(out: &mut Vec<u8>, number: u32, kind: &FieldType, value: &Value) {
    match (kind, value) {
        (_, Value::Null) => {}
        (_, Value::Array(list)) => list.iter().for_each(|one| put(out, number, kind, one)),
        (FieldType::Message(fields), value) => put_message(out, number, |out| put_fields(out, fields, value)),
        (FieldType::Text, Value::String(text)) => put_text(out, number, text),
        (FieldType::Bytes, Value::String(text)) => put_bytes(out, number, &from_base64(text).unwrap_or_default()),
        (FieldType::Bool, Value::Bool(value)) => put_whole(out, number, u64::from(*value)),
        (FieldType::Whole, value) => {
            let signed = |value: &Value| value.as_i64().or_else(|| value.as_str()?.parse().ok());
            if let Some(value) = value.as_u64().or_else(|| signed(value).map(|v| v as u64)) {
                put_whole(out, number, value);
            }
        }
        (FieldType::Double, value) => {
            if let Some(value) = value.as_f64().or_else(|| value.as_str()?.parse().ok()) {
                put_double(out, number, value);
            }
        }
        _ => {}
    }
}

/// Appends an integer, even 0: in a `oneof` it tells which type the value has.
pub(super) fn put_whole(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(tag(number, VARINT)));
    put_varint(out, value);
}

/// Appends the field of an `AnyValue`, which is given as JSON.
pub(super) fn put_any(out: &mut Vec<u8>, value: &Value) {
    put_fields(out, &ANY, value);
}

fn put_fields(out: &mut Vec<u8>, fields: &[Field], value: &Value) {
    for Field(name, number, kind) in fields {
        if let Some(value) = value.get(name) {
            put(out, *number, kind, value);
        }
    }
}

/// Sends a list whose items are appended by a function, each as a field. One item is in memory at a time, besides the
/// encoded ones, which are accounted.
pub(super) fn answer<R>(
    call: &Call,
    rows: impl IntoIterator<Item = R>,
    put: impl FnMut(&mut Vec<u8>, R) -> Result<(), TraceError>,
) -> Result<Response, TraceError> {
    answer_of(call, rows, None, put)
}

/// Sends messages as a list, and why some are missing.
pub(super) fn answer_of<R>(
    call: &Call,
    rows: impl IntoIterator<Item = R>,
    missing: Option<&str>,
    mut put: impl FnMut(&mut Vec<u8>, R) -> Result<(), TraceError>,
) -> Result<Response, TraceError> {
    let (mut text, mut one) = (call.text(), Vec::new());
    for row in rows {
        one.clear();
        put(&mut one, row)?;
        // The body reports errors.
        if text.write_all(&one).is_err() {
            break;
        }
    }
    one.clear();
    put_end(&mut one, missing);
    let _ = text.write_all(&one);
    Ok((StatusCode::OK, [(header::CONTENT_TYPE, "application/protobuf")], text.body()?).into_response())
}

/// Appends what follows the list.
fn put_end(out: &mut Vec<u8>, missing: Option<&str>) {
    put_bytes(out, FIGURES, &[]);
    if let Some(reason) = missing {
        put_whole(out, STATUS, PARTIAL);
        put_text(out, REASON, reason);
    }
}

/// Sends a list of JSON values.
pub(super) fn of_values(
    call: &Call,
    kind: &FieldType,
    values: impl IntoIterator<Item = Value>,
) -> Result<Response, TraceError> {
    answer(call, values, |out, value| {
        put(out, LIST, kind, &value);
        Ok(())
    })
}

/// Sends a list of strings.
pub(super) fn of_texts<'t>(call: &Call, texts: impl IntoIterator<Item = &'t String>) -> Result<Response, TraceError> {
    answer(call, texts, |out, text| {
        put_text(out, LIST, text);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::read;
    use super::*;

    #[test]
    fn values_of_all_types() {
        let check = |value: Value, field: u32, bytes: &[u8], number: u64| {
            let mut out = Vec::new();
            put_fields(&mut out, &ANY, &value);
            assert_eq!(read(&out), [(field, bytes.to_vec(), number)], "{value}");
        };
        check(json!({"stringValue": ""}), 1, b"", 0);
        check(json!({"boolValue": false}), 2, b"", 0);
        check(json!({"intValue": "-1"}), 3, b"", u64::MAX);
        check(json!({"doubleValue": 0.5}), 4, b"", 0.5f64.to_bits());
        check(json!({"arrayValue": {"values": [{"intValue": "1"}]}}), 5, &[10, 2, 24, 1], 0);
        check(json!({"bytesValue": "AQI="}), 7, &[1, 2], 0);
    }

    #[test]
    fn numbers_may_be_texts() {
        let written = |kind: &FieldType, value: Value| {
            let mut out = Vec::new();
            put(&mut out, 3, kind, &value);
            read(&out).into_iter().map(|(number, _, value)| (number, value)).collect::<Vec<_>>()
        };
        for (value, expected) in [
            (json!(0), Some(0)),
            (json!(5), Some(5)),
            (json!("5"), Some(5)),
            (json!(u64::MAX), Some(u64::MAX)),
            (json!(-1), Some(u64::MAX)),
            (json!("-9223372036854775808"), Some(1 << 63)),
            (json!("9223372036854775808"), None),
            (json!(1.5), None),
            (json!("x"), None),
            (json!(""), None),
            (json!(true), None),
            (json!(null), None),
            (json!({"a": 1}), None),
        ] {
            let expected: Vec<(u32, u64)> = expected.map(|number| (3, number)).into_iter().collect();
            assert_eq!(written(&FieldType::Whole, value.clone()), expected, "{value}");
        }
        for (value, expected) in [
            (json!(0.25), Some(0.25)),
            (json!(-3), Some(-3.0)),
            (json!("1e3"), Some(1000.0)),
            (json!("inf"), Some(f64::INFINITY)),
            (json!("x"), None),
            (json!(false), None),
        ] {
            let expected: Vec<(u32, u64)> = expected.map(|number: f64| (3, number.to_bits())).into_iter().collect();
            assert_eq!(written(&FieldType::Double, value.clone()), expected, "{value}");
        }
    }

    #[test]
    fn what_is_of_another_kind_is_left_out() {
        for (kind, value) in [
            (FieldType::Text, json!(5)),
            (FieldType::Text, json!({})),
            (FieldType::Bytes, json!(5)),
            (FieldType::Bool, json!("true")),
            (FieldType::Bool, json!(1)),
            (FieldType::Message(&PAIR), json!(null)),
            (FieldType::Text, json!([null, 5])),
        ] {
            let mut out = Vec::new();
            put(&mut out, 1, &kind, &value);
            assert!(out.is_empty(), "{kind:?} {value}: {out:?}");
        }
        // A message without known members is present and empty.
        let mut out = Vec::new();
        put(&mut out, 1, &FieldType::Message(&PAIR), &json!({"other": 1}));
        assert_eq!(out, [10, 0]);
        // Invalid base64 counts as empty.
        let mut out = Vec::new();
        put(&mut out, 1, &FieldType::Bytes, &json!("%"));
        assert_eq!(out, [10, 0]);
    }

    #[test]
    fn what_is_missing_is_told_behind_the_list() {
        let end = |missing: Option<&str>| {
            let mut out = Vec::new();
            put_end(&mut out, missing);
            out
        };
        assert_eq!(end(None), [18, 0]);
        assert_eq!(end(Some("why")), [18, 0, 24, 1, 34, 3, b'w', b'h', b'y']);
    }

    #[test]
    fn lists_are_repeated() {
        let mut out = Vec::new();
        put(&mut out, 2, &FieldType::Text, &json!(["a", "", "ä"]));
        let texts: Vec<Vec<u8>> = read(&out).into_iter().map(|field| field.1).collect();
        assert_eq!(texts, [b"a".to_vec(), Vec::new(), "ä".as_bytes().to_vec()]);
        // Nested values of any depth.
        let deep = json!({"kvlistValue": {"values": [{"key": "k", "value": {"arrayValue": {"values": [
            {"boolValue": true}, {"stringValue": "x"},
        ]}}}]}});
        let mut out = Vec::new();
        put_fields(&mut out, &ANY, &deep);
        let pair = read(&read(&read(&out)[0].1)[0].1);
        assert_eq!(pair[0], (1, b"k".to_vec(), 0));
        let list = read(&read(&pair[1].1)[0].1);
        let values: Vec<_> = list.iter().map(|field| read(&field.1)).collect();
        assert_eq!(values, [vec![(2, Vec::new(), 1)], vec![(1, b"x".to_vec(), 0)]]);
    }
}
