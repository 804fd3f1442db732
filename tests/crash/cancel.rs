//! A client that disconnects ends its query (promise L5): CPU time and memory are released, for each kind of query.
//! Queries are made slow by a fail point that sleeps at each cancellation check.

use std::time::{Duration, Instant};

use quiver_tests::bodies::{Series, compress, field, remote_write, varint};
use quiver_tests::load::{Caller, Written};
use quiver_tests::server::{Options, Server};
use quiver_tests::time_limits::within;

use crate::arena::{START_MS, comes_up};

const SERIES: usize = 200;
const SAMPLES: i64 = 60;
const STEP_MS: i64 = 15_000;
/// How long a query may take to begin, and to end.
const PATIENCE: Duration = Duration::from_mins(5);
/// Processor time that may be spent after the client went: that of the promise, though this is the build for tests. A
/// query ends with the series at hand.
const CPU_AFTER: Duration = Duration::from_millis(200);
/// What a query sleeps each time that it asks: longer than a client takes to see that it runs.
const SLEEP: &str = "query.check=sleep:400";

/// How something is asked.
#[derive(Debug, Clone, Copy)]
enum Ask {
    /// `query` at the end of the samples.
    Instant(&'static str),
    /// `query_range` over all samples.
    Range(&'static str),
    /// `query_range` that explains itself.
    Explain(&'static str),
    /// A path below `/metrics-api`.
    Get(&'static str),
    /// Remote read; whether as chunks.
    Read(bool),
}

const KINDS: &[(&str, Ask)] = &[
    ("a rate and sum", Ask::Range("sum by (job) (rate(cancel_samples[5m]))")),
    ("order statistics", Ask::Range("quantile_over_time(0.9, cancel_samples[5m])")),
    ("topk", Ask::Range("topk(5, quantile_over_time(0.9, cancel_samples[5m]))")),
    ("matching", Ask::Range("rate(cancel_samples[5m]) * on (series) group_left () cancel_samples")),
    ("a subquery", Ask::Range("sum(max_over_time(rate(cancel_samples[5m])[5m:15s]))")),
    ("an instant subquery", Ask::Instant("sum(quantile_over_time(0.5, (cancel_samples * 2)[10m:15s]))")),
    ("relabelling", Ask::Instant("sort(label_replace(cancel_samples, \"a\", \"$1\", \"series\", \"(.*)\"))")),
    ("counted values", Ask::Range("count_values(\"v\", cancel_samples)")),
    ("info", Ask::Instant("info(cancel_samples, {__name__=\"cancel_samples\"})")),
    ("a range vector", Ask::Instant("cancel_samples[10m]")),
    ("explain=analyze", Ask::Explain("sum(rate(cancel_samples[5m]))")),
    ("series", Ask::Get("/api/v1/series?match[]=cancel_samples")),
    ("label names", Ask::Get("/api/v1/labels?match[]=cancel_samples")),
    ("label values", Ask::Get("/api/v1/label/series/values?match[]=cancel_samples")),
    ("cardinality", Ask::Get("/api/v1/status/tsdb")),
    ("exemplars", Ask::Get("/api/v1/query_exemplars?query=cancel_samples")),
    ("metadata", Ask::Get("/api/v1/metadata")),
    ("federation", Ask::Get("/federate?match[]=cancel_samples")),
    ("remote read", Ask::Read(false)),
    ("remote read of chunks", Ask::Read(true)),
];

/// A remote read of all samples of a name.
pub(crate) fn read_request(name: &str, end_ms: i64, chunked: bool) -> Vec<u8> {
    let mut matcher = vec![8, 0];
    field(&mut matcher, 2, b"__name__");
    field(&mut matcher, 3, name.as_bytes());
    let mut query = Vec::new();
    for (tag, ms) in [(8, START_MS), (16, end_ms)] {
        query.push(tag);
        varint(&mut query, ms as u64);
    }
    field(&mut query, 3, &matcher);
    let mut raw = Vec::new();
    field(&mut raw, 1, &query);
    raw.extend([16, u8::from(chunked)]);
    compress(&raw)
}

impl Ask {
    async fn send(self, address: &str) -> reqwest::Result<(u16, Vec<u8>)> {
        let base = format!("http://{address}/metrics-api");
        let (start, end) = (START_MS / 1000, (START_MS + SAMPLES * STEP_MS) / 1000);
        let range = [("start", start.to_string()), ("end", end.to_string()), ("step", "15".to_owned())];
        // A client of its own, whose connection closes with it.
        let client = reqwest::Client::new();
        let request = match self {
            Self::Instant(query) => {
                client.get(format!("{base}/api/v1/query")).query(&[("query", query), ("time", &end.to_string())])
            }
            Self::Range(query) => {
                client.get(format!("{base}/api/v1/query_range")).query(&[("query", query)]).query(&range)
            }
            Self::Explain(query) => {
                let params = [("query", query), ("explain", "analyze")];
                client.get(format!("{base}/api/v1/query_range")).query(&params).query(&range)
            }
            Self::Get(path) => client.get(format!("{base}{path}")),
            Self::Read(chunked) => client
                .post(format!("{base}/api/v1/read"))
                .header("content-encoding", "snappy")
                .header("content-type", "application/x-protobuf")
                .body(read_request("cancel_samples", START_MS + SAMPLES * STEP_MS, chunked)),
        };
        let response = request.send().await?;
        let status = response.status().as_u16();
        Ok((status, response.bytes().await?.to_vec()))
    }
}

async fn fill(caller: &Caller) {
    let names: Vec<String> = (0..SERIES).map(|i| format!("s{i}")).collect();
    let series: Vec<Series<'_>> = names
        .iter()
        .enumerate()
        .map(|(i, name)| {
            let job = if i % 2 == 0 { "even" } else { "odd" };
            let labels = vec![("__name__", "cancel_samples"), ("series", name.as_str()), ("job", job)];
            (labels, (0..SAMPLES).map(|n| (START_MS + n * STEP_MS, (n * (i as i64 + 1)) as f64)).collect())
        })
        .collect();
    assert_eq!(caller.write(remote_write(&series)).await, Written::Taken);
}

pub(crate) async fn until(caller: &Caller, name: &str, expected: f64, what: &str) {
    let began = Instant::now();
    while caller.metric(name).await.expect("it lives") != expected {
        assert!(began.elapsed() < PATIENCE, "{what}: {name} does not become {expected}");
        // Seldom: each look takes processor time, which is what is measured.
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn a_query_ends_with_its_client() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_LOG__FILTER", "off").env("QUIVER_FAILPOINT", SLEEP);
    let mut server = Server::spawn(dir.path(), &options).expect("the server says where it listens");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await, "the server died");
    fill(&caller).await;
    server.flush().await;
    for (name, ask) in KINDS {
        let what = format!("{name}: processor time after the client went");
        let spent = within(&what, CPU_AFTER, async || after_the_client(&server, &caller, name, *ask).await).await;
        println!("{what}: {spent:?}");
    }
    assert_eq!(server.stop(), Some(0));
}

/// Lets a client go away from its query; gives the processor time that is spent then. All of it, where the query was
/// over before the client went.
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn after_the_client(server: &Server, caller: &Caller, name: &str, ask: Ask) -> Duration {
    let cancelled = async || caller.metric("quiver_query_cancelled_total").await.expect("it lives");
    let before = cancelled().await;
    let address = server.http.clone();
    let asking = tokio::spawn(async move { ask.send(&address).await });
    let began = Instant::now();
    while caller.metric("quiver_queries_running").await.expect("it lives") == 0.0 {
        if asking.is_finished() {
            let (status, body) = asking.await.expect("asked").expect("answered");
            let text = String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned();
            assert_eq!(status, 200, "{name}: {text}");
            println!("{name}: answered before it could be cancelled");
            return Duration::MAX;
        }
        assert!(began.elapsed() < PATIENCE, "{name}: the query does not begin");
    }
    asking.abort();
    let left = server.cpu();
    until(caller, "quiver_queries_running", 0.0, name).await;
    until(caller, "quiver_query_memory_bytes", 0.0, name).await;
    // Whatever goes on without being counted would show here.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let spent = server.cpu().saturating_sub(left);
    let stopped = cancelled().await - before;
    assert!(stopped <= 1.0, "{name}: {stopped} queries were cancelled");
    if stopped == 1.0 { spent } else { Duration::MAX }
}
