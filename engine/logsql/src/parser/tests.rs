//! The grammar as a whole: canonical text, and errors with their places.

use super::FIELDS_MAX;
use crate::query_text::parse;

mod errors;
mod filters;
mod numbers;
mod times;

fn check(query: &str, expected: &str) {
    let parsed = parse(query).unwrap_or_else(|fault| panic!("{query}: {fault}"));
    assert_eq!(parsed.to_string(), expected, "{query}");
    let again = parse(expected).unwrap_or_else(|fault| panic!("{expected}: {fault}"));
    assert_eq!(again.to_string(), expected, "{expected}");
}

fn check_error(query: &str, expected: &str) {
    let fault = parse(query).expect_err(query);
    assert_eq!(fault.message, expected, "{query}");
}

#[test]
fn canonical_text() {
    check("foo AND (bar or *) !baz", "foo !baz");
    check("*ampl* user:*\"b c\"*", "*ampl* user:*\"b c\"*");
    check("*:error pre*:=x", "*:error pre*:=x");
    check("a:>5m b:range[1, 2K)", "a:>5m b:range[1, 2K)");
    check("x:=~'a|b'", "x:~\"a|b\"");
    check("options(time_offset=1h, global_filter=(a or b)) *", "options(time_offset=1h, global_filter=(a or b)) *");
    check("* | math a+b*(c-1)/2 x", "* | math (a + b * (c - 1) / 2) as x");
    check("* | running_stats by (a) count() n, last(b) l", "* | running_stats by (a) count(*) as n, last(b) as l");
    check("* | sort by (_time desc) | offset 5 | limit 10", "* | sort by (_time desc) offset 5 limit 10");
    check("{a in (b, 'c d')} x", "{a in (\"b\",\"c d\")} x");
    check("ip:ipv6_range('::ffff:1.2.3.0/120')", "ip:ipv6_range(\"::ffff:1.2.3.0\", \"::ffff:1.2.3.255\")");
}

#[test]
fn spellings_that_the_reference_takes() {
    check("* | (host) count() rows", "* | stats by (host) count(*) as rows");
    check("a:in(b,c,) x:range(1, 5,)", "a:in(b,c) x:range(1, 5)");
    check("* | stats by (a,) sum(b,) s", "* | stats by (a) sum(b) as s");
    check("* | field_values (x)", "* | field_values x");
    check("* | union (a | uniq (x) | limit 10)", "* | union (a | uniq by (x) limit 10)");
    check("* | mv user.* as usr.", "* | rename \"user.\"* as \"usr.\"");
    check("len:5 filter", "\"len\":5 \"filter\"");
    check("top-level* or 'filter'", "\"top-level\"* or \"filter\"");
    check("a:=* b:!=*", "a:=\"\"* !b:=\"\"*");
    check("* | json_array_concat '' x", "* | json_array_concat \"\" from x");
    for query in [
        "_time:offset 1d",
        "_time:5m offset 1d",
        "\"a\\xffb\"",
        "* | extract 'a<*>b<c>'",
        "_msg:pattern_match('<*> x')",
    ] {
        let parsed = parse(query).unwrap_or_else(|fault| panic!("{query}: {fault}"));
        let again = parse(&parsed.to_string()).unwrap_or_else(|fault| panic!("{parsed}: {fault}"));
        assert_eq!(again, parsed, "{query}");
    }
}

#[test]
fn fields_of_pipes_are_bounded() {
    let pipes = |count: usize| {
        let fields = (0..count).map(|n| format!("f{n}")).collect::<Vec<_>>().join(",");
        let groups = (1..count).map(|n| format!("f{n}")).collect::<Vec<_>>().join(",");
        let sums = (0..count / 2).map(|n| format!("sum(f{n}) s{n}")).collect::<Vec<_>>().join(",");
        [
            format!("* | fields {fields}"),
            format!("* | delete {fields}"),
            format!("* | sort by ({fields})"),
            format!("* | stats by ({groups}) count()"),
            format!("* | stats {sums}"),
            format!("* | unpack_json fields ({fields})"),
            format!("* | uniq by ({fields})"),
        ]
    };
    for query in pipes(FIELDS_MAX) {
        parse(&query).unwrap_or_else(|fault| panic!("{query:.60}: {fault}"));
    }
    for query in pipes(FIELDS_MAX + 2) {
        let refused = parse(&query).expect_err(&query);
        assert!(refused.message.starts_with("more than 1024 fields"), "{query:.60}: {refused}");
    }
}

/// Breaks if a short query makes a hundred thousand columns, each of which is looked for among all.
#[test]
fn fields_that_pipes_read_are_bounded() {
    let numbered = |count: usize, before: &str, after: &str, between: &str| {
        (0..count).map(|n| format!("{before}{n}{after}")).collect::<Vec<_>>().join(between)
    };
    let pipes = |count: usize| {
        let filters = numbered(count, "f", ":x", " or ");
        [
            format!("* | math {}", numbered(count, "", "", ",")),
            format!("* | math max({}) as x", numbered(count, "f", "", ",")),
            format!("* | filter {filters}"),
            format!("* | limit 1 | {filters}"),
            format!("* | stats count() if ({filters}) n"),
            format!("* | stats count() switch(case ({filters}) n)"),
            format!("* | format '{}' as x", numbered(count, "<f", ">", "")),
            format!("* | extract '{}'", numbered(count, "<f", ">", "-")),
        ]
    };
    for query in pipes(FIELDS_MAX - 1) {
        parse(&query).unwrap_or_else(|fault| panic!("{query:.60}: {fault}"));
    }
    for query in pipes(FIELDS_MAX + 1) {
        let refused = parse(&query).expect_err(&query);
        assert!(refused.message.starts_with("more than 1024 fields"), "{query:.60}: {refused}");
    }
    // One field may be read as often as one likes, and the filter of the query itself makes no columns.
    let values = numbered(3000, "a:=", "", " or ");
    for query in [format!("* | limit 1 | filter {values}"), format!("* | math a{} as x", " + a".repeat(1000))] {
        parse(&query).unwrap_or_else(|fault| panic!("{query:.60}: {fault}"));
    }
    parse(&numbered(3000, "f", ":x", " or ")).expect("a filter of many fields");
}

/// Breaks if few letters of each row make a table of many gigabytes.
#[test]
fn rows_that_are_written_are_bounded() {
    let rows = |columns: usize, rows: usize| {
        let first = (0..columns).map(|n| format!("c{n}:1")).collect::<Vec<_>>().join(",");
        parse(&format!("* | union rows({{{first}}}{})", ",{}".repeat(rows - 1)))
    };
    rows(1000, 1000).unwrap();
    rows(1, 100_000).unwrap();
    let refused = rows(1000, 2000).expect_err("too many cells");
    assert!(refused.message.starts_with("more than 1048576 cells"), "{refused}");
    let refused = rows(2000, 1).expect_err("too many columns");
    assert!(refused.message.starts_with("more than 1024 fields"), "{refused}");
}

#[test]
fn errors_say_where_and_what() {
    check_error("foo | sotr(x)", "unknown pipe `sotr` at offset 6; did you mean `sort`?");
    check_error("* | stats cuont() x", "unknown stats function `cuont` at offset 10; did you mean `count`?");
    check_error("ipv4_rang(1.2.3.4)", "unknown filter function `ipv4_rang` at offset 0; did you mean `ipv4_range`?");
    check_error("ж a:", "unexpected end of the query, a filter expected at offset 4");
    check_error("options(foo=1) *", "unknown option `foo` at offset 8");
    for (query, offset) in [("a:{b=\"c\"}", 2), ("a:(x !{b=\"c\"})", 6), ("*:{", 2), ("a*:{}", 3)] {
        let fault = "a stream selector is asked of `_stream` alone; quote `{` to look for it, at offset";
        check_error(query, &format!("{fault} {offset}"));
    }
    check_error("filter a:b", "`filter` is a pipe: write `* | filter`, or quote the word to look for it, at offset 0");
    check_error(
        "a:in(Stats by (b) count() c | fields b)",
        "`Stats` is a pipe: write `* | Stats`, or quote the word to look for it, at offset 5",
    );
    check_error("* | first by ('a*')", "`a*` stands for several fields, one field expected at offset 14");
    check_error("a | sort by (x) limit y", "a number of rows after `limit` expected, got `y` at offset 22");
}

#[test]
fn deep_nesting_is_an_error() {
    let deep = format!("{}a{}", "(".repeat(10_000), ")".repeat(10_000));
    assert!(parse(&deep).expect_err("too deep").message.contains("nesting"));
    assert!(parse(&"!".repeat(100_000)).is_err());
}
