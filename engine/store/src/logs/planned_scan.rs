//! The scan of logs as a node of a query plan.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use quiver_types::logs::{LogForm, LogOrder, LogRequest, TIME};
use quiver_types::scan::{PlannedScan, ScanBatches, ScanOrder, ScanShape, ScanTask, ScanText};
use quiver_types::{Access, Error, Result};
use serde::{Deserialize, Serialize};

use super::blocks::{Blocks, Sources};
use super::ordered_scan::OrderedScan;
use super::scan::{Scan, ScanRun};
use super::stream::AnyOrder;
use super::value_counts::LeftOut;
use crate::error::Context;
use crate::scan_counters;
use crate::snapshot::{Snapshot, SnapshotForm, SnapshotName};

/// Metrics that count for the query as a whole and not for a node.
const OF_THE_QUERY: [&str; 6] =
    ["parts_total", "parts_read", "series", "streams", "streams_chosen", "stream_blocks_read"];
/// A partition with fewer rows is not worth a thread.
const PARTITION_ROWS_MIN: u64 = 32 * 1024;

/// Reads the log rows that match a filter, in any order or by time.
#[derive(Debug)]
pub(crate) struct LogsScan {
    scan: Arc<Scan>,
    snapshot: SnapshotName,
    shape: ScanShape,
    partitions: usize,
    /// Whether the user must not see some rows: then plans do not show where the others are stored.
    hidden: bool,
}

/// The serialized form of a scan of logs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LogsForm {
    snapshot: SnapshotForm,
    access: Access,
    request: Arc<LogRequest>,
    hidden: bool,
    shape: ScanShape,
}

impl LogsForm {
    /// Recreates the scan over the same snapshot.
    pub(crate) fn scan(self) -> Result<LogsScan> {
        LogsScan::try_new(&self.snapshot.snapshot()?, self.access, self.request, self.hidden, self.shape)
    }
}

impl LogsScan {
    /// The serialized form of the scan.
    ///
    /// # Errors
    /// Internal: the snapshot has been dropped.
    pub(crate) fn form(&self) -> Result<LogsForm> {
        let gone = || Error::internal("the snapshot of a scan of logs is not held any more");
        let snapshot = self.snapshot.snapshot().ok_or_else(gone)?.form();
        let (access, request) = (self.scan.access.clone(), Arc::clone(&self.scan.request));
        Ok(LogsForm { snapshot, access, request, hidden: self.hidden, shape: self.shape.clone() })
    }

    pub(super) fn try_new(
        snapshot: &Snapshot,
        access: Access,
        request: Arc<LogRequest>,
        hidden: bool,
        shape: ScanShape,
    ) -> Result<Self> {
        let sources = Sources::new(snapshot, &access, &request);
        let all = request.schema();
        let every = || (0..all.fields().len()).collect();
        let projection = shape.projection.clone().unwrap_or_else(every);
        let schema = Arc::new(all.project(&projection).internal("logs have no such columns")?);
        // The shape of the surrounding plan depends on the number of partitions, which must not reveal rows that the
        // user may not see.
        let rows = if hidden { u64::MAX } else { sources.rows() };
        let worth = (rows / PARTITION_ROWS_MIN).clamp(1, shape.partitions.max(1) as u64);
        let partitions = if request.order == LogOrder::Any { worth as usize } else { 1 };
        let filter_fields = request.filter.fields();
        let scan = Arc::new(Scan { sources, access, request, projection, schema, filter_fields });
        Ok(Self { scan, snapshot: snapshot.name(), shape, partitions, hidden })
    }

    /// Number of parts of the table, and of parts that the catalog does not rule out.
    fn parts(&self) -> (usize, usize) {
        (self.scan.sources.pruned.total, self.scan.sources.parts())
    }

    /// Number of parts that were pruned, by reason.
    fn pruned_by(&self) -> Vec<(&'static str, usize)> {
        let p = &self.scan.sources.pruned;
        let all = [("time", p.time), ("service", p.service), ("name", p.name)];
        all.into_iter().filter(|&(_, n)| n > 0).collect()
    }

    /// The state that all partitions of a run share. Without a surrounding engine the only partition has its own.
    fn run(&self, task: &ScanTask) -> Result<Arc<ScanRun>> {
        let make = || {
            let Scan { sources, access, request, .. } = &*self.scan;
            let blocks = Arc::new(Blocks::new(sources, access, request, Arc::clone(&task.stats)));
            ScanRun { queue: blocks.queue(), blocks, left_out: LeftOut::default() }
        };
        match &task.shared {
            Some(shared) => Ok(shared.of_node(&self.scan, make)),
            None if self.partitions == 1 => Ok(Arc::new(make())),
            None => Err(Error::internal("partitions of a scan of logs run within an engine")),
        }
    }
}

impl PlannedScan for LogsScan {
    fn name(&self) -> &'static str {
        "LogsExec"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.scan.schema)
    }

    fn order(&self) -> Option<ScanOrder> {
        let order = self.scan.request.order;
        let column = self.scan.schema.index_of(TIME).ok().filter(|_| order != LogOrder::Any)?;
        Some(ScanOrder { column, descending: order == LogOrder::NewestFirst })
    }

    fn partitions(&self) -> usize {
        self.partitions
    }

    fn values_about(&self, column: &str) -> Option<u64> {
        // The shape of a plan must not tell of rows that are hidden.
        if self.hidden { None } else { self.scan.sources.values_about(column) }
    }

    fn explain(&self, text: ScanText, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (parts_total, parts) = self.parts();
        let filter = &self.scan.request.filter;
        // Users who may not see all rows must not learn where they are stored.
        let whole = !self.hidden;
        if text == ScanText::Drawn {
            writeln!(f, "filter={filter}")?;
            return if whole { writeln!(f, "parts={parts}/{parts_total}") } else { Ok(()) };
        }
        write!(f, "LogsExec: filter={filter}, order={:?}", self.scan.request.order)?;
        if self.scan.request.form != LogForm::Rows {
            write!(f, ", form={:?}", self.scan.request.form)?;
        }
        if whole {
            write!(f, ", parts={parts}/{parts_total}, generations={}", self.scan.sources.generations())?;
            write!(f, ", partitions={}", self.partitions)?;
            for (by, n) in self.pruned_by() {
                write!(f, ", pruned_by_{by}={n}")?;
            }
        }
        let names: Vec<_> = self.scan.schema.fields().iter().map(|field| field.name().clone()).collect();
        write!(f, ", columns=[{}]", names.join(", "))?;
        self.shape.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
    }

    fn known(&self) -> Vec<(Cow<'static, str>, usize)> {
        scan_counters::known(self.parts(), self.pruned_by())
    }

    fn counters(&self) -> Vec<&'static str> {
        scan_counters::counters(&OF_THE_QUERY)
    }

    fn open(&self, _: usize, task: ScanTask) -> Result<Box<dyn ScanBatches>> {
        let (scan, run) = (Arc::clone(&self.scan), self.run(&task)?);
        let batches: Box<dyn ScanBatches> = match self.scan.request.order {
            LogOrder::Any => Box::new(AnyOrder::new(scan, run, self.shape.limit, task)),
            order => Box::new(OrderedScan::new(scan, run, order == LogOrder::NewestFirst, self.shape.limit, task)),
        };
        Ok(batches)
    }
}
