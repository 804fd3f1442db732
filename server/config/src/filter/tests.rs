//! The grammar of filters, and what they mean.

use serde_json::json;

use super::*;

#[test]
fn meaning() {
    let Value::Object(entity) = json!({
        "name": "Cart", "n": 5, "on": true, "none": null, "tags": ["a", "b"], "empty": [],
        "labels": {"team": "shop", "k8s.io/name": "x"}, "createdAt": "2026-01-31T12:00:00.000Z",
        "steps": [{"name": "pay", "in": [{"n": 1}, {"n": 2}], "note": ""}, {"name": "ship"}, 5],
    }) else {
        panic!("an object")
    };
    let check = |text: &str, yes: bool| {
        let mut filter = parse(text).unwrap();
        filter.fit(&|path| (path == "createdAt").then_some(Class::Time)).unwrap();
        assert_eq!(filter.allows(&entity), yes, "{text}");
    };
    check(r#"name eq "Cart""#, true);
    check(r#"name eq "cart""#, false);
    check(r#"name NE "cart" AND n ge 5"#, true);
    check("n gt 5 or on eq true", true);
    check("not (n gt 5 or on eq true)", false);
    check(r#"name sw "Ca" and name ew "rt" and name co "ar""#, true);
    check(r#"tags eq "b""#, true);
    check(r#"tags ne "b""#, false);
    check("empty pr", false);
    check("tags pr and not none pr and not nothing pr", true);
    check(r#"labels.team eq "shop" and labels.k8s.io/name eq "x""#, true);
    check(r#"createdAt gt "2026-01-31T12:59:00+01:00""#, true);
    check(r#"createdAt le "2026-01-31T12:00:00Z""#, true);
    check(r#"name in ("Dart","Cart")"#, true);
    check("n in (1, 2)", false);
    check("none eq null", true);
    check(r#"n gt "4""#, false);
    check("n eq 1 or n eq 5 and on eq true", true);
    // Through lists: one of several must fit.
    check(r#"steps.name eq "ship" and steps.name sw "p" and steps.in.n ge 2"#, true);
    check(r#"steps.name eq "cart" or steps.in.n gt 2 or steps.name eq null"#, false);
    check(r#"steps.name ne "cart" and not (steps.name ne "ship")"#, true);
    check(r#"steps.name in ("cart", "pay") and steps.in pr and not steps.note pr and not steps.none pr"#, true);
    check("steps.none eq null and tags.none eq null", true);
    check("n eq 5 or n eq 5 and on eq false", true);
}

#[test]
fn what_is_no_filter() {
    let check = |text: &str, part: &str| {
        let error = parse(text).expect_err(text);
        assert!(error.detail.contains(part), "{text}: {}", error.detail);
    };
    check("", "the end at offset 0; expected a field");
    check("name", "expected eq");
    check("name like \"x\"", "`like` at offset 5");
    check("name eq", "expected a text");
    check("name eq x", "expected a text");
    check("name eq \"x", "expected a text");
    check("name eq \"x\" and", "expected a field");
    check("(name eq \"x\"", "expected `)`");
    check("name eq \"x\" y", "expected `and`");
    check("name in (\"x\"", "expected `,`");
    check(&format!("{}n eq 1{}", "(".repeat(30), ")".repeat(30)), "nested deeper");
    check(&vec!["n eq 1"; 51].join(" or "), "more than 50");
    check(&" ".repeat(20 << 10), "more than 16384 bytes");
    check("name eq {}", "expected a text");
}

#[test]
fn values_fit_their_fields() {
    let class = |path: &str| match path {
        "at" => Some(Class::Time),
        "version" => Some(Class::Number),
        "enabled" => Some(Class::Bool),
        "name" => Some(Class::Text),
        _ => None,
    };
    let fits = |text: &str| parse(text).unwrap().fit(&class).map_err(|problem| problem.code);
    for good in [
        r#"at ge "2026-01-31T12:00:00+01:00""#,
        r#"at sw "2026-01""#,
        "version in (1, 2.5, null)",
        "enabled eq true or not (name eq null)",
        r#"other eq 5 and other ne "x""#,
        "version pr",
    ] {
        assert_eq!(fits(good), Ok(()), "{good}");
    }
    for wrong in [
        r#"at gt "bad""#,
        "at eq 5",
        r#"version eq "1""#,
        r#"version in (1, "2")"#,
        r#"not (enabled eq "true")"#,
        r#"name eq "x" and name ne 5"#,
    ] {
        assert_eq!(fits(wrong), Err("INVALID_PARAMETER"), "{wrong}");
    }
}

/// The grammar of RFC 7644: `and` binds closer than `or`, words are known in any case, values are JSON.
#[test]
fn grammar() {
    let eq = |path: &str, value: Value| Filter::Compare(path.to_owned(), Op::Eq, value);
    let (a, b, c) = (|| eq("a", json!(1)), || eq("b", json!(2)), || eq("c", json!(3)));
    for (text, expected) in [
        ("a eq 1", a()),
        ("  a   eq   1  ", a()),
        ("(a eq 1)", a()),
        ("((a eq 1))", a()),
        ("a EQ 1", a()),
        ("a eq 1 and b eq 2", Filter::All(vec![a(), b()])),
        ("a eq 1 or b eq 2", Filter::Any(vec![a(), b()])),
        ("a eq 1 or b eq 2 and c eq 3", Filter::Any(vec![a(), Filter::All(vec![b(), c()])])),
        ("a eq 1 and b eq 2 or c eq 3", Filter::Any(vec![Filter::All(vec![a(), b()]), c()])),
        ("a eq 1 and (b eq 2 or c eq 3)", Filter::All(vec![a(), Filter::Any(vec![b(), c()])])),
        ("a eq 1 AND b eq 2 And c eq 3", Filter::All(vec![a(), b(), c()])),
        ("not (a eq 1)", Filter::Not(Box::new(a()))),
        ("NOT(a eq 1)", Filter::Not(Box::new(a()))),
        ("not not a eq 1", Filter::Not(Box::new(Filter::Not(Box::new(a()))))),
        ("a pr", Filter::Present("a".to_owned())),
        ("a PR and b eq 2", Filter::All(vec![Filter::Present("a".to_owned()), b()])),
        ("a in (1)", Filter::In("a".to_owned(), vec![json!(1)])),
        ("a in(1,\"x\" , null)", Filter::In("a".to_owned(), vec![json!(1), json!("x"), json!(null)])),
        ("labels.k8s.io/name eq \"x\"", eq("labels.k8s.io/name", json!("x"))),
        ("a eq -1.5e3", eq("a", json!(-1500.0))),
        ("a eq true", eq("a", json!(true))),
        ("a eq null", eq("a", Value::Null)),
        ("a eq \"x \\\"and\\\" y\"", eq("a", json!("x \"and\" y"))),
        ("a eq \"\\u00e9)\"", eq("a", json!("é)"))),
        ("a eq \"\"", eq("a", json!(""))),
        // A field may be called like a word of the grammar where no word can stand.
        ("eq eq 1", eq("eq", json!(1))),
        ("pr pr", Filter::Present("pr".to_owned())),
    ] {
        assert_eq!(parse(text).unwrap_or_else(|e| panic!("{text}: {e}")), expected, "{text}");
    }
    for (word, op) in OPS {
        assert_eq!(parse(&format!("a {word} 1")).unwrap(), Filter::Compare("a".to_owned(), op, json!(1)), "{word}");
    }
}

#[test]
fn told_where() {
    for (text, detail) in [
        ("a eq 1 and", "`filter` has the end at offset 10; expected a field"),
        ("a eq 1 nad b eq 2", "`filter` has `nad` at offset 7; expected `and`, `or` or the end"),
        ("a = 1", "`filter` has `=` at offset 2; expected eq, ne, co, sw, ew, gt, ge, lt, le, in or pr"),
        ("a eq 'x'", "`filter` has `'x'` at offset 5; expected a text in quotes, a number, true, false or null"),
        ("a eq TRUE", "`filter` has `TRUE` at offset 5; expected a text in quotes, a number, true, false or null"),
        ("a eq [1]", "`filter` has `[1]` at offset 5; expected a text in quotes, a number, true, false or null"),
        ("a eq 01", "`filter` has `01` at offset 5; expected a text in quotes, a number, true, false or null"),
        ("a in 1", "`filter` has `1` at offset 5; expected `(`"),
        ("a in ()", "`filter` has `)` at offset 6; expected a text in quotes, a number, true, false or null"),
        ("a in (1 2)", "`filter` has `2)` at offset 8; expected `,` or `)`"),
        ("(a eq 1", "`filter` has the end at offset 7; expected `)`"),
        ("a eq 1)", "`filter` has `)` at offset 6; expected `and`, `or` or the end"),
        ("()", "`filter` has `)` at offset 1; expected a field"),
        ("not", "`filter` has the end at offset 3; expected a field"),
        ("and a eq 1", "`filter` has `a` at offset 4; expected eq, ne, co, sw, ew, gt, ge, lt, le, in or pr"),
    ] {
        let problem = parse(text).expect_err(text);
        assert_eq!((problem.code, problem.detail.as_str()), ("INVALID_PARAMETER", detail), "{text}");
    }
}

/// One more than is allowed is refused, as many as are allowed are read.
#[test]
fn bounds() {
    let nested = |n: usize| format!("{}n eq 1{}", "(".repeat(n), ")".repeat(n));
    assert!(parse(&nested(DEPTH_MAX)).is_ok() && parse(&nested(DEPTH_MAX + 1)).is_err());
    let nots = |n: usize| format!("{}n eq 1", "not ".repeat(n));
    assert!(parse(&nots(DEPTH_MAX)).is_ok() && parse(&nots(DEPTH_MAX + 1)).is_err());
    let terms = |n: usize| vec!["n eq 1"; n].join(" and ");
    assert!(parse(&terms(TERMS_MAX)).is_ok() && parse(&terms(TERMS_MAX + 1)).is_err());
    let long = |n: usize| format!("n eq \"{}\"", "x".repeat(n - 7));
    assert!(parse(&long(BYTES_MAX)).is_ok() && parse(&long(BYTES_MAX + 1)).is_err());
}

#[test]
fn order_of_values() {
    let sorted = [
        json!(null),
        json!(false),
        json!(true),
        json!(-1.5),
        json!(0),
        json!(0.5),
        json!(2),
        json!(10),
        json!(i64::MAX),
        json!(""),
        json!("10"),
        json!("2"),
        json!("A"),
        json!("a"),
        json!("é"),
        json!([]),
        json!({}),
    ];
    for (n, a) in sorted.iter().enumerate() {
        for (m, b) in sorted.iter().enumerate() {
            assert_eq!(order(a, b), n.cmp(&m), "{a} {b}");
        }
    }
    assert_eq!(order(&json!(1), &json!(1.0)), Ordering::Equal);
    // As whole numbers they differ, though not as floats.
    assert_eq!(order(&json!(i64::MAX - 1), &json!(i64::MAX)), Ordering::Less);
}

/// Which texts a field can have where a filter holds: what an index is asked for.
#[test]
fn what_a_field_is_bound_to() {
    for (text, expected) in [
        (r#"a eq "x""#, Some(vec!["x"])),
        (r#"a eq "x" and b eq "y""#, Some(vec!["x"])),
        (r#"b eq "y" and (a eq "x" or a eq "z")"#, Some(vec!["x", "z"])),
        (r#"a in ("x", "y")"#, Some(vec!["x", "y"])),
        (r#"a eq "x" or b eq "y""#, None),
        (r#"not (a eq "x")"#, None),
        (r#"a ne "x""#, None),
        (r#"a sw "x""#, None),
        (r#"a in ("x", 1)"#, None),
        ("a eq 1", None),
        ("a pr", None),
    ] {
        assert_eq!(parse(text).unwrap().only("a"), expected, "{text}");
    }
    let filter = parse("a pr and (b eq 1 or not c.d in (1)) and a eq 2").unwrap();
    let mut paths = Vec::new();
    filter.paths(&mut paths);
    assert_eq!(paths, ["a", "b", "c.d", "a"]);
}
