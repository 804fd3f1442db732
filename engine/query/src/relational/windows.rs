//! Windows over all rows of a partition. `WindowAggExec` keeps all rows and the results of all partitions, uncounted by
//! any memory budget. Here the rows are charged to the query, and the results of a partition are emitted as soon as
//! they are complete.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::vec;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::utils::evaluate_partition_ranges;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::WindowAggExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{TryStreamExt as _, stream};

use super::batch_bytes::batch_bytes;
use super::long_constants::constants_in;
use crate::functions;
use crate::node_defaults::one_input;
use crate::plan_walk::change_physical;

/// Small partitions are emitted together up to this number of rows.
const BATCH_ROWS: usize = 8192;

/// Replaces DataFusion's node by this one.
///
/// # Errors
///
/// Those of making the nodes.
pub(crate) fn with_memory(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    change_physical(plan, &mut |node| {
        let Some(window) = node.downcast_ref::<WindowAggExec>() else { return Ok(Transformed::no(node)) };
        let (calls, keys) = (window.window_expr().to_vec(), window.partition_by_sort_keys()?);
        let (input, properties) = (Arc::clone(window.input()), Arc::clone(window.properties()));
        let metrics = ExecutionPlanMetricsSet::new();
        let with_memory: Arc<dyn ExecutionPlan> = Arc::new(WindowsExec { input, calls, keys, properties, metrics });
        Ok(Transformed::yes(with_memory))
    })
}

/// The operator: evaluates window functions whose partitions arrive one after another.
#[derive(Debug)]
pub(crate) struct WindowsExec {
    input: Arc<dyn ExecutionPlan>,
    calls: Vec<Arc<dyn WindowExpr>>,
    /// The partition keys, by which the input is sorted.
    keys: Vec<PhysicalSortExpr>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl WindowsExec {
    /// Makes the node. Its input must be sorted by the keys.
    pub(crate) fn new(
        input: Arc<dyn ExecutionPlan>,
        calls: Vec<Arc<dyn WindowExpr>>,
        keys: Vec<PhysicalSortExpr>,
    ) -> Result<Self> {
        let window = WindowAggExec::try_new(calls.clone(), Arc::clone(&input), true)?;
        let (properties, metrics) = (Arc::clone(window.properties()), ExecutionPlanMetricsSet::new());
        Ok(Self { input, calls, keys, properties, metrics })
    }

    /// The window functions that are evaluated.
    pub(crate) fn calls(&self) -> &[Arc<dyn WindowExpr>] {
        &self.calls
    }

    /// The partition keys, by which the input is sorted.
    pub(crate) fn keys(&self) -> &[PhysicalSortExpr] {
        &self.keys
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        let (calls, keys, properties) = (self.calls.clone(), self.keys.clone(), Arc::clone(&self.properties));
        Self { input, calls, keys, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl DisplayAs for WindowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.calls.iter().map(|call| call.name()).collect();
        write!(f, "WindowsExec: wdw=[{}]", names.join(", "))
    }
}

impl ExecutionPlan for WindowsExec {
    fn name(&self) -> &'static str {
        "WindowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    one_input!();

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for call in &self.calls {
            for expr in call.expressions() {
                visit(&expr)?;
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let memory = MemoryConsumer::new("window functions").register(context.memory_pool());
        let given = MemoryConsumer::new("results of window functions").register(context.memory_pool());
        let batch_bytes = batch_bytes(context.memory_pool().as_ref());
        let input = self.input.execute(partition, context)?;
        let (calls, keys, schema) = (self.calls.clone(), self.keys.clone(), self.schema());
        let counters = BaselineMetrics::new(&self.metrics, partition);
        let results = async move {
            let rows = collected(input, &memory).await?;
            let keys = keys.iter().map(|key| key.evaluate_to_sort_column(&rows)).collect::<Result<Vec<_>>>()?;
            let partitions = evaluate_partition_ranges(rows.num_rows(), &keys)?.into_iter();
            let constants = calls.iter().map(constants_of).collect::<Result<Vec<_>>>()?.into_iter().max().unwrap_or(0);
            let results = Results { rows, partitions, calls, constants, schema, batch_bytes, given, _memory: memory };
            Ok::<_, DataFusionError>(stream::iter(results))
        };
        let results = stream::once(results).try_flatten();
        let results = results.inspect_ok(move |batch: &RecordBatch| counters.record_output(batch.num_rows()));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), results)))
    }
}

/// Collects the input in one batch, and charges its memory.
async fn collected(mut input: SendableRecordBatchStream, memory: &MemoryReservation) -> Result<RecordBatch> {
    let schema = input.schema();
    let mut batches = Vec::new();
    while let Some(batch) = input.try_next().await? {
        memory.try_grow(bytes_of(&batch)?)?;
        batches.push(batch);
    }
    let bytes = memory.size();
    memory.try_grow(bytes)?;
    let rows = concat_batches(&schema, &batches)?;
    drop(batches);
    memory.shrink(bytes);
    Ok(rows)
}

/// Bytes of a batch's values, which may be a slice of larger arrays.
fn bytes_of(batch: &RecordBatch) -> Result<usize> {
    let mut bytes = 0;
    for column in batch.columns() {
        bytes += functions::bytes_of(column.as_ref())?.max(0) as usize;
    }
    Ok(bytes)
}

/// Bytes of the constant arguments of a call, which are copied to each row.
fn constants_of(call: &Arc<dyn WindowExpr>) -> Result<usize> {
    call.expressions().iter().map(constants_in).sum()
}

/// An iterator over the result batches.
struct Results {
    rows: RecordBatch,
    partitions: vec::IntoIter<Range<usize>>,
    calls: Vec<Arc<dyn WindowExpr>>,
    /// The most bytes of constants of any call.
    constants: usize,
    schema: SchemaRef,
    /// Small partitions are emitted earlier if they take this number of bytes.
    batch_bytes: usize,
    given: MemoryReservation,
    _memory: MemoryReservation,
}

impl Results {
    /// A partition with the results of the calls.
    fn rows_of(&self, of: Range<usize>) -> Result<RecordBatch> {
        let rows = self.rows.slice(of.start, of.len());
        let mut columns = rows.columns().to_vec();
        // Constants are expanded to all rows of the partition before a call sees them.
        let spread = self.constants.saturating_mul(rows.num_rows());
        self.given.try_grow(spread)?;
        for call in &self.calls {
            columns.push(call.evaluate(&rows)?);
        }
        self.given.shrink(spread);
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }

    fn batch(&mut self, first: Range<usize>) -> Result<RecordBatch> {
        self.given.try_resize(0)?;
        let mut batches = vec![self.rows_of(first)?];
        let (mut rows, mut bytes) = (batches[0].num_rows(), bytes_of(&batches[0])?);
        self.given.try_resize(bytes)?;
        while rows < BATCH_ROWS && bytes < self.batch_bytes {
            let Some(next) = self.partitions.next() else { break };
            let batch = self.rows_of(next)?;
            rows += batch.num_rows();
            bytes += bytes_of(&batch)?;
            self.given.try_resize(bytes)?;
            batches.push(batch);
        }
        Ok(if let [batch] = batches.as_slice() { batch.clone() } else { concat_batches(&self.schema, &batches)? })
    }
}

impl Iterator for Results {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let first = self.partitions.next()?;
        // An empty input still is one partition.
        (!first.is_empty()).then(|| self.batch(first))
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::physical_plan::{collect, displayable};
    use datafusion::prelude::{SessionConfig, SessionContext};
    use quiver_types::ErrorKind;

    use super::*;
    use crate::error::from_datafusion;

    /// A session with one partition and a memory limit in bytes.
    fn session(bytes: usize) -> SessionContext {
        let pool = Arc::new(GreedyMemoryPool::new(bytes));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().unwrap();
        SessionContext::new_with_config_rt(SessionConfig::new().with_target_partitions(1), runtime)
    }

    async fn planned(session: &SessionContext, statement: &str) -> [Arc<dyn ExecutionPlan>; 2] {
        let plan = session.sql(statement).await.unwrap().create_physical_plan().await.unwrap();
        let own = with_memory(Arc::clone(&plan)).unwrap();
        let shown = displayable(own.as_ref()).indent(false).to_string();
        assert!(shown.contains("WindowsExec: wdw=[") && !shown.contains(" WindowAggExec"), "{shown}");
        [plan, own]
    }

    /// Rows as text, one per line.
    fn lines(batches: &[RecordBatch]) -> Vec<String> {
        let value = |batch: &RecordBatch, row: usize| {
            batch.columns().iter().fold(String::new(), |mut line, column| {
                let value = arrow::util::display::array_value_to_string(column, row).unwrap();
                write!(line, "{value}|").unwrap();
                line
            })
        };
        batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| value(batch, row))).collect()
    }

    #[tokio::test]
    async fn partitions_have_what_datafusion_gives_them() {
        let session = session(64 << 20);
        let whole = "rows between unbounded preceding and unbounded following";
        let rows = |n: usize| format!("from (select value as v from generate_series(1, {n})) as t");
        for (statement, batches) in [
            (format!("select v, sum(v) over (), count(*) over (order by v {whole}) {}", rows(500)), 1),
            (
                format!(
                    "select v, first_value(v) over (partition by v % 7 order by v desc {whole}), \
                     sum(v) over (partition by v % 7) {}",
                    rows(500)
                ),
                1,
            ),
            (format!("select v, last_value(v) over (partition by v order by v {whole}) {}", rows(500)), 1),
            (format!("select v, last_value(v) over (partition by v / 9000 order by v {whole}) {}", rows(20_000)), 3),
            (format!("select v, sum(v) over () {} where v > 1000", rows(5)), 0),
        ] {
            let [theirs, own] = planned(&session, &statement).await;
            let expected = collect(theirs, session.task_ctx()).await.unwrap();
            let found = collect(Arc::clone(&own), session.task_ctx()).await.unwrap();
            assert_eq!(lines(&found), lines(&expected), "{statement}");
            assert_eq!(found.len(), batches, "small partitions come together, large ones by themselves: {statement}");
            assert_eq!(session.task_ctx().memory_pool().reserved(), 0, "it is given back");
        }
    }

    #[tokio::test]
    async fn rows_take_memory_before_they_are_held() {
        let statement = "select sum(value) over () from generate_series(1, 20000)";
        let poor = session(100_000);
        let [theirs, own] = planned(&poor, statement).await;
        collect(theirs, poor.task_ctx()).await.expect("nobody counts them");
        let error = from_datafusion(collect(own, poor.task_ctx()).await.unwrap_err());
        assert_eq!(error.kind, ErrorKind::LimitExceeded);
        let rich = session(4 << 20);
        let [_, own] = planned(&rich, statement).await;
        let rows = collect(own, rich.task_ctx()).await.unwrap();
        assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 20_000);
    }
}
