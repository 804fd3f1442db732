//! The memory limit (promise L1): while samples arrive at full speed and clients query all series, by PromQL and by large
//! analytics queries, the process stays within its limit, and writes fail by back-pressure only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use quiver_tests::bodies::{Series, remote_write};
use quiver_tests::load::{Caller, Written, soak};
use quiver_tests::server::{Options, Server};
use serde_json::{Value, json};

use crate::arena::{START_MS, comes_up};

const SERIES: usize = 10_000;
const SENDERS: usize = 8;
const DAY_MS: i64 = 86_400_000;
/// What the clients ask by turns, all over 24 h.
const QUERIES: &[&str] = &[
    "sum by (job) (rate(memory_samples[1h]))",
    "topk(10, memory_samples)",
    "count(memory_samples) by (job)",
    "quantile by (job) (0.9, avg_over_time(memory_samples[1h]))",
];

/// What clients ask of analytics by turns: groups and rows beyond what is free for each, and one that takes little.
fn analytics(turn: usize, limit: usize) -> Value {
    let minutes = json!([{"dimension": "Metrics.time", "granularity": "minute"}]);
    let mut query = match turn % 5 {
        0 => json!({"measures": ["Metrics.count", "Metrics.max", "Metrics.seriesCount"],
            "dimensions": ["Metrics.promInstance"], "timeDimensions": minutes, "order": {"Metrics.max": "desc"}}),
        1 => json!({"measures": ["Metrics.avg"], "dimensions": ["Metrics.promInstance"], "timeDimensions": minutes}),
        2 => json!({"dimensions": ["Metrics.value", "Metrics.promInstance", "Metrics.time"], "ungrouped": true,
            "order": {"Metrics.value": "desc"}}),
        3 => json!({"dimensions": ["Metrics.value", "Metrics.promInstance"], "total": true}),
        _ => json!({"measures": ["Metrics.count"]}),
    };
    // Another limit for each client: equal queries share one execution.
    query["limit"] = limit.into();
    json!({"query": query, "cache": "no-cache"})
}

/// Until then all memory is given back, however busy the machine.
const GIVEN_BACK: Duration = Duration::from_mins(3);

/// What the server knows of its memory.
const GAUGES: &[&str] = &[
    "process_resident_memory_bytes ",
    "quiver_query_memory_bytes ",
    "quiver_queries_running ",
    "quiver_generation_bytes ",
    "quiver_registry_bytes ",
    "quiver_ingest_queue_bytes ",
    "quiver_flush_queue_length ",
];

/// In which language clients ask, and how many at once.
#[derive(Debug, Clone, Copy)]
enum Asking {
    Promql,
    Analytics,
}

impl Asking {
    fn clients(self) -> usize {
        match self {
            Self::Promql => 4,
            Self::Analytics => 20,
        }
    }
}

/// The scale of a run.
#[derive(Debug, Clone, Copy)]
struct Scale {
    samples: usize,
    limit_bytes: u64,
    asking: Asking,
}

fn scale() -> Scale {
    if soak() {
        Scale { samples: 20_000_000, limit_bytes: 1 << 30, asking: Asking::Promql }
    } else {
        Scale { samples: 2_000_000, limit_bytes: 512 << 20, asking: Asking::Promql }
    }
}

/// Few bytes for the same: what no budget counts is a larger part of it.
fn small_scale() -> Scale {
    Scale { samples: if soak() { 20_000_000 } else { 1_000_000 }, limit_bytes: 320 << 20, asking: Asking::Promql }
}

/// Twenty large queries of analytics at once.
fn analytics_scale() -> Scale {
    if soak() {
        Scale { samples: 20_000_000, limit_bytes: 1 << 30, asking: Asking::Analytics }
    } else {
        Scale { samples: 500_000, limit_bytes: 512 << 20, asking: Asking::Analytics }
    }
}

#[derive(Debug, Default)]
struct Seen {
    stop: AtomicBool,
    acknowledged: AtomicU64,
    later: AtomicU64,
    answers: AtomicU64,
    refused: AtomicU64,
    rss_max: AtomicU64,
}

/// Sends its share of the series, one sample of each per request, in the order of time.
async fn send(caller: Caller, seen: Arc<Seen>, sender: usize, times: i64) {
    let names: Vec<String> = (sender..SERIES).step_by(SENDERS).map(|i| format!("instance-{i:05}")).collect();
    let job = format!("job-{}", sender % 4);
    for n in 0..times {
        let ts = START_MS + n * (DAY_MS / times);
        let series: Vec<Series<'_>> = names
            .iter()
            .enumerate()
            .map(|(i, name)| {
                let labels = vec![("__name__", "memory_samples"), ("instance", name.as_str()), ("job", job.as_str())];
                (labels, vec![(ts, (n * (i as i64 % 17 + 1)) as f64 + 0.5)])
            })
            .collect();
        let body = remote_write(&series);
        loop {
            match caller.write(body.clone()).await {
                Written::Taken => break,
                Written::Later => {
                    seen.later.fetch_add(1, Relaxed);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                failed => panic!("a write failed: {failed:?}"),
            }
        }
        seen.acknowledged.fetch_add(names.len() as u64, Relaxed);
    }
}

/// Asks over everything, by turns.
async fn ask(caller: Caller, seen: Arc<Seen>, first: usize) {
    let (start, end) = ((START_MS / 1000).to_string(), ((START_MS + DAY_MS) / 1000).to_string());
    for query in QUERIES.iter().cycle().skip(first) {
        if seen.stop.load(Relaxed) {
            return;
        }
        let params = [("query", *query), ("start", &start), ("end", &end), ("step", "60")];
        let (status, body) = caller.get("/metrics-api/api/v1/query_range", &params).await.expect("it lives");
        match status {
            200 => seen.answers.fetch_add(1, Relaxed),
            // Too expensive for what is free.
            422 | 503 => seen.refused.fetch_add(1, Relaxed),
            _ => panic!("{query}: {status} {}", String::from_utf8_lossy(&body)),
        };
    }
}

/// Asks large queries of analytics, by turns; one that takes longer than a request waits is asked again until it is done.
async fn ask_analytics(caller: Caller, seen: Arc<Seen>, client: usize) {
    for turn in client.. {
        if seen.stop.load(Relaxed) {
            return;
        }
        let body = analytics(turn, 40_000 + client).to_string();
        let (status, answer) = loop {
            let (status, answer) = caller.post("/olap-api/v1/load", body.clone().into_bytes()).await.expect("it lives");
            if status != 200 || !answer.contains("Continue wait") {
                break (status, answer);
            }
        };
        match status {
            200 => seen.answers.fetch_add(1, Relaxed),
            422 | 503 => seen.refused.fetch_add(1, Relaxed),
            _ => panic!("{body}: {status} {answer}"),
        };
    }
}

/// Looks at the memory of the process; at a new peak also at what the server itself knows of it.
async fn watch(server: &Server, caller: &Caller, seen: &Seen, peak: &mut String) {
    let rss = server.shipped_rss_bytes();
    if rss > seen.rss_max.fetch_max(rss, Relaxed) + rss / 50 {
        let (_, body) = caller.get("/metrics", &[]).await.expect("it lives");
        let text = String::from_utf8_lossy(&body).into_owned();
        let known = |line: &&str| GAUGES.iter().any(|name| line.starts_with(name));
        *peak = text.lines().filter(known).collect::<Vec<_>>().join(", ");
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_stays_within_its_limit() {
    stays_within(scale()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_stays_within_a_small_limit() {
    stays_within(small_scale()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_stays_within_its_limit_beside_analytics() {
    stays_within(analytics_scale()).await;
}

#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn stays_within(Scale { samples, limit_bytes, asking }: Scale) {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_MEMORY__LIMIT", limit_bytes).env("QUIVER_LOG__FILTER", "off");
    let mut server = Server::spawn(dir.path(), &options).expect("the server says where it listens");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await, "the server died");
    let began = Instant::now();
    let seen = Arc::new(Seen::default());
    let idle = server.rss_bytes();
    let times = (samples / SERIES) as i64;
    let senders: Vec<_> =
        (0..SENDERS).map(|i| tokio::spawn(send(caller.clone(), Arc::clone(&seen), i, times))).collect();
    let client = |i: usize| match asking {
        Asking::Promql => tokio::spawn(ask(caller.clone(), Arc::clone(&seen), i)),
        Asking::Analytics => tokio::spawn(ask_analytics(caller.clone(), Arc::clone(&seen), i)),
    };
    let clients: Vec<_> = (0..asking.clients()).map(client).collect();
    let mut peak = String::new();
    while !senders.iter().all(tokio::task::JoinHandle::is_finished) {
        watch(&server, &caller, &seen, &mut peak).await;
    }
    for sender in senders {
        sender.await.expect("no write fails");
    }
    let written = began.elapsed();
    seen.stop.store(true, Relaxed);
    while !clients.iter().all(tokio::task::JoinHandle::is_finished) {
        watch(&server, &caller, &seen, &mut peak).await;
    }
    for client in clients {
        client.await.expect("queries are answered or refused");
    }
    let text = format!(
        "{samples} samples in {written:?}, limit {} MiB: {seen:?}, {} MiB at the start; about the peak: {peak}",
        limit_bytes >> 20,
        idle >> 20
    );
    println!("{text}");
    assert!(seen.answers.load(Relaxed) > 0, "no query was answered: {text}");
    let (mut count, hour_ms) = (0.0, 3_600_000);
    for hour in 1..=24 {
        // By the hour: all at once may be too expensive.
        let at = START_MS + hour * hour_ms - 1;
        let found = loop {
            match caller.number("sum(count_over_time(memory_samples[1h]))", at).await.expect("it lives") {
                // Tasks of queries that were refused give back what they hold when they hear of it.
                Err(e) if e.contains("ask again later") && began.elapsed() < written + GIVEN_BACK => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                found => break found,
            }
        };
        count += found.unwrap_or_else(|e| panic!("{e}: {text}")).unwrap_or(0.0);
    }
    assert_eq!(count, samples as f64, "{text}");
    let most = limit_bytes + limit_bytes * 15 / 100;
    assert!(seen.rss_max.load(Relaxed) <= most, "more than the limit and 15 %: {text}");
    assert_eq!(server.stop(), Some(0));
}
