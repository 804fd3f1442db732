//! Deeply nested, self-referencing or malformed bodies (promise H2), on every route that reads one: refused or accepted,
//! and the server keeps running.

use std::time::{Duration, Instant};

use quiver_tests::server::{Options, Server};
use quiver_tests::time_limits::within;

/// Levels of nesting.
const DEEP: usize = 100_000;
/// Longest time for an answer, on a busy machine.
const LONGEST: Duration = Duration::from_secs(10);
/// Streams without an end, and work on the whole store.
const LEFT_OUT: [&str; 4] = ["tail", "subscribe", "compact", "backup"];

/// A name of ten for each of nine levels: a billion in the end.
fn laughs() -> String {
    let level = |n: u8| {
        let (name, of) = (char::from(b'a' + n), char::from(b'a' + n - 1));
        format!("{name}: &{name} [{}]\n", vec![format!("*{of}"); 10].join(","))
    };
    (1..10).fold("a: &a [ha]\n".to_owned(), |text, n| text + &level(n))
}

fn bodies() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let json = "application/json";
    let yaml = "application/yaml";
    vec![
        ("arrays", json, "[".repeat(DEEP).into_bytes()),
        ("objects", json, "{\"a\":".repeat(DEEP).into_bytes()),
        ("whole arrays", json, ("[".repeat(DEEP) + &"]".repeat(DEEP)).into_bytes()),
        ("a name twice", json, br#"{"name":"a","name":"b","query":"1","query":"2"}"#.to_vec()),
        ("half a character", json, br#"{"name":"\ud800","query":"\udc00"}"#.to_vec()),
        ("NUL", json, br#"{"name":"a\u0000b","query":"\u0000","id":"\u0000"}"#.to_vec()),
        ("no text", json, b"{\"name\":\"\xff\xfe\"}".to_vec()),
        ("laughs", yaml, laughs().into_bytes()),
        ("dashes", yaml, "- ".repeat(DEEP / 2).into_bytes()),
        ("brackets", yaml, "[".repeat(DEEP).into_bytes()),
        ("groups", "application/x-protobuf", vec![0x0b; DEEP]),
        ("lengths", "application/x-protobuf", b"\x0a\xff\xff\xff\xff\x0f".to_vec()),
        ("a query", "application/x-www-form-urlencoded", format!("query={}", "(".repeat(DEEP)).into_bytes()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_nest_are_refused_on_every_route() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let document = server.get("/platform-api/openapi.json").await.json();
    let paths = document["paths"].as_object().expect("paths").iter();
    let read = paths.filter(|(path, methods)| methods.get("post").is_some() && !path.contains('{'));
    let paths: Vec<String> =
        read.map(|(path, _)| path.clone()).filter(|path| !LEFT_OUT.iter().any(|word| path.contains(word))).collect();
    assert!(paths.len() > 80, "{paths:?}");
    for (name, kind, body) in bodies() {
        for path in &paths {
            within(&format!("{name}: {path}"), LONGEST, async || {
                let began = Instant::now();
                // Who refuses a body before it is there may close the connection while it is sent.
                if let Ok(answer) = server.try_post(path, &[("content-type", kind)], body.clone()).await {
                    let is_fault = answer.status >= 500 && answer.status != 501;
                    assert!(!is_fault, "{name}: {path}: {} {}", answer.status, answer.text());
                }
                began.elapsed()
            })
            .await;
        }
        assert_eq!(server.get("/health/live").await.status, 200, "after {name}");
    }
    assert_eq!(server.stop(), Some(0));
}
