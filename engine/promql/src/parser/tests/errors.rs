//! Error texts and places, as Prometheus 3.14 gives them.

use crate::parser::parse;

fn check(query: &str, place: &str, message: &str) {
    let error = parse(query).expect_err(query);
    assert_eq!(error.to_string(), format!("{place}: parse error: {message}"), "{query}");
}

#[test]
fn syntax() {
    check("", "unknown position", "no expression found in input");
    check("# just a comment\n\n", "1:1", "no expression found in input");
    check("1+", "1:3", "unexpected end of input");
    check("1 /\n ", "2:2", "unexpected end of input");
    check(".", "1:1", "unexpected character: '.'");
    check("2.5.", "1:1", "bad number or duration syntax: \"2.5.\"");
    check("100..4", "1:1", "bad number or duration syntax: \"100..\"");
    check("0deadbeef", "1:1", "bad number or duration syntax: \"0de\"");
    check("1e400", "1:1", "error parsing number: strconv.ParseFloat: parsing \"1e400\": value out of range");
    check("*1", "1:1", "unexpected <op:*>");
    check("(1))", "1:5", "unexpected right parenthesis ')'");
    check("((1)", "1:5", "unclosed left parenthesis");
    check("(", "1:2", "unclosed left parenthesis");
    check("a[5m", "1:5", "unclosed left bracket");
    check("1 !~ 1", "1:3", "unexpected character after '!': '~'");
    check("1 =~ 1", "1:3", "unexpected character after '=': '~'");
    check("@@", "1:1", "unexpected <op:@>");
    check("-=", "1:2", "unexpected \"=\"");
    check("++-++-+-+-<", "1:11", "unexpected <op:<>");
    check("e-+=/(0)", "1:4", "unexpected \"=\"");
    check("a - on(b) ignoring(c) d", "1:11", "unexpected <ignoring>");
    check("foo + group_left(baz) bar", "1:7", "unexpected <group_left>");
    check("a + on(b) group_left == c", "1:22", "unexpected <op:==> in grouping opts, expected \"(\"");
    check("foo bar", "1:5", "unexpected identifier \"bar\"");
    check("1 2", "1:3", "unexpected number \"2\"");
    check("a:b(c)", "1:4", "unexpected \"(\"");
    check("a 'a long text'", "1:3", "unexpected string \"'a long te\"...");
    check("}", "1:1", "unexpected character: '}'");
    check("some}", "1:5", "unexpected character: '}'");
    check("`\\``", "1:4", "unterminated raw string");
    check("\"\\", "1:1", "escape sequence not terminated");
    check("\"\\c\"", "1:1", "unknown escape sequence U+0063 'c'");
    check("\"\\x.\"", "1:1", "illegal character U+002E '.' in escape sequence");
    check("label_replace(a, `b`, `c\u{fffd}`, `d`, `.*`)", "1:23", "invalid UTF-8 rune");
}

#[test]
fn matchers() {
    check("{", "1:2", "unexpected end of input inside braces");
    check("some{", "1:6", "unexpected end of input inside braces");
    check("some_metric{a=b}", "1:15", "unexpected identifier \"b\" in label matching, expected string");
    check("some_metric{a:b=\"b\"}", "1:14", "unexpected character inside braces: ':'");
    check("foo{a*\"b\"}", "1:6", "unexpected character inside braces: '*'");
    check("foo{a>=\"b\"}", "1:6", "unexpected character inside braces: '>'");
    check("foo{gibberish}", "1:14", "unexpected \"}\" in label matching, expected label matching operator");
    check("foo{1}", "1:5", "unexpected character inside braces: '1'");
    check("foo{__name__= =}", "1:15", "unexpected \"=\" in label matching, expected string");
    check("foo{,}", "1:5", "unexpected \",\" in label matching, expected identifier or \"}\"");
    check("foo{a='b',,}", "1:11", "unexpected \",\" in label matching, expected identifier or \"}\"");
    check("foo{__name__ == \"bar\"}", "1:15", "unexpected \"=\" in label matching, expected string");
    check("foo{a=\"b\" lol}", "1:11", "unexpected identifier \"lol\" in label matching, expected \",\" or \"}\"");
    check("foo{\"a\"=}", "1:9", "unexpected \"}\" in label matching, expected string");
    check("foo{\"a\" b}", "1:9", "unexpected identifier \"b\" in label matching, expected \",\" or \"}\"");
    for query in ["{}", "{x=\"\"}", "{x=~\".*\"}", "{x!~\".+\"}", "{x!=\"a\"}", "{}[5m]"] {
        check(query, "1:1", "vector selector must contain at least one non-empty matcher");
    }
    check("foo{__name__=\"bar\"}", "1:1", "metric name must not be set twice: \"foo\" or \"bar\"");
    check("foo{'bar'}", "1:1", "metric name must not be set twice: \"foo\" or \"bar\"");
}

#[test]
fn durations_and_modifiers() {
    const RANGE: &str = "in subquery or range selector, expected number, duration, step(), or range()";
    const OFFSET: &str =
        "offset modifier must be preceded by an instant vector selector or range vector selector or a subquery";
    check("foo[5mm]", "1:5", "bad number or duration syntax: \"5mm\"");
    check("foo[5m1]", "1:5", "bad number or duration syntax: \"5m1\"");
    check("foo[5m:1m1]", "1:8", "bad number or duration syntax: \"1m1\"");
    check("foo[5y1hs]", "1:5", "unknown unit \"hs\" in duration \"5y1hs\"");
    check("foo[5m1h]", "1:5", "not a valid duration string: \"5m1h\"");
    check("foo[0m]", "1:5", "duration must be greater than 0");
    check("foo[-1]", "1:5", "duration must be greater than 0");
    check("foo[5m:0]", "1:8", "duration must be greater than 0");
    check("foo[\"5m\"]", "1:5", "unexpected character in duration expression: '\"'");
    check("foo[]", "1:5", &format!("unexpected \"]\" {RANGE}"));
    check("foo[step]", "1:9", &format!("unexpected \"]\" {RANGE}"));
    check("foo[5m +]", "1:9", &format!("unexpected \"]\" {RANGE}"));
    check("foo[", "1:5", "unexpected end of input in duration expression");
    check("foo[5m 1m]", "1:8", "unexpected duration \"1m\" in subquery or range, expected \":\" or \"]\"");
    check("foo[5m:1m 1m]", "1:11", "unexpected duration \"1m\" in subquery selector, expected \"]\"");
    let step = "in subquery selector, expected number, duration, step(), range(), or \"]\"";
    check("foo[5m:1m+*]", "1:11", &format!("unexpected <op:*> {step}"));
    check("foo[5s x 5s]", "1:8", "unexpected character: 'x', expected ':'");
    check("foo[5s s 5s]", "1:8", "unexpected character: 's', expected ':'");
    for (query, place) in [("foo[:5m]", "1:6"), ("foo[step():5m]", "1:12"), ("foo[max_of(step(), range()):]", "1:29")] {
        check(query, place, "unexpected colon before duration in duration expression");
    }
    check("foo[step()/0d]", "1:11", "division by zero");
    check("foo[5s%0d]", "1:7", "modulo by zero");
    check("foo offset (4d/0)", "1:15", "division by zero");
    check("foo offset 9.5e10", "1:12", "duration out of range");
    check("foo offset -9.5e10", "1:12", "duration out of range");
    check("foo[9.5e10]", "1:5", "duration out of range");
    check("some_metric[5m] OFFSET 1mm", "1:24", "bad number or duration syntax: \"1mm\"");
    let offset = "in offset, expected number, duration, step(), or range()";
    check("some_metric[5m] OFFSET", "1:23", &format!("unexpected end of input {offset}"));
    check("foo offset bar", "1:12", &format!("unexpected identifier \"bar\" {offset}"));
    check("foo offset (5m) - bar", "1:19", &format!("unexpected identifier \"bar\" {offset}"));
    check("1 offset 1d", "1:1", OFFSET);
    check("foo offset 1s offset 2s", "1:1", "offset may not be set multiple times");
    check("some_metric OFFSET 1m[5m]", "1:22", "no offset modifiers allowed before range");
    check("some_metric offset step()[5m]", "1:26", "no offset modifiers allowed before range");
    check("some_metric @ 1234 [5m]", "1:20", "no @ modifiers allowed before range");
    check("some_metric @ end()[5m]", "1:20", "no @ modifiers allowed before range");
    check("(foo + bar)[5m]", "1:12", "ranges only allowed for vector selectors");
    check("rate(food[1m])[1h] offset 1h", "1:15", "ranges only allowed for vector selectors");
    check("1[5m] smoothed", "1:2", "ranges only allowed for vector selectors");
    check("some_metric[5m] @", "1:18", "unexpected end of input in @, expected timestamp");
    check("foo @ start foo", "1:13", "unexpected identifier \"foo\" in @, expected timestamp");
    check("foo @ +Inf", "1:1", "timestamp out of bounds for @ modifier: +Inf");
    check("foo @ NaN", "1:1", "timestamp out of bounds for @ modifier: NaN");
    check("foo @ -1e19", "1:1", "timestamp out of bounds for @ modifier: -10000000000000000000.000000");
    check("foo @ 1 @ 2", "1:1", "@ <timestamp> may not be set multiple times");
    let at = "@ modifier must be preceded by an instant vector selector or range vector selector or a subquery";
    check("rate(some_metric[5m]) @ 1234", "1:1", at);
    check("foo anchored smoothed", "1:1", "anchored and smoothed modifiers cannot be used together");
    check("foo[5m:] smoothed", "1:1", "smoothed modifier is not supported for subqueries");
    check("abs(a) anchored", "1:1", "anchored modifier not implemented");
    check("test[5d] OFFSET 10s [10m:5s]", "1:1", "subquery is only allowed on instant vector, got matrix instead");
    check("1[10m:5s]", "1:1", "subquery is only allowed on instant vector, got scalar instead");
    check("('a')[5m:]", "1:1", "subquery is only allowed on instant vector, got string instead");
}

#[test]
fn calls_and_aggregations() {
    const ARGS: &str = "wrong number of arguments for aggregate expression provided, expected";
    check("sum by (\"foo)(some_metric{})", "1:9", "unterminated quoted string");
    check("sum without(==)(some_metric)", "1:13", "unexpected <op:==> in grouping opts, expected label");
    check("sum without(,)(some_metric)", "1:13", "unexpected \",\" in grouping opts, expected label");
    check("sum without(foo,,)(some_metric)", "1:17", "unexpected \",\" in grouping opts, expected label");
    check("sum by (a b) (c)", "1:11", "unexpected identifier \"b\" in grouping opts, expected \",\" or \")\"");
    check("sum by ('') (c)", "1:9", "invalid label name for grouping: \"\"");
    check("sum some_metric by (test)", "1:5", "unexpected identifier \"some_metric\"");
    check("sum (some_metric) by test", "1:22", "unexpected identifier \"test\" in grouping opts, expected \"(\"");
    check("sum () by (test)", "1:1", "no arguments for aggregate expression provided");
    check("MIN keep_common (some_metric)", "1:5", "unexpected identifier \"keep_common\"");
    check("MIN (some_metric) keep_common", "1:19", "unexpected identifier \"keep_common\"");
    check("sum (a) without (test) by (test)", "1:24", "unexpected <by>");
    check("sum without (test) (a) BY (test)", "1:24", "unexpected <BY>");
    check("sum by (a) foo", "1:12", "unexpected identifier \"foo\" in aggregation");
    check("sum(rate(a[5m] b))", "1:16", "unexpected identifier \"b\" in aggregation");
    check("topk(some_metric)", "1:1", &format!("{ARGS} 2, got 1"));
    check("sum(a, b)", "1:1", &format!("{ARGS} 1, got 2"));
    check("topk(some_metric,)", "1:17", "trailing commas not allowed in function call args");
    check("topk(a, b)", "1:6", "expected type scalar in aggregation parameter, got instant vector");
    check("sum(1)", "1:5", "expected type instant vector in aggregation expression, got scalar");
    check("count_values(5, other_metric)", "1:14", "expected type string in aggregation parameter, got scalar");
    check("sum(", "1:5", "unclosed left parenthesis");
    check("floor()", "1:1", "expected 1 argument(s) in call to \"floor\", got 0");
    check("floor(some_metric, 1)", "1:1", "expected 1 argument(s) in call to \"floor\", got 2");
    check("floor(1)", "1:7", "expected type instant vector in call to function \"floor\", got scalar");
    check("hour(a, a, a)", "1:1", "expected at most 1 argument(s) in call to \"hour\", got 3");
    check("label_join(a, 'b')", "1:1", "expected at least 3 argument(s) in call to \"label_join\", got 2");
    check(
        "label_join(a, 'b', 'c', 'd', 1)",
        "1:30",
        "expected type string in call to function \"label_join\", got scalar",
    );
    check("time(some_metric)", "1:1", "expected 0 argument(s) in call to \"time\", got 1");
    check("no_such()", "1:1", "unknown function with name \"no_such\"");
    check("a>b()", "1:3", "unknown function with name \"b\"");
    check("RATE(a[5m])", "1:1", "unknown function with name \"RATE\"");
    check("rate(avg)", "1:6", "expected type range vector in call to function \"rate\", got instant vector");
    check("abs(foo(a))", "1:5", "unknown function with name \"foo\"");
    check("info(a, target_info{b='c'})", "1:9", "expected label selectors only, got vector selector instead");
    check("info(a, {b='c'} == 1)", "1:9", "expected label selectors only");
    check("info(a, 1)", "1:1", "expected type instant vector in call to function \"info\", got scalar");
}

#[test]
fn labels_of_broken_bytes() {
    // Where a text may turn out not to be a name is said when it is used.
    assert!(parse("count_values((\"a\\xc5z\"), version)").is_ok());
    assert!(parse("count_values('\\xc3\\xbc', version)").is_ok());
    check("sum by (\"a\\xc5z\") (a)", "1:9", "invalid label name for grouping: \"a\\xc5z\"");
    check("a * on ('\\xff') b", "1:9", "invalid label name for grouping: \"\\xff\"");
    check("a{b=~'\\xff'}", "1:3", "invalid regular expression \"\\xff\": invalid UTF-8");
}

#[test]
fn operators() {
    const SET: &str = "not allowed in binary scalar expression";
    check("1 and 1", "1:1", &format!("set operator \"and\" {SET}"));
    check("foo or 1", "1:1", &format!("set operator \"or\" {SET}"));
    check("1 unless foo", "1:1", &format!("set operator \"unless\" {SET}"));
    check("1 == 1", "1:3", "comparisons between scalars must use BOOL modifier");
    check("1  ==\n 1", "1:4", "comparisons between scalars must use BOOL modifier");
    check("foo + bool bar", "1:5", "bool modifier can only be used on comparison operators");
    check("foo and bool 10", "1:5", "bool modifier can only be used on comparison operators");
    check("1 or on(bar) foo", "1:1", "vector matching only allowed between instant vectors");
    check("foo == on(bar) 10", "1:1", "vector matching only allowed between instant vectors");
    check("foo + fill(1) 10", "1:1", "filling in missing series only allowed between instant vectors");
    check("foo and fill(1) bar", "1:1", "filling in missing series not allowed for set operators");
    check("foo and on(bar) group_left(baz) bar", "1:1", "no grouping allowed for \"and\" operation");
    check("foo unless on(bar) group_right(baz) bar", "1:1", "no grouping allowed for \"unless\" operation");
    check("a{b='c'} + on(x) group_left(y,x) d", "1:10", "label \"x\" must not occur in ON and GROUP clause at once");
    check("a[5m] + 1", "1:1", "binary expression must contain only scalar and instant vector types");
    check("1 + 'a'", "1:5", "binary expression must contain only scalar and instant vector types");
    let unary = "unary expression only allowed on expressions of type scalar or instant vector, got";
    check("-\"string\"", "1:1", &format!("{unary} \"string\""));
    check("1 + -test[5m]", "1:5", &format!("{unary} \"range vector\""));
    check("1 + 1 == 1 + (1 and 2)", "1:15", &format!("set operator \"and\" {SET}"));
}
