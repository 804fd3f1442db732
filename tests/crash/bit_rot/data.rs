//! Data of one day that fills every kind of file: floats, native histograms, exemplars, metadata, logs, spans.

use quiver_tests::bodies::{Series, remote_write};
use quiver_tests::load::{Caller, Written};
use quiver_tests::server::Server;
use serde_json::json;

const SERIES: usize = 50;
/// So many streams have postings in a file of their own, so many traces a filter.
const STREAMS: usize = 1100;
const TRACES: i64 = 4200;
const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

/// Writes it, from a time on.
pub(super) async fn fill(server: &Server, caller: &Caller, from_ms: i64) {
    let names: Vec<String> = (0..SERIES).map(|i| format!("s{i}")).collect();
    let samples = |i: usize| (0..200).map(|n| (from_ms + n * 1000, (n * 31 % 17) as f64 * 1.1 + i as f64)).collect();
    let series: Vec<Series<'_>> = names
        .iter()
        .enumerate()
        .map(|(i, name)| (vec![("__name__", "rotting"), ("series", name.as_str()), ("job", "j")], samples(i)))
        .collect();
    assert_eq!(caller.write(remote_write(&series)).await, Written::Taken);
    let taken = async |path: &str, body: String| {
        let answer = server.post(path, JSON, body.into_bytes()).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    };
    taken("/v1/metrics", histogram(from_ms)).await;
    taken("/v1/traces", spans(from_ms)).await;
    taken("/v1/traces", traces(from_ms)).await;
    let rows: Vec<String> = (0..300)
        .map(|n| {
            let time = from_ms + n * 1000;
            json!({"_time": time, "_msg": format!("row {n} of {time}"), "app": format!("a{}", n % 3), "n": n})
                .to_string()
        })
        .collect();
    let many = (0..STREAMS)
        .map(|n| json!({"_time": from_ms - 2000, "_msg": "one of many", "pod": format!("p{n}")}).to_string());
    for (fields, rows) in [("app", rows), ("pod", many.collect())] {
        let path = format!("/insert/jsonline?_stream_fields={fields}");
        let answer = server.post(&path, &[], rows.join("\n").into_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

fn nanos(ms: i64) -> String {
    (ms * 1_000_000).to_string()
}

fn resource() -> serde_json::Value {
    json!({"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]})
}

/// An exponential histogram with an exemplar, and what it is.
fn histogram(from_ms: i64) -> String {
    let point = |n: i64| {
        json!({"startTimeUnixNano": nanos(from_ms), "timeUnixNano": nanos(from_ms + n * 1000), "count": (3 + n).to_string(),
            "sum": 7.5, "scale": 1, "zeroCount": "0", "positive": {"offset": 0, "bucketCounts": ["1", "1", (1 + n).to_string()]},
            "exemplars": [{"timeUnixNano": nanos(from_ms + n * 1000), "asDouble": 1.5,
                "traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "b7ad6b7169203331"}]})
    };
    let points: Vec<_> = (1..50).map(point).collect();
    let metric = json!({"name": "latency", "description": "how long it took", "unit": "s",
        "exponentialHistogram": {"aggregationTemporality": 2, "dataPoints": points}});
    json!({"resourceMetrics": [{"resource": resource(), "scopeMetrics": [{"metrics": [metric]}]}]}).to_string()
}

fn spans(from_ms: i64) -> String {
    let span = |n: i64| {
        json!({"traceId": format!("{:032x}", from_ms + n), "spanId": format!("{:016x}", n + 1), "name": format!("op{}", n % 5),
            "kind": 2, "startTimeUnixNano": nanos(from_ms + n * 1000), "endTimeUnixNano": nanos(from_ms + n * 1000 + 5),
            "attributes": [{"key": "color", "value": {"stringValue": format!("c{}", n % 7)}}]})
    };
    let spans: Vec<_> = (0..100).map(span).collect();
    json!({"resourceSpans": [{"resource": resource(), "scopeSpans": [{"spans": spans}]}]}).to_string()
}

/// Many traces of one span, before all others.
fn traces(from_ms: i64) -> String {
    let span = |n: i64| {
        json!({"traceId": format!("{:032x}", from_ms * 10_000 + n), "spanId": format!("{:016x}", n + 1), "name": "one of many",
            "startTimeUnixNano": nanos(from_ms - 1000), "endTimeUnixNano": nanos(from_ms - 999)})
    };
    json!({"resourceSpans": [{"scopeSpans": [{"spans": (0..TRACES).map(span).collect::<Vec<_>>()}]}]}).to_string()
}
