//! Tempo's API over gRPC, as Grafana streams searches and metrics: each call answers what its path answers over HTTP.

use std::io::Write;

use quiver_ingest::wire::{BYTES, FIXED64, Reader, VARINT, put_bytes, put_varint, tag};
use quiver_tests::server::{Answer, Options, Server};
use quiver_tests::socket::{Frame, Http2, grpc_head, grpc_message};

use super::{NOON, send, span};

const SECOND: u64 = 1_000_000_000;

/// A field of a request.
pub(crate) enum Part<'a> {
    Text(u32, &'a str),
    Number(u32, u64),
    /// An entry of a map of texts.
    Pair(u32, &'a str, &'a str),
}

/// The message of these fields.
fn message(parts: &[Part<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        match part {
            Part::Text(field, text) => put_bytes(&mut out, *field, text.as_bytes()),
            Part::Number(field, number) => {
                put_varint(&mut out, u64::from(tag(*field, VARINT)));
                put_varint(&mut out, *number);
            }
            Part::Pair(field, key, value) => {
                put_bytes(&mut out, *field, &message(&[Part::Text(1, key), Part::Text(2, value)]));
            }
        }
    }
    out
}

/// The body of a call with a message of these fields.
pub(crate) fn request(parts: &[Part<'_>]) -> Vec<u8> {
    grpc_message(false, &message(parts))
}

pub(crate) fn path(method: &str) -> String {
    format!("/tempopb.StreamingQuerier/{method}")
}

/// A field of an answer: its number, its bytes or what else it is.
type Field = (u32, Vec<u8>, u64);

fn fields(message: &[u8]) -> Vec<Field> {
    let (mut reader, mut out) = (Reader::new(message), Vec::new());
    while !reader.is_empty() {
        let tag = reader.tag().expect("a tag");
        out.push(match tag & 7 {
            BYTES => (tag >> 3, reader.bytes().expect("bytes").to_vec(), 0),
            FIXED64 => (tag >> 3, Vec::new(), reader.fixed64().expect("8 bytes")),
            _ => (tag >> 3, Vec::new(), reader.varint().expect("a number")),
        });
    }
    out
}

/// The fields of each message of an answer.
fn streamed(mut body: &[u8]) -> Vec<Vec<Field>> {
    let mut messages = Vec::new();
    while let [packed, a, b, c, d, rest @ ..] = body {
        assert_eq!(*packed, 0, "answers are not compressed");
        let (message, rest) = rest.split_at(u32::from_be_bytes([*a, *b, *c, *d]) as usize);
        messages.push(fields(message));
        body = rest;
    }
    assert!(body.is_empty(), "{body:?}");
    messages
}

/// The items of a list, without the statistics beside it.
fn items(fields: Vec<Field>) -> Vec<Field> {
    fields.into_iter().filter(|field| field.0 != 2).collect()
}

async fn call(server: &Server, method: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Answer {
    let known = [("content-type", "application/grpc"), ("te", "trailers")];
    let answer = server.post(&path(method), &[&known[..], headers].concat(), body).await;
    assert_eq!(answer.status, 200, "{method}: {}", answer.text());
    answer
}

/// The status code and message of a failed call.
fn status(answer: &Answer) -> (String, String) {
    let text = |name: &str| answer.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    (text("grpc-status"), text("grpc-message"))
}

async fn filled(server: &Server) {
    let second = SECOND as i64;
    let spans = vec![
        span((1, 1, 0), "front", 2, NOON, &[("http.route", "/cart"), ("odd", "say \"hi\" b=c")]),
        span((1, 2, 1), "back", 2, NOON + second, &[("http.route", "/items")]),
        span((2, 3, 0), "front", 2, NOON + 70 * second, &[("http.route", "/cart")]),
    ];
    send(server, spans).await;
}

/// Breaks if a field of a request is read as another parameter, or ignored.
#[tokio::test(flavor = "multi_thread")]
async fn calls_answer_what_paths_answer() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    filled(&server).await;
    let (start, end) = (NOON as u64 / SECOND - 60, NOON as u64 / SECOND + 120);
    let window = |a: u32, b: u32| [Part::Number(a, start), Part::Number(b, end)];
    let nanos = || [Part::Number(2, start * SECOND), Part::Number(3, end * SECOND)];
    let front = "{ resource.service.name = \"front\" }";
    let by_service = "{} | rate() by (resource.service.name)";
    let (seconds, range) = (format!("start={start}&end={end}"), format!("start={start}&end={end}&step=60&exemplars=2"));
    let cases = [
        ("Search", vec![Part::Text(8, front)], window(5, 6), format!("search?q=FRONT&{seconds}")),
        (
            "Search",
            vec![Part::Text(8, "{} | select(span.http.route)"), Part::Number(4, 1), Part::Number(9, 1)],
            window(5, 6),
            format!("search?q=%7B%7D%7Cselect(span.http.route)&limit=1&spss=1&{seconds}"),
        ),
        (
            "Search",
            vec![Part::Pair(1, "http.route", "/cart"), Part::Pair(1, "odd", "say \"hi\" b=c"), Part::Number(2, 1)],
            window(5, 6),
            format!(
                "search?tags=http.route%3D%2Fcart%20odd%3D%22say%20%5C%22hi%5C%22%20b%3Dc%22&minDuration=1ms&{seconds}"
            ),
        ),
        (
            "Search",
            vec![Part::Text(8, front), Part::Number(2, 500)],
            window(5, 6),
            format!("search?q=FRONT&minDuration=500ms&{seconds}"),
        ),
        ("SearchTags", vec![Part::Text(1, "span")], window(3, 4), format!("search/tags?scope=span&{seconds}")),
        ("SearchTagsV2", vec![Part::Number(5, 1)], window(3, 4), format!("v2/search/tags?limit=1&{seconds}")),
        ("SearchTagsV2", vec![Part::Text(2, front)], window(3, 4), format!("v2/search/tags?q=FRONT&{seconds}")),
        (
            "SearchTagValues",
            vec![Part::Text(1, "http.route")],
            window(4, 5),
            format!("search/tag/http.route/values?{seconds}"),
        ),
        (
            "SearchTagValuesV2",
            vec![Part::Text(1, "span.http.route"), Part::Text(2, front), Part::Number(6, 5)],
            window(4, 5),
            format!("v2/search/tag/span.http.route/values?q=FRONT&limit=5&{seconds}"),
        ),
        (
            "MetricsQueryRange",
            vec![Part::Text(1, by_service), Part::Number(4, 60 * SECOND), Part::Number(16, 2)],
            nanos(),
            format!("metrics/query_range?q=RATE&{range}"),
        ),
        (
            "MetricsQueryRange",
            vec![Part::Text(1, by_service), Part::Number(4, 60 * SECOND), Part::Number(17, 1)],
            nanos(),
            format!("metrics/query_range?q=RATE&start={start}&end={end}&step=60&maxSeries=1"),
        ),
        (
            "MetricsQueryRange",
            vec![Part::Text(1, by_service), Part::Number(18, 1)],
            nanos(),
            format!("metrics/query_range?q=RATE&{seconds}&instant=true"),
        ),
        ("MetricsQueryInstant", vec![Part::Text(1, by_service)], nanos(), format!("metrics/query?q=RATE&{seconds}")),
    ];
    for (n, (method, mut parts, times, target)) in cases.into_iter().enumerate() {
        parts.extend(times);
        let target = target.replace("FRONT", "%7Bresource.service.name%3D%22front%22%7D");
        let target = target.replace("RATE", "%7B%7D%20%7C%20rate()%20by%20(resource.service.name)");
        let accept = [("accept", "application/protobuf")];
        let over_http = server.get_as(&format!("/tempo/api/{target}"), &accept).await;
        assert_eq!(over_http.status, 200, "{target}: {}", over_http.text());
        let mut messages = streamed(&call(&server, method, &[], request(&parts)).await.body);
        assert_eq!(messages.len(), 1, "{method}");
        let answer = messages.remove(0);
        // The last message says that all of it is there.
        let figures = answer.iter().find(|field| field.0 == 2).map(|field| fields(&field.1)).expect("statistics");
        let [completed, total] = if method.starts_with("SearchTag") { [3, 2] } else { [4, 5] };
        let number = |of: u32| figures.iter().find(|field| field.0 == of).map(|field| field.2);
        assert_eq!((number(completed), number(total)), (Some(1), Some(1)), "{method}");
        let (found, expected) = (items(answer), items(fields(&over_http.body)));
        assert_eq!(found, expected, "{n} {method} {target}");
        assert_eq!(found.is_empty(), n == 3, "{n} {method} {target}");
    }
}

/// Grafana calls the port of its URL, without encryption and without asking for HTTP/2 first.
#[tokio::test(flavor = "multi_thread")]
async fn both_ports_stream() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    filled(&server).await;
    let (start, end) = (NOON as u64 / SECOND - 60, NOON as u64 / SECOND + 120);
    let asked = [Part::Text(8, "{}"), Part::Number(5, start), Part::Number(6, end)];
    let plain = message(&asked);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&plain).expect("memory");
    let packed = packed.finish().expect("memory");
    let search = path("Search");
    for port in [&server.http, &server.otlp_grpc] {
        for (encoding, body) in [("identity", &plain), ("gzip", &packed)] {
            let mut call = Http2::connect(port).await;
            let body = grpc_message(encoding != "identity", body);
            call.send(&[Frame::headers(1, 0, &grpc_head(&search, encoding)), Frame::new(0, 1, 1, body)]).await;
            let answer = call.answer(1).await;
            let kinds: Vec<u8> = answer.iter().map(|frame| frame.kind).collect();
            assert!(kinds.starts_with(&[1, 0]) && kinds.ends_with(&[0, 1]), "headers, messages, trailers: {kinds:?}");
            let data: Vec<u8> = answer.into_iter().filter(|f| f.kind == 0).flat_map(|f| f.payload).collect();
            let traces: Vec<Vec<u8>> =
                streamed(&data).into_iter().flatten().filter(|f| f.0 == 1).map(|f| f.1).collect();
            let mut ids: Vec<String> =
                traces.iter().map(|trace| String::from_utf8(fields(trace).remove(0).1).expect("an id")).collect();
            ids.sort_unstable();
            assert_eq!(ids, [format!("{:032x}", 1), format!("{:032x}", 2)], "{port} {encoding}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_fail_say_why() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().env("QUIVER_HTTP__FORM_MAX", "2KiB")).await;
    let long = format!("{{ name = \"{}\" }}", "x".repeat(4096));
    for (method, parts, code, text) in [
        ("Search", vec![Part::Text(8, "{ broken")], "3", "invalid TraceQL query"),
        ("Search", vec![Part::Text(8, "{} | rate()")], "3", "functions of metrics"),
        ("Search", vec![Part::Number(5, 9), Part::Number(6, 3)], "3", "start must be before end"),
        ("Search", vec![Part::Text(8, "{}"), Part::Pair(1, "a", "b")], "3", "tags and q in the same query"),
        ("Search", vec![Part::Pair(1, "a b", "c")], "3", "is no name of a tag"),
        ("Search", vec![Part::Number(8, 1)], "3", "field has the wrong type"),
        ("Search", vec![Part::Text(8, &long)], "8", ""),
        ("SearchTags", vec![Part::Text(1, "bad")], "3", "invalid scope: bad"),
        ("SearchTagValues", vec![], "3", "non-empty tagName"),
        ("SearchTagValuesV2", vec![Part::Text(1, "app.user")], "3", "valid tagName"),
        ("MetricsQueryRange", vec![Part::Text(1, "{}")], "3", "ends in a function of metrics"),
        ("MetricsQueryInstant", vec![], "3", "is missing"),
    ] {
        let answer = call(&server, method, &[], request(&parts)).await;
        let (found, told) = status(&answer);
        let told = told.replace("%20", " ");
        assert!(found == code && told.contains(text), "{method} {text}: {found} {told}");
        assert!(answer.body.is_empty(), "{method} {text}");
    }
    let empty = || request(&[]);
    let found = status(&call(&server, "Search", &[("grpc-timeout", "5")], empty()).await);
    assert!(found.0 == "3" && found.1.contains("grpc-timeout"), "{found:?}");
    let found = status(&call(&server, "Search", &[], b"no frame".to_vec()).await);
    assert_eq!(found.0, "3", "{found:?}");
    let json = server.post(&path("Search"), &[("content-type", "application/json")], b"{}".to_vec()).await;
    assert_eq!(json.status, 415);
}
