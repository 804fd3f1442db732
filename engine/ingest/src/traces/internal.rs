//! The internal JSON of one trace, `trace/1` (`traces-api` 3.2). An export in this form can be imported without loss.

use std::collections::BTreeMap;

use quiver_types::spans::{
    ContextFields, KIND_NAMES, LinkRef, NEGATIVE_DURATION, SHARED, SpanFields, Value, parse_hex,
};
use quiver_types::text::from_base64;
use serde::Deserialize;
use serde_json::Value as Json;

use super::{DecodedSpans, Sink, SpanReason, TraceContext, hex_id};
use crate::decode_memory;
use crate::error::{Error, Result};

/// Doubles from here on are not read as integers of 64 bits, which end there.
const INT_MAX: f64 = 9_223_372_036_854_775_808.0;

/// The trace as the API answers it.
#[derive(Debug, Deserialize)]
struct TraceResponse {
    data: Trace,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Trace {
    format: String,
    #[serde(rename = "traceId")]
    id: String,
    #[serde(default)]
    spans: Vec<Span>,
    #[serde(default)]
    resources: Vec<Fields>,
    #[serde(default)]
    scopes: Vec<Scope>,
}

/// Attributes in the three maps of the format.
#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Fields {
    tags: BTreeMap<String, String>,
    metrics: BTreeMap<String, f64>,
    types: BTreeMap<String, String>,
    values: BTreeMap<String, Json>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Scope {
    name: String,
    version: String,
    #[serde(flatten)]
    fields: Fields,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Span {
    #[serde(rename = "spanId")]
    id: String,
    #[serde(default)]
    parent_span_id: Option<String>,
    #[serde(default)]
    service: String,
    #[serde(default)]
    service_missing: bool,
    #[serde(default)]
    resource: usize,
    #[serde(default)]
    scope: usize,
    #[serde(default)]
    name: String,
    #[serde(default)]
    kind: String,
    start: String,
    end: String,
    #[serde(default)]
    status_code: String,
    #[serde(default)]
    status_message: String,
    #[serde(default)]
    trace_state: String,
    #[serde(default)]
    flags: u32,
    #[serde(default)]
    dropped: [u32; 3],
    #[serde(default)]
    shared: bool,
    #[serde(default)]
    warnings: Vec<String>,
    #[serde(default)]
    events: Vec<Event>,
    #[serde(default)]
    links: Vec<Link>,
    #[serde(flatten)]
    fields: Fields,
}

#[derive(Debug, Deserialize)]
struct Event {
    time: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    dropped: u32,
    #[serde(flatten)]
    fields: Fields,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Link {
    trace_id: String,
    span_id: String,
    #[serde(default)]
    trace_state: String,
    #[serde(default)]
    flags: u32,
    #[serde(default)]
    dropped: u32,
    #[serde(flatten)]
    fields: Fields,
}

/// A typed value that was parsed from a text of the format.
enum OwnedValue {
    Text(String),
    Int(i64),
    Double(f64),
    Bool(bool),
    Bytes(Vec<u8>),
    Json(String),
}

impl OwnedValue {
    fn value(&self) -> Value<'_> {
        match self {
            Self::Text(text) => Value::Text(text),
            Self::Int(v) => Value::Int(*v),
            Self::Double(v) => Value::Double(*v),
            Self::Bool(v) => Value::Bool(*v),
            Self::Bytes(bytes) => Value::Bytes(bytes),
            Self::Json(json) => Value::Json(json),
        }
    }
}

impl Fields {
    fn held(&self) -> Vec<(&str, OwnedValue)> {
        let tags = self.tags.iter().map(|(key, text)| {
            let typed = match self.types.get(key).map(String::as_str) {
                Some("bool") => text.parse().ok().map(OwnedValue::Bool),
                Some("int") => text.parse().ok().map(OwnedValue::Int),
                Some("double") => double(text).map(OwnedValue::Double),
                Some("bytes") => from_base64(text).map(OwnedValue::Bytes),
                Some("array" | "map") => self.values.get(key).map(|v| OwnedValue::Json(v.to_string())),
                _ => None,
            };
            (key.as_str(), typed.unwrap_or_else(|| OwnedValue::Text(text.clone())))
        });
        let metrics = self.metrics.iter().map(|(key, v)| {
            let fits = v.fract() == 0.0 && v.abs() < INT_MAX;
            let int = fits && self.types.get(key).is_some_and(|t| t == "int");
            (key.as_str(), if int { OwnedValue::Int(*v as i64) } else { OwnedValue::Double(*v) })
        });
        tags.chain(metrics).collect()
    }
}

/// Reads a time. OTLP has none before 1970, and could not be told of one.
fn time(text: &str) -> Option<i64> {
    text.parse::<i64>().ok().filter(|time| *time >= 0)
}

fn double(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        other => other.parse().ok(),
    }
}

fn list<'a>(held: &'a [(&'a str, OwnedValue)]) -> Vec<(&'a str, Value<'a>)> {
    held.iter().map(|(key, value)| (*key, value.value())).collect()
}

/// Decodes a trace.
///
/// # Errors
/// Invalid: not this format. TooLarge: more than the limits allow.
pub fn decode(body: &[u8], ctx: &TraceContext<'_>) -> Result<DecodedSpans> {
    let (bytes, limit_bytes) = (read_bytes(body), ctx.batch_bytes_max.saturating_mul(2));
    if bytes > limit_bytes {
        return Err(Error::TooLarge { what: "trace of the format `trace/1`, as it is read,", limit_bytes });
    }
    decode_memory::hold_beside(bytes)?;
    // Not as an enum of both, which would be read into a tree of values first.
    let trace = match serde_json::from_slice::<TraceResponse>(body) {
        Ok(wrapped) => wrapped.data,
        Err(_) => serde_json::from_slice(body).map_err(|_| shape("not a trace of the format `trace/1`"))?,
    };
    if trace.format != "trace/1" {
        return Err(shape("`format` is not `trace/1`"));
    }
    let mut sink = Sink::new(ctx, body);
    for span in &trace.spans {
        if let Err(reason) = store(&trace, span, &mut sink) {
            sink.refuse(reason, || match reason {
                SpanReason::Service => span.service.clone(),
                _ => format!("{:?}", span.name),
            });
        }
        sink.check_size()?;
    }
    Ok(sink.finish())
}

/// Bytes that a document takes at most while it is read: a few of its own may be a span, a map or a list.
fn read_bytes(body: &[u8]) -> usize {
    let taken = |byte: &u8| match byte {
        b'{' | b'[' => 1024,
        b',' | b':' => 64,
        _ => 1,
    };
    body.iter().map(taken).sum()
}

fn shape(what: &'static str) -> Error {
    Error::Json { offset: 0, what }
}

fn store(trace: &Trace, span: &Span, sink: &mut Sink<'_>) -> Result<(), SpanReason> {
    let ctx = sink.ctx;
    let trace_id = hex_id(&trace.id, SpanReason::TraceId)?;
    let span_id = hex_id(&span.id, SpanReason::SpanId)?;
    let parent = match span.parent_span_id.as_deref() {
        None | Some("") => [0; 8],
        Some(text) => parse_hex(text).ok_or(SpanReason::ParentId)?,
    };
    let start = sink.check_start(span.start.parse().map_err(|_| SpanReason::NoStart)?)?;
    let end = time(&span.end).unwrap_or(start);
    let service = if span.service_missing { "" } else { span.service.as_str() };
    let service = sink.service(service)?.to_owned();
    let none = (Fields::default(), Scope::default());
    let resource = trace.resources.get(span.resource).unwrap_or(&none.0).held();
    let scope = trace.scopes.get(span.scope).unwrap_or(&none.1);
    let (mut resource_bytes, mut scope_bytes) = (Vec::new(), Vec::new());
    sink.builder.write_shared(&mut list(&resource), &mut resource_bytes);
    sink.builder.write_shared(&mut list(&scope.fields.held()), &mut scope_bytes);
    let context = sink.builder.context(&ContextFields {
        service: &service,
        resource: &resource_bytes,
        scope_name: &scope.name,
        scope_version: &scope.version,
        scope_attributes: &scope_bytes,
    });
    sink.builder.attributes(&mut list(&span.fields.held()));
    for event in &span.events {
        let at = time(&event.time).unwrap_or(0);
        sink.builder.event(at, &event.name, event.dropped, &mut list(&event.fields.held()));
    }
    for link in &span.links {
        let (Some(trace_id), Some(span_id)) = (parse_hex(&link.trace_id), parse_hex(&link.span_id)) else { continue };
        let (trace_state, flags, dropped) = (link.trace_state.as_str(), link.flags, link.dropped);
        let of = LinkRef { trace_id, span_id, trace_state, flags, dropped, attributes: &[] };
        sink.builder.link(of, &mut list(&link.fields.held()));
    }
    let negative = span.warnings.iter().any(|w| w == "NEGATIVE_DURATION");
    let mark = |on: bool, mark: u8| if on { mark } else { 0 };
    sink.builder.span(&SpanFields {
        trace_id,
        span_id,
        parent,
        context,
        name: &span.name,
        kind: KIND_NAMES.iter().position(|k| *k == span.kind).unwrap_or(0) as u8,
        start,
        end,
        status: ["unset", "ok", "error"].iter().position(|s| *s == span.status_code).unwrap_or(0) as u8,
        status_message: &span.status_message,
        trace_state: &span.trace_state,
        flags: span.flags,
        dropped: span.dropped,
        received: ctx.now_ns,
        marks: mark(span.shared, SHARED) | mark(negative, NEGATIVE_DURATION),
    });
    Ok(())
}
