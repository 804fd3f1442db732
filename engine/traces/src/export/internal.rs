//! The internal JSON format, `trace/1` (`traces-api` 3.2): everything known about a trace, and what a view computes.
//!
//! `tags`, `metrics` and `types` describe an attribute completely, except for the inner types of lists and maps; those
//! are in `values` as OTLP/JSON. Members with default values are omitted if the format does not need them.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use quiver_types::spans::{Attributes, Event, Link, SpanContext, Value, kind_name};

use super::format::{ExportFormat, ExportOptions};
use super::values::number;
use crate::assemble::{Trace, contexts};
use crate::json_writer::JsonWriter;
use crate::span_tree::Tree;

/// `trace/1`: everything known about a trace. It is not in [`super::FORMATS`]; [`write_trace`] serves it.
pub const FORMAT: ExportFormat = ExportFormat { name: "trace", write };

/// Names of the span statuses by number, as in OTLP.
pub(crate) const STATUS: [&str; 3] = ["unset", "ok", "error"];

fn write(trace: &Trace, _: ExportOptions, w: &mut JsonWriter<'_>) {
    write_trace(trace, None, w);
}

/// Writes a trace; `window` is the time range that the caller requested.
pub fn write_trace(trace: &Trace, window: Option<(i64, i64)>, w: &mut JsonWriter<'_>) {
    let shape = TraceShape::of(trace);
    let contexts = contexts(trace);
    let resources = Numbers::of(contexts.iter().map(|c| &c.resource));
    let scopes = Numbers::of(contexts.iter().map(|c| (&c.scope_name, &c.scope_version, &c.scope_attributes)));
    w.object(|w| {
        w.key("format").text("trace/1");
        w.key("traceId").id(&trace.id);
        w.key("start").quoted(trace.start());
        w.key("end").quoted(trace.end());
        w.key("durationNs").raw(trace.end().saturating_sub(trace.start()));
        w.key("spans").array(|w| {
            for i in 0..trace.spans.len() {
                if w.is_closed() {
                    return;
                }
                let c = &*trace.spans[i].context;
                let resource = resources.get(&&c.resource);
                let scope = scopes.get(&(&c.scope_name, &c.scope_version, &c.scope_attributes));
                shape.write_span(i, resource, scope, w);
            }
        });
        w.key("services").array(|w| services(&contexts).iter().for_each(|name| w.text(name)));
        w.key("resources").array(|w| resources.list.iter().for_each(|r| w.object(|w| fields(r, w))));
        w.key("scopes").array(|w| {
            for (name, version, attributes) in &scopes.list {
                w.object(|w| {
                    w.key("name").text(name);
                    w.key("version").text(version);
                    fields(attributes, w);
                });
            }
        });
        w.key("warnings").array(|w| trace.left_out.iter().for_each(|text| w.text(text)));
        w.key("window").object(|w| {
            for (name, bound) in [("start", window.map(|w| w.0)), ("end", window.map(|w| w.1))] {
                w.key(name);
                match bound {
                    Some(bound) if bound != i64::MIN && bound != i64::MAX => w.quoted(bound),
                    _ => w.raw("null"),
                }
            }
        });
        w.key("partial").raw(!trace.left_out.is_empty());
    });
}

fn services(contexts: &[Arc<SpanContext>]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for context in contexts {
        let name = if context.service.is_empty() { "unknown_service" } else { context.service.as_str() };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Numbers values in order of first use.
struct Numbers<T> {
    list: Vec<T>,
    of: HashMap<T, usize, FixedState>,
}

impl<T: std::hash::Hash + Eq + Copy> Numbers<T> {
    fn of(values: impl Iterator<Item = T>) -> Self {
        let mut numbers = Self { list: Vec::new(), of: HashMap::default() };
        for value in values {
            numbers.of.entry(value).or_insert_with(|| {
                numbers.list.push(value);
                numbers.list.len() - 1
            });
        }
        numbers
    }

    fn get(&self, value: &T) -> usize {
        self.of.get(value).copied().unwrap_or(0)
    }
}

/// Writes attributes as `tags`, `metrics` and `types`, with `values` if there are lists or maps.
fn fields(attributes: &Attributes, w: &mut JsonWriter<'_>) {
    w.key("tags").object(|w| {
        for (key, value) in attributes.iter().filter(|(_, v)| v.metric().is_none()) {
            w.key(key).text(&value.text());
        }
    });
    w.key("metrics").object(|w| {
        for (key, value) in attributes {
            if let Some(v) = value.metric() {
                w.key(key).raw(number(v));
            }
        }
    });
    w.key("types").object(|w| {
        for (key, value) in attributes {
            let name = match value {
                Value::Text(_) => continue,
                Value::Double(v) if v.is_finite() => continue,
                Value::Double(_) => "double",
                Value::Int(_) => "int",
                Value::Bool(_) => "bool",
                Value::Bytes(_) => "bytes",
                Value::Json(json) if json.starts_with("{\"kvlistValue\"") => "map",
                Value::Json(_) => "array",
            };
            w.key(key).text(name);
        }
    });
    if attributes.iter().any(|(_, v)| matches!(v, Value::Json(_))) {
        w.key("values").object(|w| {
            for (key, value) in attributes {
                if let Value::Json(json) = value {
                    w.key(key).raw(json);
                }
            }
        });
    }
}

/// A trace with what follows from the relations of its spans.
struct TraceShape<'t> {
    trace: &'t Trace,
    tree: Tree,
    /// By span, its parts of the critical path: start and end.
    critical: HashMap<usize, Vec<(i64, i64)>, FixedState>,
}

impl<'t> TraceShape<'t> {
    fn of(trace: &'t Trace) -> Self {
        let tree = Tree::of(trace);
        let mut critical: HashMap<usize, Vec<(i64, i64)>, FixedState> = HashMap::default();
        for segment in tree.critical_path(trace) {
            critical.entry(segment.span).or_default().push((segment.from, segment.to));
        }
        Self { trace, tree, critical }
    }

    /// Writes a span; `resource` and `scope` are indexes into the lists of the trace.
    fn write_span(&self, i: usize, resource: usize, scope: usize, w: &mut JsonWriter<'_>) {
        let Self { trace, tree, critical } = self;
        let span = &trace.spans[i];
        w.object(|w| {
            w.key("spanId").id(&span.span_id);
            w.key("parentSpanId");
            match span.parent {
                Some(parent) => w.id(&parent),
                None => w.raw("null"),
            }
            w.key("service").text(span.service_shown());
            if span.context.service.is_empty() {
                w.key("serviceMissing").raw(true);
            }
            w.key("resource").raw(resource);
            w.key("scope").raw(scope);
            w.key("name").text(&span.name);
            w.key("kind").text(kind_name(span.kind));
            w.key("start").quoted(span.start);
            w.key("end").quoted(span.end);
            w.key("durationNs").raw(span.duration());
            w.key("selfNs").raw(tree.self_time(trace, i));
            w.key("depth").raw(tree.depth[i]);
            w.key("childCount").raw(tree.children[i].len());
            w.key("error").raw(span.is_error());
            w.key("statusCode").text(STATUS[usize::from(span.status).min(2)]);
            w.key("statusMessage").text(&span.status_message);
            fields(&span.attributes, w);
            w.key("events").array(|w| span.events.iter().for_each(|event| write_event(event, w)));
            w.key("links").array(|w| span.links.iter().for_each(|link| write_link(link, w)));
            w.key("traceState").text(&span.trace_state);
            if span.flags > 0 {
                w.key("flags").raw(span.flags);
            }
            if span.dropped != [0; 3] {
                w.key("dropped").array(|w| span.dropped.iter().for_each(|n| w.raw(n)));
            }
            if span.is_shared() {
                w.key("shared").raw(true);
            }
            w.key("criticalPath").array(|w| {
                for (from, to) in critical.get(&i).into_iter().flatten() {
                    w.array(|w| {
                        w.quoted(from);
                        w.quoted(to);
                    });
                }
            });
            w.key("orphan").raw(tree.is_orphan(trace, i));
            w.key("warnings").array(|w| {
                if span.is_negative() {
                    w.text("NEGATIVE_DURATION");
                }
            });
        });
    }
}

fn write_event(event: &Event, w: &mut JsonWriter<'_>) {
    w.object(|w| {
        w.key("time").quoted(event.time);
        w.key("name").text(&event.name);
        if event.dropped > 0 {
            w.key("dropped").raw(event.dropped);
        }
        fields(&event.attributes, w);
    });
}

fn write_link(link: &Link, w: &mut JsonWriter<'_>) {
    w.object(|w| {
        w.key("traceId").id(&link.trace_id);
        w.key("spanId").id(&link.span_id);
        w.key("traceState").text(&link.trace_state);
        if link.flags > 0 {
            w.key("flags").raw(link.flags);
        }
        if link.dropped > 0 {
            w.key("dropped").raw(link.dropped);
        }
        fields(&link.attributes, w);
    });
}
