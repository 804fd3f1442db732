use super::*;

mod corpus;
mod errors;
mod oracle;
mod random;

use quiver_query::{Limits, QueryContext};
use quiver_types::{Access, ErrorKind};

use crate::ast::{AggregateOp, At, BinaryExpr, BinaryOp, ExprKind, MatchCardinality, VectorMatching, VectorSelector};
use crate::print::print;
use crate::range_ends::RangeEnds;

/// Shows how an expression groups: every operation in parentheses of its own.
fn groups(expr: &Expr) -> String {
    match &expr.kind {
        ExprKind::Paren(inner) => groups(inner),
        ExprKind::Unary { negate, expr } => format!("({}{})", if *negate { "-" } else { "+" }, groups(expr)),
        ExprKind::Binary(b) => format!("({} {} {})", groups(&b.lhs), b.op.as_str(), groups(&b.rhs)),
        _ => print(expr),
    }
}

fn check(query: &str, expected: &str) {
    assert_eq!(groups(&parse(query).unwrap_or_else(|e| panic!("{query}: {e}"))), expected, "{query}");
}

#[test]
fn precedence() {
    check("-1^2", "(-(1 ^ 2))");
    check("-1*2", "(-1 * 2)");
    check("-a*2", "((-a) * 2)");
    check("-1^-2", "(-(1 ^ -2))");
    check("2^3^2", "(2 ^ (3 ^ 2))");
    check("2^-a*3", "((2 ^ (-a)) * 3)");
    check("+1 + -2 * 1", "(1 + (-2 * 1))");
    check("1 - 2 - 3", "((1 - 2) - 3)");
    check("a + b * c % d ^ e atan2 f", "(a + (((b * c) % (d ^ e)) atan2 f))");
    check("a or b and c unless d or e", "((a or ((b and c) unless d)) or e)");
    check("a == b < c + d", "((a == b) < (c + d))");
    check("a </ 1 + 2 >/ 3", "((a </ (1 + 2)) >/ 3)");
    check("1 < bool 2 - 1 * 2", "(1 < (2 - (1 * 2)))");
    check("-a offset 5m", "(-a offset 5m)");
    check(
        "-a[5m:] offset 5m == 1".replace("-a", "-sum_over_time(a").replace(" ==", ") ==").as_str(),
        "((-sum_over_time(a[5m:] offset 5m)) == 1)",
    );
    check("a + b @ 10", "(a + b @ 10.000)");
    check("a offset -1^1", "(a offset -1s ^ 1)");
    check("a offset step() - 5", "(a offset step() - 5)");
    check("a offset 5m + b offset 1m", "(a offset 5m + b offset 1m)");
    check("a offset (5m) == 1", "(a offset (5m) == 1)");
    check("- -1", "1");
    check("--a", "(-(-a))");
}

#[test]
fn words() {
    for query in [
        "sum",
        "min + max",
        "sum{a='b'}",
        "by",
        "without",
        "offset",
        "and",
        "or{a='b'}",
        "unless",
        "start",
        "end",
        "step",
        "range",
        "min_of",
        "max_of",
        "anchored",
        "smoothed",
        "fill",
        "fill_left + fill_right",
        "fill{a='b'}",
        "a:b:c",
        ":a",
        "sum(sum)",
        "a + sum",
        "offset{step='1s'}[5m]",
        "step{offset='1s'}[5m] offset step()",
        "foo unless on(start, end, bool, on, by, sum, atan2, fill, offset, group_left, step) bar",
        "a and and",
        "infinity + nano",
        "sum by (a:b) (c)",
        "foo{NaN='bc', sum='', by='x'}",
        "limitk(2, a) + limit_ratio(0.5, b)",
    ] {
        assert!(parse(query).is_ok(), "{query}: {:?}", parse(query));
    }
    for query in ["bool", "on", "ignoring", "group_left", "group_right", "atan2", "fill(1)", "sum by (without) (a)"] {
        assert!(parse(query).is_err(), "{query}");
    }
}

#[test]
fn selectors() {
    let selector = |query: &str| match parse(query).expect(query).kind {
        ExprKind::VectorSelector(s) | ExprKind::MatrixSelector { selector: s, .. } => s,
        other => panic!("{other:?}"),
    };
    let check = |query: &str, expected: &str| {
        let VectorSelector { name, matchers, .. } = selector(query);
        assert_eq!(format!("{name:?} {matchers:?}"), expected, "{query}");
    };
    check("foo", r#"Some("foo") [__name__="foo"]"#);
    check(r#"{"foo"}"#, r#"None [__name__="foo"]"#);
    check(r#"foo{a="b",c!='d',}"#, r#"Some("foo") [a="b", c!="d", __name__="foo"]"#);
    check(r#"{'foo\'bar', `a\b`='c\\d', x=~"y", z!~"w"}"#, r#"None [__name__="foo'bar", a\b="c\\d", x=~"y", z!~"w"]"#);
    check("{__name__='bar', __name__='baz'}", r#"None [__name__="bar", __name__="baz"]"#);
    check("foo{}", r#"Some("foo") [__name__="foo"]"#);
    let check = |query: &str, expected| assert_eq!(selector(query).at, expected, "{query}");
    check("foo @ 1603774568", Some(At::Time(1_603_774_568_000)));
    check("foo @ -.3", Some(At::Time(-300)));
    check("foo @ 3.3335", Some(At::Time(3334)));
    check("foo @ 0xA", Some(At::Time(10_000)));
    check("foo[5m] @ 1m", Some(At::Time(60_000)));
    check("foo @ start()", Some(At::Start));
    check("foo[5y] @ end ( )", Some(At::End));
    // All that may be added to a time leaves it a number.
    let furthest = 1_i64 << 62;
    check("foo @ 4e15", Some(At::Time(4_000_000_000_000_000_000)));
    check("foo @ 9e18", Some(At::Time(furthest)));
    check("foo[100y] @ -9e18 offset 100y", Some(At::Time(-furthest)));
    check("foo @ 4611686018427388.000", Some(At::Time(furthest)));
    check("foo offset 1m", None);
    let ends = ["foo", "foo anchored anchored", "foo[5m] SMOOTHED"].map(|text| selector(text).ends);
    assert_eq!(ends, [RangeEnds::Samples, RangeEnds::Anchored, RangeEnds::Smoothed]);
    assert_eq!(selector("foo offset 0s").offset, None);
}

#[test]
fn positions() {
    let at = |start, end| PosRange { start, end };
    let expr = parse(" foo{a='b'} @ 5 offset 5m + on(x) (bar) ").unwrap();
    assert_eq!(expr.pos, at(1, 39));
    let ExprKind::Binary(b) = &expr.kind else { panic!() };
    assert_eq!((b.lhs.pos, b.rhs.pos), (at(1, 25), at(34, 39)));
}

#[test]
fn positions_of_parts() {
    let at = |start, end| PosRange { start, end };
    let expr = parse("sum by (a) (rate(foo{a='b'}[5m] offset 5m @ 7)) ").unwrap();
    assert_eq!(expr.pos, at(0, 47));
    let ExprKind::Aggregate(aggregate) = &expr.kind else { panic!() };
    assert_eq!(aggregate.op, AggregateOp::Sum);
    let ExprKind::Call { args, .. } = &aggregate.expr.kind else { panic!() };
    assert_eq!((aggregate.expr.pos, args[0].pos), (at(12, 46), at(17, 45)));
    let ExprKind::MatrixSelector { selector, range } = &args[0].kind else { panic!() };
    assert_eq!((selector.pos, range.pos), (at(17, 27), at(28, 30)));
}

#[test]
fn matching() {
    let check = |query: &str, card, on: bool, labels: &[&str], include: &[&str]| {
        let expr = parse(query).expect(query);
        let ExprKind::Binary(b) = &expr.kind else { panic!("{query}") };
        let texts = |list: &[&str]| list.iter().map(|&l| l.to_owned()).collect();
        let expected = VectorMatching {
            card,
            labels: texts(labels),
            on,
            include: texts(include),
            fill_left: None,
            fill_right: None,
        };
        assert_eq!(b.matching, Some(expected), "{query}");
    };
    check("a * b", MatchCardinality::OneToOne, false, &[], &[]);
    check("a and b", MatchCardinality::ManyToMany, false, &[], &[]);
    check("a * on(x, 'y z',) b", MatchCardinality::OneToOne, true, &["x", "y z"], &[]);
    check("a * on() group_left b", MatchCardinality::ManyToOne, true, &[], &[]);
    check("a / ignoring(x) group_right(y) b", MatchCardinality::OneToMany, false, &["x"], &["y"]);
    check("a unless on(x) b", MatchCardinality::ManyToMany, true, &["x"], &[]);
    let binary = |query: &str| match parse(query).expect(query).kind {
        ExprKind::Binary(b) => BinaryExpr::clone(&b),
        other => panic!("{other:?}"),
    };
    assert_eq!(binary("a + 1").matching, None);
    assert!(binary("1 >= bool 2").return_bool && binary("1 >= bool 2").op == BinaryOp::Gte);
    let fill = |query: &str| binary(query).matching.as_ref().map(|m| (m.fill_left, m.fill_right));
    assert_eq!(fill("a + fill(-2) b"), Some((Some(-2.0), Some(-2.0))));
    assert_eq!(fill("a + on(x) group_left fill_right(1m) fill_left(+2) b"), Some((Some(2.0), Some(60.0))));
    assert_eq!(fill("a == bool fill_left (0) b"), Some((Some(0.0), None)));
}

#[test]
fn match_parameters() {
    let check = |text: &str, expected: &str| {
        let shown = parse_selectors([text], None).map_or_else(|e| e.to_string(), |all| format!("{:?}", all[0]));
        assert_eq!(shown, expected, "{text}");
    };
    check("up", r#"[__name__="up"]"#);
    check("{}", "[]");
    check("sum{a=~'b|c'} # all", r#"[a=~"b|c", __name__="sum"]"#);
    check("{'a b'}", r#"[__name__="a b"]"#);
    check("", "unknown position: parse error: unexpected end of input");
    check("up offset 5m", "1:4: parse error: unexpected <offset>");
    check("up[5m]", r#"1:3: parse error: unexpected "[""#);
    check("1", r#"1:1: parse error: unexpected number "1""#);
}

#[test]
fn limits() {
    let fail = |query: &str| parse(query).expect_err("beyond a limit").to_string();
    let deep = "expression is nested too deeply, at most 200 levels are allowed";
    assert!(parse(&format!("{}1{}", "(".repeat(199), ")".repeat(199))).is_ok());
    assert_eq!(fail(&"(".repeat(1_000_000)), format!("1:201: parse error: {deep}"));
    for part in ["-", "a and(", "abs(", "1^", "sum by (a) (", "a[1m:] + (", "a offset (", "a[-", "a[1^", "a[max_of(1,"]
    {
        let query = part.repeat(1_000_000 / part.len());
        assert!(parse(&query).is_err(), "{part}");
    }
    assert!(fail(&format!("a{}", "[1m:]".repeat(200_000))).contains("subquery is only allowed"));
    assert!(fail(&format!("a[1{}]", "+1".repeat(400_000))).contains("too long"));
    assert!(fail(&format!("a{}", " offset 0s".repeat(90_000) + " x")).contains("unexpected identifier"));
    assert!(parse(&format!("1{}", "+1".repeat(10_000))).is_ok());
    assert!(fail(&format!("1{}", "+1".repeat(100_000))).contains("too large, at most 50000 operands"));
    assert!(fail(&" ".repeat(2_000_000)).contains("2000000 bytes is too long"));
}

#[test]
fn experimental_functions_can_be_off() {
    let options = ParseOptions { experimental_functions: false, ..ParseOptions::default() };
    let check = |query: &str, expected: &str| {
        assert_eq!(parse_with(query, &options, None).expect_err(query).message, expected, "{query}");
    };
    check("sort_by_label(a, 'b')", "function \"sort_by_label\" is not enabled");
    check("a + start()", "function \"start\" is not enabled");
    let flag = "is experimental and must be enabled with --enable-feature=promql-experimental-functions";
    check("limitk(2, a)", &format!("limitk() {flag}"));
    assert!(parse_with("rate(a[step()]) + topk(1, a)", &options, None).is_ok());
}

#[test]
fn reading_ends_with_its_query() {
    let ctx = QueryContext::new(Access::full(), Limits::default());
    let pace = Pace::new(&ctx, "query preparation");
    let read =
        |text: &str| parse_with(text, &ParseOptions::default(), Some(&pace)).map_err(|e| (e.kind, e.to_string()));
    let (long, pattern) = (format!("1{}", "+1".repeat(40_000)), "m{a=~\"b.*\"}");
    assert!(read(&long).is_ok() && read(pattern).is_ok());
    ctx.cancel.cancel();
    let cancelled = Err((ErrorKind::Cancelled, "query was canceled in query preparation".to_owned()));
    assert_eq!(read(&long), cancelled);
    assert_eq!(read(pattern), cancelled);
    assert!(read("1 + 1").is_ok(), "what is short is read");
}

#[test]
fn patterns_that_are_too_large_are_no_parse_errors() {
    let kind = |text: &str| parse(text).map_err(|e| (e.kind, e.to_string().contains("parse error"))).err();
    let many = (0..1000).map(|i| format!("a!~\"x{i}\\\\w{{10}}\"")).collect::<Vec<_>>().join(",");
    assert_eq!(kind(&format!("{{{many},b=\"c\"}}")), Some((ErrorKind::LimitExceeded, false)));
    assert_eq!(kind(&format!("{{a=~\"{}\"}}", "x".repeat(500_000))), Some((ErrorKind::LimitExceeded, false)));
    assert_eq!(kind("{a=~\"(.{1000}){1000}\"}"), Some((ErrorKind::Invalid, true)));
    let same = vec!["a!~\"x\\\\w{10}\""; 1000].join(",");
    assert_eq!(kind(&format!("{{{same},b=\"c\"}}")), None, "one pattern");
}
