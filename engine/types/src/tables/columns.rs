//! Columns that several tables share: times, and maps of texts.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};

/// Makes a time column in milliseconds UTC.
pub(crate) fn millis(name: &str, nullable: bool) -> Field {
    Field::new(name, DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), nullable)
}

/// Makes a time column in nanoseconds UTC, without NULL.
pub fn nanos(name: &str) -> Field {
    Field::new(name, DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())), false)
}

/// The type of a map from text to text, with sorted keys and without NULL.
pub fn map() -> DataType {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    let entries = DataType::Struct(vec![text("key"), text("value")].into());
    DataType::Map(Arc::new(Field::new("entries", entries, false)), true)
}
