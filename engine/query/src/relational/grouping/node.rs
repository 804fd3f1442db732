//! `CodedGroupExec`: conditions, groups and aggregates over rows whose texts come by codes, in one pass.
//!
//! Aggregates are DataFusion's; what it gives is what DataFusion's partial (or single) aggregation gives.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, GroupsAccumulatorAdapter, PhysicalExpr};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties as _, Partitioning, PlanProperties,
};
use futures::{StreamExt as _, TryStreamExt as _};
use serde::{Deserialize, Serialize};

use super::columns::PreparedExpr;
use super::expressions::{AggregationExprs, with_columns};
use super::keys::{Groups, Values, is_key};
use super::single_group::Alone;
use crate::encoding::context::{At, damaged, within};
use crate::functions::COUNT_DISTINCT;
use crate::node_defaults::{no_expressions, one_input};

/// Rows of an output batch.
const BATCH_ROWS: usize = 8192;

/// What the node computes, over columns as they arrive.
#[derive(Debug)]
struct Work {
    predicate: Option<PreparedExpr>,
    /// The columns that are read in addition to those of the predicate.
    used: Vec<usize>,
    groups: Vec<PreparedExpr>,
    /// For each grouping column, its type and the type in which it arrives.
    columns: Vec<(DataType, DataType)>,
    aggregates: Vec<Arc<AggregateFunctionExpr>>,
    args: Vec<Vec<PreparedExpr>>,
    arg_types: Vec<Vec<DataType>>,
    filters: Vec<Option<PreparedExpr>>,
    is_partial: bool,
    schema: SchemaRef,
    /// The text for `EXPLAIN`.
    shown: String,
    /// The expressions from which this was prepared, to write plans.
    of: WorkSource,
}

/// The expressions from which [`Work`] is prepared.
#[derive(Debug)]
struct WorkSource {
    asked: AggregationExprs,
    /// Schema of the table without codes.
    plain: SchemaRef,
    /// Schema that the aggregates' arguments refer to.
    over: SchemaRef,
}

/// The aggregates, and how their results are emitted.
struct AggregateOutput {
    aggregates: Vec<Arc<AggregateFunctionExpr>>,
    over: SchemaRef,
    is_partial: bool,
    schema: SchemaRef,
}

/// The serialized form of a node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WrittenGroups {
    groups: Vec<Vec<u8>>,
    args: Vec<Vec<Vec<u8>>>,
    filters: Vec<Option<Vec<u8>>>,
    predicate: Option<Vec<u8>>,
    aggregates: Vec<Vec<u8>>,
    plain: Vec<u8>,
    over: Vec<u8>,
    schema: Vec<u8>,
    is_partial: bool,
}

/// The operator; see the module documentation.
#[derive(Debug)]
pub(crate) struct CodedGroupExec {
    work: Arc<Work>,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

fn comma(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

impl CodedGroupExec {
    /// Makes the node for an aggregation. `plain` is the schema of the table without codes. `None` if the node does
    /// not support the type of a key.
    pub(super) fn of(
        aggregate: &AggregateExec,
        asked: AggregationExprs,
        input: Arc<dyn ExecutionPlan>,
        plain: &SchemaRef,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let folded = AggregateOutput {
            aggregates: aggregate.aggr_expr().to_vec(),
            over: aggregate.input_schema(),
            is_partial: *aggregate.mode() == AggregateMode::Partial,
            schema: aggregate.schema(),
        };
        Self::make(folded, asked, input, plain)
    }

    fn make(
        folded: AggregateOutput,
        asked: AggregationExprs,
        input: Arc<dyn ExecutionPlan>,
        plain: &SchemaRef,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let coded = input.schema();
        let mut columns = Vec::with_capacity(asked.groups.len());
        for expr in &asked.groups {
            let kind = expr.data_type(plain)?;
            if !is_key(&kind) {
                return Ok(None);
            }
            let held = match expr.downcast_ref::<Column>() {
                Some(column) => coded.field(column.index()).data_type().clone(),
                None => kind.clone(),
            };
            columns.push((kind, held));
        }
        let predicate = asked.predicate.as_ref().map(|expr| PreparedExpr::new(expr, plain, &coded)).transpose()?;
        let each = |exprs: &[Arc<dyn PhysicalExpr>]| -> Result<Vec<PreparedExpr>> {
            exprs.iter().map(|expr| PreparedExpr::new(expr, plain, &coded)).collect()
        };
        let mut used: Vec<usize> = Vec::new();
        let of_groups = each(&asked.groups)?;
        let of_args = asked.args.iter().map(|args| each(args)).collect::<Result<Vec<_>>>()?;
        let filters = asked.filters.iter().flatten().map(|expr| PreparedExpr::new(expr, plain, &coded));
        let filters = filters.collect::<Result<Vec<_>>>()?;
        let all = of_groups.iter().chain(of_args.iter().flatten()).chain(&filters);
        used.extend(all.flat_map(PreparedExpr::reads));
        used.sort_unstable();
        used.dedup();
        // Again, over the columns that remain when rows have been filtered.
        let moved = |expr: &Arc<dyn PhysicalExpr>| -> Result<PreparedExpr> {
            let (plain, coded) = (plain.project(&used)?, coded.project(&used)?);
            let at = |at: usize| used.binary_search(&at).unwrap_or(0);
            let all = input.schema();
            let place = |(column, field): (usize, &arrow::datatypes::FieldRef)| -> Arc<dyn PhysicalExpr> {
                Arc::new(Column::new(field.name(), at(column)))
            };
            let places: Vec<_> = all.fields().iter().enumerate().map(place).collect();
            PreparedExpr::new(&with_columns(expr, &places)?, &plain, &coded)
        };
        let kinds =
            |args: &[Arc<dyn PhysicalExpr>]| args.iter().map(|arg| arg.data_type(plain)).collect::<Result<Vec<_>>>();
        let AggregateOutput { aggregates, over, is_partial, schema } = folded;
        let work = Work {
            predicate,
            groups: asked.groups.iter().map(moved).collect::<Result<_>>()?,
            columns,
            args: asked.args.iter().map(|args| args.iter().map(moved).collect()).collect::<Result<_>>()?,
            arg_types: asked.args.iter().map(|args| kinds(args)).collect::<Result<_>>()?,
            filters: asked.filters.iter().map(|f| f.as_ref().map(moved).transpose()).collect::<Result<_>>()?,
            is_partial,
            schema: Arc::clone(&schema),
            shown: shown(&asked, &aggregates),
            aggregates,
            used,
            of: WorkSource { asked, plain: Arc::clone(plain), over },
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let properties = Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative));
        Ok(Some(Arc::new(Self { work: Arc::new(work), input, properties, metrics: ExecutionPlanMetricsSet::new() })))
    }

    /// Whether there are grouping columns; otherwise there is one row.
    pub(crate) fn has_keys(&self) -> bool {
        !self.work.groups.is_empty()
    }

    /// The aggregates, and the schema that their arguments refer to.
    pub(crate) fn aggregates(&self) -> (&[Arc<AggregateFunctionExpr>], SchemaRef) {
        (&self.work.aggregates, Arc::clone(&self.work.of.over))
    }

    /// The serialized form.
    pub(crate) fn written(&self, at: &At<'_>) -> Result<WrittenGroups> {
        let (work, WorkSource { asked, plain, over }) = (&self.work, &self.work.of);
        let expr = |expr: &Option<Arc<dyn PhysicalExpr>>| expr.as_ref().map(|e| at.forms.write_expr(e)).transpose();
        Ok(WrittenGroups {
            groups: at.write_exprs(&asked.groups)?,
            args: asked.args.iter().map(|args| at.write_exprs(args)).collect::<Result<_>>()?,
            filters: asked.filters.iter().map(expr).collect::<Result<_>>()?,
            predicate: expr(&asked.predicate)?,
            aggregates: work.aggregates.iter().map(|a| at.forms.write_aggregate(a)).collect::<Result<_>>()?,
            plain: at.write_schema(plain)?,
            over: at.write_schema(over)?,
            schema: at.write_schema(&work.schema)?,
            is_partial: work.is_partial,
        })
    }

    /// Builds the node from its serialized form and its input.
    pub(crate) fn read(
        of: WrittenGroups,
        input: Arc<dyn ExecutionPlan>,
        at: &At<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (plain, over) = (at.forms.read_schema(&of.plain)?, at.forms.read_schema(&of.over)?);
        let is_fitting = input.schema().fields().len() == plain.fields().len()
            && [of.args.len(), of.filters.len()].iter().all(|len| *len == of.aggregates.len());
        if !is_fitting {
            return Err(damaged("it groups other columns"));
        }
        let expr = |expr: &Option<Vec<u8>>| -> Result<Option<Arc<dyn PhysicalExpr>>> {
            let read = expr.as_ref().map(|bytes| at.forms.read_expr(bytes, &plain)).transpose()?;
            within(&read, &plain)?;
            Ok(read)
        };
        let asked = AggregationExprs {
            groups: at.read_exprs(&of.groups, &plain)?,
            args: of.args.iter().map(|args| at.read_exprs(args, &plain)).collect::<Result<_>>()?,
            filters: of.filters.iter().map(expr).collect::<Result<_>>()?,
            predicate: expr(&of.predicate)?,
        };
        let aggregates = of.aggregates.iter().map(|bytes| at.forms.read_aggregate(bytes, &over));
        let (aggregates, schema) = (aggregates.collect::<Result<_>>()?, at.forms.read_schema(&of.schema)?);
        let folded = AggregateOutput { aggregates, over, is_partial: of.is_partial, schema };
        Self::make(folded, asked, input, &plain)?.ok_or_else(|| damaged("it has keys of another type"))
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        let (work, properties) = (Arc::clone(&self.work), Arc::clone(&self.properties));
        Self { work, input, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

fn shown(asked: &AggregationExprs, aggregates: &[Arc<AggregateFunctionExpr>]) -> String {
    let groups = comma(asked.groups.iter().map(ToString::to_string));
    let aggregates = comma(aggregates.iter().map(|a| a.name().to_owned()));
    let filter = asked.predicate.as_ref().map(|p| format!(", filter={p}")).unwrap_or_default();
    format!("groups=[{groups}], aggregates=[{aggregates}]{filter}")
}

impl DisplayAs for CodedGroupExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.work.is_partial { "Partial" } else { "Single" };
        write!(f, "CodedGroupExec: mode={mode}, {}", self.work.shown)
    }
}

impl ExecutionPlan for CodedGroupExec {
    fn name(&self) -> &'static str {
        "CodedGroupExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    one_input!();
    no_expressions!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, Arc::clone(&context))?;
        let memory = MemoryConsumer::new("CodedGroupExec").register(context.memory_pool());
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let run = PartitionGroups::new(Arc::clone(&self.work), memory)?;
        let batches =
            futures::stream::try_unfold(Some((run, input, baseline)), step).try_filter_map(futures::future::ok);
        let cut = batches.map_ok(|batch| futures::stream::iter(pieces(batch)));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), cut.try_flatten())))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Cuts a batch of groups. The keys of all of them lie in one buffer, which each exchange and sort above would count again
/// with each piece, so pieces get their own.
fn pieces(batch: RecordBatch) -> impl Iterator<Item = Result<RecordBatch>> {
    let own = |column: &ArrayRef| -> ArrayRef {
        column.as_string_view_opt().map_or_else(|| Arc::clone(column), |texts| Arc::new(texts.gc()))
    };
    (0..batch.num_rows()).step_by(BATCH_ROWS).map(move |at| {
        if batch.num_rows() <= BATCH_ROWS {
            return Ok(batch.clone());
        }
        let piece = batch.slice(at, BATCH_ROWS.min(batch.num_rows() - at));
        let options = RecordBatchOptions::new().with_row_count(Some(piece.num_rows()));
        let columns = piece.columns().iter().map(own).collect();
        Ok(RecordBatch::try_new_with_options(piece.schema(), columns, &options)?)
    })
}

type Step = Option<(PartitionGroups, SendableRecordBatchStream, BaselineMetrics)>;

/// Reads input until it ends or memory is short.
async fn step(state: Step) -> Result<Option<(Option<RecordBatch>, Step)>> {
    let Some((mut run, mut input, baseline)) = state else { return Ok(None) };
    while let Some(batch) = input.next().await {
        let timer = baseline.elapsed_compute().timer();
        run.add(&batch?)?;
        let given = if run.fits()? { None } else { Some(run.give()?) };
        timer.done();
        if let Some(batch) = given {
            baseline.record_output(batch.num_rows());
            return Ok(Some((Some(batch), Some((run, input, baseline)))));
        }
    }
    let timer = baseline.elapsed_compute().timer();
    let last = run.last()?;
    timer.done();
    baseline.record_output(last.num_rows());
    Ok(Some((Some(last), None)))
}

/// The groups of one running partition, and the memory that they use.
struct PartitionGroups {
    work: Arc<Work>,
    groups: Groups,
    aggregates: Vec<Box<dyn GroupsAccumulator>>,
    memory: MemoryReservation,
    has_rows: bool,
}

fn accumulator(work: &Work, aggregate: &Arc<AggregateFunctionExpr>) -> Result<Box<dyn GroupsAccumulator>> {
    if work.groups.is_empty() {
        return Ok(Box::new(Alone(aggregate.create_accumulator()?)));
    }
    if aggregate.groups_accumulator_supported() {
        return aggregate.create_groups_accumulator();
    }
    let aggregate = Arc::clone(aggregate);
    Ok(Box::new(GroupsAccumulatorAdapter::new(move || aggregate.create_accumulator())))
}

impl PartitionGroups {
    fn new(work: Arc<Work>, memory: MemoryReservation) -> Result<Self> {
        let aggregates = work.aggregates.iter().map(|a| accumulator(&work, a)).collect::<Result<_>>()?;
        let groups = Self::no_groups(&work);
        Ok(Self { work, groups, aggregates, memory, has_rows: false })
    }

    fn no_groups(work: &Work) -> Groups {
        Groups::new(work.columns.iter().map(|(kind, held)| Values::new(kind, held)).collect())
    }

    /// Adds the rows of a batch to their groups.
    fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let work = Arc::clone(&self.work);
        let mut batch = (batch.clone(), batch.project(&work.used)?);
        if let Some(predicate) = &work.predicate {
            let keep = predicate.evaluate(&batch.0)?.plain()?;
            let keep = keep.as_boolean();
            if keep.true_count() == 0 {
                return Ok(());
            }
            if keep.true_count() < keep.len() {
                batch.1 = filter_record_batch(&batch.1, keep)?;
            }
        }
        let batch = batch.1;
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.aggregate(&batch)
    }

    fn aggregate(&mut self, batch: &RecordBatch) -> Result<()> {
        let work = Arc::clone(&self.work);
        let found = work.groups.iter().map(|group| group.evaluate(batch)).collect::<Result<Vec<_>>>()?;
        // If all rows are one group, no group numbers are needed.
        let groups = if found.is_empty() { Vec::new() } else { self.groups.of(found, batch.num_rows())? };
        let all = work.aggregates.iter().zip(&work.args).zip(&work.filters);
        for (((aggregate, args), filter), state) in all.zip(&mut self.aggregates) {
            // These aggregates count stored values, so texts need not be decoded.
            let as_held = matches!(aggregate.fun().name(), "count" | COUNT_DISTINCT) && !aggregate.is_distinct();
            let only_counts = aggregate.fun().name() == "count" && !aggregate.is_distinct();
            let value = |arg: &PreparedExpr| -> Result<ArrayRef> {
                // Only whether there is a value matters, so a constant is not expanded to all rows.
                if only_counts && arg.is_constant() {
                    return Ok(Arc::new(BooleanArray::new(BooleanBuffer::new_unset(batch.num_rows()), None)));
                }
                let found = arg.evaluate(batch)?;
                if as_held { Ok(found.held()) } else { found.plain() }
            };
            // The requested quantiles are constants, which are not evaluated per row.
            let read = if matches!(aggregate.fun().name(), "quantile" | "quantiles") { 1 } else { args.len() };
            let values = args.iter().take(read).map(value).collect::<Result<Vec<_>>>()?;
            let filter = filter.as_ref().map(|f| f.evaluate(batch)?.plain()).transpose()?;
            let filter: Option<&BooleanArray> = filter.as_ref().map(AsArray::as_boolean);
            state.update_batch(&values, &groups, filter, self.groups.len())?;
        }
        self.has_rows = true;
        Ok(())
    }

    /// Updates the memory reservation; `false` if the groups must be emitted first.
    fn fits(&mut self) -> Result<bool> {
        let held = self.groups.size() + self.aggregates.iter().map(|a| a.size()).sum::<usize>();
        match self.memory.try_resize(held) {
            Ok(()) => Ok(true),
            Err(_) if self.work.is_partial && !self.work.groups.is_empty() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Emits the groups and starts over.
    fn give(&mut self) -> Result<RecordBatch> {
        let mut columns = self.groups.values()?;
        for state in &mut self.aggregates {
            if self.work.is_partial {
                columns.extend(state.state(EmitTo::All)?);
            } else {
                columns.push(state.evaluate(EmitTo::All)?);
            }
        }
        let rows = self.groups.len();
        if columns.iter().any(|column| column.len() != rows) {
            return exec_err!("an aggregate lost groups");
        }
        self.groups = Self::no_groups(&self.work);
        self.has_rows = false;
        self.memory.free();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.work.schema), columns, &options)?)
    }

    /// Emits the remaining groups. Without grouping columns there is always one row.
    fn last(&mut self) -> Result<RecordBatch> {
        if !self.has_rows {
            if !self.work.groups.is_empty() {
                return Ok(RecordBatch::new_empty(Arc::clone(&self.work.schema)));
            }
            // A row that is filtered out: without any rows, some aggregates take a new group for one with values.
            let none = BooleanArray::from(vec![false]);
            for (kinds, state) in self.work.arg_types.iter().zip(&mut self.aggregates) {
                let nulls: Vec<ArrayRef> = kinds.iter().map(|kind| new_null_array(kind, 1)).collect();
                state.update_batch(&nulls, &[0], Some(&none), 1)?;
            }
        }
        self.give()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::StringViewArray;

    use super::*;

    /// Breaks if each piece of many groups counts the keys of all groups.
    #[test]
    fn pieces_hold_their_own_keys() {
        let ids = (0..100_000).map(|n| format!("{n:032x}"));
        let keys: ArrayRef = Arc::new(StringViewArray::from_iter_values(ids));
        let batch = RecordBatch::try_from_iter([("key", keys)]).unwrap();
        let all = batch.get_array_memory_size();
        let cut: Vec<RecordBatch> = pieces(batch.clone()).collect::<Result<_>>().unwrap();
        assert_eq!(cut.len(), 13);
        let held: usize = cut.iter().map(RecordBatch::get_array_memory_size).sum();
        assert!(held < 2 * all, "{held} of {all}");
        let rows: usize = cut.iter().map(RecordBatch::num_rows).sum();
        assert_eq!((rows, &cut[12]), (100_000, &batch.slice(12 * BATCH_ROWS, 100_000 - 12 * BATCH_ROWS)));
    }
}
