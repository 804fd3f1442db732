//! `pattern_match("..")`, `pattern_match_full`, `pattern_match_prefix`, `pattern_match_suffix`.

use quiver_types::logs::{MatchHints, MatcherForm, ValueMatcher};

use super::matcher_form::form;
use super::substring::inner_words;
use crate::kernels::pattern::{Pattern, Piece};

pub use crate::kernels::pattern::PatternPlace;

/// A pattern at a place of the value.
#[derive(Debug, Clone)]
pub struct PatternMatch {
    text: String,
    place: PatternPlace,
    pattern: Pattern,
}

impl PatternMatch {
    /// Makes the filter.
    pub fn new(place: PatternPlace, text: impl Into<String>) -> Self {
        let text = text.into();
        let pattern = Pattern::new(&text);
        Self { text, place, pattern }
    }
}

impl ValueMatcher for PatternMatch {
    fn matches(&self, value: &str) -> bool {
        self.pattern.matches(value, self.place)
    }

    fn hints(&self) -> MatchHints {
        if self.pattern.pieces().is_empty() {
            return MatchHints::default();
        }
        let texts: Vec<&str> = self
            .pattern
            .pieces()
            .iter()
            .filter_map(|p| if let Piece::Text(text) = p { Some(text.as_str()) } else { None })
            .collect();
        let mut words: Vec<String> = texts.iter().flat_map(|t| inner_words(t, false, false)).collect();
        words.sort_unstable();
        words.dedup();
        MatchHints {
            words: if words.is_empty() { vec![] } else { vec![words] },
            substring: texts.iter().max_by_key(|t| t.len()).map(|t| (*t).to_owned()),
            ..MatchHints::default()
        }
    }

    fn describe(&self) -> String {
        let name = match self.place {
            PatternPlace::Any => "pattern_match",
            PatternPlace::Full => "pattern_match_full",
            PatternPlace::Prefix => "pattern_match_prefix",
            PatternPlace::Suffix => "pattern_match_suffix",
        };
        format!("{name}({:?})", self.text)
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("pattern_match").numbers([self.place as u64]).texts([&self.text]))
    }
}
