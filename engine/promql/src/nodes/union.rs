//! `or`: the elements of the first operand, then of each further one those whose signature no earlier operand has at
//! the same step. A chain of `or` is one node, so that rows need not pass through all later operators.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use serde::{Deserialize, Serialize};

use super::batch::{matrix_schema, to_block};
use super::driver::batches_of;
use super::operator_encoding::{self, Form};
use super::rows::{Merger, to_batches};
use super::set::{Later, Presence};
use super::{Batches, Env, Spread, StepOperator};
use crate::kernel::Block;

/// A union of any number of inputs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StepUnion {
    /// Number of steps of each row.
    pub(crate) steps: usize,
    /// Whether histograms are possible in the output.
    pub(crate) histograms: bool,
    /// The inputs, in the order of the query.
    pub(crate) operands: Vec<Operand>,
    pub(crate) signatures: usize,
    /// Whether an output row may come from several inputs.
    pub(crate) merges: bool,
}

/// How the rows of an input map to signatures and to the output.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Operand {
    /// Signature of each row.
    pub(crate) signatures: Vec<u32>,
    /// Output row of each row.
    pub(crate) to: Vec<u32>,
}

impl StepOperator for StepUnion {
    fn name(&self) -> &'static str {
        "StepUnion"
    }

    fn detail(&self) -> String {
        format!("or operands={} signatures={}", self.operands.len(), self.signatures)
    }

    fn schema(&self) -> SchemaRef {
        matrix_schema(self.steps, self.histograms)
    }

    fn spread(&self) -> Spread {
        // Operands are read one after the other: what is in an earlier one hides rows of the later ones.
        Spread::Once
    }

    fn written(&self) -> Result<Vec<u8>> {
        operator_encoding::body(self)
    }

    fn open(self: Arc<Self>, inputs: Vec<SendableRecordBatchStream>, env: Env) -> Batches {
        batches_of(env.clone(), async move { self.collect(inputs, &env).await })
    }
}

impl Form for StepUnion {
    const KIND: &'static str = "StepUnion";
}

impl StepUnion {
    async fn collect(&self, inputs: Vec<SendableRecordBatchStream>, env: &Env) -> Result<Vec<RecordBatch>> {
        let schema = self.schema();
        // Memory for the signatures of the earlier operands, and of the current one.
        let memory = env.reserve("set operator", 2 * self.signatures * self.steps)?;
        let mut seen = Presence::new(self.signatures, self.steps);
        let mut own = Later::new(self.signatures, self.steps);
        let mut merged = Merger::new(self.steps).within(env)?;
        let mut batches = Vec::new();
        let mut give = |block: Block| -> Result<()> {
            if self.merges {
                return merged.add(block);
            }
            memory.try_grow(block.memory_bytes())?;
            to_batches(block, &schema).map(|b| batches.extend(b))
        };
        for (i, (mut input, operand)) in inputs.into_iter().zip(&self.operands).enumerate() {
            let last = i + 1 == self.operands.len();
            while let Some(batch) = input.next().await {
                let mut block = to_block(batch?)?;
                env.run.did(2 * block.values.len())?;
                if i > 0 {
                    seen.keep_absent(&mut block, &operand.signatures);
                }
                if !last {
                    own.add(&block, &operand.signatures);
                }
                block.rows.iter_mut().for_each(|r| *r = operand.to[*r as usize]);
                give(block)?;
            }
            own.show(&mut seen);
        }
        if self.merges { merged.finish(&schema) } else { Ok(batches) }
    }
}
