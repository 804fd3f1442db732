//! Selects the parts of a snapshot that may contain matching series, using only the catalog: time range, services,
//! metric names. Nothing is opened here, so a query for an unknown metric reads nothing.

use std::sync::Arc;

use quiver_types::label::METRIC_NAME;
use quiver_types::matcher::translate;
use quiver_types::{Access, MatchOp, Matcher, MillisRange};
use regex_syntax::hir::Hir;
use regex_syntax::hir::literal::Extractor;

use crate::part::{Part, PartMeta};

/// A pattern for the metric name that expands to more literals than this is not used for pruning.
const LITERALS_MAX: usize = 1024;
/// Maximum length of a literal in bytes.
const LITERAL_BYTES_MAX: usize = 4096;

/// The result of pruning: how many parts were excluded for which reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PruningResult {
    /// Number of parts of the table.
    pub(crate) total: usize,
    /// Excluded by time.
    pub(crate) time: usize,
    /// Excluded because they have no service that the caller may see.
    pub(crate) service: usize,
    /// Excluded because they have no metric with a matching name.
    pub(crate) name: usize,
}

/// The parts that may contain series which match any of the selectors (all series if there are none) and which this
/// caller may see.
pub(crate) fn prune(
    parts: &[Arc<Part>],
    selectors: &[Vec<Matcher>],
    access: &Access,
    range: MillisRange,
) -> (Vec<Arc<Part>>, PruningResult) {
    let names: Vec<_> = selectors.iter().map(|matchers| literal_names(matchers)).collect();
    let mut pruned = PruningResult { total: parts.len(), ..PruningResult::default() };
    let mut kept = Vec::new();
    for part in parts {
        let meta = &part.meta;
        if !range.overlaps(&meta.range()) {
            pruned.time += 1;
        } else if !meta.may_show(access) {
            pruned.service += 1;
        } else if !selectors.is_empty()
            && !selectors.iter().zip(&names).any(|(s, names)| may_name(meta, s, names.as_deref()))
        {
            pruned.name += 1;
        } else {
            kept.push(Arc::clone(part));
        }
    }
    (kept, pruned)
}

/// Tells whether a part may contain a metric that matches. `literals` are the only possible names, if they are known.
fn may_name(meta: &PartMeta, matchers: &[Matcher], literals: Option<&[String]>) -> bool {
    if let Some(literals) = literals {
        return literals.iter().any(|name| meta.names.may_contain(name));
    }
    let by_name = || matchers.iter().filter(|m| m.name == METRIC_NAME);
    let Some(names) = meta.names.list() else { return true };
    by_name().all(Matcher::matches_empty) || names.iter().any(|name| by_name().all(|m| m.matches(name)))
}

/// The only metric names that the matchers can match, if they can be listed: from an equality, or from a pattern that
/// is an alternation of literals. An empty list means that nothing matches.
pub(crate) fn literal_names(matchers: &[Matcher]) -> Option<Vec<String>> {
    let by_name = || matchers.iter().filter(|m| m.name == METRIC_NAME);
    let mut names = by_name().filter_map(literals).min_by_key(Vec::len)?;
    names.retain(|name| by_name().all(|m| m.matches(name)));
    // A series without a name would match the empty text, but name filters do not contain it.
    names.iter().all(|name| !name.is_empty()).then_some(names)
}

/// The only values that a matcher can match, sorted, if they can be listed and do not include the empty one.
pub(super) fn literal_values(matcher: &Matcher) -> Option<Vec<String>> {
    let mut values = literals(matcher)?;
    values.retain(|value| matcher.matches(value));
    values.iter().all(|value| !value.is_empty()).then_some(values)
}

/// A prefix, maybe empty, of all values that a pattern matches.
pub(super) fn prefix(matcher: &Matcher) -> String {
    let parsed = (matcher.op == MatchOp::Regex).then(|| parse(&matcher.value));
    let Some(hir) = parsed.flatten() else { return String::new() };
    let mut extractor = Extractor::new();
    extractor.limit_total(LITERALS_MAX).limit_literal_len(LITERAL_BYTES_MAX).limit_repeat(16).limit_class(16);
    let found = extractor.extract(&hir);
    let Some(common) = found.longest_common_prefix() else { return String::new() };
    // The common prefix may end within a character; drop the incomplete bytes.
    match std::str::from_utf8(common) {
        Ok(text) => text.to_owned(),
        Err(e) => String::from_utf8_lossy(&common[..e.valid_up_to()]).into_owned(),
    }
}

fn literals(matcher: &Matcher) -> Option<Vec<String>> {
    match matcher.op {
        MatchOp::Equal => Some(vec![matcher.value.clone()]),
        // The list would not include the empty text, and so miss series without the label.
        MatchOp::Regex if matcher.matches_empty() => None,
        MatchOp::Regex => pattern_literals(&matcher.value),
        MatchOp::NotEqual | MatchOp::NotRegex => None,
    }
}

/// Parses a pattern as its matcher does, with Go's syntax: for example `[a&&b]` means something else in Go.
fn parse(pattern: &str) -> Option<Hir> {
    let text = translate(pattern).ok()?;
    regex_syntax::ParserBuilder::new().dot_matches_new_line(true).build().parse(&text).ok()
}

/// Lists all texts that a pattern can match, if there are few. Assertions are treated as empty, so the list may be too
/// long; [`literal_names`] tests each text with the pattern itself.
fn pattern_literals(pattern: &str) -> Option<Vec<String>> {
    let hir = parse(pattern)?;
    let mut extractor = Extractor::new();
    extractor.limit_total(LITERALS_MAX).limit_literal_len(LITERAL_BYTES_MAX).limit_repeat(16).limit_class(16);
    let found = extractor.extract(&hir);
    if !found.is_exact() {
        return None;
    }
    let mut names = Vec::with_capacity(found.len()?);
    for literal in found.literals()? {
        names.push(String::from_utf8(literal.as_bytes().to_vec()).ok()?);
    }
    names.sort_unstable();
    names.dedup();
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(matchers: &[(&str, MatchOp, &str)], expected: Option<&[&str]>) {
        let matchers: Vec<_> = matchers.iter().map(|(n, op, v)| Matcher::new(*n, *op, *v).expect("valid")).collect();
        let found = literal_names(&matchers);
        assert_eq!(found, expected.map(|e| e.iter().map(ToString::to_string).collect()), "{matchers:?}");
    }

    #[test]
    fn prefixes_of_patterns() {
        let check = |pattern: &str, expected: &str| {
            assert_eq!(prefix(&Matcher::new("a", MatchOp::Regex, pattern).unwrap()), expected, "{pattern}");
        };
        check("m1.", "m1");
        check("pod-(a|b).*", "pod-");
        check("pod-a.*|pod-b", "pod-");
        check("a.*|b", "");
        check("(?i)ab.*", "");
        check("^x+", "x");
        check(".*", "");
        check("", "");
        check("é.*|è.*", "");
        check("(ab)?c", "");
        check(r"\Qa.b\E.*", "a.b");
        check("x{,2}y.*", "x{,2}y");
    }

    #[test]
    fn names_are_listed() {
        use MatchOp::{Equal, NotEqual, NotRegex, Regex};
        let name = METRIC_NAME;
        check(&[], None);
        check(&[("job", Equal, "a")], None);
        check(&[(name, Equal, "a")], Some(&["a"]));
        check(&[(name, Equal, "")], None);
        check(&[(name, NotEqual, "a")], None);
        check(&[(name, Equal, "a"), (name, Equal, "b")], Some(&[]));
        check(&[(name, Regex, "a|b")], Some(&["a", "b"]));
        check(&[(name, Regex, "x(a|b)_total")], Some(&["xa_total", "xb_total"]));
        check(&[(name, Regex, "^a$|b")], Some(&["a", "b"]));
        check(&[(name, Regex, "a^b")], Some(&[]));
        check(&[(name, Regex, "a|b"), (name, NotRegex, "b")], Some(&["a"]));
        check(&[(name, Regex, "a.*")], None);
        check(&[(name, Regex, "a+")], None);
        check(&[(name, Regex, "a?")], None);
        check(&[(name, Regex, "")], None);
        check(&[(name, Regex, "ü|(?i)é")], Some(&["É", "é", "ü"]));
    }

    /// Breaks if a part is left out, or a value not looked for, since a pattern means something else to Go.
    #[test]
    fn patterns_stand_for_the_texts_that_go_reads_in_them() {
        use MatchOp::Regex;
        let name = METRIC_NAME;
        check(&[(name, Regex, "a[b&&c]")], Some(&["a&", "ab", "ac"]));
        check(&[(name, Regex, "x[[y]")], Some(&["x[", "xy"]));
        check(&[(name, Regex, "[[a]b]")], Some(&["[b]", "ab]"]));
        check(&[(name, Regex, "[a~~b]")], Some(&["a", "b", "~"]));
        check(&[(name, Regex, r"\Qa|b\E")], Some(&["a|b"]));
        check(&[(name, Regex, "a{,2}|b")], Some(&["a{,2}", "b"]));
        check(&[(name, Regex, r"v\d")], Some(&["v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9"]));
    }

    #[test]
    fn values_are_listed_unless_the_empty_one_is_among_them() {
        use MatchOp::{Equal, NotEqual, NotRegex, Regex};
        let check = |op: MatchOp, value: &str, expected: Option<&[&str]>| {
            let found = literal_values(&Matcher::new("l", op, value).unwrap());
            assert_eq!(found, expected.map(|e| e.iter().map(ToString::to_string).collect()), "{op:?} {value}");
        };
        check(Equal, "x", Some(&["x"]));
        check(Equal, "", None);
        check(NotEqual, "x", None);
        check(NotRegex, "x|y", None);
        check(Regex, "y|x|y", Some(&["x", "y"]));
        check(Regex, "x|", None);
        check(Regex, "x[&&y]", Some(&["x&", "xy"]));
        check(Regex, "$x", Some(&[]));
        check(Regex, "x+", None);
    }
}
