//! TraceQL over the real binary: random queries find the same traces and numbers of spans as a naive look at every trace.
//! Conditions that the scan evaluates and those that need whole traces must agree.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use quiver_ingest::traces::{TraceContext, otlp};
use quiver_tests::server::{Options, Server};
use quiver_traces::assemble::{Trace, assemble_all};
use quiver_traces::traceql::Query;
use quiver_types::Access;
use quiver_types::spans::{hex, read_spans};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

/// 2026-03-01 12:00 UTC.
pub(super) const NOON: i64 = 1_772_366_400_000_000_000;

fn pick<'a>(rng: &mut StdRng, list: &[&'a str]) -> &'a str {
    list[rng.random_range(0..list.len())]
}

pub(super) fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// Traces of a few spans whose values repeat, so that conditions meet.
fn spans(rng: &mut StdRng, traces: u64) -> Value {
    let mut blocks = Vec::new();
    for trace in 1..=traces {
        let begin = NOON + rng.random_range(0..600_000) * 1_000_000;
        for id in 1..=rng.random_range(1..8u64) {
            let start = begin + id as i64 * 1_000_000;
            let mut attributes = Vec::new();
            if rng.random_bool(0.7) {
                attributes.push(match rng.random_range(0..3) {
                    0 => text("code", pick(rng, &["200", "500", "odd"])),
                    1 => json!({"key": "code", "value": {"intValue": pick(rng, &["200", "404", "500"])}}),
                    _ => json!({"key": "code", "value": {"doubleValue": 200.5}}),
                });
            }
            if rng.random_bool(0.5) {
                attributes.push(text("both", pick(rng, &["span", "x"])));
            }
            if rng.random_bool(0.3) {
                attributes.push(json!({"key": "flag", "value": {"boolValue": rng.random_bool(0.5)}}));
            }
            let mut span = json!({"traceId": format!("{trace:032x}"), "spanId": format!("{id:016x}"),
                "name": pick(rng, &["GET /", "POST /", "query"]), "kind": rng.random_range(0..6),
                "startTimeUnixNano": start.to_string(),
                "endTimeUnixNano": (start + rng.random_range(0..5) * 100_000_000).to_string(), "attributes": attributes,
                "status": {"code": rng.random_range(0..3), "message": pick(rng, &["", "declined"])}});
            if id > 1 {
                // Now and then the parent is nowhere.
                span["parentSpanId"] = format!("{:016x}", rng.random_range(1..id + 1) % (id + 1)).into();
            }
            if rng.random_bool(0.3) {
                let attributes = [text("type", pick(rng, &["a", "b"]))];
                span["events"] = json!([{"timeUnixNano": start.to_string(), "name": pick(rng, &["exception", "retry"]), "attributes": attributes}]);
            }
            let mut resource = vec![text("service.name", pick(rng, &["web", "cart", "db"]))];
            if rng.random_bool(0.5) {
                resource.push(text("both", pick(rng, &["resource", "x"])));
            }
            let scope = json!({"name": pick(rng, &["", "lib"])});
            blocks
                .push(json!({"resource": {"attributes": resource}, "scopeSpans": [{"scope": scope, "spans": [span]}]}));
        }
    }
    json!({"resourceSpans": blocks})
}

fn condition(rng: &mut StdRng) -> String {
    let equal = |rng: &mut StdRng| pick(rng, &["=", "!="]);
    let texts = |rng: &mut StdRng| pick(rng, &["=", "!=", "=~", "!~"]);
    let order = |rng: &mut StdRng| pick(rng, &["=", "!=", "<", "<=", ">", ">="]);
    match rng.random_range(0..16) {
        0 => format!("name {} \"{}\"", texts(rng), pick(rng, &["GET /", "query", ".*/", "nothing"])),
        1 => format!("status {} {}", equal(rng), pick(rng, &["error", "ok", "unset"])),
        2 => format!("kind {} {}", equal(rng), pick(rng, &["server", "client", "internal", "unspecified"])),
        3 => format!("duration {} {}", order(rng), pick(rng, &["0s", "100ms", "250ms", "1h"])),
        4 => format!("resource.service.name {} \"{}\"", texts(rng), pick(rng, &["web", "db", "web|cart", "none"])),
        5 => format!(".service.name {} \"{}\"", equal(rng), pick(rng, &["web", "db"])),
        6 => format!("span.code {} {}", order(rng), pick(rng, &["200", "200.5", "404", "-1"])),
        7 => format!(".code {} \"{}\"", texts(rng), pick(rng, &["200", "odd", "5.*"])),
        8 => format!(".both {} \"{}\"", equal(rng), pick(rng, &["span", "resource", "x"])),
        9 => format!("{} {} nil", pick(rng, &["span.code", ".both", "resource.both", "event.type"]), equal(rng)),
        10 => format!("event.type {} \"{}\"", equal(rng), pick(rng, &["a", "b"])),
        11 => format!("event:name {} \"{}\"", texts(rng), pick(rng, &["exception", "re.*"])),
        12 => pick(rng, &[".flag", "span.flag = false", "true", "false", "nestedSetParent < 0"]).to_owned(),
        13 => format!("statusMessage {} \"declined\"", equal(rng)),
        14 => format!("instrumentation:name {} \"lib\"", equal(rng)),
        _ => format!(
            "{} {} {}",
            pick(rng, &["traceDuration", "trace:duration"]),
            order(rng),
            pick(rng, &["200ms", "400ms"])
        ),
    }
}

fn expression(rng: &mut StdRng, depth: u32) -> String {
    match rng.random_range(0..if depth > 2 { 3 } else { 6 }) {
        0..=2 => condition(rng),
        3 => format!("{} && {}", expression(rng, depth + 1), expression(rng, depth + 1)),
        4 => format!("({} || {})", expression(rng, depth + 1), expression(rng, depth + 1)),
        _ => format!("!({})", expression(rng, depth + 1)),
    }
}

fn query(rng: &mut StdRng) -> String {
    let mut text = format!("{{ {} }}", expression(rng, 0));
    for _ in 0..[0, 0, 1, 2][rng.random_range(0..4)] {
        let relation = pick(rng, &["&&", "||", ">>", ">", "<<", "<", "~", "!>>", "!>", "!~", "&>>", "&<", "&~"]);
        text = format!("({text}) {relation} {{ {} }}", expression(rng, 1));
    }
    if rng.random_bool(0.2) {
        let _ = write!(text, " | count() {} {}", pick(rng, &["=", ">", "<"]), rng.random_range(0..4));
    }
    text
}

fn assembled(body: &[u8]) -> Vec<Trace> {
    let access = Access::full();
    let ctx = TraceContext {
        body_bytes_max: 64 << 20,
        batch_bytes_max: 128 << 20,
        now_ns: NOON,
        earliest_ns: 0,
        latest_ns: i64::MAX,
        access: &access,
    };
    let mut list = Vec::new();
    read_spans(&otlp::decode_json(body, &ctx).expect("spans").batch.flat(), &mut list).expect("spans");
    assemble_all(list)
}

#[tokio::test(flavor = "multi_thread")]
async fn random_queries_find_what_every_trace_says() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let soak = std::env::var_os("QUIVER_SOAK").is_some();
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(17);
    let mut rng = StdRng::seed_from_u64(seed);
    let body = spans(&mut rng, 60).to_string().into_bytes();
    let traces = assembled(&body);
    let answer = server.post("/v1/traces", &[("content-type", "application/json")], body).await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "{}"));
    let (mut found_any, mut selective) = (0, 0);
    for n in 0..if soak { 5000 } else { 250 } {
        match n {
            100 => server.flush().await,
            200 => server.compact().await,
            _ => {}
        }
        let text = query(&mut rng);
        let parsed = Query::parse(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let expected: BTreeMap<String, u64> = (traces.iter())
            .filter_map(|trace| Some((hex(&trace.id), parsed.find(trace)?.spans.len() as u64)))
            .collect();
        let (start, end) = ((NOON / 1_000_000_000 - 10).to_string(), (NOON / 1_000_000_000 + 700).to_string());
        let params = [("q", text.as_str()), ("start", &start), ("end", &end), ("limit", "1000")];
        let answer = server.get_with("/tempo/api/search", &params).await;
        assert_eq!(answer.status, 200, "seed {seed}, {text}: {}", answer.text());
        let answer = answer.json();
        let row = |t: &Value| {
            (t["traceID"].as_str().unwrap_or_default().to_owned(), t["spanSets"][0]["matched"].as_u64().unwrap_or(0))
        };
        let found: BTreeMap<String, u64> = answer["traces"].as_array().expect("traces").iter().map(row).collect();
        assert_eq!(found, expected, "seed {seed}, query {n}: {text}");
        found_any += u32::from(!found.is_empty());
        selective += u32::from(found.len() < traces.len());
    }
    assert!(found_any > 50 && selective > 50, "the queries tell something: {found_any} {selective}");
}

/// Two traces: of a shop, which fails once, and of its worker.
fn two_traces() -> Value {
    let span = |trace: u8, id: u64, parent: u64, name: &str, ms: i64, failed: bool| {
        let mut span = json!({"traceId": format!("{trace:032x}"), "spanId": format!("{id:016x}"), "name": name, "kind": 2,
            "startTimeUnixNano": NOON.to_string(), "endTimeUnixNano": (NOON + ms * 1_000_000).to_string(),
            "attributes": [text("route", &format!("/{name}"))], "status": {"code": if failed { 2 } else { 0 }}});
        if parent > 0 {
            span["parentSpanId"] = format!("{parent:016x}").into();
        }
        span
    };
    let of = |service: &str, spans: Value| json!({"resource": {"attributes": [text("service.name", service)]}, "scopeSpans": [{"spans": spans}]});
    json!({"resourceSpans": [
        of("shop", json!([span(1, 1, 0, "buy", 500, false), span(1, 2, 1, "pay", 300, true)])),
        of("bank", json!([span(1, 3, 2, "charge", 200, true)])),
        of("worker", json!([span(2, 4, 0, "sweep", 100, false)])),
    ]})
}

async fn series(server: &Server, query: &str) -> Vec<Value> {
    let second = NOON / 1_000_000_000;
    let (start, end) = (second.to_string(), (second + 59).to_string());
    let params = [("q", query), ("start", &start), ("end", &end), ("step", "1m")];
    let answer = server.get_with("/tempo/api/metrics/query_range", &params).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    answer.json()["series"].as_array().cloned().unwrap_or_default()
}

/// Labels of each series that has a sample at noon, which is of the minute up to then, and its value.
pub(super) async fn numbers(server: &Server, query: &str) -> BTreeMap<String, f64> {
    let text = |value: &Value| value["stringValue"].as_str().map_or(value.to_string(), str::to_owned);
    let label = |label: &Value| format!("{}={}", label["key"].as_str().unwrap_or_default(), text(&label["value"]));
    let noon = json!((NOON / 1_000_000).to_string());
    let row = |one: &Value| {
        let labels: Vec<String> = one["labels"].as_array().into_iter().flatten().map(label).collect();
        let sample = one["samples"].as_array()?.iter().find(|sample| sample["timestampMs"] == noon)?;
        Some((labels.join(" "), sample["value"].as_f64().unwrap_or_default()))
    };
    series(server, query).await.iter().filter_map(row).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_of_whole_traces() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    for flushed in [false, true] {
        // The same spans once more: they count once.
        let body = two_traces().to_string().into_bytes();
        let answer = server.post("/v1/traces", &[("content-type", "application/json")], body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        if flushed {
            server.flush().await;
        }
        let check = async |query: &str, expected: &[(&str, f64)]| {
            let expected: BTreeMap<String, f64> = expected.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect();
            assert_eq!(numbers(&server, query).await, expected, "{query}");
        };
        check(
            "{} | count_over_time() by (rootServiceName)",
            &[("rootServiceName=shop", 3.0), ("rootServiceName=worker", 1.0)],
        )
        .await;
        check("{} | count_over_time() by (rootServiceName) > 1", &[("rootServiceName=shop", 3.0)]).await;
        check("{ rootName = `buy` && status = error } | count_over_time()", &[("__name__=count_over_time", 2.0)]).await;
        check(
            "{ nestedSetParent < 0 } >> { status = error } | count_over_time() by (name)",
            &[("name=charge", 1.0), ("name=pay", 1.0)],
        )
        .await;
        check(
            "{} | by(resource.service.name) | count() > 1 | max_over_time(duration)",
            &[("__name__=max_over_time", 0.5)],
        )
        .await;
        check(
            "{} | max_over_time(trace:duration) by (resource.service.name)",
            &[
                ("resource.service.name=shop", 0.5),
                ("resource.service.name=bank", 0.5),
                ("resource.service.name=worker", 0.1),
            ],
        )
        .await;
        check("{} | sum_over_time(span:childCount)", &[("__name__=sum_over_time", 2.0)]).await;
        check(
            "{ status = error } | count_over_time() by (duration)",
            &[("duration=300ms", 1.0), ("duration=200ms", 1.0)],
        )
        .await;
        let by_root = "{} | count_over_time() by (rootServiceName)";
        check(&format!("{by_root} | topk(5) | bottomk(1)"), &[("rootServiceName=worker", 1.0)]).await;
        check(&format!("{by_root} | topk(5) > 1"), &[("rootServiceName=shop", 3.0)]).await;
        let compared = numbers(&server, "{} | compare({ status = error })").await;
        for (key, number) in [
            ("__meta_type=selection resource.service.name=shop", 1.0),
            ("__meta_type=selection resource.service.name=bank", 1.0),
            ("__meta_type=baseline resource.service.name=worker", 1.0),
            ("__meta_type=baseline_total span.route=nil", 2.0),
            ("__meta_type=selection_total rootName=nil", 2.0),
            ("__meta_type=selection status=error", 2.0),
        ] {
            assert_eq!(compared.get(key), Some(&number), "{key}: {compared:?}");
        }
        let compared = numbers(&server, "{} | compare({ true }, 1)").await;
        assert!(compared.contains_key("__meta_error=__too_many_values__ name=nil"), "{compared:?}");
        assert_eq!(compared.keys().filter(|key| key.contains("=selection name=")).count(), 1, "{compared:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exemplars_name_traces() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let body = two_traces().to_string().into_bytes();
    let answer = server.post("/v1/traces", &[("content-type", "application/json")], body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let exemplars = async |query: &str| -> Vec<Value> {
        let all = series(&server, query).await;
        all.iter().flat_map(|one| one["exemplars"].as_array().cloned().unwrap_or_default()).collect()
    };
    let trace = |id: u8| json!({"key": "trace:id", "value": {"stringValue": format!("{id:032x}")}});
    let given = exemplars("{ name = `sweep` } | quantile_over_time(duration, .9)").await;
    let at = (NOON / 1_000_000).to_string();
    assert_eq!(given, [json!({"labels": [trace(2)], "value": 0.1, "timestampMs": at})]);
    let given = exemplars("{ name = `sweep` } | rate() by (resource.service.name) with (exemplars=1)").await;
    let service = json!({"key": "resource.service.name", "value": {"stringValue": "worker"}});
    assert_eq!(given[0]["labels"], json!([trace(2), service]));
    // One of each step.
    assert_eq!(exemplars("{} | histogram_over_time(duration)").await.len(), 1);
    assert_eq!(exemplars("{} | histogram_over_time(duration) with (exemplars=false)").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_are_sets_of_spans() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let body = two_traces().to_string().into_bytes();
    server.post("/v1/traces", &[("content-type", "application/json")], body).await;
    let (start, end) = ((NOON / 1_000_000_000 - 5).to_string(), (NOON / 1_000_000_000 + 5).to_string());
    let query = "{ rootName = `buy` } | by(resource.service.name) | select(nestedSetParent, nestedSetLeft)";
    let params = [("q", query), ("start", &start), ("end", &end)];
    let answer = server.get_with("/tempo/api/search", &params).await.json();
    let sets = answer["traces"][0]["spanSets"].as_array().cloned().unwrap_or_default();
    let matched: Vec<u64> = sets.iter().filter_map(|set| set["matched"].as_u64()).collect();
    assert_eq!(matched, [1, 2], "{answer}");
    assert_eq!(sets[0]["attributes"], json!([{"key": "by(resource.service.name)", "value": {"stringValue": "bank"}}]));
    let place = |key: &str, value: &str| json!({"key": key, "value": {"intValue": value}});
    let bank = json!({"key": "service.name", "value": {"stringValue": "bank"}});
    let charge = json!([place("nestedSetParent", "2"), place("nestedSetLeft", "3"), bank]);
    assert_eq!(sets[0]["spans"][0]["attributes"], charge, "{answer}");
    // How many spans of a set are told: with 0 as many as without.
    for (most, told) in [("1", [1, 1]), ("0", [1, 2])] {
        let params = [("q", query), ("start", &start), ("end", &end), ("spss", most)];
        let answer = server.get_with("/tempo/api/search", &params).await.json();
        let spans = |n: usize| answer["traces"][0]["spanSets"][n]["spans"].as_array().map_or(0, Vec::len);
        assert_eq!([spans(0), spans(1)], told, "{most}: {answer}");
    }
}

/// Names and values.
type Pairs<'a> = &'a [(&'a str, &'a str)];

/// Without TraceQL: values of tags are parts of texts, some tags are of the span or of its root, durations of the trace.
#[tokio::test(flavor = "multi_thread")]
async fn traces_are_found_by_tags() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let body = two_traces().to_string().into_bytes();
    server.post("/v1/traces", &[("content-type", "application/json")], body).await;
    let (start, end) = ((NOON / 1_000_000_000 - 5).to_string(), (NOON / 1_000_000_000 + 5).to_string());
    let found = async |asked: &[(&str, &str)]| -> Vec<String> {
        let mut params = vec![("start", start.as_str()), ("end", end.as_str())];
        params.extend_from_slice(asked);
        let answer = server.get_with("/tempo/api/search", &params).await;
        assert_eq!(answer.status, 200, "{asked:?}: {}", answer.text());
        let roots = answer.json()["traces"].as_array().cloned().unwrap_or_default();
        let mut names: Vec<String> =
            roots.iter().filter_map(|t| t["rootTraceName"].as_str().map(str::to_owned)).collect();
        names.sort();
        names
    };
    let cases: [(Pairs<'_>, &[&str]); 12] = [
        (&[("tags", "service.name=ban")], &["buy"]),
        (&[("tags", "service.name=nobody")], &[]),
        (&[("tags", "name=charge service.name=bank")], &["buy"]),
        (&[("tags", "name=charge service.name=shop")], &[]),
        (&[("tags", "route=\"/swe\"")], &["sweep"]),
        (&[("tags", "status.code=error")], &["buy"]),
        (&[("tags", "root.name=uy")], &["buy"]),
        (&[("tags", "root.service.name=work")], &["sweep"]),
        (&[("minDuration", "400ms")], &["buy"]),
        // The trace, not a span of it.
        (&[("tags", "name=charge"), ("minDuration", "400ms")], &["buy"]),
        (&[("maxDuration", "250ms")], &["sweep"]),
        (&[("minDuration", "100ms"), ("maxDuration", "500ms")], &["buy", "sweep"]),
    ];
    for (asked, expected) in cases {
        assert_eq!(found(asked).await, expected, "{asked:?}");
    }
    let both = [("q", "{}"), ("tags", "root.name=x"), ("start", &start), ("end", &end)];
    assert_eq!(server.get_with("/tempo/api/search", &both).await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn values_have_their_types() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let values = [
        json!({"stringValue": "7"}),
        json!({"intValue": "7"}),
        json!({"doubleValue": 3.0}),
        json!({"boolValue": true}),
        json!({"stringValue": "true story"}),
        json!({"arrayValue": {"values": [{"stringValue": "item"}, {"intValue": "7"}]}}),
    ];
    let span = |(n, value): (usize, &Value)| {
        json!({"traceId": format!("{:032x}", n + 1), "spanId": format!("{:016x}", n + 1), "name": "x",
            "startTimeUnixNano": NOON.to_string(), "endTimeUnixNano": NOON.to_string(), "attributes": [{"key": "mix", "value": value}]})
    };
    let spans: Vec<Value> = values.iter().enumerate().map(span).collect();
    let body = json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).to_string().into_bytes();
    let answer = server.post("/v1/traces", &[("content-type", "application/json")], body).await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "{}"));
    for state in ["live", "flushed", "compacted"] {
        match state {
            "flushed" => server.flush().await,
            "compacted" => server.compact().await,
            _ => {}
        }
        let answer = server.get("/tempo/api/v2/search/tag/span.mix/values").await.json();
        let row = |value: &Value| format!("{} {}", value["type"].as_str().unwrap_or_default(), value["value"]);
        let mut rows: Vec<String> = answer["tagValues"].as_array().into_iter().flatten().map(row).collect();
        rows.sort();
        let [text, other, item] = [r#"string "7""#, r#"string "true story""#, r#"string "item""#];
        let expected = [r#"bool "true""#, r#"float "3""#, r#"int "7""#, text, item, other];
        assert_eq!(rows, expected, "{state}: {answer}");
        let answer = server.get("/tempo/api/search/tag/mix/values").await.json();
        assert_eq!(answer["tagValues"], json!(["3", "7", "item", "true", "true story"]), "{state}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_events_are_completed() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let span = |n: usize, events: &[&str]| {
        let at = NOON.to_string();
        let event = |name: &&str| json!({"timeUnixNano": at, "name": name});
        json!({"traceId": format!("{:032x}", n + 1), "spanId": format!("{:016x}", n + 1), "name": format!("s{n}"),
            "startTimeUnixNano": at, "endTimeUnixNano": at, "events": events.iter().map(event).collect::<Vec<_>>()})
    };
    let spans = [span(0, &["retry", "retry", "exception"]), span(1, &["retry"]), span(2, &[])];
    let body = json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).to_string().into_bytes();
    server.post("/v1/traces", &[("content-type", "application/json")], body).await;
    for state in ["live", "flushed"] {
        if state == "flushed" {
            server.flush().await;
        }
        let answer = server.get("/tempo/api/v2/search/tag/event:name/values").await.json();
        let row = |name: &str| json!({"type": "string", "value": name});
        assert_eq!(answer["tagValues"], json!([row("retry"), row("exception")]), "{state}");
        let answer = server.get("/tempo/api/search/tag/event:name/values").await.json();
        assert_eq!(answer["tagValues"], json!(["exception", "retry"]), "{state}");
        // Typed values are those of a name that TraceQL has.
        let bare = server.get("/tempo/api/v2/search/tag/name.of.key/values").await;
        let text = "please provide a valid tagName: tag name is not valid intrinsic or scoped attribute: name.of.key";
        assert_eq!((bare.status, bare.text().trim_end()), (400, text), "{state}");
        assert_eq!(server.get("/tempo/api/v2/search/tag/.name.of.key/values").await.status, 200, "{state}");
        assert_eq!(server.get("/tempo/api/search/tag/name.of.key/values").await.status, 200, "{state}");
        let of_one = "/tempo/api/v2/search/tag/event:name/values?q=%7B%20name%3D%22s1%22%20%7D";
        let answer = server.get(of_one).await.json();
        assert_eq!(answer["tagValues"], json!([row("retry")]), "{state}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_and_durations_as_clients_write_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let body = two_traces().to_string().into_bytes();
    server.post("/v1/traces", &[("content-type", "application/json")], body).await;
    let second = NOON / 1_000_000_000;
    let query = "q=%7B%7D%7Ccount_over_time()";
    for (window, expected) in [
        (format!("start={}&end={}", second - 9, second + 9), 4),
        (format!("start={}&end={}", NOON, NOON + 9), 4),
        (format!("end={}&since=10s", second + 9), 4),
        (format!("end={}&since=5s", second + 9), 0),
    ] {
        let answer = server.get(&format!("/tempo/api/metrics/query?{query}&{window}")).await;
        assert_eq!(answer.status, 200, "{window}: {}", answer.text());
        let count = answer.json()["series"][0]["value"].as_f64().unwrap_or_default();
        assert_eq!(count as u64, expected, "{window}: {}", answer.text());
    }
    // What is worked out of two queries, and the same as protobuf.
    let window = format!("start={}&end={}", second - 9, second + 9);
    let half = "q=(%7B%7D%7Ccount_over_time())*2/(%7B%7D%7Ccount_over_time())";
    let path = format!("/tempo/api/metrics/query?{half}&{window}");
    let answer = server.get(&path).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["series"][0]["value"].as_f64(), Some(2.0), "{}", answer.text());
    let message = server.get_as(&path, &[("accept", "application/protobuf")]).await;
    assert_eq!(message.headers["content-type"], "application/protobuf");
    // Field 2 of the series, the double 2, and no figures.
    assert!(message.body.ends_with(&[17, 0, 0, 0, 0, 0, 0, 0, 0x40, 18, 0]), "{:?}", message.body);
    let answer = server.get(&format!("/tempo/api/metrics/query?{query}&since=5")).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    let ends = format!("start={}&end={}", NOON / 1000 - 9, NOON / 1000 + 9);
    for (duration, status) in [("200ms", 200), ("0", 200), ("%2B1m", 200), ("5", 400), ("1d", 400), ("-5ms", 400)] {
        for name in ["minDuration", "maxDuration"] {
            let path = format!("/api/traces?service=shop&{ends}&{name}={duration}");
            let answer = server.get(&path).await;
            assert_eq!(answer.status, status, "{path}: {}", answer.text());
        }
    }
    // Names and values beside a query that is being typed.
    let asked = [("q", "{ resource.service.name = `bank` && .x = ")];
    let known = server.get_with("/tempo/api/v2/search/tag/span.route/values", &asked).await.json();
    assert_eq!(known["tagValues"], json!([{"type": "string", "value": "/charge"}]), "{known}");
    for (query, expected) in [
        ("{ name = `buy` && status = }", json!([{"name": "span", "tags": ["route"]}])),
        ("{ name = `none` && status = error }", json!([])),
    ] {
        let asked = [("q", query), ("scope", "span")];
        let known = server.get_with("/tempo/api/v2/search/tags", &asked).await.json();
        assert_eq!(known["scopes"], expected, "{query}: {known}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_is_told_in_the_originals_words() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let body = two_traces().to_string().into_bytes();
    server.post("/v1/traces", &[("content-type", "application/json")], body).await;
    let (min, max) = ("query.startTimeMin=2026-03-01T11:59:00Z", "query.startTimeMax=2026-03-01T12:10:00Z");
    let none = server.get(&format!("/api/v3/traces?query.serviceName=nobody&{min}&{max}")).await;
    assert_eq!((none.status, &none.json()["error"]["message"]), (404, &json!("No traces found")));
    // In the words of Jaeger.
    let required = "query.startTimeMin and query.startTimeMax are required";
    for (asked, text) in [
        ("", required),
        (min, required),
        (max, required),
        ("query.startTimeMin=&query.startTimeMax=", required),
        ("query.start_time_min=x&query.startTimeMax=y", "malformed parameter query.startTimeMin: `x` is no time"),
        (
            "query.startTimeMin=2026-03-01T12:00:00Z&query.start_time_max=2026-03-01T12:00:00Z",
            "query.startTimeMin must be before query.startTimeMax",
        ),
    ] {
        for path in ["/api/v3/traces", "/jaeger/api/v3/trace-summaries"] {
            let answer = server.get(&format!("{path}?{asked}")).await;
            let error = json!({"error": {"httpCode": 400, "message": text}});
            assert_eq!((answer.status, answer.json()), (400, error), "{path}?{asked}");
        }
    }
    for refused in [
        "/api/operations",
        "/api/v3/traces?query.filter=%7B%7D",
        "/api/v2/traces?lookback=0",
        "/api/v2/traces?endTs=0",
        "/api/v2/traces?minDuration=2&maxDuration=1",
        "/api/v2/dependencies?endTs=1700000000000&lookback=0",
        "/tempo/api/search?minDuration=2s&maxDuration=1s",
        "/tempo/api/metrics/query?q=%7B%7D%20%7C%20rate()&maxSeries=x",
        "/tempo/api/v2/traces/1?q=%7B%7D%20%3E%3E%20%7B%7D",
        "/tempo/api/v2/traces/1?q=%7B%7D&match_depth=-2",
    ] {
        let answer = server.get(refused).await;
        assert_eq!(answer.status, 400, "{refused}: {}", answer.text());
    }
    // A trace is pruned by a Tempo alone that was set up to; others pass over that.
    for taken in ["v2/traces/1?span_pruning=true", "v2/traces/1?q=%20", "v2/traces/1?q=%7B%7D&ancestor_depth=-2"] {
        assert_eq!(server.get(&format!("/tempo/api/{taken}")).await.status, 200, "{taken}");
    }
    // Without anything else parameters are tags, as they were before there was `tags`.
    assert_eq!(server.get("/tempo/api/search?no.such.tag=x").await.json()["traces"], json!([]));
    // In the words of Tempo.
    for (asked, text) in [
        ("limit=0", "invalid limit: must be a positive number"),
        ("limit=x", "invalid limit: strconv.ParseUint: parsing \"x\": invalid syntax"),
        ("start=9&end=5", "http parameter start must be before end. received start=9 end=5"),
        ("start=9&end=9", "http parameter start must be before end. received start=9 end=9"),
        ("start=1795179228000", "invalid start: strconv.ParseUint: parsing \"1795179228000\": value out of range"),
        ("minDuration=x", "invalid minDuration: time: invalid duration \"x\""),
        ("maxDuration=100", "invalid maxDuration: time: missing unit in duration \"100\""),
        ("minDuration=2s&maxDuration=1s", "invalid maxDuration: must be greater than minDuration"),
        ("q=%7B%7D&tags=a%3Db", "invalid request: can't specify tags and q in the same query"),
        ("tags=a%3Db%20a%3Dc", "invalid tags: tag a has been set twice"),
    ] {
        let answer = server.get(&format!("/tempo/api/search?{asked}")).await;
        assert_eq!((answer.status, answer.text().trim_end()), (400, text), "{asked}");
    }
}
