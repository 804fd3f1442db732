//! Custom operators: `operators.txt` says for each one what DataFusion lacks.

use std::collections::BTreeSet;

use crate::sources::{none, read, sources};

/// Files that may define operators.
pub(crate) const PLACES: &[&str] = &[
    "engine/promql/src/nodes",
    "engine/logsql/src/ops",
    "engine/logsql/src/pipes",
    "engine/logsql/src/plan",
    "engine/query/src/relational/exchanged_rows.rs",
    "engine/query/src/relational/held_inputs.rs",
    "engine/query/src/relational/join_reruns.rs",
    "engine/query/src/relational/grouping/node.rs",
    "engine/query/src/sequential_union.rs",
    "engine/query/src/index/node.rs",
    "engine/query/src/leaf/node.rs",
    "engine/query/src/relational/list_pieces.rs",
    "engine/query/src/operator.rs",
    "engine/query/src/relational/long_constants.rs",
    "engine/query/src/relational/text_views.rs",
    "engine/query/src/relational/functional_dependencies.rs",
    "engine/query/src/relational/visible_rows.rs",
    "engine/query/src/tables/materialized.rs",
    "engine/query/src/tables/convert.rs",
    "engine/query/src/relational/windows.rs",
    "engine/store/src/scan/planned_scan.rs",
    "engine/store/src/logs/planned_scan.rs",
    "engine/store/src/spans/planned_scan.rs",
    "engine/store/src/spans/rollup.rs",
    "engine/store/src/spans/tags.rs",
];

/// Traits that make a type an operator.
const MADE: &[&str] = &["ExecutionPlan for ", "Operator for ", "UserDefinedLogicalNodeCore for "];

/// Strings within the function that returns an operator's name.
fn names(code: &str) -> impl Iterator<Item = &str> {
    let bodies = code.split("fn name(&self) -> &'static str {").skip(1);
    let bodies = bodies.filter_map(|rest| rest.split("\n    }").next());
    // Optimizer rules are next to their operators; their names have another form.
    let is_node = |name: &&str| name.starts_with(|c: char| c.is_ascii_uppercase());
    bodies.flat_map(|body| body.split('"').skip(1).step_by(2)).filter(is_node)
}

#[test]
fn each_operator_says_what_datafusion_lacks() {
    let list = read("tests/house/operators.txt");
    let lines: Vec<&str> = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let listed: BTreeSet<&str> =
        lines.iter().map(|line| line.rsplit_once(": ").expect("a name and a reason").0).collect();
    assert_eq!(listed.len(), lines.len(), "a name stands there twice");
    let sources = sources();
    let mut found = BTreeSet::new();
    for place in PLACES {
        let here: Vec<_> = sources.iter().filter(|s| s.path.starts_with(place)).collect();
        assert!(!here.is_empty(), "`{place}` has no sources: the check looks at nothing");
        found.extend(here.into_iter().flat_map(|source| names(&source.text)));
    }
    let unlisted = found.difference(&listed).map(|name| format!("`{name}` has no reason in operators.txt"));
    let gone = listed.difference(&found).map(|name| format!("`{name}` is no operator any more"));
    none("operators and their reasons differ", &unlisted.chain(gone).collect::<Vec<_>>());
    // Only these files may create operators, both physical and logical ones. The frame of LogsQL's steps contains
    // their names.
    let frames = ["engine/logsql/src/nodes.rs"];
    let elsewhere = sources.iter().filter(|s| !PLACES.iter().any(|place| s.path.starts_with(place)));
    let elsewhere = elsewhere.filter(|source| !frames.contains(&source.path.as_str()));
    let is_made = |line: &str| line.starts_with("impl") && MADE.iter().any(|made| line.contains(made));
    let made = elsewhere.flat_map(|source| {
        let lines = source.code().filter(|(_, line)| is_made(line));
        lines.map(move |(number, _)| format!("{}:{number}", source.path))
    });
    let made: Vec<String> = made.collect();
    none("nodes of plans outside of the places that are looked at", &made);
}

#[test]
fn nodes_of_the_engine_have_written_forms() {
    let forms = read("engine/query/src/node_encoding.rs");
    let sources = sources();
    let places = PLACES.iter().filter(|place| place.starts_with("engine/query/"));
    let here = places.flat_map(|place| sources.iter().filter(move |s| s.path.starts_with(place)));
    let nodes: BTreeSet<&str> = here.flat_map(|s| names(&s.text)).filter(|name| name.ends_with("Exec")).collect();
    assert!(nodes.len() > 5, "only {nodes:?} were found: the check looks at nothing");
    // A node that is nothing but its kind is only asked whether it is one.
    let has_form = |name: &str| ["downcast_ref", "is"].iter().any(|how| forms.contains(&format!("{how}::<{name}>()")));
    let without = nodes.into_iter().filter(|name| !has_form(name));
    none("nodes without a written form", &without.map(str::to_owned).collect::<Vec<_>>());
}
