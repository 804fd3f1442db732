//! Debian's Prometheus scrapes itself and a node exporter and remote-writes everything to this server for a while. Then
//! both must answer the same queries alike, and promtool must work against this server.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use quiver_tests::server::{Options, Server, run};
use serde_json::Value;

use crate::compared_answers::same;
use crate::prometheus_queries::{FUNCTIONS, INSTANT, RANGE};
use crate::tools::{Program, free_port, program, soak, until};

/// Before the first evaluation all series exist for longer than any window.
const WARM_UP_S: i64 = 32;

/// Prometheus with its node exporter.
struct Prometheus {
    _programs: [Program; 2],
    url: String,
    client: reqwest::Client,
}

impl Prometheus {
    fn start(folder: &Path, write_to: &str) -> Self {
        let (own, node) = (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
        let config = format!(
            "global: {{scrape_interval: 2s, scrape_timeout: 2s}}\n\
             scrape_configs:\n\
             - {{job_name: prometheus, static_configs: [{{targets: ['{own}']}}]}}\n\
             - {{job_name: node, static_configs: [{{targets: ['{node}']}}]}}\n\
             remote_write:\n\
             - url: {write_to}\n\
            \x20 queue_config: {{max_shards: 1, batch_send_deadline: 1s}}\n"
        );
        let config_file = folder.join("prometheus.yml");
        std::fs::write(&config_file, config).expect("writable");
        let mut exporter = program("prometheus-node-exporter");
        exporter.arg(format!("--web.listen-address={node}"));
        let mut prometheus = program("prometheus");
        prometheus
            .arg(format!("--config.file={}", config_file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()))
            .arg(format!("--web.listen-address={own}"));
        let programs = [
            Program::start(&mut exporter, &folder.join("exporter.log")),
            Program::start(&mut prometheus, &folder.join("prometheus.log")),
        ];
        Self { _programs: programs, url: format!("http://{own}"), client: reqwest::Client::new() }
    }

    /// Gives `data` of an answer; `None`: it is not there yet.
    async fn ask(&self, path: &str, params: &[(String, String)]) -> Option<Value> {
        let sent = self.client.get(format!("{}{path}", self.url)).query(params).send().await.ok()?;
        let answer: Value = sent.json().await.ok()?;
        Some(answer["data"].clone()).filter(|_| answer["status"] == "success")
    }
}

pub(crate) fn params(pairs: &[(&str, String)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

pub(crate) fn seconds(ms: i64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

/// The times at which queries are evaluated, all at one place between whole seconds.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "all are times, and the unit ends the name")]
struct Grid {
    start_ms: i64,
    end_ms: i64,
    /// Milliseconds after the whole second.
    phase_ms: i64,
}

impl Grid {
    /// Finds the place between whole seconds that is farthest from all scrapes.
    fn of(scrapes_ms: &[i64], first_ms: i64, last_ms: i64) -> Self {
        let distance = |phase: i64| {
            let one = |ts: &i64| (ts - phase).rem_euclid(1000).min((phase - ts).rem_euclid(1000));
            scrapes_ms.iter().map(one).min().unwrap_or(0)
        };
        let phase_ms = (1..1000).max_by_key(|&phase| distance(phase)).unwrap_or(0);
        assert!(distance(phase_ms) >= 5, "no place is off the grid of scrapes: {scrapes_ms:?}");
        let align = |ms: i64| ms / 1000 * 1000 + phase_ms;
        Self { start_ms: align(first_ms + WARM_UP_S * 1000), end_ms: align(last_ms - 1000), phase_ms }
    }

    fn fill(self, query: &str) -> String {
        query.replace("$off", &format!("{}ms", 1000 - self.phase_ms))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_and_we_answer_alike() {
    let length_s = if soak() { 300 } else { 64 };
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(&folder.path().join("data"), &Options::default()).await;
    let prometheus = Prometheus::start(folder.path(), &server.url("/metrics-api/api/v1/write"));
    let both = || params(&[("query", "count(up == 1) == 2".to_owned())]);
    until("both targets", Duration::from_mins(5), async || {
        prometheus.ask("/api/v1/query", &both()).await.is_some_and(|d| d["result"] != Value::Array(Vec::new()))
    })
    .await;
    let newest = params(&[("query", "min(timestamp(up)) * 1000".to_owned())]);
    let first_ms = newest_ms(&prometheus.ask("/api/v1/query", &newest).await.expect("an answer"));
    let halfway_ms = first_ms + length_s * 500;
    until("half of the time", Duration::from_secs(400), async || newest_here(&server).await >= halfway_ms).await;
    // One half in parts, the other live.
    server.flush().await;
    let end_ms = first_ms + length_s * 1000;
    until("the rest of the time", Duration::from_secs(400), async || newest_here(&server).await >= end_ms).await;

    let window = format!("up[{}s]", length_s + 10);
    let raw = prometheus.ask("/api/v1/query", &params(&[("query", window), ("time", seconds(end_ms + 100))])).await;
    let raw = raw.expect("scrapes");
    let scrapes: Vec<i64> = raw["result"].as_array().expect("series").iter().flat_map(times_ms).collect();
    assert!(scrapes.len() as i64 > length_s / 2, "{} scrapes", scrapes.len());
    let grid = Grid::of(&scrapes, first_ms, end_ms);
    compare(&server, &prometheus, grid, "half flushed").await;
    server.compact().await;
    compare(&server, &prometheus, grid, "compacted").await;
    promtool(&server, grid);
}

/// Milliseconds of the last complete scrape that we have.
async fn newest_here(server: &Server) -> i64 {
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64();
    let data = server.query("(count(up) == 2) * 0 + min(timestamp(up)) * 1000", now).await;
    newest_ms(&data)
}

fn newest_ms(data: &Value) -> i64 {
    let value = data["result"][0]["value"][1].as_str().and_then(|v| v.parse::<f64>().ok());
    value.map_or(0, |v| v.round() as i64)
}

fn times_ms(series: &Value) -> Vec<i64> {
    let values = series["values"].as_array().expect("values");
    values.iter().filter_map(|v| v[0].as_f64()).map(|t| (t * 1000.0).round() as i64).collect()
}

async fn compare(server: &Server, prometheus: &Prometheus, grid: Grid, state: &str) {
    let (mut asked, mut ranges, mut filled, mut matching) = (0, 0, 0, 0);
    let (mut series, mut wrong) = (BTreeSet::new(), Vec::new());
    let instants =
        [grid.end_ms, grid.start_ms, i64::midpoint(grid.start_ms, grid.end_ms) / 1000 * 1000 + grid.phase_ms];
    for (i, (query, range)) in RANGE.iter().map(|q| (q, true)).chain(INSTANT.iter().map(|q| (q, false))).enumerate() {
        let text = grid.fill(query);
        let mut asks = Vec::new();
        if range {
            let step = [1, 2, 3, 7][i % 4];
            let times = [("start", seconds(grid.start_ms)), ("end", seconds(grid.end_ms)), ("step", step.to_string())];
            asks.push(("/api/v1/query_range", times.to_vec()));
        } else {
            asks.extend(instants.iter().map(|&at| ("/api/v1/query", vec![("time", seconds(at))])));
        }
        let mut any = false;
        for (path, mut times) in asks {
            times.push(("query", text.clone()));
            let params = params(&times);
            let theirs = prometheus.ask(path, &params).await.unwrap_or_else(|| panic!("Prometheus refuses {text}"));
            let pairs: Vec<(&str, &str)> = params.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let answer = server.get_with(&format!("/metrics-api{path}"), &pairs).await;
            let ours = answer.json()["data"].clone();
            if let Err(difference) = same(&theirs, &ours) {
                wrong.push(format!(
                    "{text} {times:?}: {difference}{}",
                    if answer.status == 200 { String::new() } else { answer.text() }
                ));
            }
            any |= theirs["result"].as_array().is_some_and(|r| !r.is_empty());
            let listed = theirs["result"].as_array().into_iter().flatten();
            series.extend(listed.filter_map(|s| s.get("metric")).map(Value::to_string));
        }
        asked += 1;
        ranges += usize::from(range);
        filled += usize::from(any);
        matching += usize::from(["on (", "ignoring ("].iter().any(|word| query.contains(word)));
    }
    assert!(wrong.is_empty(), "{state}: {} of {asked} queries differ:\n{}", wrong.len(), wrong.join("\n"));
    let called = |name: &&&str| {
        let call = format!("{name}(");
        let calls = |q: &&&str| {
            let before = |at: usize| q[..at].chars().next_back();
            q.match_indices(&call).any(|(at, _)| before(at).is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_'))
        };
        RANGE.iter().chain(INSTANT).any(|q| calls(&q))
    };
    let functions = FUNCTIONS.iter().filter(called).count();
    let counts = format!(
        "{state}: {asked} queries, {ranges} of them ranges, {filled} with an answer, {matching} with matching, \
         {functions} functions, {} series",
        series.len()
    );
    let enough =
        asked >= 60 && ranges >= 40 && filled >= 50 && matching >= 10 && functions >= 25 && series.len() >= 500;
    assert!(enough, "{counts}");
    show(&counts);
}

#[allow(clippy::print_stdout, reason = "seen with --nocapture only")]
fn show(text: &str) {
    println!("{text}");
}

fn promtool(server: &Server, grid: Grid) {
    let url = server.url("/metrics-api");
    let check = |args: &[&str], expected: &str| {
        let (code, output, errors) = run(program("promtool").args(args));
        assert_eq!(code, Some(0), "promtool {args:?}: {output}{errors}");
        assert!(output.contains(expected), "promtool {args:?}: {output}");
    };
    let (start, end) = (seconds(grid.start_ms), seconds(grid.end_ms));
    let at = format!("--time={end}");
    check(&["query", "instant", &at, &url, "sum by (job) (up)"], "{job=\"node\"} => 1 @[");
    let (from, to) = (format!("--start={start}"), format!("--end={end}"));
    check(&["query", "range", &from, &to, "--step=5s", &url, "up{job=\"node\"}"], "job=\"node\"} =>\n1 @[");
    check(&["query", "series", "--match=up", "--match=node_load1", &from, &to, &url], "__name__=\"node_load1\"");
    check(&["query", "labels", &from, &to, &url, "mode"], "idle\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn promtool_finds_nothing_amiss_in_our_own_metrics() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(&folder.path().join("data"), &Options::default()).await;
    let answer = server.get("/metrics").await;
    assert_eq!(answer.status, 200);
    let file = folder.path().join("metrics.txt");
    std::fs::write(&file, answer.text()).expect("writable");
    let mut promtool = program("promtool");
    promtool.args(["check", "metrics"]).stdin(std::fs::File::open(&file).expect("written"));
    let said = promtool.output().expect("it runs");
    let told = String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && told.trim().is_empty(), "{told}");
}
