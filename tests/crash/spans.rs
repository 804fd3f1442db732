//! The kill loop with traces: every acknowledged trace is there with all of its spans, each once, after every kill; and
//! the service graph, which is computed from roll-ups, counts exactly the calls in these traces.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use quiver_tests::load::{Caller, seed, soak};
use quiver_tests::server::{Options, Server};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::arena::{SIGABRT, SIGKILL, busy, chores, comes_up, kill};
use crate::kill_plan::{self, Load, Round};

/// 2026-03-01 23:59 UTC: traces reach over midnight.
const START_NS: i64 = 1_772_409_540_000_000_000;
/// Longest wait for a fail point.
const PATIENCE: Duration = Duration::from_secs(6);

/// A trace that was sent: number of its spans, and whether it was acknowledged.
type Sent = BTreeMap<u128, (usize, bool)>;

fn id(trace: u128) -> String {
    format!("{trace:032x}")
}

/// A request with one trace: each span calls the next service, half a minute later.
fn request(trace: u128, spans: usize) -> Vec<u8> {
    let blocks: Vec<Value> = (0..spans)
        .map(|i| {
            let start = START_NS + (trace % 90) as i64 * 1_000_000_000 + i as i64 * 30_000_000_000;
            let mut span = json!({"traceId": id(trace), "spanId": format!("{:016x}", i + 1), "name": format!("op{i}"),
                "kind": 2, "startTimeUnixNano": start.to_string(), "endTimeUnixNano": (start + 1000).to_string(),
                "attributes": [{"key": "n", "value": {"intValue": i.to_string()}}]});
            if i > 0 {
                span["parentSpanId"] = format!("{i:016x}").into();
            }
            json!({"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": format!("s{i}")}}]},
                "scopeSpans": [{"spans": [span]}]})
        })
        .collect();
    json!({"resourceSpans": blocks}).to_string().into_bytes()
}

/// Sends until the server is gone; gives what became of each trace.
async fn writer(caller: Caller, http: reqwest::Client, mut next: u128, stop: Arc<AtomicBool>) -> Sent {
    let mut sent = Sent::new();
    let url = caller.url("/v1/traces");
    while !stop.load(Relaxed) {
        let spans = 1 + (next % 5) as usize;
        sent.insert(next, (spans, false));
        let post = http.post(&url).header("content-type", "application/json").body(request(next, spans));
        match post.send().await.map(|r| r.status().as_u16()) {
            Ok(200) => drop(sent.insert(next, (spans, true))),
            Ok(429 | 503) | Err(_) => break,
            Ok(status) => panic!("status {status}"),
        }
        next += 1;
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
    sent
}

/// Compares everything; false when the server died meanwhile.
async fn compare(caller: &Caller, sent: &mut Sent, when: &str) -> bool {
    let mut calls: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (trace, (spans, acknowledged)) in sent.iter_mut() {
        let Some((status, body)) = caller.get(&format!("/traces/{}", id(*trace)), &[]).await else { return false };
        if status == 404 && !*acknowledged {
            continue;
        }
        assert_eq!(status, 200, "{when}: {}: {}", id(*trace), String::from_utf8_lossy(&body));
        let answer: Value = serde_json::from_slice(&body).expect("JSON");
        let found: Vec<&str> =
            answer["data"]["spans"].as_array().into_iter().flatten().filter_map(|s| s["name"].as_str()).collect();
        let expected: Vec<String> = (0..*spans).map(|i| format!("op{i}")).collect();
        assert_eq!(found, expected, "{when}: {}", id(*trace));
        // Once seen it stays.
        *acknowledged = true;
        for i in 0..*spans {
            let source = if i == 0 { "user".to_owned() } else { format!("s{}", i - 1) };
            *calls.entry((source, format!("s{i}"))).or_default() += 1;
        }
    }
    let window = [("from", START_NS.to_string()), ("to", (START_NS + 3_600_000_000_000).to_string())];
    let window: Vec<(&str, &str)> = window.iter().map(|(k, v)| (*k, v.as_str())).collect();
    let Some((status, body)) = caller.get("/traces/dependencies", &window).await else { return false };
    assert_eq!(status, 200, "{when}: {}", String::from_utf8_lossy(&body));
    let answer: Value = serde_json::from_slice(&body).expect("JSON");
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let found: BTreeMap<(String, String), u64> = (answer["data"]["edges"].as_array().into_iter().flatten())
        .map(|e| ((text(&e["source"]), text(&e["target"])), e["calls"].as_u64().unwrap_or(0)))
        .collect();
    assert_eq!(found, calls, "{when}: calls");
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traces_survive_kills() {
    let mut rng = SmallRng::seed_from_u64(seed("spans"));
    let dir = tempfile::tempdir().expect("a folder");
    let options = busy(Options::default());
    let http = reqwest::Client::builder().timeout(Duration::from_mins(5)).build().expect("a client");
    let points = kill_plan::of_areas(&["wal", "flush", "commit", "compact", "replay"]);
    let mut sent = Sent::new();
    let mut deaths = BTreeMap::new();
    let rounds = if soak() { 300 } else { 14 };
    for n in 0..3 * rounds {
        // A slow machine goes on until enough has happened.
        if n >= rounds && is_enough(&deaths, &sent) {
            break;
        }
        let round = if n % 3 == 2 {
            kill_plan::random_kill(&mut rng)
        } else {
            kill_plan::at(points.choose(&mut rng).expect("points"), &mut rng)
        };
        let death = one_round(&round, dir.path(), &options, &http, &mut sent, &mut rng).await;
        *deaths.entry(death).or_insert(0) += 1;
    }
    assert!(is_enough(&deaths, &sent), "{} traces acknowledged in {deaths:?}", kept(&sent));
    let mut server = Server::spawn(dir.path(), &options).expect("it starts");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await);
    for (path, state) in [("", "replayed"), ("/admin/flush", "flushed"), ("/admin/compact?force=true", "compacted")] {
        if !path.is_empty() {
            let answer = caller.post(path, Vec::new()).await.expect("nobody kills it now");
            assert_eq!(answer.0, 200, "{state}: {}", answer.1);
        }
        assert!(compare(&caller, &mut sent, state).await, "{state}");
    }
    assert_eq!(server.stop(), Some(0));
}

/// How many traces were acknowledged.
fn kept(sent: &Sent) -> usize {
    sent.values().filter(|s| s.1).count()
}

/// Says whether enough kills hit enough traces.
fn is_enough(deaths: &BTreeMap<Death, usize>, sent: &Sent) -> bool {
    let often = |death: Death| deaths.get(&death).is_some_and(|n| *n >= 3);
    often(Death::AtPoint) && often(Death::ByHand) && kept(sent) > 50
}

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Death {
    AtPoint,
    ByHand,
}

async fn one_round(
    round: &Round,
    dir: &std::path::Path,
    options: &Options,
    http: &reqwest::Client,
    sent: &mut Sent,
    rng: &mut SmallRng,
) -> Death {
    let options = match round.point {
        Some(point) => options.clone().env("QUIVER_FAILPOINT", format!("{point}:{}", round.hit)),
        None => options.clone(),
    };
    let Some(mut server) = Server::spawn(dir, &options) else {
        assert!(round.point.is_some(), "the server does not start");
        return Death::AtPoint;
    };
    let caller = Caller::new(&server.http);
    if comes_up(&mut server, &caller).await && compare(&caller, sent, &format!("{round:?}")).await {
        let stop = Arc::new(AtomicBool::new(false));
        let base = sent.last_key_value().map_or(1, |(last, _)| last + 1);
        let tasks: Vec<_> = (0..2)
            .map(|w| tokio::spawn(writer(caller.clone(), http.clone(), base + w * 1_000_000, Arc::clone(&stop))))
            .collect();
        let chores = tokio::spawn(chores(caller.clone(), round.load, rng.random_range(20..200)));
        let chance = Duration::from_millis(rng.random_range(100..600));
        let (began, patience) = (Instant::now(), if round.point.is_some() { PATIENCE } else { chance });
        let mut told = round.load != Load::Stop;
        while began.elapsed() < patience && server.runs() {
            if !told && began.elapsed() > chance {
                server.terminate();
                told = true;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        kill(&mut server);
        chores.abort();
        stop.store(true, Relaxed);
        for task in tasks {
            sent.extend(task.await.expect("a writer does not panic"));
        }
    }
    kill(&mut server);
    match (server.ended().signal(), round.point) {
        (Some(SIGABRT), Some(_)) => Death::AtPoint,
        (Some(SIGKILL), _) => Death::ByHand,
        // It was told to stop, and did so before its point or our kill.
        (None, _) if round.load == Load::Stop => Death::ByHand,
        (other, point) => panic!("it ended by signal {other:?} on the way to {point:?}"),
    }
}
