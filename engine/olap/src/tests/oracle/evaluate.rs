//! Evaluates queries naively: nested loops over rows, following only the definitions of `olap-api.md` 11.
//!
//! A measure of a model over a group is an aggregate over the distinct rows of that model in the group; the real
//! planner's handling of fan-out must give the same.

use std::collections::{BTreeMap, HashSet};

use chrono_tz::Tz;

use super::measures::{Agg, Body};
use super::operators::holds;
use super::question::{Cond, Member};
use super::time::{Range, Span, bucket, end_instant, first_instant, wall};
use super::tree::Tree;
use super::value::{Ex, Val};
use super::world::World;

/// Which row of each model there is.
pub(crate) type Row = Vec<Option<usize>>;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    NoPath,
    RangeRequired,
    /// The definitions do not say what the answer is.
    Unclear,
}

type Found<T> = Result<T, Refusal>;

/// A column that rows are grouped by.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) of: Member,
    pub(crate) grain: Option<&'static str>,
}

/// What the measures of a query have in common.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stage {
    pub(crate) groups: Vec<Group>,
    pub(crate) filters: Vec<Cond>,
    pub(crate) segments: Vec<Member>,
    /// Ranges of the times of models.
    pub(crate) ranges: Vec<(usize, Range)>,
    /// How far rows lie before the groups that they belong to.
    pub(crate) shift: Option<Span>,
}

/// Values of measures by groups.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    pub(crate) rows: Vec<(Vec<Val>, BTreeMap<Member, Val>)>,
}

/// Groups with their rows, in the order of their keys.
pub(crate) type Groups = BTreeMap<String, (Vec<Val>, Vec<Row>)>;

/// The naive answer to questions: row by row, without plans.
pub(crate) struct Oracle<'w> {
    pub(crate) world: &'w World,
    pub(crate) tz: Tz,
    pub(crate) services: Option<&'w [&'static str]>,
}

pub(crate) fn key(values: &[Val]) -> String {
    format!("{values:?}")
}

/// Measures by how they come about.
#[derive(Default)]
struct Kinds {
    rows: Vec<Member>,
    inner: Vec<Member>,
    ranks: Vec<Member>,
    /// Those that others are made of come first.
    made: Vec<Member>,
}

impl Table {
    /// The row of a group, added where there is none.
    fn row(&mut self, values: &[Val]) -> &mut BTreeMap<Member, Val> {
        let at = self.rows.iter().position(|(group, _)| group == values).unwrap_or_else(|| {
            self.rows.push((values.to_vec(), BTreeMap::new()));
            self.rows.len() - 1
        });
        &mut self.rows[at].1
    }
}

impl Oracle<'_> {
    fn sort_out(&self, of: &Member, kinds: &mut Kinds) {
        let near = |name: &String| (of.0, name.clone());
        let list = match &self.world.measure(of).body {
            Body::Rows { .. } => &mut kinds.rows,
            Body::Inner { .. } | Body::Shifted { .. } => &mut kinds.inner,
            Body::Rank { over, .. } => {
                self.sort_out(&near(over), kinds);
                &mut kinds.ranks
            }
            Body::Ratio(a, b) | Body::Sum(a, b) => {
                self.sort_out(&near(a), kinds);
                self.sort_out(&near(b), kinds);
                &mut kinds.made
            }
        };
        if !list.contains(of) {
            list.push(of.clone());
        }
    }

    /// Measures by groups; `later` are measures that are not asked for, but filtered or sorted by.
    pub(crate) fn stage(&self, stage: &Stage, measures: &[Member], later: &[Member]) -> Found<Table> {
        let mut kinds = Kinds::default();
        measures.iter().chain(later).for_each(|of| self.sort_out(of, &mut kinds));
        let mut table = Table::default();
        if stage.groups.is_empty() {
            table.row(&[]);
        }
        for (tree, list) in self.trees(stage, measures, later, &kinds)? {
            self.part(stage, &tree, &list, &mut table)?;
        }
        for of in &kinds.rows {
            let Body::Rows { agg, own, .. } = &self.world.measure(of).body else { continue };
            let none = if matches!(agg, Agg::Count | Agg::Distinct) && !own { Val::Int(0) } else { Val::Null };
            table.rows.iter_mut().for_each(|(_, values)| _ = values.entry(of.clone()).or_insert(none.clone()));
        }
        for of in &kinds.inner {
            self.with_inner(stage, &mut table, of)?;
        }
        for of in &kinds.ranks {
            self.with_rank(stage, &mut table, of);
        }
        for of in &kinds.made {
            self.with_made(&mut table, of);
        }
        Ok(table)
    }

    fn stage_models(&self, stage: &Stage, later: &[Member], out: &mut Vec<usize>) {
        let (times, plain): (Vec<_>, Vec<_>) = stage.groups.iter().partition(|g| g.grain.is_some());
        for g in &plain {
            self.of_dim(&g.of, out);
        }
        stage.segments.iter().for_each(|s| self.of_segment(s, out));
        stage.filters.iter().for_each(|f| self.of_filter(f, out));
        for of in later {
            self.of_measure(of, out);
        }
        for g in &times {
            self.of_dim(&g.of, out);
        }
        stage.ranges.iter().for_each(|(model, _)| self.of_dim(&(*model, "at".to_owned()), out));
    }

    /// One tree for all measures; where there is none, one for those of each model.
    fn trees(
        &self,
        stage: &Stage,
        measures: &[Member],
        later: &[Member],
        kinds: &Kinds,
    ) -> Found<Vec<(Tree, Vec<Member>)>> {
        let mut order = Vec::new();
        for of in measures {
            self.of_measure(of, &mut order);
        }
        self.stage_models(stage, later, &mut order);
        if order.is_empty() {
            // Of an inner query that has no groups and no measures of rows.
            return Ok(Vec::new());
        }
        if let Some(tree) = Tree::of(self.world, &order) {
            return Ok(vec![(tree, kinds.rows.clone())]);
        }
        if kinds.rows.is_empty() && !(measures.is_empty() && later.is_empty()) {
            return Err(Refusal::Unclear);
        }
        let mut parts: Vec<(usize, Vec<Member>)> = Vec::new();
        for of in &kinds.rows {
            match parts.iter_mut().find(|(model, _)| *model == of.0) {
                Some((_, list)) => list.push(of.clone()),
                None => parts.push((of.0, vec![of.clone()])),
            }
        }
        if parts.len() < 2 {
            return Err(Refusal::NoPath);
        }
        let mut found = Vec::new();
        for (_, list) in parts {
            let mut order = Vec::new();
            for of in &list {
                self.of_measure(of, &mut order);
            }
            self.stage_models(stage, &[], &mut order);
            found.push((Tree::of(self.world, &order).ok_or(Refusal::NoPath)?, list));
        }
        Ok(found)
    }

    /// Rows of a tree that satisfy all conditions, but for those on the time of the model `free`.
    pub(crate) fn rows(&self, stage: &Stage, tree: &Tree, free: Option<usize>) -> Found<Vec<Row>> {
        // Whether sub-queries have a tree does not depend on rows.
        let nothing = vec![None; self.world.models.len()];
        let leaves = stage.filters.iter().flat_map(Cond::leaves).filter_map(|leaf| match leaf {
            Cond::Leaf { of, is_measure: false, .. } => Some(of),
            _ => None,
        });
        for of in leaves.chain(stage.groups.iter().map(|g| &g.of)) {
            self.dim(stage, of, &nothing)?;
        }
        let mut kept = Vec::new();
        'rows: for row in self.joined(tree) {
            for (model, range) in stage.ranges.iter().filter(|(model, _)| Some(*model) != free) {
                let (start, end) = Self::moved(stage, *range);
                let Val::Time(at) = self.dim(stage, &(*model, "at".to_owned()), &row)? else { continue 'rows };
                if at < first_instant(self.tz, start) || at >= end_instant(self.tz, end) {
                    continue 'rows;
                }
            }
            for filter in &stage.filters {
                if !self.row_holds(stage, tree, filter, &row)? {
                    continue 'rows;
                }
            }
            for (model, name) in &stage.segments {
                let (_, ex) = self.world.models[*model].segments.iter().find(|(n, _)| n == name).unwrap();
                if self.ex(stage, ex, &row)? != Val::Bool(true) {
                    continue 'rows;
                }
            }
            kept.push(row);
        }
        Ok(kept)
    }

    /// A range where the rows of a shifted query lie.
    fn moved(stage: &Stage, (start, end): Range) -> Range {
        let back = |at| stage.shift.map_or(at, |shift| shift.negated().move_wall(at));
        (back(start), back(end))
    }

    pub(crate) fn ex(&self, stage: &Stage, ex: &Ex, row: &Row) -> Found<Val> {
        let column = |model: usize, name: &str| self.column(model, name, row);
        let mut refused = None;
        let mut member = |model: usize, name: &str| {
            self.dim(stage, &(model, name.to_owned()), row).map_err(|e| {
                refused = Some(e);
                String::new()
            })
        };
        let value = ex.value(&column, &mut member);
        value.map_err(|_| refused.unwrap())
    }

    /// The value of a dimension in a row.
    pub(crate) fn dim(&self, stage: &Stage, of: &Member, row: &Row) -> Found<Val> {
        let dim = self.world.dim(of.0, &of.1);
        let Some(sub) = &dim.sub else { return self.ex(stage, &dim.ex, row) };
        let model = &self.world.models[of.0];
        let group = |name: &&str| Group { name: (*name).to_owned(), of: (of.0, (*name).to_owned()), grain: None };
        // What is made of such values enters none.
        let waits = |leaf: &Member| matches!(leaf.1.as_str(), "sub" | "subSum");
        let inner = Stage {
            groups: model.key.iter().map(group).collect(),
            filters: if sub.with_filters { without(&stage.filters, &waits) } else { Vec::new() },
            segments: if sub.with_filters { stage.segments.clone() } else { Vec::new() },
            ranges: match stage.ranges.first().filter(|_| sub.with_range) {
                Some((_, range)) => vec![(sub.measure.0, Self::moved(stage, *range))],
                None if sub.with_filters && !sub.with_range => {
                    stage.ranges.iter().map(|(model, range)| (*model, Self::moved(stage, *range))).collect()
                }
                None => Vec::new(),
            },
            ..Stage::default()
        };
        let table = self.stage(&inner, std::slice::from_ref(&sub.measure), &[])?;
        let wanted: Vec<Val> = model.key.iter().map(|name| self.column(of.0, name, row)).collect();
        // Part by part, NULL equal to NULL; what has no first part is nothing's.
        let has_first = |group: &[Val]| group.first().is_some_and(|first| !first.is_null());
        let found = table.rows.iter().find(|(group, _)| *group == wanted && has_first(group));
        Ok(found.map_or(Val::Null, |(_, values)| values[&sub.measure].clone()))
    }

    /// What a row is grouped by.
    pub(crate) fn group(&self, stage: &Stage, group: &Group, row: &Row) -> Found<Val> {
        let Val::Time(at) = self.dim(stage, &group.of, row)? else { return self.dim(stage, &group.of, row) };
        let at = wall(self.tz, at);
        let at = stage.shift.map_or(at, |shift| shift.move_wall(at));
        Ok(Val::Wall(group.grain.map_or(at, |grain| bucket(grain, at).0)))
    }

    fn row_holds(&self, stage: &Stage, tree: &Tree, filter: &Cond, row: &Row) -> Found<bool> {
        let each = |inner: &[Cond]| -> Found<Vec<bool>> {
            inner.iter().map(|c| self.row_holds(stage, tree, c, row)).collect()
        };
        match filter {
            Cond::All(inner) => Ok(each(inner)?.into_iter().all(|is| is)),
            Cond::Any(inner) => Ok(each(inner)?.into_iter().any(|is| is)),
            Cond::Leaf { of, is_measure: true, .. } => {
                let Body::Rows { agg, arg, filters, .. } = &self.world.measure(of).body else { unreachable!() };
                let is_there = of.0 == tree.root || row[of.0].is_some();
                let counted = match arg {
                    Some(arg) if *agg == Agg::Count => !self.ex(stage, arg, row)?.is_null(),
                    _ => true,
                };
                Ok(is_there && counted && self.counted(stage, filters, row)?)
            }
            Cond::Leaf { of, op, values, .. } => {
                let value = match (self.dim(stage, of, row)?, stage.shift) {
                    (Val::Time(at), Some(shift)) => {
                        Val::Time(first_instant(self.tz, shift.move_wall(wall(self.tz, at))))
                    }
                    (value, _) => value,
                };
                Ok(holds(op, values, &value, self.tz))
            }
        }
    }

    fn counted(&self, stage: &Stage, filters: &[Ex], row: &Row) -> Found<bool> {
        for filter in filters {
            if self.ex(stage, filter, row)? != Val::Bool(true) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(crate) fn grouped(&self, stage: &Stage, rows: Vec<Row>) -> Found<Groups> {
        let mut groups = Groups::new();
        for row in rows {
            let values = stage.groups.iter().map(|g| self.group(stage, g, &row)).collect::<Found<Vec<_>>>()?;
            groups.entry(key(&values)).or_insert((values, Vec::new())).1.push(row);
        }
        Ok(groups)
    }

    /// Aggregates over the rows of one tree.
    fn part(&self, stage: &Stage, tree: &Tree, list: &[Member], table: &mut Table) -> Found<()> {
        let window = |of: &Member| match &self.world.measure(of).body {
            Body::Rows { window, .. } => window.clone(),
            _ => None,
        };
        let plain: Vec<&Member> = list.iter().filter(|of| window(of).is_none()).collect();
        if list.is_empty() || !plain.is_empty() {
            for (values, rows) in self.grouped(stage, self.rows(stage, tree, None)?)?.into_values() {
                let row = table.row(&values);
                for of in &plain {
                    row.insert((*of).clone(), self.aggregate(stage, tree, of, &rows)?);
                }
            }
        }
        for of in list {
            let Some(window) = window(of) else { continue };
            for (values, rows) in self.windowed(stage, tree, &window)?.into_values() {
                let value = self.aggregate(stage, tree, of, &rows)?;
                table.row(&values).insert(of.clone(), value);
            }
        }
        Ok(())
    }

    /// An aggregate over the different rows of its model.
    fn aggregate(&self, stage: &Stage, tree: &Tree, of: &Member, rows: &[Row]) -> Found<Val> {
        self.is_clear(tree, of)?;
        let Body::Rows { agg, arg, filters, .. } = &self.world.measure(of).body else { unreachable!() };
        let mut seen = HashSet::new();
        let mut values = Vec::new();
        for row in rows {
            if row[of.0].is_some_and(|i| seen.insert(i)) && self.counted(stage, filters, row)? {
                values.push(arg.as_ref().map_or(Ok(Val::Int(1)), |arg| self.ex(stage, arg, row))?);
            }
        }
        values.retain(|v| !v.is_null());
        Ok(fold(*agg, values))
    }

    fn with_inner(&self, stage: &Stage, table: &mut Table, of: &Member) -> Found<()> {
        let mut inner = stage.clone();
        let (over, agg) = match &self.world.measure(of).body {
            Body::Shifted { over, by } => {
                inner.shift = Some(*by);
                (over, None)
            }
            Body::Inner { over, agg, keep, less, more } => {
                let is_own = |g: &Group, list: &[&str]| g.of.0 == of.0 && list.contains(&g.of.1.as_str());
                inner.groups.retain(|g| keep.as_ref().is_none_or(|keep| is_own(g, keep)) && !is_own(g, less));
                for name in more {
                    if !inner.groups.iter().any(|g| is_own(g, &[name])) {
                        let (name, of) = (self.world.full(of.0, name), (of.0, (*name).to_owned()));
                        inner.groups.push(Group { name, of, grain: None });
                    }
                }
                (over, *agg)
            }
            _ => unreachable!(),
        };
        let over = (of.0, over.clone());
        let result = self.stage(&inner, std::slice::from_ref(&over), &[])?;
        let shared: Vec<(usize, usize)> = (0..stage.groups.len())
            .filter_map(|i| Some((i, inner.groups.iter().position(|g| g.name == stage.groups[i].name)?)))
            .collect();
        for (group, values) in &mut table.rows {
            let meets = |row: &&(Vec<Val>, BTreeMap<Member, Val>)| shared.iter().all(|(i, k)| group[*i] == row.0[*k]);
            let found: Vec<Val> = result.rows.iter().filter(meets).map(|(_, values)| values[&over].clone()).collect();
            let value = match agg {
                Some(agg) => fold(agg, found.into_iter().filter(|v| !v.is_null()).collect()),
                None => found.into_iter().next().unwrap_or(Val::Null),
            };
            values.insert(of.clone(), value);
        }
        Ok(())
    }

    fn with_rank(&self, stage: &Stage, table: &mut Table, of: &Member) {
        let Body::Rank { over, descends, less } = &self.world.measure(of).body else { unreachable!() };
        let over = (of.0, over.clone());
        let kept: Vec<usize> = (0..stage.groups.len())
            .filter(|i| {
                let (model, name) = &stage.groups[*i].of;
                *model != of.0 || !less.contains(&name.as_str())
            })
            .collect();
        let all: Vec<(Vec<Val>, Val)> = table
            .rows
            .iter()
            .map(|(group, values)| (kept.iter().map(|i| group[*i].clone()).collect(), values[&over].clone()))
            .collect();
        for (i, (_, values)) in table.rows.iter_mut().enumerate() {
            let before = all.iter().filter(|other| other.0 == all[i].0 && other.1.order(&all[i].1, *descends).is_lt());
            values.insert(of.clone(), Val::Int(before.count() as i64 + 1));
        }
    }

    fn with_made(&self, table: &mut Table, of: &Member) {
        for (_, values) in &mut table.rows {
            let of_name = |name: &String| values[&(of.0, name.clone())].number();
            let value = match &self.world.measure(of).body {
                Body::Ratio(a, b) => {
                    let both = of_name(a).zip(of_name(b).filter(|b| *b != 0.0));
                    both.map_or(Val::Null, |(a, b)| Val::Num(a / b))
                }
                Body::Sum(a, b) => match of_name(a).zip(of_name(b)) {
                    Some((a, b)) => Val::Int((a + b) as i64),
                    None => Val::Null,
                },
                _ => unreachable!(),
            };
            values.insert(of.clone(), value);
        }
    }
}

/// Conditions without those on some members; a choice that lacks a branch would keep less, so it goes as a whole.
fn without(filters: &[Cond], gone: &dyn Fn(&Member) -> bool) -> Vec<Cond> {
    let one = |filter: &Cond| match filter {
        Cond::All(inner) => Some(Cond::All(without(inner, gone))),
        Cond::Any(inner) => (without(inner, gone).len() == inner.len()).then(|| Cond::Any(without(inner, gone))),
        Cond::Leaf { of, .. } => (!gone(of)).then(|| filter.clone()),
    };
    filters.iter().filter_map(one).collect()
}

/// An aggregate over values that are not NULL.
fn fold(agg: Agg, values: Vec<Val>) -> Val {
    let count = values.len() as i64;
    match agg {
        Agg::Count => Val::Int(count),
        Agg::Distinct => {
            Val::Int(values.iter().map(|v| key(std::slice::from_ref(v))).collect::<HashSet<_>>().len() as i64)
        }
        Agg::Min => values.into_iter().min_by(Val::compare).unwrap_or(Val::Null),
        Agg::Max => values.into_iter().max_by(Val::compare).unwrap_or(Val::Null),
        _ if count == 0 => Val::Null,
        Agg::Avg => Val::Num(values.iter().filter_map(Val::number).sum::<f64>() / count as f64),
        Agg::Sum => {
            let whole: Option<Vec<i64>> =
                values.iter().map(|v| if let Val::Int(n) = v { Some(*n) } else { None }).collect();
            match whole {
                Some(whole) => Val::Int(whole.into_iter().sum()),
                None => Val::Num(values.iter().filter_map(Val::number).sum()),
            }
        }
    }
}
