//! `contains_any(...)`: any of the phrases.

use foldhash::{HashMap, HashMapExt, HashSet};
use quiver_types::logs::{MatchHints, MatcherForm, ValueMatcher, words};

use super::hints::{alternatives, words_of};
use super::matcher_form::{describe_list, form};
use super::phrase::{Phrase, goes_on};

/// Any of a list of phrases; of an empty list none. The empty phrase is in every value.
#[derive(Debug, Clone)]
pub struct ContainsAny {
    values: Vec<String>,
    /// Whether the empty phrase is one of them.
    all: bool,
    /// Phrases to look for one by one.
    phrases: Vec<Phrase>,
    /// Phrases, when there are many, by the longest word in each: only those are looked for whose word a value has.
    by_word: HashMap<String, Vec<Phrase>>,
    /// Phrases of one word each, when there are many: the words of a value are looked up instead.
    single: HashSet<String>,
}

impl ContainsAny {
    /// Makes the filter.
    pub fn new(values: Vec<String>) -> Self {
        let is_word = |v: &&String| words(v).next().is_some_and(|w| w.len() == v.len());
        let mut single = HashSet::default();
        if values.iter().filter(is_word).count() > 8 {
            single.extend(values.iter().filter(is_word).cloned());
        }
        let (mut phrases, mut by_word) = (Vec::new(), HashMap::<String, Vec<Phrase>>::new());
        let many = values.len() - single.len() > 8;
        for value in values.iter().filter(|v| !single.contains(*v)) {
            let phrase = Phrase::new(value.as_str());
            match words(value).max_by_key(|word| word.len()).filter(|_| many) {
                Some(word) => by_word.entry(word.to_owned()).or_default().push(phrase),
                None => phrases.push(phrase),
            }
        }
        Self { all: values.iter().any(String::is_empty), values, phrases, by_word, single }
    }
}

impl ValueMatcher for ContainsAny {
    fn matches(&self, value: &str) -> bool {
        // Work that was told to stop ends as if a phrase was there.
        let any = |phrases: &[Phrase]| phrases.iter().any(|p| !goes_on(value) || p.matches(value));
        self.all
            || (!self.single.is_empty() && words(value).any(|w| self.single.contains(w)))
            || (!self.by_word.is_empty() && words(value).any(|w| self.by_word.get(w).is_some_and(|all| any(all))))
            || any(&self.phrases)
    }

    fn hints(&self) -> MatchHints {
        MatchHints { words: alternatives(self.values.iter().map(|v| words_of(v)).collect()), ..MatchHints::default() }
    }

    fn describe(&self) -> String {
        describe_list("contains_any", &self.values)
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("contains_any").texts(&self.values))
    }
}
