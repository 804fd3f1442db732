//! What both matcher syntaxes share: errors, making a matcher, and reserved characters.

use quiver_types::matcher::Patterns;
use quiver_types::{MatchOp, Matcher};

/// An error in a list of matchers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct MatcherError {
    /// Column in characters from 1 at which the newer parser stopped; 0: unknown.
    pub column: u32,
    /// The reason, in Alertmanager's words.
    pub message: String,
}

impl MatcherError {
    pub(super) fn new(column: usize, message: impl Into<String>) -> Self {
        Self { column: column as u32, message: message.into() }
    }
}

/// Makes a matcher; a regular expression is anchored.
///
/// # Errors
/// The regular expression does not compile, or is too large.
pub fn matcher(name: impl Into<String>, op: MatchOp, value: impl Into<String>) -> Result<Matcher, MatcherError> {
    matcher_among(name, op, value, &mut Patterns::default())
}

/// Makes one of several whose patterns are bounded together.
///
/// # Errors
/// As [`matcher`]; also where all patterns are too large together.
pub fn matcher_among(
    name: impl Into<String>,
    op: MatchOp,
    value: impl Into<String>,
    patterns: &mut Patterns,
) -> Result<Matcher, MatcherError> {
    patterns.matcher(name, op, value).map_err(|e| MatcherError::new(0, e.to_string()))
}

/// Whether a character is reserved in matchers.
pub(super) fn is_reserved(c: char) -> bool {
    c.is_whitespace() || "{}!=~,\\\"'`".contains(c)
}
