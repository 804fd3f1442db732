use super::*;
use crate::summary::ServiceCount;

const NOW: i64 = 1_700_000_000_000_000_000;

fn parsed(query: &str) -> Result<Search, TraceError> {
    Search::parse(&Params::of_query(Some(query)).unwrap(), NOW)
}

fn search(query: &str) -> Search {
    parsed(query).unwrap_or_else(|e| panic!("{query}: {e:?}"))
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

/// Breaks where a parameter of the search is read as another condition than the one it stands for, or as none.
#[test]
fn parameters_are_conditions_on_spans() {
    let id = "resource.service.instance.id";
    let instance = format!(
        "({id} = \"i\" or (not {id} exists and resource.k8s.pod.name = \"i\") or (not {id} exists and not \
         resource.k8s.pod.name exists and resource.host.name = \"i\"))"
    );
    let env = "resource.deployment.environment";
    let env = format!("({env}.name begins with \"p\" or (not {env}.name exists and {env} begins with \"p\"))");
    for (query, expected) in [
        ("", vec![]),
        ("service=&operation=", vec![]),
        ("service=cart", vec!["service = \"cart\""]),
        ("service=cart&service=pay*", vec!["(service = \"cart\" or service begins with \"pay\")"]),
        ("operation=GET%20/a", vec!["name = \"GET /a\""]),
        ("operation=*", vec!["name begins with \"\""]),
        ("instance=i", vec![instance.as_str()]),
        ("env=p*", vec![env.as_str()]),
        ("kind=server&kind=SPAN_KIND_CLIENT&kind=unset", vec!["kind in [2, 3, 0]"]),
        ("tag=a:1&tag=!b", vec!["any.a = \"1\"", "not any.b exists"]),
        ("minDuration=1ms", vec!["duration in [1000000, 9223372036854775807]"]),
        ("maxDuration=5&durationOf=span", vec!["duration in [0, 5]"]),
        ("error=true", vec!["status = 2"]),
        ("error=0&errorOf=span", vec!["not status = 2"]),
        ("root=1", vec!["root"]),
        ("root=false", vec!["not root"]),
        ("q={ status = error && duration > 1ms }", vec!["(status = 2 and duration in [1000001, 9223372036854775807])"]),
        (r#"filter={"field":"span.name","op":"eq","value":"a"}"#, vec!["(name = \"a\")"]),
        ("service=a&error=1&root=1", vec!["service = \"a\"", "status = 2", "root"]),
    ] {
        // An ampersand of a query has to be escaped, as it ends a parameter.
        let query = query.replace("&& ", "%26%26 ");
        let found: Vec<String> = search(&query).conditions.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{query}");
    }
}

/// What is asked of the whole trace is none of the conditions on its spans.
#[test]
fn conditions_on_traces_stand_apart() {
    let found = search("minDuration=1ms&maxDuration=2ms&durationOf=trace&error=false&errorOf=trace");
    assert!(found.conditions.is_empty(), "{:?}", found.conditions);
    assert_eq!((found.duration, found.error), ((1_000_000, 2_000_000), Some(false)));
    let found = search("minSpans=2&maxSpans=3&minServices=4&limit=1000&spans=any");
    assert_eq!((found.spans, found.services_min, found.limit, found.any_span), ((2, 3), 4, 1000, true));
    let plain = search("");
    assert_eq!((plain.duration, plain.error, plain.spans), ((0, i64::MAX), None, (0, u64::MAX)));
    assert_eq!((plain.services_min, plain.limit, plain.any_span), (0, 20, false));
    let sorted = |query: &str| {
        let found = search(query);
        (found.sort, found.descending)
    };
    for (query, expected) in [
        ("", (Sort::Start, true)),
        ("sort=start", (Sort::Start, false)),
        ("sort=-duration", (Sort::Duration, true)),
        ("sort=spans", (Sort::Spans, false)),
        ("sort=-errors", (Sort::Errors, true)),
    ] {
        assert_eq!(sorted(query), expected, "{query}");
    }
}

#[test]
fn wrong_parameters_are_named() {
    const WHOLE: &str = "structure, aggregates and conditions on the trace are supported by `/tempo/api/search` only";
    let many = format!("ids={}", vec!["a1"; 101].join(","));
    for (query, name, reason) in [
        ("ids=zz", "ids", "`zz` is no trace id"),
        ("ids=a1,%200%20", "ids", "`0` is no trace id"),
        ("ids=123456789012345678901234567890123", "ids", "`123456789012345678901234567890123` is no trace id"),
        (many.as_str(), "ids", "more than 100 traces"),
        ("from=5&to=4", "from", "is after `to`"),
        ("from=yesterday", "from", "`yesterday` is no time"),
        ("minDuration=2&maxDuration=1", "minDuration", "is above `maxDuration`"),
        ("minDuration=2&maxDuration=1&durationOf=trace", "minDuration", "is above `maxDuration`"),
        ("minDuration=-1", "minDuration", "`-1` is no duration"),
        ("kind=server&kind=nope", "kind", "`nope` is no kind of span"),
        ("tag=:x", "tag", "a tag has no key"),
        ("durationOf=x", "durationOf", "`x` is none of span, trace"),
        ("error=maybe", "error", "`maybe` is neither `true` nor `false`"),
        ("error=maybe&errorOf=trace", "error", "`maybe` is neither `true` nor `false`"),
        ("root=yes", "root", "`yes` is neither `true` nor `false`"),
        ("spans=two", "spans", "`two` is none of one, any"),
        ("minSpans=-1", "minSpans", "`-1` is no number from 0 to 9007199254740992"),
        ("maxSpans=1.5", "maxSpans", "`1.5` is no number from 0 to 9007199254740992"),
        ("limit=0", "limit", "`0` is no number from 1 to 1000"),
        ("limit=1001", "limit", "`1001` is no number from 1 to 1000"),
        ("limit=5&limit=5", "limit", "given more than once"),
        ("sort=up", "sort", "`up` is none of -start, start, -duration, duration, -spans, spans, -errors, errors"),
        ("cursor=x", "cursor", "is not the `nextCursor` of an answer"),
        ("q={", "q", "parse error at line 1, col 2: syntax error: unexpected $end"),
        ("q={} | rate()", "q", WHOLE),
        ("q={} >> {}", "q", WHOLE),
        ("q={ rootName = `a` }", "q", WHOLE),
        ("q={} | count() > 1", "q", WHOLE),
    ] {
        match parsed(query) {
            Err(TraceError::Param(error)) => assert_eq!(error, ParamError::new(name, reason), "{query}"),
            other => panic!("{query}: {other:?}"),
        }
    }
}

#[test]
fn traces_by_name_are_of_any_time() {
    assert_eq!(search("").range, (NOW - HOUR, NOW));
    assert_eq!(search("ids=,%20,").range, (NOW - HOUR, NOW), "no name is none");
    let named = search("ids=b2,a1&ids=A1,");
    assert_eq!(named.range, (i64::MIN, i64::MAX));
    let id = |last: u8| {
        let mut id = [0; 16];
        id[15] = last;
        id
    };
    assert_eq!(named.ids, [id(0xb2), id(0xa1), id(0xa1)]);
    // Each is looked up once, in order.
    assert_eq!(named.filter().traces().map(|ids| ids.to_vec()), Some(vec![id(0xa1), id(0xb2)]));
    assert_eq!(named.filter().to_string(), "trace in 2 ids");
    let within = search("ids=a1&from=1");
    assert_eq!(within.range, (1_000_000_000, NOW));
    assert_eq!(within.filter().to_string(), format!("(trace = {}a1 and start in [1000000000, {NOW}])", "0".repeat(30)));
}

/// Breaks where a page of one search goes on in another one, or the window of the first page moves with the clock.
#[test]
fn cursors_belong_to_their_search() {
    let first = search("service=a&sort=-duration");
    let cursor =
        cursor::Cursor { binds: first.binds(), key: !5, trace: [7; 16], received: NOW - 9, range: (NOW - 99, NOW - 9) };
    let with = |query: &str| parsed(&format!("{query}&cursor={cursor}"));
    let next = with("service=a&sort=-duration&limit=3").unwrap();
    assert_eq!((next.range, next.after), ((NOW - 99, NOW - 9), Some(cursor)));
    // Spans that came later than the first page are not seen.
    assert_eq!(
        next.filter().to_string(),
        format!("(start in [{}, {}] and received <= {} and service = \"a\")", NOW - 99, NOW - 9, NOW - 9)
    );
    assert_eq!(
        next.of_traces([[9; 16], [8; 16]].into_iter()).traces().map(|ids| ids.to_vec()),
        Some(vec![[8; 16], [9; 16]])
    );
    let bounded = with("service=a&sort=-duration&from=1&to=2").unwrap();
    assert_eq!(bounded.range, (1_000_000_000, 2_000_000_000));
    let half = with("service=a&sort=-duration&from=1").unwrap();
    assert_eq!(half.range, (NOW - 99, NOW - 9), "half a window is none");
    for other in [
        "service=b&sort=-duration",
        "service=a&sort=duration",
        "service=a",
        "service=a&sort=-duration&spans=any",
        "service=a&sort=-duration&ids=a1",
        "service=a&sort=-duration&minSpans=2",
        "service=a&sort=-duration&minServices=2",
        "service=a&sort=-duration&errorOf=trace&error=1",
        "service=a&sort=-duration&durationOf=trace&maxDuration=5",
    ] {
        assert!(matches!(with(other), Err(TraceError::CursorMismatch)), "{other}");
    }
}

/// Breaks where several conditions that may hold on different spans are asked of one.
#[test]
fn conditions_of_any_span_are_asked_one_by_one() {
    let of = |query: &str| {
        let found = search(query);
        (found.is_joined(), found.matching().to_string())
    };
    let window = "start in [1000000000, 2000000000]";
    let both = |by: &str| format!("service = \"a\" {by} name = \"b\"");
    let any = of("from=1&to=2&service=a&operation=b&spans=any");
    assert_eq!(any, (true, format!("({window} and ({}))", both("or"))));
    let one = of("from=1&to=2&service=a&operation=b");
    assert_eq!(one, (false, format!("({window} and {})", both("and"))));
    // Of one condition there is nothing to tell apart.
    assert_eq!(of("from=1&to=2&service=a&spans=any"), (false, format!("({window} and service = \"a\")")));
    assert_eq!(of("from=1&to=2&spans=any"), (false, window.to_owned()));
}

#[test]
fn bounds_of_traces_include_their_ends() {
    let check = |query: &str, row: &Summary, expected: bool| assert_eq!(search(query).takes(row), expected, "{query}");
    let one = row(1, (100, 150), 3, 1, 2);
    for (query, expected) in [
        ("", true),
        ("durationOf=trace&minDuration=50&maxDuration=50", true),
        ("durationOf=trace&minDuration=51", false),
        ("durationOf=trace&maxDuration=49", false),
        ("error=1&errorOf=trace", true),
        ("error=0&errorOf=trace", false),
        ("minSpans=3&maxSpans=3", true),
        ("minSpans=4", false),
        ("maxSpans=2", false),
        ("minServices=2", true),
        ("minServices=3", false),
    ] {
        check(query, &one, expected);
    }
    check("error=0&errorOf=trace", &row(2, (0, 0), 1, 0, 1), true);
    // A length that no 64 bits hold is the greatest that they do.
    check("durationOf=trace&minDuration=9223372036854775807", &row(3, (i64::MIN, i64::MAX), 1, 0, 1), true);
}

/// Breaks where rows that are equal in what they are sorted by come in another order in one direction than in the other, so
/// that a cursor between them loses one.
#[test]
fn rows_are_in_order_and_then_by_trace() {
    let rows = [
        row(3, (10, 20), 5, 1, 1),
        row(1, (10, 50), 1, 1, 1),
        row(2, (i64::MIN, i64::MIN), 5, 0, 1),
        row(4, (i64::MAX, i64::MAX), 9, 2, 1),
    ];
    for (sort, expected) in [
        ("start", [2, 1, 3, 4]),
        ("-start", [4, 1, 3, 2]),
        ("duration", [2, 4, 3, 1]),
        ("-duration", [1, 3, 2, 4]),
        ("spans", [1, 2, 3, 4]),
        ("-spans", [4, 2, 3, 1]),
        ("errors", [2, 1, 3, 4]),
        ("-errors", [4, 1, 3, 2]),
    ] {
        let search = search(&format!("sort={sort}"));
        let mut sorted: Vec<&Summary> = rows.iter().collect();
        sorted.sort_by_key(|row| search.key(row));
        assert_eq!(sorted.iter().map(|row| row.id[0]).collect::<Vec<_>>(), expected, "{sort}");
    }
}

/// The filter alone is read where a call has a `limit` and an order of its own.
#[test]
fn other_calls_take_the_filter_alone() {
    let of = |query: &str| Search::parse_filter(&Params::of_query(Some(query)).unwrap(), NOW);
    let found = of("service=a&limit=50000&sort=name&cursor=x&ids=zz&q={&minSpans=x").unwrap();
    assert_eq!((found.limit, found.sort, found.ids.len()), (20, Sort::Start, 0));
    assert_eq!(found.filter().to_string(), format!("(start in [{}, {NOW}] and service = \"a\")", NOW - HOUR));
    assert!(of("kind=nope").is_err() && of("from=2&to=1").is_err());
    // What is asked of whole traces would be left out of a list of spans.
    for name in ["durationOf", "errorOf"] {
        assert!(of(&format!("{name}=span")).is_ok(), "{name}");
        let told = of(&format!("{name}=trace&minDuration=1s&error=true")).unwrap_err();
        assert!(
            matches!(&told, TraceError::Param(e) if e.name == name && e.reason == "`trace` is none of span"),
            "{told:?}"
        );
    }
}

/// Where no names are listed, `q` is a condition as it is in a search.
#[test]
fn lists_of_no_names_take_traceql() {
    let of = |query: &str| {
        let params = Params::of_query(Some(query)).unwrap();
        Search::parse_filter(&params, NOW).and_then(|search| search.with_traceql(&params))
    };
    let conditions = |query: &str| of(query).unwrap().conditions.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(conditions("service=a&q={ status = error }"), ["service = \"a\"", "status = 2"]);
    assert_eq!(conditions("service=a&q="), ["service = \"a\""]);
    for wrong in ["q={", "q={} >> {}", "q={} | rate()", "q={}&q={}"] {
        assert!(of(wrong).is_err_and(|e| matches!(e, TraceError::Param(e) if e.name == "q")), "{wrong}");
    }
}
