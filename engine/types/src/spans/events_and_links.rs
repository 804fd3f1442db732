//! The encodings of a span's events and links, each list as one sequence of bytes.
//!
//! Event: time (8 bytes), name, dropped attributes (varint), attributes. Link: trace id, span id, trace state, flags
//! (varint), dropped attributes (varint), attributes. Texts and attributes are preceded by their length as a varint.

use super::attributes::{put_bytes, put_varint, take_8, take_bytes, take_text, take_varint};
use super::{Event, Link, SpanId, TraceId};

/// An event, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRef<'a> {
    /// When it happened, Unix nanoseconds.
    pub time: i64,
    /// What happened, such as `exception`.
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
    /// Flags as OTLP has them: W3C trace flags in the lowest 8 bits.
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

/// Reads what [`push_event`] wrote, event by event; ends where the bytes are damaged.
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

/// Reads what [`push_link`] wrote, link by link; ends where the bytes are damaged.
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

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &[u8] = &[0xff; 200];

    fn event_refs() -> [EventRef<'static>; 4] {
        [
            EventRef { time: i64::MIN, name: "", dropped: 0, attributes: &[] },
            EventRef { time: i64::MAX, name: "é日本", dropped: u32::MAX, attributes: &[0, 0xff, 7] },
            EventRef { time: -1, name: "exception", dropped: 127, attributes: LONG },
            EventRef { time: 0, name: "\0", dropped: 128, attributes: &[0x80] },
        ]
    }

    fn link_refs() -> [LinkRef<'static>; 3] {
        let none =
            LinkRef { trace_id: [0; 16], span_id: [0; 8], trace_state: "", flags: 0, dropped: 0, attributes: &[] };
        [
            none,
            LinkRef { trace_id: [0xff; 16], span_id: [0x80; 8], flags: u32::MAX, dropped: u32::MAX, ..none },
            LinkRef { trace_state: "a=1,é=2", flags: 1, dropped: 300, attributes: LONG, ..none },
        ]
    }

    #[test]
    fn events_and_links_come_back_in_order() {
        let (mut of_events, mut of_links) = (Vec::new(), Vec::new());
        for event in &event_refs() {
            push_event(&mut of_events, event);
        }
        for link in &link_refs() {
            push_link(&mut of_links, link);
        }
        assert_eq!(events(&of_events).collect::<Vec<_>>(), event_refs());
        assert_eq!(links(&of_links).collect::<Vec<_>>(), link_refs());
        assert_eq!((events(&[]).count(), links(&[]).count()), (0, 0));
    }

    /// Breaks if bytes that end too soon are read on, or give an event with half of its members.
    #[test]
    fn what_is_cut_off_is_left_out() {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for event in &event_refs() {
            push_event(&mut bytes, event);
            ends.push(bytes.len());
        }
        for len in 0..=bytes.len() {
            let whole = ends.iter().filter(|end| **end <= len).count();
            assert_eq!(events(&bytes[..len]).collect::<Vec<_>>(), event_refs()[..whole], "{len} bytes");
        }
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for link in &link_refs() {
            push_link(&mut bytes, link);
            ends.push(bytes.len());
        }
        for len in 0..=bytes.len() {
            let whole = ends.iter().filter(|end| **end <= len).count();
            assert_eq!(links(&bytes[..len]).collect::<Vec<_>>(), link_refs()[..whole], "{len} bytes");
        }
    }

    #[test]
    fn names_that_are_no_texts_end_it() {
        let mut bytes = 5i64.to_le_bytes().to_vec();
        put_bytes(&mut bytes, &[0xc3]);
        put_varint(&mut bytes, 0);
        put_bytes(&mut bytes, &[]);
        assert_eq!(events(&bytes).count(), 0);
        // A length beyond all there is.
        let mut bytes = 5i64.to_le_bytes().to_vec();
        put_varint(&mut bytes, u64::MAX);
        assert_eq!(events(&bytes).count(), 0);
    }
}
