//! `info`: adds labels of info series, which may change between steps, so both sides are evaluated when labels are
//! resolved.
//!
//! Semantics: Prometheus 3.14 `promql/info.go`.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use quiver_types::label::METRIC_NAME;
use quiver_types::series::SeriesTableBuilder;
use quiver_types::{LabelSet, MatchOp, Matcher, Result, SeriesTable};

use super::call::argument;
use super::invariant::unparen;
use super::labels::show;
use super::memory::Room;
use super::{Planner, QueryTimes, Scope, VectorPlan, failed};
use crate::ast::{At, Expr, ExprKind, VectorSelector};
use crate::kernel::Block;
use crate::nodes::driver::Matrix;
use crate::nodes::rollup::RollupFunction;
use crate::nodes::rows::SAME_LABELSET;
use crate::range_ends::RangeEnds;
use crate::window::InstantValue;

/// Estimated memory of a row or a histogram besides its values and labels.
const INFO_BYTES: usize = 128;
/// Cost of matching a byte with a pattern, relative to copying it.
const MATCH_COST: usize = 16;

/// Labels that identify what an info series describes.
const IDENTIFYING: [&str; 2] = ["instance", "job"];

impl Planner {
    /// Plans `info(v, selector)`.
    pub(crate) async fn info(&self, args: &[Expr], scope: Scope) -> Result<VectorPlan> {
        let base_expr = argument(args, 0)?;
        let base = self.vector(base_expr, scope).await?;
        let (table, drop_name, histograms) = (Arc::clone(&base.table), Arc::clone(&base.drop_name), base.histograms);
        let plan = self.finish(base, scope)?;
        let base = Matrix::new(self.evaluate(&plan).await?, table.len());

        let matchers: &[Matcher] = match args.get(1).map(|a| &unparen(a).kind) {
            Some(ExprKind::VectorSelector(selector)) => &selector.matchers,
            _ => &[],
        };
        let (of_name, of_data): (Vec<Matcher>, Vec<Matcher>) =
            matchers.iter().cloned().partition(|m| m.name == METRIC_NAME);
        let names = effective_names(of_name)?;
        let ignored: Vec<bool> = (0..table.len()).map(|r| names.iter().all(|m| m.matches(table.metric(r)))).collect();
        let sampled = |row: usize| base.row(row as u32).is_some_and(|view| !view.is_empty());
        let enriched: Vec<bool> = (0..table.len()).map(|row| !ignored[row] && sampled(row)).collect();
        let infos = match self.info_selector(&table, &enriched, &names, &of_data, base_expr)? {
            Some((selector, offset_ms)) => Some(self.info_series(&selector, offset_ms, base_expr, scope).await?),
            None => None,
        };
        let steps = scope.grid.steps;
        let infos = infos.unwrap_or_default();
        let data_labels = DataLabels { infos: &infos.table, matchers: &of_data };
        self.check_conflicts(&infos, &base, table.len(), steps)?;
        let mut out = InfoOutput::new(&self.room, steps);
        for row in 0..table.len() as u32 {
            let Some(view) = base.row(row) else { continue };
            self.room.did(4 * steps)?;
            // Info series seldom change between steps, so labels are made once for each choice of them.
            let mut known: BTreeMap<Vec<u32>, Option<LabelSet>> = BTreeMap::new();
            let owner = owner(&table, row as usize);
            let drop = drop_name[row as usize];
            let mut fault = None;
            view.each_step(|step| {
                let chosen = if ignored[row as usize] { vec![] } else { infos.at(&owner, step) };
                let labels = known.entry(chosen).or_insert_with_key(|chosen| {
                    let enriched = if ignored[row as usize] {
                        Ok(Some(LabelSet::from_pairs(table.labels(row as usize))))
                    } else {
                        data_labels.added_to(&table, row as usize, chosen, &self.room)
                    };
                    enriched.unwrap_or_else(|e| {
                        fault = Some(e);
                        None
                    })
                });
                if let Some(labels) = labels {
                    let value = view.present[step].then(|| view.values[step]);
                    if let Err(e) = out.push(labels, drop, step, value, view.histogram(step)) {
                        fault = Some(e);
                    }
                }
            });
            fault.map_or(Ok(()), Err)?;
        }
        let mut table = SeriesTableBuilder::default();
        for (labels, _) in &out.rows {
            self.room.did_text(labels.canonical().len())?;
            table.push(labels.iter());
        }
        let drop_name = Arc::new(out.rows.iter().map(|r| r.1).collect());
        out.block.hists.sort_by_key(|h| (h.0, h.1));
        let plan = self.literal("info", out.block, histograms)?;
        Ok(VectorPlan::new(plan, Arc::new(table.finish()), drop_name, histograms))
    }

    /// Fails if two info series contradict each other at a step at which there are series to enrich.
    fn check_conflicts(&self, infos: &Infos, base: &Matrix, rows: usize, steps: usize) -> Result<()> {
        if infos.by_owner.is_empty() {
            return Ok(());
        }
        let mut filled = vec![false; steps];
        for row in (0..rows as u32).filter_map(|row| base.row(row)) {
            self.room.did(steps)?;
            row.each_step(|step| filled[step] = true);
        }
        infos.conflict(&filled, &self.room)
    }

    /// The selector of the info series for the series that are `true` in `enriched`; `None` if none can have any.
    fn info_selector(
        &self,
        table: &SeriesTable,
        enriched: &[bool],
        names: &[Matcher],
        of_data: &[Matcher],
        base: &Expr,
    ) -> Result<Option<(VectorSelector, i64)>> {
        let mut matchers = Vec::new();
        for label in IDENTIFYING {
            let values: BTreeSet<&str> = (0..table.len())
                .filter(|&r| enriched[r])
                .map(|r| table.value(r, label))
                .filter(|v| !v.is_empty())
                .collect();
            let bytes: usize = values.iter().map(|v| 2 * v.len()).sum();
            let _pattern = self.room.lend(bytes)?;
            self.room.did_text(MATCH_COST * bytes)?;
            if !values.is_empty() {
                let pattern: Vec<String> = values.into_iter().map(regex::escape).collect();
                matchers.push(Matcher::new(label, MatchOp::Regex, pattern.join("|"))?);
            }
        }
        if matchers.is_empty() {
            return Ok(None);
        }
        matchers.extend(of_data.iter().cloned());
        matchers.extend(names.iter().cloned());
        let (at, offset_ms) = reference_time(base, &self.times)?;
        let selector = VectorSelector {
            name: None,
            matchers,
            offset: None,
            at: at.map(At::Time),
            ends: RangeEnds::Samples,
            pos: base.pos,
        };
        Ok(Some((selector, offset_ms)))
    }

    async fn info_series(&self, selector: &VectorSelector, offset_ms: i64, base: &Expr, scope: Scope) -> Result<Infos> {
        let function = RollupFunction::Instant(InstantValue::Timestamp);
        let vector = self.look_back(selector, base.pos, scope, function, offset_ms).await?;
        if vector.histograms {
            let function = RollupFunction::Instant(InstantValue::Value);
            let values = self.look_back(selector, base.pos, scope, function, offset_ms).await?;
            let table = Arc::clone(&values.table);
            let blocks = self.evaluate(&self.finish(values, scope)?).await?;
            let rows = blocks.iter().flat_map(|block| block.hists.iter().map(|h| block.rows[h.0 as usize]));
            if let Some(row) = rows.min() {
                let labels = show(table.labels(row as usize));
                return Err(failed(format!("this should be an info metric, with float samples: {labels}")));
            }
        }
        let table = Arc::clone(&vector.table);
        let plan = self.finish(vector, scope)?;
        let mut by_owner: BTreeMap<Owner, InfoRows> = BTreeMap::new();
        for block in self.evaluate(&plan).await? {
            for (idx, &row) in block.rows.iter().enumerate() {
                let (values, present) = block.row(idx);
                self.room.take(values.len() * size_of::<Option<f64>>() + INFO_BYTES)?;
                self.room.did(values.len())?;
                let times = values.iter().zip(present).map(|(v, p)| p.then_some(*v)).collect();
                by_owner.entry(owner(&table, row as usize)).or_default().push((row, times));
            }
        }
        Ok(Infos { table, by_owner })
    }
}

type Owner = (String, String);

/// Rows, each with the time of its newest sample per step.
type InfoRows = Vec<(u32, Vec<Option<f64>>)>;

fn owner(table: &SeriesTable, row: usize) -> Owner {
    (table.value(row, IDENTIFYING[0]).to_owned(), table.value(row, IDENTIFYING[1]).to_owned())
}

/// Info series by what they describe: row, and time of the newest sample per step.
#[derive(Default)]
struct Infos {
    table: Arc<SeriesTable>,
    by_owner: BTreeMap<Owner, InfoRows>,
}

impl Infos {
    /// The newest info series of each name at a step.
    fn at(&self, owner: &Owner, step: usize) -> Vec<u32> {
        let mut newest: BTreeMap<&str, (f64, u32)> = BTreeMap::new();
        for (row, times) in self.by_owner.get(owner).map_or(&[][..], Vec::as_slice) {
            if let Some(time) = times[step] {
                let best = newest.entry(self.table.metric(*row as usize)).or_insert((time, *row));
                if time > best.0 {
                    *best = (time, *row);
                }
            }
        }
        newest.into_values().map(|(_, row)| row).collect()
    }

    /// Fails if two info series with the same name and owner have samples at the same time, at a step at which there are
    /// series to enrich.
    fn conflict(&self, filled: &[bool], room: &Room) -> Result<()> {
        for step in (0..filled.len()).filter(|&step| filled[step]) {
            for rows in self.by_owner.values() {
                room.did(4 * rows.len())?;
                let mut newest: BTreeMap<&str, (f64, u32)> = BTreeMap::new();
                for (row, times) in rows {
                    let Some(time) = times[step] else { continue };
                    match newest.get(self.table.metric(*row as usize)) {
                        Some((t, other)) if *t == time => {
                            let ms = (time * 1000.0).round() as i64;
                            let labels = |r: u32| show(self.table.labels(r as usize));
                            let (existing, new) = (labels(*other), labels(*row));
                            return Err(failed(format!(
                                "found duplicate series for info metric: existing {existing} @ {ms}, new {new} @ {ms}"
                            )));
                        }
                        Some((t, _)) if *t > time => {}
                        _ => {
                            newest.insert(self.table.metric(*row as usize), (time, *row));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// The labels that info series add to rows.
struct DataLabels<'a> {
    infos: &'a SeriesTable,
    /// Matchers of labels other than the name: if there are any, only their labels are added.
    matchers: &'a [Matcher],
}

impl DataLabels<'_> {
    /// The labels of a row with those of the chosen info series; `None` if the row is dropped.
    fn added_to(&self, table: &SeriesTable, row: usize, chosen: &[u32], room: &Room) -> Result<Option<LabelSet>> {
        let mut added: BTreeMap<&str, &str> = BTreeMap::new();
        for &info in chosen {
            for (name, value) in self.infos.labels(info as usize) {
                let wanted = self.matchers.is_empty() || self.matchers.iter().any(|m| m.name == name);
                if name == METRIC_NAME || !wanted {
                    continue;
                }
                if added.get(name).is_some_and(|v| *v != value) {
                    return Err(failed(format!("conflicting label: {name}")));
                }
                if table.value(row, name).is_empty() {
                    added.insert(name, value);
                }
            }
        }
        if chosen.is_empty() && self.matchers.iter().any(|m| !m.matches_empty()) {
            return Ok(None);
        }
        let labels = || table.labels(row).chain(added.iter().map(|(name, value)| (*name, *value)));
        let bytes: usize = labels().map(|(name, value)| name.len() + value.len() + 2).sum();
        room.did_text(bytes)?;
        room.take(bytes)?;
        Ok(Some(LabelSet::from_pairs(labels())))
    }
}

/// The matchers that select info series by name.
fn effective_names(given: Vec<Matcher>) -> Result<Vec<Matcher>> {
    if given.iter().any(|m| matches!(m.op, MatchOp::Equal | MatchOp::Regex)) {
        return Ok(given);
    }
    if given.is_empty() {
        return Ok(vec![Matcher::equal(METRIC_NAME, "target_info")]);
    }
    let mut all = vec![Matcher::new(METRIC_NAME, MatchOp::Regex, ".+_info")?];
    all.extend(given);
    Ok(all)
}

/// The `@` and the offset of the first selector of an expression.
fn reference_time(expr: &Expr, times: &QueryTimes) -> Result<(Option<i64>, i64)> {
    Ok(first_selector(expr, times)?.unwrap_or((None, 0)))
}

fn first_selector(expr: &Expr, times: &QueryTimes) -> Result<Option<(Option<i64>, i64)>> {
    let first = |exprs: &[&Expr]| -> Result<Option<(Option<i64>, i64)>> {
        for e in exprs {
            if let Some(found) = first_selector(e, times)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    };
    match &expr.kind {
        ExprKind::VectorSelector(s) | ExprKind::MatrixSelector { selector: s, .. } => {
            Ok(Some((s.at.map(|at| times.at(at)), times.offset(s.offset.as_ref())?)))
        }
        ExprKind::Subquery(s) => {
            let Some((at, offset_ms)) = first_selector(&s.expr, times)? else { return Ok(None) };
            if at.is_some() {
                return Ok(Some((at, offset_ms)));
            }
            Ok(Some((s.at.map(|at| times.at(at)), offset_ms + times.offset(s.offset.as_ref())?)))
        }
        ExprKind::Paren(inner) => first_selector(inner, times),
        ExprKind::Unary { expr, .. } => first_selector(expr, times),
        ExprKind::Binary(_) => {
            let (leftmost, operators) = super::invariant::chain(expr);
            let mut operands = vec![leftmost];
            operands.extend(operators.iter().map(|(b, _)| &b.rhs));
            first(&operands)
        }
        ExprKind::Aggregate(a) => {
            let mut operands = vec![&a.expr];
            operands.extend(a.param.as_ref());
            first(&operands)
        }
        ExprKind::Call { args, .. } => first(&args.iter().collect::<Vec<_>>()),
        ExprKind::Number { .. } | ExprKind::String(_) => Ok(None),
    }
}

/// The output: one row per label set.
struct InfoOutput<'r> {
    room: &'r Room,
    steps: usize,
    rows: Vec<(LabelSet, bool)>,
    places: BTreeMap<Vec<u8>, usize>,
    block: Block,
    /// Rows and steps with histograms.
    histograms: HashSet<(u32, u32)>,
}

impl<'r> InfoOutput<'r> {
    fn new(room: &'r Room, steps: usize) -> Self {
        let (rows, places, block) = (vec![], BTreeMap::new(), Block::new(steps));
        Self { room, steps, rows, places, block, histograms: HashSet::new() }
    }

    /// Adds an element; its place must be free.
    fn push(
        &mut self,
        labels: &LabelSet,
        drop: bool,
        step: usize,
        value: Option<f64>,
        histogram: Option<&quiver_types::Histogram>,
    ) -> Result<()> {
        let place = if let Some(place) = self.places.get(labels.canonical()) {
            *place
        } else {
            // Values grow by doubling and then become a batch; labels become a table.
            let values = 4 * self.steps * (size_of::<f64>() + 1);
            self.room.take(values + INFO_BYTES + 4 * labels.canonical().len())?;
            self.places.insert(labels.canonical().to_vec(), self.rows.len());
            self.block.rows.push(self.rows.len() as u32);
            self.rows.push((labels.clone(), drop));
            self.block.values.resize(self.rows.len() * self.steps, 0.0);
            self.block.present.resize(self.rows.len() * self.steps, false);
            self.rows.len() - 1
        };
        let at = place * self.steps + step;
        let (row, step) = (place as u32, step as u32);
        if self.block.present[at] || self.histograms.contains(&(row, step)) {
            return Err(failed(SAME_LABELSET));
        }
        match (value, histogram) {
            (Some(v), _) => (self.block.values[at], self.block.present[at]) = (v, true),
            (None, Some(h)) => {
                self.room.take(2 * h.memory_bytes() + INFO_BYTES)?;
                self.histograms.insert((row, step));
                self.block.hists.push((row, step, h.clone()));
            }
            (None, None) => {}
        }
        Ok(())
    }
}
