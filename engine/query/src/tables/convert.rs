//! `ConvertExec`: turns the stored form of rows (ids as bytes, attributes as one run of bytes, samples as lists per series)
//! into the columns of a named table.
//!
//! DataFusion lacks it because one stored row may become many (samples of a series, events of a span) and because the
//! store's encodings are ours. The node is immutable; what it converts is cut into batches of [`BATCH_ROWS`] rows.

use std::fmt::{self, Debug};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties as _, Partitioning, PlanProperties,
};
use futures::{StreamExt as _, TryStreamExt as _};
use quiver_types::Error;

use super::written::WrittenConvert;
use crate::error::to_datafusion;
use crate::forms::At;
use crate::heads::{no_expressions, one_input};
use crate::unpinned::unpinned;

/// Column that numbers the rows of a scan: no row of another partition or batch has the same number.
pub(super) const ROW_ID: &str = "__q_row_id";
/// Bits of such a number that count rows of one partition.
const ROW_BITS: u32 = 40;

/// Rows of a batch that leaves a table, at most.
pub(super) const BATCH_ROWS: usize = 8192;

/// The batches that one stored batch becomes.
pub(crate) type Converted = Box<dyn Iterator<Item = quiver_types::Result<RecordBatch>> + Send>;

/// Turns stored rows into rows of a table.
pub(crate) trait Convert: Debug + Send + Sync {
    /// Schema of what it gives.
    fn schema(&self) -> SchemaRef;

    /// Converts a batch piece by piece, so that a row that becomes many is never there as a whole.
    fn convert(self: Arc<Self>, batch: RecordBatch) -> Converted;

    /// What plans show beside the name.
    fn detail(&self) -> String;

    /// The same with texts by codes and ids as bytes ([`HEX`]), for whoever groups; `None`: there is no such form.
    fn coded(&self) -> Option<Arc<dyn Convert>> {
        None
    }

    /// Whether a column is of ids that are written as hex.
    fn has_id(&self, _column: usize) -> bool {
        false
    }

    /// The same with some columns of ids as bytes; `None`: one of them is none.
    fn with_bytes(&self, _columns: &[usize]) -> Option<Arc<dyn Convert>> {
        None
    }

    /// What a written plan says of it; `None`: it cannot be written.
    fn written(&self, _at: &At<'_>) -> Result<Option<WrittenConvert>> {
        Ok(None)
    }
}

/// Metadata of a field of bytes: what it stands for is their lower-case hex.
pub(crate) const HEX: &str = "quiver.hex";

/// Cuts a batch into pieces of [`BATCH_ROWS`] rows.
pub(super) fn pieces(batch: RecordBatch) -> impl Iterator<Item = RecordBatch> + Send {
    (0..batch.num_rows()).step_by(BATCH_ROWS).map(move |at| batch.slice(at, BATCH_ROWS.min(batch.num_rows() - at)))
}

/// Makes a batch, of no columns too.
///
/// # Errors
/// Internal: the columns are not those of the schema.
pub(super) fn batch(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> quiver_types::Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|e| Error::internal("a table's columns do not fit its schema").with_source(e))
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ConvertExec {
    table: &'static str,
    input: Arc<dyn ExecutionPlan>,
    convert: Arc<dyn Convert>,
    limit: Option<usize>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

impl ConvertExec {
    /// Puts a conversion over a scan; `limit`: rows that each partition gives at most.
    pub(crate) fn new(
        table: &'static str,
        input: Arc<dyn ExecutionPlan>,
        convert: Arc<dyn Convert>,
        limit: Option<usize>,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(convert.schema()),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let properties = Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative));
        Self { table, input, convert, limit, metrics: ExecutionPlanMetricsSet::new(), properties }
    }

    /// The same with texts by codes, if there is such a form; see [`Convert::coded`].
    pub(crate) fn coded(&self) -> Option<Self> {
        let convert = self.convert.coded().filter(|_| self.limit.is_none())?;
        Some(Self::new(self.table, Arc::clone(&self.input), convert, None))
    }

    /// See [`Convert::has_id`].
    pub(crate) fn has_id(&self, column: usize) -> bool {
        self.convert.has_id(column)
    }

    /// See [`Convert::with_bytes`].
    pub(crate) fn with_bytes(&self, columns: &[usize]) -> Option<Self> {
        let convert = self.convert.with_bytes(columns)?;
        Some(Self::new(self.table, Arc::clone(&self.input), convert, self.limit))
    }

    /// What a written plan says of the conversion; `None`: it cannot be written.
    pub(crate) fn written(&self, at: &At<'_>) -> Result<Option<WrittenConvert>> {
        self.convert.written(at)
    }

    /// Rows that each partition gives at most.
    pub(crate) fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Reads a conversion over its input.
    pub(crate) fn read(
        rows: WrittenConvert,
        input: Arc<dyn ExecutionPlan>,
        limit: Option<usize>,
        at: &At<'_>,
    ) -> Result<Self> {
        let (table, convert, columns) = rows.read(at)?;
        if input.schema().fields().len() < columns {
            return internal_err!("the input of a conversion has other columns");
        }
        Ok(Self::new(table, input, convert, limit))
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self::new(self.table, input, Arc::clone(&self.convert), self.limit)
    }
}

impl DisplayAs for ConvertExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.schema().fields().iter().map(|field| field.name().clone()).collect();
        write!(f, "ConvertExec: table={}, columns=[{}]{}", self.table, names.join(", "), self.convert.detail())?;
        self.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
    }
}

impl ExecutionPlan for ConvertExec {
    fn name(&self) -> &'static str {
        "ConvertExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    one_input!();
    no_expressions!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let convert = Arc::clone(&self.convert);
        let converted = input
            .map_ok(move |batch| {
                let pieces = Arc::clone(&convert).convert(batch).map(|piece| piece.map_err(to_datafusion));
                futures::stream::iter(pieces)
            })
            .try_flatten();
        let mut left = self.limit.unwrap_or(usize::MAX);
        let number_at = self.schema().column_with_name(ROW_ID).map(|(at, _)| at);
        let mut number = (partition as i64) << ROW_BITS;
        let counted = converted.map_ok(move |batch| {
            let batch = match number_at {
                Some(at) => numbered(&batch, at, &mut number),
                None => batch,
            };
            let rows = left.min(batch.num_rows());
            left -= rows;
            baseline.record_output(rows);
            unpinned(batch.slice(0, rows))
        });
        let counted = match self.limit {
            None => counted.boxed(),
            // The batch that fills the limit is the last one that is asked for.
            Some(limit) => limited(counted.boxed(), limit),
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), counted)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Puts numbers in the place of a column of numbers.
fn numbered(batch: &RecordBatch, at: usize, number: &mut i64) -> RecordBatch {
    let end = *number + batch.num_rows() as i64;
    let mut columns = batch.columns().to_vec();
    columns[at] = Arc::new(Int64Array::from_iter_values(*number..end));
    *number = end;
    RecordBatch::try_new(batch.schema(), columns).expect("a column of the same type and length")
}

type Batches = futures::stream::BoxStream<'static, Result<RecordBatch>>;

fn limited(batches: Batches, limit: usize) -> Batches {
    futures::stream::try_unfold((batches, limit), |(mut batches, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let next = batches.try_next().await?;
        Ok(next.map(|batch| {
            let left = left.saturating_sub(batch.num_rows());
            (batch, (batches, left))
        }))
    })
    .boxed()
}
