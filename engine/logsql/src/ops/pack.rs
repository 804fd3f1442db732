//! Fields packed into one: `pack_json`, `pack_logfmt`.

use std::sync::Arc;

use arrow::array::StringViewBuilder;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use serde::{Deserialize, Serialize};

use super::computed_fields::{assemble, bounded};
use crate::ast::field::FieldPattern;
use crate::chunked_stream::{OutputChunk, map_values};
use crate::partial_plan::PartialPlan;
use crate::print::patterns;
use crate::required_fields::Needs;
use crate::row_functions;
use crate::rows::{Rest, Shape, Texts, push_text, texts_of};
use crate::step::{Batches, Step, StepKind, StepReader};

/// How its step is read.
pub(crate) const STEPS: &[StepReader] = &[StepReader::of::<PackStep>()];

/// How fields are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum PackFormat {
    Json,
    Logfmt,
}

/// Packs fields into one, in the order of the list; without a list the columns and then the map, by name. Lacks in
/// DataFusion: fields that stand in maps, and groups of them.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct PackStep {
    packing: PackFormat,
    fields: Vec<FieldPattern>,
    to: String,
    input: Shape,
    output: Shape,
}

/// An empty list is all fields.
fn or_all(fields: &[FieldPattern]) -> Vec<FieldPattern> {
    if fields.is_empty() { vec![FieldPattern::all()] } else { fields.to_vec() }
}

impl PackStep {
    /// What is needed before fields are packed.
    pub(crate) fn before(fields: &[FieldPattern], to: &str, after: &Needs) -> Needs {
        let mut needs = after.clone();
        if after.has(to) {
            needs.remove(to);
            for field in &or_all(fields) {
                needs.add_pattern(field);
            }
        }
        needs
    }

    /// The names that packing speaks of.
    pub(crate) fn mentions(fields: &[FieldPattern], to: &str) -> Vec<String> {
        fields.iter().filter_map(FieldPattern::name).chain([to]).map(str::to_owned).collect()
    }

    /// Adds it to a plan.
    pub(crate) fn plan(
        packing: PackFormat,
        fields: &[FieldPattern],
        to: &str,
        rows: PartialPlan,
    ) -> quiver_types::Result<PartialPlan> {
        let (input, output) = (rows.shape.clone(), rows.shape.with_texts([to]));
        let step = Self { packing, fields: or_all(fields), to: to.to_owned(), input, output: output.clone() };
        rows.then(step, output)
    }

    fn map(&self, rows: &RecordBatch, room: usize) -> Result<OutputChunk> {
        let columns: Vec<(&str, Texts)> =
            self.input.names().map(|name| Ok((name, texts_of(rows, &self.input, name)?))).collect::<Result<_>>()?;
        let rest = Rest::of(rows, &self.input);
        let mut builder = StringViewBuilder::with_capacity(rows.num_rows());
        let mut scratch = vec![String::new(); columns.len()];
        let mut out = String::new();
        let (mut taken, mut bytes) = (0, 0);
        for row in 0..rows.num_rows() {
            out.clear();
            let own: Vec<(&str, &str)> =
                columns.iter().zip(&mut scratch).map(|((name, texts), s)| (*name, texts.get(row, s))).collect();
            let all: Vec<(&str, &str)> = own.into_iter().chain(rest.iter().flat_map(|rest| rest.row(row))).collect();
            let mut chosen: Vec<(&str, &str)> = Vec::new();
            for field in &self.fields {
                for (name, value) in all.iter().copied().filter(|(name, _)| field.matches(name)) {
                    if !chosen.iter().any(|(own, _)| *own == name) {
                        chosen.push((name, value));
                    }
                }
            }
            match self.packing {
                PackFormat::Json => row_functions::pack_json(chosen, &mut out),
                PackFormat::Logfmt => row_functions::pack_logfmt(chosen, &mut out),
            }
            bytes += bounded(std::iter::once(out.len()))?;
            push_text(&mut builder, &out);
            taken += 1;
            if bytes >= room {
                break;
            }
        }
        let made = [(self.to.as_str(), Arc::new(builder.finish()) as _)];
        let batch = assemble(&rows.slice(0, taken), &self.input, &self.output, &made)?;
        Ok(OutputChunk { batch, taken, bytes })
    }
}

impl StepKind for PackStep {
    const KIND: &'static str = "pack";
}

impl Step for PackStep {
    fn name(&self) -> &'static str {
        "LogsPack"
    }

    fn detail(&self) -> String {
        format!("{:?} of {}", self.packing, patterns(&self.fields))
    }

    fn schema(&self) -> SchemaRef {
        self.output.schema()
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        Ok(map_values(rows, &task, Box::new(move |rows, room| self.map(rows, room))))
    }
}
