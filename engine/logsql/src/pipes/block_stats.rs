//! `block_stats`: how large the batches are that reach it.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewArray};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use serde::{Deserialize, Serialize};

use super::pipe::{At, PipeKind};
use crate::chunked_stream::map_batches;
use crate::parser::PipeDef;
use crate::partial_plan::PartialPlan;
use crate::required_fields::Needs;
use crate::rows::{Shape, batch};
use crate::step::{Batches, Step, StepKind, StepReader};

/// `block_stats`: one row for each batch that reaches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockStats;

pub(super) const DEFS: &[PipeDef] = &[PipeDef {
    names: &["block_stats"],
    doc: "Gives rows, columns and bytes of each batch that reaches it.",
    parse: |_| Ok(BlockStats.into()),
}];

const STEPS: &[StepReader] = &[StepReader::of::<Sizes>()];

impl Display for BlockStats {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("block_stats")
    }
}

impl PipeKind for BlockStats {
    fn before(&self, _: &Needs) -> Needs {
        Needs::default()
    }

    fn is_barrier(&self) -> bool {
        true
    }

    fn steps() -> &'static [StepReader] {
        STEPS
    }

    fn plan(&self, rows: PartialPlan, _: At<'_>) -> quiver_types::Result<PartialPlan> {
        rows.then(Sizes, shape())
    }
}

fn shape() -> Shape {
    Shape::of_texts(["rows", "columns", "bytes"])
}

/// Lacks in DataFusion: a look at batches instead of rows.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Sizes;

impl StepKind for Sizes {
    const KIND: &'static str = "block_stats";
}

impl Step for Sizes {
    fn name(&self) -> &'static str {
        "LogsBlockStats"
    }

    fn schema(&self) -> SchemaRef {
        shape().schema()
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let output = shape();
        let sizes = move |rows: RecordBatch| {
            let one = |n: usize| Arc::new(StringViewArray::from(vec![n.to_string()])) as ArrayRef;
            let columns = vec![one(rows.num_rows()), one(rows.num_columns()), one(rows.get_array_memory_size())];
            batch(&output, columns, 1)
        };
        Ok(map_batches(rows, &task, Box::new(sizes)))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[("block_stats", "block_stats")]);
        refuses(&[("block_stats 5", "`|` or the end of the pipe expected")]);
        gives("block_stats | fields rows", &["a=1", "a=2"], &["rows=2"]);
    }
}
