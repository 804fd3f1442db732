//! `i(phrase)`: a phrase without regard to case.

use std::cell::RefCell;

use quiver_types::logs::{MatcherForm, ValueMatcher};

use super::matcher_form::form;
use super::phrase::Phrase;

/// A phrase, compared in small letters. Indexes keep the case, so nothing prunes.
#[derive(Debug, Clone)]
pub struct AnyCasePhrase {
    phrase: Phrase,
}

impl AnyCasePhrase {
    /// Makes the filter.
    pub fn new(text: &str) -> Self {
        Self { phrase: Phrase::new(text.chars().map(lower).collect::<String>()) }
    }
}

/// A letter made small, one for one.
pub(super) fn lower(c: char) -> char {
    if c.is_ascii() { c.to_ascii_lowercase() } else { c.to_lowercase().next().unwrap_or(c) }
}

/// Runs a check over a value in small letters.
pub(super) fn in_lower_case(value: &str, check: impl FnOnce(&str) -> bool) -> bool {
    thread_local! {
        static BUFFER: RefCell<String> = const { RefCell::new(String::new()) };
    }
    if value.bytes().all(|b| b.is_ascii() && !b.is_ascii_uppercase()) {
        return check(value);
    }
    BUFFER.with_borrow_mut(|buffer| {
        buffer.clear();
        buffer.extend(value.chars().map(lower));
        check(buffer)
    })
}

impl ValueMatcher for AnyCasePhrase {
    fn matches(&self, value: &str) -> bool {
        in_lower_case(value, |value| self.phrase.matches(value))
    }

    fn describe(&self) -> String {
        format!("i({})", self.phrase.describe())
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("any_case_phrase").texts([self.phrase.text()]))
    }
}
