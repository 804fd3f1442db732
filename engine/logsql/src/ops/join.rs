//! `join`: DataFusion's hash join, which holds the rows of the other query in memory. Maps of fields go through it as
//! views.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::catalog::Session;
use datafusion::common::{JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column as ColumnExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use quiver_query::{Operator, coalesced, held_side, joined_by_views, operator_plan};
use serde::{Deserialize, Serialize};

use super::unpack::Writer;
use crate::ast::literal::Overwrite;
use crate::chunked_stream::{OutputChunk, map_batches, map_values};
use crate::nodes::StepExec;
use crate::partial_plan::PartialPlan;
use crate::rows::{Rest, Shape, Texts, as_view, texts_of};
use crate::step::{Batches, Step, StepKind, StepReader};

/// How its steps are read.
pub(crate) const STEPS: &[StepReader] = &[StepReader::of::<JoinKeys>(), StepReader::of::<JoinStep>()];

/// Joins the rows (left) with those of another query (right). Lacks in DataFusion: keys that stand in maps, and rows that
/// keep what they have of the other side's fields. Which rows meet is found by its own join.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Join {
    pub(crate) left: Shape,
    pub(crate) right: Shape,
    pub(crate) by: Vec<String>,
    pub(crate) inner: bool,
    pub(crate) prefix: String,
}

impl Join {
    /// Adds it to plans.
    pub(crate) fn plan(self, left: PartialPlan, right: PartialPlan) -> quiver_types::Result<PartialPlan> {
        let shape = self.output();
        Ok(PartialPlan { plan: operator_plan(self, vec![left.plan, right.plan])?, shape, time: left.time })
    }

    /// The left columns, then those of the right side that are not joined by.
    pub(crate) fn output(&self) -> Shape {
        let names: Vec<String> = self.more().map(|name| format!("{}{name}", self.prefix)).collect();
        let mut shape = self.left.with_texts(names.iter().map(String::as_str));
        shape.columns.iter_mut().for_each(|column| column.kind = crate::rows::ColumnStorage::Text);
        shape.rest |= self.right.rest;
        shape
    }

    fn more(&self) -> impl Iterator<Item = &str> {
        self.right.names().filter(|name| !self.by.iter().any(|by| by == name))
    }

    /// One side with its keys as text before its columns.
    fn keyed(&self, shape: &Shape, side: Side, input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let keys = JoinKeys { by: self.by.clone(), input: shape.clone(), side };
        StepExec::plan(Arc::new(keys), input)
    }
}

/// A side of a join.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Side {
    Left,
    Right,
}

impl Side {
    /// What the names of its columns begin with: those of both stand in one row.
    fn prefix(self) -> &'static str {
        match self {
            Self::Left => "__q_left",
            Self::Right => "__q_right",
        }
    }
}

/// Puts keys beside the columns of one side.
#[derive(Debug, Serialize, Deserialize)]
struct JoinKeys {
    by: Vec<String>,
    input: Shape,
    side: Side,
}

impl StepKind for JoinKeys {
    const KIND: &'static str = "join.keys";
}

impl Step for JoinKeys {
    fn name(&self) -> &'static str {
        "LogsJoinKeys"
    }

    fn schema(&self) -> SchemaRef {
        let prefix = self.side.prefix();
        let keys = (0..self.by.len()).map(|i| Field::new(format!("{prefix}{i}"), DataType::Utf8View, true));
        let own = self.input.schema();
        let renamed = own.fields().iter().enumerate();
        let renamed = renamed.map(|(i, f)| Field::new(format!("{prefix}_column{i}"), f.data_type().clone(), true));
        Arc::new(Schema::new(keys.chain(renamed).collect::<Vec<_>>()))
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let schema = Step::schema(&*self);
        let map = move |rows: RecordBatch| {
            let mut columns = Vec::new();
            for name in &self.by {
                columns.push(match self.input.index(name) {
                    Some(i) => as_view(rows.column(i))?,
                    None => crate::rows::missing(rows.num_rows()),
                });
            }
            columns.extend(rows.columns().iter().cloned());
            let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
            Ok(RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?)
        };
        Ok(map_batches(rows, &task, Box::new(map)))
    }
}

/// Makes rows of the answer of joined rows.
#[derive(Debug, Serialize, Deserialize)]
struct JoinStep(Arc<Join>);

impl StepKind for JoinStep {
    const KIND: &'static str = "join";
}

impl Step for JoinStep {
    fn name(&self) -> &'static str {
        "LogsJoin"
    }

    fn detail(&self) -> String {
        self.0.detail()
    }

    fn schema(&self) -> SchemaRef {
        self.0.output().schema()
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let output = self.0.output();
        Ok(map_values(rows, &task, Box::new(move |joined, room| self.map(joined, room, &output))))
    }
}

impl JoinStep {
    fn map(&self, joined: &RecordBatch, room: usize, output: &Shape) -> Result<OutputChunk> {
        let own = &*self.0;
        let keys = own.by.len();
        let right_columns = own.right.schema().fields().len();
        let side = |from: usize, shape: &Shape| -> Result<RecordBatch> {
            let columns = joined.columns()[from..from + shape.schema().fields().len()].to_vec();
            let options = RecordBatchOptions::new().with_row_count(Some(joined.num_rows()));
            let fields: Vec<Field> =
                shape.schema().fields().iter().map(|f| Field::new(f.name(), f.data_type().clone(), true)).collect();
            Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
        };
        let right = side(keys, &own.right)?;
        let left = side(keys + right_columns + keys, &own.left)?;
        let more: Vec<(String, Texts)> = own
            .more()
            .map(|name| Ok((format!("{}{name}", own.prefix), texts_of(&right, &own.right, name)?)))
            .collect::<Result<_>>()?;
        let rest = Rest::of(&right, &own.right);
        let mut writer = Writer::new(&left, &own.left, output)?;
        let (mut scratch, mut prefixed) = (String::new(), own.prefix.clone());
        for row in 0..joined.num_rows() {
            writer.begin(row);
            for (name, texts) in &more {
                writer.put(name, texts.get(row, &mut scratch), Overwrite::KeepOriginal);
            }
            for (name, value) in rest.iter().flat_map(|rest| rest.row(row)) {
                prefixed.truncate(own.prefix.len());
                prefixed.push_str(name);
                writer.put(&prefixed, value, Overwrite::KeepOriginal);
            }
            writer.end();
            if writer.bytes >= room {
                break;
            }
        }
        writer.finish(output)
    }
}

impl Operator for Join {
    fn name(&self) -> &'static str {
        "LogsJoin"
    }

    fn detail(&self) -> String {
        format!("by={:?} inner={}", self.by, self.inner)
    }

    fn schema(&self) -> SchemaRef {
        self.output().schema()
    }

    fn physical(
        self: Arc<Self>,
        mut inputs: Vec<Arc<dyn ExecutionPlan>>,
        _: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let right = inputs.swap_remove(1);
        let left = inputs.swap_remove(0);
        let build = held_side(coalesced(self.keyed(&self.right, Side::Right, right)));
        let probe = self.keyed(&self.left, Side::Left, left);
        let on = (0..self.by.len()).map(|i| {
            let column =
                |side: Side| Arc::new(ColumnExpr::new(&format!("{}{i}", side.prefix()), i)) as Arc<dyn PhysicalExpr>;
            (column(Side::Right), column(Side::Left))
        });
        let kind = if self.inner { JoinType::Inner } else { JoinType::Right };
        let join = HashJoinExec::try_new(
            build,
            probe,
            on.collect(),
            None,
            &kind,
            None,
            PartitionMode::CollectLeft,
            NullEquality::NullEqualsNull,
            false,
        )?;
        // A row of many fields may meet thousands of others.
        Ok(StepExec::plan(Arc::new(JoinStep(self)), joined_by_views(Arc::new(join))?))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::physical_plan::displayable;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::prelude::SessionContext;

    use super::*;

    #[test]
    fn maps_go_through_joins_as_views() {
        for (left, right, views) in [(false, false, 0), (true, false, 2), (false, true, 2), (true, true, 3)] {
            let [left, right] = [left, right].map(|rest| Shape { rest, ..Shape::of_texts(["a"]) });
            let side = |shape: &Shape| Arc::new(EmptyExec::new(shape.schema())) as Arc<dyn ExecutionPlan>;
            let sides = vec![side(&left), side(&right)];
            let join = Join { left, right, by: vec!["a".to_owned()], inner: true, prefix: String::new() };
            let plan = Arc::new(join).physical(sides, &SessionContext::new().state()).expect("a plan");
            let shown = displayable(plan.as_ref()).indent(false).to_string();
            assert_eq!(shown.matches("TextViewsExec").count(), views, "{shown}");
        }
    }
}
