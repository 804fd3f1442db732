use std::time::{Duration, Instant};

use super::super::WatchedRegex;
use super::*;
use crate::cancellation::Watch;
use crate::read_stats::Gate;

/// What a pattern finds first, and its groups; `-`: a group that has no part in it; nothing: no match.
fn found(pattern: &str, text: &str) -> String {
    assert!(looks_around(pattern), "{pattern}");
    let regex = WatchedRegex::looking(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"));
    let mut places = regex.group_places();
    if !regex.find(text, 0, &mut places) {
        assert!(!regex.is_match(text), "{pattern}");
        return String::new();
    }
    assert!(regex.is_match(text), "{pattern}");
    let piece = |group| places.get(group).map_or("-", |(from, to)| &text[from..to]);
    (0..regex.regex().captures_len()).map(piece).collect::<Vec<_>>().join("|")
}

/// As PostgreSQL 15 finds them.
#[test]
fn texts_are_looked_around_in() {
    for (pattern, text, expected) in [
        (r"foo(?=bar)", "foobaz foobar", "foo"),
        (r"foo(?!bar)", "foobar foobaz", "foo"),
        (r"\w+(?=,)", "ab cd, ef", "cd"),
        (r"(?<=\$)\d+", "12 $34", "34"),
        (r"(?<![$\d])\d+", "$12 34", "34"),
        (r"(?<=a.{1,3})x", "abx", "x"),
        (r"(?<=ab|c)d", "cd", "d"),
        (r"^(?!.*secret).*$", "no secrets", ""),
        (r"^(?!.*secret).*$", "all open", "all open"),
        (r"(a+)b\1", "aabaa", "aabaa|aa"),
        (r"(a+)b\1$", "aaba", "aba|a"),
        (r"(\w)\1", "abccd", "cc|c"),
        (r"\b(\w+) \1\b", "this is is it", "is is|is"),
        (r"(?i)(ä)\1", "Ää", "Ää|Ä"),
        (r"(a)|(b)\2", "bb", "bb|-|b"),
        (r"(?=(a))a(b)", "ab", "ab|b"),
        (r"(?x) a (?= b ) # before b", "ab", "a"),
        (r"(?:a|ab)(?=c)", "abc", "ab"),
        (r"x*?(?=y)", "xxy", "xx"),
        (r"(a*)*(?!a)", "aaa", "aaa|aaa"),
        (r"(a*)*(?!a)", "b", "|"),
        (r"(?s)a.(?=b)", "a\nb", "a\n"),
        (r"a.(?=b)", "a\nb", ""),
        (r"(?m)^b(?=c)", "a\nbc", "b"),
        (r"[^[:digit:]\]]{2,3}(?=\])", "1]abcd]", "bcd"),
        (r"(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)\10", "abcdefghijj", "abcdefghijj|a|b|c|d|e|f|g|h|i|j"),
        (r"(?P<n>a)(?=b)", "ab", "a|a"),
        (r"a{2}(?=,)|a{,2}(?=;)", "aa,", "aa"),
        (r"\x61\u0062(?=\p{L})", "abc", "ab"),
        ("日(?=本)", "月日日本", "日"),
    ] {
        assert_eq!(found(pattern, text), expected, "{pattern} {text:?}");
    }
}

#[test]
fn others_are_run_by_the_crate() {
    for pattern in
        ["a", r"\\1", r"[(?=a)\]]", r"\(?=a", "(?:a)", "(?P<n>a)", "(?<n>a)", "(?i)a", r"[]\1]", "[[:alpha:]]"]
    {
        assert!(!looks_around(pattern), "{pattern}");
    }
}

#[test]
fn wrong_ones_are_refused() {
    for pattern in [
        "(?=a",
        "(?=a))",
        r"\1(a)",
        r"(a)\2",
        "(?=*)",
        "(?=[b)",
        "(?=a){3,2}",
        r"(?=a)\",
        r"(?=\q)",
        "(?=a)a**",
        "(?=a)a{2}{3}",
        "(?y)(?=a)",
    ] {
        let error = WatchedRegex::looking(pattern).expect_err(pattern);
        assert_eq!(error.kind, ErrorKind::Invalid, "{pattern}: {error}");
    }
    for pattern in [
        "(".repeat(1_000) + "(?=a)",
        "(?=a)(?:(?:bc){100}d){1000}".to_owned(),
        "(?=a)(?:(?:(?:){9000}){9000}){9000}".to_owned(),
    ] {
        let error = WatchedRegex::looking(&pattern).expect_err("large");
        assert_eq!(error.kind, ErrorKind::LimitExceeded, "{error}");
    }
}

#[test]
fn all_places_are_found() {
    let regex = WatchedRegex::looking(r"(?<!-)(\d)(?=\d)").expect("a pattern");
    let mut places = Vec::new();
    regex.each("123 -45 678", &mut regex.match_places(), |found| {
        places.extend(found.get(0));
        true
    });
    assert_eq!(places, [(0, 1), (1, 2), (8, 9), (9, 10)]);
    let mut out = String::new();
    let mut at = regex.group_places();
    assert!(regex.find("12", 0, &mut at));
    regex.expand("12", &at, "<${1}>", &mut out);
    assert_eq!(out, "<1>");
}

/// Of these some take the square, and some any power, of the length of a text.
#[test]
fn what_takes_long_is_refused() {
    let text = "a".repeat(100_000);
    for pattern in [r"(a*)*\1b", r"(a|aa)+(?!a)b", r"(?=(?:.*x))a", r"(?<=x.*)b|(?<=b.*)a"] {
        let regex = WatchedRegex::looking(pattern).expect(pattern);
        let began = Instant::now();
        assert!(!regex.is_match(&text), "{pattern}");
        let error = regex.outcome().expect_err(pattern);
        assert_eq!(error.kind, ErrorKind::LimitExceeded, "{pattern}: {error}");
        assert!(began.elapsed() < Duration::from_secs(30), "{pattern}");
        // It was over for all texts.
        assert!(!regex.is_match("x"), "{pattern}");
    }
}

#[derive(Debug)]
struct Over;

impl Gate for Over {
    fn take(&self, _: usize) -> Result<()> {
        Ok(())
    }

    fn give_back(&self, _: usize) {}

    fn check(&self) -> Result<()> {
        Err(Error::new(ErrorKind::Cancelled, "it ended"))
    }
}

#[test]
fn a_search_ends_with_its_query() {
    let regex = WatchedRegex::looking(r"(.*)(.*)(.*)\1\2\3x").expect("a pattern");
    let watch = Watch::new(std::sync::Arc::new(Over));
    assert!(!watch.over(|| regex.is_match(&"a".repeat(100_000))));
    assert!(watch.is_stopped() && regex.outcome().is_ok());
}
