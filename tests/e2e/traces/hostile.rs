//! Hostile TraceQL over a server with little memory: the memory of results is reserved before it is used, so each query
//! gets a result or an error, alone and four at once, and memory stays within its limit.

use std::time::{Duration, Instant};

use quiver_tests::server::{Options, Server};
use serde_json::json;

const LIMIT_BYTES: u64 = 256 << 20;
/// What the process may have at most, without pages of the executable: its limit and 15 %.
const RSS_MAX: u64 = LIMIT_BYTES * 115 / 100;
/// 2026-03-01 12:00 UTC.
const NOON: i64 = 1_772_366_400_000_000_000;
const SPANS: i64 = 20_000;
/// Queries with a group for each span, and as many labels, cells and hits.
const QUERIES: &[(&str, &str)] = &[
    ("metrics/query_range", "{} | quantile_over_time(duration, .1, .2, .3, .4, .5, .6, .7, .8, .9) by (span.u)"),
    ("metrics/query_range", "{} | histogram_over_time(duration) by (span.u)"),
    ("metrics/query_range", "{} | quantile_over_time(duration, .1, .2, .3, .4, .5, .6, .7, .8, .9)"),
    ("metrics/query_range", "{} | compare({ span.u = \"0\" }, 1000)"),
    ("metrics/query", "{} | rate() by (span.u, span.v)"),
    ("metrics/query", "{} | quantile_over_time(duration, .1, .2, .3, .4, .5, .6, .7, .8, .9) by (span.u)"),
    ("search", "{} | by (span.u) | select(span.u, span.v)"),
];

/// Stores so many spans, each with values of its own, of which `w` is a list of so many.
async fn load(server: &Server, count: i64, items: i64) {
    let at_once = 2000 / (1 + items / 50);
    for from in (0..count).step_by(at_once as usize) {
        let list = |n: i64| {
            let values: Vec<_> =
                (n * items..(n + 1) * items).map(|item| json!({"intValue": item.to_string()})).collect();
            json!({"key": "w", "value": {"arrayValue": {"values": values}}})
        };
        let span = |n: i64| {
            let start = NOON + n * 100_000_000;
            let text = |key: &str| json!({"key": key, "value": {"stringValue": n.to_string()}});
            let attributes: Vec<_> = [text("u"), text("v")].into_iter().chain((items > 0).then(|| list(n))).collect();
            json!({"traceId": format!("{:032x}", n / 100 + 1), "spanId": format!("{:016x}", n + 1), "name": "work",
                "kind": 2, "startTimeUnixNano": start.to_string(), "endTimeUnixNano": (start + 1_000_000 * n).to_string(),
                "attributes": attributes})
        };
        let spans: Vec<_> = (from..(from + at_once).min(count)).map(span).collect();
        let body = json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).to_string();
        let answer = server.post("/v1/traces", &[("content-type", "application/json")], body.into_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    server.flush().await;
}

/// Breaks if values of tags are not counted, of which a list has one for every few bytes: each took hundreds, and a
/// request for these took the process to 679 MB.
#[tokio::test(flavor = "multi_thread")]
async fn lists_of_very_many_values() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_MEMORY__LIMIT", LIMIT_BYTES).env("QUIVER_LOG__FILTER", "error");
    let server = Server::start(dir.path(), &options).await;
    load(&server, 2000, 400).await;
    for path in ["/tempo/api/v2/search/tag/span.w/values", "/tempo/api/search/tag/w/values"] {
        server.forget_peak();
        for answer in futures::future::join_all((0..2).map(|_| server.get(path))).await {
            assert!([200, 422, 503].contains(&answer.status), "{path}: {} {}", answer.status, answer.text());
        }
        let used = server.peak_held_bytes();
        assert!(used <= RSS_MAX, "{path}: {} MiB", used >> 20);
        let answer = server.get_with(path, &[("limit", "40")]).await;
        let listed = answer.json()["tagValues"].as_array().map(Vec::len);
        assert_eq!((answer.status, listed), (200, Some(40)), "{path}: {}", answer.text());
    }
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_of_very_many_groups() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_MEMORY__LIMIT", LIMIT_BYTES).env("QUIVER_LOG__FILTER", "error");
    let server = Server::start(dir.path(), &options).await;
    load(&server, SPANS, 0).await;
    let (start, end) = ((NOON / 1_000_000_000).to_string(), (NOON / 1_000_000_000 + 2001).to_string());
    for (path, query) in QUERIES {
        let path = format!("/tempo/api/{path}");
        let params =
            [("q", *query), ("start", &start), ("end", &end), ("step", "1s"), ("limit", "1500"), ("spss", "1000")];
        server.forget_peak();
        for answer in futures::future::join_all((0..4).map(|_| server.get_with(&path, &params))).await {
            assert!([200, 400, 422, 503].contains(&answer.status), "{query}: {} {}", answer.status, answer.text());
        }
        let used = server.peak_bytes().saturating_sub(server.file_bytes());
        assert!(used <= RSS_MAX, "{query}: {} MiB", used >> 20);
        // What was counted is given back; pages that the allocator keeps may take a moment.
        let small = [("q", "{} | quantile_over_time(duration, .5)"), ("start", &start), ("end", &end), ("step", "60s")];
        let began = Instant::now();
        let series = loop {
            let answer = server.get_with("/tempo/api/metrics/query_range", &small).await;
            if answer.status == 200 {
                break answer.json()["series"].as_array().map(Vec::len);
            }
            assert!(began.elapsed() < Duration::from_mins(5), "after {query}: {} {}", answer.status, answer.text());
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        assert_eq!(series, Some(1));
    }
    assert_eq!(server.stop(), Some(0));
}

/// Traces that a query reads and turns down give back what they held: it may have to look at all of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_may_turn_down_more_traces_than_memory_holds() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_MEMORY__LIMIT", LIMIT_BYTES).env("QUIVER_LOG__FILTER", "error");
    let server = Server::start(dir.path(), &options).await;
    for from in (0..SPANS).step_by(2000) {
        let span = |n: i64| {
            let start = (NOON + n * 100_000_000).to_string();
            let text = format!("{n}{}", "x".repeat(2000));
            json!({"traceId": format!("{:032x}", n / 2 + 1), "spanId": format!("{:016x}", n + 1), "name": "work",
                "kind": 2, "startTimeUnixNano": start, "endTimeUnixNano": start,
                "attributes": [{"key": "u", "value": {"stringValue": text}}]})
        };
        let spans: Vec<_> = (from..from + 2000).map(span).collect();
        let body = json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).to_string();
        let answer = server.post("/v1/traces", &[("content-type", "application/json")], body.into_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    server.flush().await;
    let (start, end) = ((NOON / 1_000_000_000).to_string(), (NOON / 1_000_000_000 + 2001).to_string());
    for (query, found) in [("{} | count() > 2", 0), ("{} | count() > 1", 5)] {
        let params = [("q", query), ("start", &start), ("end", &end), ("limit", "5")];
        let answer = server.get_with("/tempo/api/search", &params).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.text());
        assert_eq!(answer.json()["traces"].as_array().map(Vec::len), Some(found), "{query}");
    }
    assert_eq!(server.stop(), Some(0));
}
