//! The interface through which the API runs unit tests of rules.

use std::fmt;

use quiver_alerting::rules::RuleGroup;
use quiver_alerting::unit_tests::{Outcome, TestFile};
use tokio_util::sync::CancellationToken;

/// Runs unit tests of rules. Implemented by the binary, since each test needs a store of its own.
pub trait RuleBench: Send + Sync + fmt::Debug {
    /// Runs all tests of a file over some groups, one after the other, until `stop`. Blocks the thread.
    fn run(&self, file: &TestFile, groups: &[RuleGroup], stop: &CancellationToken) -> Vec<Outcome>;
}
