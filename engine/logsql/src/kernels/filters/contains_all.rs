//! `contains_all(...)`: all of the phrases.

use quiver_types::logs::{MatchHints, MatcherForm, ValueMatcher, words};

use super::hints::words_once;
use super::matcher_form::{describe_list, form};
use super::phrase::{Phrase, goes_on};

/// All of a list of phrases; an empty phrase is no condition, so an empty list matches everything.
#[derive(Debug, Clone)]
pub struct ContainsAll {
    phrases: Vec<Phrase>,
}

impl ContainsAll {
    /// Makes the filter.
    pub fn new(values: Vec<String>) -> Self {
        Self { phrases: values.into_iter().filter(|v| !v.is_empty()).map(Phrase::new).collect() }
    }
}

impl ValueMatcher for ContainsAll {
    fn matches(&self, value: &str) -> bool {
        self.phrases.iter().all(|p| goes_on(value) && p.find(value).is_some())
    }

    fn hints(&self) -> MatchHints {
        hints_of_all(&self.phrases)
    }

    fn describe(&self) -> String {
        describe_list("contains_all", &self.phrases.iter().map(Phrase::text).collect::<Vec<_>>())
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("contains_all").texts(self.phrases.iter().map(Phrase::text)))
    }
}

/// Hints for values that hold all of some phrases that are not empty.
pub(super) fn hints_of_all(phrases: &[Phrase]) -> MatchHints {
    let words = words_once(phrases.iter().flat_map(|phrase| words(phrase.text())));
    MatchHints {
        words: if words.is_empty() { vec![] } else { vec![words] },
        substring: phrases.iter().map(Phrase::text).max_by_key(|t| t.len()).map(str::to_owned),
        ..MatchHints::default()
    }
}
