//! `seq(a, b)`: phrases in this order, without overlap.

use quiver_types::logs::{MatchHints, MatcherForm, ValueMatcher};

use super::contains_all::hints_of_all;
use super::matcher_form::{describe_list, form};
use super::phrase::{Phrase, goes_on};

/// Phrases one after the other. Each is looked for in what follows the one before, as if a value began there.
#[derive(Debug, Clone)]
pub struct Sequence {
    phrases: Vec<Phrase>,
}

impl Sequence {
    /// Makes the filter.
    pub fn new(values: Vec<String>) -> Self {
        Self { phrases: values.into_iter().filter(|v| !v.is_empty()).map(Phrase::new).collect() }
    }
}

impl ValueMatcher for Sequence {
    fn matches(&self, value: &str) -> bool {
        let mut rest = value;
        self.phrases.iter().all(|phrase| {
            let found = goes_on(rest).then(|| phrase.find(rest)).flatten();
            if let Some(at) = found {
                rest = &rest[at + phrase.text().len()..];
            }
            found.is_some()
        })
    }

    fn hints(&self) -> MatchHints {
        // What is cut off before a phrase ends at a border, so its words are whole in the value too.
        hints_of_all(&self.phrases)
    }

    fn describe(&self) -> String {
        describe_list("seq", &self.phrases.iter().map(Phrase::text).collect::<Vec<_>>())
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("seq").texts(self.phrases.iter().map(Phrase::text)))
    }
}
