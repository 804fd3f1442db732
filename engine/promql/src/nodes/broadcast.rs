//! Repeats a matrix of one step for all steps: a selector with `@` is evaluated only once.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use serde::{Deserialize, Serialize};

use super::batch::{BlockBuilder, histogram_bytes, histograms_bytes, matrix_schema, to_block};
use super::driver::{Worker, drive_after};
use super::operator_encoding::{self, Form};
use super::{Batches, Env, Spread, StepOperator};
use crate::run_state::RunState;

/// Repeats the only step of its input.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Broadcast {
    /// Number of steps of the output.
    pub(crate) steps: usize,
    /// Whether histograms are possible.
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

    fn written(&self) -> Result<Vec<u8>> {
        operator_encoding::body(self)
    }

    fn open(self: Arc<Self>, mut inputs: Vec<SendableRecordBatchStream>, env: Env) -> Batches {
        drive_after(inputs.swap_remove(0), async move {
            let out = BlockBuilder::new(self.steps, self.schema());
            let memory = env.reserve("output", 0)?;
            Ok(Repeat { out, steps: self.steps, run: env.run, memory })
        })
    }
}

impl Form for Broadcast {
    const KIND: &'static str = "Broadcast";
}

/// Takes as many rows at a time as make one output batch, because each row grows by the number of steps.
struct Repeat {
    out: BlockBuilder,
    steps: usize,
    run: Arc<RunState>,
    /// What the rows take that are made of one batch.
    memory: MemoryReservation,
}

impl Worker for Repeat {
    fn push(&mut self, batch: RecordBatch) -> Result<Vec<RecordBatch>> {
        let Self { out, steps, run, memory } = self;
        memory.try_resize(out.memory_bytes())?;
        let block = to_block(batch)?;
        let (mut batches, mut hists) = (Vec::new(), block.hists.into_iter().peekable());
        for (idx, &row) in block.rows.iter().enumerate() {
            // Nothing ends a row before its last step.
            if out.row_bytes() > 0 {
                memory.try_grow(out.row_bytes())?;
            }
            let (values, present) = out.row(row);
            values.fill(block.values[idx]);
            present.fill(block.present[idx]);
            while let Some((_, _, histogram)) = hists.next_if(|h| h.0 as usize == idx) {
                memory.try_grow(histograms_bytes(histogram_bytes(&histogram).saturating_mul(*steps)))?;
                out.histograms((0..*steps as u32).map(|step| (step, histogram.clone())));
            }
            run.hold(out.end_row())?;
            batches.extend(out.full()?);
        }
        Ok(batches)
    }

    fn finish(&mut self) -> Result<Vec<RecordBatch>> {
        Ok(self.out.flush()?.into_iter().collect())
    }

    fn rows_max(&self) -> usize {
        self.out.rows_max()
    }
}
