//! Plans as JSON: `{"logical","physical","nodes":[…]}` (`architecture` 8).

use std::sync::Arc;
use std::time::Duration;

use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::metrics::{MetricValue, MetricsSet};
use datafusion::physical_plan::{ExecutionPlan, displayable};
use quiver_types::ReadStats;
use serde_json::{Map, Value, json};

/// Renders both plans and one entry per physical node, parents first. With `analyzed`, nodes show their metrics, and
/// `totals` what the whole query read, its label phase included.
pub(crate) fn to_json(
    logical: &LogicalPlan,
    physical: &Arc<dyn ExecutionPlan>,
    analyzed: Option<(&ReadStats, Duration)>,
) -> Value {
    let mut nodes = Vec::new();
    walk(physical, 0, analyzed.is_some(), &mut nodes);
    let mut out = json!({
        "logical": logical.display_indent().to_string(),
        "physical": displayable(&**physical).indent(false).to_string(),
        "nodes": nodes,
    });
    if let Some((stats, elapsed)) = analyzed {
        let mut totals: Map<String, Value> = stats.list().into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        totals.insert("time_ms".into(), json!(elapsed.as_secs_f64() * 1e3));
        out["totals"] = Value::Object(totals);
    }
    out
}

fn walk(node: &Arc<dyn ExecutionPlan>, depth: usize, analyzed: bool, out: &mut Vec<Value>) {
    let mut entry = Map::new();
    entry.insert("name".into(), node.name().into());
    entry.insert("depth".into(), depth.into());
    if analyzed {
        entry.insert("rows".into(), 0.into());
        entry.insert("time_ms".into(), 0.0.into());
        if let Some(metrics) = node.metrics() {
            add_metrics(&metrics.aggregate_by_name(), &mut entry);
        }
    }
    out.push(Value::Object(entry));
    for child in node.children() {
        walk(child, depth + 1, analyzed, out);
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
