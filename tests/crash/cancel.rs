//! A client that goes away takes its query with it (promise L5): the query ends, its processor time and memory come
//! back, for each kind of query.

use std::time::{Duration, Instant};

use quiver_tests::body::{Series, remote_write};
use quiver_tests::load::{Caller, Written};
use quiver_tests::server::{Options, Server};

use crate::arena::{START_MS, comes_up};

const SERIES: usize = 1000;
const SAMPLES: i64 = 600;
const STEP_MS: i64 = 15_000;
/// How long a query may take to begin, and to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Processor time that may be spent after the client went: that of the promise, though this is the build for tests. A
/// query ends with the series at hand.
const CPU_AFTER: Duration = Duration::from_millis(200);

/// Queries that take seconds: (name, query, times over which it is asked; one time = instant).
const QUERIES: &[(&str, &str, i64)] = &[
    ("rate and sum over a range", "sum by (job) (rate(cancel_samples[30m]))", 10_000),
    ("order statistics over a range", "quantile_over_time(0.9, cancel_samples[1h])", 2000),
    ("topk over a range", "topk(5, quantile_over_time(0.9, cancel_samples[30m]))", 2000),
    (
        "matching over a range",
        "rate(cancel_samples[30m]) * on (series) group_left () quantile_over_time(0.5, cancel_samples[30m])",
        2000,
    ),
    ("subquery over a range", "sum(max_over_time(rate(cancel_samples[5m])[30m:1s]))", 500),
    ("instant subquery", "sum(quantile_over_time(0.5, (cancel_samples * 2)[2h:200ms]))", 1),
    (
        "sorted and relabelled",
        "sort(label_replace(stddev_over_time(cancel_samples[2h:300ms]), \"a\", \"$1\", \"series\", \"(.*)\"))",
        1,
    ),
];

async fn fill(caller: &Caller) {
    let names: Vec<String> = (0..SERIES).map(|i| format!("s{i}")).collect();
    for from in (0..SAMPLES).step_by(20) {
        let series: Vec<Series<'_>> = names
            .iter()
            .enumerate()
            .map(|(i, name)| {
                let job = if i % 2 == 0 { "even" } else { "odd" };
                let labels = vec![("__name__", "cancel_samples"), ("series", name.as_str()), ("job", job)];
                (labels, (from..from + 20).map(|n| (START_MS + n * STEP_MS, (n * (i as i64 + 1)) as f64)).collect())
            })
            .collect();
        assert_eq!(caller.write(remote_write(&series)).await, Written::Taken);
    }
}

/// Processor time of a process so far.
fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let after_name = stat.rsplit(')').next().expect("a name in brackets");
    let ticks: u64 = after_name.split_whitespace().skip(11).take(2).map(|t| t.parse::<u64>().expect("a number")).sum();
    // 100 a second on every Linux.
    Duration::from_millis(ticks * 10)
}

async fn until(caller: &Caller, name: &str, expected: f64, what: &str) {
    let began = Instant::now();
    while caller.metric(name).await.expect("it lives") != expected {
        assert!(began.elapsed() < PATIENCE, "{what}: {name} does not become {expected}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn a_query_ends_with_its_client() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_LOG__FILTER", "off");
    let mut server = Server::spawn(dir.path(), &options).expect("the server says where it listens");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await, "the server died");
    fill(&caller).await;
    server.flush().await;
    let start = START_MS / 1000;
    let end = start + SAMPLES * STEP_MS / 1000;
    for (name, query, times) in QUERIES {
        let before = caller.metric("quiver_query_cancelled_total").await.expect("it lives");
        // A client of its own, whose connection closes with it.
        let other = Caller::new(&server.http);
        let asking = tokio::spawn(async move {
            let step = format!("{}", (end - start) as f64 / (*times - 1).max(1) as f64);
            let (start, end) = (start.to_string(), end.to_string());
            if *times == 1 {
                other.get("/metrics-api/api/v1/query", &[("query", query), ("time", &end)]).await
            } else {
                let params = [("query", *query), ("start", &start), ("end", &end), ("step", &step)];
                other.get("/metrics-api/api/v1/query_range", &params).await
            }
        });
        let began = Instant::now();
        while caller.metric("quiver_query_running_count").await.expect("it lives") == 0.0 && !asking.is_finished() {
            assert!(began.elapsed() < PATIENCE, "{name}: the query does not begin");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        if asking.is_finished() {
            let (status, body) = asking.await.expect("asked").expect("answered");
            panic!(
                "{name}: answered before it could be cancelled: {status} {}",
                String::from_utf8_lossy(&body[..body.len().min(300)])
            );
        }
        asking.abort();
        let left = cpu(server.pid());
        until(&caller, "quiver_query_running_count", 0.0, name).await;
        until(&caller, "quiver_query_memory_bytes", 0.0, name).await;
        // Whatever goes on without being counted would show here.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let spent = cpu(server.pid()).saturating_sub(left);
        println!("{name}: {spent:?} of processor time after the client went");
        assert!(spent <= CPU_AFTER, "{name}: {spent:?} of processor time after the client went");
        let after = caller.metric("quiver_query_cancelled_total").await.expect("it lives");
        assert_eq!(after, before + 1.0, "{name}: a query was cancelled");
    }
    assert_eq!(server.stop(), Some(0));
}
