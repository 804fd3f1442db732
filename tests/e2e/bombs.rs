//! Bodies that are small on the wire and huge when decompressed, at every endpoint that decompresses (promise H1): they
//! are refused before they cost memory or time.

use std::io::Write;
use std::time::Duration;

use quiver_ingest::Encoding;
use quiver_tests::bodies::{compress, varint};
use quiver_tests::bombs::packed;
use quiver_tests::server::{Options, Server};
use quiver_tests::time_limits::at_most;

/// Memory beyond what there was before, with the body itself and what the allocator keeps in reserve.
const EXTRA_MAX: u64 = 24 << 20;
/// CPU for one of them: a hundred milliseconds of a release build, and the rest of the process besides.
const CPU_MAX: Duration = Duration::from_millis(1500);

const JSON: (&str, &str) = ("content-type", "application/json");
const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");
const TEXT: (&str, &str) = ("content-type", "text/plain");
const YAML: (&str, &str) = ("content-type", "application/yaml");

/// A path, a header with its value, and a piece of a body.
type Endpoint = (&'static str, (&'static str, &'static str), &'static [u8]);

/// Endpoints that take any of the streamed encodings, what they read, and what a bomb for them is full of.
const ENDPOINTS: [Endpoint; 11] = [
    ("/insert/jsonline", JSON, b"\n"),
    ("/insert/jsonline", JSON, b"{}\n"),
    ("/insert/jsonline", JSON, b"{\"_msg\":\"boom\"}\n"),
    ("/insert/searchengine/_bulk", JSON, b"{\"delete\":{}}\n"),
    ("/insert/searchengine/_bulk", JSON, b"{\"create\":{}}\n{}\n"),
    ("/insert/aggregator/api/v1/push", JSON, b" "),
    ("/insert/saas/api/v2/logs", JSON, b" "),
    ("/v1/logs", PROTOBUF, b"\0"),
    ("/v1/traces", JSON, b" "),
    ("/v1/metrics", PROTOBUF, b"\0"),
    ("/metrics-api/api/v1/import/prometheus", TEXT, b"a 1\n"),
];

/// Some 2 GiB of a text: frames and members may be repeated.
fn huge(encoding: Encoding, text: &[u8]) -> Vec<u8> {
    let piece = text.repeat((1 << 20) / text.len());
    match encoding {
        // The one that has no members to repeat.
        Encoding::Deflate => packed(encoding, &piece, 64),
        _ => packed(encoding, &piece, 16).repeat(128),
    }
}

const NESTED: &str = "gzip in gzip";

/// Lines of JSON that were dropped because they are too long.
async fn long_lines(server: &Server) -> u64 {
    let text = server.get("/metrics").await.text();
    let name = "quiver_logs_rows_dropped_total{endpoint=\"jsonline\",reason=\"long_line\"} ";
    text.lines().find_map(|line| line.strip_prefix(name)?.parse().ok()).expect("it is counted")
}

struct Case {
    name: String,
    path: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    body: Vec<u8>,
    statuses: &'static [u16],
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (path, media, text) in ENDPOINTS {
        for (name, encoding) in [("gzip", Encoding::Gzip), ("zstd", Encoding::Zstd), ("deflate", Encoding::Deflate)] {
            cases.push(Case {
                name: format!("{name} of {:?}", String::from_utf8_lossy(text)),
                path,
                headers: vec![media, ("content-encoding", name)],
                body: huge(encoding, text),
                statuses: &[413],
            });
        }
    }
    let mut more = |name: &str, path, headers: &[(&'static str, &'static str)], body, statuses| {
        cases.push(Case { name: name.to_owned(), path, headers: headers.to_vec(), body, statuses });
    };
    let (write, push) = ("/metrics-api/api/v1/write", "/insert/aggregator/api/v1/push");
    let declares = |bytes: u64, rest: &[u8]| {
        let mut body = Vec::new();
        varint(&mut body, bytes);
        body.extend_from_slice(rest);
        body
    };
    for path in [write, push, "/metrics-api/api/v1/read"] {
        // More than they can hold: they are no snappy.
        more("snappy states 4 GiB", path, &[PROTOBUF], declares(u64::from(u32::MAX), &[0; 100]), &[400]);
        more("snappy states 64 times what it has", path, &[PROTOBUF], declares(64 << 10, &[0; 1 << 10]), &[400]);
        more("snappy states less than it has", path, &[PROTOBUF], declares(10, &compress(&[7; 1000])), &[400]);
        // The format of streams, which begins with a chunk that names it.
        let framed = [&b"\xff\x06\0\0sNaPpY"[..], &[0; 1000]].concat();
        more("snappy in frames", path, &[PROTOBUF], framed, &[400, 413]);
    }
    let gzip = |data: &[u8]| packed(Encoding::Gzip, data, 1);
    // Only the outer one is unpacked. What it gives is one line that is too long: such lines are dropped and counted and
    // the others taken, as those who send expect of this path, so that the answer is 200.
    let inner = (b'a'..=b'z').map(|c| huge(Encoding::Gzip, &[c])).find(|body| !body.contains(&b'\n'));
    let nested = gzip(&inner.expect("one without line breaks"));
    more(NESTED, "/insert/jsonline", &[JSON, ("content-encoding", "gzip")], nested.clone(), &[200]);
    more("gzip, gzip", "/insert/jsonline", &[JSON, ("content-encoding", "gzip, gzip")], nested, &[415]);
    let mut false_length = gzip(&[b'\n'; 1000]);
    let end = false_length.len() - 4;
    false_length[end..].copy_from_slice(&u32::MAX.to_le_bytes());
    more("gzip with a false length", "/insert/jsonline", &[JSON, ("content-encoding", "gzip")], false_length, &[400]);
    // Blocks of ten bits that hold nothing: tables that are made anew for each take a microsecond.
    let mut nothing = b"\x1f\x8b\x08\0\0\0\0\0\0\xff".to_vec();
    nothing.extend(b"\x02\x08\x20\x80\0".repeat(700_000));
    more("gzip of empty blocks", "/insert/jsonline", &[JSON, ("content-encoding", "gzip")], nothing, &[400]);
    // Each of two bytes would be half a megabyte.
    let named = format!("a: &a {}\nb: [{}]\n", "x".repeat(512 << 10), "*a,".repeat(2000));
    for media in [YAML, TEXT] {
        more("a text that is named often", "/rulesapi/deploy", &[media], named.clone().into_bytes(), &[400]);
    }
    let mut wide = zstd::stream::Encoder::new(Vec::new(), 1).expect("an encoder");
    wide.window_log(27).expect("a window");
    wide.write_all(b"{}\n").expect("memory");
    let wide = wide.finish().expect("an end");
    more("zstd with a window of 128 MiB", "/insert/jsonline", &[JSON, ("content-encoding", "zstd")], wide, &[400]);
    cases
}

#[tokio::test(flavor = "multi_thread")]
async fn bombs_cost_little() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().env("QUIVER_LOG__FILTER", "off")).await;
    let cases = cases();
    assert!(cases.len() >= 40, "{}", cases.len());
    // What is made once is made before.
    assert_eq!(server.post("/insert/jsonline", &[], b"{\"_msg\":\"x\"}\n".to_vec()).await.status, 200);
    for case in cases {
        let wire = case.body.len() as u64;
        let shown = format!("{} at {} ({wire} bytes)", case.name, case.path);
        // Parts of what it may take: of memory and of CPU, whichever is more.
        at_most(&shown, 1.0, async || {
            let dropped = long_lines(&server).await;
            server.forget_peak();
            let (before, cpu) = (server.held_bytes(), server.cpu());
            let answer = server.post(case.path, &case.headers, case.body.clone()).await;
            let (extra, cpu) = (server.peak_held_bytes().saturating_sub(before), server.cpu().saturating_sub(cpu));
            assert!(case.statuses.contains(&answer.status), "{shown}: {} {}", answer.status, answer.text());
            if case.name == NESTED {
                assert_eq!(long_lines(&server).await, dropped + 1, "{shown}");
            }
            let memory = extra as f64 / (EXTRA_MAX + 2 * wire) as f64;
            memory.max(cpu.as_secs_f64() / CPU_MAX.as_secs_f64())
        })
        .await;
    }
}

/// The answer to a request of many small actions is made while it is read, and is whole.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_many_items_takes_no_memory() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_LOG__FILTER", "off").env("QUIVER_MEMORY__LIMIT", "512MiB");
    let server = Server::start(dir.path(), &options).await;
    let items = 1_500_000;
    let noise = |n: usize| (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
    let lines: String = (0..items).map(|n| format!("{{\"delete\":{{\"_id\":\"{}\"}}}}\n", noise(n))).collect();
    let body = packed(Encoding::Gzip, lines.as_bytes(), 1);
    drop(lines);
    server.forget_peak();
    let before = server.held_bytes();
    let client = reqwest::Client::new();
    let send =
        || client.post(server.url("/insert/searchengine/_bulk")).header("content-encoding", "gzip").body(body.clone());
    let mut answers = futures::future::join_all((0..4).map(|_| send().send())).await;
    for answer in &mut answers {
        let answer = answer.as_mut().expect("an answer");
        assert_eq!(answer.status(), 200);
        // As many texts of items as there were actions.
        let (mut quotes, mut end) = (0, Vec::new());
        while let Some(piece) = answer.chunk().await.expect("the rest") {
            quotes += piece.split(|b| *b == b'`').count() - 1;
            end = piece.to_vec();
        }
        assert!(end.ends_with(b"]}"), "{}", String::from_utf8_lossy(&end));
        assert_eq!(quotes, 2 * items);
    }
    let extra = server.peak_held_bytes().saturating_sub(before);
    assert!(extra < 160 << 20, "{} MiB more for four answers", extra >> 20);
    // To be kept for repeats, it would have to be made as a whole.
    let answer = send().header("idempotency-key", "many").send().await.expect("an answer");
    assert_eq!(answer.status(), 413, "{:?}", answer.text().await);
}
