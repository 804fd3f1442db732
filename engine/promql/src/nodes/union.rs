//! `or`: the elements of the first operand, then those of each further one at whose step no operand before it has their
//! signature. A chain of them is one node, so that no row passes through all that come after it.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use serde::{Deserialize, Serialize};

use super::batch::{matrix_schema, to_block};
use super::drive::once;
use super::form::{self, Form};
use super::rows::{Merger, to_batches};
use super::set::{Later, Presence};
use super::{Batches, Env, Spread, StepOperator};
use crate::kernel::Block;

/// A union over any number of inputs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StepUnion {
    /// Steps of each row: cells of its matrix.
    pub(crate) steps: usize,
    /// Whether histograms may occur in the output.
    pub(crate) histograms: bool,
    /// The inputs, in the order of the query.
    pub(crate) operands: Vec<Operand>,
    /// Number of signatures.
    pub(crate) signatures: usize,
    /// Whether a row of the output may come from several inputs.
    pub(crate) merges: bool,
}

/// Where the rows of an input belong.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Operand {
    /// Signature of each row.
    pub(crate) signatures: Vec<u32>,
    /// Row of the output for each row.
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
        Spread::Once
    }

    fn written(&self) -> Result<Vec<u8>> {
        form::body(self)
    }

    fn open(self: Arc<Self>, inputs: Vec<SendableRecordBatchStream>, env: Env) -> Batches {
        once(env.clone(), async move { self.collect(inputs, &env).await })
    }
}

impl Form for StepUnion {
    const KIND: &'static str = "StepUnion";
}

impl StepUnion {
    async fn collect(&self, inputs: Vec<SendableRecordBatchStream>, env: &Env) -> Result<Vec<RecordBatch>> {
        let schema = self.schema();
        // What the operands before have, and what this one has.
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
                    seen.filter(&mut block, &operand.signatures, false);
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
