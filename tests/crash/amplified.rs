//! Small bodies that expand: with labels or fields in the URL, a line of a few bytes becomes a series or row of
//! kilobytes. So what gathers must be counted, and stored in time (promise L1).

use std::sync::Arc;
use std::time::{Duration, Instant};

use quiver_tests::load::Caller;
use quiver_tests::server::{Options, Server};

use crate::arena::comes_up;

const LIMIT_BYTES: u64 = 512 << 20;

/// How long a small body may be refused after the large ones.
const RECOVERS_WITHIN: Duration = Duration::from_mins(2);

/// Sends bodies at once to a path; each may be taken, or refused until later. The process stays within its limit, and
/// takes a small body afterwards.
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn check(path: String, bodies: Vec<String>, small: &str) {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_MEMORY__LIMIT", LIMIT_BYTES).env("QUIVER_LOG__FILTER", "off");
    let mut server = Server::spawn(dir.path(), &options).expect("the server says where it listens");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await, "the server died");
    let (server, path) = (Arc::new(server), Arc::new(path));
    let send = |body: String| {
        let (server, path) = (Arc::clone(&server), Arc::clone(&path));
        tokio::spawn(async move { server.post(&path, &[], body.into_bytes()).await.status })
    };
    let sending: Vec<_> = bodies.into_iter().map(send).collect();
    let mut statuses = Vec::new();
    for sent in sending {
        statuses.push(sent.await.expect("an answer"));
    }
    let peak = server.peak_held_bytes();
    println!("limit {} MiB: {} MiB, {statuses:?}", LIMIT_BYTES >> 20, peak >> 20);
    assert!(statuses.iter().all(|status| matches!(status, 200 | 429 | 503)), "{statuses:?}");
    let plain = path.split('?').next().unwrap_or_default();
    let began = Instant::now();
    loop {
        let answer = server.post(plain, &[], small.as_bytes().to_vec()).await;
        // Series that the large bodies made may have filled the registry.
        if matches!(answer.status, 200 | 429) {
            break;
        }
        assert!(answer.status == 503 && began.elapsed() < RECOVERS_WITHIN, "{}: {}", answer.status, answer.text());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let most = LIMIT_BYTES + LIMIT_BYTES * 15 / 100;
    assert!(peak <= most, "more than the limit and 15 %: {} MiB", peak >> 20);
    let server = Arc::into_inner(server).expect("nobody else asks");
    assert_eq!(server.stop(), Some(0));
}

/// 12 to 14 KiB, nearly as much as a head may have.
fn pairs(before: &str, between: &str) -> String {
    let pairs: Vec<String> = (0..230).map(|n| format!("{before}k{n}={}", "v".repeat(45))).collect();
    pairs.join(between)
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_of_imports() {
    let path = format!("/metrics-api/api/v1/import/prometheus?{}", pairs("extra_label=", "&"));
    // Nearly all lines of each are within one piece of the body.
    let bodies = (0..12).map(|i| (0..8000).map(|line| format!("s{i}_{line} 1\n")).collect()).collect();
    // Of another service: the large bodies may have made all series that theirs may make in an hour.
    check(path, bodies, "later{service_name=\"later\"} 1\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_json_lines() {
    let path = format!("/insert/jsonline?extra_fields={}", pairs("", ","));
    check(path, vec!["{}\n".repeat(12_000); 24], "{\"_msg\":\"later\"}\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_bulk_requests() {
    let path = format!("/insert/elasticsearch/_bulk?extra_fields={}", pairs("", ","));
    check(path, vec!["{\"create\":{}}\n{}\n".repeat(4000); 40], "{\"create\":{}}\n{\"_msg\":\"later\"}\n").await;
}
