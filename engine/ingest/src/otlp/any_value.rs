//! Converts attribute values (`AnyValue`) to text directly from their bytes: scalars plainly, lists and maps as JSON,
//! like OpenTelemetry's `AsString`.

use std::fmt::Write;

use quiver_types::text::{push_base64, push_double};

use super::Fault;
use crate::labels::{LABELS_MAX, TEXT_MAX_BYTES};
use crate::rejection::Reason;
use crate::wire::{BYTES, DEPTH_MAX, FIXED64, Reader, VARINT, WireError, tag};

/// A value; nested values are not parsed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OtlpValue<'a> {
    Empty,
    Text(&'a [u8]),
    Bool(bool),
    Int(i64),
    Double(f64),
    List(&'a [u8]),
    Map(&'a [u8]),
    Bytes(&'a [u8]),
}

/// Parses a value without nested ones.
pub(crate) fn read(message: &[u8]) -> Result<OtlpValue<'_>, WireError> {
    const TEXT: u32 = tag(1, BYTES);
    const BOOL: u32 = tag(2, VARINT);
    const INT: u32 = tag(3, VARINT);
    const DOUBLE: u32 = tag(4, FIXED64);
    const LIST: u32 = tag(5, BYTES);
    const MAP: u32 = tag(6, BYTES);
    const RAW: u32 = tag(7, BYTES);
    let mut any = OtlpValue::Empty;
    let mut r = Reader::new(message);
    while !r.is_empty() {
        any = match r.tag()? {
            TEXT => OtlpValue::Text(r.bytes()?),
            BOOL => OtlpValue::Bool(r.varint()? != 0),
            INT => OtlpValue::Int(r.varint()? as i64),
            DOUBLE => OtlpValue::Double(r.double()?),
            LIST => OtlpValue::List(r.bytes()?),
            MAP => OtlpValue::Map(r.bytes()?),
            RAW => OtlpValue::Bytes(r.bytes()?),
            other => {
                r.skip(other, &[1, 2, 3, 4, 5, 6, 7])?;
                any
            }
        };
    }
    Ok(any)
}

/// Reads a `KeyValue`: key and value, both as bytes.
pub(crate) fn key_value(message: &[u8]) -> Result<(&[u8], &[u8]), WireError> {
    let (mut key, mut value): (&[u8], &[u8]) = (b"", b"");
    let mut r = Reader::new(message);
    while !r.is_empty() {
        match r.tag()? {
            0x0a => key = r.bytes()?,
            0x12 => value = r.bytes()?,
            other => r.skip(other, &[1, 2])?,
        }
    }
    Ok((key, value))
}

pub(super) fn text(bytes: &[u8]) -> Result<&str, Reason> {
    std::str::from_utf8(bytes).map_err(|_| Reason::InvalidUtf8)
}

/// Appends a value as text.
pub(super) fn push(message: &[u8], out: &mut String) -> Result<(), Fault> {
    let start = out.len();
    match read(message)? {
        OtlpValue::Empty => {}
        OtlpValue::Text(bytes) => out.push_str(text(bytes)?),
        OtlpValue::Double(v) => push_double(v, out),
        OtlpValue::Bytes(bytes) => push_base64(bytes, out),
        other => push_json(other, out, 0)?,
    }
    if out.len() - start > TEXT_MAX_BYTES { Err(Reason::LongLabel.into()) } else { Ok(()) }
}

fn push_json(any: OtlpValue<'_>, out: &mut String, depth: usize) -> Result<(), Fault> {
    if depth > DEPTH_MAX {
        return Err(WireError::TooDeep.into());
    }
    match any {
        OtlpValue::Text(bytes) => push_json_text(text(bytes)?, out),
        OtlpValue::Bool(v) => out.push_str(if v { "true" } else { "false" }),
        OtlpValue::Int(v) => {
            let _ = write!(out, "{v}");
        }
        OtlpValue::Double(v) if v.is_finite() => push_double(v, out),
        // JSON cannot express numbers that are not finite.
        OtlpValue::Empty | OtlpValue::Double(_) => out.push_str("null"),
        OtlpValue::Bytes(bytes) => {
            out.push('"');
            push_base64(bytes, out);
            out.push('"');
        }
        OtlpValue::List(message) => {
            out.push('[');
            let mut r = Reader::new(message);
            let mut separator = "";
            while !r.is_empty() {
                match r.tag()? {
                    0x0a => {
                        out.push_str(separator);
                        push_json(read(r.bytes()?)?, out, depth + 1)?;
                        separator = ",";
                    }
                    other => r.skip(other, &[1])?,
                }
            }
            out.push(']');
        }
        OtlpValue::Map(message) => {
            let mut entries: Vec<(&str, &[u8])> = Vec::new();
            let mut r = Reader::new(message);
            while !r.is_empty() {
                match r.tag()? {
                    0x0a => {
                        let (key, value) = key_value(r.bytes()?)?;
                        if entries.len() == LABELS_MAX {
                            return Err(Reason::TooManyLabels.into());
                        }
                        entries.push((text(key)?, value));
                    }
                    other => r.skip(other, &[1])?,
                }
            }
            entries.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (i, (key, value)) in entries.iter().enumerate() {
                // Of equal keys the last one counts.
                if entries.get(i + 1).is_some_and(|next| next.0 == *key) {
                    continue;
                }
                if !out.ends_with('{') {
                    out.push(',');
                }
                push_json_text(key, out);
                out.push(':');
                push_json(read(value)?, out, depth + 1)?;
            }
            out.push('}');
        }
    }
    if out.len() > 2 * TEXT_MAX_BYTES { Err(Reason::LongLabel.into()) } else { Ok(()) }
}

/// Escapes as Go's `encoding/json` does when it is not for HTML, which is how `AsString` asks it: `<`, `>` and `&` stay.
fn push_json_text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\u{2028}' | '\u{2029}' | '\0'..'\u{20}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList, any_value::Value};
    use prost::Message;

    use super::*;

    fn any(value: Value) -> AnyValue {
        AnyValue { value: Some(value) }
    }

    fn render(value: &AnyValue) -> Result<String, Fault> {
        let mut out = String::new();
        push(&value.encode_to_vec(), &mut out).map(|()| out)
    }

    #[test]
    fn values() {
        let check = |value: Value, expected: &str| {
            assert_eq!(render(&any(value.clone())).unwrap(), expected, "{value:?}");
        };
        let pair = |key: &str, value| KeyValue { key: key.into(), value: Some(any(value)), ..KeyValue::default() };
        check(Value::StringValue("a\"b".into()), "a\"b");
        check(Value::BoolValue(true), "true");
        check(Value::IntValue(-5), "-5");
        check(Value::DoubleValue(0.1), "0.1");
        check(Value::DoubleValue(1e21), "1e+21");
        check(Value::DoubleValue(1.5e-7), "1.5e-7");
        check(Value::DoubleValue(100.0), "100");
        check(Value::DoubleValue(f64::NEG_INFINITY), "-Inf");
        check(Value::BytesValue(b"hello".to_vec()), "aGVsbG8=");
        check(Value::BytesValue(b"hell".to_vec()), "aGVsbA==");
        let list = vec![any(Value::IntValue(1)), AnyValue { value: None }, any(Value::StringValue("<\n>\"".into()))];
        check(Value::ArrayValue(ArrayValue { values: list }), r#"[1,null,"<\n>\""]"#);
        let list = vec![any(Value::StringValue("&\u{8}\u{c}\u{1}\u{7f}\u{2028}\\".into()))];
        check(Value::ArrayValue(ArrayValue { values: list }), "[\"&\\b\\f\\u0001\u{7f}\\u2028\\\\\"]");
        let map =
            vec![pair("b", Value::IntValue(1)), pair("a", Value::BoolValue(false)), pair("b", Value::IntValue(2))];
        check(Value::KvlistValue(KeyValueList { values: map }), r#"{"a":false,"b":2}"#);
        assert_eq!(render(&AnyValue { value: None }).unwrap(), "");
    }

    #[test]
    fn depth() {
        let mut value = any(Value::IntValue(1));
        for _ in 0..20 {
            value = any(Value::ArrayValue(ArrayValue { values: vec![value] }));
        }
        assert_eq!(render(&value).unwrap().len(), 41);
        let mut message = Vec::new();
        for _ in 0..10_000 {
            let mut list = Vec::new();
            crate::wire::put_bytes(&mut list, 1, &message);
            message.clear();
            crate::wire::put_bytes(&mut message, 5, &list);
        }
        assert!(matches!(push(&message, &mut String::new()), Err(Fault::Fatal(_))));
    }
}
