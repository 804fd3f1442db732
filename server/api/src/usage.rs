//! Periodically writes what the server is asked and what it stores to its own tables (`query_log`, `ingest_usage_1m`,
//! `storage_stats`).
//!
//! Ended queries are buffered until then, up to a limit; what does not fit is counted and lost, since no query may wait
//! for this. A graceful stop writes the rest.

use std::mem;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quiver_query::Query;
use quiver_types::read_stats::get;
use quiver_types::{ErrorKind, Millis};

use crate::opaque_ids::IdPermutation;

pub(crate) mod intake;
pub(crate) mod rows;
pub mod writer;

pub(crate) use intake::{AcceptedRecords, RequestIntake};
use intake::{Intake, protocol_of};

/// Bytes of a query's text, and of names beside it, that its row has.
const TEXT_BYTES_MAX: usize = 1024;
/// Bytes of queries that wait for their rows.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// A query that ended.
#[derive(Debug)]
struct FinishedQuery {
    /// In the place of its number, which counts everybody's.
    id: u64,
    began: Instant,
    took: Duration,
    cpu: Duration,
    api: &'static str,
    subject: String,
    path: String,
    outcome: &'static str,
    text: String,
    scanned_bytes: u64,
    scanned_rows: u64,
    files_read: u64,
    files_total: u64,
    peak_memory: usize,
    models: String,
    rollups: String,
    kept: &'static str,
}

/// Queries that wait for their rows.
#[derive(Debug, Default)]
struct PendingQueries {
    queries: Vec<FinishedQuery>,
    bytes: usize,
}

/// Rows that wait to be written: of queries that ended, and of what was stored.
#[derive(Debug, Default)]
pub struct Usage {
    /// Whether anybody writes rows.
    is_on: AtomicBool,
    waiting: Mutex<PendingQueries>,
    intake: Intake,
    numbers: IdPermutation,
    /// Queries that have no row.
    pub(crate) lost: AtomicU64,
}

/// How a query ended, in the word of its row.
fn outcome(query: &Query) -> &'static str {
    if query.is_stopped() {
        return "cancelled";
    }
    match query.failure() {
        None => "ok",
        Some(ErrorKind::Cancelled) => "cancelled",
        Some(ErrorKind::Timeout) => "timeout",
        Some(ErrorKind::LimitExceeded) => "limit",
        Some(_) => "error",
    }
}

impl FinishedQuery {
    fn of(query: &Query, took: Duration) -> Self {
        let (asked, stats, served) = (&query.asked, &query.stats, &query.served);
        let cut = |text: &str| text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned();
        let named = |names: &OnceLock<String>| names.get().map(|names| cut(names)).unwrap_or_default();
        Self {
            id: query.id,
            began: query.began,
            took,
            cpu: query.cpu(),
            api: asked.language,
            subject: asked.caller.clone(),
            path: asked.path.clone(),
            outcome: outcome(query),
            text: cut(&asked.text),
            scanned_bytes: get(&stats.bytes_read),
            scanned_rows: get(&stats.samples) + get(&stats.values),
            files_read: get(&stats.parts_read),
            files_total: get(&stats.parts_total),
            peak_memory: query.memory().1,
            models: named(&served.models),
            rollups: named(&served.rollups),
            kept: served.kept.get().copied().unwrap_or_default(),
        }
    }

    fn bytes(&self) -> usize {
        let texts = [&self.subject, &self.path, &self.text, &self.models, &self.rollups];
        size_of::<Self>() + texts.iter().map(|text| text.len()).sum::<usize>()
    }
}

impl Usage {
    /// Whether the server's own records are kept.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Notes a query that ended.
    pub(crate) fn ended(&self, query: &Query, took: Duration) {
        if self.is_on() {
            self.keep(FinishedQuery { id: self.numbers.of(query.id), ..FinishedQuery::of(query, took) });
        }
    }

    /// Adds what a request brought.
    pub(crate) fn took(&self, path: &str, taken: &RequestIntake, now_ms: Millis, took: Duration) {
        self.intake.add(protocol_of(path), taken, now_ms, took);
    }

    fn keep(&self, ended: FinishedQuery) {
        let bytes = ended.bytes();
        let mut waiting = self.waiting.lock();
        if waiting.bytes + bytes > WAITING_BYTES_MAX {
            self.lost.fetch_add(1, Relaxed);
            return;
        }
        waiting.bytes += bytes;
        waiting.queries.push(ended);
    }

    fn take(&self) -> Vec<FinishedQuery> {
        mem::take(&mut *self.waiting.lock()).queries
    }
}

/// What the store keeps of a table, day and tier.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct StoredVolume {
    bytes: u64,
    rows: u64,
    files: u64,
    /// Those of parts that no compaction has seen.
    small_files: u64,
}

/// Table, day and tier: what it is kept of.
type KeptOf = (String, i32, &'static str);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn ended(text: &str) -> FinishedQuery {
        FinishedQuery {
            id: 7,
            began: Instant::now(),
            took: Duration::from_millis(5),
            cpu: Duration::from_millis(3),
            api: "sql",
            subject: "user:ann".to_owned(),
            path: "/sql-api/v1/query".to_owned(),
            outcome: "ok",
            text: text.to_owned(),
            scanned_bytes: 100,
            scanned_rows: 10,
            files_read: 1,
            files_total: 3,
            peak_memory: 1000,
            models: "Spans".to_owned(),
            rollups: String::new(),
            kept: "miss",
        }
    }

    #[test]
    fn what_waits_is_bounded() {
        let usage = Usage::default();
        let text = "x".repeat(TEXT_BYTES_MAX);
        let fit = WAITING_BYTES_MAX / ended(&text).bytes();
        for _ in 0..fit + 3 {
            usage.keep(ended(&text));
        }
        assert_eq!((usage.take().len(), usage.lost.load(Relaxed)), (fit, 3));
        usage.keep(ended("y"));
        assert_eq!(usage.take().len(), 1, "there is room again");
    }

    #[test]
    fn rows_fit_their_tables() {
        let queries = [ended("select 1"), ended("")];
        let made = rows::of_queries(&queries, queries[0].began + Duration::from_secs(2), 10_000).unwrap();
        assert_eq!((made.table.name, made.rows.num_rows()), ("query_log", 2));
        let kept = StoredVolume { bytes: 10, rows: 2, files: 1, small_files: 1 };
        let made = rows::of_kept(&BTreeMap::from([(("logs".to_owned(), 20_000, "local"), kept)]), 10_000).unwrap();
        assert_eq!((made.table.name, made.rows.num_rows()), ("storage_stats", 1));
    }
}
