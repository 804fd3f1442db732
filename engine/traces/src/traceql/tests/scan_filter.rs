//! What scans are given of a query, against what it says of spans one by one.

use quiver_types::spans::{Link, SpanFilter};

use super::*;
use crate::testing::passes;

const CONDITIONS: [&str; 80] = [
    r#"name = """#,
    r#"name != """#,
    r#"name =~ ".*""#,
    r#"name !~ "5""#,
    r#"name = "5""#,
    r#"name != "5.0""#,
    r#"name > "4""#,
    "!(name != nil)",
    "name != nil",
    r#"statusMessage = """#,
    r#"statusMessage != "declined""#,
    r#"statusMessage =~ "d.*|""#,
    r#"statusMessage !~ "d.*""#,
    "!(statusMessage != nil)",
    "statusMessage != nil",
    "status = error",
    "status != ok",
    "kind = unspecified",
    "kind != server",
    "kind = client",
    "duration = 0",
    "duration > 1ns",
    "duration <= 1.5us",
    "duration != 1500ns",
    "duration = 1.5",
    "duration >= 0.5",
    "duration != nil",
    r#"resource.service.name = "a""#,
    r#"resource.service.name != "a""#,
    r#"resource.service.name =~ "a|unknown.*""#,
    r#"resource.service.name = "5""#,
    "resource.service.name = 5",
    "!(resource.service.name != nil)",
    r#".service.name = "unknown_service""#,
    r#".service.name != "a""#,
    "span.a = 1",
    r#"span.a = "1""#,
    "span.a != 1",
    r#"span.a =~ "1.*""#,
    r#"span.a !~ "x""#,
    "span.a = nil",
    "span.a != nil",
    "span.a > 0.5",
    "span.a <= 1",
    ".a = 1",
    r#".a != "x""#,
    ".a = nil",
    ".a != nil",
    ".a < 2",
    r#".a =~ "x""#,
    "resource.a = 1",
    "resource.a != 1",
    "event.a = 1",
    "event.a != 1",
    "event.a = nil",
    "event.a != nil",
    "link.a = 1",
    r#"link.a != "x""#,
    r#"instrumentation.a = "x""#,
    "instrumentation.a = nil",
    r#"event:name = "e""#,
    r#"event:name != "e""#,
    r#"event:name =~ "f|""#,
    "!(event:name != nil)",
    "event:timeSinceStart > 1ns",
    r#"link:spanID = "0000000000000007""#,
    r#"instrumentation:name = """#,
    r#"instrumentation:name != "lib""#,
    r#"instrumentation:version = "1""#,
    "instrumentation:version != nil",
    "!(span:parentID != nil)",
    "span:parentID != nil",
    r#"span:parentID = "0000000000000009""#,
    r#"span:id = "00000000000001e5""#,
    "nestedSetParent < 0",
    "nestedSetParent >= -1",
    "nestedSetParent = -1",
    r#"rootName = "5""#,
    "span.flag",
    "1 = 1",
];

/// Spans that differ in all that the conditions ask for.
fn spans() -> Vec<Span> {
    let list = r#"{"arrayValue":{"values":[{"stringValue":"x"},{"intValue":"1"}]}}"#;
    let a = |value: Value<'_>| Attributes::of([("a", value)]);
    let event = |name: &str, value: Value<'_>| Event { time: 101, name: name.into(), dropped: 0, attributes: a(value) };
    let bare = span(1, 0, "", 0, 100, 100);
    let mut failed = span(0x1e5, 0, "a", 2, 100, 1600);
    (failed.name, failed.status, failed.status_message) = ("5.0".into(), STATUS_ERROR, "declined".into());
    failed.attributes = a(Value::Int(1));
    let mut called = span(0x10_0000, 9, "5.0", 3, 100, 101);
    called.name = "5".into();
    called.context = Arc::new(SpanContext {
        service: "5.0".into(),
        resource: a(Value::Text("1")),
        scope_name: "lib".into(),
        scope_version: "1.0".into(),
        scope_attributes: a(Value::Text("x")),
    });
    let mut listed = span(4, 9, "b", 1, 100, 1601);
    listed.attributes = a(Value::Json(list));
    listed.events = vec![event("e", Value::Int(1)), event("f", Value::Text("x"))];
    let mut linked = span(5, 0, "b", 4, 100, 102);
    linked.attributes = Attributes::of([("a", Value::Double(1.0)), ("flag", Value::Bool(true))]);
    linked.events = vec![event("", Value::Text("y"))];
    let id = 7_u64.to_be_bytes();
    let attributes = a(Value::Text("1.0"));
    linked.links =
        vec![Link { trace_id: [3; 16], span_id: id, trace_state: String::new(), flags: 0, dropped: 0, attributes }];
    let mut texts = span(6, 0, "unknown_service", 5, 100, 101);
    (texts.name, texts.attributes) = (String::new(), a(Value::Text("1.0")));
    texts.status = 1;
    vec![bare, failed, called, listed, linked, texts]
}

/// Breaks if the scan leaves out a span that the query wants, or a filter that is said to be exact is not: then a query
/// finds other spans as soon as a stage or a relation stands behind it.
#[test]
fn filters_of_scans_say_what_queries_say() {
    let count = CONDITIONS.len();
    let mut all: Vec<String> = CONDITIONS.iter().map(|one| (*one).to_owned()).collect();
    all.extend(CONDITIONS.iter().map(|one| format!("!({one})")));
    for (i, one) in CONDITIONS.iter().enumerate() {
        for by in [1, 7, 31, 45] {
            let other = CONDITIONS[(i + by) % count];
            all.extend([format!("{one} && {other}"), format!("({one}) || !({other})"), format!("!({one} && {other})")]);
        }
    }
    // Several on one field are one test of the scan.
    for field in
        ["span.a", ".a", "resource.a", "event.a", "link.a", "instrumentation.a", "resource.service.name", "name"]
    {
        all.extend([
            format!("{field} = `5` || {field} = `x` || {field} =~ `1.*` || {field} = `1`"),
            format!("{field} = `a` || {field} = `x` || {field} = `5.0`"),
            format!("{field} != `1` && {field} != `x` && {field} !~ `y`"),
            format!("!({field} = `1` || {field} = `x`)"),
            format!("{field} = `x` && {field} = `1`"),
        ]);
        if field != "name" {
            all.push(format!("{field} = 1 || {field} = `x` || {field} > 3 || {field} != nil"));
        }
    }
    let mut exact = 0;
    for text in &all {
        let query = Query::parse(&format!("{{ {text} }}")).unwrap_or_else(|e| panic!("{text}: {e}"));
        let filter = query.exact_filter();
        exact += usize::from(filter.is_some());
        for span in spans() {
            let trace = assemble([1; 16], vec![span.clone()]);
            let is_wanted = query.find(&trace).is_some();
            let of = || format!("{text} of span {:?} called {:?}", span.span_id, span.name);
            if let Some(filter) = &filter {
                assert_eq!(passes(filter, &span), is_wanted, "{}: {filter}", of());
            }
            assert!(!is_wanted || passes(&query.filter(), &span), "{} is left out: {}", of(), query.filter());
            assert!(!is_wanted || passes(&query.wide_filter(), &span), "{} is left out of all", of());
        }
    }
    assert!(exact > all.len() / 4, "scans are left {exact} of {} queries", all.len());
}

/// Breaks if the scan is asked for spans that a structure only passes by, or a trace is missed whose wanted spans fail
/// the filter themselves.
#[test]
fn traces_that_are_wanted_have_a_span_that_passes() {
    let trace = shop();
    for text in [
        r#"{ name = "Charge" } >> { status = error }"#,
        "{ name = `charge` } << { kind = client }",
        r#"{ name = "nowhere" } || { name = "charge" }"#,
        r#"{ name = "Charge" } && { name = "GET /cart" }"#,
        r#"{ name = "Charge" } &>> { name = "charge" }"#,
        r#"{ name = "Charge" } ~ { name = "GET cart" }"#,
        "({ kind = client } | count() > 2) && { kind = server }",
        "{ } | by(resource.service.name) | count() > 1",
    ] {
        let query = Query::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let found = query.find(&trace).unwrap_or_else(|| panic!("{text} finds nothing"));
        assert!(trace.spans.iter().any(|span| passes(&query.filter(), span)), "{text}: {}", query.filter());
        for i in found.spans {
            assert!(passes(&query.wide_filter(), &trace.spans[i]), "{text}: {}", trace.spans[i].name);
        }
    }
}

/// Infinite doubles are beyond all others; what is no number is neither.
#[test]
fn infinite_doubles_have_an_order() {
    let values = [f64::NEG_INFINITY, f64::MIN, 5.0, f64::MAX, f64::INFINITY, f64::NAN].map(Value::Double);
    let spans = (1_u64..).zip(values).map(|(id, value)| {
        let mut one = span(id, 0, "a", 2, id as i64, 10);
        one.attributes = Attributes::of([("n", value)]);
        one
    });
    let trace = assemble([1; 16], spans.collect());
    for (text, expected) in [
        ("{ span.n > 5 }", &[4, 5][..]),
        ("{ .n >= 5 }", &[3, 4, 5]),
        ("{ span.n < 5 }", &[1, 2]),
        ("{ 5 >= .n }", &[1, 2, 3]),
    ] {
        let query = Query::parse(text).unwrap();
        assert_eq!(ids(&trace, query.find(&trace)), expected, "{text}");
        let filter = query.exact_filter();
        let passing = |filter: SpanFilter| -> Vec<u64> {
            let spans = trace.spans.iter().filter(|span| passes(&filter, span));
            spans.map(|span| u64::from_be_bytes(span.span_id)).collect()
        };
        assert!(filter.is_none_or(|filter| passing(filter) == expected), "{text}");
    }
}
