//! Every integer of the three requests, at its bounds and beyond them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::decode_memory::{DecodeRoom, within};
use crate::otlp::schema::{LOGS_REQUEST, METRICS_REQUEST};
use crate::traces::schema::TRACES_REQUEST;

const LIMIT_BYTES: usize = 1 << 20;

/// Calls a function with the path to each integer of a message, its field last. Messages that hold themselves end there.
fn integers(message: &'static Message, path: &mut Vec<&'static Field>, each: &mut impl FnMut(&[&'static Field])) {
    let is_on = |path: &[&'static Field], other: &'static Message| {
        path.iter().any(|field| matches!(field.kind, ValueKind::Message(known) if std::ptr::eq(known, other)))
    };
    for field in message.fields {
        match field.kind {
            ValueKind::Message(inner) if is_on(path, inner) => {}
            ValueKind::Message(inner) => {
                path.push(field);
                integers(inner, path, each);
                path.pop();
            }
            ValueKind::Text
            | ValueKind::Hex
            | ValueKind::Id
            | ValueKind::Base64
            | ValueKind::Bool
            | ValueKind::Double => {}
            _ => {
                path.push(field);
                each(path.as_slice());
                path.pop();
            }
        }
    }
}

fn document(path: &[&'static Field], value: &str) -> String {
    path.iter().rev().fold(value.to_owned(), |inner, field| {
        let (open, close) = if field.repeated { ("[", "]") } else { ("", "") };
        format!(r#"{{"{}":{open}{inner}{close}}}"#, field.name)
    })
}

/// The least and the most that opentelemetry-proto lets a field hold.
fn bounds(name: &str) -> (i128, i128) {
    match name {
        "flags" | "droppedAttributesCount" | "droppedEventsCount" | "droppedLinksCount" => (0, u32::MAX.into()),
        "asInt" | "intValue" => (i64::MIN.into(), i64::MAX.into()),
        "scale" | "offset" | "kind" | "code" | "severityNumber" | "aggregationTemporality" => {
            (i32::MIN.into(), i32::MAX.into())
        }
        "timeUnixNano"
        | "startTimeUnixNano"
        | "endTimeUnixNano"
        | "observedTimeUnixNano"
        | "count"
        | "zeroCount"
        | "bucketCounts" => (0, u64::MAX.into()),
        other => panic!("{other} has no bounds"),
    }
}

/// Breaks if a number that its field cannot hold becomes another one: `-1` as a count was 18446744073709551615.
#[test]
fn integers_beyond_their_field_are_refused() {
    let mut seen = 0;
    for request in [&METRICS_REQUEST, &LOGS_REQUEST, &TRACES_REQUEST] {
        integers(request, &mut Vec::new(), &mut |path| {
            let name = path.last().unwrap().name;
            let read = |value: &str| to_protobuf(document(path, value).as_bytes(), request, LIMIT_BYTES);
            let (least, most) = bounds(name);
            for held in [least, most] {
                let message = read(&held.to_string()).unwrap();
                assert_eq!(read(&format!("\"{held}\"")).unwrap(), message, "{name} {held}");
                assert_eq!(read(&format!("{held}.0")).unwrap(), message, "{name} {held}");
            }
            assert_eq!(read("1e3").unwrap(), read("1000").unwrap(), "{name}");
            assert_eq!(read("\"1e3\"").unwrap(), read("1000").unwrap(), "{name}");
            let beyond = [(least - 1).to_string(), (most + 1).to_string(), "1e400".to_owned()];
            for value in beyond.iter().flat_map(|value| [value.clone(), format!("\"{value}\"")]) {
                let told = read(&value).unwrap_err().to_string();
                let expected = format!(": `{name}`: expected an integer from {least} to {most}");
                assert!(told.starts_with("invalid JSON at offset ") && told.ends_with(&expected), "{value}: {told}");
            }
            for value in ["1.5", "\"1.5\"", "true", "\"\"", "\"+1\"", "\" 1\"", "\"x\""] {
                let told = read(value).unwrap_err().to_string();
                assert!(told.ends_with(&format!("`{name}`: expected an integer")), "{value}: {told}");
            }
            seen += 1;
        });
    }
    assert!(seen > 40, "{seen}");
}

#[test]
fn what_is_wrong_names_its_field() {
    let check = |body: &str, expected: &str| {
        let told = to_protobuf(body.as_bytes(), &METRICS_REQUEST, LIMIT_BYTES).unwrap_err().to_string();
        assert_eq!(told.split_once(": ").unwrap().1, expected, "{body}");
    };
    let metric = |text: &str| format!(r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{text}]}}]}}]}}"#);
    check(&metric(r#"{"name":5}"#), "`name`: expected a text");
    check(&metric(r#"{"gauge":5}"#), "`gauge`: expected an object");
    check(&metric(r#"{"gauge":{"dataPoints":5}}"#), "`dataPoints`: expected a list");
    check(&metric(r#"{"gauge":{"dataPoints":[{"asDouble":"x"}]}}"#), "`asDouble`: expected a number");
    check(&metric(r#"{"sum":{"isMonotonic":1}}"#), "`isMonotonic`: expected a boolean");
    check(&metric(r#"{"histogram":{"dataPoints":[{"bucketCounts":[null]}]}}"#), "`bucketCounts`: expected an integer");
}

/// Breaks if a message that outgrows its place is moved before there is memory for both.
#[test]
fn growing_takes_memory_before() {
    struct Most(AtomicUsize);
    impl DecodeRoom for Most {
        fn hold(&self, bytes: usize) -> bool {
            self.0.fetch_max(bytes, Ordering::Relaxed);
            true
        }
    }
    let point = format!(r#"{{"explicitBounds":[1{}]}}"#, ",1".repeat(100_000));
    let metric = format!(r#"{{"histogram":{{"dataPoints":[{point}]}}}}"#);
    let body = format!(r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{metric}]}}]}}]}}"#);
    let room = Arc::new(Most(AtomicUsize::new(0)));
    let read = |limit: usize| to_protobuf(body.as_bytes(), &METRICS_REQUEST, limit);
    let message = within(Arc::clone(&room) as Arc<dyn DecodeRoom>, || read(LIMIT_BYTES)).unwrap();
    assert!(message.len() > 800_000, "eight bytes for two");
    let most = room.0.load(Ordering::Relaxed);
    assert!(most >= message.len() + message.len() / 2, "{most} bytes were reserved");
    assert!(matches!(read(message.len() / 2), Err(Error::TooLarge { .. })));
}
