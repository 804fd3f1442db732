//! Patterns that are long lists of texts, as dashboards write them: thousands of texts would be too large as an
//! automaton, so they are looked up in a set instead.

use std::collections::HashSet;

use regex_syntax::hir::literal::Extractor;

use super::{folding, translate};

/// Texts from which on a list is looked up rather than compiled.
const TEXTS_MIN: usize = 16;
/// Up to this length, in bytes, a pattern is read as a regular expression, for all the texts that it stands for. The time of
/// that grows with the square of the length, the memory by a thousand.
const READ_BYTES_MAX: usize = 8 << 10;
/// Most texts of those.
const READ_TEXTS_MAX: usize = 4096;
/// Texts up to this length, in bytes, count however short the pattern is.
const TEXT_BYTES_MIN: usize = 64;
/// What a list may be longer than its pattern, where one text stands before or behind all others.
const LONGER_MAX: usize = 8;

/// Gives all texts that a pattern matches, where it is a long list of them.
pub(super) fn alternatives(pattern: &str) -> Option<HashSet<String>> {
    if pattern.bytes().filter(|b| *b == b'|').count() < TEXTS_MIN {
        return None;
    }
    if pattern.len() <= READ_BYTES_MAX { read(pattern) } else { split(pattern) }
}

fn read(pattern: &str) -> Option<HashSet<String>> {
    if folding::is_costly(pattern) {
        return None;
    }
    let text = translate(pattern).ok()?;
    let hir = regex_syntax::ParserBuilder::new().dot_matches_new_line(true).build().parse(&text).ok()?;
    if !hir.properties().look_set().is_empty() {
        return None;
    }
    let mut extractor = Extractor::new();
    extractor.limit_total(READ_TEXTS_MAX).limit_literal_len((pattern.len() / 4).max(TEXT_BYTES_MIN));
    let found = extractor.extract(&hir);
    let literals = found.literals().filter(|_| found.is_exact())?;
    literals.iter().map(|literal| String::from_utf8(literal.as_bytes().to_vec()).ok()).collect()
}

/// Splits texts with `|` between them, all of them in one group or none.
fn split(pattern: &str) -> Option<HashSet<String>> {
    // Before the group, in it, behind it.
    let (mut before, mut texts, mut behind) = (String::new(), vec![String::new()], None);
    let mut group = false;
    for sign in Signs(pattern) {
        match sign? {
            Sign::Plain(c) => behind.as_mut().or(texts.last_mut())?.push(c),
            Sign::Or if behind.is_none() => texts.push(String::new()),
            Sign::Open if !group && texts.len() == 1 => {
                group = true;
                before = texts.pop()?;
                texts.push(String::new());
            }
            Sign::Close if group && behind.is_none() => behind = Some(String::new()),
            _ => return None,
        }
    }
    if group && behind.is_none() {
        return None;
    }
    let behind = behind.unwrap_or_default();
    if (before.len() + behind.len()).saturating_mul(texts.len()) > LONGER_MAX * pattern.len() {
        return None;
    }
    Some(texts.into_iter().map(|text| [before.as_str(), &text, &behind].concat()).collect())
}

/// What a pattern is made of, as far as it is a list.
enum Sign {
    Plain(char),
    Or,
    Open,
    Close,
}

/// The signs of a pattern; `None` for what is none of them.
struct Signs<'a>(&'a str);

impl Iterator for Signs<'_> {
    type Item = Option<Sign>;

    fn next(&mut self) -> Option<Option<Sign>> {
        let mut chars = self.0.chars();
        let sign = match chars.next()? {
            '|' => Some(Sign::Or),
            ')' => Some(Sign::Close),
            '(' => match chars.as_str().strip_prefix("?:") {
                Some(rest) => {
                    chars = rest.chars();
                    Some(Sign::Open)
                }
                None => (!chars.as_str().starts_with('?')).then_some(Sign::Open),
            },
            '\\' => chars.next().filter(|c| regex_syntax::is_meta_character(*c)).map(Sign::Plain),
            // A class of one character is another way to write it.
            '[' => match (chars.next(), chars.next()) {
                (Some(c), Some(']')) if !matches!(c, '^' | '\\' | '[' | ']') => Some(Sign::Plain(c)),
                _ => None,
            },
            c @ ('-' | '#' | '&' | '~') => Some(Sign::Plain(c)),
            c => (!regex_syntax::is_meta_character(c)).then_some(Sign::Plain(c)),
        };
        self.0 = chars.as_str();
        Some(sign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_as_read() {
        let check = |pattern: &str, list: bool| {
            let split = split(pattern);
            assert_eq!(split.is_some(), list, "{pattern}");
            assert!(!list || split == read(pattern), "{pattern}");
        };
        check("a|b|c|a||", true);
        check(r"a\.b|c\-d|e\\f|g\|h", true);
        check("x(a|b)y|z", false);
        check("x(a|b)y", true);
        check("x(?:a|b|)y-#&~", true);
        check("(?:ä|[.]|[+]b)", true);
        check("(a)(b|c)", false);
        check("((a|b))", false);
        check("a|(b)", false);
        for other in ["a|b*", "a|b+", "a|.", "a|[bc]", "a|[^b]", "a|^", "a|$", "a{2}|b", "(?i)a|b", "(?i:a|b)", r"\d|a"]
        {
            check(other, false);
        }
        for broken in ["a|(b", "a|b)", "a|[", "a|[]", "a|\\", "(a|b))", "a]|b"] {
            check(broken, false);
        }
    }

    /// Breaks if a list stands for other texts than those that its expression matches.
    #[test]
    fn lists_are_read_as_go_reads_them() {
        let more = (0..TEXTS_MIN).map(|n| format!("|t{n}")).collect::<Vec<_>>().concat();
        for (pattern, text) in [("a[b&&c]", "ac"), ("x[[y]", "x["), (r"\Qa.b\E", "a.b"), ("a{,2}", "a{,2}")] {
            let texts = alternatives(&format!("{pattern}{more}"));
            assert!(texts.is_some_and(|texts| texts.contains(text) && texts.contains("t7")), "{pattern}");
        }
    }

    #[test]
    fn long_patterns_stay_as_they_are() {
        let list = (0..10_000).map(|i| i.to_string()).collect::<Vec<_>>().join("|");
        assert!(alternatives(&format!("host-({list})[.]example")).is_some_and(|texts| texts.len() == 10_000));
        assert!(alternatives(&format!("({list}){}", "x".repeat(100_000))).is_none(), "a gigabyte");
        assert!(alternatives(&format!("({list})(a|b|c|d)")).is_none());
        assert!(alternatives(&"[a-b]|".repeat(150_000)).is_none());
    }
}
