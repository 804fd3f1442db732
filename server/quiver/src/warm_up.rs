//! Warm-up: runs a small query of each language before requests are served, so that the first real ones need not wait
//! for code that never ran, lazily built tables, and memory of threads.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use quiver_logsql::{LogsqlEngine, QueryScope, parse};
use quiver_promql::{PromqlEngine, QueryOptions};
use quiver_query::{Limits, QueryContext};
use quiver_traces::{Search, TracesEngine};
use quiver_types::{Access, Result};

/// Time limit of each query.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A metrics query: a selector, a function over a range, and an aggregation. No metric has this name.
const METRICS: &str = "sum by (of) (rate(quiver_nothing[5m]))";
/// A logs query: a filter and a grouping.
const LOGS: &str = "nothing | stats by (of) count() n";

/// Runs the queries at the beginning of Unix time, where there is no data, so nothing is read.
pub(crate) async fn run(promql: &PromqlEngine, logsql: &LogsqlEngine, traces: &Arc<TracesEngine>) {
    let context = || QueryContext::new(Access::full(), Limits { timeout: TIMEOUT, ..Limits::default() });
    told("metrics", promql.instant(METRICS, 0, &QueryOptions::default(), &context()).await);
    told("logs", logs(logsql, &context()).await);
    told("traces", traces.search(&context(), Search::new((0, 1)), 1).await);
}

async fn logs(logsql: &LogsqlEngine, ctx: &QueryContext) -> Result<()> {
    let scope = QueryScope { now_ns: 1, start_ns: Some(0), end_ns: Some(1), extra: Vec::new() };
    logsql.collect(&parse(LOGS)?, &scope, ctx).await.map(drop)
}

/// Logs a failure, which only means that the first real query takes longer.
fn told<T, E: Debug>(signal: &str, outcome: std::result::Result<T, E>) {
    if let Err(error) = outcome {
        tracing::debug!(signal, ?error, "a query that only warms up failed");
    }
}
