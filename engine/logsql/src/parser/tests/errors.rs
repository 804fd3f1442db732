//! What is wrong, and where it stands.

use super::*;

#[test]
fn faults_of_filters() {
    check_error("a:", "unexpected end of the query, a filter expected at offset 2");
    check_error("(a", "unexpected end of the query, `)` expected at offset 2");
    check_error("a)", "unexpected `)`, `|` or the end of the query expected at offset 1");
    check_error("!", "unexpected end of the query, a filter expected at offset 1");
    check_error("a or ", "unexpected end of the query, a filter expected at offset 5");
    check_error("[a", "unexpected `[`, a filter expected at offset 0");
    check_error("a,b", "unexpected `,`, a filter expected at offset 1");
    check_error("a;b", "unexpected `b`, `|` or the end of the query expected at offset 2");
    check_error("| fields a", "unexpected `|`, a filter expected at offset 0");
    check_error("\"a", "missing closing quote of the text that begins here at offset 0");
    check_error("a:`b", "missing closing quote of the text that begins here at offset 2");
    check_error("\"a\\q\"", "unknown escape `\\q` at offset 0");
    check_error("a:in(b", "unexpected end of the query, `,` or `)` expected at offset 6");
    check_error("a:in(b | limit 5)", "a subquery must end in `| fields name` or `| uniq by (name)` at offset 4");
    check_error("a:i(b c)", "unexpected `c`, `)` expected at offset 6");
    check_error("a:>", "unexpected end of the query, a value after the comparison expected at offset 3");
    check_error("a:~\"(\"", "invalid regular expression `(`: unclosed group at offset 3");
    check_error("a:~", "unexpected end of the query, a regular expression expected at offset 3");
    check_error("re(\"(\")", "invalid regular expression `(`: unclosed group at offset 3");
    check_error("a:eq_field(b, c)", "one argument expected, got 2 at offset 10");
    check_error("a:value_type()", "one argument expected, got 0 at offset 12");
    check_error("a:string_range(b)", "two arguments expected, got 1 at offset 14");
}

#[test]
fn faults_of_ranges_and_streams() {
    check_error("a:range[1, 2", "unexpected end of the query, `)` expected at offset 12");
    check_error("a:range[x, 2]", "a number expected, got `x` at offset 8");
    check_error("a:range[1e400, 2]", "a number expected, got `1e400` at offset 8");
    check_error("a:range(1)", "unexpected `)`, `,` expected at offset 9");
    check_error("a:len_range(-1, 2)", "a length or `inf` expected, got `-1` at offset 12");
    let v4 = "two IPv4 addresses, one, or `a.b.c.d/bits` expected at offset 12";
    for wrong in ["1.2.3", "1.2.3.4/33", "1.2.3.4/", "1.2.3.4/+8", "", "1.2.3.4, x", "1.2.3.4, 1.2.3.5, 1.2.3.6"] {
        check_error(&format!("a:ipv4_range({wrong})"), v4);
    }
    let v6 = "two IPv6 addresses, one, or `address/bits` expected at offset 12";
    for wrong in ["x", "'::1/129'", "'::1/+12'", "'::g'", "'::', x"] {
        check_error(&format!("a:ipv6_range({wrong})"), v6);
    }
    let op = "`=`, `!=`, `=~`, `!~`, `in` or `not_in` expected";
    check_error("{a", &format!("unexpected end of the query, {op} at offset 2"));
    check_error("{a ~ \"b\"}", &format!("unexpected `~`, {op} at offset 3"));
    check_error("{\"a\" \"b\"}", &format!("unexpected `\"b\"`, {op} at offset 5"));
    check_error("{a=}", "unexpected `}`, a label value expected at offset 3");
    check_error("{a\"=b}", &format!("unexpected `\"`, {op} at offset 2"));
    check_error("{a{=b}", &format!("unexpected `{{`, {op} at offset 2"));
    check_error("{a=b\"}", "unexpected `\"`, `,`, `or` or `}` expected at offset 4");
    for (query, offset) in [("*(a)", 1), ("a*(b)", 2), ("(a)(b)", 3), ("{a=b}(c)", 5), ("a:range[1,2](b)", 12)] {
        check_error(query, &format!("unexpected `(`, a blank expected at offset {offset}"));
    }
    check_error("{a=\"b\"", "unexpected end of the query, `,`, `or` or `}` expected at offset 6");
    check_error("{a=~\"(\"}", "invalid regular expression `(`: unclosed group at offset 4");
    check_error("_stream:x", "unexpected `x`, a stream selector such as `{app=\"nginx\"}` expected at offset 8");
    check_error("_stream_id:x", "`x` is no stream id of 32 hexadecimal digits at offset 11");
    check_error("_stream_id:in(x)", "`x` is no stream id of 32 hexadecimal digits at offset 15");
}

#[test]
fn faults_of_stats() {
    check_error("a | stats", "unexpected end of the query, a stats function expected at offset 9");
    check_error("a | stats count(", "unexpected end of the query, a field name expected at offset 16");
    check_error("a | stats count() as", "unexpected end of the query, a field name expected at offset 20");
    check_error("a | stats by (a*) count()", "one field expected, not a group at offset 14");
    let bucket = |text: &str| format!("a bucket size such as `5m` or `100` expected, got `{text}` at offset 16");
    for wrong in ["x", "0", "-5", "inf", "nan"] {
        check_error(&format!("a | stats by (a:{wrong}) count()"), &bucket(wrong));
    }
    for wrong in ["/40", "/+4", "/x", "/"] {
        let mask = format!("a mask from `/0` to `/32` expected, got `{wrong}` at offset 16");
        check_error(&format!("a | stats by (a:{wrong}) count()"), &mask);
    }
    check_error("a | stats by (a:5 offset x) count()", "an offset such as `2h` expected, got `x` at offset 25");
    check_error("a | stats quantile(2, a) q", "a number from 0 to 1 expected, got `2` at offset 19");
    check_error("a | stats quantile(nan, a) q", "a number from 0 to 1 expected, got `nan` at offset 19");
    check_error("a | stats count_uniq() x", "at least one field expected at offset 20");
    check_error("a | stats field_min(a) x", "two fields expected, got 1 at offset 19");
    check_error("a | stats row_min() x", "the field that is compared must come first at offset 17");
    check_error("a | stats rate(a)", "unexpected `a`, `)` expected at offset 15");
    check_error("a | stats histogram(a, b) h", "one field expected at offset 19");
    check_error("a | stats count() if x", "unexpected `x`, `(` expected at offset 21");
    let name = "two results have the name `x`; give one another with `as` at offset 10";
    check_error("a | stats count() x, sum(a) x", name);
    let cases = "`switch` needs a `case` or a `default`, and has at most one `default` at offset 24";
    check_error("a | stats count() switch() x", cases);
    check_error("a | stats count() switch(default a, default b)", cases);
}

#[test]
fn faults_of_pipes_and_options() {
    check_error("a | ", "unexpected end of the query, a pipe expected at offset 4");
    check_error("a || b", "unexpected `|`, a pipe expected at offset 3");
    check_error("a | fields", "unexpected end of the query, a field name expected at offset 10");
    check_error("a | limit -1", "a number of rows expected, got `-1` at offset 10");
    check_error("a | limit 18446744073709551616", "a number of rows expected, got `18446744073709551616` at offset 10");
    check_error("a | sort by (a", "unexpected end of the query, `,` or `)` expected at offset 14");
    check_error("a | sample 0", "a number greater than 0 expected, got `0` at offset 11");
    check_error("a | time_add x", "a duration such as `1h30m` expected, got `x` at offset 13");
    check_error("a | math", "unexpected end of the query, a number, a field or `(` expected at offset 8");
    check_error("a | math a +", "unexpected end of the query, a number, a field or `(` expected at offset 12");
    check_error("a | math (a as b", "unexpected `as`, `)` expected at offset 12");
    check_error("a | math nosuch(a) as b", "unknown math function `nosuch` at offset 9");
    check_error("a | math max(a) as c", "`max` takes at least 2 arguments, got 1 at offset 9");
    check_error("a | extract 'a'", "the pattern `a` needs at least one named field, as in `<name>` at offset 12");
    check_error("a | extract '<a' from c", "missing `>` after `<a` at offset 12");
    check_error("a | extract '<a><b>' from c", "missing text between <a> and <b> at offset 12");
    check_error("a | unroll by ()", "at least one field expected at offset 14");
    check_error("a | union x", "unexpected `x`, `(` expected at offset 10");
    check_error("options(x=1) a", "unknown option `x` at offset 8");
    check_error("options(concurrency=x) a", "a number expected, got `x` at offset 20");
    check_error("options(ignore_global_time_filter=x) a", "`true` or `false` expected, got `x` at offset 34");
    check_error("options(time_offset=x) a", "a duration such as `1h30m` expected, got `x` at offset 20");
    check_error("options(concurrency 1) a", "unexpected `1`, `=` expected at offset 20");
    let forgotten =
        |name: &str| format!("`{name}` is a pipe: write `* | {name}`, or quote the word to look for it, at offset 0");
    for name in ["stats", "sort", "Limit", "count", "by"] {
        check_error(&format!("{name} (x)"), &forgotten(name));
    }
}

/// Breaks if a part of the grammar grows with its text beyond what a stack or a plan bears.
#[test]
fn what_is_too_much_is_refused() {
    let refused = |text: &str, part: &str| {
        let fault = parse(text).expect_err("it is too much");
        assert!(fault.message.contains(part), "{fault}");
    };
    refused(&format!("*{}", " | limit 1".repeat(257)), "more than 256 pipes");
    refused(&vec!["a:~b"; 257].join(" or "), "more than 256 regular expressions");
    refused(&[r#"a:~"(?i)[\\p{L}]{1,20}""#; 250].join(" or "), "regular expressions of a query take more");
    refused("a:contains_common_case(ABCDEFGHIJK)", "more than 10 capital letters");
    refused(&format!("* | math a{} as x", " + 1".repeat(1025)), "more than 1024 operators");
    refused(&format!("* | math {}a as x", "-".repeat(1000)), "levels of nesting");
    let nested =
        |levels: usize| format!("a:in({}b{} | fields e)", "c:in(".repeat(levels), " | fields d)".repeat(levels));
    refused(&nested(100), "levels of nesting");
    refused(&"a ".repeat((1 << 19) + 1), "is longer than 1048576");
    assert!(parse(&vec!["a:~b"; 256].join(" or ")).is_ok());
    assert!(parse(&format!("* | math a{} as x", " + 1".repeat(1024))).is_ok());
    assert_eq!(parse(&"a ".repeat(10_000)).expect("a query").to_string().len(), 19_999);
}
