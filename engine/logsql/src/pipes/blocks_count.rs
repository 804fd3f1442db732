//! `blocks_count`: how many batches reach it.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewArray};
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use futures::StreamExt;
use serde::{Deserialize, Serialize};

use super::pipe::{At, Pipe, PipeKind};
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::print::word;
use crate::required_fields::Needs;
use crate::rows::{Shape, batch};
use crate::step::{Batches, Step, StepKind, StepReader};

/// `blocks_count [as x]`, with the column of the count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlocksCount(pub String);

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["blocks_count"], doc: "Counts the batches that reach it.", parse }];

const STEPS: &[StepReader] = &[StepReader::of::<BlocksCountStep>()];

const COLUMN: &str = "blocks_count";

fn parse(parser: &mut Parser<'_>) -> crate::error::Result<Pipe> {
    Ok(BlocksCount(parser.as_name()?.unwrap_or_else(|| COLUMN.to_owned())).into())
}

impl Display for BlocksCount {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("blocks_count")?;
        if self.0 == COLUMN { Ok(()) } else { write!(f, " as {}", word(&self.0)) }
    }
}

impl PipeKind for BlocksCount {
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
        let output = Shape::of_texts([self.0.as_str()]);
        rows.then(BlocksCountStep(output.clone()), output)
    }
}

/// Lacks in DataFusion: a look at batches instead of rows.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct BlocksCountStep(Shape);

impl StepKind for BlocksCountStep {
    const KIND: &'static str = "blocks_count";
}

impl Step for BlocksCountStep {
    fn name(&self) -> &'static str {
        "LogsBlocksCount"
    }

    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn needs_all_rows(&self) -> bool {
        true
    }

    fn open(self: Arc<Self>, mut rows: SendableRecordBatchStream, _: Arc<TaskContext>) -> Result<Batches> {
        let counted = async move {
            let mut count = 0u64;
            while let Some(batch) = rows.next().await {
                batch?;
                count += 1;
            }
            let column = Arc::new(StringViewArray::from(vec![count.to_string()])) as ArrayRef;
            batch(&self.0, vec![column], 1)
        };
        Ok(futures::stream::once(counted).boxed())
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads};

    #[test]
    fn cases() {
        reads(&[("blocks_count", "blocks_count"), ("blocks_count n", "blocks_count as n")]);
        gives("blocks_count as n", &["a=1", "a=2"], &["n=1"]);
    }
}
