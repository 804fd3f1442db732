//! The physical node of a sample scan.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{internal_err, project_schema};
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, ReplaceChildrenOptions,
};
use quiver_types::ReadStats;

use super::stream::{SampleStream, ScanShared};
use super::{SampleRequest, batch};
use crate::select::Selection;

/// Reads the samples of selected series: one row per series, rows ascending, each partition a range of rows.
#[derive(Debug)]
pub struct SamplesExec {
    scan: Arc<ScanShared>,
    projection: Option<Vec<usize>>,
    limit: Option<usize>,
    partitions: Vec<Range<u32>>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

impl SamplesExec {
    pub(super) fn try_new(
        selection: Arc<Selection>,
        request: SampleRequest,
        stats: Arc<ReadStats>,
        projection: Option<Vec<usize>>,
        limit: Option<usize>,
        partitions: usize,
    ) -> Result<Self> {
        let schema = project_schema(&batch::schema(&request), projection.as_ref())?;
        let scan = Arc::new(ScanShared::new(selection, request, stats));
        let partitions = scan.weights.partitions(partitions);
        let properties = PlanProperties::new(
            ordered(&schema),
            Partitioning::UnknownPartitioning(partitions.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Self {
            scan,
            projection,
            limit,
            partitions,
            metrics: ExecutionPlanMetricsSet::new(),
            // The stream itself gives way once per batch.
            properties: Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative)),
        })
    }

    /// Number of series that are scanned.
    pub fn series(&self) -> usize {
        self.scan.selection.rows - self.scan.selection.dropped
    }

    /// Parts of the table and parts that hold a selected series.
    pub fn parts(&self) -> (usize, usize) {
        (self.scan.selection.pruned.total, self.scan.selection.parts.len())
    }

    /// Says by what parts were left out, with the number of each: `time`, `service`, `name`, `series`.
    pub fn pruned_by(&self) -> Vec<(&'static str, usize)> {
        let p = &self.scan.selection.pruned;
        let opened = p.total - p.time - p.service - p.name;
        let series = opened - self.scan.selection.parts.len();
        let all = [("time", p.time), ("service", p.service), ("name", p.name), ("series", series)];
        all.into_iter().filter(|&(_, n)| n > 0).collect()
    }
}

fn ordered(schema: &SchemaRef) -> EquivalenceProperties {
    match schema.index_of("row") {
        Ok(at) => {
            let row: Arc<dyn PhysicalExpr> = Arc::new(Column::new("row", at));
            EquivalenceProperties::new_with_orderings(Arc::clone(schema), [[PhysicalSortExpr::new_default(row)]])
        }
        Err(_) => EquivalenceProperties::new(Arc::clone(schema)),
    }
}

impl DisplayAs for SamplesExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (parts_total, parts) = self.parts();
        let range = self.scan.request.range;
        // Where the series lie, and among how many, is not for those who may not see all of them.
        let whole = !self.scan.stats.is_hidden();
        if format == DisplayFormatType::TreeRender {
            writeln!(f, "selector={}", self.scan.selection.selector)?;
            writeln!(f, "series={}", self.series())?;
            return if whole { writeln!(f, "parts={parts}/{parts_total}") } else { Ok(()) };
        }
        write!(f, "SamplesExec: selector={}, range=[{}, {}]", self.scan.selection.selector, range.min, range.max)?;
        write!(f, ", series={}", self.series())?;
        if whole {
            let pages: usize = self.scan.selection.parts.iter().map(|part| part.series.pages()).sum();
            write!(f, ", parts={parts}/{parts_total}, considered={}", self.scan.selection.considered)?;
            write!(f, ", series_pages={pages}, generations={}", self.scan.selection.live.len())?;
            write!(f, ", partitions={}", self.partitions.len())?;
            for (by, n) in self.pruned_by() {
                write!(f, ", pruned_by_{by}={n}")?;
            }
        }
        if self.scan.selection.dropped > 0 {
            write!(f, ", unmatched_series={}", self.scan.selection.dropped)?;
        }
        let names: Vec<_> = self.schema().fields().iter().map(|field| field.name().clone()).collect();
        write!(f, ", columns=[{}]", names.join(", "))?;
        self.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
    }
}

impl ExecutionPlan for SamplesExec {
    fn name(&self) -> &'static str {
        "SamplesExec"
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
        if children.is_empty() { Ok(self) } else { internal_err!("a scan of samples has no children") }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("a scan of samples has no children") }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(rows) = self.partitions.get(partition).cloned() else {
            return internal_err!("a scan of samples has {} partitions, not {}", self.partitions.len(), partition + 1);
        };
        if partition == 0 {
            let (parts_total, parts) = self.parts();
            MetricBuilder::new(&self.metrics).global_counter("parts_total").add(parts_total);
            MetricBuilder::new(&self.metrics).global_counter("parts_read").add(parts);
            for (by, n) in self.pruned_by() {
                MetricBuilder::new(&self.metrics).global_counter(format!("pruned_by_{by}")).add(n);
            }
        }
        let memory = MemoryConsumer::new("SamplesExec").register(context.memory_pool());
        let stream = SampleStream::new(&self.scan, rows, self.limit, memory, &self.metrics, partition);
        let projection = self.projection.clone();
        let batches = futures::stream::try_unfold(stream, move |mut stream| {
            let projection = projection.clone();
            async move {
                let Some(batch) = stream.next().await? else { return Ok(None) };
                let batch = match &projection {
                    Some(columns) => batch.project(columns)?,
                    None => batch,
                };
                Ok(Some((batch, stream)))
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
