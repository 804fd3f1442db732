//! Aggregations that fold rows into groups: each partition folds its rows and sends its state as batches (see `state`),
//! which the final node merges. Over samples, the rollup of a series is folded directly into its group, so the matrix
//! of series × steps never exists. Quantiles need all values of a group, so there the partial nodes send rows, each
//! with its group.

mod state;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::StreamExt;
use quiver_types::SeriesTable;
use quiver_types::label::METRIC_NAME;
use quiver_types::series::LabelColumn;
use serde::{Deserialize, Serialize};

use super::batch::{matrix_schema, rows_per_batch, to_block};
use super::driver::{Hists, Param, Worker, batches_of, drive_after, params, split_hists};
use super::operator_encoding::{self, Form};
use super::rollup::{Rollup, SeriesRollup};
use super::rows::to_batches;
use super::{Batches, Env, Spread, StepOperator};
use crate::aggregate::{Accumulator, Parts, SeriesRow, check_params};
use crate::annotation::Annotations;
use crate::ast::{AggregateOp, PosRange};
use crate::functions::ScalarSteps;
use crate::run_state::RunState;

/// What both parts of the node share.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FoldParams {
    pub(crate) op: AggregateOp,
    /// Number of steps of each row.
    pub(crate) steps: usize,
    /// Group of each row of the input.
    pub(crate) ids: Vec<u32>,
    pub(crate) groups: usize,
    /// Parameter (`quantile`) and its position.
    pub(crate) param: Option<(Param, PosRange)>,
    /// Position of the aggregated expression.
    pub(crate) pos: PosRange,
    /// Labels of the input.
    pub(crate) table: Arc<SeriesTable>,
    /// Whether histograms are possible.
    pub(crate) histograms: bool,
    /// The rollup that is fused in; if set, the input has samples.
    pub(crate) rollup: Option<Arc<Rollup>>,
}

impl FoldParams {
    fn shown(&self) -> String {
        let rollup = self.rollup.as_ref().map(|r| format!(" of {}", r.shown())).unwrap_or_default();
        format!("{} groups={} series={}{rollup}", self.op.as_str(), self.groups, self.table.len())
    }

    /// Memory of a group per step: the numbers of an operator with matrices, and flags.
    fn slot_bytes(&self) -> usize {
        match self.op {
            AggregateOp::Sum => 17,
            AggregateOp::Avg => 26,
            AggregateOp::Stddev | AggregateOp::Stdvar => 25,
            _ => 9,
        }
    }

    /// Memory of a state's matrices.
    fn state_bytes(&self) -> usize {
        if self.keeps_rows() { 0 } else { self.groups * self.steps * self.slot_bytes() }
    }

    /// Memory of the result, unless it replaces a state.
    fn answer_bytes(&self) -> usize {
        if self.keeps_rows() { self.groups * self.steps * self.slot_bytes() } else { 0 }
    }

    fn keeps_rows(&self) -> bool {
        self.op == AggregateOp::Quantile
    }

    fn state_schema(&self) -> SchemaRef {
        state::schema(self.op, self.steps, self.histograms)
    }

    /// The parameter, one value or one per step; adds annotations about it.
    async fn parameter(&self, inputs: Vec<SendableRecordBatchStream>, env: &Env) -> Result<Vec<f64>> {
        let Some((param, pos)) = self.param else { return Ok(vec![]) };
        let first = if let Param::Input(first) = param { first } else { 0 };
        let values = params(&[param], inputs, first, env).await?.swap_remove(0);
        let mut annotations = Annotations::default();
        let checked = check_params(self.op, &ScalarSteps::new(&values), (pos, self.pos), &mut annotations);
        checked.map_err(quiver_query::to_datafusion)?;
        env.run.annotate(annotations);
        Ok(values)
    }

    /// Merges states in the order of partitions, so that the last digits are reproducible.
    fn merged(&self, mut states: Vec<RecordBatch>) -> Result<Option<Accumulator>> {
        states.sort_by_cached_key(state::partition);
        let mut merged: Option<Accumulator> = None;
        for batch in states {
            let parts = state::to_parts(batch, self.op, self.groups, self.steps)?;
            let state = Accumulator::of_parts(self.op, self.groups, self.steps, self.pos, parts);
            match &mut merged {
                Some(before) => before.merge(state),
                None => merged = Some(state),
            }
        }
        Ok(merged)
    }
}

/// Folds the rows of one partition and sends its state to [`FoldFinal`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FoldPartial(pub(crate) Arc<FoldParams>);

impl StepOperator for FoldPartial {
    fn name(&self) -> &'static str {
        if self.0.rollup.is_some() { "RollupAggregate: partial" } else { "StepAggregate: partial" }
    }

    fn detail(&self) -> String {
        self.0.shown()
    }

    fn schema(&self) -> SchemaRef {
        self.0.state_schema()
    }

    fn spread(&self) -> Spread {
        // Otherwise each partition would compute the parameters of the rollup again.
        if self.0.rollup.as_ref().is_some_and(|r| r.has_inputs()) { Spread::Once } else { Spread::Each }
    }

    fn written(&self) -> Result<Vec<u8>> {
        operator_encoding::body(self)
    }

    fn open(self: Arc<Self>, mut inputs: Vec<SendableRecordBatchStream>, env: Env) -> Batches {
        let main = inputs.remove(0);
        drive_after(main, async move {
            let fold = Arc::clone(&self.0);
            let wanted = fold.rollup.as_ref().map_or(&[][..], |r| r.params.as_slice());
            let values = params(wanted, inputs, 1, &env).await?;
            let memory = env.reserve("aggregation", fold.state_bytes())?;
            let state = Accumulator::new(fold.op, fold.groups, fold.steps, fold.pos);
            let rollup = fold.rollup.as_ref().map(|r| SeriesRollup::new(Arc::clone(r), values, &env)).transpose()?;
            let names = fold.table.column(METRIC_NAME).cloned();
            let row = (vec![0.0; fold.steps], vec![false; fold.steps]);
            Ok(FoldWorker {
                schema: fold.state_schema(),
                fold,
                state: Some((state, memory)),
                rollup,
                names,
                row,
                run: env.run,
                partition: env.partition,
            })
        })
    }
}

impl Form for FoldPartial {
    const KIND: &'static str = "FoldPartial";
}

struct FoldWorker {
    fold: Arc<FoldParams>,
    schema: SchemaRef,
    state: Option<(Accumulator, MemoryReservation)>,
    rollup: Option<SeriesRollup>,
    names: Option<LabelColumn>,
    /// Values and presence of the current series.
    row: (Vec<f64>, Vec<bool>),
    run: Arc<RunState>,
    partition: usize,
}

impl FoldWorker {
    fn batches(&self, parts: Vec<Parts>) -> Result<Vec<RecordBatch>> {
        let to_batch = |parts| state::to_batch(self.partition, parts, self.fold.steps, &self.schema);
        parts.into_iter().map(to_batch).collect()
    }
}

impl Worker for FoldWorker {
    fn push(&mut self, batch: RecordBatch) -> Result<Vec<RecordBatch>> {
        let Self { fold, state, rollup, names, row, run, .. } = self;
        let Some((state, memory)) = state else { return Ok(vec![]) };
        let name = |row: u32| names.as_ref().map_or("", |c| &**c.value(row as usize));
        if let Some(rollup) = rollup {
            rollup.each(batch, |evaluator, series, samples| {
                let (values, present) = (&mut row.0, &mut row.1);
                let (steps, hists) = evaluator.run(series, samples, values, present)?;
                let row = SeriesRow {
                    first: steps.start,
                    values: &values[steps.clone()],
                    present: &present[steps.clone()],
                    hists: &hists,
                    metric_name: name(series),
                };
                state.fold(fold.ids[series as usize], &row);
                present[steps].fill(false);
                if !hists.is_empty() {
                    // A batch may have many rows that begin groups of their own.
                    memory.try_resize(fold.state_bytes() + state.grown_bytes())?;
                    evaluator.used();
                }
                Ok(())
            })?;
        } else {
            let mut block = to_block(batch)?;
            let hists = split_hists(&mut block);
            for (idx, &series) in block.rows.iter().enumerate() {
                let (values, present) = block.row(idx);
                run.did(values.len())?;
                let hists = hists.get(idx).map_or(&[][..], Hists::as_slice);
                let row = SeriesRow { first: 0, values, present, hists, metric_name: name(series) };
                state.fold(fold.ids[series as usize], &row);
                if !hists.is_empty() {
                    memory.try_resize(fold.state_bytes() + state.grown_bytes())?;
                }
            }
        }
        // Kept rows and histograms grow with each batch.
        memory.try_resize(fold.state_bytes() + state.grown_bytes())?;
        run.hold(0)?;
        let full = state.take_full();
        self.batches(full)
    }

    fn finish(&mut self) -> Result<Vec<RecordBatch>> {
        let Some((mut state, memory)) = self.state.take() else { return Ok(vec![]) };
        let mut annotations = Annotations::default();
        state.remark(&mut annotations);
        self.run.annotate(annotations);
        // Histograms are copied into columns; everything else becomes a column without copying.
        memory.try_grow(state.grown_bytes())?;
        let batches = self.batches(state.into_parts());
        drop(memory);
        batches
    }

    fn rows_max(&self) -> usize {
        if self.fold.keeps_rows() { rows_per_batch(self.fold.steps) } else { usize::MAX }
    }
}

/// Merges the states of partitions.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FoldFinal(pub(crate) Arc<FoldParams>);

impl StepOperator for FoldFinal {
    fn name(&self) -> &'static str {
        if self.0.rollup.is_some() { "RollupAggregate" } else { "StepAggregate" }
    }

    fn detail(&self) -> String {
        self.0.shown()
    }

    fn schema(&self) -> SchemaRef {
        matrix_schema(self.0.steps, self.0.histograms)
    }

    fn spread(&self) -> Spread {
        // It merges what the partial operator made of each partition.
        Spread::Once
    }

    fn partial(&self) -> Option<Arc<dyn StepOperator>> {
        Some(Arc::new(FoldPartial(Arc::clone(&self.0))))
    }

    fn partial_inputs(&self) -> usize {
        if let Some((Param::Input(first), _)) = self.0.param { first } else { usize::MAX }
    }

    fn written(&self) -> Result<Vec<u8>> {
        operator_encoding::body(self)
    }

    fn open(self: Arc<Self>, mut inputs: Vec<SendableRecordBatchStream>, env: Env) -> Batches {
        let mut input = inputs.remove(0);
        batches_of(env.clone(), async move {
            let fold = Arc::clone(&self.0);
            let param = fold.parameter(inputs, &env).await?;
            let memory = env.reserve("aggregation", fold.answer_bytes())?;
            let mut states = Vec::new();
            while let Some(batch) = input.next().await {
                let batch = batch?;
                env.run.did(batch.num_rows() * fold.steps)?;
                memory.try_grow(state::held_bytes(&batch, fold.steps * fold.slot_bytes()))?;
                states.push(batch);
            }
            let Some(state) = fold.merged(states)? else { return Ok(vec![]) };
            let mut annotations = Annotations::default();
            let block = state.finish(&param, &mut annotations);
            // The state has been freed; from now on the reservation is for the result.
            memory.try_resize(block.memory_bytes())?;
            env.run.annotate(annotations);
            env.run.hold(block.present.iter().filter(|p| **p).count() + block.hists.len())?;
            to_batches(block, &self.schema())
        })
    }
}

impl Form for FoldFinal {
    const KIND: &'static str = "FoldFinal";
}

#[cfg(test)]
mod tests;
