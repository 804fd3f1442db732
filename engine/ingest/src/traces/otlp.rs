//! Walks an `ExportTraceServiceRequest` in place: resource → scope → span, straight into columns.
//!
//! Fields of a message may come in any order, so each level above the span is scanned once for what stands beside its
//! list and once for the list.

use quiver_types::spans::{ContextFields, LinkRef, SpanFields};

use super::any_value::{Fault, Scratch, text};
use super::schema::TRACES_REQUEST;
use super::{DecodedSpans, SPAN_BYTES_MAX, Sink, SpanReason, TraceContext, id};
use crate::error::{Error, Result};
use crate::otlp::json;
use crate::wire::{FIXED32, FIXED64, Reader, VARINT, WireError, each, tag};

/// Decodes the protobuf form.
///
/// # Errors
/// Invalid: not this message. TooLarge: more than the limits allow.
pub fn decode(body: &[u8], ctx: &TraceContext<'_>) -> Result<DecodedSpans> {
    let mut walker = Walker { sink: Sink::new(ctx, body), scratch: Scratch::default() };
    walker.sink.builder.reserve(count(body).min(body.len() / SPAN_BYTES_MIN));
    each(body, 1, &[1], |resource| walker.resource(resource))?;
    Ok(walker.sink.finish())
}

/// Smaller spans come without room made for them before, or a body of nothing but tags would be given much memory.
const SPAN_BYTES_MIN: usize = 64;

/// Counts spans, as far as there is a message.
fn count(body: &[u8]) -> usize {
    let mut spans = 0;
    let counted: Result<(), WireError> = each(body, 1, &[], |resource| {
        each(resource, 2, &[], |scope| {
            each(scope, 2, &[], |_| {
                spans += 1;
                Ok(())
            })
        })
    });
    counted.map_or(0, |()| spans)
}

/// Decodes the JSON form.
///
/// # Errors
/// Invalid: not JSON, or not this message. TooLarge: more than the limits allow.
pub fn decode_json(body: &[u8], ctx: &TraceContext<'_>) -> Result<DecodedSpans> {
    let message = json::to_protobuf(body, &TRACES_REQUEST, ctx.body_bytes_max)?;
    decode(&message, ctx)
}

struct Walker<'a, 'c> {
    sink: Sink<'c>,
    scratch: Scratch<'a>,
}

/// What the spans of a resource share.
#[derive(Debug, Default)]
struct SpanResource {
    service: String,
    resource: Vec<u8>,
    /// Why none of them can be stored.
    blocked: Option<SpanReason>,
}

fn fatal(fault: Fault) -> Result<SpanReason> {
    match fault {
        Fault::Wire(error) => Err(Error::Protobuf(error)),
        Fault::Refused(reason) => Ok(reason),
    }
}

impl<'a> Walker<'a, '_> {
    fn resource(&mut self, message: &'a [u8]) -> Result<()> {
        let mut shared = SpanResource::default();
        self.scratch.clear();
        let scratch = &mut self.scratch;
        let read = each(message, 1, &[1], |resource| each(resource, 1, &[1], |pair| scratch.push(pair)));
        if let Err(fault) = read {
            shared.blocked = Some(fatal(fault)?);
        }
        self.sink.builder.cut_attributes(self.scratch.left_out());
        self.scratch.with_list(|list| {
            if let Some(at) = list.iter().rposition(|(key, _)| *key == "service.name") {
                shared.service = list[at].1.text().into_owned();
                list.retain(|(key, _)| *key != "service.name");
            }
            self.sink.builder.write_shared(list, &mut shared.resource)
        });
        match self.sink.service(&shared.service).map(str::to_owned) {
            Ok(service) => shared.service = service,
            Err(reason) => shared.blocked = shared.blocked.or(Some(reason)),
        }
        each(message, 2, &[2], |scope| self.scope(scope, &shared))
    }

    fn scope(&mut self, message: &'a [u8], shared: &SpanResource) -> Result<()> {
        let mut blocked = shared.blocked;
        let (mut name, mut version): (&[u8], &[u8]) = (b"", b"");
        self.scratch.clear();
        let scratch = &mut self.scratch;
        let read = each(message, 1, &[1], |scope: &'a [u8]| {
            let mut r = Reader::new(scope);
            while !r.is_empty() {
                match r.tag()? {
                    0x0a => name = r.bytes()?,
                    0x12 => version = r.bytes()?,
                    0x1a => scratch.push(r.bytes()?)?,
                    other => r.skip(other, &[1, 2, 3])?,
                }
            }
            Ok(())
        });
        let texts = read.and_then(|()| Ok((text(name)?, text(version)?)));
        let (scope_name, scope_version) = match texts {
            Ok(texts) => texts,
            Err(fault) => {
                blocked = Some(fatal(fault)?);
                ("", "")
            }
        };
        let mut scope_attributes = Vec::new();
        self.sink.builder.cut_attributes(self.scratch.left_out());
        self.scratch.with_list(|list| self.sink.builder.write_shared(list, &mut scope_attributes));
        let fields = ContextFields {
            service: &shared.service,
            resource: &shared.resource,
            scope_name,
            scope_version,
            scope_attributes: &scope_attributes,
        };
        // A scope of a few bytes has all that its resource has: made for those that have spans, as these are counted.
        let mut context = None;
        each(message, 2, &[2], |span| {
            let fault = if span.len() > SPAN_BYTES_MAX {
                // Read as far as the ids, so that a body that is none is still told apart.
                Err(Fault::Refused(SpanReason::TooLarge))
            } else if let Some(reason) = blocked {
                Err(Fault::Refused(reason))
            } else {
                let context = *context.get_or_insert_with(|| self.sink.context(&fields));
                self.span(span, context)
            };
            if let Err(fault) = fault {
                let reason = fatal(fault)?;
                self.sink.refuse(reason, || match reason {
                    // Who may write them is asked by service.
                    SpanReason::Service => shared.service.clone(),
                    _ => span_name(span),
                });
            }
            self.sink.check_size()
        })
    }

    fn span(&mut self, message: &'a [u8], context: u32) -> Result<(), Fault> {
        const START: u32 = tag(7, FIXED64);
        const END: u32 = tag(8, FIXED64);
        const KIND: u32 = tag(6, VARINT);
        const FLAGS: u32 = tag(16, FIXED32);
        const DROPPED_ATTRIBUTES: u32 = tag(10, VARINT);
        const DROPPED_EVENTS: u32 = tag(12, VARINT);
        const DROPPED_LINKS: u32 = tag(14, VARINT);
        let mut fields = SpanFields { context, ..SpanFields::default() };
        let (mut trace_id, mut span_id, mut parent): (&[u8], &[u8], &[u8]) = (b"", b"", b"");
        let (mut start, mut end) = (0u64, 0u64);
        let (mut name, mut state, mut status): (&[u8], &[u8], &[u8]) = (b"", b"", b"");
        self.scratch.clear();
        let mut r = Reader::new(message);
        while !r.is_empty() {
            match r.tag()? {
                0x0a => trace_id = r.bytes()?,
                0x12 => span_id = r.bytes()?,
                0x1a => state = r.bytes()?,
                0x22 => parent = r.bytes()?,
                0x2a => name = r.bytes()?,
                KIND => fields.kind = u8::try_from(r.varint()?).unwrap_or(0),
                START => start = r.fixed64()?,
                END => end = r.fixed64()?,
                0x4a => self.scratch.push(r.bytes()?)?,
                DROPPED_ATTRIBUTES => fields.dropped[0] = r.varint()? as u32,
                0x5a | 0x6a => drop(r.bytes()?),
                DROPPED_EVENTS => fields.dropped[1] = r.varint()? as u32,
                DROPPED_LINKS => fields.dropped[2] = r.varint()? as u32,
                0x7a => status = r.bytes()?,
                FLAGS => fields.flags = r.fixed32()?,
                other => r.skip(other, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16])?,
            }
        }
        fields.trace_id = id(trace_id, SpanReason::TraceId).map_err(Fault::Refused)?;
        fields.span_id = id(span_id, SpanReason::SpanId).map_err(Fault::Refused)?;
        if !parent.is_empty() {
            fields.parent = parent.try_into().map_err(|_| Fault::Refused(SpanReason::ParentId))?;
        }
        fields.start = self.sink.check_start(start).map_err(Fault::Refused)?;
        fields.received = self.sink.received(&fields.trace_id, fields.span_id);
        fields.end = i64::try_from(end).unwrap_or(i64::MAX);
        (fields.name, fields.trace_state) = (text(name)?, text(state)?);
        (fields.status, fields.status_message) = read_status(status)?;
        self.sink.builder.cut_attributes(self.scratch.left_out());
        self.scratch.with_list(|list| self.sink.builder.attributes(list));
        let mut r = Reader::new(message);
        while !r.is_empty() {
            match r.tag()? {
                0x5a => self.event(r.bytes()?)?,
                0x6a => fields.dropped[2] = fields.dropped[2].saturating_add(self.link(r.bytes()?)?),
                other => r.skip_value(other & 7)?,
            }
        }
        self.sink.builder.span(&fields);
        Ok(())
    }

    fn event(&mut self, message: &'a [u8]) -> Result<(), Fault> {
        const TIME: u32 = tag(1, FIXED64);
        const DROPPED: u32 = tag(4, VARINT);
        let (mut time, mut name, mut dropped): (u64, &[u8], u32) = (0, b"", 0);
        self.scratch.clear();
        let mut r = Reader::new(message);
        while !r.is_empty() {
            match r.tag()? {
                TIME => time = r.fixed64()?,
                0x12 => name = r.bytes()?,
                0x1a => self.scratch.push(r.bytes()?)?,
                DROPPED => dropped = r.varint()? as u32,
                other => r.skip(other, &[1, 2, 3, 4])?,
            }
        }
        let time = i64::try_from(time).unwrap_or(i64::MAX);
        let name = text(name)?;
        self.scratch.with_list(|list| self.sink.builder.event(time, name, dropped, list));
        Ok(())
    }

    /// Takes a link; gives 1 when its ids are none, so that it counts as dropped.
    fn link(&mut self, message: &'a [u8]) -> Result<u32, Fault> {
        const DROPPED: u32 = tag(5, VARINT);
        const FLAGS: u32 = tag(6, FIXED32);
        let (mut trace_id, mut span_id, mut state): (&[u8], &[u8], &[u8]) = (b"", b"", b"");
        let (mut flags, mut dropped) = (0, 0);
        self.scratch.clear();
        let mut r = Reader::new(message);
        while !r.is_empty() {
            match r.tag()? {
                0x0a => trace_id = r.bytes()?,
                0x12 => span_id = r.bytes()?,
                0x1a => state = r.bytes()?,
                0x22 => self.scratch.push(r.bytes()?)?,
                DROPPED => dropped = r.varint()? as u32,
                FLAGS => flags = r.fixed32()?,
                other => r.skip(other, &[1, 2, 3, 4, 5, 6])?,
            }
        }
        let (Ok(trace_id), Ok(span_id)) = (trace_id.try_into(), span_id.try_into()) else { return Ok(1) };
        let link = LinkRef { trace_id, span_id, trace_state: text(state)?, flags, dropped, attributes: &[] };
        self.scratch.with_list(|list| self.sink.builder.link(link, list));
        Ok(0)
    }
}

fn read_status(message: &[u8]) -> Result<(u8, &str), Fault> {
    const CODE: u32 = tag(3, VARINT);
    let (mut code, mut status_message): (u64, &[u8]) = (0, b"");
    let mut r = Reader::new(message);
    while !r.is_empty() {
        match r.tag()? {
            0x12 => status_message = r.bytes()?,
            CODE => code = r.varint()?,
            other => r.skip(other, &[2, 3])?,
        }
    }
    Ok((u8::try_from(code).unwrap_or(0), text(status_message)?))
}

/// Gives the name of a span, for its sender to find it.
fn span_name(message: &[u8]) -> String {
    let mut found = String::new();
    let walked = each::<WireError>(message, 5, &[], |name| {
        found = format!("{:?}", String::from_utf8_lossy(&name[..name.len().min(80)]));
        Ok(())
    });
    // What is no message has no name.
    walked.map(|()| found).unwrap_or_default()
}
