//! Grouping over keys with the functions of `stats_fn`: our own on each partition (`group.rs`), DataFusion's final
//! aggregation (with spill) over what these give.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt64Array};
use arrow::datatypes::{Field, Schema, SchemaRef, UInt64Type};
use arrow::record_batch::RecordBatch;
use datafusion::catalog::Session;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_expr::expressions::Column as ColumnExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use quiver_query::{Operator, coalesced, operator_plan};
use quiver_types::logs::LogFilter;
use serde::{Deserialize, Serialize};

use super::group::Grouped;
use crate::kernels::bucket::Bucket;
use crate::nodes::StepExec;
use crate::pieces::map_batches;
use crate::planned::Planned;
use crate::rows::{Column, Kind, Shape, batch};
use crate::stats_fn::{Arg, Function, StatsAccumulator, stats_udaf};
use crate::step::{Batches, Step, StepKind, StepReader};

/// How its step is read.
pub(crate) const STEPS: &[StepReader] = &[StepReader::of::<Named>()];

/// What rows are grouped by.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) field: String,
    pub(crate) bucket: Option<Bucket>,
}

/// A function over the rows of a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) function: Function,
    pub(crate) args: Vec<Arg>,
    pub(crate) condition: Option<LogFilter>,
    pub(crate) name: String,
}

/// Groups rows. Lacks in DataFusion: groups of coded values, whose codes are looked at instead of their texts, and rows
/// that stand for many. What partitions found is brought together by its own aggregation.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Aggregate {
    pub(crate) input: Shape,
    pub(crate) keys: Vec<Key>,
    pub(crate) calls: Vec<Call>,
    /// Keys that may be labels of streams: functions of plain numbers take values with units too in rows that are grouped
    /// by labels of their stream. Empty where no function asks.
    pub(crate) stream_keys: Vec<String>,
    /// What plans show.
    pub(crate) text: String,
}

impl Call {
    /// Makes a call that counts all rows of a group.
    pub(crate) fn count_rows(name: &str) -> Self {
        Self { function: Function::CountRows, args: Vec::new(), condition: None, name: name.to_owned() }
    }

    /// Says whether runs of rows are all that it looks at.
    pub(super) fn counts_runs(&self) -> bool {
        self.condition.is_none() && matches!(self.function, Function::CountRows | Function::Rate { .. })
    }
}

impl Aggregate {
    /// Adds it to a plan.
    pub(crate) fn plan(self, rows: Planned) -> quiver_types::Result<Planned> {
        let shape = self.output();
        Ok(Planned { plan: operator_plan(self, vec![rows.plan])?, shape, ..rows })
    }

    /// Keys, then results; of equal names the last wins.
    pub(crate) fn output(&self) -> Shape {
        let mut shape = Shape::default();
        for (i, key) in self.keys.iter().enumerate() {
            shape.columns.retain(|c| c.name != key.field);
            shape.columns.push(Column { name: key.field.clone(), kind: self.key_kind(i) });
        }
        for call in &self.calls {
            shape.columns.retain(|c| c.name != call.name);
            shape.columns.push(Column { name: call.name.clone(), kind: Kind::Text });
        }
        shape
    }

    /// How the values of a key are held.
    pub(super) fn key_kind(&self, i: usize) -> Kind {
        let kind = self.input.index(&self.keys[i].field).map(|c| self.input.columns[c].kind);
        if kind == Some(Kind::Time) { Kind::Time } else { Kind::Text }
    }

    /// Keys, then input columns: what the functions are declared over.
    fn declared_schema(&self) -> SchemaRef {
        let mut fields: Vec<Arc<Field>> = Vec::new();
        for i in 0..self.keys.len() {
            let one =
                Shape { columns: vec![Column { name: format!("__q_by{i}"), kind: self.key_kind(i) }], rest: false };
            fields.extend(one.schema().fields().iter().cloned());
        }
        fields.extend(self.input.schema().fields().iter().cloned());
        Arc::new(Schema::new(fields))
    }

    /// The arguments of a call that have a column, and where it stands.
    fn args(&self, call: &Call) -> (Vec<Arg>, Vec<usize>) {
        let place = |arg: &Arg| match arg {
            Arg::Field(name) | Arg::Matched(name) => self.input.index(name),
            Arg::Rest(_) => self.input.rest.then_some(self.input.columns.len()),
        };
        call.args.iter().filter_map(|arg| Some((arg.clone(), place(arg)?))).unzip()
    }

    /// The columns that a call adds up.
    pub(super) fn values(&self, call: &Call, batch: &RecordBatch) -> Vec<ArrayRef> {
        self.args(call).1.into_iter().map(|i| Arc::clone(batch.column(i))).collect()
    }

    /// How many rows each row stands for, if any stands for others; then all calls only count.
    pub(super) fn row_counts<'a>(&self, batch: &'a RecordBatch) -> Option<&'a UInt64Array> {
        let at = self.input.columns.iter().position(|c| c.kind == Kind::Count)?;
        let counts = batch.column(at).as_primitive_opt::<UInt64Type>()?;
        (counts.null_count() < counts.len()).then_some(counts)
    }

    /// The functions at their beginning.
    pub(super) fn accumulators(&self) -> Vec<StatsAccumulator> {
        self.calls.iter().map(|call| StatsAccumulator::new(call.function.clone(), self.args(call).0.into())).collect()
    }

    /// Keys, then the states of the functions.
    fn state_schema(&self, functions: &[Arc<AggregateFunctionExpr>]) -> Result<SchemaRef> {
        let mut fields: Vec<Arc<Field>> = self.declared_schema().fields()[..self.keys.len()].to_vec();
        for function in functions {
            fields.extend(function.state_fields()?);
        }
        Ok(Arc::new(Schema::new(fields)))
    }

    /// What partitions give.
    pub(super) fn states(&self) -> Result<SchemaRef> {
        self.state_schema(&self.functions(&self.declared_schema())?)
    }

    fn functions(&self, schema: &SchemaRef) -> Result<Vec<Arc<AggregateFunctionExpr>>> {
        let mut functions = Vec::new();
        for (i, call) in self.calls.iter().enumerate() {
            let (args, places) = self.args(call);
            let column = |place: usize| {
                let index = place + self.keys.len();
                Arc::new(ColumnExpr::new(schema.field(index).name(), index)) as Arc<dyn PhysicalExpr>
            };
            let mut columns: Vec<_> = places.into_iter().map(column).collect();
            if columns.is_empty() {
                columns.push(datafusion::physical_expr::expressions::lit(true));
            }
            let udaf = Arc::new(stats_udaf(call.function.clone(), args));
            let builder =
                AggregateExprBuilder::new(udaf, columns).schema(Arc::clone(schema)).alias(format!("__q_call{i}"));
            functions.push(Arc::new(builder.build()?));
        }
        Ok(functions)
    }
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
        let partial = StepExec::over(Arc::new(Grouped { aggregate: Arc::clone(&self), states }), inputs.swap_remove(0));
        let keys = (0..self.keys.len()).map(|i| {
            let name = schema.field(i).name();
            (Arc::new(ColumnExpr::new(name, i)) as Arc<dyn PhysicalExpr>, name.clone())
        });
        let groups = PhysicalGroupBy::new_single(keys.collect());
        let filters = vec![None; functions.len()];
        let together = coalesced(partial);
        let whole = AggregateExec::try_new(AggregateMode::Final, groups, functions, filters, together, schema)?;
        Ok(StepExec::over(Arc::new(Named(self)), Arc::new(whole)))
    }
}

/// Gives keys and results their names.
#[derive(Debug, Serialize, Deserialize)]
struct Named(Arc<Aggregate>);

impl StepKind for Named {
    const KIND: &'static str = "group.names";
}

impl Step for Named {
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
