//! Spans of a request that was sent again because its response was lost: they count once, wherever the two copies are
//! stored. Different reports of a span are rows of their own, but count as one call.

use quiver_tests::server::{Options, Server};
use serde_json::{Value, json};

/// 2026-03-01 12:00 UTC.
const NOON: i64 = 1_772_366_400_000_000_000;
const MINUTE: i64 = 60_000_000_000;

fn attributes(pairs: &[(&str, &str)]) -> Value {
    pairs.iter().map(|(k, v)| json!({"key": k, "value": {"stringValue": v}})).collect()
}

/// A request of some traces: a server that calls another one and a database, one span of each trace an error.
fn request(traces: std::ops::Range<u64>) -> Vec<u8> {
    let mut spans = Vec::new();
    for trace in traces {
        for (id, parent, service, kind) in
            [(1, 0, "front", 2), (2, 1, "front", 3), (3, 2, "back", 2), (4, 3, "back", 3)]
        {
            let start = NOON + (trace as i64 % 90) * MINUTE + id * 1_000;
            let tags = match id {
                2 => attributes(&[("peer.service", "back"), ("n", &trace.to_string())]),
                4 => attributes(&[("db.system.name", "postgresql"), ("db.namespace", "shop")]),
                _ => attributes(&[("http.route", "/items"), ("a.b", "c")]),
            };
            let mut span = json!({"traceId": format!("{:032x}", trace + 1), "spanId": format!("{id:016x}"),
                "name": format!("op {id}"), "kind": kind, "startTimeUnixNano": start.to_string(),
                "endTimeUnixNano": (start + 1_000_000).to_string(), "attributes": tags,
                "status": {"code": if id == 3 { 2 } else { 1 }}, "events": [{"name": "e", "timeUnixNano": start.to_string()}]});
            if parent > 0 {
                span["parentSpanId"] = format!("{parent:016x}").into();
            }
            let resource = attributes(&[("service.name", service), ("host.name", "h1"), ("service.version", "1")]);
            spans.push(json!({"resource": {"attributes": resource}, "scopeSpans": [{"spans": [span]}]}));
        }
    }
    json!({"resourceSpans": spans}).to_string().into_bytes()
}

async fn send(server: &Server, body: &[u8]) {
    let answer = server.post("/v1/traces", &[("content-type", "application/json")], body.to_vec()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// All lists of some windows: whole hours, parts of hours, and with a condition that no roll-up knows.
async fn lists(server: &Server) -> Vec<Value> {
    let mut all = Vec::new();
    let windows = [(NOON - 60 * MINUTE, NOON + 180 * MINUTE), (NOON + 5 * MINUTE, NOON + 10 * MINUTE)];
    for (from, to) in windows {
        for list in ["dependencies", "services", "operations", "instances", "tags", "tags/http.route/values"] {
            for more in ["", "&kind=server"] {
                let answer = server.get(&format!("/traces/{list}?from={from}&to={to}{more}")).await;
                assert_eq!(answer.status, 200, "{list}: {}", answer.text());
                all.push(json!([list, from, more, answer.json()["data"]]));
            }
        }
    }
    all
}

fn same(found: &[Value], expected: &[Value], state: &str) {
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected, "{state}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_that_were_sent_again_count_once() {
    let (first, others) = (request(0..200), request(200..400));
    let once = {
        let dir = tempfile::tempdir().expect("a folder");
        let server = Server::start(dir.path(), &Options::default()).await;
        send(&server, &first).await;
        send(&server, &others).await;
        lists(&server).await
    };
    let text = once[0].to_string();
    assert!(text.contains("\"calls\":400"), "{text}");
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    send(&server, &first).await;
    send(&server, &first).await;
    send(&server, &others).await;
    same(&lists(&server).await, &once, "live");
    server.flush().await;
    same(&lists(&server).await, &once, "flushed");
    send(&server, &others).await;
    same(&lists(&server).await, &once, "half");
    server.flush().await;
    same(&lists(&server).await, &once, "two parts");
    send(&server, &first).await;
    server.flush().await;
    send(&server, &first).await;
    same(&lists(&server).await, &once, "three parts, and live");
    server.kill();
    let server = Server::start(dir.path(), &Options::default()).await;
    same(&lists(&server).await, &once, "after a restart");
    // A trace is there once, too.
    let trace = server.get(&format!("/traces/{:032x}", 8)).await.text();
    assert_eq!(trace.matches("\"op 3\"").count(), 1, "{trace}");
    server.compact().await;
    same(&lists(&server).await, &once, "compacted");
    send(&server, &first).await;
    same(&lists(&server).await, &once, "compacted, and live");
    assert_eq!(server.stop(), Some(0));
}

/// Other reports of the caller's and the called sides of some traces: longer, failed, under another name; and a server that
/// the called one calls, of which the first reports did not know.
fn changed(traces: std::ops::Range<u64>) -> Vec<u8> {
    let mut body: Value = serde_json::from_slice(&request(traces)).expect("JSON");
    let mut spans = body["resourceSpans"].as_array().cloned().unwrap_or_default();
    spans.retain(|one| one["scopeSpans"][0]["spans"][0]["spanId"] != "0000000000000001");
    let mut called: Vec<Value> = Vec::new();
    for one in &mut spans {
        let mut span = one["scopeSpans"][0]["spans"][0].clone();
        if span["spanId"] == "0000000000000004" {
            let mut below = one.clone();
            below["resource"] = json!({"attributes": attributes(&[("service.name", "store"), ("host.name", "h1")])});
            let there = &mut below["scopeSpans"][0]["spans"][0];
            there["spanId"] = "0000000000000005".into();
            there["parentSpanId"] = "0000000000000004".into();
            there["kind"] = json!(2);
            there["attributes"] = json!([]);
            called.push(below);
        }
        let start: i64 = span["startTimeUnixNano"].as_str().and_then(|t| t.parse().ok()).unwrap_or_default();
        span["endTimeUnixNano"] = (start + 900_000_000).to_string().into();
        span["status"] = json!({"code": 2, "message": "late"});
        span["name"] = format!("again {}", span["spanId"]).into();
        one["scopeSpans"][0]["spans"][0] = span;
    }
    spans.extend(called);
    body["resourceSpans"] = spans.into();
    body.to_string().into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_that_are_described_again_call_once() {
    let (first, others, again) = (request(0..60), request(60..120), changed(0..40));
    let once = {
        let dir = tempfile::tempdir().expect("a folder");
        let server = Server::start(dir.path(), &Options::default()).await;
        for body in [&first, &others, &again] {
            send(&server, body).await;
        }
        let live = lists(&server).await;
        server.flush().await;
        same(&lists(&server).await, &live, "one part");
        live
    };
    let edges = once[0][3]["edges"].as_array().expect("edges");
    let calls: Vec<String> = edges.iter().map(|e| format!("{}>{} {}", e["source"], e["target"], e["calls"])).collect();
    assert_eq!(
        calls,
        [r#""back">"shop" 80"#, r#""back">"store" 40"#, r#""front">"back" 120"#, r#""user">"front" 120"#]
    );
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    send(&server, &first).await;
    server.flush().await;
    send(&server, &others).await;
    send(&server, &again).await;
    same(&lists(&server).await, &once, "a part, and live");
    server.flush().await;
    same(&lists(&server).await, &once, "two parts");
    // Both reports once more: copies of what stands in either part.
    send(&server, &first).await;
    send(&server, &again).await;
    same(&lists(&server).await, &once, "two parts, and live");
    server.flush().await;
    same(&lists(&server).await, &once, "three parts");
    server.compact().await;
    same(&lists(&server).await, &once, "compacted");
    assert_eq!(server.stop(), Some(0));
}
