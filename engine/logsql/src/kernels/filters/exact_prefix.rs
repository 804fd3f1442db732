//! `=x*`: the beginning of the value.

use quiver_types::logs::{MatchHints, MatcherForm, ValueMatcher};

use super::matcher_form::form;
use super::substring::inner_words;

/// The beginning of a value. The empty one matches every value, a missing field too.
#[derive(Debug, Clone)]
pub struct ExactPrefix {
    text: String,
}

impl ExactPrefix {
    /// Makes the filter.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }
}

impl ValueMatcher for ExactPrefix {
    fn matches(&self, value: &str) -> bool {
        value.starts_with(&self.text)
    }

    fn hints(&self) -> MatchHints {
        if self.text.is_empty() {
            return MatchHints::default();
        }
        let words = inner_words(&self.text, true, false);
        MatchHints {
            words: if words.is_empty() { vec![] } else { vec![words] },
            substring: Some(self.text.clone()),
            starts: Some(self.text.clone()),
            ..MatchHints::default()
        }
    }

    fn describe(&self) -> String {
        format!("={:?}*", self.text)
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("exact_prefix").texts([&self.text]))
    }
}
