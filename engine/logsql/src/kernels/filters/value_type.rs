//! `value_type(t)`: how a value could be held.

use quiver_types::logs::{MatcherForm, ValueMatcher};

use super::matcher_form::form;
use crate::kernels::values::{parse_float, parse_i64, parse_ipv4, parse_rfc3339, parse_u64};

/// The kind of a value as its text shows it: `uint64`, `int64`, `float64`, `ipv4`, `iso8601`, else `string`. Which
/// columns are held how is the engine's affair; other names match nothing.
#[derive(Debug, Clone)]
pub struct ValueType {
    name: String,
}

impl ValueType {
    /// Makes the filter.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }
}

impl ValueMatcher for ValueType {
    fn matches(&self, value: &str) -> bool {
        if value.is_empty() {
            return false;
        }
        let kind = if parse_u64(value).is_some() {
            "uint64"
        } else if parse_i64(value).is_some() {
            "int64"
        } else if parse_float(value).is_some() {
            "float64"
        } else if parse_ipv4(value).is_some() {
            "ipv4"
        } else if parse_rfc3339(value).is_some() {
            "iso8601"
        } else {
            "string"
        };
        kind == self.name
    }

    fn describe(&self) -> String {
        format!("value_type({:?})", self.name)
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("value_type").texts([&self.name]))
    }
}
