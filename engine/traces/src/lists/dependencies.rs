//! The service graph: who calls whom, with counts, errors and durations.
//!
//! An edge is a span whose parent is of another service, or a call whose other side sent no span (a database, a queue,
//! something outside). A parent that the caller may not see makes its edge come from `hidden`.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use quiver_query::QueryContext;
use quiver_types::spans::{Attributes, STATUS_ERROR, SpanFilter, SpanId, TraceId};
use serde_json::{Value, json};

use super::sketch::Sketch;
use super::{Columns, columns, shown};
use crate::engine::{TraceError, TracesEngine};

/// Most spans that a graph is made of.
const SPANS_MAX: usize = 20_000_000;

/// A node.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Name.
    pub id: String,
    /// `service`, `database`, `queue`, `external`, `user`.
    pub kind: &'static str,
    /// Spans of it (of what sends none: calls to it).
    pub spans: u64,
    /// Spans that failed.
    pub errors: u64,
    /// 95th percentile of their duration in nanoseconds.
    pub p95: i64,
}

/// An edge.
#[derive(Debug, Clone, PartialEq)]
pub struct Edge {
    /// Who calls.
    pub source: String,
    /// Who is called.
    pub target: String,
    /// `http`, `rpc`, `messaging`, `db`, or empty.
    pub protocol: &'static str,
    /// Calls.
    pub calls: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Median and 95th percentile of their duration in nanoseconds.
    pub quantiles: [i64; 2],
}

/// The graph.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Dependencies {
    /// In order of names.
    pub nodes: Vec<Node>,
    /// In order of source and target.
    pub edges: Vec<Edge>,
}

impl Dependencies {
    /// Gives the graph as JSON.
    pub fn to_json(&self) -> Value {
        let nodes: Vec<Value> = (self.nodes.iter())
            .map(|n| {
                json!({"id": n.id, "service": if n.kind == "service" { Value::from(n.id.as_str()) } else { Value::Null },
                    "type": n.kind, "spans": n.spans, "errors": n.errors, "p95": n.p95})
            })
            .collect();
        let edges: Vec<Value> = (self.edges.iter())
            .map(|e| {
                json!({"source": e.source, "target": e.target, "protocol": e.protocol, "calls": e.calls,
                    "errors": e.errors, "p50": e.quantiles[0], "p95": e.quantiles[1]})
            })
            .collect();
        json!({"nodes": nodes, "edges": edges})
    }

    /// Gives the edges between services that send spans; of a caller that may see only a part also those to and from
    /// what is hidden.
    pub fn service_edges(&self) -> impl Iterator<Item = &Edge> {
        let sends = |id: &str| self.nodes.iter().any(|n| n.id == id && n.kind == "service");
        self.edges.iter().filter(move |e| sends(&e.source) && sends(&e.target))
    }

    /// Keeps what is within some steps of a service.
    pub fn near(&mut self, services: &[String], depth: usize) {
        let mut known: HashSet<String> = services.iter().cloned().collect();
        for _ in 0..depth {
            let next: Vec<String> = (self.edges.iter())
                .filter(|e| known.contains(&e.source) || known.contains(&e.target))
                .flat_map(|e| [e.source.clone(), e.target.clone()])
                .collect();
            known.extend(next);
        }
        self.nodes.retain(|n| known.contains(&n.id));
        self.edges.retain(|e| known.contains(&e.source) && known.contains(&e.target));
    }
}

/// What the graph needs of a span.
struct Light {
    trace: TraceId,
    parent: Option<SpanId>,
    id: SpanId,
    service: u32,
    kind: u8,
    error: bool,
    duration: i64,
    /// Who is called and how, where the span says it: index of (name, node kind, protocol).
    remote: Option<u32>,
    protocol: &'static str,
}

#[derive(Default)]
struct Names {
    list: Vec<Arc<str>>,
    of: HashMap<Arc<str>, u32, FixedState>,
}

impl Names {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(&known) = self.of.get(name) {
            return known;
        }
        let shared: Arc<str> = name.into();
        self.list.push(Arc::clone(&shared));
        self.of.insert(shared, self.list.len() as u32 - 1);
        self.list.len() as u32 - 1
    }
}

/// Tags of the other side, the best first, and what kind of node they name.
fn remote_of(attributes: &[u8], kind: u8) -> (Option<(String, &'static str)>, &'static str) {
    let list: Vec<_> = Attributes::read(attributes).collect();
    let get = |wanted: &str| {
        let found = list.iter().find(|(key, _)| *key == wanted).map(|(_, v)| v.text().into_owned());
        found.filter(|t| !t.is_empty())
    };
    let has = |prefix: &str| list.iter().any(|(key, _)| key.starts_with(prefix));
    let protocol = match () {
        () if has("db.") => "db",
        () if has("messaging.") => "messaging",
        () if has("rpc.") => "rpc",
        () if has("http.") || has("url.") => "http",
        () => "",
    };
    if !matches!(kind, 3 | 4) {
        return (None, protocol);
    }
    let address = || {
        ["peer.service", "service.peer.name", "server.address", "net.peer.name", "network.peer.address"]
            .iter()
            .find_map(|key| get(key))
    };
    let remote = match protocol {
        "db" => {
            let name = ["db.namespace", "db.name"].iter().find_map(|key| get(key));
            let system = || get("db.system.name").or_else(|| get("db.system"));
            get("peer.service").or(name).or_else(address).or_else(system).map(|n| (n, "database"))
        }
        "messaging" => {
            let system = || get("messaging.system");
            get("messaging.destination.name").or_else(address).or_else(system).map(|n| (n, "queue"))
        }
        _ => address().map(|n| (n, "external")),
    };
    (remote, protocol)
}

#[derive(Default)]
struct Total {
    errors: u64,
    sketch: Sketch,
}

impl Total {
    fn add(&mut self, span: &Light) {
        self.errors += u64::from(span.error);
        self.sketch.add(span.duration);
    }
}

impl TracesEngine {
    /// Makes the graph of the spans that a filter takes.
    ///
    /// # Errors
    /// Too many spans; those of the engine.
    pub async fn dependencies(
        self: &Arc<Self>,
        ctx: &QueryContext,
        filter: SpanFilter,
    ) -> Result<Dependencies, TraceError> {
        self.read(ctx, move |reader| async move {
            let own = &["trace_id", "span_id", "parent_span_id", "kind", "start", "end", "status", "attributes"];
            let mut names = Names::default();
            let mut kinds: HashMap<u32, &'static str, FixedState> = HashMap::default();
            let mut spans: Vec<Light> = Vec::new();
            reader
                .scan(filter, columns(own, &["service"]), |batch| {
                    let c = Columns(batch);
                    let (traces, ids, parents) = (c.ids("trace_id")?, c.ids("span_id")?, c.ids("parent_span_id")?);
                    let (starts, ends) = (c.times("start")?, c.times("end")?);
                    let (statuses, span_kinds) = (c.small("status")?, c.small("kind")?);
                    let (attributes, services) = (c.bytes("attributes")?, c.view("service")?);
                    for i in 0..batch.num_rows() {
                        let (remote, protocol) = remote_of(attributes.value(i), span_kinds.value(i));
                        let remote = remote.map(|(name, kind)| {
                            let number = names.number(&name);
                            kinds.entry(number).or_insert(kind);
                            number
                        });
                        let parent: SpanId = parents.value(i).try_into().unwrap_or_default();
                        spans.push(Light {
                            trace: traces.value(i).try_into().unwrap_or_default(),
                            id: ids.value(i).try_into().unwrap_or_default(),
                            parent: (parent != [0; 8]).then_some(parent),
                            service: names.number(shown(services.value(i))),
                            kind: span_kinds.value(i),
                            error: statuses.value(i) == STATUS_ERROR,
                            duration: ends.value(i).saturating_sub(starts.value(i)),
                            remote,
                            protocol,
                        });
                    }
                    if spans.len() > SPANS_MAX {
                        return Err(TraceError::TooLarge(SPANS_MAX));
                    }
                    Ok(true)
                })
                .await?;
            Ok(graph(&spans, &mut names, &kinds, !reader.ctx.access.is_full()))
        })
        .await
    }
}

fn graph(
    spans: &[Light],
    names: &mut Names,
    kinds: &HashMap<u32, &'static str, FixedState>,
    restricted: bool,
) -> Dependencies {
    let hidden = names.number("hidden");
    let user = names.number("user");
    let mut by_id: HashMap<(TraceId, SpanId), usize, FixedState> = HashMap::default();
    for (i, span) in spans.iter().enumerate() {
        // Of a shared id the caller's half is the parent.
        let known = by_id.entry((span.trace, span.id)).or_insert(i);
        if matches!(span.kind, 3 | 4) {
            *known = i;
        }
    }
    let mut nodes: BTreeMap<(u32, &'static str), Total> = BTreeMap::new();
    let mut edges: BTreeMap<(u32, u32), (&'static str, Total)> = BTreeMap::new();
    let mut answered: HashSet<usize, FixedState> = HashSet::default();
    for (i, span) in spans.iter().enumerate() {
        nodes.entry((span.service, "service")).or_default().add(span);
        let callee = matches!(span.kind, 2 | 5);
        // The other half of a shared id calls it; else its parent does.
        let half = by_id.get(&(span.trace, span.id)).copied().filter(|&j| j != i && callee);
        let parent = half.or_else(|| span.parent.and_then(|p| by_id.get(&(span.trace, p)).copied()));
        let source = match parent {
            Some(p) => {
                answered.insert(p);
                spans[p].service
            }
            None if span.parent.is_some() && callee && restricted => hidden,
            None if span.parent.is_none() && span.kind == 2 => user,
            None => continue,
        };
        if source != span.service || half.is_some() {
            let edge = edges.entry((source, span.service)).or_default();
            edge.0 = if edge.0.is_empty() { span.protocol } else { edge.0 };
            edge.1.add(span);
        }
    }
    for (i, span) in spans.iter().enumerate() {
        if let (Some(remote), false) = (span.remote, answered.contains(&i)) {
            let sends_spans = nodes.contains_key(&(remote, "service"));
            // Who may see only a part must not learn from a name what the rest is called.
            let target =
                if restricted && !sends_spans && kinds.get(&remote) == Some(&"external") { hidden } else { remote };
            if !sends_spans {
                let kind =
                    if target == hidden { "external" } else { kinds.get(&remote).copied().unwrap_or("external") };
                nodes.entry((target, kind)).or_default().add(span);
            }
            let edge = edges.entry((span.service, target)).or_default();
            edge.0 = if edge.0.is_empty() { span.protocol } else { edge.0 };
            edge.1.add(span);
        }
    }
    for (special, kind) in [(hidden, "external"), (user, "user")] {
        if edges.keys().any(|(source, _)| *source == special) {
            nodes.entry((special, kind)).or_default();
        }
    }
    let name = |number: u32| names.list[number as usize].to_string();
    let mut nodes: Vec<Node> = nodes
        .into_iter()
        .map(|((id, kind), mut of)| Node {
            id: name(id),
            kind,
            spans: of.sketch.count(),
            errors: of.errors,
            p95: of.sketch.quantile(0.95),
        })
        .collect();
    nodes.sort_by(|a, b| (&a.id, a.kind).cmp(&(&b.id, b.kind)));
    let mut edges: Vec<Edge> = edges
        .into_iter()
        .map(|((source, target), (protocol, mut of))| Edge {
            source: name(source),
            target: name(target),
            protocol,
            calls: of.sketch.count(),
            errors: of.errors,
            quantiles: [0.5, 0.95].map(|q| of.sketch.quantile(q)),
        })
        .collect();
    edges.sort_by(|a, b| (&a.source, &a.target).cmp(&(&b.source, &b.target)));
    Dependencies { nodes, edges }
}
