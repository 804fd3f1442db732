//! Operators of LogsQL as nodes of DataFusion plans: they make their physical nodes from DataFusion's own where it has
//! them (aggregation, sorting and joining with spill), else [`StepExec`] over a [`Step`].

use std::hash::Hash;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
};
use futures::StreamExt;
use quiver_query::{Operator, coalesced, no_expressions, one_input, operator_plan, write_operator};

use crate::step::Step;

/// The logical node of a step.
#[derive(Debug, PartialEq, Eq, Hash)]
struct StepNode<S>(Arc<S>);

/// Adds a step to a plan.
///
/// # Errors
/// Internal: the names of its columns are not unique.
pub(crate) fn step_plan(step: impl Step + Eq + Hash, input: LogicalPlan) -> quiver_types::Result<LogicalPlan> {
    operator_plan(StepNode(Arc::new(step)), vec![input])
}

impl<S: Step + Eq + Hash> Operator for StepNode<S> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn detail(&self) -> String {
        self.0.detail()
    }

    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn physical(
        self: Arc<Self>,
        mut inputs: Vec<Arc<dyn ExecutionPlan>>,
        _: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(StepExec::plan(Arc::<S>::clone(&self.0), inputs.swap_remove(0)))
    }
}

/// The physical node of a step.
#[derive(Debug)]
pub(crate) struct StepExec {
    step: Arc<dyn Step>,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl StepExec {
    /// Puts a step over a plan.
    pub(crate) fn plan(step: Arc<dyn Step>, input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(Self::new(step, input))
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self::new(Arc::clone(&self.step), input)
    }

    /// Puts a step that was written over the plan that it was over.
    ///
    /// # Errors
    /// Internal: it has to see all partitions as one, and these are several.
    pub(crate) fn exactly_over(step: Arc<dyn Step>, input: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let partitions = input.output_partitioning().partition_count();
        if step.needs_all_rows() && partitions > 1 {
            return internal_err!("`{}` is over {partitions} partitions", step.name());
        }
        Ok(Arc::new(Self::directly_over(step, input)))
    }

    fn new(step: Arc<dyn Step>, input: Arc<dyn ExecutionPlan>) -> Self {
        let input = if step.needs_all_rows() { coalesced(input) } else { input };
        Self::directly_over(step, input)
    }

    fn directly_over(step: Arc<dyn Step>, input: Arc<dyn ExecutionPlan>) -> Self {
        let partitions = input.output_partitioning().partition_count();
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(step.schema()),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        Self { step, input, properties, metrics: ExecutionPlanMetricsSet::new() }
    }

    /// What is done.
    pub(crate) fn step(&self) -> &dyn Step {
        &*self.step
    }
}

impl DisplayAs for StepExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write_operator(self.step.name(), &self.step.detail(), f)
    }
}

impl ExecutionPlan for StepExec {
    fn name(&self) -> &str {
        self.step.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    one_input!();
    no_expressions!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, Arc::clone(&context))?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let batches = Arc::clone(&self.step)
            .open(input, context)?
            .map(move |batch| batch.inspect(|batch| metrics.record_output(batch.num_rows())));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.step.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
