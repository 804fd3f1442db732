//! Grouping over keys with the functions of `stats_functions`: our own on each partition (`group.rs`), DataFusion's final
//! aggregation (with spill) over what these give.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::catalog::Session;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column as ColumnExpr;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};
use quiver_query::{Operator, ScanExec, below_aggregates, coalesced, exchanged, operator_plan};
use serde::{Deserialize, Serialize};

use super::group::GroupStep;
use super::grouping::{Aggregate, Key};
use super::packed_columns::{PACKED, PLAIN_MAX};
use super::sparse_keys::{PackedKeys, UnpackedKeys, parted};
use crate::chunked_stream::map_batches;
use crate::nodes::StepExec;
use crate::partial_plan::PartialPlan;
use crate::rows::batch;
use crate::step::{Batches, Step, StepKind, StepReader};

/// Groups that one thread merges in less time than it takes to distribute them.
const FEW_GROUPS: u64 = 8192;

/// How its step is read.
pub(crate) const STEPS: &[StepReader] = &[StepReader::of::<GroupNamesStep>()];

impl Aggregate {
    /// Adds it to a plan.
    pub(crate) fn plan(self, rows: PartialPlan) -> quiver_types::Result<PartialPlan> {
        if self.keys.len() > PLAIN_MAX { self.plan_many(rows) } else { self.plan_plain(rows) }
    }

    fn plan_plain(self, rows: PartialPlan) -> quiver_types::Result<PartialPlan> {
        let shape = self.output();
        Ok(PartialPlan { plan: operator_plan(self, vec![rows.plan])?, shape, ..rows })
    }

    /// Of many keys those that are texts become one, which is unpacked behind the groups.
    fn plan_many(self, rows: PartialPlan) -> quiver_types::Result<PartialPlan> {
        let output = self.output();
        let (texts, mut keys) = parted(self.keys, &self.input);
        let fields = texts.iter().map(|key| key.field.clone()).collect();
        let pack = PackedKeys { keys: texts, input: self.input };
        let input = pack.output();
        keys.push(Key { field: PACKED.to_owned(), bucket: None });
        let rows = Self { input: input.clone(), keys, ..self }.plan_plain(rows.then(pack, input)?)?;
        let grouped = rows.shape.clone();
        rows.then(UnpackedKeys { fields, input: grouped, output: output.clone() }, output)
    }
}

impl Aggregate {
    /// Whether there may be so many groups that one thread should not merge all. Buckets of time are few; what a scan does not know
    /// may be as many as rows.
    fn may_give_many(&self, rows: &Arc<dyn ExecutionPlan>) -> bool {
        let scan = rows.downcast_ref::<ScanExec>();
        let values = |key: &Key| scan.and_then(|scan| scan.scan().values_about(&key.field)).unwrap_or(u64::MAX);
        let keys = self.keys.iter().filter(|key| key.bucket.is_none());
        keys.map(values).fold(1, u64::saturating_mul) > FEW_GROUPS
    }
}

/// Brings together what partitions found of the same groups: all at one place, or, if they are many, those with equal hashes of their
/// keys. Small scans have one partition.
fn brought_together(
    partial: Arc<dyn ExecutionPlan>,
    groups: &PhysicalGroupBy,
    many: bool,
) -> Result<(AggregateMode, Arc<dyn ExecutionPlan>)> {
    let partitions = partial.output_partitioning().partition_count();
    if partitions == 1 || !many {
        return Ok((AggregateMode::Final, coalesced(partial)));
    }
    let by_keys = Partitioning::Hash(groups.input_exprs(), partitions);
    Ok((AggregateMode::FinalPartitioned, Arc::new(RepartitionExec::try_new(exchanged(partial, partitions), by_keys)?)))
}

impl Operator for Aggregate {
    fn name(&self) -> &'static str {
        "LogsAggregate"
    }

    fn detail(&self) -> String {
        self.text.clone()
    }

    fn schema(&self) -> SchemaRef {
        self.output().schema()
    }

    fn physical(
        self: Arc<Self>,
        mut inputs: Vec<Arc<dyn ExecutionPlan>>,
        _: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = self.declared_schema();
        let functions = self.functions(&schema)?;
        let states = self.state_schema(&functions)?;
        let rows = inputs.swap_remove(0);
        let many = self.may_give_many(&rows);
        let partial = StepExec::plan(Arc::new(GroupStep { aggregate: Arc::clone(&self), states }), rows);
        let keys = (0..self.keys.len()).map(|i| {
            let name = schema.field(i).name();
            (Arc::new(ColumnExpr::new(name, i)) as Arc<dyn PhysicalExpr>, name.clone())
        });
        let groups = PhysicalGroupBy::new_single(keys.collect());
        let filters = vec![None; functions.len()];
        let (mode, input) = brought_together(partial, &groups, many)?;
        let input = below_aggregates(input, functions.len());
        let whole = AggregateExec::try_new(mode, groups, functions, filters, input, schema)?;
        Ok(StepExec::plan(Arc::new(GroupNamesStep(self)), Arc::new(whole)))
    }
}

/// Gives keys and results their names.
#[derive(Debug, Serialize, Deserialize)]
struct GroupNamesStep(Arc<Aggregate>);

impl StepKind for GroupNamesStep {
    const KIND: &'static str = "group.names";
}

impl Step for GroupNamesStep {
    fn name(&self) -> &'static str {
        "LogsAggregate"
    }

    fn detail(&self) -> String {
        self.0.text.clone()
    }

    fn schema(&self) -> SchemaRef {
        self.0.output().schema()
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let output = self.0.output();
        let names = self.0.keys.iter().map(|k| k.field.as_str()).chain(self.0.calls.iter().map(|c| c.name.as_str()));
        let names: Vec<&str> = names.collect();
        let places: Vec<usize> = output.names().filter_map(|own| names.iter().rposition(|name| *name == own)).collect();
        let map = move |rows: RecordBatch| {
            let columns = places.iter().map(|place| Arc::clone(rows.column(*place))).collect();
            batch(&output, columns, rows.num_rows())
        };
        Ok(map_batches(rows, &task, Box::new(map)))
    }
}
