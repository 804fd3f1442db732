//! `=x`: the whole value.

use quiver_types::logs::{MatchHints, MatcherForm, ValueMatcher};

use super::hints::exact_hints;
use super::matcher_form::form;

/// Equality of texts. The empty text matches a missing field.
#[derive(Debug, Clone)]
pub struct Exact {
    text: String,
}

impl Exact {
    /// Makes the filter.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }
}

impl ValueMatcher for Exact {
    fn matches(&self, value: &str) -> bool {
        value == self.text
    }

    fn hints(&self) -> MatchHints {
        exact_hints([self.text.as_str()].into_iter())
    }

    fn describe(&self) -> String {
        format!("={:?}", self.text)
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("exact").texts([&self.text]))
    }
}
