//! A batch of spans as Arrow columns: what decoders give, what the WAL holds, and what stands in memory until the flush.
//!
//! Spans refer to a *context* (service, resource, scope) by number, so that what thousands of spans share is there once.
//! No nulls and no dictionaries: an absent text is empty, an absent parent is zero, so the columns travel as they are.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, BinaryViewArray, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, UInt32Type};

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
    /// Checks that both parts have their columns and that every span refers to a context.
    pub fn is_sound(&self) -> bool {
        let contexts = self.contexts.num_rows() as u32;
        self.spans.schema().fields() == span_schema().fields()
            && self.contexts.schema().fields() == context_schema().fields()
            && self.spans["context"].as_primitive::<UInt32Type>().values().iter().all(|&c| c < contexts)
    }

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
            _ => unreachable!("not among all columns"),
        });
        RecordBatch::try_new(schema, arrays.collect()).expect("columns of the schema's types")
    }

    /// Calls a function with service, start and end of each span.
    pub fn each(&self, mut f: impl FnMut(&str, i64, i64)) {
        let services = self.contexts["service"].as_string::<i32>();
        let contexts = self.spans["context"].as_primitive::<UInt32Type>().values();
        let times = |name: &str| self.spans[name].as_primitive::<Int64Type>().values();
        for ((&context, &start), &end) in contexts.iter().zip(times("start")).zip(times("end")) {
            f(services.value(context as usize), start, end);
        }
    }

    /// About how many bytes it takes.
    pub fn memory_bytes(&self) -> usize {
        // What comes out of the WAL is slices of a whole segment, so buffers are not counted as they were allocated.
        let slice = |c: &ArrayRef| c.to_data().get_slice_memory_size().unwrap_or(0);
        let of = |batch: &RecordBatch| batch.columns().iter().map(slice).sum::<usize>();
        of(&self.spans) + of(&self.contexts)
    }
}

/// Gives a column of contexts, row by row of the spans that refer to them, as a view that shares its bytes.
///
/// # Panics
/// When `references` are none of `contexts`; whoever takes a batch checks it first.
pub fn context_column(contexts: &RecordBatch, name: &str, references: &ArrayRef) -> ArrayRef {
    let column = &contexts[name];
    let view: ArrayRef = match column.data_type() {
        DataType::Utf8 => Arc::new(StringViewArray::from(column.as_string::<i32>())),
        _ => Arc::new(BinaryViewArray::from(column.as_binary::<i32>())),
    };
    arrow::compute::take(&view, references, None).expect("references are checked when a batch is made")
}
