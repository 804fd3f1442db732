//! How the engine scans what a store holds: a table that is described, a scan that is planned, batches that are read.
//!
//! Implemented by `store`, which so knows no engine; `query` puts one table provider and one leaf of plans in front of all
//! of them. What a run needs (memory, counters, where its partitions meet) comes with the run, so that a planned scan is
//! data: it may be run any number of times, its partitions in any order.

mod bytes;

use std::any::Any;
use std::borrow::Cow;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{ReadStats, Result, RunShared};

pub use bytes::batch_bytes;

/// What a plan wants of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanShape {
    /// Columns of the table in the order of the answer; none: all as they are.
    pub projection: Option<Vec<usize>>,
    /// So many rows of each partition are enough.
    pub limit: Option<usize>,
    /// Partitions that may run at once; a scan has fewer when there is little to read.
    pub partitions: usize,
}

/// A table over a snapshot, as somebody may see it. Whatever filters it, it filters itself and exactly.
pub trait ScanSource: Debug + Send + Sync {
    /// Gives its columns.
    fn schema(&self) -> SchemaRef;

    /// Says how many rows it has, about; none: nobody knows without reading.
    fn rows_about(&self) -> Option<usize> {
        None
    }

    /// Plans a scan: chooses and shares out what is read, and reads nothing.
    ///
    /// # Errors
    /// Internal: the shape does not fit the table.
    fn scan(&self, shape: &ScanShape) -> Result<Arc<dyn PlannedScan>>;
}

/// The order of the rows of each partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanOrder {
    /// The column by which they are in order.
    pub column: usize,
    /// Whether the greatest comes first.
    pub descending: bool,
}

/// How a scan is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanText {
    /// On one line, as plans are listed.
    Line,
    /// Some short lines, as in a drawing of the plan.
    Drawn,
}

/// A scan as it stands in a plan: it never changes, and keeps nothing of its runs.
pub trait PlannedScan: Any + Debug + Send + Sync {
    /// Gives the name of the node.
    fn name(&self) -> &'static str;

    /// Gives the columns that come out.
    fn schema(&self) -> SchemaRef;

    /// Gives the order that is promised.
    fn order(&self) -> Option<ScanOrder> {
        None
    }

    /// Says how many partitions there are.
    fn partitions(&self) -> usize;

    /// Writes what is scanned, the name first where it is one line. Where rows are hidden from whoever asks, nothing that
    /// they would be told by.
    ///
    /// # Errors
    /// Those of the writer.
    fn explain(&self, text: ScanText, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// What planning knows, as metrics of the node.
    fn known(&self) -> Vec<(Cow<'static, str>, usize)> {
        Vec::new()
    }

    /// Names of [`ReadStats`] that each partition counts for the node, too.
    fn counters(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Begins to read a partition for a run.
    ///
    /// # Errors
    /// Internal: this partition cannot be read, or not alone.
    fn open(&self, partition: usize, task: ScanTask) -> Result<Box<dyn ScanBatches>>;
}

/// Written forms of the scans of a store: how a plan with them leaves the engine that made it. Who asks, what for, and how
/// the work is shared out are data; the snapshot is named by a number ([`crate::Pins`]).
pub trait ScanForms: Debug + Send + Sync {
    /// Writes a scan; none: it is of another store.
    ///
    /// # Errors
    /// Internal: something of it has no written form; the error names it.
    fn write(&self, scan: &dyn PlannedScan) -> Result<Option<Vec<u8>>>;

    /// Reads a scan.
    ///
    /// # Errors
    /// Internal: these are no bytes of one, or its snapshot is not held any more.
    fn read(&self, bytes: &[u8]) -> Result<Arc<dyn PlannedScan>>;
}

/// What a partition reads.
#[async_trait]
pub trait ScanBatches: Send {
    /// Gives the next batch; none: it is read. Reading happens on the thread that polls, which it gives up now and then.
    ///
    /// # Errors
    /// Those of reading, and LimitExceeded.
    async fn next(&mut self) -> Result<Option<RecordBatch>>;
}

/// What the run of a plan hands to a partition.
#[derive(Debug)]
pub struct ScanTask {
    /// What the partition holds counts here, until it is dropped.
    pub memory: Arc<dyn ScanMemory>,
    /// What it does counts here.
    pub counters: Arc<dyn ScanCounters>,
    /// What it reads counts here for the query, whose memory and time are asked through it, too.
    pub stats: Arc<ReadStats>,
    /// Where partitions of one run meet; none: there is no engine around them.
    pub shared: Option<Arc<RunShared>>,
}

/// Memory of one partition, of what its query may have.
pub trait ScanMemory: Debug + Send + Sync {
    /// Takes more.
    ///
    /// # Errors
    /// LimitExceeded.
    fn try_grow(&self, bytes: usize) -> Result<()>;

    /// Takes more or gives some back, so that it is as much.
    ///
    /// # Errors
    /// LimitExceeded.
    fn try_resize(&self, bytes: usize) -> Result<()>;

    /// Gives back all that was taken.
    fn free(&self);
}

/// Metrics of one partition.
pub trait ScanCounters: Debug + Send + Sync {
    /// Adds time that was spent.
    fn worked(&self, time: Duration);

    /// Adds to those counters that are the node's ([`PlannedScan::counters`]).
    fn add(&self, counted: &[(&'static str, u64)]);
}

/// Counts the time until it is dropped.
#[derive(Debug)]
pub struct ScanTimer {
    counters: Arc<dyn ScanCounters>,
    began: Instant,
}

impl ScanTimer {
    /// Begins to count; the time goes to the counters when the timer is dropped.
    pub fn start(counters: &Arc<dyn ScanCounters>) -> Self {
        Self { counters: Arc::clone(counters), began: Instant::now() }
    }
}

impl Drop for ScanTimer {
    fn drop(&mut self) {
        self.counters.worked(self.began.elapsed());
    }
}
