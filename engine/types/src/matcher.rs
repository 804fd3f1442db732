//! Label matchers: `=`, `!=`, `=~`, `!~`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Result;

mod bounded_regex;
mod compiled_size;
mod encoding;
mod folding;
mod golang;
mod limits;
mod list;
mod lookaround;
mod pattern;
mod pattern_cache;

pub use bounded_regex::{Places, WatchedRegex};
pub use compiled_size::{compiled_bytes, held_bytes};
pub use golang::translate;
pub use limits::{QUERY_REGEX_BYTES_MAX, REGEX_BYTES_MAX};
pub use lookaround::looks_around;
use pattern::Pattern;
pub use pattern::{Patterns, affordable, builder, compile, few_groups, finds_empty, reason};

/// How a matcher compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
    /// Name of the label that is compared.
    pub name: String,
    /// How the label's value is compared with `value`.
    pub op: MatchOp,
    /// Text, or the pattern of `=~` and `!~` without anchors.
    pub value: String,
    pattern: Option<Pattern>,
}

impl Matcher {
    /// Makes a matcher; compiles a pattern as Prometheus does: anchored, dot matches new lines.
    ///
    /// # Errors
    /// Invalid, LimitExceeded: see [`compile`].
    pub fn new(name: impl Into<String>, op: MatchOp, value: impl Into<String>) -> Result<Self> {
        Patterns::default().matcher(name, op, value)
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

    /// Gives the value that alone decides the matcher, so that no other value need be looked at: that of `=` and `!=`,
    /// unless it is empty, which means a missing label.
    pub fn single_value(&self) -> Option<&str> {
        match self.op {
            MatchOp::Equal | MatchOp::NotEqual if !self.value.is_empty() => Some(&self.value),
            _ => None,
        }
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
    fn one_value_decides() {
        let single = |op, value: &str| Matcher::new("a", op, value).expect("valid").single_value().map(str::to_owned);
        assert_eq!(single(MatchOp::Equal, "b").as_deref(), Some("b"));
        assert_eq!(single(MatchOp::NotEqual, "b").as_deref(), Some("b"));
        let others = [single(MatchOp::Equal, ""), single(MatchOp::NotEqual, ""), single(MatchOp::Regex, "b")];
        assert!(others.iter().all(Option::is_none), "{others:?}");
    }

    #[test]
    fn long_lists_are_looked_up() {
        let check = |pattern: &str, yes: &[&str], no: &[&str], compiled: bool| {
            let m = Matcher::new("a", MatchOp::Regex, pattern).expect("valid");
            assert_eq!(m.is_compiled(), compiled, "{:.40}", m.value);
            for text in yes {
                assert!(m.matches(text), "{text}");
            }
            for text in no {
                assert!(!m.matches(text), "{text}");
            }
        };
        let list = |one: fn(usize) -> String| (0..10_000).map(one).collect::<Vec<_>>().join("|");
        check(&list(|i| format!("value-{i}")), &["value-0", "value-9999"], &["value-10000", "value-", ""], false);
        check(&list(|i| format!("a\\.b{i}|")), &["a.b7", ""], &["axb7"], false);
        check(&format!("x({})y", list(|i| i.to_string())), &["x17y"], &["17"], false);
        check(&format!("(?i)({})", "a|".repeat(20)), &["A", "a", ""], &["b"], false);
        check(&format!("{}b.*", "a|".repeat(20)), &["a", "bc"], &["ac"], true);
        check(&format!("{}^b$", "a|".repeat(20)), &["a", "b"], &["ab"], true);
        check("a|b", &["a", "b"], &["ab"], true);
        check(&format!("({})[.]example", list(|i| format!("h{i}"))), &["h7.example"], &["h7xexample"], false);
    }

    #[test]
    fn missing_labels_are_empty() {
        for (op, value, empty, other) in [
            (MatchOp::Equal, "", true, false),
            (MatchOp::Equal, "x", false, true),
            (MatchOp::NotEqual, "", false, true),
            (MatchOp::NotEqual, "x", true, false),
            (MatchOp::Regex, "x|", true, true),
            (MatchOp::Regex, ".+", false, true),
            (MatchOp::NotRegex, "", false, true),
            (MatchOp::NotRegex, "x+", true, false),
        ] {
            let matcher = Matcher::new("a", op, value).expect("valid");
            assert_eq!((matcher.matches_empty(), matcher.matches("x")), (empty, other), "{matcher:?}");
        }
    }

    #[test]
    #[allow(
        clippy::mutable_key_type,
        reason = "the compiled pattern of a matcher is no part of what it is compared by"
    )]
    fn matchers_are_told_apart_by_what_they_say() {
        use std::collections::HashSet;
        let all = || {
            let ops = [MatchOp::Equal, MatchOp::NotEqual, MatchOp::Regex, MatchOp::NotRegex];
            ops.into_iter().flat_map(|op| ["a", "b"].map(|name| Matcher::new(name, op, "x").expect("valid")))
        };
        let set: HashSet<Matcher> = all().chain(all()).collect();
        assert_eq!((set.len(), all().all(|matcher| set.contains(&matcher))), (8, true));
        let shown: Vec<String> = all().map(|matcher| format!("{matcher:?}")).collect();
        assert_eq!(shown[..4], ["a=\"x\"", "b=\"x\"", "a!=\"x\"", "b!=\"x\""]);
        assert_eq!(Matcher::equal("a", "x"), Matcher::new("a", MatchOp::Equal, "x").expect("valid"));
    }
}
