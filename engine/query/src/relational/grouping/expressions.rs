//! The keys, filters and aggregates of an aggregation, moved below the projections and filters in between.

use std::sync::Arc;

use datafusion::common::internal_datafusion_err;
use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;

/// Expressions over the rows of a node.
pub(super) type Exprs = Vec<Arc<dyn PhysicalExpr>>;

/// What an aggregation computes, as expressions over the rows of a node below it.
#[derive(Debug)]
pub(super) struct AggregationExprs {
    pub(super) groups: Exprs,
    pub(super) args: Vec<Exprs>,
    pub(super) filters: Vec<Option<Arc<dyn PhysicalExpr>>>,
    pub(super) predicate: Option<Arc<dyn PhysicalExpr>>,
}

impl AggregationExprs {
    /// Rewrites the expressions over the input of a projection, whose expressions are `columns`.
    pub(super) fn over(&mut self, columns: &[Arc<dyn PhysicalExpr>]) -> Result<()> {
        let each = self.groups.iter_mut().chain(self.args.iter_mut().flatten());
        let each = each.chain(self.filters.iter_mut().flatten()).chain(&mut self.predicate);
        for expr in each {
            *expr = with_columns(expr, columns)?;
        }
        Ok(())
    }
}

/// Replaces each column of an expression by the expression at its index.
pub(super) fn with_columns(
    expr: &Arc<dyn PhysicalExpr>,
    columns: &[Arc<dyn PhysicalExpr>],
) -> Result<Arc<dyn PhysicalExpr>> {
    let changed = Arc::clone(expr).transform_down(|e| match e.downcast_ref::<Column>() {
        None => Ok(Transformed::no(e)),
        Some(column) => {
            let of = columns.get(column.index()).cloned();
            let of = of.ok_or_else(|| internal_datafusion_err!("no column {column}"))?;
            Ok(Transformed::new(of, true, TreeNodeRecursion::Jump))
        }
    });
    Ok(changed?.data)
}
