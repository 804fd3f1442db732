//! `x IN (subquery)` in outputs and sort keys of relational plans. DataFusion makes joins of those in conditions alone; here
//! rows are marked, whether the subquery has their value, by a join below the node that asks.
//!
//! NULLs of the subquery are no values of it: as in conditions of DataFusion, what is not found is not there.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, ExprSchemable as _, JoinType, LogicalPlan, LogicalPlanBuilder, lit, not, when};
use datafusion::optimizer::AnalyzerRule;

/// The rule; it comes after those that give types.
#[derive(Debug)]
pub(crate) struct Marks;

impl AnalyzerRule for Marks {
    fn name(&self) -> &'static str {
        "marks"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut count = 0;
        let changed = plan.transform_up_with_subqueries(|node| {
            if !asks(&node) {
                return Ok(Transformed::no(node));
            }
            let exprs = node.expressions();
            if !exprs.iter().map(has_subquery).collect::<Result<Vec<_>>>()?.contains(&true) {
                return Ok(Transformed::no(node));
            }
            let Some(input) = node.inputs().first().copied().cloned() else { return Ok(Transformed::no(node)) };
            let columns = input.schema().columns();
            let names = NamePreserver::new(&node);
            let mut below = input;
            let mut marked_exprs = Vec::with_capacity(exprs.len());
            for expr in exprs {
                let name = names.save(&expr);
                marked_exprs.push(name.restore(marked(expr, &mut below, &mut count)?));
            }
            let is_sort = matches!(node, LogicalPlan::Sort(_));
            let mut made = node.with_new_exprs(marked_exprs, vec![below])?;
            if is_sort {
                // It hands on what it reads, and nobody above knows of marks.
                made = LogicalPlanBuilder::from(made).project(columns.into_iter().map(Expr::Column))?.build()?;
            }
            Ok(Transformed::yes(made))
        });
        Ok(changed?.data)
    }
}

/// Nodes whose subqueries are made joins here.
fn asks(node: &LogicalPlan) -> bool {
    use LogicalPlan::{Aggregate, Projection, Sort, Window};
    matches!(node, Projection(_) | Sort(_) | Aggregate(_) | Window(_))
}

/// Whether there is an `IN` in it whose subquery stands for itself.
fn has_subquery(expr: &Expr) -> Result<bool> {
    expr.exists(|e| Ok(matches!(e, Expr::InSubquery(asked) if asked.subquery.outer_ref_columns.is_empty())))
}

/// An expression that reads marks, and the rows with these.
fn marked(expr: Expr, rows: &mut LogicalPlan, count: &mut usize) -> Result<Expr> {
    let changed = expr.transform_up(|e| {
        let Expr::InSubquery(asked) = &e else { return Ok(Transformed::no(e)) };
        if !asked.subquery.outer_ref_columns.is_empty() {
            return Ok(Transformed::no(e));
        }
        *count += 1;
        let alias = format!("__marked_{count}");
        let list = asked.subquery.subquery.as_ref().clone();
        let list = LogicalPlanBuilder::from(list).alias(alias.clone())?.build()?;
        let value = Expr::Column(Column::from(list.schema().qualified_field(0)));
        let wanted = asked.expr.as_ref().clone();
        let is_nullable = wanted.nullable(rows.schema())?;
        let same = Expr::eq(wanted.clone(), value);
        *rows = LogicalPlanBuilder::from(rows.clone()).join_on(list, JoinType::LeftMark, [same])?.build()?;
        let mark = Expr::Column(Column::new(Some(alias), "mark"));
        let found = if is_nullable {
            let unknown = lit(ScalarValue::Boolean(None));
            when(mark, lit(true)).when(wanted.is_null(), unknown).otherwise(lit(false))?
        } else {
            mark
        };
        Ok(Transformed::yes(if asked.negated { not(found) } else { found }))
    });
    Ok(changed?.data)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    async fn rows(statement: &str) -> Vec<String> {
        crate::testing::rows(Arc::new(Marks), statement).await
    }

    #[tokio::test]
    async fn values_are_looked_up_in_outputs_and_orders() {
        for (statement, expected) in [
            (
                "select value, value in (select 2 union all select 3) as f from generate_series(1, 3) order by 1",
                vec!["1|false", "2|true", "3|true"],
            ),
            (
                "select case when value not in (select 2) then 'a' else 'b' end as c from generate_series(1, 2) \
                 order by 1",
                vec!["a", "b"],
            ),
            (
                "select -value as v from generate_series(1, 4) \
                 order by case when value in (select 3) then 0 else 1 end, 1",
                vec!["-3", "-4", "-2", "-1"],
            ),
            (
                "select x, x in (select 1) as f from (values (1), (null), (2)) as t(x) order by x nulls last",
                vec!["1|true", "2|false", "NULL|NULL"],
            ),
            (
                "select value in (select 2) as f, count(*) as n from generate_series(1, 3) group by 1 order by 1",
                vec!["false|2", "true|1"],
            ),
            (
                "select value in (select 2) as a, value in (select 1) as b from generate_series(1, 2) order by 2",
                vec!["true|false", "false|true"],
            ),
        ] {
            assert_eq!(rows(statement).await, expected, "{statement}");
        }
    }
}
