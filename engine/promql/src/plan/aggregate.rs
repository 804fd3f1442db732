//! Aggregations: groups from labels; a rollup below is fused into the fold.

use std::sync::Arc;

use parking_lot::Mutex;
use quiver_query::from_datafusion;
use quiver_types::label::METRIC_NAME;
use quiver_types::{Result, SeriesTable};

use super::call::{argument, texts};
use super::hash::labels_hash;
use super::invariant::unparen;
use super::labels::{self, Groups, group};
use super::{Planned, Planner, ScalarPlan, Scope, VectorPlan, failed};
use crate::aggregate::{Accumulator, CountValues};
use crate::ast::{AggregateExpr, AggregateOp, Expr, PosRange};
use crate::functions::notes;
use crate::kernel::Block;
use crate::nodes::aggregate::{Fold, FoldFinal};
use crate::nodes::drive::split_hists;
use crate::nodes::select::StepSelect;

impl Planner {
    /// Plans an aggregation.
    pub(crate) async fn aggregate(&self, a: &AggregateExpr, pos: PosRange, scope: Scope) -> Result<Planned> {
        if a.op == AggregateOp::CountValues {
            return self.count_values(a, scope).await.map(Planned::Vector);
        }
        let param = match &a.param {
            Some(param) => Some((self.scalar(param, scope).await?, unparen(param).pos)),
            None => None,
        };
        let inner = unparen(&a.expr);
        // Not `vector`: what does not depend on the step is evaluated once with the aggregation around it.
        let Planned::Vector(vector) = self.expr(inner, scope).await? else {
            return Err(super::unexpected("instant vector"));
        };
        let groups = group(&vector.table, |name| is_grouped(a, name));
        if Accumulator::handles(a.op) {
            self.fold(a, vector, &groups, param, inner.pos, scope).map(Planned::Vector)
        } else {
            let param = param.ok_or_else(|| super::unexpected("parameter"))?;
            self.select_rows(a, vector, groups, param, pos, scope).map(Planned::Vector)
        }
    }

    fn fold(
        &self,
        a: &AggregateExpr,
        vector: VectorPlan,
        groups: &Groups,
        param: Option<(ScalarPlan, PosRange)>,
        pos: PosRange,
        scope: Scope,
    ) -> Result<VectorPlan> {
        let table = Arc::new(group_labels(&vector.table, groups, a));
        let mut flags = vec![false; groups.len()];
        for (row, &id) in groups.ids.iter().enumerate() {
            flags[id as usize] |= vector.drop_name[row];
        }
        let histograms = vector.histograms && matches!(a.op, AggregateOp::Sum | AggregateOp::Avg);
        let input_table = Arc::clone(&vector.table);
        let rollup = vector.fused_rollup();
        let narrow = vector.narrow.as_ref().map(|narrow| narrow.grouped(&groups.ids));
        let (mut inputs, rollup) = match rollup {
            // Inputs of the rollup's own parameters follow its samples; the aggregation's comes after them.
            Some((rollup, inputs)) => (inputs, Some(rollup)),
            None => (vec![self.finish(vector, scope)?], None),
        };
        let mut more = vec![];
        let param = param.map(|(scalar, param_pos)| (Self::param(scalar, &mut more, inputs.len()), param_pos));
        inputs.extend(more);
        let fold = Fold {
            op: a.op,
            steps: scope.grid.steps,
            ids: groups.ids.clone(),
            groups: groups.len(),
            param,
            pos,
            table: input_table,
            histograms,
            rollup,
            folded: Mutex::default(),
        };
        let plan = self.node(FoldFinal(Arc::new(fold)), inputs)?;
        Ok(VectorPlan { narrow, ..VectorPlan::new(plan, table, Arc::new(flags), histograms) })
    }

    fn select_rows(
        &self,
        a: &AggregateExpr,
        vector: VectorPlan,
        groups: Groups,
        (scalar, param_pos): (ScalarPlan, PosRange),
        pos: PosRange,
        scope: Scope,
    ) -> Result<VectorPlan> {
        let (table, drop_name) = (Arc::clone(&vector.table), Arc::clone(&vector.drop_name));
        let histograms = vector.histograms;
        let ratio = a.op == AggregateOp::LimitRatio;
        let hashes = if ratio { (0..table.len()).map(|r| labels_hash(table.labels(r))).collect() } else { vec![] };
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
        let param: &[Expr] = a.param.as_slice();
        let label = texts(param)?.pop().ok_or_else(|| super::unexpected("label"))?;
        argument(param, 0)?;
        if label.is_empty() {
            return Err(failed(format!("invalid label name {}", notes::quote(&label))));
        }
        let vector = self.vector(&a.expr, scope).await?;
        let table = Arc::clone(&vector.table);
        let by_label = |name: &str| name != label && is_grouped(a, name);
        let groups = group(&table, by_label);
        let plan = self.finish(vector, scope)?;
        let memory = self.engine.reservation("count_values", &self.run.ctx);
        let mut counts = CountValues::new(scope.grid.steps);
        for mut block in self.evaluate(&plan).await? {
            self.run.ctx.check("query execution")?;
            let hists = split_hists(&mut block);
            for (idx, &row) in block.rows.iter().enumerate() {
                let (values, present) = block.row(idx);
                counts.fold(groups.ids[row as usize], values, present, hists.get(idx).map_or(&[][..], Vec::as_slice));
                memory.try_resize(counts.memory_bytes()).map_err(from_datafusion)?;
            }
        }
        self.run.keep(memory);
        let counted = counts.finish();
        let rows: Vec<u32> = counted.iter().map(|c| groups.first[c.group as usize]).collect();
        let base = table.take(&rows).keep(by_label);
        // `without` may take the new label away again.
        let labelled = if a.without && a.grouping.contains(&label) {
            base
        } else {
            base.with_column(&label, Some(labels::column(counted.iter().map(|c| c.value.as_str()))))
        };
        let merged = group(&labelled, |_| true);
        let steps = scope.grid.steps;
        let mut values = vec![0.0; merged.len() * steps];
        for (row, c) in counted.iter().enumerate() {
            let at = merged.ids[row] as usize * steps;
            values[at..at + steps].iter_mut().zip(&c.counts).for_each(|(v, n)| *v += n);
        }
        let present = values.iter().map(|v| *v > 0.0).collect();
        let block = Block { rows: (0..merged.len() as u32).collect(), steps, values, present, hists: vec![] };
        let out = Arc::new(labelled.take(&merged.first));
        let plan = self.literal(format!("count_values({label})"), block, false)?;
        let drop_name = Arc::new(vec![false; out.len()]);
        Ok(VectorPlan::new(plan, out, drop_name, false))
    }
}

/// Says whether a label tells groups apart.
fn is_grouped(a: &AggregateExpr, name: &str) -> bool {
    let named = a.grouping.iter().any(|g| g == name);
    if a.without { !named && name != METRIC_NAME } else { named }
}

fn group_labels(table: &SeriesTable, groups: &Groups, a: &AggregateExpr) -> SeriesTable {
    table.take(&groups.first).keep(|name| is_grouped(a, name))
}
