//! A batch of spans as Arrow columns: what decoders give, what the WAL holds, and what stands in memory until the flush.
//!
//! Spans refer to a *context* (service, resource, scope) by number, so that what thousands of spans share is there once.
//! No nulls and no dictionaries: an absent text is empty, an absent parent is zero, so the columns travel as they are.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, BinaryViewArray, RecordBatch, StringViewArray};
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

/// Gives the schema of [`SpansBatch::spans`].
pub fn span_schema() -> SchemaRef {
    Arc::clone(&SPANS)
}

/// Gives the schema of [`SpansBatch::contexts`].
pub fn context_schema() -> SchemaRef {
    Arc::clone(&CONTEXTS)
}

/// What a decoder gives and `Store::write_spans` takes.
#[derive(Debug, Clone)]
pub struct SpansBatch {
    /// Spans; `context` is a row of `contexts`.
    pub spans: RecordBatch,
    /// Contexts.
    pub contexts: RecordBatch,
}

impl Default for SpansBatch {
    fn default() -> Self {
        Self { spans: RecordBatch::new_empty(span_schema()), contexts: RecordBatch::new_empty(context_schema()) }
    }
}

impl SpansBatch {
    /// Number of spans.
    pub fn len(&self) -> usize {
        self.spans.num_rows()
    }

    /// Says whether there is nothing to store.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives all spans as rows of [`super::all_columns`].
    pub fn flat(&self) -> RecordBatch {
        let columns = super::all_columns();
        let schema = super::schema_of(&columns);
        let arrays = columns.iter().map(|column| match column {
            super::SpanColumn::Own(name) => Arc::clone(&self.spans[*name]),
            super::SpanColumn::Context(name) => context_column(&self.contexts, name, &self.spans["context"]),
            super::SpanColumn::Attribute(..) => unreachable!("not among all columns"),
        });
        RecordBatch::try_new(schema, arrays.collect()).expect("columns of the schema's types")
    }

    /// About how many bytes it takes.
    pub fn memory_bytes(&self) -> usize {
        let of = |batch: &RecordBatch| batch.columns().iter().map(Array::get_buffer_memory_size).sum::<usize>();
        of(&self.spans) + of(&self.contexts)
    }
}

/// Gives a column of contexts, row by row of the spans that refer to them, as a view that shares its bytes.
///
/// # Panics
/// When `references` are none of `contexts`.
pub(crate) fn context_column(contexts: &RecordBatch, name: &str, references: &ArrayRef) -> ArrayRef {
    let column = &contexts[name];
    let view: ArrayRef = match column.data_type() {
        DataType::Utf8 => Arc::new(StringViewArray::from(column.as_string::<i32>())),
        _ => Arc::new(BinaryViewArray::from(column.as_binary::<i32>())),
    };
    arrow::compute::take(&view, references, None).expect("references are checked when a batch is made")
}
