//! `and` and `unless`: the presence of signatures at each step decides; values are passed on. (For `or`, see `union`.)

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use serde::{Deserialize, Serialize};

use super::batch::{matrix_schema, to_block};
use super::driver::{Worker, drive_after, each_block};
use super::operator_encoding::{self, Form};
use super::rows::to_batches;
use super::{Batches, Env, Spread, StepOperator};
use crate::ast::BinaryOp;
use crate::kernel::Block;
use crate::run_state::RunState;

/// A set operator over two inputs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StepSet {
    /// `and` or `unless`.
    pub(crate) op: BinaryOp,
    /// Number of steps of each row.
    pub(crate) steps: usize,
    /// Whether histograms are possible in the output.
    pub(crate) histograms: bool,
    /// Signature of each row of the left side.
    pub(crate) left: Vec<u32>,
    /// Signature of each row of the right side.
    pub(crate) right: Vec<u32>,
    pub(crate) signatures: usize,
}

impl StepOperator for StepSet {
    fn name(&self) -> &'static str {
        "StepSet"
    }

    fn detail(&self) -> String {
        format!("{} signatures={}", self.op.as_str(), self.signatures)
    }

    fn schema(&self) -> SchemaRef {
        matrix_schema(self.steps, self.histograms)
    }

    fn spread(&self) -> Spread {
        // Otherwise each partition would compute the other side again.
        Spread::Once
    }

    fn written(&self) -> Result<Vec<u8>> {
        operator_encoding::body(self)
    }

    fn open(self: Arc<Self>, mut inputs: Vec<SendableRecordBatchStream>, env: Env) -> Batches {
        let right = inputs.swap_remove(1);
        let left = inputs.swap_remove(0);
        let op = Arc::clone(&self);
        drive_after(left, async move {
            let memory = env.reserve("set operator", op.signatures * op.steps)?;
            let mut seen = Presence::new(op.signatures, op.steps);
            each_block(right, &env, |block| seen.add(block, &op.right)).await?;
            Ok(Filter { op, seen, run: env.run, _memory: memory })
        })
    }
}

impl Form for StepSet {
    const KIND: &'static str = "StepSet";
}

struct Filter {
    op: Arc<StepSet>,
    seen: Presence,
    run: Arc<RunState>,
    _memory: MemoryReservation,
}

impl Worker for Filter {
    fn push(&mut self, batch: RecordBatch) -> Result<Vec<RecordBatch>> {
        let mut block = to_block(batch)?;
        self.run.did(block.values.len())?;
        if self.op.op == BinaryOp::And {
            self.seen.keep_present(&mut block, &self.op.left);
        } else {
            self.seen.keep_absent(&mut block, &self.op.left);
        }
        to_batches(block, &self.op.schema())
    }
}

/// Which signatures have an element, at each step.
pub(super) struct Presence {
    steps: usize,
    bits: Vec<bool>,
}

impl Presence {
    pub(super) fn new(signatures: usize, steps: usize) -> Self {
        Self { steps, bits: vec![false; signatures * steps] }
    }

    pub(super) fn add(&mut self, block: &Block, signatures: &[u32]) {
        for (idx, &row) in block.rows.iter().enumerate() {
            let at = signatures[row as usize] as usize * self.steps;
            let (_, present) = block.row(idx);
            for (seen, p) in self.bits[at..at + self.steps].iter_mut().zip(present) {
                *seen |= p;
            }
        }
        for (idx, step, _) in &block.hists {
            let signature = signatures[block.rows[*idx as usize] as usize] as usize;
            self.bits[signature * self.steps + *step as usize] = true;
        }
    }

    fn of(&mut self, signature: u32) -> &mut [bool] {
        let at = signature as usize * self.steps;
        &mut self.bits[at..at + self.steps]
    }

    /// Keeps the elements whose signature is present at their step.
    fn keep_present(&self, block: &mut Block, signatures: &[u32]) {
        self.filter(block, signatures, |present| present);
    }

    /// Keeps the elements whose signature is absent at their step.
    pub(super) fn keep_absent(&self, block: &mut Block, signatures: &[u32]) {
        self.filter(block, signatures, |present| !present);
    }

    fn filter(&self, block: &mut Block, signatures: &[u32], keeps: impl Fn(bool) -> bool) {
        for (idx, &row) in block.rows.iter().enumerate() {
            let at = signatures[row as usize] as usize * self.steps;
            let present = &mut block.present[idx * self.steps..(idx + 1) * self.steps];
            for (p, seen) in present.iter_mut().zip(&self.bits[at..at + self.steps]) {
                *p &= keeps(*seen);
            }
        }
        let rows = &block.rows;
        block.hists.retain(|(idx, step, _)| {
            let signature = signatures[rows[*idx as usize] as usize] as usize;
            keeps(self.bits[signature * self.steps + *step as usize])
        });
    }
}

/// Signatures of an operand's rows, which take effect only after the operand: rows of one operand may share a
/// signature.
pub(super) struct Later {
    own: Presence,
    /// Signatures that occurred, possibly repeated.
    touched: Vec<u32>,
}

impl Later {
    pub(super) fn new(signatures: usize, steps: usize) -> Self {
        Self { own: Presence::new(signatures, steps), touched: Vec::new() }
    }

    pub(super) fn add(&mut self, block: &Block, signatures: &[u32]) {
        self.own.add(block, signatures);
        self.touched.extend(block.rows.iter().map(|&row| signatures[row as usize]));
    }

    /// Ends the operand: its signatures take effect.
    pub(super) fn show(&mut self, seen: &mut Presence) {
        self.touched.sort_unstable();
        self.touched.dedup();
        for signature in self.touched.drain(..) {
            let own = self.own.of(signature);
            seen.of(signature).iter_mut().zip(&*own).for_each(|(seen, p)| *seen |= p);
            own.fill(false);
        }
    }
}
