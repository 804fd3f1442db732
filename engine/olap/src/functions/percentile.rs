//! Exact percentiles: DataFusion's `percentile_cont` rounds the position between two values to a millionth, which
//! shows in the seventh digit.

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Expr, cast, lit};
use quiver_query::functions::quantile;

/// Replaces DataFusion's percentile of a constant `q` by the exact one over doubles.
pub(crate) fn exact(call: AggregateFunction) -> Expr {
    let q = match call.params.args.get(1) {
        Some(Expr::Literal(ScalarValue::Float64(Some(q)), _)) if (0.0..=1.0).contains(q) => *q,
        _ => return Expr::AggregateFunction(call),
    };
    if call.func.name() != "percentile_cont" || call.params.distinct {
        return Expr::AggregateFunction(call);
    }
    let descends = call.params.order_by.first().is_some_and(|s| !s.asc);
    let mut params = call.params;
    params.args.truncate(1);
    params.args = params.args.into_iter().map(|x| cast(x, DataType::Float64)).collect();
    params.args.push(lit(if descends { 1.0 - q } else { q }));
    params.order_by.clear();
    Expr::AggregateFunction(AggregateFunction { func: quantile(), params })
}
