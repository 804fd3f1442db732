//! Traces in search results (`TraceSearchMetadata`), in JSON and as messages, written span by span.

use quiver_traces::traceql::{HitSet, HitSpan, TraceqlHit};
use quiver_traces::{JsonWriter, ServiceCount, Summary};
use quiver_types::spans::hex;

use super::messages::{LIST, put_whole};
use super::values::{put_pair, write_pairs};
use crate::encode::protobuf::{put_message, put_text};

/// The root name of a trace whose root span has not arrived.
const NO_ROOT: &str = "<root span not yet received>";

/// Service and name of the root.
fn root(summary: &Summary) -> (&str, &str) {
    if summary.root_missing { (NO_ROOT, "") } else { (&summary.root_service, &summary.root_name) }
}

/// Writes a trace; that of a search by tags has no spans.
pub(super) fn write(hit: &TraceqlHit, with_spans: bool, w: &mut JsonWriter<'_>) {
    let summary = &hit.summary;
    let (service, name) = root(summary);
    w.object(|w| {
        w.key("traceID").id(&summary.id);
        w.key("rootServiceName").text(service);
        w.key("rootTraceName").text(name);
        w.key("startTimeUnixNano").quoted(summary.start);
        w.key("durationMs").raw(summary.duration() / 1_000_000);
        if !with_spans {
            return;
        }
        // The first set once more, for older clients.
        if let Some(set) = hit.sets.first() {
            w.key("spanSet");
            write_set(set, w);
        }
        w.key("spanSets").array(|w| hit.sets.iter().for_each(|set| write_set(set, w)));
        w.key("serviceStats").object(|w| summary.services.iter().for_each(|service| write_service(service, w)));
    });
}

fn write_service(service: &ServiceCount, w: &mut JsonWriter<'_>) {
    w.key(&service.name).object(|w| {
        w.key("spanCount").raw(service.spans);
        if service.errors > 0 {
            w.key("errorCount").raw(service.errors);
        }
    });
}

fn write_set(set: &HitSet, w: &mut JsonWriter<'_>) {
    w.object(|w| {
        w.key("spans").array(|w| set.spans.iter().for_each(|span| write_span(span, w)));
        w.key("matched").raw(set.matched);
        if !set.attributes.is_empty() {
            write_pairs("attributes", set.attributes.iter().map(|(key, value)| (&**key, value)), w);
        }
    });
}

fn write_span(span: &HitSpan, w: &mut JsonWriter<'_>) {
    w.object(|w| {
        w.key("spanID").id(&span.id);
        if let Some(name) = &span.name {
            w.key("name").text(name);
        }
        w.key("startTimeUnixNano").quoted(span.start);
        w.key("durationNanos").quoted(span.duration);
        if !span.attributes.is_empty() {
            write_pairs("attributes", span.attributes.iter().map(|(key, value)| (key.as_str(), value)), w);
        }
    });
}

/// Appends a trace as a field of the list.
pub(super) fn put(hit: &TraceqlHit, with_spans: bool, out: &mut Vec<u8>) {
    let summary = &hit.summary;
    let (service, name) = root(summary);
    put_message(out, LIST, |out| {
        put_text(out, 1, &hex(&summary.id));
        put_text(out, 2, service);
        put_text(out, 3, name);
        put_whole(out, 4, summary.start as u64);
        put_whole(out, 5, (summary.duration() / 1_000_000) as u64);
        if !with_spans {
            return;
        }
        if let Some(set) = hit.sets.first() {
            put_set(set, 6, out);
        }
        hit.sets.iter().for_each(|set| put_set(set, 7, out));
        for service in &summary.services {
            put_message(out, 8, |out| {
                put_text(out, 1, &service.name);
                put_message(out, 2, |out| {
                    put_whole(out, 1, service.spans);
                    put_whole(out, 2, service.errors);
                });
            });
        }
    });
}

fn put_set(set: &HitSet, field: u32, out: &mut Vec<u8>) {
    put_message(out, field, |out| {
        for span in &set.spans {
            put_message(out, 1, |out| {
                put_text(out, 1, &hex(&span.id));
                if let Some(name) = &span.name {
                    put_text(out, 2, name);
                }
                put_whole(out, 3, span.start as u64);
                put_whole(out, 4, span.duration as u64);
                span.attributes.iter().for_each(|(key, value)| put_pair(out, 5, key, value));
            });
        }
        put_whole(out, 2, set.matched as u64);
        set.attributes.iter().for_each(|(key, value)| put_pair(out, 3, key, value));
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quiver_traces::traceql::FieldValue;
    use serde_json::{Value, json};

    use super::super::testing::read;
    use super::*;

    fn span() -> HitSpan {
        HitSpan { id: [0xab; 8], name: None, start: 10, duration: 20, attributes: Vec::new() }
    }

    /// A set as JSON.
    fn set(spans: Vec<HitSpan>, attributes: Vec<(Arc<str>, FieldValue)>) -> Value {
        let mut w = JsonWriter::default();
        write_set(&HitSet { matched: 5, spans, attributes }, &mut w);
        serde_json::from_slice(&w.finish().expect("JSON")).expect("JSON")
    }

    #[test]
    fn sets_of_spans_show_what_the_query_names() {
        let bare = json!({"spanID": "abababababababab", "startTimeUnixNano": "10", "durationNanos": "20"});
        assert_eq!(set(Vec::new(), Vec::new()), json!({"spans": [], "matched": 5}));
        assert_eq!(set(vec![span()], Vec::new()), json!({"spans": [bare], "matched": 5}));
        let mut named = span();
        named.name = Some("GET".to_owned());
        named.attributes = vec![("http.status_code".to_owned(), FieldValue::Int(500))];
        let whole = json!({
            "spanID": "abababababababab", "startTimeUnixNano": "10", "durationNanos": "20", "name": "GET",
            "attributes": [{"key": "http.status_code", "value": {"intValue": "500"}}],
        });
        let attributes = vec![(Arc::from("count()"), FieldValue::Int(5))];
        let expected = json!({
            "spans": [whole], "matched": 5, "attributes": [{"key": "count()", "value": {"intValue": "5"}}],
        });
        assert_eq!(set(vec![named], attributes), expected);
    }

    fn hit() -> TraceqlHit {
        let services = [("a", 2, 0), ("b", 1, 1)].map(|(name, spans, errors)| ServiceCount {
            name: name.to_owned(),
            spans,
            errors,
        });
        let summary = Summary {
            id: [1; 16],
            root_service: "a".to_owned(),
            root_name: "GET /".to_owned(),
            start: 5,
            end: 7_000_005,
            services: services.to_vec(),
            ..Summary::default()
        };
        let mut shown = span();
        shown.attributes = vec![("n".to_owned(), FieldValue::Int(0))];
        let set = HitSet { matched: 1, spans: vec![shown], attributes: Vec::new() };
        TraceqlHit { summary, sets: vec![set.clone(), set] }
    }

    #[test]
    fn traces_are_told_with_their_sets_or_alone() {
        let json = |hit: &TraceqlHit, with_spans: bool| -> Value {
            let mut w = JsonWriter::default();
            write(hit, with_spans, &mut w);
            serde_json::from_slice(&w.finish().expect("JSON")).expect("JSON")
        };
        let alone = json!({"traceID": "01".repeat(16), "rootServiceName": "a", "rootTraceName": "GET /",
            "startTimeUnixNano": "5", "durationMs": 7});
        assert_eq!(json(&hit(), false), alone);
        let whole = json(&hit(), true);
        assert_eq!(whole["spanSets"].as_array().map(Vec::len), Some(2));
        assert_eq!(whole["spanSet"], whole["spanSets"][0]);
        assert_eq!(whole["serviceStats"], json!({"a": {"spanCount": 2}, "b": {"spanCount": 1, "errorCount": 1}}));
        let mut rootless = hit();
        rootless.summary.root_missing = true;
        let rootless = json(&rootless, false);
        assert_eq!(
            (rootless["rootServiceName"].as_str(), rootless["rootTraceName"].as_str()),
            (Some(NO_ROOT), Some(""))
        );
    }

    #[test]
    fn a_trace_as_a_message() {
        let mut out = Vec::new();
        put(&hit(), true, &mut out);
        let whole = read(&out);
        assert_eq!((whole.len(), whole[0].0), (1, LIST));
        let fields = read(&whole[0].1);
        assert_eq!(fields.iter().map(|f| f.0).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 7, 8, 8]);
        assert_eq!((fields[0].1.as_slice(), fields[3].2, fields[4].2), ("01".repeat(16).as_bytes(), 5, 7));
        let set = read(&fields[6].1);
        let span = read(&set[0].1);
        assert_eq!(span.iter().map(|f| f.0).collect::<Vec<_>>(), [1, 3, 4, 5]);
        let pair = read(&span[3].1);
        // The number 0 is present.
        assert_eq!(read(&pair[1].1), [(3, Vec::new(), 0)]);
        let entry = read(&fields[9].1);
        assert_eq!(entry[0].1, b"b");
        assert_eq!(read(&entry[1].1), [(1, Vec::new(), 1), (2, Vec::new(), 1)]);
        let mut alone = Vec::new();
        put(&hit(), false, &mut alone);
        assert_eq!(read(&read(&alone)[0].1).len(), 5);
    }
}
