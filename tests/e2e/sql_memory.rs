//! The memory of SQL statements over HTTP, while they run and while their results are written.

use quiver_tests::server::Server;
use quiver_tests::time_limits::at_most;
use serde_json::json;

use crate::sql::{API, START_S, ask, options, rows};

/// Columns that share one text are one buffer where they are found, and each is written.
#[tokio::test(flavor = "multi_thread")]
async fn many_outputs_of_one_text_are_written_a_few_rows_at_a_time() {
    const OUTPUTS: usize = 1500;
    const ROWS: usize = 1000;
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options()).await;
    let outputs = vec!["t"; OUTPUTS].join(",");
    let from = format!("(select repeat('x', 100) || value as t from generate_series(1, {ROWS}))");
    // What the first statement takes once.
    rows(&server, &format!("select {outputs} from {from} limit 1")).await;
    let statement = format!("select {outputs} from {from}");
    for form in ["ndjson", "csv"] {
        let what = format!("bytes for an answer of {} MiB as {form}", (OUTPUTS * ROWS * 100) >> 20);
        at_most(&what, 64 << 20, async || {
            server.forget_peak();
            let before = server.held_bytes();
            let answer = server.ask(API, &[("query", statement.as_str()), ("format", form)]).await;
            assert_eq!(answer.status, 200, "{form}");
            assert!(answer.body.len() > OUTPUTS * ROWS * 100, "{form}: {} bytes", answer.body.len());
            server.peak_held_bytes().saturating_sub(before)
        })
        .await;
    }
    let long = vec!["t"; 200].join(",");
    let refused = ask(&server, &format!("select {long} from (select repeat('x', 60000000) as t)")).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
}

/// Lists of long texts for many groups, which take many times what is counted of them: whatever it takes, the process
/// stays within its limit and 15 %, and others are answered.
#[tokio::test(flavor = "multi_thread")]
async fn what_takes_more_than_it_says_is_ended() {
    const LIMIT: u64 = 256 << 20;
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options().env("QUIVER_MEMORY__LIMIT", LIMIT)).await;
    for piece in 0..10 {
        let line = |n: i64| {
            let text = format!("request {n} took {} ms {}", n * 7919 % 100_003, "and some more ".repeat(6));
            json!({ "_time": START_S + n, "_msg": text }).to_string()
        };
        let lines: Vec<String> = (piece * 20_000..(piece + 1) * 20_000).map(line).collect();
        let answer = server.post("/insert/jsonline", &[], lines.join("\n").into_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    server.flush().await;
    server.forget_peak();
    let lists = "select array_agg(message) as a from logs, generate_series(1, 200) g(i) group by i";
    let answer = ask(&server, &format!("select max(array_length(a)) from ({lists})")).await;
    assert!(matches!(answer.status, 200 | 422), "{} {}", answer.status, answer.text());
    let used = server.peak_bytes().saturating_sub(server.file_bytes());
    assert!(used <= LIMIT + LIMIT * 15 / 100, "{} MiB", used >> 20);
    assert_eq!(rows(&server, "select count(*) from logs").await, json!([[200_000]]));
}

/// Breaks if queries are refused because others hold the memory, as 4 of 10 once were.
#[tokio::test(flavor = "multi_thread")]
async fn who_finds_no_room_beside_others_is_answered_after_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options().env("QUIVER_MEMORY__LIMIT", "256MiB")).await;
    let sorted = "select value v, value::text t from generate_series(1, 400000) order by t, v limit 300000";
    let statement = format!("select count(*) from ({sorted}) x");
    let all = futures::future::join_all((0..10).map(|_| rows(&server, &statement))).await;
    assert!(all.iter().all(|rows| *rows == json!([[300_000]])), "{all:?}");
}

/// Breaks if what joins take beyond what is counted grows with their rows: a build side is put together in one piece, so
/// that for a moment it is there twice.
#[tokio::test(flavor = "multi_thread")]
async fn joins_of_wide_rows_stay_within_the_limit() {
    const LIMIT: u64 = 256 << 20;
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &options().env("QUIVER_MEMORY__LIMIT", LIMIT)).await;
    let side = |bytes: usize, rows: usize| {
        format!("(select repeat('x', {bytes}) || i m, i % 7 k from generate_series(1, {rows}) g(i))")
    };
    let join = |side: &str, by: &str| {
        format!("select count(*), max(length(a.m || b.m)) from {side} a join {side} b on a.{by} = b.{by}")
    };
    // Build sides that fit into memory, that barely fit, and that do not fit.
    let mut statements: Vec<String> = [12_000, 20_000, 24_000].map(|rows| join(&side(1_000, rows), "m")).to_vec();
    statements.extend([12, 20, 30].map(|rows| join(&side(1_000_000, rows), "k")));
    for statement in &statements {
        server.forget_peak();
        for answer in futures::future::join_all((0..4).map(|_| ask(&server, statement))).await {
            assert!([200, 422, 503].contains(&answer.status), "{statement}: {} {}", answer.status, answer.text());
        }
        let used = server.peak_held_bytes();
        assert!(used <= LIMIT + LIMIT * 15 / 100, "{statement}: {} MiB", used >> 20);
    }
    assert_eq!(rows(&server, &statements[0]).await, json!([[12_000, 2_010]]));
}
