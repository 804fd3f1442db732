//! Senders and readers do not starve each other (promise L2): each at capacity alone, then together, then three times as
//! many of both; in the long run also with one side alone, and with each signal. Each side keeps a share of its
//! throughput, and refused requests are answered quickly.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use chrono::DateTime;
use quiver_tests::bodies::{Series, compress, remote_write_raw, varint};
use quiver_tests::load::{Caller, Written, soak};
use quiver_tests::server::{Options, Server};
use quiver_tests::time_limits::one_holds;
use serde_json::{Value, json};

use crate::arena::{START_MS, comes_up};

/// Series, rows and spans of a request.
const SERIES: usize = 500;
const SPANS: usize = 100;
/// As many of each as keep two processors busy.
const CLIENTS: usize = 4;
/// All ask about the same hour, whatever is written meanwhile.
const ASKED_SECONDS: i64 = 3600;

/// What is written, and asked about.
#[derive(Debug, Clone, Copy)]
enum Signal {
    Metrics,
    Logs,
    Spans,
}

impl Signal {
    /// All of them where a run may take long.
    fn of_run() -> &'static [Self] {
        if soak() { &[Self::Metrics, Self::Logs, Self::Spans] } else { &[Self::Metrics] }
    }

    /// A request of one of the senders, for the time [`START_MS`].
    fn template(self, sender: usize) -> Template {
        let job = format!("job-{}", sender % CLIENTS);
        match self {
            Self::Metrics => {
                let names: Vec<String> = (0..SERIES).map(|i| format!("{sender}-{i}")).collect();
                let labels = |name| vec![("__name__", "fairness_samples"), ("instance", name), ("job", job.as_str())];
                let samples = || vec![(START_MS, START_MS as f64)];
                let series: Vec<Series<'_>> = names.iter().map(|name| (labels(name.as_str()), samples())).collect();
                Template::new(remote_write_raw(&series), &self.marks(0))
            }
            Self::Logs => {
                let [time, took] = &self.marks(0)[..] else { unreachable!("two marks") };
                let (time, took) = (String::from_utf8_lossy(time), String::from_utf8_lossy(took));
                let row = |i: usize| {
                    let text = format!("request {i} of {sender} {took}");
                    json!({"_time": time, "_msg": text, "job": job, "instance": format!("{sender}-{i}"), "took": i})
                };
                let mut rows = String::new();
                for i in 0..SERIES {
                    let _ = writeln!(rows, "{}", row(i));
                }
                Template::new(rows.into_bytes(), &self.marks(0))
            }
            Self::Spans => {
                let [trace, ..] = &self.marks(0)[..] else { unreachable!("three marks") };
                let trace = String::from_utf8_lossy(trace);
                let span = |i: usize| -> Value {
                    let start = START_MS * 1_000_000 + i as i64;
                    json!({"traceId": trace, "spanId": format!("{:016x}", i + 1),
                        "name": format!("op{}", i % 10), "kind": 2, "startTimeUnixNano": start.to_string(),
                        "endTimeUnixNano": (start + 1_000_000).to_string(),
                        "attributes": [{"key": "n", "value": {"intValue": i.to_string()}}]})
                };
                let spans: Vec<Value> = (0..SPANS).map(span).collect();
                let resource = json!({"attributes": [{"key": "service.name", "value": {"stringValue": job}}]});
                let blocks = json!([{"resource": resource, "scopeSpans": [{"spans": spans}]}]);
                Template::new(json!({"resourceSpans": blocks}).to_string().into_bytes(), &self.marks(0))
            }
        }
    }

    /// What differs between requests: as it stands in the request number `n` of all, always as long.
    fn marks(self, n: u64) -> Vec<Vec<u8>> {
        let ts = START_MS + n as i64 * 1000;
        match self {
            Self::Metrics => {
                let mut time = Vec::new();
                varint(&mut time, ts as u64);
                vec![time, (ts as f64).to_le_bytes().to_vec()]
            }
            Self::Logs => {
                let time = DateTime::from_timestamp_millis(ts).expect("a time of this century").to_rfc3339();
                vec![time.into_bytes(), format!("took {:03} ms", n % 997).into_bytes()]
            }
            Self::Spans => {
                let trace = format!("{:032x}", u128::from(n) | 1 << 127);
                vec![trace.into_bytes(), ts.to_string().into_bytes(), (ts + 1).to_string().into_bytes()]
            }
        }
    }

    /// The request number `n` of all.
    fn body(self, template: &Template, n: u64) -> Vec<u8> {
        let bytes = template.with(&self.marks(n));
        match self {
            Self::Metrics => compress(&bytes),
            Self::Logs | Self::Spans => bytes,
        }
    }

    async fn write(self, caller: &Caller, body: Vec<u8>) -> Written {
        match self {
            Self::Metrics => caller.write(body).await,
            Self::Logs => Written::of(caller.post("/insert/jsonline?_stream_fields=job", body).await),
            Self::Spans => Written::of(caller.post_json("/v1/traces", body).await),
        }
    }

    /// A question of one of the askers: equal ones would share an answer while nobody writes.
    fn question(self, asker: usize) -> (&'static str, Vec<(&'static str, String)>) {
        let (path, mut params) = match self {
            Self::Metrics => {
                let query = format!("sum by (job) (rate(fairness_samples[10m])) + {asker}");
                let params = vec![("query", query), ("step", "15".to_owned()), ("nocache", "1".to_owned())];
                ("/metrics-api/api/v1/query_range", params)
            }
            Self::Logs => {
                let query = format!("took:>{asker} | stats by (job) count() rows, quantile(0.9, took) as p90");
                ("/logs-api/select/logsql/query", vec![("query", query)])
            }
            Self::Spans => {
                let query = format!("{{ span.n > {asker} }} | quantile_over_time(duration, 0.9) by (name)");
                ("/tempo/api/metrics/query_range", vec![("q", query), ("step", "60s".to_owned())])
            }
        };
        let start = START_MS / 1000;
        params.extend([("start", start.to_string()), ("end", (start + ASKED_SECONDS).to_string())]);
        (path, params)
    }
}

/// A request that is made once, and where the bytes stand that each has of its own: a sender that makes all of it anew takes as
/// much of the processors as the server does for it.
#[derive(Debug)]
struct Template {
    bytes: Vec<u8>,
    /// Places of each mark.
    places: Vec<Vec<usize>>,
}

impl Template {
    fn new(bytes: Vec<u8>, marks: &[Vec<u8>]) -> Self {
        let of = |mark: &Vec<u8>| {
            let places = bytes.windows(mark.len()).enumerate().filter(|(_, here)| here == mark);
            places.map(|(at, _)| at).collect::<Vec<usize>>()
        };
        let places: Vec<_> = marks.iter().map(of).collect();
        assert!(places.iter().all(|places| !places.is_empty()), "a mark is not there");
        Self { bytes, places }
    }

    fn with(&self, marks: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for (places, mark) in self.places.iter().zip(marks) {
            for &at in places {
                bytes[at..at + mark.len()].copy_from_slice(mark);
            }
        }
        bytes
    }
}

/// What a run of a build with optimizations has to keep up (promise L2); others share their processors with more.
#[derive(Debug, Clone, Copy)]
struct Scale {
    /// Memory of the server. A debug build has more pages of its own, which count beside what queries hold.
    limit: &'static str,
    phase: Duration,
    /// Part of its lone throughput that each side keeps.
    kept: f64,
    refused_within: Duration,
}

fn scale() -> Scale {
    if soak() && std::env::var_os("QUIVER_BINARY").is_some() {
        Scale { limit: "1GiB", phase: Duration::from_mins(1), kept: 0.5, refused_within: Duration::from_millis(100) }
    } else {
        // Beside other tests a share says little; a side that starves has next to nothing.
        Scale { limit: "2GiB", phase: Duration::from_secs(6), kept: 0.02, refused_within: Duration::from_secs(10) }
    }
}

/// Phases in which both sides work: what they are, and how many senders and askers there are.
fn phases() -> Vec<(&'static str, usize, usize)> {
    let mut phases = vec![("together", CLIENTS, CLIENTS), ("three times as many", 3 * CLIENTS, 3 * CLIENTS)];
    if soak() {
        phases.push(("three times as many senders", 3 * CLIENTS, CLIENTS));
        phases.push(("three times as many askers", CLIENTS, 3 * CLIENTS));
    }
    phases
}

#[derive(Debug, Default)]
struct Tally {
    stop: AtomicBool,
    /// Requests of writes so far, which times of what they hold follow from.
    next: AtomicU64,
    written: AtomicU64,
    answered: AtomicU64,
    refused: AtomicU64,
    /// The longest wait for a refusal, in µs.
    waited: AtomicU64,
}

impl Tally {
    fn refused(&self, since: Instant) {
        self.refused.fetch_add(1, Relaxed);
        self.waited.fetch_max(since.elapsed().as_micros() as u64, Relaxed);
    }
}

async fn send(signal: Signal, caller: Caller, tally: Arc<Tally>, sender: usize) {
    let template = signal.template(sender);
    while !tally.stop.load(Relaxed) {
        let body = signal.body(&template, tally.next.fetch_add(1, Relaxed));
        let began = Instant::now();
        match signal.write(&caller, body).await {
            Written::Taken => {
                tally.written.fetch_add(1, Relaxed);
            }
            Written::Later => {
                tally.refused(began);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            failed => panic!("a write of {signal:?} failed: {failed:?}"),
        }
    }
}

async fn ask(signal: Signal, caller: Caller, tally: Arc<Tally>, asker: usize) {
    let (path, params) = signal.question(asker);
    let params: Vec<(&str, &str)> = params.iter().map(|(name, value)| (*name, value.as_str())).collect();
    while !tally.stop.load(Relaxed) {
        let began = Instant::now();
        let (status, body) = caller.get(path, &params).await.expect("it lives");
        match status {
            200 => {
                tally.answered.fetch_add(1, Relaxed);
            }
            429 | 503 => {
                tally.refused(began);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            _ => panic!("{status} {}", String::from_utf8_lossy(&body)),
        }
    }
}

/// Lets so many senders and askers work for a while; gives what they did.
async fn phase(signal: Signal, caller: &Caller, next: u64, (senders, askers): (usize, usize), scale: Scale) -> Tally {
    let tally = Arc::new(Tally { next: AtomicU64::new(next), ..Tally::default() });
    let sending = (0..senders).map(|sender| tokio::spawn(send(signal, caller.clone(), Arc::clone(&tally), sender)));
    let mut tasks: Vec<_> = sending.collect();
    tasks.extend((0..askers).map(|asker| tokio::spawn(ask(signal, caller.clone(), Arc::clone(&tally), asker))));
    tokio::time::sleep(scale.phase).await;
    tally.stop.store(true, Relaxed);
    for task in tasks {
        task.await.expect("it is served or refused");
    }
    Arc::into_inner(tally).expect("nobody else has it")
}

/// Gives what was measured if a side kept less than its part in some phase, or was told too late.
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn failures(signal: Signal, scale: Scale) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_LOG__FILTER", "off").env("QUIVER_MEMORY__LIMIT", scale.limit);
    let mut server = Server::spawn(dir.path(), &options).expect("it says where it listens");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await, "the server died");
    let writes = phase(signal, &caller, 0, (CLIENTS, 0), scale).await;
    let mut next = writes.next.load(Relaxed).max(ASKED_SECONDS as u64);
    let queries = phase(signal, &caller, next, (0, CLIENTS), scale).await;
    assert!(
        writes.written.load(Relaxed) > 0 && queries.answered.load(Relaxed) > 0,
        "{signal:?}: {writes:?} {queries:?}"
    );
    let alone = format!("{signal:?}, {scale:?}: alone {writes:?} and {queries:?}");
    println!("{alone}");
    let mut failed = Vec::new();
    for (what, senders, askers) in phases() {
        let of = phase(signal, &caller, next, (senders, askers), scale).await;
        next = of.next.load(Relaxed);
        let part = |now: &AtomicU64, alone: &AtomicU64| now.load(Relaxed) as f64 / alone.load(Relaxed) as f64;
        let kept = (part(&of.written, &writes.written), part(&of.answered, &queries.answered));
        let waited = Duration::from_micros(of.waited.load(Relaxed));
        let text = format!("{what}: {:.2} of writes, {:.2} of answers; {of:?}", kept.0, kept.1);
        println!("{text}");
        if kept.0.min(kept.1) < scale.kept || waited > scale.refused_within {
            failed.push(text);
        }
    }
    assert_eq!(server.stop(), Some(0));
    if failed.is_empty() { Vec::new() } else { [vec![alone], failed].concat() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_senders_nor_askers_starve_the_others() {
    for signal in Signal::of_run() {
        // Who starves does so each time; others may take the machine for the whole of a phase.
        one_holds(async || {
            let failed = failures(*signal, scale()).await;
            assert!(failed.is_empty(), "{}", failed.join("\n"));
        })
        .await;
    }
}
