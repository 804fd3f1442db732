//! Walks over small graphs by hand and random ones against a plain search.

use rand::{RngExt, SeedableRng};
use serde_json::json;

use super::*;

fn entity(id: String, body: Value) -> Entity {
    let Value::Object(body) = body else { panic!("an object") };
    Entity {
        id,
        owner: String::new(),
        version: 1,
        created_ms: 0,
        updated_ms: 0,
        created_by: String::new(),
        updated_by: String::new(),
        managed_by: "api".to_owned(),
        body,
        sealed: Map::new(),
    }
}

fn graph(nodes: usize, edges: &[(usize, usize)]) -> Graph {
    let mut graph = Graph::default();
    for n in 0..nodes {
        graph.add(&entity(n.to_string(), json!({"typeId": format!("t{}", n % 3)})));
    }
    for (n, (from, to)) in edges.iter().enumerate() {
        let body = json!({"typeId": format!("r{}", n % 2), "sourceId": from.to_string(), "targetId": to.to_string()});
        graph.connect(&entity(format!("e{n}"), body));
    }
    graph
}

/// Fields are kept as text: they come back as they were, and what judges sees its own alone.
#[test]
fn resources_are_shown_as_they_are() {
    let body = json!({"typeId": "t", "service": "cart", "health": "ok", "state": "active", "displayName": "Cart \u{1f6d2}",
        "attributes": {"a": "\"b\"", "n": 0.1, "big": 9_007_199_254_740_993_i64}, "tags": [], "lastSeen": null});
    let resource = entity("one".to_owned(), body);
    let mut graph = Graph::default();
    graph.add(&resource);
    graph.connect(&entity("e".to_owned(), json!({"sourceId": "one", "targetId": "nobody"})));
    let mut expected = resource.shown();
    expected.insert("depth".to_owned(), json!(0));
    let found = graph.walk(&walk(&["one".to_owned()], 3, 9));
    assert_eq!((&found.nodes[..], found.edges.len()), (&[expected][..], 0));
    let judged = graph.node("one").unwrap();
    let mut fields: Vec<(&str, &str)> =
        judged.body.iter().map(|(key, value)| (&**key, value.as_str().unwrap())).collect();
    fields.sort_unstable();
    assert_eq!(fields, [("health", "ok"), ("service", "cart"), ("state", "active"), ("typeId", "t")]);
    assert_eq!(graph.nodes().count(), 1);
    assert!(graph.node("two").is_none());
}

fn walk(roots: &[String], depth: usize, limit: usize) -> Walk<'_> {
    Walk {
        roots,
        direction: Direction::Down,
        depth,
        limit,
        relationship_types: None,
        shows: &|_| true,
        through: false,
        may_see: &|_| true,
        at_ms: 1,
    }
}

fn depths(found: &Subgraph) -> Vec<(String, u64)> {
    found.nodes.iter().map(|n| (text(n, "id").to_owned(), n["depth"].as_u64().unwrap())).collect()
}

#[test]
fn by_hand() {
    // 0 → 1 → 2 → 0, 2 → 3 → 4
    let graph = graph(5, &[(0, 1), (1, 2), (2, 0), (2, 3), (3, 4)]);
    let roots = ["0".to_owned()];
    let check = |walk: Walk<'_>, nodes: &[(&str, u64)], frontier: &[&str], cycles: usize, truncated: bool| {
        let found = graph.walk(&walk);
        let nodes: Vec<(String, u64)> = nodes.iter().map(|(id, d)| ((*id).to_owned(), *d)).collect();
        assert_eq!(depths(&found), nodes);
        assert_eq!(
            (&found.frontier[..], found.cycles.len(), found.truncated),
            (&frontier.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>()[..], cycles, truncated)
        );
    };
    check(walk(&roots, 1, 100), &[("0", 0), ("1", 1)], &["1"], 0, false);
    check(walk(&roots, 3, 100), &[("0", 0), ("1", 1), ("2", 2), ("3", 3)], &["3"], 1, false);
    check(walk(&roots, 9, 100), &[("0", 0), ("1", 1), ("2", 2), ("3", 3), ("4", 4)], &[], 1, false);
    check(walk(&roots, 9, 3), &[("0", 0), ("1", 1), ("2", 2)], &["2"], 1, true);
    check(Walk { direction: Direction::Up, ..walk(&roots, 1, 9) }, &[("0", 0), ("2", 1)], &["2"], 0, false);
    check(Walk { direction: Direction::Both, ..walk(&roots, 1, 9) }, &[("0", 0), ("1", 1), ("2", 1)], &["2"], 1, false);
    // What may not be seen is neither walked through nor told of.
    let hides = |e: &Entity| e.id != "2";
    check(Walk { may_see: &hides, ..walk(&roots, 9, 9) }, &[("0", 0), ("1", 1)], &[], 0, false);
    // What its type excludes is walked through on demand only.
    let shows = |e: &Entity| text(&e.body, "typeId") != "t1";
    check(Walk { shows: &shows, ..walk(&roots, 9, 9) }, &[("0", 0)], &[], 0, false);
    check(Walk { shows: &shows, through: true, ..walk(&roots, 9, 9) }, &[("0", 0), ("2", 2), ("3", 3)], &[], 0, false);
    let types = Some(HashSet::from(["r1".to_owned()]));
    check(Walk { relationship_types: types, ..walk(&roots, 9, 9) }, &[("0", 0)], &[], 0, false);
    assert_eq!(graph.degree("2", &|_| true), (1, 2));
}

#[test]
fn like_a_plain_search() {
    let mut rng = rand::rngs::StdRng::seed_from_u64(7);
    for round in 0..30 {
        // The first one is large: 10,000 resources, 50,000 relationships.
        let (nodes, count) = if round == 0 { (10_000, 50_000) } else { (60, 150) };
        let edges: Vec<(usize, usize)> = (0..count)
            .map(|_| (rng.random_range(0..nodes), rng.random_range(0..nodes)))
            .filter(|(a, b)| a != b)
            .collect();
        let graph = graph(nodes, &edges);
        let (root, depth) = (rng.random_range(0..nodes), rng.random_range(1..6));
        let mut least = vec![usize::MAX; nodes];
        least[root] = 0;
        // Bellman and Ford, as far as the walk goes.
        for _ in 0..depth {
            for &(a, b) in &edges {
                least[b] = least[b].min(least[a].saturating_add(1));
            }
        }
        let roots = [root.to_string()];
        let found = graph.walk(&walk(&roots, depth, 10_000));
        let mut expected: Vec<(String, u64)> =
            least.iter().enumerate().filter(|(_, d)| **d <= depth).map(|(n, d)| (n.to_string(), *d as u64)).collect();
        let mut got = depths(&found);
        expected.sort();
        got.sort();
        assert_eq!(got, expected);
        let shown: HashSet<usize> = got.iter().map(|(id, _)| id.parse().unwrap()).collect();
        let within = edges.iter().filter(|(a, b)| shown.contains(a) && shown.contains(b)).count();
        assert_eq!(found.edges.len(), within);
        let mut beyond: Vec<String> = shown
            .iter()
            .filter(|n| edges.iter().any(|(a, b)| a == *n && !shown.contains(b)))
            .map(ToString::to_string)
            .collect();
        beyond.sort();
        let mut frontier = found.frontier.clone();
        frontier.sort();
        assert_eq!(frontier, beyond);
    }
}

/// Would fail if a graph held the texts of all resources, or showed any number of large ones.
#[test]
fn large_resources_are_neither_held_nor_shown_without_end() {
    let mut graph = Graph::default();
    for n in 0..40 {
        let body = json!({"typeId": "t", "service": "cart", "description": "x".repeat(1 << 20)});
        graph.add(&entity(n.to_string(), body));
    }
    for n in 1..40 {
        let body = json!({"typeId": "r", "sourceId": "0", "targetId": n.to_string()});
        graph.connect(&entity(format!("e{n}"), body));
    }
    assert_eq!(graph.held, 0);
    let roots = ["0".to_owned()];
    let found = graph.walk(&walk(&roots, 3, 100));
    assert!(found.truncated && (15..=18).contains(&found.nodes.len()), "{} resources", found.nodes.len());
    assert_eq!(found.lacking.len(), found.nodes.len());
    assert!(found.nodes.iter().all(|node| node.len() == 2 && node.contains_key("depth")), "id and depth");
    // What judges sees the same.
    assert_eq!(graph.node("7").unwrap().body["service"], "cart");
    let mut small = Graph::default();
    (0..20).for_each(|n| small.add(&entity(n.to_string(), json!({"typeId": "t"}))));
    assert!((500..=HELD_BYTES_MAX).contains(&small.held), "{} bytes", small.held);
    let mut smaller = Graph { held_max: small.held / 2, ..Graph::default() };
    (0..20).for_each(|n| smaller.add(&entity(n.to_string(), json!({"typeId": "t"}))));
    assert!((1..=small.held / 2).contains(&smaller.held), "{} bytes", smaller.held);
}
