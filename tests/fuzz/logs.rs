//! Logs: JSON documents compared with a naive parser; the same request in both encodings of a format; mutated requests.

use std::sync::Arc;

use quiver_ingest::fuzz::check_logs;
use quiver_ingest::logs::{DecodedLogs, FieldOptions, JsonLines, LogsContext, LogsLimits, bulk, otlp, push, saas};
use quiver_types::LogsBatch;
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Map, Value, json};

use crate::any_value::{Words, pick};
use crate::drive::Target;
use crate::protobuf::{Field, encode, encode_mutated, fixed, int, message, mutate_bytes, text};

const NAMES: &[&str] = &["_msg", "app", "a", "b.c", "é", "request id", "quo\"te", "", "k8s", "x\\y", "\u{1f600}"];
const TEXTS: &[&str] = &[
    "",
    "hello",
    "two words",
    "\"quoted\" \\ and\nlines\ttabs",
    "grün",
    "\u{1f600}",
    "{\"a\":1}",
    "\u{1}",
    "</script>",
];

const WORDS: Words = Words { keys: NAMES, texts: TEXTS };

/// A body, with what it must give where that is known.
#[derive(Debug)]
pub(crate) enum Case {
    Lines { body: Vec<u8>, rows: Vec<Map<String, Value>> },
    Otlp { protobuf: Vec<u8>, json: Vec<u8> },
    Push { protobuf: Vec<u8>, json: Vec<u8> },
    Any(Vec<u8>),
}

fn context() -> LogsContext {
    LogsContext {
        options: Arc::new(FieldOptions { service: Arc::from(["app".to_owned()]), ..FieldOptions::default() }),
        limits: LogsLimits { total_bytes_max: 8 << 20, ..LogsLimits::default() },
        now_ns: 1,
        future_max_ns: i64::MAX,
        sender: None,
    }
}

fn value(random: &mut StdRng, depth: usize) -> Value {
    match random.random_range(0..if depth < 3 { 8 } else { 5 }) {
        0 | 1 => json!(pick(TEXTS, random)),
        2 => json!(random.random_range(-1000..1000)),
        3 => json!(random.random_bool(0.5)),
        4 => Value::Null,
        5 => Value::Array((0..random.random_range(0..4)).map(|_| value(random, depth + 1)).collect()),
        _ => Value::Object(object(random, depth + 1)),
    }
}

fn object(random: &mut StdRng, depth: usize) -> Map<String, Value> {
    let count = random.random_range(0..6);
    (0..count).map(|_| (pick(NAMES, random).to_owned(), value(random, depth))).collect()
}

/// What flattening means, without any cleverness.
fn flatten(prefix: &str, object: &Map<String, Value>, out: &mut Map<String, Value>) {
    for (key, value) in object {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        let text = match value {
            Value::Object(inner) => {
                flatten(&name, inner, out);
                continue;
            }
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let name = if name.is_empty() { "_msg".to_owned() } else { name };
        out.remove(&name);
        if !text.is_empty() {
            out.insert(name, json!(text));
        }
    }
}

fn lines(random: &mut StdRng) -> Case {
    let (mut body, mut rows) = (Vec::new(), Vec::new());
    for _ in 0..random.random_range(1..5) {
        let document = object(random, 0);
        let text = if random.random_bool(0.5) {
            Value::Object(document.clone()).to_string()
        } else {
            serde_json::to_string_pretty(&document).expect("JSON").replace('\n', " ")
        };
        body.extend_from_slice(text.as_bytes());
        body.extend_from_slice(if random.random_bool(0.9) { b"\n" } else { b"\r\n \n" });
        let mut row = Map::new();
        flatten("", &document, &mut row);
        if !row.is_empty() {
            rows.push(row);
        }
    }
    Case::Lines { body, rows }
}

fn otlp_request(random: &mut StdRng) -> (Vec<Field>, Value) {
    let (resource, resource_json) = WORDS.attributes(random, 1, 0);
    let (mut records, mut records_json) = (Vec::new(), Vec::new());
    for _ in 0..random.random_range(0..4) {
        let time = random.random_range(0..3u64);
        let number = random.random_range(0..30u64);
        let ((attributes, attributes_json), (body, body_json)) =
            (WORDS.attributes(random, 6, 0), WORDS.value(random, 0));
        let mut fields = vec![fixed(1, time), int(2, number), text(3, "sev"), message(5, body)];
        fields.extend(attributes);
        records.push(message(2, fields));
        records_json.push(json!({"timeUnixNano": time.to_string(), "severityNumber": number, "severityText": "sev",
            "body": body_json, "attributes": attributes_json}));
    }
    let mut scope = vec![message(1, vec![text(1, "lib")])];
    scope.extend(records);
    let whole = vec![message(1, vec![message(1, resource), message(2, scope)])];
    let json = json!({"resourceLogs": [{"resource": {"attributes": resource_json},
        "scopeLogs": [{"scope": {"name": "lib"}, "logRecords": records_json}]}]});
    (whole, json)
}

fn push_request(random: &mut StdRng) -> (Vec<Field>, Value) {
    let (mut streams, mut streams_json) = (Vec::new(), Vec::new());
    for _ in 0..random.random_range(0..3) {
        let labels: Map<String, Value> = (0..random.random_range(0..4))
            .map(|i| (format!("l{i}"), json!(*["x", "a\"b\\", "é\n"].choose(random).expect("texts"))))
            .collect();
        let label_text: Vec<String> = labels.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let mut fields = vec![text(1, &format!("{{{}}}", label_text.join(",")))];
        let mut entries = Vec::new();
        for _ in 0..random.random_range(0..4) {
            let (seconds, line, meta) = (random.random_range(1..9u64), pick(TEXTS, random), pick(TEXTS, random));
            let pair = message(3, vec![text(1, "meta"), text(2, meta)]);
            fields.push(message(2, vec![message(1, vec![int(1, seconds)]), text(2, line), pair]));
            entries.push(json!([seconds.to_string(), line, {"meta": meta}]));
        }
        streams.push(message(1, fields));
        streams_json.push(json!({"stream": labels, "values": entries}));
    }
    (streams, json!({"streams": streams_json}))
}

fn make(random: &mut StdRng) -> Case {
    let mut bytes = match random.random_range(0..8) {
        0 | 1 => return lines(random),
        2 => {
            let (fields, json) = otlp_request(random);
            return Case::Otlp { protobuf: encode(&fields), json: json.to_string().into_bytes() };
        }
        3 => {
            let (fields, json) = push_request(random);
            return Case::Push { protobuf: encode(&fields), json: json.to_string().into_bytes() };
        }
        4 => encode_mutated(otlp_request(random).0, random),
        5 => encode_mutated(push_request(random).0, random),
        6 => push_request(random).1.to_string().into_bytes(),
        _ => match lines(random) {
            Case::Lines { body, .. } => [b"{\"create\":{}}\n", &body[..]].concat(),
            _ => Vec::new(),
        },
    };
    mutate_bytes(&mut bytes, random);
    Case::Any(bytes)
}

fn rows(batches: &[LogsBatch]) -> Vec<String> {
    let mut rows = Vec::new();
    for batch in batches {
        check_logs(batch);
        for i in 0..batch.len() {
            let fields: Map<String, Value> = batch.row(i).map(|(n, v)| (n.to_owned(), json!(v))).collect();
            let severity = batch.severity.get(i).copied().unwrap_or_default();
            rows.push(format!("{} {severity} {:?} {fields:?}", batch.time[i], batch.labels(batch.row_streams[i])));
        }
    }
    rows
}

fn good(decoded: quiver_ingest::Result<DecodedLogs>) -> Vec<String> {
    rows(&decoded.expect("a valid body").batches)
}

fn check(case: &Case) {
    let ctx = context();
    match case {
        Case::Lines { body, rows: expected } => {
            let mut lines = JsonLines::new(&ctx);
            lines.feed(body);
            lines.finish();
            let batches = lines.rows.take_all();
            rows(&batches);
            let got: Vec<Map<String, Value>> = batches
                .iter()
                .flat_map(|b| (0..b.len()).map(|i| b.row(i).map(|(n, v)| (n.to_owned(), json!(v))).collect()))
                .collect();
            assert_eq!(&got, expected);
        }
        Case::Otlp { protobuf, json } => {
            assert_eq!(good(otlp::decode(protobuf, &ctx)), good(otlp::decode_json(json, 8 << 20, &ctx)));
        }
        Case::Push { protobuf, json } => {
            assert_eq!(good(push::decode_protobuf(protobuf, &ctx)), good(push::decode_json(json, &ctx)));
        }
        Case::Any(body) => {
            let url = saas::UrlFields::default();
            let whole = [
                otlp::decode(body, &ctx),
                otlp::decode_json(body, 8 << 20, &ctx),
                push::decode_protobuf(body, &ctx),
                push::decode_json(body, &ctx),
                saas::decode(body, &url, &ctx),
            ];
            for decoded in whole.into_iter().flatten() {
                rows(&decoded.batches);
            }
            let mut bulk = bulk::Bulk::new(&ctx);
            if bulk.feed(body).is_ok() {
                let _ = bulk.finish();
            }
            rows(&bulk.take_all());
        }
    }
}

#[test]
fn bodies() {
    let size = |case: &Case| match case {
        Case::Lines { body, .. } | Case::Any(body) => body.len(),
        Case::Otlp { protobuf, json } | Case::Push { protobuf, json } => protobuf.len() + json.len(),
    };
    let target = Target { name: "logs", make, size, bytes_max: |_| 64 << 20 };
    assert!(target.run(check) > 0);
}
