//! What rows are grouped by, and the functions over each group: what those who group them have in common.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt64Array};
use arrow::datatypes::{Field, Schema, SchemaRef, UInt64Type};
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_expr::expressions::Column as ColumnExpr;
use quiver_types::logs::LogFilter;
use serde::{Deserialize, Serialize};

use crate::kernels::bucket::Bucket;
use crate::rows::{Column, ColumnStorage, Shape};
use crate::stats_functions::{Arg, Function, StatsAccumulator, stats_udaf};

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
    /// Keys, then results; of equal names the last wins.
    pub(crate) fn output(&self) -> Shape {
        let mut shape = Shape::default();
        for (i, key) in self.keys.iter().enumerate() {
            shape.columns.retain(|c| c.name != key.field);
            shape.columns.push(Column { name: key.field.clone(), kind: self.key_kind(i) });
        }
        for call in &self.calls {
            shape.columns.retain(|c| c.name != call.name);
            shape.columns.push(Column { name: call.name.clone(), kind: ColumnStorage::Text });
        }
        shape
    }

    /// How the values of a key are held.
    pub(super) fn key_kind(&self, i: usize) -> ColumnStorage {
        let kind = self.input.index(&self.keys[i].field).map(|c| self.input.columns[c].kind);
        if kind == Some(ColumnStorage::Time) { ColumnStorage::Time } else { ColumnStorage::Text }
    }

    /// Keys, then input columns: what the functions are declared over.
    pub(super) fn declared_schema(&self) -> SchemaRef {
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
        let at = self.input.columns.iter().position(|c| c.kind == ColumnStorage::Count)?;
        let counts = batch.column(at).as_primitive_opt::<UInt64Type>()?;
        (counts.null_count() < counts.len()).then_some(counts)
    }

    /// The functions at their beginning.
    pub(super) fn accumulators(&self) -> Vec<StatsAccumulator> {
        self.calls.iter().map(|call| StatsAccumulator::new(call.function.clone(), self.args(call).0.into())).collect()
    }

    /// Keys, then the states of the functions.
    pub(super) fn state_schema(&self, functions: &[Arc<AggregateFunctionExpr>]) -> Result<SchemaRef> {
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

    /// The functions as DataFusion calls them, over a declared schema.
    pub(super) fn functions(&self, schema: &SchemaRef) -> Result<Vec<Arc<AggregateFunctionExpr>>> {
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
