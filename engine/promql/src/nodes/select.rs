//! Aggregations that select rows: `topk`, `bottomk`, `limitk`, `limit_ratio`.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use serde::{Deserialize, Serialize};

use super::batch::matrix_schema;
use super::driver::{Matrix, Param, batches_of, collect, params};
use super::operator_encoding::{self, Form};
use super::rows::to_batches;
use super::{Batches, Env, Spread, StepOperator};
use crate::aggregate::{RowSelector, Selection, check_params, ratio_keeps};
use crate::annotation::Annotations;
use crate::ast::{AggregateOp, PosRange};
use crate::functions::ScalarSteps;
use crate::kernel::Block;

/// Selects rows by step.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StepSelect {
    /// `topk`, `bottomk`, `limitk` or `limit_ratio`.
    pub(crate) op: AggregateOp,
    /// Number of steps of each row.
    pub(crate) steps: usize,
    /// Whether this is an instant query, whose rows are returned in order of value.
    pub(crate) single: bool,
    /// Group of each row.
    pub(crate) ids: Vec<u32>,
    pub(crate) groups: usize,
    /// Hash of the labels of each row (`limit_ratio`).
    pub(crate) hashes: Vec<u64>,
    /// The parameter: k or the ratio.
    pub(crate) param: Param,
    /// Position of the parameter.
    pub(crate) param_pos: PosRange,
    /// Position of the aggregation.
    pub(crate) pos: PosRange,
    /// Whether histograms are possible.
    pub(crate) histograms: bool,
}

impl StepOperator for StepSelect {
    fn name(&self) -> &'static str {
        "StepSelect"
    }

    fn detail(&self) -> String {
        format!("{}({}) groups={} series={}", self.op.as_str(), self.param.shown(), self.groups, self.ids.len())
    }

    fn schema(&self) -> SchemaRef {
        matrix_schema(self.steps, self.histograms)
    }

    fn spread(&self) -> Spread {
        // Rows compete with all others of their group.
        Spread::Once
    }

    fn written(&self) -> Result<Vec<u8>> {
        operator_encoding::body(self)
    }

    fn open(self: Arc<Self>, mut inputs: Vec<SendableRecordBatchStream>, env: Env) -> Batches {
        let main = inputs.remove(0);
        batches_of(env.clone(), async move {
            let values = params(&[self.param], inputs, 1, &env).await?;
            let param = ScalarSteps::new(&values[0]);
            let mut annotations = Annotations::default();
            let some = check_params(self.op, &param, (self.param_pos, self.pos), &mut annotations);
            let matrix = collect(main, self.ids.len(), &env).await?;
            let batches = if some.map_err(quiver_query::to_datafusion)? {
                let _state = env.reserve("selection", self.state_bytes(&param))?;
                self.select(&matrix, &param, &mut annotations, &env)?
            } else {
                vec![]
            };
            env.run.annotate(annotations);
            Ok(batches)
        })
    }
}

impl Form for StepSelect {
    const KIND: &'static str = "StepSelect";
}

impl StepSelect {
    fn select(
        &self,
        matrix: &Matrix,
        param: &ScalarSteps<'_>,
        annotations: &mut Annotations,
        env: &Env,
    ) -> Result<Vec<RecordBatch>> {
        // Memory for the flags of kept rows, and their values.
        let kept_bytes = self.steps.saturating_mul(1 + size_of::<f64>() + 2);
        let (selection, _kept) = if self.op == AggregateOp::LimitRatio {
            let kept = env.reserve("selection", kept_bytes.saturating_mul(self.ids.len()))?;
            (self.by_ratio(matrix, param, env)?, kept)
        } else {
            let rows = self.ids.len();
            let mut selector = RowSelector::new(self.op, self.groups, self.steps, param, rows, self.pos);
            for (row, &group) in self.ids.iter().enumerate() {
                if let Some(view) = matrix.row(row as u32) {
                    env.run.did(4 * self.steps)?;
                    selector.fold(row as u32, group, view.values, view.present, view.hists);
                }
            }
            let kept = env.reserve("selection", kept_bytes.saturating_mul(selector.rows().len()))?;
            (selector.finish(annotations), kept)
        };
        let mut block = Block::new(self.steps);
        let order = if self.single { &selection.order } else { &selection.rows };
        for &row in order {
            let (Some(view), Ok(place)) = (matrix.row(row), selection.rows.binary_search(&row)) else { continue };
            env.run.did(self.steps)?;
            let keep = &selection.keep[place * self.steps..(place + 1) * self.steps];
            let idx = block.rows.len() as u32;
            block.rows.push(row);
            block.values.extend_from_slice(view.values);
            block.present.extend(view.present.iter().zip(keep).map(|(p, k)| *p && *k));
            if matches!(self.op, AggregateOp::Limitk | AggregateOp::LimitRatio) {
                let kept = view.hists.iter().filter(|(step, _)| keep[*step as usize]);
                block.hists.extend(kept.map(|(step, h)| (idx, *step, h.clone())));
            }
        }
        to_batches(block, &self.schema())
    }

    /// Memory of the best entries and their lists.
    fn state_bytes(&self, param: &ScalarSteps<'_>) -> usize {
        const ENTRY_BYTES: usize = 2 * size_of::<(f64, u32)>();
        if self.op == AggregateOp::LimitRatio {
            return 0;
        }
        let most = param.values().iter().fold(0.0_f64, |most, k| most.max(*k)) as usize;
        let entries = most.saturating_mul(self.groups).min(self.ids.len());
        let lists = self.groups.saturating_mul(self.steps).saturating_mul(size_of::<Vec<u8>>());
        lists.saturating_add(entries.saturating_mul(self.steps).saturating_mul(ENTRY_BYTES))
    }

    fn by_ratio(&self, matrix: &Matrix, param: &ScalarSteps<'_>, env: &Env) -> Result<Selection> {
        let mut selection = Selection::default();
        for (row, &hash) in self.hashes.iter().enumerate() {
            if matrix.row(row as u32).is_some() {
                env.run.did(self.steps)?;
                selection.rows.push(row as u32);
                selection.keep.extend((0..self.steps).map(|step| ratio_keeps(param.at(step), hash)));
            }
        }
        selection.order.clone_from(&selection.rows);
        Ok(selection)
    }
}
