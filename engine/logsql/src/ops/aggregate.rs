//! Grouping: DataFusion's aggregation (with spill) over keys and the functions of `stats_fn`, partial on each partition
//! and final over all.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, StringViewBuilder, TimestampNanosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::catalog::Session;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_expr::expressions::Column as ColumnExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use quiver_types::logs::LogFilter;

use super::filter::evaluate;
use crate::kernels::bucket::Bucket;
use crate::nodes::{BatchMap, Operator, StreamExec, coalesce, map_batches};
use crate::rows::{Column, Kind, Shape, Texts, batch, push_text};
use crate::stats_fn::{Arg, Function, stats_udaf};

/// What rows are grouped by.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) field: String,
    pub(crate) bucket: Option<Bucket>,
}

/// A function over the rows of a group.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) function: Function,
    pub(crate) args: Vec<Arg>,
    pub(crate) condition: Option<LogFilter>,
    pub(crate) name: String,
}

/// Groups rows.
#[derive(Debug)]
pub(crate) struct Aggregate {
    pub(crate) input: Shape,
    pub(crate) keys: Vec<Key>,
    pub(crate) calls: Vec<Call>,
    /// What plans show.
    pub(crate) text: String,
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
            shape.columns.push(Column { name: call.name.clone(), kind: Kind::Text });
        }
        shape
    }

    fn key_kind(&self, i: usize) -> Kind {
        let key = &self.keys[i];
        match (self.input.index(&key.field).map(|c| self.input.columns[c].kind), &key.bucket) {
            (Some(Kind::Dictionary), Some(_)) | (None, _) => Kind::Text,
            (Some(kind), _) => kind,
        }
    }

    /// Keys, all input columns, masks of conditions.
    fn prepared_schema(&self) -> SchemaRef {
        let mut fields: Vec<Arc<Field>> = Vec::new();
        for i in 0..self.keys.len() {
            let one =
                Shape { columns: vec![Column { name: format!("__q_by{i}"), kind: self.key_kind(i) }], rest: false };
            fields.extend(one.schema().fields().iter().cloned());
        }
        fields.extend(self.input.schema().fields().iter().cloned());
        for i in 0..self.masks().count() {
            fields.push(Arc::new(Field::new(format!("__q_if{i}"), DataType::Boolean, false)));
        }
        Arc::new(Schema::new(fields))
    }

    fn masks(&self) -> impl Iterator<Item = &LogFilter> {
        self.calls.iter().filter_map(|call| call.condition.as_ref())
    }

    fn prepare(self: &Arc<Self>) -> BatchMap {
        let own = Arc::clone(self);
        let schema = self.prepared_schema();
        Box::new(move |rows| {
            let count = rows.num_rows();
            let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
            for (i, key) in own.keys.iter().enumerate() {
                columns.push(own.key_column(&rows, key, own.key_kind(i))?);
            }
            columns.extend(rows.columns().iter().cloned());
            for filter in own.masks() {
                columns.push(Arc::new(BooleanArray::new(evaluate(filter, &rows, &own.input)?, None)));
            }
            let options = RecordBatchOptions::new().with_row_count(Some(count));
            Ok(RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?)
        })
    }

    fn key_column(&self, rows: &RecordBatch, key: &Key, kind: Kind) -> Result<ArrayRef> {
        let texts = Texts::column(rows, &self.input, &key.field)?;
        match (&key.bucket, texts, self.input.index(&key.field)) {
            (None, _, Some(i)) => Ok(Arc::clone(rows.column(i))),
            (None, _, None) => Ok(crate::rows::missing(rows.num_rows())),
            (Some(bucket), Texts::Time(times), _) if kind == Kind::Time => {
                let starts: TimestampNanosecondArray = times.unary(|ns| bucket.of_time(ns));
                Ok(Arc::new(starts.with_timezone("UTC")))
            }
            (Some(bucket), texts, _) => {
                let mut builder = StringViewBuilder::with_capacity(rows.num_rows());
                let (mut scratch, mut out) = (String::new(), String::new());
                for row in 0..rows.num_rows() {
                    out.clear();
                    bucket.push(&mut out, texts.get(row, &mut scratch));
                    push_text(&mut builder, &out);
                }
                Ok(Arc::new(builder.finish()))
            }
        }
    }

    /// The column of an argument in the prepared batches.
    fn arg_column(&self, arg: &Arg, schema: &SchemaRef) -> Option<Arc<dyn PhysicalExpr>> {
        let index = match arg {
            Arg::Field(name) | Arg::Matched(name) => self.input.index(name)?,
            Arg::Rest(_) => self.input.rest.then_some(self.input.columns.len())?,
        } + self.keys.len();
        Some(Arc::new(ColumnExpr::new(schema.field(index).name(), index)))
    }

    fn functions(
        &self,
        schema: &SchemaRef,
    ) -> Result<(Vec<Arc<AggregateFunctionExpr>>, Vec<Option<Arc<dyn PhysicalExpr>>>)> {
        let mut next_mask = schema.fields().len() - self.masks().count();
        let (mut functions, mut filters) = (Vec::new(), Vec::new());
        for (i, call) in self.calls.iter().enumerate() {
            let mut columns: Vec<Arc<dyn PhysicalExpr>> = Vec::new();
            let mut args = Vec::with_capacity(call.args.len());
            for arg in &call.args {
                if let Some(column) = self.arg_column(arg, schema) {
                    args.push(arg.clone());
                    columns.push(column);
                }
            }
            if columns.is_empty() {
                columns.push(datafusion::physical_expr::expressions::lit(true));
            }
            let udaf = Arc::new(stats_udaf(call.function.clone(), args));
            let builder =
                AggregateExprBuilder::new(udaf, columns).schema(Arc::clone(schema)).alias(format!("__q_call{i}"));
            functions.push(Arc::new(builder.build()?));
            filters.push(call.condition.as_ref().map(|_| {
                next_mask += 1;
                Arc::new(ColumnExpr::new(schema.field(next_mask - 1).name(), next_mask - 1)) as Arc<dyn PhysicalExpr>
            }));
        }
        Ok((functions, filters))
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
        let schema = self.prepared_schema();
        let own = Arc::clone(&self);
        let prepared = StreamExec::new(
            "LogsGroupKeys",
            String::new(),
            Arc::clone(&schema),
            inputs.swap_remove(0),
            map_batches(move || own.prepare()),
        );
        let keys = (0..self.keys.len()).map(|i| {
            let name = schema.field(i).name();
            (Arc::new(ColumnExpr::new(name, i)) as Arc<dyn PhysicalExpr>, name.clone())
        });
        let groups = PhysicalGroupBy::new_single(keys.collect());
        let (functions, filters) = self.functions(&schema)?;
        let partial = Arc::new(AggregateExec::try_new(
            AggregateMode::Partial,
            groups.clone(),
            functions.clone(),
            filters.clone(),
            Arc::new(prepared),
            Arc::clone(&schema),
        )?);
        let together = coalesce(partial);
        let whole =
            AggregateExec::try_new(AggregateMode::Final, groups.as_final(), functions, filters, together, schema)?;
        let own = Arc::clone(&self);
        let rename = map_batches(move || {
            let own = Arc::clone(&own);
            let output = own.output();
            Box::new(move |rows| {
                let names: Vec<&str> = own
                    .keys
                    .iter()
                    .map(|k| k.field.as_str())
                    .chain(own.calls.iter().map(|c| c.name.as_str()))
                    .collect();
                let column =
                    |c: &Column| names.iter().rposition(|name| *name == c.name).map(|i| Arc::clone(rows.column(i)));
                let columns = output.columns.iter().filter_map(column).collect();
                batch(&output, columns, rows.num_rows())
            })
        });
        Ok(StreamExec::each(&*self, Arc::new(whole), rename))
    }
}
