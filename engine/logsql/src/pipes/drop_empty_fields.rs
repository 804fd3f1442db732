//! `drop_empty_fields`: rows without any field go; empty fields are none anyway.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::buffer::BooleanBuffer;
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use quiver_types::logs::MSG;
use serde::{Deserialize, Serialize};

use super::pipe::{At, PipeKind};
use crate::chunked_stream::map_batches;
use crate::parser::PipeDef;
use crate::partial_plan::PartialPlan;
use crate::required_fields::Needs;
use crate::rows::{Rest, Shape, Texts, texts_of};
use crate::step::{Batches, Step, StepKind, StepReader};

/// `drop_empty_fields`: has no options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropEmptyFields;

pub(super) const DEFS: &[PipeDef] = &[PipeDef {
    names: &["drop_empty_fields"],
    doc: "Leaves out empty fields, and rows that have no others.",
    parse: |_| Ok(DropEmptyFields.into()),
}];

const STEPS: &[StepReader] = &[StepReader::of::<NotEmpty>()];

impl Display for DropEmptyFields {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("drop_empty_fields")
    }
}

impl PipeKind for DropEmptyFields {
    /// Which rows go depends on all fields.
    fn before(&self, after: &Needs) -> Needs {
        let mut needs = after.clone();
        needs.add_needs(&Needs::all());
        needs
    }

    fn mentions(&self) -> Vec<String> {
        vec![MSG.to_owned()]
    }

    fn keeps_time(&self) -> bool {
        true
    }

    fn keeps_rows(&self) -> bool {
        true
    }

    fn steps() -> &'static [StepReader] {
        STEPS
    }

    fn plan(&self, rows: PartialPlan, _: At<'_>) -> quiver_types::Result<PartialPlan> {
        let shape = rows.shape.clone();
        rows.then(NotEmpty(shape.clone()), shape)
    }
}

/// Lacks in DataFusion: fields that stand in maps, and empty texts as missing ones.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct NotEmpty(Shape);

impl StepKind for NotEmpty {
    const KIND: &'static str = "drop_empty_fields";
}

impl Step for NotEmpty {
    fn name(&self) -> &'static str {
        "LogsDropEmpty"
    }

    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        Ok(map_batches(rows, &task, Box::new(move |rows| self.map(&rows))))
    }
}

impl NotEmpty {
    fn map(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let shape = &self.0;
        let columns: Vec<Texts> = shape.names().map(|name| texts_of(rows, shape, name)).collect::<Result<_>>()?;
        let rest = Rest::of(rows, shape);
        let any = |row: usize| {
            columns.iter().any(|texts| !texts.is_empty(row))
                || rest.as_ref().is_some_and(|r| r.row(row).next().is_some())
        };
        let mask = BooleanArray::new(BooleanBuffer::collect_bool(rows.num_rows(), any), None);
        Ok(filter_record_batch(rows, &mask)?)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads};

    #[test]
    fn cases() {
        reads(&[("drop_empty_fields", "drop_empty_fields")]);
        gives("drop_empty_fields", &["a=1", "a=''", "b=2"], &["a=1", "b=2"]);
        gives("drop_empty_fields | fields a", &["a=1", "b=2"], &["a=1", ""]);
    }
}
