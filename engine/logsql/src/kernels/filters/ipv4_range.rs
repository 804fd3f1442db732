//! `ipv4_range(a, b)`.

use quiver_types::logs::{MatchHints, MatcherForm, NumberRange, ValueMatcher};

use super::matcher_form::form;
use crate::kernels::values::{parse_ipv4, push_ipv4};

/// A range of IPv4 addresses, both ends included; the whole value must be an address.
#[derive(Debug, Clone, Copy)]
pub struct Ipv4Range {
    min: u32,
    max: u32,
}

impl Ipv4Range {
    /// Makes the filter.
    pub fn new(min: u32, max: u32) -> Self {
        Self { min, max }
    }
}

impl ValueMatcher for Ipv4Range {
    fn matches(&self, value: &str) -> bool {
        parse_ipv4(value).is_some_and(|a| a >= self.min && a <= self.max)
    }

    fn hints(&self) -> MatchHints {
        let number = NumberRange { min: f64::from(self.min), max: f64::from(self.max) };
        MatchHints { number: Some(number), ..MatchHints::default() }
    }

    fn describe(&self) -> String {
        let mut out = String::from("ipv4_range(");
        push_ipv4(&mut out, self.min);
        out.push(',');
        push_ipv4(&mut out, self.max);
        out.push(')');
        out
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("ipv4_range").numbers([u64::from(self.min), u64::from(self.max)]))
    }
}
