//! Combines the results of stages: columns of measures, and joins by groups.

use arrow::datatypes::DataType;
use datafusion::common::{Column, JoinType, NullEquality};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};

use super::fan_out::Leaf;
use super::{Group, Stage, column, model_error};
use crate::error::OlapResult;
use crate::model::MemberId;

/// The column of a measure in a result, and its type.
pub(super) fn measure_column(result: &LogicalPlan, id: &MemberId) -> OlapResult<(Expr, DataType)> {
    let name = id.to_string();
    let field = result.schema().field_with_unqualified_name(&name);
    let ty =
        field.map_err(|_| model_error(format!("measure `{id}` is not there to be computed with")))?.data_type().clone();
    Ok((column(name), ty))
}

/// Joins two results by groups. For groups that one lacks, its counts are 0 and all else is NULL.
pub(super) fn full_join(
    stage: &Stage,
    left: LogicalPlan,
    left_leaves: &[Leaf],
    right: LogicalPlan,
    right_leaves: &[Leaf],
) -> OlapResult<LogicalPlan> {
    if stage.groups.is_empty() {
        return Ok(LogicalPlanBuilder::from(left).cross_join(right)?.build()?);
    }
    let other = |name: &str| format!("__right.{name}");
    let renamed = stage.groups.iter().map(|g| column(g.column.clone()).alias(other(&g.column)));
    let measures = right_leaves.iter().map(|l| column(l.id.to_string()));
    let right = LogicalPlanBuilder::from(right).project(renamed.chain(measures))?.build()?;
    let keys = |name: &dyn Fn(&str) -> String| {
        stage.groups.iter().map(|g| Column::new_unqualified(name(&g.column))).collect::<Vec<_>>()
    };
    let on = (keys(&str::to_owned), keys(&other));
    let joined =
        LogicalPlanBuilder::from(left).join_detailed(right, JoinType::Full, on, None, NullEquality::NullEqualsNull)?;
    let mut out: Vec<Expr> = Vec::new();
    for group in &stage.groups {
        let both = vec![column(group.column.clone()), column(other(&group.column))];
        out.push(coalesce(both).alias(group.column.clone()));
    }
    for leaf in left_leaves.iter().chain(right_leaves) {
        let name = leaf.id.to_string();
        let value = column(name.clone());
        out.push(if leaf.is_count { coalesce(vec![value, lit(0_i64)]).alias(name) } else { value });
    }
    Ok(joined.project(out)?.build()?)
}

/// The first value that is not NULL.
pub(super) fn coalesce(values: Vec<Expr>) -> Expr {
    datafusion::functions::expr_fn::coalesce(values)
}

/// Joins a value by those groups that it has.
pub(super) fn left_join(
    left: LogicalPlan,
    right: LogicalPlan,
    groups: &[&Group],
    id: &MemberId,
) -> OlapResult<LogicalPlan> {
    let out: Vec<Expr> = left.schema().columns().into_iter().map(Expr::Column).collect();
    let out = out.into_iter().chain([column(id.to_string())]);
    if groups.is_empty() {
        return Ok(LogicalPlanBuilder::from(left).cross_join(right)?.project(out)?.build()?);
    }
    let other = |name: &str| format!("__right.{name}");
    let renamed = groups.iter().map(|g| column(g.column.clone()).alias(other(&g.column)));
    let right = LogicalPlanBuilder::from(right).project(renamed.chain([column(id.to_string())]))?.build()?;
    let keys = |name: &dyn Fn(&str) -> String| {
        groups.iter().map(|g| Column::new_unqualified(name(&g.column))).collect::<Vec<_>>()
    };
    let on = (keys(&str::to_owned), keys(&other));
    let joined =
        LogicalPlanBuilder::from(left).join_detailed(right, JoinType::Left, on, None, NullEquality::NullEqualsNull)?;
    Ok(joined.project(out)?.build()?)
}
