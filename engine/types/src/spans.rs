//! Spans as decoders, store and trace engine exchange them: the batch that is written, a single span, the filter that a
//! scan evaluates, and the traits through which a plan reaches the store.
//!
//! Ids are fixed-size bytes, times Unix nanoseconds; attributes keep the type that they were sent with (`traces-api`
//! section 1). An empty service means none.

mod attribute_values;
mod attributes;
mod batch;
mod builder;
mod columns;
mod critical_path;
mod encoding;
mod events_and_links;
mod filter;
mod list_items;
mod model;
mod reports;
mod rollup;
mod row;
mod sampling;
mod schema;
mod source;
mod tags;

pub use attribute_values::{AttributeKind, AttributeValues, KnownKind, WithoutValue};
pub use attributes::{
    Attribute, AttributeWriter, Attributes, RawAttribute, RawIter, Value, json_text, push_replaced, push_typed,
    push_typed_text,
};
pub use batch::{SpansBatch, context_column};
pub use builder::{ContextFields, SpanFields, SpansBuilder, TruncationKind};
pub use columns::{NumberedFilter, SpanColumn, all_columns, code_each, coded_texts, read_spans, schema_of};
pub use critical_path::{Segment, critical_path};
pub use events_and_links::{EventRef, LinkRef, events, links, push_event, push_link};
pub use filter::{AttributeTest, Place, SpanFilter, TextTest, ValueSet};
pub use list_items::{any_item, is_list};
pub use model::{Event, KIND_NAMES, Link, Side, Span, SpanContext, SpanId, TraceId, kind_name};
pub use reports::{APART_MINUTES, FirstReport, are_one_span, first_received, reports_near};
pub use rollup::{
    Counts, Durations, EdgeKind, HIDDEN, OPEN_SHARED, PROTOCOLS, RATIO, RollupBuilder, RollupKind, RollupRequest,
    RollupRow, RollupRows, RollupSum, UNLISTED, bucket, instance_name, instance_parts, middle, remote_of, rollup_batch,
    rollup_columns, rollup_schema,
};
pub use row::{SpanRow, find_text, is_entry};
pub use sampling::{sample_weight, whole_sample_weight};
pub use schema::{CONTEXT_COLUMNS, SPAN_COLUMNS, context_schema, span_schema};
pub use source::{SpanRequest, SpanSnapshot, SpanSource};
pub use tags::{
    TAG_BYTES, TAG_CARDINALITY_MAX, TAG_DOUBLE, TAG_HASH_BYTES, TAG_VALUES_MAX, TagRequest, tag_kind, tag_kind_name,
    tag_schema, tag_value_kind,
};

/// Ids of traces and spans are written in them.
pub use crate::hex::{hex, parse_hex};

/// Mark: the span is Zipkin's other half of a shared id.
pub const SHARED: u8 = 1;
/// Mark: the span came with an end before its start.
pub const NEGATIVE_DURATION: u8 = 2;
/// Mark: the report did not say when the span starts; its start is that of its first event, or its arrival.
pub const NO_START: u8 = 4;
/// Mark: the report did not say how long the span is.
pub const NO_DURATION: u8 = 8;
/// Mark: an earlier copy of the row, which came before other reports of the span, was left out for it.
pub const FIRST: u8 = 16;

/// Status of a span without one.
pub const STATUS_UNSET: u8 = 0;
/// Status "ok": the sender says that the span succeeded.
pub const STATUS_OK: u8 = 1;
/// Status "error": the span failed.
pub const STATUS_ERROR: u8 = 2;
