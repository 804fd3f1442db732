//! How rules walk through plans: their nodes with those of subqueries, and the expressions of a node, which keep the names of
//! their columns. What a rule does is passed as a reference: given a closure of its own, DataFusion's walks would be compiled
//! anew for each of some hundred rules, and were a third of this crate's machine code.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;

/// What is made of a node or an expression, and whether it is another one.
pub type Change<'a, T> = &'a mut dyn FnMut(T) -> Result<Transformed<T>>;

/// Changes the nodes of a plan and of its subqueries, inner ones first.
///
/// # Errors
/// Those of the change.
pub fn change_nodes(plan: LogicalPlan, change: Change<'_, LogicalPlan>) -> Result<LogicalPlan> {
    Ok(plan.transform_up_with_subqueries(change)?.data)
}

/// Changes the expressions of a node and what they consist of, inner ones first. Their columns keep their names, if need be by
/// an alias; where nothing is changed, none is added.
///
/// # Errors
/// Those of the change.
pub fn change_expressions(node: LogicalPlan, change: Change<'_, Expr>) -> Result<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&node);
    node.map_expressions(|expr| {
        let name = names.save(&expr);
        let changed = change_parts(expr, change)?;
        Ok(if changed.transformed { changed.update_data(|e| name.restore(e)) } else { changed })
    })
}

/// Changes an expression and what it consists of, inner ones first.
///
/// # Errors
/// Those of the change.
pub fn change_parts(expr: Expr, change: Change<'_, Expr>) -> Result<Transformed<Expr>> {
    expr.transform_up(change)
}

/// Whether an expression of a node is one that is looked for, or has one in it.
///
/// # Errors
/// Those of the walk, which has none of its own.
pub fn any_expression(node: &LogicalPlan, is_one: &dyn Fn(&Expr) -> bool) -> Result<bool> {
    let mut is_there = false;
    node.apply_expressions(|expr| {
        is_there = has_part(expr, is_one)?;
        Ok(if is_there { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(is_there)
}

/// Whether an expression, logical or physical, is one that is looked for, or has one in it.
///
/// # Errors
/// Those of the walk, which has none of its own.
pub fn has_part<T: TreeNode>(expr: &T, is_one: &dyn Fn(&T) -> bool) -> Result<bool> {
    expr.exists(|part| Ok(is_one(part)))
}

/// Changes the nodes of a physical plan, inner ones first.
///
/// # Errors
/// Those of the change.
pub(crate) fn change_physical(
    plan: Arc<dyn ExecutionPlan>,
    change: Change<'_, Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    Ok(plan.transform_up(change)?.data)
}
