use super::*;

fn steps(steps: Vec<Step>) -> Steps {
    Steps { from_root: true, steps, method: None }
}

#[test]
fn paths_are_read() {
    let check = |text: &str, expected: Path| assert_eq!(read(text).as_ref(), Ok(&expected), "{text}");
    check("$", Path::Items(steps(vec![])));
    let member = |name: &str| Step::Member(name.to_owned());
    check(
        r#"lax $ . a."b\"c".* [*][ 0, 1 to last - 2 ]"#,
        Path::Items(steps(vec![
            member("a"),
            member("b\"c"),
            Step::Members,
            Step::Items,
            Step::Between(vec![(Place::At(0), Place::At(0)), (Place::At(1), Place::BeforeLast(2))]),
        ])),
    );
    check("$.size()", Path::Items(Steps { from_root: true, steps: vec![], method: Some(Method::Size) }));
    let at = |name: &str| Steps { from_root: false, steps: vec![member(name)], method: None };
    let number = |text: &str| Scalar::Number(text.to_owned());
    check(
        r#"$ ? (@.a >= -1.5 && 2 < @.b || !(exists(@.c)) && @.d starts with "x")"#,
        Path::Items(steps(vec![Step::Kept(Condition::Any(vec![
            Condition::All(vec![
                Condition::Compared(at("a"), Operator::GreaterOrEqual, number("-1.5")),
                Condition::Compared(at("b"), Operator::Greater, number("2")),
            ]),
            Condition::All(vec![
                Condition::Not(Box::new(Condition::Exists(at("c")))),
                Condition::StartsWith(at("d"), "x".to_owned()),
            ]),
        ]))])),
    );
    check(
        "($.last) <> null",
        Path::Condition(Condition::Compared(steps(vec![member("last")]), Operator::NotEqual, Scalar::Null)),
    );
}

#[test]
fn what_cannot_be_read_is_told_with_its_place() {
    for (text, place, what) in [
        ("", 1, "is missing"),
        ("strict $.a", 8, "`strict`"),
        ("$.ä[", 5, "whole number"),
        ("$.a b", 5, "not supported here"),
        ("$x", 1, "variables"),
        ("$ ? (@ > $x)", 10, "variables"),
        ("@.a", 1, "begins with `$`"),
        ("$.**{x}", 6, "level"),
        ("$.**{1 to 2", 12, "`}`"),
        ("$.a.double()", 13, "`double()`"),
        ("$.size().a", 9, "behind `size()`"),
        ("$ ? (@.a)", 9, "a comparison"),
        ("$ ? (@ like_regex \"(\")", 22, "regular expression"),
        ("$ ? (@ like_regex \"a\" flag \"k\")", 31, "`k`"),
        ("$ ? (@ like_regex 1)", 20, "a text"),
        ("$ ? (@ == $.b)", 11, "a number"),
        ("$.a == \"x", 8, "this text"),
        ("$.a + 1", 5, "not supported here"),
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
