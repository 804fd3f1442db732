//! The columns that a scan can give, and reading whole spans back from them.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray, DictionaryArray, Int32Array, RecordBatch, StringArray, StringViewArray, UInt32Array,
};
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema, SchemaRef, UInt8Type, UInt32Type};
use hashbrown::{Equivalent, HashMap};
use serde::Serialize;

use super::written::ColumnForm;
use super::{AttributeKind, Attributes, Place, Span, SpanContext, events, links};
use crate::{Error, Result};

/// A column of a scan. None is ever null but [`SpanColumn::Attribute`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(into = "ColumnForm")]
pub enum SpanColumn {
    /// A column of [`super::SPAN_COLUMNS`] but `context`, of its type there.
    Own(&'static str),
    /// A text of [`super::SPAN_COLUMNS`] as a view: `name`, `status_message` or `trace_state`.
    Text(&'static str),
    /// End minus start, nanoseconds (`Int64`).
    Duration,
    /// A column of [`super::CONTEXT_COLUMNS`], as a view (`Utf8View`, `BinaryView`).
    Context(&'static str),
    /// An attribute, read as one type; null when there is none. The place is `Span` or `Resource`.
    Attribute(Place, String, AttributeKind),
    /// A column of views of texts by codes ([`coded_texts`]), for those who group and compare: rows that share a text mostly
    /// share its code, and a code may be there more than once.
    Coded(Box<SpanColumn>),
}

/// The type of texts by codes.
pub fn coded_texts() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8View))
}

/// Gives texts each with a code of its own.
pub fn code_each(texts: &StringViewArray) -> DictionaryArray<Int32Type> {
    let codes = Int32Array::new((0..texts.len() as i32).collect(), texts.nulls().cloned());
    DictionaryArray::new(codes, Arc::new(texts.clone()))
}

impl SpanColumn {
    /// Gives its name in the schema.
    pub fn name(&self) -> String {
        match self {
            Self::Own(name) | Self::Text(name) | Self::Context(name) => (*name).to_owned(),
            Self::Duration => "duration".to_owned(),
            Self::Coded(of) => of.name(),
            Self::Attribute(place, key, _) => format!("{}.{key}", place.name()),
        }
    }

    /// Says whether texts of it may be read as views: it is made of none, or gives them so itself.
    pub fn takes_views(&self) -> bool {
        const COPIED: [&str; 6] = ["name", "status_message", "trace_state", "attributes", "events", "links"];
        match self {
            Self::Own(name) => !COPIED.contains(name),
            Self::Context(name) => !matches!(*name, "resource" | "scope_attributes"),
            Self::Text(_) | Self::Duration | Self::Attribute(..) => true,
            Self::Coded(of) => of.takes_views(),
        }
    }

    fn field(&self) -> Field {
        let (kind, nullable) = match self {
            Self::Own(name) => {
                let schema = super::span_schema();
                let kind = schema.field_with_name(name).map_or(DataType::Null, |f| f.data_type().clone());
                (kind, false)
            }
            Self::Context("resource" | "scope_attributes") => (DataType::BinaryView, false),
            Self::Context(_) | Self::Text(_) => (DataType::Utf8View, false),
            Self::Duration => (DataType::Int64, false),
            Self::Attribute(.., kind) => (kind.data_type(), true),
            Self::Coded(of) => (coded_texts(), of.field().is_nullable()),
        };
        Field::new(self.name(), kind, nullable)
    }
}

/// Gives all columns, from which [`read_spans`] makes spans.
pub fn all_columns() -> Vec<SpanColumn> {
    let own = super::SPAN_COLUMNS.iter().filter(|c| **c != "context").map(|c| SpanColumn::Own(c));
    own.chain(super::CONTEXT_COLUMNS.iter().map(|c| SpanColumn::Context(c))).collect()
}

/// Gives the schema of some columns.
pub fn schema_of(columns: &[SpanColumn]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(SpanColumn::field).collect::<Vec<_>>()))
}

/// A context as it stands in columns: most of those of a batch were read before, and are looked up without a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ContextRef<'b> {
    // The members of `SpanContext` in its order: both have the same hash.
    service: &'b str,
    resource: &'b [u8],
    scope_name: &'b str,
    scope_version: &'b str,
    scope_attributes: &'b [u8],
}

impl ContextRef<'_> {
    fn is(&self, context: &SpanContext) -> bool {
        context.service == self.service
            && context.resource.bytes() == self.resource
            && context.scope_name == self.scope_name
            && context.scope_version == self.scope_version
            && context.scope_attributes.bytes() == self.scope_attributes
    }

    fn to_context(self) -> SpanContext {
        SpanContext {
            service: self.service.to_owned(),
            resource: Attributes::from_bytes(self.resource),
            scope_name: self.scope_name.to_owned(),
            scope_version: self.scope_version.to_owned(),
            scope_attributes: Attributes::from_bytes(self.scope_attributes),
        }
    }
}

impl Equivalent<SpanContext> for ContextRef<'_> {
    fn equivalent(&self, key: &SpanContext) -> bool {
        self.is(key)
    }
}

/// Contexts that were read before, so that equal ones are one.
pub(super) type Known = HashMap<SpanContext, Arc<SpanContext>>;

/// A column of a batch by name, as its array; `None` when the batch is without it.
fn optional<'b, T>(
    batch: &'b RecordBatch,
    name: &str,
    cast: impl FnOnce(&'b ArrayRef) -> Option<&'b T>,
) -> Result<Option<&'b T>> {
    let Some(column) = batch.column_by_name(name) else { return Ok(None) };
    let other = || Error::internal(format!("`{name}` of a scan of spans is of another type"));
    cast(column).map(Some).ok_or_else(other)
}

/// Reads spans from a batch, and appends them. Ids, times, names, kinds, states and services must be there; what else
/// [`all_columns`] has may be left out, and is empty then.
///
/// # Errors
/// Internal: a column is missing or of another type.
pub fn read_spans(batch: &RecordBatch, out: &mut Vec<Span>) -> Result<()> {
    let missing = |name: &str| Error::internal(format!("a scan of spans lacks `{name}`"));
    let column = |name: &str| batch.column_by_name(name).ok_or_else(|| missing(name));
    let fixed = |name: &str| column(name)?.as_fixed_size_binary_opt().ok_or_else(|| missing(name));
    let i64s = |name: &str| column(name)?.as_primitive_opt::<Int64Type>().ok_or_else(|| missing(name));
    let u8s = |name: &str| column(name)?.as_primitive_opt::<UInt8Type>().ok_or_else(|| missing(name));
    let u32s = |name: &str| optional(batch, name, |c| c.as_primitive_opt::<UInt32Type>());
    let text = |name: &str| optional(batch, name, |c| c.as_string_opt::<i32>());
    let bytes = |name: &str| optional(batch, name, |c| c.as_binary_opt::<i32>());
    let view = |name: &str| optional(batch, name, |c| c.as_string_view_opt());
    let bytes_view = |name: &str| optional(batch, name, |c| c.as_binary_view_opt());
    let (trace_ids, span_ids, parents) = (fixed("trace_id")?, fixed("span_id")?, fixed("parent_span_id")?);
    let names = text("name")?.ok_or_else(|| missing("name"))?;
    let (messages, states) = (text("status_message")?, text("trace_state")?);
    let (kinds, statuses, marks) = (u8s("kind")?, u8s("status")?, u8s("marks")?);
    let (starts, ends, received) = (i64s("start")?, i64s("end")?, i64s("received")?);
    let flags = u32s("flags")?;
    let dropped = [u32s("dropped_attributes")?, u32s("dropped_events")?, u32s("dropped_links")?];
    let (attributes, event_bytes, link_bytes) = (bytes("attributes")?, bytes("events")?, bytes("links")?);
    let services = view("service")?.ok_or_else(|| missing("service"))?;
    let (resources, scope_attributes) = (bytes_view("resource")?, bytes_view("scope_attributes")?);
    let (scope_names, scope_versions) = (view("scope_name")?, view("scope_version")?);
    let text_at = |column: Option<&'_ StringArray>, i: usize| column.map_or("", |c| c.value(i)).to_owned();
    let number_at = |column: Option<&'_ UInt32Array>, i: usize| column.map_or(0, |c| c.value(i));
    let mut known = Known::new();
    if let Some(last) = out.last() {
        known.insert((*last.context).clone(), Arc::clone(&last.context));
    }
    let id8 = |bytes: &[u8]| <[u8; 8]>::try_from(bytes).unwrap_or_default();
    out.reserve(batch.num_rows());
    let mut previous: Option<Arc<SpanContext>> = None;
    for i in 0..batch.num_rows() {
        let here = ContextRef {
            service: services.value(i),
            resource: resources.map_or(&[][..], |c| c.value(i)),
            scope_name: scope_names.map_or("", |c| c.value(i)),
            scope_version: scope_versions.map_or("", |c| c.value(i)),
            scope_attributes: scope_attributes.map_or(&[][..], |c| c.value(i)),
        };
        let same = previous.as_ref().filter(|context| here.is(context));
        let context = if let Some(same) = same.or_else(|| known.get(&here)) {
            Arc::clone(same)
        } else {
            let shared = Arc::new(here.to_context());
            known.insert(here.to_context(), Arc::clone(&shared));
            shared
        };
        previous = Some(Arc::clone(&context));
        let parent = id8(parents.value(i));
        out.push(Span {
            trace_id: trace_ids.value(i).try_into().unwrap_or_default(),
            span_id: id8(span_ids.value(i)),
            parent: (parent != [0; 8]).then_some(parent),
            context,
            name: names.value(i).to_owned(),
            kind: kinds.value(i),
            start: starts.value(i),
            end: ends.value(i),
            status: statuses.value(i),
            status_message: text_at(messages, i),
            trace_state: text_at(states, i),
            flags: number_at(flags, i),
            dropped: dropped.map(|d| number_at(d, i)),
            received: received.value(i),
            marks: marks.value(i),
            attributes: attributes.map(|c| Attributes::from_bytes(c.value(i))).unwrap_or_default(),
            events: event_bytes.map_or_else(Vec::new, |c| events(c.value(i)).map(|e| e.to_event()).collect()),
            links: link_bytes.map_or_else(Vec::new, |c| links(c.value(i)).map(|l| l.to_link()).collect()),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spans::Value;

    #[test]
    fn contexts_are_known_as_they_stand_in_columns() {
        let (resource, scope) = (Attributes::of([("k", Value::Int(1))]), Attributes::of([("s", Value::Text("t"))]));
        let here = ContextRef {
            service: "a",
            resource: resource.bytes(),
            scope_name: "lib",
            scope_version: "1",
            scope_attributes: scope.bytes(),
        };
        let mut known = Known::new();
        known.insert(here.to_context(), Arc::default());
        assert!(known.contains_key(&here) && known.contains_key(&here.to_context()));
        for other in [
            ContextRef { service: "b", ..here },
            ContextRef { resource: &[], ..here },
            ContextRef { scope_name: "", ..here },
            ContextRef { scope_version: "2", ..here },
            ContextRef { scope_attributes: resource.bytes(), ..here },
        ] {
            assert!(!known.contains_key(&other) && !other.is(&here.to_context()), "{other:?}");
        }
    }
}
