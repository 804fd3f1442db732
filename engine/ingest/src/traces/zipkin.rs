//! Zipkin v2: a JSON list of spans; as protobuf in `protobuf`.
//!
//! Texts stay texts (nothing is parsed as a number); endpoints become attributes. An annotation in the form
//! `name|{attributes}|0`, which the flat export writes, becomes an event again.

pub mod protobuf;

use std::borrow::Cow;

use quiver_types::spans::{ContextFields, NO_DURATION, NO_START, SHARED, SpanFields, Value};

use super::{DecodedSpans, SPAN_BYTES_MAX, Sink, SpanReason, TraceContext, hex_id};
use crate::error::Result;
use crate::json::{Json, Next, Scalar};

/// Largest port; others are refused, as by Zipkin.
const PORT_MAX: u64 = 65_535;
/// Names of the kinds, by number.
const KINDS: [&str; 6] = ["", "", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"];

/// Decodes a list of spans; nothing at all is an empty one.
///
/// # Errors
/// Invalid: not JSON, or not this shape. TooLarge: more than the limits allow.
pub fn decode(body: &[u8], ctx: &TraceContext<'_>) -> Result<DecodedSpans> {
    let mut sink = Sink::new(ctx, body);
    // As Zipkin takes it (`validateAndStoreSpans`).
    if body.is_empty() {
        return Ok(sink.finish());
    }
    let mut json = Json::new(body)?;
    if json.next()? != Next::List {
        return Err(json.error("expected a list of spans"));
    }
    json.enter(b'[')?;
    let mut first = true;
    while json.item(first, b']')? {
        first = false;
        let begin = json.position();
        let span = read_span(&mut json)?;
        take(&span, json.position() - begin > SPAN_BYTES_MAX, &mut sink)?;
    }
    json.end()?;
    Ok(sink.finish())
}

/// Stores a span, or refuses it.
fn take(span: &ZipkinSpan<'_>, is_too_long: bool, sink: &mut Sink<'_>) -> Result<()> {
    let stored = if is_too_long { Err(SpanReason::TooLarge) } else { store(span, sink) };
    if let Err(reason) = stored {
        sink.refuse(reason, || match reason {
            // Who may write them is asked by service.
            SpanReason::Service => span.local.service.to_string(),
            // Zipkin's spans need no name; what is wrong with an id shows in the id.
            SpanReason::TraceId => format!("{:?}", span.trace_id),
            SpanReason::SpanId => format!("{:?}", span.id),
            SpanReason::ParentId => format!("{:?}", span.parent),
            _ => format!("{:?}", span.name),
        });
    }
    sink.check_size()
}

type Text<'a> = Cow<'a, str>;

#[derive(Debug, Default)]
struct Endpoint<'a> {
    service: Text<'a>,
    ipv4: Text<'a>,
    ipv6: Text<'a>,
    port: i64,
}

#[derive(Debug, Default)]
struct ZipkinSpan<'a> {
    trace_id: Text<'a>,
    id: Text<'a>,
    parent: Text<'a>,
    name: Text<'a>,
    kind: Text<'a>,
    timestamp: u64,
    duration: u64,
    local: Endpoint<'a>,
    remote: Endpoint<'a>,
    annotations: Vec<(u64, Text<'a>)>,
    tags: Vec<(Text<'a>, Text<'a>)>,
    debug: bool,
    shared: bool,
}

fn text<'a>(json: &mut Json<'a>) -> Result<Text<'a>> {
    match scalar(json)? {
        Scalar::Null => Ok(Cow::Borrowed("")),
        Scalar::Text(text) => Ok(text),
        _ => Err(json.error("expected a text")),
    }
}

fn scalar<'a>(json: &mut Json<'a>) -> Result<Scalar<'a>> {
    if json.next()? == Next::Scalar { json.scalar() } else { Err(json.error("expected a plain value")) }
}

/// Reads a number; doubles, as some senders write them, are cut, and negative ones are 0, as in Zipkin.
fn number(json: &mut Json<'_>) -> Result<u64> {
    let read = |text: &str| {
        text.parse::<u64>().ok().or_else(|| text.parse::<f64>().ok().filter(|v| v.is_finite()).map(|v| v as u64))
    };
    match scalar(json)? {
        Scalar::Null => Ok(0),
        Scalar::Number(text) => read(text).ok_or_else(|| json.error("expected a number")),
        Scalar::Text(text) => read(&text).ok_or_else(|| json.error("expected a number")),
        Scalar::Bool(_) => Err(json.error("expected a number")),
    }
}

fn flag(json: &mut Json<'_>) -> Result<bool> {
    match scalar(json)? {
        Scalar::Null => Ok(false),
        Scalar::Bool(v) => Ok(v),
        _ => Err(json.error("expected a boolean")),
    }
}

/// Walks over an object, or over nothing when it is null.
fn object<'a>(json: &mut Json<'a>, mut each: impl FnMut(&str, Text<'a>, &mut Json<'a>) -> Result<()>) -> Result<()> {
    if json.next()? == Next::Scalar {
        return match json.scalar()? {
            Scalar::Null => Ok(()),
            _ => Err(json.error("expected an object")),
        };
    }
    json.enter(b'{')?;
    let mut first = true;
    while let Some(key) = json.key(first)? {
        first = false;
        let name = key.clone();
        each(&name, key, json)?;
    }
    Ok(())
}

fn endpoint<'a>(json: &mut Json<'a>) -> Result<Endpoint<'a>> {
    let mut out = Endpoint::default();
    object(json, |name, _, json| {
        match name {
            "serviceName" => out.service = text(json)?,
            "ipv4" => out.ipv4 = text(json)?,
            "ipv6" => out.ipv6 = text(json)?,
            "port" => {
                let port = Some(number(json)?).filter(|port| *port <= PORT_MAX);
                out.port = port.ok_or_else(|| json.error("expected a port of at most 65535"))? as i64;
            }
            _ => json.skip()?,
        }
        Ok(())
    })?;
    Ok(out)
}

/// Reads a span. Of one that is longer than a span may be, and will be refused, lists are not kept: entries of a few bytes
/// take many times as much in memory.
fn read_span<'a>(json: &mut Json<'a>) -> Result<ZipkinSpan<'a>> {
    let mut span = ZipkinSpan::default();
    let begin = json.position();
    let is_kept = |json: &Json<'a>| json.position() - begin <= SPAN_BYTES_MAX;
    if json.next()? != Next::Object {
        return Err(json.error("expected a span"));
    }
    object(json, |name, _, json| {
        match name {
            "traceId" => span.trace_id = text(json)?,
            "id" => span.id = text(json)?,
            "parentId" => span.parent = text(json)?,
            "name" => span.name = text(json)?,
            "kind" => span.kind = text(json)?,
            "timestamp" => span.timestamp = number(json)?,
            "duration" => span.duration = number(json)?,
            "localEndpoint" => span.local = endpoint(json)?,
            "remoteEndpoint" => span.remote = endpoint(json)?,
            // Without these a span of the first version would be one without a service and tags.
            "binaryAnnotations" => {
                return Err(json.error("spans of Zipkin's first version are not accepted; send the second"));
            }
            "debug" => span.debug = flag(json)?,
            "shared" => span.shared = flag(json)?,
            "annotations" => read_annotations(json, |json, annotation| {
                if is_kept(json) {
                    span.annotations.push(annotation);
                }
            })?,
            "tags" => object(json, |_, key, json| {
                let value = match scalar(json)? {
                    Scalar::Null => Cow::Borrowed(""),
                    Scalar::Text(text) => text,
                    Scalar::Number(text) => Cow::Borrowed(text),
                    Scalar::Bool(v) => Cow::Borrowed(if v { "true" } else { "false" }),
                };
                if is_kept(json) {
                    span.tags.push((key, value));
                }
                Ok(())
            })?,
            _ => json.skip()?,
        }
        Ok(())
    })?;
    Ok(span)
}

fn read_annotations<'a>(json: &mut Json<'a>, mut each: impl FnMut(&Json<'a>, (u64, Text<'a>))) -> Result<()> {
    if json.next()? == Next::Scalar {
        return match json.scalar()? {
            Scalar::Null => Ok(()),
            _ => Err(json.error("expected a list")),
        };
    }
    json.enter(b'[')?;
    let mut first = true;
    while json.item(first, b']')? {
        first = false;
        let mut annotation = (0, Cow::Borrowed(""));
        object(json, |name, _, json| {
            match name {
                "timestamp" => annotation.0 = number(json)?,
                "value" => annotation.1 = text(json)?,
                _ => json.skip()?,
            }
            Ok(())
        })?;
        each(json, annotation);
    }
    Ok(())
}

fn nanos(micros: u64) -> u64 {
    micros.saturating_mul(1000)
}

fn mark(is: bool, mark: u8) -> u8 {
    if is { mark } else { 0 }
}

fn store(span: &ZipkinSpan<'_>, sink: &mut Sink<'_>) -> Result<(), SpanReason> {
    let ctx = sink.ctx;
    let trace_id = hex_id(&span.trace_id, SpanReason::TraceId)?;
    let span_id = hex_id(&span.id, SpanReason::SpanId)?;
    let parent = if span.parent.is_empty() {
        [0; 8]
    } else {
        quiver_types::spans::parse_hex(&span.parent).ok_or(SpanReason::ParentId)?
    };
    let start = match span.timestamp {
        0 => match span.annotations.iter().map(|a| a.0).filter(|&t| t > 0).min() {
            Some(first) => nanos(first),
            None => ctx.now_ns as u64,
        },
        timestamp => nanos(timestamp),
    };
    let start = sink.check_start(start)?;
    let service = sink.service(&span.local.service)?.to_owned();
    let received = sink.received(&trace_id, span_id);
    let context = sink.builder.context(&ContextFields { service: &service, ..ContextFields::default() });
    let ends = [("network.local", &span.local), ("network.peer", &span.remote)];
    let keys: Vec<(String, Value<'_>)> = ends
        .iter()
        .flat_map(|(prefix, end)| {
            let address = if end.ipv4.is_empty() { &end.ipv6 } else { &end.ipv4 };
            let address = (!address.is_empty()).then(|| (format!("{prefix}.address"), Value::Text(address)));
            let port = (end.port > 0).then(|| (format!("{prefix}.port"), Value::Int(end.port)));
            address.into_iter().chain(port)
        })
        .collect();
    let mut list: Vec<(&str, Value<'_>)> = keys.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    if !span.remote.service.is_empty() {
        list.push(("peer.service", Value::Text(&span.remote.service)));
    }
    // Later entries win, and the sender's own tags win over what is made of its endpoints.
    list.extend(span.tags.iter().map(|(key, value)| (&**key, Value::Text(value))));
    sink.builder.attributes(&mut list);
    for (time, value) in &span.annotations {
        let time = i64::try_from(nanos(*time)).unwrap_or(i64::MAX);
        match event_form(value) {
            Some((name, dropped, attributes)) => {
                let mut list: Vec<(&str, Value<'_>)> =
                    attributes.iter().map(|(key, value)| (key.as_str(), value.value())).collect();
                sink.builder.event(time, name, dropped, &mut list);
            }
            None => sink.builder.event(time, value, 0, &mut Vec::new()),
        }
    }
    let duration = i64::try_from(nanos(span.duration)).unwrap_or(i64::MAX);
    let kind = KINDS.iter().position(|k| !k.is_empty() && k.eq_ignore_ascii_case(&span.kind)).unwrap_or(0);
    sink.builder.span(&SpanFields {
        trace_id,
        span_id,
        parent,
        context,
        name: &span.name,
        kind: kind as u8,
        start,
        end: start.saturating_add(duration),
        flags: u32::from(span.debug),
        received,
        marks: mark(span.shared, SHARED) | mark(span.timestamp == 0, NO_START) | mark(span.duration == 0, NO_DURATION),
        ..SpanFields::default()
    });
    Ok(())
}

/// A value of an annotation's attributes.
enum AnnotationValue {
    Text(String),
    Int(i64),
    Double(f64),
    Bool(bool),
}

impl AnnotationValue {
    fn value(&self) -> Value<'_> {
        match self {
            Self::Text(text) => Value::Text(text),
            Self::Int(v) => Value::Int(*v),
            Self::Double(v) => Value::Double(*v),
            Self::Bool(v) => Value::Bool(*v),
        }
    }
}

/// Name, number of dropped attributes, attributes.
type EventForm<'v> = (&'v str, u32, Vec<(String, AnnotationValue)>);

/// Takes `name|{attributes}|dropped` apart; `None` when the text is not of this form.
fn event_form(value: &str) -> Option<EventForm<'_>> {
    let (name, rest) = value.split_once('|')?;
    let (attributes, dropped) = rest.rsplit_once('|')?;
    let dropped = dropped.parse().ok()?;
    let serde_json::Value::Object(attributes) = serde_json::from_str(attributes).ok()? else { return None };
    let plain = |value: serde_json::Value| match value {
        serde_json::Value::String(text) => AnnotationValue::Text(text),
        serde_json::Value::Bool(v) => AnnotationValue::Bool(v),
        serde_json::Value::Number(n) => {
            n.as_i64().map_or_else(|| AnnotationValue::Double(n.as_f64().unwrap_or(0.0)), AnnotationValue::Int)
        }
        other => AnnotationValue::Text(other.to_string()),
    };
    Some((name, dropped, attributes.into_iter().map(|(key, value)| (key, plain(value))).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Breaks if a span is kept whole before anybody asks how long it is: three bytes an annotation are 32 in memory.
    #[test]
    fn lists_of_a_span_that_is_too_long_are_not_kept() {
        let read = |body: &str| {
            let span = read_span(&mut Json::new(body.as_bytes()).unwrap()).unwrap();
            (span.annotations.len(), span.tags.len())
        };
        assert_eq!(read(r#"{"annotations":[{},{}],"tags":{"a":"b","c":null}}"#), (2, 2));
        let (count, tag) = (SPAN_BYTES_MAX, r#""":"","#);
        let (annotations, _) = read(&format!(r#"{{"annotations":[{}{{}}]}}"#, "{},".repeat(count)));
        assert!((1..=SPAN_BYTES_MAX / 3).contains(&annotations), "{annotations}");
        let (_, tags) = read(&format!(r#"{{"tags":{{{}"":""}}}}"#, tag.repeat(count)));
        assert!((1..=SPAN_BYTES_MAX / tag.len()).contains(&tags), "{tags}");
    }

    #[test]
    fn annotations_that_are_events() {
        let value = r#"ev|{"n":2,"f":2.5,"b":true,"s":"a|b","l":[1],"z":null,"u":18446744073709551615}|3"#;
        let (name, dropped, attributes) = event_form(value).unwrap();
        let found: Vec<_> = attributes.iter().map(|(key, value)| (key.as_str(), value.value())).collect();
        let expected = [
            ("b", Value::Bool(true)),
            ("f", Value::Double(2.5)),
            ("l", Value::Text("[1]")),
            ("n", Value::Int(2)),
            ("s", Value::Text("a|b")),
            ("u", Value::Double(u64::MAX as f64)),
            ("z", Value::Text("null")),
        ];
        assert_eq!((name, dropped, &found[..]), ("ev", 3, &expected[..]));
        assert!(matches!(event_form("|{}|4294967295"), Some(("", u32::MAX, _))));
        for plain in
            ["", "text", "a|b", "a|{}", "a|{}|", "a|{}|x", "a|{}|-1", "a|{}|4294967296", "a|[]|0", "a|{|0", "a|{}|0 "]
        {
            assert!(event_form(plain).is_none(), "{plain}");
        }
    }

    /// Breaks if a port of more than 63 bits becomes a negative one, or one that no connection has is kept.
    #[test]
    fn ports_are_ports() {
        let port = |text: &str| {
            let body = format!("{{\"port\":{text}}}");
            endpoint(&mut Json::new(body.as_bytes()).unwrap()).map(|end| end.port).map_err(|error| error.to_string())
        };
        assert_eq!([port("0"), port("65535"), port("-1"), port("null")], [Ok(0), Ok(65_535), Ok(0), Ok(0)]);
        for bad in ["65536", "\"65536\"", "18446744073709551615", "1e19"] {
            let told = port(bad).unwrap_err();
            assert!(told.ends_with("expected a port of at most 65535"), "{bad}: {told}");
        }
    }

    #[test]
    fn numbers() {
        let check = |text: &str, expected: Option<u64>| {
            assert_eq!(number(&mut Json::new(text.as_bytes()).unwrap()).ok(), expected, "{text}");
        };
        check("5", Some(5));
        check("5.9", Some(5));
        check("1e3", Some(1000));
        check("\"7\"", Some(7));
        check("\"7.5\"", Some(7));
        check("null", Some(0));
        check("-5", Some(0));
        check("18446744073709551615", Some(u64::MAX));
        check("18446744073709551616", Some(u64::MAX));
        check("-9223372036854775809", Some(0));
        for bad in ["1e400", "true", "\"x\"", "\"\"", "\"NaN\"", "[]", "{}", ""] {
            check(bad, None);
        }
    }
}
