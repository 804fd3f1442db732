//! Plans aggregations: groups are formed from labels; a rollup below is fused into the fold.

use std::collections::HashSet;
use std::sync::Arc;

use quiver_query::from_datafusion;
use quiver_types::label::METRIC_NAME;
use quiver_types::{Result, SeriesTable};

use super::call::texts;
use super::invariant::unparen;
use super::label_hash::labels_hash;
use super::labels::{self, Groups, group};
use super::{ExprPlan, LabelsId, Planner, ScalarPlan, Scope, VectorPlan, failed};
use crate::aggregate::{Accumulator, CountValues};
use crate::ast::{AggregateExpr, AggregateOp, PosRange};
use crate::kernel::Block;
use crate::nodes::aggregate::{FoldFinal, FoldParams};
use crate::nodes::driver::split_hists;
use crate::nodes::select::StepSelect;

impl Planner {
    /// Plans an aggregation.
    pub(crate) async fn aggregate(&self, a: &AggregateExpr, pos: PosRange, scope: Scope) -> Result<ExprPlan> {
        if a.op == AggregateOp::CountValues {
            return self.count_values(a, scope).await.map(ExprPlan::Vector);
        }
        let param = match &a.param {
            Some(param) => Some((self.scalar(param, scope).await?, unparen(param).pos)),
            None => None,
        };
        let inner = unparen(&a.expr);
        let labels = self.want_labels(a)?;
        // Not `vector`: an expression that does not depend on the step is evaluated once, together with the
        // aggregation.
        let ExprPlan::Vector(vector) = self.expr(inner, Scope { labels, ..scope }).await? else {
            return Err(super::unexpected("instant vector"));
        };
        let names = Grouping::of(a);
        let groups = group(&self.room, &vector.table, |name| names.has(name))?;
        let input = GroupedVector { vector, groups };
        if Accumulator::handles(a.op) {
            self.fold(a, input, param, inner.pos, scope).map(ExprPlan::Vector)
        } else {
            let param = param.ok_or_else(|| super::unexpected("parameter"))?;
            self.select_rows(a, input, param, pos, scope).map(ExprPlan::Vector)
        }
    }

    /// The labels that an aggregation needs. The metric name is always included, for annotations.
    fn want_labels(&self, a: &AggregateExpr) -> Result<LabelsId> {
        if a.without || !Accumulator::handles(a.op) {
            return Ok(None);
        }
        let mut names: Vec<String> = a.grouping.iter().map(String::clone).chain([METRIC_NAME.to_owned()]).collect();
        names.sort_unstable();
        names.dedup();
        self.room.take(names.iter().map(|name| name.len() + size_of::<String>()).sum())?;
        let mut wanted = self.wanted.lock();
        wanted.push(names.into());
        Ok(Some(wanted.len() as u32 - 1))
    }

    /// The labels that a selector has to return; `None` means all.
    pub(crate) fn wanted_labels(&self, scope: Scope) -> Option<Arc<[String]>> {
        scope.labels.and_then(|id| self.wanted.lock().get(id as usize).map(Arc::clone))
    }

    /// Plans an operator that makes one row of each group. `pos` is the place of its operand, for annotations.
    fn fold(
        &self,
        a: &AggregateExpr,
        GroupedVector { vector, groups }: GroupedVector,
        param: Option<(ScalarPlan, PosRange)>,
        pos: PosRange,
        scope: Scope,
    ) -> Result<VectorPlan> {
        let table = Arc::new(self.group_labels(&vector.table, &groups, a)?);
        self.room.take(vector.table.len() * size_of::<u32>() + groups.len())?;
        self.room.did(groups.ids.len())?;
        let flags = dropped(&groups, &vector.drop_name);
        let histograms = vector.histograms && matches!(a.op, AggregateOp::Sum | AggregateOp::Avg);
        let input_table = Arc::clone(&vector.table);
        let rollup = vector.fused_rollup();
        let narrow = vector.narrow.as_ref().map(|narrow| narrow.grouped(&groups.ids));
        let (mut inputs, rollup) = match rollup {
            // Inputs of the rollup's parameters follow its samples; those of the aggregation come last.
            Some((rollup, inputs)) => (inputs, Some(rollup)),
            None => (vec![self.finish(vector, scope)?], None),
        };
        let mut more = vec![];
        let param = param.map(|(scalar, param_pos)| (Self::param(scalar, &mut more, inputs.len()), param_pos));
        inputs.extend(more);
        let fold = FoldParams {
            op: a.op,
            steps: scope.grid.steps,
            groups: groups.len(),
            ids: groups.ids,
            param,
            pos,
            table: input_table,
            histograms,
            rollup,
        };
        let plan = self.node(FoldFinal(Arc::new(fold)), inputs)?;
        Ok(VectorPlan { narrow, ..VectorPlan::new(plan, table, Arc::new(flags), histograms) })
    }

    /// Plans an operator that keeps some rows of each group. `pos` is the place of the whole expression, for
    /// annotations.
    fn select_rows(
        &self,
        a: &AggregateExpr,
        GroupedVector { vector, groups }: GroupedVector,
        (scalar, param_pos): (ScalarPlan, PosRange),
        pos: PosRange,
        scope: Scope,
    ) -> Result<VectorPlan> {
        let (table, drop_name) = (Arc::clone(&vector.table), Arc::clone(&vector.drop_name));
        let histograms = vector.histograms;
        let ratio = a.op == AggregateOp::LimitRatio;
        let mut hashes = Vec::new();
        if ratio {
            self.room.take(table.len() * size_of::<u64>())?;
            for row in 0..table.len() {
                self.room.did(1 + table.names().len())?;
                hashes.push(labels_hash(table.labels(row)));
            }
        }
        let mut inputs = vec![self.finish(vector, scope)?];
        let mut more = vec![];
        let param = Self::param(scalar, &mut more, 1);
        inputs.extend(more);
        let select = StepSelect {
            op: a.op,
            steps: scope.grid.steps,
            single: scope.single,
            groups: groups.len(),
            ids: groups.ids,
            hashes,
            param,
            param_pos,
            pos,
            histograms,
        };
        let plan = self.node(select, inputs)?;
        Ok(VectorPlan { ordered: scope.single, ..VectorPlan::new(plan, table, drop_name, histograms) })
    }

    /// Values become labels, so the input is evaluated now.
    async fn count_values(&self, a: &AggregateExpr, scope: Scope) -> Result<VectorPlan> {
        let text = texts(a.param.as_slice())?.pop().ok_or_else(|| super::unexpected("label"))?;
        let Some(label) = text.name().filter(|name| !name.is_empty()) else {
            return Err(failed(format!("invalid label name {}", text.quoted())));
        };
        let vector = self.vector(&a.expr, scope).await?;
        let (table, room) = (Arc::clone(&vector.table), &self.room);
        let names = Grouping::of(a);
        let by_label = |name: &str| name != label && names.has(name);
        let groups = group(room, &table, by_label)?;
        room.take(groups.len())?;
        // The label that is made may be the name itself, which stays.
        let flags = if label == METRIC_NAME { vec![false; groups.len()] } else { dropped(&groups, &vector.drop_name) };
        let plan = self.finish(vector, scope)?;
        let memory = self.engine.reservation("count_values", &self.run.ctx);
        let mut counts = CountValues::new(scope.grid.steps);
        let mut grow = |bytes: usize| memory.try_grow(bytes).map_err(from_datafusion);
        for mut block in self.evaluate(&plan).await? {
            let hists = split_hists(&mut block);
            for (idx, &row) in block.rows.iter().enumerate() {
                let (values, present) = block.row(idx);
                room.did(values.len())?;
                let hists = hists.get(idx).map_or(&[][..], Vec::as_slice);
                counts.fold(groups.ids[row as usize], values, present, hists, &mut grow)?;
            }
        }
        let counted = counts.finish();
        room.take_codes(counted.len())?;
        let rows: Vec<u32> = counted.iter().map(|c| groups.first[c.group as usize]).collect();
        let base = room.rows_of(&table, &rows)?.keep(by_label);
        // `without` may remove the new label again, and removes a name.
        let labelled = if a.without && !names.has(label) {
            base
        } else {
            let values = labels::column(room, counted.len(), counted.iter().map(|c| c.value.as_str()))?;
            base.with_column(label, Some(values))
        };
        let merged = group(room, &labelled, |_| true)?;
        let steps = scope.grid.steps;
        self.reserve_matrix(merged.len(), steps)?;
        room.take(merged.len())?;
        let (mut values, mut drop_name) = (vec![0.0; merged.len() * steps], vec![false; merged.len()]);
        for (row, c) in counted.iter().enumerate() {
            room.did(steps)?;
            drop_name[merged.ids[row] as usize] |= flags[c.group as usize];
            let at = merged.ids[row] as usize * steps;
            values[at..at + steps].iter_mut().zip(&c.counts).for_each(|(v, n)| *v += n);
        }
        drop((counted, memory));
        let present = values.iter().map(|v| *v > 0.0).collect();
        let block = Block { rows: (0..merged.len() as u32).collect(), steps, values, present, hists: vec![] };
        let out = Arc::new(room.rows_of(&labelled, &merged.first)?);
        let plan = self.literal(format!("count_values({label})"), block, false)?;
        Ok(VectorPlan::of_floats(plan, out, Arc::new(drop_name)))
    }

    fn group_labels(&self, table: &SeriesTable, groups: &Groups, a: &AggregateExpr) -> Result<SeriesTable> {
        let names = Grouping::of(a);
        self.room.rows_of(&table.keep(|name| names.has(name)), &groups.first)
    }
}

/// The input of an aggregation: rows, and the group of each.
struct GroupedVector {
    vector: VectorPlan,
    groups: Groups,
}

/// Tells of each group whether its name goes at the end of the query: that of one of its rows does.
fn dropped(groups: &Groups, drop_name: &[bool]) -> Vec<bool> {
    let mut flags = vec![false; groups.len()];
    for (&id, &drop) in groups.ids.iter().zip(drop_name) {
        flags[id as usize] |= drop;
    }
    flags
}

/// The labels that distinguish groups. The list may be long, and every label of a table is looked up in it.
struct Grouping<'a> {
    names: HashSet<&'a str>,
    without: bool,
}

impl<'a> Grouping<'a> {
    fn of(a: &'a AggregateExpr) -> Self {
        Self { names: a.grouping.iter().map(String::as_str).collect(), without: a.without }
    }

    /// Tells whether a label distinguishes groups.
    fn has(&self, name: &str) -> bool {
        let named = self.names.contains(name);
        if self.without { !named && name != METRIC_NAME } else { named }
    }
}
