//! `ScanExec`: the physical plan node that runs any scan of the store.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use quiver_types::scan::{PlannedScan, ScanBatches, ScanOrder, ScanText};

use super::task::{OfNode, Round, task_of};
use crate::error::to_datafusion;
use crate::node_defaults::{no_expressions, no_input};

/// Runs a scan of the store. Which partition reads what was decided when it was planned.
#[derive(Debug)]
pub struct ScanExec {
    scan: Arc<dyn PlannedScan>,
    round: Arc<Round>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

impl ScanExec {
    /// Makes the node of a scan.
    pub fn new(scan: Arc<dyn PlannedScan>) -> Self {
        let properties = PlanProperties::new(
            ordered(&scan.schema(), scan.order()),
            Partitioning::UnknownPartitioning(scan.partitions()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            scan,
            round: Arc::new(Round),
            metrics: ExecutionPlanMetricsSet::new(),
            // The streams themselves yield, at least once per batch.
            properties: Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative)),
        }
    }

    /// Gives the scan that the node runs.
    pub fn scan(&self) -> &Arc<dyn PlannedScan> {
        &self.scan
    }
}

fn ordered(schema: &SchemaRef, order: Option<ScanOrder>) -> EquivalenceProperties {
    let Some(ScanOrder { column, descending }) = order else {
        return EquivalenceProperties::new(Arc::clone(schema));
    };
    let by: Arc<dyn PhysicalExpr> = Arc::new(Column::new(schema.field(column).name(), column));
    let sort = PhysicalSortExpr::new_default(by);
    let sort = if descending { sort.desc() } else { sort };
    EquivalenceProperties::new_with_orderings(Arc::clone(schema), [[sort]])
}

impl DisplayAs for ScanExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = if format == DisplayFormatType::TreeRender { ScanText::Drawn } else { ScanText::Line };
        self.scan.explain(text, f)
    }
}

impl ExecutionPlan for ScanExec {
    fn name(&self) -> &str {
        self.scan.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    no_input!();
    no_expressions!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let partitions = self.scan.partitions();
        if partition >= partitions {
            return internal_err!("{} has {partitions} partitions, not {}", self.scan.name(), partition + 1);
        }
        if partition == 0 {
            for (name, n) in self.scan.known() {
                MetricBuilder::new(&self.metrics).global_counter(name).add(n);
            }
        }
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let node = OfNode { scan: self.scan.as_ref(), round: &self.round, metrics: &self.metrics };
        let task = task_of(&node, &baseline, partition, &context);
        let batches = self.scan.open(partition, task).map_err(to_datafusion)?;
        let batches = futures::stream::try_unfold((batches, baseline), next);
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    /// Gives a node with new metrics, for another run or another round of the same one.
    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self {
            scan: Arc::clone(&self.scan),
            round: Arc::new(Round),
            metrics: ExecutionPlanMetricsSet::new(),
            properties: Arc::clone(&self.properties),
        }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// The batches of a partition that were not read yet, with its metrics.
type RemainingBatches = (Box<dyn ScanBatches>, BaselineMetrics);

/// Reads the next batch.
async fn next(
    (mut batches, baseline): RemainingBatches,
) -> Result<Option<(arrow::array::RecordBatch, RemainingBatches)>, DataFusionError> {
    let Some(batch) = batches.next().await.map_err(to_datafusion)? else { return Ok(None) };
    baseline.record_output(batch.num_rows());
    Ok(Some((batch, (batches, baseline))))
}
