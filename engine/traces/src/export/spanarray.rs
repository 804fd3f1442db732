//! The flat span array, Zipkin v2 (`traces-api` 2.2).

use std::borrow::Cow;
use std::collections::BTreeMap;

use quiver_types::spans::{AttributeTest, Attributes, Place, Span, SpanFilter, TextTest};

use super::format::{ExportFormat, ExportOptions, FlatForm};
use super::values::{extras, plain_object};
use crate::assemble::Trace;
use crate::json_writer::JsonWriter;

/// A JSON array of spans in the flat form of Zipkin v2.
pub const FORMAT: ExportFormat = ExportFormat { name: "spanarray", write };

/// Names of the kinds by number; the flat format has none for unset and internal.
const KINDS: [&str; 6] = ["", "", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"];

/// Tags that name the other side of a call, best first.
const REMOTE: [&str; 14] = [
    "peer.service",
    "service.peer.name",
    "server.address",
    "net.peer.name",
    "network.peer.address",
    "server.socket.domain",
    "server.socket.address",
    "net.sock.peer.name",
    "net.sock.peer.addr",
    "peer.hostname",
    "peer.address",
    "db.namespace",
    "db.name",
    "messaging.destination.name",
];

/// Writes a list of spans.
pub fn write(trace: &Trace, options: ExportOptions, w: &mut JsonWriter<'_>) {
    w.array(|w| {
        for span in &trace.spans {
            if w.is_closed() {
                return;
            }
            write_span(span, options, w);
        }
    });
}

/// Says whether a kind is that of outgoing calls.
fn is_outgoing(kind: u8) -> bool {
    matches!(kind, 3 | 4)
}

/// Name of the other side of a span that the form shows.
fn remote_name(span: &Span, options: ExportOptions) -> Option<String> {
    let is_shown = options.flat == FlatForm::Zipkin || is_outgoing(span.kind);
    if is_shown { remote_of(span.kind, span.attributes.bytes()) } else { None }
}

/// Name of the other side of a span according to its attributes. Of what is no outgoing call these are `peer.service`
/// alone: addresses are then its own.
pub(crate) fn remote_of(kind: u8, attributes: &[u8]) -> Option<String> {
    let names = if is_outgoing(kind) { &REMOTE[..] } else { &REMOTE[..1] };
    let mut best: Option<(usize, String)> = None;
    for (key, value) in Attributes::read(attributes).filter(|(_, v)| v.metric().is_none()) {
        let Some(rank) = names.iter().position(|name| *name == key) else { continue };
        let text = value.text();
        if !text.is_empty() && best.as_ref().is_none_or(|(known, _)| rank < *known) {
            best = Some((rank, text.into_owned()));
        }
    }
    best.map(|(_, name)| name)
}

/// Gives the filter of spans whose other side may be named.
pub(crate) fn may_have_remote() -> SpanFilter {
    let (place, key, test) = (Some(Place::Span), REMOTE[0].to_owned(), AttributeTest::Exists);
    SpanFilter::Or(vec![SpanFilter::Kinds(vec![3, 4]), SpanFilter::Attribute { place, key, test }])
}

/// Gives the filter of spans whose other side has a name: the one that a call is shown with, or one that any span says by
/// itself (`peer.service`).
pub fn of_remote(name: &TextTest) -> SpanFilter {
    let at = |key: &str, test| SpanFilter::Attribute { place: Some(Place::Span), key: key.to_owned(), test };
    let is_name = || AttributeTest::Text(name.clone());
    let is_empty = || AttributeTest::Text(TextTest::Is(String::new()));
    // The best name that is not empty counts.
    let shown = REMOTE.iter().rev().fold(SpanFilter::None, |others, key| {
        let missing = SpanFilter::Not(Box::new(at(key, AttributeTest::Exists)));
        let is_missing = SpanFilter::Or(vec![missing, at(key, is_empty())]);
        SpanFilter::Or(vec![at(key, is_name()), is_missing.and(others)])
    });
    SpanFilter::Or(vec![at("peer.service", is_name()), SpanFilter::Kinds(vec![3, 4]).and(shown)])
}

fn shown_name(name: &str, options: ExportOptions) -> Cow<'_, str> {
    match options.flat {
        FlatForm::Documented => Cow::Borrowed(name),
        FlatForm::Zipkin => Cow::Owned(name.to_lowercase()),
    }
}

fn write_span(span: &Span, options: ExportOptions, w: &mut JsonWriter<'_>) {
    w.object(|w| {
        w.key("traceId").id(&span.trace_id);
        w.key("id").id(&span.span_id);
        if let Some(parent) = span.parent {
            w.key("parentId").id(&parent);
        }
        w.key("name").text(&shown_name(&span.name, options));
        let kind = KINDS[usize::from(span.kind).min(5)];
        if !kind.is_empty() {
            w.key("kind").text(kind);
        }
        w.key("timestamp").raw(span.start / 1000);
        w.key("duration").raw((span.duration() / 1000).max(1));
        w.key("localEndpoint").object(|w| w.key("serviceName").text(&shown_name(span.service_shown(), options)));
        if let Some(remote) = remote_name(span, options) {
            w.key("remoteEndpoint").object(|w| w.key("serviceName").text(&shown_name(&remote, options)));
        }
        if options.extras && !span.events.is_empty() {
            w.key("annotations").array(|w| {
                for event in &span.events {
                    w.object(|w| {
                        w.key("timestamp").raw(event.time / 1000);
                        let name = event.name.replace('|', "/");
                        if event.attributes.is_empty() {
                            w.key("value").text(&name);
                        } else {
                            w.key("value").text(&format!("{name}|{}|0", plain_object(&event.attributes)));
                        }
                    });
                }
            });
        }
        w.key("tags").object(|w| tags(span, options).iter().for_each(|(key, text)| w.key(key).text(text)));
    });
}

/// Tags of a span; later sources override earlier ones: resource, extras, tags, metrics.
fn tags(span: &Span, options: ExportOptions) -> BTreeMap<Cow<'_, str>, Cow<'_, str>> {
    let mut tags: BTreeMap<Cow<'_, str>, Cow<'_, str>> = BTreeMap::new();
    for (key, value) in span.context.resource.iter().filter(|(key, _)| *key != "service.name") {
        tags.insert(key.into(), value.text());
    }
    if options.extras {
        tags.extend(extras(span));
    }
    for (key, value) in &span.attributes {
        tags.insert(key.into(), value.text());
    }
    if span.is_error() {
        let said =
            Some(span.status_message.as_str()).filter(|said| options.flat == FlatForm::Zipkin && !said.is_empty());
        tags.insert("error".into(), said.unwrap_or("true").into());
    } else {
        tags.remove("error");
    }
    tags
}
