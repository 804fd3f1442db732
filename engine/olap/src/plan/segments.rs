//! Segments over measures: they keep rows whose key, or members in `by`, have a measure value over the query's range
//! that satisfies the condition. Only the range and the row filter apply to that value (`olap-api.md` 10).

use datafusion::common::{Column, JoinType, NullEquality, TableReference};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};

use super::expressions::ModelText;
use super::ranges::time_of;
use super::results::measure_column;
use super::{Group, Planner, Stage, column};
use crate::error::OlapResult;
use crate::model::catalog::MemberKind;
use crate::model::{MemberId, Model, Segment, Template};

impl Planner<'_> {
    /// The measures that a segment refers to; `None` if it is a condition on rows.
    pub(super) fn measures_of<'m>(&'m self, id: &MemberId) -> Option<(&'m Model, &'m Segment, Vec<MemberId>)> {
        let found = self.catalog.find(id)?;
        let MemberKind::Segment(segment) = found.kind else { return None };
        let named = Template::members(&segment.sql);
        let measures: Vec<MemberId> = named.filter(|id| self.measure(id).is_ok()).cloned().collect();
        (!measures.is_empty()).then_some((found.model, segment, measures))
    }

    /// Keeps the rows that satisfy such a segment.
    pub(super) fn kept_by(&self, stage: &Stage, plan: LogicalPlan, id: &MemberId) -> OlapResult<LogicalPlan> {
        let Some((model, segment, measures)) = self.measures_of(id) else { return Ok(plan) };
        let name = &model.common.name;
        let key = || model.key().map(|d| MemberId::new(name, &d.common.name)).collect();
        let members: Vec<MemberId> = if segment.by.is_empty() { key() } else { segment.by.clone() };
        let groups =
            members.iter().map(|id| Group { column: format!("__key.{id}"), member: id.clone(), buckets: None });
        let own = stage.ranges.iter().find(|(of, _)| of.model == *name).cloned();
        let moved = || Some((time_of(model)?.0, stage.ranges.first()?.1));
        let inner = Stage {
            groups: groups.collect(),
            ranges: own.or_else(moved).into_iter().collect(),
            filters: Vec::new(),
            segments: Vec::new(),
            shifts: stage.shifts.clone(),
            hints: Vec::new(),
            later: Vec::new(),
            tz: stage.tz,
            now_ns: stage.now_ns,
        };
        let measured = self.stage(&inner, &measures)?;
        let condition =
            self.text(&inner, ModelText::over_groups(name, &segment.sql), 0, &mut |id| measure_column(&measured, id))?;
        let alias = TableReference::bare(format!("{name}__{}", segment.common.name));
        let out = inner.groups.iter().map(|g| column(g.column.clone()));
        let kept = LogicalPlanBuilder::from(measured).filter(condition)?.project(out)?.alias(alias.clone())?.build()?;
        let out: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        let mut with_keys = out.clone();
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for (i, group) in inner.groups.iter().enumerate() {
            let key = format!("__segment_key_{i}");
            with_keys.push(self.dimension(stage, &group.member)?.alias(key.clone()));
            left.push(Column::new_unqualified(key));
            right.push(Column::new(Some(alias.clone()), group.column.clone()));
        }
        let rows = LogicalPlanBuilder::from(plan).project(with_keys)?.build()?;
        let joined = LogicalPlanBuilder::from(rows).join_detailed(
            kept,
            JoinType::Inner,
            (left, right),
            None,
            NullEquality::NullEqualsNull,
        )?;
        Ok(joined.project(out)?.build()?)
    }
}
