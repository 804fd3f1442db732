//! Query plans in the formats of PostgreSQL.

use arrow::array::StringArray;
use quiver_types::{Error, Result};
use serde_json::{Map, Value, json};

/// The whole plan as lines.
///
/// # Errors
/// Internal: only by a bug.
pub(super) fn lines(plan: &Value) -> Result<StringArray> {
    let text = serde_json::to_string_pretty(plan).map_err(|e| Error::internal("cannot show a plan").with_source(e))?;
    Ok(text.lines().map(Some).collect())
}

/// PostgreSQL's names for properties of nodes.
const NAMES: [(&str, &str); 3] = [("name", "Node Type"), ("rows", "Actual Rows"), ("time_ms", "Actual Total Time")];

/// A plan like PostgreSQL's `EXPLAIN (FORMAT JSON)`: nested nodes with the names that tools expect, and our other
/// properties.
pub(super) fn document(plan: &Value) -> String {
    let mut shown = Map::from_iter([("Plan".to_owned(), tree(plan))]);
    if let Some(time) = plan["totals"].get("time_ms") {
        shown.insert("Execution Time".to_owned(), time.clone());
    }
    let others = plan.as_object().into_iter().flatten().filter(|(name, _)| *name != "nodes");
    shown.extend(others.map(|(name, value)| (name.clone(), value.clone())));
    json!([shown]).to_string()
}

/// Converts the list of nodes, in which parents precede their children, to a tree.
fn tree(plan: &Value) -> Value {
    let nodes = plan["nodes"].as_array().map_or(&[][..], Vec::as_slice);
    let mut trees: Vec<(u64, Value)> = Vec::new();
    // Backwards, so that the children of a node are complete when it is reached.
    for node in nodes.iter().rev() {
        let depth = node["depth"].as_u64().unwrap_or_default();
        let mut below = Vec::new();
        while let Some((_, child)) = trees.pop_if(|(deeper, _)| *deeper > depth) {
            below.push(child);
        }
        let mut shown = Map::new();
        for (name, value) in node.as_object().into_iter().flatten().filter(|(name, _)| *name != "depth") {
            let known = NAMES.iter().find(|(ours, _)| ours == name).map_or(name.as_str(), |(_, theirs)| *theirs);
            shown.insert(known.to_owned(), value.clone());
        }
        if !below.is_empty() {
            shown.insert("Plans".to_owned(), below.into());
        }
        trees.push((depth, shown.into()));
    }
    trees.pop().map_or(Value::Null, |(_, root)| root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_stand_in_nodes() {
        let node = |name: &str, depth: usize| json!({"name": name, "depth": depth, "rows": depth});
        let nodes = [node("a", 0), node("b", 1), node("c", 2), node("d", 2), node("e", 1)];
        let plan = json!({"nodes": nodes, "logical": "l", "totals": {"time_ms": 2.5}});
        let shown: Value = serde_json::from_str(&document(&plan)).unwrap();
        let leaf = |name: &str, rows: usize| json!({"Node Type": name, "Actual Rows": rows});
        let b = json!({"Node Type": "b", "Actual Rows": 1, "Plans": [leaf("c", 2), leaf("d", 2)]});
        let a = json!({"Node Type": "a", "Actual Rows": 0, "Plans": [b, leaf("e", 1)]});
        let totals = json!({"time_ms": 2.5});
        assert_eq!(shown, json!([{"Plan": a, "Execution Time": 2.5, "logical": "l", "totals": totals}]));
        assert!(lines(&plan).unwrap().iter().flatten().any(|line| line.contains("\"logical\": \"l\"")));
    }

    /// Invalid plans yield no node, and no error.
    #[test]
    fn plans_of_any_shape() {
        let tree_of = |depths: &[i64]| {
            let nodes: Vec<Value> =
                depths.iter().enumerate().map(|(n, depth)| json!({"name": n, "depth": depth})).collect();
            tree(&json!({ "nodes": nodes }))
        };
        let node = |name: usize, below: &[Value]| {
            let mut node = json!({"Node Type": name});
            if !below.is_empty() {
                node["Plans"] = below.into();
            }
            node
        };
        assert_eq!(tree_of(&[]), Value::Null);
        assert_eq!(tree_of(&[0]), node(0, &[]));
        assert_eq!(tree_of(&[5]), node(0, &[]), "the first is the root, however deep it says it is");
        assert_eq!(tree_of(&[0, 1, 2, 3]), node(0, &[node(1, &[node(2, &[node(3, &[])])])]));
        assert_eq!(tree_of(&[0, 1, 1, 1]), node(0, &[node(1, &[]), node(2, &[]), node(3, &[])]));
        // A skipped level is ignored.
        assert_eq!(tree_of(&[0, 3, 1]), node(0, &[node(1, &[]), node(2, &[])]));
        assert_eq!(tree_of(&[0, 2, 3, 1, 2]), node(0, &[node(1, &[node(2, &[])]), node(3, &[node(4, &[])])]));
        assert_eq!(tree_of(&[0, -1]), node(0, &[]), "a depth that is none is that of the root");
        for odd in [json!(null), json!([]), json!({"nodes": 7}), json!({"nodes": []})] {
            assert_eq!(tree(&odd), Value::Null, "{odd}");
        }
        let shown: Value = serde_json::from_str(&document(&json!({"text": "t", "nodes": []}))).unwrap();
        assert_eq!(shown, json!([{"Plan": null, "text": "t"}]));
    }
}
