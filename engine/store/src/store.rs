//! The store as others see it: what is written to it, and what is read from it.

mod health;
mod open;
mod rewrite;
mod upkeep;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use quiver_types::logs::LogSource;
use quiver_types::source::RowSource;
use quiver_types::spans::SpanSource;
use quiver_types::tables::history::TableRows;
use quiver_types::{LogsBatch, MetricsBatch, SeriesSource, SpansBatch};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::compact::Compactor;
use crate::core::Core;
use crate::error::Result;
use crate::flush::Flushing;
use crate::layout::DataDir;
use crate::logs::source::StoreLogs;
use crate::lru::CacheStats;
use crate::metrics::{METRICS, MetricLine};
use crate::requests::{Answer, Once, RequestId};
use crate::rows::RowSnapshots;
use crate::select::StoreSource;
use crate::settings::StoreSettings;
use crate::snapshot::Visible;
use crate::spans::SpanSnapshots;
use crate::writer::{Refusal, WriteOutcome, WritePath};

pub use self::open::StoreOverrides;

/// The store.
pub struct Store {
    core: Arc<Core>,
    write_path: Arc<WritePath>,
    source: Arc<StoreSource>,
    flushing: Arc<Flushing>,
    compactor: Compactor,
    tasks: Mutex<Vec<(&'static str, JoinHandle<()>)>>,
    closing: AtomicBool,
    // Last: the lock goes when nothing of the store runs any more.
    _dir: Arc<DataDir>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("core", &self.core).finish_non_exhaustive()
    }
}

impl Store {
    /// Writes a batch. When it returns the batch is durable as the WAL's level says, and visible to queries.
    ///
    /// # Errors
    /// Unavailable: there is no room (memory, disk, spool) or the store closes; the same batch may be sent again later.
    /// Invalid: nothing of it can be taken.
    pub async fn write_metrics(&self, batch: MetricsBatch) -> Result<WriteOutcome> {
        self.takes_writes()?;
        self.write_path.write_metrics(batch).await
    }

    /// Writes log rows, likewise. Rows that are too old or too far in the future are dropped and counted; the rest is
    /// stored.
    ///
    /// # Errors
    /// As [`Store::write_metrics`].
    pub async fn write_logs(&self, batch: LogsBatch) -> Result<WriteOutcome> {
        self.takes_writes()?;
        self.write_path.write_logs(batch).await
    }

    /// The time of log rows, in nanoseconds, that a write accepts now; others are dropped.
    pub fn logs_window(&self) -> RangeInclusive<i64> {
        self.write_path.logs_window()
    }

    /// Writes the log rows of a request that names itself, all or nothing, once: its repeats within ten minutes get the
    /// answer of the first. `answer` makes it of what the store refused.
    ///
    /// # Errors
    /// As [`Store::write_metrics`], and those of `answer`: then nothing is stored, and the request is not known.
    /// Execution: it came before with another body.
    pub async fn write_logs_once(
        &self,
        id: RequestId,
        body_hash: u128,
        batches: Vec<LogsBatch>,
        answer: impl FnOnce(&[(Refusal, u64)]) -> Result<Answer>,
    ) -> Result<Once> {
        self.takes_writes()?;
        self.write_path.write_logs_once(id, body_hash, batches, answer).await
    }

    /// Writes spans, likewise.
    ///
    /// # Errors
    /// As [`Store::write_metrics`].
    pub async fn write_spans(&self, batch: SpansBatch) -> Result<WriteOutcome> {
        self.takes_writes()?;
        self.write_path.write_spans(batch).await
    }

    /// Writes rows of tables that keep them as they came (`tables::history`), all or nothing.
    ///
    /// # Errors
    /// As [`Store::write_metrics`].
    pub async fn write_rows(&self, rows: Vec<TableRows>) -> Result<()> {
        self.takes_writes()?;
        self.write_path.write_rows(rows).await
    }

    /// Gives what queries of such tables read from.
    pub fn row_source(&self) -> Arc<dyn RowSource> {
        Arc::new(RowSnapshots::new(Arc::clone(&self.core.shared)))
    }

    /// Gives what queries of spans read from.
    pub fn span_source(&self) -> Arc<dyn SpanSource> {
        Arc::new(SpanSnapshots::new(Arc::clone(&self.core.shared)))
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// Gives the installation that catalog and object store belong to.
    pub fn installation(&self) -> Uuid {
        self.core.installation
    }

    /// Gives the settings it was opened with.
    pub fn settings(&self) -> &StoreSettings {
        &self.core.settings
    }

    /// Gives what queries read from.
    pub fn source(self: &Arc<Self>) -> Arc<dyn SeriesSource> {
        Arc::clone(&self.source) as Arc<dyn SeriesSource>
    }

    /// Gives what queries read logs from.
    pub fn logs(&self) -> Arc<dyn LogSource> {
        Arc::new(StoreLogs::new(Arc::clone(&self.core.shared)))
    }

    /// Pins what is visible now, for tests that change it.
    #[cfg(test)]
    pub(crate) fn core_snapshot(&self) -> crate::snapshot::Snapshot {
        self.core.shared.snapshot()
    }

    /// Where snapshots come from, for tests that make their own.
    #[cfg(test)]
    pub(crate) fn core_shared(&self) -> Arc<crate::snapshot::Shared> {
        Arc::clone(&self.core.shared)
    }

    /// Gives what is visible now (tests, explain).
    pub fn visible(&self) -> Arc<Visible> {
        self.core.shared.visible()
    }

    /// Gives what each cache holds and did.
    pub fn cache_stats(&self) -> Vec<(&'static str, CacheStats)> {
        self.core.caches.stats().to_vec()
    }

    /// Gives the own metrics.
    pub fn metrics(&self) -> Vec<MetricLine> {
        METRICS.list()
    }

    /// Bytes of generations, registry and queued writes.
    pub fn ingest_memory_bytes(&self) -> u64 {
        self.write_path.memory_bytes()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Without `close`: as after a kill, only tidier.
        self.core.stop.cancel();
    }
}

#[cfg(test)]
mod tests;
