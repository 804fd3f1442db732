//! What a small query reads does not grow with data that is not in its result. The same queries are run on stores with
//! ten times as many series, streams and days, right after a start, and counters of reads are compared; nothing depends
//! on timing.

use std::time::Duration;

use quiver_tests::bodies::{Series, remote_write};
use quiver_tests::load::soak;
use quiver_tests::server::{Options, Server};
use serde_json::Value;

const DAY_S: i64 = 86_400;
const T0_S: i64 = 1_699_920_000;
/// What a query may read in a store that is ten times as large, in percent.
const GROWTH_MAX: u64 = 120;
/// Reads that depend on where the border of a page falls, not on how much there is.
const BORDER: u64 = 2;
/// Series of an answer are in order of their labels: among ten thousands some share a page, among millions each stands in
/// pages of its own, of so many columns and indexes.
const PAGES_OF_SERIES: u64 = 3;
/// Streams of the answer of a list: in order of their ids, so each may stand in a block of its own, as they do in any large
/// store; in a small one they share a few.
const APART: u64 = 30;
/// Series and streams of a pod.
const PER_POD: usize = 10;

/// How many series or streams the stores have, each ten times as many as the one before.
fn sizes() -> &'static [usize] {
    if soak() { &[100_000, 1_000_000, 10_000_000] } else { &[10_000, 100_000] }
}

/// A query of the table below: what it is, its path, its parameters.
struct Asked {
    what: &'static str,
    path: &'static str,
    params: &'static [(&'static str, &'static str)],
    /// Reads that it may have more, since its answer stands further apart.
    spread: u64,
    /// Series that it finds.
    series: u64,
}

/// Small queries of metrics; each has the same answer in every store.
const METRICS: &[Asked] = &[
    Asked { what: "one label", path: "query", params: &[("query", "m{pod=\"pod-77\"}")], spread: BORDER, series: 10 },
    Asked {
        what: "two labels",
        path: "query",
        params: &[("query", "m{pod=\"pod-77\",slot=\"3\"}")],
        spread: BORDER,
        series: 1,
    },
    Asked {
        what: "a list",
        path: "query",
        params: &[("query", "sum by (slot) (m{pod=~\"pod-77|pod-78|pod-79\"})")],
        spread: BORDER,
        series: 30,
    },
    Asked {
        what: "without the name",
        path: "query",
        params: &[("query", "{pod=\"pod-77\"}")],
        spread: BORDER,
        series: 10,
    },
    Asked {
        what: "an absent label",
        path: "query",
        params: &[("query", "m{pod=\"pod-77\",nowhere=\"\"}")],
        spread: BORDER,
        series: 10,
    },
    Asked {
        what: "all but one",
        path: "query",
        params: &[("query", "m{pod=\"pod-77\",slot!=\"3\"}")],
        spread: BORDER,
        series: 9,
    },
    Asked {
        what: "a pattern",
        path: "query",
        params: &[("query", "m{pod=\"pod-77\",slot=~\"[0-4]\"}")],
        spread: BORDER,
        series: 5,
    },
    Asked { what: "another metric", path: "query", params: &[("query", "few")], spread: BORDER, series: 5 },
    Asked {
        what: "nothing",
        path: "query",
        params: &[("query", "m{pod=\"pod-of-nobody\"}")],
        spread: BORDER,
        series: 0,
    },
    Asked { what: "series", path: "series", params: &[("match[]", "m{pod=\"pod-77\"}")], spread: BORDER, series: 10 },
    Asked { what: "names", path: "labels", params: &[("match[]", "m{pod=\"pod-77\"}")], spread: BORDER, series: 10 },
    Asked {
        what: "values",
        path: "label/slot/values",
        params: &[("match[]", "m{pod=\"pod-77\"}")],
        spread: BORDER,
        series: 10,
    },
];

/// Small queries of logs, likewise.
const LOGS: &[Asked] = &[
    Asked {
        what: "a stream",
        path: "query",
        params: &[("query", "{pod=\"pod-77\",slot=\"3\"}")],
        spread: BORDER,
        series: 0,
    },
    Asked {
        what: "streams of a pod",
        path: "query",
        params: &[("query", "{pod=\"pod-77\"}")],
        spread: BORDER,
        series: 0,
    },
    Asked {
        what: "a list",
        path: "query",
        params: &[("query", "{pod in (\"pod-77\",\"pod-78\",\"pod-79\")} | stats count() n")],
        spread: APART,
        series: 0,
    },
    Asked {
        what: "a word in a stream",
        path: "query",
        params: &[("query", "{pod=\"pod-77\"} request | stats by (slot) count() n")],
        spread: BORDER,
        series: 0,
    },
    Asked {
        what: "nothing",
        path: "query",
        params: &[("query", "{pod=\"pod-of-nobody\"}")],
        spread: BORDER,
        series: 0,
    },
    Asked {
        what: "values",
        path: "field_values",
        params: &[("query", "{pod=\"pod-77\"}"), ("field", "slot")],
        spread: BORDER,
        series: 0,
    },
    Asked { what: "streams", path: "streams", params: &[("query", "{pod=\"pod-77\"}")], spread: BORDER, series: 0 },
];

/// Counters of what a query fetched and decoded; what it found is the same everywhere.
const READS: &[&str] = &["objects_read", "pages_read", "index_pages_read", "stream_blocks_read"];

/// Gives the sum of the counters of reads of an explained query.
fn reads(explained: &Value) -> u64 {
    let totals = &explained["totals"];
    assert!(totals.is_object(), "no totals in {explained}");
    READS.iter().map(|name| totals[name].as_u64().unwrap_or_else(|| panic!("no {name} in {totals}"))).sum()
}

/// Asks all of a table of a server that was just started: what each read, and what it answers.
async fn ask(server: &Server, base: &str, table: &[Asked], times: &[(&str, &str)]) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    for asked in table {
        let path = format!("{base}/{}", asked.path);
        let params = [asked.params, times].concat();
        let answer = server.get_with(&path, &[&params[..], &[("explain", "analyze")]].concat()).await;
        assert_eq!(answer.status, 200, "{}: {}", asked.what, answer.text());
        let explained = answer.json();
        let explained = if explained["data"].is_object() { explained["data"].clone() } else { explained };
        let answer = server.get_with(&path, &params).await;
        assert_eq!(answer.status, 200, "{}: {}", asked.what, answer.text());
        found.push((reads(&explained), answer.body));
    }
    found
}

/// Compares what the same table read in stores of growing size.
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
fn compare(signal: &str, table: &[Asked], found: &[Vec<(u64, Vec<u8>)>], sizes: &[usize]) {
    let mut grown = Vec::new();
    for (n, asked) in table.iter().enumerate() {
        let of: Vec<u64> = found.iter().map(|rows| rows[n].0).collect();
        println!("{signal}, {}: {of:?} reads of {sizes:?}", asked.what);
        for pair in of.windows(2) {
            let apart = if soak() { asked.series * PAGES_OF_SERIES } else { 0 };
            if pair[1] * 100 > pair[0] * GROWTH_MAX + (asked.spread + apart) * 100 {
                grown.push(format!("{}: {of:?}", asked.what));
            }
        }
        for rows in &found[1..] {
            assert_eq!(rows[n].1.len(), found[0][n].1.len(), "{}: answers differ", asked.what);
        }
    }
    assert!(grown.is_empty(), "{signal} over {sizes:?}: {grown:?}");
}

/// Sends a body until it is taken; a store that is behind says so.
async fn send(server: &Server, path: &str, body: Vec<u8>) {
    loop {
        let answer = server.post(path, &[], body.clone()).await;
        match answer.status {
            200 | 204 => return,
            429 | 503 => tokio::time::sleep(Duration::from_millis(100)).await,
            other => panic!("{path}: {other} {}", answer.text()),
        }
    }
}

/// Text of series with one sample each.
fn exposition(from: usize, to: usize) -> Vec<u8> {
    let row = |i: usize| {
        let (pod, slot) = (i / PER_POD, i % PER_POD);
        format!(
            "m{{job=\"s{}\",pod=\"pod-{pod}\",slot=\"{slot}\",l{}=\"v{}\"}} {i} {}\n",
            pod % 40,
            i % 300,
            i % 97,
            T0_S * 1000
        )
    };
    (from..to).map(row).collect::<String>().into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn few_series_among_many_read_the_same() {
    let mut found = Vec::new();
    for &size in sizes() {
        let dir = tempfile::tempdir().expect("a folder");
        let server = Server::start(dir.path(), &Options::default()).await;
        let few: String = (0..5).map(|i| format!("few{{job=\"s1\",i=\"{i}\"}} {i} {}\n", T0_S * 1000)).collect();
        let path = "/metrics-api/api/v1/import/prometheus";
        let mut bodies = vec![few.into_bytes()];
        bodies.extend((0..size).step_by(20_000).map(|from| exposition(from, size.min(from + 20_000))));
        for body in bodies {
            send(&server, path, body).await;
        }
        server.compact().await;
        assert_eq!(server.stop(), Some(0));
        let server = Server::start(dir.path(), &Options::default()).await;
        let (start, end) = ((T0_S - 60).to_string(), (T0_S + 60).to_string());
        let times = [("time", end.as_str()), ("start", start.as_str()), ("end", end.as_str())];
        found.push(ask(&server, "/metrics-api/api/v1", METRICS, &times).await);
    }
    compare("metrics", METRICS, &found, sizes());
}

#[tokio::test(flavor = "multi_thread")]
async fn few_streams_among_many_read_the_same() {
    let mut found = Vec::new();
    for &size in sizes() {
        let dir = tempfile::tempdir().expect("a folder");
        let server = Server::start(dir.path(), &Options::default()).await;
        for from in (0..size).step_by(20_000) {
            let row = |i: usize| {
                let (pod, slot) = (i / PER_POD, i % PER_POD);
                format!(
                    "{{\"_time\":{},\"_msg\":\"request {} served\",\"pod\":\"pod-{pod}\",\"slot\":\"{slot}\",\"app\":\"app{}\"}}\n",
                    T0_S * 1_000_000_000 + i as i64,
                    i % 1000,
                    pod % 40
                )
            };
            let body: String = (from..size.min(from + 20_000)).map(row).collect();
            let path = "/insert/jsonline?_stream_fields=app,pod,slot";
            send(&server, path, body.into_bytes()).await;
        }
        server.compact().await;
        assert_eq!(server.stop(), Some(0));
        let server = Server::start(dir.path(), &Options::default()).await;
        let (start, end) = ((T0_S - 60).to_string(), (T0_S + 60).to_string());
        found.push(ask(&server, "/logs-api/select/logsql", LOGS, &[("start", &start), ("end", &end)]).await);
    }
    compare("logs", LOGS, &found, sizes());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_hour_reads_the_same_of_many_days() {
    let days: &[usize] = &[1, 30, 300];
    let mut found = Vec::new();
    for &size in days {
        let dir = tempfile::tempdir().expect("a folder");
        let server = Server::start(dir.path(), &Options::default()).await;
        for day in 0..size as i64 {
            let names: Vec<String> = (0..20).map(|i| format!("pod-{}", 70 + i)).collect();
            let rows: Vec<Series<'_>> = names
                .iter()
                .map(|pod| {
                    let samples = (0..24).map(|hour| ((T0_S - day * DAY_S + hour * 3600) * 1000, hour as f64));
                    (vec![("__name__", "m"), ("pod", pod.as_str()), ("slot", "3"), ("job", "s1")], samples.collect())
                })
                .collect();
            server.write(remote_write(&rows)).await;
        }
        server.compact().await;
        assert_eq!(server.stop(), Some(0));
        let server = Server::start(dir.path(), &Options::default()).await;
        let (start, end) = ((T0_S + 3600).to_string(), (T0_S + 7200).to_string());
        let times = [("time", end.as_str()), ("start", start.as_str()), ("end", end.as_str())];
        found.push(ask(&server, "/metrics-api/api/v1", METRICS, &times).await);
    }
    compare("days of metrics", METRICS, &found, days);
}
