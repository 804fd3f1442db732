//! Logs in the kill loop: writers number their rows and record what was acknowledged; the server is killed at fail points
//! and at random moments. Nothing acknowledged is lost, nothing is duplicated, nothing was never sent. And a soak test at
//! full speed, within memory limits.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use quiver_tests::load::{Caller, seed, soak};
use quiver_tests::server::{Options, Server};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

use crate::arena::{busy, comes_up, kill, store_check, work_until_killed};
use crate::kill_plan::of_areas;

const WRITERS: usize = 4;
const INSERT: &str = "/insert/jsonline?_stream_fields=writer,part";
const QUERY: &str = "/logs-api/select/logsql/query";

/// What writing, flushing and compacting of logs pass, and starting again.
const AREAS: [&str; 6] = ["wal", "flush", "commit", "object", "compact", "replay"];

/// A writer: the numbers of its rows, and which of them are acknowledged.
#[derive(Debug)]
struct Writer {
    number: usize,
    next: u64,
    acknowledged: BTreeSet<u64>,
    rng: SmallRng,
}

impl Writer {
    fn new(number: usize, seed: u64) -> Self {
        let rng = SmallRng::seed_from_u64(seed.wrapping_add(number as u64));
        Self { number, next: 0, acknowledged: BTreeSet::new(), rng }
    }

    /// Rows of the next request, with fields of all kinds and names that come and go.
    fn body(&mut self, rows: u64) -> String {
        let mut body = String::new();
        for id in self.next..self.next + rows {
            let _ = write!(
                body,
                "{{\"_msg\":\"row {id} of {} {:x}\",\"writer\":\"w{}\",\"part\":\"p{}\",\"id\":{id},\"took\":\"{}ms\"",
                self.number,
                self.rng.random::<u64>(),
                self.number,
                id % 3,
                self.rng.random_range(1..500),
            );
            if id % 5 == 0 {
                let _ = write!(body, ",\"odd{}\":\"x\"", self.rng.random_range(0..200));
            }
            body.push_str("}\n");
        }
        self.next += rows;
        body
    }

    /// Writes until told to stop, or the server is gone.
    async fn run(mut self, caller: Caller, stop: Arc<AtomicBool>) -> Self {
        while !stop.load(Relaxed) {
            let (first, rows) = (self.next, self.rng.random_range(1..60));
            let body = self.body(rows);
            match caller.post(INSERT, body.into_bytes()).await {
                Some((200, _)) => self.acknowledged.extend(first..first + rows),
                // What was refused as a whole is not sent again: it may be there or not.
                Some((429 | 503, _)) => tokio::time::sleep(Duration::from_millis(5)).await,
                Some((status, text)) => panic!("{status}: {text}"),
                None => break,
            }
        }
        self
    }
}

/// Compares what is there with what the writers know; `None`: the server died meanwhile.
async fn compare(caller: &Caller, writers: &[Writer], when: &str) -> Option<usize> {
    let (status, body) = caller.get(QUERY, &[("query", "* | fields writer, id")]).await?;
    let text = String::from_utf8(body).expect("text");
    assert_eq!(status, 200, "{when}: {text}");
    let mut found: BTreeMap<String, BTreeMap<u64, usize>> = BTreeMap::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{when}: {e}: {line}"));
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        *found.entry(text("writer")).or_default().entry(text("id").parse().expect("a number")).or_default() += 1;
    }
    let mut count = 0;
    for writer in writers {
        let own = found.remove(&format!("w{}", writer.number)).unwrap_or_default();
        let twice: Vec<_> = own.iter().filter(|(_, n)| **n > 1).take(5).collect();
        assert!(twice.is_empty(), "{when}: writer {}: rows are there twice: {twice:?}", writer.number);
        let lost: Vec<_> = writer.acknowledged.iter().filter(|id| !own.contains_key(id)).collect();
        assert!(
            lost.is_empty(),
            "{when}: writer {}: {} rows lost: {:?}",
            writer.number,
            lost.len(),
            &lost[..lost.len().min(9)]
        );
        let phantom: Vec<_> = own.keys().filter(|id| **id >= writer.next).take(5).collect();
        assert!(phantom.is_empty(), "{when}: writer {}: never sent: {phantom:?}", writer.number);
        count += own.len();
    }
    assert!(found.is_empty(), "{when}: rows of nobody: {:?}", found.keys());
    Some(count)
}

/// The same rows by other ways: counted, by field, by stream, newest first.
async fn other_ways(caller: &Caller, writers: &[Writer], count: usize, when: &str) {
    let ask = async |query: &str| {
        let (status, body) = caller.get(QUERY, &[("query", query)]).await.expect("nobody kills it now");
        let text = String::from_utf8(body).expect("text");
        assert_eq!(status, 200, "{when}: {query}: {text}");
        text.lines().map(|line| serde_json::from_str(line).expect("a row")).collect::<Vec<Value>>()
    };
    assert_eq!(ask("* | stats count() n").await[0]["n"], count.to_string(), "{when}");
    for writer in writers.iter().filter(|w| !w.acknowledged.is_empty()) {
        let id = *writer.acknowledged.last().expect("some");
        let stream = format!("{{writer=\"w{}\",part=\"p{}\"}} id:={id}", writer.number, id % 3);
        for query in
            [stream, format!("writer:=w{} id:={id}", writer.number), format!("\"row {id} of {}\"", writer.number)]
        {
            assert_eq!(ask(&query).await.len(), 1, "{when}: {query}");
        }
    }
    let newest = ask("* | sort by (_time desc) limit 50 | fields _time").await;
    assert_eq!(newest.len(), count.min(50), "{when}");
}

/// One start: compare, write, and be killed. Gives the rows that were there, and whether it died at the point.
async fn round(
    dir: &std::path::Path,
    point: Option<&'static str>,
    writers: &mut Vec<Writer>,
    rng: &mut SmallRng,
) -> bool {
    let mut options = busy(Options::default());
    if let Some(point) = point {
        options = options.env("QUIVER_FAILPOINT", format!("{point}:{}", rng.random_range(1..4)));
    }
    let Some(mut server) = Server::spawn(dir, &options) else { return true };
    let caller = Caller::new(&server.http);
    if comes_up(&mut server, &caller).await && compare(&caller, writers, &format!("{point:?}")).await.is_some() {
        let stop = Arc::new(AtomicBool::new(false));
        let tasks: Vec<_> = writers.drain(..).map(|w| tokio::spawn(w.run(caller.clone(), Arc::clone(&stop)))).collect();
        let chores = tokio::spawn(chores(caller.clone(), rng.random_range(20..150)));
        let patience = Duration::from_millis(if point.is_some() { 4000 } else { rng.random_range(50..1200) });
        let (died, done) = work_until_killed(&mut server, patience, &stop, tasks).await;
        chores.abort();
        *writers = done;
        return died;
    }
    kill(&mut server);
    true
}

/// How many rows were acknowledged.
fn acknowledged(writers: &[Writer]) -> usize {
    writers.iter().map(|w| w.acknowledged.len()).sum()
}

async fn chores(caller: Caller, pause_ms: u64) {
    for n in 0.. {
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        let path = if n % 3 == 2 { "/admin/compact?force=true" } else { "/admin/flush" };
        if caller.post(path, Vec::new()).await.is_none() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn logs_kill_loop() {
    let seed = seed("logs_kill_loop");
    let mut rng = SmallRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().expect("a folder");
    let mut writers: Vec<Writer> = (0..WRITERS).map(|n| Writer::new(n, seed)).collect();
    let mut points = of_areas(&AREAS);
    points.push("cleaner.in-delete");
    let (mut at_points, mut by_chance) = (0, 0);
    let rounds = if soak() { 300 } else { 24 };
    for n in 0..3 * rounds {
        // A slow machine goes on until enough has happened.
        if n >= rounds && acknowledged(&writers) > 1000 && at_points >= 3 {
            break;
        }
        let point = (n % 2 == 0).then(|| *points.choose(&mut rng).expect("some"));
        if round(dir.path(), point, &mut writers, &mut rng).await && point.is_some() {
            at_points += 1;
        } else {
            by_chance += 1;
        }
    }
    let options = busy(Options::default());
    let server = Server::start(dir.path(), &options).await;
    let caller = Caller::new(&server.http);
    let mut count = 0;
    for (path, state) in [("", "replayed"), ("/admin/flush", "flushed"), ("/admin/compact?force=true", "compacted")] {
        if !path.is_empty() {
            let answer = caller.post(path, Vec::new()).await.expect("nobody kills it now");
            assert_eq!(answer.0, 200, "{path}: {}", answer.1);
        }
        count = compare(&caller, &writers, state).await.expect("nobody kills it now");
        other_ways(&caller, &writers, count, state).await;
    }
    assert_eq!(server.stop(), Some(0));
    let (code, out, errors) = store_check(dir.path(), &options);
    assert_eq!(code, Some(0), "{out}{errors}");
    let server = Server::start(dir.path(), &options).await;
    assert_eq!(compare(&Caller::new(&server.http), &writers, "started again").await, Some(count));
    assert_eq!(server.stop(), Some(0));
    let acknowledged = acknowledged(&writers);
    println!("{at_points} kills at points, {by_chance} by chance; {acknowledged} rows acknowledged, {count} there");
    assert!(acknowledged > 1000 && at_points >= 3, "{acknowledged} rows, {at_points} kills at points");
}

/// Asks by turns until told to stop; what has no memory or time left may be refused.
async fn ask_on(caller: Caller, stop: Arc<AtomicBool>, answers: Arc<AtomicU64>) {
    const QUERIES: [&str; 7] = [
        "* | stats by (writer, part) count() n, quantile(0.9, took) q, count_uniq(id) u",
        "* | sort by (_time desc) limit 100",
        "took:>400ms | top 10 by (took)",
        "\"of 2\" | extract \"row <n> of\" | stats max(n) m",
        "* | facets",
        "* | uniq by (part) with hits",
        "* | stats by (_time:1s) rate() r | sort by (_time)",
    ];
    for n in 0.. {
        if stop.load(Relaxed) {
            return;
        }
        let query = QUERIES[n % QUERIES.len()];
        match caller.get(QUERY, &[("query", query), ("timeout", "10s")]).await {
            Some((200, _)) => _ = answers.fetch_add(1, Relaxed),
            Some((422 | 503, _)) => {}
            other => panic!(
                "{query}: {:?}",
                other.map(|(status, body)| (status, String::from_utf8_lossy(&body).into_owned()))
            ),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn logs_soak() {
    const LIMIT: u64 = 512 << 20;
    let seconds = if soak() { 600 } else { 20 };
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default()
        .env("QUIVER_MEMORY__LIMIT", LIMIT)
        .env("QUIVER_LOG__FILTER", "off")
        .env("QUIVER_COMPACTION__INTERVAL", "2s");
    let server = Server::start(dir.path(), &options).await;
    let caller = Caller::new(&server.http);
    let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (rows, doubtful) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = Vec::new();
    for n in 0..WRITERS {
        let (caller, stop, rows) = (caller.clone(), Arc::clone(&stop), Arc::clone(&rows));
        let doubtful = Arc::clone(&doubtful);
        tasks.push(tokio::spawn(async move {
            let mut writer = Writer::new(n, 1);
            while !stop.load(Relaxed) {
                let body = writer.body(2000);
                match caller.post(INSERT, body.into_bytes()).await {
                    Some((200, _)) => _ = rows.fetch_add(2000, Relaxed),
                    // Rows that were decoded before a refusal are there.
                    Some((429 | 503, _)) => {
                        doubtful.fetch_add(2000, Relaxed);
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }));
    }
    tasks.push(tokio::spawn(ask_on(caller.clone(), Arc::clone(&stop), Arc::clone(&answers))));
    let (began, mut highest) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(seconds) {
        highest = highest.max(server.shipped_rss_bytes());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stop.store(true, Relaxed);
    for task in tasks {
        task.await.expect("nothing fails");
    }
    let (rows, answers) = (rows.load(Relaxed), answers.load(Relaxed));
    println!("{rows} rows, {answers} answers, {} MiB resident at most", highest >> 20);
    assert!(rows > 0 && answers > 0);
    assert!(highest <= LIMIT + LIMIT * 15 / 100, "{} MiB", highest >> 20);
    let answer = server.ask(QUERY, &[("query", "* | stats count() n")]).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let found: u64 = answer.json()["n"].as_str().and_then(|n| n.parse().ok()).expect("a number");
    let most = rows + doubtful.load(Relaxed);
    assert!((rows..=most).contains(&found), "{found} of {rows} to {most} rows");
    assert_eq!(server.stop(), Some(0));
}
