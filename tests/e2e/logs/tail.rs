//! Live tail: rows arrive as they are written, in time order; the tail ends when its client disconnects.

use std::io::{BufRead, BufReader, Write};
use std::time::{Duration, Instant};

use quiver_tests::server::{Options, Server};
use quiver_tests::time_limits::until;
use quiver_types::{Clock, SystemClock};
use serde_json::Value;

use crate::logs::query::{API, ask, open, send};

/// Reads rows of a tail until so many came; the head and empty lines are left out.
fn follow(reader: &mut impl BufRead, count: usize) -> Vec<Value> {
    let mut found = Vec::new();
    let began = Instant::now();
    while found.len() < count {
        assert!(began.elapsed() < Duration::from_mins(5), "only {found:?}");
        let mut line = String::new();
        assert!(reader.read_line(&mut line).expect("an open connection") > 0, "the tail ended");
        // Between head, sizes of chunks and empty lines, rows are the lines that are objects.
        if line.starts_with('{') {
            found.push(serde_json::from_str(&line).expect("a row"));
        }
    }
    found
}

/// Whether the other end of a connection that has this port here is there still (Linux: established, or half closed).
fn is_held(port: u16) -> bool {
    let connections = std::fs::read_to_string("/proc/net/tcp").expect("the system tells of connections");
    let other_end = format!(":{port:04X}");
    connections.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(2);
        fields.next().is_some_and(|remote| remote.ends_with(&other_end)) && matches!(fields.next(), Some("01" | "08"))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_arrive_as_they_are_written() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    send(&server, "app", "{\"_msg\":\"long ago\",\"_time\":\"2025-01-01T00:00:00Z\",\"level\":\"error\"}\n".into())
        .await;
    // Rows that nobody asks for are there as well. Rows may be older than they are visible, on a machine that stands still
    // in between; those that become visible behind a look that passed their time are not seen.
    let noise = "{\"_msg\":\"noise\",\"level\":\"info\"}\n";
    let target = format!(
        "{API}/tail?query=level:error%20%7C%20format%20%27%3C_msg%3E!%27%20as%20x\
                          &refresh_interval=100ms&offset=12s"
    );
    let connection = open(&server, &target);
    let port = connection.local_addr().expect("a port").port();
    let mut reader = BufReader::new(connection);
    for round in 0..5 {
        let row = |n: usize| format!("{{\"_msg\":\"m{n}\",\"level\":\"error\"}}\n{noise}");
        send(&server, "app", row(2 * round)).await;
        if round == 2 {
            server.flush().await;
        }
        send(&server, "app", row(2 * round + 1)).await;
        // More than one look of the tail apart.
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    let reading = tokio::task::spawn_blocking(move || {
        let found = follow(&mut reader, 10);
        (reader, found)
    });
    let (reader, found) = reading.await.expect("no panic");
    for (n, row) in found.iter().enumerate() {
        assert_eq!((&row["_msg"], &row["x"]), (&format!("m{n}").into(), &format!("m{n}!").into()), "{found:?}");
    }
    assert!(is_held(port));
    drop(reader);
    let began = Instant::now();
    while is_held(port) {
        assert!(began.elapsed() < Duration::from_mins(5), "the connection of a reader that left stays");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // With rows of before.
    let target = format!("{API}/tail?query=level:error&refresh_interval=100ms&offset=0s&start_offset=1h");
    let found = tokio::task::spawn_blocking(move || {
        let found = follow(&mut BufReader::new(open(&server, &target)), 10);
        (server, found)
    });
    let (server, found) = found.await.expect("no panic");
    let order: Vec<&str> = found.iter().map(|row| row["_msg"].as_str().unwrap_or_default()).collect();
    assert_eq!(order, ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9"], "in the order of time");
    assert_eq!(server.stop(), Some(0));
}

/// Reads a packed tail until a row came.
async fn first_row<W: Write>(mut answer: reqwest::Response, mut unpack: W, text: impl Fn(&W) -> Vec<u8>) -> Value {
    let began = Instant::now();
    loop {
        // Empty lines keep the connection busy.
        assert!(began.elapsed() < Duration::from_mins(5), "no row");
        let piece = answer.chunk().await.expect("an open connection").expect("it goes on");
        unpack.write_all(&piece).expect("packed as it says");
        unpack.flush().expect("in memory");
        let text = String::from_utf8(text(&unpack)).expect("text");
        if let Some(row) = text.split_inclusive('\n').find(|line| line.starts_with('{') && line.ends_with('\n')) {
            return serde_json::from_str(row).expect("a row");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn packed_rows_do_not_wait_for_more() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let client = reqwest::Client::new();
    for encoding in ["gzip", "zstd"] {
        // Rows may be a moment older than they are visible.
        let url = server.url(&format!("{API}/tail?query=*&refresh_interval=100ms&offset=2s&start_offset=0s"));
        let answer = client.get(url).header("accept-encoding", encoding).send().await.expect("an answer");
        assert_eq!(answer.headers()["content-encoding"], encoding);
        let row = async {
            if encoding == "gzip" {
                first_row(answer, flate2::write::GzDecoder::new(Vec::new()), |d| d.get_ref().clone()).await
            } else {
                let decoder = zstd::stream::write::Decoder::new(Vec::new()).expect("a decoder");
                first_row(answer, decoder, |d| d.get_ref().clone()).await
            }
        };
        // Another one follows only where the first became visible too late.
        let writing = async {
            loop {
                send(&server, "app", format!("{{\"_msg\":\"over {encoding}\"}}\n")).await;
                tokio::time::sleep(Duration::from_secs(6)).await;
            }
        };
        let row = tokio::select! {
            row = row => row,
            () = writing => unreachable!("it writes on"),
        };
        assert_eq!(row["_msg"], format!("over {encoding}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_begins_a_moment_before_itself() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let began = Instant::now();
    // Another row and another tail, where more than that moment passed between the two.
    loop {
        assert!(began.elapsed() < Duration::from_mins(5), "no tail shows rows of before");
        let hour_ago_ms = SystemClock.now_ms() - 3_600_000;
        send(&server, "app", format!("{{\"_msg\":\"before\",\"_time\":{hour_ago_ms}}}\n")).await;
        let url = server.url(&format!("{API}/tail?query=*&offset=1h"));
        let mut answer = reqwest::get(url).await.expect("an answer");
        let first = answer.chunk().await.expect("an open connection").expect("a first look");
        if first.starts_with(b"{") {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_server_ends_tails() {
    // One that waits long for its next look does not wait until what runs is cut.
    for refresh in ["100ms", "1h"] {
        let dir = tempfile::tempdir().expect("a folder");
        let options = Options::default().env("QUIVER_HTTP__DRAIN_TIMEOUT", "1h");
        let server = Server::start(dir.path(), &options).await;
        let target = format!("{API}/tail?query=*&refresh_interval={refresh}");
        let mut reader = BufReader::new(open(&server, &target));
        let mut line = String::new();
        reader.read_line(&mut line).expect("a head");
        assert!(line.starts_with("HTTP/1.1 200"), "{line}");
        assert_eq!(server.stop(), Some(0), "{refresh}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_text_of_a_tail_counts_and_is_all_that_it_keeps() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let terms: Vec<String> = (0..10_000).map(|n| format!("term{n}")).collect();
    let form = format!("refresh_interval=1h&query={}", terms.join("+or+"));
    let bytes = terms.join(" or ").len() as u64;
    let client = reqwest::Client::new();
    let asked = client.post(server.url(&format!("{API}/tail"))).body(form);
    let answer = asked.header("content-type", "application/x-www-form-urlencoded").send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    // While a look is under way it holds more.
    until("it keeps its text", async || {
        let listed = server.get("/admin/queries").await.json();
        let query = &listed["queries"][0];
        assert_eq!(query["standing"], true, "{listed}");
        let held = query["memoryBytes"].as_u64().expect("a number");
        assert!(held >= bytes, "{held} of {bytes} bytes count");
        held < 2 * bytes
    })
    .await;
    drop(answer);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_does_not_look_all_the_time() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let began = Instant::now();
    let mut answer = reqwest::get(server.url(&format!("{API}/tail?query=*&refresh_interval=1ns"))).await.expect("one");
    let mut looks = 0;
    while looks < 10 || began.elapsed() < Duration::from_secs(1) {
        looks += answer.chunk().await.expect("an open connection").expect("it goes on").len();
    }
    // Those that come late come together, and belong to the time before.
    let took = began.elapsed();
    assert!(looks as f64 <= 20.0 * took.as_secs_f64().max(1.0), "{looks} looks in {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_followed_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let pipes = [
        "stats count() n",
        "sort by (n)",
        "limit 5",
        "offset 5",
        "uniq by (n)",
        "top 5 by (n)",
        "first 3 by (n)",
        "last",
        "facets",
        "field_names",
        "field_values n",
        "union (*)",
        "stream_context after 1",
        "block_stats",
        "running_stats count() n",
        "generate_sequence 5",
    ];
    for pipe in pipes {
        let answer = ask(&server, "tail", &[("query", &format!("* | {pipe}"))]).await;
        assert_eq!(answer.status, 400, "{pipe}: {}", answer.text());
        assert!(answer.text().contains("cannot be followed"), "{pipe}: {}", answer.text());
    }
    let parameters = [
        ("refresh_interval", "0"),
        ("refresh_interval", "-1s"),
        ("refresh_interval", "2h"),
        ("refresh_interval", "x"),
        ("offset", "x"),
        ("offset", "-1s"),
        ("start_offset", "x"),
        ("start_offset", "-5m"),
    ];
    for (name, value) in parameters {
        let answer = ask(&server, "tail", &[("query", "*"), (name, value)]).await;
        assert_eq!(answer.status, 400, "{name}={value}: {}", answer.text());
        assert!(answer.text().contains(name), "{name}={value}: {}", answer.text());
    }
}

/// Each has buffers that nothing else counts, so a part of the memory bounds how many there are.
#[tokio::test(flavor = "multi_thread")]
async fn tails_are_as_many_as_there_is_room_for() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().env("QUIVER_MEMORY__LIMIT", "256MiB")).await;
    let begun = || {
        let mut reader = BufReader::new(open(&server, &format!("{API}/tail?query=*&refresh_interval=1h")));
        let mut line = String::new();
        reader.read_line(&mut line).expect("a head");
        (reader, line)
    };
    let mut tails = Vec::new();
    for _ in 0..(256 << 20) / 16 / (32 << 10) {
        let (reader, line) = begun();
        assert!(line.starts_with("HTTP/1.1 200"), "{line}");
        tails.push(reader);
    }
    let refused = ask(&server, "tail", &[("query", "*")]).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("512 live tails") && refused.text().contains("memory.limit"), "{}", refused.text());
    // Who leaves makes room.
    drop(tails.pop());
    until("there is room again", async || begun().1.starts_with("HTTP/1.1 200")).await;
}
