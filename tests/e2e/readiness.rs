//! Readiness reports what does not make progress; a generation that cannot be flushed does not delay later ones.

use std::path::Path;

use quiver_tests::server::{Options, Server};
use quiver_tests::time_limits::until;

const T0: i64 = 1_772_366_400;

/// Sends one sample as text; gives the status.
async fn send(server: &Server, name: &str, second: i64) -> u16 {
    let body = format!("{name} {second} {}\n", (T0 + second) * 1000).into_bytes();
    server.post("/metrics-api/api/v1/import/prometheus", &[], body).await.status
}

async fn count(server: &Server) -> String {
    let data = server.query("count(count_over_time({__name__=~\"trouble_.*\"}[1h]))", (T0 + 600) as f64).await;
    data["result"][0]["value"][1].as_str().unwrap_or("0").to_owned()
}

async fn metric(server: &Server, name: &str) -> u64 {
    let text = server.get("/metrics").await.text();
    let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
    line.and_then(|line| line.split(' ').nth(1)?.parse::<f64>().ok()).unwrap_or_default() as u64
}

async fn unready(server: &Server, word: &str) -> bool {
    let answer = server.get("/health/ready").await;
    if answer.status == 200 {
        return false;
    }
    assert_eq!(answer.status, 503);
    // What depends on a part may be seen to have ended a moment before the part itself.
    answer.text().contains(word)
}

/// Asks for a flush, and waits for nothing.
fn ask_for_flush(server: &Server) {
    let url = server.url("/admin/flush");
    tokio::spawn(async move { reqwest::Client::new().post(url).send().await });
}

fn held(dir: &Path) -> usize {
    std::fs::read_dir(dir.join("wal/held")).map_or(0, Iterator::count)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_write_ahead_log_is_not_ready() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_FAILPOINT", "wal.after-insert=panic");
    let server = Server::start(dir.path(), &options).await;
    assert_eq!(send(&server, "trouble_a", 1).await, 503);
    until("unready", async || unready(&server, "write-ahead log").await).await;
    assert_eq!(server.get("/health/live").await.status, 200);
    drop(server);
    // Nothing of it was acknowledged; it was logged, so it may be there.
    let server = Server::start(dir.path(), &Options::default()).await;
    assert_eq!(send(&server, "trouble_b", 2).await, 200);
    assert_eq!(count(&server).await, "2");
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_that_fails_is_told_until_it_works() {
    for action in ["panic", "error"] {
        let dir = tempfile::tempdir().expect("a folder");
        let fails = Options::default().env("QUIVER_FAILPOINT", format!("flush.after-part={action}"));
        let server = Server::start(dir.path(), &fails).await;
        assert_eq!(send(&server, "trouble_a", 1).await, 200);
        ask_for_flush(&server);
        until("unready", async || unready(&server, "cannot be flushed").await).await;
        assert_eq!(count(&server).await, "1", "queries go on");
        drop(server);
        let server = Server::start(dir.path(), &Options::default()).await;
        assert_eq!(count(&server).await, "1");
        server.flush().await;
        assert_eq!(server.get("/health/ready").await.status, 200);
        assert_eq!((count(&server).await.as_str(), held(dir.path())), ("1", 0));
        assert_eq!(server.stop(), Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generation_that_cannot_be_flushed_is_set_aside() {
    let fails = Options::default().env("QUIVER_FAILPOINT", "flush.after-part=error:5");
    for killed in [false, true] {
        let dir = tempfile::tempdir().expect("a folder");
        let server = Server::start(dir.path(), &fails).await;
        assert_eq!(send(&server, "trouble_a", 1).await, 200);
        ask_for_flush(&server);
        until("a failure", async || metric(&server, "quiver_flush_failures_total").await > 0).await;
        assert_eq!(send(&server, "trouble_b", 2).await, 200);
        ask_for_flush(&server);
        until("set aside", async || metric(&server, "quiver_flush_runs_total").await > 0).await;
        if killed {
            server.kill();
            let server = Server::start(dir.path(), &Options::default()).await;
            assert_eq!(count(&server).await, "2");
            until("flushed", async || held(dir.path()) == 0).await;
            assert_eq!(count(&server).await, "2");
            assert_eq!(server.stop(), Some(0));
            continue;
        }
        assert_eq!(count(&server).await, "2");
        until("ready", async || server.get("/health/ready").await.status == 200).await;
        until("flushed after all", async || held(dir.path()) == 0).await;
        assert_eq!(metric(&server, "quiver_flush_held_generations").await, 0);
        server.flush().await;
        assert_eq!(count(&server).await, "2");
        assert_eq!(server.stop(), Some(0));
    }
}
