//! One span as the trace engine reads it (`traces-api` section 1).

use std::sync::Arc;

use super::{Attributes, NEGATIVE_DURATION, SHARED, STATUS_ERROR, Value};

/// Identifier of a trace.
pub type TraceId = [u8; 16];
/// Identifier of a span.
pub type SpanId = [u8; 8];

/// Names of the kinds, by number; unset has none.
pub const KIND_NAMES: [&str; 6] = ["", "internal", "server", "client", "producer", "consumer"];

/// Kinds by number, as in OTLP.
pub(crate) const SERVER: u8 = 2;
const CLIENT: u8 = 3;
const PRODUCER: u8 = 4;
const CONSUMER: u8 = 5;

/// Gives the name of a kind; empty when it is unset or unknown.
pub fn kind_name(kind: u8) -> &'static str {
    KIND_NAMES.get(usize::from(kind)).copied().unwrap_or("")
}

/// What spans of one sender and one library share.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct SpanContext {
    /// Service; empty when there is none.
    pub service: String,
    /// Attributes of the resource but `service.name`.
    pub resource: Attributes,
    /// Name of the instrumentation scope.
    pub scope_name: String,
    /// Version of the instrumentation scope; empty: not said.
    pub scope_version: String,
    /// Attributes of the instrumentation scope.
    pub scope_attributes: Attributes,
}

/// An event of a span.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Event {
    /// When it happened, Unix nanoseconds.
    pub time: i64,
    /// What happened, such as `exception`.
    pub name: String,
    /// Attributes that were left out.
    pub dropped: u32,
    /// Attributes of the event.
    pub attributes: Attributes,
}

/// A link of a span.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link {
    /// Trace that it leads to.
    pub trace_id: TraceId,
    /// Span that it leads to.
    pub span_id: SpanId,
    /// W3C trace state.
    pub trace_state: String,
    /// Flags as OTLP has them: W3C trace flags in the lowest 8 bits.
    pub flags: u32,
    /// Attributes that were left out.
    pub dropped: u32,
    /// Attributes of the link.
    pub attributes: Attributes,
}

/// Which end of a call a span stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// Client or producer.
    Caller,
    /// Server, consumer, or Zipkin's shared half.
    Callee,
    /// Neither: an internal span, or one whose kind is not said.
    None,
}

impl Side {
    /// Tells the side of a span by its kind, and whether it shares its id with the span of its caller.
    pub fn of(kind: u8, is_shared: bool) -> Self {
        match kind {
            _ if is_shared => Self::Callee,
            CLIENT | PRODUCER => Self::Caller,
            SERVER | CONSUMER => Self::Callee,
            _ => Self::None,
        }
    }
}

/// A span, or one report of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Id of the trace, 16 bytes.
    pub trace_id: TraceId,
    /// Id of the span, 8 bytes: unique within its trace.
    pub span_id: SpanId,
    /// Parent; `None` on a root.
    pub parent: Option<SpanId>,
    /// What it shares with others.
    pub context: Arc<SpanContext>,
    /// Name of the operation.
    pub name: String,
    /// 0 to 5, see [`KIND_NAMES`].
    pub kind: u8,
    /// When it began, Unix nanoseconds.
    pub start: i64,
    /// Unix nanoseconds, not before `start`.
    pub end: i64,
    /// 0 unset, 1 ok, 2 error.
    pub status: u8,
    /// Message of the status.
    pub status_message: String,
    /// W3C trace state.
    pub trace_state: String,
    /// Flags as OTLP has them: W3C trace flags in the lowest 8 bits.
    pub flags: u32,
    /// Attributes, events and links that were left out.
    pub dropped: [u32; 3],
    /// When it was received, Unix nanoseconds.
    pub received: i64,
    /// [`SHARED`], [`NEGATIVE_DURATION`], [`super::NO_START`], [`super::NO_DURATION`].
    pub marks: u8,
    /// Attributes of the span itself; those of its resource are in `context`.
    pub attributes: Attributes,
    /// What happened during the span.
    pub events: Vec<Event>,
    /// Other spans that it refers to, of this trace or another.
    pub links: Vec<Link>,
}

impl Span {
    /// What it takes in memory, about, without what it shares with others.
    pub fn bytes(&self) -> usize {
        let texts = self.name.len() + self.status_message.len() + self.trace_state.len();
        let event = |event: &Event| size_of::<Event>() + event.name.len() + event.attributes.bytes().len();
        let link = |link: &Link| size_of::<Link>() + link.trace_state.len() + link.attributes.bytes().len();
        let lists = self.events.iter().map(event).sum::<usize>() + self.links.iter().map(link).sum::<usize>();
        size_of::<Self>() + texts + self.attributes.bytes().len() + lists
    }

    /// Length in nanoseconds.
    pub fn duration(&self) -> i64 {
        self.end.saturating_sub(self.start)
    }

    /// Says whether it failed.
    pub fn is_error(&self) -> bool {
        self.status == STATUS_ERROR
    }

    /// Says whether it is the other half of a shared id.
    pub fn is_shared(&self) -> bool {
        self.marks & SHARED != 0
    }

    /// Says whether it came with an end before its start.
    pub fn is_negative(&self) -> bool {
        self.marks & NEGATIVE_DURATION != 0
    }

    /// Gives its service as a reader sees it.
    pub fn service_shown(&self) -> &str {
        if self.context.service.is_empty() { "unknown_service" } else { &self.context.service }
    }

    /// Gives the end of a call that it stands for.
    pub fn side(&self) -> Side {
        Side::of(self.kind, self.is_shared())
    }

    /// Gives its attributes that are texts for readers of tags: all but those that [`Span::metrics`] gives.
    pub fn tags(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.attributes.iter().filter(|(_, v)| v.metric().is_none())
    }

    /// Gives its attributes that are numbers.
    pub fn metrics(&self) -> impl Iterator<Item = (&str, f64)> {
        self.attributes.iter().filter_map(|(k, v)| Some((k, v.metric()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spans::{FIRST, STATUS_OK};

    fn span(kind: u8, marks: u8) -> Span {
        Span {
            trace_id: [1; 16],
            span_id: [2; 8],
            parent: None,
            context: Arc::default(),
            name: String::new(),
            kind,
            start: 0,
            end: 0,
            status: STATUS_OK,
            status_message: String::new(),
            trace_state: String::new(),
            flags: 0,
            dropped: [0; 3],
            received: 0,
            marks,
            attributes: Attributes::default(),
            events: Vec::new(),
            links: Vec::new(),
        }
    }

    #[test]
    fn sides_follow_from_kinds() {
        for (kind, name) in (0_u8..).zip(KIND_NAMES) {
            let expected = match name {
                "client" | "producer" => Side::Caller,
                "server" | "consumer" => Side::Callee,
                _ => Side::None,
            };
            assert_eq!(Side::of(kind, false), expected, "{name}");
            assert_eq!(Side::of(kind, true), Side::Callee, "{name} with a shared id");
        }
    }

    #[test]
    fn sides_of_calls() {
        let sides = [0, 1, 2, 3, 4, 5, 6].map(|kind| span(kind, FIRST).side());
        assert_eq!(sides, [0, 0, 2, 1, 1, 2, 0].map(|side| [Side::None, Side::Caller, Side::Callee][side]));
        // Of a shared id the other half is called, whatever it says.
        assert_eq!([1, 3].map(|kind| span(kind, SHARED | FIRST).side()), [Side::Callee; 2]);
        let names = [0, 2, 5, 6, u8::MAX].map(kind_name);
        assert_eq!(names, ["", "server", "consumer", "", ""]);
    }

    #[test]
    fn durations_and_services_without_a_name() {
        let far = Span { start: i64::MIN, end: i64::MAX, status: STATUS_ERROR, ..span(1, NEGATIVE_DURATION) };
        assert_eq!((far.duration(), far.is_error(), far.is_negative(), far.is_shared()), (i64::MAX, true, true, false));
        assert_eq!(far.service_shown(), "unknown_service");
        let context = Arc::new(SpanContext { service: "cart".to_owned(), ..SpanContext::default() });
        assert_eq!(Span { context, ..span(1, 0) }.service_shown(), "cart");
    }

    #[test]
    fn numbers_are_metrics_and_all_else_are_tags() {
        let all = [
            ("a", Value::Int(5)),
            ("b", Value::Int(1 << 53)),
            ("c", Value::Double(0.5)),
            ("d", Value::Double(f64::INFINITY)),
            ("e", Value::Text("7")),
            ("f", Value::Bool(true)),
        ];
        let span = Span { attributes: Attributes::of(all), ..span(1, 0) };
        assert_eq!(span.metrics().collect::<Vec<_>>(), [("a", 5.0), ("c", 0.5)]);
        // What no double holds exactly stays as it came.
        assert_eq!(span.tags().map(|(key, _)| key).collect::<Vec<_>>(), ["b", "d", "e", "f"]);
    }
}
