use quiver_types::spans::{Attributes, Event, Link, NO_DURATION, NO_START, SHARED, Value};

use super::*;

/// Makes a span of a service for tests.
pub(crate) fn span(id: u64, parent: u64, service: &str, kind: u8, start: i64, end: i64) -> Span {
    let context = SpanContext { service: service.to_owned(), ..SpanContext::default() };
    Span {
        trace_id: [1; 16],
        span_id: id.to_be_bytes(),
        parent: (parent != 0).then(|| parent.to_be_bytes()),
        context: Arc::new(context),
        name: format!("op{id}"),
        kind,
        start,
        end,
        status: 0,
        status_message: String::new(),
        trace_state: String::new(),
        flags: 0,
        dropped: [0; 3],
        received: 5,
        marks: 0,
        attributes: Attributes::default(),
        events: Vec::new(),
        links: Vec::new(),
    }
}

#[test]
fn repeats_change_nothing_and_reports_unite() {
    let one = span(1, 0, "a", 2, 10, 20);
    let expected = assemble([1; 16], vec![one.clone()]);
    assert_eq!(assemble([1; 16], vec![one.clone(), one.clone(), one.clone()]), expected);
    let mut early = span(1, 0, "a", 0, 8, 12);
    early.received = 1;
    early.attributes = Attributes::of([("k", Value::Text("old")), ("e", Value::Int(1))]);
    let mut late = span(1, 9, "a", 2, 10, 20);
    late.received = 2;
    late.attributes = Attributes::of([("k", Value::Text("new"))]);
    late.status = STATUS_ERROR;
    for order in [vec![early.clone(), late.clone()], vec![late, early]] {
        let united = &assemble([1; 16], order).spans[0];
        assert_eq!((united.start, united.end, united.kind, united.status), (8, 20, 2, STATUS_ERROR));
        assert_eq!(united.attributes.get("k"), Some(Value::Text("new")));
        assert_eq!(united.attributes.get("e"), Some(Value::Int(1)));
        assert_eq!(united.parent, Some(9u64.to_be_bytes()));
    }
}

#[test]
fn shared_ids_get_their_own() {
    let client = span(7, 1, "front", 3, 10, 30);
    let mut server = span(7, 1, "back", 2, 12, 28);
    server.marks = SHARED;
    let child = span(8, 7, "back", 0, 14, 20);
    let sibling = span(9, 7, "front", 0, 15, 16);
    let trace = assemble([1; 16], vec![server.clone(), child, client, sibling]);
    let parents: Vec<_> =
        trace.spans.iter().map(|s| (u64::from_be_bytes(s.span_id), s.parent.map(u64::from_be_bytes))).collect();
    let flipped = 7 | 1 << 63;
    assert_eq!(parents, [(7, Some(1)), (flipped, Some(7)), (8, Some(flipped)), (9, Some(7))]);
    assert_eq!(assemble([1; 16], vec![server.clone()]).spans, [server], "alone it stays as it is");
}

/// One span as a test sees it: id, parent, service, kind, start, end.
type Row = (u64, u64, &'static str, u8, i64, i64);

fn rows(trace: &Trace) -> Vec<(u64, u64, String, u8, i64, i64)> {
    let id = |id: SpanId| u64::from_be_bytes(id);
    let row = |s: &Span| (id(s.span_id), s.parent.map_or(0, id), s.context.service.clone(), s.kind, s.start, s.end);
    trace.spans.iter().map(row).collect()
}

/// Checks a trace, whatever the order of its reports.
fn check(reports: &[Span], expected: &[Row]) {
    let expected: Vec<_> = expected.iter().map(|r| (r.0, r.1, r.2.to_owned(), r.3, r.4, r.5)).collect();
    let mut list = reports.to_vec();
    for turn in 0..reports.len() {
        assert_eq!(rows(&assemble([1; 16], list.clone())), expected, "turn {turn}");
        list.reverse();
        assert_eq!(rows(&assemble([1; 16], list.clone())), expected, "turn {turn}, backwards");
        list.reverse();
        list.rotate_left(1);
    }
}

const FLIP: u64 = 1 << 63;
const CLIENT: u8 = 3;
const SERVER: u8 = 2;

fn shared(mut span: Span) -> Span {
    span.marks |= SHARED;
    span
}

/// A report without a timestamp, which came at 1000, with a duration if it has one.
fn untimed(mut span: Span, duration: i64) -> Span {
    (span.start, span.end) = (1000, 1000 + duration);
    span.marks |= NO_START | if duration == 0 { NO_DURATION } else { 0 };
    span
}

/// The cases of Zipkin's `TraceTest` and `SpanNodeTest`; times are ours.
#[test]
fn what_zipkin_merges() {
    let root = || span(0xa, 0, "frontend", SERVER, 1, 90);
    let client = || span(0xb, 0xa, "frontend", CLIENT, 2, 80);
    let server = |parent| span(0xb, parent, "backend", SERVER, 3, 70);
    let (a, b) = ((0xa, 0, "frontend", SERVER, 1, 90), (0xb, 0xa, "frontend", CLIENT, 2, 80));
    let halves = [a, b, (0xb | FLIP, 0xb, "backend", SERVER, 3, 70)];
    // The server was not told its parent; the mark was forgotten.
    check(&[root(), client(), shared(server(0))], &halves);
    check(&[root(), client(), server(0xa)], &halves);
    // Late pieces without endpoint or kind.
    let piece = |service| span(0xb, 0xa, service, 0, 1000, 1000);
    check(&[root(), client(), shared(server(0xa)), untimed(piece(""), 0)], &halves);
    check(&[root(), client(), shared(server(0xa)), untimed(piece("backend"), 0)], &halves);
    let mut begun = client();
    (begun.end, begun.marks) = (begun.start, NO_DURATION);
    check(&[root(), begun, shared(server(0xa)), untimed(piece(""), 78)], &halves);
    let mut nameless = client();
    nameless.context = Arc::new(SpanContext::default());
    check(&[root(), nameless.clone(), untimed(piece("frontend"), 0), shared(server(0xa))], &halves);
    // Nobody is the caller by name.
    check(&[root(), nameless], &[a, (0xb, 0xa, "", CLIENT, 2, 80)]);
    // Two servers answer one client.
    let other = span(0xb, 0xa, "retry", SERVER, 4, 60);
    check(
        &[root(), client(), shared(server(0xa)), shared(other)],
        &[halves[0], halves[1], halves[2], (0xb | FLIP >> 1, 0xb, "retry", SERVER, 4, 60)],
    );
    // A parent that is nowhere stays as it is.
    check(
        &[span(0xb, 0xa, "backend", SERVER, 1, 2), span(0xc, 0xa, "backend", SERVER, 3, 4)],
        &[(0xb, 0xa, "backend", SERVER, 1, 2), (0xc, 0xa, "backend", SERVER, 3, 4)],
    );
}

/// What a service does within a call is below the half of the call that it serves, even when it calls itself.
#[test]
fn children_of_a_shared_id() {
    let of = |caller: &'static str, callee: &'static str, child: &'static str, parent: u64| {
        let reports = [
            span(1, 0, caller, SERVER, 1, 90),
            span(7, 1, caller, CLIENT, 2, 80),
            shared(span(7, 1, callee, SERVER, 3, 70)),
            span(8, 7, child, CLIENT, 4, 60),
            span(9, 8, child, 0, 5, 50),
        ];
        check(
            &reports,
            &[
                (1, 0, caller, SERVER, 1, 90),
                (7, 1, caller, CLIENT, 2, 80),
                (7 | FLIP, 7, callee, SERVER, 3, 70),
                (8, parent, child, CLIENT, 4, 60),
                (9, 8, child, 0, 5, 50),
            ],
        );
    };
    of("front", "back", "back", 7 | FLIP);
    of("front", "back", "front", 7);
    of("front", "back", "other", 7);
    of("front", "back", "", 7);
    of("same", "same", "same", 7 | FLIP);
    // Two clients under one id, and a server that has the service of the second.
    let reports = [
        span(7, 0, "a", CLIENT, 1, 90),
        span(7, 0, "b", CLIENT, 2, 80),
        shared(span(7, 0, "b", SERVER, 3, 70)),
        span(8, 7, "b", 0, 4, 60),
    ];
    check(
        &reports,
        &[
            (7, 0, "a", CLIENT, 1, 90),
            (7 | FLIP, 7, "b", CLIENT, 2, 80),
            (7 | FLIP >> 1, 7, "b", SERVER, 3, 70),
            (8, 7 | FLIP >> 1, "b", 0, 4, 60),
        ],
    );
}

#[test]
fn annotations_that_are_sent_twice_stand_once_in_order() {
    let event =
        |time: i64, name: &str| Event { time, name: name.into(), dropped: 0, attributes: Attributes::default() };
    let mut first = span(1, 0, "a", CLIENT, 1, 9);
    first.events = vec![event(5, "late"), event(3, "early")];
    let mut again = first.clone();
    again.received += 1;
    again.events = vec![event(3, "early"), event(4, "between"), event(5, "late")];
    let trace = assemble([1; 16], vec![again, first]);
    let names: Vec<&str> = trace.spans[0].events.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names, ["early", "between", "late"]);
}

/// Breaks if what one report tells twice is told once: which of two reports of one span came first decides.
#[test]
fn what_the_first_report_tells_twice_stays() {
    let event = |name: &str| Event { time: 3, name: name.into(), dropped: 0, attributes: Attributes::default() };
    let link = |id: u8| Link {
        trace_id: [id; 16],
        span_id: [id; 8],
        trace_state: String::new(),
        flags: 0,
        dropped: 0,
        attributes: Attributes::default(),
    };
    let mut first = span(1, 0, "a", CLIENT, 1, 9);
    (first.events, first.links) = (vec![event("b"), event("b")], vec![link(2), link(2)]);
    let mut again = first.clone();
    again.received += 1;
    (again.events, again.links) = (vec![event("b"), event("a"), event("a")], vec![link(1), link(2), link(1)]);
    let mut last = again.clone();
    last.received += 1;
    last.events.push(event("c"));
    let trace = assemble([1; 16], vec![last, first, again]);
    let names: String = trace.spans[0].events.iter().map(|e| e.name.as_str()).collect();
    let links: Vec<u8> = trace.spans[0].links.iter().map(|link| link.span_id[0]).collect();
    assert_eq!((names.as_str(), links.as_slice()), ("bbac", [2, 2, 1].as_slice()));
}

/// Breaks if ids that differ from the shared one in a bit are all taken: then two spans had one id, and parents led to
/// either.
#[test]
fn each_of_many_that_share_an_id_has_its_own() {
    let services: Vec<String> = (0..200).map(|n| format!("s{n:03}")).collect();
    for id in [1, 7, u64::MAX] {
        let mut reports: Vec<Span> = services.iter().map(|service| span(id, 0, service, SERVER, 5, 9)).collect();
        // One that is there already, and one that none may have.
        reports.push(span(id ^ FLIP, id, "s000", 0, 6, 8));
        let trace = assemble([1; 16], reports);
        assert_eq!(trace.spans.len(), 201, "{id:x}");
        assert!(ids_differ(&trace.spans) && trace.spans.iter().all(|span| span.span_id != [0; 8]), "{id:x}");
        let own: Vec<&Span> = trace.spans.iter().filter(|span| span.span_id == id.to_be_bytes()).collect();
        assert_eq!((own.len(), own[0].context.service.as_str()), (1, "s000"), "{id:x}");
    }
}

/// Breaks if what one report is matched with is looked for among all others: 50,000 of one id then take a minute.
#[test]
fn a_constant_id_takes_no_time() {
    let reports: Vec<Span> = (1..=50_000).map(|n| span(7, 0, if n % 2 == 0 { "a" } else { "" }, 0, n, n + 1)).collect();
    // A machine may stand still in one of the tries.
    let is_quick = (0..4).any(|_| {
        let (reports, began) = (reports.clone(), std::time::Instant::now());
        let trace = assemble([1; 16], reports);
        assert_eq!((trace.spans.len(), trace.start(), trace.end()), (1, 1, 50_001));
        began.elapsed().as_secs() < 20
    });
    assert!(is_quick, "it takes more than 20 s");
}

/// Breaks if two reports that came at once and differ in a parent, a message or their events alone make another span
/// when they come the other way round: then answers change as files are compacted.
#[test]
fn the_order_of_reports_does_not_matter() {
    let mut seed = 17_u64;
    let mut below = |end: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % end
    };
    for round in 0..80 {
        let mut reports: Vec<Span> = Vec::new();
        for _ in 0..2 + below(5) {
            let (id, parent) = (1 + below(2), below(3));
            let service = ["", "a", "b"][below(3) as usize];
            let (kind, start) = (below(4) as u8, 10 + below(2) as i64);
            let mut report = span(id, parent, service, kind, start, 15);
            report.name = ["", "x"][below(2) as usize].to_owned();
            report.received = below(2) as i64;
            (report.status, report.flags) = (below(3) as u8, below(2) as u32);
            report.status_message = ["", "m", "n"][below(3) as usize].to_owned();
            report.trace_state = ["", "k=v"][below(2) as usize].to_owned();
            report.marks = [0, SHARED, NO_DURATION, NO_START][below(4) as usize];
            report.dropped = [below(2) as u32, 0, 0];
            for _ in 0..below(3) {
                let (name, time) = (["e", "f"][below(2) as usize].to_owned(), 10 + below(2) as i64);
                report.events.push(Event { time, name, dropped: 0, attributes: Attributes::default() });
            }
            reports.push(report);
        }
        let expected = assemble([1; 16], reports.clone());
        assert!(ids_differ(&expected.spans), "round {round}");
        for turn in 0..reports.len() {
            reports.rotate_left(1);
            assert_eq!(assemble([1; 16], reports.clone()), expected, "round {round}, turn {turn}");
            let backwards = reports.iter().rev().cloned().collect();
            assert_eq!(assemble([1; 16], backwards), expected, "round {round}, turn {turn}, backwards");
        }
    }
}

/// Breaks if reports that were asked for as they are become one span, or come in the order of their arrival.
#[test]
fn reports_stay_as_they_were_received() {
    let (late, early) = (span(1, 0, "a", 2, 10, 20), span(1, 0, "a", 2, 8, 12));
    let mut server = span(7, 1, "back", 2, 12, 28);
    server.marks = SHARED;
    let expected = [early.clone(), late.clone(), late.clone(), server.clone()];
    for reports in
        [vec![late.clone(), server.clone(), early.clone(), late.clone()], vec![server, late.clone(), late, early]]
    {
        assert_eq!(as_received([1; 16], reports).spans, expected);
    }
}

/// Breaks if traces of a search lose their order with their reports, or one gets reports of another.
#[test]
fn reports_of_several_traces_are_told_in_their_order() {
    let of = |trace: u8, id: u64| Span { trace_id: [trace; 16], ..span(id, 0, "a", 2, 10, 20) };
    let found = all_as_received(&[[2; 16], [9; 16], [1; 16]], vec![of(1, 1), of(2, 3), of(1, 1), of(2, 2)]);
    let ids: Vec<(u8, Vec<u8>)> =
        found.iter().map(|trace| (trace.id[0], trace.spans.iter().map(|s| s.span_id[7]).collect())).collect();
    assert_eq!(ids, [(2, vec![2, 3]), (1, vec![1, 1])]);
}

/// Breaks if a report without a library hides that of another one, or a later sender takes the library with it.
#[test]
fn senders_and_libraries_unite_apart() {
    let report = |received: i64, region: &str, library: &str| {
        let resource = [("region", Value::Text(region))].into_iter().filter(|_| !region.is_empty());
        let context = SpanContext {
            service: "a".to_owned(),
            resource: Attributes::of(resource),
            scope_name: library.to_owned(),
            ..SpanContext::default()
        };
        Span { context: Arc::new(context), received, ..span(1, 0, "a", 2, 10, 20) }
    };
    for (first, second, expected) in [
        (("eu", ""), ("us", "lib"), ("eu", "lib")),
        (("", "lib"), ("us", "other"), ("us", "lib")),
        (("", ""), ("us", "lib"), ("us", "lib")),
        (("", ""), ("us", ""), ("us", "")),
        (("eu", "lib"), ("us", "other"), ("eu", "lib")),
        (("eu", "lib"), ("", ""), ("eu", "lib")),
    ] {
        let (a, b) = (report(1, first.0, first.1), report(2, second.0, second.1));
        let expected = report(0, expected.0, expected.1).context;
        for order in [vec![a.clone(), b.clone()], vec![b, a]] {
            assert_eq!(assemble([1; 16], order).spans[0].context, expected, "{first:?} {second:?}");
        }
    }
}
