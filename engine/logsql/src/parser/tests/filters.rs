//! Each filter in canonical text, which is read as the same filter again.

use super::*;
use crate::query_text::parse_filter;

#[test]
fn words_phrases_and_prefixes() {
    check("foo", "foo");
    check("\"foo bar\"", "\"foo bar\"");
    check("'a\"b'", "\"a\\\"b\"");
    check("`a\\b`", "\"a\\\\b\"");
    check("foo*", "foo*");
    check("\"foo bar\"*", "\"foo bar\"*");
    check("*foo*", "*foo*");
    check("foo.bar-baz", "\"foo.bar-baz\"");
    check("a:foo", "a:foo");
    check("a.b:foo", "\"a.b\":foo");
    check("'a b':foo", "\"a b\":foo");
    check("_msg:foo", "foo");
    check("'':foo", "foo");
    check("a:''", "a:\"\"");
    check("a:*", "a:*");
    check("_msg:*", "*");
    check("a _msg:~'.+'", "a");
    check("!_msg:* or a", "!* or a");
    check(
        "* | _msg:* | limit 1 | _msg:* | stats count() if ('':~'.+') as n",
        "* | limit 1 | filter _msg:* | stats count(*) if (_msg:*) as n",
    );
    check("*:foo", "*:foo");
    check("pre*:foo", "pre*:foo");
    check("a:i(Foo)", "a:i(Foo)");
    check("i('foo bar'*)", "i(\"foo bar\"*)");
    check("a:i(*)", "a:i(*)");
    // Words that mean something stay what they are.
    check("'and' 'or' 'NOT' \"limit\":x", "\"and\" \"or\" \"NOT\" \"limit\":x");
    check("# a comment\nfoo # another\n bar", "foo bar");
}

#[test]
fn exact_values_and_lists() {
    check("a:='x y'", "a:=\"x y\"");
    check("=x*", "=x*");
    check("exact(x)", "=x");
    check("a:exact('x y'*)", "a:=\"x y\"*");
    check("a:!=x", "!a:=x");
    check("a:in(x, 'y z')", "a:in(x,\"y z\")");
    check("a:in()", "a:in()");
    check("a:in(*)", "*");
    check("a:in(x, *) b", "b");
    check("a:contains_any(*, x,)", "*");
    check("a:in(* | fields x)", "a:in(* | fields x)");
    check("a:contains_all(x, y)", "a:contains_all(x,y)");
    check("a:contains_any('x y')", "a:contains_any(\"x y\")");
    check("a:seq(x, 'y z')", "a:seq(x,\"y z\")");
    check("a:equals_common_case(Foo, bar)", "a:equals_common_case(Foo,bar)");
    check("contains_common_case(Foo)", "contains_common_case(Foo)");
    check("a:json_array_contains_any(x, 1)", "a:json_array_contains_any(x,1)");
    check("a:IN(x)", "a:in(x)");
    check("a:in(b:c | fields x)", "a:in(b:c | fields x)");
    check("a:contains_any(b | uniq by (x))", "a:contains_any(b | uniq by (x))");
}

#[test]
fn patterns_and_other_fields() {
    check("a:~'x|y'", "a:~\"x|y\"");
    check("a:=~x", "a:~x");
    check("a:re('x|y')", "a:~\"x|y\"");
    check("a:!~x", "!a:~x");
    // What each value fits, and what each value fits that is there.
    check("a:~'' b:~'.*'", "*");
    check("a:~'.+'", "a:*");
    check("~'.+'", "*");
    check("a:pattern_match('x <N>')", "a:pattern_match(\"x <N>\")");
    check("pattern_match_full('<IP4>')", "pattern_match_full(\"<IP4>\")");
    check("a:pattern_match_prefix(x) b:pattern_match_suffix(y)", "a:pattern_match_prefix(x) b:pattern_match_suffix(y)");
    check("a:eq_field(b) c:le_field('d e') f:lt_field(g)", "a:eq_field(b) c:le_field(\"d e\") f:lt_field(g)");
    check("a:value_type(uint8)", "a:value_type(uint8)");
}

#[test]
fn ranges() {
    check("a:range(1,2]", "a:range(1, 2]");
    check("a:range[0x10, 1.5KiB)", "a:range[0x10, 1.5KiB)");
    check("a:range(nan, 5]", "a:range(nan, 5]");
    check("a:>1e400", "a:>1e400");
    check("a:range(-1, inf]", "a:range(-1, inf]");
    check("a:>5 b:>=1.5 c:<10MB d:<=2h", "a:>5 b:>=1.5 c:<10MB d:<=2h");
    check("a : > = 5 b:< =2h", "a:>=5 b:<=2h");
    check("a:>'=5'", "a:>\"=5\"");
    check("a:>x b:<='c d'", "a:>x b:<=\"c d\"");
    // A time with a blank is a number, too, and one word.
    check("a:>'2024-01-02 03:04:05'", "a:>\"2024-01-02 03:04:05\"");
    check(
        "a:range['2024-01-02 03:04:05', '2024-01-02 03:04:05.5Z')",
        "a:range[\"2024-01-02 03:04:05\", \"2024-01-02 03:04:05.5Z\")",
    );
    check("a:len_range(1K, inf)", "a:len_range(1K, inf)");
    check("a:string_range(b, 'c d')", "a:string_range(b, \"c d\")");
    check("a:ipv4_range(10.0.0.0/8)", "a:ipv4_range(10.0.0.0, 10.255.255.255)");
    check("a:ipv4_range(10.0.0.7/8)", "a:ipv4_range(10.0.0.0, 10.255.255.255)");
    check("a:ipv4_range(1.2.3.4)", "a:ipv4_range(1.2.3.4, 1.2.3.4)");
    check("a:ipv4_range(1.2.3.4/0)", "a:ipv4_range(0.0.0.0, 255.255.255.255)");
    check("a:ipv4_range(1.2.3.4/32)", "a:ipv4_range(1.2.3.4, 1.2.3.4)");
    check("a:ipv4_range(1.0.0.0, 1.0.0.9)", "a:ipv4_range(1.0.0.0, 1.0.0.9)");
    check("a:ipv6_range('::1')", "a:ipv6_range(\"::1\", \"::1\")");
    check("a:ipv6_range('2001:db8::/127')", "a:ipv6_range(\"2001:db8::\", \"2001:db8::1\")");
    check("a:ipv6_range('::/0')", "a:ipv6_range(\"::\", \"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff\")");
}

#[test]
fn conditions_are_joined() {
    check("a AND b", "a b");
    check("a b c", "a b c");
    check("a or b and c", "a or b c");
    check("(a or b) c", "(a or b) c");
    check("a (b (c d))", "a b c d");
    check("a or (b or c)", "a or b or c");
    check("(((a)))", "a");
    check("* a", "a");
    check("a or *", "*");
    check("!a", "!a");
    check("NOT a", "!a");
    check("-a", "!a");
    check("!!a", "a");
    check("!(a b)", "!(a b)");
    check("!(a or !b) c", "!(a or !b) c");
    check("!*", "!*");
    // A field stands for all that is in its parentheses.
    check("a:(b or c)", "a:b or a:c");
    check("a:(b c:d)", "a:b a:\"c:d\"");
    check("a:(=b or !c*)", "a:=b or !a:c*");
    check("a:!b", "!a:b");
    check("a::b", "a:b");
}

#[test]
fn streams_come_first() {
    check("{a='b'}", "{a=\"b\"}");
    check("{a=b,c!=\"d\",}", "{a=\"b\",c!=\"d\"}");
    check("{a=~'b|c' or d!~e}", "{a=~\"b|c\" or d!~\"e\"}");
    check("{a in (b, 'c d')}", "{a in (\"b\",\"c d\")}");
    check("{a not_in (b)}", "{a not_in (\"b\")}");
    check("{a in (*)}", "{a=~\".*\"}");
    check("{a not_in (*)}", "{a!~\".*\"}");
    check("{}", "{}");
    check("{'a b'=c}", "{\"a b\"=\"c\"}");
    check("_stream:{a=b}", "{a=\"b\"}");
    check("x {a=b} y {c=d}", "{a=\"b\",c=\"d\"} x y");
    // Alternatives are not put together.
    check("{a=b or c=d} {e=f}", "{a=\"b\" or c=\"d\"} {e=\"f\"}");
    let id = "0000000000000000e934a84adb05276890d7f7bfcadabe92";
    check(&format!("_stream_id:{id}"), &format!("_stream_id:{id}"));
    check(&format!("_stream_id:={id}"), &format!("_stream_id:{id}"));
    check(&format!("_stream_id:in({id}, {id})"), &format!("_stream_id:in({id},{id})"));
    check("_stream_id:*", "*");
    check("_stream_id:in(a | fields _stream_id)", "_stream_id:in(a | fields _stream_id)");
}

#[test]
fn filters_alone() {
    let read = |text: &str| parse_filter(text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
    assert_eq!(read(""), None);
    assert_eq!(read("  # nothing"), None);
    assert_eq!(read("(a or b) * ;").map(|filter| filter.to_string()).as_deref(), Some("a or b"));
    for wrong in ["a | fields b", "a)", "a; b", "options(concurrency=1) a |"] {
        assert!(parse_filter(wrong).is_err(), "{wrong}");
    }
}
