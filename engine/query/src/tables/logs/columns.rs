//! Columns of `logs`, and the fields that they read.

use quiver_types::logs::MSG;

use crate::tables::config_columns;
use crate::tables::convert::ROW_ID;

/// Columns that are fields of the record under another name, with the fields.
pub(super) const FIELDS: [(&str, &str); 4] =
    [("message", MSG), ("severity_text", "severity_text"), ("trace_id", "trace_id"), ("span_id", "span_id")];

/// The field that a column reads; `None` if it is another fixed column. Any name that is no fixed column is a field.
pub(super) fn field_of(column: &str) -> Option<&str> {
    match column {
        "time" | "observed_time" | "service_name" | "severity_number" | "stream" | "stream_id" | "fields" | ROW_ID => {
            None
        }
        // Columns that depend on the configuration.
        other if config_columns::is_configured(other) => None,
        other => Some(FIELDS.iter().find(|(name, _)| *name == other).map_or(other, |(_, field)| field)),
    }
}
