//! Type, help and unit of metrics; the newest row of a metric wins. Written anew daily for metrics that are still sent.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::columns::millis;
use super::{FileDef, TableDef};

/// The table `metric_metadata`: type, help and unit.
pub const TABLE: TableDef = TableDef {
    name: "metric_metadata",
    number: 2,
    version: 1,
    files: &[FileDef { kind: "rows", schema: rows }],
    added: &[],
    dynamic: false,
    sort_key: &["metric", "ts"],
    time_column: "ts",
    window_ms: 86_400_000,
};

/// Columns of `.rows`.
pub fn rows() -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    Arc::new(Schema::new(vec![
        millis("ts", false),
        text("metric"),
        text("type"),
        text("help"),
        text("unit"),
        text("__q_service"),
    ]))
}
