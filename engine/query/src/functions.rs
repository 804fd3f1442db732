//! Functions of relational plans beside DataFusion's own (`plans.md` P9): those of ours one file each, and DataFusion's under
//! the names that the field uses for them.

mod attr;

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::functions::datetime::date_bin;
use datafusion::functions::regex::regexp_like;
use datafusion::functions_aggregate::approx_distinct::approx_distinct_udaf;
use datafusion::functions_aggregate::approx_percentile_cont::approx_percentile_cont_udaf;
use datafusion::functions_aggregate::percentile_cont::percentile_cont_udaf;
use datafusion::logical_expr::registry::FunctionRegistry as _;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};

/// A function as people look for it: form, what it gives.
pub const FUNCTIONS: &[(&str, &str)] = &[
    ("attr(map, key)", "the value of a key of a map as text; NULL where there is none"),
    ("time_bucket(interval, time)", "the beginning of the interval since 1970 that a time lies in"),
    ("re_match(text, pattern)", "whether a regular expression is found in a text"),
    ("quantile(x, q)", "the q-quantile of all values, interpolated between two of them"),
    ("quantile_approx(x, q)", "the same by a t-digest, in bounded memory"),
    ("count_distinct_approx(x)", "the number of different values by HyperLogLog"),
];

/// Adds the functions to a session.
///
/// # Errors
/// Those of the registry.
pub(crate) fn register(state: &mut SessionState) -> Result<()> {
    let scalar = |function: &ScalarUDF, name: &'static str| Arc::new(function.clone().with_aliases([name]));
    let aggregate = |function: &AggregateUDF, name: &'static str| Arc::new(function.clone().with_aliases([name]));
    state.register_udf(attr::function())?;
    state.register_udf(scalar(&date_bin(), "time_bucket"))?;
    state.register_udf(scalar(&regexp_like(), "re_match"))?;
    state.register_udaf(aggregate(&percentile_cont_udaf(), "quantile"))?;
    state.register_udaf(aggregate(&approx_percentile_cont_udaf(), "quantile_approx"))?;
    state.register_udaf(aggregate(&approx_distinct_udaf(), "count_distinct_approx"))?;
    Ok(())
}
