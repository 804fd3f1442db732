//! Import of exposition text: both forms, compressed, in pieces, with bad lines, of any length in bounded memory.

use std::io::Write;

use quiver_tests::server::{Answer, Options, Server};
use serde_json::json;

const PATH: &str = "/metrics-api/api/v1/import/prometheus";
const OPEN_METRICS: (&str, &str) = ("content-type", "application/openmetrics-text; version=1.0.0");

async fn post(server: &Server, query: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    server.post(&format!("{PATH}{query}"), headers, body.to_vec()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn text_is_taken_and_bad_lines_are_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let text = b"# HELP a Help.\n# TYPE a counter\na{x=\"1\"} 5 1700000000000\nbroken{ 1\na{x=\"2\"} 6 1700000000000\nalso bad";
    let answer = post(&server, "?extra_label=zone%3Deu", &[], text).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let json = answer.json();
    assert_eq!(json["data"], json!({"samples": 2, "exemplars": 0, "badLines": 2, "refusedSamples": 0}));
    let warning = json["warnings"][0].as_str().expect("a warning");
    assert!(warning.starts_with("2 bad lines skipped, first line 4: "), "{warning}");
    let found = server.query("sum by (zone) (a)", 1_700_000_000.0).await;
    assert_eq!(found["result"][0]["value"][1], "11");
    assert_eq!(found["result"][0]["metric"], json!({"zone": "eu"}));
    let metadata = server.get("/metrics-api/api/v1/metadata?metric=a").await.json();
    assert_eq!(metadata["data"], json!({"a": [{"type": "counter", "help": "Help.", "unit": ""}]}));
    // As in Prometheus: none of all metrics are none, and none of each are all.
    for (limits, metrics) in [("limit=0", 0), ("limit=-1", 1), ("limit_per_metric=0", 1), ("limit=1", 1)] {
        let found = server.get(&format!("/metrics-api/api/v1/metadata?{limits}")).await.json();
        assert_eq!(found["data"].as_object().map(serde_json::Map::len), Some(metrics), "{limits}: {found}");
    }

    let open = b"# TYPE b counter\nb_total 7 1700000000.5 # {trace_id=\"t\"} 0.5 1700000000.25\n# EOF\n";
    let answer = post(&server, "", &[OPEN_METRICS], open).await;
    assert_eq!((answer.status, &answer.json()["data"]["exemplars"]), (200, &json!(1)), "{}", answer.text());
    assert_eq!(server.query("b_total", 1_700_000_001.0).await["result"][0]["value"][1], "7");

    // A time is not needed.
    assert_eq!(post(&server, "", &[], b"now 1\n").await.status, 200);
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64();
    assert_eq!(server.query("now", now + 1.0).await["result"][0]["value"][1], "1");
    assert_eq!(post(&server, "", &[], b"").await.status, 200, "nothing is no fault");
    // It can be that of the request, for samples that have none.
    let text = b"then 2\nthen{own=\"yes\"} 3 1700000000000\n";
    assert_eq!(post(&server, "?timestamp=1690000000000", &[], text).await.status, 200);
    for (time, expected) in [(1_690_000_000.0, "2"), (1_700_000_000.0, "3")] {
        let found = server.query("then", time).await["result"].clone();
        assert_eq!((found.as_array().map(Vec::len), &found[0]["value"][1]), (Some(1), &json!(expected)), "{found}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let check = async |query: &str, headers: &[(&str, &str)], body: &[u8], status: u16, text: &str| {
        let answer = post(&server, query, headers, body).await;
        assert_eq!(answer.status, status, "{query} {headers:?}: {}", answer.text());
        assert!(answer.text().contains(text), "{query} {headers:?}: {}", answer.text());
    };
    check("", &[], b"only bad\n", 400, "1 bad lines skipped, first line 1").await;
    check("?extra_label=x", &[], b"a 1\n", 400, "expected name=value").await;
    check("?timestamp=now", &[], b"a 1\n", 400, "expected Unix milliseconds").await;
    check("?extra_label=a=1&extra_label=a=2", &[], b"a 1\n", 400, "repeated label name").await;
    check("", &[("content-type", "application/json")], b"a 1\n", 415, "application/json").await;
    check("", &[("content-encoding", "br")], b"a 1\n", 415, "br").await;
    check("", &[("content-encoding", "snappy")], b"a 1\n", 415, "snappy").await;
    check("", &[("content-encoding", "gzip")], b"a 1\n", 400, "not valid gzip").await;
    assert_eq!(server.get(PATH).await.status, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn long_bodies_stream() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    // Some 400 MB of text, sent as gzip of less than 10 MB; limits of other bodies are 64 MiB.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let padding = "x".repeat(4000);
    let lines = 100_000_u64;
    for i in 0..lines {
        let at = 1_700_000_000_000 + i;
        writeln!(gzip, "long{{pad=\"{padding}\",n=\"{}\"}} {i} {at}", i % 10).expect("a line");
    }
    let body = gzip.finish().expect("a body");
    let before = server.held_bytes();
    let answer = post(&server, "", &[("content-encoding", "gzip")], &body).await;
    assert_eq!((answer.status, &answer.json()["data"]["samples"]), (200, &json!(lines)), "{}", answer.text());
    let grown = server.grown_since(before, 200 << 20).await;
    assert!(grown < 200 << 20, "the server grew by {grown} bytes");
    let data = server.query("sum(count_over_time(long[10m]))", 1_700_000_200.0).await;
    assert_eq!(data["result"][0]["value"][1], lines.to_string());
}
