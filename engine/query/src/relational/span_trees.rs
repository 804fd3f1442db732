//! Aggregates that return a value for every span of a trace return packed bytes instead, which are unpacked above the
//! aggregation, a few traces at a time ([`functions::packed_spans`]). Otherwise, an aggregation would make the results
//! for all spans of all traces at once when it ends: several times the size of the spans, and counted by nothing.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;

use crate::functions;
use crate::plan_walk::change_nodes;

/// The rule. It follows type coercion.
#[derive(Debug)]
pub(crate) struct SpanTrees;

impl AnalyzerRule for SpanTrees {
    fn name(&self) -> &'static str {
        "span_trees"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        change_nodes(plan, &mut |node| {
            let LogicalPlan::Aggregate(aggregate) = &node else { return Ok(Transformed::no(node)) };
            Ok(match packed(aggregate)? {
                Some(made) => Transformed::yes(made),
                None => Transformed::no(node),
            })
        })
    }
}

/// The call of such an aggregate with the function that unpacks the same; `None` if the expression is something else.
fn spans_of(expr: &Expr) -> Option<(&AggregateFunction, Arc<ScalarUDF>)> {
    let call = match expr {
        Expr::Alias(alias) => &*alias.expr,
        other => other,
    };
    let Expr::AggregateFunction(call) = call else { return None };
    let params = &call.params;
    let is_plain = !params.distinct && params.order_by.is_empty() && params.null_treatment.is_none();
    functions::unpacking(call.func.name()).filter(|_| is_plain).map(|unpacking| (call, unpacking))
}

/// The aggregation with packed spans, once for equal arguments; `None` if it has no such aggregate.
fn packed(aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
    let found: Vec<_> = aggregate.aggr_expr.iter().map(spans_of).collect();
    let mut sets: Vec<&AggregateFunction> = Vec::new();
    for (call, _) in found.iter().flatten() {
        if !sets.iter().any(|set| set.params == call.params) {
            sets.push(call);
        }
    }
    if sets.is_empty() {
        return Ok(None);
    }
    let name = |n: usize| format!("__spans_{n}");
    let others = aggregate.aggr_expr.iter().zip(&found).filter(|(_, found)| found.is_none());
    let others = others.map(|(expr, _)| expr.clone());
    let joint = sets.iter().enumerate().map(|(n, set)| {
        let call = AggregateFunction { func: functions::packed_spans(), params: set.params.clone() };
        Expr::AggregateFunction(call).alias(name(n))
    });
    let exprs = others.chain(joint).collect();
    let made = Aggregate::try_new(Arc::clone(&aggregate.input), aggregate.group_expr.clone(), exprs)?;
    // A projection restores the original columns.
    let groups = aggregate.schema.fields().len().saturating_sub(aggregate.aggr_expr.len());
    let columns = aggregate.schema.iter().enumerate().map(|(at, (relation, field))| {
        let call = at.checked_sub(groups).and_then(|at| found.get(at)?.as_ref());
        let set = call.and_then(|(call, _)| sets.iter().position(|set| set.params == call.params));
        match (call, set) {
            (Some((_, unpacking)), Some(set)) => {
                let packed = Expr::Column(Column::new_unqualified(name(set)));
                unpacking.call(vec![packed]).alias_qualified(relation.cloned(), field.name())
            }
            _ => Expr::Column(Column::new(relation.cloned(), field.name())),
        }
    });
    let made = Projection::try_new(columns.collect(), Arc::new(LogicalPlan::Aggregate(made)))?;
    Ok(Some(LogicalPlan::Projection(made)))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::functions_aggregate::expr_fn::max;
    use datafusion::logical_expr::{ExprFunctionExt as _, col, table_scan};

    use super::*;

    fn analyzed(aggregates: Vec<Expr>) -> (LogicalPlan, LogicalPlan) {
        let text = |name: &'static str| (name, DataType::Utf8View);
        let time = |name: &'static str| (name, DataType::Int64);
        let fields = [text("k"), text("t"), time("n"), ("e", DataType::Boolean)];
        let schema = Schema::new(fields.map(|(name, kind)| Field::new(name, kind, true)).to_vec());
        let plan = table_scan(Some("s"), &schema, None).unwrap();
        let plan = plan.aggregate(vec![col("s.k")], aggregates).unwrap().build().unwrap();
        (plan.clone(), SpanTrees.analyze(plan, &ConfigOptions::default()).unwrap())
    }

    /// A call over the spans of a trace.
    fn call(name: &str, mark: Expr) -> Expr {
        let function = functions::span_aggregates().into_iter().find(|function| function.name() == name).unwrap();
        let (text, time) = (|| col("s.t"), || col("s.n"));
        function.call(vec![text(), text(), text(), text(), text(), time(), time(), col("s.e"), mark])
    }

    #[test]
    fn spans_are_packed_once_and_unpacked_above() {
        let aggregates = vec![
            call("span_tree", col("s.t")),
            max(col("s.n")),
            call("critical_path", col("s.t")).alias("path"),
            call("span_tree", col("s.k")),
            call("trace_shape", col("s.t")),
        ];
        let (before, after) = analyzed(aggregates);
        let types = |plan: &LogicalPlan| {
            let fields = plan.schema().fields().iter();
            fields.map(|field| (field.name().clone(), field.data_type().clone())).collect::<Vec<_>>()
        };
        assert_eq!(after.schema().columns(), before.schema().columns());
        assert_eq!(types(&after), types(&before));
        let shown = after.display_indent().to_string();
        assert_eq!(shown.matches("packed_spans(").count(), 2, "{shown}");
        assert!(shown.contains("critical_path_of(__spans_0) AS path"), "{shown}");
        assert!(shown.contains("span_tree_of(__spans_1)"), "{shown}");
    }

    #[test]
    fn others_stay_as_they_are() {
        let ordered = call("span_tree", col("s.t")).order_by(vec![col("s.n").sort(true, true)]).build().unwrap();
        for aggregates in [vec![max(col("s.n"))], vec![ordered], vec![call("trace_shape", col("s.t"))]] {
            let (before, after) = analyzed(aggregates);
            assert_eq!(after, before);
        }
    }
}
