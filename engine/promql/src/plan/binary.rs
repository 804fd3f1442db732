//! Plans binary operators: constants are folded, scalars become stages, vectors are matched by labels once.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use quiver_types::label::METRIC_NAME;
use quiver_types::series::LabelColumn;
use quiver_types::{Result, SeriesTable};

use super::invariant::{chain, step_invariant};
use super::labels::{Groups, concat, group, group_apart, is_metadata};
use super::memory::Room;
use super::{ExprPlan, Planner, ScalarPlan, Scope, VectorPlan, failed};
use crate::ast::{BinaryExpr, BinaryOp, Expr, MatchCardinality, PosRange, ValueType, VectorMatching};
use crate::binary;
use crate::nodes::join::{JoinGroup, StepJoin};
use crate::nodes::map::Stage;
use crate::nodes::set::StepSet;
use crate::nodes::union::{Operand, StepUnion};
use crate::type_check::type_of;

/// Maximum number of vector-to-vector operators in a query; each is a level of the plan.
const JOINS_MAX: usize = 500;

/// The leading operators of a chain that form one union: `or` with the same matching.
fn union_of<'a, 'b>(operators: &'a [(&'b BinaryExpr, PosRange)]) -> &'a [(&'b BinaryExpr, PosRange)] {
    let same = operators.iter().take_while(|(b, _)| b.op == BinaryOp::Or && b.matching == operators[0].0.matching);
    &operators[..same.count()]
}

impl Planner {
    /// Plans a chain of binary operators.
    pub(crate) async fn binary(&self, expr: &Expr, scope: Scope) -> Result<ExprPlan> {
        let (first, operators) = chain(expr);
        // Trimming needs the buckets of everything before it.
        let trims = operators.iter().rposition(|(b, _)| matches!(b.op, BinaryOp::TrimUpper | BinaryOp::TrimLower));
        let trims = trims.map_or(0, |i| i + 1);
        let mut invariant = 0;
        if !scope.single && step_invariant(first).0 {
            invariant = operators.iter().take_while(|(b, _)| step_invariant(&b.rhs).0).count();
        }
        let single = if invariant > 0 { self.single_step(scope) } else { scope };
        let leftmost = if trims > 0 { single.with_buckets() } else { single };
        let mut planned =
            if invariant > 0 { self.expr(first, leftmost).await? } else { self.operand(first, leftmost).await? };
        let mut i = 0;
        while let Some(&(operator, pos)) = operators.get(i) {
            let steps = if i < invariant { single } else { scope };
            let steps = if i < trims { steps.with_buckets() } else { steps };
            let union = if i < invariant.max(trims) { &[] } else { union_of(&operators[i..]) };
            if let Some(matching) = union.first().and_then(|(b, _)| b.matching.as_ref()) {
                let mut operands = vec![planned.into_vector()?];
                for (operator, _) in union {
                    self.count_join()?;
                    operands.push(self.operand(&operator.rhs, steps).await?.into_vector()?);
                }
                planned = ExprPlan::Vector(self.union(matching, operands, scope)?);
                i += union.len();
                continue;
            }
            let scalars = self.scalar_chain(planned, &operators[i..], steps, invariant.saturating_sub(i)).await?;
            planned = scalars.0;
            if scalars.1 > 0 {
                i += scalars.1;
            } else {
                let rhs = self.operand(&operator.rhs, steps).await?;
                planned = self.combine(operator, pos, planned, rhs, steps)?;
                i += 1;
            }
            if i == invariant {
                planned = self.broadcast(planned, scope)?;
            }
        }
        Ok(planned)
    }

    /// Plans the leading operators of a chain that are between scalars as stages of one node, since a node for each
    /// would nest as deep as the chain is long. Returns the result and the number of operators. Operators that are
    /// evaluated once for all steps (the first `invariant`) are not combined with others.
    async fn scalar_chain(
        &self,
        first: ExprPlan,
        operators: &[(&BinaryExpr, PosRange)],
        scope: Scope,
        invariant: usize,
    ) -> Result<(ExprPlan, usize)> {
        let ExprPlan::Scalar(ScalarPlan::Steps(plan)) = first else { return Ok((first, 0)) };
        let most = if invariant > 0 { invariant } else { operators.len() };
        let scalars = operators.iter().take(most).take_while(|(b, _)| type_of(&b.rhs) == ValueType::Scalar);
        let (mut stages, mut inputs) = (Vec::new(), Vec::new());
        for (operator, _) in scalars {
            self.room.did(1)?;
            let ExprPlan::Scalar(rhs) = self.operand(&operator.rhs, scope).await? else {
                return Err(super::unexpected("scalar"));
            };
            stages.push(Stage::ScalarBinary(operator.op, Self::param(rhs, &mut inputs, 1)));
        }
        let count = stages.len();
        if count == 0 {
            return Ok((ExprPlan::Scalar(ScalarPlan::Steps(plan)), 0));
        }
        let plan = self.scalar_map(plan, stages, inputs, scope)?;
        Ok((ExprPlan::Scalar(ScalarPlan::Steps(plan)), count))
    }

    fn combine(
        &self,
        expr: &BinaryExpr,
        pos: PosRange,
        lhs: ExprPlan,
        rhs: ExprPlan,
        scope: Scope,
    ) -> Result<ExprPlan> {
        match (lhs, rhs) {
            (ExprPlan::Scalar(ScalarPlan::Const(l)), ExprPlan::Scalar(ScalarPlan::Const(r))) => {
                Ok(ExprPlan::Scalar(ScalarPlan::Const(binary::scalar(expr.op, l, r))))
            }
            (ExprPlan::Scalar(l), ExprPlan::Scalar(r)) => {
                let main = self.scalar_plan(l, scope)?;
                let mut more = vec![];
                let param = Self::param(r, &mut more, 1);
                let plan = self.scalar_map(main, vec![Stage::ScalarBinary(expr.op, param)], more, scope)?;
                Ok(ExprPlan::Scalar(ScalarPlan::Steps(plan)))
            }
            (ExprPlan::Vector(v), ExprPlan::Scalar(s)) => Ok(Self::with_scalar(expr, pos, v, ScalarOperand::Right(s))),
            (ExprPlan::Scalar(s), ExprPlan::Vector(v)) => Ok(Self::with_scalar(expr, pos, v, ScalarOperand::Left(s))),
            (ExprPlan::Vector(l), ExprPlan::Vector(r)) => {
                self.count_join()?;
                let matching = expr.matching.as_ref().ok_or_else(|| super::unexpected("matching"))?;
                let planned = match expr.op {
                    BinaryOp::Or => self.union(matching, vec![l, r], scope),
                    BinaryOp::And | BinaryOp::Unless => self.set(expr.op, matching, [l, r], scope),
                    _ => self.join(expr, matching, pos, [l, r], scope),
                };
                planned.map(ExprPlan::Vector)
            }
            _ => Err(super::unexpected("operand")),
        }
    }

    fn with_scalar(expr: &BinaryExpr, pos: PosRange, mut v: VectorPlan, operand: ScalarOperand) -> ExprPlan {
        let (op, return_bool) = (expr.op, expr.return_bool);
        if matches!(op, BinaryOp::TrimUpper | BinaryOp::TrimLower) {
            // Each float sample adds an annotation, so no series may be excluded.
            v.narrow = None;
        }
        let (scalar, scalar_left) = match operand {
            ScalarOperand::Left(scalar) => (scalar, true),
            ScalarOperand::Right(scalar) => (scalar, false),
        };
        v.push_with(vec![scalar], |params| Stage::Binary { op, return_bool, scalar_left, scalar: params[0], pos });
        if changes_schema(op) || return_bool {
            v.drop_names();
        }
        ExprPlan::Vector(v)
    }

    /// Plans `and` and `unless`.
    fn set(
        &self,
        op: BinaryOp,
        matching: &VectorMatching,
        [mut left, mut right]: [VectorPlan; 2],
        scope: Scope,
    ) -> Result<VectorPlan> {
        let room = &self.room;
        let both = concat(room, [&*left.table, &right.table])?;
        let names = MatchLabels::by(matching);
        let signatures = group(room, &both, |n| names.has(n))?;
        // Memory for both sides, the flags of wanted rows, and the signatures in the node.
        room.take(2 * signatures.len() + both.len() * (1 + size_of::<u32>()))?;
        room.did(both.len())?;
        let at = left.table.len();
        let mut sides = vec![[false; 2]; signatures.len()];
        for (row, &id) in signatures.ids.iter().enumerate() {
            sides[id as usize][usize::from(row >= at)] = true;
        }
        let has = |row: usize, side: usize| sides[signatures.ids[row] as usize][side];
        if op == BinaryOp::And {
            self.restrict(&mut left, (0..at).map(|row| has(row, 1)).collect())?;
        }
        self.restrict(&mut right, (at..both.len()).map(|row| has(row, 0)).collect())?;
        let (table, drop_name) = (Arc::clone(&left.table), Arc::clone(&left.drop_name));
        let (histograms, ordered) = (left.histograms, left.ordered);
        let node = StepSet {
            op,
            steps: scope.grid.steps,
            histograms,
            signatures: signatures.len(),
            left: signatures.ids[..at].to_vec(),
            right: signatures.ids[at..].to_vec(),
        };
        let inputs = vec![self.finish(left, scope)?, self.finish(right, scope)?];
        let plan = self.node(node, inputs)?;
        Ok(VectorPlan { ordered, ..VectorPlan::new(plan, table, drop_name, histograms) })
    }

    /// Plans `or` between operands with the same matching.
    fn union(&self, matching: &VectorMatching, operands: Vec<VectorPlan>, scope: Scope) -> Result<VectorPlan> {
        let room = &self.room;
        let all = concat(room, operands.iter().map(|o| &*o.table))?;
        let names = MatchLabels::by(matching);
        let signatures = group(room, &all, |n| names.has(n))?;
        room.take(all.len() * (2 + 2 * size_of::<u32>()))?;
        room.did(all.len())?;
        let flags: Vec<bool> = operands.iter().flat_map(|o| o.drop_name.iter().copied()).collect();
        let rows = group_apart(room, &all, &flags)?;
        let drop_name = rows.first.iter().map(|&r| flags[r as usize]).collect();
        let (histograms, ordered) = (operands.iter().any(|o| o.histograms), operands.iter().any(|o| o.ordered));
        let mut at = 0;
        let places = operands.iter().map(|o| {
            let own = at..at + o.table.len();
            at = own.end;
            Operand { signatures: signatures.ids[own.clone()].to_vec(), to: rows.ids[own].to_vec() }
        });
        let node = StepUnion {
            steps: scope.grid.steps,
            histograms,
            operands: places.collect(),
            signatures: signatures.len(),
            merges: rows.merges(),
        };
        let table = if rows.merges() { room.rows_of(&all, &rows.first)? } else { all };
        let inputs = operands.into_iter().map(|o| self.finish(o, scope)).collect::<Result<_>>()?;
        let plan = self.node(node, inputs)?;
        Ok(VectorPlan { ordered, ..VectorPlan::new(plan, Arc::new(table), Arc::new(drop_name), histograms) })
    }

    /// Counts an operator between vectors, and fails if there are too many.
    fn count_join(&self) -> Result<()> {
        if self.joins.fetch_add(1, Relaxed) >= JOINS_MAX {
            return Err(failed(format!("expression has more than {JOINS_MAX} operators between vectors")));
        }
        Ok(())
    }

    /// Plans an operator that computes with pairs of rows. Labels do not change between steps, so it is known here which
    /// rows match and what labels each result has; which of them have a value at a step is left to the node.
    fn join(
        &self,
        expr: &BinaryExpr,
        matching: &VectorMatching,
        pos: PosRange,
        [mut left, mut right]: [VectorPlan; 2],
        scope: Scope,
    ) -> Result<VectorPlan> {
        let room = &self.room;
        let both = concat(room, [&*left.table, &right.table])?;
        let names = MatchLabels::by(matching);
        let signatures = group(room, &both, |n| names.has(n))?;
        // Lists of rows have grown by doubling.
        room.take(signatures.len() * size_of::<JoinGroup>() + both.len() * (2 * size_of::<u32>() + 2))?;
        room.did(4 * both.len())?;
        let (lefts, rights) = (0..left.table.len() as u32, left.table.len() as u32..both.len() as u32);
        let swapped = matching.card == MatchCardinality::OneToMany;
        let (many_rows, one_rows) = if swapped { (rights, lefts) } else { (lefts, rights) };
        let (many_at, one_at) = (many_rows.start, one_rows.start);
        // Fill values belong to the left and right operand as written, whichever side is "one" (`VectorBinop` swaps the
        // operands, but not the fill values).
        let (fill_many, fill_one) = (matching.fill_left, matching.fill_right);
        let mut groups = matched(&signatures, many_rows, one_rows, (fill_many.is_some(), fill_one.is_some()));
        let (many_side, one_side) = if swapped { (&mut right, &mut left) } else { (&mut left, &mut right) };
        self.restrict_to_matched(&groups, many_side, one_side)?;
        let pairs = |g: &JoinGroup| {
            let partners = g.one.len() + usize::from(fill_one.is_some());
            let lone = if fill_many.is_some() { g.one.len() } else { 0 };
            g.many.len().saturating_mul(partners).saturating_add(lone)
        };
        let pairs: usize = groups.iter().map(pairs).fold(0, usize::saturating_add);
        room.take_codes(pairs.saturating_mul(2))?;
        let _pairs = room.lend(pairs.saturating_mul(size_of::<Pair>()))?;
        let mut results = Results { both: &both, matching, op: expr.op, pairs: Vec::with_capacity(pairs) };
        add_pairs(room, &mut results, &mut groups, (many_at, one_at))?;
        let candidates = results.table(room, &names)?;
        let _flags = room.lend(pairs)?;
        let dropped = [left.drop_name.as_slice(), right.drop_name.as_slice()].concat();
        let dropped = if expr.return_bool { None } else { Some(dropped.as_slice()) };
        let flags = results.drop_name(room, &names, &candidates, dropped)?;
        let rows = group_apart(room, &candidates, &flags)?;
        room.take(rows.len())?;
        let drop_name = rows.first.iter().map(|&pair| flags[pair as usize]).collect();
        for group in &mut groups {
            room.did(group.pairs.len())?;
            group.pairs.iter_mut().chain(&mut group.lone).for_each(|p| *p = rows.ids[*p as usize]);
        }
        let table = Arc::new(room.rows_of(&candidates, &rows.first)?);
        let histograms = left.histograms || right.histograms;
        let ordered = left.ordered || right.ordered;
        let (many_table, one_table) = if swapped {
            (Arc::clone(&right.table), Arc::clone(&left.table))
        } else {
            (Arc::clone(&left.table), Arc::clone(&right.table))
        };
        let node = StepJoin {
            op: expr.op,
            return_bool: expr.return_bool,
            steps: scope.grid.steps,
            histograms,
            swapped,
            one_to_one: matching.card == MatchCardinality::OneToOne,
            fill_many,
            fill_one,
            groups,
            merges: rows.merges(),
            many_table,
            one_table,
            matching: matching.clone(),
            pos,
        };
        let inputs = if swapped { [right, left] } else { [left, right] };
        let inputs = inputs.into_iter().map(|v| self.finish(v, scope)).collect::<Result<Vec<_>>>()?;
        let plan = self.node(node, inputs)?;
        Ok(VectorPlan { ordered, ..VectorPlan::new(plan, table, Arc::new(drop_name), histograms) })
    }

    /// Excludes the rows that are in no group from reading.
    fn restrict_to_matched(&self, groups: &[JoinGroup], many: &mut VectorPlan, one: &mut VectorPlan) -> Result<()> {
        // Several rows with the same signature are an error as soon as the other side has any row, so then all its rows
        // must be read.
        if groups.iter().any(|g| g.one.len() > 1) {
            return Ok(());
        }
        let (mut many_used, mut one_used) = (vec![false; many.table.len()], vec![false; one.table.len()]);
        for group in groups {
            group.many.iter().for_each(|&row| many_used[row as usize] = true);
            group.one.iter().for_each(|&row| one_used[row as usize] = true);
        }
        self.restrict(many, many_used)?;
        self.restrict(one, one_used)
    }
}

/// The scalar of an operator between a vector and a scalar, by the side on which it is written.
enum ScalarOperand {
    Left(ScalarPlan),
    Right(ScalarPlan),
}

/// Groups rows of both sides by signature, except rows that cannot contribute to a result. If a side has a fill value,
/// each row of the other side without a partner gives a result.
fn matched(
    signatures: &Groups,
    many_rows: Range<u32>,
    one_rows: Range<u32>,
    (many_filled, one_filled): (bool, bool),
) -> Vec<JoinGroup> {
    let mut groups = vec![JoinGroup::default(); signatures.len()];
    let (many_at, one_at) = (many_rows.start, one_rows.start);
    for row in many_rows {
        groups[signatures.ids[row as usize] as usize].many.push(row - many_at);
    }
    for row in one_rows {
        groups[signatures.ids[row as usize] as usize].one.push(row - one_at);
    }
    // Two rows of "one" are an error even if no row of "many" matches them.
    groups.retain(|g| {
        (!g.one.is_empty() && (!g.many.is_empty() || many_filled))
            || (!g.many.is_empty() && one_filled)
            || g.one.len() > 1
    });
    groups
}

/// Adds each pair of rows that may match to the results, and its index there to its group. Rows of a side are counted
/// from its start in the combined table.
fn add_pairs(
    room: &Room,
    results: &mut Results<'_>,
    groups: &mut [JoinGroup],
    (many_at, one_at): (u32, u32),
) -> Result<()> {
    let (many_filled, one_filled) = (results.matching.fill_left.is_some(), results.matching.fill_right.is_some());
    for group in groups {
        for &many in &group.many {
            room.did(1 + group.one.len())?;
            for &one in &group.one {
                group.pairs.push(results.add(Pair { many: Some(many + many_at), one: Some(one + one_at) }));
            }
            if one_filled {
                group.pairs.push(results.add(Pair { many: Some(many + many_at), one: None }));
            }
        }
        if many_filled {
            for &one in &group.one {
                group.lone.push(results.add(Pair { many: None, one: Some(one + one_at) }));
            }
        }
    }
    Ok(())
}

/// The labels by which rows match. The list may be long, and every label of a table is looked up in it.
struct MatchLabels<'a> {
    names: HashSet<&'a str>,
    on: bool,
}

impl<'a> MatchLabels<'a> {
    fn by(matching: &'a VectorMatching) -> Self {
        Self { names: matching.labels.iter().map(String::as_str).collect(), on: matching.on }
    }

    /// Tells whether a label is part of the signature.
    fn has(&self, name: &str) -> bool {
        let named = self.names.contains(name);
        if self.on { named } else { !named && name != METRIC_NAME }
    }
}

/// Tells whether the metric name no longer describes the result (`changesMetricSchema`).
fn changes_schema(op: BinaryOp) -> bool {
    use BinaryOp::{Add, Atan2, Div, Mod, Mul, Pow, Sub};
    matches!(op, Add | Sub | Mul | Div | Mod | Pow | Atan2)
}

/// Rows (of the combined table) that form a result row; a missing side is filled.
#[derive(Debug, Clone, Copy)]
struct Pair {
    many: Option<u32>,
    one: Option<u32>,
}

/// The labels of a join's results (`resultMetric`).
struct Results<'a> {
    both: &'a SeriesTable,
    matching: &'a VectorMatching,
    op: BinaryOp,
    pairs: Vec<Pair>,
}

impl Results<'_> {
    fn add(&mut self, pair: Pair) -> u32 {
        self.pairs.push(pair);
        (self.pairs.len() - 1) as u32
    }

    fn table(&self, room: &Room, names: &MatchLabels<'_>) -> Result<SeriesTable> {
        let included: HashSet<&str> = self.matching.include.iter().map(String::as_str).collect();
        let one_to_one = self.matching.card == MatchCardinality::OneToOne;
        let columns = self.both.columns().filter_map(|(name, column)| {
            let matched = names.has(name);
            let metadata_goes = changes_schema(self.op) && is_metadata(name);
            let named = names.names.contains(&**name);
            let kept = !metadata_goes && (!one_to_one || named == self.matching.on);
            let included = included.contains(&**name);
            if !kept && !included {
                return None;
            }
            if let Err(e) = room.take_codes(self.pairs.len()).and_then(|()| room.did(self.pairs.len())) {
                return Some(Err(e));
            }
            let code = |row: Option<u32>| row.map(|r| column.codes[r as usize]);
            // A filled side has the matching labels, taken from the other side.
            let of_pair = |pair: &Pair| {
                let filled = |other: Option<u32>| if matched { code(other) } else { None };
                let base = code(pair.many).or_else(|| filled(pair.one)).unwrap_or(0);
                let from_one = code(pair.one).or_else(|| filled(pair.many)).unwrap_or(0);
                if included { from_one } else { base }
            };
            let codes = self.pairs.iter().map(of_pair).collect();
            Some(Ok((Arc::clone(name), LabelColumn { values: Arc::clone(&column.values), codes: Arc::new(codes) })))
        });
        Ok(SeriesTable::new(self.pairs.len(), columns.collect::<Result<_>>()?))
    }

    /// Tells of each pair whether its name goes at the end of the query: the row that it was taken from had lost its name
    /// already, and a comparison does not bring it back. `table` has the labels of the pairs, `dropped` the flags of the
    /// combined table; without them all names go.
    fn drop_name(
        &self,
        room: &Room,
        names: &MatchLabels<'_>,
        table: &SeriesTable,
        dropped: Option<&[bool]>,
    ) -> Result<Vec<bool>> {
        let mut flags = vec![dropped.is_none(); self.pairs.len()];
        let is_named = table.names().iter().any(|name| is_metadata(name));
        let Some(dropped) = dropped.filter(|dropped| is_named && dropped.contains(&true)) else { return Ok(flags) };
        room.did(self.pairs.len())?;
        // After arithmetic, type and unit come from the "one" side as well, if it has any.
        let of_one = |name: &String| name == METRIC_NAME || changes_schema(self.op) && is_metadata(name);
        let (included, matched) = (self.matching.include.iter().any(of_one), names.has(METRIC_NAME));
        for (pair, flag) in self.pairs.iter().zip(&mut flags) {
            let (from, other) = if included { (pair.one, pair.many) } else { (pair.many, pair.one) };
            let source = from.or(if matched { other } else { None });
            *flag = source.is_some_and(|source| dropped[source as usize]);
        }
        Ok(flags)
    }
}

#[cfg(test)]
mod tests;
