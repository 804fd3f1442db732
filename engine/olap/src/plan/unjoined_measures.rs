//! Measures of other models that a measure reads without a join (`apart: true`, `olap-api.md` 11.4). They are
//! computed over the same range and buckets of the other model's own time, with the dimensions and filters that name
//! the service or application in both models.

use datafusion::logical_expr::LogicalPlan;

use super::ranges::time_of;
use super::results::left_join;
use super::{Group, Planner, Stage};
use crate::error::OlapResult;
use crate::model::{MemberId, Model};
use crate::query::filter::{Filter, Leaf};

/// Members that two models may share.
const SHARED: [&str; 2] = ["service", "application"];

/// Measures of one other model.
#[derive(Debug)]
pub(super) struct UnjoinedMeasures {
    /// The model whose measure reads them.
    own: String,
    /// Measures of one model.
    measures: Vec<MemberId>,
}

impl UnjoinedMeasures {
    /// Adds a measure to the others of its model.
    pub(super) fn add(all: &mut Vec<Self>, own: &str, measure: MemberId) {
        let is_same = |apart: &&mut Self| apart.own == own && apart.measures.iter().any(|m| m.model == measure.model);
        match all.iter_mut().find(is_same) {
            Some(apart) if apart.measures.contains(&measure) => {}
            Some(apart) => apart.measures.push(measure),
            None => all.push(Self { own: own.to_owned(), measures: vec![measure] }),
        }
    }
}

impl Planner<'_> {
    /// Joins measures of another model by the shared groups.
    pub(super) fn with_apart(
        &self,
        stage: &Stage,
        mut plan: LogicalPlan,
        apart: &UnjoinedMeasures,
    ) -> OlapResult<LogicalPlan> {
        let Some(first) = apart.measures.first() else { return Ok(plan) };
        let inner = inner_stage(stage, self.catalog.model(&apart.own), self.catalog.model(&first.model));
        let shared: Vec<&Group> = inner.groups.iter().collect();
        for id in &apart.measures {
            let result = self.stage(&inner, std::slice::from_ref(id))?;
            plan = left_join(plan, result, &shared, id)?;
        }
        Ok(plan)
    }
}

/// The stage for another model: what it shares with the reading model.
fn inner_stage(stage: &Stage, own: &Model, other: &Model) -> Stage {
    let time = time_of(other).map(|(time, _)| time);
    let shared = |member: &MemberId| {
        let is_shared = member.model == own.common.name && SHARED.contains(&member.member.as_str());
        let same = MemberId::new(&other.common.name, &member.member);
        (is_shared && other.dimension(&member.member).is_some()).then_some(same)
    };
    let group = |group: &Group| {
        let member = match group.buckets {
            Some(_) => time.clone(),
            None => shared(&group.member),
        };
        Some(Group { member: member?, ..group.clone() })
    };
    let range = stage.ranges.first().zip(time.clone()).map(|((_, range), time)| (time, *range));
    let shifts = stage.shifts.iter().map(|(_, shift)| (None, *shift)).collect();
    Stage {
        groups: stage.groups.iter().filter_map(group).collect(),
        filters: stage.filters.iter().filter_map(|f| filter(f, &shared)).collect(),
        segments: Vec::new(),
        ranges: range.into_iter().collect(),
        shifts,
        hints: Vec::new(),
        later: Vec::new(),
        tz: stage.tz,
        now_ns: stage.now_ns,
    }
}

/// The part of a filter that uses only shared members.
fn filter(of: &Filter, shared: &dyn Fn(&MemberId) -> Option<MemberId>) -> Option<Filter> {
    match of {
        Filter::And(inner) => {
            let kept: Vec<Filter> = inner.iter().filter_map(|f| filter(f, shared)).collect();
            (!kept.is_empty()).then_some(Filter::And(kept))
        }
        // An OR without one of its branches would exclude rows, so it is dropped as a whole.
        Filter::Or(inner) => {
            let branches = inner.iter().filter(|f| !f.leaves().is_empty());
            branches.map(|f| filter(f, shared)).collect::<Option<Vec<_>>>().map(Filter::Or)
        }
        Filter::Leaf(leaf) => Some(Filter::Leaf(Leaf { member: shared(&leaf.member)?, ..leaf.clone() })),
    }
}
