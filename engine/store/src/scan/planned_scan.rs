//! The scan of samples as a node of a query plan.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use quiver_types::scan::{PlannedScan, ScanBatches, ScanOrder, ScanShape, ScanTask, ScanText};
use quiver_types::{Pins, Result, SampleRequest};
use serde::{Deserialize, Serialize};

use super::batch;
use super::stream::{SampleStream, ScanRun, ScanShared};
use crate::error::Context;
use crate::scan_counters;
use crate::select::Selection;

/// Metrics that are counted when labels are resolved, so not by this node.
const OF_THE_QUERY: [&str; 3] = ["parts_total", "parts_read", "series"];

/// Reads the samples of selected series: one row per series, in ascending order; each partition covers a range of rows.
#[derive(Debug)]
pub(crate) struct SamplesScan {
    scan: Arc<ScanShared>,
    schema: SchemaRef,
    shape: ScanShape,
    partitions: Vec<Range<u32>>,
    /// Whether the user must not see some series: then plans do not show where the others are stored.
    hidden: bool,
}

/// The serialized form of a sample scan. The selection, which was made with the user's access rights, is referred to by
/// its number in this process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SamplesForm {
    selection: u64,
    request: SampleRequest,
    hidden: bool,
    shape: ScanShape,
}

impl SamplesForm {
    /// Recreates the scan over the same selection.
    pub(crate) fn scan(self) -> Result<SamplesScan> {
        let selection = Pins::of_process().pinned(self.selection)?;
        SamplesScan::try_new(selection, self.request, self.hidden, self.shape)
    }
}

impl SamplesScan {
    /// The serialized form of the scan.
    pub(crate) fn form(&self) -> SamplesForm {
        let selection = Pins::of_process().pin(&self.scan.selection);
        SamplesForm { selection, request: self.scan.request, hidden: self.hidden, shape: self.shape.clone() }
    }

    pub(super) fn try_new(
        selection: Arc<Selection>,
        request: SampleRequest,
        hidden: bool,
        shape: ScanShape,
    ) -> Result<Self> {
        let all = batch::schema(&request);
        let schema = match &shape.projection {
            Some(columns) => Arc::new(all.project(columns).internal("samples have no such columns")?),
            None => all,
        };
        let scan = Arc::new(ScanShared::new(selection, request));
        let partitions = scan.weights.partitions(shape.partitions);
        Ok(Self { scan, schema, shape, partitions, hidden })
    }

    /// The state that all partitions of a run share. Without a surrounding engine each partition has its own.
    fn run(&self, task: &ScanTask) -> Arc<ScanRun> {
        let make = || ScanRun::new(&self.scan, Arc::clone(&task.stats));
        match &task.shared {
            Some(shared) => shared.of_node(&self.scan, make),
            None => Arc::new(make()),
        }
    }

    /// Number of series that are scanned.
    fn series(&self) -> usize {
        self.scan.selection.rows - self.scan.selection.dropped
    }

    /// Number of parts of the table, and of parts that hold a selected series.
    fn parts(&self) -> (usize, usize) {
        (self.scan.selection.pruned.total, self.scan.selection.parts.len())
    }

    /// Number of parts that were pruned, by reason: `time`, `service`, `name`, `series`.
    fn pruned_by(&self) -> Vec<(&'static str, usize)> {
        let p = &self.scan.selection.pruned;
        let opened = p.total - p.time - p.service - p.name;
        let series = opened - self.scan.selection.parts.len();
        let all = [("time", p.time), ("service", p.service), ("name", p.name), ("series", series)];
        all.into_iter().filter(|&(_, n)| n > 0).collect()
    }
}

impl PlannedScan for SamplesScan {
    fn name(&self) -> &'static str {
        "SamplesExec"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn order(&self) -> Option<ScanOrder> {
        let column = self.schema.index_of("row").ok()?;
        Some(ScanOrder { column, descending: false })
    }

    fn partitions(&self) -> usize {
        self.partitions.len()
    }

    fn explain(&self, text: ScanText, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (parts_total, parts) = self.parts();
        let range = self.scan.request.range;
        // Users who may not see all series must not learn where they are stored, and among how many.
        let whole = !self.hidden;
        if text == ScanText::Drawn {
            writeln!(f, "selector={}", self.scan.selection.selector)?;
            writeln!(f, "series={}", self.series())?;
            return if whole { writeln!(f, "parts={parts}/{parts_total}") } else { Ok(()) };
        }
        write!(f, "SamplesExec: selector={}, range=[{}, {}]", self.scan.selection.selector, range.min, range.max)?;
        write!(f, ", series={}", self.series())?;
        if whole {
            let pages: usize = self.scan.selection.parts.iter().map(|part| part.series.pages()).sum();
            write!(f, ", parts={parts}/{parts_total}, considered={}", self.scan.selection.considered)?;
            write!(f, ", series_pages={pages}, generations={}", self.scan.selection.live.len())?;
            write!(f, ", partitions={}", self.partitions.len())?;
            for (by, n) in self.pruned_by() {
                write!(f, ", pruned_by_{by}={n}")?;
            }
        }
        if self.scan.selection.dropped > 0 {
            write!(f, ", unmatched_series={}", self.scan.selection.dropped)?;
        }
        let names: Vec<_> = self.schema.fields().iter().map(|field| field.name().clone()).collect();
        write!(f, ", columns=[{}]", names.join(", "))?;
        self.shape.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
    }

    fn known(&self) -> Vec<(Cow<'static, str>, usize)> {
        scan_counters::known(self.parts(), self.pruned_by())
    }

    fn counters(&self) -> Vec<&'static str> {
        scan_counters::counters(&OF_THE_QUERY)
    }

    fn open(&self, partition: usize, task: ScanTask) -> Result<Box<dyn ScanBatches>> {
        let (rows, run) = (self.partitions[partition].clone(), self.run(&task));
        Ok(Box::new(SampleStream::new(&self.scan, run, rows, &self.shape, task)))
    }
}
