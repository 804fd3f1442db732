//! What many tests of one field look for, found in one pass over its text. Most texts hold little of it, so that most tests
//! need not be asked one by one: what a screen does not name fails for sure, and what it names is asked as before.

use std::collections::HashMap;

use aho_corasick::packed::Searcher;
use aho_corasick::{AhoCorasick, Input, MatchKind};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind};

use super::FieldName;

/// Fewest askers of a field for which one pass is less work than asking each.
const ASKERS_MIN: usize = if cfg!(test) { 1 } else { 3 };
/// Bytes that are looked for of a longer part: what begins so is asked itself.
pub(super) const PART_BYTES_MAX: usize = 32;
/// Shorter parts stand in most texts.
const PART_BYTES_MIN: usize = 2;
/// Most parts of which one must be there.
const PARTS_MAX: usize = 50;

/// What a text must have for a test to pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sought {
    /// One of these in it.
    Parts(Vec<Vec<u8>>),
    /// It is one of these.
    Wholes(Vec<String>),
}

impl Sought {
    /// A text that must be in it; none: it is too short to tell much.
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

    /// What all texts hold in which a pattern is found; `folded`: in any case.
    pub fn by_pattern(pattern: &str, folded: bool) -> Option<Self> {
        let hir = ParserBuilder::new().case_insensitive(folded).build().parse(pattern).ok()?;
        Self::parts(required(&hir)?)
    }
}

/// Texts of which one is in whatever fits.
fn required(hir: &Hir) -> Option<Vec<Vec<u8>>> {
    match hir.kind() {
        HirKind::Literal(literal) => Some(vec![literal.0.to_vec()]),
        HirKind::Capture(capture) => required(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => required(&repetition.sub),
        HirKind::Concat(parts) => {
            // The longer the shortest of them, the rarer.
            let found = parts.iter().filter_map(required);
            found.max_by_key(|parts| parts.iter().map(Vec::len).min())
        }
        HirKind::Alternation(parts) => Some(parts.iter().map(required).collect::<Option<Vec<_>>>()?.concat()),
        _ => None,
    }
}

/// What is looked for in one field.
#[derive(Debug)]
struct Screen {
    field: FieldName,
    askers: Vec<usize>,
    /// Finds the first part many bytes at a time: most texts have none. None: there are too many of them for that.
    first: Option<Searcher>,
    /// Finds all of them.
    parts: Option<AhoCorasick>,
    /// Who asks for each part.
    of_part: Vec<Vec<usize>>,
    of_whole: HashMap<String, Vec<usize>>,
}

impl Screen {
    /// None: it cannot be made, so that each is asked.
    fn of(field: FieldName, sought: Vec<(usize, Sought)>) -> Option<Self> {
        let (mut parts, mut of_part): (Vec<Vec<u8>>, Vec<Vec<usize>>) = (Vec::new(), Vec::new());
        let mut numbers: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut of_whole: HashMap<String, Vec<usize>> = HashMap::new();
        let mut askers = Vec::with_capacity(sought.len());
        for (asker, sought) in sought {
            askers.push(asker);
            match sought {
                Sought::Wholes(texts) => {
                    for text in texts {
                        of_whole.entry(text).or_default().push(asker);
                    }
                }
                Sought::Parts(own) => {
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
            // Who begins where the first part is has nothing to skip.
            let all = all.match_kind(MatchKind::Standard).prefilter(first.is_none()).build(&parts).ok()?;
            (first, Some(all))
        };
        Some(Self { field, askers, first, parts, of_part, of_whole })
    }
}

/// Screens of several fields; askers are numbers that the caller gave.
#[derive(Debug, Default)]
pub struct Screens {
    list: Vec<Screen>,
    /// The screen of each asker.
    places: Vec<Option<usize>>,
}

impl Screens {
    /// Makes a screen of each field of which many ask for something.
    pub fn of(asked: impl IntoIterator<Item = (FieldName, usize, Sought)>) -> Self {
        let mut by_field: Vec<(FieldName, Vec<(usize, Sought)>)> = Vec::new();
        for (field, asker, sought) in asked {
            match by_field.iter_mut().find(|(known, _)| *known == field) {
                Some((_, all)) => all.push((asker, sought)),
                None => by_field.push((field, vec![(asker, sought)])),
            }
        }
        let many = by_field.into_iter().filter(|(_, all)| all.len() >= ASKERS_MIN);
        let list: Vec<Screen> = many.filter_map(|(field, all)| Screen::of(field, all)).collect();
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

    /// The screen that an asker is in.
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

    /// Names the askers of a screen that a text may let pass, some of them more than once; all others fail.
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
                // Never with patterns of this kind; then each is asked.
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
        let check = |pattern: &str, folded: bool, parts: &[&str]| {
            let expected = parts.iter().map(|part| part.as_bytes().to_vec()).collect::<Vec<_>>();
            let expected = (!expected.is_empty()).then_some(Sought::Parts(expected));
            assert_eq!(Sought::by_pattern(pattern, folded), expected, "{pattern}");
        };
        check(r"took (?P<ms>\d+)ms", false, &["took "]);
        check("timeout|refused", false, &["timeout", "refused"]);
        check(r"^/cart/(?P<cart>\d+)$", false, &["/cart/"]);
        check("(abc)+x?", false, &["abc"]);
        check(r"[a-z]+=(warn|error): \w+", false, &["warn", "error"]);
        for nothing in ["a|bc", "(abc)?", r"\d+", "(?i)abc", ".*", "x"] {
            check(nothing, false, &[]);
        }
        check("abc", true, &[]);
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
