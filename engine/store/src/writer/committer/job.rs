//! What the WAL's thread is asked to do, and what it answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use quiver_types::Result;
use tokio::sync::oneshot;

use crate::memtable::Generation;
use crate::metrics::METRICS;
use crate::writer::stage::Batch;

/// What the thread is asked to do.
#[derive(Debug)]
pub(crate) enum Job {
    Write(Box<WriteJob>),
    /// Seal the open generation, if it holds anything.
    Seal(oneshot::Sender<Option<Arc<Generation>>>),
    /// Make everything durable and end.
    Stop(oneshot::Sender<()>),
}

/// What a write put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Written {
    pub(crate) samples: u64,
    pub(crate) histograms: u64,
    pub(crate) exemplars: u64,
    /// Log rows.
    pub(crate) rows: u64,
    /// Spans.
    pub(crate) spans: u64,
    /// Samples and histograms of series that the registry has no room for.
    pub(crate) refused: u64,
    /// Samples and histograms of series whose service brings too many.
    pub(crate) barred: u64,
}

/// A write on its way.
#[derive(Debug)]
pub(crate) struct WriteJob {
    pub(crate) batch: Batch,
    pub(crate) days: Vec<i32>,
    pub(crate) bytes: usize,
    pub(crate) queued: Queued,
    pub(crate) reply: oneshot::Sender<Result<Written>>,
}

/// Bytes that count as queued as long as this value lives.
#[derive(Debug)]
pub(crate) struct Queued {
    total: Arc<AtomicU64>,
    bytes: u64,
}

impl Queued {
    /// Adds to the bytes of the queue.
    pub(crate) fn new(total: &Arc<AtomicU64>, bytes: usize) -> Self {
        let bytes = bytes as u64;
        total.fetch_add(bytes, Relaxed);
        METRICS.ingest_queue.inc();
        METRICS.ingest_queue_bytes.add(bytes);
        Self { total: Arc::clone(total), bytes }
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Relaxed);
        METRICS.ingest_queue.sub(1);
        METRICS.ingest_queue_bytes.sub(self.bytes);
    }
}
