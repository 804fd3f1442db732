//! `ConvertExec`: turns the stored form of rows (ids as bytes, attributes as one run of bytes, samples as lists per series)
//! into the columns of a named table.
//!
//! DataFusion lacks it because one stored row may become many (samples of a series, events of a span) and because the
//! store's encodings are ours. The node is immutable; what it converts is cut into batches of [`BATCH_ROWS`] rows.

use std::fmt::{self, Debug};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties as _, Partitioning, PlanProperties,
};
use futures::{StreamExt as _, TryStreamExt as _};
use quiver_types::spans::WithoutValue;
use quiver_types::{Error, ReadStats};

use super::encoding::WrittenConvert;
use crate::encoding::context::At;
use crate::error::{own_error, to_datafusion};
use crate::node_defaults::{no_expressions, one_input};
use crate::view_compaction::unpinned;

/// Column with a number per row that is unique within a scan, across partitions and batches.
pub(super) const ROW_ID: &str = "__q_row_id";
/// Number of low bits that count the rows of one partition.
const ROW_BITS: u32 = 40;

/// Most rows of a batch that a table gives.
pub(super) const BATCH_ROWS: usize = 8192;
/// About the most bytes of a batch whose rows are made longer than they are stored.
pub(super) const BATCH_BYTES: usize = 4 << 20;

/// The batches that one stored batch is converted to.
pub(crate) type ConvertedBatches = Box<dyn Iterator<Item = quiver_types::Result<RecordBatch>> + Send>;

/// Converts stored rows to rows of a table.
pub(crate) trait Convert: Debug + Send + Sync {
    /// Schema of the converted rows.
    fn schema(&self) -> SchemaRef;

    /// Converts a batch lazily, so that the result of a row that becomes many is never in memory as a whole.
    fn convert(self: Arc<Self>, batch: RecordBatch) -> ConvertedBatches;

    /// What `explain` shows after the name.
    fn detail(&self) -> String;

    /// The same conversion with dictionary-coded texts and ids as bytes ([`HEX`]), for grouping; `None` if not
    /// available.
    fn coded(&self) -> Option<Arc<dyn Convert>> {
        None
    }

    /// Says whether a column holds ids as hexadecimal text.
    fn has_id(&self, _column: usize) -> bool {
        false
    }

    /// The same conversion with these columns of ids as bytes; `None` if one of them holds no ids.
    fn with_bytes(&self, _columns: &[usize]) -> Option<Arc<dyn Convert>> {
        None
    }

    /// Its serialized form; `None` if it cannot be serialized.
    fn written(&self, _at: &At<'_>) -> Result<Option<WrittenConvert>> {
        Ok(None)
    }
}

/// Metadata key of a binary field whose values stand for the lower-case hexadecimal text of the bytes.
pub(crate) const HEX: &str = "quiver.hex";

/// Cuts a batch into pieces of [`BATCH_ROWS`] rows.
pub(super) fn pieces(batch: RecordBatch) -> impl Iterator<Item = RecordBatch> + Send {
    (0..batch.num_rows()).step_by(BATCH_ROWS).map(move |at| batch.slice(at, BATCH_ROWS.min(batch.num_rows() - at)))
}

/// Cuts a batch into pieces of at most [`BATCH_ROWS`] rows, and of about [`BATCH_BYTES`] if a row takes so many bytes.
pub(super) fn pieces_by_bytes(batch: RecordBatch, bytes: &dyn Fn(usize) -> usize) -> Vec<RecordBatch> {
    let (mut pieces, mut from, mut held) = (Vec::new(), 0, 0);
    for row in 0..batch.num_rows() {
        let more = bytes(row);
        if row > from && (row - from == BATCH_ROWS || held + more > BATCH_BYTES) {
            pieces.push(batch.slice(from, row - from));
            (from, held) = (row, 0);
        }
        held += more;
    }
    if from < batch.num_rows() {
        pieces.push(batch.slice(from, batch.num_rows() - from));
    }
    pieces
}

/// Makes a batch, which may have no columns.
///
/// # Errors
/// Internal: the columns are not those of the schema.
pub(super) fn batch(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> quiver_types::Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|e| Error::internal("a table's columns do not fit its schema").with_source(e))
}

/// The operator; see the module documentation.
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
    /// Makes a node that converts the rows of a scan; `limit` is the most rows of each partition.
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

    /// The same node with dictionary-coded texts, if available; see [`Convert::coded`].
    pub(crate) fn coded(&self) -> Option<Self> {
        let convert = self.convert.coded().filter(|_| self.limit.is_none())?;
        Some(Self::new(self.table, Arc::clone(&self.input), convert, None))
    }

    /// Says whether a column holds ids as hexadecimal text.
    pub(crate) fn has_id(&self, column: usize) -> bool {
        self.convert.has_id(column)
    }

    /// The same node with these columns of ids as bytes; `None` if one of them holds no ids.
    pub(crate) fn with_bytes(&self, columns: &[usize]) -> Option<Self> {
        let convert = self.convert.with_bytes(columns)?;
        Some(Self::new(self.table, Arc::clone(&self.input), convert, self.limit))
    }

    /// The serialized form of the conversion; `None` if it cannot be serialized.
    pub(crate) fn written(&self, at: &At<'_>) -> Result<Option<WrittenConvert>> {
        self.convert.written(at)
    }

    /// The most rows of each partition.
    pub(crate) fn limit(&self) -> Option<usize> {
        self.limit
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
        let stats = context.session_config().get_extension::<ReadStats>();
        let hides = stats.is_some_and(|stats| stats.is_hidden());
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
            // Stops polling the input once the limit is reached.
            Some(limit) => limited(counted.boxed(), limit),
        };
        let counted = counted.map_err(move |e| if hides { untold(e) } else { e });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), counted)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Removes the value from an error about it. Models read rows that their caller may not see, and nothing here says
/// whose row the value is from.
fn untold(error: DataFusionError) -> DataFusionError {
    let without = own_error(&error).and_then(|own| {
        let text = &own.source.as_deref()?.downcast_ref::<WithoutValue>()?.0;
        Some(Error::new(own.kind, text.clone()))
    });
    without.map_or(error, to_datafusion)
}

/// Fills the column of row numbers, which begin at `number`.
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

#[cfg(test)]
mod tests {
    use arrow::array::AsArray as _;
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::physical_plan::{collect_partitioned, displayable};
    use datafusion::prelude::{SessionConfig, SessionContext};
    use quiver_types::ErrorKind;
    use quiver_types::spans::AttributeKind;

    use super::*;
    use crate::error::from_datafusion;

    /// Repeats each number a number of times; a negative number is an error.
    #[derive(Debug)]
    struct Repeated {
        schema: SchemaRef,
        times: usize,
    }

    impl Convert for Repeated {
        fn schema(&self) -> SchemaRef {
            Arc::clone(&self.schema)
        }

        fn convert(self: Arc<Self>, stored: RecordBatch) -> ConvertedBatches {
            let numbers = stored.column(0).as_primitive::<Int64Type>().values().to_vec();
            Box::new(numbers.into_iter().map(move |number| {
                if number < 0 {
                    return Err(Error::new(ErrorKind::Execution, format!("{number} is below zero")));
                }
                let column: ArrayRef = Arc::new(Int64Array::from_value(number, self.times));
                batch(&self.schema, vec![column; self.schema.fields().len()], self.times)
            }))
        }

        fn detail(&self) -> String {
            format!(", times={}", self.times)
        }
    }

    fn schema(names: &[&str]) -> SchemaRef {
        Arc::new(Schema::new(names.iter().map(|name| Field::new(*name, DataType::Int64, false)).collect::<Vec<_>>()))
    }

    /// A conversion of numbers: one list of batches per partition.
    fn node(parts: &[&[&[i64]]], times: usize, names: &[&str], limit: Option<usize>) -> ConvertExec {
        let stored = schema(&["stored"]);
        let of = |numbers: &&[i64]| {
            RecordBatch::try_new(Arc::clone(&stored), vec![Arc::new(Int64Array::from(numbers.to_vec()))]).unwrap()
        };
        let parts: Vec<Vec<RecordBatch>> = parts.iter().map(|batches| batches.iter().map(of).collect()).collect();
        let input = MemorySourceConfig::try_new_exec(&parts, Arc::clone(&stored), None).unwrap();
        ConvertExec::new("numbers", input, Arc::new(Repeated { schema: schema(names), times }), limit)
    }

    /// The values of a column, partition by partition.
    async fn values(node: Arc<ConvertExec>, column: usize) -> Result<Vec<Vec<i64>>> {
        let parts = collect_partitioned(node, SessionContext::new().task_ctx()).await?;
        let of = |batch: &RecordBatch| batch.column(column).as_primitive::<Int64Type>().values().to_vec();
        Ok(parts.iter().map(|batches| batches.iter().flat_map(of).collect()).collect())
    }

    #[tokio::test]
    async fn each_partition_gives_no_more_than_the_limit() {
        let parts: &[&[&[i64]]] = &[&[&[1, 2], &[3]], &[&[4]], &[]];
        for (limit, expected) in [
            (None, [vec![1, 1, 1, 2, 2, 2, 3, 3, 3], vec![4, 4, 4], vec![]]),
            (Some(4), [vec![1, 1, 1, 2], vec![4, 4, 4], vec![]]),
            (Some(3), [vec![1, 1, 1], vec![4, 4, 4], vec![]]),
            (Some(0), [vec![], vec![], vec![]]),
        ] {
            let node = Arc::new(node(parts, 3, &["n"], limit));
            assert_eq!(values(Arc::clone(&node), 0).await.unwrap(), expected, "{limit:?}");
            let rows = expected.iter().map(Vec::len).sum::<usize>();
            assert_eq!(node.metrics().unwrap().output_rows().unwrap_or(0), rows, "{limit:?}");
        }
        let shown = |limit| displayable(&node(parts, 3, &["n", "m"], limit)).one_line().to_string();
        assert_eq!(shown(None).trim(), "ConvertExec: table=numbers, columns=[n, m], times=3");
        assert_eq!(shown(Some(4)).trim(), "ConvertExec: table=numbers, columns=[n, m], times=3, limit=4");
    }

    #[tokio::test]
    async fn no_row_has_the_number_of_another() {
        let parts: &[&[&[i64]]] = &[&[&[7, 8], &[9]], &[&[7]]];
        let numbers = values(Arc::new(node(parts, 2, &["n", ROW_ID], None)), 1).await.unwrap();
        assert_eq!(numbers, [vec![0, 1, 2, 3, 4, 5], vec![1_i64 << ROW_BITS, (1_i64 << ROW_BITS) + 1]]);
        let kept = values(Arc::new(node(parts, 2, &["n", ROW_ID], None)), 0).await.unwrap();
        assert_eq!(kept, [vec![7, 7, 8, 8, 9, 9], vec![7, 7]], "other columns stay");
        let few = values(Arc::new(node(parts, 2, &[ROW_ID], Some(3))), 0).await.unwrap();
        assert_eq!(few, [vec![0, 1, 2], vec![1_i64 << ROW_BITS, (1_i64 << ROW_BITS) + 1]]);
    }

    #[tokio::test]
    async fn what_is_behind_the_limit_is_not_converted() {
        let parts: &[&[&[i64]]] = &[&[&[1, -2]]];
        let error = values(Arc::new(node(parts, 3, &["n"], None)), 0).await.unwrap_err();
        let error = from_datafusion(error);
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Execution, "-2 is below zero"));
        assert_eq!(values(Arc::new(node(parts, 3, &["n"], Some(3))), 0).await.unwrap(), [[1, 1, 1]]);
        assert!(values(Arc::new(node(parts, 3, &["n"], Some(4))), 0).await.is_err());
    }

    /// A conversion that meets a value of another type.
    #[derive(Debug)]
    struct Mismatched(SchemaRef);

    impl Convert for Mismatched {
        fn schema(&self) -> SchemaRef {
            Arc::clone(&self.0)
        }

        fn convert(self: Arc<Self>, _: RecordBatch) -> ConvertedBatches {
            let met: quiver_types::Result<RecordBatch> = Err(AttributeKind::Int.mismatch("n", "secret"));
            Box::new(std::iter::once(met))
        }

        fn detail(&self) -> String {
            String::new()
        }
    }

    #[tokio::test]
    async fn values_are_not_told_where_rows_are_hidden() {
        for hides in [false, true] {
            let stats = Arc::new(ReadStats::default());
            if hides {
                stats.hide();
            }
            let config = SessionConfig::new().with_extension(stats);
            let task = SessionContext::new_with_config(config).task_ctx();
            let input = Arc::clone(&node(&[&[&[1]]], 1, &["n"], None).input);
            let convert = ConvertExec::new("numbers", input, Arc::new(Mismatched(schema(&["n"]))), None);
            let error = from_datafusion(collect_partitioned(Arc::new(convert), task).await.unwrap_err());
            assert_eq!(error.kind, ErrorKind::Execution);
            assert!(error.message.contains("column `n`") && error.message.contains("secret") != hides, "{error}");
        }
    }

    #[test]
    fn batches_are_cut_in_pieces() {
        for (rows, expected) in [
            (0, vec![]),
            (1, vec![1]),
            (BATCH_ROWS, vec![BATCH_ROWS]),
            (BATCH_ROWS + 1, vec![BATCH_ROWS, 1]),
            (2 * BATCH_ROWS, vec![BATCH_ROWS, BATCH_ROWS]),
        ] {
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
            let all = batch(&schema(&["n"]), vec![numbers], rows).unwrap();
            let cut: Vec<RecordBatch> = pieces(all.clone()).collect();
            assert_eq!(cut.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), expected);
            let together = arrow::compute::concat_batches(&all.schema(), &cut).unwrap();
            assert_eq!(together, all, "rows stay in their order");
        }
    }

    #[test]
    fn long_rows_are_cut_by_their_bytes() {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10_000));
        let all = batch(&schema(&["n"]), vec![numbers], 10_000).unwrap();
        let cut = |bytes: &dyn Fn(usize) -> usize| {
            let pieces = pieces_by_bytes(all.clone(), bytes);
            assert_eq!(arrow::compute::concat_batches(&all.schema(), &pieces).unwrap(), all);
            pieces.iter().map(RecordBatch::num_rows).collect::<Vec<_>>()
        };
        assert_eq!(cut(&|_| 8), [BATCH_ROWS, 10_000 - BATCH_ROWS]);
        assert_eq!(cut(&|_| BATCH_BYTES / 4096), [4096, 4096, 10_000 - 2 * 4096]);
        assert_eq!(cut(&|row| if row == 7 { 2 * BATCH_BYTES } else { 8 }), [7, 1, BATCH_ROWS, 10_000 - 8 - BATCH_ROWS]);
        assert!(pieces_by_bytes(all.slice(0, 0), &|_| 8).is_empty());
    }

    #[test]
    fn columns_have_to_fit() {
        let number: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let cases: [(&[&str], Vec<ArrayRef>, usize); 3] =
            [(&["a"], vec![], 1), (&["a"], vec![Arc::clone(&number)], 2), (&[], vec![number], 1)];
        for (names, columns, rows) in cases {
            assert_eq!(batch(&schema(names), columns, rows).unwrap_err().kind, ErrorKind::Internal);
        }
        assert_eq!(batch(&schema(&[]), Vec::new(), 7).unwrap().num_rows(), 7, "rows without columns");
        assert!(node(&[], 1, &["a"], None).coded().is_none(), "there is no such form");
        assert!(node(&[], 1, &["a"], None).with_bytes(&[0]).is_none(), "it is no id");
    }
}
