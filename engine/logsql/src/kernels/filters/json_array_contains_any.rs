//! `json_array_contains_any(a, b)`: the value is a JSON array and one of its items is one of a list.

use quiver_types::logs::{MatcherForm, ValueMatcher};

use super::in_list::InList;
use super::matcher_form::{describe_list, form};
use crate::row_functions::json::plain_items;

/// An item of a JSON array as text: strings without quotes, numbers, `true`, `false` and `null` as they are written;
/// arrays and objects in it are none. Items may be written with escapes, so words do not prune.
#[derive(Debug, Clone)]
pub struct JsonArrayContainsAny {
    list: InList,
}

impl JsonArrayContainsAny {
    /// Makes the filter.
    pub fn new(values: Vec<String>) -> Self {
        Self { list: InList::new(values) }
    }
}

impl ValueMatcher for JsonArrayContainsAny {
    fn matches(&self, value: &str) -> bool {
        let trimmed = value.trim_ascii_start();
        trimmed.starts_with('[') && plain_items(trimmed).is_some_and(|items| items.iter().any(|i| self.list.matches(i)))
    }

    fn describe(&self) -> String {
        describe_list("json_array_contains_any", self.list.values())
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("json_array_contains_any").texts(self.list.values()))
    }
}
