//! Requests of Grafana's data source for VictoriaLogs (source: `pkg/plugin`), as data: each is answered below both base
//! URLs that may be configured, with the headers that it sends.

use std::time::Duration;

use quiver_tests::server::{Options, Server};
use serde_json::Value;

use crate::logs::query::send;

/// 2025-03-10T00:00:00Z.
const START_S: i64 = 1_741_564_800;
const ORIGIN: &str = "https://grafana.example";

async fn start() -> (Server, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_HTTP__CORS_ORIGINS", format!("[\"{ORIGIN}\"]"));
    let server = Server::start(dir.path(), &options).await;
    let line = |n: i64| {
        let level = if n % 10 == 0 { "error" } else { "info" };
        let (time, app) = (START_S + n, n % 3);
        format!(
            "{{\"_time\":{time},\"_msg\":\"request {n} served\",\"app\":\"app{app}\",\"n\":{n},\"level\":\"{level}\"}}\n"
        )
    };
    send(&server, "app", (0..90).map(line).collect()).await;
    (server, dir)
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().timeout(Duration::from_mins(5)).build().expect("a client")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_is_answered() {
    let (server, _dir) = start().await;
    let calls: Vec<Value> = serde_json::from_str(include_str!("logs.json")).expect("JSON");
    for call in &calls {
        let text = |name: &str| call[name].as_str().unwrap_or_default();
        let params: Vec<(&str, &str)> = call["params"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|pair| (pair[0].as_str().expect("a name"), pair[1].as_str().expect("a text")))
            .collect();
        for base in ["", "/logs-api"] {
            let url = server.url(&format!("{base}{}", text("path")));
            let method = text("method").parse().expect("a method");
            let sent = client().request(method, url).query(&params).header("AccountID", "0").header("ProjectID", "0");
            let answer = sent.send().await.expect("an answer");
            let (status, body) = (answer.status().as_u16(), answer.text().await.expect("a body"));
            let what = format!("{base}: {}", text("what"));
            assert_eq!(status, call["status"].as_u64().unwrap_or(200) as u16, "{what}: {body}");
            if let Some(lines) = call["lines"].as_u64() {
                assert_eq!(body.lines().count() as u64, lines, "{what}: {body}");
            }
            if call["line"].is_object() {
                let has = |row: &Value| {
                    let wanted = call["line"].as_object().expect("an object");
                    wanted.iter().all(|(name, value)| row[name] == *value)
                };
                let found = body.lines().any(|line| has(&serde_json::from_str(line).expect("JSON")));
                assert!(found, "{what}: {body}");
            }
            for (place, wanted) in call["has"].as_object().into_iter().flatten() {
                let found: Value = serde_json::from_str(&body).expect("JSON");
                assert_eq!(found.pointer(place), Some(wanted), "{what}: {place} of {body}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_followed() {
    let (server, _dir) = start().await;
    let url = server.url("/select/logsql/tail");
    // Without an offset a row is not seen that is stored after its moment was looked at.
    let params =
        [("query", "* | fields _msg"), ("refresh_interval", "100ms"), ("offset", "12s"), ("start_offset", "1h")];
    let mut answer = client().get(url).query(&params).send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    send(&server, "app", "{\"_msg\":\"just now\"}\n".to_owned()).await;
    let mut seen = String::new();
    while !seen.contains("just now") {
        let piece = answer.chunk().await.expect("no fault").expect("no end");
        seen.push_str(std::str::from_utf8(&piece).expect("text"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_may_send_the_headers() {
    let (server, _dir) = start().await;
    let ask = client().request(reqwest::Method::OPTIONS, server.url("/insert/jsonline"));
    let answer = ask.header("Origin", ORIGIN).header("Access-Control-Request-Method", "POST").send().await;
    let answer = answer.expect("an answer");
    let allowed = answer.headers()["access-control-allow-headers"].to_str().expect("text").to_ascii_lowercase();
    for header in
        ["logs-stream-fields", "vl-stream-fields", "vl-loki-disable-message-parsing", "accountid", "content-type"]
    {
        assert!(allowed.split(", ").any(|name| name == header), "{header}: {allowed}");
    }
}

/// Paths of the service whose shippers are pointed here.
#[tokio::test(flavor = "multi_thread")]
async fn shippers_may_keep_their_paths() {
    let (server, _dir) = start().await;
    let json = ("content-type", "application/json");
    for base in ["/insert", "/logs-api/insert"] {
        let push =
            "{\"streams\":[{\"stream\":{\"from\":\"push\"},\"values\":[[\"1741564900000000000\",\"{\\\"a\\\":1}\"]]}]}";
        for (path, headers, body, status) in [
            ("jsonline", vec![], "{\"_msg\":\"m\"}\n", 200),
            ("elasticsearch/_bulk", vec![], "{\"create\":{}}\n{\"_msg\":\"m\"}\n", 200),
            ("loki/api/v1/push", vec![json, ("vl-loki-disable-message-parsing", "1")], push, 204),
            ("datadog/api/v2/logs", vec![json], "[{\"message\":\"m\"}]", 202),
            ("opentelemetry/v1/logs", vec![json], "{\"resourceLogs\":[]}", 200),
        ] {
            let answer = server.post(&format!("{base}/{path}"), &headers, body.as_bytes().to_vec()).await;
            assert_eq!(answer.status, status, "{base}/{path}: {}", answer.text());
        }
        assert_eq!(server.get(&format!("{base}/ready")).await.status, 200);
        assert_eq!(server.get(&format!("{base}/loki/ready")).await.text(), "ready");
        assert_eq!(server.get(&format!("{base}/datadog/api/v1/validate")).await.status, 200);
    }
    // The line was left as it is.
    let answer = server.get_with("/select/logsql/query", &[("query", "{from=\"push\"} | fields _msg")]).await;
    assert_eq!(answer.text(), "{\"_msg\":\"{\\\"a\\\":1}\"}\n".repeat(2));
}
