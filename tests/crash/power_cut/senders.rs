//! The writers while the trace is recorded. Each request has a number, and the positions in the trace at which it was
//! sent and at which its response had arrived.

use std::collections::BTreeMap;

use quiver_tests::bodies::remote_write;
use quiver_tests::disk::Watch;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use super::content::Content;
use crate::arena::START_MS;

/// What a request brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Signal {
    Metrics,
    Logs,
    Traces,
}

const SIGNALS: [Signal; 3] = [Signal::Metrics, Signal::Logs, Signal::Traces];
/// Requests under their own name that are sent again by the next life.
const REPEATED: usize = 3;

#[derive(Debug, Clone, Copy)]
struct Sent {
    /// Where the record of the disk stood when it was sent.
    place: u64,
    acknowledged: Option<u64>,
    /// Of an earlier life, at which the next one had begun; see [`Senders::ready`].
    settled: Option<u64>,
}

/// One client of one signal.
#[derive(Debug)]
struct Sender {
    signal: Signal,
    requests: BTreeMap<u64, Sent>,
    random: SmallRng,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Senders {
    senders: Vec<Sender>,
    /// Whether an answer alone is a promise (level `sync`), or only with a start after it (level `os`).
    pub(crate) promises: bool,
}

impl Sender {
    fn body(&self, id: u64) -> Vec<u8> {
        let ts = START_MS + id as i64 * 1000;
        match self.signal {
            Signal::Metrics => {
                let name = format!("s{}", id % 7);
                remote_write(&[(vec![("__name__", "power"), ("series", &name)], vec![(ts, id as f64)])])
            }
            Signal::Logs => {
                let pad = "x".repeat((id % 50) as usize * 40);
                format!("{{\"_msg\":\"row {id} {pad}\",\"app\":\"a{}\",\"id\":\"{id}\",\"_time\":\"{ts}\"}}\n", id % 3)
                    .into_bytes()
            }
            Signal::Traces => {
                let (start, end) = ((ts * 1_000_000).to_string(), (ts * 1_000_000 + 1000).to_string());
                let span = json!({"traceId": format!("{id:032x}"), "spanId": format!("{id:016x}"), "name": "op",
                    "startTimeUnixNano": start, "endTimeUnixNano": end});
                let service = json!([{"key": "service.name", "value": {"stringValue": format!("s{}", id % 4)}}]);
                json!({"resourceSpans": [{"resource": {"attributes": service}, "scopeSpans": [{"spans": [span]}]}]})
                    .to_string()
                    .into_bytes()
            }
        }
    }

    /// Says whether the request has a name of its own, and can be sent twice without being stored twice.
    fn named(&self, id: u64) -> bool {
        self.signal == Signal::Logs && id.is_multiple_of(2)
    }

    /// Sends so many requests, or until the server is gone.
    async fn run(&mut self, watch: &Watch, http: &str, otlp: &str, most: usize) {
        let client = reqwest::Client::new();
        let repeated = self.requests.keys().rev().filter(|id| self.named(**id)).take(REPEATED).copied();
        let mut again: Vec<u64> = if most == usize::MAX { repeated.collect() } else { Vec::new() };
        let mut next = self.requests.keys().next_back().map_or(1, |id| id + 1);
        for _ in 0..most {
            let id = again.pop().unwrap_or(next);
            next = next.max(id + 1);
            let (url, kind) = match self.signal {
                Signal::Metrics => (format!("http://{http}/metrics-api/api/v1/write"), "application/x-protobuf"),
                Signal::Logs => {
                    (format!("http://{http}/insert/jsonline?_stream_fields=app"), "application/stream+json")
                }
                Signal::Traces => (format!("http://{otlp}/v1/traces"), "application/json"),
            };
            let place = watch.place();
            let known = self.requests.entry(id).or_insert(Sent { place, acknowledged: None, settled: None });
            let (sent, earlier) = (*known, known.acknowledged);
            let mut request = client.post(url).header("content-type", kind).body(self.body(id));
            if self.named(id) {
                request = request.header("idempotency-key", format!("request-{id}"));
            }
            match request.send().await.map(|answer| answer.status().as_u16()) {
                Ok(200 | 204) => {
                    let acknowledged = earlier.or_else(|| Some(watch.place()));
                    self.requests.insert(id, Sent { acknowledged, ..sent });
                }
                Ok(429 | 503) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
                Ok(status) => panic!("{:?} {id}: status {status}", self.signal),
                Err(_) => return,
            }
            let pause = self.random.random_range(0..6);
            tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
        }
    }
}

impl Senders {
    /// One sender of each signal.
    pub(crate) fn new(seed: u64, promises: bool) -> Self {
        let sender = |signal: &Signal| Sender {
            signal: *signal,
            requests: BTreeMap::new(),
            random: SmallRng::seed_from_u64(seed.wrapping_add(*signal as u64)),
        };
        Self { senders: SIGNALS.iter().map(sender).collect(), promises }
    }

    /// Notes that a life begins: what was acknowledged in those before has outlived them.
    pub(crate) fn ready(&mut self, place: u64) {
        for request in self.senders.iter_mut().flat_map(|s| s.requests.values_mut()) {
            if request.acknowledged.is_some() {
                request.settled.get_or_insert(place);
            }
        }
    }

    /// Sends until the server is gone.
    pub(crate) async fn run(&mut self, watch: &Watch, http: &str, otlp: &str) {
        self.send(watch, http, otlp, usize::MAX).await;
    }

    /// Sends so many requests of each signal.
    pub(crate) async fn send(&mut self, watch: &Watch, http: &str, otlp: &str, most: usize) {
        futures::future::join_all(self.senders.iter_mut().map(|s| s.run(watch, http, otlp, most))).await;
    }

    /// Compares what is there after a cut at a place of the trace with what had been sent and answered by then.
    pub(crate) fn judge(&self, found: &Content, place: u64) -> Vec<String> {
        let mut faults = Vec::new();
        let mut known = 0;
        for sender in &self.senders {
            for (id, request) in &sender.requests {
                let promised = if self.promises { request.acknowledged } else { request.settled };
                let count = found.get(&(sender.signal, *id)).copied().unwrap_or(0);
                known += usize::from(count > 0);
                if count == 0 && promised.is_some_and(|at| at <= place) {
                    faults.push(format!("{:?} {id} is lost", sender.signal));
                }
                if count > 0 && request.place > place {
                    faults.push(format!("{:?} {id} was not sent yet", sender.signal));
                }
                if count > 1 {
                    faults.push(format!("{:?} {id} is there {count} times", sender.signal));
                }
            }
        }
        if known != found.len() {
            faults.push(format!("{} records that nobody sent", found.len() - known));
        }
        faults.truncate(8);
        faults
    }

    /// Counts requests that were acknowledged.
    pub(crate) fn acknowledged(&self) -> usize {
        self.senders.iter().flat_map(|s| s.requests.values()).filter(|r| r.acknowledged.is_some()).count()
    }

    /// Counts requests.
    pub(crate) fn sent(&self) -> usize {
        self.senders.iter().map(|s| s.requests.len()).sum()
    }
}
