use std::cell::Cell;

use quiver_types::cancellation::Watch;
use quiver_types::read_stats::Gate;
use quiver_types::spans::{Attributes, Event, STATUS_ERROR, Value as Attribute};

use super::*;
use crate::assemble::assemble;
use crate::assemble::tests::span;

fn statistics(trace: &Trace, by: &[GroupBy]) -> Vec<GroupFigures> {
    super::statistics(trace, by, &|_| Ok(())).expect("figures")
}

fn compare(left: &Trace, right: &Trace) -> Vec<ComparedPath> {
    super::compare(left, right, &|_| Ok(())).expect("rows")
}

/// The key of a group, as statistics give it.
fn told(group: &[(&str, &str)]) -> Vec<(String, String)> {
    group.iter().map(|(by, value)| ((*by).to_owned(), (*value).to_owned())).collect()
}

/// Breaks if time that children share counts twice, or the path through them is of another group.
#[test]
fn figures_of_groups() {
    let mut failed = span(2, 1, "b", 3, 20, 60);
    failed.status = STATUS_ERROR;
    let trace = assemble([1; 16], vec![span(1, 0, "a", 2, 10, 110), failed, span(3, 1, "b", 3, 50, 90)]);
    let one = GroupFigures {
        group: told(&[("service", "a")]),
        count: 1,
        errors: 0,
        total: 100,
        own: 30,
        min: 100,
        mean: 100.0,
        max: 100,
        share: 0.3,
        critical_share: 0.3,
    };
    let two = GroupFigures {
        group: told(&[("service", "b")]),
        count: 2,
        errors: 1,
        total: 80,
        own: 80,
        min: 40,
        mean: 40.0,
        max: 40,
        share: 0.8,
        critical_share: 0.7,
    };
    assert_eq!(statistics(&trace, &[GroupBy::Service]), [one, two]);
    // A trace without length has shares of nothing.
    let moment = assemble([1; 16], vec![span(1, 0, "a", 2, 10, 10)]);
    let row = &statistics(&moment, &[GroupBy::Kind, GroupBy::Operation])[0];
    assert_eq!(row.group, told(&[("kind", "server"), ("operation", "op1")]));
    assert_eq!((row.share, row.critical_share), (0.0, 0.0));
    assert!(statistics(&Trace::default(), &[GroupBy::Service]).is_empty());
}

/// Breaks if the mean of spans that never end is below the shortest one.
#[test]
fn figures_of_the_longest_spans() {
    let trace = assemble([1; 16], vec![span(1, 0, "a", 2, 10, i64::MAX), span(2, 1, "a", 3, 10, i64::MAX)]);
    let row = &statistics(&trace, &[GroupBy::Service])[0];
    assert!(row.min > i64::MAX / 2, "{row:?}");
    assert_eq!((row.mean, row.total), (row.min as f64, i64::MAX), "{row:?}");
}

/// Breaks if an attribute of one place is looked for elsewhere, or shown without its place.
#[test]
fn tags_are_of_their_place() {
    let mut one = span(1, 0, "shop", 2, 10, 20);
    one.attributes = Attributes::of([("host", Attribute::Text("own")), ("type", Attribute::Text("of the span"))]);
    let context = quiver_types::spans::SpanContext {
        service: "shop".to_owned(),
        resource: Attributes::of([("host", Attribute::Text("h1")), ("zone", Attribute::Int(7))]),
        scope_attributes: Attributes::of([("lib", Attribute::Bool(true))]),
        ..Default::default()
    };
    one.context = Arc::new(context);
    let attributes = Attributes::of([("type", Attribute::Text("of the event"))]);
    one.events = vec![Event { time: 11, name: "e".to_owned(), dropped: 0, attributes }];
    let trace = assemble([1; 16], vec![one]);
    for (place, key, name, expected) in [
        (None, "host", "tag:host", "own"),
        (Some(Place::Resource), "host", "tag:resource.host", "h1"),
        (None, "zone", "tag:zone", "7"),
        (Some(Place::Span), "zone", "tag:span.zone", ""),
        (Some(Place::Event), "type", "tag:event.type", "of the event"),
        (None, "type", "tag:type", "of the span"),
        (Some(Place::Scope), "lib", "tag:scope.lib", "true"),
        (None, "service.name", "tag:service.name", "shop"),
        (None, "nowhere", "tag:nowhere", ""),
    ] {
        let by = [GroupBy::Tag(place, key.to_owned())];
        assert_eq!(statistics(&trace, &by)[0].group, told(&[(name, expected)]), "{name}");
    }
}

/// Breaks if a time beyond 29 years overflows, as of a sender whose clock stood at 1970, or a tenth counts as a change.
#[test]
fn two_traces_side_by_side() {
    use Change::{Added, Changed, Removed, Same};
    let changes = |left: Vec<Span>, right: Vec<Span>| -> Vec<(String, Change)> {
        let rows = compare(&assemble([1; 16], left), &assemble([2; 16], right));
        rows.iter().map(|row| (row.path.join(" / "), row.change)).collect()
    };
    let expected = |rows: &[(&str, Change)]| -> Vec<(String, Change)> {
        rows.iter().map(|(path, change)| ((*path).to_owned(), *change)).collect()
    };
    let root = |end: i64| span(1, 0, "a", 2, 10, end);
    assert_eq!(
        changes(vec![root(110), span(2, 1, "b", 3, 20, 60)], vec![root(121), span(3, 1, "c", 3, 20, 60)]),
        expected(&[
            ("a: op1 [server] #0", Same),
            ("a: op1 [server] #0 / b: op2 [client] #0", Removed),
            ("a: op1 [server] #0 / c: op3 [client] #0", Added),
        ])
    );
    let one = |left: i64, right: i64| changes(vec![root(left)], vec![root(right)]).remove(0).1;
    assert_eq!([one(110, 122), one(122, 110), one(1_700_000_000_000_000_000, 110)], [Changed; 3]);
    assert_eq!([one(110, 120), one(i64::MAX, i64::MAX)], [Same; 2]);
    // Equal siblings stand side by side by their order.
    let twin = |id: u64, start: i64| {
        let mut twin = span(id, 1, "b", 3, start, start + 10);
        twin.name = "get".to_owned();
        twin
    };
    let found = changes(vec![root(110), twin(2, 20), twin(3, 40)], vec![root(110), twin(4, 20)]);
    assert_eq!(
        found[1..],
        expected(&[
            ("a: op1 [server] #0 / b: get [client] #0", Same),
            ("a: op1 [server] #0 / b: get [client] #1", Removed),
        ])
    );
}

/// Breaks if an answer is larger than what was asked for: paths take far more than the spans that they lead to.
#[test]
fn answers_ask_for_what_they_take() {
    let chain = (1..=150).map(|id| span(id, id - 1, "a", 2, id as i64, 1_000_000));
    let below = (1_001..2_001).map(|id| span(id, 150, "a", 2, 200, 300));
    let trace = assemble([1; 16], chain.chain(below).collect());
    let asked = Cell::new(0);
    let room = |bytes: usize| -> Result<(), TraceError> {
        asked.set(asked.get() + bytes);
        Ok(())
    };
    let rows = super::compare(&trace, &trace, &room).expect("rows");
    let texts: usize = rows.iter().map(|row| texts_bytes(&row.path)).sum();
    assert!(TEXT_BYTES > size_of::<String>());
    assert!(texts > 1000 * 150 * TEXT_BYTES && asked.get() > 2 * texts, "{} for {texts}", asked.get());
    asked.set(0);
    super::statistics(&trace, &[GroupBy::Operation], &room).expect("figures");
    assert!(asked.get() > 1150 * ROW_BYTES, "{}", asked.get());
    let none = |_: usize| -> Result<(), TraceError> { Err(TraceError::NotFound) };
    assert!(super::compare(&trace, &trace, &none).is_err());
    assert!(super::statistics(&trace, &[GroupBy::Operation], &none).is_err());
}

/// A query that has ended.
#[derive(Debug)]
struct Ended;

impl Gate for Ended {
    fn take(&self, _: usize) -> quiver_types::Result<()> {
        Ok(())
    }

    fn give_back(&self, _: usize) {}

    fn check(&self) -> quiver_types::Result<()> {
        Err(Error::new(ErrorKind::Cancelled, "it ended"))
    }
}

#[test]
fn work_on_many_spans_ends_with_its_query() {
    let trace = assemble([1; 16], (1..=20_000).map(|id| span(id, 0, "a", 2, id as i64, 1_000_000)).collect());
    let ended = || Watch::new(Arc::new(Ended));
    assert!(ended().over(|| super::statistics(&trace, &[GroupBy::Kind], &|_| Ok(()))).is_err());
    assert!(ended().over(|| super::compare(&trace, &trace, &|_| Ok(()))).is_err());
}
