//! Operators of LogsQL as nodes of DataFusion plans.
//!
//! One logical node carries any [`Operator`]; the operator makes its physical nodes itself: from DataFusion's own where
//! it has them (aggregation, sorting and joining with spill), else [`StreamExec`] over a function of streams. Sessions
//! carry no optimizer rules, so operators bring partitions together themselves.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

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
