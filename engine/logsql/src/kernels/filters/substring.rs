//! `*sub*`: the text stands anywhere.

use memchr::memmem::Finder;
use quiver_types::logs::{MatchHints, MatcherForm, ValueMatcher, word_at, word_before};

use super::hints::words_of;
use super::matcher_form::form;

/// A substring. The empty one matches every value that is not empty.
#[derive(Debug, Clone)]
pub struct Substring {
    text: String,
    finder: Finder<'static>,
}

impl Substring {
    /// Makes the filter.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let finder = Finder::new(text.as_bytes()).into_owned();
        Self { text, finder }
    }
}

/// The words of a piece of a value that are whole there: not the first and the last where the piece begins and ends
/// with them, unless the value does.
pub(super) fn inner_words(text: &str, at_begin: bool, at_end: bool) -> Vec<String> {
    let (mut start, mut end) = (0, text.len());
    if !at_begin {
        while start < end && word_at(text, start) {
            start += text[start..].chars().next().map_or(1, char::len_utf8);
        }
    }
    if !at_end {
        while end > start && word_before(text, end) {
            end -= text[..end].chars().next_back().map_or(1, char::len_utf8);
        }
    }
    words_of(&text[start..end])
}

impl ValueMatcher for Substring {
    fn matches(&self, value: &str) -> bool {
        !value.is_empty() && self.finder.find(value.as_bytes()).is_some()
    }

    fn hints(&self) -> MatchHints {
        if self.text.is_empty() {
            return MatchHints::default();
        }
        let words = inner_words(&self.text, false, false);
        MatchHints {
            words: if words.is_empty() { vec![] } else { vec![words] },
            substring: Some(self.text.clone()),
            ..MatchHints::default()
        }
    }

    fn describe(&self) -> String {
        format!("*{:?}*", self.text)
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("substring").texts([&self.text]))
    }
}
