//! Operators between vectors. Matching rows were paired by labels when the plan was made, so the work is arithmetic on
//! pairs of rows. Errors that depend on which rows are present at a step are detected here.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use quiver_types::label::METRIC_NAME;
use quiver_types::{Histogram, SeriesTable};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::batch::{VALUES_PER_BATCH, matrix_schema};
use super::driver::{Matrix, RowView, batches_of, collect};
use super::operator_encoding::{self, Form};
use super::rows::{Merger, to_batches};
use super::{Batches, Env, Spread, StepOperator, failed};
use crate::annotation::Annotations;
use crate::ast::{BinaryOp, PosRange, VectorMatching};
use crate::binary::{BinaryNotes, Operation, Side};
use crate::kernel::{Block, SeriesOut};
use crate::plan::labels::show;

/// Memory of a step for checking matches: the partner, and the resulting rows.
const STEP_BYTES: usize = size_of::<Option<usize>>() + size_of::<SmallVec<[u32; 2]>>();

/// Rows of both sides with the same signature.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct JoinGroup {
    /// Rows of the "many" side.
    #[serde(with = "operator_encoding::few")]
    pub(crate) many: SmallVec<[u32; 2]>,
    /// Rows of the "one" side, of which only one may be present per step.
    #[serde(with = "operator_encoding::few")]
    pub(crate) one: SmallVec<[u32; 2]>,
    /// Output row for each of `many` combined with each of `one`; each run ends with the row for a filled value, if
    /// there is one.
    #[serde(with = "operator_encoding::few")]
    pub(crate) pairs: SmallVec<[u32; 2]>,
    /// Output row for each of `one` combined with a filled value on the other side.
    #[serde(with = "operator_encoding::few")]
    pub(crate) lone: SmallVec<[u32; 2]>,
}

/// A binary operator between two vectors whose rows were matched by labels beforehand.
#[derive(Debug, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "the words of a binary operator")]
pub(crate) struct StepJoin {
    pub(crate) op: BinaryOp,
    /// Whether a comparison returns 0 or 1 instead of filtering (`bool`).
    pub(crate) return_bool: bool,
    /// Number of steps of each row.
    pub(crate) steps: usize,
    /// Whether histograms are possible.
    pub(crate) histograms: bool,
    /// Whether the right side is "many" (`group_right`).
    pub(crate) swapped: bool,
    /// Whether both sides may have only one row.
    pub(crate) one_to_one: bool,
    /// Value for a missing row of "many".
    pub(crate) fill_many: Option<f64>,
    /// Value for a missing row of "one".
    pub(crate) fill_one: Option<f64>,
    /// Matching rows of both sides, one entry per signature (the values of the labels that must be equal).
    pub(crate) groups: Vec<JoinGroup>,
    /// Whether an output row may come from several pairs.
    pub(crate) merges: bool,
    /// Labels of "many" (the first input).
    pub(crate) many_table: Arc<SeriesTable>,
    /// Labels of "one" (the second input).
    pub(crate) one_table: Arc<SeriesTable>,
    /// How rows match, for error messages.
    pub(crate) matching: VectorMatching,
    /// Position of the expression.
    pub(crate) pos: PosRange,
}

impl StepOperator for StepJoin {
    fn name(&self) -> &'static str {
        "StepJoin"
    }

    fn detail(&self) -> String {
        let kind = match (self.one_to_one, self.swapped) {
            (true, _) => "one-to-one",
            (false, false) => "many-to-one",
            (false, true) => "one-to-many",
        };
        format!(
            "{}{} {kind} groups={}",
            self.op.as_str(),
            if self.return_bool { " bool" } else { "" },
            self.groups.len()
        )
    }

    fn schema(&self) -> SchemaRef {
        matrix_schema(self.steps, self.histograms)
    }

    fn spread(&self) -> Spread {
        // The partner of a row may be in any partition.
        Spread::Once
    }

    fn written(&self) -> Result<Vec<u8>> {
        operator_encoding::body(self)
    }

    fn open(self: Arc<Self>, mut inputs: Vec<SendableRecordBatchStream>, env: Env) -> Batches {
        let one = inputs.swap_remove(1);
        let many = inputs.swap_remove(0);
        batches_of(env.clone(), async move {
            let many = collect(many, self.many_table.len(), &env);
            let one = collect(one, self.one_table.len(), &env);
            let (many, one) = futures::try_join!(many, one)?;
            let mut work = Work {
                op: &self,
                notes: BinaryNotes::default(),
                fault: None,
                block: Block::new(self.steps),
                merged: Merger::new(self.steps).within(&env)?,
                batches: vec![],
                memory: env.reserve("join", 0)?,
                env: &env,
            };
            work.run(&many, &one)?;
            let mut annotations = Annotations::default();
            work.notes.write(self.op, self.pos, &mut annotations);
            env.run.annotate(annotations);
            work.finish()
        })
    }
}

impl Form for StepJoin {
    const KIND: &'static str = "StepJoin";
}

/// An error that depends on which rows are present at a step.
struct Fault {
    step: usize,
    /// Whether there are several rows on the "one" side: at one step these are looked for first.
    is_duplicate: bool,
    text: String,
}

struct Work<'a> {
    op: &'a StepJoin,
    notes: BinaryNotes,
    /// The error that is met first.
    fault: Option<Fault>,
    block: Block,
    merged: Merger,
    batches: Vec<RecordBatch>,
    memory: MemoryReservation,
    env: &'a Env,
}

fn side<'a>(view: &RowView<'a>) -> Side<'a> {
    Side::Row { values: view.values, present: view.present, hists: view.hists }
}

impl Work<'_> {
    fn run(&mut self, many: &Matrix, one: &Matrix) -> Result<()> {
        let op = self.op;
        let mut any_many: Option<Vec<bool>> = None;
        for group in &op.groups {
            let many_views: SmallVec<[Option<RowView<'_>>; 2]> = group.many.iter().map(|&r| many.row(r)).collect();
            let one_views: SmallVec<[Option<RowView<'_>>; 2]> = group.one.iter().map(|&r| one.row(r)).collect();
            if one_views.iter().flatten().count() > 1 {
                let any = any_many.get_or_insert_with(|| present_steps(op, many));
                self.check_one(group, &one_views, any)?;
            }
            self.check_many(group, &many_views, &one_views)?;
            let width = group.one.len() + usize::from(op.fill_one.is_some());
            for (m, view) in many_views.iter().enumerate() {
                let Some(view) = view else { continue };
                let outs = &group.pairs[m * width..(m + 1) * width];
                for (view_one, &out) in one_views.iter().zip(outs) {
                    if let Some(view_one) = view_one {
                        self.pair(&side(view), &side(view_one), out)?;
                    }
                }
                if let (Some(fill), Some(&out)) = (op.fill_one, outs.last()) {
                    self.env.run.did(one_views.len() * op.steps)?;
                    let masked = MaskedRow::new(view, &one_views, op.steps, |_, _| true);
                    self.pair(&masked.side(), &Side::Fill(fill), out)?;
                }
            }
            if let Some(fill) = op.fill_many {
                // Handle "one" rows without a partner; another row's filled partner does not count as a match.
                for (view_one, &out) in one_views.iter().zip(&group.lone) {
                    if let Some(view_one) = view_one {
                        self.env.run.did(many_views.len() * op.steps)?;
                        // What refuses it is no partner.
                        let masked = MaskedRow::new(view_one, &many_views, op.steps, |many, step| {
                            self.matches(many, Some(view_one), step)
                        });
                        self.pair(&Side::Fill(fill), &masked.side(), out)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Says whether a fault would be met before the one that is known.
    fn comes_first(&self, step: usize, is_duplicate: bool) -> bool {
        self.fault.as_ref().is_none_or(|f| (step, !is_duplicate) < (f.step, !f.is_duplicate))
    }

    /// Says whether the elements of two rows at a step match: neither refuses the other. Without `one` it is the value
    /// that stands in for it.
    fn matches(&self, many: &RowView<'_>, one: Option<&RowView<'_>>, step: usize) -> bool {
        let op = self.op;
        let (many, one) = (many.histogram(step), one.and_then(|one| one.histogram(step)));
        let (lhs, rhs) = if op.swapped { (one, many) } else { (many, one) };
        !Operation { op: op.op, return_bool: op.return_bool }.refuses(lhs, rhs)
    }

    /// Several rows of the "one" side at a step are an error, unless the other side is empty at that step.
    fn check_one(&mut self, group: &JoinGroup, views: &[Option<RowView<'_>>], any_many: &[bool]) -> Result<()> {
        let op = self.op;
        let mut first: Vec<Option<u32>> = vec![None; op.steps];
        for (view, &row) in views.iter().zip(&group.one) {
            let Some(view) = view else { continue };
            self.env.run.did(op.steps)?;
            let mut found = None;
            view.each_step(|step| match first[step] {
                Some(other) if any_many[step] && found.is_none_or(|(s, _)| step < s) => found = Some((step, other)),
                Some(_) => {}
                None => first[step] = Some(row),
            });
            if let Some((step, other)) = found
                && self.comes_first(step, true)
            {
                self.fault = Some(Fault { step, is_duplicate: true, text: self.duplicate(row, other) });
            }
        }
        Ok(())
    }

    fn duplicate(&self, row: u32, other: u32) -> String {
        let table = &self.op.one_table;
        let matching = &self.op.matching;
        let matched = table.labels(row as usize).filter(|(name, _)| {
            let named = matching.labels.iter().any(|l| l == name);
            if matching.on { named } else { !named && *name != METRIC_NAME }
        });
        let matched = show(matched);
        let hand = if self.op.swapped { "left" } else { "right" };
        let (mut a, mut b) = (show(table.labels(row as usize)), show(table.labels(other as usize)));
        if a > b {
            std::mem::swap(&mut a, &mut b);
        }
        format!(
            "found duplicate series for the match group {matched} on the {hand} hand-side of the operation: [{a}, {b}]\
             ;many-to-many matching not allowed: matching labels must be unique on one side"
        )
    }

    /// Two matches with the same output row at a step are an error, whether or not they are kept. A pair whose elements
    /// refuse each other is no match.
    fn check_many(
        &mut self,
        group: &JoinGroup,
        many: &[Option<RowView<'_>>],
        one: &[Option<RowView<'_>>],
    ) -> Result<()> {
        let op = self.op;
        if many.iter().flatten().count() < 2 {
            return Ok(());
        }
        let width = group.one.len() + usize::from(op.fill_one.is_some());
        let outs = &group.pairs;
        self.env.run.did(outs.len())?;
        let _here = self.env.reserve("join", outs.len() * size_of::<u32>() + op.steps * STEP_BYTES)?;
        let mut sorted = outs.clone();
        sorted.sort_unstable();
        if !op.one_to_one && sorted.windows(2).all(|w| w[0] != w[1]) {
            return Ok(());
        }
        let mut partner: Vec<Option<usize>> = vec![op.fill_one.map(|_| width - 1); op.steps];
        for (i, view) in one.iter().enumerate() {
            if let Some(view) = view {
                self.env.run.did(op.steps)?;
                view.each_step(|step| partner[step] = Some(i));
            }
        }
        let mut matched: Vec<SmallVec<[u32; 2]>> = vec![SmallVec::new(); op.steps];
        for (m, view) in many.iter().enumerate() {
            let Some(view) = view else { continue };
            self.env.run.did(op.steps * (m + 1).min(8))?;
            view.each_step(|step| {
                let Some(partner) = partner[step] else { return };
                if !self.matches(view, one.get(partner).and_then(Option::as_ref), step) {
                    return;
                }
                let out = outs[m * width + partner];
                let twice = if op.one_to_one { !matched[step].is_empty() } else { matched[step].contains(&out) };
                matched[step].push(out);
                if twice && self.comes_first(step, false) {
                    let text = if op.one_to_one {
                        "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
                    } else {
                        "multiple matches for labels: grouping labels must ensure unique matches"
                    };
                    self.fault = Some(Fault { step, is_duplicate: false, text: text.to_owned() });
                }
            });
        }
        Ok(())
    }

    fn pair(&mut self, many: &Side<'_>, one: &Side<'_>, out_row: u32) -> Result<()> {
        if self.fault.is_some() {
            return Ok(());
        }
        let op = self.op;
        self.env.run.did(op.steps)?;
        let at = self.block.values.len();
        self.block.values.resize(at + op.steps, 0.0);
        self.block.present.resize(at + op.steps, false);
        let (values, present) = (&mut self.block.values[at..], &mut self.block.present[at..]);
        let mut out = SeriesOut { values, present, hists: vec![] };
        let (lhs, rhs) = if op.swapped { (one, many) } else { (many, one) };
        let operation = Operation { op: op.op, return_bool: op.return_bool };
        operation.apply(lhs, rhs, &mut out, &mut self.notes);
        let hists = out.hists;
        if hists.is_empty() && !self.block.present[at..].contains(&true) {
            self.block.values.truncate(at);
            self.block.present.truncate(at);
            return Ok(());
        }
        let idx = self.block.rows.len() as u32;
        self.block.rows.push(out_row);
        self.block.hists.extend(hists.into_iter().map(|(step, h)| (idx, step, h)));
        if self.block.values.len() >= VALUES_PER_BATCH { self.spill() } else { Ok(()) }
    }

    fn spill(&mut self) -> Result<()> {
        let block = std::mem::replace(&mut self.block, Block::new(self.op.steps));
        if self.op.merges {
            return self.merged.add(block);
        }
        self.memory.try_grow(block.memory_bytes())?;
        self.batches.extend(to_batches(block, &self.op.schema())?);
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<RecordBatch>> {
        if let Some(fault) = self.fault {
            return Err(failed(fault.text));
        }
        self.spill()?;
        if self.op.merges { self.merged.finish(&self.op.schema()) } else { Ok(self.batches) }
    }
}

/// Steps at which "many" has any element; with fill values, all steps.
fn present_steps(op: &StepJoin, many: &Matrix) -> Vec<bool> {
    let filled = op.fill_many.is_some() || op.fill_one.is_some();
    let mut any = vec![filled; op.steps];
    if !filled {
        let rows: Vec<u32> = many.arrival().collect();
        for row in rows {
            if let Some(view) = many.row(row) {
                view.each_step(|step| any[step] = true);
            }
        }
    }
    any
}

/// A row without the steps at which the other side has a partner for it.
struct MaskedRow {
    values: Vec<f64>,
    present: Vec<bool>,
    hists: Vec<(u32, Histogram)>,
}

impl MaskedRow {
    /// `is_match` is asked for steps at which both have an element.
    fn new(
        view: &RowView<'_>,
        others: &[Option<RowView<'_>>],
        steps: usize,
        is_match: impl Fn(&RowView<'_>, usize) -> bool,
    ) -> Self {
        let mut here = vec![false; steps];
        view.each_step(|step| here[step] = true);
        let mut taken = vec![false; steps];
        for other in others.iter().flatten() {
            other.each_step(|step| taken[step] |= here[step] && is_match(other, step));
        }
        Self {
            values: view.values.to_vec(),
            present: view.present.iter().zip(&taken).map(|(p, t)| *p && !t).collect(),
            hists: view.hists.iter().filter(|(step, _)| !taken[*step as usize]).cloned().collect(),
        }
    }

    fn side(&self) -> Side<'_> {
        Side::Row { values: &self.values, present: &self.present, hists: &self.hists }
    }
}
