//! Merges several quantiles of the same values into one aggregate, [`functions::quantiles`], which stores the values
//! once. Keeping three copies took half the time of a query for the 50th, 95th and 99th percentile.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::functions_nested::expr_fn::array_element;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable as _, LogicalPlan, Projection, lit};
use datafusion::optimizer::AnalyzerRule;

use crate::functions;
use crate::plan_walk::change_nodes;

/// The rule. It follows type coercion.
#[derive(Debug)]
pub(crate) struct Quantiles;

impl AnalyzerRule for Quantiles {
    fn name(&self) -> &'static str {
        "quantiles"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        change_nodes(plan, &mut |node| {
            let LogicalPlan::Aggregate(aggregate) = &node else { return Ok(Transformed::no(node)) };
            Ok(match together(aggregate)? {
                Some(made) => Transformed::yes(made),
                None => Transformed::no(node),
            })
        })
    }
}

/// Quantiles of the same values.
struct Set<'e> {
    call: &'e AggregateFunction,
    parts: Vec<f64>,
    /// Indexes of the aggregates that they replace.
    at: Vec<usize>,
}

/// The call of a quantile, and its fraction; `None` if the expression is something else.
fn quantile_of(expr: &Expr) -> Option<(&AggregateFunction, f64)> {
    let call = match expr {
        Expr::Alias(alias) => &*alias.expr,
        other => other,
    };
    let Expr::AggregateFunction(call) = call else { return None };
    let [_, Expr::Literal(ScalarValue::Float64(Some(q)), _)] = call.params.args.as_slice() else { return None };
    let params = &call.params;
    let is_plain = !params.distinct && params.order_by.is_empty() && params.null_treatment.is_none();
    // A fraction out of range is refused by the function itself.
    (call.func.name() == "quantile" && is_plain && (0.0..=1.0).contains(q)).then_some((call, *q))
}

/// The aggregation with one aggregate for all quantiles of the same values; `None` if there are none to merge.
fn together(aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
    let mut sets: Vec<Set<'_>> = Vec::new();
    for (at, expr) in aggregate.aggr_expr.iter().enumerate() {
        let Some((call, q)) = quantile_of(expr) else { continue };
        let values = &call.params.args[0];
        if values.get_type(aggregate.input.schema())? != DataType::Float64 {
            continue;
        }
        let is_same = |set: &&mut Set<'_>| {
            let params = &set.call.params;
            params.args[0] == *values && params.filter == call.params.filter
        };
        match sets.iter_mut().find(is_same) {
            Some(set) => {
                set.parts.push(q);
                set.at.push(at);
            }
            None => sets.push(Set { call, parts: vec![q], at: vec![at] }),
        }
    }
    sets.retain(|set| set.at.len() > 1);
    if sets.is_empty() {
        return Ok(None);
    }
    let is_alone = |at: usize| !sets.iter().any(|set| set.at.contains(&at));
    let alone = aggregate.aggr_expr.iter().enumerate().filter(|(at, _)| is_alone(*at)).map(|(_, e)| e.clone());
    let name = |n: usize| format!("__quantiles_{n}");
    let joint = sets.iter().enumerate().map(|(n, set)| {
        let args = set.call.params.args.iter().take(1).cloned().chain(set.parts.iter().map(|q| lit(*q))).collect();
        let params = AggregateFunctionParams { args, ..set.call.params.clone() };
        Expr::AggregateFunction(AggregateFunction { func: functions::quantiles(), params }).alias(name(n))
    });
    let exprs = alone.chain(joint).collect();
    let made = Aggregate::try_new(Arc::clone(&aggregate.input), aggregate.group_expr.clone(), exprs)?;
    // A projection restores the original columns.
    let groups = aggregate.schema.fields().len().saturating_sub(aggregate.aggr_expr.len());
    let columns = aggregate.schema.iter().enumerate().map(|(at, (relation, field))| {
        let found = sets.iter().enumerate().find_map(|(n, set)| {
            let place = set.at.iter().position(|own| groups + own == at)?;
            Some(array_element(Expr::Column(Column::new_unqualified(name(n))), lit(place as i64 + 1)))
        });
        match found {
            Some(expr) => expr.alias_qualified(relation.cloned(), field.name()),
            None => Expr::Column(Column::new(relation.cloned(), field.name())),
        }
    });
    let made = Projection::try_new(columns.collect(), Arc::new(LogicalPlan::Aggregate(made)))?;
    Ok(Some(LogicalPlan::Projection(made)))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, Schema};
    use datafusion::functions_aggregate::expr_fn::max;
    use datafusion::logical_expr::{ExprFunctionExt as _, col, table_scan};

    use super::*;

    fn analyzed(aggregates: Vec<Expr>) -> (LogicalPlan, LogicalPlan) {
        let fields = [("k", DataType::Utf8), ("x", DataType::Float64), ("n", DataType::Int64)];
        let schema = Schema::new(fields.map(|(name, kind)| Field::new(name, kind, true)).to_vec());
        let plan = table_scan(Some("t"), &schema, None).unwrap();
        let plan = plan.aggregate(vec![col("t.k")], aggregates).unwrap().build().unwrap();
        (plan.clone(), Quantiles.analyze(plan, &ConfigOptions::default()).unwrap())
    }

    fn quantile(x: &str, q: f64) -> Expr {
        functions::quantile().call(vec![col(x), lit(q)])
    }

    #[test]
    fn quantiles_of_the_same_values_are_one_aggregate() {
        let some = |q: f64| quantile("t.x", q).filter(col("t.n").gt(lit(1_i64))).build().unwrap();
        let aggregates =
            vec![quantile("t.x", 0.5), some(0.1), max(col("t.n")), quantile("t.x", 0.9).alias("high"), some(0.2)];
        let (before, after) = analyzed(aggregates);
        let names = |plan: &LogicalPlan| plan.schema().columns();
        assert_eq!(names(&after), names(&before));
        let shown = after.display_indent().to_string();
        assert_eq!(shown.matches("quantiles(").count(), 2, "{shown}");
        assert!(shown.contains("quantiles(t.x, Float64(0.5), Float64(0.9)) AS __quantiles_0"), "{shown}");
        assert!(shown.contains("array_element(__quantiles_0, Int64(2)) AS high"), "{shown}");
    }

    #[test]
    fn others_stay_as_they_are() {
        let distinct = quantile("t.x", 0.9).distinct().build().unwrap();
        for aggregates in [
            vec![quantile("t.x", 0.5), max(col("t.n"))],
            vec![quantile("t.x", 0.5), distinct],
            vec![quantile("t.x", 0.5), quantile("t.x", 1.5)],
            vec![quantile("t.n", 0.5), quantile("t.n", 0.9)],
        ] {
            let (before, after) = analyzed(aggregates);
            assert_eq!(after, before);
        }
    }
}
