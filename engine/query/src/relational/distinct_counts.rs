//! `count(DISTINCT x)` of relational plans is counted by [`functions::COUNT_DISTINCT`], beside any other measure and for any
//! number of groups.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable as _, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use crate::functions;

/// The rule; it comes after those that give types.
#[derive(Debug)]
pub(crate) struct DistinctCounts;

impl AnalyzerRule for DistinctCounts {
    fn name(&self) -> &'static str {
        "distinct_counts"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| {
            let LogicalPlan::Aggregate(aggregate) = &node else { return Ok(Transformed::no(node)) };
            let counted = aggregate.aggr_expr.iter().map(|e| counted(e, aggregate)).collect::<Result<Vec<_>>>()?;
            if counted.iter().all(Option::is_none) {
                return Ok(Transformed::no(node));
            }
            let exprs =
                counted.into_iter().zip(&aggregate.aggr_expr).map(|(new, old)| new.unwrap_or_else(|| old.clone()));
            let made = Aggregate::try_new(Arc::clone(&aggregate.input), aggregate.group_expr.clone(), exprs.collect())?;
            Ok(Transformed::new(LogicalPlan::Aggregate(made), true, TreeNodeRecursion::Continue))
        });
        Ok(changed?.data)
    }
}

/// The count as the function of ours, under its old name.
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
