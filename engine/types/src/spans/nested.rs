//! Events and links of a span in one run of bytes each.
//!
//! Event: time (8 bytes), name, dropped attributes (varint), attributes. Link: trace id, span id, trace state, flags
//! (varint), dropped attributes (varint), attributes. Texts and attributes have a varint length before them.

use super::attributes::{put_bytes, put_varint, take_8, take_bytes, take_text, take_varint};
use super::{Event, Link, SpanId, TraceId};

/// An event, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRef<'a> {
    /// Unix nanoseconds.
    pub time: i64,
    /// Name.
    pub name: &'a str,
    /// Attributes that were left out.
    pub dropped: u32,
    /// Bytes of its [`super::Attributes`].
    pub attributes: &'a [u8],
}

/// A link, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkRef<'a> {
    /// Trace that it leads to.
    pub trace_id: TraceId,
    /// Span that it leads to.
    pub span_id: SpanId,
    /// W3C trace state.
    pub trace_state: &'a str,
    /// W3C flags.
    pub flags: u32,
    /// Attributes that were left out.
    pub dropped: u32,
    /// Bytes of its [`super::Attributes`].
    pub attributes: &'a [u8],
}

/// Appends an event.
pub fn push_event(out: &mut Vec<u8>, event: &EventRef<'_>) {
    out.extend_from_slice(&event.time.to_le_bytes());
    put_bytes(out, event.name.as_bytes());
    put_varint(out, u64::from(event.dropped));
    put_bytes(out, event.attributes);
}

/// Appends a link.
pub fn push_link(out: &mut Vec<u8>, link: &LinkRef<'_>) {
    out.extend_from_slice(&link.trace_id);
    out.extend_from_slice(&link.span_id);
    put_bytes(out, link.trace_state.as_bytes());
    put_varint(out, u64::from(link.flags));
    put_varint(out, u64::from(link.dropped));
    put_bytes(out, link.attributes);
}

/// Reads events.
pub fn events(mut bytes: &[u8]) -> impl Iterator<Item = EventRef<'_>> {
    std::iter::from_fn(move || {
        let b = &mut bytes;
        Some(EventRef {
            time: i64::from_le_bytes(take_8(b)?),
            name: take_text(b)?,
            dropped: take_varint(b)? as u32,
            attributes: take_bytes(b)?,
        })
    })
}

/// Reads links.
pub fn links(mut bytes: &[u8]) -> impl Iterator<Item = LinkRef<'_>> {
    std::iter::from_fn(move || {
        let b = &mut bytes;
        let (trace_id, rest) = b.split_first_chunk::<16>()?;
        *b = rest;
        Some(LinkRef {
            trace_id: *trace_id,
            span_id: take_8(b)?,
            trace_state: take_text(b)?,
            flags: take_varint(b)? as u32,
            dropped: take_varint(b)? as u32,
            attributes: take_bytes(b)?,
        })
    })
}

impl EventRef<'_> {
    /// Takes a copy.
    pub fn to_event(&self) -> Event {
        Event {
            time: self.time,
            name: self.name.to_owned(),
            dropped: self.dropped,
            attributes: super::Attributes::from_bytes(self.attributes),
        }
    }
}

impl LinkRef<'_> {
    /// Takes a copy.
    pub fn to_link(&self) -> Link {
        Link {
            trace_id: self.trace_id,
            span_id: self.span_id,
            trace_state: self.trace_state.to_owned(),
            flags: self.flags,
            dropped: self.dropped,
            attributes: super::Attributes::from_bytes(self.attributes),
        }
    }
}
