//! The scan of spans as a node of a query plan.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use quiver_types::scan::{PlannedScan, ScanBatches, ScanMemory, ScanShape, ScanTask, ScanText, batch_bytes};
use quiver_types::spans::{SpanRequest, schema_of};
use quiver_types::{Access, Result};
use serde::{Deserialize, Serialize};

use super::duplicates::Repeats;
use super::stream::{ScanRun, ScanShared, SpanStream};
use crate::error::Context;
use crate::snapshot::SnapshotForm;

/// So many rows are looked at in less time than two more threads take to begin.
const SHORT_ROWS: usize = 16 * 1024;

/// Reads the spans that match a filter; the partitions share the work.
#[derive(Debug)]
pub(crate) struct SpansScan {
    scan: Arc<ScanShared>,
    schema: SchemaRef,
    shape: ScanShape,
    /// The units of each partition.
    shares: Vec<VecDeque<usize>>,
    /// Whether the user must not see some spans: then plans do not show where the others are stored.
    hidden: bool,
}

/// The serialized form of a scan of spans.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SpansForm {
    snapshot: SnapshotForm,
    access: Access,
    request: SpanRequest,
    hidden: bool,
    shape: ScanShape,
}

impl SpansForm {
    /// Recreates the scan over the same snapshot.
    pub(crate) fn scan(self, repeats: &Arc<Repeats>) -> Result<SpansScan> {
        let scan = ScanShared::new(&self.snapshot.snapshot()?, repeats, self.access, self.request);
        SpansScan::try_new(&Arc::new(scan), self.hidden, self.shape)
    }
}

impl SpansScan {
    /// The serialized form of the scan.
    pub(crate) fn form(&self) -> SpansForm {
        let (snapshot, access) = (self.scan.snapshot.form(), self.scan.access.clone());
        let (request, shape) = (self.scan.request.clone(), self.shape.clone());
        SpansForm { snapshot, access, request, hidden: self.hidden, shape }
    }

    pub(super) fn try_new(scan: &Arc<ScanShared>, hidden: bool, shape: ScanShape) -> Result<Self> {
        let schema = projected(schema_of(&scan.request.columns), &shape)?;
        // The shape of the surrounding plan depends on the number of partitions, which must not reveal spans that the
        // user may not see.
        let units = if hidden { usize::MAX } else { scan.units() };
        // The rows of one trace are in few units: dividing those takes longer than reading them. So it does for few rows.
        let is_one = scan.request.filter.traces().is_some_and(|ids| ids.len() == 1);
        let is_short = is_one || (!hidden && scan.rows_about() <= SHORT_ROWS);
        let partitions = if is_short { 1 } else { units.clamp(1, shape.partitions.max(1)) };
        Ok(Self { shares: scan.shares(partitions), scan: Arc::clone(scan), schema, shape, hidden })
    }
}

/// Applies the projection of a scan to the columns of its table.
pub(super) fn projected(all: SchemaRef, shape: &ScanShape) -> Result<SchemaRef> {
    Ok(match &shape.projection {
        Some(columns) => Arc::new(all.project(columns).internal("spans have no such columns")?),
        None => all,
    })
}

/// The state that all partitions of a run share. Without a surrounding engine each partition has its own.
pub(super) fn run_of(scan: &Arc<ScanShared>, task: &ScanTask) -> Arc<ScanRun> {
    let make = || ScanRun::new(scan, Arc::clone(&task.stats));
    match &task.shared {
        Some(shared) => shared.of_node(scan, make),
        None => Arc::new(make()),
    }
}

/// Writes the last part of a scan's description.
pub(super) fn write_end(schema: &SchemaRef, limit: Option<usize>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
    write!(f, "columns=[{}]", names.join(", "))?;
    limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
}

impl PlannedScan for SpansScan {
    fn name(&self) -> &'static str {
        "SpansExec"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn partitions(&self) -> usize {
        self.shares.len()
    }

    fn explain(&self, _: ScanText, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpansExec: filter={}, ", self.scan.request.filter)?;
        // Users who may not see all spans must not learn where they are stored.
        if !self.hidden {
            write!(f, "parts={}/{}, ", self.scan.parts.len(), self.scan.parts_total)?;
            write!(f, "live_batches={}, partitions={}, ", self.scan.live(), self.shares.len())?;
            let [time, service] = self.scan.pruned;
            for (by, n) in [("time", time), ("service", service)].into_iter().filter(|&(_, n)| n > 0) {
                write!(f, "pruned_by_{by}={n}, ")?;
            }
        }
        write_end(&self.schema, self.shape.limit, f)
    }

    fn known(&self) -> Vec<(Cow<'static, str>, usize)> {
        vec![("parts_total".into(), self.scan.parts_total), ("parts_read".into(), self.scan.parts.len())]
    }

    fn open(&self, partition: usize, task: ScanTask) -> Result<Box<dyn ScanBatches>> {
        let stream = SpanStream::new(run_of(&self.scan, &task), self.shares[partition].clone(), self.shape.limit);
        Ok(Box::new(SpanBatches { stream, projection: self.shape.projection.clone(), memory: task.memory }))
    }
}

/// The batches of one partition.
struct SpanBatches {
    stream: SpanStream,
    projection: Option<Vec<usize>>,
    memory: Arc<dyn ScanMemory>,
}

#[async_trait]
impl ScanBatches for SpanBatches {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(batch) = self.stream.next(&*self.memory).await? else {
            self.memory.free();
            return Ok(None);
        };
        // Accounted until the next batch is requested: it was decoded as a whole, and the consumer accounts for what it
        // keeps.
        self.memory.try_resize(batch_bytes(&batch) + self.stream.ready_bytes())?;
        Ok(Some(match &self.projection {
            Some(columns) => batch.project(columns).internal("cannot make a batch of spans")?,
            None => batch,
        }))
    }
}

/// Trims complete batches to the columns and rows that the plan wants.
#[derive(Debug)]
pub(super) struct BatchTrimmer {
    projection: Option<Vec<usize>>,
    rows_left: usize,
}

impl BatchTrimmer {
    pub(super) fn new(shape: &ScanShape) -> Self {
        Self { projection: shape.projection.clone(), rows_left: shape.limit.unwrap_or(usize::MAX) }
    }

    /// Tells whether the row limit was reached.
    pub(super) fn is_done(&self) -> bool {
        self.rows_left == 0
    }

    pub(super) fn take(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let batch = batch.slice(0, batch.num_rows().min(self.rows_left));
        self.rows_left -= batch.num_rows();
        match &self.projection {
            Some(columns) => batch.project(columns).internal("cannot make a batch of spans"),
            None => Ok(batch),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
    use arrow::datatypes::Int64Type;

    use super::*;

    fn batch(rows: std::ops::Range<i64>) -> RecordBatch {
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(rows.clone().map(|n| n.to_string())));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(rows));
        RecordBatch::try_from_iter([("t", texts), ("n", numbers)]).unwrap()
    }

    #[test]
    fn batches_are_cut_to_what_a_plan_wants() {
        let shape = ScanShape { projection: Some(vec![1]), limit: Some(5), partitions: 1 };
        let mut cut = BatchTrimmer::new(&shape);
        let mut found = Vec::new();
        for rows in [0..3, 3..3, 3..9, 9..12] {
            let done = cut.is_done();
            let batch = cut.take(&batch(rows)).unwrap();
            assert_eq!(batch.num_columns(), 1);
            assert!(!done || batch.num_rows() == 0, "no more are wanted");
            found.extend_from_slice(batch.column(0).as_primitive::<Int64Type>().values());
        }
        assert_eq!(found, [0, 1, 2, 3, 4]);
        let mut all = BatchTrimmer::new(&ScanShape::default());
        assert_eq!(all.take(&batch(0..9)).unwrap(), batch(0..9));
        assert!(!all.is_done());
        assert!(BatchTrimmer::new(&ScanShape { limit: Some(0), ..shape.clone() }).is_done());
        let mut wrong = BatchTrimmer::new(&ScanShape { projection: Some(vec![2]), ..shape });
        assert!(wrong.take(&batch(0..1)).is_err());
    }

    #[test]
    fn a_scan_has_the_columns_that_are_asked_of_its_table() {
        let shape = |projection: Option<Vec<usize>>| ScanShape { projection, limit: None, partitions: 1 };
        let of = |projection: Option<Vec<usize>>| projected(batch(0..0).schema(), &shape(projection));
        let names = |schema: SchemaRef| schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
        assert_eq!(names(of(None).unwrap()), ["t", "n"]);
        assert_eq!(names(of(Some(vec![1, 0])).unwrap()), ["n", "t"]);
        assert!(of(Some(Vec::new())).unwrap().fields().is_empty());
        assert_eq!(of(Some(vec![7])).unwrap_err().message, "spans have no such columns");
    }

    #[test]
    fn the_line_of_a_scan_ends_with_columns_and_limit() {
        struct End(Option<usize>);
        impl fmt::Display for End {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_end(&batch(0..0).schema(), self.0, f)
            }
        }
        assert_eq!(End(None).to_string(), "columns=[t, n]");
        assert_eq!(End(Some(0)).to_string(), "columns=[t, n], limit=0");
    }
}
