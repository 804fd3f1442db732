//! Regular expressions of matchers: their cost is checked before they are compiled.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use regex::{Regex, RegexBuilder};
use regex_syntax::ast::parse::Parser;

use super::compiled_size::{PatternBudget, compiled_bytes};
use super::limits::REGEX_BYTES_MAX;
use super::list::alternatives;
use super::pattern_cache::KEPT;
use super::{MatchOp, Matcher, WatchedRegex, folding, translate};
use crate::{Error, ErrorKind, Result};

/// A pattern that is compiled, or known to be a list of texts.
#[derive(Debug, Clone)]
pub(super) enum Pattern {
    /// Shared by all matchers of the same text: a copy has memory of its own for its searches, some kilobytes.
    Regex(Arc<WatchedRegex>),
    Texts(Arc<HashSet<String>>),
}

impl Pattern {
    fn new(pattern: &str) -> Result<Self> {
        match alternatives(pattern) {
            Some(texts) => Ok(Self::Texts(Arc::new(texts))),
            None => compile(pattern).map(|regex| Self::Regex(Arc::new(WatchedRegex::new(regex)))),
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
    // What is drawn of an error is our text, with anchors that nobody wrote.
    let told = |e: String| invalid(reason(&e).to_owned());
    let regex = builder(&format!("^(?s:{text})$")).build().map_err(|e| told(e.to_string()))?;
    // `a)|(b` is no expression, but with the group around it it would be one that is anchored on one side.
    Parser::new().parse(&text).map_err(|e| told(e.to_string()))?;
    Ok(regex)
}

/// Gives the reason of an error of the `regex` crate: its last line, below those that draw the place.
pub fn reason(message: &str) -> &str {
    message.lines().last().unwrap_or(message).trim_start_matches("error: ")
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

/// The patterns of one query, or of something else that is read as a whole: each is compiled once, however often it
/// stands there, and all together are bounded, for a query by [`super::QUERY_REGEX_BYTES_MAX`].
#[derive(Debug, Default)]
pub struct Patterns {
    seen: HashMap<String, Pattern>,
    budget: PatternBudget,
}

impl Patterns {
    /// Those of something that is no query: `whose` they are, and the bytes that they may take compiled, at least some
    /// times [`REGEX_BYTES_MAX`].
    pub fn within(whose: &'static str, bytes_max: usize) -> Self {
        Self { seen: HashMap::new(), budget: PatternBudget::new(whose, bytes_max) }
    }

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
        self.budget.check()?;
        let pattern = Pattern::new(text)?;
        if let Pattern::Regex(_) = pattern {
            self.budget.add(text)?;
        }
        self.seen.insert(text.to_owned(), pattern.clone());
        Ok(pattern)
    }
}

/// Groups that any pattern may have.
const GROUPS_FREE: usize = 16;
/// Size of a compiled pattern times its groups, for others: a search keeps the places of all groups for each state.
const GROUP_BYTES_MAX: usize = 16 << 20;

/// Whether a pattern may find an empty text, as `b*` does between two letters. What is no pattern finds none.
pub fn finds_empty(pattern: &str) -> bool {
    let may = pattern.is_empty() || pattern.contains(['*', '?', '|', '^', '$', '{', '(', '\\']);
    may && regex_syntax::parse(pattern).is_ok_and(|hir| hir.properties().minimum_len() == Some(0))
}

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
    fn errors_have_one_line_without_what_is_put_around_a_pattern() {
        let check = |pattern: &str, why: &str| {
            let expected = format!("invalid regular expression `{pattern}`: {why}");
            assert_eq!(compile(pattern).expect_err("no pattern").message, expected);
        };
        check("(", "unclosed group");
        check("a)|(b", "unopened group");
        check("*", "repetition operator missing expression");
        check("(a\n", "unclosed group");
        check("[z-a]", "invalid character class range, the start must be <= the end");
    }

    #[test]
    fn a_pattern_is_compiled_once() {
        let mut patterns = Patterns::default();
        let mut matcher = |name: &str| patterns.matcher(name, MatchOp::Regex, r"\w{15}").expect("valid");
        (0..1000).for_each(|i| assert!(!matcher(&i.to_string()).matches("short")));
    }
}
