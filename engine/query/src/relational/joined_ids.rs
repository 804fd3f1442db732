//! Joins on ids compare bytes: if ids are only used as join keys, no hexadecimal text is made of them.
//!
//! Without this, DataFusion would join the columns as they are, hexadecimal texts of twice the length for each row of
//! both sides. Equal texts are equal bytes, so the result is the same.

use std::sync::Arc;

use datafusion::common::JoinSide;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, Partitioning, ReplaceChildrenOptions};

use crate::plan_walk::change_physical;
use crate::tables::convert::ConvertExec;

/// Makes the keys of joins bytes where both sides are ids of tables.
///
/// # Errors
///
/// Those of making the nodes.
pub(crate) fn as_bytes(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    change_physical(plan, &mut |node| {
        let join = node.downcast_ref::<HashJoinExec>();
        Ok(match join.map(|join| joined(join, &node)).transpose()?.flatten() {
            Some(join) => Transformed::yes(join),
            None => Transformed::no(node),
        })
    })
}

fn joined(join: &HashJoinExec, node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let [left, right] = [join.left(), join.right()];
    let width = left.schema().fields().len();
    let shown = |at: usize| match join.projection.as_ref() {
        Some(kept) => kept.contains(&at),
        None => true,
    };
    let tested = |side: JoinSide, at: usize| {
        join.filter().is_some_and(|f| f.column_indices().iter().any(|c| c.side == side && c.index == at))
    };
    let mut keys: [Vec<usize>; 2] = [Vec::new(), Vec::new()];
    for (of_left, of_right) in join.on() {
        let (Some(a), Some(b)) = (of_left.downcast_ref::<Column>(), of_right.downcast_ref::<Column>()) else {
            continue;
        };
        let (a, b) = (a.index(), b.index());
        let only_keys = !shown(a) && !shown(width + b) && !tested(JoinSide::Left, a) && !tested(JoinSide::Right, b);
        if only_keys && is_id(left, a) && is_id(right, b) {
            keys[0].push(a);
            keys[1].push(b);
        }
    }
    let [of_left, of_right] = &keys;
    if of_left.is_empty() {
        return Ok(None);
    }
    match (with_bytes(left, of_left)?, with_bytes(right, of_right)?) {
        (Some(left), Some(right)) => over(node, vec![left, right]).map(Some),
        _ => Ok(None),
    }
}

/// The index of a column in the node's input, if the node passes it through unchanged.
fn below(node: &Arc<dyn ExecutionPlan>, at: usize) -> Option<usize> {
    if let Some(project) = node.downcast_ref::<ProjectionExec>() {
        return Some(project.expr().get(at)?.expr.downcast_ref::<Column>()?.index());
    }
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        let at = match filter.projection() {
            Some(kept) => *kept.get(at)?,
            None => at,
        };
        return (!collect_columns(filter.predicate()).iter().any(|column| column.index() == at)).then_some(at);
    }
    if let Some(repartition) = node.downcast_ref::<RepartitionExec>() {
        return matches!(repartition.partitioning(), Partitioning::Hash(..) | Partitioning::RoundRobinBatch(_))
            .then_some(at);
    }
    node.downcast_ref::<CooperativeExec>().map(|_| at)
}

fn is_id(node: &Arc<dyn ExecutionPlan>, at: usize) -> bool {
    if let Some(convert) = node.downcast_ref::<ConvertExec>() {
        return convert.has_id(at);
    }
    match (below(node, at), node.children().as_slice()) {
        (Some(at), [child]) => is_id(child, at),
        _ => false,
    }
}

/// The same node with the given columns, which are ids, as bytes; `None` if that is not possible.
fn with_bytes(node: &Arc<dyn ExecutionPlan>, columns: &[usize]) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(convert) = node.downcast_ref::<ConvertExec>() {
        return Ok(convert.with_bytes(columns).map(|made| Arc::new(made) as Arc<dyn ExecutionPlan>));
    }
    let places: Option<Vec<usize>> = columns.iter().map(|at| below(node, *at)).collect();
    let children = node.children();
    let (Some(places), [child]) = (places, children.as_slice()) else { return Ok(None) };
    // A column that is projected twice would be bytes in one place and text in the other.
    if let Some(project) = node.downcast_ref::<ProjectionExec>() {
        let others = (0..project.expr().len()).filter(|at| !columns.contains(at));
        let mut others = others.flat_map(|at| collect_columns(&project.expr()[at].expr));
        if others.any(|column| places.contains(&column.index())) {
            return Ok(None);
        }
    }
    let Some(child) = with_bytes(child, &places)? else { return Ok(None) };
    if let Some(project) = node.downcast_ref::<ProjectionExec>() {
        let made = ProjectionExec::try_new(project.expr().to_vec(), child)?;
        return Ok(Some(Arc::new(made)));
    }
    over(node, vec![child]).map(Some)
}

/// The same node over children with other column types.
fn over(node: &Arc<dyn ExecutionPlan>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
    Arc::clone(node).replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}
