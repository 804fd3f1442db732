//! Request bodies that never end: many slow senders of large requests use no more memory than the budget of bodies, are
//! refused beyond it, and do not affect small requests (promises L1, L2 and L3).

use std::time::{Duration, Instant};

use quiver_tests::load::Caller;
use quiver_tests::server::{Options, Server};
use quiver_tests::time_limits::within;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::arena::comes_up;

/// Each sends so much of a larger body, then stops.
const SENT: usize = 6 << 20;
const SENDERS: usize = 80;
/// What is kept of all of them: the budget, what is on its way, and pages that the allocator has not given back.
const GROWTH_MAX: u64 = 200 << 20;

/// Begins to send a body; gives the connection, and the head of an answer if one came.
async fn send(address: String, path: &'static str) -> (TcpStream, String) {
    let mut socket = TcpStream::connect(address).await.expect("it listens");
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        SENT + 1024
    );
    socket.write_all(head.as_bytes()).await.expect("sent");
    let piece = vec![b' '; 64 * 1024];
    for _ in 0..SENT / piece.len() {
        socket.write_all(&piece).await.expect("sent");
    }
    // Refused ones are told at the end of what they send.
    let mut answer = vec![0; 4096];
    let read = tokio::time::timeout(Duration::from_secs(2), socket.read(&mut answer)).await;
    let len = read.map_or(0, |read| read.unwrap_or(0));
    (socket, String::from_utf8_lossy(&answer[..len]).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn slow_senders_of_large_bodies_hold_little_memory() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default()
        .env("QUIVER_LOG__FILTER", "off")
        .env("QUIVER_MEMORY__LIMIT", "512MiB")
        .env("QUIVER_HTTP__BODY_GRACE", "5m")
        .env("QUIVER_HTTP__BODY_MAX", "16MiB");
    let mut server = Server::spawn(dir.path(), &options).expect("the server says where it listens");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await, "the server died");
    let before = server.held_bytes();
    for path in [
        "/insert/aggregator/api/v1/push",
        "/logs-api/select/logsql/query",
        "/insert/opentelemetry/v1/logs",
        "/insert/jsonline",
    ] {
        let sending: Vec<_> = (0..SENDERS).map(|_| tokio::spawn(send(server.http.clone(), path))).collect();
        let mut open = Vec::new();
        for sender in sending {
            open.push(sender.await.expect("sent"));
        }
        let grown = server.grown_since(before, GROWTH_MAX).await;
        println!("{path}: {} MiB more for {} MiB sent", grown >> 20, (SENDERS * SENT) >> 20);
        assert!(grown <= GROWTH_MAX, "{path}: {} MiB more", grown >> 20);
        // Those who send and ask for little are served meanwhile.
        within(&format!("beside {path}"), Duration::from_secs(5), async || {
            let began = Instant::now();
            let line = format!("{{\"_time\":\"0\",\"_msg\":\"beside {path}\"}}\n");
            let answer = server.post("/insert/jsonline", &[], line.into_bytes()).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            let answer = server.get_with("/logs-api/select/logsql/query", &[("query", "* | stats count() n")]).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            began.elapsed()
        })
        .await;
        drop(open);
        // All of it comes back: a large body has room again.
        let began = Instant::now();
        loop {
            let line = format!("{{\"_time\":\"0\",\"_msg\":\"{}\"}}\n", "x".repeat(1000)).repeat(4000);
            let answer = server.post("/insert/aggregator/api/v1/push", &[], line.into_bytes()).await;
            if answer.status != 503 {
                assert_eq!(answer.status, 400, "it is none of this format: {}", answer.text());
                break;
            }
            assert!(answer.headers.contains_key("retry-after"), "{path}");
            assert!(began.elapsed() < Duration::from_mins(5), "{path}: nothing came back");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    assert_eq!(server.stop(), Some(0));
}
