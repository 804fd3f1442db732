//! Federation: text and protobuf, in every state of the data.

use quiver_tests::bodies::{Series, compress, field, remote_write, varint};
use quiver_tests::chunks::{fields, take_varint};
use quiver_tests::server::{Options, Server};

const PATH: &str = "/metrics-api/federate";
const PROTOBUF: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

/// Milliseconds of now: federation looks at the last five minutes.
fn now_ms() -> i64 {
    std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as i64
}

/// A native histogram as remote write has it: schema, labels, bounds of custom buckets.
fn histogram(name: &str, ts: i64, schema: i64, bounds: &[f64]) -> Vec<u8> {
    let double = |out: &mut Vec<u8>, number: u64, v: f64| {
        varint(out, number << 3 | 1);
        out.extend_from_slice(&v.to_le_bytes());
    };
    let int = |out: &mut Vec<u8>, number: u64, v: u64| {
        varint(out, number << 3);
        varint(out, v);
    };
    let mut h = Vec::new();
    int(&mut h, 1, 3);
    double(&mut h, 3, 4.5);
    int(&mut h, 4, (schema << 1 ^ schema >> 63) as u64);
    double(&mut h, 5, 0.0);
    int(&mut h, 6, 0);
    field(&mut h, 11, &[8, 0, 16, 2]);
    // Counts 1 and 2, as differences in zigzag.
    field(&mut h, 12, &[2, 2]);
    int(&mut h, 15, ts as u64);
    let packed: Vec<u8> = bounds.iter().flat_map(|b| b.to_le_bytes()).collect();
    if !packed.is_empty() {
        field(&mut h, 16, &packed);
    }
    let mut label = Vec::new();
    field(&mut label, 1, b"__name__");
    field(&mut label, 2, name.as_bytes());
    let mut series = Vec::new();
    field(&mut series, 1, &label);
    field(&mut series, 4, &h);
    let mut raw = Vec::new();
    field(&mut raw, 1, &series);
    compress(&raw)
}

#[tokio::test(flavor = "multi_thread")]
async fn newest_samples_in_every_state() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let at = now_ms() - 60_000;
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    let series: Vec<Series<'_>> = vec![
        (vec![("__name__", "fed_a"), ("job", "x"), ("instance", "i")], vec![(at - 1000, 1.0), (at, 2.5)]),
        (vec![("__name__", "fed_a"), ("job", "y")], vec![(at, 1e9)]),
        (vec![("__name__", "fed_b"), ("job", "x")], vec![(at, f64::NAN)]),
        (vec![("__name__", "fed_ended"), ("job", "x")], vec![(at - 1000, 1.0), (at, stale)]),
        (vec![("__name__", "fed_old"), ("job", "x")], vec![(at - 600_000, 1.0)]),
        (vec![("__name__", "other"), ("job", "z")], vec![(at, 1.0)]),
    ];
    server.write(remote_write(&series)).await;
    server.write(histogram("fed_native", at, 0, &[])).await;
    server.write(histogram("fed_nhcb", at, -53, &[0.5, 1.0])).await;
    let expected = format!(
        "# TYPE fed_a untyped\n\
         fed_a{{instance=\"i\",job=\"x\"}} 2.5 {at}\n\
         fed_a{{job=\"y\",instance=\"\"}} 1e+09 {at}\n\
         # TYPE fed_b untyped\n\
         fed_b{{job=\"x\",instance=\"\"}} NaN {at}\n\
         # TYPE fed_nhcb histogram\n\
         fed_nhcb_bucket{{instance=\"\",le=\"0.5\"}} 1 {at}\n\
         fed_nhcb_bucket{{instance=\"\",le=\"1\"}} 3 {at}\n\
         fed_nhcb_bucket{{instance=\"\",le=\"+Inf\"}} 3 {at}\n\
         fed_nhcb_sum{{instance=\"\"}} 4.5 {at}\n\
         fed_nhcb_count{{instance=\"\"}} 3 {at}\n"
    );
    for state in ["live", "flushed", "compacted"] {
        // Selectors are united: the second names some series again.
        let params = [("match[]", "{__name__=~\"fed_.*\"}"), ("match[]", "{job=\"x\"}")];
        let answer = server.get_with(PATH, &params).await;
        assert_eq!((answer.status, answer.text()), (200, expected.clone()), "{state}");
        let content_type = answer.headers["content-type"].to_str().expect("text");
        assert!(content_type.starts_with("text/plain; version=0.0.4"), "{content_type}");
        if state == "live" {
            server.flush().await;
        } else {
            server.compact().await;
        }
    }
    // All of it is one plan, which gives each series once and in order. What `job="x"` takes is there already.
    let selectors = ["{__name__=~\"fed_.*\"}", "{job=\"x\"}", "{job=~\"x|z\"}"].map(|text| ("match[]", text));
    let params = [&selectors[..], &[("explain", "analyze")]].concat();
    let shown = server.get_with(PATH, &params).await.json();
    assert!(shown.get("children").is_none(), "{shown}");
    let physical = shown["physical"].as_str().expect("a plan");
    assert_eq!((physical.matches("NewestSample").count(), physical.matches("SortExec").count()), (2, 1), "{physical}");
    assert_eq!(shown["nodes"][0]["rows"], 6, "{shown}");
    let client = reqwest::Client::new();
    let url = server.url(PATH) + "?match[]={__name__=~\"fed_.*\"}";
    let sent = client.get(url).header("accept", PROTOBUF).send().await.expect("an answer");
    let content_type = sent.headers()["content-type"].to_str().expect("text").to_owned();
    assert!(content_type.starts_with("application/vnd.google.protobuf; proto=io.prometheus"), "{content_type}");
    let body = sent.bytes().await.expect("a body");
    let (mut rest, mut families) = (&body[..], Vec::new());
    while !rest.is_empty() {
        let len = take_varint(&mut rest) as usize;
        let (message, after) = rest.split_at(len);
        rest = after;
        let family = fields(message);
        let text = |n: u64| family.iter().find(|(f, _)| *f == n).map(|(_, f)| f.bytes().to_vec()).unwrap_or_default();
        let kind = family.iter().find(|(f, _)| *f == 3).map_or(0, |(_, f)| f.number());
        let metrics = family.iter().filter(|(f, _)| *f == 4).count();
        families.push((String::from_utf8(text(1)).expect("a name"), kind, metrics));
    }
    let family = |name: &str, kind: u64, metrics: usize| (name.to_owned(), kind, metrics);
    let expected = [family("fed_a", 3, 2), family("fed_b", 3, 1), family("fed_native", 4, 1), family("fed_nhcb", 4, 1)];
    assert_eq!(families, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let empty = server.get(PATH).await;
    assert_eq!((empty.status, empty.text()), (200, String::new()));
    for (selector, text) in
        [("{", "1:2: parse error: "), ("", "unknown position: parse error: unexpected end of input")]
    {
        let refused = server.get_with(PATH, &[("match[]", selector)]).await;
        assert_eq!(refused.status, 400, "{selector:?}");
        assert!(refused.text().contains(text), "{selector:?}: {}", refused.text());
        assert_eq!(refused.headers["content-type"], "text/plain; charset=utf-8");
    }
    server.write(remote_write(&[(vec![("__name__", "fed_x"), ("job", "j")], vec![(now_ms() - 1000, 1.0)])])).await;
    // As in Prometheus: a selector without matchers takes nothing, one whose matchers take the empty value everything.
    for (selector, series) in [("{}", 0), ("{a=~\".*\"}", 1), ("{a=\"\"}", 1), ("{job!=\"j\"}", 0)] {
        let answer = server.get_with(PATH, &[("match[]", selector)]).await;
        assert_eq!(answer.status, 200, "{selector}: {}", answer.text());
        let found = answer.text().lines().filter(|line| line.starts_with("fed_x{")).count();
        assert_eq!(found, series, "{selector}: {}", answer.text());
    }
    assert_eq!(server.post(PATH, &[], vec![]).await.status, 405);
}

/// A Prometheus that knows names of all characters gets them as they are; others get them escaped.
#[tokio::test(flavor = "multi_thread")]
async fn names_of_all_characters() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let at = now_ms() - 1000;
    server.write(remote_write(&[(vec![("__name__", "fed.é"), ("a b", "v")], vec![(at, 1.0)])])).await;
    let client = reqwest::Client::new();
    let url = server.url(PATH) + "?match[]={\"a b\"=\"v\"}";
    for (accept, content_type, expected) in [
        ("*/*", "0.0.4; charset=utf-8; escaping=underscores", "fed__{a_b=\"v\",instance=\"\"}"),
        (
            "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2",
            "1.0.0; charset=utf-8; escaping=allow-utf-8",
            "{\"fed.é\",\"a b\"=\"v\",instance=\"\"}",
        ),
        (
            "text/plain;version=1.0.0;escaping=values",
            "1.0.0; charset=utf-8; escaping=values",
            "U__fed_2e__e9_{U__a_20_b=\"v\",instance=\"\"}",
        ),
    ] {
        let answer = client.get(&url).header("accept", accept).send().await.expect("an answer");
        assert_eq!(answer.headers()["content-type"], format!("text/plain; version={content_type}"), "{accept}");
        let text = answer.text().await.expect("a text");
        assert_eq!(text.lines().nth(1), Some(format!("{expected} 1 {at}").as_str()), "{accept}");
    }
}
