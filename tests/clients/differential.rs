//! Differential test: thousands of generated expressions over generated data, asked of us and of Debian's Prometheus
//! 2.42; both got the same remote-write bodies. Answers must be equal, or one of `rules.rs` names the change between
//! 2.42 and 3.14 that explains the difference. A tenth runs in CI, all with `QUIVER_SOAK=1`; `QUIVER_SEED` sets the seed.

mod data;
mod grammar;
mod rules;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use quiver_tests::server::{Options, Server};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

use self::data::{LENGTH_MS, START_MS, bodies};
use self::grammar::{Grammar, Kind};
use self::rules::{Asked, RULES, explain, told_to_242};
use crate::compared_answers::{self, same_point};
use crate::tools::{Program, free_port, program, soak, until};

/// Expressions of the long run; a tenth of them otherwise.
const EXPRESSIONS: usize = 24_000;

/// Prometheus as a receiver of remote write.
struct Reference {
    _program: Program,
    url: String,
    client: reqwest::Client,
}

impl Reference {
    async fn start(folder: &Path) -> Self {
        let own = format!("127.0.0.1:{}", free_port());
        let config_file = folder.join("prometheus.yml");
        std::fs::write(&config_file, "global: {evaluation_interval: 1m}\n").expect("writable");
        let mut command = program("prometheus");
        command
            .arg(format!("--config.file={}", config_file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()))
            .args(["--web.enable-remote-write-receiver", "--storage.tsdb.retention.time=100y"])
            // The look-back window is open on the left since 3.0: a millisecond less is the same where it was closed.
            .arg("--query.lookback-delta=299999ms")
            .arg(format!("--web.listen-address={own}"));
        let program = Program::start(&mut command, &folder.join("prometheus.log"));
        let reference = Self { _program: program, url: format!("http://{own}"), client: reqwest::Client::new() };
        until("Prometheus", Duration::from_mins(5), async || {
            let ready = reference.client.get(format!("{}/-/ready", reference.url)).send().await;
            ready.is_ok_and(|answer| answer.status() == 200)
        })
        .await;
        reference
    }

    async fn write(&self, body: Vec<u8>) {
        let sent = self.client.post(format!("{}/api/v1/write", self.url));
        let answer = sent.header("Content-Encoding", "snappy").body(body).send().await.expect("it runs");
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap_or_default());
    }

    async fn ask(&self, path: &str, params: &[(&str, String)]) -> Value {
        let sent = self.client.get(format!("{}{path}", self.url)).query(params).send().await;
        sent.expect("it runs").json().await.expect("JSON")
    }
}

/// When an expression is asked: a time, or a range with a step, in ms.
#[derive(Debug, Clone, Copy)]
enum When {
    At(i64),
    Range(i64, i64, i64),
}

fn seconds(ms: i64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

impl When {
    fn draw(random: &mut StdRng, kind: Kind, range: bool) -> Self {
        let phase = if kind == Kind::OffGrid { 500 } else { 0 };
        let at = |random: &mut StdRng| {
            START_MS + random.random_range(8 * 60_000..LENGTH_MS + 400_000) / 15_000 * 15_000 + phase
        };
        let start = at(random);
        if !range {
            return Self::At(start);
        }
        let step = [15_000, 30_000, 60_000, 45_000, 300_000][random.random_range(0..5)];
        Self::Range(start, start + step * random.random_range(1..40), step)
    }

    fn params(self, query: &str) -> (&'static str, Vec<(&'static str, String)>) {
        let query = ("query", query.to_owned());
        match self {
            Self::At(at) => ("/api/v1/query", vec![query, ("time", seconds(at))]),
            Self::Range(start, end, step) => (
                "/api/v1/query_range",
                vec![query, ("start", seconds(start)), ("end", seconds(end)), ("step", seconds(step))],
            ),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_expressions_have_equal_answers() {
    let seed = std::env::var("QUIVER_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_261_121);
    let given = std::env::var("QUIVER_EXPRESSIONS").ok().and_then(|s| s.parse().ok());
    let count = given.unwrap_or(if soak() { EXPRESSIONS } else { EXPRESSIONS / 10 });
    let mut random = StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_COMPACTION__ENABLED", "false");
    let server = Server::start(&folder.path().join("data"), &options).await;
    let reference = Reference::start(folder.path()).await;
    let bodies = bodies(&mut random);
    let half = bodies.len() / 2;
    for (n, body) in bodies.into_iter().enumerate() {
        server.write(body.clone()).await;
        reference.write(body).await;
        if n == half {
            // One half in parts, the other live.
            server.flush().await;
        }
    }
    let mut tally = Tally::default();
    // A tenth takes every tenth of the topics as they come in turn: all of them are met by and by.
    for n in 0..count {
        let mut random = StdRng::seed_from_u64(seed ^ (n as u64) << 20);
        let kind = if n % 4 == 3 { Kind::OnGrid } else { Kind::OffGrid };
        let text = Grammar::new(&mut random, kind).expression(n);
        for range in [false, true] {
            let when = When::draw(&mut random, kind, range);
            let (path, ours) = when.params(&text);
            let (_, theirs) = when.params(&told_to_242(&text, kind));
            let pairs: Vec<(&str, &str)> = ours.iter().map(|(n, v)| (*n, v.as_str())).collect();
            let ours_path = format!("/metrics-api{path}");
            let (ours, theirs) = tokio::join!(server.get_with(&ours_path, &pairs), reference.ask(path, &theirs));
            tally.judge(&Asked { text: &text, range }, when, &theirs, &ours.json());
        }
    }
    tally.finish(seed, count);
}

#[derive(Debug, Default)]
struct Tally {
    equal: usize,
    empty: usize,
    errors: usize,
    explained: BTreeMap<&'static str, usize>,
    wrong: Vec<String>,
}

impl Tally {
    fn judge(&mut self, asked: &Asked<'_>, when: When, theirs: &Value, ours: &Value) {
        let error = |answer: &Value| answer["status"] != "success";
        let difference = match (error(theirs), error(ours)) {
            (true, true) if theirs["errorType"] == ours["errorType"] => {
                self.errors += 1;
                return;
            }
            (false, false) => same(&theirs["data"], &ours["data"], asked),
            _ => Err(format!("{} instead of {}", summary(ours), summary(theirs))),
        };
        match difference {
            Ok(()) => {
                self.equal += 1;
                let empty = theirs["data"]["result"].as_array().is_some_and(Vec::is_empty);
                self.empty += usize::from(empty);
            }
            Err(difference) => match explain(asked, theirs, ours) {
                Some(rule) => *self.explained.entry(rule).or_default() += 1,
                None => self.wrong.push(format!("{} {when:?}: {difference}", asked.text)),
            },
        }
    }

    #[allow(clippy::print_stdout, reason = "the figures are the outcome")]
    fn finish(self, seed: u64, count: usize) {
        let Self { equal, empty, errors, explained, wrong } = self;
        println!(
            "seed {seed}: {count} expressions, asked twice: {equal} answers equal ({empty} of them empty), {errors} \
             errors in both, {} explained, {} differ",
            explained.values().sum::<usize>(),
            wrong.len()
        );
        for (name, hits) in &explained {
            let reason = RULES.iter().find(|r| r.name == *name).map_or("", |r| r.reason);
            println!("  {hits} x {name}: {reason}");
        }
        assert!(wrong.is_empty(), "seed {seed}: {} answers differ:\n{}", wrong.len(), wrong.join("\n"));
        assert!(empty * 3 < equal, "too many answers are empty to mean anything");
    }
}

fn summary(answer: &Value) -> String {
    let error = answer["error"].as_str().map(|e| format!("error {}: {e}", answer["errorType"]));
    error.unwrap_or_else(|| {
        let text = answer["data"]["result"].to_string();
        text.chars().take(300).collect()
    })
}

/// Compares two answers: the same type, series and times, values within the tolerance, order where the expression gives
/// one.
fn same(theirs: &Value, ours: &Value, asked: &Asked<'_>) -> Result<(), String> {
    if asked.ordered() {
        let values = |data: &Value| -> Vec<Value> {
            data["result"].as_array().into_iter().flatten().map(|s| s["value"].clone()).collect()
        };
        let (a, b) = (values(theirs), values(ours));
        if a.len() == b.len() {
            for (a, b) in a.iter().zip(&b) {
                same_point(a, b).map_err(|e| format!("order: {e}"))?;
            }
        }
    }
    compared_answers::same(theirs, ours)
}
