//! `deduplicate`: rows that repeat others are left out, the first of them stays whole.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use serde::{Deserialize, Serialize};

use super::pipe::{At, Output, Pipe, PipeKind};
use super::syntax::names;
use crate::chunked_stream::map_batches;
use crate::kernels::number_set::NumberSet;
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::required_fields::Needs;
use crate::rows::{Rest, Shape, Texts, texts_of};
use crate::step::{Batches, Step, StepKind, StepReader};

/// `deduplicate [by (...)]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deduplicate {
    /// The fields whose values tell rows apart; none: all fields of a row.
    pub by: Vec<String>,
}

pub(super) const DEFS: &[PipeDef] = &[PipeDef {
    names: &["deduplicate"],
    doc: "Leaves out rows that repeat all fields, or some fields, of a row before.",
    parse,
}];

const STEPS: &[StepReader] = &[StepReader::of::<DeduplicateStep>()];

fn parse(parser: &mut Parser<'_>) -> crate::error::Result<Pipe> {
    if parser.at_pipe_end() {
        return Ok(Deduplicate { by: Vec::new() }.into());
    }
    parser.skip("by");
    if parser.at_pipe_end() {
        return Err(parser.unexpected("fields"));
    }
    Ok(Deduplicate { by: parser.fields_anyhow()? }.into())
}

impl Display for Deduplicate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("deduplicate")?;
        if self.by.is_empty() { Ok(()) } else { write!(f, " by ({})", names(&self.by)) }
    }
}

impl PipeKind for Deduplicate {
    fn before(&self, after: &Needs) -> Needs {
        if self.by.is_empty() {
            return Needs::all();
        }
        let mut needs = after.clone();
        needs.add_all(self.by.iter().map(String::as_str));
        needs
    }

    fn mentions(&self) -> Vec<String> {
        self.by.clone()
    }

    fn output(&self) -> Output<'_> {
        Output::Same
    }

    fn steps() -> &'static [StepReader] {
        STEPS
    }

    fn plan(&self, rows: PartialPlan, _: At<'_>) -> quiver_types::Result<PartialPlan> {
        let shape = rows.shape.clone();
        rows.then(DeduplicateStep { by: self.by.clone(), shape: shape.clone() }, shape)
    }
}

/// Lacks in DataFusion: `DISTINCT ON` keeps the first row of a group by an order only, and rows wait for the last one.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct DeduplicateStep {
    by: Vec<String>,
    shape: Shape,
}

impl StepKind for DeduplicateStep {
    const KIND: &'static str = "deduplicate";
}

impl Step for DeduplicateStep {
    fn name(&self) -> &'static str {
        "LogsDeduplicate"
    }

    fn detail(&self) -> String {
        self.by.join(", ")
    }

    fn schema(&self) -> SchemaRef {
        self.shape.schema()
    }

    fn needs_all_rows(&self) -> bool {
        true
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let memory = MemoryConsumer::new("LogsDeduplicate").register(task.memory_pool());
        // Hashes of the rows: millions of whole rows would be held otherwise.
        let mut known = NumberSet::default();
        let (mut held, mut key) = (0, Vec::new());
        let keep = move |rows: RecordBatch| {
            let keys = Keys::of(&rows, &self)?;
            let mut scratch = vec![String::new(); keys.columns.len()];
            let is_new = |row: usize| {
                key.clear();
                keys.write(row, &mut scratch, &mut key);
                let grown = known.insert_hash(&key);
                held += grown;
                Some(grown > 0)
            };
            let mask: BooleanArray = (0..rows.num_rows()).map(is_new).collect();
            memory.try_resize(held)?;
            Ok(filter_record_batch(&rows, &mask)?)
        };
        Ok(map_batches(rows, &task, Box::new(keep)))
    }
}

/// The values that tell the rows of a batch apart.
struct Keys<'a> {
    columns: Vec<(&'a str, Texts)>,
    /// The other fields, when all count.
    rest: Option<Rest>,
    by_name: bool,
}

impl<'a> Keys<'a> {
    fn of(rows: &RecordBatch, step: &'a DeduplicateStep) -> Result<Self> {
        let all = step.by.is_empty();
        let names: Vec<&str> =
            if all { step.shape.names().collect() } else { step.by.iter().map(String::as_str).collect() };
        let column = |name: &'a str| texts_of(rows, &step.shape, name).map(|texts| (name, texts));
        let columns = names.into_iter().map(column).collect::<Result<_>>()?;
        let rest = if all { Rest::of(rows, &step.shape) } else { None };
        Ok(Self { columns, rest, by_name: all })
    }

    /// Writes the key of a row: each text behind its length.
    fn write(&self, row: usize, scratch: &mut [String], out: &mut Vec<u8>) {
        let values = self.columns.iter().zip(scratch).map(|((name, texts), buffer)| (*name, texts.get(row, buffer)));
        if !self.by_name {
            values.for_each(|(_, value)| push(value, out));
            return;
        }
        // The map has no order, so fields are put in that of their names; those that are empty are missing.
        let mut fields: Vec<(&str, &str)> = values.collect();
        if let Some(rest) = &self.rest {
            fields.extend(rest.row(row));
        }
        fields.retain(|(_, value)| !value.is_empty());
        fields.sort_unstable();
        for (name, value) in &fields {
            push(name, out);
            push(value, out);
        }
    }
}

fn push(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, StringViewArray};

    use super::*;
    use crate::pipes::testing::{gives, reads, refuses};
    use crate::rows::batch;

    /// What is held of a row does not depend on how long it is.
    #[test]
    fn rows_are_held_as_their_hashes() {
        let mut known = NumberSet::default();
        let shape = Shape::of_texts(["a", "b"]);
        let step = DeduplicateStep { by: Vec::new(), shape: shape.clone() };
        let long = "x".repeat(10_000);
        let column = |values: [&str; 3]| -> ArrayRef { Arc::new(StringViewArray::from_iter_values(values)) };
        let rows = batch(&shape, vec![column(["ab", "a", &long]), column(["c", "bc", &long])], 3).expect("rows");
        let keys = Keys::of(&rows, &step).expect("keys");
        let (mut key, mut scratch) = (Vec::new(), vec![String::new(); 2]);
        let grown = [0, 1, 2, 2, 0].map(|row| {
            key.clear();
            keys.write(row, &mut scratch, &mut key);
            known.insert_hash(&key)
        });
        assert_eq!(grown, [32, 32, 32, 0, 0]);
    }

    #[test]
    fn cases() {
        reads(&[
            ("deduplicate", "deduplicate"),
            ("deduplicate by (a, b)", "deduplicate by (a, b)"),
            ("deduplicate a, b", "deduplicate by (a, b)"),
        ]);
        refuses(&[("deduplicate by", "fields expected"), ("deduplicate by ()", "at least one")]);
        let rows = ["a=1 b=x", "a=1 b=y", "b=x", "a=1 b=x", "b=z"];
        gives("deduplicate by (a)", &rows, &["a=1 b=x", "b=x"]);
        gives("deduplicate by (b, a)", &rows, &["a=1 b=x", "a=1 b=y", "b=x", "b=z"]);
        gives("deduplicate", &rows, &["a=1 b=x", "a=1 b=y", "b=x", "b=z"]);
        gives("deduplicate by (b) | fields a", &rows, &["a=1", "a=1", ""]);
        gives("deduplicate by (a) | count() n", &rows, &["n=2"]);
    }
}
