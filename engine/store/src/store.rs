//! The public face of the store: writes, and the sources that queries read from.

mod health;
mod maintenance;
mod open;
mod rewrite;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use quiver_types::logs::LogSource;
use quiver_types::source::RowSource;
use quiver_types::spans::SpanSource;
use quiver_types::tables::history::TableRows;
use quiver_types::tables::logs::millis_of;
use quiver_types::{LogsBatch, MetricsBatch, Millis, SeriesSource, SpansBatch};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::compact::Compactor;
use crate::core::Core;
use crate::error::Result;
use crate::flush::FlushState;
use crate::idempotency::{Answer, KeyedWrite, RequestId};
use crate::layout::DataDir;
use crate::logs::source::StoreLogs;
use crate::lru::CacheStats;
use crate::memtable::spans::given_starts;
use crate::metrics::{METRICS, MetricLine};
use crate::record_tables::RowSnapshots;
use crate::retention::clock::SentTimes;
use crate::select::StoreSource;
use crate::settings::StoreSettings;
use crate::snapshot::Visible;
use crate::spans::SpanSnapshots;
use crate::writer::{Refusal, WriteOutcome, WritePath};

pub use self::open::StoreOverrides;

/// The store: owns the write path, the background jobs and what is visible to queries.
pub struct Store {
    core: Arc<Core>,
    write_path: Arc<WritePath>,
    source: Arc<StoreSource>,
    flushing: Arc<FlushState>,
    compactor: Compactor,
    tasks: Mutex<Vec<(&'static str, JoinHandle<()>)>>,
    closing: AtomicBool,
    // Last field, so that the directory's lock is released after everything else of the store has stopped.
    _dir: Arc<DataDir>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("core", &self.core).finish_non_exhaustive()
    }
}

impl Store {
    /// Writes a batch of metrics. When it returns, the batch is as durable as `wal.level` promises, and visible to
    /// queries.
    ///
    /// # Errors
    /// Unavailable: there is no room (memory, disk, spool) or the store is closing; the batch may be sent again later.
    /// Invalid: no part of it can be accepted.
    pub fn write_metrics(&self, batch: MetricsBatch) -> BoxFuture<'_, Result<WriteOutcome>> {
        Box::pin(async move {
            let sent = self.newest_of(batch.given_times());
            let outcome = self.write_own_metrics(batch).await?;
            self.note_sent(sent);
            Ok(outcome)
        })
    }

    /// Writes samples that this server made, such as results of rules, with the same guarantees. Their times are those of
    /// its own clock, so they do not confirm that one.
    ///
    /// # Errors
    /// As [`Store::write_metrics`].
    pub fn write_own_metrics(&self, batch: MetricsBatch) -> BoxFuture<'_, Result<WriteOutcome>> {
        Box::pin(async move {
            self.takes_writes()?;
            self.write_path.write_metrics(batch).await
        })
    }

    fn note_sent(&self, newest: Option<Millis>) {
        self.core.sent.note(newest, self.core.now_ms());
    }

    /// Gives the newest time that a sender gave for what it writes. Rows without one bear the time of our clock, which
    /// those must not confirm.
    fn newest_of(&self, times: impl Iterator<Item = Millis>) -> Option<Millis> {
        SentTimes::newest_of(times, self.core.now_ms())
    }

    /// Writes log rows with the same guarantees. Rows that are too old or too far in the future are dropped and
    /// counted; the rest is stored.
    ///
    /// # Errors
    /// As [`Store::write_metrics`].
    pub fn write_logs(&self, batch: LogsBatch) -> BoxFuture<'_, Result<WriteOutcome>> {
        Box::pin(async move {
            self.takes_writes()?;
            let sent = self.newest_of(batch.given_times().map(millis_of));
            let outcome = self.write_path.write_logs(batch).await?;
            self.note_sent(sent);
            Ok(outcome)
        })
    }

    /// Gives the time range, in Unix nanoseconds, in which log rows are accepted now; others are dropped.
    pub fn logs_window(&self) -> RangeInclusive<i64> {
        self.write_path.logs_window()
    }

    /// Writes the log rows of a request with an idempotency key, atomically and once: repeats within ten minutes get
    /// the stored answer of the first. `answer` makes that answer from what the store refused.
    ///
    /// # Errors
    /// Those of [`Store::write_metrics`], and those of `answer`; nothing is stored then, and the request may be repeated.
    /// Execution: the key was used before with another body.
    pub async fn write_logs_once(
        &self,
        id: RequestId,
        body_hash: u128,
        batches: Vec<LogsBatch>,
        answer: impl FnOnce(&[(Refusal, u64)]) -> Result<Answer>,
    ) -> Result<KeyedWrite> {
        self.takes_writes()?;
        let sent = self.newest_of(batches.iter().flat_map(LogsBatch::given_times).map(millis_of));
        let outcome = self.write_path.write_logs_once(id, body_hash, batches, answer).await?;
        self.note_sent(sent);
        Ok(outcome)
    }

    /// Writes spans with the same guarantees.
    ///
    /// # Errors
    /// As [`Store::write_metrics`].
    pub fn write_spans(&self, batch: SpansBatch) -> BoxFuture<'_, Result<WriteOutcome>> {
        Box::pin(async move {
            self.takes_writes()?;
            let sent = self.newest_of(given_starts(&batch).map(millis_of));
            let outcome = self.write_path.write_spans(batch).await?;
            self.note_sent(sent);
            Ok(outcome)
        })
    }

    /// Writes rows of tables that store them unchanged (`tables::history`), atomically.
    ///
    /// # Errors
    /// As [`Store::write_metrics`].
    pub fn write_rows(&self, rows: Vec<TableRows>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.takes_writes()?;
            self.write_path.write_rows(rows).await
        })
    }

    /// Gives the source that queries of such tables read from.
    pub fn row_source(&self) -> Arc<dyn RowSource> {
        Arc::new(RowSnapshots::new(Arc::clone(&self.core.shared)))
    }

    /// Gives the source that queries of spans read from.
    pub fn span_source(&self) -> Arc<dyn SpanSource> {
        Arc::new(SpanSnapshots::new(Arc::clone(&self.core.shared)))
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// Gives the id of the installation that catalog and object store belong to.
    pub fn installation(&self) -> Uuid {
        self.core.installation
    }

    /// Gives the settings it was opened with.
    pub fn settings(&self) -> &StoreSettings {
        &self.core.settings
    }

    /// Gives the source that queries of metrics read from.
    pub fn source(self: &Arc<Self>) -> Arc<dyn SeriesSource> {
        Arc::clone(&self.source) as Arc<dyn SeriesSource>
    }

    /// Gives the source that queries of logs read from.
    pub fn logs(&self) -> Arc<dyn LogSource> {
        Arc::new(StoreLogs::new(Arc::clone(&self.core.shared)))
    }

    /// Pins what is visible now, for tests that change it.
    #[cfg(test)]
    pub(crate) fn core_snapshot(&self) -> crate::snapshot::Snapshot {
        self.core.shared.snapshot()
    }

    /// Gives what is visible, for tests that take their own snapshots.
    #[cfg(test)]
    pub(crate) fn core_shared(&self) -> Arc<crate::snapshot::SnapshotPublisher> {
        Arc::clone(&self.core.shared)
    }

    /// Gives what is visible now (tests, explain).
    pub fn visible(&self) -> Arc<Visible> {
        self.core.shared.visible()
    }

    /// Gives size, hits and misses of each cache.
    pub fn cache_stats(&self) -> Vec<(&'static str, CacheStats)> {
        self.core.caches.stats().to_vec()
    }

    /// Gives the metrics of the store about itself.
    pub fn metrics(&self) -> Vec<MetricLine> {
        METRICS.list()
    }

    /// Bytes of generations, registry, queued writes, flushes and compactions under way.
    pub fn ingest_memory_bytes(&self) -> u64 {
        self.write_path.memory_bytes()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Dropped without `close`: stops background work. Nothing is flushed; the next start replays the WAL.
        self.core.stop.cancel();
    }
}

#[cfg(test)]
mod tests;
