//! Tables whose rows are there as a whole before the first is given.
//!
//! They are read when a plan runs, in the memory of its query and counted for it, so that a plan which is only shown reads
//! nothing. DataFusion's node for rows that come so holds what gives them as something that nobody can write down.

use std::fmt::{self, Debug};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::future::BoxFuture;
use futures::{TryStreamExt as _, stream};
use quiver_types::{ReadStats, Result};

use crate::error::to_datafusion;
use crate::forms::{At, WrittenRows};
use crate::heads::{no_expressions, no_input};

/// Rows that are read at once.
pub(crate) trait ReadAtOnce: Debug + Send + Sync + 'static {
    /// What they are rows of.
    fn table(&self) -> &'static str;

    /// Columns of the rows that [`Self::read`] gives.
    fn schema(&self) -> &SchemaRef;

    /// Reads them for a run of a plan; what they take counts in the memory of `stats`.
    fn read<'a>(&'a self, task: &'a Arc<TaskContext>, stats: &'a ReadStats) -> BoxFuture<'a, Result<Vec<RecordBatch>>>;

    /// What a written plan says of them.
    fn written(&self, at: &At<'_>) -> DataFusionResult<WrittenRows>;
}

/// See the module.
#[derive(Debug)]
pub(crate) struct AtOnceExec {
    rows: Arc<dyn ReadAtOnce>,
    limit: Option<usize>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

impl AtOnceExec {
    /// Reads rows when it runs; at most `limit` of them are given on.
    pub(crate) fn new(rows: Arc<dyn ReadAtOnce>, limit: Option<usize>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(rows.schema())),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { rows, limit, metrics: ExecutionPlanMetricsSet::new(), properties: Arc::new(properties) }
    }

    /// What a written plan says of the rows, and how many are given on.
    pub(crate) fn written(&self, at: &At<'_>) -> DataFusionResult<(WrittenRows, Option<usize>)> {
        Ok((self.rows.written(at)?, self.limit))
    }
}

impl DisplayAs for AtOnceExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.rows.schema().fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "AtOnceExec: table={}, columns=[{}]", self.rows.table(), names.join(", "))?;
        self.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
    }
}

impl ExecutionPlan for AtOnceExec {
    fn name(&self) -> &'static str {
        "AtOnceExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    no_input!();
    no_expressions!();

    fn fetch(&self) -> Option<usize> {
        self.limit
    }

    fn execute(&self, partition: usize, task: Arc<TaskContext>) -> DataFusionResult<SendableRecordBatchStream> {
        if partition > 0 {
            return internal_err!("rows that are read at once have one partition, not {}", partition + 1);
        }
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let (rows, mut left) = (Arc::clone(&self.rows), self.limit.unwrap_or(usize::MAX));
        let read = async move {
            let stats = task.session_config().get_extension::<ReadStats>().unwrap_or_default();
            let batches = rows.read(&task, &stats).await.map_err(to_datafusion)?;
            let batches = batches.into_iter().map(move |batch| {
                let batch = batch.slice(0, left.min(batch.num_rows()));
                left -= batch.num_rows();
                baseline.record_output(batch.num_rows());
                Ok::<_, DataFusionError>(batch)
            });
            Ok::<_, DataFusionError>(stream::iter(batches))
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream::once(read).try_flatten())))
    }

    /// Another run counts anew.
    fn reset_state(self: Arc<Self>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(Arc::clone(&self.rows), self.limit)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Makes the node that reads rows when it runs.
pub(super) fn at_once(rows: impl ReadAtOnce, limit: Option<usize>) -> Arc<dyn ExecutionPlan> {
    Arc::new(AtOnceExec::new(Arc::new(rows), limit))
}
