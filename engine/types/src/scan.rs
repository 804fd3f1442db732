//! How the engine scans a store, in three steps: a [`ScanSource`] describes a table, it plans a [`PlannedScan`], which
//! opens [`ScanBatches`] per partition.
//!
//! `store` implements these traits and so needs not know the engine; `query` wraps any of them in one table provider
//! and one leaf node of plans. What a run needs (memory, counters, state shared by its partitions) comes as a
//! [`ScanTask`], so a planned scan is plain data: it can run any number of times, its partitions in any order.

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

/// What a plan needs from a table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanShape {
    /// Indices of the output columns, in output order; `None`: all columns of the table.
    pub projection: Option<Vec<usize>>,
    /// Rows after which each partition may stop; `None`: no limit.
    pub limit: Option<usize>,
    /// Most partitions; a scan has fewer if there is little to read.
    pub partitions: usize,
}

/// A table over a snapshot, restricted to what the caller may see. Its filters are part of it, and it applies them
/// exactly, so no filter is needed above the scan.
pub trait ScanSource: Debug + Send + Sync {
    /// Gives its columns.
    fn schema(&self) -> SchemaRef;

    /// Estimates the number of rows; `None`: unknown without reading.
    fn rows_about(&self) -> Option<usize> {
        None
    }

    /// Plans a scan: chooses what is read and distributes it over partitions, without reading it.
    ///
    /// # Errors
    /// Internal: the shape does not fit the table.
    fn scan(&self, shape: &ScanShape) -> Result<Arc<dyn PlannedScan>>;
}

/// The order of the rows of each partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanOrder {
    /// Index of the column that they are sorted by.
    pub column: usize,
    /// Whether the largest value comes first.
    pub descending: bool,
}

/// How `explain` shows a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanText {
    /// On one line, as in an indented list of nodes.
    Line,
    /// In several short lines, as in a tree drawing of the plan.
    Drawn,
}

/// A scan as part of a physical plan: immutable, without state of its runs.
pub trait PlannedScan: Any + Debug + Send + Sync {
    /// Gives the name of the node.
    fn name(&self) -> &'static str;

    /// Gives the schema of the output.
    fn schema(&self) -> SchemaRef;

    /// Gives the guaranteed order of rows within each partition; `None`: no order.
    fn order(&self) -> Option<ScanOrder> {
        None
    }

    /// Says how many partitions there are.
    fn partitions(&self) -> usize;

    /// Estimates how many values a column has, from what is in memory; `None`: unknown.
    fn values_about(&self, column: &str) -> Option<u64> {
        let _ = column;
        None
    }

    /// Writes what is scanned; [`ScanText::Line`] begins with the name. If rows are hidden from the caller, the text
    /// must not contain anything that reveals them, such as counts.
    ///
    /// # Errors
    /// Those of the writer.
    fn explain(&self, text: ScanText, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Gives what is known from planning (name, value), shown as metrics of the node.
    fn known(&self) -> Vec<(Cow<'static, str>, usize)> {
        Vec::new()
    }

    /// Gives the names of the counters of [`ReadStats`] that partitions also report as metrics of the node.
    fn counters(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Opens a partition for one run.
    ///
    /// # Errors
    /// Internal: there is no such partition, or it needs the shared state of a run ([`ScanTask::shared`]) and has none.
    fn open(&self, partition: usize, task: ScanTask) -> Result<Box<dyn ScanBatches>>;
}

/// Serializes the scans of a store, so that a plan can be sent to another engine. Access, filters and the division into
/// partitions are written as data; the snapshot is referred to by a number ([`crate::Pins`]).
pub trait ScanForms: Debug + Send + Sync {
    /// Writes a scan; `None`: it belongs to another store.
    ///
    /// # Errors
    /// Internal: some part of it cannot be serialized; the error names it.
    fn write(&self, scan: &dyn PlannedScan) -> Result<Option<Vec<u8>>>;

    /// Reads a scan.
    ///
    /// # Errors
    /// Internal: the bytes are not a serialized scan, or its snapshot is no longer held.
    fn read(&self, bytes: &[u8]) -> Result<Arc<dyn PlannedScan>>;
}

/// The batches of an open partition.
#[async_trait]
pub trait ScanBatches: Send {
    /// Gives the next batch; `None` at the end. Reads on the thread that polls, and yields now and then.
    ///
    /// # Errors
    /// Those of reading; LimitExceeded.
    async fn next(&mut self) -> Result<Option<RecordBatch>>;
}

/// What a partition needs from the run of its plan.
#[derive(Debug)]
pub struct ScanTask {
    /// Reservation for the memory that the partition holds, given back when it is dropped.
    pub memory: Arc<dyn ScanMemory>,
    /// Metrics of the plan node.
    pub counters: Arc<dyn ScanCounters>,
    /// Counters of the whole query, which also check its memory and time limits.
    pub stats: Arc<ReadStats>,
    /// State that the partitions of one run share; `None` outside of an engine.
    pub shared: Option<Arc<RunShared>>,
}

/// The memory reservation of one partition, part of its query's memory.
pub trait ScanMemory: Debug + Send + Sync {
    /// Reserves more bytes.
    ///
    /// # Errors
    /// LimitExceeded.
    fn try_grow(&self, bytes: usize) -> Result<()>;

    /// Changes the reservation to exactly this many bytes.
    ///
    /// # Errors
    /// LimitExceeded.
    fn try_resize(&self, bytes: usize) -> Result<()>;

    /// Gives back the whole reservation.
    fn free(&self);
}

/// Metrics of one partition.
pub trait ScanCounters: Debug + Send + Sync {
    /// Adds to the time spent.
    fn worked(&self, time: Duration);

    /// Adds to the counters named by [`PlannedScan::counters`]; others are ignored.
    fn add(&self, counted: &[(&'static str, u64)]);
}

/// Measures the time from its start until it is dropped.
#[derive(Debug)]
pub struct ScanTimer {
    counters: Arc<dyn ScanCounters>,
    began: Instant,
}

impl ScanTimer {
    /// Starts the timer; the time goes to `counters` when it is dropped.
    pub fn start(counters: &Arc<dyn ScanCounters>) -> Self {
        Self { counters: Arc::clone(counters), began: Instant::now() }
    }
}

impl Drop for ScanTimer {
    fn drop(&mut self) {
        self.counters.worked(self.began.elapsed());
    }
}
