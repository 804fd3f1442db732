//! The order of intervals is that of their lengths, as in comparisons: a day is shorter than 25 hours. Arrow compares
//! months, days and time one after the other.

use arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{DFSchema, Result};
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable as _, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::intervals;

/// The rule, about `ORDER BY` of rows, `min` and `max`; it comes after those that give types.
#[derive(Debug)]
pub(crate) struct Lengths;

impl AnalyzerRule for Lengths {
    fn name(&self) -> &'static str {
        "lengths"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| {
            let schema = merge_schema(&node.inputs());
            if matches!(node, LogicalPlan::Sort(_)) {
                return node.map_expressions(|key| Ok(by_length(key, &schema)));
            }
            if !matches!(node, LogicalPlan::Aggregate(_)) {
                return Ok(Transformed::no(node));
            }
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let changed = expr.transform_up(|e| Ok(extreme(e, &schema)))?;
                Ok(if changed.transformed { changed.update_data(|e| name.restore(e)) } else { changed })
            })
        });
        Ok(changed?.data)
    }
}

fn is_interval(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|kind| kind == DataType::Interval(IntervalUnit::MonthDayNano))
}

/// The length in the place of an interval that rows are sorted by.
fn by_length(key: Expr, schema: &DFSchema) -> Transformed<Expr> {
    if !is_interval(&key, schema) {
        return Transformed::no(key);
    }
    Transformed::yes(intervals::length().call(vec![key]))
}

/// The first interval by length in the place of the least or greatest one.
fn extreme(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::AggregateFunction(AggregateFunction { func, params }) = &expr else { return Transformed::no(expr) };
    let is_least = match func.name() {
        "min" => true,
        "max" => false,
        _ => return Transformed::no(expr),
    };
    let length = match params.args.as_slice() {
        [value] if is_interval(value, schema) => intervals::length().call(vec![value.clone()]),
        _ => return Transformed::no(expr),
    };
    let mut params = params.clone();
    params.distinct = false;
    params.order_by = vec![length.sort(is_least, false)];
    Transformed::yes(Expr::AggregateFunction(AggregateFunction { func: first_value_udaf(), params }))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::IntervalMonthDayNano;
    use datafusion::common::ScalarValue;
    use datafusion::functions_aggregate::expr_fn::max;
    use datafusion::logical_expr::lit;

    use super::*;

    #[test]
    fn intervals_alone_are_measured() {
        let schema = DFSchema::empty();
        let day = || lit(ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(0, 1, 0))));
        assert_eq!(by_length(day(), &schema).data, intervals::length().call(vec![day()]));
        assert!(!by_length(lit(1), &schema).transformed);
        assert!(!extreme(max(lit(1)), &schema).transformed);
        let Expr::AggregateFunction(found) = extreme(max(day()), &schema).data else { panic!("no aggregate") };
        assert_eq!(found.func.name(), "first_value");
        assert_eq!(found.params.order_by, [intervals::length().call(vec![day()]).sort(false, false)]);
    }
}
