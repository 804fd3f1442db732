//! What both syntaxes of matchers share: their errors, making a matcher, signs with a meaning of their own.

use quiver_types::{MatchOp, Matcher};

/// A text that is no list of matchers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct MatcherError {
    /// Column from 1 in characters where the younger parser stopped; 0: unknown.
    pub column: u32,
    /// The reason, as Alertmanager tells it.
    pub message: String,
}

impl MatcherError {
    pub(super) fn new(column: usize, message: impl Into<String>) -> Self {
        Self { column: column as u32, message: message.into() }
    }
}

/// Makes a matcher; a pattern is anchored.
///
/// # Errors
/// The pattern does not compile, or is too large.
pub fn matcher(name: impl Into<String>, op: MatchOp, value: impl Into<String>) -> Result<Matcher, MatcherError> {
    Matcher::new(name, op, value).map_err(|e| MatcherError::new(0, e.to_string()))
}

/// Says whether a character has a meaning of its own in matchers.
pub(super) fn is_reserved(c: char) -> bool {
    c.is_whitespace() || "{}!=~,\\\"'`".contains(c)
}
