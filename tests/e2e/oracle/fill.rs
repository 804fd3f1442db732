//! The data, from a seed: metrics, log rows and spans of five services and of none.

use quiver_tests::bodies::{Series, remote_write};
use quiver_tests::server::Server;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

use super::SERVICES;
use super::data::{LENGTH_MS, START_MS};
use super::logsql_query::{FIELDS, VALUES};

/// Its name, and labels with their values.
type Metric = (&'static str, &'static [(&'static str, &'static [&'static str])]);

/// Metrics of the grammar, with the label that tells their series apart.
const METRICS: [Metric; 13] = [
    ("counter_total", &[]),
    ("gauge", &[("mode", &["idle", "user"])]),
    ("sparse", &[]),
    ("special", &[]),
    ("quota", &[("device", &["sda"])]),
    ("build_info", &[]),
    ("odd", &[("mode", &["idle"])]),
    ("latency_count", &[]),
    ("latency_sum", &[]),
    ("latency_bucket", &[("le", &["0.1", "1", "+Inf"])]),
    ("grid_total", &[]),
    ("grid_gauge", &[]),
    ("lonely", &[]),
];
/// Rows of logs per service and round.
const ROWS: i64 = 30;
/// Traces of a round.
const TRACES: u64 = 14;

/// Writes what a round brings of some services. All services are always drawn, so that a service has the same data on
/// every server.
pub(super) async fn fill(server: &Server, who: Option<&str>, services: &[&str], seed: u64, round: usize) {
    let headers = |kind: &'static str| {
        let mut headers = vec![("content-type", kind)];
        headers.extend(who.map(|who| ("authorization", who)));
        headers
    };
    let all = services.len() == SERVICES.len();
    let mut random = StdRng::seed_from_u64(seed.wrapping_add(round as u64 + 1));
    let bodies = [
        ("/metrics-api/api/v1/write", "application/x-protobuf", metrics(&mut random, services, all, round)),
        ("/insert/jsonline?_stream_fields=app", "application/stream+json", logs(&mut random, services, all, round)),
        ("/v1/traces", "application/json", spans(&mut random, services, all, round)),
    ];
    for (path, kind, body) in bodies {
        let answer = server.post(path, &headers(kind), body).await;
        assert!(answer.status < 300, "{path}: {} {}", answer.status, answer.text());
    }
}

/// Half of the time of the data, by rounds.
fn times(round: usize, step_ms: i64) -> impl Iterator<Item = i64> {
    let third = LENGTH_MS / 3;
    let begin = START_MS + round as i64 * third;
    (0..third / step_ms).map(move |n| begin + n * step_ms)
}

fn metrics(random: &mut StdRng, services: &[&str], all: bool, round: usize) -> Vec<u8> {
    let instances = ["i0", "i1", "i2", "i3"];
    let mut labels: Vec<(Vec<(&str, &str)>, bool)> = Vec::new();
    for service in SERVICES.into_iter().chain([""]) {
        let taken = services.contains(&service) || (all && service.is_empty());
        for instance in instances.iter().take(2 + SERVICES.iter().position(|s| *s == service).unwrap_or(0) % 3) {
            for (name, more) in METRICS {
                if name == "lonely" && service != "c" {
                    continue;
                }
                let mut base = vec![("__name__", name), ("instance", instance)];
                base.extend((!service.is_empty()).then_some(("job", service)));
                match more.first() {
                    None => labels.push((base, taken)),
                    Some((label, values)) => {
                        labels.extend(values.iter().map(|v| ([&base[..], &[(*label, *v)]].concat(), taken)));
                    }
                }
            }
        }
    }
    let mut series: Vec<Series<'_>> = Vec::new();
    for (n, (labels, taken)) in labels.into_iter().enumerate() {
        let counts = labels[0].1.contains("total") || labels[0].1.starts_with("latency");
        let mut value = (n * 7 + round * 1000) as f64;
        let samples: Vec<(i64, f64)> = times(round, 30_000)
            .filter_map(|ts| {
                let late = if labels[0].1.starts_with("grid") { 0 } else { random.random_range(40..460) };
                value +=
                    if counts { f64::from(random.random_range(0..9)) } else { f64::from(random.random_range(-4..5)) };
                let kept = labels[0].1 != "sparse" || random.random_bool(0.2);
                kept.then_some((ts + late, value + if counts { 0.0 } else { n as f64 * 1000.0 }))
            })
            .collect();
        if taken && !samples.is_empty() {
            series.push((labels, samples));
        }
    }
    remote_write(&series)
}

fn logs(random: &mut StdRng, services: &[&str], all: bool, round: usize) -> Vec<u8> {
    let mut out = String::new();
    for (s, service) in SERVICES.into_iter().chain([""]).enumerate() {
        for i in 0..ROWS {
            let mut row = Map::new();
            let n = (round * 6 + s) as i64 * ROWS + i;
            let time = START_MS * 1_000_000 + random.random_range(0..LENGTH_MS / 1000) * 1_000_000_000;
            row.insert("_time".into(), json!(time.to_string()));
            row.insert("n".into(), json!(n.to_string()));
            row.insert("app".into(), json!(service));
            for name in FIELDS.iter().filter(|name| !["n", "app", "no_such", "list", "dur"].contains(name)) {
                if random.random_bool(0.7) {
                    row.insert((*name).into(), json!(VALUES.choose(random).expect("some")));
                }
            }
            row.insert("dur".into(), json!(format!("{}ms", random.random_range(1..50) * 7)));
            if random.random_bool(0.3) {
                row.insert("list".into(), json!(format!("[\"x\",{n},\"two\"]")));
            }
            // A field that only one service has.
            row.insert(format!("only_{service}"), json!(service));
            row.retain(|_, value| value != "");
            if services.contains(&service) || (all && service.is_empty()) {
                let _ = writeln!(out, "{}", Value::Object(row));
            }
        }
    }
    out.into_bytes()
}

fn spans(random: &mut StdRng, services: &[&str], all: bool, round: usize) -> Vec<u8> {
    let mut blocks = Vec::new();
    for t in 0..TRACES {
        let trace = round as u64 * TRACES + t + 1;
        let begin = START_MS + random.random_range(0..LENGTH_MS / 1000) * 1000;
        let count = random.random_range(1..7_u64);
        for id in 1..=count {
            let service = *SERVICES.iter().chain(&[""]).collect::<Vec<_>>().choose(random).expect("some");
            let start = (begin + id as i64 * 3) * 1_000_000;
            let attribute = |key: &str, value: Value| json!({"key": key, "value": value});
            let mut attributes = vec![
                attribute("code", json!({"intValue": random.random_range(200..206).to_string()})),
                attribute(&format!("only_{service}"), json!({"stringValue": service})),
            ];
            if random.random_bool(0.5) {
                attributes.push(attribute("user", json!({"stringValue": format!("u{}", random.random_range(0..5))})));
            }
            let name = ["GET /", "POST /", "query"].choose(random).expect("some");
            let mut span = json!({"traceId": format!("{trace:032x}"), "spanId": format!("{id:016x}"),
                "name": name, "kind": random.random_range(1..6),
                "startTimeUnixNano": start.to_string(),
                "endTimeUnixNano": (start + random.random_range(1..400) * 1_000_000).to_string(),
                "status": {"code": random.random_range(0..3)}, "attributes": attributes});
            if id > 1 {
                span["parentSpanId"] = json!(format!("{:016x}", random.random_range(1..id)));
            }
            if random.random_bool(0.3) {
                span["events"] = json!([{"timeUnixNano": start.to_string(), "name": "exception",
                    "attributes": [attribute("exception.type", json!({"stringValue": format!("E{service}")}))]}]);
            }
            if random.random_bool(0.2) {
                span["links"] = json!([{"traceId": format!("{:032x}", random.random_range(1..trace + 1)),
                    "spanId": format!("{:016x}", 1)}]);
            }
            let taken = services.contains(service) || (all && service.is_empty());
            if taken {
                let named = (!service.is_empty()).then(|| attribute("service.name", json!({"stringValue": service})));
                let resource: Vec<Value> = named
                    .into_iter()
                    .chain([attribute("host.name", json!({"stringValue": format!("h-{service}")}))])
                    .collect();
                blocks.push(json!({"resource": {"attributes": resource}, "scopeSpans": [{"spans": [span]}]}));
            }
        }
    }
    json!({"resourceSpans": blocks}).to_string().into_bytes()
}
