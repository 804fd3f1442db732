//! What every filter promises: hints hold of each value that matches.

use proptest::prelude::*;
use quiver_types::logs::{MatchHints, RowMatcher, ValueMatcher, words};

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
