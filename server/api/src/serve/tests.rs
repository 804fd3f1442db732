//! Connections over real sockets, with limits of some tens of milliseconds.

use axum::body::Body;
use axum::extract::Request;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use tokio::time::Instant;

use super::*;
use crate::body_memory::{BodyBudget, read_body};
use crate::error::plain_error;
use crate::response_pressure::Room;

const SHORT: Duration = Duration::from_millis(100);
/// Longer than any machine stalls while a test runs.
const STILL: Duration = Duration::from_secs(8);
const LONG: Duration = Duration::from_mins(1);

struct Served {
    at: SocketAddr,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

async fn served(settings: ServeSettings) -> Served {
    let take = |request: Request| async move {
        let (head, body) = request.into_parts();
        match read_body(&BodyBudget::new(1 << 20, 1 << 20), &head.headers, body, 1 << 20).await {
            Ok(body) => body.len().to_string().into_response(),
            Err(e) => plain_error(&e, "/take"),
        }
    };
    let endless =
        || async { Body::from_stream(futures::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![7; 1 << 16]))) };
    let room = Arc::new(Room::new(1));
    let held = move || {
        let room = Arc::clone(&room);
        async move {
            let place = room.take().await.expect("nobody closes it");
            let piece = move || {
                let _held = &place;
                Ok::<_, std::io::Error>(vec![7; 1 << 16])
            };
            let mut response = Body::from_stream(futures::stream::repeat_with(piece)).into_response();
            room.kept_by(&mut response);
            response
        }
    };
    let router = Router::new()
        .route("/", get(|| async { "here" }))
        .route("/held", get(held))
        .route("/query", get(|uri: http::Uri| async move { uri.query().unwrap_or_default().to_owned() }))
        .route("/take", post(take))
        .route("/endless", get(endless))
        .route("/never", get(std::future::pending::<&str>));
    let socket = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (at, stop) = (socket.local_addr().expect("an address"), CancellationToken::new());
    let task = tokio::spawn(serve(Listener { socket, router, tls: None }, settings, stop.clone()));
    Served { at, stop, task }
}

/// Sends a text, then reads until the connection ends.
async fn said(served: &Served, text: &str) -> (TcpStream, String) {
    let mut socket = TcpStream::connect(served.at).await.expect("it listens");
    socket.write_all(text.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(LONG, socket.read_to_end(&mut answer)).await.expect("the connection ends");
    (socket, String::from_utf8_lossy(&answer).into_owned())
}

async fn one(socket: &mut TcpStream, text: &str) -> String {
    socket.write_all(text.as_bytes()).await.expect("sent");
    let mut answer = vec![0; 4096];
    let n = socket.read(&mut answer).await.expect("an answer");
    String::from_utf8_lossy(&answer[..n]).into_owned()
}

#[tokio::test]
async fn heads_that_do_not_come() {
    let served = served(ServeSettings { header_timeout: SHORT, ..ServeSettings::default() }).await;
    for begun in ["", "G", "PRI * HT", "GET / HTTP/1.1\r\nHost: x\r\n"] {
        let (_, answer) = said(&served, begun).await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{begun:?}: {answer}");
    }
}

#[tokio::test]
async fn idle_connections_have_a_time_of_their_own() {
    let settings = ServeSettings { header_timeout: STILL, keep_alive: STILL * 2, ..ServeSettings::default() };
    let served = served(settings).await;
    let mut socket = TcpStream::connect(served.at).await.expect("it listens");
    let ask = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    for _ in 0..3 {
        assert!(one(&mut socket, ask).await.starts_with("HTTP/1.1 200 "));
        tokio::time::sleep(SHORT * 3).await;
    }
    let began = Instant::now();
    assert_eq!(socket.read(&mut [0; 10]).await.ok(), Some(0), "it is closed without a word");
    assert!(began.elapsed() < LONG);
    // A head that begins late still has the full header timeout.
    let mut socket = TcpStream::connect(served.at).await.expect("it listens");
    assert!(one(&mut socket, ask).await.starts_with("HTTP/1.1 200 "));
    assert!(one(&mut socket, "GET /").await.starts_with("HTTP/1.1 408 "));
}

#[tokio::test]
async fn bodies_that_come_too_slowly() {
    let settings = ServeSettings { body_grace: STILL, body_rate_min: 100_000, ..ServeSettings::default() };
    let served = served(settings).await;
    let head = "POST /take HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1000\r\n\r\n";
    let (_, answer) = said(&served, &format!("{head}{}", "x".repeat(1000))).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("1000"), "{answer}");
    let (_, answer) = said(&served, &format!("{head}x")).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    // A byte now and then is below the minimum rate, too.
    let mut socket = TcpStream::connect(served.at).await.expect("it listens");
    socket.write_all(head.as_bytes()).await.expect("sent");
    let (mut reading, mut writing) = socket.split();
    let mut answer = vec![0; 100];
    let read = tokio::select! {
        read = reading.read(&mut answer) => read.expect("an answer"),
        () = async {
            loop {
                tokio::time::sleep(SHORT / 5).await;
                let _ = writing.write_all(b"x").await;
            }
        } => 0,
        () = tokio::time::sleep(LONG) => 0,
    };
    assert!(answer[..read].starts_with(b"HTTP/1.1 408 "), "{}", String::from_utf8_lossy(&answer));
}

/// After a refusal of a request whose body nobody reads, the connection is usable, or the response says that it is
/// not.
#[tokio::test]
async fn bodies_that_nobody_reads() {
    let served = served(ServeSettings::default()).await;
    let mut socket = TcpStream::connect(served.at).await.expect("it listens");
    for _ in 0..2 {
        // Many clients send the body right after the head.
        let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n";
        socket.write_all(head.as_bytes()).await.expect("sent");
        tokio::time::sleep(SHORT).await;
        let answer = one(&mut socket, "{}").await;
        assert!(answer.starts_with("HTTP/1.1 405 ") && !answer.contains("connection: close"), "{answer}");
    }
    // A body that was read to its end leaves no rest, even if its length was not stated.
    let chunked = "POST /take HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
    let answer = one(&mut socket, chunked).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("connection: close"), "{answer}");
    for long in ["Content-Length: 1000000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"] {
        let (_, answer) = said(&served, &format!("POST / HTTP/1.1\r\nHost: x\r\n{long}")).await;
        assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("connection: close"), "{answer}");
    }
}

/// A request that a limit rules out is refused by its head alone: its body is neither waited for nor asked for.
#[tokio::test]
async fn bodies_that_are_refused_before_they_come() {
    let served = served(ServeSettings::default()).await;
    for (length, expect) in [
        ("99999999999999", ""),
        ("99999999999999", "Expect: 100-continue\r\n"),
        ("1048577", "Expect: 100-continue\r\n"),
    ] {
        let head = format!("POST /take HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{expect}\r\n");
        let (_, answer) = said(&served, &head).await;
        assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("connection: close"), "{head:?}: {answer}");
    }
    let mut socket = TcpStream::connect(served.at).await.expect("it listens");
    let head = "POST /take HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    assert!(one(&mut socket, head).await.starts_with("HTTP/1.1 100 "), "this one is let in");
    assert!(one(&mut socket, "{}").await.starts_with("HTTP/1.1 200 "));
}

/// One read may end exactly with the head: then the body arrives before anybody asks for it, and must not be taken
/// for a head.
#[tokio::test]
async fn bodies_that_come_right_behind_their_heads() {
    let served = served(ServeSettings::default()).await;
    let body = format!("A: 1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n{}", "x".repeat(30_000));
    // The first buffer has 16 KiB.
    for size in [8_192, 16_383, 16_384, 16_385] {
        let mut socket = TcpStream::connect(served.at).await.expect("it listens");
        let head = format!("POST /take HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\nX: ", body.len());
        let head = format!("{head}{}\r\n\r\n", "x".repeat(size - head.len() - 4));
        assert_eq!(head.len(), size);
        let answer = one(&mut socket, &(head + &body)).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "a head of {size} bytes: {answer}");
        assert!(answer.ends_with(&body.len().to_string()), "{answer}");
    }
}

/// Would fail if heads were located by which requests are under way and not by where bodies end: a head that begins
/// after a body in the same read would not be checked, and its last byte would begin the next.
#[tokio::test]
async fn heads_that_come_right_behind_bodies() {
    let served = served(ServeSettings::default()).await;
    let take = |bytes: usize| format!("POST /take HTTP/1.1\r\nHost: x\r\nContent-Length: {bytes}\r\n\r\n");
    let (text, token) = ("x".repeat(15_000), "y".repeat(12_000));
    let long = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {text}\r\nAuthorization: Bearer {token}\r\n\r\n");
    for body in ["A: 1\r\nContent-Length: 1\r\nContent-Length: 1\r\nx".to_owned(), "x".repeat(40_000)] {
        let mut socket = TcpStream::connect(served.at).await.expect("it listens");
        let next = take(body.len());
        let answer = one(&mut socket, &format!("{}{{}}{}", take(2), next.trim_end_matches('\n'))).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with('2'), "{answer}");
        let answer = one(&mut socket, &format!("\n{body}")).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(&body.len().to_string()), "{answer}");
        let answer = one(&mut socket, &long).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("here"), "{answer}");
    }
}

/// Pipelined requests: sent before the response to the one before them.
#[tokio::test]
async fn requests_that_do_not_wait_for_answers() {
    let served = served(ServeSettings::default()).await;
    let check = async |text: String, expected: &[&str]| {
        let (_, answer) = said(&served, &text).await;
        let statuses: Vec<&str> = answer.split("HTTP/1.1 ").skip(1).filter_map(|answer| answer.get(..3)).collect();
        assert_eq!(statuses, expected, "{answer}");
    };
    let (get, last) = ("GET / HTTP/1.1\r\nHost: x\r\n", "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    check(format!("{get}\r\n{get}\r\n{last}"), &["200", "200", "200"]).await;
    // Bodies that no handler reads.
    for body in [last.to_owned(), "x".repeat(60_000)] {
        let post = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        check(format!("{post}{last}"), &["405", "200"]).await;
    }
    let unread = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{last}");
    check(unread, &["405"]).await;
    let twice = "POST /take HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n";
    check(format!("{get}\r\n{twice}1\r\nx\r\n0\r\n\r\n"), &["200", "400"]).await;
    check(format!("{get}\r\n{get}X: {}", "x".repeat(40_000)), &["200", "431"]).await;
}

#[tokio::test]
async fn heads_that_can_be_read_in_two_ways() {
    let served = served(ServeSettings { head_bytes_max: 2000, ..ServeSettings::default() }).await;
    let check = async |text: String, expected: &str| {
        let (_, answer) = said(&served, &text).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{text:?}: {answer}");
    };
    let take = "POST /take HTTP/1.1\r\nHost: x\r\n";
    check(format!("{take}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"), "400").await;
    check(format!("{take}Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n1\r\nx\r\n0\r\n\r\n"), "400").await;
    check(format!("{take}Content-Length: 1\r\nContent-Length: 1\r\n\r\nx"), "400").await;
    check(format!("{take}Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx"), "400").await;
    check("GET /a/../take HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "400").await;
    check("GET http://y/ HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "400").await;
    check("GET http://x/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(), "200").await;
    check(format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "x".repeat(2000)), "431").await;
    // The size is known to be too large before the head ends.
    check(format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}", "x".repeat(2000)), "431").await;
}

#[tokio::test]
async fn readers_that_take_nothing_are_cut() {
    let served = served(ServeSettings { send_timeout: SHORT, ..ServeSettings::default() }).await;
    let mut socket = TcpStream::connect(served.at).await.expect("it listens");
    socket.write_all(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("sent");
    tokio::time::sleep(SHORT * 5).await;
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(LONG, socket.read_to_end(&mut rest)).await.expect("it ends");
}

#[tokio::test]
async fn readers_that_are_slow_give_way_to_those_who_wait() {
    let served = served(ServeSettings { body_grace: SHORT, ..ServeSettings::default() }).await;
    let ask = "GET /held HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut slow = TcpStream::connect(served.at).await.expect("it listens");
    assert!(one(&mut slow, ask).await.starts_with("HTTP/1.1 200 "));
    // There is one place, which the first one has until its answer ends: never, if it is up to its reader.
    let mut next = TcpStream::connect(served.at).await.expect("it listens");
    let answer = tokio::time::timeout(LONG, one(&mut next, ask)).await.expect("it has its turn");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let _ = tokio::time::timeout(LONG, slow.read_to_end(&mut Vec::new())).await.expect("the first one ends");
}

#[tokio::test]
async fn one_bound_for_all_and_a_word_to_the_rest() {
    let settings = ServeSettings { places: Arc::new(Semaphore::new(2)), ..ServeSettings::default() };
    let (first, second) = (served(settings.clone()).await, served(settings).await);
    let mut kept = Vec::new();
    for at in [first.at, second.at] {
        let mut socket = TcpStream::connect(at).await.expect("it listens");
        assert!(one(&mut socket, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.starts_with("HTTP/1.1 200 "));
        kept.push(socket);
    }
    for served in [&first, &second] {
        let began = Instant::now();
        let (_, answer) = said(served, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(began.elapsed() < LONG);
    }
    drop(kept);
    let began = Instant::now();
    while !said(&first, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.1.starts_with("HTTP/1.1 200 ") {
        assert!(began.elapsed() < LONG, "the places are not given back");
    }
}

#[tokio::test]
async fn a_stop_waits_for_requests_and_cuts_what_stays() {
    let settings = ServeSettings { drain_timeout: SHORT * 3, ..ServeSettings::default() };
    let served = served(settings).await;
    let mut idle = TcpStream::connect(served.at).await.expect("it listens");
    assert!(one(&mut idle, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.starts_with("HTTP/1.1 200 "));
    let silent = TcpStream::connect(served.at).await.expect("it listens");
    let mut hanging = TcpStream::connect(served.at).await.expect("it listens");
    hanging.write_all(b"GET /never HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("sent");
    tokio::time::sleep(SHORT).await;
    served.stop.cancel();
    tokio::time::timeout(LONG, served.task).await.expect("it ends").expect("no panic");
    for mut socket in [idle, silent, hanging] {
        assert!(matches!(socket.read(&mut [0; 10]).await, Ok(0) | Err(_)), "it is closed");
    }
}

#[tokio::test]
async fn quotes_in_queries_and_heads_without_bodies() {
    let served = served(ServeSettings::default()).await;
    let mut socket = TcpStream::connect(served.at).await.expect("it listens");
    for _ in 0..2 {
        let answer = one(&mut socket, "GET /query?q={a=\"b\"}<1> HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("q={a=%22b%22}%3C1%3E"), "{answer}");
    }
    let answer = one(&mut socket, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(answer.contains("content-length: 4\r\n"), "{answer}");
    let answer = one(&mut socket, "HEAD /endless HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("content-length"), "{answer}");
    // The connection is still usable.
    assert!(one(&mut socket, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.ends_with("here"));
}

/// Bytes behind the request that is being answered do not hide that its client leaves.
#[tokio::test]
async fn who_goes_away_behind_what_is_not_answered_yet() {
    let served = served(ServeSettings::default()).await;
    let mut socket = TcpStream::connect(served.at).await.expect("it listens");
    socket.write_all(b"GET /never HTTP/1.1\r\nHost: x\r\n\r\nG").await.expect("sent");
    tokio::time::sleep(SHORT).await;
    socket.shutdown().await.expect("it goes");
    let ended = tokio::time::timeout(LONG, socket.read_to_end(&mut Vec::new())).await;
    assert!(ended.is_ok(), "its request goes on");
}

/// Sends a body that repeats one chunk; returns the response.
async fn chunked(served: &Served, chunk: &str, times: usize) -> String {
    let head = "POST /take HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunks = format!("{:x}\r\n{chunk}\r\n", chunk.len()).repeat(times);
    let (mut reading, mut writing) = TcpStream::connect(served.at).await.expect("it listens").into_split();
    // The server may respond before the whole body has been sent.
    let sent = tokio::spawn(async move {
        let _ = writing.write_all(format!("{head}{chunks}0\r\n\r\n").as_bytes()).await;
        writing
    });
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(LONG, reading.read_to_end(&mut answer)).await.expect("the connection ends");
    drop(sent);
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn small_chunks_are_bounded() {
    let served = served(ServeSettings::default()).await;
    let answer = chunked(&served, "x", 400_000).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("too many chunks"), "{answer}");
    // Lines that are flushed one by one are none of those, nor is a small body.
    let answer = chunked(&served, "{\"a\":\"01234567\"}\n", 50_000).await;
    assert!(answer.ends_with("850000"), "{answer}");
    let answer = chunked(&served, "x", 30_000).await;
    assert!(answer.ends_with("30000"), "{answer}");
}
