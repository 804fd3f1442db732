//! Fewer optimizer rules for plans that read one table. Rules about joins, unions, DISTINCT and subqueries have nothing
//! to do there, but each walks the plan in each pass, and some rebuild its nodes: a large part of the time of a small
//! analytics query.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::Optimizer;

use super::visible_rows;
use crate::plan_walk::any_expression;

/// Rules that have no effect on plans without joins, unions, `DISTINCT` and subqueries.
const OF_OTHERS: [&str; 12] = [
    "rewrite_set_comparison",
    "optimize_unions",
    "unions_to_filter",
    "replace_distinct_aggregate",
    "eliminate_join",
    "decorrelate_predicate_subquery",
    "scalar_subquery_to_join",
    "decorrelate_lateral_join",
    "extract_equijoin_predicate",
    "eliminate_cross_join",
    "filter_null_join_keys",
    "eliminate_outer_join",
];

/// The rules that plain plans need, in their original order: these have no node that hides rows, either.
pub(crate) fn rules(all: &Optimizer) -> Optimizer {
    let is_needed = |name: &str| !OF_OTHERS.contains(&name) && name != visible_rows::NAME;
    let needed = all.rules.iter().filter(|rule| is_needed(rule.name()));
    Optimizer::with_rules(needed.map(Arc::clone).collect())
}

/// Whether a plan consists only of nodes that the omitted rules leave unchanged.
pub(crate) fn is_plain(plan: &LogicalPlan) -> Result<bool> {
    let mut is_plain = true;
    plan.apply(|node| {
        let is_known = matches!(
            node,
            LogicalPlan::Projection(_)
                | LogicalPlan::Filter(_)
                | LogicalPlan::Aggregate(_)
                | LogicalPlan::Sort(_)
                | LogicalPlan::Limit(_)
                | LogicalPlan::TableScan(_)
                | LogicalPlan::SubqueryAlias(_)
        );
        is_plain = is_known && !has_subquery(node)?;
        Ok(if is_plain { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(is_plain)
}

fn has_subquery(node: &LogicalPlan) -> Result<bool> {
    let is_one = |expr: &Expr| {
        matches!(expr, Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) | Expr::SetComparison(_))
    };
    any_expression(node, &is_one)
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    #[test]
    fn what_is_left_out_are_rules() {
        let all = Optimizer::new();
        assert_eq!(rules(&all).rules.len() + OF_OTHERS.len(), all.rules.len());
    }

    #[tokio::test]
    async fn plain_plans_become_what_all_rules_make_of_them() {
        let state = SessionContext::new().state();
        for (statement, plain) in [
            (
                "select value % 3 as k, count(*), sum(value) from generate_series(1, 9) group by 1 order by k limit 2",
                true,
            ),
            ("select k from (select value as k, 1 as l from generate_series(1, 9)) t where k > 2 and 1 = 1", true),
            ("select count(distinct value) from generate_series(1, 9) having count(*) > 1", true),
            ("select value from generate_series(1, 9) where 1 = 2 order by value limit 0", true),
            ("select distinct value from generate_series(1, 9)", false),
            ("select value from generate_series(1, 9) where value > (select 1)", false),
            ("select value from generate_series(1, 9) where value in (select 1)", false),
            ("select value from generate_series(1, 9) union all select 1", false),
            ("select a.value from generate_series(1, 9) a join generate_series(1, 9) b on a.value = b.value", false),
        ] {
            let plan = state.create_logical_plan(statement).await.unwrap();
            let analyzed = state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {}).unwrap();
            assert_eq!(is_plain(&analyzed).unwrap(), plain, "{statement}");
            if plain {
                let by = |optimizer: &Optimizer| {
                    let plan = optimizer.optimize(analyzed.clone(), &state, |_, _| {}).unwrap();
                    plan.display_indent_schema().to_string()
                };
                assert_eq!(by(&rules(state.optimizer())), by(state.optimizer()), "{statement}");
            }
        }
    }
}
