//! `unroll`: one row for each item of JSON arrays.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewBuilder, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use quiver_types::logs::{LogFilter, TIME};
use serde::{Deserialize, Serialize};

use super::pipe::{At, Pipe, PipeKind};
use super::row_pipe::{lowered, mentioned, of_condition};
use super::syntax::{condition_text, names};
use crate::ast::Filter;
use crate::chunked_stream::{OutputChunk, map_values};
use crate::ops::computed_fields::{assemble, mask};
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::required_fields::Needs;
use crate::row_functions;
use crate::rows::{Rest, Shape, batch, push_text, texts_of};
use crate::step::{Batches, Step, StepKind, StepReader};

/// `unroll [if (f)] by (a, b)`
#[derive(Debug, Clone, PartialEq)]
pub struct Unroll {
    /// The fields, whose items go side by side.
    pub fields: Vec<String>,
    /// `if (f)`: rows that do not match stay as they are; `None`: all are worked on.
    pub condition: Option<Filter>,
}

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["unroll"], doc: "Repeats each row for each item of a JSON array in it.", parse }];

const STEPS: &[StepReader] = &[StepReader::of::<Items>()];

fn parse(parser: &mut Parser<'_>) -> crate::error::Result<Pipe> {
    let condition = parser.condition()?;
    parser.skip("by");
    Ok(Unroll { fields: parser.fields_anyhow()?, condition }.into())
}

impl Display for Unroll {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "unroll{} by ({})", condition_text(self.condition.as_ref()), names(&self.fields))
    }
}

impl PipeKind for Unroll {
    fn before(&self, after: &Needs) -> Needs {
        let mut needs = after.clone();
        needs.add_all(self.fields.iter().map(String::as_str));
        of_condition(self.condition.as_ref(), &mut needs);
        needs
    }

    fn mentions(&self) -> Vec<String> {
        mentioned(self.fields.clone(), self.condition.as_ref())
    }

    fn keeps_time(&self) -> bool {
        !self.fields.iter().any(|name| name == TIME)
    }

    fn follows(&self) -> bool {
        true
    }

    fn filters_mut(&mut self) -> Vec<&mut Filter> {
        self.condition.iter_mut().collect()
    }

    fn steps() -> &'static [StepReader] {
        STEPS
    }

    fn plan(&self, rows: PartialPlan, at: At<'_>) -> quiver_types::Result<PartialPlan> {
        let output = rows.shape.with_texts(self.fields.iter().map(String::as_str));
        let step = Items {
            fields: self.fields.clone(),
            condition: lowered(self.condition.as_ref(), at)?,
            input: rows.shape.clone(),
            output: output.clone(),
        };
        rows.then(step, output)
    }
}

/// Repeats each row for its items; rows that a condition leaves out stay as they are. Lacks in DataFusion: lists that are
/// texts, and rows with so many items that they are given out in pieces.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Items {
    fields: Vec<String>,
    condition: Option<LogFilter>,
    input: Shape,
    output: Shape,
}

impl StepKind for Items {
    const KIND: &'static str = "unroll";
}

impl Step for Items {
    fn name(&self) -> &'static str {
        "LogsUnroll"
    }

    fn detail(&self) -> String {
        names(&self.fields)
    }

    fn schema(&self) -> SchemaRef {
        self.output.schema()
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        // Items of the first row that were given out before.
        let mut given = 0;
        Ok(map_values(rows, &task, Box::new(move |rows, room| self.map(rows, room, &mut given))))
    }
}

impl Items {
    /// A row with very many items is left in the middle, and gone on with in the next piece.
    fn map(&self, rows: &RecordBatch, room: usize, given: &mut usize) -> Result<OutputChunk> {
        let mask = mask(self.condition.as_ref(), rows, &self.input)?;
        let sources = self.fields.iter().map(|name| texts_of(rows, &self.input, name)).collect::<Result<Vec<_>>>()?;
        let mut builders: Vec<_> = self.fields.iter().map(|_| StringViewBuilder::new()).collect();
        let mut from: Vec<u32> = Vec::with_capacity(rows.num_rows());
        let mut scratch = vec![String::new(); self.fields.len()];
        let (rest, mut taken, mut bytes) = (Rest::of(rows, &self.input), 0, 0);
        for row in 0..rows.num_rows() {
            if bytes >= room {
                break;
            }
            let values: Vec<&str> = sources.iter().zip(&mut scratch).map(|(s, buffer)| s.get(row, buffer)).collect();
            if mask.as_ref().is_some_and(|mask| !mask.value(row)) {
                builders.iter_mut().zip(&values).for_each(|(builder, value)| push_text(builder, value));
                from.push(row as u32);
                taken += 1;
                continue;
            }
            let made = row_functions::unroll(&values);
            // What is repeated: a view for each column, and all that has no column.
            let repeated = rest.iter().flat_map(|rest| rest.row(row)).map(|(name, value)| name.len() + value.len());
            let item_bytes = 16 * (self.input.columns.len() + self.fields.len()) + repeated.sum::<usize>();
            let left = made.get(*given..).unwrap_or_default();
            let fitting = left.len().min((room - bytes).div_ceil(item_bytes));
            for items in &left[..fitting] {
                builders.iter_mut().zip(items).for_each(|(builder, item)| push_text(builder, item));
                from.push(row as u32);
            }
            bytes += fitting * item_bytes;
            if fitting < left.len() {
                *given += fitting;
                break;
            }
            *given = 0;
            taken += 1;
        }
        // Rows may have no columns, which Arrow does not take rows of.
        let repeated = match rows.num_columns() {
            0 => batch(&self.input, Vec::new(), from.len())?,
            _ => take_record_batch(rows, &UInt32Array::from(from))?,
        };
        let arrays = builders.iter_mut().map(|b| Arc::new(b.finish()) as ArrayRef);
        let made: Vec<(&str, ArrayRef)> = self.fields.iter().map(String::as_str).zip(arrays).collect();
        Ok(OutputChunk { batch: assemble(&repeated, &self.input, &self.output, &made)?, taken, bytes })
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, StringViewArray};

    use super::*;
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[("unroll a", "unroll by (a)"), ("unroll if (c:d) by (a, b)", "unroll if (c:d) by (a, b)")]);
        refuses(&[("unroll", "a field name expected"), ("unroll by ()", "at least one field expected")]);
        gives("unroll a", &["a='[1,\"x\"]' b=2", "a=3"], &["a=1 b=2", "a=x b=2", ""]);
        gives("unroll if (b:1) a", &["a='[1,2]' b=2"], &["a='[1,2]' b=2"]);
        gives("unroll (a, b)", &["a='[1,2]' b='[3]'"], &["a=1 b=3", "a=2"]);
        // Rows without any field left still count as rows.
        gives("delete * | unroll a", &["a=1", "b='[1,2]'"], &["", ""]);
        gives("delete * | unroll if (b:2) (a, c) | len(c) as d", &["a=1"], &["d=0"]);
    }

    #[test]
    fn a_row_with_many_items_comes_in_pieces() {
        let shape = Shape::of_texts(["list"]);
        let lists = ["[1,2]", "[]", "[\"a\",\"b\",\"c\",\"d\",\"e\"]", "[3]"];
        let mut rows = batch(&shape, vec![Arc::new(StringViewArray::from_iter_values(lists))], 4).expect("rows");
        let step = Items { fields: vec!["list".into()], condition: None, input: shape.clone(), output: shape };
        // Room for two items.
        let (room, mut all, mut pieces, mut given) = (2 * 16 * 2, Vec::new(), 0, 0);
        while rows.num_rows() > 0 {
            let made = step.map(&rows, room, &mut given).expect("unrolled");
            assert!(made.batch.num_rows() <= 2);
            all.extend(made.batch.column(0).as_string_view().iter().map(|v| v.unwrap_or_default().to_owned()));
            rows = rows.slice(made.taken, rows.num_rows() - made.taken);
            pieces += 1;
        }
        assert_eq!(all, ["1", "2", "", "a", "b", "c", "d", "e", "3"]);
        assert!(pieces >= 5, "{pieces}");
    }
}
