//! The memory of compiled regular expressions, and the limits for those of one query, request or configuration together.

use std::collections::HashSet;

use regex_automata::nfa::thompson::{Config, NFA};

use super::limits::{QUERY_REGEX_BYTES_MAX, REGEX_BYTES_MAX};
use crate::{Error, ErrorKind, Result};

/// A pattern is kept for both directions, with what makes it quick.
const TIMES: usize = 3;
/// What it takes beside its states.
const BYTES: usize = 1 << 10;

/// Gives the size that `size_limit` of the crate `regex` is about.
pub fn compiled_bytes(pattern: &str) -> usize {
    let config = Config::new().nfa_size_limit(Some(REGEX_BYTES_MAX));
    let nfa = NFA::compiler().configure(config).build(&format!("^(?s:{pattern})$"));
    nfa.map_or(REGEX_BYTES_MAX, |nfa| nfa.memory_usage())
}

/// Gives what a pattern takes in memory for as long as it is kept compiled, more or less. Tables of the states that it
/// meets come to that; those of each pattern are bounded.
pub fn held_bytes(pattern: &str) -> usize {
    BYTES + pattern.len() + TIMES * compiled_bytes(pattern)
}

/// How much room the patterns of one query, or of something else, have left. One that comes again takes no more of it.
///
/// A few patterns cannot exceed it, since each is bounded by [`REGEX_BYTES_MAX`]: they are only remembered. With more,
/// all are measured.
#[derive(Debug)]
pub(super) struct PatternBudget {
    /// Whose patterns they are, for the error.
    whose: &'static str,
    bytes_max: usize,
    seen: HashSet<String>,
    measured: usize,
}

impl Default for PatternBudget {
    fn default() -> Self {
        Self::new("a query", QUERY_REGEX_BYTES_MAX)
    }
}

impl PatternBudget {
    pub(super) fn new(whose: &'static str, bytes_max: usize) -> Self {
        Self { whose, bytes_max, seen: HashSet::new(), measured: 0 }
    }

    /// Counts a pattern that is compiled.
    ///
    /// # Errors
    /// LimitExceeded: all together are too large.
    pub(super) fn add(&mut self, pattern: &str) -> Result<()> {
        let few = self.bytes_max / REGEX_BYTES_MAX;
        if self.seen.contains(pattern) {
            return Ok(());
        }
        if self.seen.len() == few {
            self.measured = self.seen.iter().map(|p| compiled_bytes(p)).sum();
        }
        if self.seen.len() >= few {
            self.measured += compiled_bytes(pattern);
        }
        self.check()?;
        self.seen.insert(pattern.to_owned());
        Ok(())
    }

    /// Says whether there is room: once there was none, what comes need not be compiled to be refused.
    ///
    /// # Errors
    /// LimitExceeded.
    pub(super) fn check(&self) -> Result<()> {
        if self.measured <= self.bytes_max {
            return Ok(());
        }
        let (whose, bytes_max) = (self.whose, self.bytes_max);
        let text = format!("the regular expressions of {whose} take more than {bytes_max} bytes");
        Err(Error::new(ErrorKind::LimitExceeded, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_a_query_together_are_bounded() {
        let large = |i: usize| format!(r"\w{{15}}{i:04}");
        let bytes = compiled_bytes(&large(0));
        assert!((100_000..1 << 20).contains(&bytes), "{bytes}");
        let mut budget = PatternBudget::default();
        let fits = QUERY_REGEX_BYTES_MAX / bytes;
        (0..fits).for_each(|i| budget.add(&large(i)).unwrap_or_else(|e| panic!("{i} of {fits}: {e}")));
        (0..fits).for_each(|i| budget.add(&large(i)).expect("the same ones"));
        let refused = budget.add(&large(fits)).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::LimitExceeded);
        assert_eq!(refused.message, "the regular expressions of a query take more than 10485760 bytes");
        let mut budget = PatternBudget::default();
        (0..200).for_each(|_| budget.add("a.*").expect("small"));
    }

    #[test]
    fn each_budget_has_its_bound() {
        let mut budget = PatternBudget::new("a condition", 2 * REGEX_BYTES_MAX);
        let add = |i: usize| budget.add(&format!(r"\w{{15}}{i:04}")).err().map(|refused| (i, refused));
        let (fits, refused) = (0..1000).find_map(add).expect("not all fit");
        assert!((2..=20).contains(&fits), "{fits}");
        assert!(refused.message.starts_with("the regular expressions of a condition take"), "{refused}");
    }

    #[test]
    fn what_is_held_is_more_than_what_is_compiled() {
        let bytes = held_bytes("a");
        assert!((BYTES..8 * BYTES).contains(&bytes), "{bytes}");
        let large = r"\w{15}";
        assert!(held_bytes(large) > 3 * compiled_bytes(large));
    }
}
