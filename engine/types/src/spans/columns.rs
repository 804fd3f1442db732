//! The columns that a scan can give, and reading whole spans back from them.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, UInt8Type, UInt32Type};
use hashbrown::HashMap;

use super::{Attributes, Place, Span, SpanContext, events, links};
use crate::{Error, Result};

/// A column of a scan. None is ever null but [`SpanColumn::Attribute`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SpanColumn {
    /// A column of [`super::SPAN_COLUMNS`] but `context`, of its type there.
    Own(&'static str),
    /// A column of [`super::CONTEXT_COLUMNS`], as a view (`Utf8View`, `BinaryView`).
    Context(&'static str),
    /// The text of an attribute (`Utf8View`); null when there is none. The place is `Span` or `Resource`.
    Attribute(Place, String),
}

impl SpanColumn {
    /// Gives its name in the schema.
    pub fn name(&self) -> String {
        match self {
            Self::Own(name) | Self::Context(name) => (*name).to_owned(),
            Self::Attribute(place, key) => format!("{}.{key}", place.name()),
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
            Self::Context(_) => (DataType::Utf8View, false),
            Self::Attribute(..) => (DataType::Utf8View, true),
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

/// Contexts that were read before, so that equal ones are one.
pub(super) type Known = HashMap<SpanContext, Arc<SpanContext>>;

/// Reads whole spans from a batch with [`all_columns`], and appends them.
///
/// # Errors
/// Internal: a column is missing or of another type.
pub fn read_spans(batch: &RecordBatch, out: &mut Vec<Span>) -> Result<()> {
    let missing = |name: &str| Error::internal(format!("a scan of spans lacks `{name}`"));
    let column = |name: &str| batch.column_by_name(name).ok_or_else(|| missing(name));
    let fixed = |name: &str| column(name)?.as_fixed_size_binary_opt().ok_or_else(|| missing(name));
    let text = |name: &str| column(name)?.as_string_opt::<i32>().ok_or_else(|| missing(name));
    let bytes = |name: &str| column(name)?.as_binary_opt::<i32>().ok_or_else(|| missing(name));
    let i64s = |name: &str| column(name)?.as_primitive_opt::<Int64Type>().ok_or_else(|| missing(name));
    let u32s = |name: &str| column(name)?.as_primitive_opt::<UInt32Type>().ok_or_else(|| missing(name));
    let u8s = |name: &str| column(name)?.as_primitive_opt::<UInt8Type>().ok_or_else(|| missing(name));
    let view = |name: &str| column(name)?.as_string_view_opt().ok_or_else(|| missing(name));
    let bytes_view = |name: &str| column(name)?.as_binary_view_opt().ok_or_else(|| missing(name));
    let (trace_ids, span_ids, parents) = (fixed("trace_id")?, fixed("span_id")?, fixed("parent_span_id")?);
    let (names, messages, states) = (text("name")?, text("status_message")?, text("trace_state")?);
    let (kinds, statuses, marks) = (u8s("kind")?, u8s("status")?, u8s("marks")?);
    let (starts, ends, received) = (i64s("start")?, i64s("end")?, i64s("received")?);
    let flags = u32s("flags")?;
    let dropped = [u32s("dropped_attributes")?, u32s("dropped_events")?, u32s("dropped_links")?];
    let (attributes, event_bytes, link_bytes) = (bytes("attributes")?, bytes("events")?, bytes("links")?);
    let (services, resources) = (view("service")?, bytes_view("resource")?);
    let (scope_names, scope_versions) = (view("scope_name")?, view("scope_version")?);
    let scope_attributes = bytes_view("scope_attributes")?;
    let mut known = Known::new();
    if let Some(last) = out.last() {
        known.insert((*last.context).clone(), Arc::clone(&last.context));
    }
    let id8 = |bytes: &[u8]| <[u8; 8]>::try_from(bytes).unwrap_or_default();
    out.reserve(batch.num_rows());
    let mut previous: Option<Arc<SpanContext>> = None;
    for i in 0..batch.num_rows() {
        let same = previous.as_ref().filter(|c| {
            c.service == services.value(i)
                && c.resource.bytes() == resources.value(i)
                && c.scope_name == scope_names.value(i)
                && c.scope_version == scope_versions.value(i)
                && c.scope_attributes.bytes() == scope_attributes.value(i)
        });
        let context = if let Some(same) = same {
            Arc::clone(same)
        } else {
            let context = SpanContext {
                service: services.value(i).to_owned(),
                resource: Attributes::from_bytes(resources.value(i)),
                scope_name: scope_names.value(i).to_owned(),
                scope_version: scope_versions.value(i).to_owned(),
                scope_attributes: Attributes::from_bytes(scope_attributes.value(i)),
            };
            match known.get(&context) {
                Some(known) => Arc::clone(known),
                None => {
                    let shared = Arc::new(context.clone());
                    known.insert(context, Arc::clone(&shared));
                    shared
                }
            }
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
            status_message: messages.value(i).to_owned(),
            trace_state: states.value(i).to_owned(),
            flags: flags.value(i),
            dropped: dropped.map(|d| d.value(i)),
            received: received.value(i),
            marks: marks.value(i),
            attributes: Attributes::from_bytes(attributes.value(i)),
            events: events(event_bytes.value(i)).map(|e| e.to_event()).collect(),
            links: links(link_bytes.value(i)).map(|l| l.to_link()).collect(),
        });
    }
    Ok(())
}
