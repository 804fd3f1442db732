//! `ipv6_range(a, b)`.

use std::net::Ipv6Addr;

use quiver_types::logs::{MatcherForm, ValueMatcher};

use super::matcher_form::form;
use crate::kernels::values::parse_ipv6;

/// A range of IPv6 addresses, both ends included; the whole value must be an address; IPv4 counts as its mapped form.
#[derive(Debug, Clone, Copy)]
pub struct Ipv6Range {
    min: u128,
    max: u128,
}

impl Ipv6Range {
    /// Makes the filter.
    pub fn new(min: u128, max: u128) -> Self {
        Self { min, max }
    }
}

impl ValueMatcher for Ipv6Range {
    fn matches(&self, value: &str) -> bool {
        parse_ipv6(value).is_some_and(|a| a >= self.min && a <= self.max)
    }

    fn describe(&self) -> String {
        format!("ipv6_range({},{})", Ipv6Addr::from(self.min), Ipv6Addr::from(self.max))
    }

    fn written(&self) -> Option<MatcherForm> {
        let halves = [self.min, self.max].map(|ip| [(ip >> 64) as u64, ip as u64]);
        Some(form("ipv6_range").numbers(halves.into_iter().flatten()))
    }
}
