//! The service graph: who calls whom, with counts, errors and durations.
//!
//! An edge is a span whose parent belongs to another service, or a call whose other side sent no span (a database, a
//! queue, an external system). A window without other conditions is answered from roll-ups, in whole minutes; otherwise
//! the spans are read. What the caller may not see is called `(hidden)`.
//!
//! This is our own code, because a call that seemed unanswered is subtracted from its sum when its answer turns up
//! elsewhere, including its duration sketches, and DataFusion's aggregates cannot subtract. There is one sum for each
//! edge, plus the open spans; both are accounted to the query.

mod late_calls;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use hashbrown::HashSet;
use quiver_query::QueryContext;
use quiver_types::spans::{
    Counts, EdgeKind, HIDDEN, OPEN_SHARED, PROTOCOLS, RollupBuilder, RollupKind, RollupRequest, RollupRow, RollupRows,
    SpanColumn, SpanFilter, rollup_columns,
};
use quiver_types::tables::spans::minute_of;

use crate::engine::{Reader, TraceError, TracesEngine};
use crate::resource::shown;

/// A node of the service graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Name of the service, database, queue or other system; `user` for callers that send no spans.
    pub id: String,
    /// `service`, `database`, `queue`, `external`, `user`.
    pub kind: &'static str,
    /// Number of its spans (if it sends none: calls to it).
    pub spans: u64,
    /// Number of spans that failed.
    pub errors: u64,
    /// 95th percentile of their durations in nanoseconds.
    pub p95: i64,
}

/// Calls from one node to another, of any kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Edge {
    /// [`Node::id`] of the caller.
    pub source: String,
    /// [`Node::id`] of the called node.
    pub target: String,
    /// `http`, `rpc`, `messaging`, `db`, or empty.
    pub protocol: &'static str,
    /// Number of calls.
    pub calls: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Median and 95th percentile of their durations in nanoseconds.
    pub quantiles: [i64; 2],
}

/// The service graph of a window.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Dependencies {
    /// Sorted by name.
    pub nodes: Vec<Node>,
    /// Sorted by source and target.
    pub edges: Vec<Edge>,
}

impl Dependencies {
    /// The edges between services that send spans; for a caller with restricted access, also those to and from hidden
    /// nodes.
    pub fn service_edges(&self) -> impl Iterator<Item = &Edge> {
        let sends = |id: &str| self.nodes.iter().any(|n| n.id == id && (n.kind == "service" || id == HIDDEN));
        self.edges.iter().filter(move |e| sends(&e.source) && sends(&e.target))
    }

    /// The edges between what has a name: also those to databases, queues and others that send no spans, and none from
    /// callers of whom nothing is known.
    pub fn named_edges(&self) -> impl Iterator<Item = &Edge> {
        let has_name = |id: &str| self.nodes.iter().any(|n| n.id == id && n.kind != "user");
        self.edges.iter().filter(move |e| has_name(&e.source))
    }

    /// Keeps what is within some steps of the given services.
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

/// The sums from which a graph is built.
#[derive(Debug, Default)]
struct Sums {
    nodes: BTreeMap<String, Counts>,
    /// By caller, called node and kind.
    edges: BTreeMap<(String, String, EdgeKind), Counts>,
    open: Vec<RollupRow>,
}

impl Sums {
    /// Number of nodes, edges and open spans.
    fn len(&self) -> usize {
        self.nodes.len() + self.edges.len() + self.open.len()
    }

    fn add(&mut self, row: RollupRow) {
        match row.kind {
            RollupKind::NodeHour | RollupKind::NodeMinute => {
                self.nodes.entry(shown(&row.service).to_owned()).or_default().merge(&row.counts);
            }
            RollupKind::EdgeHour | RollupKind::EdgeMinute => self.edge(&row).merge(&row.counts),
            RollupKind::Open => self.open.push(row),
            RollupKind::Operation | RollupKind::Instance => {}
        }
    }

    fn edge(&mut self, row: &RollupRow) -> &mut Counts {
        let kind = EdgeKind::of(row.sort).unwrap_or(EdgeKind::External);
        let (source, target) = match kind {
            EdgeKind::Service => (shown(&row.service), shown(&row.peer)),
            EdgeKind::User => ("user", shown(&row.peer)),
            _ => (shown(&row.service), row.peer.as_str()),
        };
        self.edges.entry((source.to_owned(), target.to_owned(), kind)).or_default()
    }

    /// Subtracts a call that was answered after all.
    fn remove(&mut self, row: &RollupRow) {
        self.edge(row).remove(&row.counts);
    }

    /// For spans read with restricted access: the callers of open spans are hidden.
    fn hide_open(&mut self) {
        for row in std::mem::take(&mut self.open) {
            if row.sort & OPEN_SHARED != 0 || matches!(row.sort, 2 | 5) {
                let edge = RollupRow {
                    kind: RollupKind::EdgeMinute,
                    peer: row.service.clone(),
                    service: HIDDEN.to_owned(),
                    sort: EdgeKind::Service as u8,
                    ids: None,
                    ..row
                };
                self.add(edge);
            }
        }
    }

    fn graph(self, restricted: bool) -> Dependencies {
        let mut nodes: BTreeMap<(String, &'static str), Counts> = BTreeMap::new();
        let mut edges: BTreeMap<(String, String), Counts> = BTreeMap::new();
        for ((source, target, kind), total) in self.edges.into_iter().filter(|(_, t)| t.spans > 0) {
            let sends_spans = self.nodes.contains_key(&target);
            let sort = match kind {
                EdgeKind::Database => "database",
                EdgeKind::Queue => "queue",
                _ => "external",
            };
            let target = match kind {
                EdgeKind::Service | EdgeKind::User => target,
                _ if sends_spans => target,
                // A user with restricted access must not learn names of the rest.
                EdgeKind::External if restricted => HIDDEN.to_owned(),
                _ => target,
            };
            if kind == EdgeKind::User {
                nodes.entry((source.clone(), "user")).or_default();
            }
            for end in [&source, &target] {
                if restricted && end == HIDDEN && !self.nodes.contains_key(HIDDEN) {
                    nodes.entry((HIDDEN.to_owned(), "external")).or_default();
                }
            }
            if !sends_spans && !matches!(kind, EdgeKind::Service | EdgeKind::User) {
                nodes.entry((target.clone(), sort)).or_default().merge(&total);
            }
            edges.entry((source, target)).or_default().merge(&total);
        }
        nodes.extend(self.nodes.into_iter().map(|(name, total)| ((name, "service"), total)));
        let node = |((id, kind), of): ((String, &'static str), Counts)| Node {
            id,
            kind,
            spans: of.spans,
            errors: of.errors,
            p95: of.durations.quantile(0.95),
        };
        let edge = |((source, target), of): ((String, String), Counts)| Edge {
            source,
            target,
            protocol: PROTOCOLS.get(usize::from(of.protocol)).copied().unwrap_or_default(),
            calls: of.spans,
            errors: of.errors,
            quantiles: [0.5, 0.95].map(|q| of.durations.quantile(q)),
        };
        Dependencies { nodes: nodes.into_iter().map(node).collect(), edges: edges.into_iter().map(edge).collect() }
    }
}

/// The roll-ups needed for the graph of a window.
fn graph_request(range: (i64, i64)) -> RollupRequest {
    RollupRequest::Graph(minute_of(range.0), minute_of(range.1))
}

impl TracesEngine {
    /// Builds the graph of the spans that start in a window (inclusive) and match conditions.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn dependencies(
        self: &Arc<Self>,
        ctx: &QueryContext,
        range: (i64, i64),
        conditions: Vec<SpanFilter>,
    ) -> BoxFuture<'_, Result<Dependencies, TraceError>> {
        self.read(ctx, (range, conditions), |reader, (range, conditions)| async move {
            let restricted = !reader.ctx.access.is_full();
            let sums = if conditions.is_empty() {
                let mut sums = reader.graph_rows(range).await?;
                reader.add_late(&mut sums, range).await?;
                sums
            } else {
                let filter = conditions.into_iter().fold(SpanFilter::Starts(range.0, range.1), SpanFilter::and);
                let mut sums = reader.graph_of_spans(filter).await?;
                if restricted {
                    sums.hide_open();
                }
                sums
            };
            Ok(sums.graph(restricted))
        })
    }
}

/// Estimated memory of a node, an edge or an open span.
const SUM_BYTES: usize = 512;
/// Estimated memory of a span while a graph is built from spans: it waits for its children and for other reports.
const WAITING_BYTES: usize = 160;

/// The columns needed to build a graph from spans.
fn graph_columns() -> Vec<SpanColumn> {
    let all = rollup_columns().into_iter();
    all.filter(|c| !matches!(c, SpanColumn::Own("name") | SpanColumn::Context("resource"))).collect()
}

impl Reader {
    async fn graph_rows(&self, range: (i64, i64)) -> Result<Sums, TraceError> {
        let mut sums = Sums::default();
        let plan = self.rollup_plan(&graph_request(range))?;
        self.run(&plan, |batch| {
            let rows = RollupRows::of(batch)?;
            let known = sums.len();
            (0..batch.num_rows()).filter_map(|i| rows.row(i)).for_each(|row| sums.add(row));
            self.collect((sums.len() - known) * SUM_BYTES)?;
            Ok(true)
        })
        .await?;
        Ok(sums)
    }

    async fn graph_of_spans(&self, filter: SpanFilter) -> Result<Sums, TraceError> {
        let mut builder = RollupBuilder::default();
        self.scan(filter, graph_columns(), |batch| {
            self.collect(batch.num_rows() * WAITING_BYTES)?;
            builder.push(batch)?;
            Ok(true)
        })
        .await?;
        let mut sums = Sums::default();
        let wanted = |kind| matches!(kind, RollupKind::NodeHour | RollupKind::EdgeHour | RollupKind::Open);
        builder.rows(wanted).into_iter().for_each(|row| sums.add(row));
        Ok(sums)
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::spans::{Durations, bucket, middle};

    use super::*;

    #[test]
    fn edges_of_services_and_of_what_is_hidden() {
        let node = |id: &str, kind| Node { id: id.to_owned(), kind, spans: 0, errors: 0, p95: 0 };
        let edge = |source: &str, target: &str| Edge {
            source: source.to_owned(),
            target: target.to_owned(),
            protocol: "http",
            calls: 1,
            errors: 0,
            quantiles: [0, 0],
        };
        let graph = Dependencies {
            nodes: vec![
                node("cart", "service"),
                node(HIDDEN, "external"),
                node("db", "database"),
                node("user", "user"),
            ],
            edges: vec![edge(HIDDEN, "cart"), edge("cart", HIDDEN), edge("cart", "db"), edge("user", "cart")],
        };
        let shown: Vec<(&str, &str)> = graph.service_edges().map(|e| (e.source.as_str(), e.target.as_str())).collect();
        assert_eq!(shown, [("(hidden)", "cart"), ("cart", "(hidden)")]);
        let named: Vec<(&str, &str)> = graph.named_edges().map(|e| (e.source.as_str(), e.target.as_str())).collect();
        assert_eq!(named, [("(hidden)", "cart"), ("cart", "(hidden)"), ("cart", "db")]);
    }

    /// A row of a roll-up of so many calls or spans, each of which lasted a microsecond; half of them failed.
    fn of(kind: RollupKind, (service, peer): (&str, &str), sort: u8, spans: u64) -> RollupRow {
        let mut counts = Counts { spans, errors: spans / 2, ..Counts::default() };
        counts.durations.add(bucket(1_000), spans);
        let (service, peer) = (service.to_owned(), peer.to_owned());
        RollupRow { kind, minute: 7, service, peer, sort, counts, ids: None }
    }

    fn call(ends: (&str, &str), kind: EdgeKind, spans: u64) -> RollupRow {
        of(RollupKind::EdgeHour, ends, kind as u8, spans)
    }

    fn node(service: &str, spans: u64) -> RollupRow {
        of(RollupKind::NodeHour, (service, ""), 0, spans)
    }

    /// What a graph of rows says: nodes with sort and spans, edges with their calls.
    fn graph(rows: Vec<RollupRow>, restricted: bool) -> (Vec<String>, Vec<String>) {
        let mut sums = Sums::default();
        for row in rows {
            sums.add(row);
        }
        let graph = sums.graph(restricted);
        let nodes = graph.nodes.iter().map(|node| format!("{} {} {}", node.id, node.kind, node.spans));
        let edges = graph.edges.iter().map(|edge| format!("{} > {} {}", edge.source, edge.target, edge.calls));
        (nodes.collect(), edges.collect())
    }

    /// Breaks if a system that sends no spans is shown as a service, or a service as a database.
    #[test]
    fn what_is_called_is_a_node_of_its_sort() {
        let rows = vec![
            node("web", 4),
            node("web", 6),
            node("", 1),
            node("cart", 2),
            call(("web", "cart"), EdgeKind::Service, 2),
            call(("web", ""), EdgeKind::Service, 1),
            call(("web", "orders"), EdgeKind::Database, 3),
            call(("cart", "orders"), EdgeKind::Database, 4),
            call(("web", "mail"), EdgeKind::Queue, 5),
            call(("web", "api.example.com"), EdgeKind::External, 6),
            call(("", "web"), EdgeKind::User, 7),
            // A name of the other side that is one of a service which sends spans.
            call(("web", "cart"), EdgeKind::External, 8),
            // Taken out again: nobody called.
            call(("web", "gone"), EdgeKind::Database, 0),
        ];
        let (nodes, edges) = graph(rows, false);
        assert_eq!(
            nodes,
            [
                "api.example.com external 6",
                "cart service 2",
                "mail queue 5",
                "orders database 7",
                "unknown_service service 1",
                "user user 0",
                "web service 10",
            ]
        );
        assert_eq!(
            edges,
            [
                "cart > orders 4",
                "user > web 7",
                "web > api.example.com 6",
                "web > cart 10",
                "web > mail 5",
                "web > orders 3",
                "web > unknown_service 1",
            ]
        );
    }

    /// Breaks if a caller who sees a part of the services learns names of others from the names of calls.
    #[test]
    fn names_outside_are_hidden_from_who_sees_a_part() {
        let rows = || {
            vec![
                node("web", 1),
                node("cart", 1),
                call(("web", "secret"), EdgeKind::External, 2),
                call(("web", "other"), EdgeKind::External, 3),
                call(("web", "cart"), EdgeKind::External, 4),
                call(("web", "orders"), EdgeKind::Database, 5),
                call((HIDDEN, "web"), EdgeKind::Service, 6),
            ]
        };
        let (nodes, edges) = graph(rows(), true);
        assert_eq!(nodes, ["(hidden) external 5", "cart service 1", "orders database 5", "web service 1"]);
        assert_eq!(edges, ["(hidden) > web 6", "web > (hidden) 5", "web > cart 4", "web > orders 5"]);
        let (nodes, edges) = graph(rows(), false);
        assert!(nodes.contains(&"secret external 2".to_owned()) && nodes.contains(&"other external 3".to_owned()));
        assert!(edges.contains(&"web > secret 2".to_owned()), "{edges:?}");
    }

    #[test]
    fn figures_of_nodes_and_edges_are_those_of_their_rows() {
        let mut fast = call(("a", "b"), EdgeKind::Service, 3);
        fast.counts.protocol = 4;
        let mut slow = call(("a", "b"), EdgeKind::Service, 1);
        (slow.counts.protocol, slow.counts.durations) = (3, Durations::default());
        slow.counts.durations.add(bucket(1_000_000), 1);
        let mut sums = Sums::default();
        for row in [node("a", 4), fast, slow] {
            sums.add(row);
        }
        assert_eq!(sums.len(), 2);
        let graph = sums.graph(false);
        let edge = &graph.edges[0];
        assert_eq!((edge.calls, edge.errors, edge.protocol), (4, 1, "rpc"), "of two protocols the lesser");
        assert_eq!(edge.quantiles, [1_000, 1_000_000].map(|of| middle(bucket(of))));
        assert_eq!((graph.nodes[0].errors, graph.nodes[0].p95), (2, middle(bucket(1_000))));
    }

    /// Of spans that a caller may see, those that somebody out of his sight called.
    #[test]
    fn what_calls_an_open_span_is_hidden() {
        let open = |service: &str, sort: u8| RollupRow {
            ids: Some(([1; 16], [2; 8], [3; 8])),
            ..of(RollupKind::Open, (service, ""), sort, 1)
        };
        let mut sums = Sums::default();
        for row in [open("a", 2), open("b", 5), open("c", 1 | OPEN_SHARED), open("d", 3), open("e", 1), open("f", 0)] {
            sums.add(row);
        }
        assert_eq!(sums.len(), 6);
        sums.hide_open();
        assert!(sums.open.is_empty());
        let graph = sums.graph(true);
        let edges: Vec<(&str, &str)> = graph.edges.iter().map(|e| (e.source.as_str(), e.target.as_str())).collect();
        assert_eq!(edges, [(HIDDEN, "a"), (HIDDEN, "b"), (HIDDEN, "c")]);
        assert_eq!(graph.nodes.iter().map(|n| n.id.as_str()).collect::<Vec<_>>(), [HIDDEN]);
    }

    #[test]
    fn near_a_service_is_what_few_steps_reach() {
        let chain = || {
            let mut sums = Sums::default();
            for (source, target) in [("a", "b"), ("b", "c"), ("c", "d"), ("x", "y"), ("d", "d")] {
                sums.add(call((source, target), EdgeKind::Service, 1));
            }
            for name in ["a", "b", "c", "d", "x", "y"] {
                sums.add(node(name, 1));
            }
            sums.graph(false)
        };
        let check = |services: &[&str], depth: usize, nodes: &str, edges: usize| {
            let mut graph = chain();
            let services: Vec<String> = services.iter().map(|&name| name.to_owned()).collect();
            graph.near(&services, depth);
            let found: String = graph.nodes.iter().map(|node| node.id.as_str()).collect();
            assert_eq!((found.as_str(), graph.edges.len()), (nodes, edges), "{services:?} {depth}");
        };
        check(&["b"], 0, "b", 0);
        // Against the direction of calls, too.
        check(&["b"], 1, "abc", 2);
        check(&["b"], 2, "abcd", 4);
        check(&["b"], 100, "abcd", 4);
        check(&["a", "x"], 1, "abxy", 2);
        check(&["d"], 0, "d", 1);
        check(&["nowhere"], 3, "", 0);
        check(&[], 3, "", 0);
    }
}
