//! Operators of LogsQL as nodes of DataFusion plans.
//!
//! One logical node carries any [`Operator`]; the operator makes its physical nodes itself: from DataFusion's own where
//! it has them (aggregation, sorting and joining with spill), else [`StreamExec`] over a function of streams. Sessions
//! carry no optimizer rules, so operators bring partitions together themselves.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, DFSchemaRef};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use futures::StreamExt;
use futures::stream::BoxStream;

/// What runs in a node.
pub(crate) trait Operator: fmt::Debug + Send + Sync + 'static {
    /// Name that plans show.
    fn name(&self) -> &'static str;

    /// What plans show beside the name.
    fn detail(&self) -> String;

    /// Schema of the batches that it gives.
    fn schema(&self) -> SchemaRef;

    /// Makes the physical nodes.
    fn physical(
        self: Arc<Self>,
        inputs: Vec<Arc<dyn ExecutionPlan>>,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>>;
}

/// The logical node.
#[derive(Clone)]
pub(crate) struct RowsNode {
    operator: Arc<dyn Operator>,
    inputs: Vec<LogicalPlan>,
    schema: DFSchemaRef,
}

/// Wraps an operator as a plan.
pub(crate) fn node(operator: impl Operator, inputs: Vec<LogicalPlan>) -> quiver_types::Result<LogicalPlan> {
    let schema = DFSchema::try_from(operator.schema()).map_err(quiver_query::from_datafusion)?;
    let node = RowsNode { operator: Arc::new(operator), inputs, schema: Arc::new(schema) };
    Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
}

impl fmt::Debug for RowsNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowsNode").field("operator", &self.operator).field("inputs", &self.inputs).finish()
    }
}

// Two nodes are the same when they are the same operator over the same inputs.
impl PartialEq for RowsNode {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.operator, &other.operator) && self.inputs == other.inputs
    }
}

impl Eq for RowsNode {}

impl PartialOrd for RowsNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl Hash for RowsNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.operator.name().hash(state);
        self.inputs.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for RowsNode {
    fn name(&self) -> &str {
        self.operator.name()
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        self.inputs.iter().collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(self.operator.name(), &self.operator.detail(), f)
    }

    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Self { inputs, ..self.clone() })
    }
}

fn shown(name: &str, detail: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if detail.is_empty() { f.write_str(name) } else { write!(f, "{name}: {detail}") }
}

/// Turns the logical nodes of this crate into physical ones; the engine gets it when it is made.
pub fn extension_planner() -> Arc<dyn ExtensionPlanner + Send + Sync> {
    Arc::new(RowsPlanner)
}

#[derive(Debug)]
struct RowsPlanner;

#[async_trait]
impl ExtensionPlanner for RowsPlanner {
    async fn plan_extension(
        &self,
        _: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        _: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<RowsNode>() else { return Ok(None) };
        Arc::clone(&node.operator).physical(physical_inputs.to_vec(), session).map(Some)
    }
}

/// What a stream operator gives.
pub(crate) type Batches = BoxStream<'static, Result<RecordBatch>>;

/// Turns the stream of one partition into another.
pub(crate) type Open = Arc<dyn Fn(SendableRecordBatchStream, Arc<TaskContext>) -> Batches + Send + Sync>;

/// A physical node over a function of streams, run for each partition of its input.
pub(crate) struct StreamExec {
    name: &'static str,
    detail: String,
    open: Open,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    schema: SchemaRef,
    metrics: ExecutionPlanMetricsSet,
}

impl fmt::Debug for StreamExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamExec").field("name", &self.name).field("input", &self.input).finish_non_exhaustive()
    }
}

impl StreamExec {
    /// One stream for each partition.
    pub(crate) fn each(operator: &impl Operator, input: Arc<dyn ExecutionPlan>, open: Open) -> Arc<dyn ExecutionPlan> {
        Arc::new(Self::new(operator.name(), operator.detail(), operator.schema(), input, open))
    }

    /// All partitions as one stream.
    pub(crate) fn once(operator: &impl Operator, input: Arc<dyn ExecutionPlan>, open: Open) -> Arc<dyn ExecutionPlan> {
        Self::each(operator, coalesce(input), open)
    }

    /// A node that is part of what an operator does.
    pub(crate) fn new(
        name: &'static str,
        detail: String,
        schema: SchemaRef,
        input: Arc<dyn ExecutionPlan>,
        open: Open,
    ) -> Self {
        let partitions = input.output_partitioning().partition_count();
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        Self { name, detail, open, input, properties, schema, metrics: ExecutionPlanMetricsSet::new() }
    }
}

/// Brings partitions into one.
pub(crate) fn coalesce(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    if input.output_partitioning().partition_count() > 1 { Arc::new(CoalescePartitionsExec::new(input)) } else { input }
}

impl DisplayAs for StreamExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(self.name, &self.detail, f)
    }
}

impl ExecutionPlan for StreamExec {
    fn name(&self) -> &str {
        self.name
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let (schema, open) = (Arc::clone(&self.schema), Arc::clone(&self.open));
        Ok(Arc::new(Self::new(self.name, self.detail.clone(), schema, children.swap_remove(0), open)))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, Arc::clone(&context))?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let batches = (self.open)(input, context)
            .map(move |batch| batch.inspect(|batch| metrics.record_output(batch.num_rows())));
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// How long work on a piece of a batch should take.
const PIECE_TIME: Duration = Duration::from_millis(4);
/// Rows of the first piece, of the smallest and of the largest. Batches of scans come whole at first: each piece of a batch
/// counts with all of its memory where rows are kept.
const PIECE_ROWS: usize = 16 * 1024;
const PIECE_ROWS_MIN: usize = 32;
const PIECE_ROWS_MAX: usize = 64 * 1024;

/// Cuts the batches of a stream so that the work on each piece takes a few milliseconds, and gives way between pieces:
/// there a query ends whose time is up or whose caller is gone.
pub(crate) struct Pieces {
    input: SendableRecordBatchStream,
    /// The batch at hand, and its next row.
    batch: Option<(RecordBatch, usize)>,
    rows: usize,
    /// Work since it gave way.
    worked: Duration,
}

impl Pieces {
    pub(crate) fn new(input: SendableRecordBatchStream) -> Self {
        Self { input, batch: None, rows: PIECE_ROWS, worked: Duration::ZERO }
    }

    /// The next piece.
    pub(crate) async fn next(&mut self) -> Option<Result<RecordBatch>> {
        if self.worked >= PIECE_TIME {
            tokio::task::yield_now().await;
            self.worked = Duration::ZERO;
        }
        let (batch, at) = match self.batch.take() {
            Some(left) => left,
            None => match self.input.next().await? {
                Ok(batch) => (batch, 0),
                Err(e) => return Some(Err(e)),
            },
        };
        let rows = (batch.num_rows() - at).min(self.rows);
        if at == 0 && rows == batch.num_rows() {
            return Some(Ok(batch));
        }
        let piece = batch.slice(at, rows);
        if at + rows < batch.num_rows() {
            self.batch = Some((batch, at + rows));
        }
        Some(Ok(piece))
    }

    /// Says how long the work on a piece of so many rows took: the next ones become shorter, or longer.
    pub(crate) fn took(&mut self, rows: usize, time: Duration) {
        self.worked += time;
        if rows < self.rows && time <= PIECE_TIME {
            // The end of a batch says little.
            return;
        }
        let fitting = rows as u128 * PIECE_TIME.as_nanos() / time.as_nanos().max(1);
        self.rows = (fitting as usize).clamp(PIECE_ROWS_MIN, (self.rows * 4).min(PIECE_ROWS_MAX));
    }
}

/// A function from batch to batch; made anew for each partition, so it may keep buffers.
pub(crate) type BatchMap = Box<dyn FnMut(RecordBatch) -> Result<RecordBatch> + Send>;

/// Runs a function over each batch, piece by piece; empty batches are left out.
pub(crate) fn map_batches(make: impl Fn() -> BatchMap + Send + Sync + 'static) -> Open {
    Arc::new(move |input, _| {
        futures::stream::try_unfold((Pieces::new(input), make()), async |(mut pieces, mut map)| {
            while let Some(piece) = pieces.next().await {
                let (piece, began) = (piece?, Instant::now());
                let rows = piece.num_rows();
                let made = map(piece)?;
                pieces.took(rows, began.elapsed());
                if made.num_rows() > 0 {
                    return Ok(Some((made, (pieces, map))));
                }
            }
            Ok(None)
        })
        .boxed()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    fn one_batch(rows: usize) -> SendableRecordBatchStream {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        let numbers = Arc::new(Int64Array::from_iter_values(0..rows as i64));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![numbers]).expect("a batch");
        Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::iter([Ok(batch)])))
    }

    #[tokio::test]
    async fn all_rows_come_in_order_whatever_their_work_takes() {
        let open = map_batches(|| {
            let mut turn = 0u64;
            Box::new(move |rows| {
                turn += 1;
                std::thread::sleep(Duration::from_micros(if turn.is_multiple_of(3) { 9000 } else { 1 }));
                Ok(rows)
            })
        });
        let batches: Vec<RecordBatch> =
            open(one_batch(100_000), Arc::default()).map(|batch| batch.expect("made")).collect().await;
        let numbers: Vec<i64> = batches
            .iter()
            .flat_map(|b| b.column(0).as_primitive::<arrow::datatypes::Int64Type>().values().to_vec())
            .collect();
        assert_eq!(numbers, (0..100_000).collect::<Vec<i64>>());
    }

    #[tokio::test]
    async fn work_within_a_batch_ends_with_its_query() {
        let worked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&worked);
        // 10 microseconds a row: all of the batch takes 6.4 s.
        let open = map_batches(move || {
            let counted = Arc::clone(&counted);
            Box::new(move |rows: RecordBatch| {
                std::thread::sleep(Duration::from_micros(10) * rows.num_rows() as u32);
                counted.fetch_add(rows.num_rows(), Relaxed);
                Ok(rows.slice(0, 0))
            })
        });
        let mut rows = open(one_batch(640_000), Arc::default());
        let ended = tokio::time::timeout(Duration::from_millis(100), rows.next()).await;
        assert!(ended.is_err(), "its time was up before its work was done");
        let done = worked.load(Relaxed);
        assert!(done < 64_000, "{done} rows were worked on");
    }
}
