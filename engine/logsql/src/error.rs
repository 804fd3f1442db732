//! Errors of the language: what is wrong, where in the text, and what may have been meant.

use quiver_types::Error;

/// Result of the language's own functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Makes an error about a place in the query. Positions count characters from 0.
pub(crate) fn at(query: &str, offset: usize, message: impl AsRef<str>) -> Error {
    let position = query.get(..offset).map_or(offset, |before| before.chars().count());
    Error::invalid(format!("{} at offset {position}", message.as_ref()))
}
