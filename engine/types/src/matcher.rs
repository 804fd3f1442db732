//! Label matchers.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::{Error, ErrorKind, Result};

/// How a matcher compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatchOp {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`, anchored on both sides
    Regex,
    /// `!~`, anchored on both sides
    NotRegex,
}

impl MatchOp {
    /// Gives the operator as written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Regex => "=~",
            Self::NotRegex => "!~",
        }
    }
}

/// A matcher: label name, operator, value. A missing label has the empty value.
#[derive(Clone)]
pub struct Matcher {
    /// Label name.
    pub name: String,
    /// Operator.
    pub op: MatchOp,
    /// Text or pattern.
    pub value: String,
    pattern: Option<Pattern>,
}

/// A pattern that is compiled, or known to be a list of texts.
#[derive(Clone)]
enum Pattern {
    Regex(regex::Regex),
    Texts(Arc<HashSet<String>>),
}

impl Pattern {
    fn new(pattern: &str) -> Result<Self> {
        if let Some(texts) = alternatives(pattern) {
            return Ok(Self::Texts(Arc::new(texts)));
        }
        let regex = regex::RegexBuilder::new(&format!("^(?s:{pattern})$")).size_limit(REGEX_BYTES_MAX).build();
        let error = |e| Error::invalid(format!("invalid regular expression `{pattern}`: {e}"));
        regex.map(Self::Regex).map_err(error)
    }

    fn is_match(&self, value: &str) -> bool {
        match self {
            Self::Regex(regex) => regex.is_match(value),
            Self::Texts(texts) => texts.contains(value),
        }
    }
}

/// Alternatives from which on a list of texts is looked up rather than compiled: lists of thousands, as dashboards write
/// them, would be too large as automata.
const ALTERNATIVES_MIN: usize = 16;
const ALTERNATIVES_MAX: usize = 100_000;

/// Gives all texts that a pattern matches, where it is a long list of them.
fn alternatives(pattern: &str) -> Option<HashSet<String>> {
    use regex_syntax::hir::literal::Extractor;
    if pattern.bytes().filter(|b| *b == b'|').count() < ALTERNATIVES_MIN {
        return None;
    }
    let hir = regex_syntax::ParserBuilder::new().dot_matches_new_line(true).build().parse(pattern).ok()?;
    if !hir.properties().look_set().is_empty() {
        return None;
    }
    let mut extractor = Extractor::new();
    extractor.limit_total(ALTERNATIVES_MAX).limit_literal_len(pattern.len());
    let found = extractor.extract(&hir);
    let literals = found.literals().filter(|_| found.is_exact())?;
    literals.iter().map(|literal| String::from_utf8(literal.as_bytes().to_vec()).ok()).collect()
}

/// Largest compiled regular expression, in bytes (`identity-and-access` section 7).
pub const REGEX_BYTES_MAX: usize = 1 << 20;

/// Largest compiled regular expressions of one query together, in bytes.
pub const QUERY_REGEX_BYTES_MAX: usize = 10 << 20;

/// How much room the patterns of one query have left.
///
/// A few patterns cannot exceed it, since each is bounded by [`REGEX_BYTES_MAX`]: they are only remembered. With more,
/// all are measured.
#[derive(Debug, Clone, Default)]
pub struct PatternBudget {
    few: Vec<String>,
    measured: usize,
}

impl PatternBudget {
    /// Counts a pattern that was compiled.
    ///
    /// # Errors
    /// LimitExceeded: all together are too large.
    pub fn add(&mut self, pattern: &str) -> Result<()> {
        const FEW: usize = QUERY_REGEX_BYTES_MAX / REGEX_BYTES_MAX;
        if self.few.len() < FEW {
            self.few.push(pattern.to_owned());
            return Ok(());
        }
        if self.measured == 0 {
            self.measured = self.few.iter().map(|p| compiled_bytes(p)).sum();
        }
        self.measured += compiled_bytes(pattern);
        if self.measured > QUERY_REGEX_BYTES_MAX {
            let text = format!("the regular expressions of a query take more than {QUERY_REGEX_BYTES_MAX} bytes");
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        Ok(())
    }
}

/// Gives the size that `size_limit` of the crate `regex` is about.
pub fn compiled_bytes(pattern: &str) -> usize {
    use regex_automata::nfa::thompson::{Config, NFA};
    let config = Config::new().nfa_size_limit(Some(REGEX_BYTES_MAX));
    let nfa = NFA::compiler().configure(config).build(&format!("^(?s:{pattern})$"));
    nfa.map_or(REGEX_BYTES_MAX, |nfa| nfa.memory_usage())
}

impl Matcher {
    /// Makes a matcher; compiles a pattern as Prometheus does: anchored, dot matches new lines.
    ///
    /// # Errors
    /// Invalid: the pattern is not a valid or is too large a regular expression.
    pub fn new(name: impl Into<String>, op: MatchOp, value: impl Into<String>) -> Result<Self> {
        let (name, value) = (name.into(), value.into());
        let pattern = match op {
            MatchOp::Equal | MatchOp::NotEqual => None,
            MatchOp::Regex | MatchOp::NotRegex => Some(Pattern::new(&value)?),
        };
        Ok(Self { name, op, value, pattern })
    }

    /// Makes an equality matcher.
    pub fn equal(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), op: MatchOp::Equal, value: value.into(), pattern: None }
    }

    /// Says whether a value matches; the empty text stands for a missing label.
    pub fn matches(&self, value: &str) -> bool {
        match (self.op, &self.pattern) {
            (MatchOp::Equal, _) => value == self.value,
            (MatchOp::NotEqual, _) => value != self.value,
            (MatchOp::Regex, Some(r)) => r.is_match(value),
            (MatchOp::NotRegex, Some(r)) => !r.is_match(value),
            (MatchOp::Regex | MatchOp::NotRegex, None) => unreachable!("a pattern is compiled at construction"),
        }
    }

    /// Says whether its pattern had to be compiled.
    pub fn is_compiled(&self) -> bool {
        matches!(self.pattern, Some(Pattern::Regex(_)))
    }

    /// Says whether a missing label matches.
    pub fn matches_empty(&self) -> bool {
        self.matches("")
    }
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.op, &self.value) == (&other.name, other.op, &other.value)
    }
}

impl Eq for Matcher {}

impl std::hash::Hash for Matcher {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.name, self.op, &self.value).hash(state);
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{:?}", self.name, self.op.as_str(), self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_anchored() {
        let m = Matcher::new("a", MatchOp::Regex, "b|c.").expect("valid");
        assert!(m.matches("b") && m.matches("c\n") && !m.matches("ab") && !m.matches(""));
        assert!(Matcher::new("a", MatchOp::NotRegex, "b").expect("valid").matches_empty());
        assert!(Matcher::new("a", MatchOp::Regex, "(").is_err());
        assert!(Matcher::new("a", MatchOp::Regex, "((x{100}){100}){100}").is_err(), "too large");
    }

    #[test]
    fn long_lists_are_looked_up() {
        let check = |pattern: &str, yes: &[&str], no: &[&str], compiled: bool| {
            let m = Matcher::new("a", MatchOp::Regex, pattern).expect("valid");
            assert_eq!(m.is_compiled(), compiled, "{:.40}", m.value);
            yes.iter().for_each(|text| assert!(m.matches(text), "{text}"));
            no.iter().for_each(|text| assert!(!m.matches(text), "{text}"));
        };
        let list = |one: fn(usize) -> String| (0..10_000).map(one).collect::<Vec<_>>().join("|");
        check(&list(|i| format!("value-{i}")), &["value-0", "value-9999"], &["value-10000", "value-", ""], false);
        check(&list(|i| format!("a\\.b{i}|")), &["a.b7", ""], &["axb7"], false);
        check(&format!("x({})y", list(|i| i.to_string())), &["x17y"], &["17"], false);
        check(&format!("(?i)({})", "a|".repeat(20)), &["A", "a", ""], &["b"], false);
        check(&format!("{}b.*", "a|".repeat(20)), &["a", "bc"], &["ac"], true);
        check(&format!("{}^b$", "a|".repeat(20)), &["a", "b"], &["ab"], true);
        check("a|b", &["a", "b"], &["ab"], true);
    }

    #[test]
    fn patterns_of_a_query_together_are_bounded() {
        let large = r"\w{15}";
        let bytes = compiled_bytes(large);
        assert!((100_000..1 << 20).contains(&bytes), "{bytes}");
        let mut budget = PatternBudget::default();
        let fits = QUERY_REGEX_BYTES_MAX / bytes;
        (0..fits).for_each(|i| budget.add(large).unwrap_or_else(|e| panic!("{i} of {fits}: {e}")));
        assert_eq!(budget.add(large).unwrap_err().kind, ErrorKind::LimitExceeded);
        let mut budget = PatternBudget::default();
        (0..200).for_each(|_| budget.add("a.*").expect("small"));
    }
}
