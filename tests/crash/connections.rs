//! Very many connections (promise L3): idle ones are cheap and stay open, active ones are served beside them, slow
//! senders are disconnected; and a server that stops waits for none of them (promise F9).

use std::time::{Duration, Instant};

use quiver_tests::load::{Caller, soak};
use quiver_tests::server::{Options, Server};
use quiver_tests::socket::{Frame, Http2, connect, grpc_head, grpc_message, rest, status};
use quiver_tests::time_limits::within;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::arena::comes_up;

const ASK: &[u8] = b"GET /health/ready HTTP/1.1\r\nHost: x\r\n\r\n";
const PATIENCE: Duration = Duration::from_mins(5);
/// What promise L3 says.
const IDLE_BYTES_MAX: u64 = 30 << 10;

async fn start(options: Options) -> (tempfile::TempDir, Server, Caller) {
    let dir = tempfile::tempdir().expect("a folder");
    let mut server = Server::spawn(dir.path(), &options.env("QUIVER_LOG__FILTER", "off")).expect("it says where");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await, "the server died");
    (dir, server, caller)
}

async fn ask(socket: &mut TcpStream) -> u16 {
    socket.write_all(ASK).await.expect("sent");
    let mut answer = vec![0; 4096];
    let n = tokio::time::timeout(PATIENCE, socket.read(&mut answer)).await.expect("an answer").expect("an answer");
    status(&answer[..n])
}

/// Rows that are written one after the other over connections of their own; gives the slowest answer.
async fn active(server: &Server, connections: usize, rows: usize) -> Duration {
    let one = |n: usize| {
        let http = server.http.clone();
        async move {
            let mut socket = connect(&http).await;
            let mut slowest = Duration::ZERO;
            for row in 0..rows {
                let line = format!("{{\"_msg\":\"active {n} {row}\"}}\n");
                let head =
                    format!("POST /insert/jsonline HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", line.len());
                let began = Instant::now();
                socket.write_all(format!("{head}{line}").as_bytes()).await.expect("sent");
                let mut answer = vec![0; 4096];
                let len = socket.read(&mut answer).await.expect("an answer");
                assert_eq!(status(&answer[..len]), 200, "{}", String::from_utf8_lossy(&answer[..len]));
                slowest = slowest.max(began.elapsed());
            }
            slowest
        }
    };
    let all = futures::future::join_all((0..connections).map(one)).await;
    all.into_iter().max().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn ten_thousand_idle_connections() {
    let (idle, busy, slow) = if soak() { (10_000, 200, 2_000) } else { (1_000, 20, 200) };
    let (_dir, server, _) = start(Options::default().env("QUIVER_HTTP__BODY_GRACE", "2s")).await;
    let base = active(&server, busy, 5).await;
    let before = server.held_bytes();
    let mut sockets = Vec::with_capacity(idle);
    for _ in 0..idle {
        let mut socket = connect(&server.http).await;
        assert_eq!(ask(&mut socket).await, 200);
        sockets.push(socket);
    }
    let each = server.grown_since(before, IDLE_BYTES_MAX * idle as u64).await / idle as u64;
    let beside = active(&server, busy, 5).await;
    println!(
        "{idle} idle connections of {each} bytes each; slowest of {busy} active: {base:?} before, {beside:?} beside"
    );
    assert!(each <= IDLE_BYTES_MAX, "{each} bytes per idle connection");
    // Senders of a byte a second are cut, and all others stay.
    let head = b"POST /insert/jsonline HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n ";
    let mut slow_ones = Vec::new();
    for _ in 0..slow {
        let mut socket = connect(&server.http).await;
        socket.write_all(head).await.expect("sent");
        slow_ones.push(socket);
    }
    active(&server, busy, 5).await;
    for mut socket in slow_ones {
        assert_eq!(status(&rest(&mut socket).await), 408);
    }
    for socket in &mut sockets {
        assert_eq!(ask(socket).await, 200, "an idle connection was cut");
    }
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_waits_for_nobody_for_ever() {
    within("a stop", Duration::from_secs(20), async || {
        let (dir, mut server, caller) = start(Options::default().env("QUIVER_HTTP__DRAIN_TIMEOUT", "3s")).await;
        let mut kept = Vec::new();
        for (port, begun) in [
            (&server.http, &b""[..]),
            (&server.http, b"GET /health"),
            (&server.http, b"POST /insert/jsonline HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{"),
            (&server.http, b"POST /insert/searchengine/_bulk HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{"),
            (&server.http, b"GET /logs-api/select/logsql/tail?query=* HTTP/1.1\r\nHost: x\r\n\r\n"),
            (&server.otlp_http, b"POST /v1/logs HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{"),
            (&server.otlp_grpc, b""),
        ] {
            let mut socket = connect(port).await;
            socket.write_all(begun).await.expect("sent");
            kept.push(socket);
        }
        let (idle, mut half) = (Http2::connect(&server.otlp_grpc).await, Http2::connect(&server.otlp_grpc).await);
        let path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
        let body = grpc_message(false, &[7; 1000])[..50].to_vec();
        half.send(&[Frame::headers(1, 0, &grpc_head(path, "identity")), Frame::new(0, 0, 1, body)]).await;
        let written = caller.post("/insert/jsonline", b"{\"_msg\":\"kept\"}\n".to_vec()).await;
        assert_eq!(written.map(|(status, _)| status), Some(200));
        let began = Instant::now();
        server.terminate();
        assert_eq!(server.wait(), Some(0));
        let took = began.elapsed();
        drop((kept, idle, half));
        let mut server = Server::spawn(dir.path(), &Options::default()).expect("it says where");
        let caller = Caller::new(&server.http);
        assert!(comes_up(&mut server, &caller).await, "the server died");
        let found = caller.get("/logs-api/select/logsql/query", &[("query", "kept | stats count() n")]).await;
        assert_eq!(found.map(|(_, body)| body), Some(b"{\"n\":\"1\"}\n".to_vec()));
        assert_eq!(server.stop(), Some(0));
        took
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_at_once_and_a_lame_duck_serves() {
    let options = Options::default().env("QUIVER_HTTP__LAME_DUCK", "5m").env("QUIVER_HTTP__DRAIN_TIMEOUT", "5m");
    let (_dir, mut server, caller) = start(options).await;
    let began = Instant::now();
    server.terminate();
    // Not ready any more, and still serving whoever has not noticed.
    while caller.ready().await {
        assert!(began.elapsed() < PATIENCE, "it stays ready");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let written = caller.post("/insert/jsonline", b"{\"_msg\":\"late\"}\n".to_vec()).await;
    assert_eq!(written.map(|(status, _)| status), Some(200));
    // A second signal right after the first counts as the same request, so the signal is repeated.
    while server.runs() {
        assert!(began.elapsed() < PATIENCE, "it goes on");
        server.terminate();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Far within the five minutes.
    assert_eq!(server.wait(), Some(128 + 15));
}

/// `timeout` and what starts a server in a terminal send a signal to it and to its group.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_to_stop_that_comes_twice_is_one() {
    let (_dir, mut server, _) = start(Options::default()).await;
    let (pid, began) = (server.pid().to_string(), Instant::now());
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "kill -TERM $0; kill -INT $0", pid.as_str()]).status().expect("a shell");
    // If the machine paused between the two signals, the server may rightly take them for two requests.
    let are_one = began.elapsed() < Duration::from_millis(400);
    let code = server.wait();
    assert!(!are_one || code == Some(0), "{code:?}");
}
