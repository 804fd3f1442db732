//! Everything that was written is returned: at once, after flush, after compaction, after a restart, with the catalog
//! lost. Each test runs over a local store and over S3.

use std::path::{Path, PathBuf};
use std::process::Command;

use quiver_tests::bodies::{Series, remote_write};
use quiver_tests::held_server::Hold;
use quiver_tests::s3::S3Server;
use quiver_tests::server::{Options, Server, binary, run};
use serde_json::{Value, json};

/// Two jobs with two counters each, 15 s apart, for an hour from `T0_MS`.
const T0_MS: i64 = 1_700_000_000_000;
const SAMPLES: i64 = 240;

async fn fill(server: &Server) {
    for minute in 0..SAMPLES / 4 {
        let mut series: Vec<Series<'_>> = Vec::new();
        for job in ["api", "db"] {
            for instance in ["a", "b"] {
                let rate = if job == "api" { 2.0 } else { 3.0 };
                let sample = |i: i64| (T0_MS + (minute * 4 + i) * 15_000, (minute * 4 + i) as f64 * 15.0 * rate);
                let labels = vec![("__name__", "requests_total"), ("job", job), ("instance", instance)];
                series.push((labels, (0..4).map(sample).collect()));
            }
        }
        server.write(remote_write(&series)).await;
    }
}

async fn check(server: &Server, state: &str) {
    let end = (T0_MS / 1000 + (SAMPLES - 1) * 15) as f64;
    let sums = server.query("sort(sum by (job) (rate(requests_total[5m])))", end).await;
    let shown: Vec<(String, f64)> = sums["result"].as_array().expect("a vector").iter().map(value_of).collect();
    assert_eq!(shown.len(), 2, "{state}: {sums}");
    assert_eq!((shown[0].0.as_str(), shown[1].0.as_str()), ("api", "db"), "{state}");
    assert!((shown[0].1 - 4.0).abs() < 1e-9 && (shown[1].1 - 6.0).abs() < 1e-9, "{state}: {shown:?}");

    let matrix = server.query_range("count(requests_total)", T0_MS as f64 / 1000.0, end, 60.0).await;
    assert_eq!(matrix["resultType"], "matrix", "{state}");
    let values = matrix["result"][0]["values"].as_array().expect("values");
    assert!(values.iter().all(|v| v[1] == "4"), "{state}: {matrix}");
    assert_eq!(values.len(), 60, "{state}");

    let raw = server.query("requests_total{job=\"api\",instance=\"a\"}[1h]", end).await;
    assert_eq!(raw["result"][0]["values"].as_array().map(Vec::len), Some(SAMPLES as usize), "{state}");
    assert_eq!(raw["result"][0]["values"][1], json!([1_700_000_015, "30"]), "{state}");

    let labels = server.get("/metrics-api/api/v1/labels").await.json();
    assert_eq!(labels["data"], json!(["__name__", "instance", "job"]), "{state}");
    let jobs = server.get("/metrics-api/api/v1/label/job/values").await.json();
    assert_eq!(jobs["data"], json!(["api", "db"]), "{state}");
    let params = [("match[]", "requests_total{job=\"db\"}"), ("limit", "1")];
    let series = server.get_with("/metrics-api/api/v1/series", &params).await.json();
    assert_eq!(series["data"], json!([{"__name__": "requests_total", "instance": "a", "job": "db"}]), "{state}");
    assert_eq!(series["warnings"], json!(["results truncated due to limit"]), "{state}");
}

fn value_of(entry: &Value) -> (String, f64) {
    let job = entry["metric"]["job"].as_str().unwrap_or_default().to_owned();
    (job, entry["value"][1].as_str().and_then(|v| v.parse().ok()).expect("a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_answers_in_every_state() {
    every_state(&Options::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_answers_in_every_state_over_s3() {
    let s3 = S3Server::start().await;
    every_state(&s3.options()).await;
    assert!(s3.root().join("_quiver.json").is_file(), "the store is used");
}

async fn every_state(options: &Options) {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), options).await;
    fill(&server).await;
    check(&server, "live").await;
    server.flush().await;
    check(&server, "flushed").await;
    fill(&server).await;
    check(&server, "flushed and the same again live").await;
    server.compact().await;
    check(&server, "compacted").await;
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(dir.path(), options).await;
    check(&server, "restarted").await;
    fill(&server).await;
    server.kill();
    let server = Server::start(dir.path(), options).await;
    check(&server, "killed and replayed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bits_survive() {
    bits(&Options::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bits_survive_over_s3() {
    let s3 = S3Server::start().await;
    bits(&s3.options()).await;
}

async fn bits(options: &Options) {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), options).await;
    let values = [0.1, -0.0, f64::INFINITY, 1e300, 123_456.789, 5e-324];
    let samples = values.iter().enumerate().map(|(i, v)| (T0_MS + i as i64 * 1000, *v)).collect();
    server.write(remote_write(&[(vec![("__name__", "m")], samples)])).await;
    for state in ["live", "flushed", "compacted"] {
        let data = server.query("m[1m]", (T0_MS / 1000 + 30) as f64).await;
        let shown: Vec<&str> =
            data["result"][0]["values"].as_array().expect("values").iter().filter_map(|v| v[1].as_str()).collect();
        assert_eq!(shown, ["0.1", "-0", "+Inf", "1e+300", "123456.789", "5e-324"], "{state}");
        if state == "live" { server.flush().await } else { server.compact().await }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_catalog_is_rebuilt() {
    let dir = tempfile::tempdir().expect("a folder");
    rebuilt(dir.path(), &Options::default(), &dir.path().join("store")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_catalog_is_rebuilt_over_s3() {
    let (dir, s3) = (tempfile::tempdir().expect("a folder"), S3Server::start().await);
    rebuilt(dir.path(), &s3.options(), &s3.root()).await;
}

/// `root` is the folder in which the objects lie.
async fn rebuilt(data: &Path, options: &Options, root: &Path) {
    let server = Server::start(data, options).await;
    fill(&server).await;
    server.compact().await;
    fill(&server).await;
    server.flush().await;
    fill(&server).await;
    server.kill();
    for file in ["quiver.db", "quiver.db-wal", "quiver.db-shm"] {
        let _ = std::fs::remove_file(data.join(file));
    }
    let (code, _, errors) = run(&mut quiver_tests::server::command(data, options));
    assert_eq!(code, Some(1), "{errors}");
    // It may also be the store of another server, of which a rebuild would make a second one.
    assert!(errors.contains("if another server uses it") && errors.contains("quiver catalog rebuild"), "{errors}");
    let (code, _, errors) = offline(&["catalog", "rebuild"], data, options);
    assert_eq!(code, Some(0), "{errors}");
    let (code, shown, errors) = offline(&["store", "check"], data, options);
    assert_eq!(code, Some(0), "{shown}{errors}");
    let server = Server::start(data, options).await;
    check(&server, "rebuilt").await;
    let (code, _, errors) = offline(&["store", "check"], data, options);
    assert_eq!(code, Some(1), "not while the server runs: {errors}");
    server.compact().await;
    check(&server, "rebuilt and compacted").await;
    assert_eq!(server.stop(), Some(0));
    let (code, shown, errors) = offline(&["store", "check"], data, options);
    assert_eq!(code, Some(0), "{shown}{errors}");
    // One bit of the samples.
    let samples = samples_file(&root.join("metrics")).expect("a file of samples");
    let mut bytes = std::fs::read(&samples).expect("readable");
    bytes[100] ^= 1;
    std::fs::write(&samples, bytes).expect("writable");
    let (code, shown, errors) = offline(&["store", "check"], data, options);
    assert_eq!(code, Some(1), "{shown}{errors}");
    let name = samples.file_name().and_then(|n| n.to_str()).expect("a name");
    assert!(shown.contains(name), "{shown}{errors}");
}

fn samples_file(folder: &Path) -> Option<PathBuf> {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder).ok()?.flatten().map(|e| e.path()).collect();
    entries.sort();
    entries.into_iter().find_map(|path| {
        if path.is_dir() {
            return samples_file(&path);
        }
        path.to_string_lossy().ends_with(".samples.parquet").then_some(path)
    })
}

/// Runs a command that needs the server to be down.
fn offline(words: &[&str], data: &Path, options: &Options) -> (Option<i32>, String, String) {
    let mut command = Command::new(binary());
    command.args(words).arg("--data").arg(data).args(&options.args);
    command.envs(options.env.iter().map(|(name, value)| (name, value)));
    run(&mut command)
}

/// Writes wait for what a flush takes beside what it writes, so it counts until the flush has ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_flush_counts_its_memory() {
    let dir = tempfile::tempdir().expect("a folder");
    let hold = Hold::default();
    let options = Options::default().env("QUIVER_FAILPOINT", hold.at("flush.after-part"));
    let server = Server::start(dir.path(), &options).await;
    let counted = async || {
        let all = server.get("/metrics").await.text();
        let line = all.lines().find_map(|line| line.strip_prefix("quiver_flush_memory_bytes "));
        line.and_then(|bytes| bytes.parse::<f64>().ok()).expect("a number")
    };
    server.write(remote_write(&[(vec![("__name__", "up")], vec![(T0_MS, 1.0)])])).await;
    assert!(counted().await < 1.0);
    let held = async {
        hold.reached().await;
        let bytes = counted().await;
        hold.release();
        bytes
    };
    let ((), bytes) = tokio::join!(server.flush(), held);
    assert!(bytes >= 192.0, "{bytes}");
    assert!(counted().await < 1.0, "it is given back");
}
