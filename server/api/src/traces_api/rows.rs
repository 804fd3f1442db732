//! Writes what the engine gives as the JSON of the `/traces` API: rows of lists, figures, summaries (`traces-api` 3).
//!
//! Times are texts, since clients read numbers as doubles; durations are numbers of nanoseconds.

use quiver_traces::lists::facets::{Difference, Facet};
use quiver_traces::lists::histogram::{Heatmap, Histogram, Measured};
use quiver_traces::stats::{Change, ComparedPath, GroupFigures, Side, SimilarTraces};
use quiver_traces::{Dependencies, InstanceRow, JsonWriter, OperationRow, ServiceRow, Summary, TagRow};
use quiver_types::spans::{hex, kind_name};
use serde_json::{Map, Value, json};

/// A list of rows, each written by a function.
pub(super) fn list<T>(rows: impl IntoIterator<Item = T>, row: impl Fn(T) -> Value) -> Value {
    Value::Array(rows.into_iter().map(row).collect())
}

pub(super) fn service(row: &ServiceRow) -> Value {
    json!({"name": row.name, "operations": row.operations, "instances": row.instances, "spans": row.spans,
        "errors": row.errors, "lastSeen": row.last_seen.to_string()})
}

pub(super) fn operation(row: &OperationRow) -> Value {
    let [p50, p95, p99] = row.quantiles;
    json!({"service": row.service, "name": row.name, "kind": kind_name(row.kind), "spans": row.spans,
        "errors": row.errors, "p50": p50, "p95": p95, "p99": p99})
}

pub(super) fn instance(row: &InstanceRow) -> Value {
    let [service, instance, version, host, pod] = &row.names;
    json!({"service": service, "instance": instance, "version": version, "host": host, "pod": pod,
        "spans": row.spans, "errors": row.errors, "firstSeen": row.seen.0.to_string(),
        "lastSeen": row.seen.1.to_string()})
}

pub(super) fn tag(row: &TagRow) -> Value {
    json!({"key": row.key, "scope": row.scope, "type": row.kind, "spans": row.spans, "cardinality": row.cardinality})
}

pub(super) fn dependencies(graph: &Dependencies) -> Value {
    let nodes = list(&graph.nodes, |node| {
        let service = if node.kind == "service" { Value::from(node.id.as_str()) } else { Value::Null };
        json!({"id": node.id, "service": service, "type": node.kind, "spans": node.spans, "errors": node.errors,
            "p95": node.p95})
    });
    let edges = list(&graph.edges, |edge| {
        let [p50, p95] = edge.quantiles;
        json!({"source": edge.source, "target": edge.target, "protocol": edge.protocol, "calls": edge.calls,
            "errors": edge.errors, "p50": p50, "p95": p95})
    });
    json!({"nodes": nodes, "edges": edges})
}

pub(super) fn histogram(histogram: &Histogram, w: &mut JsonWriter<'_>) {
    w.object(|w| {
        w.key("step").raw(histogram.step);
        w.key("series").array(|w| {
            for one in &histogram.series {
                w.object(|w| {
                    w.key("name").text(&one.name);
                    w.key("points").array(|w| one.points.iter().for_each(|point| write_point(*point, w)));
                });
            }
        });
    });
}

fn write_point((time, measured): (i64, Measured), w: &mut JsonWriter<'_>) {
    w.array(|w| {
        w.quoted(time);
        match measured {
            Measured::Whole(number) => w.raw(number),
            // A mean has a point, also where it is whole.
            Measured::Mean(number) if number.is_finite() => w.raw(format_args!("{number:?}")),
            Measured::Mean(_) => w.raw("null"),
        }
    });
}

pub(super) fn heatmap(map: &Heatmap, w: &mut JsonWriter<'_>) {
    w.object(|w| {
        w.key("times").array(|w| map.times.iter().for_each(|time| w.quoted(time)));
        w.key("bounds").array(|w| map.bounds.iter().for_each(|bound| w.raw(bound)));
        for (key, columns) in [("counts", &map.counts), ("errors", &map.errors)] {
            w.key(key).array(|w| {
                for column in columns {
                    w.array(|w| column.iter().for_each(|count| w.raw(count)));
                }
            });
        }
        w.key("exemplars").array(|w| {
            for column in &map.exemplars {
                w.array(|w| {
                    for id in column {
                        match id {
                            Some(id) => w.id(id),
                            None => w.raw("null"),
                        }
                    }
                });
            }
        });
    });
}

pub(super) fn facet(facet: Facet) -> Value {
    let values = list(facet.values, |one| json!({"value": one.value, "count": one.count, "errors": one.errors}));
    json!({
        "key": facet.key, "cardinality": facet.cardinality, "approximate": facet.is_approximate, "values": values,
    })
}

pub(super) fn difference(found: Difference) -> Value {
    let values = list(found.values, |one| {
        json!({"key": one.key, "value": one.value, "inside": one.inside, "outside": one.outside,
            "difference": one.difference})
    });
    json!({"selected": found.selected, "rest": found.rest, "values": values})
}

pub(super) fn group_figures(row: GroupFigures) -> Value {
    let group: Map<String, Value> = row.group.into_iter().map(|(by, value)| (by, Value::from(value))).collect();
    json!({
        "group": group, "count": row.count, "errors": row.errors, "total": row.total, "self": row.own, "min": row.min,
        "avg": row.mean, "max": row.max, "share": row.share, "criticalShare": row.critical_share,
    })
}

pub(super) fn compared_path(row: ComparedPath) -> Value {
    let side = |side: Side| json!({"count": side.count, "total": side.total, "self": side.own, "errors": side.errors});
    let state = match row.change {
        Change::Same => "same",
        Change::Changed => "changed",
        Change::Added => "added",
        Change::Removed => "removed",
    };
    let mut shown = json!({"left": row.left.map(side), "right": row.right.map(side), "state": state});
    // The texts of a path are many: they are taken, and not copied.
    shown["path"] = list(row.path, Value::from);
    shown
}

pub(super) fn similar(found: &SimilarTraces) -> Value {
    json!({"traces": list(&found.traces, summary), "median": found.median.as_ref().map(summary)})
}

pub(super) fn summary(row: &Summary) -> Value {
    let services = list(&row.services, |s| json!({"name": s.name, "spans": s.spans, "errors": s.errors}));
    let first = list(&row.first, |m| {
        json!({"spanId": hex(&m.span_id), "service": m.service, "name": m.name, "durationNs": m.duration,
            "error": m.error})
    });
    json!({
        "traceId": hex(&row.id), "rootService": row.root_service, "rootName": row.root_name,
        "rootMissing": row.root_missing, "start": row.start.to_string(), "end": row.end.to_string(),
        "durationNs": row.duration(), "spans": row.spans, "errors": row.errors, "services": services,
        "matched": {"spans": row.matched, "first": first},
    })
}

#[cfg(test)]
mod tests;
