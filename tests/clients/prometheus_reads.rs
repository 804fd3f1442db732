//! Debian's Prometheus as a reader: it federates the newest samples, and answers queries from this server's store by
//! remote read, with the same results as this server's own.

use std::path::Path;
use std::time::Duration;

use quiver_tests::bodies::{Series, remote_write};
use quiver_tests::server::{Options, Server};
use serde_json::Value;

use crate::compared_answers::same;
use crate::prometheus::{params, seconds};
use crate::tools::{Program, free_port, program, until};

/// A Prometheus of its own for each way of reading, so that one cannot answer for the other.
struct Reader {
    _program: Program,
    url: String,
    client: reqwest::Client,
}

impl Reader {
    fn start(folder: &Path, config: &str) -> Self {
        let listen = format!("127.0.0.1:{}", free_port());
        let config_file = folder.join("reader.yml");
        std::fs::write(&config_file, config).expect("writable");
        let mut prometheus = program("prometheus");
        prometheus
            .arg(format!("--config.file={}", config_file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()))
            .arg(format!("--web.listen-address={listen}"));
        let program = Program::start(&mut prometheus, &folder.join("reader.log"));
        Self { _program: program, url: format!("http://{listen}"), client: reqwest::Client::new() }
    }

    /// Gives the answer; `None`: there is none yet.
    async fn ask(&self, path: &str, pairs: &[(&str, String)]) -> Option<Value> {
        let sent = self.client.get(format!("{}{path}", self.url)).query(&params(pairs)).send().await.ok()?;
        let answer: Value = sent.json().await.ok()?;
        Some(answer).filter(|a| a["status"] == "success")
    }
}

fn now_ms() -> i64 {
    std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as i64
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_federates_from_us() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(&folder.path().join("data"), &Options::default()).await;
    let at = now_ms() - 1000;
    let names: Vec<String> = (0..200).map(|i| format!("i{i:03}")).collect();
    let mut series: Vec<Series<'_>> = names
        .iter()
        .zip(0..)
        .map(|(n, i)| {
            (vec![("__name__", "fed_load"), ("job", "app"), ("instance", n.as_str())], vec![(at, f64::from(i) / 7.0)])
        })
        .collect();
    series.push((vec![("__name__", "fed_sum"), ("job", "app"), ("path", "a \"b\"\\ü\n")], vec![(at, -1.5e-9)]));
    series.push((vec![("__name__", "fed_inf"), ("job", "app")], vec![(at, f64::INFINITY)]));
    series.push((vec![("__name__", "left_out"), ("job", "other")], vec![(at, 1.0)]));
    server.write(remote_write(&series)).await;
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n\
         scrape_configs:\n\
         - job_name: federate\n\
        \x20 honor_labels: true\n\
        \x20 metrics_path: /metrics-api/federate\n\
        \x20 params: {{'match[]': ['{{job=\"app\"}}', 'fed_sum']}}\n\
        \x20 static_configs: [{{targets: ['{}']}}]\n",
        server.http
    );
    let reader = Reader::start(folder.path(), &config);
    let counted = || vec![("query", "count({job=\"app\",__name__!=\"up\"}) == 202".to_owned())];
    until("all series", Duration::from_mins(5), async || {
        let answer = reader.ask("/api/v1/query", &counted()).await;
        answer.is_some_and(|a| a["data"]["result"] != Value::Array(vec![]))
    })
    .await;
    // The times of the samples are ours, not those of the scrape.
    for query in ["{job=\"app\"}", "timestamp({job=\"app\"})", "{__name__=~\"fed_.*|left_out\",job!=\"other\"}"] {
        let pairs = [("query", query.to_owned()), ("time", seconds(at + 500))];
        let theirs = reader.ask("/api/v1/query", &pairs).await.expect("an answer");
        let ours = server.query(query, (at + 500) as f64 / 1000.0).await;
        same(&theirs["data"], &ours).unwrap_or_else(|e| panic!("{query}: {e}"));
        assert_eq!(ours["result"].as_array().map(Vec::len), Some(202), "{query}");
    }
    // One scrape may have come too late.
    until("a scrape that is whole", Duration::from_mins(5), async || {
        let up = reader.ask("/api/v1/query", &[("query", "up{job=\"federate\"}".to_owned())]).await;
        up.is_some_and(|up| up["data"]["result"][0]["value"][1] == "1")
    })
    .await;
}

/// Queries that read windows, offsets, many series and single ones.
const QUERIES: &[&str] = &[
    "rr_counter",
    "rr_counter{host=\"h07\"}",
    "sum by (zone) (rate(rr_counter[5m]))",
    "max_over_time(rr_gauge{zone=~\"z[12]\"}[10m])",
    "quantile(0.9, rr_gauge)",
    "increase(rr_counter{host!~\"h0.*\"}[15m] offset 20m)",
    "count by (__name__) ({__name__=~\"rr_.+\"})",
    "rr_gauge - on (host) rr_counter",
    "absent(rr_gauge{host=\"none\"})",
    "avg_over_time(rr_gauge[30m:1m])",
    "changes(rr_gauge[20m]) > 3",
    "topk(3, rr_gauge)",
];

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_answers_out_of_our_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(&folder.path().join("data"), &Options::default()).await;
    // Three hours, from before anything that the reader could have itself.
    // Between two seconds: samples at the left end of a lookback count in this version, in newer ones they do not.
    let start = (now_ms() - 4 * 3_600_000) / 1000 * 1000 + 500;
    let hosts: Vec<String> = (0..40).map(|i| format!("h{i:02}")).collect();
    let zones = ["z1", "z2", "z3"];
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    let mut series: Vec<Series<'_>> = Vec::new();
    for (host, i) in hosts.iter().zip(0_i64..) {
        let labels =
            |name: &'static str| vec![("__name__", name), ("host", host.as_str()), ("zone", zones[i as usize % 3])];
        // Gaps, resets and ends.
        let there = |k: &i64| k % 97 != i % 97 && !(300..330).contains(&(k + i));
        let counter = |k: i64| (k % (200 + i) * (i + 1)) as f64;
        let gauge = |k: i64| if k == 600 + i { stale } else { ((k * 37 + i * 11) % 101) as f64 / 3.0 };
        series.push((
            labels("rr_counter"),
            (0..720).filter(there).map(|k| (start + k * 15_000 + i, counter(k))).collect(),
        ));
        series.push((labels("rr_gauge"), (0..720).filter(there).map(|k| (start + k * 15_000 + i, gauge(k))).collect()));
    }
    let (first, second) = series.split_at(30);
    server.write(remote_write(first)).await;
    server.flush().await;
    server.write(remote_write(second)).await;
    let config = format!(
        "global: {{scrape_interval: 1m}}\nremote_read:\n- {{url: '{}', read_recent: true}}\n",
        server.url("/metrics-api/api/v1/read")
    );
    let reader = Reader::start(folder.path(), &config);
    let ready = || vec![("query", "vector(1)".to_owned())];
    until("the reader", Duration::from_mins(5), async || reader.ask("/api/v1/query", &ready()).await.is_some()).await;
    // Off the grid of samples: this version counts the left end of a window, newer ones do not.
    let (from, to) = (start + 30 * 60_000 + 7_777, start + 170 * 60_000 + 7_777);
    let mut wrong = Vec::new();
    for query in QUERIES {
        let range = vec![("start", seconds(from)), ("end", seconds(to)), ("step", "313".to_owned())];
        for (path, mut pairs) in [("/api/v1/query", vec![("time", seconds(to))]), ("/api/v1/query_range", range)] {
            pairs.push(("query", (*query).to_owned()));
            let theirs = reader.ask(path, &pairs).await.unwrap_or_else(|| panic!("the reader refuses {query}"));
            assert_eq!(theirs.get("warnings"), None, "{query}: {theirs}");
            let all = params(&pairs);
            let given: Vec<(&str, &str)> = all.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let ours = server.get_with(&format!("/metrics-api{path}"), &given).await.json();
            assert!(ours["data"]["result"].as_array().is_some_and(|r| !r.is_empty()), "{query}: {ours}");
            if let Err(difference) = same(&theirs["data"], &ours["data"]) {
                wrong.push(format!("{path} {query}: {difference}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} answers differ:\n{}", wrong.len(), wrong.join("\n"));
    let values = reader.ask("/api/v1/label/host/values", &[("start", seconds(from)), ("end", seconds(to))]).await;
    assert!(values.is_some(), "looking for labels does no harm");
}
