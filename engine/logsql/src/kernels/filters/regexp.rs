//! `~re`: an RE2 expression matches anywhere in the value.
//!
//! An expression that is but some texts, perhaps tied to the ends of the value, is not run as one. Of the others the
//! texts that must stand in each match prune: as words where they are whole ones, as a substring that is looked for
//! before the expression is.

use memchr::memmem::Finder;
use quiver_types::logs::{MatchHints, MatcherForm, ValueMatcher};
use quiver_types::matcher::WatchedRegex;
use regex::Regex;
use regex_syntax::hir::{Class, ClassUnicodeRange, Hir, HirKind, Look};

use super::hints::{ALTERNATIVES_MAX, alternatives};
use super::matcher_form::form;
use super::substring::inner_words;
use crate::kernels::golang_regex;

/// So many texts are compared one by one.
const TEXTS_MAX: usize = 8;

/// A regular expression.
#[derive(Debug, Clone)]
pub struct Regexp {
    pattern: String,
    plan: Plan,
    hints: MatchHints,
}

#[derive(Debug, Clone)]
enum Plan {
    /// Any of these texts.
    Texts(Vec<Text>),
    /// The expression, after a text that must be there.
    Run { regex: WatchedRegex, required: Option<Box<Finder<'static>>> },
}

/// A text within a value.
#[derive(Debug, Clone)]
struct Text {
    finder: Finder<'static>,
    at_begin: bool,
    at_end: bool,
}

impl Text {
    fn matches(&self, value: &str) -> bool {
        let (value, text) = (value.as_bytes(), self.finder.needle());
        match (self.at_begin, self.at_end) {
            (false, false) => self.finder.find(value).is_some(),
            (true, false) => value.starts_with(text),
            (false, true) => value.ends_with(text),
            (true, true) => value == text,
        }
    }
}

impl Regexp {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The reason why it is none.
    pub fn new(pattern: impl Into<String>) -> Result<Self, String> {
        let pattern = pattern.into();
        let regex = golang_regex::compile(&pattern)?;
        let hir = regex_syntax::parse(regex.as_str()).ok();
        let ways = hir.as_ref().map(|hir| ways(strip_ends(hir)));
        let (plan, hints) = match ways {
            Some(ways) => {
                let hints = if regex.is_match("") { MatchHints::default() } else { hints(&ways) };
                (plan(regex, &ways, &hints), hints)
            }
            None => (Plan::Run { regex: WatchedRegex::new(regex), required: None }, MatchHints::default()),
        };
        Ok(Self { pattern, plan, hints })
    }
}

impl ValueMatcher for Regexp {
    fn matches(&self, value: &str) -> bool {
        match &self.plan {
            Plan::Texts(texts) => texts.iter().any(|t| t.matches(value)),
            Plan::Run { regex, required } => {
                required.as_ref().is_none_or(|r| r.find(value.as_bytes()).is_some()) && regex.is_match(value)
            }
        }
    }

    fn hints(&self) -> MatchHints {
        self.hints.clone()
    }

    fn describe(&self) -> String {
        format!("~{:?}", self.pattern)
    }

    fn written(&self) -> Option<MatcherForm> {
        Some(form("regexp").texts([&self.pattern]))
    }
}

/// A piece of a way to match.
#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Text(String),
    /// The beginning of the value.
    Begin,
    /// The end of the value.
    End,
    /// Any text, also none.
    Gap,
}

type PieceSequence = Vec<Piece>;

/// Leaves out `.*` at both ends of an expression that is tied to neither: it matches nothing as well.
fn strip_ends(hir: &Hir) -> &[Hir] {
    let parts = match hir.kind() {
        HirKind::Concat(parts) => parts.as_slice(),
        _ => std::slice::from_ref(hir),
    };
    let optional = |part: &Hir| matches!(part.kind(), HirKind::Repetition(r) if r.min == 0);
    let start = parts.iter().take_while(|p| optional(p)).count();
    let end = parts.len() - parts[start..].iter().rev().take_while(|p| optional(p)).count();
    &parts[start..end]
}

/// The ways in which a concatenation can match.
fn ways(parts: &[Hir]) -> Vec<PieceSequence> {
    let mut all: Vec<PieceSequence> = vec![Vec::new()];
    for part in parts {
        let more = ways_of(part);
        if all.len() * more.len() > ALTERNATIVES_MAX {
            for way in &mut all {
                way.push(Piece::Gap);
            }
            continue;
        }
        if let [only] = more.as_slice() {
            // In place: a copy for each part of a long expression would be quadratic.
            for way in &mut all {
                way.extend_from_slice(only);
            }
            continue;
        }
        all =
            all.iter().flat_map(|way| more.iter().map(move |next| way.iter().chain(next).cloned().collect())).collect();
    }
    all
}

fn ways_of(hir: &Hir) -> Vec<PieceSequence> {
    let gap = || vec![vec![Piece::Gap]];
    match hir.kind() {
        HirKind::Empty => vec![vec![]],
        HirKind::Literal(literal) => match std::str::from_utf8(&literal.0) {
            Ok(text) => vec![vec![Piece::Text(text.to_owned())]],
            Err(_) => gap(),
        },
        HirKind::Class(Class::Unicode(class)) => {
            let count: usize = class.ranges().iter().map(ClassUnicodeRange::len).sum();
            if count == 0 || count > 4 {
                return gap();
            }
            let chars = class.ranges().iter().flat_map(|r| r.start()..=r.end());
            chars.map(|c| vec![Piece::Text(c.to_string())]).collect()
        }
        HirKind::Look(Look::Start) => vec![vec![Piece::Begin]],
        HirKind::Look(Look::End) => vec![vec![Piece::End]],
        // Borders of lines and words match no text, but are conditions: the expression itself must check them.
        HirKind::Look(_) | HirKind::Class(Class::Bytes(_)) => gap(),
        HirKind::Capture(capture) => ways_of(&capture.sub),
        HirKind::Repetition(r) if r.min == 0 && r.max == Some(1) => {
            let mut all = ways_of(&r.sub);
            all.push(vec![]);
            all
        }
        HirKind::Repetition(r) if r.min == 0 => gap(),
        HirKind::Repetition(r) => {
            let mut all = ways_of(&r.sub);
            if r.max != Some(1) {
                for way in &mut all {
                    way.push(Piece::Gap);
                }
            }
            all
        }
        HirKind::Concat(parts) => ways(parts),
        HirKind::Alternation(parts) => {
            let all: Vec<PieceSequence> = parts.iter().flat_map(ways_of).collect();
            if all.len() > ALTERNATIVES_MAX { gap() } else { all }
        }
    }
}

/// A text of a way, joined from neighbours: whether it begins and ends the value.
struct TextFragment {
    text: String,
    at_begin: bool,
    at_end: bool,
}

/// The texts of a way, and whether the way is but one text.
fn joined(way: &PieceSequence) -> (Vec<TextFragment>, bool) {
    let mut texts: Vec<TextFragment> = Vec::new();
    let mut open = false;
    let mut begin = false;
    let mut plain = true;
    for piece in way {
        match piece {
            Piece::Text(text) if open => texts.last_mut().expect("a text is open").text.push_str(text),
            Piece::Text(text) => {
                texts.push(TextFragment { text: text.clone(), at_begin: begin, at_end: false });
                open = true;
            }
            Piece::Begin => {
                plain = plain && !open && texts.is_empty();
                begin = !open;
                continue;
            }
            Piece::End => match texts.last_mut().filter(|_| open) {
                Some(text) => {
                    text.at_end = true;
                    open = false;
                }
                None => plain = false,
            },
            Piece::Gap => {
                open = false;
                plain = false;
            }
        }
        begin = false;
    }
    // Text after the end, or a second text, can match in no simple way.
    plain = plain && texts.len() == 1;
    (texts, plain)
}

fn hints(ways: &[PieceSequence]) -> MatchHints {
    let all: Vec<(Vec<TextFragment>, bool)> = ways.iter().map(joined).collect();
    let words = all.iter().map(|(texts, _)| {
        let mut words: Vec<String> = texts.iter().flat_map(|t| inner_words(&t.text, t.at_begin, t.at_end)).collect();
        words.sort_unstable();
        words.dedup();
        words
    });
    let exact = all
        .iter()
        .map(|(texts, plain)| match texts.as_slice() {
            [text] if *plain && text.at_begin && text.at_end => Some(text.text.clone()),
            _ => None,
        })
        .collect::<Option<Vec<_>>>();
    let substring = match all.as_slice() {
        [(texts, _)] => texts.iter().max_by_key(|t| t.text.len()).map(|t| t.text.clone()),
        _ => None,
    };
    let starts = match all.as_slice() {
        [(texts, _)] => texts.first().filter(|t| t.at_begin).map(|t| t.text.clone()),
        _ => None,
    };
    MatchHints { words: alternatives(words.collect()), exact, substring, starts, ..MatchHints::default() }
}

fn plan(regex: Regex, ways: &[PieceSequence], hints: &MatchHints) -> Plan {
    let texts: Option<Vec<Text>> = (ways.len() <= TEXTS_MAX)
        .then(|| {
            ways.iter()
                .map(|way| match (joined(way), way.is_empty()) {
                    // The empty expression matches everything.
                    ((_, _), true) => Some((String::new(), false, false)),
                    ((mut texts, true), _) => texts.pop().map(|t| (t.text, t.at_begin, t.at_end)),
                    _ => None,
                })
                .map(|text| {
                    text.map(|(text, at_begin, at_end)| Text {
                        finder: Finder::new(text.as_bytes()).into_owned(),
                        at_begin,
                        at_end,
                    })
                })
                .collect()
        })
        .flatten();
    match texts {
        Some(texts) if !texts.is_empty() => Plan::Texts(texts),
        _ => {
            let required = hints.substring.as_ref().filter(|s| s.len() > 1);
            let required = required.map(|s| Box::new(Finder::new(s.as_bytes()).into_owned()));
            Plan::Run { regex: WatchedRegex::new(regex), required }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regexp(pattern: &str) -> Regexp {
        Regexp::new(pattern).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn plans() {
        let texts = |pattern: &str| matches!(regexp(pattern).plan, Plan::Texts(_));
        for simple in
            ["foo", ".*foo.*", "^foo", "foo$", "^foo$", "foo|bar", "^(foo|bar)$", "fo[oa]", "", ".*", "colou?r"]
        {
            assert!(texts(simple), "{simple}");
        }
        for run in ["foo.+bar", "[a-z]+", "(?i)error message", "a*b+", r"\bfoo\b", "^.*foo", "foo^bar", "(?m)^foo"] {
            assert!(!texts(run), "{run}");
        }
    }

    #[test]
    fn values_of_many_lines() {
        let trace = format!("panic: lost\n{}\tat Pool.run", "\tat Main.main\n".repeat(1000));
        for pattern in ["panic.*Pool", "^panic.+run$", "(?i)PANIC.*pool", "lost.\tat", "main.+pool|main.+Pool"] {
            let regexp = regexp(pattern);
            // Once as a short text, and again when its machine is made.
            for value in ["panic: lost\n\tat main\n\tat Pool.run", &trace, &trace] {
                assert!(regexp.matches(value), "{pattern}");
            }
        }
        for pattern in ["(?-s)panic.*Pool", "(?-s)^panic.+run$", "^\tat", "lost$"] {
            assert!(!regexp(pattern).matches(&trace), "{pattern}");
        }
    }

    #[test]
    fn hints_of_expressions() {
        let check = |pattern: &str, words: &[&[&str]], substring: Option<&str>| {
            let hints = regexp(pattern).hints();
            assert_eq!(hints.words, words, "{pattern}");
            assert_eq!(hints.substring.as_deref(), substring, "{pattern}");
        };
        check("foo", &[], Some("foo"));
        check(" foo bar ", &[&["bar", "foo"]], Some(" foo bar "));
        check("foo qwe bar.+", &[&["qwe"]], Some("foo qwe bar"));
        check("^foo$", &[&["foo"]], Some("foo"));
        check("(user| name) id=", &[&["id"], &["id", "name"]], None);
        check("(user|name)=", &[], None);
        check("(, user |, name )id=", &[&["id", "user"], &["id", "name"]], None);
        check("x.+ took [0-9]+ms", &[&["took"]], Some(" took "));
        check("(abc )+x", &[], Some("abc "));
        check(".*", &[], None);
        check("a|", &[], None);
        // What stands behind a gap does not begin the value.
        check("^.*foo bar", &[], Some("foo bar"));
        check("^foo .+bar x", &[&["foo"]], Some("bar x"));
        assert_eq!(regexp("^(foo|bar)$").hints().exact, Some(vec!["foo".into(), "bar".into()]));
        let starts = |pattern: &str| regexp(pattern).hints().starts;
        assert_eq!(starts("^\\{").as_deref(), Some("{"));
        assert_eq!(starts("^foo .+bar").as_deref(), Some("foo "));
        for free in ["foo", "^.*foo", "^(foo|bar)", "(?m)^foo", "^", "^a*foo", "(?i)^foo", "^(foo)?"] {
            assert_eq!(starts(free), None, "{free}");
        }
    }
}
