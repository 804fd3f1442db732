//! Traces in the forms of Tempo's API: a block for each resource, either as JSON in protobuf's own mapping (ids in
//! base64, enums as names), or as OTLP/JSON, from which the protobuf form is made.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use quiver_types::spans::{Attributes, STATUS_ERROR, STATUS_OK, Span, Value};
use quiver_types::text::push_base64;

use super::scopes::Scopes;
use super::values::any_value;
use crate::json_writer::JsonWriter;

/// How ids and enums are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Ids in base64, enums by name: protobuf's JSON mapping.
    Protobuf,
    /// Ids in hex, enums by number: OTLP/JSON.
    Otlp,
}

const KINDS: [&str; 6] = [
    "SPAN_KIND_UNSPECIFIED",
    "SPAN_KIND_INTERNAL",
    "SPAN_KIND_SERVER",
    "SPAN_KIND_CLIENT",
    "SPAN_KIND_PRODUCER",
    "SPAN_KIND_CONSUMER",
];
const STATUSES: [&str; 3] = ["STATUS_CODE_UNSET", "STATUS_CODE_OK", "STATUS_CODE_ERROR"];

/// The spans of a resource, by scope.
struct Block<'t> {
    service: &'t str,
    resource: &'t Attributes,
    scopes: Scopes<'t>,
}

/// Writes the blocks of a trace, or of some of its spans, as a list, under a key of the current object.
pub fn write_blocks(spans: &[Span], key: &str, form: Form, w: &mut JsonWriter<'_>) {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut places: HashMap<(&str, &Attributes), usize, FixedState> = HashMap::default();
    for span in spans {
        let (service, resource) = (span.context.service.as_str(), &span.context.resource);
        let at = *places.entry((service, resource)).or_insert_with(|| {
            blocks.push(Block { service, resource, scopes: Scopes::default() });
            blocks.len() - 1
        });
        blocks[at].scopes.add(span);
    }
    w.key(key).array(|w| {
        for block in &blocks {
            if w.is_closed() {
                return;
            }
            w.object(|w| write_block(block, form, w));
        }
    });
}

fn write_block(block: &Block<'_>, form: Form, w: &mut JsonWriter<'_>) {
    w.key("resource").object(|w| {
        let name = (!block.service.is_empty()).then_some(("service.name", Value::Text(block.service)));
        list("attributes", block.resource.iter().chain(name), w);
    });
    w.key("scopeSpans").array(|w| {
        for ((name, version, attributes), spans) in block.scopes.list() {
            if w.is_closed() {
                return;
            }
            w.object(|w| {
                w.key("scope").object(|w| {
                    for (key, text) in [("name", name), ("version", version)] {
                        if !text.is_empty() {
                            w.key(key).text(text);
                        }
                    }
                    list("attributes", attributes.iter(), w);
                });
                w.key("spans").array(|w| {
                    for span in spans {
                        if w.is_closed() {
                            return;
                        }
                        w.object(|w| write_span(span, form, w));
                    }
                });
            });
        }
    });
}

fn list<'a>(key: &str, attributes: impl Iterator<Item = (&'a str, Value<'a>)>, w: &mut JsonWriter<'_>) {
    let mut attributes = attributes.peekable();
    if attributes.peek().is_none() {
        return;
    }
    w.key(key).array(|w| {
        for (key, value) in attributes {
            w.object(|w| {
                w.key("key").text(key);
                w.key("value");
                any_value(value, w);
            });
        }
    });
}

fn id(key: &str, id: &[u8], form: Form, w: &mut JsonWriter<'_>) {
    match form {
        Form::Otlp => w.key(key).id(id),
        Form::Protobuf => {
            let mut text = String::new();
            push_base64(id, &mut text);
            w.key(key).text(&text);
        }
    }
}

fn word(key: &str, words: &[&str], number: u8, form: Form, w: &mut JsonWriter<'_>) {
    match (form, words.get(usize::from(number))) {
        (Form::Protobuf, Some(word)) => w.key(key).text(word),
        _ => w.key(key).raw(number),
    }
}

fn count(key: &str, count: u32, w: &mut JsonWriter<'_>) {
    if count > 0 {
        w.key(key).raw(count);
    }
}

fn write_span(span: &Span, form: Form, w: &mut JsonWriter<'_>) {
    id("traceId", &span.trace_id, form, w);
    id("spanId", &span.span_id, form, w);
    if !span.trace_state.is_empty() {
        w.key("traceState").text(&span.trace_state);
    }
    if let Some(parent) = &span.parent {
        id("parentSpanId", parent, form, w);
    }
    w.key("name").text(&span.name);
    if span.kind > 0 {
        word("kind", &KINDS, span.kind, form, w);
    }
    w.key("startTimeUnixNano").quoted(span.start);
    w.key("endTimeUnixNano").quoted(span.end);
    list("attributes", span.attributes.iter(), w);
    count("droppedAttributesCount", span.dropped[0], w);
    if !span.events.is_empty() {
        w.key("events").array(|w| {
            for event in &span.events {
                w.object(|w| {
                    w.key("timeUnixNano").quoted(event.time);
                    w.key("name").text(&event.name);
                    list("attributes", event.attributes.iter(), w);
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
                    id("traceId", &link.trace_id, form, w);
                    id("spanId", &link.span_id, form, w);
                    if !link.trace_state.is_empty() {
                        w.key("traceState").text(&link.trace_state);
                    }
                    list("attributes", link.attributes.iter(), w);
                    count("droppedAttributesCount", link.dropped, w);
                });
            }
        });
    }
    count("droppedLinksCount", span.dropped[2], w);
    w.key("status").object(|w| {
        if span.status == STATUS_ERROR && !span.status_message.is_empty() {
            w.key("message").text(&span.status_message);
        }
        if matches!(span.status, STATUS_OK | STATUS_ERROR) {
            word("code", &STATUSES, span.status, form, w);
        }
    });
}
