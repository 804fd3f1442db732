//! High cardinality: a burst of new series by one service is limited and affects nobody else (promise L8). In the long
//! run, a million live series stay within 4 GiB with steady ingest, while queries beyond the limits get 422.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use quiver_tests::bodies::{Series, remote_write};
use quiver_tests::load::{Caller, Written, soak};
use quiver_tests::server::{Options, Server};

use crate::arena::{START_MS, comes_up};

/// Series of a request.
const BATCH: usize = 2000;
/// Longest that a writer may be told to come later: who is told so for good is hurt.
const PATIENCE: Duration = Duration::from_mins(5);

/// A request with one sample of each of the series `from..to` of a service.
fn batch(service: &str, from: usize, to: usize, ts: i64) -> Vec<u8> {
    let names: Vec<[String; 2]> = (from..to).map(|i| [format!("pod-{i:07}"), format!("10.{}.0.1", i % 250)]).collect();
    let labels = |[pod, node]: &'_ [String; 2]| -> Vec<(String, String)> {
        let own = [("job", service), ("pod", pod.as_str()), ("node", node.as_str()), ("zone", "z-1")];
        let pairs = std::iter::once(("__name__", "requests_total")).chain(own);
        pairs.map(|(n, v)| (n.to_owned(), v.to_owned())).collect()
    };
    let owned: Vec<Vec<(String, String)>> = names.iter().map(labels).collect();
    let series: Vec<Series<'_>> = owned
        .iter()
        .map(|l| (l.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect(), vec![(ts, ts as f64)]))
        .collect();
    remote_write(&series)
}

async fn take(caller: &Caller, body: Vec<u8>) -> u64 {
    match write(caller, body).await {
        (Written::Taken, later) => later,
        (failed, _) => panic!("a write failed: {failed:?}"),
    }
}

/// Writes, and again as long as it is told to come later; gives what became of it, and how often it was told so.
async fn write(caller: &Caller, body: Vec<u8>) -> (Written, u64) {
    let (began, mut later) = (Instant::now(), 0);
    loop {
        match caller.write(body.clone()).await {
            Written::Later => {
                assert!(began.elapsed() < PATIENCE, "it is told to come later for {PATIENCE:?}");
                later += 1;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            written => return (written, later),
        }
    }
}

async fn count(caller: &Caller, selector: &str, at_ms: i64) -> f64 {
    let found = caller.number(&format!("count({selector})"), at_ms).await.expect("it lives");
    found.unwrap_or_else(|e| panic!("{e}")).unwrap_or(0.0)
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn a_bomb_hurts_nobody_else() {
    let (bomb, limit) = if soak() { (10_000_000, 100_000) } else { (40_000, 5_000) };
    let memory = 512 << 20;
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default()
        .env("QUIVER_MEMORY__LIMIT", memory)
        .env("QUIVER_INGEST__SERVICE_NEW_SERIES_PER_HOUR", limit)
        .env("QUIVER_LOG__FILTER", "off");
    let mut server = Server::spawn(dir.path(), &options).expect("the server says where it listens");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await, "the server died");
    take(&caller, batch("before", 0, 1000, START_MS)).await;
    let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    // Others go on meanwhile: what they have, and what is new of them.
    let others = tokio::spawn({
        let (caller, stop, rounds) = (caller.clone(), Arc::clone(&stop), Arc::clone(&rounds));
        async move {
            let mut n = 0;
            while !stop.load(Relaxed) {
                n += 1;
                let ts = START_MS + n * 100;
                for (service, to) in [("before", 1000), ("new", (n as usize * 10).min(2000))] {
                    // Refused for good, they would be hurt; told to come again they are not.
                    take(&caller, batch(service, 0, to, ts)).await;
                }
                rounds.fetch_add(1, Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            n
        }
    });
    let (mut refused, mut rss_max) = (0, 0);
    for from in (0..bomb).step_by(BATCH) {
        match write(&caller, batch("bomb", from, from + BATCH, START_MS)).await.0 {
            Written::Taken => {}
            Written::Refused(text) => {
                assert!(text.starts_with("400 ") && text.contains("too many new series of one service"), "{text}");
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
        rss_max = rss_max.max(server.shipped_rss_bytes());
    }
    // Its series that are there go on.
    take(&caller, batch("bomb", 0, BATCH, START_MS + 1000)).await;
    stop.store(true, Relaxed);
    let n = others.await.expect("nobody else is hurt");
    assert!(refused > 0 && n > 0);
    let at = START_MS + n * 100;
    assert_eq!(count(&caller, "requests_total{job=\"bomb\"}", at).await, limit as f64);
    assert_eq!(count(&caller, "requests_total{job=\"before\"}", at).await, 1000.0);
    assert_eq!(count(&caller, "requests_total{job=\"new\"}", at).await, (n * 10).min(2000) as f64);
    let barred = caller.metric("quiver_series_barred_total").await.expect("it lives");
    assert_eq!(barred, (bomb - limit) as f64);
    println!(
        "{bomb} series of one service, {barred} barred in {refused} requests, {} rounds of others meanwhile, at most {} MiB",
        rounds.load(Relaxed),
        rss_max >> 20
    );
    assert!(rss_max <= memory + memory * 15 / 100, "{} MiB", rss_max >> 20);
    assert_eq!(server.stop(), Some(0));
}

/// What must end in 422 over a million series, within the limits of a server with 4 GiB.
const TOO_MUCH: &[(&str, &str)] = &[
    ("all series over a day", "requests_total"),
    ("a product of everything", "requests_total * on (pod, job) requests_total"),
    ("a list of ranges", "max_over_time(requests_total[5m])"),
];

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn a_million_live_series() {
    let series: usize = if soak() { 1_000_000 } else { 20_000 };
    let (most, rounds) = (4u64 << 30, if soak() { 40 } else { 4 });
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_MEMORY__LIMIT", "3584MiB").env("QUIVER_LOG__FILTER", "off");
    let mut server = Server::spawn(dir.path(), &options).expect("the server says where it listens");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await, "the server died");
    let idle = server.rss_bytes();
    let (mut rss_max, mut later) = (0, 0);
    let began = Instant::now();
    for round in 0..rounds {
        let started = Instant::now();
        // Two senders, as two cores take it.
        let ts = START_MS + round * 15_000;
        let send = |caller: Caller, half: usize| async move {
            let mut later = 0;
            for from in (half * series / 2..(half + 1) * series / 2).step_by(BATCH) {
                let service = format!("service-{}", from / BATCH % 20);
                later += take(&caller, batch(&service, from, from + BATCH, ts)).await;
            }
            later
        };
        let (a, b) = (tokio::spawn(send(caller.clone(), 0)), tokio::spawn(send(caller.clone(), 1)));
        while !a.is_finished() || !b.is_finished() {
            rss_max = rss_max.max(server.rss_bytes());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        later += a.await.expect("no write fails") + b.await.expect("no write fails");
        if round == 0 {
            let registry = caller.metric("quiver_registry_bytes").await.expect("it lives");
            let generations = caller.metric("quiver_generation_bytes").await.expect("it lives");
            let per_series = |bytes: f64| bytes / series as f64;
            println!(
                "{series} series: {:.0} bytes each in the registry, {:.0} in the generation, {:.0} of the process",
                per_series(registry),
                per_series(generations),
                per_series(server.rss_bytes().saturating_sub(idle) as f64)
            );
        }
        println!("round {round}: {:?}, {} MiB", started.elapsed(), server.rss_bytes() >> 20);
    }
    let written = began.elapsed();
    let at = START_MS + (rounds - 1) * 15_000;
    assert_eq!(count(&caller, "requests_total", at).await, series as f64);
    rss_max = rss_max.max(server.rss_bytes());
    if soak() {
        let (start, end) = ((START_MS / 1000 - 86_400).to_string(), (at / 1000).to_string());
        for (name, query) in TOO_MUCH {
            let asked = Instant::now();
            let params = [("query", *query), ("start", &start), ("end", &end), ("step", "15")];
            let (status, body) = caller.get("/metrics-api/api/v1/query_range", &params).await.expect("it lives");
            let text = String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned();
            println!("{name}: {status} after {:?}: {text}", asked.elapsed());
            assert_eq!(status, 422, "{name}: {text}");
            rss_max = rss_max.max(server.rss_bytes());
        }
        server.flush().await;
        let (status, _) = caller.post("/admin/compact?force=true", vec![]).await.expect("it lives");
        assert_eq!(status, 200);
        rss_max = rss_max.max(server.rss_bytes());
        assert_eq!(count(&caller, "requests_total", at).await, series as f64, "compacted");
    }
    println!("{rounds} rounds of {series} series in {written:?}, {later} repeats, at most {} MiB", rss_max >> 20);
    assert!(rss_max <= most, "{} MiB", rss_max >> 20);
    assert_eq!(server.stop(), Some(0));
}
