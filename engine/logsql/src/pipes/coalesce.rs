//! `coalesce`: the first of some fields that is not empty.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewBuilder};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use quiver_types::logs::{MSG, TIME};
use serde::{Deserialize, Serialize};

use super::pipe::{At, Pipe, PipeKind};
use super::row_pipe::mentioned;
use super::syntax::{result, unless};
use crate::ast::FieldPattern;
use crate::chunked_stream::{OutputChunk, map_values};
use crate::ops::computed_fields::{SelectedFields, assemble};
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::print::{patterns, word};
use crate::required_fields::Needs;
use crate::rows::{Shape, push_text};
use crate::step::{Batches, Step, StepKind, StepReader};

/// `coalesce(a, b) [default v] [as r]`
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Coalesce {
    /// The first of these that is not empty gives the value.
    pub fields: Vec<FieldPattern>,
    /// The value when all are empty; itself empty unless said.
    pub default: String,
    /// The result field.
    pub to: String,
}

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["coalesce"], doc: "Takes the first of some fields that is not empty.", parse }];

const STEPS: &[StepReader] = &[StepReader::of::<FirstOf>()];

fn parse(parser: &mut Parser<'_>) -> crate::error::Result<Pipe> {
    let begin = parser.next;
    let fields = parser.in_parens(Parser::field_pattern)?;
    if fields.is_empty() {
        return Err(parser.fault_at(begin, "at least one field expected"));
    }
    let default = if parser.skip("default") { parser.argument("a text after `default`")? } else { String::new() };
    Ok(Coalesce { fields, default, to: result(parser)? }.into())
}

impl Display for Coalesce {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "coalesce({})", patterns(&self.fields))?;
        if !self.default.is_empty() {
            write!(f, " default {}", word(&self.default))?;
        }
        f.write_str(&unless(&self.to, MSG, "as"))
    }
}

impl PipeKind for Coalesce {
    fn before(&self, after: &Needs) -> Needs {
        let mut needs = after.clone();
        if after.has(&self.to) {
            needs.remove(&self.to);
            self.fields.iter().for_each(|field| needs.add_pattern(field));
        }
        needs
    }

    fn mentions(&self) -> Vec<String> {
        let fields = self.fields.iter().filter_map(FieldPattern::name);
        mentioned(fields.chain([self.to.as_str()]).map(str::to_owned), None)
    }

    fn keeps_time(&self) -> bool {
        self.to != TIME
    }

    fn keeps_rows(&self) -> bool {
        self.keeps_time()
    }

    fn follows(&self) -> bool {
        true
    }

    fn steps() -> &'static [StepReader] {
        STEPS
    }

    fn plan(&self, rows: PartialPlan, at: At<'_>) -> quiver_types::Result<PartialPlan> {
        if !at.needs.has(&self.to) {
            return Ok(rows);
        }
        let (input, output) = (rows.shape.clone(), rows.shape.with_texts([self.to.as_str()]));
        rows.then(FirstOf { of: self.clone(), input, output: output.clone() }, output)
    }
}

/// Lacks in DataFusion: fields that stand in maps, and groups of them; empty texts as missing ones.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct FirstOf {
    of: Coalesce,
    input: Shape,
    output: Shape,
}

impl StepKind for FirstOf {
    const KIND: &'static str = "coalesce";
}

impl Step for FirstOf {
    fn name(&self) -> &'static str {
        "LogsCoalesce"
    }

    fn detail(&self) -> String {
        self.of.to_string()
    }

    fn schema(&self) -> SchemaRef {
        self.output.schema()
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        Ok(map_values(rows, &task, Box::new(move |rows, room| self.map(rows, room))))
    }
}

impl FirstOf {
    fn map(&self, rows: &RecordBatch, room: usize) -> Result<OutputChunk> {
        let chosen = SelectedFields::new(rows, &self.input, &self.of.fields)?;
        let mut builder = StringViewBuilder::with_capacity(rows.num_rows());
        let (mut found, mut taken, mut bytes) = (String::new(), 0, 0);
        for row in 0..rows.num_rows() {
            if !chosen.first(row, &mut found) {
                found.push_str(&self.of.default);
            }
            push_text(&mut builder, &found);
            bytes += found.len();
            taken += 1;
            if bytes >= room {
                break;
            }
        }
        let made: ArrayRef = Arc::new(builder.finish());
        let batch = assemble(&rows.slice(0, taken), &self.input, &self.output, &[(&self.of.to, made)])?;
        Ok(OutputChunk { batch, taken, bytes })
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("coalesce(a,b,) x", "coalesce(a, b) as x"),
            ("coalesce(a*) default 'no value'", "coalesce(a*) default \"no value\""),
        ]);
        refuses(&[("coalesce()", "at least one field expected"), ("coalesce a", "`(` expected")]);
        gives("coalesce(a, b) as x", &["a=1 b=2", "b=3", "c=4"], &["a=1 b=2 x=1", "b=3 x=3", "c=4"]);
        gives("coalesce(b*) default none as x | fields x", &["bb=1", "a=1"], &["x=1", "x=none"]);
    }
}
