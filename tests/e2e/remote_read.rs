//! Remote read: both answers give back every sample bit for bit, in every state of the data.

use std::collections::BTreeMap;

use quiver_tests::bodies::{Series, compress, field, remote_write, varint};
use quiver_tests::chunks::{Frame, fields, floats, frames, labels};
use quiver_tests::server::{Answer, Options, Server};
use serde_json::json;

use crate::identity::{PASSWORD, bearer, login, user, with_password};

const PATH: &str = "/metrics-api/api/v1/read";
const T0_MS: i64 = 1_700_000_000_000;

/// A request for one matcher per query.
pub(crate) fn request(queries: &[(u64, &str, &str)], start: i64, end: i64, accepted: &[u64]) -> Vec<u8> {
    let mut raw = Vec::new();
    for (kind, name, value) in queries {
        let mut matcher = vec![8];
        varint(&mut matcher, *kind);
        field(&mut matcher, 2, name.as_bytes());
        field(&mut matcher, 3, value.as_bytes());
        let mut query = Vec::new();
        for (tag, ms) in [(8, start), (16, end)] {
            query.push(tag);
            varint(&mut query, ms as u64);
        }
        field(&mut query, 3, &matcher);
        field(&mut raw, 1, &query);
    }
    for kind in accepted {
        raw.push(16);
        varint(&mut raw, *kind);
    }
    compress(&raw)
}

async fn post(server: &Server, body: Vec<u8>) -> Answer {
    let headers = [("content-type", "application/x-protobuf"), ("content-encoding", "snappy")];
    server.post(PATH, &headers, body).await
}

type Samples = BTreeMap<Vec<(String, String)>, Vec<(i64, u64)>>;

/// Reads `prometheus.ReadResponse`: for each query its series.
fn messages(body: &[u8]) -> Vec<Samples> {
    let raw = snap::raw::Decoder::new().decompress_vec(body).expect("snappy");
    let results = fields(&raw).into_iter().filter(|(n, _)| *n == 1);
    let read = |series: Vec<(u64, quiver_tests::chunks::Field)>| {
        let samples = series.iter().filter(|(n, _)| *n == 2).map(|(_, f)| {
            let sample = fields(f.bytes());
            let number = |n: u64| sample.iter().find(|(f, _)| *f == n).map_or(0, |(_, f)| f.number());
            (number(2) as i64, number(1))
        });
        (labels(&series), samples.collect())
    };
    results.map(|(_, f)| fields(f.bytes()).into_iter().map(|(_, s)| read(fields(s.bytes()))).collect()).collect()
}

fn unchunked(frames: &[Frame]) -> Samples {
    let mut out = Samples::new();
    for frame in frames {
        let list = out.entry(frame.labels.clone()).or_default();
        for chunk in &frame.chunks {
            assert_eq!(chunk.encoding, 1);
            let read = floats(&chunk.data);
            assert_eq!((read[0].0, read[read.len() - 1].0), (chunk.min_ms, chunk.max_ms));
            list.extend(read);
        }
    }
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn every_sample_comes_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    let special = [0.0, -0.0, f64::INFINITY, stale, 1.5, 1.5];
    let names: Vec<String> = (0..20).map(|i| format!("{i:02}")).collect();
    let value = |s: i64, i: i64| if i < 6 { special[i as usize] } else { (s * i) as f64 / 7.0 };
    let series: Vec<Series<'_>> = names
        .iter()
        .zip(0..)
        .map(|(n, s)| {
            let samples = (0..500).map(|i| (T0_MS + i * 15_000 + i * s % 11, value(s, i))).collect();
            (vec![("__name__", "read"), ("n", n.as_str())], samples)
        })
        .collect();
    server.write(remote_write(&series)).await;
    let last = T0_MS + 300 * 15_000;
    let expected: Samples = series
        .iter()
        .map(|(labels, samples)| {
            let labels = labels.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            let inside = samples.iter().filter(|(t, _)| *t <= last).map(|(t, v)| (*t, v.to_bits()));
            (labels, inside.collect())
        })
        .collect();
    for state in ["live", "flushed", "compacted"] {
        let queries = [(0, "__name__", "read"), (2, "n", "0[12]"), (0, "__name__", "none")];
        let answer = post(&server, request(&queries, T0_MS, last, &[])).await;
        assert_eq!((answer.status, &answer.headers["content-encoding"]), (200, &"snappy".parse().expect("a value")));
        assert_eq!(answer.headers["content-type"], "application/x-protobuf");
        let read = messages(&answer.body);
        assert_eq!((read.len(), &read[0]), (3, &expected), "{state}");
        assert_eq!((read[1].len(), read[2].len()), (2, 0), "{state}");

        let answer = post(&server, request(&queries, T0_MS, last, &[1, 0])).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let content_type = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse";
        assert_eq!(answer.headers["content-type"], content_type);
        let all = frames(&answer.body);
        let (first, second): (Vec<Frame>, Vec<Frame>) = all.into_iter().partition(|f| f.query == 0);
        assert!(first.is_sorted_by(|a, b| a.labels < b.labels), "series come sorted");
        assert_eq!(unchunked(&first), expected, "{state}");
        assert_eq!(second.iter().map(|f| f.query).collect::<Vec<_>>(), [1, 1]);
        if state == "live" {
            server.flush().await;
        } else {
            server.compact().await;
        }
    }
    // A query is one plan, in which the engine makes the chunks and puts them in order.
    let headers = [("content-type", "application/x-protobuf"), ("content-encoding", "snappy")];
    let body = request(&[(0, "__name__", "read")], T0_MS, last, &[1]);
    let shown = server.post(&format!("{PATH}?explain=analyze"), &headers, body).await.json();
    assert!(shown.get("children").is_none(), "{shown}");
    let physical = shown["physical"].as_str().expect("a plan");
    assert_eq!((physical.matches("SampleChunks").count(), physical.matches("SortExec").count()), (1, 1), "{physical}");
    assert_eq!(shown["nodes"][0]["rows"], 20, "{shown}");
}

/// Who looks for series (the hint `func` is `series`) gets their labels, and as chunks all there is, as from Prometheus.
#[tokio::test(flavor = "multi_thread")]
async fn series_that_are_looked_for_come_without_samples() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let series = |n: &'static str| (vec![("__name__", "sought"), ("n", n)], vec![(T0_MS, 1.0), (T0_MS + 1000, 2.0)]);
    server.write(remote_write(&[series("a"), series("b")])).await;
    let asked = |function: &str, accepted: u64| {
        let (mut matcher, mut hints, mut query, mut raw) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        field(&mut matcher, 2, b"__name__");
        field(&mut matcher, 3, b"sought");
        field(&mut hints, 2, function.as_bytes());
        for (tag, ms) in [(8, T0_MS), (16, T0_MS + 60_000)] {
            query.push(tag);
            varint(&mut query, ms as u64);
        }
        field(&mut query, 3, &matcher);
        field(&mut query, 4, &hints);
        field(&mut raw, 1, &query);
        raw.push(16);
        varint(&mut raw, accepted);
        compress(&raw)
    };
    for state in ["live", "flushed"] {
        for (function, samples) in [("series", 0), ("rate", 2)] {
            let answer = post(&server, asked(function, 0)).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let read = messages(&answer.body);
            let found: Vec<_> = read[0].iter().map(|(labels, list)| (labels[1].1.as_str(), list.len())).collect();
            assert_eq!(found, [("a", samples), ("b", samples)], "{state}: {function}");
        }
        let answer = post(&server, asked("series", 1)).await;
        let chunked = unchunked(&frames(&answer.body));
        assert_eq!(chunked.values().map(Vec::len).collect::<Vec<_>>(), [2, 2], "{state}");
        server.flush().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_plain_text() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_QUERY__SAMPLES_MAX", 1000);
    let server = Server::start(dir.path(), &options).await;
    let samples = |n: i64| (0..n).map(|i| (T0_MS + i, 1.0)).collect();
    server.write(remote_write(&[(vec![("__name__", "many")], samples(1001))])).await;
    server.write(remote_write(&[(vec![("__name__", "some")], samples(1000))])).await;
    let all = |name: &'static str, accepted: &[u64]| request(&[(0, "__name__", name)], 0, i64::MAX, accepted);
    let check = async |body: Vec<u8>, text: &str| {
        let answer = post(&server, body).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.text().contains(text), "{}", answer.text());
        assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
    };
    check(b"no snappy".to_vec(), "snappy").await;
    check(compress(&[0xff; 9]), "invalid protobuf").await;
    check(all("some", &[7]), "does not support any of the requested response types").await;
    check(request(&[(9, "a", "b")], 0, 1, &[]), "invalid matcher type 9").await;
    check(request(&[(2, "a", "(")], 0, 1, &[]), "invalid regular expression").await;
    for accepted in [&[0][..], &[1]] {
        check(all("many", accepted), "exceeded sample limit (1000)").await;
        assert_eq!(post(&server, all("some", accepted)).await.status, 200);
    }
    assert_eq!(server.get(PATH).await.status, 405);
    let wrong = server.post(PATH, &[("content-encoding", "gzip")], all("some", &[])).await;
    assert_eq!(wrong.status, 400, "{}", wrong.text());
}

/// What this protocol does not name itself is told as by every other query.
#[tokio::test(flavor = "multi_thread")]
async fn too_large_an_answer_is_refused_as_everywhere() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().env("QUIVER_HTTP__ANSWER_MAX", "64KiB")).await;
    let (numbers, text): (Vec<String>, _) = ((0..100).map(|i| i.to_string()).collect(), "x".repeat(1000));
    let labels = |n| vec![("__name__", "wide"), ("n", n), ("text", text.as_str())];
    let wide: Vec<Series<'_>> = numbers.iter().map(|n| (labels(n.as_str()), vec![(T0_MS, 1.0)])).collect();
    server.write(remote_write(&wide)).await;
    let read = post(&server, request(&[(0, "__name__", "wide")], T0_MS, T0_MS, &[0])).await;
    let query = server.get(&format!("/metrics-api/api/v1/query?query=wide&time={}", T0_MS / 1000)).await;
    for answer in [read, query] {
        assert_eq!(answer.status, 422, "{}", answer.text());
        assert!(answer.text().contains("65536 bytes"), "{}", answer.text());
    }
}

/// Two bytes of a request may become a hundred when it is decoded, so it counts in its query's memory before that.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_counts_before_it_is_decoded() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().env("QUIVER_MEMORY__LIMIT", "256MiB")).await;
    for (bytes, status) in [(10_000, 200), (2 << 20, 422), (10_000, 200)] {
        let value = "x".repeat(bytes);
        for accepted in [0, 1] {
            let answer = post(&server, request(&[(0, "job", &value)], 0, T0_MS, &[accepted])).await;
            assert_eq!(answer.status, status, "{bytes} bytes: {}", answer.text());
        }
    }
}

/// Who may see one service reads the same bytes as where there is nothing else, and within the same limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_reads_its_services_only() {
    let (dir, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let options = with_password().env("QUIVER_QUERY__SAMPLES_MAX", 300);
    let (server, only) = (Server::start(dir.path(), &options).await, Server::start(other.path(), &options).await);
    let samples = |n: i64| (0..n).map(|i| (T0_MS + i * 15_000, i as f64)).collect::<Vec<_>>();
    let series = |service: &'static str, n: i64| -> Series<'static> {
        let mut labels = vec![("__name__", "read")];
        labels.extend((!service.is_empty()).then_some(("job", service)));
        (labels, samples(n))
    };
    let mut viewers = Vec::new();
    for (side, services) in [(&server, &["a", "b", ""][..]), (&only, &["a"][..])] {
        let admin = bearer(&login(side, "admin", PASSWORD).await);
        let all: Vec<Series<'_>> = services.iter().map(|service| series(service, 200)).collect();
        let headers = [("authorization", admin.as_str()), ("content-type", "application/x-protobuf")];
        let answer = side.post("/metrics-api/api/v1/write", &headers, remote_write(&all)).await;
        assert!(answer.status < 300, "{}", answer.text());
        user(side, &admin, "viewer", "viewer", json!(["a"])).await;
        viewers.push((side, admin, bearer(&login(side, "viewer", PASSWORD).await)));
    }
    for state in ["live", "flushed"] {
        for (side, admin, _) in viewers.iter().filter(|_| state == "flushed") {
            let answer = side.post("/admin/flush", &[("authorization", admin)], vec![]).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        for accepted in [&[][..], &[0], &[1]] {
            let mut read = Vec::new();
            for (side, _, viewer) in &viewers {
                let body = request(&[(2, "__name__", ".+"), (0, "job", "b")], 0, i64::MAX, accepted);
                let headers = [
                    ("authorization", viewer.as_str()),
                    ("content-type", "application/x-protobuf"),
                    ("content-encoding", "snappy"),
                ];
                let answer = side.post(PATH, &headers, body).await;
                assert_eq!(answer.status, 200, "{state} {accepted:?}: {}", answer.text());
                read.push(answer.body);
            }
            assert!(read[0] == read[1] && !read[0].is_empty(), "{state} {accepted:?}");
        }
    }
}
