//! Replaces `count(DISTINCT x)` by [`functions::COUNT_DISTINCT`], which works beside any other aggregate and for any
//! number of groups.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable as _, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use crate::functions;
use crate::plan_walk::change_nodes;

/// The rule. It follows type coercion.
#[derive(Debug)]
pub(crate) struct DistinctCounts;

impl AnalyzerRule for DistinctCounts {
    fn name(&self) -> &'static str {
        "distinct_counts"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        change_nodes(plan, &mut |node| {
            let LogicalPlan::Aggregate(aggregate) = &node else { return Ok(Transformed::no(node)) };
            let counted = aggregate.aggr_expr.iter().map(|e| counted(e, aggregate)).collect::<Result<Vec<_>>>()?;
            if counted.iter().all(Option::is_none) {
                return Ok(Transformed::no(node));
            }
            let exprs =
                counted.into_iter().zip(&aggregate.aggr_expr).map(|(new, old)| new.unwrap_or_else(|| old.clone()));
            let made = Aggregate::try_new(Arc::clone(&aggregate.input), aggregate.group_expr.clone(), exprs.collect())?;
            Ok(Transformed::new(LogicalPlan::Aggregate(made), true, TreeNodeRecursion::Continue))
        })
    }
}

/// The replacing function under the name of the original; `None` if it is another expression.
fn counted(expr: &Expr, aggregate: &Aggregate) -> Result<Option<Expr>> {
    let (call, name) = match expr {
        Expr::Alias(alias) => (&*alias.expr, alias.name.clone()),
        other => (other, expr.schema_name().to_string()),
    };
    let Expr::AggregateFunction(AggregateFunction { func, params }) = call else { return Ok(None) };
    let [arg] = params.args.as_slice() else { return Ok(None) };
    let plain = params.order_by.is_empty() && params.null_treatment.is_none();
    if !(func.name() == "count" && params.distinct && plain) {
        return Ok(None);
    }
    if !functions::counts(&arg.get_type(aggregate.input.schema())?) {
        return Ok(None);
    }
    let params = AggregateFunctionParams { distinct: false, ..params.clone() };
    let call = AggregateFunction { func: functions::count_distinct(), params };
    Ok(Some(Expr::AggregateFunction(call).alias(name)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn different_values_are_counted_beside_other_measures() {
        let rows = "(values (1, 'x', true), (1, 'y', true), (2, 'x', null), (null, null, false)) as t(a, b, c)";
        for (statement, expected) in [
            (
                format!(
                    "select count(distinct a), count(distinct b), count(distinct c), count(a), count(*) from {rows}"
                ),
                vec!["2|2|2|3|4"],
            ),
            (format!("select count(distinct a) filter (where a > 1), sum(distinct a) from {rows}"), vec!["1|3"]),
            (
                format!("select b, count(distinct a) as n from {rows} group by b order by b nulls last"),
                vec!["x|2", "y|1", "NULL|0"],
            ),
            (format!("select count(distinct a) from {rows} where a > 5"), vec!["0"]),
            (format!("select count(distinct struct(a, b)), count(distinct make_array(a)) from {rows}"), vec!["4|3"]),
            (
                format!("select a, count(distinct struct(b)) as n from {rows} group by a order by a nulls last"),
                vec!["1|2", "2|1", "NULL|1"],
            ),
            ("select count(distinct a) from (values (0.5), (0.5), (null)) as t(a)".to_owned(), vec!["1"]),
        ] {
            let found = crate::testing::rows(Arc::new(DistinctCounts), &statement).await;
            assert_eq!(found, expected, "{statement}");
        }
    }

    #[tokio::test]
    async fn columns_keep_their_names() {
        let context = datafusion::prelude::SessionContext::new();
        let statement = "select count(distinct a), count(distinct a) as n from (values (1)) as t(a) group by a";
        let plan = context.state().create_logical_plan(statement).await.unwrap();
        let changed = DistinctCounts.analyze(plan.clone(), &ConfigOptions::default()).unwrap();
        let names = |plan: &LogicalPlan| -> Vec<String> {
            plan.schema().fields().iter().map(|field| field.name().clone()).collect()
        };
        assert_eq!(names(&changed), names(&plan));
        let shown = changed.display_indent().to_string();
        assert!(shown.contains("count_distinct("), "{shown}");
    }
}
