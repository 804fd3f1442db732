use quiver_traces::Summary;

use super::*;

const NOW: i64 = 1_700_000_000_000_000_000;

fn parsed(query: &str) -> Result<Search, TraceError> {
    super::search(&TraceParams::of_query(Some(query)).unwrap(), NOW)
}

fn search(query: &str) -> Search {
    parsed(query).unwrap_or_else(|e| panic!("{query}: {e:?}"))
}

/// Breaks if a parameter of the search is read as another condition than the one it stands for, or as none.
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

/// Breaks if a page of one search goes on in another one, or the window of the first page moves with the clock.
#[test]
fn cursors_keep_the_window_of_the_first_page() {
    let mut first = search("service=a&sort=-duration");
    first.range = (NOW - 99, NOW - 9);
    let row = Summary { id: [7; 16], start: 5, end: 10, ..Summary::default() };
    let cursor = first.behind(&row, NOW - 9);
    let with = |query: &str| parsed(&format!("{query}&cursor={cursor}"));
    let next = with("service=a&sort=-duration&limit=3").unwrap();
    assert_eq!((next.range, next.limit), ((NOW - 99, NOW - 9), 3));
    // Spans that came later than the first page are not seen.
    assert_eq!(
        next.filter().to_string(),
        format!("(start in [{}, {}] and received <= {} and service = \"a\")", NOW - 99, NOW - 9, NOW - 9)
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

/// The filter alone is read where a call has a `limit` and an order of its own.
#[test]
fn other_calls_take_the_filter_alone() {
    let of = |query: &str| filter_alone(&TraceParams::of_query(Some(query)).unwrap(), NOW);
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
        let params = TraceParams::of_query(Some(query)).unwrap();
        let mut search = filter_alone(&params, NOW)?;
        add_traceql(&mut search, &params)?;
        Ok::<_, TraceError>(search)
    };
    let conditions = |query: &str| of(query).unwrap().conditions.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(conditions("service=a&q={ status = error }"), ["service = \"a\"", "status = 2"]);
    assert_eq!(conditions("service=a&q="), ["service = \"a\""]);
    for wrong in ["q={", "q={} >> {}", "q={} | rate()", "q={}&q={}"] {
        assert!(of(wrong).is_err_and(|e| matches!(e, TraceError::Param(e) if e.name == "q")), "{wrong}");
    }
}

/// Breaks if a part of `filter=` that nothing heeds is taken, or an error does not say where it is.
#[test]
fn errors_say_where() {
    let check = |text: &str, expected: &str| {
        let error = condition("filter", text).err().unwrap_or_else(|| panic!("{text} is taken"));
        assert_eq!((error.name.as_str(), error.reason.as_str()), ("filter", expected), "{text}");
    };
    check("", "not JSON: EOF while parsing a value at line 1 column 0");
    check("[]", "a condition must be an object with `all`, `any`, `not`, or `field` and `op`");
    check(r#"{"op":"eq","value":1}"#, "`/field`: is required");
    check(r#"{"field":"a"}"#, "`/op`: is required");
    check(r#"{"field":"a","op":"eq"}"#, "`/value`: is required");
    check(r#"{"field":"a","op":"eq","value":1,"valeu":2}"#, "`/valeu`: there is no such field");
    check(r#"{"field":"a","op":"eq","value":"x","caseSensitive":"no"}"#, "`/caseSensitive`: must be true or false");
    check(r#"{"all":[{"field":"a","op":"exists"}],"field":"b"}"#, "`/field`: does not go with `all`");
    check(r#"{"all":[]}"#, "`/all`: must hold at least one condition");
    check(r#"{"any":[{"not":{"field":"a","op":"glob","value":"/{x"}}]}"#, "`/any/0/not/value`: `{` is not closed");
    check(
        r#"{"field":"a","op":"between","value":[2,1]}"#,
        "`/value`: must be the least and then the greatest: nothing lies between",
    );
    check(r#"{"field":"span.durationMs","op":"eq","value":"x"}"#, "`/value`: must be a number: the field is one");
    check(r#"{"field":"span.durationMs","op":"contains","value":"5"}"#, "durations are asked for by numbers");
    check(r#"{"field":"attributes.a","op":"gt","value":"x"}"#, "a range of spans is of numbers; `x` is none");
    check(r#"{"field":"span.name","op":"lt","value":5}"#, "names of spans and services have no range");
    let deep = (0..5).fold(r#"{"field":"a","op":"exists"}"#.to_owned(), |inner, _| format!(r#"{{"not":{inner}}}"#));
    check(&deep, "`/not/not/not/not/not`: is nested deeper than 5");
    let many = vec![r#"{"field":"a","op":"exists"}"#; 51].join(",");
    check(&format!(r#"{{"any":[{many}]}}"#), "a condition has more than 50 comparisons");
}

#[test]
fn tags() {
    let check = |text: &str, expected: &str| assert_eq!(tag("tag", text).unwrap().to_string(), expected);
    check("http.method:GET", "any.http.method = \"GET\"");
    check("resource.host.name:a:b", "resource.host.name = \"a:b\"");
    check("!x:1", "not any.x = \"1\"");
    check("event.x", "event.x exists");
    assert!(tag("tag", "").is_err() && tag("tag", ":x").is_err());
}
