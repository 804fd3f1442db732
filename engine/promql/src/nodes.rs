//! The operators of PromQL as nodes of DataFusion plans.
//!
//! One physical node carries any [`StepOperator`]; each file below is one operator. Between nodes
//! travel batches of step matrices (`batch`): row numbers and values, never labels. Tables of labels were mapped from
//! operator to operator when the plan was made, and what a node needs of them stands in its operator.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::catalog::Session;
use datafusion::common::internal_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::Stream;
use futures::stream::BoxStream;
use quiver_query::{Operator, by_replacing, no_expressions, write_operator};
use quiver_types::RunShared;

use crate::run_state::RunState;

pub(crate) mod absent;
pub(crate) mod aggregate;
pub(crate) mod batch;
pub(crate) mod broadcast;
pub(crate) mod chunks;
pub(crate) mod driver;
pub(crate) mod encoding;
pub(crate) mod histogram;
pub(crate) mod join;
pub(crate) mod literal;
pub(crate) mod map;
pub(crate) mod newest;
pub(crate) mod operator_encoding;
pub(crate) mod rollup;
pub(crate) mod rows;
pub(crate) mod samples;
pub(crate) mod scalar;
pub(crate) mod select;
pub(crate) mod set;
pub(crate) mod sort;
pub(crate) mod union;

/// How an operator treats the partitions of its first input, which hold different series. Those of further inputs are
/// always merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spread {
    /// Runs once for each partition: what it makes of a row depends on that row alone. It must have no further input, which
    /// each partition would compute anew.
    Each,
    /// Runs once over all of them, merged.
    Once,
}

/// An operator over step matrices.
pub(crate) trait StepOperator: fmt::Debug + Send + Sync + 'static {
    /// Name that plans show.
    fn name(&self) -> &'static str;

    /// What `explain` shows after the name.
    fn detail(&self) -> String {
        String::new()
    }

    /// Schema of its output.
    fn schema(&self) -> SchemaRef;

    /// How partitions are treated.
    fn spread(&self) -> Spread;

    /// The operator that first runs on each partition, if this one combines partial results.
    fn partial(&self) -> Option<Arc<dyn StepOperator>> {
        None
    }

    /// Number of leading inputs that go to the partial operator; this one gets its output and the remaining inputs.
    fn partial_inputs(&self) -> usize {
        usize::MAX
    }

    /// Serializes its content, with [`operator_encoding::body`].
    fn written(&self) -> Result<Vec<u8>>;

    /// Begins the work.
    fn open(self: Arc<Self>, inputs: Vec<SendableRecordBatchStream>, env: Env) -> Batches;
}

/// The output of an operator.
pub(crate) type Batches = BoxStream<'static, Result<RecordBatch>>;

/// The environment of a running operator.
#[derive(Debug, Clone)]
pub(crate) struct Env {
    /// State that all operators of the query share: limits, counters, annotations.
    pub(crate) run: Arc<RunState>,
    /// Which partition this is.
    pub(crate) partition: usize,
    /// The memory pool of the query.
    pub(crate) pool: Arc<dyn MemoryPool>,
}

impl Env {
    /// Reserves memory for as long as the result lives.
    pub(crate) fn reserve(&self, name: &str, bytes: usize) -> Result<MemoryReservation> {
        let reservation = MemoryConsumer::new(name).register(&self.pool);
        reservation.try_grow(bytes)?;
        Ok(reservation)
    }
}

/// An operator as content of a logical node.
#[derive(Debug)]
pub(crate) struct Step(pub(crate) Arc<dyn StepOperator>);

// Operators are plain data and shown in full by `Debug`, so that is compared.
impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || self.0.name() == other.0.name() && format!("{:?}", self.0) == format!("{:?}", other.0)
    }
}

impl Eq for Step {}

impl Hash for Step {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name().hash(state);
        self.0.detail().hash(state);
    }
}

impl Operator for Step {
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
        if let Some(partial) = self.0.partial() {
            let rest = inputs.split_off(self.0.partial_inputs().min(inputs.len()));
            inputs = vec![Arc::new(StepExec::new(partial, inputs))];
            inputs.extend(rest);
        }
        Ok(Arc::new(StepExec::new(Arc::clone(&self.0), inputs)))
    }
}

/// The physical node.
#[derive(Debug)]
pub(crate) struct StepExec {
    operator: Arc<dyn StepOperator>,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl StepExec {
    fn new(operator: Arc<dyn StepOperator>, mut inputs: Vec<Arc<dyn ExecutionPlan>>) -> Self {
        let each = operator.spread() == Spread::Each;
        for (i, input) in inputs.iter_mut().enumerate() {
            if (i > 0 || !each) && input.output_partitioning().partition_count() > 1 {
                *input = Arc::new(CoalescePartitionsExec::new(Arc::clone(input)));
            }
        }
        Self::over(operator, inputs)
    }

    /// Makes the node. All inputs must have one partition, except the first if the operator runs on each partition.
    fn over(operator: Arc<dyn StepOperator>, inputs: Vec<Arc<dyn ExecutionPlan>>) -> Self {
        let partitions = inputs.first().map_or(1, |i| i.output_partitioning().partition_count());
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(operator.schema()),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        Self { operator, inputs, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl DisplayAs for StepExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_operator(self.operator.name(), &self.operator.detail(), f)
    }
}

impl ExecutionPlan for StepExec {
    fn name(&self) -> &str {
        self.operator.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(Arc::clone(&self.operator), children)))
    }

    by_replacing!();
    no_expressions!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let below = Arc::new(AtomicU64::new(0));
        let mut streams = Vec::with_capacity(self.inputs.len());
        for (i, input) in self.inputs.iter().enumerate() {
            let stream = input.execute(if i == 0 { partition } else { 0 }, Arc::clone(&context))?;
            let timed: SendableRecordBatchStream = Box::pin(TimedInput { stream, spent: Arc::clone(&below) });
            streams.push(timed);
        }
        let shared = context.session_config().get_extension::<RunShared>();
        let Some(run) = shared.and_then(|shared| shared.of_query()) else {
            return internal_err!("steps run within a query of PromQL");
        };
        let env = Env { run, partition, pool: Arc::clone(context.memory_pool()) };
        Ok(Box::pin(TimedOutput {
            schema: self.operator.schema(),
            stream: Arc::clone(&self.operator).open(streams, env),
            below,
            metrics: BaselineMetrics::new(&self.metrics, partition),
        }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Counts the time that an operator spends in its inputs.
struct TimedInput {
    stream: SendableRecordBatchStream,
    spent: Arc<AtomicU64>,
}

impl Stream for TimedInput {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let began = Instant::now();
        let polled = self.stream.as_mut().poll_next(cx);
        self.spent.fetch_add(began.elapsed().as_nanos() as u64, Relaxed);
        polled
    }
}

impl RecordBatchStream for TimedInput {
    fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }
}

/// Counts rows and the time that an operator spends itself.
struct TimedOutput {
    schema: SchemaRef,
    stream: Batches,
    below: Arc<AtomicU64>,
    metrics: BaselineMetrics,
}

impl Stream for TimedOutput {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let (began, below) = (Instant::now(), self.below.load(Relaxed));
        let polled = self.stream.as_mut().poll_next(cx);
        let inputs = Duration::from_nanos(self.below.load(Relaxed) - below);
        self.metrics.elapsed_compute().add_duration(began.elapsed().saturating_sub(inputs));
        self.metrics.record_poll(polled)
    }
}

impl RecordBatchStream for TimedOutput {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// An error of evaluation, as plans carry it.
pub(crate) fn failed(text: impl Into<String>) -> DataFusionError {
    quiver_query::to_datafusion(quiver_types::Error::new(quiver_types::ErrorKind::Execution, text))
}

#[cfg(test)]
mod tests;
