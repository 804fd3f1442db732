//! Columns of the three tables over spans.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, TimeUnit};
use quiver_types::spans::Place;
use serde::{Deserialize, Serialize};

use crate::tables::cells::{CellKind, text, text_map, time};

/// Names of span kinds by number; unknown numbers get the first.
pub(super) const KINDS: [&str; 6] = ["UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"];
/// Names of span statuses by number.
pub(super) const STATUSES: [&str; 3] = ["UNSET", "OK", "ERROR"];

/// A list of structs.
fn list(name: &str, fields: Vec<Field>) -> Field {
    let item = Field::new("item", DataType::Struct(Fields::from(fields)), true);
    Field::new(name, DataType::List(Arc::new(item)), true)
}

pub(super) fn event_fields() -> Vec<Field> {
    vec![time("time", TimeUnit::Nanosecond), Field::new("name", DataType::Utf8, true), text_map("attributes")]
}

pub(super) fn link_fields() -> Vec<Field> {
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    vec![text("trace_id"), text("span_id"), text("trace_state"), text_map("attributes")]
}

/// Fixed columns of `spans`.
pub(super) fn span_columns() -> Vec<Field> {
    vec![
        text("trace_id"),
        text("span_id"),
        text("parent_span_id"),
        text("service_name"),
        text("name"),
        text("kind"),
        time("start_time", TimeUnit::Nanosecond),
        time("end_time", TimeUnit::Nanosecond),
        Field::new("duration", DataType::Int64, true),
        text("status_code"),
        text("status_message"),
        text("trace_state"),
        text("scope_name"),
        text("scope_version"),
        text_map("attributes"),
        text_map("resource"),
        text_map("scope"),
        list("events", event_fields()),
        list("links", link_fields()),
    ]
}

/// Columns of events and links that describe their span: ids, service, name and start time.
pub(super) fn span_prefix() -> Vec<Field> {
    vec![
        text("trace_id"),
        text("span_id"),
        text("service_name"),
        text("span_name"),
        time("span_start", TimeUnit::Nanosecond),
    ]
}

/// What a row represents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SpanRowKind {
    /// A span, with its events and links as lists.
    Span,
    /// An event of a span.
    Event,
    /// A link of a span.
    Link,
}

/// Columns that are found by name, with the kind of their values.
pub(super) type Kinds = Vec<(String, CellKind)>;

/// The place (span, resource …) and the key of the attribute that a column name refers to.
pub(super) fn attribute_of(column: &str) -> Option<(Place, &str)> {
    [("attributes.", Place::Span), ("resource.", Place::Resource)]
        .into_iter()
        .find_map(|(prefix, place)| Some((place, column.strip_prefix(prefix)?)))
        .filter(|(_, key)| !key.is_empty())
}
