//! The counters of `explain` show pruning.

use quiver_tests::bodies::{Series, remote_write};
use quiver_tests::server::{Options, Server};
use serde_json::Value;

const DAY_S: i64 = 86_400;
const T0_S: i64 = 1_699_920_000;

async fn analyze(server: &Server, query: &str, start: i64, end: i64) -> Value {
    let (start, end) = (start.to_string(), end.to_string());
    let params = [("query", query), ("start", &start), ("end", &end), ("step", "60"), ("explain", "analyze")];
    let answer = server.get_with("/metrics-api/api/v1/query_range", &params).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["data"].clone()
}

fn total(explained: &Value, name: &str) -> u64 {
    explained["totals"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {explained}"))
}

/// Counts that grow by what looks like chance, so that they compress no better than real ones.
fn noise(step: i64, series: i64) -> f64 {
    let mixed = (step * 8191 + series) as u64;
    let mixed = (mixed ^ (mixed >> 7)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 48;
    (step * 65_536 + mixed as i64) as f64
}

/// Writes `series` series with a sample each `step_s` over a day.
async fn fill_day(server: &Server, day: i64, series: usize, step_s: i64) {
    let names: Vec<String> = (0..series).map(|i| format!("instance-{i:05}")).collect();
    for chunk in names.chunks(500) {
        let rows: Vec<Series<'_>> = chunk
            .iter()
            .enumerate()
            .map(|(i, name)| {
                let samples =
                    (0..DAY_S / step_s).map(|s| ((T0_S + day * DAY_S + s * step_s) * 1000, noise(s, i as i64)));
                (vec![("__name__", "m_total"), ("instance", name.as_str()), ("job", "x")], samples.collect())
            })
            .collect();
        server.write(remote_write(&rows)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_series_of_many_reads_little() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    fill_day(&server, 0, 10_000, 120).await;
    server.compact().await;
    let bytes = |kind: &str| {
        let mut sum = 0;
        let mut folders = vec![dir.path().join("store").join("metrics")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("readable").flatten() {
                if entry.path().is_dir() {
                    folders.push(entry.path());
                } else if entry.file_name().to_string_lossy().ends_with(&format!(".{kind}.parquet")) {
                    sum += entry.metadata().map_or(0, |m| m.len());
                }
            }
        }
        sum
    };
    let samples_bytes = bytes("samples");
    assert!(samples_bytes > 1 << 20, "{samples_bytes}");
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(dir.path(), &Options::default()).await;
    let query = "rate(m_total{instance=\"instance-04711\"}[15m])";
    let first = analyze(&server, query, T0_S, T0_S + DAY_S - 1).await;
    let (data, index) = (total(&first, "bytes_read"), total(&first, "index_bytes_read"));
    assert!(data > 0 && data * 50 <= samples_bytes, "{data} of {samples_bytes} bytes of samples");
    assert!(
        index > 0 && index <= samples_bytes / 100 * 3 + bytes("series"),
        "{index} bytes of indexes, {samples_bytes}"
    );
    let second = analyze(&server, query, T0_S, T0_S + DAY_S - 1).await;
    assert_eq!(total(&second, "index_bytes_read"), 0, "{second}");
    assert!(first["logical"].is_string() && first["physical"].is_string() && first["nodes"].is_array());
    let unknown = analyze(&server, "nothing_of_that_name", T0_S, T0_S + DAY_S - 1).await;
    assert_eq!((total(&unknown, "parts_read"), total(&unknown, "objects_read")), (0, 0), "{unknown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_day_of_many_opens_its_parts_only() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    for day in 0..30 {
        fill_day(&server, day, 50, 600).await;
    }
    server.compact().await;
    let noon = T0_S + 17 * DAY_S + DAY_S / 2;
    let explained = analyze(&server, "sum(m_total)", noon, noon + 3600).await;
    assert_eq!(total(&explained, "parts_read"), 1, "{explained}");
    assert!(total(&explained, "parts_total") >= 30, "{explained}");
}
