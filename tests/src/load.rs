//! Load on a server that may die at any moment: seeded writers that record every acknowledgement in a [`History`], and a
//! caller that treats a broken connection as a response.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

use crate::bodies::remote_write;
use crate::history::{Found, History};

/// Requests that a writer may send again.
const RESENT: usize = 8;

/// Longest wait for memory that queries hold which have ended.
const ROOM_WITHIN: Duration = Duration::from_secs(30);

/// Says whether the long form of a test was asked for.
pub fn soak() -> bool {
    std::env::var("QUIVER_SOAK").is_ok_and(|v| v == "1")
}

/// Gives the seed of a test: `QUIVER_SEED`, else the same one in each ordinary run and a new one in each long run.
/// Printed, so that a failure can be repeated.
#[allow(clippy::print_stdout, reason = "a seed is of use only when it is seen")]
pub fn seed(test: &str) -> u64 {
    let given = std::env::var("QUIVER_SEED").ok().map(|text| text.parse().expect("QUIVER_SEED is a number"));
    let seed = given.unwrap_or_else(|| if soak() { rand::random() } else { 1 });
    println!("{test}: QUIVER_SEED={seed}");
    seed
}

/// What became of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// Acknowledged.
    Taken,
    /// 429 or 503: to be sent again.
    Later,
    /// Any other answer.
    Refused(String),
    /// No answer: the server is gone.
    Gone,
}

impl Written {
    /// What an answer says of a write.
    pub fn of(answer: Option<(u16, String)>) -> Self {
        match answer {
            Some((200 | 204, _)) => Self::Taken,
            Some((429 | 503, _)) => Self::Later,
            Some((status, text)) => Self::Refused(format!("{status} {text}")),
            None => Self::Gone,
        }
    }
}

/// Calls one server process; every call survives its death.
#[derive(Debug, Clone)]
pub struct Caller {
    base: String,
    client: reqwest::Client,
}

impl Caller {
    /// Makes a caller of the server at `host:port`.
    pub fn new(address: &str) -> Self {
        let client = reqwest::Client::builder().timeout(Duration::from_mins(5)).build().expect("a client");
        Self { base: format!("http://{address}"), client }
    }

    /// Gives the address of a path.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Asks; `None`: the server is gone.
    pub async fn get(&self, path: &str, params: &[(&str, &str)]) -> Option<(u16, Vec<u8>)> {
        let response = self.client.get(format!("{}{path}", self.base)).query(params).send().await.ok()?;
        let status = response.status().as_u16();
        Some((status, response.bytes().await.ok()?.to_vec()))
    }

    /// Posts; `None`: the server is gone.
    pub async fn post(&self, path: &str, body: Vec<u8>) -> Option<(u16, String)> {
        answer(self.client.post(self.url(path)).body(body)).await
    }

    /// Posts JSON; `None`: the server is gone.
    pub async fn post_json(&self, path: &str, body: Vec<u8>) -> Option<(u16, String)> {
        answer(self.client.post(self.url(path)).header("content-type", "application/json").body(body)).await
    }

    /// Writes a remote-write body once.
    pub async fn write(&self, body: Vec<u8>) -> Written {
        Written::of(self.post("/metrics-api/api/v1/write", body).await)
    }

    /// Says whether requests are served.
    pub async fn ready(&self) -> bool {
        matches!(self.get("/health/ready", &[]).await, Some((200, _)))
    }

    /// Asks for the raw samples of a selector from `start_ms` to `end_ms`, both included.
    ///
    /// # Errors
    /// The text of an answer that is not 200.
    pub async fn samples(&self, selector: &str, start_ms: i64, end_ms: i64) -> Option<Result<Found, String>> {
        let query = format!("{selector}[{}ms]", end_ms - start_ms + 1);
        let at = format!("{}.{:03}", end_ms.div_euclid(1000), end_ms.rem_euclid(1000));
        let (status, body) = self.ask(&[("query", &query), ("time", &at)]).await?;
        if status != 200 {
            return Some(Err(format!("{query}: {status} {}", String::from_utf8_lossy(&body))));
        }
        Some(Ok(read_matrix(&body)))
    }

    /// Asks PromQL, and again while queries that have ended still hold the memory.
    async fn ask(&self, params: &[(&str, &str)]) -> Option<(u16, Vec<u8>)> {
        let began = Instant::now();
        loop {
            let (status, body) = self.get("/metrics-api/api/v1/query", params).await?;
            let no_room = status == 503 && String::from_utf8_lossy(&body).contains("ask again later");
            if !no_room || began.elapsed() > ROOM_WITHIN {
                return Some((status, body));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Evaluates at a time; gives the value of the first series.
    pub async fn number(&self, query: &str, at_ms: i64) -> Option<Result<Option<f64>, String>> {
        let at = format!("{}.{:03}", at_ms.div_euclid(1000), at_ms.rem_euclid(1000));
        let (status, body) = self.ask(&[("query", query), ("time", &at)]).await?;
        if status != 200 {
            return Some(Err(format!("{query}: {status} {}", String::from_utf8_lossy(&body))));
        }
        let answer: Value = serde_json::from_slice(&body).expect("an answer is JSON");
        Some(Ok(answer["data"]["result"][0]["value"][1].as_str().map(|v| v.parse().expect("a number"))))
    }

    /// Gives one of the server's own metrics: the sum of its series.
    pub async fn metric(&self, name: &str) -> Option<f64> {
        let (_, body) = self.get("/metrics", &[]).await?;
        let text = String::from_utf8_lossy(&body).into_owned();
        let of_name = |line: &str| {
            let rest = line.strip_prefix(name)?;
            let value = rest.starts_with([' ', '{']).then(|| rest.rsplit(' ').next())??;
            Some(value.parse::<f64>().expect("a number"))
        };
        let values: Vec<f64> = text.lines().filter_map(of_name).collect();
        assert!(!values.is_empty(), "no metric {name}");
        Some(values.iter().sum())
    }
}

/// Sends a request; `None`: the server is gone.
async fn answer(request: reqwest::RequestBuilder) -> Option<(u16, String)> {
    let response = request.send().await.ok()?;
    let status = response.status().as_u16();
    Some((status, response.text().await.ok()?))
}

/// Reads the answer to a range selector.
fn read_matrix(body: &[u8]) -> Found {
    let answer: Value = serde_json::from_slice(body).expect("an answer is JSON");
    assert!(answer.get("warnings").is_none(), "{}", answer["warnings"]);
    let mut found = Found::new();
    for series in answer["data"]["result"].as_array().expect("a matrix") {
        let name = series["metric"]["series"].as_str().expect("labels as sent").to_owned();
        let samples = series["values"].as_array().expect("samples").iter().map(|pair| {
            let ts = (pair[0].as_f64().expect("a time") * 1000.0).round() as i64;
            let value = match pair[1].as_str().expect("a value") {
                "+Inf" => f64::INFINITY,
                "-Inf" => f64::NEG_INFINITY,
                other => other.parse().expect("a number"),
            };
            (ts, value)
        });
        assert!(found.insert(name, samples.collect()).is_none(), "a series stands twice in an answer");
    }
    found
}

/// What of one series is sent together.
pub type Piece = (String, Vec<(i64, f64)>);

/// How a writer writes.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Name of the metric.
    pub metric: &'static str,
    /// Series of each writer.
    pub series: usize,
    /// Most series of a request.
    pub request_series: usize,
    /// Most samples of each.
    pub request_samples: usize,
    /// Most ms between two samples.
    pub step_ms: i64,
    /// Share of requests after which the same is asked for at once.
    pub asked: f64,
    /// Every value is 1, nothing is sent twice: sums can be foretold.
    pub ones: bool,
    /// Longest pause between two requests, in ms.
    pub pause_ms: u64,
}

impl Shape {
    /// Small requests of all sorts of values.
    pub fn small(metric: &'static str) -> Self {
        Self {
            metric,
            series: 3,
            request_series: 3,
            request_samples: 5,
            step_ms: 1000,
            asked: 0.05,
            ones: false,
            pause_ms: 4,
        }
    }
}

/// Sums over all writers while they run.
#[derive(Debug, Default)]
pub struct Counts {
    /// Samples that were sent, noted before.
    pub sent: AtomicU64,
    /// Samples that were acknowledged, noted after.
    pub acknowledged: AtomicU64,
    /// Answers 429 and 503.
    pub later: AtomicU64,
}

/// One writer; owns its series, goes on where it stopped.
#[derive(Debug)]
pub struct Writer {
    name: usize,
    shape: Shape,
    rng: SmallRng,
    next_ms: i64,
    late_ms: i64,
    recent: VecDeque<Vec<Piece>>,
}

/// What writers of one run share.
#[derive(Debug, Clone)]
pub struct Run {
    /// Where they write to.
    pub caller: Caller,
    /// Where they note it.
    pub history: Arc<History>,
    /// Ends the run.
    pub stop: Arc<AtomicBool>,
    /// Counts it.
    pub counts: Arc<Counts>,
}

impl Run {
    /// Begins a run.
    pub fn new(caller: &Caller, history: &Arc<History>) -> Self {
        Self { caller: caller.clone(), history: Arc::clone(history), stop: Arc::default(), counts: Arc::default() }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

impl Writer {
    /// Makes writer number `name`, whose samples begin at `start_ms`.
    pub fn new(name: usize, shape: Shape, seed: u64, start_ms: i64) -> Self {
        let rng = SmallRng::seed_from_u64(seed ^ (name as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self { name, shape, rng, next_ms: start_ms, late_ms: start_ms, recent: VecDeque::new() }
    }

    /// Writes until the run is stopped or the server is gone; gives itself back, with all that must not happen.
    pub async fn run(mut self, run: Run) -> (Self, Vec<String>) {
        let mut faults = Vec::new();
        while !run.stopped() {
            let pieces = self.request();
            match self.send(&run, &pieces).await {
                Written::Taken => {}
                Written::Refused(text) => {
                    faults.push(text);
                    break;
                }
                Written::Later | Written::Gone => break,
            }
            if self.rng.random_bool(self.shape.asked) {
                faults.extend(self.ask(&run, &pieces).await);
            }
            self.recent.push_back(pieces);
            if self.recent.len() > RESENT {
                self.recent.pop_front();
            }
            if self.shape.pause_ms > 0 {
                let pause = self.rng.random_range(0..=self.shape.pause_ms);
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        }
        (self, faults)
    }

    /// Sends a request until it is answered for good.
    pub async fn send(&mut self, run: &Run, pieces: &[Piece]) -> Written {
        let body = self.body(pieces);
        let samples: u64 = pieces.iter().map(|(_, s)| s.len() as u64).sum();
        for (series, samples) in pieces {
            run.history.sent(series, samples);
        }
        run.counts.sent.fetch_add(samples, Relaxed);
        loop {
            let written = run.caller.write(body.clone()).await;
            match written {
                Written::Taken => {
                    run.counts.acknowledged.fetch_add(samples, Relaxed);
                    for (series, samples) in pieces {
                        run.history.acknowledged(series, samples);
                    }
                }
                Written::Later => {
                    run.counts.later.fetch_add(1, Relaxed);
                    if !run.stopped() {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                }
                Written::Refused(_) | Written::Gone => {}
            }
            return written;
        }
    }

    /// Encodes a request.
    pub fn body(&self, pieces: &[Piece]) -> Vec<u8> {
        let writer = self.name.to_string();
        let job = if self.name.is_multiple_of(2) { "even" } else { "odd" };
        let labels =
            |series| vec![("__name__", self.shape.metric), ("series", series), ("writer", &writer), ("job", job)];
        let series: Vec<_> =
            pieces.iter().map(|(series, samples)| (labels(series.as_str()), samples.clone())).collect();
        remote_write(&series)
    }

    /// Makes a request: mostly new samples, now and then late ones or the same as before.
    pub fn request(&mut self) -> Vec<Piece> {
        let (resend, late) = (self.rng.random_bool(0.1), self.rng.random_bool(0.05));
        if resend && !self.shape.ones && !self.recent.is_empty() {
            return self.recent[self.rng.random_range(0..self.recent.len())].clone();
        }
        let series_count = self.rng.random_range(1..=self.shape.request_series);
        let first = self.rng.random_range(0..self.shape.series);
        let samples_count = self.rng.random_range(1..=self.shape.request_samples);
        let mut times = Vec::new();
        for _ in 0..samples_count {
            let step = self.rng.random_range(1..=self.shape.step_ms);
            if late && !self.shape.ones {
                self.late_ms -= step;
                times.insert(0, self.late_ms);
            } else {
                self.next_ms += step;
                times.push(self.next_ms);
            }
        }
        let piece = |i: usize| {
            let series = format!("{}-{}", self.name, (first + i) % self.shape.series);
            (series, times.iter().map(|&ts| (ts, 1.0)).collect::<Vec<_>>())
        };
        let mut pieces: Vec<Piece> = (0..series_count.min(self.shape.series)).map(piece).collect();
        if !self.shape.ones {
            pieces.iter_mut().flat_map(|(_, samples)| samples).for_each(|(ts, v)| *v = value(&mut self.rng, *ts));
        }
        pieces
    }

    /// Asks for what was acknowledged just now (promise D10).
    async fn ask(&self, run: &Run, pieces: &[Piece]) -> Option<String> {
        let (series, samples) = pieces.first()?;
        let (first, last) = (samples.first()?.0, samples.last()?.0);
        let selector = format!("{}{{series=\"{series}\"}}", self.shape.metric);
        let found = match run.caller.samples(&selector, first, last).await? {
            Ok(found) => found,
            // Refused while the server stops.
            Err(text) if text.contains(": 503 ") => return None,
            Err(text) => return Some(text),
        };
        let here = found.get(series).map_or(&[][..], Vec::as_slice);
        let missing = samples.iter().find(|(ts, _)| !here.iter().any(|(t, _)| t == ts));
        missing.map(|(ts, _)| format!("{series} {ts} was acknowledged but could not be read at once"))
    }
}

/// Values of all kinds; the one NaN that a query does not show (the stale marker) is not among them.
fn value(rng: &mut SmallRng, ts: i64) -> f64 {
    match rng.random_range(0..40) {
        0 => 0.0,
        1 => -0.0,
        2 => f64::INFINITY,
        3 => f64::NEG_INFINITY,
        4 => f64::NAN,
        5 => f64::from_bits(0x7ff8_0000_dead_beef),
        6 => f64::from_bits(1),
        7 => f64::MAX,
        8..20 => (ts / 1000) as f64,
        20..30 => f64::from(rng.random_range(0..1000)) / 10.0,
        _ => f64::from_bits(rng.random_range(0x3fe0_0000_0000_0000..0x4060_0000_0000_0000_u64)),
    }
}
