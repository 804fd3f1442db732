//! Columns of the tables over metrics.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use crate::tables::cells::{text, text_map};

/// How names of columns begin that are labels.
const LABEL_PREFIX: &str = "labels.";

/// Column of samples: how much a counter rose since the sample before.
pub(super) const INCREASE: &str = "increase";
/// How old the sample before may be, in ms.
pub(super) const BEFORE_MS: i64 = 3_600_000;

/// The label behind a name of a column.
pub(super) fn label_of(column: &str) -> Option<&str> {
    column.strip_prefix(LABEL_PREFIX).filter(|label| !label.is_empty())
}

/// Columns that say of which series a row is.
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
