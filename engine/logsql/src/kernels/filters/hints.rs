//! Hints of words and whole values, as far as an index is worth asking for them.

use quiver_types::logs::{MatchHints, words};

/// So many alternatives of words are worth asking an index for.
pub(super) const ALTERNATIVES_MAX: usize = 64;

/// So many words of one alternative are worth asking an index for. Who has more has no need of the others: fewer words
/// only choose more, and a query of 1 MiB has 200,000 of them, which would be compared one with another for each block.
pub(super) const WORDS_MAX: usize = 64;

/// So many whole values are worth looking up.
pub(super) const EXACT_MAX: usize = 10_000;

/// The words of a text, each once; the first [`WORDS_MAX`] of them.
pub(super) fn words_of(text: &str) -> Vec<String> {
    words_once(words(text))
}

/// Words, each once; the first [`WORDS_MAX`] of them.
pub(super) fn words_once<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for word in words {
        if !all.iter().any(|w| w == word) {
            all.push(word.to_owned());
            if all.len() == WORDS_MAX {
                break;
            }
        }
    }
    all
}

/// Alternatives of words; nothing when there are too many, or when one of them has no word.
pub(super) fn alternatives(lists: Vec<Vec<String>>) -> Vec<Vec<String>> {
    if lists.len() > ALTERNATIVES_MAX || lists.iter().any(Vec::is_empty) { Vec::new() } else { lists }
}

/// Hints for values that are one of these as a whole.
pub(super) fn exact_hints<'a>(values: impl ExactSizeIterator<Item = &'a str> + Clone) -> MatchHints {
    if values.clone().any(str::is_empty) {
        // A missing field matches: nothing can be pruned.
        return MatchHints::default();
    }
    MatchHints {
        words: if values.len() <= ALTERNATIVES_MAX {
            alternatives(values.clone().map(words_of).collect())
        } else {
            vec![]
        },
        exact: (values.len() <= EXACT_MAX).then(|| values.map(str::to_owned).collect()),
        ..MatchHints::default()
    }
}
