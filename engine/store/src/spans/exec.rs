//! The physical node of a scan of spans.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::common::{internal_err, project_schema};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, ReplaceChildrenOptions,
};
use quiver_types::spans::schema_of;

use super::stream::{ScanShared, SpanStream};

/// Reads the spans that a filter takes; partitions share the work.
#[derive(Debug)]
pub struct SpansExec {
    scan: Arc<ScanShared>,
    projection: Option<Vec<usize>>,
    limit: Option<usize>,
    partitions: usize,
    /// The units of each partition.
    shares: Vec<VecDeque<usize>>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

impl SpansExec {
    pub(super) fn try_new(
        scan: &Arc<ScanShared>,
        projection: Option<Vec<usize>>,
        limit: Option<usize>,
        partitions: usize,
    ) -> Result<Self> {
        let schema = project_schema(&schema_of(&scan.request.columns), projection.as_ref())?;
        let partitions = scan.units().clamp(1, partitions.max(1));
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Self {
            shares: scan.shares(partitions),
            scan: Arc::clone(scan),
            projection,
            limit,
            partitions,
            metrics: ExecutionPlanMetricsSet::new(),
            properties: Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative)),
        })
    }
}

impl DisplayAs for SpansExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpansExec: filter={}", self.scan.request.filter)?;
        // Where spans lie is not for those who may not see all of them.
        if !self.scan.stats.is_hidden() {
            write!(f, ", parts={}/{}", self.scan.parts.len(), self.scan.parts_total)?;
            write!(f, ", live_batches={}, partitions={}", self.scan.live(), self.partitions)?;
            let [time, service] = self.scan.pruned;
            for (by, n) in [("time", time), ("service", service)].into_iter().filter(|&(_, n)| n > 0) {
                write!(f, ", pruned_by_{by}={n}")?;
            }
        }
        let names: Vec<String> = self.schema().fields().iter().map(|field| field.name().clone()).collect();
        write!(f, ", columns=[{}]", names.join(", "))?;
        self.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
    }
}

impl ExecutionPlan for SpansExec {
    fn name(&self) -> &'static str {
        "SpansExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("a scan of spans has no children") }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("a scan of spans has no children") }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition >= self.partitions {
            return internal_err!("a scan of spans has {} partitions, not {}", self.partitions, partition + 1);
        }
        if partition == 0 {
            MetricBuilder::new(&self.metrics).global_counter("parts_total").add(self.scan.parts_total);
            MetricBuilder::new(&self.metrics).global_counter("parts_read").add(self.scan.parts.len());
        }
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let projection = self.projection.clone();
        let stream = SpanStream::new(&self.scan, self.shares[partition].clone(), self.limit);
        let memory = MemoryConsumer::new("SpansExec").register(context.memory_pool());
        let batches = futures::stream::try_unfold((stream, baseline, memory), move |(mut stream, baseline, memory)| {
            let projection = projection.clone();
            async move {
                let next = stream.next().await.map_err(|e| DataFusionError::External(Box::new(e)))?;
                let Some(batch) = next else { return Ok(None) };
                // Counts until the next one is asked for: it is decoded whole, and whoever takes it keeps what he needs.
                memory.try_resize(get_record_batch_memory_size(&batch))?;
                let batch = match &projection {
                    Some(columns) => batch.project(columns)?,
                    None => batch,
                };
                baseline.record_output(batch.num_rows());
                Ok(Some((batch, (stream, baseline, memory))))
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
