//! Behaviour of remote stores only: a spool that bridges an outage (promise F3), caches that save requests, another
//! machine that takes over a store, and large files uploaded in parts. The end-to-end tests in `tests/e2e/write_read.rs`
//! also run over S3.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use quiver_tests::bodies::{Series, remote_write};
use quiver_tests::s3::S3Server;
use quiver_tests::server::{Options, Server, binary, run};
use serde_json::Value;

use crate::tools::until;

const T0_MS: i64 = 1_700_000_000_000;
const SERIES: usize = 200;
const PATIENCE: Duration = Duration::from_secs(90);

/// A body with 20 samples of each series, 1 s apart.
fn body(round: usize) -> Vec<u8> {
    let names: Vec<String> = (0..SERIES).map(|i| format!("instance-{i:04}")).collect();
    let series: Vec<Series<'_>> = names
        .iter()
        .enumerate()
        .map(|(i, name)| {
            let sample = |s: usize| (T0_MS + (round * 20 + s) as i64 * 1000, (round * 20 + s) as f64 + i as f64 / 7.0);
            (vec![("__name__", "m"), ("instance", name.as_str())], (0..20).map(sample).collect())
        })
        .collect();
    remote_write(&series)
}

/// Writes a round; gives how many samples that are.
async fn write_round(server: &Server, round: usize) -> usize {
    server.write(body(round)).await;
    SERIES * 20
}

/// Counts the samples of the rounds from one to another (exclusive).
async fn count(server: &Server, from: usize, to: usize) -> usize {
    let end = T0_MS / 1000 + to as i64 * 20 - 1;
    // From half a second before the first sample to the last one.
    let query = format!("sum(count_over_time(m[{}ms]))", (to - from) * 20_000 - 500);
    let (began, end) = (Instant::now(), end.to_string());
    loop {
        let answer = server.get_with("/metrics-api/api/v1/query", &[("query", &query), ("time", &end)]).await;
        // Our store may stand still for longer than the server tries.
        if answer.status == 503 && began.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        }
        assert_eq!(answer.status, 200, "{query}: {}", answer.text());
        let data = answer.json()["data"].take();
        let value = data["result"][0]["value"][1].as_str().and_then(|v| v.parse().ok());
        return value.unwrap_or(0);
    }
}

/// Reads one of the server's own metrics.
async fn own(server: &Server, name: &str) -> f64 {
    let text = server.get("/metrics").await.text();
    let line = text.lines().find(|l| l.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    let value = line.and_then(|l| l.rsplit(' ').next()).and_then(|v| v.parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in:\n{text}"))
}

fn offline(words: &[&str], data: &Path, options: &Options) {
    let mut command = Command::new(binary());
    command.args(words).arg("--data").arg(data).args(&options.args);
    command.envs(options.env.iter().map(|(name, value)| (name, value)));
    let (code, shown, errors) = run(&mut command);
    assert_eq!(code, Some(0), "{words:?}: {shown}{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_spool_bridges_an_outage() {
    let (dir, s3) = (tempfile::tempdir().expect("a folder"), S3Server::start().await);
    // Small generations, so that flushes happen while the store is down.
    let options = s3.options().env("QUIVER_MEMORY__GENERATION", "256KiB").env("QUIVER_STORE__RETRY_BUDGET", "1s");
    let server = Server::start(dir.path(), &options).await;
    let mut samples = 0;
    for round in 0..5 {
        samples += write_round(&server, round).await;
    }
    server.flush().await;

    s3.kill();
    let objects = objects(&s3.root());
    for round in 5..40 {
        samples += write_round(&server, round).await;
    }
    assert_eq!(samples, 40 * SERIES * 20, "every write was acknowledged");
    until("parts in the spool", PATIENCE, async || own(&server, "quiver_spool_bytes").await > 0.0).await;
    assert_eq!(count(&server, 5, 40).await, 35 * SERIES * 20, "what the store never had is answered");
    assert_eq!(self::objects(&s3.root()), objects, "nothing came through");
    // A restart in the middle of it.
    server.kill();
    let server = Server::start(dir.path(), &options).await;
    samples += write_round(&server, 40).await;
    assert_eq!(count(&server, 5, 41).await, 36 * SERIES * 20, "also after a restart without the store");

    s3.revive();
    until("an empty spool", PATIENCE, async || {
        own(&server, "quiver_spool_bytes").await == 0.0 && own(&server, "quiver_outbox_queue_length").await == 0.0
    })
    .await;
    assert_eq!(count(&server, 0, 41).await, samples, "drained");
    server.compact().await;
    assert_eq!(count(&server, 0, 41).await, samples, "compacted");
    assert_eq!(server.stop(), Some(0));
    offline(&["store", "check"], dir.path(), &options);

    // Another machine goes on with nothing but the store.
    let other = tempfile::tempdir().expect("a folder");
    offline(&["catalog", "rebuild"], other.path(), &options);
    let server = Server::start(other.path(), &options).await;
    assert_eq!(count(&server, 0, 41).await, samples, "rebuilt elsewhere");
    samples += write_round(&server, 41).await;
    server.flush().await;
    assert_eq!(count(&server, 0, 42).await, samples, "and goes on");
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_spool_refuses_writes_until_it_drains() {
    let (dir, s3) = (tempfile::tempdir().expect("a folder"), S3Server::start().await);
    let options = s3
        .options()
        .env("QUIVER_MEMORY__GENERATION", "256KiB")
        .env("QUIVER_STORE__RETRY_BUDGET", "1s")
        .env("QUIVER_STORE__SPOOL_LIMIT", "100KiB");
    let server = Server::start(dir.path(), &options).await;
    s3.kill();
    let (mut taken, mut refused) = (0, None);
    while refused.is_none() {
        assert!(taken < 2000, "never refused");
        let answer = server.post("/metrics-api/api/v1/write", &[], body(taken)).await;
        match answer.status {
            204 => taken += 1,
            _ => refused = Some(answer),
        }
    }
    let refused = refused.expect("seen above");
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.headers.contains_key("retry-after"), "{:?}", refused.headers);
    assert_eq!(count(&server, 0, taken).await, taken * SERIES * 20, "queries go on");
    assert_eq!(server.get("/health/live").await.status, 200);
    s3.revive();
    until("writes again", PATIENCE, async || {
        server.post("/metrics-api/api/v1/write", &[], body(taken)).await.status == 204
    })
    .await;
    server.flush().await;
    assert_eq!(count(&server, 0, taken + 1).await, (taken + 1) * SERIES * 20, "all that was acknowledged, once");
    assert_eq!(server.stop(), Some(0));
    offline(&["store", "check"], dir.path(), &options);
}

/// Names of all objects.
fn objects(root: &Path) -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("readable").flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else {
                found.push(entry.path().display().to_string());
            }
        }
    }
    found.sort();
    found
}

async fn analyze(server: &Server, query: &str) -> Value {
    let (start, end) = ((T0_MS / 1000).to_string(), (T0_MS / 1000 + 199).to_string());
    let params = [("query", query), ("start", &start), ("end", &end), ("step", "5"), ("explain", "analyze")];
    let answer = server.get_with("/metrics-api/api/v1/query_range", &params).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["data"]["totals"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_run_reads_no_object() {
    let (dir, s3) = (tempfile::tempdir().expect("a folder"), S3Server::start().await);
    let server = Server::start(dir.path(), &s3.options()).await;
    for round in 0..10 {
        write_round(&server, round).await;
    }
    server.compact().await;
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(dir.path(), &s3.options()).await;
    for query in ["sum(rate(m[1m]))", "m{instance=\"instance-0042\"}", "max by (instance) (m{instance=~\".*7\"})"] {
        let before = s3.part_reads();
        let first = analyze(&server, query).await;
        let between = s3.part_reads();
        let second = analyze(&server, query).await;
        assert_eq!(s3.part_reads(), between, "{query}: {second}");
        for counter in ["objects_read", "bytes_read", "index_bytes_read"] {
            assert_eq!(second[counter], 0, "{query}: {counter} of {second}");
        }
        assert_eq!(first["samples"], second["samples"], "{query}");
        assert!(second["samples"].as_u64() > Some(0), "{query}: {second}");
        if query.starts_with("sum") {
            assert!(between > before && first["objects_read"].as_u64() > Some(0), "{query}: {first}");
        }
    }
    let unknown = analyze(&server, "nothing_of_that_name").await;
    assert_eq!((&unknown["parts_read"], &unknown["objects_read"]), (&Value::from(0), &Value::from(0)), "{unknown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_files_go_up_in_parts() {
    let (dir, s3) = (tempfile::tempdir().expect("a folder"), S3Server::start().await);
    let server = Server::start(dir.path(), &s3.options()).await;
    // Doubles that no codec makes smaller: some 7 bytes for each of 3 million.
    let mut bits = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        f64::from_bits(bits >> 12 | 0x3ff0_0000_0000_0000)
    };
    let names: Vec<String> = (0..30).map(|i| i.to_string()).collect();
    for name in &names {
        let samples = (0..100_000).map(|s| (T0_MS + s * 500, next())).collect();
        server.write(remote_write(&[(vec![("__name__", "noise"), ("n", name)], samples)])).await;
    }
    server.compact().await;
    let large =
        objects(&s3.root()).into_iter().filter(|path| std::fs::metadata(path).is_ok_and(|m| m.len() > 16 << 20));
    assert!(large.count() > 0, "no file is large enough for this test");
    assert_eq!(server.stop(), Some(0));
    offline(&["store", "check"], dir.path(), &s3.options());
    let server = Server::start(dir.path(), &s3.options()).await;
    let data = server.query("count_over_time(noise{n=\"17\"}[1d])", (T0_MS / 1000 + 50_000) as f64).await;
    assert_eq!(data["result"][0]["value"][1], "100000", "{data}");
    assert_eq!(server.stop(), Some(0));
}
