//! Query plans in the formats of PostgreSQL.

use arrow::array::StringArray;
use serde_json::{Map, Value, json};

/// Most levels that are indented.
const INDENTED_MAX: usize = 100;

/// A plan like the text of PostgreSQL's `EXPLAIN`: a line for each node, what is below it behind an arrow, and what it
/// took if it ran. Plans that had to run before this one could be made follow.
pub(super) fn lines(plan: &Value) -> StringArray {
    let mut lines = Vec::new();
    node_lines(plan, &mut lines);
    if let Some(time) = plan["totals"]["time_ms"].as_f64() {
        lines.push(format!("Execution Time: {time:.3} ms"));
    }
    for child in plan["children"].as_array().into_iter().flatten() {
        lines.push("Before it:".to_owned());
        node_lines(child, &mut lines);
    }
    StringArray::from(lines)
}

fn node_lines(plan: &Value, lines: &mut Vec<String>) {
    let nodes = plan["nodes"].as_array().map_or(&[][..], Vec::as_slice);
    // The physical plan has a line for each node, which tells more than its name.
    let told: Vec<&str> = plan["physical"].as_str().unwrap_or_default().lines().map(str::trim_start).collect();
    let matches = told.len() == nodes.len();
    for (n, node) in nodes.iter().enumerate() {
        let name = node["name"].as_str().unwrap_or_default();
        let text = told.get(n).copied().filter(|line| matches && line.starts_with(name)).unwrap_or(name);
        let depth = node["depth"].as_u64().map_or(0, |depth| (depth as usize).min(INDENTED_MAX));
        let begin = if depth == 0 { String::new() } else { format!("{}->  ", " ".repeat(6 * depth - 4)) };
        let took = match (node["time_ms"].as_f64(), node["rows"].as_u64()) {
            (Some(time), Some(rows)) => format!(" (actual time={time:.3} rows={rows})"),
            (None, Some(rows)) => format!(" (actual rows={rows})"),
            _ => String::new(),
        };
        lines.push(format!("{begin}{text}{took}"));
    }
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
    }

    #[test]
    fn nodes_stand_below_nodes() {
        let shown = |plan: &Value| lines(plan).iter().flatten().map(str::to_owned).collect::<Vec<_>>();
        let node = |name: &str, depth: usize| json!({"name": name, "depth": depth});
        let plan = json!({"nodes": [node("A", 0), node("B", 1), node("C", 2)], "physical": "A: x=1\n  B\n    C: y\n"});
        assert_eq!(shown(&plan), ["A: x=1", "  ->  B", "        ->  C: y"]);
        // Of what ran: what it took, and what ran before it.
        let ran = json!({
            "nodes": [{"name": "A", "depth": 0, "rows": 3, "time_ms": 0.5}, {"name": "B", "depth": 1, "rows": 4}],
            "physical": "A: x=1", "totals": {"time_ms": 1.25}, "children": [{"nodes": [node("P", 0)]}],
        });
        let expected =
            ["A (actual time=0.500 rows=3)", "  ->  B (actual rows=4)", "Execution Time: 1.250 ms", "Before it:", "P"];
        assert_eq!(shown(&ran), expected);
        assert_eq!(shown(&json!({})), Vec::<String>::new());
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
