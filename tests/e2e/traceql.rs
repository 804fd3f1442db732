//! TraceQL over the real binary: random queries find the traces, with the number of spans, that looking at every trace
//! finds. What the scan is asked for and what whole traces decide must agree.

use std::collections::BTreeMap;

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
const NOON: i64 = 1_772_366_400_000_000_000;

fn pick<'a>(rng: &mut StdRng, list: &[&'a str]) -> &'a str {
    list[rng.random_range(0..list.len())]
}

fn text(key: &str, value: &str) -> Value {
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
        text += &format!(" | count() {} {}", pick(rng, &["=", ">", "<"]), rng.random_range(0..4));
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
