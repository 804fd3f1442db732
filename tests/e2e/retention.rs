//! Retention by age and by size, as an operator configures it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quiver_tests::bodies::remote_write;
use quiver_tests::server::{Options, Server};
use serde_json::json;

const DAY_MS: i64 = 86_400_000;

#[allow(clippy::disallowed_methods, reason = "the server goes by the wall clock")]
fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as i64
}

/// Today, and so many days ago: a sample, a log row, a span each.
async fn fill(server: &Server, days: &[i64]) {
    for day in days {
        let at = now_ms() - day * DAY_MS - 1000;
        server.write(remote_write(&[(vec![("__name__", "m")], vec![(at, *day as f64)])])).await;
        let row = json!({"_time": at.to_string(), "_msg": "m", "app": "a"}).to_string().into_bytes();
        assert_eq!(server.post("/insert/jsonline?_stream_fields=app", &[], row).await.status, 200);
        let span = json!({"traceId": format!("{:032x}", day + 1), "spanId": "0000000000000001", "name": "s",
            "startTimeUnixNano": (at * 1_000_000).to_string(), "endTimeUnixNano": (at * 1_000_000 + 5).to_string()});
        let body = json!({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).to_string().into_bytes();
        assert_eq!(server.post("/v1/traces", &[("content-type", "application/json")], body).await.status, 200);
    }
    server.flush().await;
}

/// More of today than the least limit of a store: text that does not pack.
async fn fill_up(server: &Server) {
    let mut state = 1_u64;
    let mut word = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{:016x}", state ^ (state >> 29))
    };
    let mut body = String::new();
    for _ in 0..4096 {
        let text: String = (0..64).map(|_| word()).collect();
        body.push_str(&json!({"_time": now_ms().to_string(), "_msg": text, "app": "ballast"}).to_string());
        body.push('\n');
    }
    let stored = server.post("/insert/jsonline?_stream_fields=app", &[], body.into_bytes()).await;
    assert_eq!(stored.status, 200);
    server.flush().await;
}

/// How many of the days are there: of metrics, logs, traces.
async fn days(server: &Server, days: &[i64]) -> (usize, usize, usize) {
    let data = server.query("m[4000d]", (now_ms() / 1000) as f64).await;
    let samples = data["result"][0]["values"].as_array().map_or(0, Vec::len);
    let rows = server.get_with("/logs-api/select/logsql/query", &[("query", "app:a"), ("start", "0")]).await.text();
    let mut traces = 0;
    for day in days {
        let answer = server.get(&format!("/api/traces/{:032x}", day + 1)).await;
        traces += usize::from(answer.status == 200 && answer.json()["data"].as_array().is_some_and(|d| !d.is_empty()));
    }
    (samples, rows.lines().count(), traces)
}

/// Waits until as many days are there as should be.
async fn becomes(server: &Server, of: &[i64], expected: (usize, usize, usize)) {
    for _ in 0..600 {
        if days(server, of).await == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(days(server, of).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_signal_has_its_own_retention() {
    let dir = tempfile::tempdir().expect("a folder");
    let all = [0, 10, 40];
    let server = Server::start(dir.path(), &Options::default()).await;
    fill(&server, &all).await;
    assert_eq!(days(&server, &all).await, (3, 3, 3));
    assert_eq!(server.stop(), Some(0));
    let options = Options::default()
        .args(&["--retention", "20d"])
        .env("QUIVER_STORE__RETENTION_METRICS", "none")
        .env("QUIVER_STORE__RETENTION_LOGS", "5d");
    let server = Server::start(dir.path(), &options).await;
    becomes(&server, &all, (3, 1, 2)).await;
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_days_go_when_the_store_is_too_large() {
    let dir = tempfile::tempdir().expect("a folder");
    let all = [0, 10, 40];
    let server = Server::start(dir.path(), &Options::default()).await;
    fill(&server, &all).await;
    fill_up(&server).await;
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(dir.path(), &Options::default().env("QUIVER_STORE__SIZE_MAX", "1MiB")).await;
    becomes(&server, &all, (1, 1, 1)).await;
    let metrics = server.get("/metrics").await.text();
    let dropped = metrics.lines().find_map(|l| l.strip_prefix("quiver_size_dropped_parts_total "));
    assert!(dropped.is_some_and(|n| n.trim().parse::<f64>().is_ok_and(|n| n >= 6.0)), "{dropped:?}");
    assert_eq!(server.stop(), Some(0));
}
