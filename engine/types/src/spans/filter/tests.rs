//! Tests of filters: what they take, and how they are shown.

use super::*;

#[test]
fn numbers_compare_as_numbers() {
    let check = |test: &str, value: Value<'_>, expected: bool| {
        assert_eq!(AttributeTest::equals(test).matches(value), expected, "{test} {value:?}");
    };
    check("500", Value::Int(500), true);
    check("500", Value::Text("500"), true);
    check("500", Value::Double(500.0), true);
    check("5e2", Value::Int(500), true);
    check("500", Value::Int(501), false);
    check("9007199254740993", Value::Int(9_007_199_254_740_993), true);
    check("9007199254740993", Value::Int(9_007_199_254_740_992), false);
    check("9007199254740993", Value::Double(9_007_199_254_740_992.0), true);
    check("9007199254740993.0", Value::Int(9_007_199_254_740_992), true);
    check("9007199254740993", Value::Text("9007199254740992"), false);
    check("9007199254740993", Value::Text("+09007199254740993"), true);
    check("-9007199254740993", Value::Text("9007199254740993"), false);
    check("20240101123456789012", Value::Text("20240101123456789013"), false);
    check("20240101123456789012", Value::Text("20240101123456789012.0"), true);
    check("1e18", Value::Int(1_000_000_000_000_000_000), true);
    check("-0.0", Value::Int(0), true);
    check("0.1", Value::Double(0.1), true);
    check("NaN", Value::Double(f64::NAN), true);
    check("x", Value::Int(5), false);
    check("true", Value::Bool(true), true);
    check("a", Value::Text("a"), true);
}

#[test]
fn an_item_of_a_list_is_enough_where_that_is_asked() {
    let list = r#"{"arrayValue":{"values":[{"stringValue":"q1"},{"intValue":"7"}]}}"#;
    let check = |test: AttributeTest, whole: bool, item: bool| {
        assert_eq!(test.matches(Value::Json(list)), whole, "{test}");
        assert_eq!(AttributeTest::Item(Box::new(test.clone())).matches(Value::Json(list)), item, "{test}");
    };
    check(AttributeTest::equals("q1"), false, true);
    check(AttributeTest::equals("q2"), false, false);
    check(AttributeTest::equals("7.0"), false, true);
    check(AttributeTest::equals(r#"["q1",7]"#), true, false);
    check(AttributeTest::Number(5.0, 8.0), false, true);
    check(AttributeTest::Text(TextTest::Prefix("q".into())), false, true);
    let one = AttributeTest::Item(Box::new(AttributeTest::equals("q1")));
    assert!(one.matches(Value::Text("q1")) && !one.matches(Value::Text("q2")));
    assert_eq!(one.wanted(), Some((vec!["q1"], Vec::new())));
}

#[test]
fn a_set_of_values_has_each_that_one_of_its_tests_has() {
    let equals = ["500", "5e2", "x", "-0.0", "true", "NaN", "9007199254740993", "0.1"].map(AttributeTest::equals);
    let set = AttributeTest::any_of(equals.clone());
    assert!(matches!(set, AttributeTest::OneOf(_)), "{set}");
    let others = [AttributeTest::Number(7.0, 9.0), AttributeTest::Text(TextTest::Prefix("pre".to_owned()))];
    let any = AttributeTest::any_of(equals.iter().chain(&others).cloned());
    for value in [
        Value::Int(500),
        Value::Int(0),
        Value::Int(8),
        Value::Int(9_007_199_254_740_993),
        Value::Int(9_007_199_254_740_992),
        Value::Text("9007199254740993.0"),
        Value::Text("9007199254740992"),
        Value::Double(500.0),
        Value::Double(0.1),
        Value::Double(f64::NAN),
        Value::Double(1.5),
        Value::Bool(true),
        Value::Bool(false),
        Value::Text("500"),
        Value::Text("500.0"),
        Value::Text("x"),
        Value::Text("prefix"),
        Value::Text(""),
    ] {
        let one = equals.iter().any(|test| test.matches(value));
        assert_eq!(set.matches(value), one, "{value:?}");
        assert_eq!(any.matches(value), one || others.iter().any(|test| test.matches(value)), "{value:?}");
    }
    assert_eq!(any.wanted(), None);
    // Each with its number, one as a text that is compared as such, and two of one number.
    let without = AttributeTest::Equals("8".to_owned(), None);
    let sets = [
        vec![AttributeTest::equals("500"), AttributeTest::equals("7.5")],
        vec![AttributeTest::equals("500"), without],
        vec![AttributeTest::equals("500"), AttributeTest::equals("5e2")],
    ];
    for tests in sets {
        let set = AttributeTest::any_of(tests.clone());
        for value in [Value::Int(500), Value::Int(8), Value::Double(7.5), Value::Text("8")] {
            assert_eq!(set.matches(value), tests.iter().any(|test| test.matches(value)), "{set} {value:?}");
        }
    }
    let two = AttributeTest::any_of(["b", "7"].map(AttributeTest::equals));
    assert_eq!(two.wanted(), Some((vec!["7", "b"], vec![7.0])));
    assert_eq!(AttributeTest::any_of([AttributeTest::equals("7")]).wanted(), Some((vec!["7"], vec![7.0])));
    let list = r#"{"arrayValue":{"values":[{"stringValue":"q1"},{"intValue":"7"}]}}"#;
    assert!(AttributeTest::Item(Box::new(two)).matches(Value::Json(list)));
}

#[test]
fn bounds() {
    let both = SpanFilter::Starts(0, 10).and(SpanFilter::Overlaps(5, 7)).and(SpanFilter::Root);
    assert_eq!(both.start_bounds(), (0, 7));
    assert!(SpanFilter::Or(vec![]).start_bounds().0 > 0);
}

#[test]
fn texts() {
    let regex = || TextTest::Regex(Arc::new(WatchedRegex::new(regex::Regex::new("^(?:ab*)$").expect("a pattern"))));
    for (test, yes, no) in [
        (TextTest::of_pattern("ab"), &["ab"][..], &["abc", "AB", ""][..]),
        (TextTest::of_pattern("ab*"), &["ab", "abc", "ab*"], &["a", "xab"]),
        (TextTest::of_pattern("*"), &["", "a"], &[]),
        (TextTest::of_pattern("*a"), &["*a"], &["a", "ba"]),
        (TextTest::Contains("é".to_owned()), &["é", "café!"], &["e", ""]),
        (regex(), &["a", "abb"], &["abc", "xa", ""]),
        (TextTest::one_of(["b", "é", "a", "b"]), &["a", "b", "é"], &["", "ab", "c", "A"]),
        (TextTest::one_of([]), &[], &["", "a"]),
        (TextTest::Lower("get é".to_owned()), &["get é", "GET É", "Get é"], &["get e", "get", "get éa"]),
        // The sign for kelvin is no letter of ASCII, its lower case is.
        (TextTest::Lower("k".to_owned()), &["k", "K", "\u{212a}"], &["", "kk"]),
    ] {
        assert!(yes.iter().all(|text| test.matches(text)), "{test} {yes:?}");
        assert!(!no.iter().any(|text| test.matches(text)), "{test} {no:?}");
    }
}

#[test]
fn values_within_bounds() {
    let within = AttributeTest::Number(-1.0, 2.5);
    for (value, expected) in [
        (Value::Int(-1), true),
        (Value::Double(2.5), true),
        (Value::Text("2.4"), true),
        (Value::Int(3), false),
        (Value::Double(f64::NAN), false),
        (Value::Text("two"), false),
        (Value::Bool(true), false),
    ] {
        assert_eq!(within.matches(value), expected, "{value:?}");
    }
    // What is no finite number is asked for as the text that it is.
    assert!(matches!(AttributeTest::equals("NaN"), AttributeTest::Equals(_, None)));
    assert!(matches!(AttributeTest::equals("1e999"), AttributeTest::Equals(_, None)));
    assert!(AttributeTest::Exists.matches(Value::Text("")));
}

#[test]
fn filters_are_put_together_flat() {
    let named = |text: &str| SpanFilter::Name(TextTest::Is(text.to_owned()));
    let check = |filter: SpanFilter, expected: &str| assert_eq!(filter.to_string(), expected);
    check(SpanFilter::All.and(SpanFilter::All), "all");
    check(SpanFilter::All.and(SpanFilter::Root), "root");
    check(SpanFilter::Root.and(SpanFilter::All), "root");
    check(named("a").and(SpanFilter::Root), "(name = \"a\" and root)");
    let two = || SpanFilter::Root.and(SpanFilter::Status(2));
    check(two().and(named("a")), "(root and status = 2 and name = \"a\")");
    check(two().and(two()), "(root and status = 2 and root and status = 2)");
}

#[test]
fn filters_as_texts() {
    let attribute = |place| SpanFilter::Attribute { place, key: "k".to_owned(), test: AttributeTest::Exists };
    for (filter, expected) in [
        (
            SpanFilter::Not(Box::new(SpanFilter::Or(vec![SpanFilter::None, SpanFilter::WithoutRepeats]))),
            "not (none or without repeats)",
        ),
        (SpanFilter::Traces(Arc::new(vec![[0xab; 16]])), "trace = abababababababababababababababab"),
        (SpanFilter::Traces(Arc::new(vec![[0; 16]; 3])), "trace in 3 ids"),
        (SpanFilter::Duration(-1, 5), "duration in [-1, 5]"),
        (SpanFilter::Kinds(vec![2, 5]), "kind in [2, 5]"),
        (SpanFilter::Received(7), "received <= 7"),
        (SpanFilter::Service(TextTest::of_pattern("a*")), "service begins with \"a\""),
        (attribute(None), "any.k exists"),
        (attribute(Some(Place::Resource)), "resource.k exists"),
    ] {
        assert_eq!(filter.to_string(), expected);
    }
}

#[test]
fn traces_that_are_named_bound_the_rest() {
    let ids = || SpanFilter::Traces(Arc::new(vec![[1; 16]]));
    let or = SpanFilter::Or(vec![ids(), SpanFilter::Root]);
    let not = SpanFilter::Not(Box::new(ids()));
    for (filter, named, leaves_out) in [
        (SpanFilter::All, false, true),
        (ids(), true, false),
        (SpanFilter::Root.and(ids()), true, false),
        (ids().and(SpanFilter::WithoutRepeats), true, true),
        (ids().and(SpanFilter::WithoutRepeats.and(SpanFilter::Root)), true, true),
        // One of several is not what all are of.
        (or, false, true),
        (not, false, true),
    ] {
        assert_eq!(filter.traces().is_some(), named, "{filter}");
        assert_eq!(filter.leaves_out_repeats(), leaves_out, "{filter}");
    }
    let far = SpanFilter::Starts(5, 9).and(SpanFilter::Starts(20, 30));
    let (min, max) = far.start_bounds();
    assert!(min > max, "nothing starts in both");
    let either = SpanFilter::Or(vec![far, SpanFilter::Starts(1, 2), SpanFilter::Starts(8, 8)]);
    assert_eq!(either.start_bounds(), (1, 8));
    assert_eq!(SpanFilter::Not(Box::new(SpanFilter::Starts(1, 2))).start_bounds(), (i64::MIN, i64::MAX));
}
