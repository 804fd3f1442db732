//! `range[a, b)` and comparisons with a number.

use quiver_types::logs::{MatchHints, MatcherForm, NumberRange, ValueMatcher};

use super::matcher_form::form;
use crate::kernels::values::{float_text, numeric};

/// A range of numbers, both ends included. Values that are no numbers never match; a duration, a size, an address or a
/// time counts as its number.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    min: f64,
    max: f64,
}

impl Range {
    /// Makes the filter. For an end that is excluded pass the next number within (`f64::next_up`, `f64::next_down`).
    pub fn new(min: f64, max: f64) -> Self {
        Self { min, max }
    }

    /// Makes the filter from ends of either kind.
    pub fn between(min: std::ops::Bound<f64>, max: std::ops::Bound<f64>) -> Self {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let min = match min {
            Included(n) => n,
            Excluded(n) => n.next_up(),
            Unbounded => f64::NEG_INFINITY,
        };
        let max = match max {
            Included(n) => n,
            Excluded(n) => n.next_down(),
            Unbounded => f64::INFINITY,
        };
        Self { min, max }
    }
}

impl ValueMatcher for Range {
    fn matches(&self, value: &str) -> bool {
        numeric(value).is_some_and(|n| n >= self.min && n <= self.max)
    }

    fn hints(&self) -> MatchHints {
        let number = Some(NumberRange { min: self.min, max: self.max });
        MatchHints { number, number_decides: true, ..MatchHints::default() }
    }

    fn describe(&self) -> String {
        format!("range[{}, {}]", float_text(self.min), float_text(self.max))
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("range").numbers([self.min.to_bits(), self.max.to_bits()]))
    }
}
