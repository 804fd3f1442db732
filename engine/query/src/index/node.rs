//! A look-up as a table provider, and as the leaf of a physical plan.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::common::{internal_err, project_schema};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::TryStreamExt as _;
use futures::future::BoxFuture;
use quiver_types::{Access, ReadStats, SeriesSnapshot};

use super::lookup::{IndexSource, LookUp};
use super::rows;
use crate::node_defaults::{no_expressions, no_input};
use crate::table_provider::table_by_plan;

/// A look-up as a table.
#[derive(Debug)]
pub(super) struct IndexTable {
    pub(super) look_up: LookUp,
    pub(super) source: IndexSource,
    pub(super) schema: SchemaRef,
}

impl TableProvider for IndexTable {
    table_by_plan!();
}

impl IndexTable {
    fn plan<'a>(
        &'a self,
        _: &'a dyn Session,
        projection: Option<&'a Vec<usize>>,
        _: &'a [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'a, DataFusionResult<Arc<dyn ExecutionPlan>>> {
        Box::pin(async move {
            Ok(Arc::new(IndexExec::over(self.look_up.clone(), self.source.clone(), projection.cloned(), limit)?)
                as Arc<dyn ExecutionPlan>)
        })
    }
}

/// Makes a look-up when it runs, as a leaf of one partition: what it gives is in order.
#[derive(Debug)]
pub(crate) struct IndexExec {
    look_up: LookUp,
    source: IndexSource,
    projection: Option<Vec<usize>>,
    limit: Option<usize>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

impl IndexExec {
    /// Makes a look-up in a snapshot, with the rights of a caller.
    pub(crate) fn new(
        look_up: LookUp,
        snapshot: Arc<dyn SeriesSnapshot>,
        access: Access,
        projection: Option<Vec<usize>>,
        limit: Option<usize>,
    ) -> DataFusionResult<Self> {
        Self::over(look_up, IndexSource { snapshot, access }, projection, limit)
    }

    /// Makes it where a source says.
    pub(super) fn over(
        look_up: LookUp,
        source: IndexSource,
        projection: Option<Vec<usize>>,
        limit: Option<usize>,
    ) -> DataFusionResult<Self> {
        let schema = project_schema(&look_up.schema(), projection.as_ref())?;
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let properties = Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative));
        Ok(Self { look_up, source, projection, limit, metrics: ExecutionPlanMetricsSet::new(), properties })
    }

    /// What it is made of.
    pub(crate) fn parts(&self) -> (&LookUp, &IndexSource, Option<&[usize]>, Option<usize>) {
        (&self.look_up, &self.source, self.projection.as_deref(), self.limit)
    }
}

impl DisplayAs for IndexExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IndexExec: {}", self.look_up)?;
        self.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
    }
}

impl ExecutionPlan for IndexExec {
    fn name(&self) -> &'static str {
        "IndexExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    no_input!();
    no_expressions!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DataFusionResult<SendableRecordBatchStream> {
        if partition > 0 {
            return internal_err!("a look-up has one partition, not {}", partition + 1);
        }
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let memory = MemoryConsumer::new("IndexExec").register(context.memory_pool());
        let (projection, mut left) = (self.projection.clone(), self.limit.unwrap_or(usize::MAX));
        let stats = context.session_config().get_extension::<ReadStats>().unwrap_or_default();
        let source = rows::IndexLookup::new(&self.source, stats);
        let rows = rows::read(self.look_up.clone(), source, self.look_up.schema());
        let batches = rows.and_then(move |batch| {
            // Counts until the next one is asked for: whoever takes it keeps what he needs.
            let counted = memory.try_resize(get_record_batch_memory_size(&batch));
            let batch = batch.slice(0, left.min(batch.num_rows()));
            left -= batch.num_rows();
            baseline.record_output(batch.num_rows());
            let projected = projection.as_ref().map_or_else(|| Ok(batch.clone()), |columns| batch.project(columns));
            std::future::ready(counted.and_then(|()| Ok(projected?)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    /// Another run counts anew.
    fn reset_state(self: Arc<Self>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self {
            look_up: self.look_up.clone(),
            source: self.source.clone(),
            projection: self.projection.clone(),
            limit: self.limit,
            metrics: ExecutionPlanMetricsSet::new(),
            properties: Arc::clone(&self.properties),
        }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
