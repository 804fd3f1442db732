//! Endpoints besides queries that clients of Prometheus call: exemplars, rules, alerts, targets; deadlines of gRPC.

use quiver_tests::bodies::{compress, field, varint};
use quiver_tests::held_server::Hold;
use quiver_tests::server::{Options, Server};
use quiver_tests::socket::grpc_message;
use serde_json::{Value, json};

const T0_MS: i64 = 1_700_000_000_000;

fn label(name: &str, value: &str) -> Vec<u8> {
    let mut out = Vec::new();
    field(&mut out, 1, name.as_bytes());
    field(&mut out, 2, value.as_bytes());
    out
}

fn numbers(value_tag: u8, value: f64, ts_tag: u8, ts: i64) -> Vec<u8> {
    let mut out = vec![value_tag];
    out.extend_from_slice(&value.to_le_bytes());
    out.push(ts_tag);
    varint(&mut out, ts as u64);
    out
}

/// One series with a sample and an exemplar.
fn with_exemplar() -> Vec<u8> {
    let mut series = Vec::new();
    for (name, value) in [("__name__", "latency_bucket"), ("job", "api"), ("le", "1")] {
        field(&mut series, 1, &label(name, value));
    }
    field(&mut series, 2, &numbers(0x09, 5.0, 0x10, T0_MS));
    let mut exemplar = Vec::new();
    field(&mut exemplar, 1, &label("trace_id", "abc"));
    exemplar.extend(numbers(0x11, 0.25, 0x18, T0_MS - 500));
    field(&mut series, 3, &exemplar);
    let mut raw = Vec::new();
    field(&mut raw, 1, &series);
    compress(&raw)
}

#[tokio::test(flavor = "multi_thread")]
async fn exemplars_in_every_state() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    server.write(with_exemplar()).await;
    let path = "/metrics-api/api/v1/query_exemplars";
    let expected = json!([{
        "seriesLabels": {"__name__": "latency_bucket", "job": "api", "le": "1"},
        "exemplars": [{"labels": {"trace_id": "abc"}, "value": "0.25", "timestamp": 1_699_999_999.5}],
    }]);
    let query = "histogram_quantile(0.9, rate(latency_bucket{job=\"api\"}[5m]))";
    for state in ["live", "flushed", "compacted"] {
        let all = server.get_with(path, &[("query", query)]).await.json();
        assert_eq!(all["data"], expected, "{state}");
        let (start, end) = ("1700000000", "1700000100");
        let later = server.get_with(path, &[("query", query), ("start", start), ("end", end)]).await.json();
        assert_eq!(later["data"], json!([]), "{state}");
        if state == "live" {
            server.flush().await;
        } else {
            server.compact().await;
        }
    }
    assert_eq!(server.get_with(path, &[("query", "1 + 1")]).await.status, 204);
    let wrong = server.get_with(path, &[("query", "sum(")]).await;
    assert_eq!((wrong.status, &wrong.json()["errorType"]), (400, &json!("bad_data")));
    let turned = server.get_with(path, &[("query", "a"), ("start", "2"), ("end", "1")]).await;
    assert_eq!(turned.status, 400, "{}", turned.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_alerts_and_targets() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let api = |path: &str| format!("/metrics-api/api/v1/{path}");
    let check = async |path: &str, expected: Value| {
        let answer = server.get(&api(path)).await;
        assert_eq!((answer.status, &answer.json()["data"]), (200, &expected), "{path}");
    };
    check("rules?type=alert&group_limit=5", json!({"groups": []})).await;
    check("alerts", json!({"alerts": []})).await;
    check("targets?state=any", json!({"activeTargets": [], "droppedTargets": [], "droppedTargetCounts": {}})).await;
    // An unknown state shows nothing; what was dropped is counted where it is shown.
    for other in ["targets?state=x", "targets?state=active"] {
        check(other, json!({"activeTargets": [], "droppedTargets": [], "droppedTargetCounts": null})).await;
    }
    check("targets/metadata", json!([])).await;
    check("alertmanagers", json!({"activeAlertmanagers": [], "droppedAlertmanagers": []})).await;
    for wrong in ["rules?type=x", "rules?group_limit=0", "rules?group_next_token=abc"] {
        let answer = server.get(&api(wrong)).await;
        assert_eq!((answer.status, &answer.json()["errorType"]), (400, &json!("bad_data")), "{wrong}");
    }
    let formatted = server.get_with(&api("format_query"), &[("query", "sum(rate(a[5m]))by(b)")]).await.json();
    assert_eq!(formatted["data"], "sum by (b) (rate(a[5m]))");
}

#[tokio::test(flavor = "multi_thread")]
async fn statistics_hold_what_is_measured() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    server.write(with_exemplar()).await;
    let ask = async |stats: &str| {
        let params = [("query", "latency_bucket"), ("time", "1700000000"), ("stats", stats)];
        server.get_with("/metrics-api/api/v1/query", &params).await.json()
    };
    let some = ask("true").await;
    let peak = some["data"]["stats"]["samples"]["peakSamples"].as_u64().expect("a number");
    assert!(peak > 0, "{some}");
    let totals = json!({"samplesRead": 1, "totalQueryableSamples": 1, "peakSamples": peak});
    assert_eq!(some["data"]["stats"]["samples"], totals);
    let timings = some["data"]["stats"]["timings"].as_object().expect("an object");
    for name in ["evalTotalTime", "resultSortTime", "queryPreparationTime", "innerEvalTime", "execQueueTime"] {
        let part = timings[name].as_f64().expect("a number");
        assert!((0.0..=timings["execTotalTime"].as_f64().expect("a number")).contains(&part), "{some}");
    }
    let all = ask("all").await;
    let samples = &all["data"]["stats"]["samples"];
    assert_eq!(samples["totalQueryableSamplesPerStep"], json!([[1_700_000_000, 1]]));
    assert_eq!(samples["samplesReadPerStep"], json!([[1_700_000_000, 1]]));
    assert!(some.get("warnings").is_none() && all.get("warnings").is_none(), "{some} {all}");
    let odd = ask("some").await;
    let text = odd["warnings"][0].as_str().expect("a warning");
    assert!(text.starts_with("value \"some\" for parameter \"stats\" is deprecated"), "{odd}");
}

/// Breaks if OTLP over HTTP on the gRPC port gets status 200, which gRPC uses for errors too: senders would take their
/// spans for stored.
#[tokio::test(flavor = "multi_thread")]
async fn otlp_over_http_is_refused_by_the_port_of_grpc() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    for path in ["/v1/traces", "/v1/logs", "/v1/metrics", "/health/ready"] {
        let posting = client.post(format!("http://{}{path}", server.otlp_grpc));
        let answer = posting.header("content-type", "application/x-protobuf").body("").send().await.expect("an answer");
        let (status, text) = (answer.status().as_u16(), answer.text().await.expect("a text"));
        assert!(status == 404 && text.contains("`otlp.http_listen`"), "{path}: {status} {text}");
    }
}

/// A sender over gRPC waits no longer than it says, whatever the log waits for; one that cannot be understood is told so.
#[tokio::test(flavor = "multi_thread")]
async fn calls_over_grpc_end_with_their_deadline() {
    let dir = tempfile::tempdir().expect("a folder");
    let hold = Hold::default();
    hold.release();
    let options = Options::default().env("QUIVER_FAILPOINT", hold.at("wal.before-write"));
    let server = Server::start(dir.path(), &options).await;
    // ExportLogsServiceRequest { resource_logs { scope_logs { log_records { body { string_value: "hi" } } } } }
    let message = [0x0a, 10, 0x12, 8, 0x12, 6, 0x2a, 4, 0x0a, 2, b'h', b'i'];
    let export = async |timeout: &str| {
        let path = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
        let headers = [("content-type", "application/grpc"), ("te", "trailers"), ("grpc-timeout", timeout)];
        let answer = server.post(path, &headers, grpc_message(false, &message)).await;
        assert_eq!(answer.status, 200, "{timeout}");
        let text = |name: &str| answer.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
        (text("grpc-status"), text("grpc-message").contains("grpc-timeout"))
    };
    for malformed in ["5", "S", "5s", "-5S", "123456789S"] {
        assert_eq!(export(malformed).await, ("3".to_owned(), true), "{malformed}");
    }
    hold.set();
    assert_eq!(export("50m").await, ("4".to_owned(), true));
    hold.release();
    assert_eq!(export("1H").await, (String::new(), false), "its status stands behind the message");
    assert_eq!(server.stop(), Some(0));
}
