//! What stages leave of the spans that were found.

use super::*;

/// A trace of one service whose spans have these numbers as `a`, all below the first.
fn numbers(values: &[Value<'_>]) -> Trace {
    let spans = values.iter().zip(1_u64..).map(|(value, id)| {
        let mut span = span(id, u64::from(id > 1), "s", 2, id as i64, id as i64 + 10);
        span.attributes = Attributes::of([("a", *value)]);
        span
    });
    assemble([1; 16], spans.collect())
}

/// Sets as texts: their spans, and what they have in common.
fn sets(trace: &Trace, text: &str) -> Vec<String> {
    let query = Query::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let found = query.find(trace).unwrap_or_default();
    let set = |set: &FoundSet| {
        let shared: Vec<String> = set.attributes.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
        format!("{:?} {}", set.spans, shared.join(" "))
    };
    found.sets.iter().map(set).collect()
}

/// Breaks if a number of a set is an integer that it is not, or a double that is one.
#[test]
fn numbers_of_sets_have_a_type() {
    let check = |values: &[Value<'_>], expected: &str| {
        let all: Vec<usize> = (0..values.len()).collect();
        let expected = format!("{all:?} sum(.a)={expected}");
        assert_eq!(sets(&numbers(values), "{} | sum(.a) != 0.25"), [expected]);
    };
    check(&[Value::Int(2), Value::Int(3)], "Int(5)");
    check(&[Value::Int(2), Value::Text("0.5")], "Double(2.5)");
    check(&[Value::Int(-2), Value::Double(2.0)], "Int(0)");
    check(&[Value::Int(i64::MIN)], "Int(-9223372036854775808)");
    check(&[Value::Int(i64::MAX)], "Double(9.223372036854776e18)");
    check(&[Value::Double(1e300)], "Double(1e300)");
    check(&[Value::Double(1.7e308), Value::Double(1.7e308)], "Double(inf)");
}

/// Breaks if spans without a value go missing, or sets of two groupings are distinguished by only one of them.
#[test]
fn groups_tell_values_apart() {
    let trace = numbers(&[Value::Int(1), Value::Text("1"), Value::Double(1.5), Value::Int(1)]);
    let (int, text) = ("Int(1)", r#"Text("1")"#);
    assert_eq!(
        sets(&trace, "{} | by(.a)"),
        [format!("[0, 3] by(.a)={int}"), "[2] by(.a)=Double(1.5)".to_owned(), format!("[1] by(.a)={text}")]
    );
    assert_eq!(sets(&trace, "{} | by(.b)"), ["[0, 1, 2, 3] by(.b)=Nil"]);
    assert_eq!(
        sets(&trace, "{ .a = 1 } | by(.a) | by(span:childCount)"),
        [
            format!("[3] by(.a)={int} by(span:childCount)=Int(0)"),
            format!("[0] by(.a)={int} by(span:childCount)=Int(3)"),
            format!("[1] by(.a)={text} by(span:childCount)=Int(0)"),
        ]
    );
    assert_eq!(sets(&trace, "{} | by(.a) | coalesce()"), ["[0, 1, 2, 3] "]);
}

#[test]
fn spans_are_grouped_by_conditions() {
    let trace = numbers(&[Value::Int(7), Value::Text("x"), Value::Int(7), Value::Int(3)]);
    for by in [".a > 5", ".a = 7 && duration > 0s"] {
        let expected = [format!("[1, 3] by({by})=Bool(false)"), format!("[0, 2] by({by})=Bool(true)")];
        assert_eq!(sets(&trace, &format!("{{}} | by( {by} )")), expected, "{by}");
    }
    assert_eq!(
        sets(&trace, "{} | by(.a < 5) | by(!(span:childCount = 0))"),
        [
            "[1, 2] by(.a < 5)=Bool(false) by(!(span:childCount = 0))=Bool(false)",
            "[0] by(.a < 5)=Bool(false) by(!(span:childCount = 0))=Bool(true)",
            "[3] by(.a < 5)=Bool(true) by(!(span:childCount = 0))=Bool(false)",
        ]
    );
    assert!(Query::parse("{} | by(1 = 1)").is_err(), "it asks for no field");
}

/// Breaks if parentheses around all of it join the sets that it makes.
#[test]
fn parentheses_keep_sets_apart() {
    let trace = numbers(&[Value::Int(1), Value::Int(2), Value::Int(1)]);
    let group = |spans: &str, value: i64, count: i64| format!("{spans} by(.a)=Int({value}) count()=Int({count})");
    let both = [group("[0, 2]", 1, 2), group("[1]", 2, 1)];
    for text in ["({} | by(.a) | count() > 0)", "({} | by(.a)) | count() > 0", "(({} | by(.a))) | count() > 0"] {
        assert_eq!(sets(&trace, text), both, "{text}");
    }
    assert_eq!(sets(&trace, "({} | by(.a)) | count() > 1"), both[..1]);
    assert_eq!(sets(&trace, "({} | by(.a)) && { .a = 2 }"), ["[0, 1, 2] "], "beside others it is one set");
}

/// Breaks if what is worked out is named otherwise than Tempo names it, or has another type.
#[test]
fn groups_of_what_is_worked_out() {
    let trace = numbers(&[Value::Int(7), Value::Int(7)]);
    let check = |term: &str, value: &str| {
        assert_eq!(sets(&trace, &format!("{{}} | by({term})")), [format!("[0, 1] by({term})={value}")]);
    };
    check(".a / 2", "Int(3)");
    check(".a / 2.0", "Double(3.5)");
    check("duration / 4ns", "Double(2.5)");
    check("duration / 5ns", "Double(2.0)");
    check("((.a + 1) * 2) - (span:childCount ^ 0)", "Int(15)");
}

/// Breaks if whole numbers are compared as doubles, which these are not apart.
#[test]
fn large_whole_numbers_have_an_order() {
    let trace = numbers(&[Value::Int(1 << 60), Value::Int((1 << 60) + 1)]);
    for (text, expected) in [
        (".a > 1152921504606846976", "[1] "),
        (".a >= 1152921504606846976", "[0, 1] "),
        (".a < 1152921504606846977", "[0] "),
        ("1152921504606846977 <= span.a", "[1] "),
        (".a = 1152921504606846977", "[1] "),
        (".a != 1152921504606846977", "[0] "),
        (".a < maxInt && .a > minInt", "[0, 1] "),
    ] {
        assert_eq!(sets(&trace, &format!("{{ {text} }}")), [expected], "{text}");
    }
}

/// Breaks if whole constants are divided as doubles.
#[test]
fn constants_stay_whole() {
    let trace = numbers(&[Value::Int(1), Value::Int(4)]);
    for (text, expected) in [
        ("min(.a) = 7 / 4", true),
        ("min(.a) = 7 / 4.0", false),
        ("min(.a) < 2 / 6 + 1", false),
        ("7 / 4 = min(.a)", true),
        ("max(.a) = 2 ^ 2", true),
        ("max(.a) = 9 % 5", true),
        ("max(duration) = 21ns / 2", false),
        ("max(duration) = 21ns / 2.1", true),
        ("count() / 4 = 0.5", true),
    ] {
        assert_eq!(!sets(&trace, &format!("{{}} | {text}")).is_empty(), expected, "{text}");
    }
    assert!(Query::parse("{} | count() > 1 / 0").is_err());
}

/// Breaks if a set stays although the comparison has no number for it, or an aggregate is reported twice.
#[test]
fn comparisons_keep_sets() {
    let trace = numbers(&[Value::Int(1), Value::Text("x"), Value::Int(4)]);
    let none: [&str; 0] = [];
    assert_eq!(sets(&trace, "{ .a = `x` } | max(.a) > -1"), none);
    assert_eq!(sets(&trace, "{} | count() / (count() - 3) > 0"), none);
    assert_eq!(sets(&trace, "{} | { .a = 7 } | count() >= 0"), none);
    let both = "[0, 1, 2] max(.a)=Int(4) min(.a)=Int(1)";
    assert_eq!(sets(&trace, "{} | max(.a) - min(.a) = 3 | max(.a) > 2"), [both]);
    // Text is left out of averages.
    assert_eq!(sets(&trace, "{} | avg(.a) = 2.5"), ["[0, 1, 2] avg(.a)=Double(2.5)"]);
    let many: String = (0..20).flat_map(|n| [" | sum(.a + ".to_owned(), n.to_string(), ") > 0".to_owned()]).collect();
    let query = Query::parse(&format!("{{}}{many}")).unwrap();
    let found = query.find(&trace).unwrap();
    assert_eq!(found.sets[0].attributes.len(), 16, "what a set is told of is bounded");
}
