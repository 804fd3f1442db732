//! Values, attributes and links in the form that several formats share.

use std::borrow::Cow;

use quiver_types::spans::{Attributes, Link, Span, Value, hex};
use quiver_types::text::push_json_text;

use crate::json_writer::JsonWriter;

/// Writes an attribute's value as an OTLP `AnyValue` with its type.
pub fn any_value(value: Value<'_>, w: &mut JsonWriter<'_>) {
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

/// A finite double as JSON: shortest digits, integers without a decimal point.
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
        push_json_text(key, &mut out);
        out.push(':');
        match value {
            Value::Bool(_) | Value::Json(_) => value.push_text(&mut out),
            _ if value.metric().is_some() => value.push_text(&mut out),
            _ => push_json_text(&value.text(), &mut out),
        }
    }
    out.push('}');
    out
}

/// Properties of a span that have no place in the tag-based formats.
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
