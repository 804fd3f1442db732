//! Searches a field's text once for everything that many tests look for. Most texts contain little of it, so most tests
//! need not be evaluated: a test that a screen does not report certainly fails; one that it reports is evaluated as
//! usual.

use std::collections::HashMap;

use aho_corasick::packed::Searcher;
use aho_corasick::{AhoCorasick, Input, MatchKind};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind};

use super::{Case, FieldName};

/// With fewer tests on a field than this, a screen is more work than evaluating each.
const ASKERS_MIN: usize = if cfg!(test) { 1 } else { 3 };
/// Longer substrings are searched only by their first bytes.
pub(super) const PART_BYTES_MAX: usize = 32;
/// Shorter substrings occur in most texts.
const PART_BYTES_MIN: usize = 2;
/// Maximum number of alternative substrings of a test.
const PARTS_MAX: usize = 50;

/// What a text must contain or equal for a test to pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequiredText {
    /// It contains one of these.
    Parts(Vec<Vec<u8>>),
    /// It equals one of these.
    Wholes(Vec<String>),
}

impl RequiredText {
    /// A substring that it must contain; `None` if it is too short to be selective.
    pub fn part(text: &str) -> Option<Self> {
        Self::parts(vec![text.as_bytes().to_vec()])
    }

    fn parts(mut parts: Vec<Vec<u8>>) -> Option<Self> {
        for part in &mut parts {
            part.truncate(PART_BYTES_MAX);
        }
        let tells = parts.len() <= PARTS_MAX && parts.iter().all(|part| part.len() >= PART_BYTES_MIN);
        (tells && !parts.is_empty()).then_some(Self::Parts(parts))
    }

    /// What every text must contain to match a pattern.
    pub fn by_pattern(pattern: &str, case: Case) -> Option<Self> {
        let hir = ParserBuilder::new().case_insensitive(case.is_ignored()).build().parse(pattern).ok()?;
        Self::parts(required(&hir)?)
    }
}

/// Substrings, one of which is in every match.
fn required(hir: &Hir) -> Option<Vec<Vec<u8>>> {
    match hir.kind() {
        HirKind::Literal(literal) => Some(vec![literal.0.to_vec()]),
        HirKind::Capture(capture) => required(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => required(&repetition.sub),
        HirKind::Concat(parts) => {
            // The longer the shortest of them, the more selective.
            let found = parts.iter().filter_map(required);
            found.max_by_key(|parts| parts.iter().map(Vec::len).min())
        }
        HirKind::Alternation(parts) => Some(parts.iter().map(required).collect::<Option<Vec<_>>>()?.concat()),
        _ => None,
    }
}

#[derive(Debug)]
struct FieldSearch {
    field: FieldName,
    askers: Vec<usize>,
    /// Finds the first substring many bytes at a time, as most texts have none. `None` if there are too many substrings
    /// for that.
    first: Option<Searcher>,
    /// Finds all substrings.
    parts: Option<AhoCorasick>,
    /// For each substring, the tests that need it.
    of_part: Vec<Vec<usize>>,
    of_whole: HashMap<String, Vec<usize>>,
}

impl FieldSearch {
    /// `None` if it cannot be built; then every test is evaluated.
    fn of(field: FieldName, sought: Vec<(usize, RequiredText)>) -> Option<Self> {
        let (mut parts, mut of_part): (Vec<Vec<u8>>, Vec<Vec<usize>>) = (Vec::new(), Vec::new());
        let mut numbers: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut of_whole: HashMap<String, Vec<usize>> = HashMap::new();
        let mut askers = Vec::with_capacity(sought.len());
        for (asker, sought) in sought {
            askers.push(asker);
            match sought {
                RequiredText::Wholes(texts) => {
                    for text in texts {
                        of_whole.entry(text).or_default().push(asker);
                    }
                }
                RequiredText::Parts(own) => {
                    for part in own {
                        let number = *numbers.entry(part).or_insert_with_key(|part| {
                            parts.push(part.clone());
                            of_part.push(Vec::new());
                            parts.len() - 1
                        });
                        of_part[number].push(asker);
                    }
                }
            }
        }
        let (first, parts) = if parts.is_empty() {
            (None, None)
        } else {
            let (first, mut all) = (Searcher::new(&parts), AhoCorasick::builder());
            // The search starts at the first match, so a prefilter would not help.
            let all = all.match_kind(MatchKind::Standard).prefilter(first.is_none()).build(&parts).ok()?;
            (first, Some(all))
        };
        Some(Self { field, askers, first, parts, of_part, of_whole })
    }
}

/// Screens for several fields; tests are identified by the caller's numbers.
#[derive(Debug, Default)]
pub struct Screens {
    list: Vec<FieldSearch>,
    /// The screen of each test, if it has one.
    places: Vec<Option<usize>>,
}

impl Screens {
    /// Builds a screen for each field with enough tests.
    pub fn of(asked: impl IntoIterator<Item = (FieldName, usize, RequiredText)>) -> Self {
        let mut by_field: Vec<(FieldName, Vec<(usize, RequiredText)>)> = Vec::new();
        for (field, asker, sought) in asked {
            match by_field.iter_mut().find(|(known, _)| *known == field) {
                Some((_, all)) => all.push((asker, sought)),
                None => by_field.push((field, vec![(asker, sought)])),
            }
        }
        let many = by_field.into_iter().filter(|(_, all)| all.len() >= ASKERS_MIN);
        let list: Vec<FieldSearch> = many.filter_map(|(field, all)| FieldSearch::of(field, all)).collect();
        let askers = list.iter().flat_map(|screen| &screen.askers);
        let mut places = vec![None; askers.max().map_or(0, |last| last + 1)];
        for (place, screen) in list.iter().enumerate() {
            screen.askers.iter().for_each(|asker| places[*asker] = Some(place));
        }
        Self { list, places }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Says whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The screen of a test, if it has one.
    pub fn place(&self, asker: usize) -> Option<usize> {
        self.places.get(asker).copied().flatten()
    }

    /// The field of a screen.
    pub fn field(&self, place: usize) -> &FieldName {
        &self.list[place].field
    }

    /// All askers of a screen.
    pub fn askers(&self, place: usize) -> &[usize] {
        &self.list[place].askers
    }

    /// Calls a function with each test of a screen that the text may pass, possibly more than once; all others fail.
    pub fn find(&self, place: usize, text: &str, each: &mut dyn FnMut(usize)) {
        let screen = &self.list[place];
        let begin = match &screen.first {
            Some(first) => first.find(text).map(|found| found.start()),
            None => Some(0),
        };
        if let (Some(parts), Some(begin)) = (&screen.parts, begin) {
            match parts.try_find_overlapping_iter(Input::new(text).range(begin..)) {
                Ok(found) => {
                    for part in found {
                        screen.of_part[part.pattern().as_usize()].iter().for_each(|asker| each(*asker));
                    }
                }
                // Cannot happen with patterns of this kind; if it did, evaluate every test.
                Err(_) => screen.askers.iter().for_each(|asker| each(*asker)),
            }
        }
        screen.of_whole.get(text).into_iter().flatten().for_each(|asker| each(*asker));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Condition, SharedTests};
    use super::*;

    #[test]
    fn what_patterns_require() {
        let check = |pattern: &str, case: Case, parts: &[&str]| {
            let expected = parts.iter().map(|part| part.as_bytes().to_vec()).collect::<Vec<_>>();
            let expected = (!expected.is_empty()).then_some(RequiredText::Parts(expected));
            assert_eq!(RequiredText::by_pattern(pattern, case), expected, "{pattern}");
        };
        check(r"took (?P<ms>\d+)ms", Case::Sensitive, &["took "]);
        check("timeout|refused", Case::Sensitive, &["timeout", "refused"]);
        check(r"^/cart/(?P<cart>\d+)$", Case::Sensitive, &["/cart/"]);
        check("(abc)+x?", Case::Sensitive, &["abc"]);
        check(r"[a-z]+=(warn|error): \w+", Case::Sensitive, &["warn", "error"]);
        for nothing in ["a|bc", "(abc)?", r"\d+", "(?i)abc", ".*", "x"] {
            check(nothing, Case::Sensitive, &[]);
        }
        check("abc", Case::Insensitive, &[]);
    }

    /// What a screen does not name fails, and what is told by it passes.
    #[test]
    fn a_screen_leaves_out_what_fails() {
        let leaf = |op: &str, value: serde_json::Value| json!({"field": "m", "op": op, "value": value});
        let folded = |op: &str| json!({"field": "m", "op": op, "value": "ABC", "caseSensitive": false});
        let leaves = [
            leaf("contains", json!("abc")),
            leaf("contains", json!("bcd")),
            leaf("startsWith", json!("ab")),
            leaf("endsWith", json!("déf")),
            leaf("eq", json!("abc")),
            leaf("in", json!(["x", "déf"])),
            leaf("regex", json!("abb*c(d|e)")),
            leaf("glob", json!("/a/{id}/**")),
            leaf("eq", json!(5)),
            leaf("ne", json!("abc")),
            leaf("exists", json!(true)),
            leaf("contains", json!("a")),
            folded("contains"),
            folded("regex"),
            leaf("contains", json!("abc".repeat(20))),
        ];
        let mut tests = SharedTests::default();
        for condition in &leaves {
            tests.add(&Condition::parse(condition).unwrap());
        }
        let asked = (0..tests.len()).filter_map(|test| Some((tests.field(test).clone(), test, tests.sought(test)?)));
        let screens = Screens::of(asked);
        let in_screen: Vec<usize> = (0..tests.len()).filter(|test| screens.place(*test).is_some()).collect();
        assert_eq!(screens.len(), 1);
        assert_eq!(in_screen, [0, 1, 2, 3, 4, 5, 6, 7, 14]);
        assert_eq!(in_screen.into_iter().filter(|test| tests.is_told(*test)).collect::<Vec<_>>(), [0, 1, 4, 5]);
        let long = "abc".repeat(21);
        for text in ["", "abc", "xabcdx", "abbce", "déf", "x", "/a/1/b", "/a/1", "5", "ABC", "abcdéf", long.as_str()]
        {
            let mut named = Vec::new();
            screens.find(0, text, &mut |asker| named.push(asker));
            for test in screens.askers(0) {
                assert!(named.contains(test) || !tests.passes(*test, Some(text)), "{text}: {}", leaves[*test]);
                let is_told = tests.is_told(*test) && named.contains(test);
                assert!(!is_told || tests.passes(*test, Some(text)), "{text}: {}", leaves[*test]);
            }
        }
    }
}
