//! Samples that arrive late, early or repeatedly (promises D8 and D9): each is stored once at its own time, or refused
//! and counted; live, flushed and after a restart.

use quiver_tests::bodies::remote_write;
use quiver_tests::server::{Options, Server};

const T0: i64 = 1_772_366_400;
/// The last millisecond that nanoseconds of 64 bits reach, in 2262.
const LAST_MS: i64 = 9_223_372_036_854;

async fn import(server: &Server, lines: &str) -> u16 {
    server.post("/metrics-api/api/v1/import/prometheus", &[], lines.as_bytes().to_vec()).await.status
}

async fn value(server: &Server, query: &str, time_s: f64) -> String {
    let data = server.query(query, time_s).await;
    data["result"][0]["value"][1].as_str().unwrap_or("none").to_owned()
}

async fn check(server: &Server, state: &str) {
    for (query, time_s, expected) in [
        ("late", T0 as f64, "1"),
        ("late", (T0 - 3600) as f64, "2"),
        ("late", (T0 + 3600) as f64, "3"),
        ("late", (T0 - 400 * 86_400) as f64, "4"),
        ("count_over_time(late[2h1s])", (T0 + 3600) as f64, "3"),
        ("first", 0.0, "1"),
        ("first", 1.0, "2"),
        ("before", -1.0, "1"),
        ("last", LAST_MS as f64 / 1000.0, "1"),
        ("1 / plus_zero", T0 as f64, "+Inf"),
        ("1 / minus_zero", T0 as f64, "-Inf"),
        ("not_a_number", T0 as f64, "NaN"),
        ("count_over_time(again[1h])", T0 as f64, "100"),
        ("sum_over_time(again[1h])", T0 as f64, "4950"),
    ] {
        assert_eq!(value(server, query, time_s).await, expected, "{state}: {query} at {time_s}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_of_any_time_stand_at_theirs_and_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    for (value, after_s) in [(1, 0), (2, -3600), (3, 3600), (4, -400 * 86_400)] {
        assert_eq!(import(&server, &format!("late {value} {}\n", (T0 + after_s) * 1000)).await, 200);
    }
    assert_eq!(import(&server, &format!("first 1 0\nfirst 2 1000\nbefore 1 -1000\nlast 1 {LAST_MS}\n")).await, 200);
    assert_eq!(import(&server, &format!("beyond 1 {}\n", LAST_MS + 1)).await, 400);
    let ms = T0 * 1000;
    let odd = format!("plus_zero 0 {ms}\nminus_zero -0 {ms}\nnot_a_number NaN {ms}\n");
    assert_eq!(import(&server, &odd).await, 200);
    // The same request five times at once, then after a flush and after a restart.
    let samples = (0..100).map(|n| (ms - n * 1000, n as f64)).rev().collect();
    let body = remote_write(&[(vec![("__name__", "again"), ("job", "j")], samples)]);
    futures::future::join_all((0..5).map(|_| server.write(body.clone()))).await;
    check(&server, "live").await;
    server.flush().await;
    server.write(body.clone()).await;
    check(&server, "flushed").await;
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(dir.path(), &Options::default()).await;
    server.write(body).await;
    check(&server, "restarted").await;
    server.compact().await;
    check(&server, "compacted").await;
    assert_eq!(server.stop(), Some(0));
}
