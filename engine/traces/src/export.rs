//! The export formats: one file per format, one slice that lists them.

pub mod internal;
pub mod otlp;
pub mod spanarray;
pub mod tempo;
pub mod traceobject;

use std::borrow::Cow;

use quiver_types::spans::{Attributes, Link, Span, Value, hex};

use crate::assemble::Trace;
use crate::writer::{JsonWriter, push_text};

/// What a caller chose about the shape of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportOptions {
    /// Whether values keep the types that they came with (integer, boolean); otherwise they are texts, or doubles.
    pub native: bool,
    /// Whether links to spans are written as references, too.
    pub link_references: bool,
    /// Whether fields are added that the documented shape of a format does not have; on unless switched off.
    pub extras: bool,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self { native: false, link_references: false, extras: true }
    }
}

/// One way to write a trace as JSON. Those with a path of their own stand in [`FORMATS`].
#[derive(Debug, Clone, Copy)]
pub struct ExportFormat {
    /// Name: last segment of its path, and part of the file's name.
    pub name: &'static str,
    /// Writes a trace.
    pub write: fn(&Trace, ExportOptions, &mut JsonWriter<'_>),
}

/// All formats with a path of their own.
pub const FORMATS: &[ExportFormat] = &[otlp::FORMAT, spanarray::FORMAT, traceobject::FORMAT];

/// Finds a format by name.
pub fn find(name: &str) -> Option<&'static ExportFormat> {
    FORMATS.iter().find(|f| f.name == name)
}

/// Writes a trace as one piece.
pub fn to_json(trace: &Trace, format: &ExportFormat, options: ExportOptions) -> Vec<u8> {
    let mut writer = JsonWriter::default();
    (format.write)(trace, options, &mut writer);
    writer.finish().unwrap_or_default()
}

/// Writes an attribute's value as an OTLP `AnyValue` with its type.
pub(crate) fn any_value(value: Value<'_>, w: &mut JsonWriter<'_>) {
    if let Value::Json(json) = value {
        return w.raw(json);
    }
    w.object(|w| match value {
        Value::Text(text) => w.key("stringValue").text(text),
        Value::Int(v) => w.key("intValue").quoted(v),
        Value::Double(v) if v.is_finite() => w.key("doubleValue").raw(number(v)),
        Value::Double(v) if v.is_nan() => w.key("doubleValue").text("NaN"),
        Value::Double(v) => w.key("doubleValue").text(if v > 0.0 { "Infinity" } else { "-Infinity" }),
        Value::Bool(v) => w.key("boolValue").raw(v),
        Value::Bytes(_) => w.key("bytesValue").text(&value.text()),
        Value::Json(_) => {}
    });
}

/// A finite double as JSON: shortest digits, whole numbers without a point.
pub(crate) fn number(v: f64) -> String {
    Value::Double(v).text().into_owned()
}

/// Attributes as a JSON object with plain values.
pub(crate) fn plain_object(attributes: &Attributes) -> String {
    let mut out = String::from("{");
    for (i, (key, value)) in attributes.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        push_text(key, &mut out);
        out.push(':');
        match value {
            Value::Bool(_) | Value::Json(_) => value.push_text(&mut out),
            _ if value.metric().is_some() => value.push_text(&mut out),
            _ => push_text(&value.text(), &mut out),
        }
    }
    out.push('}');
    out
}

/// What of a span has no place in the formats of tags.
pub(crate) fn extras(span: &Span) -> Vec<(Cow<'static, str>, Cow<'_, str>)> {
    let message = if span.is_error() { span.status_message.as_str() } else { "" };
    let texts = [
        ("otel.status_description", message),
        ("otel.scope.name", span.context.scope_name.as_str()),
        ("otel.scope.version", span.context.scope_version.as_str()),
        ("w3c.tracestate", span.trace_state.as_str()),
    ];
    let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
    let texts = texts.map(|(key, text)| (Cow::Borrowed(key), Cow::Borrowed(text)));
    let links = span.links.iter().enumerate();
    let links =
        links.map(|(n, link)| (Cow::<str>::Owned(format!("otlp.link.{n}")), Cow::<str>::Owned(link_text(link))));
    texts.chain(links).collect()
}

fn link_text(link: &Link) -> String {
    let attributes = plain_object(&link.attributes);
    format!("{}|{}|{}|{attributes}|0", hex(&link.trace_id), hex(&link.span_id), link.trace_state)
}

#[cfg(test)]
mod tests;
