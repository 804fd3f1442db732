//! How deployments are detected: by explicit events, by pipeline tasks, and by new versions; and what followed them.

use quiver_tests::server::{Options, Server};
use serde_json::{Value, json};

use crate::identity::{PASSWORD, bearer, ingest_key, login, user, with_password};
use crate::olap::derived_models::{Case, is_near, table};

/// 2025-03-10T00:00:00Z in seconds.
const MIDNIGHT: u64 = 1_741_564_800;
const SERVER: u8 = 2;
const CLIENT: u8 = 3;

struct Span {
    service: &'static str,
    version: &'static str,
    kind: u8,
    /// Seconds since midnight.
    at: u64,
    ms: u64,
    is_error: bool,
    attributes: &'static [(&'static str, &'static str)],
}

const fn request(version: &'static str, at: u64, ms: u64, is_error: bool) -> Span {
    Span { service: "pay", version, kind: SERVER, at, ms, is_error, attributes: &[] }
}

const fn run(at: u64, ms: u64, attributes: &'static [(&'static str, &'static str)]) -> Span {
    Span { service: "ci", version: "", kind: CLIENT, at, ms, is_error: false, attributes }
}

const SPANS: &[Span] = &[
    request("1", 5_400, 100, false),
    request("1", 6_000, 300, false),
    request("2", 7_800, 400, true),
    request("2", 8_400, 200, false),
    request("3", 18_000, 100, false),
    request("1", 23_400, 100, false),
    run(
        40,
        10_000,
        &[("cicd.pipeline.name", "release"), ("cicd.pipeline.task.type", "build"), ("vcs.ref.head.revision", "abc")],
    ),
    run(
        100,
        60_000,
        &[
            ("cicd.pipeline.name", "release"),
            ("cicd.pipeline.task.type", "deploy"),
            ("cicd.pipeline.task.run.result", "failure"),
            ("vcs.ref.head.revision", "abc"),
        ],
    ),
];

fn attributes<'a>(of: impl Iterator<Item = (&'a str, &'a str)>) -> Value {
    let one = |(key, text): (&str, &str)| json!({"key": key, "value": {"stringValue": text}});
    of.filter(|(_, text)| !text.is_empty()).map(one).collect()
}

fn spans() -> Value {
    let one = |(at, span): (usize, &Span)| {
        let environment = if span.version.is_empty() { "" } else { "prod" };
        let resource = [
            ("service.name", span.service),
            ("service.version", span.version),
            ("deployment.environment.name", environment),
        ];
        let start = (MIDNIGHT + span.at) * 1_000_000_000;
        let code = if span.is_error { 2 } else { 0 };
        let written = json!({"traceId": format!("{:032x}", at + 1), "spanId": format!("{:016x}", at + 1), "name": "work",
            "kind": span.kind, "startTimeUnixNano": start.to_string(),
            "endTimeUnixNano": (start + span.ms * 1_000_000).to_string(), "status": {"code": code},
            "attributes": attributes(span.attributes.iter().copied())});
        json!({"resource": {"attributes": attributes(resource.into_iter())}, "scopeSpans": [{"spans": [written]}]})
    };
    let all: Value = SPANS.iter().enumerate().map(one).collect();
    json!({"resourceSpans": all})
}

fn events() -> String {
    let one = |(hour, version, id, status): (u8, &str, &str, &str)| {
        let event = json!({"_time": format!("2025-03-10T{hour:02}:00:00Z"), "_msg": "", "service.name": "pay",
            "service.version": version, "deployment.environment.name": "prod", "event_name": "deployment",
            "deployment.id": id, "deployment.status": status});
        format!("{event}\n")
    };
    [(2, "2", "d2", "failed"), (6, "1", "d1", "succeeded")].map(one).concat()
}

async fn fill(server: &Server, headers: &[(&str, &str)]) {
    let with: Vec<_> = headers.iter().copied().chain([("content-type", "application/json")]).collect();
    let answer = server.post("/insert/opentelemetry/v1/traces", &with, spans().to_string().into_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let path = "/insert/jsonline?_stream_fields=service.name";
    let answer = server.post(path, headers, events().into_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

fn cases() -> Vec<Case> {
    vec![
        (
            "Deployments",
            "service version previousVersion status detectedBy isRollback",
            &["count", "changeFailureRate", "durationP50", "leadTimeP50", "errorRateDelta", "latencyP95Delta"],
            json!([
                ["ci", null, null, "failed", "pipeline", false, "1", 1, 60_000, 60_000, null, null],
                ["pay", "1", "3", "succeeded", "event", true, "1", 1, null, null, 0, 0],
                ["pay", "2", "1", "failed", "event", false, "1", 1, null, null, 0.5, 100],
                ["pay", "3", "2", null, "telemetry", false, "1", 0, null, null, null, null]
            ]),
        ),
        (
            "Deployments",
            "environment",
            &["count", "failedCount", "rollbackCount", "errorRateDelta"],
            json!([["prod", "3", "1", "1", 0.25], [null, "1", "1", "0", null]]),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn deployments_are_found() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().args(&["--retention", "none"])).await;
    fill(&server, &[]).await;
    for flushed in [false, true] {
        if flushed {
            server.flush().await;
        }
        for case in cases() {
            let rows = table(&server, &[], &case).await;
            assert!(is_near(&rows, &case.3), "flushed {flushed}, {} by {}: {rows}, not {}", case.0, case.1, case.3);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_see_deployments_of_their_services() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password().args(&["--retention", "none"])).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let sender = ingest_key(&server, &admin, "agent").await;
    fill(&server, &[("authorization", &sender)]).await;
    for (service, expected) in [("pay", json!([["pay", "3"]])), ("other", json!([]))] {
        user(&server, &admin, service, "viewer", json!([service])).await;
        let who = bearer(&login(&server, service, PASSWORD).await);
        let case: Case = ("Deployments", "service", &["count"], expected);
        let rows = table(&server, &[("authorization", &who)], &case).await;
        assert!(is_near(&rows, &case.3), "{service}: {rows}, not {}", case.3);
    }
}
