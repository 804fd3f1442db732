//! Elementwise operations: functions of elements and operators with scalars, as a chain in one pass over each batch.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use quiver_types::SeriesTable;
use serde::{Deserialize, Serialize};

use super::batch::{matrix_schema, to_block};
use super::driver::{Hists, Param, Worker, drive_after, params, split_hists};
use super::operator_encoding::{self, Form};
use super::rows::to_batches;
use super::{Batches, Env, Spread, StepOperator};
use crate::annotation::Annotations;
use crate::ast::{BinaryOp, PosRange};
use crate::binary::{self, BinaryNotes, Operation, Side};
use crate::functions::function_reference::NamedKernel;
use crate::functions::{ElementwiseKernel, ScalarKernel, ScalarSteps};
use crate::histogram;
use crate::kernel::{Block, Grid, SeriesOut};
use crate::run_state::RunState;

/// One elementwise operation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// `-v`: negates floats and histograms.
    Negate,
    /// A function of the elements.
    Function {
        function: NamedKernel<ElementwiseKernel>,
        /// Scalar arguments in order.
        params: Vec<Param>,
    },
    /// An operator between the elements and a scalar.
    Binary {
        op: BinaryOp,
        /// Whether a comparison returns 0 or 1 instead of filtering (`bool`).
        return_bool: bool,
        /// Whether the scalar is on the left.
        scalar_left: bool,
        /// The scalar operand.
        scalar: Param,
        /// Position of the expression.
        pos: PosRange,
    },
    /// An operator between a scalar and another scalar on the right.
    ScalarBinary(BinaryOp, Param),
    /// A function of a scalar and another scalar.
    ScalarFunction(NamedKernel<ScalarKernel>, Param),
    /// Replaces the value by the time of the step.
    StepTime,
    /// Drops histograms, keeps floats.
    FloatsOnly,
    /// Drops all elements, but keeps the rows.
    Nothing,
}

impl Stage {
    fn shown(&self) -> String {
        match self {
            Self::Negate => "negate".into(),
            Self::Function { function, params } => {
                let params: Vec<String> = params.iter().map(|p| format!(", {}", p.shown())).collect();
                format!("{}(v{})", function.name, params.concat())
            }
            Self::Binary { op, return_bool, scalar_left, scalar, .. } => {
                let (op, scalar) = (op.as_str(), scalar.shown());
                let modifier = if *return_bool { " bool" } else { "" };
                if *scalar_left { format!("{scalar} {op}{modifier} v") } else { format!("v {op}{modifier} {scalar}") }
            }
            Self::ScalarBinary(op, scalar) => format!("s {} {}", op.as_str(), scalar.shown()),
            Self::ScalarFunction(_, scalar) => format!("f(s, {})", scalar.shown()),
            Self::StepTime => "step_time".into(),
            Self::FloatsOnly => "floats".into(),
            Self::Nothing => "nothing".into(),
        }
    }

    fn params(&self) -> &[Param] {
        match self {
            Self::Function { params, .. } => params,
            Self::Binary { scalar, .. } | Self::ScalarBinary(_, scalar) | Self::ScalarFunction(_, scalar) => {
                std::slice::from_ref(scalar)
            }
            Self::Negate | Self::StepTime | Self::FloatsOnly | Self::Nothing => &[],
        }
    }
}

/// A chain of operations.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Map {
    /// The operations in order.
    pub(crate) stages: Vec<Stage>,
    /// Times of the steps.
    pub(crate) grid: Grid,
    /// Whether histograms are possible in the input.
    pub(crate) histograms: bool,
    /// Labels of the rows.
    pub(crate) table: Arc<SeriesTable>,
}

impl StepOperator for Map {
    fn name(&self) -> &'static str {
        "StepMap"
    }

    fn detail(&self) -> String {
        let stages: Vec<String> = self.stages.iter().map(Stage::shown).collect();
        format!("{} series={}", stages.join(" | "), self.table.len())
    }

    fn schema(&self) -> SchemaRef {
        matrix_schema(self.grid.steps, self.histograms)
    }

    fn spread(&self) -> Spread {
        // Each partition would compute the parameters anew.
        let inputs = self.stages.iter().flat_map(Stage::params).any(|p| matches!(p, Param::Input(_)));
        if inputs { Spread::Once } else { Spread::Each }
    }

    fn written(&self) -> Result<Vec<u8>> {
        operator_encoding::body(self)
    }

    fn open(self: Arc<Self>, mut inputs: Vec<SendableRecordBatchStream>, env: Env) -> Batches {
        let main = inputs.remove(0);
        drive_after(main, async move {
            let wanted: Vec<Param> = self.stages.iter().flat_map(Stage::params).copied().collect();
            let values = params(&wanted, inputs, 1, &env).await?;
            let notes = vec![BinaryNotes::default(); self.stages.len()];
            Ok(MapWorker { schema: self.schema(), op: self, values, notes, run: env.run })
        })
    }
}

impl Form for Map {
    const KIND: &'static str = "Map";
}

struct MapWorker {
    op: Arc<Map>,
    schema: SchemaRef,
    values: Vec<Vec<f64>>,
    notes: Vec<BinaryNotes>,
    run: Arc<RunState>,
}

impl Worker for MapWorker {
    fn push(&mut self, batch: RecordBatch) -> Result<Vec<RecordBatch>> {
        let mut block = to_block(batch)?;
        let mut used = 0;
        let op = Arc::clone(&self.op);
        for (stage, notes) in op.stages.iter().zip(&mut self.notes) {
            self.run.did(block.values.len())?;
            let count = stage.params().len();
            let params: Vec<ScalarSteps<'_>> =
                self.values[used..used + count].iter().map(|v| ScalarSteps::new(v)).collect();
            used += count;
            apply(stage, &mut block, &params, &op.grid, notes);
        }
        to_batches(block, &self.schema)
    }

    fn finish(&mut self) -> Result<Vec<RecordBatch>> {
        let mut annotations = Annotations::default();
        for (stage, notes) in self.op.stages.iter().zip(&self.notes) {
            if let Stage::Binary { op, pos, .. } = stage {
                notes.write(*op, *pos, &mut annotations);
            }
        }
        self.run.annotate(annotations);
        Ok(vec![])
    }
}

fn apply(stage: &Stage, block: &mut Block, params: &[ScalarSteps<'_>], grid: &Grid, notes: &mut BinaryNotes) {
    let steps = block.steps;
    match stage {
        Stage::Negate => {
            block.values.iter_mut().for_each(|v| *v = -*v);
            block.hists.iter_mut().for_each(|h| histogram::mul(&mut h.2, -1.0));
        }
        Stage::Function { function, .. } => function.kernel.apply(block, params),
        Stage::ScalarBinary(op, _) => {
            for (i, v) in block.values.iter_mut().enumerate() {
                *v = binary::scalar(*op, *v, params[0].at(i % steps));
            }
        }
        Stage::ScalarFunction(function, _) => {
            for (i, v) in block.values.iter_mut().enumerate() {
                *v = (function.kernel)(*v, params[0].at(i % steps));
            }
        }
        Stage::StepTime => {
            for (row, step, _) in std::mem::take(&mut block.hists) {
                block.present[row as usize * steps + step as usize] = true;
            }
            for (i, v) in block.values.iter_mut().enumerate() {
                *v = grid.at(i % steps) as f64 / 1000.0;
            }
        }
        Stage::FloatsOnly => block.hists.clear(),
        Stage::Nothing => {
            block.present.fill(false);
            block.hists.clear();
        }
        Stage::Binary { op, return_bool, scalar_left, .. } => {
            let operation = Operation { op: *op, return_bool: *return_bool };
            let scalar = Side::Scalar(params[0]);
            if *scalar_left {
                each_row(block, |row, out| operation.apply(&scalar, row, out, notes));
            } else {
                each_row(block, |row, out| operation.apply(row, &scalar, out, notes));
            }
        }
    }
}

/// Replaces each row by what a function makes of it.
fn each_row(block: &mut Block, mut f: impl FnMut(&Side<'_>, &mut SeriesOut<'_>)) {
    let hists = split_hists(block);
    let steps = block.steps;
    let mut values = vec![0.0; block.values.len()];
    let mut present = vec![false; block.present.len()];
    let mut out_hists = Vec::new();
    let rows = values.chunks_exact_mut(steps).zip(present.chunks_exact_mut(steps));
    for (idx, (values, present)) in rows.enumerate() {
        let (from, from_present) = block.row(idx);
        let row_hists = hists.get(idx).map_or(&[][..], Hists::as_slice);
        let row = Side::Row { values: from, present: from_present, hists: row_hists };
        let mut out = SeriesOut { values, present, hists: vec![] };
        f(&row, &mut out);
        out_hists.extend(out.hists.into_iter().map(|(step, h)| (idx as u32, step, h)));
    }
    block.values = values;
    block.present = present;
    block.hists = out_hists;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages() {
        let check = |stage: Stage, param: &[f64], expected: [Option<f64>; 2]| {
            let mut block =
                Block { rows: vec![0], steps: 2, values: vec![1.0, 2.0], present: vec![true, true], hists: vec![] };
            let grid = Grid { start: 1000, step_ms: 1000, steps: 2 };
            let params = [ScalarSteps::new(param)];
            apply(&stage, &mut block, &params, &grid, &mut BinaryNotes::default());
            let got: Vec<_> = block.values.iter().zip(&block.present).map(|(&v, &p)| p.then_some(v)).collect();
            assert_eq!(got, expected, "{stage:?}");
        };
        let binary = |op, scalar_left| Stage::Binary {
            op,
            return_bool: false,
            scalar_left,
            scalar: Param::Const(0.0),
            pos: PosRange::default(),
        };
        check(binary(BinaryOp::Sub, true), &[10.0], [Some(9.0), Some(8.0)]);
        check(binary(BinaryOp::Gtr, false), &[1.0, 5.0], [None, None]);
        check(binary(BinaryOp::Gtr, false), &[1.0], [None, Some(2.0)]);
        check(Stage::Negate, &[0.0], [Some(-1.0), Some(-2.0)]);
        check(Stage::StepTime, &[0.0], [Some(1.0), Some(2.0)]);
    }
}
