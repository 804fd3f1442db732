//! Data directories of earlier builds, `tests/fixtures/<build>`: this build opens them, whatever state they are in, and
//! answers as the build that wrote them did (promise D14).
//!
//! A fixture is a directory as a kill left it: parts of several levels and days, live rows in the WAL, an entity of
//! each family of configuration, and `answers.json` with what its own build answered. The ignored test makes one for the
//! next version:
//! `QUIVER_FIXTURE=<name> QUIVER_BINARY=<server> cargo test -p quiver-tests --test e2e -- --ignored make_fixture`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use quiver_tests::server::{Options, Server, binary, run};
use serde_json::{Value, json};

use crate::configuration::{call, families, numbered};

/// 2026-03-01 12:00 UTC.
const START_MS: i64 = 1_772_366_400_000;
const DAY_MS: i64 = 86_400_000;
const ROUNDS: i64 = 4;
const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn attributes(pairs: &[(&str, &str)]) -> Value {
    pairs.iter().map(|(k, v)| json!({"key": k, "value": {"stringValue": v}})).collect()
}

fn nanos(ms: i64) -> String {
    (ms * 1_000_000).to_string()
}

/// A counter with exemplars, a gauge, a histogram with bounds and an exponential one, of two services.
fn metrics(round: i64, at: i64) -> Value {
    let exemplar = |i: i64| {
        json!([{"timeUnixNano": nanos(at + i * 15_000), "asDouble": i as f64 + 0.5,
            "traceId": format!("{:032x}", round * 100 + i + 1), "spanId": format!("{:016x}", 7)}])
    };
    let temperatures = [21.5, -0.0, 1e300, 0.1];
    let of = |service: &str| {
        let points = |value: &dyn Fn(i64) -> Value| -> Value {
            (0..8)
                .map(|i| {
                    let mut point = value(i);
                    point["timeUnixNano"] = nanos(at + i * 15_000).into();
                    point["startTimeUnixNano"] = nanos(START_MS - DAY_MS).into();
                    point["attributes"] = attributes(&[("path", ["/", "/cart", "/käse"][i as usize % 3])]);
                    point
                })
                .collect()
        };
        let total = |i: i64| (round * 20 + i) as f64 * 1.5;
        let counter = points(&|i| json!({"asDouble": total(i), "exemplars": exemplar(i)}));
        let gauge = points(&|i| json!({"asDouble": temperatures[i as usize % 4] + round as f64}));
        let bounds = points(&|i| {
            json!({"count": (i + 1).to_string(), "sum": i as f64, "explicitBounds": [0.5, 1.0],
            "bucketCounts": ["1", i.to_string(), "0"]})
        });
        let native = points(&|i| {
            json!({"count": (2 * i + 4).to_string(), "sum": 3.5 * i as f64, "scale": 2,
            "zeroCount": "1", "positive": {"offset": 1, "bucketCounts": ["1", i.to_string(), "1"]},
            "negative": {"offset": 0, "bucketCounts": [i.to_string(), "1"]}, "exemplars": exemplar(i)})
        });
        json!({"resource": {"attributes": attributes(&[("service.name", service), ("host.name", "h1")])},
        "scopeMetrics": [{"metrics": [
            {"name": "requests", "description": "Requests so far.", "unit": "1",
             "sum": {"isMonotonic": true, "aggregationTemporality": 2, "dataPoints": counter}},
            {"name": "temperature", "description": "Of the room.", "unit": "Cel", "gauge": {"dataPoints": gauge}},
            {"name": "latency", "unit": "s", "histogram": {"aggregationTemporality": 2, "dataPoints": bounds}},
            {"name": "sizes", "unit": "By", "exponentialHistogram": {"aggregationTemporality": 2, "dataPoints": native}}
        ]}]})
    };
    json!({"resourceMetrics": [of("shop"), of("bank")]})
}

fn logs(round: i64, at: i64) -> String {
    let levels = ["info", "warn", "error"];
    let line = |i: i64| {
        let app = if i % 2 == 0 { "shop" } else { "bank" };
        let mut row = json!({"time": nanos(at + i * 1000), "app": app, "level": levels[i as usize % 3],
            "msg": format!("request {i} of round {round} for user_{} took {}ms", i * 7 % 5, i * 13 % 90)});
        match i % 4 {
            0 => row["status"] = (200 + i).to_string().into(),
            1 => row["nested"] = json!({"ip": format!("10.0.0.{i}"), "ok": true}),
            2 => row[format!("rare_{round}_{i}")] = "käse\n\"quoted\"".into(),
            _ => {}
        }
        format!("{row}\n")
    };
    (0..24).map(line).collect()
}

fn spans(round: i64, at: i64) -> Value {
    let of = |trace: i64, id: i64, parent: i64, service: &str| {
        let start = at + trace * 1000 + id * 10;
        let mut span = json!({"traceId": format!("{:032x}", round * 100 + trace + 1), "spanId": format!("{id:016x}"),
            "name": format!("operation {id}"), "kind": if parent == 0 { 2 } else { 3 },
            "startTimeUnixNano": nanos(start), "endTimeUnixNano": nanos(start + 50 - id),
            "attributes": [{"key": "http.route", "value": {"stringValue": "/cart"}},
                {"key": "http.status", "value": {"intValue": (200 + trace).to_string()}}],
            "status": {"code": if trace == 3 { 2 } else { 0 }},
            "events": [{"timeUnixNano": nanos(start + 5), "name": "found", "attributes": attributes(&[("key", "käse")])}]});
        if parent > 0 {
            span["parentSpanId"] = format!("{parent:016x}").into();
        }
        json!({"resource": {"attributes": attributes(&[("service.name", service), ("service.version", "1.2")])},
            "scopeSpans": [{"scope": {"name": "lib"}, "spans": [span]}]})
    };
    let trace = |trace: i64| [of(trace, 1, 0, "shop"), of(trace, 2, 1, "shop"), of(trace, 3, 2, "bank")];
    json!({"resourceSpans": (0..6).flat_map(trace).collect::<Vec<_>>()})
}

/// Rounds alternate between two days; two hours lie between those of one.
async fn write(server: &Server, round: i64) {
    let at = START_MS + round % 2 * DAY_MS + round / 2 * 2 * 3_600_000;
    for (path, body) in [
        ("/v1/metrics", metrics(round, at).to_string()),
        ("/insert/jsonline?_stream_fields=app&_time_field=time&_msg_field=msg", logs(round, at)),
        ("/v1/traces", spans(round, at).to_string()),
    ] {
        let answer = server.post(path, JSON, body.into_bytes()).await;
        assert!(matches!(answer.status, 200 | 204), "{path}: {} {}", answer.status, answer.text());
    }
}

/// What is asked of a fixture.
async fn answers(server: &Server) -> BTreeMap<String, Value> {
    let mut answers = BTreeMap::new();
    let (start, end) = ((START_MS / 1000).to_string(), ((START_MS + 2 * DAY_MS) / 1000).to_string());
    for query in [
        "{__name__=~\"requests.*|temperature.*|latency.*|sizes.*\"}[3d]",
        "sum by (job, path) (increase({__name__=~\"requests.*\"}[3d]))",
        "histogram_quantile(0.9, sum by (job) (last_over_time({__name__=~\"sizes.*\"}[3d])))",
    ] {
        let answer = server.get_with("/metrics-api/api/v1/query", &[("query", query), ("time", &end)]).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.text());
        answers.insert(format!("promql {query}"), answer.json()["data"]["result"].clone());
    }
    let window = [("start", start.as_str()), ("end", end.as_str())];
    for path in
        ["/metrics-api/api/v1/labels", "/metrics-api/api/v1/label/__name__/values", "/metrics-api/api/v1/metadata"]
    {
        answers.insert(path.to_owned(), server.get_with(path, &window).await.json()["data"].clone());
    }
    let exemplars = [&window[..], &[("query", "{__name__=~\"requests.*|sizes.*\"}")]].concat();
    let answer = server.get_with("/metrics-api/api/v1/query_exemplars", &exemplars).await;
    answers.insert("exemplars".to_owned(), answer.json()["data"].clone());
    for query in [
        "* | sort by (_time, app, _msg)",
        "level:error user_3 | stats by (app, level) count() rows | sort by (app, level)",
        "{app=\"bank\"} nested.ip:~\"10.0.0.[1-5]\" | fields _time, _msg, nested.ip | sort by (_time)",
    ] {
        let params = [&window[..], &[("query", query)]].concat();
        let answer = server.get_with("/logs-api/select/logsql/query", &params).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.text());
        let rows: Vec<Value> =
            answer.text().lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
        answers.insert(format!("logsql {query}"), rows.into());
    }
    for round in 0..ROUNDS {
        let id = format!("{:032x}", round * 100 + 4);
        let answer = server.get(&format!("/api/traces/{id}")).await;
        assert_eq!(answer.status, 200, "{id}: {}", answer.text());
        let mut trace = answer.json()["data"][0].clone();
        for span in trace["spans"].as_array_mut().expect("spans") {
            // Of the same status as `error`, which earlier builds told alone.
            span["tags"].as_array_mut().expect("tags").retain(|tag| tag["key"] != "otel.status_code");
        }
        answers.insert(format!("trace {id}"), json!({"spans": trace["spans"], "processes": trace["processes"]}));
    }
    let (from, to) = (nanos(START_MS - 1), nanos(START_MS + 2 * DAY_MS));
    let edges = server.get_with("/traces/dependencies", &[("from", &from), ("to", &to)]).await;
    // Quantiles of calls are estimates.
    let edge =
        |e: &Value| json!({"source": e["source"], "target": e["target"], "calls": e["calls"], "errors": e["errors"]});
    let edges = edges.json()["data"]["edges"].as_array().into_iter().flatten().map(edge).collect();
    answers.insert("dependencies".to_owned(), edges);
    ordered(answers)
}

/// Begins the name of an answer that is an entity of configuration; its path follows.
const ENTITY: &str = "entity ";

/// Makes an entity of each family; gives them by their names among the answers.
async fn configure(server: &Server) -> BTreeMap<String, Value> {
    let mut made = BTreeMap::new();
    for (path, body) in families() {
        let answer = call(server, "POST", path, &[], &numbered(&body, 1)).await;
        assert_eq!(answer.status, 201, "{path}: {}", answer.text());
        let one = format!("{path}/{}", answer.json()["id"].as_str().expect("an id"));
        made.insert(format!("{ENTITY}{one}"), server.get(&one).await.json());
    }
    made
}

/// Entities are as they were made. Later builds may tell more of them.
async fn are_there(server: &Server, entities: &BTreeMap<String, Value>, when: &str) {
    for (name, entity) in entities {
        let path = &name[ENTITY.len()..];
        let answer = server.get(path).await;
        assert_eq!(answer.status, 200, "{when}: {path}: {}", answer.text());
        let now = answer.json();
        for (field, value) in entity.as_object().expect("an entity is an object") {
            assert_eq!(&now[field], value, "{when}: {field} of {path}");
        }
    }
}

fn ordered(answers: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    answers.into_iter().map(|(question, answer)| (question.clone(), normal(&question, answer))).collect()
}

/// Brings an answer into an order of its own where none is promised: all but rows of logs, which were sorted.
fn normal(question: &str, answer: Value) -> Value {
    match answer {
        _ if question.starts_with("logsql") => answer,
        Value::Array(items) => {
            let mut items: Vec<Value> = items.into_iter().map(|item| normal(question, item)).collect();
            if items.iter().all(Value::is_object) {
                items.sort_by_key(Value::to_string);
            }
            items.into()
        }
        Value::Object(fields) => fields.into_iter().map(|(k, v)| (k, normal(question, v))).collect(),
        other => other,
    }
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let to = to.join(&name);
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &to);
        } else if !["LOCK", "initial-admin-password"].contains(&name.as_str()) && !name.ends_with("-shm") {
            // What belongs to a running process only, or to whoever started it, is not copied.
            std::fs::copy(entry.path(), &to).expect("a copy");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn data_of_earlier_builds_is_read() {
    let mut found = 0;
    for fixture in std::fs::read_dir(fixtures()).expect("fixtures").flatten() {
        let name = fixture.file_name().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(fixture.path().join("answers.json")).expect("answers");
        let expected: BTreeMap<String, Value> = serde_json::from_str(&text).expect("answers are JSON");
        let (entities, expected): (BTreeMap<_, _>, BTreeMap<_, _>) =
            expected.into_iter().partition(|(question, _)| question.starts_with(ENTITY));
        let expected = ordered(expected);
        let dir = tempfile::tempdir().expect("a folder");
        copy_dir(&fixture.path().join("data"), dir.path());
        let server = Server::start(dir.path(), &Options::default()).await;
        for state in ["replayed", "flushed", "compacted"] {
            match state {
                "flushed" => server.flush().await,
                "compacted" => server.compact().await,
                _ => {}
            }
            let now = answers(&server).await;
            assert_eq!(now.len(), expected.len(), "{name}, {state}");
            for (question, answer) in &now {
                assert_eq!(Some(answer), expected.get(question), "{name}, {state}: {question}");
            }
            are_there(&server, &entities, &format!("{name}, {state}")).await;
        }
        assert_eq!(server.stop(), Some(0));
        let mut check = Command::new(binary());
        check.args(["store", "check", "--data"]).arg(dir.path());
        let (code, out, errors) = run(&mut check);
        assert_eq!(code, Some(0), "{name}: {out}{errors}");
        let server = Server::start(dir.path(), &Options::default()).await;
        assert_eq!(answers(&server).await, expected, "{name}, started again");
        are_there(&server, &entities, &format!("{name}, started again")).await;
        found += 1;
    }
    assert!(found > 0, "no fixtures");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes into the repository"]
async fn make_fixture() {
    let name = std::env::var("QUIVER_FIXTURE").expect("QUIVER_FIXTURE names the fixture");
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().env("QUIVER_COMPACTION__ENABLED", "false")).await;
    for round in 0..ROUNDS {
        write(&server, round).await;
        match round {
            0 | 2 => server.flush().await,
            1 => server.compact().await,
            _ => {}
        }
    }
    let mut answers = answers(&server).await;
    answers.extend(configure(&server).await);
    server.kill();
    let to = fixtures().join(name);
    copy_dir(dir.path(), &to.join("data"));
    let text = serde_json::to_string(&answers).expect("JSON");
    std::fs::write(to.join("answers.json"), text).expect("writable");
}
