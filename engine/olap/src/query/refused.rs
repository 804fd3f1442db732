//! How what is read of a request is refused: with its sub-code, its place and a text.

use crate::error::{QueryError, Reason};

/// What was read, or why it was not.
pub(super) type Read<T> = Result<T, QueryError>;

/// Refuses what stands at a pointer.
pub(super) fn err<T>(reason: Reason, pointer: impl Into<String>, message: impl Into<String>) -> Read<T> {
    Err(QueryError::new(reason, pointer, message))
}
