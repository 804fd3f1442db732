//! Errors for parts of a request, with code, position and text.

use crate::error::{QueryError, Reason};

/// The result of parsing.
pub(super) type Read<T> = Result<T, QueryError>;

/// An error for the value at a JSON pointer.
pub(super) fn err<T>(reason: Reason, pointer: impl Into<String>, message: impl Into<String>) -> Read<T> {
    Err(QueryError::new(reason, pointer, message))
}
