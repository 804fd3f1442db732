use super::*;
use crate::summary::ServiceCount;

const NOW: i64 = 1_700_000_000_000_000_000;

fn service(name: &str) -> SpanFilter {
    SpanFilter::Service(TextTest::Is(name.to_owned()))
}

fn named(name: &str) -> SpanFilter {
    SpanFilter::Name(TextTest::Is(name.to_owned()))
}

/// A trace of so many spans and errors, of services `s0` and on.
pub(super) fn row(id: u8, (start, end): (i64, i64), spans: u64, errors: u64, services: u64) -> Summary {
    let service = |n: u64| ServiceCount { name: format!("s{n}"), spans: 1, errors: 0 };
    Summary {
        id: [id; 16],
        root_service: "s0".to_owned(),
        root_name: "op".to_owned(),
        root_missing: false,
        start,
        end,
        spans,
        errors,
        orphans: 0,
        services: (0..services).map(service).collect(),
        matched: 0,
        first: Vec::new(),
    }
}

/// Breaks if an instance or an environment that a resource names otherwise is passed over.
#[test]
fn origins_are_told_by_the_first_attribute_that_is_there() {
    let id = "resource.service.instance.id";
    assert_eq!(
        of_instance(&TextTest::Is("i".to_owned())).to_string(),
        format!(
            "({id} = \"i\" or (not {id} exists and resource.k8s.pod.name = \"i\") or (not {id} exists and not \
             resource.k8s.pod.name exists and resource.host.name = \"i\"))"
        )
    );
    let env = "resource.deployment.environment";
    assert_eq!(
        of_environment(&TextTest::Prefix("p".to_owned())).to_string(),
        format!("({env}.name begins with \"p\" or (not {env}.name exists and {env} begins with \"p\"))")
    );
}

/// Breaks if a trace that is named twice is looked up twice.
#[test]
fn traces_are_looked_up_once_and_in_order() {
    let (low, high) = ([0xa1; 16], [0xb2; 16]);
    let named = Search { ids: vec![high, low, low], ..Search::new((i64::MIN, i64::MAX)) };
    assert_eq!(named.filter().traces().map(|ids| ids.to_vec()), Some(vec![low, high]));
    assert_eq!(named.filter().to_string(), "trace in 2 ids");
    let within = Search { ids: vec![low], ..Search::new((1, 2)) };
    assert_eq!(within.filter().to_string(), format!("(trace = {} and start in [1, 2])", "a1".repeat(16)));
}

/// Breaks if a page of one search goes on in another one, or the window of the first page moves with the clock.
#[test]
fn cursors_belong_to_their_search() {
    let window = (NOW - 99, NOW - 9);
    let first = || Search { conditions: vec![service("a")], sort: Sort::Duration, ..Search::new(window) };
    let cursor = first().behind(&row(7, (5, 10), 1, 0, 1), NOW - 9);
    let expected = Cursor { binds: first().binds(), key: !5, trace: [7; 16], received: NOW - 9, range: window };
    assert_eq!(cursor, expected);
    let gone_on = |is_bounded: bool| {
        let mut next = Search { range: (1, NOW), limit: 3, ..first() };
        next.go_on(cursor, is_bounded).unwrap();
        next
    };
    let next = gone_on(false);
    assert_eq!((next.range, next.after), (window, Some(cursor)));
    // Spans that came later than the first page are not seen.
    assert_eq!(
        next.filter().to_string(),
        format!("(start in [{}, {}] and received <= {} and service = \"a\")", NOW - 99, NOW - 9, NOW - 9)
    );
    assert_eq!(
        next.of_traces([[9; 16], [8; 16]].into_iter()).traces().map(|ids| ids.to_vec()),
        Some(vec![[8; 16], [9; 16]])
    );
    assert_eq!(gone_on(true).range, (1, NOW));
    let changes: [fn(&mut Search); 9] = [
        |other| other.conditions = vec![service("b")],
        |other| other.descending = false,
        |other| other.sort = Sort::Start,
        |other| other.any_span = true,
        |other| other.ids = vec![[1; 16]],
        |other| other.spans.0 = 2,
        |other| other.services_min = 2,
        |other| other.error = Some(true),
        |other| other.duration.1 = 5,
    ];
    for change in changes {
        let mut other = first();
        change(&mut other);
        assert!(matches!(other.go_on(cursor, false), Err(TraceError::CursorMismatch)), "{other:?}");
    }
}

/// Breaks if several conditions that may hold on different spans are asked of one.
#[test]
fn conditions_of_any_span_are_asked_one_by_one() {
    let of = |conditions: Vec<SpanFilter>, any_span: bool| {
        let search = Search { conditions, any_span, ..Search::new((1, 2)) };
        (search.is_joined(), search.matching().to_string())
    };
    let window = "start in [1, 2]";
    let both = |by: &str| format!("service = \"a\" {by} name = \"b\"");
    let any = of(vec![service("a"), named("b")], true);
    assert_eq!(any, (true, format!("({window} and ({}))", both("or"))));
    let one = of(vec![service("a"), named("b")], false);
    assert_eq!(one, (false, format!("({window} and {})", both("and"))));
    // Of one condition there is nothing to tell apart.
    assert_eq!(of(vec![service("a")], true), (false, format!("({window} and service = \"a\")")));
    assert_eq!(of(Vec::new(), true), (false, window.to_owned()));
}

#[test]
fn bounds_of_traces_include_their_ends() {
    let new = || Search::new((0, i64::MAX));
    let check = |search: Search, row: &Summary, expected: bool| assert_eq!(search.takes(row), expected, "{search:?}");
    let one = row(1, (100, 150), 3, 1, 2);
    for (search, expected) in [
        (new(), true),
        (Search { duration: (50, 50), ..new() }, true),
        (Search { duration: (51, i64::MAX), ..new() }, false),
        (Search { duration: (0, 49), ..new() }, false),
        (Search { error: Some(true), ..new() }, true),
        (Search { error: Some(false), ..new() }, false),
        (Search { spans: (3, 3), ..new() }, true),
        (Search { spans: (4, u64::MAX), ..new() }, false),
        (Search { spans: (0, 2), ..new() }, false),
        (Search { services_min: 2, ..new() }, true),
        (Search { services_min: 3, ..new() }, false),
    ] {
        check(search, &one, expected);
    }
    check(Search { error: Some(false), ..new() }, &row(2, (0, 0), 1, 0, 1), true);
    // A length that no 64 bits hold is the greatest that they do.
    check(Search { duration: (i64::MAX, i64::MAX), ..new() }, &row(3, (i64::MIN, i64::MAX), 1, 0, 1), true);
}

/// Breaks if rows that are equal in what they are sorted by come in another order in one direction than in the other, so
/// that a cursor between them loses one.
#[test]
fn rows_are_in_order_and_then_by_trace() {
    let rows = [
        row(3, (10, 20), 5, 1, 1),
        row(1, (10, 50), 1, 1, 1),
        row(2, (i64::MIN, i64::MIN), 5, 0, 1),
        row(4, (i64::MAX, i64::MAX), 9, 2, 1),
    ];
    for (sort, descending, expected) in [
        (Sort::Start, false, [2, 1, 3, 4]),
        (Sort::Start, true, [4, 1, 3, 2]),
        (Sort::Duration, false, [2, 4, 3, 1]),
        (Sort::Duration, true, [1, 3, 2, 4]),
        (Sort::Spans, false, [1, 2, 3, 4]),
        (Sort::Spans, true, [4, 2, 3, 1]),
        (Sort::Errors, false, [2, 1, 3, 4]),
        (Sort::Errors, true, [4, 1, 3, 2]),
    ] {
        let search = Search { sort, descending, ..Search::new((0, i64::MAX)) };
        let mut sorted: Vec<&Summary> = rows.iter().collect();
        sorted.sort_by_key(|row| search.key(row));
        assert_eq!(sorted.iter().map(|row| row.id[0]).collect::<Vec<_>>(), expected, "{sort:?} {descending}");
    }
}
