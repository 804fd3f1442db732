//! Long values in rows that a join repeats: `SELECT length(x) FROM (SELECT repeat('x', 1000000) x) a,
//! generate_series(1, 2000)` makes two gigabytes of a batch of 2,000 rows, before anything counts them. Columns of
//! strings, bytes, lists, maps and structs that a join only passes on go through it as views, sixteen bytes per row,
//! and become values again above it, a few rows at a time. The same is done for columns that `unnest` repeats for each
//! item of a list.
//!
//! Join keys and columns in conditions keep their types, which expressions and the filters that a join pushes down
//! depend on.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{JoinSide, JoinType};
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};

use super::text_views::{Values, as_values, as_views};
use crate::plan_walk::change_physical;

/// Columns of the left and the right side that a join looks at.
type JoinColumns = [BTreeSet<usize>; 2];

/// Lets columns that joins and `unnest` only hand on go through them as views.
///
/// # Errors
/// Those of making the nodes.
pub(crate) fn through_joins(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    change_physical(plan, &mut |node| {
        if let Some(unnest) = node.downcast_ref::<UnnestExec>() {
            return Ok(through_unnest(unnest)?.map_or_else(|| Transformed::no(Arc::clone(&node)), Transformed::yes));
        }
        let joined = through_join(&node)?;
        Ok(joined.map_or_else(|| Transformed::no(node), Transformed::yes))
    })
}

/// Lets columns that a join of another crate only hands on go through it as views.
///
/// # Errors
/// Those of making the nodes.
pub fn joined_by_views(join: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    Ok(through_join(&join)?.unwrap_or(join))
}

/// The node with views of what it hands on, and values again above it; `None`: it is no join, or hands on no long values.
fn through_join(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(looked) = looked_at(node.as_ref()) else { return Ok(None) };
    let sides = node.children();
    let mut children = Vec::with_capacity(sides.len());
    for (side, keys) in sides.iter().zip(&looked) {
        children.push(as_views(side, handed_on(side, keys))?);
    }
    if sides.iter().zip(&children).all(|(before, after)| Arc::ptr_eq(before, after)) {
        return Ok(None);
    }
    let before = node.schema();
    let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    let joined = Arc::clone(node).replace_children(children, anew)?;
    Ok(Some(as_values(joined, &before)?))
}

/// The node with views beside its lists, and values again above it; `None`: it repeats no long values.
fn through_unnest(unnest: &UnnestExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let (input, before) = (unnest.input(), unnest.schema());
    let lists: BTreeSet<usize> = unnest.list_column_indices().iter().map(|list| list.index_in_input_schema).collect();
    // Structs, and lists of which several depths are asked for, become several columns: the others lie elsewhere then.
    if !unnest.struct_column_indices().is_empty() || lists.len() != unnest.list_column_indices().len() {
        return Ok(None);
    }
    let handed_on = handed_on(input, &lists);
    if handed_on.is_empty() {
        return Ok(None);
    }
    let places: Vec<usize> = handed_on.iter().map(|(at, _)| *at).collect();
    let views = as_views(input, handed_on)?;
    let (given, mut fields) = (views.schema(), before.fields().to_vec());
    for at in places {
        fields[at] = Arc::new(before.field(at).clone().with_data_type(given.field(at).data_type().clone()));
    }
    let schema = Arc::new(Schema::new_with_metadata(fields, before.metadata().clone()));
    let lists = unnest.list_column_indices().to_vec();
    let unnested = UnnestExec::new(views, lists, Vec::new(), schema, unnest.options().clone())?;
    Ok(Some(as_values(Arc::new(unnested), &before)?))
}

/// Columns of long values that a join does not look at.
fn handed_on(side: &Arc<dyn ExecutionPlan>, looked: &BTreeSet<usize>) -> Vec<(usize, Values)> {
    let schema = side.schema();
    let columns = schema.fields().iter().enumerate().filter(|(at, _)| !looked.contains(at));
    columns.filter_map(|(at, field)| Values::of(field.data_type()).map(|values| (at, values))).collect()
}

/// What a join looks at; `None` if the node is no join that may repeat rows.
fn looked_at(node: &dyn ExecutionPlan) -> Option<JoinColumns> {
    let mut looked = JoinColumns::default();
    if node.is::<CrossJoinExec>() {
        return Some(looked);
    }
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        add_condition(&mut looked, join.filter());
        return repeats(*join.join_type()).then_some(looked);
    }
    let join = node.downcast_ref::<HashJoinExec>()?;
    for (left, right) in join.on() {
        for (side, key) in looked.iter_mut().zip([left, right]) {
            side.extend(collect_columns(key).iter().map(Column::index));
        }
    }
    add_condition(&mut looked, join.filter());
    repeats(*join.join_type()).then_some(looked)
}

fn add_condition(looked: &mut JoinColumns, condition: Option<&JoinFilter>) {
    for column in condition.into_iter().flat_map(JoinFilter::column_indices) {
        match column.side {
            JoinSide::Left => looked[0].insert(column.index),
            JoinSide::Right => looked[1].insert(column.index),
            JoinSide::None => false,
        };
    }
}

/// Whether a row of one side can come several times.
fn repeats(join: JoinType) -> bool {
    matches!(join, JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full)
}

#[cfg(test)]
mod tests;
