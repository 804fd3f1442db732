//! Jaeger's format: a trace object in a wrapper (`traces-api` 2.3).

use std::borrow::Cow;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use quiver_types::logs::write_int;
use quiver_types::spans::{Attributes, STATUS_ERROR, STATUS_OK, Span, TraceId, Value, kind_name};
use quiver_types::text::push_json_text;

use super::format::{ExportFormat, ExportOptions};
use super::values::extras;
use crate::assemble::Trace;
use crate::json_writer::{JsonWriter, push_id};

/// The `code` of an error about an unreadable file: the HTTP status if the whole request had failed.
pub const DAMAGED_CODE: u16 = 500;

/// Jaeger's JSON: a trace object in the `data` of its wrapper.
pub const FORMAT: ExportFormat = ExportFormat { name: "traceobject", write };

/// Writes a trace in its wrapper.
pub fn write(trace: &Trace, options: ExportOptions, w: &mut JsonWriter<'_>) {
    let lacking = ExportGaps { left_out: &trace.left_out, missing: &[] };
    write_wrapped(std::slice::from_ref(trace), 0, lacking, options, w);
}

/// What traces in the wrapper lack: each is one of its errors.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExportGaps<'a> {
    /// Files that could not be read.
    pub left_out: &'a [String],
    /// Traces that were asked for by their ids and are not there.
    pub missing: &'a [TraceId],
}

/// Writes traces in the wrapper.
pub fn write_wrapped(
    traces: &[Trace],
    total: usize,
    lacking: ExportGaps<'_>,
    options: ExportOptions,
    w: &mut JsonWriter<'_>,
) {
    w.object(|w| {
        w.key("data").array(|w| traces.iter().for_each(|trace| write_trace(trace, options, w)));
        w.key("total").raw(total);
        w.key("limit").raw(0);
        w.key("offset").raw(0);
        w.key("errors");
        if lacking.left_out.is_empty() && lacking.missing.is_empty() {
            return w.raw("null");
        }
        w.array(|w| {
            for text in lacking.left_out {
                w.object(|w| {
                    w.key("code").raw(DAMAGED_CODE);
                    w.key("msg").text(text);
                });
            }
            for id in lacking.missing {
                w.object(|w| {
                    w.key("msg").text("trace not found");
                    w.key("traceID").id(id);
                });
            }
        });
    });
}

/// Process numbers: one for each service with its resource attributes, in order of first use.
type Processes<'a> = HashMap<(&'a str, &'a Attributes), usize, FixedState>;

fn write_trace(trace: &Trace, options: ExportOptions, w: &mut JsonWriter<'_>) {
    let mut processes: Processes<'_> = HashMap::default();
    let mut order: Vec<(&str, &Attributes)> = Vec::new();
    let mut of_spans: Vec<usize> = Vec::with_capacity(trace.spans.len());
    for span in &trace.spans {
        let key = (span.service_shown(), &span.context.resource);
        of_spans.push(*processes.entry(key).or_insert_with(|| {
            order.push(key);
            order.len() - 1
        }));
    }
    let names: Vec<String> = (1..=order.len()).map(|n| format!("p{n}")).collect();
    w.object(|w| {
        w.key("traceID").id(&trace.id);
        w.key("spans").array(|w| {
            for (span, process) in trace.spans.iter().zip(of_spans) {
                if w.is_closed() {
                    return;
                }
                write_span(span, &names[process], options, w);
            }
        });
        w.key("processes").object(|w| {
            for (name, (service, resource)) in names.iter().zip(&order) {
                w.key(name).object(|w| {
                    w.key("serviceName").text(service);
                    w.key("tags").array(|w| {
                        for (key, value) in resource.iter().filter(|(key, _)| *key != "service.name") {
                            let tag = if options.native { native(value) } else { Tag::Text(value.text()) };
                            write_tag(key, &tag, w);
                        }
                    });
                });
            }
        });
        w.key("warnings").raw("null");
    });
}

/// A typed value in Jaeger's model.
enum Tag<'a> {
    Text(Cow<'a, str>),
    Float(f64),
    Int(i64),
    Bool(bool),
}

fn write_tag(key: &str, tag: &Tag<'_>, w: &mut JsonWriter<'_>) {
    // Most of a response is tags, so each is written with a single call.
    w.value(|out| {
        out.push_str("{\"key\":");
        push_json_text(key, out);
        match tag {
            Tag::Text(text) => {
                out.push_str(",\"type\":\"string\",\"value\":");
                push_json_text(text, out);
            }
            Tag::Float(v) => {
                out.push_str(",\"type\":\"float64\",\"value\":");
                Value::Double(*v).push_text(out);
            }
            Tag::Int(v) => {
                out.push_str(",\"type\":\"int64\",\"value\":");
                write_int(*v, out);
            }
            Tag::Bool(v) => {
                out.push_str(",\"type\":\"bool\",\"value\":");
                Value::Bool(*v).push_text(out);
            }
        }
        out.push('}');
    });
}

/// Converts a value: numbers that fit into a double become numbers, everything else strings.
fn plain(value: Value<'_>) -> Tag<'_> {
    value.metric().map_or_else(|| Tag::Text(value.text()), Tag::Float)
}

/// Converts a value with its original type, as far as Jaeger has it.
fn native(value: Value<'_>) -> Tag<'_> {
    match value {
        Value::Bool(v) => Tag::Bool(v),
        Value::Int(v) if value.metric().is_some() => Tag::Int(v),
        other => plain(other),
    }
}

fn of(value: Value<'_>, options: ExportOptions) -> Tag<'_> {
    if options.native { native(value) } else { plain(value) }
}

fn push_reference(kind: &str, trace: &[u8], span: &[u8], out: &mut String) {
    out.push_str("{\"refType\":\"");
    out.push_str(kind);
    out.push_str("\",\"traceID\":");
    push_id(trace, out);
    out.push_str(",\"spanID\":");
    push_id(span, out);
    out.push('}');
}

/// Writes a span; the fields that all spans have are written in a single call, like tags.
fn write_span(span: &Span, process: &str, options: ExportOptions, w: &mut JsonWriter<'_>) {
    w.up_to_value(|out| {
        out.push_str("{\"traceID\":");
        push_id(&span.trace_id, out);
        out.push_str(",\"spanID\":");
        push_id(&span.span_id, out);
        out.push_str(",\"operationName\":");
        push_json_text(&span.name, out);
        out.push_str(",\"references\":");
    });
    w.array(|w| {
        if let Some(parent) = span.parent {
            w.value(|out| push_reference("CHILD_OF", &span.trace_id, &parent, out));
        }
        for link in span.links.iter().filter(|_| options.link_references) {
            w.value(|out| push_reference("FOLLOWS_FROM", &link.trace_id, &link.span_id, out));
        }
    });
    w.up_to_value(|out| {
        out.push_str("\"startTime\":");
        write_int(span.start / 1000, out);
        out.push_str(",\"duration\":");
        write_int(span.duration() / 1000, out);
        out.push_str(",\"tags\":");
    });
    w.array(|w| write_tags(span, options, w));
    w.up_to_value(|out| out.push_str("\"logs\":"));
    w.array(|w| {
        for event in span.events.iter().filter(|_| options.extras) {
            w.object(|w| {
                w.key("timestamp").raw(event.time / 1000);
                w.key("fields").array(|w| {
                    write_tag("event", &Tag::Text(event.name.as_str().into()), w);
                    for (key, value) in event.attributes.iter().filter(|(key, _)| *key != "event") {
                        write_tag(key, &of(value, options), w);
                    }
                });
            });
        }
    });
    w.end(|out| {
        let warnings = if span.is_negative() { "[\"NEGATIVE_DURATION\"]" } else { "null" };
        out.push_str(",\"processID\":\"");
        out.push_str(process);
        out.push_str("\",\"warnings\":");
        out.push_str(warnings);
        out.push('}');
    });
}

/// A tag that does not come from the span's attributes.
struct Other<'a> {
    key: Cow<'a, str>,
    tag: Tag<'a>,
    /// Whether it precedes an attribute with the same key.
    counts: bool,
}

/// Kind and status of a span, and its extras, sorted by key without duplicates.
fn others(span: &Span, options: ExportOptions) -> Vec<Other<'_>> {
    let mut out: Vec<Other<'_>> = Vec::new();
    if options.extras {
        let other = |(key, text)| Other { key, tag: Tag::Text(text), counts: false };
        out.extend(extras(span).into_iter().map(other));
        // As Jaeger converts spans of OTLP.
        let code = match span.status {
            STATUS_OK => "OK",
            STATUS_ERROR => "ERROR",
            _ => "",
        };
        if options.native && !code.is_empty() {
            out.push(other(("otel.status_code".into(), code.into())));
        }
    }
    let kind = kind_name(span.kind);
    if !kind.is_empty() {
        out.push(Other { key: "span.kind".into(), tag: Tag::Text(kind.into()), counts: true });
    }
    if span.is_error() {
        out.push(Other { key: "error".into(), tag: Tag::Bool(true), counts: true });
    }
    out.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    out
}

/// Writes tags sorted by key. Among equal keys, the kind and status come first, then the span's attributes, then the
/// extras. Attributes are sorted already, so the others are merged in.
fn write_tags(span: &Span, options: ExportOptions, w: &mut JsonWriter<'_>) {
    let others = others(span, options);
    let mut others = others.iter().peekable();
    for (key, value) in span.attributes.iter().filter(|(key, _)| *key != "error") {
        while let Some(other) = others.next_if(|other| *other.key < *key) {
            write_tag(&other.key, &other.tag, w);
        }
        match others.next_if(|other| *other.key == *key) {
            Some(other) if other.counts => write_tag(key, &other.tag, w),
            _ => write_tag(key, &of(value, options), w),
        }
    }
    for other in others {
        write_tag(&other.key, &other.tag, w);
    }
}
