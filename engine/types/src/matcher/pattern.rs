//! Regular expressions of matchers: what they cost is bounded before it is spent.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use regex::{Regex, RegexBuilder};
use regex_syntax::ast::parse::Parser;

use super::kept::KEPT;
use super::limits::{QUERY_REGEX_BYTES_MAX, REGEX_BYTES_MAX};
use super::list::alternatives;
use super::{MatchOp, Matcher, WatchedRegex, folding, translate};
use crate::{Error, ErrorKind, Result};

/// A pattern that is compiled, or known to be a list of texts.
#[derive(Debug, Clone)]
pub(super) enum Pattern {
    Regex(WatchedRegex),
    Texts(Arc<HashSet<String>>),
}

impl Pattern {
    fn new(pattern: &str) -> Result<Self> {
        match alternatives(pattern) {
            Some(texts) => Ok(Self::Texts(Arc::new(texts))),
            None => compile(pattern).map(|regex| Self::Regex(WatchedRegex::new(regex))),
        }
    }

    pub(super) fn is_match(&self, value: &str) -> bool {
        match self {
            Self::Regex(regex) => regex.is_match(value),
            Self::Texts(texts) => texts.contains(value),
        }
    }
}

/// Compiles a pattern as Prometheus does: in Go's syntax, anchored, dot matches new lines.
///
/// # Errors
/// Invalid: it is no regular expression, or one that takes more than [`REGEX_BYTES_MAX`]. LimitExceeded: see
/// [`affordable`].
pub fn compile(pattern: &str) -> Result<Regex> {
    KEPT.regex(pattern, || compile_new(pattern))
}

fn compile_new(pattern: &str) -> Result<Regex> {
    let invalid = |e: String| Error::invalid(format!("invalid regular expression `{pattern}`: {e}"));
    affordable(pattern)?;
    let text = translate(pattern).map_err(invalid)?;
    affordable(&text)?;
    let regex = builder(&format!("^(?s:{text})$")).build().map_err(|e| invalid(e.to_string()))?;
    // `a)|(b` is no expression, but with the group around it it would be one that is anchored on one side.
    Parser::new().parse(&text).map_err(|e| invalid(e.to_string()))?;
    Ok(regex)
}

/// Gives a builder for a pattern that is [`affordable`], with the bounds that patterns of all languages have.
pub fn builder(pattern: &str) -> RegexBuilder {
    let mut builder = RegexBuilder::new(pattern);
    builder.size_limit(REGEX_BYTES_MAX).dfa_size_limit(TABLE_BYTES_MAX);
    builder
}

/// Refuses a pattern that takes long to be compiled: nothing can end that, and a size is known only when it is over.
///
/// # Errors
/// LimitExceeded.
pub fn affordable(pattern: &str) -> Result<()> {
    let refused = |text: String| Err(Error::new(ErrorKind::LimitExceeded, text));
    if pattern.len() > TEXT_BYTES_MAX {
        return refused(format!(
            "a regular expression of {} bytes is too long, at most {TEXT_BYTES_MAX} are allowed unless it is a list of texts",
            pattern.len()
        ));
    }
    let classes = pattern.as_bytes().windows(2).filter(|w| w[0] == b'\\' && b"pPwWdDsS".contains(&w[1])).count();
    if classes > CLASSES_MAX {
        return refused(format!("a regular expression has more than {CLASSES_MAX} classes"));
    }
    if folding::is_costly(pattern) {
        let text = "a regular expression has too many classes of many characters that are matched in any case";
        return refused(text.to_owned());
    }
    Ok(())
}

/// Longest text of a pattern that is compiled, in bytes: to read one takes up to some thousand times its size. Longer
/// ones hardly ever stay within [`REGEX_BYTES_MAX`].
const TEXT_BYTES_MAX: usize = 32 << 10;
/// Most classes of Unicode, such as `\w`, that a pattern may have, of which each takes kilobytes.
const CLASSES_MAX: usize = 2000;

/// Most that a compiled regular expression keeps of the states that it met, in bytes, for each thread and direction. No
/// budget counts these; patterns that meet more states than fit go on without them, slower.
const TABLE_BYTES_MAX: usize = 256 << 10;

/// The patterns of one query: each is compiled once, however often it stands there, and all together are bounded.
#[derive(Debug, Default)]
pub struct Patterns {
    seen: HashMap<String, Pattern>,
    budget: PatternBudget,
}

impl Patterns {
    /// Makes a matcher, as [`Matcher::new`] does.
    ///
    /// # Errors
    /// As [`Matcher::new`]; LimitExceeded also where all patterns together are too large.
    pub fn matcher(&mut self, name: impl Into<String>, op: MatchOp, value: impl Into<String>) -> Result<Matcher> {
        let (name, value) = (name.into(), value.into());
        let pattern = match op {
            MatchOp::Equal | MatchOp::NotEqual => None,
            MatchOp::Regex | MatchOp::NotRegex => Some(self.pattern(&value)?),
        };
        Ok(Matcher { name, op, value, pattern })
    }

    /// Counts a pattern that somebody else compiles.
    ///
    /// # Errors
    /// LimitExceeded: all together are too large.
    pub fn count(&mut self, pattern: &str) -> Result<()> {
        self.budget.add(pattern)
    }

    fn pattern(&mut self, text: &str) -> Result<Pattern> {
        if let Some(pattern) = self.seen.get(text) {
            return Ok(pattern.clone());
        }
        let pattern = Pattern::new(text)?;
        if let Pattern::Regex(_) = pattern {
            self.budget.add(text)?;
        }
        self.seen.insert(text.to_owned(), pattern.clone());
        Ok(pattern)
    }
}

/// How much room the patterns of one query have left. One that comes again takes no more of it.
///
/// A few patterns cannot exceed it, since each is bounded by [`REGEX_BYTES_MAX`]: they are only remembered. With more,
/// all are measured.
#[derive(Debug, Default)]
struct PatternBudget {
    seen: HashSet<String>,
    measured: usize,
}

impl PatternBudget {
    /// Counts a pattern that is compiled.
    ///
    /// # Errors
    /// LimitExceeded: all together are too large.
    fn add(&mut self, pattern: &str) -> Result<()> {
        const FEW: usize = QUERY_REGEX_BYTES_MAX / REGEX_BYTES_MAX;
        if self.seen.contains(pattern) {
            return Ok(());
        }
        if self.seen.len() == FEW {
            self.measured = self.seen.iter().map(|p| compiled_bytes(p)).sum();
        }
        if self.seen.len() >= FEW {
            self.measured += compiled_bytes(pattern);
        }
        if self.measured > QUERY_REGEX_BYTES_MAX {
            let text = format!("the regular expressions of a query take more than {QUERY_REGEX_BYTES_MAX} bytes");
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        self.seen.insert(pattern.to_owned());
        Ok(())
    }
}

/// Groups that any pattern may have.
const GROUPS_FREE: usize = 16;
/// Size of a compiled pattern times its groups, for others: a search keeps the places of all groups for each state.
const GROUP_BYTES_MAX: usize = 16 << 20;

/// Refuses a pattern that takes much memory where its groups are asked for.
///
/// # Errors
/// LimitExceeded.
pub fn few_groups(regex: &Regex) -> Result<()> {
    let groups = regex.captures_len();
    if groups <= GROUPS_FREE || compiled_bytes(regex.as_str()).saturating_mul(groups) <= GROUP_BYTES_MAX {
        return Ok(());
    }
    let text = format!("a regular expression of that size has too many groups: {}", groups - 1);
    Err(Error::new(ErrorKind::LimitExceeded, text))
}

/// Gives the size that `size_limit` of the crate `regex` is about.
pub fn compiled_bytes(pattern: &str) -> usize {
    use regex_automata::nfa::thompson::{Config, NFA};
    let config = Config::new().nfa_size_limit(Some(REGEX_BYTES_MAX));
    let nfa = NFA::compiler().configure(config).build(&format!("^(?s:{pattern})$"));
    nfa.map_or(REGEX_BYTES_MAX, |nfa| nfa.memory_usage())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_times_states_are_bounded() {
        let refused = |pattern: &str| few_groups(&Regex::new(pattern).unwrap()).map_err(|e| e.kind).err();
        assert_eq!(refused(&"(.*)".repeat(1000)), Some(ErrorKind::LimitExceeded));
        assert_eq!(refused(&"(a)".repeat(100)), None);
        assert_eq!(refused(&r"(\S+) ".repeat(15)), None);
        assert_eq!(refused(&"(?:.*)".repeat(1000)), None);
    }

    #[test]
    fn long_and_costly_patterns_are_refused() {
        let kind = |pattern: &str| compile(pattern).map_err(|e| e.kind).err();
        assert_eq!(kind(&"a".repeat(1_000_000)), Some(ErrorKind::LimitExceeded));
        assert_eq!(kind(&format!("(?i){}", "[ -\u{10ffff}]".repeat(1000))), Some(ErrorKind::LimitExceeded));
        assert_eq!(kind(&r"\w|".repeat(5000)), Some(ErrorKind::LimitExceeded));
        assert_eq!(kind("(.{1000}){1000}"), Some(ErrorKind::Invalid));
        assert_eq!(kind(&"ab".repeat(5000)), None);
    }

    #[test]
    fn a_pattern_is_compiled_once() {
        let mut patterns = Patterns::default();
        let mut matcher = |name: &str| patterns.matcher(name, MatchOp::Regex, r"\w{15}").expect("valid");
        (0..1000).for_each(|i| assert!(!matcher(&i.to_string()).matches("short")));
    }

    #[test]
    fn patterns_of_a_query_together_are_bounded() {
        let large = |i: usize| format!(r"\w{{15}}{i:04}");
        let bytes = compiled_bytes(&large(0));
        assert!((100_000..1 << 20).contains(&bytes), "{bytes}");
        let mut budget = PatternBudget::default();
        let fits = QUERY_REGEX_BYTES_MAX / bytes;
        (0..fits).for_each(|i| budget.add(&large(i)).unwrap_or_else(|e| panic!("{i} of {fits}: {e}")));
        (0..fits).for_each(|i| budget.add(&large(i)).expect("the same ones"));
        assert_eq!(budget.add(&large(fits)).unwrap_err().kind, ErrorKind::LimitExceeded);
        let mut budget = PatternBudget::default();
        (0..200).for_each(|_| budget.add("a.*").expect("small"));
    }
}
