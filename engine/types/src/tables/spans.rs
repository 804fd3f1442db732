//! Spans: a part is files `.rows`, `.index`, `.rollup`, and `.traces` where the index is large. Rows are sorted by the
//! minute of their start, then trace, then start, so that a trace lies together and time still prunes (`architecture` 3
//! and 5).
//!
//! Beside the fixed columns `.rows` has one for each attribute that is common in the part: `attributes.<key>` and
//! `resource.<key>`, of the type that its values came with. What has none stands in the maps `__q_attributes` and
//! `__q_resource` as text with its type before it (`s:`, `i:`, `d:`, `b:`, `x:`, `j:`). The index says where a trace is.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};

use super::columns::{map, nanos};
use super::{FileDef, TableDef};
use crate::spans::rollup_schema;

/// The table `spans`: spans, their roll-ups and an index of traces.
pub const TABLE: TableDef = TableDef {
    name: "spans",
    number: 4,
    version: 1,
    files: &[
        FileDef { kind: "rows", schema: rows },
        FileDef { kind: "index", schema: index },
        FileDef { kind: "rollup", schema: rollup_schema },
        FileDef { kind: "traces", schema: traces },
    ],
    added: &[],
    dynamic: true,
    sort_key: &["minute", "trace_id", "start_time"],
    time_column: "start_time",
    window_ms: 3_600_000,
};

/// How columns of attributes begin.
pub const ATTRIBUTE_PREFIX: &str = "attributes.";
/// How columns of resource attributes begin.
pub const RESOURCE_PREFIX: &str = "resource.";
/// Attributes without a column of their own.
pub const ATTRIBUTES_REST: &str = "__q_attributes";
/// Resource attributes without a column of their own.
pub const RESOURCE_REST: &str = "__q_resource";
/// Attributes of the scope.
pub const SCOPE_REST: &str = "__q_scope";

/// One minute in nanoseconds.
pub const MINUTE_NS: i64 = 60_000_000_000;

/// Gives the minute that a time is in.
pub fn minute_of(time_ns: i64) -> i64 {
    time_ns.div_euclid(MINUTE_NS)
}

/// Members of an event.
pub fn event_fields() -> Fields {
    Fields::from(vec![
        nanos("time"),
        Field::new("name", DataType::Utf8, false),
        Field::new("dropped", DataType::UInt32, false),
        Field::new("attributes", map(), false),
    ])
}

/// Members of a link.
pub fn link_fields() -> Fields {
    Fields::from(vec![
        Field::new("trace_id", DataType::FixedSizeBinary(16), false),
        Field::new("span_id", DataType::FixedSizeBinary(8), false),
        Field::new("trace_state", DataType::Utf8, false),
        Field::new("flags", DataType::UInt32, false),
        Field::new("dropped", DataType::UInt32, false),
        Field::new("attributes", map(), false),
    ])
}

/// Fixed columns of `.rows`; those of attributes follow. An absent text is empty, an absent parent is null.
pub fn rows() -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    let small = |name: &str| Field::new(name, DataType::UInt8, false);
    let number = |name: &str| Field::new(name, DataType::UInt32, false);
    let list = |name: &str, fields: Fields| {
        let item = Field::new("item", DataType::Struct(fields), false);
        Field::new(name, DataType::List(Arc::new(item)), false)
    };
    Arc::new(Schema::new(vec![
        Field::new("trace_id", DataType::FixedSizeBinary(16), false),
        Field::new("span_id", DataType::FixedSizeBinary(8), false),
        Field::new("parent_span_id", DataType::FixedSizeBinary(8), true),
        text("service_name"),
        text("name"),
        small("kind"),
        nanos("start_time"),
        Field::new("duration", DataType::Int64, false),
        small("status_code"),
        text("status_message"),
        text("trace_state"),
        number("flags"),
        number("dropped_attributes"),
        number("dropped_events"),
        number("dropped_links"),
        text("scope_name"),
        text("scope_version"),
        nanos("__q_received"),
        small("__q_marks"),
        Field::new(ATTRIBUTES_REST, map(), false),
        Field::new(RESOURCE_REST, map(), false),
        Field::new(SCOPE_REST, map(), false),
        list("events", event_fields()),
        list("links", link_fields()),
    ]))
}

/// Columns of `.index`: hash of the trace id, its first row and number of rows; sorted by hash.
pub fn index() -> SchemaRef {
    let number = |name: &str| Field::new(name, DataType::UInt32, false);
    Arc::new(Schema::new(vec![number("trace"), number("row"), number("rows")]))
}

/// Columns of `.traces`: a filter of all trace ids of the part.
pub fn traces() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("filter", DataType::Binary, false)]))
}

/// Gives the hash of a trace id, as the index has it. Ids are random, but not those of every sender.
pub fn trace_hash(id: &[u8]) -> u32 {
    xxhash_rust::xxh3::xxh3_64(id) as u32
}
