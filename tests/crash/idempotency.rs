//! Requests with `Idempotency-Key` in the kill loop: each is sent several times at once, again after its response, and
//! again after the server was killed in the middle of it. Every row must be there once, and every repeat gets the first
//! response.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures::future::join_all;
use quiver_tests::load::{Caller, seed, soak};
use quiver_tests::server::{Options, Server};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::arena::{busy, comes_up, kill, store_check, work_until_killed};
use crate::kill_plan::of_areas;

const SENDERS: usize = 4;
/// Requests that a sender sends again later, and until when.
const REPEATED: usize = 12;
const REPEATED_WITHIN: Duration = Duration::from_mins(5);
const QUERY: &str = "/logs-api/select/logsql/query";

/// Path and content type of each format.
const FORMATS: [(&str, &str); 5] = [
    ("/insert/jsonline?_stream_fields=sender", "application/json"),
    ("/insert/searchengine/_bulk?_stream_fields=sender", "application/x-ndjson"),
    ("/insert/aggregator/api/v1/push", "application/json"),
    ("/insert/saas/api/v2/logs?_stream_fields=sender", "application/json"),
    ("/insert/opentelemetry/v1/logs?_stream_fields=sender", "application/json"),
];

/// Where a request is stored, and where its key goes from the WAL to the catalog.
const AREAS: [&str; 4] = ["wal", "flush", "commit", "replay"];

/// A request as it is sent each time.
#[derive(Debug, Clone)]
struct Request {
    format: usize,
    key: String,
    body: Vec<u8>,
    answered: Option<(Instant, u16, Vec<u8>)>,
}

fn body(format: usize, sender: &str, ids: std::ops::Range<u64>) -> Vec<u8> {
    let row = |id: u64| json!({"_msg": format!("row {id}"), "sender": sender, "id": id.to_string()});
    let mut lines = String::new();
    match format {
        0 => ids.for_each(|id| _ = writeln!(lines, "{}", row(id))),
        1 => {
            // One that is refused, so that the answer tells more than a status.
            lines.push_str("{\"delete\":{\"_id\":\"1\"}}\n");
            ids.for_each(|id| _ = writeln!(lines, "{{\"create\":{{}}}}\n{}", row(id)));
        }
        2 => {
            let values = ids.map(
                |id| json!([(1_790_000_000_000_000_000 + id).to_string(), format!("row {id}"), {"id": id.to_string()}]),
            );
            let values: Vec<Value> = values.collect();
            lines = json!({"streams": [{"stream": {"sender": sender}, "values": values}]}).to_string();
        }
        3 => {
            let rows = ids.map(|id| json!({"message": format!("row {id}"), "sender": sender, "id": id.to_string()}));
            lines = Value::Array(rows.collect()).to_string();
        }
        _ => {
            let text = |name: &str, value: &str| json!({"key": name, "value": {"stringValue": value}});
            let record = |id: u64| json!({"body": {"stringValue": format!("row {id}")}, "attributes": [text("id", &id.to_string())]});
            let records: Vec<Value> = ids.map(record).collect();
            let resource = json!({"attributes": [text("sender", sender)]});
            lines =
                json!({"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": records}]}]}).to_string();
        }
    }
    lines.into_bytes()
}

/// Sends a request; `None`: the server is gone. Gives status, whether it was answered before, body.
async fn send(client: &reqwest::Client, caller: &Caller, request: &Request) -> Option<(u16, bool, Vec<u8>)> {
    let (path, media) = FORMATS[request.format];
    let sent = client.post(caller.url(path)).header("content-type", media).header("idempotency-key", &request.key);
    let response = sent.body(request.body.clone()).send().await.ok()?;
    let (status, replayed) = (response.status().as_u16(), response.headers().contains_key("idempotent-replayed"));
    Some((status, replayed, response.bytes().await.ok()?.to_vec()))
}

/// A sender: its numbers, the request without an answer, those with one.
#[derive(Debug)]
struct Sender {
    name: String,
    next: u64,
    open: Option<Request>,
    done: Vec<Request>,
    rng: SmallRng,
    repeats: u64,
}

impl Sender {
    fn new(number: usize, seed: u64) -> Self {
        let rng = SmallRng::seed_from_u64(seed.wrapping_add(number as u64));
        Self { name: format!("s{number}"), next: 0, open: None, done: Vec::new(), rng, repeats: 0 }
    }

    fn request(&mut self) -> Request {
        let (format, rows) = (self.rng.random_range(0..FORMATS.len()), self.rng.random_range(1..40));
        let ids = self.next..self.next + rows;
        self.next = ids.end;
        let key = format!("{}-{}", self.name, ids.start);
        Request { format, key, body: body(format, &self.name, ids), answered: None }
    }

    /// Sends until told to stop, or the server is gone. What had no answer is sent first when it is back.
    async fn run(mut self, caller: Caller, stop: Arc<AtomicBool>) -> Self {
        let client = reqwest::Client::new();
        while !stop.load(Relaxed) || self.open.is_some() {
            if !self.repeat(&client, &caller).await {
                break;
            }
            let mut request = self.open.take().unwrap_or_else(|| self.request());
            let times = self.rng.random_range(1..=5);
            let answers = join_all((0..times).map(|_| send(&client, &caller, &request))).await;
            let gone = answers.iter().any(Option::is_none);
            let mut first: Option<(u16, Vec<u8>)> = None;
            let mut fresh = 0;
            for (status, replayed, text) in answers.into_iter().flatten() {
                if matches!(status, 429 | 503) {
                    continue;
                }
                assert!((200..300).contains(&status), "{}: {status} {}", request.key, String::from_utf8_lossy(&text));
                fresh += usize::from(!replayed);
                let known = first.get_or_insert_with(|| (status, text.clone()));
                assert_eq!((known.0, &known.1), (status, &text), "{}: another answer", request.key);
            }
            assert!(fresh <= 1, "{}: {fresh} of {times} were stored", request.key);
            match first {
                Some((status, text)) => {
                    request.answered = Some((Instant::now(), status, text));
                    self.done.push(request);
                }
                None => self.open = Some(request),
            }
            if gone {
                break;
            }
        }
        self
    }

    /// Sends one of the last requests again; false: the server is gone.
    async fn repeat(&mut self, client: &reqwest::Client, caller: &Caller) -> bool {
        let from = self.done.len().saturating_sub(REPEATED);
        let Some(request) = self.done[from..].choose(&mut self.rng) else { return true };
        let Some((at, status, text)) = &request.answered else { return true };
        if at.elapsed() > REPEATED_WITHIN {
            return true;
        }
        let Some(again) = send(client, caller, request).await else { return false };
        if !matches!(again.0, 429 | 503) {
            assert_eq!((again.0, again.1), (*status, true), "{}: stored again", request.key);
            assert_eq!(again.2, *text, "{}: another answer", request.key);
            self.repeats += 1;
        }
        true
    }
}

/// Checks that all that was answered is there, and nothing twice; gives the number of rows.
async fn check(caller: &Caller, senders: &[Sender], when: &str) -> Option<usize> {
    let (status, found) = caller.get(QUERY, &[("query", "* | fields sender, id")]).await?;
    let text = String::from_utf8(found).expect("text");
    assert_eq!(status, 200, "{when}: {text}");
    let mut rows: BTreeMap<(String, u64), usize> = BTreeMap::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{when}: {e}: {line}"));
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let id = text("id").parse().unwrap_or_else(|_| panic!("{when}: no id in {line}"));
        *rows.entry((text("sender"), id)).or_default() += 1;
    }
    let twice: Vec<_> = rows.iter().filter(|(_, n)| **n > 1).take(5).collect();
    assert!(twice.is_empty(), "{when}: rows are there twice: {twice:?}");
    for sender in senders {
        let open = sender.open.iter().map(|r| r.key.rsplit('-').next().and_then(|n| n.parse().ok()).unwrap_or(0));
        let answered_to = open.min().unwrap_or(sender.next);
        let lost = (0..answered_to).find(|id| !rows.contains_key(&(sender.name.clone(), *id)));
        assert_eq!(lost, None, "{when}: a row of {} is lost", sender.name);
    }
    Some(rows.len())
}

/// One start: compare, send, and be killed. Gives whether it died at the point.
async fn round(dir: &Path, point: Option<&'static str>, senders: &mut Vec<Sender>, rng: &mut SmallRng) -> bool {
    let mut options = busy(Options::default());
    if let Some(point) = point {
        options = options.env("QUIVER_FAILPOINT", format!("{point}:{}", rng.random_range(1..8)));
    }
    let Some(mut server) = Server::spawn(dir, &options) else { return true };
    let caller = Caller::new(&server.http);
    if !comes_up(&mut server, &caller).await || check(&caller, senders, &format!("{point:?}")).await.is_none() {
        kill(&mut server);
        return true;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = senders.drain(..).map(|s| tokio::spawn(s.run(caller.clone(), Arc::clone(&stop)))).collect();
    let flushes = tokio::spawn({
        let (caller, pause) = (caller.clone(), Duration::from_millis(rng.random_range(20..150)));
        async move {
            while caller.post("/admin/flush", Vec::new()).await.is_some() {
                tokio::time::sleep(pause).await;
            }
        }
    });
    let patience = Duration::from_millis(if point.is_some() { 4000 } else { rng.random_range(50..1000) });
    let (died, done) = work_until_killed(&mut server, patience, &stop, tasks).await;
    flushes.abort();
    *senders = done;
    died
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn named_requests_kill_loop() {
    let seed = seed("named_requests_kill_loop");
    let mut rng = SmallRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().expect("a folder");
    let mut senders: Vec<Sender> = (0..SENDERS).map(|n| Sender::new(n, seed)).collect();
    let points = of_areas(&AREAS);
    let mut at_points = 0;
    let rounds = if soak() { 200 } else { 20 };
    for n in 0..3 * rounds {
        // A slow machine goes on until enough has happened.
        if n >= rounds && is_enough(&senders, at_points) {
            break;
        }
        let point = (n % 3 != 2).then(|| *points.choose(&mut rng).expect("some"));
        at_points += usize::from(round(dir.path(), point, &mut senders, &mut rng).await && point.is_some());
    }
    let options = busy(Options::default());
    let server = Server::start(dir.path(), &options).await;
    let caller = Caller::new(&server.http);
    // What is still without an answer gets one.
    let stop = Arc::new(AtomicBool::new(true));
    let tasks: Vec<_> = senders.drain(..).map(|s| tokio::spawn(s.run(caller.clone(), Arc::clone(&stop)))).collect();
    for task in tasks {
        senders.push(task.await.expect("a sender holds"));
    }
    let mut rows = 0;
    for (path, state) in [("", "replayed"), ("/admin/flush", "flushed"), ("/admin/compact?force=true", "compacted")] {
        if !path.is_empty() {
            let answer = caller.post(path, Vec::new()).await.expect("nobody kills it now");
            assert_eq!(answer.0, 200, "{path}: {}", answer.1);
        }
        let client = reqwest::Client::new();
        for sender in &mut senders {
            assert!(sender.repeat(&client, &caller).await, "nobody kills it now");
        }
        rows = check(&caller, &senders, state).await.expect("nobody kills it now");
        assert_eq!(rows as u64, senders.iter().map(|s| s.next).sum::<u64>(), "{state}");
    }
    assert_eq!(server.stop(), Some(0));
    let (code, out, errors) = store_check(dir.path(), &options);
    assert_eq!(code, Some(0), "{out}{errors}");
    let requests: usize = senders.iter().map(|s| s.done.len()).sum();
    let repeats: u64 = senders.iter().map(|s| s.repeats).sum();
    println!(
        "{at_points} kills at points; {requests} requests with {rows} rows, {repeats} sent again after their answer"
    );
    assert!(is_enough(&senders, at_points), "{requests} requests, {repeats} repeats, {at_points} kills");
}

/// Says whether enough requests were sent, repeated and killed.
fn is_enough(senders: &[Sender], at_points: usize) -> bool {
    let requests: usize = senders.iter().map(|s| s.done.len()).sum();
    let repeats: u64 = senders.iter().map(|s| s.repeats).sum();
    requests > 100 && repeats > 20 && at_points >= 3
}
