//! Filters: one file each. A matcher of one value says what prunes ([`MatchHints`]); hints never lose a match.

mod any_case_phrase;
mod any_case_prefix;
mod common_case;
mod contains_all;
mod contains_any;
mod exact;
mod exact_prefix;
mod field_compare;
mod in_list;
mod ipv4_range;
mod ipv6_range;
mod json_array_contains_any;
mod len_range;
mod pattern_match;
mod phrase;
mod prefix;
mod range;
mod regexp;
mod sequence;
mod string_range;
mod substring;
mod text_compare;
mod value_type;
mod written;

pub use any_case_phrase::AnyCasePhrase;
pub use any_case_prefix::AnyCasePrefix;
pub use common_case::{ContainsCommonCase, EqualsCommonCase};
pub use contains_all::ContainsAll;
pub use contains_any::ContainsAny;
pub use exact::Exact;
pub use exact_prefix::ExactPrefix;
pub use field_compare::{FieldCompare, FieldOp};
pub use in_list::InList;
pub use ipv4_range::Ipv4Range;
pub use ipv6_range::Ipv6Range;
pub use json_array_contains_any::JsonArrayContainsAny;
pub use len_range::LenRange;
pub use pattern_match::{PatternMatch, PatternPlace};
pub use phrase::Phrase;
pub use prefix::Prefix;
pub use range::Range;
pub use regexp::Regexp;
pub use sequence::Sequence;
pub use string_range::StringRange;
pub use substring::Substring;
pub use text_compare::{TextCompare, TextOp};
pub use value_type::ValueType;
pub(crate) use written::MATCHERS;

use quiver_types::logs::{MatchHints, MatcherForm, words};

/// So many alternatives of words are worth asking an index for.
const ALTERNATIVES_MAX: usize = 64;

/// So many whole values are worth looking up.
const EXACT_MAX: usize = 10_000;

/// The words of a text, each once.
fn words_of(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for word in words(text) {
        if !all.iter().any(|w| w == word) {
            all.push(word.to_owned());
        }
    }
    all
}

/// Alternatives of words; nothing when there are too many, or when one of them has no word.
fn alternatives(lists: Vec<Vec<String>>) -> Vec<Vec<String>> {
    if lists.len() > ALTERNATIVES_MAX || lists.iter().any(Vec::is_empty) { Vec::new() } else { lists }
}

/// Hints for values that are one of these as a whole.
fn exact_hints<'a>(values: impl ExactSizeIterator<Item = &'a str> + Clone) -> MatchHints {
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

/// The beginning of what a matcher was made of.
fn form(kind: &str) -> MatcherForm {
    MatcherForm::new(written::OF, kind)
}

/// Writes `name("a","b")`, as plans show a filter of a list.
fn describe_list(name: &str, values: &[impl AsRef<str>]) -> String {
    let list: Vec<String> = values.iter().map(|v| format!("{:?}", v.as_ref())).collect();
    format!("{name}({})", list.join(","))
}

#[cfg(test)]
mod tests;
