//! Helpers for the columns of `span_tree`, `trace_shape` and `critical_path`: their fields, and how values are shown.

use arrow::datatypes::{DataType, Field};

/// A column of texts.
pub(super) fn text(name: &str) -> Field {
    Field::new(name, DataType::Utf8View, true)
}

/// A column of whole numbers.
pub(super) fn number(name: &str) -> Field {
    Field::new(name, DataType::Int64, true)
}

/// A column of truths.
pub(super) fn truth(name: &str) -> Field {
    Field::new(name, DataType::Boolean, true)
}

/// A text that is not empty.
pub(super) fn filled(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// An id as it is shown.
pub(super) fn hex(id: u64) -> String {
    format!("{id:016x}")
}
