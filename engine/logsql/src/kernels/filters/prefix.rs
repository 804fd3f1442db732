//! `pre*`: the text stands at a word border at its beginning; its end is free.

use memchr::memmem::Finder;
use quiver_types::logs::{MatchHints, MatcherForm, ValueMatcher, word_at, word_before};

use super::hints::words_of;
use super::matcher_form::form;
use super::phrase::next_start;

/// A prefix of words. The empty prefix matches every value that is not empty.
#[derive(Debug, Clone)]
pub struct Prefix {
    text: String,
    finder: Finder<'static>,
    begins_word: bool,
}

impl Prefix {
    /// Makes the filter.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let finder = Finder::new(text.as_bytes()).into_owned();
        let begins_word = word_at(&text, 0);
        Self { text, finder, begins_word }
    }

    /// What it looks for.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

impl ValueMatcher for Prefix {
    fn matches(&self, value: &str) -> bool {
        if self.text.is_empty() {
            return !value.is_empty();
        }
        let mut from = 0;
        while let Some(found) = self.finder.find(&value.as_bytes()[from..]) {
            let at = from + found;
            if !(self.begins_word && word_before(value, at)) {
                return true;
            }
            from = next_start(value, at, self.begins_word);
        }
        false
    }

    fn hints(&self) -> MatchHints {
        if self.text.is_empty() {
            return MatchHints { present: true, ..MatchHints::default() };
        }
        // The last word goes on in the value, unless the prefix ends after it.
        let mut end = self.text.len();
        while word_before(&self.text, end) {
            end -= self.text[..end].chars().next_back().map_or(1, char::len_utf8);
        }
        let words = words_of(&self.text[..end]);
        MatchHints {
            words: if words.is_empty() { vec![] } else { vec![words] },
            substring: Some(self.text.clone()),
            ..MatchHints::default()
        }
    }

    fn describe(&self) -> String {
        format!("{:?}*", self.text)
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("prefix").texts([&self.text]))
    }
}
