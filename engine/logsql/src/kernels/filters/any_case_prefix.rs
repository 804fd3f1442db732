//! `i(pre*)`: a prefix of words without regard to case.

use quiver_types::logs::{MatcherForm, ValueMatcher};

use super::any_case_phrase::{in_lower_case, lower};
use super::matcher_form::form;
use super::prefix::Prefix;

/// A prefix, compared in small letters. Indexes keep the case, so nothing prunes.
#[derive(Debug, Clone)]
pub struct AnyCasePrefix {
    prefix: Prefix,
}

impl AnyCasePrefix {
    /// Makes the filter.
    pub fn new(text: &str) -> Self {
        Self { prefix: Prefix::new(text.chars().map(lower).collect::<String>()) }
    }
}

impl ValueMatcher for AnyCasePrefix {
    fn matches(&self, value: &str) -> bool {
        in_lower_case(value, |value| self.prefix.matches(value))
    }

    fn describe(&self) -> String {
        format!("i({})", self.prefix.describe())
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("any_case_prefix").texts([self.prefix.text()]))
    }
}
