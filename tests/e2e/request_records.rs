//! What the server records about requests: ids in responses and in the log, the access log, slow queries, durations by
//! phase.

use std::path::Path;
use std::time::{Duration, Instant};

use quiver_tests::server::{Options, Server};
use serde_json::Value;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Waits until the log has a line that fits; gives it.
async fn line(log: &Path, fits: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        if let Some(found) = lines.into_iter().find(|line| fits(line)) {
            return found;
        }
        assert!(began.elapsed() < Duration::from_mins(5), "no such line:\n{text}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn id_of(answer: &quiver_tests::server::Answer) -> String {
    let id = answer.headers.get("x-request-id").unwrap_or_else(|| panic!("no id: {answer:?}"));
    id.to_str().expect("text").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_names_its_request() {
    let dir = tempfile::tempdir().expect("a folder");
    let log = dir.path().join("log");
    let options = Options::default()
        .env("QUIVER_LOG__FORMAT", "json")
        .env("QUIVER_LOG__FILTER", "quiver=debug")
        .env("QUIVER_LOG__ACCESS", true)
        .log_to(&log);
    let server = Server::start(&dir.path().join("data"), &options).await;
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let sent = [("x-request-id", "7f3a-span-1"), ("traceparent", parent.as_str())];
    for (method, path, status) in [
        ("GET", "/health/live", 200),
        ("GET", "/nothing/here", 404),
        ("POST", "/health/live", 405),
        ("OPTIONS", "/metrics", 204),
        ("GET", "/metrics-api/api/v1/query?query=sum(", 400),
        ("GET", "/traces/xyz", 400),
        ("GET", "/logs-api/select/logsql/query?query=*", 200),
    ] {
        let answer = server.send(method, path, &sent, vec![]).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert_eq!(id_of(&answer), "7f3a-span-1", "{path}");
    }
    let made = id_of(&server.send("GET", "/health/live", &[("x-request-id", "no good id")], vec![]).await);
    assert!(made.len() == 16 && made.bytes().all(|b| b.is_ascii_hexdigit()), "{made}");
    assert_ne!(made, id_of(&server.get("/health/live").await));

    // Log lines of a request stand in its span.
    let failed = line(&log, |l| l["fields"]["message"].as_str().is_some_and(|m| m.contains("unclosed"))).await;
    assert_eq!(
        (&failed["span"]["id"], &failed["span"]["trace_id"]),
        (&"7f3a-span-1".into(), &TRACE.into()),
        "{failed}"
    );

    // One line a request, without parameters and bodies.
    let secret = b"{\"_msg\":\"swordfish\"}\n".to_vec();
    let taken =
        server.send("POST", "/insert/jsonline?_stream_fields=hunter2", &[("x-request-id", "w-1")], secret).await;
    assert_eq!(taken.status, 200, "{}", taken.text());
    let fields =
        |id: &'static str| line(&log, move |l| l["target"] == "quiver::access" && l["fields"]["request_id"] == id);
    let written = fields("w-1").await["fields"].clone();
    assert_eq!((&written["method"], &written["path"]), (&"POST".into(), &"/insert/jsonline".into()), "{written}");
    assert_eq!((&written["status"], &written["bytes_in"]), (&200.into(), &21.into()), "{written}");
    assert!(written["peer"].as_str().is_some_and(|p| p.starts_with("127.0.0.1:")), "{written}");
    assert!(written["duration_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{written}");
    let labels = "/metrics-api/api/v1/label/job/values";
    let answer = server.send("GET", labels, &[("x-request-id", "l-1")], vec![]).await;
    let read = fields("l-1").await["fields"].clone();
    assert_eq!(read["route"], "/metrics-api/api/v1/label/{name}/values", "{read}");
    assert_eq!((&read["bytes_out"], &read["whole"]), (&answer.body.len().into(), &true.into()), "{read}");
    let text = std::fs::read_to_string(&log).expect("a log");
    let access: Vec<&str> = text.lines().filter(|l| l.contains("quiver::access")).collect();
    assert!(access.iter().all(|l| !l.contains("swordfish") && !l.contains("hunter2")), "{access:?}");
    assert_eq!(access.iter().filter(|l| l.contains("\"w-1\"")).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_queries_of_all_languages_are_logged() {
    let dir = tempfile::tempdir().expect("a folder");
    let log = dir.path().join("log");
    let options = Options::default()
        .env("QUIVER_LOG__FORMAT", "json")
        .env("QUIVER_QUERY__SLOW", "1ms")
        .log_to(&log)
        .env("QUIVER_FAILPOINT", "query.begin=sleep:5");
    let server = Server::start(&dir.path().join("data"), &options).await;
    let long = format!("/metrics-api/api/v1/query?query=up{{a=\"{}\"}}", "x".repeat(6000));
    for (language, path) in [
        ("promql", "/metrics-api/api/v1/query?query=sum(up)"),
        ("promql", "/metrics-api/api/v1/query_range?query=rate(up[5m])&start=0&end=60&step=15"),
        ("promql", long.as_str()),
        ("series", "/metrics-api/api/v1/series?match[]=up"),
        ("series", "/metrics-api/api/v1/labels"),
        ("series", "/metrics-api/api/v1/metadata"),
        ("federation", "/metrics-api/federate?match[]=up"),
        ("logsql", "/logs-api/select/logsql/query?query=swordfish"),
        ("logsql", "/logs-api/select/logsql/hits?query=swordfish&step=1h"),
        ("traces", "/traces?service=shop"),
        ("traces", "/api/services"),
        ("traces", "/tempo/api/search?q={}"),
        ("traces", "/tempo/api/metrics/query_range?q={}|rate()&start=1700000000&end=1700000600&step=60"),
        ("sql", "/sql-api/v1/query?query=select count(*) from logs"),
        ("olap", "/olap-api/v1/load?query={\"measures\":[\"Logs.count\"]}"),
    ] {
        let id = id_of(&server.get(path).await);
        let slow =
            line(&log, |l| l["fields"]["message"] == "slow query" && l["fields"]["request_id"] == id.as_str()).await;
        let fields = &slow["fields"];
        assert_eq!(fields["language"], language, "{path}: {slow}");
        assert!(fields["took_ms"].as_u64().is_some_and(|ms| ms >= 5), "{path}: {slow}");
        let query = fields["query"].as_str().unwrap_or_default();
        assert!((1..=4096).contains(&query.len()), "{path}: {slow}");
        // Of endpoints with the same text, such as `query` and `hits` of logs, it says which one.
        assert_eq!(fields["path"].as_str(), path.split('?').next(), "{slow}");
        for field in ["memory_bytes", "samples", "bytes_read", "digest", "execute_ms", "caller"] {
            assert!(!fields[field].is_null(), "{path}: {field}: {slow}");
        }
    }
    let metrics = server.get("/metrics").await.text();
    let slow = metrics.lines().find_map(|l| l.strip_prefix("quiver_query_slow_total ")).expect("counted");
    assert!(slow.parse::<f64>().is_ok_and(|n| n >= 15.0), "{slow}");
}

#[tokio::test(flavor = "multi_thread")]
async fn times_by_family_and_phase() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    server.post("/insert/jsonline", &[], b"{\"_msg\":\"a\"}\n".to_vec()).await;
    server.get("/metrics-api/api/v1/query?query=up").await;
    server.get("/logs-api/select/logsql/query?query=*").await;
    server.get("/traces?service=shop").await;
    let metrics = server.get("/metrics").await.text();
    let value = |line: &str| {
        let found = metrics.lines().find_map(|l| l.strip_prefix(line)?.trim().parse::<f64>().ok());
        found.unwrap_or_else(|| panic!("{line} is missing:\n{metrics}"))
    };
    for family in ["metrics", "logs", "logs_write", "traces"] {
        let name = "quiver_http_request_duration_seconds";
        let count = value(&format!("{name}_count{{family=\"{family}\"}} "));
        assert!(count >= 1.0, "{family}");
        assert_eq!(value(&format!("{name}_bucket{{family=\"{family}\",le=\"+Inf\"}} ")), count, "{family}");
        assert!(value(&format!("{name}_sum{{family=\"{family}\"}} ")) > 0.0, "{family}");
    }
    for language in ["promql", "logsql", "traces"] {
        for phase in ["queue", "plan", "execute", "encode"] {
            let labels = format!("language=\"{language}\",phase=\"{phase}\"");
            assert!(value(&format!("quiver_query_phase_duration_seconds_count{{{labels}}} ")) >= 1.0, "{labels}");
        }
        let labels = format!("language=\"{language}\",phase=\"execute\"");
        assert!(value(&format!("quiver_query_phase_duration_seconds_sum{{{labels}}} ")) > 0.0, "{labels}");
    }
    for phase in ["read", "decode", "store"] {
        let labels = format!("signal=\"logs\",phase=\"{phase}\"");
        assert!(value(&format!("quiver_ingest_phase_duration_seconds_count{{{labels}}} ")) >= 1.0, "{labels}");
    }
}
