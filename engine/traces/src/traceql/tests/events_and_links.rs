//! What is asked of events, links and the tree: of several values one is enough.

use quiver_types::spans::{Link, SHARED};

use super::*;

/// Spans that differ in their events and links, all below the first.
fn trace() -> Trace {
    let event = |time: i64, name: &str, a: Option<Value<'_>>| {
        let attributes = Attributes::of(a.map(|value| ("a", value)));
        Event { time, name: name.into(), dropped: 0, attributes }
    };
    let link = |id: u64, a: i64| Link {
        trace_id: [9; 16],
        span_id: id.to_be_bytes(),
        trace_state: String::new(),
        flags: 0,
        dropped: 0,
        attributes: Attributes::of([("a", Value::Int(a))]),
    };
    let root = span(1, 0, "s", 2, 100, 900);
    let mut two = span(2, 1, "s", 1, 200, 300);
    two.events = vec![event(250, "x", Some(Value::Int(1))), event(190, "y", Some(Value::Int(2)))];
    two.links = vec![link(7, 1), link(8, 5)];
    let mut bare = span(3, 1, "s", 1, 300, 400);
    bare.events = vec![event(300, "", None)];
    bare.links = vec![link(7, 5)];
    assemble([1; 16], vec![root, two, bare])
}

#[test]
fn of_several_events_or_links_one_is_enough() {
    let trace = trace();
    let check = |condition: &str, expected: &[u64]| {
        let query = Query::parse(&format!("{{ {condition} }}")).unwrap_or_else(|e| panic!("{condition}: {e}"));
        assert_eq!(ids(&trace, query.find(&trace)), expected, "{condition}");
    };
    check("event.a = 1", &[2]);
    check("event.a = 2", &[2]);
    check("event.a = 3", &[]);
    // Another one differs.
    check("event.a != 1", &[2]);
    check("!(event.a = 1)", &[1, 3]);
    check("event.a = 1 && event.a = 2", &[2]);
    // Events without the attribute have none, and what has no event neither.
    check("event.a = nil", &[1, 3]);
    check("event.a != nil", &[2]);
    check("event:name = `y`", &[2]);
    check("event:name = ``", &[3]);
    check("event:name != `x`", &[2, 3]);
    check("event:name =~ `x|y`", &[2]);
    check("event:name != nil", &[2, 3]);
    check("event:timeSinceStart = 50", &[2]);
    // An event may come before its span.
    check("event:timeSinceStart < 0", &[2]);
    check("event:timeSinceStart = 0", &[3]);
    check("link.a > 4", &[2, 3]);
    check("link.a < 4", &[2]);
    check(r#"link:spanID = "0000000000000008""#, &[2]);
    check(r#"link:spanID != "0000000000000007""#, &[2]);
    check(r#"link:traceID =~ "09.*""#, &[2, 3]);
    // Where values are worked out, it is the first.
    check("event.a + 1 = 2", &[2]);
    check("event.a + 1 = 3", &[]);
    check("event:timeSinceStart + 1 = 51", &[2]);
}

/// Breaks if a trace without a root, or one of spans that are each other's parents, is told as a tree that it is not.
#[test]
fn places_in_broken_trees() {
    // A lost root with a child, two that are each other's parents, and a true root that begins last.
    let spans = vec![
        span(2, 1, "s", 2, 10, 50),
        span(3, 2, "s", 2, 20, 30),
        span(4, 5, "s", 2, 12, 40),
        span(5, 4, "s", 2, 14, 30),
        span(6, 0, "t", 2, 60, 70),
    ];
    let trace = assemble([1; 16], spans);
    let check = |text: &str, expected: &[u64]| {
        let query = Query::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(ids(&trace, query.find(&trace)), expected, "{text}");
    };
    // In order of start: 2, 4, 5, 3, 6.
    check("{ nestedSetParent < 0 }", &[6]);
    check("{ nestedSetLeft = 0 && nestedSetRight = 0 }", &[2, 4, 5, 3]);
    check("{ nestedSetLeft = 1 && nestedSetRight = 2 }", &[6]);
    check("{ nestedSetParent = 0 }", &[2, 4, 5, 3]);
    check("{ span:childCount = 1 }", &[2, 4]);
    check("{} > {}", &[5, 3]);
    check("{} >> {}", &[5, 3]);
    check("{} << {}", &[2, 4]);
    check("{ rootServiceName = `t` }", &[2, 4, 5, 3, 6]);
    check("{ traceDuration = 60 }", &[2, 4, 5, 3, 6]);
    check("{ !(span:parentID != nil) }", &[6]);
    check("{} ~ {}", &[]);
}

/// Breaks if a span stands for a root that was not received, of which answers say so.
#[test]
fn a_root_that_is_missing_has_no_name() {
    let trace = assemble([1; 16], vec![span(2, 1, "s", 2, 10, 50), span(3, 2, "s", 2, 20, 30)]);
    for (text, expected) in [
        ("{ rootName = `op2` }", &[][..]),
        ("{ rootServiceName = `s` }", &[]),
        ("{ rootName = `` }", &[2, 3]),
        ("{ rootServiceName != `s` }", &[2, 3]),
        ("{ trace:rootService =~ `.*` && name = `op3` }", &[3]),
        ("{} | by(rootName) | count() = 2", &[2, 3]),
        ("{ rootName != name }", &[2, 3]),
        ("{ rootName != nil && statusMessage != nil }", &[2, 3]),
        ("{ !(statusMessage != nil) }", &[]),
        ("{ rootName = statusMessage && rootName < name }", &[2, 3]),
    ] {
        let query = Query::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(ids(&trace, query.find(&trace)), expected, "{text}");
    }
}

#[test]
fn what_is_no_list_of_spans_finds_nothing() {
    let empty = Trace::default();
    for text in ["{}", "{} || {}", "{ false } && {}", "{} | count() < 1", "{} | by(name)", "({} | coalesce()) >> {}"] {
        assert!(Query::parse(text).unwrap().find(&empty).is_none(), "{text}");
    }
}

/// The called half of a shared id is a span of its own below the calling one.
#[test]
fn halves_of_a_call_are_related() {
    let mut called = span(7, 1, "back", 2, 12, 28);
    called.marks = SHARED;
    let trace = assemble([1; 16], vec![span(1, 0, "front", 2, 5, 40), span(7, 1, "front", 3, 10, 30), called]);
    let query = Query::parse("{ kind = client } > { resource.service.name = `back` }").unwrap();
    let found = query.find(&trace).unwrap();
    assert_eq!(found.spans.iter().map(|&i| trace.spans[i].start).collect::<Vec<_>>(), [12]);
}
