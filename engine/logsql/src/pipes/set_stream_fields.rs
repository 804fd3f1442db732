//! `set_stream_fields`: the stream of a row made anew, of some of its fields.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewBuilder};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use quiver_types::logs::{LogFilter, STREAM, STREAM_ID};
use serde::{Deserialize, Serialize};

use super::pipe::{At, Pipe, PipeKind};
use super::row_pipe::{lowered, of_condition};
use super::syntax::condition_text;
use crate::ast::{FieldPattern, Filter};
use crate::chunked_stream::map_batches;
use crate::ops::computed_fields::{SelectedFields, assemble, mask};
use crate::parser::names::or_all;
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::print::patterns;
use crate::required_fields::Needs;
use crate::rows::{Shape, push_text, texts_of};
use crate::step::{Batches, Step, StepKind, StepReader};
use crate::stream_text;

/// `set_stream_fields [if (f)] a, b*`
#[derive(Debug, Clone, PartialEq)]
pub struct SetStreamFields {
    /// Fields whose values become the labels of the stream.
    pub fields: Vec<FieldPattern>,
    /// `if (f)`: rows that do not match stay as they are; `None`: all are worked on.
    pub condition: Option<Filter>,
}

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["set_stream_fields"], doc: "Makes the stream of each row of some of its fields.", parse }];

const STEPS: &[StepReader] = &[StepReader::of::<StreamSet>()];

fn parse(parser: &mut Parser<'_>) -> crate::error::Result<Pipe> {
    let condition = parser.condition()?;
    let fields =
        if parser.is("(") { parser.patterns_in_parens()? } else { or_all(parser.with_commas(Parser::field_pattern)?) };
    Ok(SetStreamFields { fields, condition }.into())
}

impl Display for SetStreamFields {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "set_stream_fields{} {}", condition_text(self.condition.as_ref()), patterns(&self.fields))
    }
}

impl PipeKind for SetStreamFields {
    fn before(&self, after: &Needs) -> Needs {
        let mut needs = after.clone();
        needs.remove(STREAM);
        needs.remove(STREAM_ID);
        self.fields.iter().for_each(|field| needs.add_pattern(field));
        of_condition(self.condition.as_ref(), &mut needs);
        if self.condition.is_some() {
            needs.add_all([STREAM, STREAM_ID]);
        }
        needs
    }

    fn mentions(&self) -> Vec<String> {
        vec![STREAM.to_owned(), STREAM_ID.to_owned()]
    }

    fn keeps_rows(&self) -> bool {
        true
    }

    fn filters_mut(&mut self) -> Vec<&mut Filter> {
        self.condition.iter_mut().collect()
    }

    fn steps() -> &'static [StepReader] {
        STEPS
    }

    fn plan(&self, rows: PartialPlan, at: At<'_>) -> quiver_types::Result<PartialPlan> {
        let output = rows.shape.with_texts([STREAM, STREAM_ID]);
        let step = StreamSet {
            fields: self.fields.clone(),
            condition: lowered(self.condition.as_ref(), at)?,
            input: rows.shape.clone(),
            output: output.clone(),
        };
        rows.then(step, output)
    }
}

/// Lacks in DataFusion: fields that stand in maps, and groups of them; the text of a stream.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct StreamSet {
    fields: Vec<FieldPattern>,
    condition: Option<LogFilter>,
    input: Shape,
    output: Shape,
}

impl StepKind for StreamSet {
    const KIND: &'static str = "set_stream_fields";
}

impl Step for StreamSet {
    fn name(&self) -> &'static str {
        "LogsSetStream"
    }

    fn detail(&self) -> String {
        patterns(&self.fields)
    }

    fn schema(&self) -> SchemaRef {
        self.output.schema()
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        Ok(map_batches(rows, &task, Box::new(move |rows| self.map(&rows))))
    }
}

impl StreamSet {
    fn map(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let mask = mask(self.condition.as_ref(), rows, &self.input)?;
        let chosen = SelectedFields::new(rows, &self.input, &self.fields)?;
        let old = [texts_of(rows, &self.input, STREAM)?, texts_of(rows, &self.input, STREAM_ID)?];
        let mut streams = StringViewBuilder::with_capacity(rows.num_rows());
        let mut ids = StringViewBuilder::with_capacity(rows.num_rows());
        let mut scratch = String::new();
        for row in 0..rows.num_rows() {
            if mask.as_ref().is_some_and(|mask| !mask.value(row)) {
                push_text(&mut streams, old[0].get(row, &mut scratch));
                push_text(&mut ids, old[1].get(row, &mut scratch));
                continue;
            }
            let mut fields = chosen.row(row);
            fields.sort_unstable();
            fields.dedup_by(|a, b| a.0 == b.0);
            // It is no stream of the store, so it has no id.
            ids.append_null();
            streams.append_value(stream_text::print(fields.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect()));
        }
        let made: [(&str, ArrayRef); 2] = [(STREAM, Arc::new(streams.finish())), (STREAM_ID, Arc::new(ids.finish()))];
        assemble(rows, &self.input, &self.output, &made)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("set_stream_fields a, b*", "set_stream_fields a, b*"),
            ("set_stream_fields if (a:b) (c)", "set_stream_fields if (a:b) c"),
        ]);
        refuses(&[("set_stream_fields", "a field name expected")]);
        gives("set_stream_fields b, a | fields _stream", &["a=1 b=2"], &["_stream='{a=\"1\",b=\"2\"}'"]);
        gives(
            "set_stream_fields if (a:1) a | fields _stream",
            &["a=1", "a=2 _stream='{x=\"y\"}'"],
            &["_stream='{a=\"1\"}'", "_stream='{x=\"y\"}'"],
        );
    }
}
