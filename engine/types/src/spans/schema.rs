//! The columns of spans and of their contexts in a batch.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

/// Names of the columns of spans, in order.
pub const SPAN_COLUMNS: [&str; 20] = [
    "trace_id",
    "span_id",
    "parent_span_id",
    "context",
    "name",
    "kind",
    "start",
    "end",
    "status",
    "status_message",
    "trace_state",
    "flags",
    "dropped_attributes",
    "dropped_events",
    "dropped_links",
    "received",
    "marks",
    "attributes",
    "events",
    "links",
];

/// Names of the columns of contexts, in order.
pub const CONTEXT_COLUMNS: [&str; 5] = ["service", "resource", "scope_name", "scope_version", "scope_attributes"];

static SPANS: LazyLock<SchemaRef> = LazyLock::new(|| {
    let kind = |name: &str| match name {
        "trace_id" => DataType::FixedSizeBinary(16),
        "span_id" | "parent_span_id" => DataType::FixedSizeBinary(8),
        "name" | "status_message" | "trace_state" => DataType::Utf8,
        "kind" | "status" | "marks" => DataType::UInt8,
        "start" | "end" | "received" => DataType::Int64,
        "attributes" | "events" | "links" => DataType::Binary,
        _ => DataType::UInt32,
    };
    Arc::new(Schema::new(SPAN_COLUMNS.map(|name| Field::new(name, kind(name), false)).to_vec()))
});

static CONTEXTS: LazyLock<SchemaRef> = LazyLock::new(|| {
    let kind = |name: &str| match name {
        "resource" | "scope_attributes" => DataType::Binary,
        _ => DataType::Utf8,
    };
    Arc::new(Schema::new(CONTEXT_COLUMNS.map(|name| Field::new(name, kind(name), false)).to_vec()))
});

/// Gives the schema of [`super::SpansBatch::spans`].
pub fn span_schema() -> SchemaRef {
    Arc::clone(&SPANS)
}

/// Gives the schema of [`super::SpansBatch::contexts`].
pub fn context_schema() -> SchemaRef {
    Arc::clone(&CONTEXTS)
}
