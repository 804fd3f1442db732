//! What every filter promises: hints hold of each value that matches.

use std::sync::Arc;

use proptest::prelude::*;
use quiver_types::cancellation::Watch;
use quiver_types::logs::{MatchHints, RowMatcher, ValueMatcher, is_word_char, words};
use quiver_types::read_stats::Gate;
use quiver_types::{Error, ErrorKind};

use super::hints::{ALTERNATIVES_MAX, EXACT_MAX, WORDS_MAX};
use super::*;
use crate::kernels::values::numeric;

/// Whether hints allow a value.
fn allows(hints: &MatchHints, value: &str) -> bool {
    let own: Vec<&str> = words(value).collect();
    let words_allow =
        hints.words.is_empty() || hints.words.iter().any(|list| list.iter().all(|w| own.contains(&w.as_str())));
    words_allow
        && hints.exact.as_ref().is_none_or(|all| all.iter().any(|v| v == value))
        && hints.number.is_none_or(|r| numeric(value).is_some_and(|n| n >= r.min && n <= r.max))
        && hints.substring.as_ref().is_none_or(|s| value.contains(s.as_str()))
        && hints.starts.as_ref().is_none_or(|s| value.starts_with(s.as_str()))
        && !(hints.present && value.is_empty())
}

fn check(matcher: &dyn ValueMatcher, yes: &[&str], no: &[&str]) {
    for value in yes {
        assert!(matcher.matches(value), "{} on {value:?}", matcher.describe());
        assert!(allows(&matcher.hints(), value), "hints of {} on {value:?}", matcher.describe());
    }
    for value in no {
        assert!(!matcher.matches(value), "{} on {value:?}", matcher.describe());
        assert!(!matcher.hints().present || value.is_empty(), "hints of {} on {value:?}", matcher.describe());
    }
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| (*s).to_owned()).collect()
}

#[test]
fn phrases() {
    check(&Phrase::new(""), &[""], &["foo"]);
    check(&Phrase::new("foo"), &["a foo bar", "afoobar foo", "foo"], &["", "fo", "foobar", "бfoo", "foo_"]);
    check(&Phrase::new("три"), &["раз два (три!)"], &["тришка"]);
    check(&Phrase::new("foo bar"), &["foo bar", "(foo bar)"], &["foo  bar", "xfoo bar"]);
    check(&Phrase::new(".foo bar! "), &["a.foo bar! baz"], &[]);
    check(&Phrase::new("255.255"), &["255.255.255.255"], &["1255.2551"]);
    check(&Phrase::new("5.255"), &[], &["255.255.255.255"]);
    check(&Prefix::new(""), &["foo"], &[""]);
    check(&Prefix::new("foo"), &["foobar", "a foo bar"], &["afoo", ""]);
    check(&Prefix::new("foo bar!"), &["foo bar! baz"], &["foo bar"]);
    check(&Substring::new("oob"), &["foobar"], &["foo", ""]);
    check(&AnyCasePhrase::new("Тест FOO"), &["тЕСТ foo", "x ТЕСТ Foo."], &["тест foob"]);
    check(&AnyCasePhrase::new(""), &[""], &["foo"]);
    check(&AnyCasePrefix::new("FO"), &["foo", "a FOO"], &["afo", ""]);
    check(&AnyCasePrefix::new(""), &["x"], &[""]);
}

#[test]
fn lists() {
    check(&Exact::new("foo"), &["foo"], &["foo ", ""]);
    check(&Exact::new(""), &[""], &["x"]);
    check(&ExactPrefix::new("foo b"), &["foo bar"], &["a foo bar"]);
    check(&ExactPrefix::new(""), &["", "x"], &[]);
    check(&InList::new(texts(&["a", "b c"])), &["a", "b c"], &["", "b"]);
    check(&InList::new(texts(&["a", ""])), &["a", ""], &["b"]);
    check(&InList::new(vec![]), &[], &["", "a"]);
    check(&InList::new((0..100).map(|i| i.to_string()).collect()), &["7", "99"], &["100"]);
    check(&ContainsAll::new(texts(&["a", "b c"])), &["b c a"], &["a b", ""]);
    check(&ContainsAll::new(vec![]), &["", "a"], &[]);
    check(&ContainsAll::new(texts(&[""])), &["", "a"], &[]);
    check(&ContainsAny::new(texts(&["a", "b c"])), &["x a", "b c"], &["b", ""]);
    check(&ContainsAny::new(texts(&["a", ""])), &["x a", "", "b"], &[]);
    check(&ContainsAny::new(vec![]), &[], &["", "a"]);
    check(&ContainsAny::new((0..100).map(|i| format!("w{i}")).collect()), &["a w7.", "w99"], &["w100", "w7x"]);
    check(&Sequence::new(texts(&["foo", "bar"])), &["foo bar", "foo x bar"], &["bar foo", "foobar", ""]);
    check(&Sequence::new(texts(&["foo ", " bar"])), &["foo  bar"], &["foo bar"]);
    check(&Sequence::new(texts(&[""])), &["", "a"], &[]);
    check(&EqualsCommonCase::new(texts(&["Error"])), &["Error", "error", "ERROR"], &["eRROR", "Errors"]);
    check(&ContainsCommonCase::new(texts(&["Error"])), &["an error", "ERROR!"], &["errors"]);
    check(&JsonArrayContainsAny::new(texts(&["a", "1"])), &[r#"["b","a"]"#, "[1]", r#"["\u0061"]"#], &["a", "[2]", ""]);
    let nested = JsonArrayContainsAny::new(texts(&["[1]", r#"{"a":1}"#, "null"]));
    check(&nested, &[r#"["[1]"]"#, "[[2],null]"], &["[[1]]", r#"[{"a":1}]"#]);
}

#[test]
fn ranges() {
    check(&Range::new(10.0, 20.0), &["10", "15.5", "20ns", "0x0f"], &["21", "foo", "", "9.99"]);
    check(&Range::new(1e9, f64::INFINITY), &["1s", "1GB", "1970-01-01T00:00:01Z", "inf", "127.0.0.1"], &["1ms", "x"]);
    let open = Range::between(std::ops::Bound::Excluded(9_007_199_254_740_992.0), std::ops::Bound::Unbounded);
    check(&open, &["9007199254740994"], &["9007199254740993", "9007199254740992"]);
    check(&TextCompare::new(TextOp::Gt, "foo"), &["fooa", "z"], &["foo", ""]);
    check(&TextCompare::new(TextOp::Le, "foo"), &["foo", ""], &["fooa"]);
    check(&Ipv4Range::new(0x7f00_0000, 0x7fff_ffff), &["127.0.0.1"], &["1.2.3.4", "127.0.0.1 ", "", "2130706433"]);
    check(&Ipv6Range::new(0, 0xffff_ffff_ffff), &["1.2.3.4", "::1"], &["2001:db8::", "", "x", "1.2.3.04"]);
    check(&StringRange::new("a", "b"), &["a", "azz"], &["b", "", "foo"]);
    check(&LenRange::new(0, 1), &["", "Ф"], &["ab"]);
    check(&LenRange::new(3, 4), &["ФЫВА", "abc"], &["", "ab", "абвгд"]);
    check(&LenRange::new(4, 2), &[], &["abc"]);
    check(&ValueType::new("uint64"), &["12"], &["-12", "x", ""]);
    check(&ValueType::new("nosuch"), &[], &["1", ""]);
    let fields = |op| FieldCompare::new(op, "a", "b");
    assert!(fields(FieldOp::Eq).matches(&["", ""]) && !fields(FieldOp::Eq).matches(&["1", "1.0"]));
    assert!(fields(FieldOp::Le).matches(&["9", "10"]) && fields(FieldOp::Le).matches(&["a", "a"]));
    assert!(fields(FieldOp::Lt).matches(&["a", "b"]) && !fields(FieldOp::Lt).matches(&["10", "9"]));
    assert!(!fields(FieldOp::Lt).matches(&["a", "a"]) && fields(FieldOp::Lt).matches(&["", "a"]));
}

#[test]
fn ranges_at_their_ends() {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    check(&Range::new(0.0, 0.0), &["0", "-0", "0.0", "0ms", "0KB", "0x0"], &["", "x", "1e-300", "0.0.0"]);
    check(&Range::between(Excluded(0.0), Excluded(1.0)), &["0.5", "1e-300", "0.9999"], &["0", "1", "-0", "1e0"]);
    check(&Range::between(Unbounded, Included(-1.0)), &["-1", "-inf", "-1s"], &["0", "-0.999", "-"]);
    check(&Range::new(f64::INFINITY, f64::INFINITY), &["inf", "+Inf"], &["1e308", "-inf", "infinity"]);
    check(&Range::new(f64::NAN, 1.0), &[], &["0", "1", "-inf"]);
    check(&Range::new(2.0, 1.0), &[], &["1", "1.5", "2"]);
    check(&TextCompare::new(TextOp::Ge, "b"), &["b", "ba", "é"], &["a", "", "B"]);
    check(&TextCompare::new(TextOp::Lt, "b"), &["a", "", "B", "ab"], &["b", "ba"]);
    check(&LenRange::new(1, u64::MAX), &["a", "é"], &[""]);
    check(&LenRange::new(2, 2), &["ab", "é€", "😀😀"], &["a", "abc", "é", "😀", "😀😀😀"]);
    check(&Ipv4Range::new(2, 1), &[], &["0.0.0.1", "0.0.0.2"]);
    check(&Ipv4Range::new(u32::MAX, u32::MAX), &["255.255.255.255"], &["255.255.255.254", "4294967295"]);
    check(&Ipv6Range::new(1, 1), &["::1", "0:0::1"], &["::2", "0.0.0.1", "1"]);
    check(&StringRange::new("b", "a"), &[], &["a", "b", ""]);
    check(&StringRange::new("", ""), &[], &["", "a"]);
    check(&StringRange::new("", "a"), &["", "A", "9"], &["a", "é"]);
}

#[test]
fn values_have_one_type() {
    let all = ["uint64", "int64", "float64", "ipv4", "iso8601", "string"];
    for (value, own) in [
        ("0", "uint64"),
        ("18446744073709551615", "uint64"),
        ("-0", "int64"),
        ("-9223372036854775808", "int64"),
        ("1.0", "float64"),
        ("-1.5", "float64"),
        ("1.2.3.4", "ipv4"),
        ("2024-01-01T00:00:00Z", "iso8601"),
        ("2024-01-01T00:00:00.5+01:00", "iso8601"),
        ("18446744073709551616", "string"),
        ("007", "string"),
        ("1KB", "string"),
        ("1e5", "string"),
        (" 1", "string"),
        ("1.2.3.256", "string"),
    ] {
        for name in all {
            assert_eq!(ValueType::new(name).matches(value), name == own, "{value} is {name}");
        }
    }
    for name in all {
        assert!(!ValueType::new(name).matches(""), "{name}");
    }
}

#[test]
fn fields_are_compared_as_numbers_where_both_are() {
    let of = |op, left: &str, right: &str| FieldCompare::new(op, "a", "b").matches(&[left, right]);
    for (left, right, eq, le, lt) in [
        ("1KB", "1000", false, true, false),
        ("1s", "2000000000", false, true, true),
        ("10", "9", false, false, false),
        ("10", "9x", false, true, true),
        ("b", "a", false, false, false),
        ("", "0", false, true, true),
        ("0", "", false, false, false),
        ("x", "x", true, true, false),
        ("-inf", "inf", false, true, true),
        ("1.2.3.4", "1.2.3.10", false, true, true),
    ] {
        let found = (of(FieldOp::Eq, left, right), of(FieldOp::Le, left, right), of(FieldOp::Lt, left, right));
        assert_eq!(found, (eq, le, lt), "{left} {right}");
    }
    assert!(!FieldCompare::new(FieldOp::Le, "a", "b").matches(&["1"]));
}

#[test]
fn expressions() {
    let check = |pattern: &str, yes: &[&str], no: &[&str]| {
        check(&Regexp::new(pattern).unwrap_or_else(|e| panic!("{e}")), yes, no);
    };
    check("err.*r", &["error", "errr", "x err\nr"], &["err", "er r", ""]);
    check("^a|b$", &["abc", "xb", "b"], &["ba", "xa"]);
    check("(^|,)x(,|$)", &["x", "a,x", "x,b", "a,x,b"], &["ax", "xa", ",", ""]);
    check("foo(bar)?$", &["foo", "foobar", "xfoo"], &["foobarx", "fo"]);
    check("(foo|bar)baz", &["foobaz", "x barbaz"], &["baz", "foo baz"]);
    check("^(?:a|b)+$", &["abab", "a"], &["abc", ""]);
    check("a{2,3}", &["aa", "aaa", "baab"], &["a", "aba"]);
    check("[^a]", &["b", "ab", "ä"], &["a", "aa", ""]);
    check(r"\d+ms", &["12ms", "x1ms."], &["ms", "1 ms"]);
    check(r"a\b", &["a", "a b", "xa-"], &["ab", "a_"]);
    check(r"\Aa", &["ab"], &["ba", ""]);
    check("^$", &[""], &["a", "\n"]);
    check("(?i)straße", &["STRAßE", "eine Straße"], &["strasse"]);
    check("^foo bar", &["foo bar", "foo bars"], &["a foo bar"]);
    check("x*", &["", "x", "abc"], &[]);
}

#[test]
fn arrays_that_hold_a_text() {
    let of = |list: &[&str]| JsonArrayContainsAny::new(texts(list));
    check(
        &of(&["a"]),
        &[" [ \"a\" , 1 ] ", r#"[[],{},"a"]"#],
        &[r#"["a""#, r#"["a"] x"#, r#"{"a":["a"]}"#, "[a]", "[]"],
    );
    check(&of(&["true", "1"]), &["[true]", "[0,1]"], &["[1.0]", "[\"1.0\"]", "[[1]]", "[tru]"]);
    check(&of(&[""]), &[r#"[""]"#], &["[]", "", "[null]"]);
    check(&of(&[]), &[], &["[]", "[1]"]);
}

#[test]
fn what_indexes_are_asked_for() {
    let words = |matcher: &dyn ValueMatcher| -> Vec<String> {
        matcher.hints().words.into_iter().map(|list| list.join(" ")).collect()
    };
    assert_eq!(words(&Phrase::new("a b-a")), ["a b"]);
    assert_eq!(words(&Phrase::new("-")), [""; 0]);
    assert_eq!(words(&Prefix::new("foo bar")), ["foo"]);
    assert_eq!(words(&Prefix::new("foo bar!")), ["foo bar"]);
    assert_eq!(words(&Prefix::new("foo")), [""; 0]);
    assert_eq!(words(&Substring::new("x foo y")), ["foo"]);
    assert_eq!(words(&Substring::new("foo bar")), [""; 0]);
    assert_eq!(words(&ExactPrefix::new("foo ba")), ["foo"]);
    assert_eq!(words(&Exact::new("b a")), ["b a"]);
    assert_eq!(words(&ContainsAll::new(texts(&["a b", "bcd a"]))), ["a b bcd"]);
    assert_eq!(words(&ContainsAny::new(texts(&["a b", "c"]))), ["a b", "c"]);
    // One without a word may be anywhere.
    assert_eq!(words(&ContainsAny::new(texts(&["a", "--"]))), [""; 0]);
    assert_eq!(words(&InList::new(texts(&["a", "--"]))), [""; 0]);
    let many = |count: usize| InList::new((0..count).map(|i| format!("v{i}")).collect()).hints();
    for (count, words, exact) in
        [(ALTERNATIVES_MAX, true, true), (ALTERNATIVES_MAX + 1, false, true), (EXACT_MAX + 1, false, false)]
    {
        let hints = many(count);
        assert_eq!((!hints.words.is_empty(), hints.exact.is_some()), (words, exact), "{count}");
    }
    // Rows without the field match: nothing may be left out for what its values have.
    for matcher in [InList::new(texts(&["a", ""])), InList::new(texts(&[""]))] {
        assert_eq!(matcher.hints(), MatchHints::default());
    }
    assert_eq!(ContainsAll::new(texts(&["a b", "bcd a"])).hints().substring.as_deref(), Some("bcd a"));
    assert!(Prefix::new("").hints().present && Range::new(0.0, 1.0).hints().number_decides);
}

/// Breaks if the words of a long query are compared one with another, which takes a minute for the words of 1 MiB and
/// happens several times for each block of rows.
#[test]
fn indexes_are_asked_for_few_of_very_many_words() {
    let many: Vec<String> = (0..100_000).map(|i| format!("w{i}")).collect();
    let text = many.join(" ");
    let matchers: [&dyn ValueMatcher; 5] = [
        &Phrase::new(text.as_str()),
        &Prefix::new(text.as_str()),
        &Exact::new(text.as_str()),
        &ContainsAll::new(many.clone()),
        &Sequence::new(many.clone()),
    ];
    for matcher in matchers {
        assert_eq!(matcher.hints().words, [many[..WORDS_MAX].to_vec()]);
    }
}

/// A query that has ended.
#[derive(Debug)]
struct Ended;

impl Gate for Ended {
    fn take(&self, _: usize) -> quiver_types::Result<()> {
        Ok(())
    }

    fn give_back(&self, _: usize) {}

    fn check(&self) -> quiver_types::Result<()> {
        Err(Error::new(ErrorKind::Cancelled, "it ended"))
    }
}

/// Breaks if a list is put to the values of a block, which takes minutes, after its query has ended.
#[test]
fn long_lists_end_with_their_query() {
    const MANY: usize = 100_000;
    let value = "/1 ".repeat(MANY);
    let list = |text: &str| vec![text.to_owned(); MANY];
    let matchers: [(&dyn ValueMatcher, &str); 4] = [
        (&ContainsAll::new(list("/")), "/"),
        (&Sequence::new(list("/")), value.as_str()),
        (&ContainsAny::new(list("-")), "/"),
        (&ContainsAny::new(list("a -1")), "1"),
    ];
    for (matcher, value) in matchers {
        let watch = Watch::new(Arc::new(Ended));
        watch.over(|| {
            for _ in 0..20 {
                std::hint::black_box(matcher.matches(value));
            }
        });
        assert!(watch.is_stopped(), "{:.40}", matcher.describe());
    }
}

/// Whether a text stands in a value with borders of words where it has words at its ends.
fn stands(value: &str, text: &str, ends: bool) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(is_word_char);
    value.char_indices().filter(|(at, _)| value[*at..].starts_with(text)).any(|(at, _)| {
        let before = is_word(text.chars().next()) && is_word(value[..at].chars().next_back());
        let behind = is_word(text.chars().next_back()) && is_word(value[at + text.len()..].chars().next());
        !(before || ends && behind)
    })
}

fn needle() -> impl Strategy<Value = String> {
    prop_oneof!["[ab ]{0,4}", "[abб_. 1-]{1,6}", "(foo|bar|,| |-){1,4}"]
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof!["[ab ]{0,8}", "[abб_. 1-]{0,12}", "(foo|bar|,| |-|1){0,8}", "\\[\"(foo|bar)\",[0-9]\\]", ".{0,10}"]
}

fn expression() -> impl Strategy<Value = String> {
    let atom =
        prop_oneof!["[ab 1]{1,3}", "(foo|bar)", "\\.", "\\[ab\\]", "\\.\\*", "a\\?", "b\\+", "\\^", "\\$", "\\\\b"];
    prop::collection::vec(atom, 0..5).prop_flat_map(|parts| {
        let whole = parts.concat();
        prop_oneof![
            Just(whole.clone()),
            Just(format!("({whole}|foo)")),
            Just(format!("^({whole})$")),
            Just(format!("(?i){whole}")),
        ]
    })
}

proptest! {
    #[test]
    fn hints_never_lose_a_match(a in needle(), b in needle(), value in value()) {
        let list = vec![a.clone(), b.clone()];
        let all: Vec<Box<dyn ValueMatcher>> = vec![
            Box::new(Phrase::new(a.clone())),
            Box::new(Prefix::new(a.clone())),
            Box::new(Substring::new(a.clone())),
            Box::new(AnyCasePhrase::new(&a)),
            Box::new(AnyCasePrefix::new(&a)),
            Box::new(Exact::new(a.clone())),
            Box::new(ExactPrefix::new(a.clone())),
            Box::new(InList::new(list.clone())),
            Box::new(ContainsAll::new(list.clone())),
            Box::new(ContainsAny::new(list.clone())),
            Box::new(Sequence::new(list.clone())),
            Box::new(EqualsCommonCase::new(list.clone())),
            Box::new(ContainsCommonCase::new(list.clone())),
            Box::new(JsonArrayContainsAny::new(list)),
            Box::new(PatternMatch::new(PatternPlace::Any, a.replace('1', "<N>"))),
            Box::new(PatternMatch::new(PatternPlace::Prefix, b.replace('1', "<W>"))),
            Box::new(Range::new(-5.0, 5.0)),
            Box::new(Ipv4Range::new(0, u32::MAX)),
        ];
        for matcher in all {
            for value in [&value, &a, &format!("{a}{b}"), &format!("{a} {b}"), &String::new()] {
                prop_assert!(
                    !matcher.matches(value) || allows(&matcher.hints(), value),
                    "{} on {:?}", matcher.describe(), value
                );
            }
        }
    }

    #[test]
    fn phrases_stand_where_a_plain_search_finds_them(text in needle(), value in value()) {
        let values = [value.clone(), format!("{value}{text}"), format!("{text}{value}{text}")];
        prop_assume!(!text.is_empty());
        for value in values {
            prop_assert_eq!(Phrase::new(text.clone()).matches(&value), stands(&value, &text, true), "{:?}", value);
            prop_assert_eq!(Prefix::new(text.clone()).matches(&value), stands(&value, &text, false), "{:?}*", value);
            prop_assert_eq!(Substring::new(text.clone()).matches(&value), value.contains(text.as_str()));
        }
    }

    /// Of many values some are looked up by their words: none may be lost on the way.
    #[test]
    fn many_values_are_those_one_by_one(list in prop::collection::vec(needle(), 0..30), value in value()) {
        let (any, all) = (ContainsAny::new(list.clone()), ContainsAll::new(list.clone()));
        let found = |text: &String| text.is_empty() || stands(&value, text, true);
        prop_assert_eq!(any.matches(&value), list.iter().any(found), "{:?} in {:?}", list, value);
        prop_assert_eq!(all.matches(&value), list.iter().all(found), "{:?} in {:?}", list, value);
        prop_assert_eq!(InList::new(list.clone()).matches(&value), list.contains(&value));
    }

    #[test]
    fn expressions_match_as_the_crate_does(pattern in expression(), value in value()) {
        let Ok(regexp) = Regexp::new(pattern.clone()) else { return Ok(()) };
        let oracle = crate::kernels::golang_regex::compile(&pattern).unwrap();
        for value in [value.as_str(), "foo", "", "a foo bar b"] {
            let want = oracle.is_match(value);
            prop_assert_eq!(regexp.matches(value), want, "{} on {:?}", pattern, value);
            prop_assert!(!want || allows(&regexp.hints(), value), "hints of {} on {:?}", pattern, value);
        }
    }
}
