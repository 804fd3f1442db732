//! Managed resources as a graph: neighbours and dependencies (`config-api` 4).

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::{Map, Value};

use crate::entity::Entity;
use crate::families::body::text;
use crate::json::time_of;

use node::Node;

mod cycles;
mod node;

/// A relationship, by the places of its ends.
#[derive(Debug)]
struct Edge {
    id: String,
    type_id: String,
    ends: [usize; 2],
    valid: (i64, i64),
}

/// All resources and relationships; made once per state of the configuration.
#[derive(Debug, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    /// Per node: edges that go out, edges that come in.
    at: Vec<[Vec<usize>; 2]>,
    by_id: HashMap<String, usize>,
}

/// Which way relationships are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From source to target.
    Down,
    /// From target to source.
    Up,
    /// Either way, at each step anew.
    Both,
}

/// What is asked of a graph.
pub struct Walk<'a> {
    /// Where it begins.
    pub roots: &'a [String],
    /// Which way relationships are followed from there.
    pub direction: Direction,
    /// Most relationships between a root and what is shown.
    pub depth: usize,
    /// Most resources that are shown, the roots included.
    pub limit: usize,
    /// Types of relationships that count; none: all.
    pub relationship_types: Option<HashSet<String>>,
    /// Says whether a resource is shown, by its type; see [`Graph::node`] for what of it is there.
    pub shows: &'a dyn Fn(&Entity) -> bool,
    /// Whether resources that are not shown are walked through.
    pub through: bool,
    /// Says whether the caller may see a resource.
    pub may_see: &'a dyn Fn(&Entity) -> bool,
    /// Relationships as they were at this time, Unix milliseconds.
    pub at_ms: i64,
}

impl std::fmt::Debug for Walk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walk").field("roots", &self.roots).field("depth", &self.depth).finish_non_exhaustive()
    }
}

/// What was found.
#[derive(Debug, Default, PartialEq)]
pub struct Found {
    /// Resources with their least depth, in the order in which they were met.
    pub nodes: Vec<Map<String, Value>>,
    /// Relationships between them: `{id, typeId, sourceId, targetId}`.
    pub edges: Vec<Value>,
    /// Whether resources are left out for the limit.
    pub truncated: bool,
    /// Shown resources from which more could be reached.
    pub frontier: Vec<String>,
    /// Simple cycles of the edges.
    pub cycles: Vec<Vec<String>>,
}

impl Graph {
    /// Adds a resource.
    pub fn add(&mut self, resource: &Entity) {
        self.by_id.insert(resource.id.clone(), self.nodes.len());
        self.nodes.push(Node::of(resource));
        self.at.push(Default::default());
    }

    /// Adds a relationship between resources that were added.
    pub fn connect(&mut self, relationship: &Entity) {
        let body = &relationship.body;
        let end = |key: &str| self.by_id.get(text(body, key)).copied();
        let (Some(source), Some(target)) = (end("sourceId"), end("targetId")) else { return };
        let time = |key: &str| body.get(key).and_then(Value::as_str).and_then(time_of);
        let n = self.edges.len();
        self.at[source][0].push(n);
        self.at[target][1].push(n);
        self.edges.push(Edge {
            id: relationship.id.clone(),
            type_id: text(body, "typeId").to_owned(),
            ends: [source, target],
            valid: (time("validFrom").unwrap_or(i64::MIN), time("validTo").unwrap_or(i64::MAX)),
        });
    }

    /// Gives a resource with what it is judged by: type, service, health, state.
    pub fn node(&self, id: &str) -> Option<Entity> {
        self.by_id.get(id).map(|&n| self.nodes[n].judged())
    }

    /// All resources, likewise.
    pub fn nodes(&self) -> impl Iterator<Item = Entity> {
        self.nodes.iter().map(Node::judged)
    }

    /// How many relationships with resources that may be seen come in and go out.
    pub fn degree(&self, id: &str, may_see: &dyn Fn(&Entity) -> bool) -> (usize, usize) {
        let Some(&n) = self.by_id.get(id) else { return (0, 0) };
        let count = |way: usize| {
            let far = self.at[n][way].iter().map(|&e| self.edges[e].ends[1 - way]);
            far.filter(|&m| may_see(&self.nodes[m].judged())).count()
        };
        (count(1), count(0))
    }

    fn admits(walk: &Walk<'_>, edge: &Edge) -> bool {
        let typed = walk.relationship_types.as_ref().is_none_or(|types| types.contains(&edge.type_id));
        typed && edge.valid.0 <= walk.at_ms && walk.at_ms < edge.valid.1
    }

    /// The far ends of admitted edges of a node, in the walked direction.
    fn next<'a>(&'a self, walk: &'a Walk<'_>, node: usize) -> impl Iterator<Item = usize> + 'a {
        let ways: &[usize] = match walk.direction {
            Direction::Down => &[0],
            Direction::Up => &[1],
            Direction::Both => &[0, 1],
        };
        ways.iter().flat_map(move |&way| {
            let edges = self.at[node][way].iter().map(|&e| &self.edges[e]);
            edges.filter(move |e| Self::admits(walk, e)).map(move |e| e.ends[1 - way])
        })
    }

    /// Walks breadth first; each resource is met once, at its least depth.
    pub fn walk(&self, walk: &Walk<'_>) -> Found {
        let mut found = Found::default();
        let mut shown: Vec<usize> = Vec::new();
        let (mut met, mut open) = (HashSet::new(), VecDeque::new());
        let show = |node: usize, depth: usize, shown: &mut Vec<usize>, found: &mut Found| {
            let mut map = self.nodes[node].shown();
            map.insert("depth".to_owned(), depth.into());
            found.nodes.push(map);
            shown.push(node);
        };
        for &root in walk.roots.iter().filter_map(|id| self.by_id.get(id)) {
            if met.insert(root) {
                if shown.len() == walk.limit {
                    found.truncated = true;
                    continue;
                }
                show(root, 0, &mut shown, &mut found);
                open.push_back((root, 0));
            }
        }
        while let Some((node, depth)) = open.pop_front() {
            if depth == walk.depth {
                continue;
            }
            for far in self.next(walk, node) {
                if met.contains(&far) {
                    continue;
                }
                let entity = &self.nodes[far].judged();
                if !(walk.may_see)(entity) {
                    continue;
                }
                let is_shown = (walk.shows)(entity);
                if !is_shown && !walk.through {
                    continue;
                }
                met.insert(far);
                if is_shown && shown.len() == walk.limit {
                    found.truncated = true;
                    continue;
                }
                if is_shown {
                    show(far, depth + 1, &mut shown, &mut found);
                }
                open.push_back((far, depth + 1));
            }
        }
        self.finish(walk, &shown, &mut found);
        found
    }

    /// Edges between shown resources, what lies beyond them, and cycles.
    fn finish(&self, walk: &Walk<'_>, shown: &[usize], found: &mut Found) {
        let places: HashMap<usize, usize> = shown.iter().enumerate().map(|(n, &node)| (node, n)).collect();
        let mut out: Vec<Vec<usize>> = vec![Vec::new(); shown.len()];
        for (n, &node) in shown.iter().enumerate() {
            for edge in self.at[node][0].iter().map(|&e| &self.edges[e]) {
                let Some(&target) = places.get(&edge.ends[1]).filter(|_| Self::admits(walk, edge)) else { continue };
                out[n].push(target);
                let id = |end: usize| self.nodes[edge.ends[end]].id.as_str();
                found.edges.push(serde_json::json!({
                    "id": edge.id, "typeId": edge.type_id, "sourceId": id(0), "targetId": id(1),
                }));
            }
            let beyond = self.next(walk, node).any(|far| {
                let is_beyond = |entity: &Entity| (walk.may_see)(entity) && (walk.shows)(entity);
                !places.contains_key(&far) && is_beyond(&self.nodes[far].judged())
            });
            if beyond {
                found.frontier.push(self.nodes[node].id.clone());
            }
        }
        // Two relationships of different types are one way.
        for far in &mut out {
            far.sort_unstable();
            far.dedup();
        }
        let ids = |cycle: Vec<usize>| cycle.into_iter().map(|n| self.nodes[shown[n]].id.clone()).collect();
        found.cycles = cycles::simple_cycles(&out).into_iter().map(ids).collect();
    }
}

#[cfg(test)]
mod tests;
