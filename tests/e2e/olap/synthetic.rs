//! Runs of synthetic checks: samples of several metrics at one time are one row, beside spans of synthetic tests.

use quiver_tests::server::{Options, Server};
use serde_json::json;
use std::fmt::Write as _;

use crate::olap::derived_models::{Case, is_near, table};

/// 2025-03-10T00:00:00Z.
const START_S: i64 = 1_741_564_800;

async fn fill(server: &Server) {
    let mut text = String::new();
    for (n, is_up) in (0_i64..).zip([true, true, false, false, true, true]) {
        let mut sample = |name: &str, labels: &str, value: f64| {
            let _ = writeln!(text, "{name}{{{labels}}} {value} {}", (START_S + 60 * n) * 1000);
        };
        let blackbox = "job=\"bb\",instance=\"https://a.example\",service_name=\"web\",location=\"eu\"";
        sample("probe_success", blackbox, f64::from(u8::from(is_up)));
        sample("probe_duration_seconds", blackbox, 0.1 * (n + 1) as f64);
        sample("probe_http_status_code", blackbox, if is_up { 200.0 } else { 500.0 });
        let check = "job=\"hc\",service_name=\"pay\",host_name=\"h1\",http_url=\"https://b.example\"";
        let (is, status) = if n == 0 { ("5xx", 503) } else { ("2xx", 200) };
        for class in ["1xx", "2xx", "3xx", "4xx", "5xx"] {
            let labels = format!("{check},http_status_class=\"{class}\",http_status_code=\"{status}\"");
            sample("httpcheck_status_ratio", &labels, f64::from(u8::from(class == is)));
        }
        sample("httpcheck_duration_milliseconds", check, 50.0);
    }
    let answer = server.post("/metrics-api/api/v1/import/prometheus", &[], text.into_bytes()).await;
    assert!(answer.status < 300, "{}", answer.text());
    let attribute = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let span = |id: u8, more: &[(&str, &str)]| {
        let attributes: Vec<_> = more.iter().map(|(key, value)| attribute(key, value)).collect();
        json!({"traceId": format!("{id:032x}"), "spanId": format!("{id:016x}"), "name": "GET /", "kind": 2,
            "startTimeUnixNano": format!("{START_S}000000000"), "endTimeUnixNano": format!("{START_S}020000000"),
            "attributes": attributes})
    };
    let synthetic = ("user_agent.synthetic.type", "test");
    let spans =
        [span(1, &[synthetic, ("url.full", "https://c.example")]), span(2, &[("url.full", "https://d.example")])];
    let body = json!({"resourceSpans": [{"resource": {"attributes": [attribute("service.name", "shop")]},
        "scopeSpans": [{"spans": spans}]}]});
    let headers = [("content-type", "application/json")];
    let answer = server.post("/v1/traces", &headers, body.to_string().into_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_of_one_time_are_one_run() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    fill(&server).await;
    let cases: [Case; 2] = [
        (
            "SyntheticChecks",
            "check target location service",
            &["count", "successCount", "downtime", "durationAvg", "durationP95"],
            json!([
                ["GET /", "https://c.example", null, "shop", 1, 1, 0, 20, 20],
                ["bb", "https://a.example", "eu", "web", 6, 4, 120_000, 350, 575],
                ["hc", "https://b.example", "h1", "pay", 6, 5, 60_000, 50, 50]
            ]),
        ),
        (
            "SyntheticChecks",
            "check httpStatus success",
            &["count", "uptime"],
            json!([
                ["GET /", null, true, 1, 1],
                ["bb", 200, true, 4, 1],
                ["bb", 500, false, 2, 0],
                ["hc", 200, true, 5, 1],
                ["hc", 503, false, 1, 0]
            ]),
        ),
    ];
    for flushed in [false, true] {
        if flushed {
            server.flush().await;
        }
        for case in &cases {
            let got = table(&server, &[], case).await;
            assert!(is_near(&got, &case.3), "{} by {}, flushed: {flushed}: {got}, not {}", case.0, case.1, case.3);
        }
    }
}
