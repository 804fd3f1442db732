//! Idle, slow and excessive connections, over raw sockets on every port.

use std::path::Path;
use std::time::{Duration, Instant};

use quiver_tests::server::{Answer, Options, Server};
use quiver_tests::socket::{Frame, Http2, connect, exchange, grpc_head, grpc_message, rest, status};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const LOGS: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";

/// Limits that a test can wait for.
fn short() -> Options {
    Options::default()
        .env("QUIVER_HTTP__HEADER_TIMEOUT", "300ms")
        .env("QUIVER_HTTP__KEEP_ALIVE", "3s")
        .env("QUIVER_HTTP__BODY_GRACE", "1s")
        .env("QUIVER_LOG__FILTER", "error")
}

/// The same for those who have to get a head through, and may stand still on the way.
fn with_time_for_heads() -> Options {
    short().env("QUIVER_HTTP__HEADER_TIMEOUT", "1m")
}

fn ports(server: &Server) -> [String; 3] {
    [server.http.clone(), server.otlp_http.clone(), server.otlp_grpc.clone()]
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_are_closed_on_every_port() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &short()).await;
    for port in ports(&server) {
        for begun in ["", "P", "PRI * HTTP/2.0\r\n", "GET /health/ready HTTP/1.1\r\nHost:"] {
            assert_eq!(status(&exchange(&port, begun.as_bytes()).await), 408, "{port} {begun:?}");
        }
    }
    let other = tempfile::tempdir().expect("a folder");
    let server = Server::start(other.path(), &with_time_for_heads()).await;
    for port in ports(&server) {
        // One that speaks HTTP/2 and asks nothing is told to leave.
        let mut idle = Http2::connect(&port).await;
        let mut left = false;
        while let Some(frame) = idle.next().await {
            left |= frame.kind == 7;
        }
        assert!(left, "{port}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_outlive_the_time_for_heads() {
    let dir = tempfile::tempdir().expect("a folder");
    // Between two requests we may stand still for as long as an idle connection lives.
    let server = Server::start(dir.path(), &short().env("QUIVER_HTTP__KEEP_ALIVE", "15s")).await;
    let idle = async |port: &str| {
        let mut socket = connect(port).await;
        let mut answer = vec![0; 4096];
        for _ in 0..3 {
            socket.write_all(b"GET /health/ready HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("sent");
            let n = socket.read(&mut answer).await.expect("an answer");
            assert_eq!(status(&answer[..n]), 200);
            tokio::time::sleep(Duration::from_millis(900)).await;
        }
        assert!(rest(&mut socket).await.is_empty(), "it is closed without a word");
    };
    tokio::join!(idle(&server.http), idle(&server.otlp_http));
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_senders_are_told_on_every_endpoint() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_time_for_heads()).await;
    let paths = [
        "/insert/jsonline",
        "/insert/searchengine/_bulk",
        "/insert/aggregator/api/v1/push",
        "/insert/saas/api/v2/logs",
        "/v1/logs",
        "/v1/metrics",
        "/v1/traces",
        "/api/v2/spans",
        "/metrics-api/api/v1/write",
        "/metrics-api/api/v1/import/prometheus",
        "/metrics-api/api/v1/query",
        "/logs-api/select/logsql/query",
        "/metrics-api/api/v1/read",
        "/traces",
        "/rulesapi/rules",
        "/rulesapi/rules/test",
        "/platform-api/segments",
        "/api/v2/alerts",
        "/sql-api/v1/query",
        "/olap-api/v1/load",
    ];
    let slow = |path: &'static str, more: &'static str| {
        let http = server.http.clone();
        async move {
            let mut socket = connect(&http).await;
            let media = if path.ends_with("/write") || path.ends_with("/prometheus") {
                "text/plain"
            } else {
                "application/json"
            };
            let media = if path.ends_with("/write") { "application/x-protobuf" } else { media };
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {media}\r\n{more}Content-Length: 100000\r\n\r\n"
            );
            socket.write_all(head.as_bytes()).await.expect("sent");
            let (mut reading, mut writing) = socket.split();
            let mut answer = vec![0; 4096];
            // A byte now and then does not help.
            let trickle = async {
                loop {
                    let _ = writing.write_all(b" ").await;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            let n = tokio::select! {
                n = reading.read(&mut answer) => n.expect("an answer"),
                () = trickle => 0,
                () = tokio::time::sleep(Duration::from_mins(1)) => 0,
            };
            (path, status(&answer[..n]))
        }
    };
    let once = "Idempotency-Key: a\r\n";
    let all = paths.into_iter().map(|path| slow(path, "")).collect::<Vec<_>>();
    let named = paths[..4].iter().map(|path| slow(path, once));
    for (path, status) in futures::future::join_all(all.into_iter().chain(named)).await {
        assert_eq!(status, 408, "{path}");
    }
    // Over gRPC: an end of the stream in place of an answer to half a message.
    let mut call = Http2::connect(&server.otlp_grpc).await;
    let half = Frame::new(0, 0, 1, grpc_message(false, &[7; 1000])[..100].to_vec());
    call.send(&[Frame::headers(1, 0, &grpc_head(LOGS, "identity")), half]).await;
    let answer = call.answer(1).await;
    assert!(answer.iter().any(|frame| frame.kind == 1 && frame.flags & 1 == 1), "{answer:?}");
}

/// What no limit lets in is refused by its head: nobody waits for a body, or asks for it.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_beyond_any_limit_are_refused_before_they_come() {
    let dir = tempfile::tempdir().expect("a folder");
    // Who waits for the body answers with 408.
    let server = Server::start(dir.path(), &with_time_for_heads()).await;
    let (form, json) = ("application/x-www-form-urlencoded", "application/json");
    let paths = [
        ("/insert/aggregator/api/v1/push", json),
        ("/insert/saas/api/v2/logs", json),
        ("/v1/logs", json),
        ("/v1/metrics", json),
        ("/v1/traces", json),
        ("/api/v2/spans", json),
        ("/metrics-api/api/v1/write", "application/x-protobuf"),
        ("/metrics-api/api/v1/read", "application/x-protobuf"),
        ("/metrics-api/api/v1/query", form),
        ("/logs-api/select/logsql/query", form),
        ("/sql-api/v1/query", json),
        ("/olap-api/v1/load", json),
    ];
    for (path, media) in paths {
        let fields = format!("Host: x\r\nContent-Type: {media}\r\nContent-Length: 99999999999999\r\n");
        for expect in ["", "Expect: 100-continue\r\n"] {
            let head = format!("POST {path} HTTP/1.1\r\n{fields}{expect}\r\n");
            assert_eq!(status(&exchange(&server.http, head.as_bytes()).await), 413, "{path} {expect:?}");
        }
        let mut call = Http2::connect(&server.http).await;
        let head = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "x"),
            ("content-type", media),
            ("content-length", "99999999999999"),
        ];
        call.send(&[Frame::headers(1, 0, &head)]).await;
        let frames = call.answer(1).await;
        let body: Vec<u8> =
            frames.into_iter().filter(|frame| frame.kind == 0).flat_map(|frame| frame.payload).collect();
        let body = String::from_utf8_lossy(&body);
        assert!(body.contains("is larger than"), "{path}: {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_takes_packed_messages() {
    use std::io::Write;
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    // ExportLogsServiceRequest { resource_logs { scope_logs { log_records { body { string_value: "hi" } } } } }
    let message = [0x0a, 10, 0x12, 8, 0x12, 6, 0x2a, 4, 0x0a, 2, b'h', b'i'];
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    zlib.write_all(&message).expect("memory");
    let packed = [
        ("identity", message.to_vec()),
        ("deflate", zlib.finish().expect("memory")),
        ("zstd", zstd::encode_all(&message[..], 1).expect("memory")),
    ];
    for port in [&server.otlp_grpc, &server.http] {
        for (encoding, body) in &packed {
            let mut call = Http2::connect(port).await;
            let body = grpc_message(*encoding != "identity", body);
            call.send(&[Frame::headers(1, 0, &grpc_head(LOGS, encoding)), Frame::new(0, 1, 1, body)]).await;
            let answer = call.answer(1).await;
            let kinds: Vec<u8> = answer.iter().map(|frame| frame.kind).collect();
            assert_eq!(kinds, [1, 0, 1], "{encoding}: headers, a message, trailers");
        }
    }
    let answer = server.get_with("/logs-api/select/logsql/query", &[("query", "hi | stats count() n")]).await;
    assert_eq!(answer.text(), "{\"n\":\"6\"}\n");
    // What is no call is told so without a message.
    for path in [LOGS, "/x.Y/Z"] {
        let mut call = Http2::connect(&server.otlp_grpc).await;
        call.send(&[Frame::headers(1, 0, &grpc_head(path, "identity")), Frame::new(0, 1, 1, vec![9; 9])]).await;
        let answer = call.answer(1).await;
        assert!(answer.iter().all(|frame| frame.kind == 1), "{path}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_beyond_reason() {
    let dir = tempfile::tempdir().expect("a folder");
    // What is sent in pieces may take its time here.
    let server = Server::start(dir.path(), &with_time_for_heads().env("QUIVER_HTTP__BODY_GRACE", "1m")).await;
    let big = "x".repeat(100_000);
    let many: String = (0..10_000).map(|i| format!("X{i}: y\r\n")).collect();
    let get = "GET /health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
    let post = "POST /insert/jsonline HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
    let line = "{\"_msg\":\"smuggled\"}\n";
    let cases: Vec<(String, &[u16])> = vec![
        (format!("{get}\r\n"), &[200]),
        (format!("{get}X: {}\r\n\r\n", "x".repeat(16_000)), &[200]),
        (format!("{get}X: {}\r\n\r\n", "x".repeat(17_000)), &[431]),
        // A token has as much again.
        (format!("{get}X: {0}\r\nAuthorization: {0}\r\n\r\n", "x".repeat(15_000)), &[200]),
        (format!("{get}X: {big}\r\n\r\n"), &[431]),
        (format!("{get}{big}: x\r\n\r\n"), &[431]),
        (format!("{get}X: {}\r\nY: {}\r\n\r\n", "x".repeat(17_000), "x".repeat(17_000)), &[431]),
        (format!("{get}{many}\r\n"), &[431]),
        (format!("{big} / HTTP/1.1\r\nHost: x\r\n\r\n"), &[431, 501, 400]),
        (format!("GET /{big} HTTP/1.1\r\nHost: x\r\n\r\n"), &[414, 431]),
        ("GET /health/../health/ready HTTP/1.1\r\nHost: x\r\n\r\n".into(), &[400, 404]),
        ("GET /health/%2e%2e/health/ready HTTP/1.1\r\nHost: x\r\n\r\n".into(), &[400, 404]),
        ("GET /health/%2E/ready HTTP/1.1\r\nHost: x\r\n\r\n".into(), &[400, 404]),
        ("GET /health/ready%00 HTTP/1.1\r\nHost: x\r\n\r\n".into(), &[400, 404]),
        ("GET /metrics-api/api/v1/label/%00/values HTTP/1.1\r\nHost: x\r\n\r\n".into(), &[400]),
        ("GET //health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".into(), &[400, 404]),
        ("GET /health//ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".into(), &[400, 404]),
        ("GET http://elsewhere/health/ready HTTP/1.1\r\nHost: x\r\n\r\n".into(), &[400]),
        ("GET /metrics-api/api/v1/label/%zz/values HTTP/1.1\r\nHost: x\r\n\r\n".into(), &[400]),
        ("GET /health/ready HTTP/1.1\r\n\r\n".into(), &[400]),
        ("GET /health/ready\0 HTTP/1.1\r\nHost: x\r\n\r\n".into(), &[400]),
        ("GET /health/ready HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n".into(), &[400]),
        ("GET /health/ready HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n".into(), &[400]),
        ("GET /health/ready HTTP/1.1\r\nHost: x\r\nX : a\r\n\r\n".into(), &[400]),
        ("GET /health/ready HTTP/9.9\r\nHost: x\r\n\r\n".into(), &[400, 505]),
        (format!("{post}Content-Length: 21\r\nTransfer-Encoding: chunked\r\n\r\n15\r\n{line}\r\n0\r\n\r\n"), &[400]),
        (format!("{post}Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n15\r\n{line}\r\n0\r\n\r\n"), &[400]),
        (format!("{post}Transfer-Encoding: identity, chunked, x\r\n\r\n15\r\n{line}\r\n0\r\n\r\n"), &[400]),
        (format!("{post}Transfer-Encoding: gzip, chunked\r\n\r\n15\r\n{line}\r\n0\r\n\r\n"), &[501]),
        (format!("{post}Content-Length: 21\r\nContent-Length: 21\r\n\r\n{line}"), &[400]),
        (format!("{post}Content-Length: 21\r\nContent-Length: 4\r\n\r\n{line}"), &[400]),
        (format!("{post}Content-Length: 21, 21\r\n\r\n{line}"), &[400]),
        (format!("{post}Content-Length: +21\r\n\r\n{line}"), &[400]),
        (format!("{post}Content-Length: -1\r\n\r\n{line}"), &[400]),
        (format!("{post}Content-Length: 99999999999999999999\r\n\r\n{line}"), &[400, 413]),
        (format!("{post}Transfer-Encoding: chunked\r\n\r\nxyz\r\n{line}\r\n0\r\n\r\n"), &[400]),
        (format!("{post}Transfer-Encoding: chunked\r\n\r\n-15\r\n{line}\r\n0\r\n\r\n"), &[400]),
        (format!("{post}Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{line}\r\n0\r\n\r\n"), &[400]),
    ];
    for (text, expected) in cases {
        let got = status(&exchange(&server.http, text.as_bytes()).await);
        let shown: String = text.chars().take(160).collect();
        assert!(expected.contains(&got), "{shown:?}: {got}, not {expected:?}");
    }
    // The bounds hold on every port and in both versions.
    for port in ports(&server) {
        let text = format!("{get}X: {big}\r\n\r\n");
        assert_eq!(status(&exchange(&port, text.as_bytes()).await), 431, "{port}");
        let mut call = Http2::connect(&port).await;
        let mut head = vec![(":method", "GET"), (":scheme", "http"), (":path", "/health/ready"), (":authority", "x")];
        let small = Frame::headers(1, 1, &head);
        let wide = "x".repeat(16_000);
        head.extend([("x", &*wide), ("y", &*wide), ("z", &wide[..2000])]);
        let large = Frame::headers(3, 1, &head);
        assert!(large.payload.len() > 2 * 16_384, "more than two frames may hold");
        call.send(&[small]).await;
        assert!(!call.answer(1).await.is_empty(), "{port}");
        let (begin, rest) = large.payload.split_at(16_000);
        let (middle, end) = rest.split_at(16_000);
        call.send(&[Frame::new(1, 1, 3, begin), Frame::new(9, 0, 3, middle), Frame::new(9, 4, 3, end)]).await;
        let answer = call.answer(3).await;
        assert!(answer.iter().all(|frame| frame.kind != 0), "{port}: {answer:?}");
    }
    // Nothing of it was stored, and the server goes on.
    let answer = server.get_with("/logs-api/select/logsql/query", &[("query", "smuggled | stats count() n")]).await;
    assert_eq!(answer.text(), "{\"n\":\"0\"}\n");
}

/// The beginning of a client's hello that announces so many bytes, in records of TLS.
fn hello(announced: u16, sent: usize) -> Vec<u8> {
    let [high, low] = announced.to_be_bytes();
    let mut message = vec![1, 0, high, low, 3, 3];
    message.resize(sent, 0);
    let record = |part: &[u8]| [&[22_u8, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
    message.chunks(1 << 14).flat_map(record).collect()
}

/// What asks for TLS on the port of PostgreSQL, before a hello.
const ASK_TLS: &[u8] = b"\0\0\0\x08\x04\xd2\x16\x2f";

fn with_tls(options: Options) -> Options {
    let file = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("certificates").join(name);
    options.tls(&file("server.pem"), &file("server.key"), &file("ca.pem")).args(&["--postgres", "127.0.0.1:0"])
}

#[tokio::test(flavor = "multi_thread")]
async fn half_handshakes_are_closed_on_every_port() {
    let dir = tempfile::tempdir().expect("a folder");
    // Readiness is not checked, since the time for that request's handshake is short, too.
    let mut server = Server::spawn(dir.path(), &with_tls(short())).expect("it says where it listens");
    let begun = |sent: usize| hello(500, sent);
    let mut cases = Vec::new();
    for port in ports(&server) {
        for sent in [vec![], begun(1), begun(6), begun(300), hello(u16::MAX, 40_000), hello(u16::MAX, 80_000)] {
            cases.push((port.clone(), sent));
        }
    }
    for sent in [vec![], begun(1), begun(300), ASK_TLS[..5].to_vec(), ASK_TLS.to_vec(), ASK_TLS.repeat(3)] {
        cases.push((server.postgres.clone(), sent));
    }
    let closed = cases.iter().map(|(port, sent)| exchange(port, sent));
    for ((port, sent), said) in cases.iter().zip(futures::future::join_all(closed).await) {
        assert_eq!(status(&said), 0, "{port} {} bytes", sent.len());
    }
    // Half a hello where TLS was asked for, behind the answer if that comes in time.
    let mut socket = connect(&server.postgres).await;
    let _ = socket.write_all(ASK_TLS).await;
    if let Ok(granted) = socket.read_u8().await {
        assert_eq!(granted, b'S');
        let _ = socket.write_all(&begun(300)).await;
        rest(&mut socket).await;
    }
    assert!(server.runs());
}

/// Hellos that nobody ends: TLS keeps what came of them, so it counts.
#[tokio::test(flavor = "multi_thread")]
async fn handshakes_have_one_memory() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_LOG__FILTER", "error").env("QUIVER_MEMORY__LIMIT", "320MiB");
    // Longer than the test waits for a connection to be closed.
    let server = Server::start(dir.path(), &with_tls(options.env("QUIVER_HTTP__HEADER_TIMEOUT", "1h"))).await;
    let before = server.held_bytes();
    let half = hello(u16::MAX, 60_000);
    let mut sockets = Vec::new();
    for (port, asks) in [(&server.http, false), (&server.otlp_grpc, false), (&server.postgres, true)] {
        for _ in 0..BEGUN / 2 {
            let mut socket = connect(port).await;
            if asks {
                socket.write_all(ASK_TLS).await.expect("sent");
                assert_eq!(socket.read_u8().await.expect("an answer"), b'S');
            }
            // It may be refused before all is sent.
            let _ = socket.write_all(&half).await;
            sockets.push(socket);
        }
        // Closed, though its time is not up.
        rest(&mut sockets.pop().expect("sockets")).await;
    }
    let grown = server.grown_since(before, BEGUN_BYTES_MAX).await;
    assert!(grown <= BEGUN_BYTES_MAX, "{} MiB for handshakes", grown >> 20);
    // A whole one has room meanwhile, as it is small.
    assert_eq!(server.get("/health/ready").await.status, 200);
}

/// Connections that begin a head and do not end it, or end it and send no body: more than heads have memory.
const BEGUN: usize = 1000;
/// What they may take in all: the memory for heads, and what connections have of their own.
const BEGUN_BYTES_MAX: u64 = 40 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn heads_have_one_memory() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut options = Options::default().env("QUIVER_LOG__FILTER", "error").env("QUIVER_MEMORY__LIMIT", "320MiB");
    for name in ["QUIVER_HTTP__HEADER_TIMEOUT", "QUIVER_HTTP__BODY_GRACE"] {
        options = options.env(name, "5m");
    }
    let server = Server::start(dir.path(), &options).await;
    let wide = "x".repeat(15_000);
    let begun = format!("GET /health HTTP/1.1\r\nHost: x\r\nX: {wide}\r\n");
    let waiting = format!("POST /insert/jsonline HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nX: {wide}\r\n\r\n");
    for text in [begun, waiting] {
        let before = server.held_bytes();
        let mut sockets = Vec::new();
        for _ in 0..BEGUN {
            let mut socket = connect(&server.http).await;
            // It may be refused before all is sent.
            let _ = socket.write_all(text.as_bytes()).await;
            sockets.push(socket);
        }
        let mut last = sockets.pop().expect("sockets");
        assert_eq!(status(&rest(&mut last).await), 503, "{}", &text[..20]);
        // A small one has room meanwhile.
        let ask = b"GET /health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        assert_eq!(status(&exchange(&server.http, ask).await), 200);
        let grown = server.grown_since(before, BEGUN_BYTES_MAX).await;
        assert!(grown <= BEGUN_BYTES_MAX, "{} MiB for heads", grown >> 20);
    }
    // The same over few connections of HTTP/2: who is not refused waits for its body.
    let mut calls = Vec::new();
    let path = "/insert/jsonline";
    let head = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"), ("x", wide.as_str())];
    for _ in 0..4 {
        let mut call = Http2::connect(&server.http).await;
        for stream in 0..200 {
            call.send(&[Frame::headers(2 * stream + 1, 0, &head)]).await;
        }
        calls.push(call);
    }
    let mut last = calls.pop().expect("connections");
    assert!(!last.answer(399).await.is_empty(), "the last one is told");
}

/// Blocks of headers over HTTP/2 that nobody ends: what is held of them counts, so the last one is told to calm down.
#[tokio::test(flavor = "multi_thread")]
async fn blocks_of_headers_have_one_memory() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut options = Options::default().env("QUIVER_LOG__FILTER", "error").env("QUIVER_MEMORY__LIMIT", "320MiB");
    for name in ["QUIVER_HTTP__HEADER_TIMEOUT", "QUIVER_HTTP__BODY_GRACE"] {
        options = options.env(name, "5m");
    }
    let server = Server::start(dir.path(), &options).await;
    let before = server.held_bytes();
    // A field of 120 bytes whose name the table of the protocol has, over and over.
    let block = vec![b'x'; 15_000];
    let begun = [Frame::new(1, 0, 1, block.clone()), Frame::new(9, 0, 1, block)];
    let mut calls = Vec::new();
    for _ in 0..1500 {
        let mut call = Http2::connect(&server.http).await;
        call.send(&begun).await;
        calls.push(call);
    }
    let mut last = calls.pop().expect("connections");
    let goaway = loop {
        match last.next().await {
            Some(frame) if frame.kind == 7 => break frame,
            Some(_) => {}
            None => panic!("it ended without a word"),
        }
    };
    assert_eq!(goaway.payload[7], 11, "ENHANCE_YOUR_CALM");
    let ask = b"GET /health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    assert_eq!(status(&exchange(&server.http, ask).await), 200);
    let grown = server.grown_since(before, 3 * BEGUN_BYTES_MAX).await;
    assert!(grown <= 3 * BEGUN_BYTES_MAX, "{} MiB for blocks", grown >> 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_tenants_are_refused_everywhere() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    for path in ["/insert/jsonline", "/metrics-api/api/v1/query", "/logs-api/select/logsql/query", "/v1/traces"] {
        for name in ["AccountID", "ProjectID"] {
            let answer = server.post(path, &[(name, "7")], vec![]).await;
            assert_eq!((answer.status, answer.text().contains(name)), (400, true), "{path}: {}", answer.text());
            let answer = server.post(&format!("{path}?query=*"), &[(name, "0")], vec![]).await;
            assert!(!answer.text().contains(name), "{path}: {}", answer.text());
        }
    }
}

/// Posts over the connection that the client has; it may not be back in the client's pool yet, and a new one finds no
/// place.
async fn post(server: &Server, path: &str, body: Vec<u8>) -> Answer {
    let began = Instant::now();
    loop {
        match server.try_post(path, &[], body.clone()).await {
            Ok(answer) => return answer,
            Err(e) => assert!(began.elapsed() < Duration::from_mins(5), "{path}: {e}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Whatever is spoken there: silent connections to some ports leave no place at the others.
#[tokio::test(flavor = "multi_thread")]
async fn all_ports_have_one_bound() {
    const PLACES: usize = 8;
    let dir = tempfile::tempdir().expect("a folder");
    let options = with_time_for_heads()
        .env("QUIVER_HTTP__CONNECTIONS_MAX", PLACES)
        // The one of the client that waited for the start stays, too.
        .env("QUIVER_HTTP__KEEP_ALIVE", "5m")
        .args(&["--postgres", "127.0.0.1:0"]);
    let server = Server::start(dir.path(), &options).await;
    let ask = b"GET /health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    // Whether each port answers so.
    let answer = async |expected: u16| {
        for port in ports(&server) {
            // The port of gRPC has nothing else.
            let expected = if expected == 200 && port == server.otlp_grpc { 404 } else { expected };
            if status(&exchange(&port, ask).await) != expected {
                return false;
            }
        }
        true
    };
    let (mut held, began) = (Vec::new(), Instant::now());
    for _ in 0..PLACES / 2 {
        held.push(connect(&server.otlp_grpc).await);
        held.push(connect(&server.postgres).await);
    }
    // One of the client's may have had a place meanwhile, which is free now.
    while !answer(503).await {
        assert!(began.elapsed() < Duration::from_secs(40), "there is a place");
        held.push(connect(&server.postgres).await);
    }
    drop(held);
    // Connections are given back a moment later than the other end knows.
    while !answer(200).await {
        assert!(began.elapsed() < Duration::from_secs(80), "there is no place");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_leave_files_to_the_store() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(
        dir.path(),
        &short().limits("-n 256").env("QUIVER_HTTP__HEADER_TIMEOUT", "1m").env("QUIVER_HTTP__KEEP_ALIVE", "1m"),
    )
    .await;
    let mut open = Vec::new();
    let ports = ports(&server);
    for i in 0..400 {
        open.push(connect(&ports[i % 3]).await);
    }
    // The one that was there before is served, and all that it asks for has files.
    for n in 0..3 {
        let line = format!("{{\"_msg\":\"row {n}\"}}\n");
        assert_eq!(post(&server, "/insert/jsonline", line.into_bytes()).await.status, 200);
        assert_eq!(post(&server, "/admin/flush", Vec::new()).await.status, 200);
    }
    assert_eq!(post(&server, "/admin/compact?force=true", Vec::new()).await.status, 200);
    let counted =
        post(&server, "/logs-api/select/logsql/query?query=row%20%7C%20stats%20count()%20n", Vec::new()).await;
    assert_eq!(counted.text(), "{\"n\":\"3\"}\n");
    // A new one is told that there is no place; at first those are told that came before.
    let began = Instant::now();
    loop {
        let answer = exchange(&server.http, b"GET /health/ready HTTP/1.1\r\nHost: x\r\n\r\n").await;
        if status(&answer) == 503 {
            break;
        }
        assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
        assert!(began.elapsed() < Duration::from_mins(5), "nobody is told that there is no place");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    drop(open);
    let began = Instant::now();
    loop {
        let ask = b"GET /health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        if status(&exchange(&server.http, ask).await) == 200 {
            break;
        }
        assert!(began.elapsed() < Duration::from_mins(5), "places are not given back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
