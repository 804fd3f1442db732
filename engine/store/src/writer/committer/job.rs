//! Requests to the WAL thread, and its responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use quiver_types::Result;
use tokio::sync::oneshot;

use crate::memtable::Generation;
use crate::metrics::METRICS;
use crate::writer::staging::Batch;

/// A request to the WAL thread.
#[derive(Debug)]
pub(crate) enum Job {
    Write(Box<WriteJob>),
    /// Seal the open generation, if it contains anything.
    Seal(oneshot::Sender<Option<Arc<Generation>>>),
    /// Make everything durable, and stop.
    Stop(oneshot::Sender<()>),
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WriteCounts {
    pub(crate) samples: u64,
    pub(crate) histograms: u64,
    pub(crate) exemplars: u64,
    /// Log rows.
    pub(crate) rows: u64,
    pub(crate) spans: u64,
    /// Samples and histograms of series for which the registry has no space.
    pub(crate) refused: u64,
    /// Samples and histograms of series whose service has too many.
    pub(crate) barred: u64,
}

/// A queued write.
#[derive(Debug)]
pub(crate) struct WriteJob {
    pub(crate) batch: Batch,
    pub(crate) days: Vec<i32>,
    pub(crate) bytes: usize,
    pub(crate) queued: QueuedBytes,
    pub(crate) reply: oneshot::Sender<Result<WriteCounts>>,
}

/// Counts bytes as queued until it is dropped.
#[derive(Debug)]
pub(crate) struct QueuedBytes {
    total: Arc<AtomicU64>,
    bytes: u64,
}

impl QueuedBytes {
    /// Adds to the queued bytes.
    pub(crate) fn new(total: &Arc<AtomicU64>, bytes: usize) -> Self {
        let bytes = bytes as u64;
        total.fetch_add(bytes, Relaxed);
        METRICS.ingest_queue.inc();
        METRICS.ingest_queue_bytes.add(bytes);
        Self { total: Arc::clone(total), bytes }
    }
}

impl Drop for QueuedBytes {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Relaxed);
        METRICS.ingest_queue.sub(1);
        METRICS.ingest_queue_bytes.sub(self.bytes);
    }
}
