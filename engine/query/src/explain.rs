//! Plans as JSON: `{"logical","physical","nodes":[…]}` (`architecture` 8).

use std::sync::Arc;
use std::time::Duration;

use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::metrics::{MetricValue, MetricsSet};
use datafusion::physical_plan::{ExecutionPlan, displayable};
use quiver_types::ReadStats;
use serde_json::{Map, Value, json};
use xxhash_rust::xxh3::xxh3_64;

/// Renders both plans, a digest of the physical one and one entry per physical node, parents first. Nodes of a plan that
/// ran show their metrics; where rows are hidden from the caller only the first does, since he may not count the rows
/// of those below it.
pub(crate) fn to_json(logical: &LogicalPlan, physical: &Arc<dyn ExecutionPlan>, ran: bool, stats: &ReadStats) -> Value {
    let mut nodes = Vec::new();
    let deepest = match (ran, stats.is_hidden()) {
        (false, _) => None,
        (true, false) => Some(usize::MAX),
        (true, true) => Some(0),
    };
    walk(physical, 0, deepest, &mut nodes);
    if stats.is_hidden()
        && let Some(Value::Object(root)) = nodes.first_mut()
    {
        root.retain(|name, _| ["name", "depth", "rows", "time_ms"].contains(&name.as_str()));
    }
    json!({
        "logical": logical.display_indent().to_string(),
        "physical": text(physical),
        "digest": digest(physical),
        "nodes": nodes,
    })
}

/// What a whole query read, its label phase included.
pub(crate) fn totals(stats: &[&Arc<ReadStats>], elapsed: Duration) -> Value {
    let mut totals: Map<String, Value> = Map::new();
    for (name, value) in stats.iter().flat_map(|stats| stats.told()) {
        let known = totals.get(name).and_then(Value::as_u64).unwrap_or_default();
        totals.insert(name.into(), (known + value).into());
    }
    totals.insert("time_ms".into(), json!(elapsed.as_secs_f64() * 1e3));
    Value::Object(totals)
}

fn text(physical: &Arc<dyn ExecutionPlan>) -> String {
    displayable(&**physical).indent(false).to_string()
}

/// Gives a digest of a physical plan as it is shown: plans that read the same in the same way have the same one.
pub(crate) fn digest(physical: &Arc<dyn ExecutionPlan>) -> String {
    format!("{:016x}", xxh3_64(text(physical).as_bytes()))
}

/// Lists nodes; those down to `deepest` with their metrics.
fn walk(node: &Arc<dyn ExecutionPlan>, depth: usize, deepest: Option<usize>, out: &mut Vec<Value>) {
    let mut entry = Map::new();
    entry.insert("name".into(), node.name().into());
    entry.insert("depth".into(), depth.into());
    if deepest.is_some_and(|deepest| depth <= deepest) {
        entry.insert("rows".into(), 0.into());
        entry.insert("time_ms".into(), 0.0.into());
        if let Some(metrics) = node.metrics() {
            add_metrics(&metrics.aggregate_by_name(), &mut entry);
        }
    }
    out.push(Value::Object(entry));
    for child in node.children() {
        walk(child, depth + 1, deepest, out);
    }
}

fn add_metrics(metrics: &MetricsSet, entry: &mut Map<String, Value>) {
    for metric in metrics.iter() {
        let value = metric.value();
        match value {
            MetricValue::OutputRows(n) => entry.insert("rows".into(), n.value().into()),
            MetricValue::ElapsedCompute(t) => entry.insert("time_ms".into(), json!(t.value() as f64 / 1e6)),
            MetricValue::Time { name, time } => entry.insert(format!("{name}_ms"), json!(time.value() as f64 / 1e6)),
            MetricValue::StartTimestamp(_) | MetricValue::EndTimestamp(_) => None,
            other => entry.insert(other.name().to_owned(), other.as_usize().into()),
        };
    }
}
