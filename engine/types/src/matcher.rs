//! Label matchers.

use std::fmt;

use crate::{Error, Result};

/// How a matcher compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatchOp {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`, anchored on both sides
    Regex,
    /// `!~`, anchored on both sides
    NotRegex,
}

impl MatchOp {
    /// Gives the operator as written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Regex => "=~",
            Self::NotRegex => "!~",
        }
    }
}

/// A matcher: label name, operator, value. A missing label has the empty value.
#[derive(Clone)]
pub struct Matcher {
    /// Label name.
    pub name: String,
    /// Operator.
    pub op: MatchOp,
    /// Text or pattern.
    pub value: String,
    regex: Option<regex::Regex>,
}

/// Largest compiled regular expression, in bytes (`identity-and-access` section 7).
pub const REGEX_BYTES_MAX: usize = 1 << 20;

impl Matcher {
    /// Makes a matcher; compiles a pattern as Prometheus does: anchored, dot matches new lines.
    ///
    /// # Errors
    /// Invalid: the pattern is not a valid or is too large a regular expression.
    pub fn new(name: impl Into<String>, op: MatchOp, value: impl Into<String>) -> Result<Self> {
        let (name, value) = (name.into(), value.into());
        let regex = match op {
            MatchOp::Equal | MatchOp::NotEqual => None,
            MatchOp::Regex | MatchOp::NotRegex => Some(
                regex::RegexBuilder::new(&format!("^(?s:{value})$"))
                    .size_limit(REGEX_BYTES_MAX)
                    .build()
                    .map_err(|e| Error::invalid(format!("invalid regular expression `{value}`: {e}")))?,
            ),
        };
        Ok(Self { name, op, value, regex })
    }

    /// Makes an equality matcher.
    pub fn equal(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), op: MatchOp::Equal, value: value.into(), regex: None }
    }

    /// Says whether a value matches; the empty text stands for a missing label.
    pub fn matches(&self, value: &str) -> bool {
        match (self.op, &self.regex) {
            (MatchOp::Equal, _) => value == self.value,
            (MatchOp::NotEqual, _) => value != self.value,
            (MatchOp::Regex, Some(r)) => r.is_match(value),
            (MatchOp::NotRegex, Some(r)) => !r.is_match(value),
            (MatchOp::Regex | MatchOp::NotRegex, None) => unreachable!("a pattern is compiled at construction"),
        }
    }

    /// Says whether a missing label matches.
    pub fn matches_empty(&self) -> bool {
        self.matches("")
    }
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.op, &self.value) == (&other.name, other.op, &other.value)
    }
}

impl Eq for Matcher {}

impl std::hash::Hash for Matcher {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.name, self.op, &self.value).hash(state);
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{:?}", self.name, self.op.as_str(), self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_anchored() {
        let m = Matcher::new("a", MatchOp::Regex, "b|c.").expect("valid");
        assert!(m.matches("b") && m.matches("c\n") && !m.matches("ab") && !m.matches(""));
        assert!(Matcher::new("a", MatchOp::NotRegex, "b").expect("valid").matches_empty());
        assert!(Matcher::new("a", MatchOp::Regex, "(").is_err());
        assert!(Matcher::new("a", MatchOp::Regex, "((x{100}){100}){100}").is_err(), "too large");
    }
}
