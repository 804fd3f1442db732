//! Tables about the server itself: ended queries, ingested telemetry, parts by table, day and tier, and health changes of
//! resources.
//!
//! They are stored like those of alerting (`history`): no column is NULL at rest.

use arrow::datatypes::SchemaRef;

use super::history::{ALERT_EVENTS, SERVICE, columns, float, number, text, time};
use super::{FileDef, TableDef};

/// Queries that ended.
pub const QUERY_LOG: TableDef = TableDef {
    name: "query_log",
    number: 14,
    version: 2,
    files: &[FileDef { kind: "rows", schema: query_log }],
    added: &[("cpu_ms", 2)],
    ..ALERT_EVENTS
};

/// What the store keeps of a table, day and tier at a time.
pub const STORAGE_STATS: TableDef = TableDef {
    name: "storage_stats",
    number: 15,
    files: &[FileDef { kind: "rows", schema: storage_stats }],
    ..ALERT_EVENTS
};

/// Changes of the health of resources, and how each is when a process first looks.
pub const RESOURCE_HEALTH: TableDef = TableDef {
    name: "resource_health",
    number: 16,
    files: &[FileDef { kind: "rows", schema: resource_health }],
    ..ALERT_EVENTS
};

/// What came in within a minute.
pub const INGEST_USAGE: TableDef = TableDef {
    name: "ingest_usage_1m",
    number: 17,
    files: &[FileDef { kind: "rows", schema: ingest_usage }],
    ..ALERT_EVENTS
};

/// Columns of `query_log`; the time is when the query began.
pub fn query_log() -> SchemaRef {
    columns(vec![
        time("time"),
        text("query_id"),
        text("api"),
        text("subject"),
        text("path"),
        text("outcome"),
        text("query_text"),
        float("duration_ms"),
        float("cpu_ms"),
        number("scanned_bytes"),
        number("scanned_rows"),
        number("pruned_files"),
        number("total_files"),
        number("peak_memory"),
        text("models"),
        text("rollups"),
        text("kept"),
        text(SERVICE),
    ])
}

/// Columns of `storage_stats`; the time is when it was counted.
pub fn storage_stats() -> SchemaRef {
    columns(vec![
        time("time"),
        text("table_name"),
        text("tier"),
        time("partition_day"),
        number("bytes"),
        number("rows"),
        number("files"),
        number("small_files"),
        text(SERVICE),
    ])
}

/// Columns of `resource_health`; who has no health is gone.
pub fn resource_health() -> SchemaRef {
    columns(vec![
        time("time"),
        text("resource_id"),
        text("resource_type"),
        text("health"),
        text("cause"),
        text(SERVICE),
    ])
}

/// Columns of `ingest_usage_1m`; the time is the start of the minute.
pub fn ingest_usage() -> SchemaRef {
    columns(vec![
        time("time"),
        text("signal"),
        text("protocol"),
        text("reject_reason"),
        number("records"),
        number("bytes_in"),
        number("rejected"),
        number("requests"),
        float("latency_ms"),
        float("lag_ms"),
        text(SERVICE),
    ])
}
