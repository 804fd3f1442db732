//! Columns of `logs`, and the fields behind them.

use quiver_types::logs::MSG;

use crate::tables::configured;
use crate::tables::convert::ROW_ID;

/// Columns that are fields of the record under another name, and the fields.
pub(super) const FIELDS: [(&str, &str); 4] =
    [("message", MSG), ("severity_text", "severity_text"), ("trace_id", "trace_id"), ("span_id", "span_id")];

/// The field behind a column of the table, if it is one; any name that is no fixed column is.
pub(super) fn field_of(column: &str) -> Option<&str> {
    match column {
        "time" | "observed_time" | "service_name" | "severity_number" | "stream" | "stream_id" | "fields" | ROW_ID => {
            None
        }
        // What follows from configuration.
        other if configured::is_configured(other) => None,
        other => Some(FIELDS.iter().find(|(name, _)| *name == other).map_or(other, |(_, field)| field)),
    }
}
