//! `len_range(a, b)`: the number of characters.

use quiver_types::logs::{MatcherForm, ValueMatcher};

use super::matcher_form::form;

/// A range of lengths in characters, both ends included. A missing field counts as 0.
#[derive(Debug, Clone, Copy)]
pub struct LenRange {
    min: u64,
    max: u64,
}

impl LenRange {
    /// Makes the filter; `u64::MAX` for `inf`.
    pub fn new(min: u64, max: u64) -> Self {
        Self { min, max }
    }
}

impl ValueMatcher for LenRange {
    fn matches(&self, value: &str) -> bool {
        let bytes = value.len() as u64;
        // A character has one to four bytes.
        if bytes < self.min || bytes.div_ceil(4) > self.max {
            return false;
        }
        let length = value.chars().count() as u64;
        length >= self.min && length <= self.max
    }

    fn describe(&self) -> String {
        format!("len_range({},{})", self.min, self.max)
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("len_range").numbers([self.min, self.max]))
    }
}
