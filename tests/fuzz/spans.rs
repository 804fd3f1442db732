//! Spans: the same request in both encodings of OTLP gives the same spans; mutated bodies of every format are refused or
//! give valid batches, which every reader and export can process.

use quiver_ingest::traces::{DecodedSpans, TraceContext, TraceFormat, decode};
use quiver_traces::assemble::assemble_all;
use quiver_traces::export::{ExportOptions, FORMATS};
use quiver_traces::{JsonWriter, Tree, summarize};
use quiver_types::Access;
use quiver_types::spans::{Attributes, RollupBuilder, Span, read_spans};
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use crate::any_value::{Words, pick};
use crate::drive::Target;
use crate::protobuf::{Field, encode, encode_mutated, extreme, fixed, int, message, mutate_bytes, text};

const KEYS: &[&str] = &["http.route", "db.system", "a", "é", "quo\"te", "error", "x\\y", "\u{1f600}", "peer.service"];
const TEXTS: &[&str] = &["", "hello", "\"q\" \\ \n", "grün", "\u{1f600}", "{\"a\":1}", "true", "1.5", "\u{1}"];
const WORDS: Words = Words { keys: KEYS, texts: TEXTS };
const START: u64 = 1_700_000_000_000_000_000;

#[derive(Debug)]
enum Case {
    Same { protobuf: Vec<u8>, json: Vec<u8> },
    Any(TraceFormat, Vec<u8>),
}

/// An id of bytes, as a text that holds them: protobuf does not mind.
fn id(number: u64, len: usize, low: u8) -> (Field, String) {
    let mut bytes = vec![0x41; len];
    bytes[len - 1] = 0x41 + low;
    let hex = quiver_types::hex(&bytes);
    (text(number, std::str::from_utf8(&bytes).expect("ASCII")), hex)
}

fn span(random: &mut StdRng) -> (Field, Value) {
    let (trace, trace_hex) = id(1, 16, random.random_range(0..2));
    let (own, own_hex) = id(2, 8, random.random_range(0..5));
    let (parent, parent_hex) = id(4, 8, random.random_range(0..5));
    let (name, kind) = (pick(TEXTS, random), random.random_range(0..6u64));
    let start = START + random.random_range(0..1_000_000_000u64);
    let end = start + random.random_range(0..1_000_000u64);
    let (tags, tags_json) = WORDS.attributes(random, 9, 0);
    let (event, event_json) = WORDS.attributes(random, 3, 0);
    let (link, link_json) = WORDS.attributes(random, 4, 0);
    let (linked, linked_hex) = id(1, 16, 7);
    let (linked_span, linked_span_hex) = id(2, 8, 7);
    let code = random.random_range(0..3u64);
    let mut fields = vec![trace, own, text(5, name), int(6, kind), fixed(7, start), fixed(8, end)];
    fields.extend(tags);
    fields.push(message(11, [vec![fixed(1, start), text(2, "event")], event].concat()));
    fields.push(message(13, [vec![linked, linked_span], link].concat()));
    fields.push(message(15, vec![text(2, name), int(3, code)]));
    let mut json = json!({
        "traceId": trace_hex, "spanId": own_hex, "name": name, "kind": kind, "startTimeUnixNano": start.to_string(),
        "endTimeUnixNano": end.to_string(), "attributes": tags_json,
        "events": [{"timeUnixNano": start.to_string(), "name": "event", "attributes": event_json}],
        "links": [{"traceId": linked_hex, "spanId": linked_span_hex, "attributes": link_json}],
        "status": {"code": code, "message": name},
    });
    if random.random_bool(0.7) {
        fields.push(parent);
        json["parentSpanId"] = parent_hex.into();
    }
    (message(2, fields), json)
}

fn request(random: &mut StdRng) -> (Vec<Field>, Value) {
    let (mut blocks, mut blocks_json) = (Vec::new(), Vec::new());
    for _ in 0..random.random_range(0..3) {
        let service = pick(&["a", "b", ""], random);
        let named = message(1, vec![text(1, "service.name"), message(2, vec![text(1, service)])]);
        let (mut resource, mut resource_json) = WORDS.attributes(random, 1, 0);
        resource.push(named);
        resource_json
            .as_array_mut()
            .expect("a list")
            .push(json!({"key": "service.name", "value": {"stringValue": service}}));
        let (spans, spans_json): (Vec<_>, Vec<_>) = (0..random.random_range(0..4)).map(|_| span(random)).unzip();
        let scope = [vec![message(1, vec![text(1, "lib"), text(2, "1")])], spans].concat();
        blocks.push(message(1, vec![message(1, resource), message(2, scope)]));
        blocks_json.push(json!({"resource": {"attributes": resource_json},
            "scopeSpans": [{"scope": {"name": "lib", "version": "1"}, "spans": spans_json}]}));
    }
    (blocks, json!({"resourceSpans": blocks_json}))
}

fn zipkin(random: &mut StdRng) -> Value {
    let spans = (0..random.random_range(0..4)).map(|_| {
        let tags: serde_json::Map<String, Value> = (0..random.random_range(0..3))
            .map(|_| (pick(KEYS, random).to_owned(), json!(pick(TEXTS, random))))
            .collect();
        json!({"traceId": "a", "id": format!("{:x}", random.random_range(1..5)), "parentId": "1", "name": pick(TEXTS, random),
            "kind": pick(&["CLIENT", "SERVER", "PRODUCER", "CONSUMER", "other"], random),
            "timestamp": START / 1000, "duration": random.random_range(0..1000), "shared": random.random_bool(0.3),
            "localEndpoint": {"serviceName": pick(&["a", "b"], random), "ipv4": "10.0.0.1", "port": 80},
            "annotations": [{"timestamp": START / 1000, "value": pick(TEXTS, random)}], "tags": tags})
    });
    Value::Array(spans.collect())
}

fn make(random: &mut StdRng) -> Case {
    let (fields, json) = request(random);
    let (format, mut body) = match random.random_range(0..6) {
        0 => return Case::Same { protobuf: encode(&fields), json: json.to_string().into_bytes() },
        1 | 2 => (TraceFormat::Otlp, encode_mutated(fields, random)),
        3 => (TraceFormat::OtlpJson, json.to_string().into_bytes()),
        4 => (TraceFormat::Zipkin, zipkin(random).to_string().into_bytes()),
        _ => {
            let mut out = JsonWriter::default();
            let decoded = run(TraceFormat::OtlpJson, json.to_string().as_bytes());
            if let Some(trace) = decoded.and_then(|d| assemble_all(spans(&d)).into_iter().next()) {
                quiver_traces::export::internal::write_trace(&trace, None, &mut out);
            }
            (TraceFormat::Internal, out.finish().unwrap_or_default())
        }
    };
    if random.random_bool(0.3) {
        // Numbers that nobody expects.
        let text = String::from_utf8_lossy(&body).replace("1700000000", &extreme(random).to_string());
        body = text.into_bytes();
    }
    if format != TraceFormat::Otlp {
        (0..random.random_range(0..4)).for_each(|_| mutate_bytes(&mut body, random));
    }
    Case::Any(format, body)
}

fn run(format: TraceFormat, body: &[u8]) -> Option<DecodedSpans> {
    let access = Access::full();
    let ctx = TraceContext {
        body_bytes_max: 8 << 20,
        batch_bytes_max: 16 << 20,
        now_ns: START as i64,
        earliest_ns: 1,
        latest_ns: i64::MAX,
        access: &access,
    };
    decode(format, None, body, &ctx, &mut |_| true).ok()
}

/// Reads spans back, and looks at each attribute.
fn spans(decoded: &DecodedSpans) -> Vec<Span> {
    assert!(decoded.batch.is_sound());
    let mut out = Vec::new();
    read_spans(&decoded.batch.flat(), &mut out).expect("a whole batch");
    assert_eq!(out.len(), decoded.batch.len());
    for span in &out {
        let sorted = |a: &Attributes| a.iter().map(|(k, _)| k).is_sorted();
        assert!(sorted(&span.attributes) && sorted(&span.context.resource), "{span:?}");
        assert!(span.end >= span.start && span.trace_id != [0; 16] && span.span_id != [0; 8], "{span:?}");
    }
    out
}

fn check(case: &Case) {
    match case {
        Case::Same { protobuf, json } => {
            let a = spans(&run(TraceFormat::Otlp, protobuf).expect("valid"));
            let b = spans(&run(TraceFormat::OtlpJson, json).expect("valid"));
            assert_eq!(a, b);
        }
        Case::Any(format, body) => {
            let Some(decoded) = run(*format, body) else { return };
            let mut rollup = RollupBuilder::default();
            rollup.push(&decoded.batch.flat()).expect("all columns");
            assert!(rollup.rows(|_| true).len() >= usize::from(!decoded.batch.is_empty()));
            for trace in assemble_all(spans(&decoded)) {
                let tree = Tree::of(&trace);
                tree.critical_path(&trace);
                assert!(summarize(&trace).is_some());
                for format in FORMATS {
                    let mut out = JsonWriter::default();
                    (format.write)(&trace, ExportOptions::default(), &mut out);
                    let text = out.finish().expect("memory takes it");
                    let _: Value = serde_json::from_slice(&text).expect("JSON");
                }
            }
        }
    }
}

#[test]
fn bodies() {
    let size = |case: &Case| match case {
        Case::Same { protobuf, json } => protobuf.len() + json.len(),
        Case::Any(_, body) => body.len(),
    };
    let target = Target { name: "spans", make, size, bytes_max: |_| 64 << 20 };
    assert!(target.run(check) > 0);
}
