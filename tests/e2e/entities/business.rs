//! The effects of business configuration on telemetry: transactions, key transactions, Apdex, processes, extraction. On
//! data that arrives after a change and, where history counts, on data from before it; also for callers with restricted
//! rights.

mod apdex;
mod apply;
mod backend_share;
mod extraction;
mod processes;
mod service_scope;

use quiver_tests::server::{Options, Server};
use quiver_types::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::identity::{PASSWORD, signed_in, user, with_password};
use crate::json_calls::{asked, call, made};

fn id(entity: &Value) -> &str {
    entity["id"].as_str().expect("an id")
}

/// Now, in nanoseconds.
fn now_ns() -> i64 {
    SystemClock.now_ms() * 1_000_000
}

/// A span to send.
#[derive(Clone)]
struct Sent {
    service: &'static str,
    name: &'static str,
    kind: u8,
    start_ns: i64,
    ms: i64,
    error: bool,
    attributes: Vec<(&'static str, String)>,
    resource: Vec<(&'static str, &'static str)>,
    number: u64,
}

impl Sent {
    /// A root span of a server, some milliseconds long.
    fn new(service: &'static str, number: u64, ms: i64) -> Self {
        Self {
            service,
            name: "GET",
            kind: 2,
            start_ns: now_ns() - 60_000_000_000,
            ms,
            error: false,
            attributes: Vec::new(),
            resource: Vec::new(),
            number,
        }
    }

    fn with(mut self, key: &'static str, value: impl ToString) -> Self {
        self.attributes.push((key, value.to_string()));
        self
    }

    fn at(self, start_ns: i64) -> Self {
        Self { start_ns, ..self }
    }
}

/// Sends spans, each as a trace of its own.
async fn send(server: &Server, spans: &[Sent]) {
    send_as(server, "", spans).await;
}

async fn send_as(server: &Server, who: &str, spans: &[Sent]) {
    let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let resources: Vec<Value> = spans
        .iter()
        .map(|span| {
            let resource = [("service.name", span.service)].into_iter().chain(span.resource.iter().copied());
            let resource: Vec<Value> = resource.map(|(k, v)| text(k, v)).collect();
            let attributes: Vec<Value> = span.attributes.iter().map(|(k, v)| text(k, v)).collect();
            json!({"resource": {"attributes": resource}, "scopeSpans": [{"spans": [{
                "traceId": format!("{:032x}", span.number), "spanId": format!("{:016x}", span.number),
                "name": span.name, "kind": span.kind, "startTimeUnixNano": span.start_ns.to_string(),
                "endTimeUnixNano": (span.start_ns + span.ms * 1_000_000).to_string(),
                "status": {"code": if span.error { 2 } else { 0 }}, "attributes": attributes,
            }]}]})
        })
        .collect();
    let sent = call(server, who, "POST", "/v1/traces", &json!({"resourceSpans": resources})).await;
    assert_eq!(sent.status, 200, "{}", sent.text());
}

/// Rows of a statement, each by the names of its columns.
async fn rows(server: &Server, who: &str, statement: &str) -> Vec<Value> {
    let body = json!({"query": statement, "format": "ndjson"});
    let answer = call(server, who, "POST", "/sql-api/v1/query", &body).await;
    assert_eq!(answer.status, 200, "{statement}: {}", answer.text());
    answer.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The rows of a query of analytics.
async fn load(server: &Server, who: &str, query: Value) -> Vec<Value> {
    let body = json!({"query": query, "cache": "no-cache"});
    let answer = asked(server, who, "POST", "/olap-api/v1/load", &body).await;
    answer["data"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
}

/// A server with access control; gives the token of the administrator, and that of a user who sees and edits one service.
async fn restricted(server: &Server, service: &str) -> (String, String) {
    let admin = signed_in(server, "admin").await;
    user(server, &admin, "ann", "editor", json!([service])).await;
    let ann = signed_in(server, "ann").await;
    (admin, ann)
}

/// Waits until a job has ended.
async fn ended(server: &Server, who: &str, path: &str) -> Value {
    for _ in 0..600 {
        let job = asked(server, who, "GET", path, &Value::Null).await;
        if !matches!(job["state"].as_str(), Some("queued" | "running")) {
            return job;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("{path} does not end");
}
