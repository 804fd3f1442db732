//! Traces: the three exports of each case must be as expected, and searches must find exactly the expected traces;
//! unflushed, flushed and compacted, over the real binary.
//!
//! Exports are compared regardless of order: blocks by service, spans by id, attributes and tags by key, processes by
//! their content. Folder `tempo` has responses of another server (`tempo`).

mod tempo;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use quiver_tests::server::{Options, Server};
use serde_json::{Value, json};

/// Runs all cases; says whether all passed.
pub(crate) fn run(root: &Path, report: &mut Vec<Value>) -> bool {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut all = Outcome { report, good: true, passed: 0, failed: 0 };
        exports(root, &mut all).await;
        searches(root, &mut all).await;
        tempo::run(root, &mut all).await;
        println!("traces: {} passed, {} failed", all.passed, all.failed);
        all.good
    })
}

struct Outcome<'r> {
    report: &'r mut Vec<Value>,
    good: bool,
    passed: u64,
    failed: u64,
}

impl Outcome<'_> {
    fn note(&mut self, name: &str, problem: Option<String>) {
        self.report.push(json!({"suite": "traces", "case": name, "passed": problem.is_none()}));
        if let Some(problem) = problem {
            println!("FAILED {name}: {problem}");
            self.good = false;
            self.failed += 1;
        } else {
            self.passed += 1;
        }
    }
}

fn read(path: &Path) -> Value {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn folders(of: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(of).unwrap_or_else(|e| panic!("{}: {e}", of.display()));
    let mut all: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    all.sort();
    all
}

/// Brings the server from one state to the next.
async fn states(server: &Server, step: usize) -> &'static str {
    match step {
        1 => server.flush().await,
        2 => server.compact().await,
        _ => {}
    }
    ["live", "flushed", "compacted"][step]
}

async fn send(server: &Server, path: &str, file: &Path) {
    let body = std::fs::read(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let answer = server.post(path, &[("content-type", "application/json")], body).await;
    assert!(answer.status < 300, "{}: {} {}", file.display(), answer.status, answer.text());
}

async fn exports(root: &Path, all: &mut Outcome<'_>) {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let cases = folders(&root.join("cases"));
    for case in &cases {
        let (otlp, zipkin) = (case.join("ingest.otlp.json"), case.join("ingest.zipkin.json"));
        if otlp.is_file() {
            send(&server, "/v1/traces", &otlp).await;
        } else {
            send(&server, "/api/v2/spans", &zipkin).await;
        }
    }
    for step in 0..3 {
        let state = states(&server, step).await;
        for case in &cases {
            let about = read(&case.join("case.json"));
            let id = about["traceId"].as_str().expect("a trace id");
            let name = case.file_name().unwrap_or_default().to_string_lossy();
            for format in ["otlp", "spanarray", "traceobject"] {
                let answer = server.get(&format!("/platform-api/traces/{id}/{format}")).await;
                let expected = read(&case.join(format!("expected/{format}.json")));
                let problem = if answer.status == 200 {
                    difference("", &normal(format, &expected), &normal(format, &answer.json()))
                } else {
                    Some(format!("status {}: {}", answer.status, answer.text()))
                };
                all.note(&format!("{name}/{format} ({state})"), problem);
            }
            all.note(&format!("{name}/summary ({state})"), summary(&server, &about, id).await);
        }
    }
}

/// Checks number of spans, of errors, and services, as the case states them.
async fn summary(server: &Server, about: &Value, id: &str) -> Option<String> {
    let answer = server.get(&format!("/traces/{id}/summary")).await;
    if answer.status != 200 {
        return Some(format!("status {}: {}", answer.status, answer.text()));
    }
    let row = answer.json()["data"].clone();
    let services: Vec<&Value> = row["services"].as_array().into_iter().flatten().map(|s| &s["name"]).collect();
    let found = json!({"spans": row["spans"], "errors": row["errors"], "services": services, "start": row["start"],
        "end": row["end"]});
    let expected = json!({"spans": about["spans"], "errors": about["errors"], "services": about["services"],
        "start": about["start"], "end": about["end"]});
    difference("", &expected, &found)
}

/// Brings an export into an order of its own.
fn normal(format: &str, export: &Value) -> Value {
    match format {
        "otlp" => sorted(export, &mut |list| list.sort_by_cached_key(otlp_key)),
        "spanarray" => sorted(export, &mut |list| list.sort_by_cached_key(|s| s["id"].to_string())),
        _ => {
            let mut export = export.clone();
            for trace in export["data"].as_array_mut().into_iter().flatten() {
                let processes = trace["processes"].take();
                for span in trace["spans"].as_array_mut().into_iter().flatten() {
                    let name = span["processID"].as_str().unwrap_or_default().to_owned();
                    span["processID"] = by_key(&processes[&name]);
                }
                let mut list: Vec<Value> =
                    processes.as_object().into_iter().flatten().map(|(_, process)| by_key(process)).collect();
                list.sort_by_cached_key(Value::to_string);
                trace["processes"] = list.into();
            }
            sorted(&export, &mut |list| {
                list.sort_by_cached_key(|v| {
                    let id = if v["spanID"].is_null() { &v["key"] } else { &v["spanID"] };
                    (id.to_string(), v.to_string())
                });
            })
        }
    }
}

fn by_key(value: &Value) -> Value {
    sorted(value, &mut |list| list.sort_by_cached_key(|v| v["key"].to_string()))
}

fn otlp_key(value: &Value) -> String {
    let service = |block: &Value| {
        let list = block["resource"]["attributes"].as_array().cloned().unwrap_or_default();
        list.into_iter().find(|a| a["key"] == "service.name").map(|a| a["value"].to_string())
    };
    if let Some(service) = service(value) {
        return service;
    }
    let parts = ["spanId", "key", "timeUnixNano"].map(|k| value[k].to_string());
    format!("{}{}", parts.join("/"), value["scope"])
}

/// Sorts all lists of a document, the innermost first. Lists of times of events keep what they hold, too.
fn sorted(value: &Value, sort: &mut impl FnMut(&mut Vec<Value>)) -> Value {
    match value {
        Value::Array(list) => {
            let mut list: Vec<Value> = list.iter().map(|v| sorted(v, sort)).collect();
            sort(&mut list);
            Value::Array(list)
        }
        Value::Object(map) => Value::Object(map.iter().map(|(k, v)| (k.clone(), sorted(v, sort))).collect()),
        other => other.clone(),
    }
}

/// Gives the first place where two documents differ.
fn difference(at: &str, expected: &Value, found: &Value) -> Option<String> {
    match (expected, found) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            keys.into_iter().find_map(|k| match (a.get(k), b.get(k)) {
                (Some(x), Some(y)) => difference(&format!("{at}.{k}"), x, y),
                (x, y) => Some(format!("{at}.{k}: expected {x:?}, found {y:?}")),
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(i, (x, y))| difference(&format!("{at}[{i}]"), x, y))
        }
        (a, b) if a == b => None,
        (a, b) => Some(format!("{at}: expected {a}, found {b}")),
    }
}

async fn searches(root: &Path, all: &mut Outcome<'_>) {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let mut ids: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in folders(&root.join("search/traces")) {
        send(&server, "/v1/traces", &file).await;
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let of = ids.entry(name).or_default();
        collect_ids(&read(&file), of);
        of.sort();
        of.dedup();
    }
    let queries = read(&root.join("search/queries.json"));
    for step in 0..3 {
        let state = states(&server, step).await;
        for query in queries.as_array().into_iter().flatten() {
            let mut expected: Vec<String> = (query["expect"].as_array().into_iter().flatten())
                .flat_map(|name| ids[name.as_str().unwrap_or_default()].clone())
                .collect();
            expected.sort();
            let name = query["name"].as_str().unwrap_or_default();
            all.note(&format!("search/{name} ({state})"), own(&server, query, &expected).await);
            all.note(&format!("search/{name}, as Jaeger asks ({state})"), jaeger(&server, query, &expected).await);
        }
    }
}

fn collect_ids(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            if map.contains_key("spanId") && map.contains_key("startTimeUnixNano") {
                out.extend(map["traceId"].as_str().map(str::to_lowercase));
            }
            map.values().for_each(|v| collect_ids(v, out));
        }
        Value::Array(list) => list.iter().for_each(|v| collect_ids(v, out)),
        _ => {}
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn compared(mut found: Vec<String>, expected: &[String]) -> Option<String> {
    found.sort();
    (found != expected).then(|| format!("expected {expected:?}, found {found:?}"))
}

/// Asks the search of the product.
async fn own(server: &Server, query: &Value, expected: &[String]) -> Option<String> {
    let mut params: Vec<(&str, String)> = vec![
        ("service", text(&query["service"])),
        ("operation", text(&query["operation"])),
        ("from", text(&query["start"])),
        ("to", text(&query["end"])),
        ("limit", text(&query["limit"])),
    ];
    for (name, key) in [("minDuration", "minDurationNs"), ("maxDuration", "maxDurationNs")] {
        if query[key].as_i64().unwrap_or(0) > 0 {
            params.push((name, text(&query[key])));
        }
    }
    for (key, value) in query["tags"].as_object().into_iter().flatten() {
        params.push(("tag", format!("{key}:{}", text(value))));
    }
    let params: Vec<(&str, &str)> = params.iter().map(|(k, v)| (*k, v.as_str())).collect();
    let answer = server.get_with("/traces", &params).await;
    if answer.status != 200 {
        return Some(format!("status {}: {}", answer.status, answer.text()));
    }
    let rows = answer.json()["data"].clone();
    compared(rows.as_array().into_iter().flatten().map(|row| text(&row["traceId"])).collect(), expected)
}

/// Asks the search of Jaeger's API, whose times are in microseconds.
async fn jaeger(server: &Server, query: &Value, expected: &[String]) -> Option<String> {
    let micros = |key: &str| (text(&query[key]).parse::<i64>().unwrap_or(0) / 1000).to_string();
    let tags: serde_json::Map<String, Value> =
        (query["tags"].as_object().into_iter().flatten()).map(|(k, v)| (k.clone(), Value::from(text(v)))).collect();
    let mut params: Vec<(&str, String)> = vec![
        ("service", text(&query["service"])),
        ("operation", text(&query["operation"])),
        ("start", micros("start")),
        ("end", micros("end")),
        ("limit", text(&query["limit"])),
        ("tags", Value::from(tags).to_string()),
    ];
    for (name, key) in [("minDuration", "minDurationNs"), ("maxDuration", "maxDurationNs")] {
        let nanos = query[key].as_i64().unwrap_or(0);
        if nanos > 0 {
            params.push((name, format!("{nanos}ns")));
        }
    }
    let params: Vec<(&str, &str)> = params.iter().map(|(k, v)| (*k, v.as_str())).collect();
    let answer = server.get_with("/api/traces", &params).await;
    if answer.status != 200 {
        return Some(format!("status {}: {}", answer.status, answer.text()));
    }
    let data = answer.json()["data"].clone();
    compared(data.as_array().into_iter().flatten().map(|trace| text(&trace["traceID"])).collect(), expected)
}
