//! Columns of the tables over metrics.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use crate::tables::cells::{text, text_map};

/// Prefix of columns that are labels.
const LABEL_PREFIX: &str = "labels.";

/// The column of samples with the increase of a counter since the previous sample.
pub(super) const INCREASE: &str = "increase";
/// The maximum age of the previous sample, in ms.
pub(super) const BEFORE_MS: i64 = 3_600_000;

/// The label that a column name refers to.
pub(super) fn label_of(column: &str) -> Option<&str> {
    column.strip_prefix(LABEL_PREFIX).filter(|label| !label.is_empty())
}

/// Columns that identify the series of a row.
pub(super) fn series_columns() -> Vec<Field> {
    vec![text("name"), text("series_id"), text("service_name"), text_map("labels")]
}

/// Fixed columns and those that were found by name.
pub(super) fn with_found(columns: &SchemaRef, found: &[String]) -> SchemaRef {
    let fixed = columns.fields().iter().map(|field| (**field).clone());
    let found = found.iter().map(|name| match name.as_str() {
        INCREASE => Field::new(INCREASE, DataType::Float64, true),
        _ => text(name),
    });
    Arc::new(Schema::new(fixed.chain(found).collect::<Vec<_>>()))
}
