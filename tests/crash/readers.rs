//! Slow or many readers: a slow reader of a large response holds no more than its columns and a few pieces of text, and
//! nothing after it has disconnected (promise L4); hundreds of equal queries at once all get the same response (promise
//! L6).

use std::collections::BTreeMap;
use std::time::{Duration, Instant, UNIX_EPOCH};

use quiver_tests::bodies::{Series, remote_write};
use quiver_tests::load::{Caller, Written, soak};
use quiver_tests::server::{Options, Server};
use quiver_tests::time_limits::within;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::arena::{START_MS, comes_up};
use crate::cancel::read_request;

const SERIES: usize = 1000;
const SAMPLES: i64 = 1000;
const READERS: usize = 8;
/// What a reader may hold beside what counts in the memory of queries.
const BUFFERS: u64 = 8 << 20;
const PATIENCE: Duration = Duration::from_mins(5);
/// Within which a query ends whose reader left.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

async fn server(options: Options) -> (tempfile::TempDir, Server, Caller) {
    let dir = tempfile::tempdir().expect("a folder");
    let options = options.env("QUIVER_LOG__FILTER", "off");
    let mut server = Server::spawn(dir.path(), &options).expect("the server says where it listens");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await, "the server died");
    let names: Vec<String> = (0..SERIES).map(|i| format!("s{i}")).collect();
    for from in (0..SAMPLES).step_by(100) {
        let samples =
            |i: usize| (from..from + 100).map(|n| (START_MS + n * 1000, (n * i as i64) as f64 / 7.0)).collect();
        let labels = |name| vec![("__name__", "read_samples"), ("series", name), ("job", "j")];
        let series: Vec<Series<'_>> =
            names.iter().enumerate().map(|(i, name)| (labels(name.as_str()), samples(i))).collect();
        assert_eq!(caller.write(remote_write(&series)).await, Written::Taken);
    }
    server.flush().await;
    (dir, server, caller)
}

/// The question whose answer has some 40 MB.
fn large() -> String {
    let end = START_MS / 1000 + SAMPLES;
    format!("/metrics-api/api/v1/query?query=read_samples%5B{}s%5D&time={end}", SAMPLES + 1)
}

/// Asks by hand, and reads no more than the beginning.
async fn begin(server: &Server) -> TcpStream {
    let (socket, head) = ask(server).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    socket
}

/// The same for whatever answer; gives its beginning.
async fn ask(server: &Server) -> (TcpStream, String) {
    let mut socket = TcpStream::connect(&server.http).await.expect("it listens");
    let request = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", large(), server.http);
    socket.write_all(request.as_bytes()).await.expect("sent");
    let mut head = vec![0; 4096];
    let read = socket.read(&mut head).await.expect("an answer");
    (socket, String::from_utf8_lossy(&head[..read]).into_owned())
}

async fn until(caller: &Caller, expected: impl Fn(f64) -> bool, what: &str) -> Duration {
    let began = Instant::now();
    while !expected(caller.metric("quiver_query_memory_bytes").await.expect("it lives")) {
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn slow_readers_hold_little_and_give_it_back() {
    let (_dir, server, caller) = server(Options::default()).await;
    // Once as a whole: what comes slowly must be the same.
    let (status, whole) = caller.get(&large(), &[]).await.expect("it lives");
    assert_eq!(status, 200);
    assert!(whole.len() > 20 << 20, "{} bytes", whole.len());
    until(&caller, |bytes| bytes == 0.0, "an answer that was read holds memory").await;
    let before = server.held_bytes();
    let mut sockets = Vec::new();
    for _ in 0..READERS {
        sockets.push(begin(&server).await);
    }
    let columns = SERIES as f64 * SAMPLES as f64 * 16.0;
    let held = caller.metric("quiver_query_memory_bytes").await.expect("it lives");
    assert!(held >= columns * READERS as f64, "{held} bytes are accounted for {READERS} answers of {columns} bytes");
    // A little every now and then.
    let mut piece = vec![0; 64 << 10];
    for _ in 0..20 {
        for socket in &mut sockets {
            assert!(socket.read(&mut piece).await.expect("more of the answer") > 0);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let bound = held as u64 + READERS as u64 * BUFFERS;
    let grown = server.grown_since(before, bound).await;
    println!(
        "{READERS} slow readers of {} MB each: {} MB more, {} MB of them columns",
        whole.len() >> 20,
        grown >> 20,
        held as u64 >> 20
    );
    assert!(grown <= bound, "{} MB for {READERS} answers", grown >> 20);
    // Others are served meanwhile.
    assert_eq!(caller.number("count(read_samples)", START_MS + 1000).await.expect("it lives"), Ok(Some(SERIES as f64)));
    // One of them reads on to the end.
    let mut socket = sockets.pop().expect("readers");
    let reading = tokio::spawn(async move {
        let (mut read, mut piece) = (0, vec![0; 1 << 20]);
        while read < 30 << 20 {
            match socket.read(&mut piece).await.expect("more of the answer") {
                0 => break,
                n => read += n,
            }
        }
        read
    });
    assert!(reading.await.expect("read") >= 20 << 20);
    // The others vanish.
    drop(sockets);
    let took = until(&caller, |bytes| bytes == 0.0, "vanished readers hold memory").await;
    println!("memory back after {took:?}");
    assert_eq!(server.stop(), Some(0));
}

/// Who would get the memory alone is told to ask again while others hold it (promise L2), and gets it once they are gone.
#[tokio::test(flavor = "multi_thread")]
async fn who_finds_the_memory_held_by_others_may_ask_again() {
    let (_dir, server, caller) = server(Options::default().env("QUIVER_MEMORY__LIMIT", "1GiB")).await;
    let mut sockets = Vec::new();
    let refused = loop {
        assert!(sockets.len() < 64, "all of the memory of queries is held, and nobody is refused");
        let (socket, head) = ask(&server).await;
        if !head.starts_with("HTTP/1.1 200") {
            break head.to_ascii_lowercase();
        }
        sockets.push(socket);
    };
    assert!(!sockets.is_empty(), "alone it has room: {refused}");
    assert!(refused.starts_with("http/1.1 503") && refused.contains("\r\nretry-after: "), "{refused}");
    drop(sockets);
    until(&caller, |bytes| bytes == 0.0, "vanished readers hold memory").await;
    begin(&server).await;
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_readers_of_remote_read_hold_what_is_counted() {
    let (_dir, server, caller) = server(Options::default()).await;
    let body = read_request("read_samples", START_MS + SAMPLES * 1000, false);
    let ask = async || {
        let mut socket = TcpStream::connect(&server.http).await.expect("it listens");
        let head = format!(
            "POST /metrics-api/api/v1/read HTTP/1.1\r\nHost: {}\r\nContent-Encoding: snappy\r\n\
             Content-Type: application/x-protobuf\r\nContent-Length: {}\r\n\r\n",
            server.http,
            body.len()
        );
        socket.write_all(&[head.as_bytes(), &body].concat()).await.expect("sent");
        let mut head = vec![0; 1024];
        let read = socket.read(&mut head).await.expect("an answer");
        assert!(head[..read].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head[..read]));
        socket
    };
    drop(ask().await);
    until(&caller, |bytes| bytes == 0.0, "a vanished reader holds memory").await;
    let before = server.held_bytes();
    // As many as may be asked at once: each keeps its place as long as it is sent.
    let mut sockets = Vec::new();
    for _ in 0..4 {
        sockets.push(ask().await);
    }
    // Answers of 15 MB, of which a socket takes a few.
    let held = caller.metric("quiver_query_memory_bytes").await.expect("it lives") as u64;
    assert!(held > sockets.len() as u64 * (8 << 20), "{held} bytes are counted for {} answers", sockets.len());
    let bound = held + sockets.len() as u64 * BUFFERS;
    let grown = server.grown_since(before, bound).await;
    assert!(grown <= bound, "{} MB, of which {} MB are known", grown >> 20, held >> 20);
    drop(sockets);
    until(&caller, |bytes| bytes == 0.0, "vanished readers hold memory").await;
    assert_eq!(server.stop(), Some(0));
}

/// Requests with large answers: made while they are read, or as a whole and counted.
const LARGE: &[&str] = &[
    // The first ones: federation gives what is new.
    "/metrics-api/federate?match[]=fresh_names",
    "/metrics-api/api/v1/status/tsdb?limit=10000",
    "/logs-api/select/logsql/query?query=*",
    "/logs-api/select/logsql/tail?query=*&start_offset=1000000h",
    "/logs-api/select/logsql/field_values?query=*&field=_msg",
    "/metrics-api/api/v1/series?match[]={job=%22j%22}",
    "/metrics-api/api/v1/label/long/values",
    "/platform-api/traces/00000000000000000000000000000007/otlp",
    "/platform-api/traces/00000000000000000000000000000007/spanarray",
    "/platform-api/traces/00000000000000000000000000000007/traceobject",
    "/traces/00000000000000000000000000000007",
    "/traces/operations?from=0&limit=100000",
    "/traces/tags/name/values?scope=intrinsic&from=0&limit=100000",
    "/api/traces/00000000000000000000000000000007",
    "/api/traces/00000000000000000000000000000007?prettyPrint=true",
    "/api/v3/traces/00000000000000000000000000000007",
    "/zipkin/api/v2/trace/00000000000000000000000000000007",
    "/tempo/api/traces/00000000000000000000000000000007",
    "/sql-api/v1/query?query=select%20*%20from%20logs&format=json&limit=1000000",
    "/sql-api/v1/query?query=select%20*%20from%20logs&format=ndjson&limit=1000000",
    "/sql-api/v1/query?query=select%20*%20from%20logs&format=csv&limit=1000000",
    "/sql-api/v1/query?query=select%20*%20from%20logs&format=arrow&limit=1000000",
    "/sql-api/v1/query?query=select%20*%20from%20logs&format=parquet&limit=1000000",
    "/sql-api/v1/query?query=select%20time,%20upper(message)%20as%20m%20from%20logs&format=ndjson&limit=1000000",
];

/// Rows, series and spans with long texts: each answer has some 16 MB and more.
async fn long_texts(server: &Server, caller: &Caller) {
    let noise = |n: usize| format!("{:016x}", (n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)).repeat(64);
    for piece in 0..20 {
        let line = |n: usize| format!("{{\"_time\":\"{}\",\"_msg\":\"{}\"}}\n", START_MS * 1_000_000, noise(n));
        let lines: String = (piece * 1000..(piece + 1) * 1000).map(line).collect();
        let answer = server.post("/insert/jsonline", &[], lines.into_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let values: Vec<String> = (piece * 1000..(piece + 1) * 1000).map(noise).collect();
        let series: Vec<Series<'_>> = values
            .iter()
            .map(|value| {
                (vec![("__name__", "long_names"), ("job", "j"), ("long", value.as_str())], vec![(START_MS, 1.0)])
            })
            .collect();
        assert_eq!(caller.write(remote_write(&series)).await, Written::Taken);
        let now_ms = UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as i64;
        let fresh = [(now_ms, 1.0)];
        let series: Vec<Series<'_>> = values
            .iter()
            .map(|value| (vec![("__name__", "fresh_names"), ("long", value.as_str())], fresh.to_vec()))
            .collect();
        assert_eq!(caller.write(remote_write(&series)).await, Written::Taken);
        let span = |n: usize| {
            serde_json::json!({"traceId": format!("{:032x}", 7), "spanId": format!("{:016x}", n + 1), "name": noise(n),
                "kind": 2, "startTimeUnixNano": (START_MS * 1_000_000).to_string(),
                "endTimeUnixNano": (START_MS * 1_000_000 + 1).to_string()})
        };
        let spans: Vec<_> = (piece * 1000..(piece + 1) * 1000).map(span).collect();
        let body = serde_json::json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).to_string();
        let answer = server.post("/v1/traces", &[("content-type", "application/json")], body.into_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn slow_readers_of_every_endpoint() {
    // Longer than we look: who takes nothing for long loses the rest, and what stands behind it.
    let (_dir, server, caller) = server(Options::default().env("QUIVER_HTTP__SEND_TIMEOUT", "10m")).await;
    long_texts(&server, &caller).await;
    server.flush().await;
    // Of the packed forms brotli's takes the most.
    for (target, packed) in LARGE.iter().flat_map(|target| [(target, "identity"), (target, "br")]) {
        // What is made once is made before.
        let mut first = open_at(&server, target, packed).await;
        assert!(first.read(&mut [0; 1]).await.expect("an answer") > 0);
        drop(first);
        tokio::time::sleep(Duration::from_millis(500)).await;
        // What caches take by these readers counts there, and stays.
        let kept = async || caller.metric("quiver_cache_bytes").await.expect("it lives") as u64;
        let (before, kept_before) = (server.held_bytes(), kept().await);
        let mut sockets = Vec::new();
        for _ in 0..READERS {
            let mut socket = open_at(&server, target, packed).await;
            let mut head = vec![0; 1024];
            let read = socket.read(&mut head).await.expect("an answer");
            assert!(head[..read].starts_with(b"HTTP/1.1 "), "{target}: {}", String::from_utf8_lossy(&head[..read]));
            sockets.push(socket);
        }
        // A query goes on until its buffers are full, or to its end where the packed answer is short, and rests then.
        let rests_by = Instant::now() + Duration::from_secs(if packed == "identity" { 10 } else { 60 });
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let grown = server.held_bytes().saturating_sub(before);
            let counted = caller.metric("quiver_query_memory_bytes").await.expect("it lives") as u64;
            let held = counted + kept().await.saturating_sub(kept_before);
            let (grown_mb, held_mb) = (grown >> 20, held >> 20);
            let text = format!("{target} ({packed}): {READERS} slow readers hold {grown_mb} MB, {held_mb} MB known");
            if grown <= held + READERS as u64 * BUFFERS {
                println!("{text}");
                break;
            }
            assert!(Instant::now() < rests_by, "{text}");
        }
        drop(sockets);
        if all_ended(&caller, target).await >= ENDS_WITHIN {
            within(&format!("a query of {target} ({packed}) whose reader left"), ENDS_WITHIN, async || {
                let mut socket = open_at(&server, target, packed).await;
                assert!(socket.read(&mut [0; 1024]).await.expect("an answer") > 0);
                drop(socket);
                all_ended(&caller, target).await
            })
            .await;
        }
    }
    assert_eq!(server.stop(), Some(0));
}

/// Waits until nothing runs and nothing is held; gives how long that took.
async fn all_ended(caller: &Caller, target: &str) -> Duration {
    let began = Instant::now();
    let left = async || {
        let running = caller.metric("quiver_queries_running").await.expect("it lives");
        running + caller.metric("quiver_query_memory_bytes").await.expect("it lives")
    };
    while left().await > 0.0 {
        assert!(began.elapsed() < PATIENCE, "{target}: a query goes on for a reader that left");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    began.elapsed()
}

/// Asks by hand.
async fn open_at(server: &Server, target: &str, packed: &str) -> TcpStream {
    let mut socket = TcpStream::connect(&server.http).await.expect("it listens");
    let request = format!("GET {target} HTTP/1.1\r\nHost: {}\r\nAccept-Encoding: {packed}\r\n\r\n", server.http);
    socket.write_all(request.as_bytes()).await.expect("sent");
    socket
}

/// Makes a query take longer than a herd takes to arrive.
const SLOW: &str = "query.begin=sleep:1500";
/// What a herd asks, and whether the result is kept: a range; one with annotations; an instant query.
const HERDS: &[(&str, &str, bool)] = &[
    ("query_range", "sum by (job) (max_over_time(read_samples[1m]))", true),
    ("query_range", "sum by (job) (rate(read_samples[1m])) + stddev(read_samples)", false),
    ("query", "max_over_time(sum(read_samples)[5m:15s])", false),
];

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn a_herd_is_answered() {
    let herd = if soak() { 500 } else { 100 };
    let slow = Options::default().env("QUIVER_FAILPOINT", SLOW);
    let (_dir, server, caller) = server(slow).await;
    let (start, end) = ((START_MS / 1000 + 100).to_string(), (START_MS / 1000 + SAMPLES).to_string());
    let ask = async |(path, query): (&str, &str), more: &[(&str, &str)]| {
        let params = [("query", query), ("start", &start), ("end", &end), ("time", &end), ("step", "15")];
        let params: Vec<_> = params.iter().chain(more).copied().collect();
        let began = Instant::now();
        let (status, body) = caller.get(&format!("/metrics-api/api/v1/{path}"), &params).await.expect("it lives");
        (status, body, began.elapsed())
    };
    for &(path, query, kept) in HERDS {
        let question = (path, query);
        // Its result is not kept, so that the herd finds none.
        let (status, first, alone) = ask(question, &[("nocache", "1")]).await;
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&first));
        let spent = async || {
            let count = async |name| caller.metric(name).await.expect("it lives");
            let steps = count("quiver_result_steps_total{from=\"evaluation\"}").await;
            (steps, count("quiver_query_started_total").await)
        };
        let before = spent().await;
        let answers = futures::future::join_all((0..herd).map(|_| ask(question, &[]))).await;
        let mut kinds: BTreeMap<u16, usize> = BTreeMap::new();
        let mut times: Vec<Duration> = Vec::new();
        for (status, body, took) in &answers {
            *kinds.entry(*status).or_default() += 1;
            assert!(*status != 200 || *body == first, "another answer");
            times.push(*took);
        }
        times.sort_unstable();
        let after = spent().await;
        let (steps, ran) = (after.0 - before.0, after.1 - before.1);
        println!(
            "{}: alone {alone:?}; {herd} at once: {kinds:?}, {ran} executions, {steps} steps, p50 {:?}, p99 {:?}",
            question.1,
            times[herd / 2],
            times[herd * 99 / 100]
        );
        assert_eq!(kinds.get(&200), Some(&herd), "{kinds:?}");
        // One of them was evaluated, from the first step to the last: who came too late found what was kept, or evaluated
        // again where nothing is.
        if kept {
            assert_eq!(steps, ((SAMPLES - 100) / 15 + 1) as f64);
        } else {
            assert_eq!(steps, 0.0);
            assert!(ran <= (herd / 10) as f64, "{ran} executions");
        }
    }
    assert_eq!(server.stop(), Some(0));
}
