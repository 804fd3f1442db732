//! Aggregations that fold rows into groups: each partition folds its own rows, the final node merges. Over samples
//! the rollup of a series goes straight into its group, so the matrix series × steps never exists.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::StreamExt;
use parking_lot::Mutex;
use quiver_types::SeriesTable;
use quiver_types::label::METRIC_NAME;
use quiver_types::series::LabelColumn;

use super::batch::{matrix_schema, to_block};
use super::drive::{Hists, Param, Worker, drive_after, once, params, split_hists};
use super::rollup::{Rollup, SeriesRollup};
use super::rows::to_batches;
use super::{Batches, Env, Spread, StepOperator};
use crate::aggregate::{Accumulator, check_params};
use crate::annotation::Annotations;
use crate::ast::{AggregateOp, PosRange};
use crate::functions::ScalarSteps;
use crate::run::RunState;

/// What both halves of the node share.
#[derive(Debug)]
pub(crate) struct Fold {
    /// Operator.
    pub(crate) op: AggregateOp,
    /// Steps.
    pub(crate) steps: usize,
    /// Group of each row of the input.
    pub(crate) ids: Vec<u32>,
    /// Number of groups.
    pub(crate) groups: usize,
    /// Parameter (`quantile`) and where it stands.
    pub(crate) param: Option<(Param, PosRange)>,
    /// Position of the aggregated expression.
    pub(crate) pos: PosRange,
    /// Labels of the input.
    pub(crate) table: Arc<SeriesTable>,
    /// Whether histograms may occur.
    pub(crate) histograms: bool,
    /// The rollup that is fused in; the input is then samples.
    pub(crate) rollup: Option<Arc<Rollup>>,
}

/// What partitions folded in one run, by partition: both halves of the node meet there.
#[derive(Debug, Default)]
struct Folded(Mutex<Vec<(usize, Accumulator, MemoryReservation)>>);

impl Fold {
    fn shown(&self) -> String {
        let rollup = self.rollup.as_ref().map(|r| format!(" of {}", r.shown())).unwrap_or_default();
        format!("{} groups={} series={}{rollup}", self.op.as_str(), self.groups, self.table.len())
    }

    fn spread(&self) -> Spread {
        let inputs =
            matches!(self.param, Some((Param::Input(_), _))) || self.rollup.as_ref().is_some_and(|r| r.has_inputs());
        if inputs { Spread::Once } else { Spread::Each }
    }

    /// Bytes of the state of one partition.
    fn state_bytes(&self) -> usize {
        let per_slot = match self.op {
            AggregateOp::Sum => 17,
            AggregateOp::Avg => 26,
            AggregateOp::Stddev | AggregateOp::Stdvar => 25,
            _ => 9,
        };
        self.groups * self.steps * per_slot
    }
}

/// Folds the rows of one partition; gives no batches, but leaves its state for [`FoldFinal`].
#[derive(Debug)]
pub(crate) struct FoldPartial(pub(crate) Arc<Fold>);

impl StepOperator for FoldPartial {
    fn name(&self) -> &'static str {
        if self.0.rollup.is_some() { "RollupAggregate: partial" } else { "StepAggregate: partial" }
    }

    fn detail(&self) -> String {
        self.0.shown()
    }

    fn schema(&self) -> SchemaRef {
        matrix_schema(self.0.steps, self.0.histograms)
    }

    fn spread(&self) -> Spread {
        self.0.spread()
    }

    fn open(self: Arc<Self>, mut inputs: Vec<SendableRecordBatchStream>, env: Env) -> Batches {
        let main = inputs.remove(0);
        drive_after(main, async move {
            let fold = Arc::clone(&self.0);
            let wanted: Vec<Param> =
                fold.param.iter().map(|p| &p.0).chain(fold.rollup.iter().flat_map(|r| &r.params)).copied().collect();
            let mut values = params(&wanted, inputs, 1, &env).await?;
            let mut param = vec![];
            if let Some((_, pos)) = fold.param {
                param = values.remove(0);
                let mut annotations = Annotations::default();
                let checked = check_params(fold.op, &ScalarSteps::new(&param), pos, &mut annotations);
                checked.map_err(quiver_query::to_datafusion)?;
                env.run.annotate(annotations);
            }
            let memory = env.reserve("aggregation", fold.state_bytes())?;
            let state = Accumulator::new(fold.op, fold.groups, fold.steps, param, fold.pos);
            let rollup = fold.rollup.as_ref().map(|r| SeriesRollup::new(Arc::clone(r), values, Arc::clone(&env.run)));
            let names = fold.table.column(METRIC_NAME).cloned();
            let row = (vec![0.0; fold.steps], vec![false; fold.steps]);
            let folded = env.shared.of_node(&fold, Folded::default);
            Ok(FoldWorker {
                fold,
                folded,
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

struct FoldWorker {
    fold: Arc<Fold>,
    folded: Arc<Folded>,
    state: Option<(Accumulator, MemoryReservation)>,
    rollup: Option<SeriesRollup>,
    names: Option<LabelColumn>,
    /// Values and presence of the series at hand.
    row: (Vec<f64>, Vec<bool>),
    run: Arc<RunState>,
    partition: usize,
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
                let group = fold.ids[series as usize];
                state.fold(group, steps.start, &values[steps.clone()], &present[steps.clone()], &hists, name(series));
                present[steps].fill(false);
                Ok(())
            })?;
        } else {
            let mut block = to_block(batch)?;
            let hists = split_hists(&mut block);
            for (idx, &series) in block.rows.iter().enumerate() {
                let (values, present) = block.row(idx);
                run.did(values.len())?;
                let hists = hists.get(idx).map_or(&[][..], Hists::as_slice);
                state.fold(fold.ids[series as usize], 0, values, present, hists, name(series));
            }
        }
        // Operators that keep their rows grow with each batch.
        memory.try_resize(fold.state_bytes() + state.rows_bytes())?;
        run.hold(0)?;
        Ok(vec![])
    }

    fn finish(&mut self) -> Result<Vec<RecordBatch>> {
        if let Some((state, memory)) = self.state.take() {
            self.folded.0.lock().push((self.partition, state, memory));
        }
        Ok(vec![])
    }
}

/// Merges what partitions folded.
#[derive(Debug)]
pub(crate) struct FoldFinal(pub(crate) Arc<Fold>);

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
        Spread::Once
    }

    fn partial(&self) -> Option<Arc<dyn StepOperator>> {
        Some(Arc::new(FoldPartial(Arc::clone(&self.0))))
    }

    fn open(self: Arc<Self>, mut inputs: Vec<SendableRecordBatchStream>, env: Env) -> Batches {
        let mut input = inputs.swap_remove(0);
        once(env.clone(), async move {
            while let Some(batch) = input.next().await {
                batch?;
            }
            // In the order of partitions, so that the last digits are the same each time.
            let mut folded = std::mem::take(&mut *env.shared.of_node(&self.0, Folded::default).0.lock());
            folded.sort_by_key(|f| f.0);
            let mut states = folded.into_iter();
            let Some((_, mut state, memory)) = states.next() else { return Ok(vec![]) };
            for (_, other, _) in states {
                env.run.did(self.0.groups * self.0.steps)?;
                state.merge(other);
            }
            let mut annotations = Annotations::default();
            let block = state.finish(&mut annotations);
            // The state is gone, its memory is now that of the answer.
            memory.try_resize(block.memory_bytes())?;
            env.run.annotate(annotations);
            env.run.hold(block.present.iter().filter(|p| **p).count() + block.hists.len())?;
            to_batches(block, &self.schema())
        })
    }
}
