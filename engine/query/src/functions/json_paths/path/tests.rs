use super::reader::DEPTH_MAX;
use super::*;

fn lax(body: Body) -> Path {
    Path { is_strict: false, body }
}

fn steps(each: Vec<Step>) -> Expression {
    Expression::Steps(Steps { base: Base::Root, each })
}

fn written(value: &str) -> Expression {
    Expression::Steps(Steps { base: Base::Written(value.to_owned()), each: vec![] })
}

#[test]
fn paths_are_read() {
    let check = |text: &str, expected: Body| assert_eq!(read(text).as_ref(), Ok(&lax(expected)), "{text}");
    check("$", Body::Items(steps(vec![])));
    let member = |name: &str| Step::Member(name.to_owned());
    let last = || Expression::Steps(Steps { base: Base::Last, each: vec![] });
    check(
        r#"lax $ . a."b\"c".* [*][ 0, 1 to last - 2 ]"#,
        Body::Items(steps(vec![
            member("a"),
            member("b\"c"),
            Step::Members,
            Step::Items,
            Step::Between(vec![
                (written("0"), None),
                (written("1"), Some(Expression::Calculated(Box::new(last()), vec![(Arithmetic::Minus, written("2"))]))),
            ]),
        ])),
    );
    check("$.size().type()", Body::Items(steps(vec![Step::Method(Method::Size), Step::Method(Method::Type)])));
    let at = |name: &str| Expression::Steps(Steps { base: Base::Item, each: vec![member(name)] });
    check(
        r#"$ ? (@.a >= -1.5 && 2 < @.b || !(exists(@.c)) && @.d starts with "x")"#,
        Body::Items(steps(vec![Step::Kept(Condition::Any(vec![
            Condition::All(vec![
                Condition::Compared(at("a"), Operator::GreaterOrEqual, written("-1.5")),
                Condition::Compared(written("2"), Operator::Less, at("b")),
            ]),
            Condition::All(vec![
                Condition::Not(Box::new(Condition::Exists(at("c")))),
                Condition::StartsWith(at("d"), "x".to_owned()),
            ]),
        ]))])),
    );
    let last = steps(vec![member("last")]);
    check("($.last) <> null", Body::Condition(Condition::Compared(last, Operator::NotEqual, written("null"))));
    assert_eq!(read("strict $").map(|path| path.is_strict), Ok(true));
}

#[test]
fn what_cannot_be_read_is_told_with_its_place() {
    for (text, place, what) in [
        ("", 1, "is missing"),
        ("$.ä[", 5, "a number"),
        ("$.a b", 5, "ends before this"),
        ("$x", 1, "variables"),
        ("$ ? (@ > $x)", 10, "variables"),
        ("@.a", 1, "begins with `$`"),
        ("$.**{x}", 6, "level"),
        ("$.**{1 to 2", 12, "`}`"),
        ("$.a.datetime()", 15, "`datetime()`"),
        ("$ ? (@.a)", 9, "a comparison"),
        ("$ ? (@ like_regex \"(\")", 22, "regular expression"),
        ("$ ? (@ like_regex \"a\" flag \"k\")", 31, "`k`"),
        ("$ ? (@ like_regex 1)", 20, "a text"),
        ("$ + ($ == 1)", 13, "no value here"),
        ("($ == 1) == true", 10, "ends before this"),
        ("last", 1, "a number"),
        ("$.a == \"x", 8, "this text"),
        ("$.a +", 6, "a number"),
        ("$.", 3, "a member"),
        ("$ ? (! @.a == 1)", 8, "in brackets"),
    ] {
        let fault = read(text).unwrap_err();
        assert!(fault.contains(&format!("character {place}: ")) && fault.contains(what), "{text}: {fault}");
    }
    let nested = |count: usize| format!("$ ? ({}@ == 1{})", "(".repeat(count), ")".repeat(count));
    assert!(read(&nested(DEPTH_MAX - 1)).is_ok());
    assert!(read(&nested(10_000)).unwrap_err().contains("at most 50"));
}

#[test]
fn forms_that_say_the_same() {
    for (text, same) in [
        ("lax$.a", "$.a"),
        ("$ [ * ] . a", "$[*].a"),
        ("$.\"a\"", "$.a"),
        ("$[-1]", "$[ - 1 ]"),
        ("1e2", "100"),
        ("1 + 2 * 3", "1 + (2 * 3)"),
        ("- $ . a", "-$.a"),
        ("$.**", "$.**{0 to last}"),
        ("$.**{2}", "$.**{2 to 2}"),
        ("(($.a))", "$.a"),
        ("$.a != 1", "$.a <> 1"),
        ("\"x\" != $.a", "\"x\" <> ($.a)"),
        ("($.a == 1) && ($.b == 2)", "$.a == 1&&$.b == 2"),
        ("$.ä_1", "$ . \"ä_1\""),
    ] {
        assert_eq!(read(text), read(same), "{text} {same}");
        assert!(read(text).is_ok(), "{text}");
    }
    // `&&` binds closer than `||`.
    assert_eq!(read("$.a == 1 || $.b == 2 && $.c == 3"), read("$.a == 1 || ($.b == 2 && $.c == 3)"));
    assert_ne!(read("$.a == 1 || $.b == 2 && $.c == 3"), read("($.a == 1 || $.b == 2) && $.c == 3"));
    // Words of the language are names behind a point.
    for name in ["exists", "null", "true", "last", "lax", "strict", "starts", "to", "size"] {
        let expected = lax(Body::Items(steps(vec![Step::Member(name.to_owned())])));
        assert_eq!(read(&format!("$.{name}")), Ok(expected), "{name}");
    }
}

#[test]
fn slips_are_told_with_their_places() {
    for (text, place, what) in [
        ("$[", 3, "a number"),
        ("$[1 to]", 7, "a number"),
        ("$[1, ]", 6, "a number"),
        ("$[1", 4, "`]` is missing"),
        ("$.a like_regex \"[\"", 19, "no regular expression"),
        ("$ starts \"a\"", 10, "`with` is missing"),
        ("$ starts with 1", 16, "a text is missing"),
        ("exists $.a", 8, "`(` is missing"),
        ("exists($.a", 11, "`)` is missing"),
        ("$.a == ", 8, "a number, a text in double quotes"),
        ("1 $.a", 3, "ends before this"),
        ("$ ? (@.a == 1", 14, "`)` is missing"),
        ("$ ? @.a == 1", 5, "`(` is missing"),
        ("$.a.1b", 7, "the name of a member is missing"),
        ("$ == 1e", 6, "a number"),
        ("$ == tru", 6, "a number"),
        ("$ ? (@ like_regex \"a\" flag i)", 28, "this text cannot be read"),
        ("$ == \"\\x\"", 6, "this text cannot be read"),
        ("$.a || $.b == 1", 5, "a comparison is missing"),
        ("ß", 1, "is missing"),
    ] {
        let fault = read(text).unwrap_err();
        let begin = format!("cannot read the JSON path at character {place}: ");
        assert!(fault.starts_with(&begin) && fault.contains(what), "{text}: {fault}");
    }
}

/// Breaks if a path of some kilobytes goes as deep as it likes.
#[test]
fn conditions_of_items_nest_as_deep_as_others() {
    let within = |count: usize| format!("$ ? ({}@ == 1{})", "exists(@ ? (".repeat(count), "))".repeat(count));
    let not = |count: usize| format!("{}$ == 1{}", "!(".repeat(count), ")".repeat(count));
    assert!(read(&within(DEPTH_MAX - 1)).is_ok());
    assert!(read(&not(DEPTH_MAX / 2)).is_ok());
    for text in [within(DEPTH_MAX), within(10_000), not(DEPTH_MAX + 1), not(10_000)] {
        assert!(read(&text).unwrap_err().contains("at most 50 conditions"), "{} bytes", text.len());
    }
    // One behind the other they are as many as they are.
    let many = format!("$ ? ({})", vec!["@ == 1"; 2_000].join(" || "));
    assert!(read(&many).is_ok());
}

/// Each by itself would be allowed, and a path may hold thousands.
#[test]
fn patterns_of_a_path_are_bounded_together() {
    let path = |pattern: &dyn Fn(usize) -> String| {
        let conditions: Vec<String> = (0..200).map(|n| format!("@ like_regex \"{}\"", pattern(n))).collect();
        format!("$ ? ({})", conditions.join(" || "))
    };
    let fault = read(&path(&|n| format!(r"\\w{{15}}{n:04}"))).unwrap_err();
    assert!(fault.contains("the regular expressions of a query take more than"), "{fault}");
    assert!(read(&path(&|n| format!("^a{n}"))).is_ok());
    assert!(read(&path(&|_| r"\\w{15}".to_owned())).is_ok(), "the same one takes no more");
}
