//! `word`, `"a phrase"`: the text stands where its ends fall on word borders.

use memchr::memmem::Finder;
use quiver_types::cancellation;
use quiver_types::logs::{MatchHints, MatcherForm, ValueMatcher, is_word_char, word_at, word_before};

use super::hints::words_of;
use super::matcher_form::form;

/// Bytes that are looked through in the time of a step of [`cancellation::goes_on`], and steps that it takes to begin.
const BYTES_OF_STEP: usize = 16;
const STEPS_OF_LOOK: usize = 8;

/// Says that one of a list of phrases is about to be looked for, and gives whether to do it: a list has a hundred thousand
/// of them in a query of 1 MiB, and is put to each value of a block.
pub(super) fn goes_on(value: &str) -> bool {
    cancellation::goes_on(value.len() / BYTES_OF_STEP + STEPS_OF_LOOK)
}

/// A phrase. The empty phrase matches the empty value only.
#[derive(Debug, Clone)]
pub struct Phrase {
    text: String,
    finder: Finder<'static>,
    begins_word: bool,
    ends_word: bool,
}

impl Phrase {
    /// Makes the filter.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let finder = Finder::new(text.as_bytes()).into_owned();
        let (begins_word, ends_word) = (word_at(&text, 0), word_before(&text, text.len()));
        Self { text, finder, begins_word, ends_word }
    }

    /// Makes the filter of a phrase; the empty one matches missing fields alone.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Gives the first place of the phrase in a value; the empty phrase stands at the beginning of every value.
    pub fn find(&self, value: &str) -> Option<usize> {
        let mut from = 0;
        while let Some(found) = self.finder.find(&value.as_bytes()[from..]) {
            let at = from + found;
            let end = at + self.text.len();
            let goes_on = self.begins_word && word_before(value, at) || self.ends_word && word_at(value, end);
            if !goes_on {
                return Some(at);
            }
            from = next_start(value, at, self.begins_word);
        }
        None
    }
}

/// Where to look on after a place that has no border: a text that begins a word can only begin after the word that
/// stands there, which keeps long runs of letters from being compared again at each of them.
pub(super) fn next_start(value: &str, at: usize, begins_word: bool) -> usize {
    if !begins_word {
        return at + 1;
    }
    let run: usize = value[at..].chars().take_while(|c| is_word_char(*c)).map(char::len_utf8).sum();
    at + run.max(1)
}

impl ValueMatcher for Phrase {
    fn matches(&self, value: &str) -> bool {
        if self.text.is_empty() { value.is_empty() } else { self.find(value).is_some() }
    }

    fn hints(&self) -> MatchHints {
        if self.text.is_empty() {
            return MatchHints::default();
        }
        // A word within the phrase is a whole one, at the ends too.
        let words = words_of(&self.text);
        MatchHints {
            words: if words.is_empty() { vec![] } else { vec![words] },
            substring: Some(self.text.clone()),
            ..MatchHints::default()
        }
    }

    fn describe(&self) -> String {
        format!("{:?}", self.text)
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("phrase").texts([&self.text]))
    }
}
