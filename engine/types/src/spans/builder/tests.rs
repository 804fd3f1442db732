use super::*;
use crate::spans::{STATUS_OK, Span, read_spans};

fn spans(builder: SpansBuilder) -> Vec<Span> {
    let mut out = Vec::new();
    read_spans(&builder.finish().flat(), &mut out).expect("all columns");
    out
}

fn cuts(builder: &SpansBuilder) -> Vec<(&'static str, u64)> {
    builder.cuts().map(|(cut, n)| (cut.text(), n)).collect()
}

/// A builder whose context 0 says nothing.
fn builder() -> SpansBuilder {
    let mut builder = SpansBuilder::default();
    assert_eq!(builder.context(&ContextFields::default()), 0);
    builder
}

fn link(trace_state: &str) -> LinkRef<'_> {
    LinkRef { trace_id: [1; 16], span_id: [2; 8], trace_state, flags: 0, dropped: 0, attributes: &[] }
}

#[test]
fn the_tag_error_becomes_status_and_message() {
    let told = |tags: &[Value<'_>], status: u8, status_message: &str| {
        let mut builder = builder();
        let mut list: Vec<(&str, Value<'_>)> = tags.iter().map(|tag| ("error", *tag)).collect();
        list.push(("a", Value::Int(1)));
        builder.attributes(&mut list);
        builder.span(&SpanFields { status, status_message, ..SpanFields::default() });
        // It is of one span alone.
        builder.span(&SpanFields::default());
        let spans = spans(builder);
        assert!(spans[0].attributes.iter().eq([("a", Value::Int(1))]), "{:?}", spans[0].attributes);
        assert_eq!((spans[1].status, spans[1].status_message.as_str()), (STATUS_UNSET, ""));
        (spans[0].status, spans[0].status_message.clone())
    };
    for (tags, status, message, expected) in [
        (&[Value::Bool(true)][..], STATUS_UNSET, "", (STATUS_ERROR, "")),
        (&[Value::Bool(false)], STATUS_UNSET, "", (STATUS_UNSET, "")),
        (&[Value::Bool(false)], STATUS_ERROR, "", (STATUS_ERROR, "")),
        (&[Value::Text("boom")], STATUS_UNSET, "", (STATUS_ERROR, "boom")),
        (&[Value::Text("boom")], STATUS_OK, "", (STATUS_OK, "boom")),
        (&[Value::Text("boom")], STATUS_ERROR, "told", (STATUS_ERROR, "told")),
        (&[Value::Text("")], STATUS_UNSET, "", (STATUS_ERROR, "")),
        (&[Value::Int(1)], STATUS_UNSET, "", (STATUS_ERROR, "1")),
        (&[Value::Bool(true), Value::Text("last")], STATUS_UNSET, "", (STATUS_ERROR, "last")),
        (&[], STATUS_UNSET, "told", (STATUS_UNSET, "told")),
    ] {
        assert_eq!(told(tags, status, message), (expected.0, expected.1.to_owned()), "{tags:?} {status} {message}");
    }
}

#[test]
fn what_contradicts_itself_is_set_right() {
    let mut builder = builder();
    let own = [7; 8];
    builder.span(&SpanFields {
        span_id: own,
        parent: own,
        start: 10,
        end: 3,
        kind: 6,
        status: 3,
        ..Default::default()
    });
    builder.span(&SpanFields {
        span_id: own,
        parent: [8; 8],
        start: 10,
        end: 10,
        kind: 5,
        marks: 1,
        ..Default::default()
    });
    let spans = spans(builder);
    let first = &spans[0];
    assert_eq!((first.parent, first.kind, first.status), (None, 0, STATUS_UNSET), "no span is its own parent");
    assert_eq!((first.start, first.end, first.marks), (10, 10, NEGATIVE_DURATION));
    assert_eq!((spans[1].parent, spans[1].kind, spans[1].marks), (Some([8; 8]), 5, 1));
}

#[test]
fn lists_end_where_they_are_too_long() {
    let mut builder = builder();
    let keys: Vec<String> = (0..ATTRIBUTES_MAX + 6).map(|i| format!("k{i:04}")).collect();
    let mut list: Vec<(&str, Value<'_>)> = keys.iter().rev().map(|key| (key.as_str(), Value::Bool(true))).collect();
    builder.attributes(&mut list);
    for at in 0..EVENTS_MAX as i64 + 3 {
        builder.event(at, "e", 0, &mut Vec::new());
    }
    for at in 0..LINKS_MAX + 2 {
        builder.link(link(&at.to_string()), &mut Vec::new());
    }
    assert_eq!(cuts(&builder), [("attributes", 6), ("events", 3), ("links", 2)]);
    builder.span(&SpanFields { dropped: [1, u32::MAX, 0], ..SpanFields::default() });
    // The next span has all of its room.
    builder.event(5, "e", 0, &mut Vec::new());
    builder.span(&SpanFields::default());
    let spans = spans(builder);
    assert_eq!(spans[0].dropped, [7, u32::MAX, 2]);
    assert_eq!((spans[0].attributes.iter().count(), spans[0].attributes.get("k1024")), (ATTRIBUTES_MAX, None));
    assert!(spans[0].attributes.get("k1023").is_some(), "the last keys go");
    assert_eq!(spans[0].events.last().map(|event| event.time), Some(EVENTS_MAX as i64 - 1));
    assert_eq!(spans[0].links.last().map(|link| link.trace_state.as_str()), Some("127"));
    assert_eq!((spans[1].events.len(), spans[1].links.len(), spans[1].dropped), (1, 0, [0; 3]));
}

#[test]
fn texts_end_where_characters_do() {
    let mut builder = builder();
    let (key, long) = ("é".repeat(129), "x".to_owned() + &"é".repeat(VALUE_BYTES_MAX));
    let json = format!("[\"{long}\"]");
    let bytes = vec![7_u8; VALUE_BYTES_MAX + 1];
    builder.attributes(&mut vec![
        ("", Value::Int(1)),
        (key.as_str(), Value::Int(2)),
        ("t", Value::Text(&long)),
        ("j", Value::Json(&json)),
        ("b", Value::Bytes(&bytes)),
        ("fits", Value::Bytes(&bytes[1..])),
    ]);
    let name = "n".repeat(NAME_BYTES_MAX + 1);
    builder.event(0, &name, 0, &mut Vec::new());
    builder.span(&SpanFields { name: &name, status_message: &long, trace_state: &long, ..SpanFields::default() });
    assert_eq!(cuts(&builder), [("keys", 1), ("values", 3), ("names", 2)]);
    let span = spans(builder).remove(0);
    let found: Vec<&str> = span.attributes.iter().map(|(key, _)| key).collect();
    assert_eq!(found, ["b", "fits", "j", "t", &"é".repeat(128)], "empty keys go");
    // The limit is in the middle of a character.
    assert_eq!(span.attributes.text("t").map(str::len), Some(VALUE_BYTES_MAX - 1));
    assert!(matches!(span.attributes.get("j"), Some(Value::Text(text)) if json.starts_with(text)), "no list any more");
    let lengths = ["b", "fits"].map(|key| match span.attributes.get(key) {
        Some(Value::Bytes(bytes)) => bytes.len(),
        _ => 0,
    });
    assert_eq!(lengths, [VALUE_BYTES_MAX; 2]);
    assert_eq!((span.name.len(), span.events[0].name.len()), (NAME_BYTES_MAX, NAME_BYTES_MAX));
    assert_eq!((span.status_message.len(), span.trace_state.len()), (VALUE_BYTES_MAX - 1, VALUE_BYTES_MAX - 1));
}

/// Lists of keys in all orders, again and again: the orders that are remembered change nothing.
#[test]
fn attributes_are_sorted_and_the_last_of_equal_keys_wins() {
    let mut builder = builder();
    let mut random = 1_u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    let keys = ["a", "b", "c", "d", "aa", "bb", "ab", "ba", "", "é"];
    for round in 0..3000 {
        let length = next(9);
        let mut list: Vec<(&str, Value<'_>)> =
            (0..length).map(|at| (keys[next(keys.len())], Value::Int(at as i64))).collect();
        let expected = Attributes::of(list.iter().filter(|(key, _)| !key.is_empty()).copied());
        let (shown, mut out) = (format!("{list:?}"), Vec::new());
        assert_eq!(builder.write_attributes(&mut list, &mut out), 0);
        assert_eq!(out, expected.bytes(), "{round} {shown}");
    }
    // More than an order is remembered for.
    let many: Vec<String> = (0..300).map(|i| format!("{:03}", i * 7 % 300)).collect();
    let mut list: Vec<(&str, Value<'_>)> = many.iter().map(|key| (key.as_str(), Value::Bool(true))).collect();
    let (expected, mut out) = (Attributes::of(list.iter().copied()), Vec::new());
    builder.write_attributes(&mut list, &mut out);
    assert_eq!(out, expected.bytes());
}

#[test]
fn what_spans_share_is_shortened_before_it_is_left_out() {
    let write = |count: usize, bytes: usize| {
        let (keys, value) = ((0..count).map(|i| format!("k{i:02}")).collect::<Vec<_>>(), "v".repeat(bytes));
        let mut list: Vec<(&str, Value<'_>)> = keys.iter().map(|key| (key.as_str(), Value::Text(&value))).collect();
        let (mut builder, mut out) = (SpansBuilder::default(), Vec::new());
        let left_out = builder.write_shared(&mut list, &mut out);
        let lengths: Vec<usize> = Attributes::read(&out).map(|(_, value)| value.text().len()).collect();
        (left_out, lengths, cuts(&builder))
    };
    assert_eq!(write(2, 8000), (0, vec![8000; 2], vec![]), "it has room");
    assert_eq!(write(3, 8000), (0, vec![1024; 3], vec![("values", 3)]));
    // Each takes its key, eight bytes, and its value.
    let fitting = SHARED_BYTES_MAX / (3 + 8 + 1024);
    let cut = vec![("attributes", 40 - fitting as u64), ("values", 40)];
    assert_eq!(write(40, 2000), (40 - fitting as u32, vec![1024; fitting], cut));
}

#[test]
fn a_span_that_is_left_out_leaves_nothing_behind() {
    let mut builder = builder();
    let put = |builder: &mut SpansBuilder, text: &'static str| {
        builder.attributes(&mut vec![("error", Value::Bool(true)), ("k", Value::Text(text))]);
        builder.event(1, text, 0, &mut Vec::new());
        builder.link(link(text), &mut Vec::new());
    };
    put(&mut builder, "lost");
    builder.abandon();
    put(&mut builder, "kept");
    builder.span(&SpanFields::default());
    put(&mut builder, "lost");
    builder.abandon();
    builder.span(&SpanFields { name: "second", ..SpanFields::default() });
    put(&mut builder, "never ended");
    assert_eq!(builder.len(), 2);
    let spans = spans(builder);
    assert_eq!((spans[0].attributes.text("k"), spans[0].status), (Some("kept"), STATUS_ERROR));
    assert_eq!((spans[0].events[0].name.as_str(), spans[0].links[0].trace_state.as_str()), ("kept", "kept"));
    let second = &spans[1];
    assert!(second.attributes.is_empty() && second.events.is_empty() && second.links.is_empty(), "{second:?}");
    assert_eq!((second.name.as_str(), second.status), ("second", STATUS_UNSET));
}

#[test]
fn contexts_take_memory() {
    let mut builder = SpansBuilder::default();
    let value = "x".repeat(1000);
    let resource = Attributes::of([("k", Value::Text(&value))]);
    let fields = ContextFields { service: "a", resource: resource.bytes(), ..ContextFields::default() };
    builder.context(&fields);
    let one = builder.memory_bytes();
    assert!(one > 2 * 1000, "{one}: as read, and as a column");
    builder.context(&fields);
    assert_eq!(builder.memory_bytes(), one, "it is known");
    let long = "n".repeat(NAME_BYTES_MAX);
    let names = [format!("{long}1"), format!("{long}2")];
    let numbers = names.each_ref().map(|name| builder.context(&ContextFields { scope_name: name, ..fields }));
    assert_eq!(numbers, [1, 1], "names that are cut to the same");
    assert!(builder.memory_bytes() > 2 * one, "each has a resource of its own");
}

/// Breaks if a column that is about to move is counted once.
#[test]
fn columns_that_move_take_memory_twice() {
    let mut builder = SpansBuilder::for_request(4 << 20);
    let value = "x".repeat(30_000);
    let push = |builder: &mut SpansBuilder| {
        builder.attributes(&mut vec![("k", Value::Text(&value))]);
        builder.span(&SpanFields::default());
    };
    push(&mut builder);
    assert_eq!(builder.moving_bytes(), 0, "there is room for many more");
    while builder.memory_bytes() < 7 << 19 {
        push(&mut builder);
    }
    assert!(builder.moving_bytes() > 3 << 20, "{} of {}", builder.moving_bytes(), builder.memory_bytes());
}

#[test]
fn equal_contexts_are_one() {
    let mut builder = SpansBuilder::default();
    let resource = Attributes::of([("k", Value::Text("v"))]);
    let fields = ContextFields { service: "a", resource: resource.bytes(), ..ContextFields::default() };
    let numbers = [
        builder.context(&fields),
        builder.context(&ContextFields { scope_name: "lib", ..fields }),
        builder.context(&fields),
        builder.context(&ContextFields { scope_attributes: resource.bytes(), ..fields }),
    ];
    assert_eq!(numbers, [0, 1, 0, 2]);
    for context in [0, 2, 0] {
        builder.span(&SpanFields { context, ..SpanFields::default() });
    }
    assert_eq!(builder.repeated_bytes(), 4 * resource.bytes().len(), "each span has its own in parts");
    let batch = builder.finish();
    assert!(batch.is_sound() && batch.contexts.num_rows() == 3);
    let mut services = Vec::new();
    batch.each(|service, start, end| services.push((service.to_owned(), start, end)));
    assert_eq!(services, vec![("a".to_owned(), 0, 0); 3]);
}
