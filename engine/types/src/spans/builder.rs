//! Builds a batch row by row, and applies the rules that all formats share (`traces-api` 6.2): limits on lengths, the tag
//! `error`, spans that end before they start.

mod bytes;

use std::hash::BuildHasher;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, FixedSizeBinaryArray, Int64Array, RecordBatch, StringArray, UInt8Array, UInt32Array,
};
use arrow::buffer::Buffer;
use foldhash::fast::RandomState;
use hashbrown::HashTable;

use self::bytes::Bytes;
use super::attributes::push_attribute;
use super::events_and_links::{EventRef, LinkRef, push_event, push_link};
use super::schema::{context_schema, span_schema};
use super::{
    Attributes, NEGATIVE_DURATION, STATUS_ERROR, STATUS_UNSET, SpanContext, SpanId, SpansBatch, TraceId, Value,
};

/// Most attributes of a span, an event, a link, a resource.
const ATTRIBUTES_MAX: usize = 1024;
/// Most events of a span.
const EVENTS_MAX: usize = 1024;
/// Most links of a span.
const LINKS_MAX: usize = 128;
/// Longest key of an attribute; longer ones are cut.
const KEY_BYTES_MAX: usize = 256;
/// Longest value of an attribute, message of a status and trace state; longer ones are cut.
const VALUE_BYTES_MAX: usize = 32 << 10;
/// Most bytes of keys and values of a resource, and of a scope: parts repeat them for each span.
const SHARED_BYTES_MAX: usize = 16 << 10;
/// Longest value of one that has more.
const SHARED_VALUE_BYTES_MAX: usize = 1 << 10;
/// Orders of attributes that are remembered.
const ORDERS: usize = 64;
/// Bytes of a usual name.
const NAME_BYTES: usize = 16;
/// Longest name of a span, an event or a scope, and version of a scope; longer ones are cut.
const NAME_BYTES_MAX: usize = 4 << 10;

/// What was cut, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TruncationKind {
    /// Attributes beyond the first 1024.
    Attributes,
    /// Keys longer than 256 bytes.
    Keys,
    /// Values longer than 32 KiB.
    Values,
    /// Events beyond the first 1024.
    Events,
    /// Links beyond the first 128.
    Links,
    /// Names longer than 4 KiB.
    Names,
}

impl TruncationKind {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Attributes, Self::Keys, Self::Values, Self::Events, Self::Links, Self::Names];

    /// Gives the word for metrics and hints.
    pub fn text(self) -> &'static str {
        match self {
            Self::Attributes => "attributes",
            Self::Keys => "keys",
            Self::Values => "values",
            Self::Events => "events",
            Self::Links => "links",
            Self::Names => "names",
        }
    }
}

/// Fields of a span beside its lists.
#[derive(Debug, Clone, Copy, Default)]
pub struct SpanFields<'a> {
    /// Id of the trace, 16 bytes.
    pub trace_id: TraceId,
    /// Id of the span, 8 bytes.
    pub span_id: SpanId,
    /// Parent; zeros: none.
    pub parent: SpanId,
    /// Row of the context.
    pub context: u32,
    /// Name of the operation.
    pub name: &'a str,
    /// 0 to 5, see [`super::KIND_NAMES`]; greater ones count as 0.
    pub kind: u8,
    /// When it began, Unix nanoseconds.
    pub start: i64,
    /// When it ended, Unix nanoseconds; before `start`: the span has no length and is marked so.
    pub end: i64,
    /// 0 unset, 1 ok, 2 error; greater ones count as 0.
    pub status: u8,
    /// Message of the status.
    pub status_message: &'a str,
    /// W3C trace state.
    pub trace_state: &'a str,
    /// Flags as OTLP has them: W3C trace flags in the lowest 8 bits.
    pub flags: u32,
    /// Attributes, events and links that the sender left out.
    pub dropped: [u32; 3],
    /// When it was received, Unix nanoseconds.
    pub received: i64,
    /// [`super::SHARED`], [`super::NO_START`], [`super::NO_DURATION`].
    pub marks: u8,
}

/// What spans share, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ContextFields<'a> {
    /// Name of the service (`service.name`); empty: none.
    pub service: &'a str,
    /// Bytes of the resource's attributes.
    pub resource: &'a [u8],
    /// Name of the scope.
    pub scope_name: &'a str,
    /// Version of the scope.
    pub scope_version: &'a str,
    /// Bytes of the scope's attributes.
    pub scope_attributes: &'a [u8],
}

impl<'a> ContextFields<'a> {
    fn of(context: &'a SpanContext) -> Self {
        Self {
            service: &context.service,
            resource: context.resource.bytes(),
            scope_name: &context.scope_name,
            scope_version: &context.scope_version,
            scope_attributes: context.scope_attributes.bytes(),
        }
    }

    fn bytes(&self) -> usize {
        self.service.len()
            + self.resource.len()
            + self.scope_name.len()
            + self.scope_version.len()
            + self.scope_attributes.len()
    }
}

/// Builds a [`SpansBatch`]. Attributes, events and links of the next span come first, then [`SpansBuilder::span`].
#[derive(Debug, Default)]
pub struct SpansBuilder {
    ids: Vec<u8>,
    span_ids: Vec<u8>,
    parents: Vec<u8>,
    contexts_of: Vec<u32>,
    names: Bytes,
    kinds: Vec<u8>,
    starts: Vec<i64>,
    ends: Vec<i64>,
    statuses: Vec<u8>,
    messages: Bytes,
    states: Bytes,
    flags: Vec<u32>,
    dropped: [Vec<u32>; 3],
    received: Vec<i64>,
    marks: Vec<u8>,
    attributes: Bytes,
    events: Bytes,
    links: Bytes,
    contexts: Vec<SpanContext>,
    /// Their numbers, by what they hold.
    known: HashTable<u32>,
    hasher: RandomState,
    /// Bytes of all of them.
    context_bytes: usize,
    cuts: [u64; 6],
    /// Orders in which lists of attributes were sorted.
    orders: Vec<Vec<u8>>,
    /// Bytes that parts repeat for each span.
    repeated_bytes: usize,
    // The span at hand.
    pending: [u32; 3],
    error_tag: Option<String>,
    event_count: usize,
    link_count: usize,
}

/// Cuts a text at a character's border.
fn cut(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let mut end = max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn value_bytes(value: &Value<'_>) -> usize {
    match value {
        Value::Text(text) | Value::Json(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    }
}

fn pair_bytes((key, value): &(&str, Value<'_>)) -> usize {
    key.len() + size_of::<u64>() + value_bytes(value)
}

fn is_long(key: &str, value: &Value<'_>) -> bool {
    key.len() > KEY_BYTES_MAX || value_bytes(value) > VALUE_BYTES_MAX
}

impl SpansBuilder {
    /// Makes one with room for what a request of so many bytes, decompressed, may hold.
    pub fn for_request(bytes: usize) -> Self {
        let mut builder = Self::default();
        builder.attributes.bytes.reserve(bytes);
        builder
    }

    /// Makes room for so many spans.
    pub fn reserve(&mut self, spans: usize) {
        self.ids.reserve(spans * 16);
        self.span_ids.reserve(spans * 8);
        self.parents.reserve(spans * 8);
        for numbers in [&mut self.starts, &mut self.ends, &mut self.received] {
            numbers.reserve(spans);
        }
        for numbers in [&mut self.contexts_of, &mut self.flags].into_iter().chain(&mut self.dropped) {
            numbers.reserve(spans);
        }
        for small in [&mut self.kinds, &mut self.statuses, &mut self.marks] {
            small.reserve(spans);
        }
        let texts = [&mut self.names, &mut self.messages, &mut self.states];
        let runs = [&mut self.attributes, &mut self.events, &mut self.links];
        texts.into_iter().chain(runs).for_each(|bytes| bytes.ends.reserve(spans + 1));
        self.names.bytes.reserve(spans * NAME_BYTES);
    }

    /// Number of spans so far.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Says whether there is none.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// About how many bytes it holds. Contexts count twice: they are copied into columns at the end.
    pub fn memory_bytes(&self) -> usize {
        self.len() * 120
            + self.context_bytes * 2
            + self.attributes.bytes.len()
            + self.events.bytes.len()
            + self.links.bytes.len()
            + self.names.bytes.len()
            + self.messages.bytes.len()
            + self.states.bytes.len()
    }

    /// How many bytes more it holds while the largest of its columns moves to a larger place, if that may be soon.
    pub fn moving_bytes(&self) -> usize {
        let columns = [&self.attributes, &self.events, &self.links, &self.names, &self.messages, &self.states];
        columns.into_iter().map(Bytes::moving_bytes).max().unwrap_or_default()
    }

    /// How many bytes of resources and scopes stand beside the spans when each has its own, as in parts.
    pub fn repeated_bytes(&self) -> usize {
        self.repeated_bytes
    }

    /// Counts what was cut so far.
    pub fn cuts(&self) -> impl Iterator<Item = (TruncationKind, u64)> {
        TruncationKind::ALL.into_iter().zip(self.cuts).filter(|(_, n)| *n > 0)
    }

    /// Gives the number of a context; equal ones have one.
    pub fn context(&mut self, fields: &ContextFields<'_>) -> u32 {
        let (scope_name, scope_version) =
            (cut(fields.scope_name, NAME_BYTES_MAX), cut(fields.scope_version, NAME_BYTES_MAX));
        let fields = ContextFields { scope_name, scope_version, ..*fields };
        let Self { contexts, known, hasher, .. } = self;
        let hash = hasher.hash_one(fields);
        if let Some(&number) = known.find(hash, |&n| ContextFields::of(&contexts[n as usize]) == fields) {
            return number;
        }
        let number = contexts.len() as u32;
        contexts.push(SpanContext {
            service: fields.service.to_owned(),
            resource: Attributes::from_bytes(fields.resource),
            scope_name: fields.scope_name.to_owned(),
            scope_version: fields.scope_version.to_owned(),
            scope_attributes: Attributes::from_bytes(fields.scope_attributes),
        });
        known.insert_unique(hash, number, |&n| hasher.hash_one(ContextFields::of(&contexts[n as usize])));
        self.context_bytes += size_of::<SpanContext>() + fields.bytes();
        number
    }

    /// Counts attributes that were left out of a sender's list before it came here.
    pub fn cut_attributes(&mut self, count: u64) {
        self.cuts[0] += count;
    }

    /// Sorts, cuts and writes attributes; gives how many were left out. The last of equal keys wins, empty keys go.
    pub fn write_attributes(&mut self, list: &mut Vec<(&str, Value<'_>)>, out: &mut Vec<u8>) -> u32 {
        if list.iter().any(|(key, value)| key.is_empty() || is_long(key, value)) {
            self.shorten(list, VALUE_BYTES_MAX);
        }
        let sorted = list.is_sorted_by(|a, b| a.0 < b.0);
        if let Some(order) = (!sorted).then(|| self.order_as_before(list)).flatten() {
            for &at in order {
                let (key, value) = list[usize::from(at)];
                push_attribute(out, key, value);
            }
            return 0;
        }
        if !sorted {
            list.sort_by_key(|(key, _)| *key);
            // `dedup_by` keeps the first of equals, so the list is walked from its end.
            list.reverse();
            list.dedup_by(|a, b| a.0 == b.0);
            list.reverse();
        }
        let left_out = list.len().saturating_sub(ATTRIBUTES_MAX) as u32;
        if left_out > 0 {
            list.truncate(ATTRIBUTES_MAX);
            self.cuts[0] += u64::from(left_out);
        }
        for (key, value) in list.iter() {
            push_attribute(out, key, *value);
        }
        left_out
    }

    /// The same of a resource or a scope. Of one that is very large long values are cut to a kilobyte, and what still finds
    /// no room is left out, the last of the sender's list first.
    pub fn write_shared(&mut self, list: &mut Vec<(&str, Value<'_>)>, out: &mut Vec<u8>) -> u32 {
        let mut left_out = 0;
        if list.iter().map(pair_bytes).sum::<usize>() > SHARED_BYTES_MAX {
            self.shorten(list, SHARED_VALUE_BYTES_MAX);
            let mut bytes = 0;
            let fitting = list.iter().take_while(|pair| {
                bytes += pair_bytes(pair);
                bytes <= SHARED_BYTES_MAX
            });
            let fitting = fitting.count();
            left_out = (list.len() - fitting) as u32;
            list.truncate(fitting);
            self.cuts[0] += u64::from(left_out);
        }
        left_out + self.write_attributes(list, out)
    }

    /// Takes empty keys out, and cuts what is too long.
    fn shorten(&mut self, list: &mut Vec<(&str, Value<'_>)>, value_bytes_max: usize) {
        list.retain(|(key, _)| !key.is_empty());
        for (key, value) in list.iter_mut() {
            let short = cut(key, KEY_BYTES_MAX);
            self.cuts[1] += u64::from(short.len() < key.len());
            *key = short;
            let long = match value {
                Value::Text(text) => {
                    let short = cut(text, value_bytes_max);
                    let long = short.len() < text.len();
                    *text = short;
                    long
                }
                Value::Bytes(bytes) if bytes.len() > value_bytes_max => {
                    *bytes = &bytes[..value_bytes_max];
                    true
                }
                // A list cut in its middle is no list; it becomes the text that it begins with.
                Value::Json(json) if json.len() > value_bytes_max => {
                    *value = Value::Text(cut(json, value_bytes_max));
                    true
                }
                _ => false,
            };
            self.cuts[2] += u64::from(long);
        }
    }

    /// Gives the order that sorts a list, at first that of the last list much like it: senders write the same keys in
    /// the same order again and again. `None`: it has keys twice or too many.
    fn order_as_before(&mut self, list: &[(&str, Value<'_>)]) -> Option<&[u8]> {
        let (Some(first), Some(last), Ok(count)) = (list.first(), list.last(), u8::try_from(list.len())) else {
            return None;
        };
        let slot = (list.len() * 31 + first.0.len() * 7 + last.0.len()) % ORDERS;
        if self.orders.is_empty() {
            self.orders.resize_with(ORDERS, Vec::new);
        }
        let order = &mut self.orders[slot];
        let sorts = |order: &[u8]| {
            order.len() == list.len() && order.is_sorted_by(|a, b| list[usize::from(*a)].0 < list[usize::from(*b)].0)
        };
        if !sorts(order) {
            *order = (0..count).collect();
            order.sort_by_key(|i| list[usize::from(*i)].0);
            if !sorts(order) {
                return None;
            }
        }
        Some(order)
    }

    /// Takes the attributes of the next span.
    pub fn attributes(&mut self, list: &mut Vec<(&str, Value<'_>)>) {
        if let Some(at) = list.iter().rposition(|(key, _)| *key == "error") {
            self.error_tag = Some(list[at].1.text().into_owned());
            list.retain(|(key, _)| *key != "error");
        }
        let mut bytes = std::mem::take(&mut self.attributes.bytes);
        self.pending[0] += self.write_attributes(list, &mut bytes);
        self.attributes.bytes = bytes;
    }

    /// Takes an event of the next span.
    pub fn event(&mut self, time: i64, name: &str, dropped: u32, list: &mut Vec<(&str, Value<'_>)>) {
        if self.event_count == EVENTS_MAX {
            self.pending[1] += 1;
            self.cuts[3] += 1;
            return;
        }
        self.event_count += 1;
        let mut attributes = Vec::new();
        let left_out = self.write_attributes(list, &mut attributes);
        let name = self.name(name);
        let event = EventRef { time, name, dropped: dropped.saturating_add(left_out), attributes: &attributes };
        push_event(&mut self.events.bytes, &event);
    }

    /// Takes a link of the next span; its attributes are in `list`, not in the reference.
    pub fn link(&mut self, link: LinkRef<'_>, list: &mut Vec<(&str, Value<'_>)>) {
        if self.link_count == LINKS_MAX {
            self.pending[2] += 1;
            self.cuts[4] += 1;
            return;
        }
        self.link_count += 1;
        let mut attributes = Vec::new();
        let left_out = self.write_attributes(list, &mut attributes);
        let dropped = link.dropped.saturating_add(left_out);
        push_link(&mut self.links.bytes, &LinkRef { attributes: &attributes, dropped, ..link });
    }

    fn name<'a>(&mut self, name: &'a str) -> &'a str {
        let short = cut(name, NAME_BYTES_MAX);
        self.cuts[5] += u64::from(short.len() < name.len());
        short
    }

    /// Appends a span, with the attributes, events and links that came since the one before it.
    pub fn span(&mut self, fields: &SpanFields<'_>) {
        let name = self.name(fields.name);
        let (mut status, mut message) = (fields.status, cut(fields.status_message, VALUE_BYTES_MAX));
        let tag = self.error_tag.take();
        if let Some(tag) = &tag {
            if status == STATUS_UNSET && tag != "false" {
                status = STATUS_ERROR;
            }
            if message.is_empty() && !matches!(tag.as_str(), "" | "true" | "false") {
                message = cut(tag, VALUE_BYTES_MAX);
            }
        }
        let negative = fields.end < fields.start;
        let parent = if fields.parent == fields.span_id { [0; 8] } else { fields.parent };
        self.ids.extend_from_slice(&fields.trace_id);
        self.span_ids.extend_from_slice(&fields.span_id);
        self.parents.extend_from_slice(&parent);
        self.contexts_of.push(fields.context);
        if let Some(context) = self.contexts.get(fields.context as usize) {
            self.repeated_bytes += context.resource.bytes().len() + context.scope_attributes.bytes().len();
        }
        self.names.push(name.as_bytes());
        self.kinds.push(if fields.kind > 5 { 0 } else { fields.kind });
        self.starts.push(fields.start);
        self.ends.push(fields.end.max(fields.start));
        self.statuses.push(if status > STATUS_ERROR { STATUS_UNSET } else { status });
        self.messages.push(message.as_bytes());
        self.states.push(cut(fields.trace_state, VALUE_BYTES_MAX).as_bytes());
        self.flags.push(fields.flags);
        for (i, column) in self.dropped.iter_mut().enumerate() {
            column.push(fields.dropped[i].saturating_add(self.pending[i]));
        }
        self.received.push(fields.received);
        self.marks.push(fields.marks | if negative { NEGATIVE_DURATION } else { 0 });
        self.attributes.end();
        self.events.end();
        self.links.end();
        self.forget();
    }

    /// Leaves the span at hand out.
    pub fn abandon(&mut self) {
        for bytes in [&mut self.attributes, &mut self.events, &mut self.links] {
            bytes.bytes.truncate(bytes.ends.last().map_or(0, |&end| end as usize));
        }
        self.forget();
    }

    fn forget(&mut self) {
        self.pending = [0; 3];
        self.error_tag = None;
        self.event_count = 0;
        self.link_count = 0;
    }

    /// Gives the batch.
    pub fn finish(mut self) -> SpansBatch {
        self.abandon();
        let fixed = |size: i32, bytes: Vec<u8>| -> ArrayRef {
            Arc::new(FixedSizeBinaryArray::new(size, Buffer::from_vec(bytes), None))
        };
        let u8s = |values: Vec<u8>| -> ArrayRef { Arc::new(UInt8Array::from(values)) };
        let u32s = |values: Vec<u32>| -> ArrayRef { Arc::new(UInt32Array::from(values)) };
        let i64s = |values: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(values)) };
        let [dropped_attributes, dropped_events, dropped_links] = self.dropped;
        let columns = vec![
            fixed(16, self.ids),
            fixed(8, self.span_ids),
            fixed(8, self.parents),
            u32s(self.contexts_of),
            self.names.text(),
            u8s(self.kinds),
            i64s(self.starts),
            i64s(self.ends),
            u8s(self.statuses),
            self.messages.text(),
            self.states.text(),
            u32s(self.flags),
            u32s(dropped_attributes),
            u32s(dropped_events),
            u32s(dropped_links),
            i64s(self.received),
            u8s(self.marks),
            self.attributes.binary(),
            self.events.binary(),
            self.links.binary(),
        ];
        let spans = RecordBatch::try_new(span_schema(), columns).expect("columns of the batch's own schema");
        let text = |get: fn(&SpanContext) -> &str| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(self.contexts.iter().map(get)))
        };
        let binary = |get: fn(&SpanContext) -> &[u8]| -> ArrayRef {
            Arc::new(BinaryArray::from_iter_values(self.contexts.iter().map(get)))
        };
        let columns = vec![
            text(|c| &c.service),
            binary(|c| c.resource.bytes()),
            text(|c| &c.scope_name),
            text(|c| &c.scope_version),
            binary(|c| c.scope_attributes.bytes()),
        ];
        let contexts = RecordBatch::try_new(context_schema(), columns).expect("columns of the batch's own schema");
        SpansBatch { spans, contexts }
    }
}

#[cfg(test)]
mod tests;
