use quiver_types::ErrorKind;
use quiver_types::spans::{Attributes, Span, SpanContext, SpanRow, Value};
use serde_json::{Value as Json, json};

use super::*;
use crate::assemble::tests::span;
use crate::testing::passes;

fn leaf(field: &str, op: &str, value: Json) -> Json {
    json!({"field": field, "op": op, "value": value})
}

#[test]
fn filters() {
    let check = |condition: Json, expected: &str| {
        let filter = filter_of(&Condition::parse(&condition).unwrap()).unwrap();
        assert_eq!(format!("{filter:?}"), expected, "{condition}");
    };
    check(leaf("service.name", "eq", json!("cart")), r#"Or([Service(Is("cart"))])"#);
    check(leaf("span.kind", "ne", json!("server")), "Not(Kinds([2]))");
    check(leaf("span.status", "in", json!(["ok", "error"])), "Or([Status(1), Status(2)])");
    check(leaf("span.durationMs", "between", json!([1, 2])), "Duration(1000000, 2000000)");
    check(
        leaf("attributes.a", "exists", json!(false)),
        r#"Not(Attribute { place: Some(Span), key: "a", test: Exists })"#,
    );
    let text_range = Condition::parse(&leaf("attributes.a", "gt", json!("x"))).unwrap();
    assert!(filter_of(&text_range).is_err());
}

fn row(span: &Span) -> SpanRow<'_> {
    SpanRow {
        service: &span.context.service,
        name: &span.name,
        kind: span.kind,
        status: span.status,
        duration_ns: span.duration(),
        attributes: span.attributes.bytes(),
        resource: span.context.resource.bytes(),
    }
}

/// Spans with and without what conditions ask for.
fn spans() -> Vec<Span> {
    let one = |kind: u8, status: u8, name: &str, ns: i64, attributes: &[(&str, Value<'_>)], pod: Option<&str>| {
        let mut span = span(1, 0, "", kind, 100, 100 + ns);
        let resource = Attributes::of(pod.map(|pod| ("pod", Value::Text(pod))));
        span.context = Arc::new(SpanContext { service: "cart".to_owned(), resource, ..SpanContext::default() });
        (span.status, span.name) = (status, name.to_owned());
        span.attributes = Attributes::of(attributes.iter().copied());
        span
    };
    vec![
        one(0, 0, "", 0, &[], None),
        one(2, 2, "GET /cart", 1_500_000, &[("n", Value::Int(5))], Some("p1")),
        one(3, 1, "get /CART", 1_500_001, &[("n", Value::Text("5.0")), ("pod", Value::Text("P1"))], Some("p2")),
        one(5, 0, "É/a/b", 66_555_777, &[("n", Value::Double(1.5))], Some("é")),
        one(1, 0, "a\nb", 66_555_776, &[("n", Value::Text("66.555777")), ("pod", Value::Text(""))], None),
        one(1, 0, "a", 1, &[("n", Value::Text("abc"))], None),
        one(1, 0, "a", 1, &[("n", Value::Text("NaN"))], None),
        one(
            1,
            0,
            "a",
            1,
            &[("n", Value::Text("20240101123456789012")), ("pod", Value::Text("9007199254740993"))],
            None,
        ),
        one(
            1,
            0,
            "a",
            1,
            &[("n", Value::Text("20240101123456789013")), ("pod", Value::Int(9_007_199_254_740_992))],
            None,
        ),
        one(1, 0, "a", 1, &[("n", Value::Text("-0"))], None),
        one(1, 0, "a", 1, &[("n", Value::Text("inf"))], None),
        one(1, 0, "a", 1, &[("n", Value::Bool(true))], None),
        one(4, 2, "/a/b", i64::MAX - 100, &[("n", Value::Int(-5)), ("flag", Value::Bool(true))], Some("/a/b/c")),
    ]
}

/// Breaks if a search with `filter=`, or a segment, finds other spans than a rule with the same condition takes when
/// they come in.
#[test]
fn a_scan_finds_what_a_rule_takes() {
    let texts = [
        "20240101123456789012",
        "9007199254740993",
        "GET /cart",
        "get /cart",
        "server",
        "error",
        "cart",
        "p1",
        "5",
        "5.0",
        "",
        "é",
        "/a/b",
        "a\nb",
        "true",
    ];
    let mut conditions: Vec<Json> = Vec::new();
    for field in
        ["span.name", "span.kind", "span.status", "service.name", "resource.pod", "attributes.n", "n", "pod", "flag"]
    {
        for op in ["eq", "ne", "contains", "startsWith", "endsWith", "regex"] {
            conditions.extend(texts.iter().map(|text| leaf(field, op, json!(text))));
        }
        conditions
            .extend(["*", "**", "/a/*", "/a/*/c", "{x}", "GET {x}", "**b"].map(|g| leaf(field, "glob", json!(g))));
        conditions.extend([true, false].map(|there| leaf(field, "exists", json!(there))));
        conditions.extend([json!(["server", "GET /cart", 5]), json!(["p1"]), json!([])].map(|v| leaf(field, "in", v)));
    }
    for field in ["span.durationMs", "attributes.n", "n"] {
        for op in ["eq", "ne", "gt", "ge", "lt", "le"] {
            let numbers = [json!(5), json!("5"), json!(1.5), json!(66.555_777), json!(-5), json!(0), json!(1e300)];
            conditions.extend(numbers.map(|number| leaf(field, op, number)));
        }
        conditions.push(leaf(field, "between", json!([1.5, 66.555_777])));
    }
    let folded = conditions.clone().into_iter().map(|mut condition| {
        condition["caseSensitive"] = json!(false);
        condition
    });
    let folded: Vec<Json> = folded.collect();
    conditions.extend(folded);
    let nested: Vec<Json> = conditions.windows(2).step_by(7).map(|two| json!({"not": {"any": two}})).collect();
    conditions.extend(nested);
    let spans = spans();
    for condition in &conditions {
        let compiled = Condition::parse(condition).unwrap_or_else(|e| panic!("{condition}: {e:?}"));
        let filter = filter_of(&compiled).unwrap_or_else(|e| panic!("{condition}: {e:?}"));
        for span in &spans {
            let expected = compiled.matches(&row(span));
            assert_eq!(passes(&filter, span), expected, "{condition} of {:?}", (&span.name, span.duration()));
        }
    }
}

/// Breaks if a duration that a double only comes near to is rounded past the one that is meant.
#[test]
fn bounds_of_durations_are_whole_nanoseconds() {
    for ns in [0, 1, 489, 1991, 5264, 7997, 66_555_777, 102_595_143, 260_926_610, 787_997_680, 665_783_302_723] {
        for (op, below, itself, above) in [
            ("ge", false, true, true),
            ("gt", false, false, true),
            ("le", true, true, false),
            ("lt", true, false, false),
            ("eq", false, true, false),
            ("ne", true, false, true),
        ] {
            let condition = Condition::parse(&leaf("span.durationMs", op, json!(ns as f64 / 1e6))).unwrap();
            let filter = filter_of(&condition).unwrap();
            let found = [ns - 1, ns, ns + 1].map(|ns| passes(&filter, &span(1, 0, "a", 0, 10, 10 + ns)));
            assert_eq!(found, [below, itself, above], "{ns} {op}: {filter}");
        }
    }
}

/// Each text in any case becomes a pattern: a condition may hold thousands of large ones.
#[test]
fn texts_in_any_case_are_bounded_together() {
    let values: Vec<String> = (0..1000).map(|n| format!("{n:04}{}", "x".repeat(4000))).collect();
    for field in ["http.route", "span.name"] {
        let any = json!({"field": field, "op": "in", "value": values, "caseSensitive": false});
        let refused = filter_of(&Condition::parse(&any).unwrap()).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::LimitExceeded, "{refused}");
        let short: Vec<String> = (0..1000).map(|n| format!("/cart/{n}")).collect();
        let any = json!({"field": field, "op": "in", "value": short, "caseSensitive": false});
        assert!(filter_of(&Condition::parse(&any).unwrap()).is_ok());
    }
}
