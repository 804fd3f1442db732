//! OTLP logs: both encodings give the same rows.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use serde_json::{Value, json};

use super::{NOW, context, rows_of};
use crate::logs::otlp::{decode, decode_json};

fn any(value: Any) -> AnyValue {
    AnyValue { value: Some(value) }
}

fn pair(key: &str, value: Any) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(any(value)), ..KeyValue::default() }
}

fn text(value: &str) -> Any {
    Any::StringValue(value.to_owned())
}

fn request(attributes: Vec<KeyValue>, records: Vec<LogRecord>) -> ExportLogsServiceRequest {
    let scope = InstrumentationScope {
        name: "lib".to_owned(),
        version: "1".to_owned(),
        attributes: vec![pair("k", Any::BoolValue(true))],
        ..InstrumentationScope::default()
    };
    let scope = ScopeLogs { scope: Some(scope), log_records: records, ..ScopeLogs::default() };
    let resource = Resource { attributes, ..Resource::default() };
    let resource = ResourceLogs { resource: Some(resource), scope_logs: vec![scope], ..ResourceLogs::default() };
    ExportLogsServiceRequest { resource_logs: vec![resource] }
}

fn rows(query: &[(&str, &str)], request: &ExportLogsServiceRequest) -> Vec<Value> {
    rows_of(&decode(&request.encode_to_vec(), &context(query)).unwrap().batches)
}

pub(crate) fn records() -> ExportLogsServiceRequest {
    let map = |pairs| Any::KvlistValue(KeyValueList { values: pairs });
    let list = Any::ArrayValue(ArrayValue {
        values: vec![any(text("a\"")), any(Any::IntValue(1)), any(map(vec![pair("x", Any::DoubleValue(0.5))]))],
    });
    let one = LogRecord {
        time_unix_nano: 5,
        observed_time_unix_nano: 7,
        severity_number: 9,
        severity_text: "INF".to_owned(),
        body: Some(any(text("hello"))),
        attributes: vec![
            pair("n", Any::IntValue(-7)),
            pair(
                "m",
                map(vec![pair("x", Any::DoubleValue(1.5)), pair("y", map(vec![pair("z", Any::BoolValue(false))]))]),
            ),
            pair("list", list.clone()),
            pair("none", text("")),
        ],
        trace_id: vec![1; 16],
        span_id: vec![0; 8],
        event_name: "e".to_owned(),
        ..LogRecord::default()
    };
    let two = LogRecord {
        observed_time_unix_nano: 6,
        body: Some(any(map(vec![pair("a", text("b"))]))),
        ..LogRecord::default()
    };
    let three = LogRecord { severity_number: 99, body: Some(any(list)), ..LogRecord::default() };
    request(
        vec![pair("service.name", text("shop")), pair("r", map(vec![pair("i", Any::IntValue(7))]))],
        vec![one, two, three],
    )
}

fn expected() -> [Value; 3] {
    let common = json!({"service.name": "shop", "r.i": "7", "scope.name": "lib", "scope.version": "1", "scope.attributes.k": "true",
        "_stream": {"service.name": "shop", "r.i": "7"}, "_service": "shop"});
    [
        json!({"_time": 5, "_msg": "hello", "n": "-7", "m.x": "1.5", "m.y.z": "false", "list": "[\"a\\\"\",1,{\"x\":0.5}]",
            "trace_id": "01".repeat(16), "severity": "INF", "severity_text": "INF", "event_name": "e"}),
        json!({"_time": 6, "a": "b", "severity": "Unspecified"}),
        json!({"_time": NOW, "_msg": "[\"a\\\"\",1,{\"x\":0.5}]", "severity": "Unspecified"}),
    ]
    .map(|mut row| {
        row.as_object_mut().unwrap().extend(common.as_object().unwrap().clone());
        row
    })
}

#[test]
fn records_become_rows() {
    assert_eq!(rows(&[], &records()), expected());
    let decoded = decode(&records().encode_to_vec(), &context(&[])).unwrap();
    assert_eq!(decoded.batches[0].severity, [9, 0, 0]);
    assert_eq!(decoded.batches[0].observed, [7, 6, 0], "beside the time of the event, too");
    assert!(decode(b"", &context(&[])).unwrap().batches.is_empty());
    assert!(decode(b"\xff\xff garbage", &context(&[])).is_err());
}

/// Maps, one in the other, around a value; each has a name beside it that is too long below others.
fn with_long_names(levels: usize, inner: Any) -> Any {
    let long = "n".repeat(200);
    (0..levels).fold(inner, |inner, _| {
        Any::KvlistValue(KeyValueList { values: vec![pair("a", inner), pair(&long, Any::BoolValue(true))] })
    })
}

fn row_of(attribute: KeyValue) -> Vec<Value> {
    let record = LogRecord { attributes: vec![attribute], ..LogRecord::default() };
    rows(&[], &request(Vec::new(), vec![record]))
}

/// Breaks if what was taken back still counts, so that a row is dropped for text that it does not have.
#[test]
fn what_is_taken_back_does_not_count() {
    let long = "x".repeat(600 << 10);
    let found = row_of(pair("m", with_long_names(8, text(&long))));
    assert_eq!(found.len(), 1, "the row is large, but not too large");
    assert!(found[0]["m"].as_str().is_some_and(|json| json.contains(&long)), "it stays JSON");
    // The same of fields.
    let many = (0..20_000).map(|n| pair(&format!("f{n}"), Any::BoolValue(true))).collect();
    let found = row_of(pair("m", with_long_names(1, Any::KvlistValue(KeyValueList { values: many }))));
    assert_eq!(found.len(), 1);
    assert!(found[0]["m"].as_str().is_some_and(|json| json.contains("\"f19999\":true")));
}

/// Breaks if each level of a map reads all that is below it again.
#[test]
fn what_is_read_again_has_an_end() {
    let around = |inner: Any| Any::KvlistValue(KeyValueList { values: vec![pair("b", text("c")), pair("a", inner)] });
    let found = row_of(pair("m", around(with_long_names(2, text("x")))));
    assert_eq!(found[0]["m.b"], "c");
    assert!(found[0]["m.a"].is_string() && found[0]["m"].is_null(), "{found:?}");
    let found = row_of(pair("m", around(with_long_names(12, text("x")))));
    assert!(found[0]["m"].is_string() && found[0]["m.b"].is_null(), "{found:?}");
    // In a body each member is judged by itself.
    let body = Any::KvlistValue(KeyValueList {
        values: vec![
            pair("p", around(with_long_names(2, text("x")))),
            pair("q", around(with_long_names(12, text("y")))),
        ],
    });
    let record = LogRecord { body: Some(any(body)), ..LogRecord::default() };
    let found = rows(&[], &request(Vec::new(), vec![record]));
    assert_eq!(found[0]["p.b"], "c");
    assert!(found[0]["p.a"].is_string() && found[0]["q"].is_string(), "{found:?}");
}

#[test]
fn parameters() {
    let record = LogRecord {
        time_unix_nano: 5,
        attributes: vec![pair("message", text("m")), pair("a.b", text("c"))],
        ..LogRecord::default()
    };
    let request = request(vec![pair("host", text("h")), pair("_time", text("x"))], vec![record]);
    let scope =
        json!({"scope.name": "lib", "scope.version": "1", "scope.attributes.k": "true", "severity": "Unspecified"});
    let with = |mut row: Value| {
        row.as_object_mut().unwrap().extend(scope.as_object().unwrap().clone());
        [row]
    };
    let all = json!({"_time": 5, "_msg": "m", "a.b": "c", "host": "h", "_stream": {"host": "h"}});
    assert_eq!(rows(&[("_msg_field", "message")], &request), with(all));
    let chosen = json!({"_time": 5, "message": "m", "host": "h", "e": "f", "_stream": {"host": "h", "e": "f"}});
    let query = [("_stream_fields", "host,e,a.b"), ("ignore_fields", "a*"), ("extra_fields", "e=f")];
    assert_eq!(rows(&query, &request), with(chosen));
    let none = json!({"_time": 5, "message": "m", "a.b": "c"});
    assert_eq!(rows(&[("ignore_fields", "host")], &request), with(none));
}

#[test]
fn the_same_as_json() {
    let body = json!({"resourceLogs": [{
        "resource": {"attributes": [
            {"key": "service.name", "value": {"stringValue": "shop"}},
            {"key": "r", "value": {"kvlistValue": {"values": [{"key": "i", "value": {"intValue": "7"}}]}}},
        ]},
        "scopeLogs": [{
            "scope": {"name": "lib", "version": "1", "attributes": [{"key": "k", "value": {"boolValue": true}}]},
            "logRecords": [
                {
                    "timeUnixNano": "5", "observedTimeUnixNano": "7", "severityNumber": 9, "severityText": "INF", "body": {"stringValue": "hello"},
                    "attributes": [
                        {"key": "n", "value": {"intValue": -7}},
                        {"key": "m", "value": {"kvlistValue": {"values": [
                            {"key": "x", "value": {"doubleValue": 1.5}},
                            {"key": "y", "value": {"kvlistValue": {"values": [{"key": "z", "value": {"boolValue": false}}]}}},
                        ]}}},
                        {"key": "list", "value": {"arrayValue": {"values": [
                            {"stringValue": "a\""}, {"intValue": "1"},
                            {"kvlistValue": {"values": [{"key": "x", "value": {"doubleValue": 0.5}}]}},
                        ]}}},
                        {"key": "none", "value": {"stringValue": ""}},
                    ],
                    "traceId": "01".repeat(16), "spanId": "00".repeat(8), "eventName": "e", "flags": 1, "unknown": [1, {}],
                },
                {"observedTimeUnixNano": 6, "body": {"kvlistValue": {"values": [{"key": "a", "value": {"stringValue": "b"}}]}}},
                {"severityNumber": 99, "body": {"arrayValue": {"values": [
                    {"stringValue": "a\""}, {"intValue": "1"},
                    {"kvlistValue": {"values": [{"key": "x", "value": {"doubleValue": 0.5}}]}},
                ]}}},
            ],
        }],
    }]});
    let read = |body: &Value| decode_json(body.to_string().as_bytes(), 1 << 20, &context(&[]));
    assert_eq!(rows_of(&read(&body).unwrap().batches), expected());
    for bad in ["0", "0g", "zz"] {
        let body = json!({"resourceLogs": [{"scopeLogs": [{"logRecords": [{"traceId": bad}]}]}]});
        assert!(read(&body).is_err(), "{bad}");
    }
}

/// Breaks if one text that is cut within a character costs all records of a request in one encoding, and not in the
/// other.
#[test]
fn texts_that_are_no_unicode_do_not_cost_the_request() {
    let json = |body: &[u8]| {
        let parts: [&[u8]; 3] = [
            br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":"5","body":{"stringValue":""#,
            body,
            br#""}},{"timeUnixNano":"6","body":{"stringValue":"b"}}]}]}]}"#,
        ];
        rows_of(&decode_json(&parts.concat(), 1 << 20, &context(&[])).unwrap().batches)
    };
    let row = |time: i64, text: &str| json!({"_time": time, "_msg": text, "severity": "Unspecified"});
    let expected = [row(5, "a\u{fffd}"), row(6, "b")];
    assert_eq!(json(br"a\ud83d"), expected);
    assert_eq!(json(b"a\xff"), expected);
    let record = [&[0x09_u8, 5, 0, 0, 0, 0, 0, 0, 0][..], &[0x2a, 4, 0x0a, 2, b'a', 0xff]].concat();
    let message = |tag: u8, inner: Vec<u8>| [vec![tag, inner.len() as u8], inner].concat();
    let protobuf = message(0x0a, message(0x12, message(0x12, record)));
    assert_eq!(rows_of(&decode(&protobuf, &context(&[])).unwrap().batches), expected[..1]);
}
