//! What is printed is read as the same, whatever names and values there are.

use quiver_types::logs::MSG;

use super::*;
use crate::ast::{Filter, PatternPlace, StreamFilter, StreamMatch, StreamOp, Test, Values};
use crate::lexer::tokens;
use crate::query_text::{parse, parse_filter};

/// Words that go on with some part of the language, and texts that look like one.
const WORDS: [&str; 40] = [
    "and",
    "or",
    "NOT",
    "by",
    "as",
    "if",
    "from",
    "at",
    "on",
    "in",
    "not_in",
    "hits",
    "rank",
    "desc",
    "asc",
    "limit",
    "offset",
    "partition",
    "prefix",
    "inner",
    "with",
    "default",
    "case",
    "switch",
    "filter",
    "fields",
    "rows",
    "Stats",
    "count",
    "options",
    "prettify",
    "now",
    "inf",
    "nan",
    "xor",
    "max",
    "round",
    "time_window",
    "result_prefix",
    "drop_duplicates",
];

/// Texts that need quotes, and some that do not.
const TEXTS: [&str; 26] = [
    "a",
    "Ж_1",
    "5m",
    "1.5",
    "",
    " ",
    "a b",
    "a\"b'c`",
    "\\",
    "\\n",
    "\n",
    "a:b",
    "a*",
    "*",
    "a|b",
    "(a)",
    "{a}",
    "#a",
    "=a",
    "!a",
    "-a",
    "~a",
    "a,b",
    "[1]",
    "日本 語",
    "\u{0}\u{200b}\u{fffd}",
];

#[test]
fn a_word_is_one_token() {
    for text in WORDS.into_iter().chain(TEXTS) {
        let written = word(text);
        let found = tokens(&written).unwrap_or_else(|fault| panic!("{written}: {fault}"));
        assert_eq!((found.len(), found[0].text.as_ref()), (2, text), "{written}");
    }
    for (text, expected) in [("a_1", "a_1"), ("ЖЖ", "ЖЖ"), ("a.b", "\"a.b\""), ("", "\"\""), ("Limit", "\"Limit\"")]
    {
        assert_eq!(word(text), expected);
    }
}

/// Breaks if the name of a result is not the one that clients of the reference look for.
#[test]
fn results_are_named_after_the_words_of_their_fields() {
    for (text, expected) in [
        ("max(from)", "max(from)"),
        ("max('from', \"with\", default*)", "max(from, with, default*)"),
        ("count_uniq(inf, nan)", "count_uniq(inf, nan)"),
        ("quantile(0.5, drop_duplicates)", "quantile(0.5, drop_duplicates)"),
        ("row_min(xor, result_prefix)", "row_min(xor, result_prefix)"),
        ("histogram(skip_empty_results)", "histogram(skip_empty_results)"),
        (
            "sum('by', \"if\", 'limit', 'seq', 'max', 'a.b')",
            "sum(\"by\", \"if\", \"limit\", \"seq\", \"max\", \"a.b\")",
        ),
    ] {
        let query = parse(&format!("* | stats {text}")).expect(text).to_string();
        assert_eq!(query, format!("* | stats {expected} as {}", quote(expected)));
        assert_eq!(parse(&query).expect(text).to_string(), query);
    }
    let running = parse("* | running_stats sum(from)").expect("a query").to_string();
    assert_eq!(running, "* | running_stats sum(from) as \"sum(from)\"");
}

#[test]
fn numbers_stay_as_they_were_written() {
    for (text, expected) in [
        ("5m", "5m"),
        ("-1h30m", "-1h30m"),
        ("+5", "+5"),
        ("1.5KiB", "1.5KiB"),
        ("1e-5", "1e-5"),
        ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("2024-01-02 03:04:05", "\"2024-01-02 03:04:05\""),
        (".5", "\".5\""),
        ("inf", "inf"),
        ("-inf", "-inf"),
        ("NOW", "NOW"),
        ("nan", "\"nan\""),
        ("5*", "\"5*\""),
        ("", "\"\""),
    ] {
        assert_eq!(literal(text), expected);
    }
    for (text, expected) in [("1KB", "1KB"), (".5", ".5"), ("-inf", "-inf"), ("a b", "\"a b\""), ("a\tb", "\"a\\tb\"")]
    {
        assert_eq!(bound(text), expected);
    }
}

fn tests_of(text: &str) -> Vec<Test> {
    let one = || text.to_owned();
    let two = || vec![one(), "z".to_owned()];
    let pattern = |place| Test::PatternMatch { place, pattern: one() };
    vec![
        Test::Phrase(one()),
        Test::Prefix(one()),
        Test::Substring(one()),
        Test::AnyCasePhrase(one()),
        Test::AnyCasePrefix(one()),
        Test::Exact(one()),
        Test::ExactPrefix(one()),
        Test::In(Values::List(vec![one()])),
        Test::In(Values::List(two())),
        Test::ContainsAll(Values::List(two())),
        Test::ContainsAny(Values::List(two())),
        Test::EqualsCommonCase(two()),
        Test::ContainsCommonCase(two()),
        Test::Sequence(two()),
        Test::StringRange { min: one(), max: one() },
        Test::ValueType(one()),
        pattern(PatternPlace::Any),
        pattern(PatternPlace::Full),
        pattern(PatternPlace::Prefix),
        pattern(PatternPlace::Suffix),
        Test::JsonArrayContainsAny(two()),
    ]
}

fn check_filter(filter: &Filter) {
    let text = filter.to_string();
    let read = parse_filter(&text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
    assert_eq!(read.as_ref(), Some(filter), "{text}");
}

#[test]
fn each_test_of_any_text_is_read_again() {
    for text in TEXTS.into_iter().chain(["and", "In", "not", "filter", "offset", "inf"]) {
        for test in tests_of(text) {
            check_filter(&Filter::Field { field: FieldPattern::Name("f".to_owned()), test: test.clone() });
            // Of the message an empty prefix is every row.
            if test != Test::Prefix(String::new()) {
                check_filter(&Filter::Field { field: FieldPattern::Name(MSG.to_owned()), test });
            }
        }
    }
}

#[test]
fn each_name_of_a_field_is_read_again() {
    for name in WORDS.into_iter().chain(TEXTS).filter(|name| !name.is_empty()) {
        let one = || name.to_owned();
        for field in [FieldPattern::Name(one()), FieldPattern::Prefix(one())] {
            for test in [Test::Phrase("x".to_owned()), Test::Prefix(String::new()), Test::EqField(one())] {
                let filter = Filter::Field { field: field.clone(), test };
                check_filter(&filter);
                check_filter(&Filter::Not(Box::new(filter)));
            }
        }
        let value = StreamMatch { label: one(), op: StreamOp::Equal(one()) };
        let list = StreamMatch { label: one(), op: StreamOp::NotIn(vec![one(), String::new()]) };
        check_filter(&Filter::Stream(StreamFilter { groups: vec![vec![value.clone(), list.clone()], vec![value]] }));
        check_filter(&Filter::Stream(StreamFilter { groups: vec![vec![list]] }));
    }
    check_filter(&Filter::Field { field: FieldPattern::all(), test: Test::Phrase("x".to_owned()) });
    check_filter(&Filter::Field { field: FieldPattern::all(), test: Test::Prefix(String::new()) });
}

/// Puts each word, in quotes, into the places `#` of pipes: what is printed means the same.
fn check_pipes(pipes: &[&str]) {
    for pipe in pipes {
        for name in WORDS {
            let text = format!("* | query_stats | {}", pipe.replace('#', &quote(name)));
            let read = parse(&text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
            let printed = read.to_string();
            let again = parse(&printed).unwrap_or_else(|fault| panic!("{printed}: {fault}"));
            // As texts, in which NaN is itself.
            assert_eq!(format!("{again:?}"), format!("{read:?}"), "{text} is printed as {printed}");
        }
    }
}

#[test]
fn words_of_the_language_may_be_names_in_lists() {
    check_pipes(&[
        "fields #, b, #*",
        "delete #",
        "copy # as x, x as #",
        "rename #* as #*",
        "sort by (# desc, b) limit 1 partition by (#) rank as #",
        "first by (#)",
        "uniq by (#, b) with hits filter # limit 3",
        "top 5 by (#) rank as #",
        "top by (a) hits as #",
        "deduplicate by (#)",
        "unroll if (#:x) by (#)",
        "set_stream_fields #, a",
        "coalesce(#, b) default # as #",
        "pack_json fields (#) as #",
        "field_values # filter # limit 3",
        "field_names as # filter #",
        "blocks_count as #",
    ]);
}

#[test]
fn words_of_the_language_may_be_names_in_stats_and_joins() {
    check_pipes(&[
        "stats by (#, a:5) count(#) as n",
        "stats count() if (#:#) as #",
        "stats count() switch(case (x:1) as #, default as z)",
        "stats json_values(#) sort by (# desc) limit 3 as n",
        "stats row_min(#, #) as n, quantile(0.5, #) as m",
        "stats field_max(#, b) as n, count_uniq(#) limit 2 as m",
        "running_stats by (#) last(#) offset 2 as n",
        "total_stats min(#) as #",
        "join by (#) (# | fields #) inner prefix #",
        "union rows({#:#}, {a:#})",
        "math # - # as n, 1 as #",
        "filter # or #:# or x:in(#, a) or x:i(#) or #:eq_field(#)",
    ]);
}

#[test]
fn words_of_the_language_may_be_names_of_sources_and_results() {
    check_pipes(&[
        "len(#) as x",
        "len(x) as #",
        "hash(#) as #",
        "json_array_len(x) as #",
        "json_array_concat 'x' from # as y",
        "split # from # as y",
        "split 'x' from y as #",
        "time_add 1h at #",
        "format # as #",
        "format if (#) 'x' as y keep_original_fields",
        "extract '<x>' from # skip_empty_results",
        "extract_regexp '(?P<x>y)' from #",
        "replace (#, #) at # limit 2",
        "replace_regexp (x, #) at #",
        "collapse_nums at # prettify",
        "decolorize #",
        "unpack_json from # fields (#) preserve_keys (#) result_prefix #",
        "unpack_logfmt from # result_prefix #",
        "unpack_syslog from # offset 2h",
        "unpack_words from # as x drop_duplicates",
    ]);
}

#[test]
fn lists_as_queries_have_them() {
    let name = |name: &str| FieldPattern::Name(name.to_owned());
    assert_eq!(patterns(&[name("a"), FieldPattern::Prefix("b c".to_owned()), FieldPattern::all()]), "a, \"b c\"*, *");
    assert_eq!(patterns(&[]), "");
    let by = [("a".to_owned(), true), ("desc".to_owned(), false), ("by".to_owned(), true)];
    assert_eq!(sort_fields(&by), "a desc, desc, \"by\" desc");
    assert_eq!(list(&[1, 2, 3], |n| (n * 2).to_string()), "2, 4, 6");
}
