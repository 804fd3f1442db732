//! Stages: measures over rows, and those computed from their results (`olap-api.md` 11.4).

use chrono_tz::Tz;
use datafusion::common::tree_node::TreeNode;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    Expr, ExprFunctionExt, ExprSchemable, LogicalPlan, LogicalPlanBuilder, WindowFunctionDefinition, cast,
};

use super::expressions::ModelText;
use super::fan_out::{GroupedRows, Leaf, aggregated, with_digits};
use super::ranges::time_of;
use super::results::{full_join, left_join, measure_column};
use super::unjoined_measures::UnjoinedMeasures;
use super::{Group, Planner, Stage, Tree, column, model_error};
use crate::dates::granularity::{Buckets, Interval, nests};
use crate::dates::range::WallRange;
use crate::error::{OlapError, OlapResult, Reason};
use crate::functions::{WallBucket, instant_type};
use crate::model::catalog::MemberKind;
use crate::model::{AddedGroup, Measure, MeasureType, MemberId, RollingWindow, TimeShift};

/// An empty range in the distant past.
const BEFORE_ALL: WallRange = WallRange { start_ns: i64::MIN / 2, end_ns: i64::MIN / 2 };

/// A plan of groups, and the measures that it has.
type StagePlan = (LogicalPlan, Vec<Leaf>);

/// The deepest nesting of stages.
const DEPTH_MAX: usize = 32;

/// The measures of a stage by kind of computation.
#[derive(Default)]
struct Kinds {
    /// Aggregates over rows.
    leaves: Vec<MemberId>,
    /// Aggregates over rolling windows.
    rolling: Vec<(RollingWindow, Vec<MemberId>)>,
    /// Results of inner stages.
    inner: Vec<MemberId>,
    /// Measures of other models, from separate queries.
    apart: Vec<UnjoinedMeasures>,
    /// Ranks among the groups.
    ranks: Vec<MemberId>,
    /// Expressions over other measures, in order of dependency.
    composites: Vec<MemberId>,
}

impl Planner<'_> {
    /// Plans measures by groups: a named column for each group and each measure.
    pub(crate) fn stage(&self, stage: &Stage, measures: &[MemberId]) -> OlapResult<LogicalPlan> {
        let mut kinds = Kinds::default();
        for id in measures.iter().chain(&stage.later) {
            self.sort_out(id, &mut kinds, 0)?;
        }
        let mut plan = self.base(stage, measures, &kinds)?;
        for id in &kinds.inner {
            plan = self.with_inner(stage, plan, id)?;
        }
        for apart in &kinds.apart {
            plan = self.with_apart(stage, plan, apart)?;
        }
        for id in &kinds.ranks {
            plan = self.with_rank(stage, plan, id)?;
        }
        for id in &kinds.composites {
            plan = self.with_composite(stage, plan, id)?;
        }
        Ok(plan)
    }

    fn sort_out(&self, id: &MemberId, kinds: &mut Kinds, depth: usize) -> OlapResult<()> {
        if depth > DEPTH_MAX {
            return Err(model_error(format!("measure `{id}` stands {DEPTH_MAX} measures deep")));
        }
        let (_, measure) = self.measure(id)?;
        self.is_of_rows(id, measure)?;
        let push = |list: &mut Vec<MemberId>| {
            if !list.contains(id) {
                list.push(id.clone());
            }
        };
        if measure.apart {
            if !self.is_composite(measure) {
                return Err(model_error(format!("measure `{id}` is `apart`, and is no expression over measures")));
            }
            for named in self.named_measures(measure) {
                if named.model == id.model {
                    self.sort_out(&named, kinds, depth + 1)?;
                } else {
                    UnjoinedMeasures::add(&mut kinds.apart, &id.model, named);
                }
            }
            push(&mut kinds.composites);
        } else if measure.ty == MeasureType::Rank {
            for (template, _) in &measure.order_by {
                template.members().try_for_each(|m| self.sort_out(m, kinds, depth + 1))?;
            }
            push(&mut kinds.ranks);
        } else if measure.multi_stage && is_inner(measure) {
            push(&mut kinds.inner);
        } else if self.is_composite(measure) {
            let named: Vec<MemberId> = self.named_measures(measure);
            named.iter().try_for_each(|m| self.sort_out(m, kinds, depth + 1))?;
            push(&mut kinds.composites);
        } else if let Some(window) = &measure.rolling_window {
            match kinds.rolling.iter_mut().find(|(w, _)| w == window) {
                Some((_, list)) => push(list),
                None => kinds.rolling.push((window.clone(), vec![id.clone()])),
            }
        } else {
            push(&mut kinds.leaves);
        }
        Ok(())
    }

    /// Refuses row-level settings in a measure that is computed from others.
    fn is_of_rows(&self, id: &MemberId, measure: &Measure) -> OlapResult<()> {
        let what = match (&measure.rolling_window, measure.filters.is_empty()) {
            (Some(_), _) => "`rolling_window`",
            (None, false) => "`filters`",
            (None, true) => return Ok(()),
        };
        let is_inner = measure.ty == MeasureType::Rank || measure.multi_stage && is_inner(measure);
        if !is_inner && !measure.apart && !self.is_composite(measure) {
            return Ok(());
        }
        let text = format!("measure `{id}` is made of other measures, and {what} goes over rows: give it to these");
        Err(model_error(text))
    }

    fn named_measures(&self, measure: &Measure) -> Vec<MemberId> {
        let members = measure.sql.iter().flat_map(crate::model::Template::members);
        members.filter(|id| self.measure(id).is_ok()).cloned().collect()
    }

    /// Whether a measure is an expression over other measures, without an aggregate of its own.
    fn is_composite(&self, measure: &Measure) -> bool {
        measure.ty.is_expression()
            && !self.named_measures(measure).is_empty()
            && !has_own_aggregate(measure, self.state)
    }

    /// Joins aggregates over rows and over rolling windows by their groups, with full joins.
    fn base(&self, stage: &Stage, measures: &[MemberId], kinds: &Kinds) -> OlapResult<LogicalPlan> {
        let mut parts = self.base_parts(stage, measures, kinds)?.into_iter();
        let Some((mut plan, first)) = parts.next() else {
            return Ok(LogicalPlanBuilder::empty(true).build()?);
        };
        let mut leaves = first;
        for (right, more) in parts {
            plan = full_join(stage, plan, &leaves, right, &more)?;
            leaves.extend(more);
        }
        Ok(plan)
    }

    /// Uses one tree for all measures; if there is none, each model's measures have a tree of their own.
    fn base_parts(&self, stage: &Stage, measures: &[MemberId], kinds: &Kinds) -> OlapResult<Vec<StagePlan>> {
        let is_of_rows = !kinds.leaves.is_empty() || !kinds.rolling.is_empty();
        if !is_of_rows && stage.groups.is_empty() {
            // A single row, for what is computed from inner results.
            return Ok(Vec::new());
        }
        let tree = match self.tree(stage, measures) {
            Ok(tree) => tree,
            Err(OlapError::Query(e)) if e.reason == Reason::NoJoinPath => {
                if !is_of_rows {
                    return Ok(vec![self.groups_only(stage, &self.tree(stage, &[])?)?]);
                }
                let apart = self.parts_of_models(stage, kinds);
                return apart.and_then(|parts| parts.ok_or(OlapError::Query(e)));
            }
            Err(e) => return Err(e),
        };
        if is_of_rows { self.parts_of_tree(stage, &tree, kinds) } else { Ok(vec![self.groups_only(stage, &tree)?]) }
    }

    fn parts_of_tree(&self, stage: &Stage, tree: &Tree, kinds: &Kinds) -> OlapResult<Vec<StagePlan>> {
        let mut parts = Vec::new();
        if !kinds.leaves.is_empty() {
            let (of_records, others) = self.measures_of_records(tree, &kinds.leaves)?;
            for (model, measures) in &of_records {
                parts.push(self.over_records(stage, tree, model, measures)?);
            }
            for (tree, measures) in self.own_trees(stage, tree, &others)? {
                let rows = self.rows(stage, &tree, &measures, &[])?;
                let input = GroupedRows { rows, groups: self.group_exprs(stage)?, there: None };
                parts.extend(self.parts(stage, input, &tree, &measures)?);
            }
        }
        for (window, measures) in &kinds.rolling {
            parts.extend(self.windowed(stage, tree, window, measures)?);
        }
        Ok(parts)
    }

    /// A tree for each model's measures, if each reaches all dimensions and filters; `None` if there is only one
    /// model, or one does not reach all.
    fn parts_of_models(&self, stage: &Stage, kinds: &Kinds) -> OlapResult<Option<Vec<StagePlan>>> {
        let rolling = kinds.rolling.iter().flat_map(|(_, measures)| measures);
        let mut models: Vec<&str> = Vec::new();
        for id in kinds.leaves.iter().chain(rolling) {
            if !models.contains(&id.model.as_str()) {
                models.push(&id.model);
            }
        }
        if models.len() == 1 {
            return Ok(None);
        }
        let stage = Stage { later: Vec::new(), ..stage.clone() };
        let mut parts = Vec::new();
        for model in models {
            let own = |list: &[MemberId]| list.iter().filter(|id| id.model == model).cloned().collect::<Vec<_>>();
            let rolling = kinds.rolling.iter().map(|(window, list)| (window.clone(), own(list)));
            let rolling = rolling.filter(|(_, list)| !list.is_empty()).collect();
            let kinds = Kinds { leaves: own(&kinds.leaves), rolling, ..Kinds::default() };
            let all: Vec<MemberId> =
                kinds.leaves.iter().chain(kinds.rolling.iter().flat_map(|(_, list)| list)).cloned().collect();
            match self.tree(&stage, &all) {
                Ok(tree) => parts.extend(self.parts_of_tree(&stage, &tree, &kinds)?),
                Err(OlapError::Query(e)) if e.reason == Reason::NoJoinPath => return Ok(None),
                Err(e) => return Err(e),
            }
        }
        Ok(Some(parts))
    }

    /// The groups alone, without measures.
    fn groups_only(&self, stage: &Stage, tree: &Tree) -> OlapResult<StagePlan> {
        let is_of_records = |g: &&Group| g.buckets.is_some() && self.catalog.model(&g.member.model).entities;
        let bucketed = stage.groups.iter().find(is_of_records).map(|group| group.member.model.as_str());
        let is_whole = |root: &&str| self.catalog.model(root).entities && !tree.is_multiplied(self.catalog, root);
        let of_records = bucketed.or_else(|| Some(tree.root.as_str()).filter(is_whole));
        if let Some(model) = of_records.filter(|_| !tree.edges.is_empty()) {
            return self.over_records(stage, tree, model, &[]);
        }
        let rows = self.rows(stage, tree, &[], &[])?;
        Ok((aggregated(rows, self.group_exprs(stage)?, &[])?, Vec::new()))
    }

    /// Joins the result of an inner stage by the shared groups.
    fn with_inner(&self, stage: &Stage, plan: LogicalPlan, id: &MemberId) -> OlapResult<LogicalPlan> {
        let (_, measure) = self.measure(id)?;
        let inner = self.inner_stage(stage, measure);
        let named = self.named_measures(measure);
        if named.is_empty() {
            return Err(model_error(format!("multi-stage measure `{id}` names no measure")));
        }
        let result = self.stage(&inner, &named)?;
        let longer = self.longer_buckets(stage, measure);
        let is_shared = |g: &&Group| stage.groups.iter().chain(&longer).any(|outer| outer.column == g.column);
        let shared: Vec<&Group> = inner.groups.iter().filter(is_shared).collect();
        let value = self.over_result(stage, &result, measure)?;
        let names: Vec<Expr> = shared.iter().map(|g| column(g.column.clone())).collect();
        let leaf = Leaf { id: id.clone(), expr: value, is_count: false };
        let is_aggregate = leaf.expr.exists(|e| Ok(matches!(e, Expr::AggregateFunction(_))))?;
        let result = if is_aggregate {
            aggregated(result, names, std::slice::from_ref(&leaf))?
        } else if shared.len() == inner.groups.len() {
            let out = names.into_iter().chain([leaf.expr.clone().alias(id.to_string())]);
            LogicalPlanBuilder::from(result).project(out)?.build()?
        } else {
            return Err(model_error(format!(
                "measure `{id}` has more rows inside than outside, and no aggregate over them"
            )));
        };
        let mut columns: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        let plan = Self::with_buckets(stage, plan, &longer)?;
        let joined = left_join(plan, result, &shared, id)?;
        if longer.is_empty() {
            return Ok(joined);
        }
        columns.push(column(id.to_string()));
        Ok(LogicalPlanBuilder::from(joined).project(columns)?.build()?)
    }

    /// Groups of an inner stage with longer buckets than the query's, each of which consists of whole ones of these.
    fn longer_buckets(&self, stage: &Stage, measure: &Measure) -> Vec<Group> {
        let mut longer: Vec<Group> = Vec::new();
        for kept in measure.group_by.iter().flatten() {
            let Some(buckets) = self.buckets(kept) else { continue };
            let name = kept.to_string();
            let is_there = stage.groups.iter().chain(&longer).any(|g| g.column == name);
            if !is_there && stage.groups.iter().any(|g| is_within(g, &kept.member, &buckets)) {
                longer.push(Group { column: name, member: kept.member.clone(), buckets: Some(buckets) });
            }
        }
        longer
    }

    /// Adds the longer buckets that contain those of a result.
    fn with_buckets(stage: &Stage, plan: LogicalPlan, longer: &[Group]) -> OlapResult<LogicalPlan> {
        if longer.is_empty() {
            return Ok(plan);
        }
        let mut out: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        for group in longer {
            let Some(buckets) = group.buckets else { continue };
            let shorter = stage.groups.iter().find(|g| is_within(g, &group.member, &buckets));
            let shorter = shorter.ok_or_else(|| model_error(format!("`{}` has no buckets", group.column)))?;
            // Both are wall times, so no zone is involved.
            let wall = cast(column(shorter.column.clone()), instant_type());
            out.push(WallBucket::call(wall, Tz::UTC, Some(buckets), Interval::default()).alias(group.column.clone()));
        }
        Ok(LogicalPlanBuilder::from(plan).project(out)?.build()?)
    }

    /// The buckets of an added group, if it has a granularity.
    fn buckets(&self, added: &AddedGroup) -> Option<Buckets> {
        let name = added.granularity.as_ref()?;
        match self.catalog.find(&added.member)?.kind {
            MemberKind::Dimension(dimension) => dimension.granularity(name).map(|g| g.buckets),
            _ => None,
        }
    }

    fn inner_stage(&self, stage: &Stage, measure: &Measure) -> Stage {
        let mut inner = Stage { later: Vec::new(), ..stage.clone() };
        inner.groups.retain(|g| !g.is_for_order());
        if let Some(kept) = &measure.group_by {
            // Longer buckets replace those of the query that they consist of.
            let is_itself = |g: &Group, k: &AddedGroup| {
                k.member == g.member && self.buckets(k).is_none_or(|longer| !is_within(g, &k.member, &longer))
            };
            inner.groups.retain(|g| kept.iter().any(|k| is_itself(g, k)));
            inner.groups.extend(self.longer_buckets(stage, measure));
        }
        inner.groups.retain(|g| !measure.reduce_by.contains(&g.member));
        for added in &measure.add_group_by {
            let buckets = self.buckets(added);
            let is_same = |g: &Group| g.member == added.member && (buckets.is_none() || g.buckets == buckets);
            if !inner.groups.iter().any(is_same) {
                inner.groups.push(Group { column: added.to_string(), member: added.member.clone(), buckets });
            }
        }
        for shift in &measure.time_shift {
            let mut interval = shift.interval;
            if shift.ranges != 0 {
                let is_meant = |of: &MemberId| shift.time_dimension.as_ref().is_none_or(|meant| meant == of);
                match stage.ranges.iter().find(|(of, _)| is_meant(of)) {
                    Some((_, range)) => {
                        let length = range.end_ns.saturating_sub(range.start_ns);
                        interval.nanos = interval.nanos.saturating_add(length.saturating_mul(shift.ranges));
                    }
                    // A shift over all of the time has no counterpart, so its range is empty.
                    None => inner.ranges.extend(self.time_meant(measure, shift).map(|time| (time, BEFORE_ALL))),
                }
            }
            inner.shifts.push((shift.time_dimension.clone(), interval));
        }
        inner
    }

    /// The time dimension that a shift applies to in a query without a range.
    fn time_meant(&self, measure: &Measure, shift: &TimeShift) -> Option<MemberId> {
        let own = || self.catalog.models.values().find(|m| m.measures.iter().any(|n| std::ptr::eq(n, measure)));
        shift.time_dimension.clone().or_else(|| time_of(own()?).map(|(time, _)| time))
    }

    /// The expression of a multi-stage measure over the columns of an inner result.
    fn over_result(&self, stage: &Stage, result: &LogicalPlan, measure: &Measure) -> OlapResult<Expr> {
        let sql = measure.sql.as_ref().ok_or_else(|| model_error("a multi-stage measure needs `sql`"))?;
        let own = self.catalog.models.values().find(|m| m.measures.iter().any(|n| std::ptr::eq(n, measure)));
        let own = own.map(|m| m.common.name.clone()).unwrap_or_default();
        let expr = self.text(stage, ModelText::over_groups(&own, sql), 0, &mut |id| measure_column(result, id))?;
        let function = match measure.ty {
            MeasureType::Sum | MeasureType::RunningTotal => "sum",
            MeasureType::Avg => {
                let ty = expr.get_type(result.schema())?;
                return self.aggregate("avg", vec![with_digits(expr, &ty)]);
            }
            MeasureType::Min => "min",
            MeasureType::Max => "max",
            MeasureType::Count => "count",
            MeasureType::CountDistinct => return self.aggregate_where("count", vec![expr], true, None),
            MeasureType::CountDistinctApprox => "approx_distinct",
            _ => return Ok(expr),
        };
        self.aggregate(function, vec![expr])
    }

    fn with_rank(&self, stage: &Stage, plan: LogicalPlan, id: &MemberId) -> OlapResult<LogicalPlan> {
        let (model, measure) = self.measure(id)?;
        let partition: Vec<Expr> = stage
            .groups
            .iter()
            .filter(|g| !measure.reduce_by.contains(&g.member) && !g.is_for_order())
            .map(|g| column(g.column.clone()))
            .collect();
        let mut order = Vec::new();
        for (template, descends) in &measure.order_by {
            let expr = self.text(stage, ModelText::over_groups(&model.common.name, template), 0, &mut |m| {
                measure_column(&plan, m)
            })?;
            order.push(expr.sort(!descends, *descends));
        }
        let rank =
            self.state.window_functions().get("rank").ok_or_else(|| model_error("there is no function `rank`"))?;
        let call = WindowFunction::new(WindowFunctionDefinition::WindowUDF(std::sync::Arc::clone(rank)), Vec::new());
        let call = Expr::from(call).partition_by(partition).order_by(order).build()?;
        let out: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        let name = call.schema_name().to_string();
        let ranked = LogicalPlanBuilder::from(plan).window([call])?;
        Ok(ranked.project(out.into_iter().chain([column(name).alias(id.to_string())]))?.build()?)
    }

    fn with_composite(&self, stage: &Stage, plan: LogicalPlan, id: &MemberId) -> OlapResult<LogicalPlan> {
        let (model, measure) = self.measure(id)?;
        let sql = measure.sql.as_ref().ok_or_else(|| model_error(format!("measure `{id}` has no `sql`")))?;
        let expr =
            self.text(stage, ModelText::over_groups(&model.common.name, sql), 0, &mut |m| measure_column(&plan, m))?;
        let out: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        let out = out.into_iter().chain([expr.alias(id.to_string())]);
        Ok(LogicalPlanBuilder::from(plan).project(out)?.build()?)
    }
}

/// Whether a group's buckets fill longer buckets of a dimension.
fn is_within(group: &Group, member: &MemberId, longer: &Buckets) -> bool {
    let is_shorter = group.buckets.is_none_or(|own| own != *longer && nests(longer, &own));
    group.member == *member && !group.is_for_order() && is_shorter
}

/// Whether a multi-stage measure has an inner query of its own.
fn is_inner(measure: &Measure) -> bool {
    let moved = measure.group_by.is_some() || !measure.reduce_by.is_empty() || !measure.add_group_by.is_empty();
    let aggregates = measure.ty == MeasureType::NumberAgg || !measure.ty.is_expression();
    moved || !measure.time_shift.is_empty() || aggregates
}

/// Whether the text of a measure itself calls an aggregate, apart from measures that it refers to.
pub(crate) fn has_own_aggregate(measure: &Measure, state: &SessionState) -> bool {
    let text = measure.sql.iter().flat_map(|t| &t.pieces);
    let texts = text.filter_map(|p| if let crate::model::Piece::Text(t) = p { Some(t.to_lowercase()) } else { None });
    texts.into_iter().any(|text| {
        // Finds the words before parentheses.
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '(');
        let called = |word: &str| {
            let mut names: Vec<&str> = word.split('(').collect();
            names.pop();
            names.into_iter().any(|name| state.aggregate_functions().contains_key(name))
        };
        words.into_iter().any(called)
    })
}
