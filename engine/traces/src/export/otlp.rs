//! OTLP/JSON (`traces-api` 2.1).

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use quiver_types::spans::{Attributes, STATUS_ERROR, STATUS_OK, Span, SpanContext, Value};

use super::format::{ExportFormat, ExportOptions};
use super::scopes::Scopes;
use super::values::any_value;
use crate::assemble::{Trace, contexts};
use crate::json_writer::JsonWriter;

/// OTLP/JSON: one `ExportTraceServiceRequest` with all spans.
pub const FORMAT: ExportFormat = ExportFormat { name: "otlp", write };

/// Writes an `ExportTraceServiceRequest`.
pub fn write(trace: &Trace, options: ExportOptions, w: &mut JsonWriter<'_>) {
    write_all(std::slice::from_ref(trace), options, w);
}

/// Writes several traces as one `ExportTraceServiceRequest`.
pub fn write_all(traces: &[Trace], options: ExportOptions, w: &mut JsonWriter<'_>) {
    w.object(|w| {
        w.key("resourceSpans").array(|w| {
            for trace in traces {
                blocks(trace, options, w);
            }
        });
    });
}

fn blocks(trace: &Trace, options: ExportOptions, w: &mut JsonWriter<'_>) {
    let contexts = contexts(trace);
    let mut services: Vec<(&str, Vec<&Arc<SpanContext>>)> = Vec::new();
    let mut places: HashMap<&str, usize, FixedState> = HashMap::default();
    for context in &contexts {
        let service = context.service.as_str();
        let at = *places.entry(service).or_insert_with(|| {
            services.push((service, Vec::new()));
            services.len() - 1
        });
        services[at].1.push(context);
    }
    let mut of_service: HashMap<&str, Scopes<'_>, FixedState> = HashMap::default();
    for span in &trace.spans {
        of_service.entry(&span.context.service).or_default().add(span);
    }
    for (service, contexts) in services {
        if w.is_closed() {
            return;
        }
        let common = common(&contexts);
        w.object(|w| {
            w.key("resource").object(|w| {
                w.key("attributes").array(|w| {
                    let name = if service.is_empty() { "unknown_service" } else { service };
                    attribute("service.name", Value::Text(name), true, w);
                    common.iter().for_each(|(key, value)| attribute(key, value, options.native, w));
                });
            });
            w.key("scopeSpans").array(|w| {
                let scopes = of_service.remove(service).unwrap_or_default();
                for ((name, version, attributes), spans) in scopes.list() {
                    if w.is_closed() {
                        return;
                    }
                    w.object(|w| {
                        w.key("scope").object(|w| scope(name, version, attributes, options, w));
                        w.key("spans").array(|w| {
                            for span in spans {
                                if w.is_closed() {
                                    return;
                                }
                                write_span(span, &common, options, w);
                            }
                        });
                    });
                }
            });
        });
    }
}

fn scope(name: &str, version: &str, attributes: &Attributes, options: ExportOptions, w: &mut JsonWriter<'_>) {
    w.key("name").text(name);
    if !version.is_empty() {
        w.key("version").text(version);
    }
    if !attributes.is_empty() {
        w.key("attributes").array(|w| attributes.iter().for_each(|(k, v)| attribute(k, v, options.native, w)));
    }
}

/// The resource attributes that have the same value in all contexts.
fn common(contexts: &[&Arc<SpanContext>]) -> Attributes {
    let Some((first, rest)) = contexts.split_first() else { return Attributes::default() };
    let same = |key: &str, value: Value<'_>| {
        rest.iter().all(|c| c.resource.get(key).is_some_and(|other| other.text() == value.text()))
    };
    Attributes::of(first.resource.iter().filter(|(key, value)| same(key, *value)))
}

fn attribute(key: &str, value: Value<'_>, native: bool, w: &mut JsonWriter<'_>) {
    w.object(|w| {
        w.key("key").text(key);
        w.key("value");
        if native {
            any_value(value, w);
        } else {
            w.object(|w| w.key("stringValue").text(&value.text()));
        }
    });
}

fn typed(attributes: &Attributes, w: &mut JsonWriter<'_>) {
    if !attributes.is_empty() {
        w.key("attributes").array(|w| attributes.iter().for_each(|(k, v)| attribute(k, v, true, w)));
    }
}

fn count(key: &str, count: u32, w: &mut JsonWriter<'_>) {
    if count > 0 {
        w.key(key).raw(count);
    }
}

fn write_span(span: &Span, common: &Attributes, options: ExportOptions, w: &mut JsonWriter<'_>) {
    // Resource attributes that differ between instances of a service are moved to their spans, unless a span has the
    // key itself.
    let own = span.context.resource.iter().filter(|(key, _)| common.get(key).is_none());
    let merged = Attributes::of(own.chain(span.attributes.iter()));
    w.object(|w| {
        w.key("traceId").id(&span.trace_id);
        w.key("spanId").id(&span.span_id);
        if let Some(parent) = span.parent {
            w.key("parentSpanId").id(&parent);
        }
        if options.extras && !span.trace_state.is_empty() {
            w.key("traceState").text(&span.trace_state);
        }
        if options.native && span.flags != 0 {
            w.key("flags").raw(span.flags);
        }
        w.key("name").text(&span.name);
        w.key("kind").raw(span.kind);
        w.key("startTimeUnixNano").quoted(span.start);
        w.key("endTimeUnixNano").quoted(span.end);
        w.key("attributes").array(|w| merged.iter().for_each(|(k, v)| attribute(k, v, options.native, w)));
        if options.extras {
            members(span, options, w);
        }
        if span.status == STATUS_ERROR {
            w.key("status").object(|w| {
                w.key("code").raw(2);
                w.key("message").text(if options.extras { &span.status_message } else { "" });
            });
        } else if span.status == STATUS_OK && options.native {
            w.key("status").object(|w| w.key("code").raw(1));
        }
    });
}

/// Writes OTLP members in addition to the documented ones.
fn members(span: &Span, options: ExportOptions, w: &mut JsonWriter<'_>) {
    count("droppedAttributesCount", span.dropped[0], w);
    if !span.events.is_empty() {
        w.key("events").array(|w| {
            for event in &span.events {
                w.object(|w| {
                    w.key("timeUnixNano").quoted(event.time);
                    w.key("name").text(&event.name);
                    typed(&event.attributes, w);
                    count("droppedAttributesCount", event.dropped, w);
                });
            }
        });
    }
    count("droppedEventsCount", span.dropped[1], w);
    if !span.links.is_empty() {
        w.key("links").array(|w| {
            for link in &span.links {
                w.object(|w| {
                    w.key("traceId").id(&link.trace_id);
                    w.key("spanId").id(&link.span_id);
                    if !link.trace_state.is_empty() {
                        w.key("traceState").text(&link.trace_state);
                    }
                    typed(&link.attributes, w);
                    count("droppedAttributesCount", link.dropped, w);
                    if options.native && link.flags != 0 {
                        w.key("flags").raw(link.flags);
                    }
                });
            }
        });
    }
    count("droppedLinksCount", span.dropped[2], w);
}
