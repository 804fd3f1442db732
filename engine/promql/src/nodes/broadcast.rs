//! Repeats a matrix of one step over all steps: what a selector with `@` gives is evaluated once.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use futures::{StreamExt, TryStreamExt};

use super::batch::{BlockBuilder, matrix_schema, to_block};
use super::{Batches, Env, Spread, StepOperator};

/// Repeats the only step of its input.
#[derive(Debug)]
pub(crate) struct Broadcast {
    /// Steps of the output.
    pub(crate) steps: usize,
    /// Whether histograms may occur.
    pub(crate) histograms: bool,
}

impl StepOperator for Broadcast {
    fn name(&self) -> &'static str {
        "StepInvariant"
    }

    fn detail(&self) -> String {
        format!("steps={}", self.steps)
    }

    fn schema(&self) -> SchemaRef {
        matrix_schema(self.steps, self.histograms)
    }

    fn spread(&self) -> Spread {
        Spread::Each
    }

    fn open(self: Arc<Self>, mut inputs: Vec<SendableRecordBatchStream>, env: Env) -> Batches {
        let input = inputs.swap_remove(0);
        let repeat = move |batch| {
            let block = to_block(batch)?;
            let mut out = BlockBuilder::new(self.steps, self.schema());
            let (mut batches, mut hists) = (Vec::new(), block.hists.into_iter().peekable());
            for (idx, &row) in block.rows.iter().enumerate() {
                let (values, present) = out.row(row);
                values.fill(block.values[idx]);
                present.fill(block.present[idx]);
                while let Some((_, _, histogram)) = hists.next_if(|h| h.0 as usize == idx) {
                    out.histograms((0..self.steps as u32).map(|step| (step, histogram.clone())));
                }
                env.run.hold(out.settle())?;
                batches.extend(out.full()?);
            }
            batches.extend(out.flush()?);
            Ok(futures::stream::iter(batches.into_iter().map(Ok)))
        };
        input.map(move |batch| batch.and_then(&repeat)).try_flatten().boxed()
    }
}
