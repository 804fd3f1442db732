//! Access to stored columns of spans.

use arrow::array::{ArrayRef, AsArray as _};
use quiver_types::{Error, Result};

/// The error for a stored column of an unexpected type.
pub(super) fn other_type(what: &str) -> Error {
    Error::internal(format!("{what} of a scan of spans is of another type"))
}

/// A function that returns the bytes of a row.
pub(super) fn bytes<'c>(column: &'c ArrayRef) -> Result<Box<dyn Fn(usize) -> &'c [u8] + 'c>> {
    if let Some(bytes) = column.as_binary_opt::<i32>() {
        return Ok(Box::new(|row| bytes.value(row)));
    }
    let bytes = column.as_binary_view_opt().ok_or_else(|| other_type("a column of bytes"))?;
    Ok(Box::new(|row| bytes.value(row)))
}
