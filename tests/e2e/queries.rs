//! The list of running queries, and how an operator cancels one, for every language.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use quiver_tests::held_server::Hold;
use quiver_tests::server::{Options, Server};
use quiver_tests::time_limits::within;
use serde_json::Value;

/// The end of a query may take this long, whatever it does.
const CANCEL_WITHIN: Duration = Duration::from_millis(200);
/// What a busy machine may add to it.
const SLACK: Duration = Duration::from_secs(2);

/// Waits until a query of a request is listed.
async fn listed(server: &Server, request_id: &str) -> Value {
    let began = Instant::now();
    loop {
        let list = server.get("/admin/queries").await.json();
        let found = list["queries"].as_array().expect("a list").iter().find(|q| q["requestId"] == request_id).cloned();
        if let Some(query) = found {
            return query;
        }
        assert!(began.elapsed() < Duration::from_mins(5), "{request_id} is not listed: {list}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_see_and_end_queries() {
    let dir = tempfile::tempdir().expect("a folder");
    // Work that sees nothing of its cancellation: it stands still on its thread.
    let hold = Hold::default();
    hold.release();
    let options = Options::default().env("QUIVER_FAILPOINT", hold.at("query.begin")).env("QUIVER_QUERY__THREADS", 4);
    let server = Server::start(dir.path(), &options).await;
    let read = "/metrics-api/api/v1/read";
    let remote_read = remote_read();
    let cases: &[(&str, &str, &str, u16, &str)] = &[
        ("promql", "GET", "/metrics-api/api/v1/query?query=sum(up)", 422, "\"errorType\":\"canceled\""),
        (
            "promql",
            "GET",
            "/metrics-api/api/v1/query_range?query=rate(up[5m])&start=0&end=60&step=15",
            422,
            "\"errorType\":\"canceled\"",
        ),
        ("series", "GET", "/metrics-api/api/v1/series?match[]=up", 422, "\"errorType\":\"canceled\""),
        ("series", "GET", "/metrics-api/api/v1/labels", 422, "\"errorType\":\"canceled\""),
        ("federation", "GET", "/metrics-api/federate?match[]=up", 422, "canceled by an operator"),
        ("remote_read", "POST", read, 422, "canceled by an operator"),
        ("logsql", "GET", "/logs-api/select/logsql/query?query=swordfish", 422, "canceled by an operator"),
        ("logsql", "GET", "/logs-api/select/logsql/hits?query=swordfish&step=1h", 422, "canceled by an operator"),
        (
            "logsql",
            "GET",
            "/logs-api/select/logsql/stats_query?query=*|stats count() n",
            422,
            "canceled by an operator",
        ),
        ("traces", "GET", "/traces?service=shop", 422, "\"code\":\"CANCELLED\""),
        ("traces", "GET", "/traces/4bf92f3577b34da6a3ce929d0e0e4736", 422, "\"code\":\"CANCELLED\""),
        ("traces", "GET", "/platform-api/traces/4bf92f3577b34da6a3ce929d0e0e4736/otlp", 422, "canceled by an operator"),
        ("traces", "GET", "/api/services", 422, "canceled by an operator"),
    ];
    let mut asked = 0;
    for (n, (language, method, path, status, text)) in cases.iter().enumerate() {
        within(path, CANCEL_WITHIN + SLACK, async || {
            asked += 1;
            hold.set();
            let id = format!("case-{asked}");
            let asking = async {
                let body = if *path == read { remote_read.clone() } else { vec![] };
                let answer = server.send(method, path, &[("x-request-id", &id)], body).await;
                (answer, Instant::now())
            };
            let ending = async {
                let query = listed(&server, &id).await;
                assert_eq!(query["language"], *language, "{path}: {query}");
                assert!(query["query"].as_str().is_some_and(|q| !q.is_empty()), "{path}: {query}");
                assert!(query["peer"].as_str().is_some_and(|p| p.starts_with("127.0.0.1:")), "{path}: {query}");
                assert!(query["elapsedMs"].is_number() && query["memoryBytes"].is_number(), "{path}: {query}");
                assert!(query["started"].as_str().is_some_and(|t| t.ends_with('Z')), "{path}: {query}");
                let number = query["id"].as_str().expect("an id");
                let began = Instant::now();
                let ended = if n % 2 == 0 {
                    server.send("DELETE", &format!("/admin/queries/{number}"), &[], vec![]).await
                } else {
                    server.post(&format!("/admin/queries/{number}/cancel"), &[], vec![]).await
                };
                assert_eq!(ended.status, 200, "{path}: {}", ended.text());
                assert_eq!(ended.json()["requestId"], id.as_str(), "{path}");
                began
            };
            // It is answered while its work stands still.
            let ((answer, answered), began) = tokio::join!(asking, ending);
            assert_eq!(answer.status, *status, "{path}: {}", answer.text());
            assert!(answer.text().contains(text), "{path}: {}", answer.text());
            hold.release();
            nothing_runs(&server).await;
            answered.duration_since(began)
        })
        .await;
    }
    assert_eq!(server.send("DELETE", "/admin/queries/999999999", &[], vec![]).await.status, 404);
    assert_eq!(server.send("DELETE", "/admin/queries/x", &[], vec![]).await.status, 404);
}

/// What has ended is not listed, once the work has seen it.
async fn nothing_runs(server: &Server) {
    let began = Instant::now();
    while server.get("/admin/queries").await.json()["queries"] != serde_json::json!([]) {
        assert!(began.elapsed() < Duration::from_mins(5), "queries stay listed");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A remote read of `{__name__="up"}` over all time.
fn remote_read() -> Vec<u8> {
    // prometheus.ReadRequest { queries: [Query { end_timestamp_ms: 1, matchers: [{ name, value }] }] }
    let matcher = [&b"\x12\x08__name__\x1a\x02up"[..]].concat();
    let mut query = vec![0x10, 0x01, 0x1a, matcher.len() as u8];
    query.extend(matcher);
    let mut request = vec![0x0a, query.len() as u8];
    request.extend(query);
    snap::raw::Encoder::new().compress_vec(&request).expect("packed")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_tail_is_listed_and_ended() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let mut tails = 0;
    within("the end of a tail", CANCEL_WITHIN + SLACK, async || {
        tails += 1;
        let mut stream = TcpStream::connect(&server.http).expect("it listens");
        let target = "/logs-api/select/logsql/tail?query=*&refresh_interval=10m";
        write!(stream, "GET {target} HTTP/1.1\r\nHost: x\r\nX-Request-Id: tail-{tails}\r\n\r\n").expect("sent");
        let reading = tokio::task::spawn_blocking(move || {
            let mut lines = Vec::new();
            for line in BufReader::new(stream).lines() {
                match line {
                    Ok(line) => lines.push(line),
                    Err(_) => break,
                }
            }
            (lines, Instant::now())
        });
        let query = listed(&server, &format!("tail-{tails}")).await;
        assert_eq!((&query["language"], &query["standing"]), (&"logsql".into(), &true.into()), "{query}");
        // Until it waits for its next look.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let began = Instant::now();
        let number = query["id"].as_str().expect("an id");
        assert_eq!(server.send("DELETE", &format!("/admin/queries/{number}"), &[], vec![]).await.status, 200);
        let (lines, ended) = reading.await.expect("read");
        assert!(lines.first().is_some_and(|l| l.contains("200")), "{lines:?}");
        assert_ne!(lines.last().map(String::as_str), Some("0"), "it breaks off: {lines:?}");
        ended.duration_since(began)
    })
    .await;
}
