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

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use datafusion::physical_plan::collect;
    use datafusion::prelude::{SessionConfig, SessionContext};
    use quiver_types::read_stats::add;

    use super::*;

    /// A filter over numbers, run if it is asked for.
    async fn plans(bound: i64, runs: bool) -> (LogicalPlan, Arc<dyn ExecutionPlan>) {
        let session = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        session.register_batch("t", batch).unwrap();
        let frame = session.sql(&format!("select n from t where n > {bound}")).await.unwrap();
        let logical = frame.logical_plan().clone();
        let physical = frame.create_physical_plan().await.unwrap();
        if runs {
            collect(Arc::clone(&physical), session.task_ctx()).await.unwrap();
        }
        (logical, physical)
    }

    #[tokio::test]
    async fn nodes_of_a_plan_that_ran_show_their_rows() {
        let stats = ReadStats::default();
        let (logical, physical) = plans(1, true).await;
        let shown = to_json(&logical, &physical, true, &stats);
        let nodes = shown["nodes"].as_array().unwrap();
        let filter = nodes.iter().find(|node| node["name"] == "FilterExec").unwrap();
        assert_eq!(filter["rows"], 2);
        assert!(filter["time_ms"].is_number());
        assert_eq!(nodes[0]["depth"], 0);
        assert!(nodes.windows(2).all(|pair| pair[1]["depth"].as_u64() <= pair[0]["depth"].as_u64().map(|d| d + 1)));
        let planned = to_json(&logical, &physical, false, &stats);
        assert!(planned["nodes"].as_array().unwrap().iter().all(|node| node.get("rows").is_none()), "{planned}");
        assert!(shown["logical"].as_str().unwrap().contains("Filter: t.n > Int64(1)"), "{shown}");
        assert!(shown["physical"].as_str().unwrap().contains("FilterExec: n@0 > 1"), "{shown}");
    }

    #[tokio::test]
    async fn who_does_not_see_all_rows_is_not_told_how_many_there_are() {
        let stats = ReadStats::default();
        stats.hide();
        let (logical, physical) = plans(1, true).await;
        let shown = to_json(&logical, &physical, true, &stats);
        for (at, node) in shown["nodes"].as_array().unwrap().iter().enumerate() {
            let mut names: Vec<&str> = node.as_object().unwrap().keys().map(String::as_str).collect();
            names.sort_unstable();
            let expected: &[&str] = if at == 0 { &["depth", "name", "rows", "time_ms"] } else { &["depth", "name"] };
            assert_eq!(names, expected, "{node}");
        }
        add(&stats.bytes_read, 70);
        let totals = totals(&[&Arc::new(stats)], Duration::ZERO);
        assert_eq!((&totals["bytes_read"], &totals["time_ms"]), (&json!(0), &json!(0.0)));
    }

    #[tokio::test]
    async fn equal_plans_have_one_digest() {
        let of = async |bound| digest(&plans(bound, false).await.1);
        let digests = [of(1).await, of(1).await, of(2).await];
        assert!(digests[0] == digests[1] && digests[0] != digests[2], "{digests:?}");
        assert!(digests.iter().all(|digest| digest.len() == 16 && quiver_types::is_hex(digest)));
    }

    #[test]
    fn totals_are_of_all_plans() {
        let stats = [3, 4].map(|n| {
            let stats = Arc::new(ReadStats::default());
            add(&stats.samples, n);
            stats
        });
        let totals = totals(&[&stats[0], &stats[1]], Duration::ZERO);
        assert_eq!((&totals["samples"], &totals["series"]), (&json!(7), &json!(0)));
    }
}
