//! Result values in OTLP form, as JSON and as the message `AnyValue`. A missing value is the text `nil`; a duration is
//! formatted as in Go.

use quiver_ingest::wire::put_bytes;
use quiver_traces::JsonWriter;
use quiver_traces::export::any_value;
use quiver_traces::traceql::FieldValue;
use quiver_types::spans::Value;
use quiver_types::time::duration::format_go;

use super::messages::{put_any, put_whole};
use crate::encode::protobuf::{put_double, put_message, put_text};

/// Hands a value on in the form in which attributes are written.
fn as_attribute<T>(value: &FieldValue, write: impl FnOnce(Value<'_>) -> T) -> T {
    match value {
        FieldValue::Nil => write(Value::Text("nil")),
        FieldValue::Bool(value) => write(Value::Bool(*value)),
        FieldValue::Int(number) => write(Value::Int(*number)),
        FieldValue::Double(number) => write(Value::Double(*number)),
        FieldValue::Nanos(nanos) => write(Value::Text(&format_go(*nanos))),
        FieldValue::Text(text) => write(Value::Text(text)),
        FieldValue::Bytes(bytes) => write(Value::Bytes(bytes)),
        FieldValue::Structure(json) => write(Value::Json(json)),
    }
}

/// Writes names and values as a list, under a key of the current object.
pub(super) fn write_pairs<'p>(
    key: &str,
    pairs: impl IntoIterator<Item = (&'p str, &'p FieldValue)>,
    w: &mut JsonWriter<'_>,
) {
    w.key(key).array(|w| pairs.into_iter().for_each(|(key, value)| write_pair(key, value, w)));
}

/// Writes a name and its value as an object.
pub(super) fn write_pair(key: &str, value: &FieldValue, w: &mut JsonWriter<'_>) {
    w.object(|w| {
        w.key("key").text(key);
        w.key("value");
        as_attribute(value, |value| any_value(value, w));
    });
}

/// Writes a double; what JSON has no number for is a text, as in protobuf's JSON.
pub(super) fn write_double(number: f64, w: &mut JsonWriter<'_>) {
    if number.is_finite() {
        w.raw(format_args!("{number:?}"));
    } else if number.is_nan() {
        w.text("NaN");
    } else {
        w.text(if number > 0.0 { "Infinity" } else { "-Infinity" });
    }
}

/// Appends a name and its value as a field (`KeyValue`).
pub(super) fn put_pair(out: &mut Vec<u8>, field: u32, key: &str, value: &FieldValue) {
    put_message(out, field, |out| {
        put_text(out, 1, key);
        put_message(out, 2, |out| as_attribute(value, |value| put_value(out, value)));
    });
}

/// Appends the only field of an `AnyValue`, even where it is 0 or empty.
fn put_value(out: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::Text(text) => put_text(out, 1, text),
        Value::Bool(value) => put_whole(out, 2, u64::from(value)),
        Value::Int(number) => put_whole(out, 3, number as u64),
        Value::Double(number) => put_double(out, 4, number),
        Value::Bytes(bytes) => put_bytes(out, 7, bytes),
        Value::Json(json) => put_any(out, &serde_json::from_str(json).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    /// A value as JSON, and as a message.
    fn written(value: &FieldValue) -> (Json, Vec<u8>) {
        let (mut w, mut out) = (JsonWriter::default(), Vec::new());
        write_pair("k", value, &mut w);
        put_pair(&mut out, 1, "k", value);
        let pair: Json = serde_json::from_slice(&w.finish().expect("JSON")).expect("JSON");
        assert_eq!(pair["key"], "k");
        // The pair, and its key; what follows is the value.
        assert_eq!((out[0], out[2..5].to_vec(), out[5]), (10, vec![10, 1, b'k'], 18), "{out:?}");
        (pair["value"].clone(), out[7..].to_vec())
    }

    #[test]
    fn values_of_all_types() {
        let list = r#"{"arrayValue":{"values":[{"intValue":"1"}]}}"#;
        for (value, json, message) in [
            (FieldValue::Nil, json!({"stringValue": "nil"}), vec![10, 3, b'n', b'i', b'l']),
            (FieldValue::Text(String::new()), json!({"stringValue": ""}), vec![10, 0]),
            (FieldValue::Bool(false), json!({"boolValue": false}), vec![16, 0]),
            (FieldValue::Int(0), json!({"intValue": "0"}), vec![24, 0]),
            (FieldValue::Double(0.5), json!({"doubleValue": 0.5}), vec![33, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f]),
            (FieldValue::Nanos(1_500_000), json!({"stringValue": "1.5ms"}), vec![10, 5, b'1', b'.', b'5', b'm', b's']),
            (FieldValue::Bytes(vec![1, 2]), json!({"bytesValue": "AQI="}), vec![58, 2, 1, 2]),
            (
                FieldValue::Structure(list.to_owned()),
                json!({"arrayValue": {"values": [{"intValue": "1"}]}}),
                vec![42, 4, 10, 2, 24, 1],
            ),
        ] {
            assert_eq!(written(&value), (json, message), "{value:?}");
        }
        let (json, message) = written(&FieldValue::Int(i64::MIN));
        assert_eq!(json, json!({"intValue": "-9223372036854775808"}));
        assert_eq!(message.len(), 11);
        assert_eq!(written(&FieldValue::Double(f64::NEG_INFINITY)).0, json!({"doubleValue": "-Infinity"}));
    }

    #[test]
    fn doubles_are_numbers_or_texts() {
        let json = |number: f64| {
            let mut w = JsonWriter::default();
            write_double(number, &mut w);
            String::from_utf8(w.finish().expect("JSON")).expect("JSON")
        };
        for (number, expected) in [
            (3.0, "3.0"),
            (0.1, "0.1"),
            (1e300, "1e300"),
            (-1e-9, "-1e-9"),
            (f64::NAN, "\"NaN\""),
            (f64::INFINITY, "\"Infinity\""),
            (f64::NEG_INFINITY, "\"-Infinity\""),
        ] {
            assert_eq!(json(number), expected);
            assert!(serde_json::from_str::<Json>(expected).is_ok(), "{expected}");
        }
    }
}
