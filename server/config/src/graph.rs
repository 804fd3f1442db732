//! Managed resources as a graph: neighbours and dependencies (`config-api` 4).

use std::collections::{HashMap, HashSet, VecDeque};

use futures::future::BoxFuture;
use quiver_database::statement;
use serde_json::{Map, Value};

use crate::config::Config;
use crate::entity::Entity;
use crate::families::RESOURCES;
use crate::families::body::text;
use crate::json::time_of;
use crate::problem::Result;

use node::Node;

mod cycles;
mod node;

/// Bytes of texts of resources that a graph holds, where there is memory for them; the others are read when they are shown.
const HELD_BYTES_MAX: usize = if cfg!(test) { 1 << 10 } else { 64 << 20 };
/// Bytes of texts behind which no more resources are shown.
const SHOWN_BYTES_MAX: usize = 16 << 20;
/// Resources that are read with one statement.
const READ_AT_ONCE: usize = 100;

/// A relationship, by the places of its ends.
#[derive(Debug)]
struct Edge {
    id: String,
    type_id: String,
    ends: [usize; 2],
    valid: (i64, i64),
}

/// All resources and relationships; made once per state of the configuration.
#[derive(Debug)]
pub struct Graph {
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    /// Per node: edges that go out, edges that come in.
    at: Vec<[Vec<usize>; 2]>,
    by_id: HashMap<String, usize>,
    /// Bytes of the texts that the nodes hold, and most of them.
    held: usize,
    held_max: usize,
}

impl Default for Graph {
    fn default() -> Self {
        let (nodes, edges, at) = (Vec::new(), Vec::new(), Vec::new());
        Self { nodes, edges, at, by_id: HashMap::new(), held: 0, held_max: HELD_BYTES_MAX }
    }
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
    /// Most resources that are shown, the roots included. Of large ones fewer are.
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
pub struct Subgraph {
    /// Resources with their least depth, in the order in which they were met.
    pub nodes: Vec<Map<String, Value>>,
    /// Places in `nodes` of those that have only id and depth yet; see [`Config::complete`].
    lacking: Vec<usize>,
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
    /// Makes an empty one for the resources of a configuration.
    pub fn of(config: &Config) -> Self {
        Self { held_max: config.share_of_memory(HELD_BYTES_MAX), ..Self::default() }
    }

    /// Adds a resource.
    pub fn add(&mut self, resource: &Entity) {
        self.by_id.insert(resource.id.clone(), self.nodes.len());
        let node = Node::of(resource, self.held_max.saturating_sub(self.held));
        self.held += node.held();
        self.nodes.push(node);
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
    pub fn walk(&self, walk: &Walk<'_>) -> Subgraph {
        let mut found = Subgraph::default();
        let (mut shown, mut bytes) = (Vec::<usize>::new(), 0);
        let (mut met, mut open) = (HashSet::new(), VecDeque::new());
        let is_full = |count: usize, bytes: usize| count == walk.limit || bytes > SHOWN_BYTES_MAX;
        for &root in walk.roots.iter().filter_map(|id| self.by_id.get(id)) {
            if met.insert(root) {
                if is_full(shown.len(), bytes) {
                    found.truncated = true;
                    continue;
                }
                shown.push(root);
                bytes += self.show(root, 0, &mut found);
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
                if is_shown && is_full(shown.len(), bytes) {
                    found.truncated = true;
                    continue;
                }
                if is_shown {
                    shown.push(far);
                    bytes += self.show(far, depth + 1, &mut found);
                }
                open.push_back((far, depth + 1));
            }
        }
        self.finish(walk, &shown, &mut found);
        found
    }

    /// Adds a resource to what was found; returns the length of its text.
    fn show(&self, node: usize, depth: usize, found: &mut Subgraph) -> usize {
        let node = &self.nodes[node];
        let mut map = node.shown().unwrap_or_else(|| {
            found.lacking.push(found.nodes.len());
            [("id".to_owned(), Value::from(node.id.as_str()))].into_iter().collect()
        });
        map.insert("depth".to_owned(), depth.into());
        found.nodes.push(map);
        node.bytes
    }

    /// Edges between shown resources, what lies beyond them, and cycles.
    fn finish(&self, walk: &Walk<'_>, shown: &[usize], found: &mut Subgraph) {
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

impl Config {
    /// Reads the resources that were found whose fields the graph does not hold. One that is gone meanwhile has its id
    /// alone.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub fn complete<'a>(&'a self, found: &'a mut Subgraph) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let lacking = std::mem::take(&mut found.lacking);
            if lacking.is_empty() {
                return Ok(());
            }
            let mut db = self.pool.acquire().await?;
            for some in lacking.chunks(READ_AT_ONCE) {
                let places = vec!["?"; some.len()].join(", ");
                let sql = format!("SELECT {} FROM entity WHERE family = ? AND id IN ({places})", Entity::COLUMNS);
                let mut select = statement(sql).bind(RESOURCES.name);
                for &n in some {
                    select = select.bind(text(&found.nodes[n], "id"));
                }
                let mut read = HashMap::new();
                for row in select.fetch_packed(Entity::COLUMNS, &mut db).await? {
                    let mut entity = Entity::read(&row)?;
                    let shown = entity.take_shown();
                    read.insert(entity.id, shown);
                }
                for &n in some {
                    let shown = read.remove(text(&found.nodes[n], "id"));
                    found.nodes[n].extend(shown.unwrap_or_default());
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
