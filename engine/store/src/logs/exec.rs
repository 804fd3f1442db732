//! The physical node of a scan of logs.

use std::fmt;
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
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, ReplaceChildrenOptions,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use quiver_types::logs::{FieldNames, LogForm, LogOrder, LogRequest, TIME};
use quiver_types::{ReadStats, RunShared};

use super::blocks::{Blocks, Queue};
use super::ordered::Ordered;
use super::stream::AnyOrder;
use super::values::LeftOut;

/// What is counted for the query as a whole, and not by node.
const OF_THE_QUERY: [&str; 6] =
    ["parts_total", "parts_read", "series", "streams", "streams_chosen", "stream_blocks_read"];
/// A partition is not worth its thread below this many rows.
const PARTITION_ROWS_MIN: u64 = 32 * 1024;

/// What the partitions of a scan share.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) blocks: Arc<Blocks>,
    pub(super) request: Arc<LogRequest>,
    pub(super) projection: Vec<usize>,
    pub(super) schema: SchemaRef,
    /// What the filter asks for.
    pub(super) filter_fields: FieldNames,
}

/// What the partitions share while the scan runs once.
#[derive(Debug)]
pub(super) struct ScanRun {
    /// Blocks that nobody took.
    pub(super) queue: Queue,
    /// Fields whose values are not counted any more.
    pub(super) left_out: LeftOut,
}

impl Scan {
    /// Says whether a field is among those that are given out.
    pub(super) fn gives(&self, name: &str) -> bool {
        let columns = &self.request.columns;
        match columns.iter().position(|column| column.name == name) {
            Some(at) => self.projection.contains(&at),
            None => self.request.form == LogForm::Rows && self.projection.contains(&columns.len()),
        }
    }
}

/// Reads log rows that match a filter, in any order or by time.
#[derive(Debug)]
pub struct LogsExec {
    scan: Arc<Scan>,
    limit: Option<usize>,
    partitions: usize,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

/// The counters of `ReadStats` as metrics of the node.
#[derive(Debug)]
pub(super) struct Counters(Vec<(&'static str, Count)>);

impl Counters {
    fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let names = ReadStats::default().list().into_iter().map(|(name, _)| name);
        let own = names.filter(|name| !OF_THE_QUERY.contains(name));
        Self(own.map(|name| (name, MetricBuilder::new(metrics).counter(name, partition))).collect())
    }

    /// Adds what was counted to the node and to the query.
    pub(super) fn add(&self, counted: &ReadStats, query: &ReadStats) {
        for (name, n) in counted.drain_into(query).into_iter().filter(|&(_, n)| n > 0) {
            if let Some((_, counter)) = self.0.iter().find(|(own, _)| *own == name) {
                counter.add(n as usize);
            }
        }
    }
}

impl LogsExec {
    pub(super) fn try_new(
        blocks: Blocks,
        request: Arc<LogRequest>,
        projection: Vec<usize>,
        limit: Option<usize>,
        partitions: usize,
    ) -> Result<Self> {
        let schema = project_schema(&request.schema(), Some(&projection))?;
        let worth = (blocks.rows() / PARTITION_ROWS_MIN).clamp(1, partitions.max(1) as u64);
        let partitions = if request.order == LogOrder::Any { worth as usize } else { 1 };
        let properties = PlanProperties::new(
            ordered(&schema, request.order),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Self {
            scan: Arc::new(Scan {
                blocks: Arc::new(blocks),
                filter_fields: request.filter.fields(),
                request,
                projection,
                schema,
            }),
            limit,
            partitions,
            metrics: ExecutionPlanMetricsSet::new(),
            // The streams themselves give way between blocks.
            properties: Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative)),
        })
    }

    /// Parts of the table, and parts that the catalog does not rule out.
    pub fn parts(&self) -> (usize, usize) {
        (self.scan.blocks.pruned.total, self.scan.blocks.parts())
    }

    /// Says by what parts were left out, with the number of each.
    pub fn pruned_by(&self) -> Vec<(&'static str, usize)> {
        let p = &self.scan.blocks.pruned;
        let all = [("time", p.time), ("service", p.service), ("name", p.name)];
        all.into_iter().filter(|&(_, n)| n > 0).collect()
    }

    /// Where the partitions of one run meet. Without an engine around it the one partition is alone.
    fn run(&self, context: &TaskContext) -> Result<Arc<ScanRun>> {
        let make = || ScanRun { queue: self.scan.blocks.queue(), left_out: LeftOut::default() };
        match context.session_config().get_extension::<RunShared>() {
            Some(shared) => Ok(shared.of_node(&self.scan, make)),
            None if self.partitions == 1 => Ok(Arc::new(make())),
            None => internal_err!("partitions of a scan of logs run within an engine"),
        }
    }
}

fn ordered(schema: &SchemaRef, order: LogOrder) -> EquivalenceProperties {
    match schema.index_of(TIME) {
        Ok(at) if order != LogOrder::Any => {
            let time: Arc<dyn PhysicalExpr> = Arc::new(Column::new(TIME, at));
            let sort = PhysicalSortExpr::new_default(time);
            let sort = if order == LogOrder::NewestFirst { sort.desc() } else { sort };
            EquivalenceProperties::new_with_orderings(Arc::clone(schema), [[sort]])
        }
        _ => EquivalenceProperties::new(Arc::clone(schema)),
    }
}

impl DisplayAs for LogsExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (parts_total, parts) = self.parts();
        let filter = &self.scan.request.filter;
        // Where rows lie is not for those who may not see all of them.
        let whole = !self.scan.blocks.stats.is_hidden();
        if format == DisplayFormatType::TreeRender {
            writeln!(f, "filter={filter}")?;
            return if whole { writeln!(f, "parts={parts}/{parts_total}") } else { Ok(()) };
        }
        write!(f, "LogsExec: filter={filter}, order={:?}", self.scan.request.order)?;
        if self.scan.request.form != LogForm::Rows {
            write!(f, ", form={:?}", self.scan.request.form)?;
        }
        if whole {
            write!(f, ", parts={parts}/{parts_total}, generations={}", self.scan.blocks.generations)?;
            write!(f, ", partitions={}", self.partitions)?;
            for (by, n) in self.pruned_by() {
                write!(f, ", pruned_by_{by}={n}")?;
            }
        }
        let names: Vec<_> = self.schema().fields().iter().map(|field| field.name().clone()).collect();
        write!(f, ", columns=[{}]", names.join(", "))?;
        self.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
    }
}

impl ExecutionPlan for LogsExec {
    fn name(&self) -> &'static str {
        "LogsExec"
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
        if children.is_empty() { Ok(self) } else { internal_err!("a scan of logs has no children") }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("a scan of logs has no children") }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition >= self.partitions {
            return internal_err!("a scan of logs has {} partitions, not {}", self.partitions, partition + 1);
        }
        if partition == 0 {
            let (parts_total, parts) = self.parts();
            MetricBuilder::new(&self.metrics).global_counter("parts_total").add(parts_total);
            MetricBuilder::new(&self.metrics).global_counter("parts_read").add(parts);
            for (by, n) in self.pruned_by() {
                MetricBuilder::new(&self.metrics).global_counter(format!("pruned_by_{by}")).add(n);
            }
        }
        let memory = MemoryConsumer::new("LogsExec").register(context.memory_pool());
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let counters = Counters::new(&self.metrics, partition);
        let scan = Arc::clone(&self.scan);
        let batches: BoxStream<'static, Result<arrow::array::RecordBatch>> = match self.scan.request.order {
            LogOrder::Any => {
                let rows_left = self.limit.unwrap_or(usize::MAX);
                let run = self.run(&context)?;
                let stream = AnyOrder { scan, run, rows_left, memory, baseline, counters, open: None };
                futures::stream::try_unfold(stream, async |mut stream| {
                    Ok(stream.next().await?.map(|batch| (batch, stream)))
                })
                .boxed()
            }
            order => {
                let newest = order == LogOrder::NewestFirst;
                let stream = Ordered::new(scan, newest, self.limit, memory, baseline, counters);
                futures::stream::try_unfold(stream, async |mut stream| {
                    Ok(stream.next().await?.map(|batch| (batch, stream)))
                })
                .boxed()
            }
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
