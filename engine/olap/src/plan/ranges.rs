//! `range_start()`, `range_end()` and `range_seconds()` in SQL texts of models: the bounds of a query's range, which
//! is that of its first time dimension, or those of a bucket within the range (`olap-models.md` 3.1).
//!
//! Without a range it extends from the first row that the caller may see to the time of the query. Texts over single
//! rows, and what aggregates go over, use 1970 instead of the first row: they compare rows with it, and no row is
//! earlier.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, cast, lit, scalar_subquery};

use super::filters::instant;
use super::{Group, Planner, Stage, column, model_error};
use crate::dates::SECOND_NS;
use crate::dates::granularity::Interval;
use crate::dates::zone::{Edge, utc_ns};
use crate::error::{OlapError, OlapResult};
use crate::functions::{WallBucket, WallEdge};
use crate::model::{DimensionType, MemberId, Model};

/// What a text is evaluated over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EvaluationInput {
    /// Rows of models.
    Rows,
    /// Columns of a grouped result.
    Groups,
    /// Rows within aggregates, columns of the grouped result outside of them.
    Aggregates,
}

/// The calls, and the columns that replace them while a text is planned.
pub(super) const CALLS: [(&str, &str); 3] =
    [("range_start()", "__range_start"), ("range_end()", "__range_end"), ("range_seconds()", "__range_seconds")];

/// Replaces calls by columns.
pub(super) fn named(text: &str) -> String {
    CALLS.iter().fold(text.to_owned(), |text, (call, name)| text.replace(call, &format!("\"{name}\"")))
}

/// Replaces columns of [`CALLS`] within aggregates: an aggregate reads rows, which lack the columns of their groups.
pub(super) fn within_aggregates(expr: Expr, places: &[(&'static str, Expr)]) -> OlapResult<Expr> {
    if places.is_empty() {
        return Ok(expr);
    }
    let place = |e: Expr| match &e {
        Expr::Column(named) if named.relation.is_none() => {
            let found = places.iter().find(|(name, _)| *name == named.name).map(|(_, place)| place.clone());
            Ok(found.map_or_else(|| Transformed::no(e), Transformed::yes))
        }
        _ => Ok(Transformed::no(e)),
    };
    let placed = expr.transform_down(|e| {
        if !matches!(e, Expr::AggregateFunction(_)) {
            return Ok(Transformed::no(e));
        }
        let inner = e.transform_up(place)?;
        Ok(Transformed::new(inner.data, inner.transformed, TreeNodeRecursion::Jump))
    })?;
    Ok(placed.data)
}

/// The time dimension that a model's ranges apply to, and the member with the start of its rows' lifetime.
pub(crate) fn time_of(model: &Model) -> Option<(MemberId, MemberId)> {
    let time = model.dimensions.iter().find(|d| d.ty == DimensionType::Time && d.since.is_some());
    let time = time.or_else(|| model.dimensions.iter().find(|d| d.ty == DimensionType::Time))?;
    let id = |name: &str| MemberId::new(&model.common.name, name);
    Some((id(&time.common.name), id(time.since.as_deref().unwrap_or(&time.common.name))))
}

impl Planner<'_> {
    /// The values of those [`CALLS`] that a text has, by the columns that stand for them.
    pub(super) fn range_calls(
        &self,
        stage: &Stage,
        own: &str,
        sql: &str,
        over: EvaluationInput,
    ) -> OlapResult<Vec<(&'static str, Expr)>> {
        let mut all = Vec::new();
        for (_, name) in CALLS {
            if sql.contains(name) {
                all.push((name, self.range_call(stage, own, name, over)?));
            }
        }
        Ok(all)
    }

    /// The value of a column of [`CALLS`].
    fn range_call(&self, stage: &Stage, own: &str, name: &str, over: EvaluationInput) -> OlapResult<Expr> {
        let (start, end) = self.range_bounds(stage, own, over)?;
        Ok(match name {
            "__range_start" => start,
            "__range_end" => end,
            _ => {
                // All times are further apart than a whole number holds.
                let nanos = |time| cast(cast(time, DataType::Int64), DataType::Decimal128(20, 0));
                cast(nanos(end) - nanos(start), DataType::Float64) / lit(SECOND_NS as f64)
            }
        })
    }

    fn range_bounds(&self, stage: &Stage, own: &str, over: EvaluationInput) -> OlapResult<(Expr, Expr)> {
        let ranged = stage.ranges.first();
        let (start, end) = match ranged {
            Some((member, range)) => {
                let back =
                    if over == EvaluationInput::Rows { stage.shift(member).negated() } else { Interval::default() };
                let utc = |wall: i64, edge| self.instant(utc_ns(stage.tz, back.add_to(wall), edge));
                (utc(range.start_ns, Edge::Start), utc(range.end_ns, Edge::End))
            }
            None => (self.first_row(stage, own, over)?, self.instant(stage.now_ns)),
        };
        let grouped = |g: &&Group| g.buckets.is_some() && ranged.is_none_or(|(member, _)| g.member == *member);
        let Some(group) = stage.groups.iter().find(grouped) else { return Ok((start, end)) };
        let bucket = || match over {
            EvaluationInput::Rows => self.group_value(stage, group),
            EvaluationInput::Groups | EvaluationInput::Aggregates => Ok(column(group.column.clone())),
        };
        // Buckets of a shifted stage are those that rows are moved to, and rows have the times before.
        let back = self.shift(stage, &group.member).negated();
        let edge = |is_end| {
            let edge = WallEdge::call(bucket()?, stage.tz, group.buckets, is_end);
            if over != EvaluationInput::Rows || back.is_zero() {
                return Ok::<_, OlapError>(edge);
            }
            Ok(WallEdge::call(WallBucket::call(edge, stage.tz, None, back), stage.tz, None, is_end))
        };
        let start = self.scalar("greatest", vec![start, edge(false)?])?;
        Ok((start, self.scalar("least", vec![end, edge(true)?])?))
    }

    /// The time of the first row of a model that the caller may see.
    fn first_row(&self, stage: &Stage, own: &str, over: EvaluationInput) -> OlapResult<Expr> {
        if over == EvaluationInput::Rows {
            return Ok(instant(0));
        }
        let model = self.catalog.model(own);
        let text = || model_error(format!("model `{own}` speaks of a range and has no time dimension"));
        let (_, first) = time_of(model).ok_or_else(text)?;
        let rows = self.model_rows(stage, own, &std::collections::BTreeSet::new())?;
        let first = self.aggregate("min", vec![self.dimension(stage, &first)?])?;
        let plan = LogicalPlanBuilder::from(rows).aggregate(Vec::<Expr>::new(), vec![first.alias("first")])?.build()?;
        Ok(scalar_subquery(Arc::new(plan)))
    }
}
