//! `in(a, b)`: the value is one of a list.

use foldhash::HashSet;
use quiver_types::logs::{MatchHints, MatcherForm, ValueMatcher};

use super::hints::exact_hints;
use super::matcher_form::{describe_list, form};

/// Membership in a list; of no value in an empty one.
#[derive(Debug, Clone)]
pub struct InList {
    /// Ascending, each once.
    values: Vec<String>,
    /// The values again, when there are many; else empty.
    set: HashSet<String>,
}

impl InList {
    /// Makes the filter.
    pub fn new(mut values: Vec<String>) -> Self {
        values.sort_unstable();
        values.dedup();
        let set = if values.len() > 8 { values.iter().cloned().collect() } else { HashSet::default() };
        Self { values, set }
    }

    /// The list, ascending.
    pub fn values(&self) -> &[String] {
        &self.values
    }
}

impl ValueMatcher for InList {
    fn matches(&self, value: &str) -> bool {
        if self.set.is_empty() { self.values.iter().any(|v| v == value) } else { self.set.contains(value) }
    }

    fn hints(&self) -> MatchHints {
        exact_hints(self.values.iter().map(String::as_str))
    }

    fn describe(&self) -> String {
        describe_list("in", &self.values)
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("in").texts(&self.values))
    }
}
