//! What is wrong with a query, and where.

use std::fmt;

/// A text that is no query, or one that is not supported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceqlError {
    /// Line of the query, from 1.
    pub line: usize,
    /// Character of the line, from 1.
    pub column: usize,
    /// What is wrong.
    pub reason: String,
}

impl TraceqlError {
    /// Gives the one of two that stands later in the text.
    pub(super) fn or_later(self, other: Self) -> Self {
        if (other.line, other.column) > (self.line, self.column) { other } else { self }
    }
}

impl fmt::Display for TraceqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "parse error at line {}, col {}: {}", self.line, self.column, self.reason)
    }
}
