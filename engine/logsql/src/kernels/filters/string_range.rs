//! `string_range(a, b)`: by bytes, the end excluded.

use quiver_types::logs::{MatcherForm, ValueMatcher};

use super::matcher_form::form;

/// A range of texts: `min <= value < max`.
#[derive(Debug, Clone)]
pub struct StringRange {
    min: String,
    max: String,
}

impl StringRange {
    /// Makes the filter.
    pub fn new(min: impl Into<String>, max: impl Into<String>) -> Self {
        Self { min: min.into(), max: max.into() }
    }
}

impl ValueMatcher for StringRange {
    fn matches(&self, value: &str) -> bool {
        value >= self.min.as_str() && value < self.max.as_str()
    }

    fn describe(&self) -> String {
        format!("string_range({:?},{:?})", self.min, self.max)
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("string_range").texts([&self.min, &self.max]))
    }
}
