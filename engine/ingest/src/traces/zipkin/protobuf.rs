//! Zipkin v2 as protobuf (`zipkin.proto`): a list of spans, whose fields are those of the JSON.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

use quiver_types::spans::hex;

use super::super::any_value::{Fault, text};
use super::super::{DecodedSpans, SPAN_BYTES_MAX, Sink, SpanReason, TraceContext};
use super::{Endpoint, Text, ZipkinSpan, take};
use crate::error::{Error, Result};
use crate::wire::{BYTES, FIXED64, Reader, VARINT, each, tag};

/// Names of the kinds, by number.
const KINDS: [&str; 5] = ["", "CLIENT", "SERVER", "PRODUCER", "CONSUMER"];

/// Decodes a list of spans.
///
/// # Errors
/// Invalid: not this message. TooLarge: more than the limits allow.
pub fn decode(body: &[u8], ctx: &TraceContext<'_>) -> Result<DecodedSpans> {
    let mut sink = Sink::new(ctx, body);
    each::<Error>(body, 1, &[1], |bytes| {
        let is_too_long = bytes.len() > SPAN_BYTES_MAX;
        let read = if is_too_long { Err(Fault::Refused(SpanReason::TooLarge)) } else { read_span(bytes) };
        match read {
            Ok(span) => take(&span, false, &mut sink),
            Err(Fault::Wire(error)) => Err(error.into()),
            Err(Fault::Refused(reason)) => {
                sink.refuse(reason, String::new);
                sink.check_size()
            }
        }
    })?;
    Ok(sink.finish())
}

fn read_span(message: &[u8]) -> Result<ZipkinSpan<'_>, Fault> {
    const TRACE_ID: u32 = tag(1, BYTES);
    const PARENT_ID: u32 = tag(2, BYTES);
    const ID: u32 = tag(3, BYTES);
    const KIND: u32 = tag(4, VARINT);
    const NAME: u32 = tag(5, BYTES);
    const TIMESTAMP: u32 = tag(6, FIXED64);
    const DURATION: u32 = tag(7, VARINT);
    const LOCAL: u32 = tag(8, BYTES);
    const REMOTE: u32 = tag(9, BYTES);
    const ANNOTATION: u32 = tag(10, BYTES);
    const TAG: u32 = tag(11, BYTES);
    const DEBUG: u32 = tag(12, VARINT);
    const SHARED: u32 = tag(13, VARINT);
    const KNOWN: [u32; 13] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13];

    let mut span = ZipkinSpan::default();
    let mut r = Reader::new(message);
    while !r.is_empty() {
        match r.tag()? {
            TRACE_ID => span.trace_id = id(r.bytes()?),
            PARENT_ID => span.parent = id(r.bytes()?),
            ID => span.id = id(r.bytes()?),
            KIND => {
                let number = usize::try_from(r.varint()?).unwrap_or(0);
                span.kind = Cow::Borrowed(KINDS.get(number).copied().unwrap_or_default());
            }
            NAME => span.name = Cow::Borrowed(text(r.bytes()?)?),
            TIMESTAMP => span.timestamp = r.fixed64()?,
            DURATION => span.duration = r.varint()?,
            LOCAL => span.local = endpoint(r.bytes()?)?,
            REMOTE => span.remote = endpoint(r.bytes()?)?,
            ANNOTATION => span.annotations.push(annotation(r.bytes()?)?),
            TAG => span.tags.push(pair(r.bytes()?)?),
            DEBUG => span.debug = r.varint()? != 0,
            SHARED => span.shared = r.varint()? != 0,
            other => r.skip(other, &KNOWN)?,
        }
    }
    Ok(span)
}

/// An id as the JSON has it; one of zeros, which stands for none here, is empty.
fn id(bytes: &[u8]) -> Text<'static> {
    if bytes.iter().all(|b| *b == 0) { Cow::Borrowed("") } else { Cow::Owned(hex(bytes)) }
}

fn endpoint(message: &[u8]) -> Result<Endpoint<'_>, Fault> {
    const SERVICE: u32 = tag(1, BYTES);
    const IPV4: u32 = tag(2, BYTES);
    const IPV6: u32 = tag(3, BYTES);
    const PORT: u32 = tag(4, VARINT);

    let mut out = Endpoint::default();
    let mut r = Reader::new(message);
    while !r.is_empty() {
        match r.tag()? {
            SERVICE => out.service = Cow::Borrowed(text(r.bytes()?)?),
            // Addresses of another length are ignored.
            IPV4 => {
                let bytes = <[u8; 4]>::try_from(r.bytes()?).ok();
                out.ipv4 = bytes.map_or_else(Text::default, |b| Cow::Owned(Ipv4Addr::from(b).to_string()));
            }
            IPV6 => {
                let bytes = <[u8; 16]>::try_from(r.bytes()?).ok();
                out.ipv6 = bytes.map_or_else(Text::default, |b| Cow::Owned(Ipv6Addr::from(b).to_string()));
            }
            // An int32 of the wire: what is more than its 32 bits is not read.
            PORT => out.port = i64::from(r.varint()? as i32),
            other => r.skip(other, &[1, 2, 3, 4])?,
        }
    }
    Ok(out)
}

fn annotation(message: &[u8]) -> Result<(u64, Text<'_>), Fault> {
    const TIMESTAMP: u32 = tag(1, FIXED64);
    const VALUE: u32 = tag(2, BYTES);

    let mut out = (0, Text::default());
    let mut r = Reader::new(message);
    while !r.is_empty() {
        match r.tag()? {
            TIMESTAMP => out.0 = r.fixed64()?,
            VALUE => out.1 = Cow::Borrowed(text(r.bytes()?)?),
            other => r.skip(other, &[1, 2])?,
        }
    }
    Ok(out)
}

/// Reads an entry of the map of tags.
fn pair(message: &[u8]) -> Result<(Text<'_>, Text<'_>), Fault> {
    let (key, value) = crate::wire::pair(message)?;
    Ok((Cow::Borrowed(text(key)?), Cow::Borrowed(text(value)?)))
}
