//! Stored columns of spans, as they are read.

use arrow::array::{ArrayRef, AsArray as _};
use quiver_types::{Error, Result};

/// Says that a stored column is none of those that were asked for.
pub(super) fn other_type(what: &str) -> Error {
    Error::internal(format!("{what} of a scan of spans is of another type"))
}

/// The bytes of a row of a column of bytes.
pub(super) fn bytes<'c>(column: &'c ArrayRef) -> Result<Box<dyn Fn(usize) -> &'c [u8] + 'c>> {
    if let Some(bytes) = column.as_binary_opt::<i32>() {
        return Ok(Box::new(|row| bytes.value(row)));
    }
    let bytes = column.as_binary_view_opt().ok_or_else(|| other_type("a column of bytes"))?;
    Ok(Box::new(|row| bytes.value(row)))
}
