//! `Idempotency-Key` for logs over HTTP: valid keys, which requests are the same, and responses to repeats.

use quiver_tests::server::{Answer, Options, Server};
use serde_json::json;

use crate::logs::query::{ask, rows};

const LINES: &str = "/insert/jsonline?_stream_fields=app";
const BULK: &str = "/insert/searchengine/_bulk";
const PUSH: &str = "/insert/aggregator/api/v1/push";
const SAAS: &str = "/insert/saas/api/v2/logs";
const OTLP: &str = "/insert/opentelemetry/v1/logs";

async fn start() -> (Server, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    (Server::start(dir.path(), &Options::default().env("QUIVER_LOG__FILTER", "off")).await, dir)
}

async fn post(server: &Server, path: &str, key: &str, body: impl Into<Vec<u8>>) -> Answer {
    server.post(path, &[("idempotency-key", key), ("content-type", "application/json")], body.into()).await
}

async fn count(server: &Server, query: &str) -> usize {
    rows(&ask(server, "query", &[("query", query)]).await).len()
}

fn replayed(answer: &Answer) -> bool {
    answer.headers.get("idempotent-replayed").is_some_and(|v| v == "true")
}

/// Path and a body of one good row, by format.
fn formats() -> [(&'static str, String); 5] {
    let otlp = json!({"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "one"}}]}]}]});
    [
        (LINES, "{\"_msg\":\"one\"}\n".into()),
        (BULK, "{\"create\":{}}\n{\"_msg\":\"one\"}\n{\"delete\":{}}\n".into()),
        (PUSH, json!({"streams": [{"stream": {"a": "b"}, "values": [["1790000000000000000", "one"]]}]}).to_string()),
        (SAAS, json!([{"message": "one"}]).to_string()),
        (OTLP, otlp.to_string()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn repeats_get_the_answer_of_the_first() {
    let (server, _dir) = start().await;
    for (path, body) in formats() {
        // A key belongs to its path.
        let first = post(&server, path, "k", &*body).await;
        assert!((200..300).contains(&first.status) && !replayed(&first), "{path}: {} {}", first.status, first.text());
        for _ in 0..2 {
            let again = post(&server, path, "k", &*body).await;
            assert!(replayed(&again), "{path}");
            assert_eq!((again.status, again.text()), (first.status, first.text()), "{path}");
            assert_eq!(again.headers.get("content-type"), first.headers.get("content-type"), "{path}");
            assert_eq!(again.headers.get("x-elastic-product"), first.headers.get("x-elastic-product"), "{path}");
        }
        let plain = server.post(path, &[("content-type", "application/json")], body.clone().into_bytes()).await;
        assert_eq!((plain.status, replayed(&plain)), (first.status, false), "{path}");
        // What the answer says of time may differ.
        let same = |text: String| text.split("\"errors\"").nth(1).map(str::to_owned);
        assert_eq!(same(plain.text()), same(first.text()), "{path}");
    }
    // Each once with its key, and once without.
    assert_eq!(count(&server, "one").await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_body_is_refused() {
    let (server, _dir) = start().await;
    for (path, body) in formats() {
        assert!(post(&server, path, "k", &*body).await.status < 300, "{path}");
        let other = post(&server, path, "k", body.replace("one", "two")).await;
        assert_eq!(other.status, 422, "{path}: {}", other.text());
        let text = String::from_utf8_lossy(&other.body).into_owned();
        assert!(text.contains("`Idempotency-Key` `k` was used with another body"), "{path}: {text}");
        assert!(post(&server, path, "other", body.replace("one", "two")).await.status < 300, "{path}");
    }
    assert_eq!(count(&server, "two").await, 5);
    // The same body compressed is the same body.
    let zipped = {
        use std::io::Write;
        let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        zip.write_all(formats()[0].1.as_bytes()).expect("memory takes it");
        zip.finish().expect("memory takes it")
    };
    let again = server.post(LINES, &[("idempotency-key", "k"), ("content-encoding", "gzip")], zipped).await;
    assert!(again.status == 200 && replayed(&again), "{} {}", again.status, again.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_none() {
    let (server, _dir) = start().await;
    let long = "x".repeat(256);
    for (path, body) in formats() {
        for key in ["", " ", "a b", "schl\u{fc}ssel", "tab\there", long.as_str()] {
            let answer = post(&server, path, key, &*body).await;
            assert_eq!(answer.status, 400, "{path} {key:?}: {}", answer.text());
            let text = answer.text();
            assert!(text.contains("`Idempotency-Key` must be 1 to 255 visible ASCII characters"), "{path}: {text}");
        }
        let twice = server.post(path, &[("idempotency-key", "a"), ("idempotency-key", "b")], body.into_bytes()).await;
        assert_eq!(twice.status, 400, "{path}: {}", twice.text());
    }
    assert_eq!(count(&server, "*").await, 0);
    for key in ["!", "~", &long[1..]] {
        assert_eq!(post(&server, LINES, key, &*formats()[0].1).await.status, 200, "{key}");
    }
    assert_eq!(count(&server, "*").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_was_refused_may_come_again() {
    let (server, _dir) = start().await;
    let broken = [
        (LINES, "no line"),
        (BULK, "{\"create\":{}}\n{\"_msg\":\"lost\"}\nno action\n"),
        (PUSH, "{\"streams\":["),
        (SAAS, "[1"),
        (OTLP, "{\"resourceLogs\":["),
    ];
    for ((path, broken), (_, good)) in broken.into_iter().zip(formats()) {
        for _ in 0..2 {
            let answer = post(&server, path, "k", broken).await;
            assert!(answer.status == 400 && !replayed(&answer), "{path}: {} {}", answer.status, answer.text());
        }
        let mended = post(&server, path, "k", good).await;
        assert!(mended.status < 300 && !replayed(&mended), "{path}: {} {}", mended.status, mended.text());
    }
    assert_eq!(count(&server, "*").await, 5);
    // Nothing to store is an answer like any other.
    for replay in [false, true] {
        let empty = post(&server, LINES, "empty", "").await;
        assert_eq!((empty.status, replayed(&empty)), (200, replay), "{}", empty.text());
    }
    assert_eq!(post(&server, LINES, "empty", "{\"_msg\":\"x\"}").await.status, 422);
}

#[tokio::test(flavor = "multi_thread")]
async fn known_after_a_flush_and_a_restart() {
    let (server, dir) = start().await;
    let [(_, lines), (_, bulk), ..] = formats();
    let answers = [post(&server, LINES, "k", &*lines).await, post(&server, BULK, "k", &*bulk).await];
    assert_eq!(post(&server, LINES, "empty", "").await.status, 200);
    server.flush().await;
    let live = post(&server, LINES, "live", &*lines).await;
    assert_eq!((live.status, replayed(&live)), (200, false));
    server.kill();
    let server = Server::start(dir.path(), &Options::default()).await;
    for _ in 0..2 {
        for ((path, body), first) in [(LINES, &lines), (BULK, &bulk)].into_iter().zip(&answers) {
            let again = post(&server, path, "k", &**body).await;
            assert!(replayed(&again), "{path}");
            assert_eq!((again.status, again.text()), (first.status, first.text()), "{path}");
        }
        assert!(replayed(&post(&server, LINES, "live", &*lines).await));
        assert!(replayed(&post(&server, LINES, "empty", "").await));
        assert_eq!(post(&server, LINES, "k", "{\"_msg\":\"two\"}").await.status, 422);
        server.flush().await;
    }
    assert_eq!(count(&server, "*").await, 3);
    let metric = "quiver_ingest_repeated_requests_total ";
    let text = server.get("/metrics").await.text();
    let repeated = text.lines().find_map(|l| l.strip_prefix(metric)).map(str::parse::<f64>);
    assert_eq!(repeated, Some(Ok(8.0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_stored_as_a_whole() {
    let (server, _dir) = start().await;
    // Several batches of the decoder, streams that come and go.
    let line = |n: usize| format!("{{\"_msg\":\"row {n}\",\"app\":\"a{}\",\"f{}\":\"x\"}}\n", n % 7, n % 50);
    let body: String = (0..150_000).map(line).collect();
    let (first, second) = tokio::join!(post(&server, LINES, "k", &*body), post(&server, LINES, "k", &*body));
    assert_eq!((first.status, second.status), (200, 200), "{} {}", first.text(), second.text());
    assert_ne!(replayed(&first), replayed(&second));
    let query = "* | stats count() n, count_uniq(_msg) u, count_uniq(app) a";
    let answer = ask(&server, "query", &[("query", query)]).await;
    assert_eq!(answer.text().trim(), "{\"n\":\"150000\",\"u\":\"150000\",\"a\":\"7\"}");
    let huge = "x".repeat(200_000);
    let too_large: String = (0..500).map(|n| format!("{{\"_msg\":\"{n} {huge}\"}}\n")).collect();
    let answer = post(&server, LINES, "huge", too_large).await;
    assert_eq!(answer.status, 413, "{}", answer.text());
    assert_eq!(count(&server, "x*").await, 0);
}
