//! Grafana's data sources of Prometheus, Jaeger, Zipkin and Tempo: each call that they make, as `grafana/calls.json` has
//! it, against a server with a little of each signal.
//!
//! A call has a method (GET), a path, parameters as `query` or `form` (`raw_query` where they come unescaped), headers;
//! and what the answer must have: a status (200), a part of its text, values by JSON pointer: the value itself, `"*"` for
//! any, `{"includes": v}` of a list, `{"length": n}`; or a number of spans in protobuf. Texts may name times and the trace.

mod logs;

use arrow::temporal_conversions::timestamp_ns_to_datetime;
use quiver_ingest::traces::{TraceContext, otlp};
use quiver_tests::server::{Answer, Options, Server};
use quiver_types::Access;
use reqwest::Url;
use serde_json::{Value, json};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SECOND: i64 = 1_000_000_000;

/// A time of the test in the ways that clients write it.
fn words(now: i64) -> Vec<(String, String)> {
    let rfc =
        |ns: i64| timestamp_ns_to_datetime(ns).expect("a time of today").format("%Y-%m-%dT%H:%M:%S%.9fZ").to_string();
    let mut out = vec![("{trace}".to_owned(), TRACE.to_owned())];
    for (name, at) in [("start", now - 1800 * SECOND), ("end", now + 60 * SECOND)] {
        out.extend([
            (format!("{{{name}}}"), (at / SECOND).to_string()),
            (format!("{{{name}_ms}}"), (at / 1_000_000).to_string()),
            (format!("{{{name}_us}}"), (at / 1000).to_string()),
            (format!("{{{name}_rfc}}"), rfc(at)),
            (format!("{{aligned_{name}}}"), (at / SECOND / 15 * 15).to_string()),
        ]);
    }
    out
}

fn filled(text: &str, words: &[(String, String)]) -> String {
    words.iter().fold(text.to_owned(), |text, (word, value)| text.replace(word, value))
}

fn filled_json(value: &Value, words: &[(String, String)]) -> Value {
    serde_json::from_str(&filled(&value.to_string(), words)).expect("still JSON")
}

fn pairs(call: &Value, key: &str, words: &[(String, String)]) -> Vec<(String, String)> {
    let pair = |(k, v): (&String, &Value)| (k.clone(), filled(v.as_str().unwrap_or_default(), words));
    call[key].as_object().into_iter().flatten().map(pair).collect()
}

async fn ask(server: &Server, call: &Value, words: &[(String, String)]) -> Answer {
    let text = |key: &str| call[key].as_str().unwrap_or_default();
    let encode = |pairs: Vec<(String, String)>| {
        let url = Url::parse_with_params("http://localhost/", pairs).expect("parameters");
        url.query().unwrap_or_default().to_owned()
    };
    let query = match call.get("raw_query") {
        Some(raw) => filled(raw.as_str().unwrap_or_default(), words),
        None => encode(pairs(call, "query", words)),
    };
    let mut path = filled(text("path"), words);
    if !query.is_empty() {
        path = format!("{path}?{query}");
    }
    let headers = pairs(call, "headers", words);
    let mut headers: Vec<(&str, &str)> = headers.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    if text("method") == "POST" {
        headers.push(("content-type", "application/x-www-form-urlencoded"));
        return server.post(&path, &headers, encode(pairs(call, "form", words)).into_bytes()).await;
    }
    server.get_as(&path, &headers).await
}

/// Counts the spans of a trace in protobuf; version 2 has it as the first field of an answer.
fn decoded_spans(body: &[u8], is_wrapped: bool) -> Result<usize, String> {
    let mut inner = body;
    if is_wrapped {
        let mut r = quiver_ingest::wire::Reader::new(body);
        r.tag().and_then(|_| r.bytes()).map(|bytes| inner = bytes).map_err(|e| e.to_string())?;
    }
    let access = Access::full();
    let ctx = TraceContext {
        body_bytes_max: 1 << 20,
        batch_bytes_max: 1 << 20,
        now_ns: 0,
        earliest_ns: 0,
        latest_ns: i64::MAX,
        access: &access,
    };
    let decoded = otlp::decode(inner, &ctx).map_err(|e| e.to_string())?;
    Ok(decoded.batch.spans.num_rows())
}

/// Says what an answer lacks.
fn lacks(call: &Value, answer: &Answer, words: &[(String, String)]) -> Option<String> {
    if u64::from(answer.status) != call["status"].as_u64().unwrap_or(200) {
        return Some(format!("status {}", answer.status));
    }
    if let Some(text) = call["text"].as_str().filter(|text| !answer.text().contains(text)) {
        return Some(format!("no `{text}`"));
    }
    if let Some(spans) = call["protobuf"].as_u64() {
        let found = decoded_spans(&answer.body, call["wrapped"] == true);
        return (found != Ok(spans as usize)).then(|| format!("not {spans} spans: {found:?}"));
    }
    let has = call["has"].as_object()?;
    let body = answer.json();
    has.iter().find_map(|(pointer, wanted)| {
        let found = body.pointer(pointer).cloned().unwrap_or(Value::Null);
        let wanted = filled_json(wanted, words);
        let list = found.as_array();
        let good = match (&wanted, wanted.get("includes"), wanted.get("length")) {
            (_, Some(one), _) => list.is_some_and(|list| list.contains(one)),
            (_, _, Some(length)) => list.is_some_and(|list| Some(list.len() as u64) == length.as_u64()),
            (Value::String(any), ..) if any == "*" => !found.is_null(),
            _ => found == wanted,
        };
        (!good).then(|| format!("{pointer} is {found}, not {wanted}"))
    })
}

fn attribute(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// Three hosts that name no service, and a shop with an exemplar.
fn metrics(now: i64) -> Value {
    let at = |n: i64| (now - n * SECOND).to_string();
    let host = |name: &str| {
        let points = json!([{"asDouble": 5.0, "timeUnixNano": at(30), "attributes": [attribute("state", "used")]}]);
        json!({"resource": {"attributes": [attribute("host.name", name)]}, "scopeMetrics": [{"metrics": [
            {"name": "system.memory.usage", "unit": "By", "gauge": {"dataPoints": points}}]}]})
    };
    let exemplar = json!({"asDouble": 1.0, "timeUnixNano": at(30), "traceId": TRACE, "spanId": "0000000000000001"});
    let orders = json!([{"asDouble": 1.0, "timeUnixNano": at(60)}, {"asDouble": 4.0, "timeUnixNano": at(30), "exemplars": [exemplar]}]);
    let latency = json!([{"timeUnixNano": at(30), "count": "4", "sum": 2.0, "bucketCounts": ["2", "2"], "explicitBounds": [1.0]}]);
    let shop = json!({"resource": {"attributes": [attribute("service.name", "shop-web")]}, "scopeMetrics": [{"metrics": [
        {"name": "orders", "sum": {"aggregationTemporality": 2, "isMonotonic": true, "dataPoints": orders}},
        {"name": "latency", "unit": "s", "histogram": {"aggregationTemporality": 2, "dataPoints": latency}}]}]});
    json!({"resourceMetrics": [host("a"), host("b"), host("c"), shop]})
}

/// A checkout that fails, with a call of another service.
fn traces(now: i64) -> Value {
    let begin = now - 40 * SECOND;
    let span = |id: u64, parent: u64, name: &str, kind: u8, from: i64, to: i64, code: &str| {
        let mut span = json!({"traceId": TRACE, "spanId": format!("{id:016x}"), "name": name, "kind": kind,
            "startTimeUnixNano": (begin + from * 1_000_000).to_string(), "endTimeUnixNano": (begin + to * 1_000_000).to_string(),
            "attributes": [attribute("http.request.method", if kind == 2 && parent == 0 { "POST" } else { "GET" }),
                {"key": "http.response.status_code", "value": {"intValue": code}}]});
        if parent > 0 {
            span["parentSpanId"] = format!("{parent:016x}").into();
        }
        if code == "500" {
            span["status"] = json!({"code": 2, "message": "declined"});
        }
        span
    };
    let block = |service: &str, spans: Vec<Value>| {
        let attributes = [attribute("service.name", service), attribute("host.name", "h")];
        json!({"resource": {"attributes": attributes}, "scopeSpans": [{"scope": {"name": "lib"}, "spans": spans}]})
    };
    json!({"resourceSpans": [
        block("shop-web", vec![span(1, 0, "POST /checkout", 2, 0, 480, "500"), span(2, 1, "GET cart", 3, 1, 90, "200")]),
        block("cart", vec![span(3, 2, "GET /cart", 2, 10, 80, "200")]),
    ]})
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_of_its_data_sources_is_answered() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as i64;
    for (path, body) in [("/v1/metrics", metrics(now)), ("/v1/traces", traces(now))] {
        let answer = server.post(path, &[("content-type", "application/json")], body.to_string().into_bytes()).await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "{}"), "{path}");
    }
    let words = words(now);
    let calls: Value = serde_json::from_str(include_str!("grafana/calls.json")).expect("calls");
    let mut failures = Vec::new();
    for state in ["live", "flushed"] {
        if state == "flushed" {
            server.flush().await;
        }
        for call in calls.as_array().expect("a list") {
            let answer = ask(&server, call, &words).await;
            if let Some(problem) = lacks(call, &answer, &words) {
                let (source, what) = (&call["source"], &call["what"]);
                failures.push(format!("{state}, {source}, {what}: {problem}\n  {}", answer.text()));
            }
        }
    }
    assert!(failures.is_empty(), "{} calls:\n{}", failures.len(), failures.join("\n"));
}
