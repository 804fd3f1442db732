//! Operators of LogsQL as nodes of DataFusion plans: they make their physical nodes from DataFusion's own where it has
//! them (aggregation, sorting and joining with spill), else [`StreamExec`] over a function of streams.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use quiver_query::{Operator, write_operator};

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
        write_operator(self.name, &self.detail, f)
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
