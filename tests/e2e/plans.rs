//! Every query route answers from plans: it runs at least one, and `explain` shows the plans that really run. The output
//! of `explain` for each route is in `explain/<name>.txt`; `UPDATE=1` rewrites these files.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quiver_tests::bodies::{field, varint};
use quiver_tests::server::{Answer, Options, Server};
use serde_json::{Value, json};

mod routes;

use routes::{ROUTES, Route};

/// 2026-03-01 12:00 UTC, in seconds.
const NOON_S: i64 = 1_772_366_400;
const TRACE: &str = "0000000000000000000000000000000a";
/// How long the counters and the log may lag behind an answer.
const PATIENCE: Duration = Duration::from_mins(5);

/// Parameters are written to be read; here they get the form that a URL needs.
fn url(path: &str, explain: Option<&str>) -> String {
    let (start, end) = (NOON_S - 60, NOON_S + 200 * 60);
    let with = |path: &str, unit: i64, names: [&str; 2]| {
        path.replace(names[0], &(start * unit).to_string()).replace(names[1], &(end * unit).to_string())
    };
    let path = with(path, 1_000_000_000, ["$ns", "$ne"]);
    let path = with(&path, 1_000_000, ["$us", "$ue"]);
    let path = path.replace("$ms", &(end * 1_000).to_string()).replace("$t", TRACE);
    let path = with(&path, 1, ["$s", "$e"]);
    let path = path.replace('{', "%7B").replace('}', "%7D").replace('"', "%22").replace('[', "%5B").replace(']', "%5D");
    match explain {
        Some(value) => format!("{path}{}explain={value}", if path.contains('?') { '&' } else { '?' }),
        None => path,
    }
}

fn message(fields: &[(u64, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, bytes) in fields {
        field(&mut out, *number, bytes);
    }
    out
}

/// A series of remote write with a sample, and an exemplar that names the trace; with the metric's metadata.
fn write_request() -> Vec<u8> {
    let label = |name: &str, value: &str| message(&[(1, name.as_bytes()), (2, value.as_bytes())]);
    let numbers = |value: f64, time_tag: u8| {
        let mut out = Vec::from([if time_tag == 0x10 { 0x09 } else { 0x11 }]);
        out.extend(value.to_le_bytes());
        out.push(time_tag);
        varint(&mut out, (NOON_S * 1000) as u64);
        out
    };
    let mut exemplar = message(&[(1, &label("trace_id", TRACE))]);
    exemplar.extend(numbers(0.25, 0x18));
    let mut series = message(&[(1, &label("__name__", "m_total")), (1, &label("job", "x"))]);
    field(&mut series, 2, &numbers(1.0, 0x10));
    field(&mut series, 3, &exemplar);
    let mut metadata = vec![0x08, 1];
    metadata.extend(message(&[(2, b"m_total"), (4, b"Help.")]));
    quiver_tests::bodies::compress(&message(&[(1, &series), (3, &metadata)]))
}

async fn fill(server: &Server) {
    server.write(write_request()).await;
    let line = json!({"_time": "2026-03-01T12:00:00Z", "_msg": "hello", "service.name": "front", "trace_id": TRACE});
    let answer = server.post("/insert/jsonline", &[], line.to_string().into_bytes()).await;
    assert!(answer.status < 300, "{}", answer.text());
    let attribute = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let start = NOON_S * 1_000_000_000;
    let span = |id: u8, parent: &str, kind: u8| {
        json!({"traceId": TRACE, "spanId": format!("{id:016x}"), "parentSpanId": parent, "name": format!("op {id}"),
            "kind": kind, "startTimeUnixNano": start.to_string(), "endTimeUnixNano": (start + 2_000_000).to_string(),
            "attributes": [attribute("peer.service", "back")]})
    };
    let spans = [span(1, "", 2), span(2, "0000000000000001", 3)];
    let resource = json!({"attributes": [attribute("service.name", "front"), attribute("host.name", "h1")]});
    let body = json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]});
    let headers = [("content-type", "application/json")];
    assert_eq!(server.post("/v1/traces", &headers, body.to_string().into_bytes()).await.status, 200);
    server.flush().await;
}

/// The plans of an explanation, in the order in which they run.
fn plans(shown: &Value) -> Vec<Value> {
    let root = shown.get("data").filter(|data| data.get("physical").is_some()).unwrap_or(shown);
    let root = root.get("explain").or_else(|| root.get("plan")).filter(|p| p.get("physical").is_some()).unwrap_or(root);
    let before = root["children"].as_array().cloned().unwrap_or_default();
    before.into_iter().chain([root.clone()]).collect()
}

fn digests(shown: &Value) -> Vec<String> {
    plans(shown).iter().filter_map(|plan| plan["digest"].as_str().map(str::to_owned)).collect()
}

async fn plans_made(server: &Server, language: &str) -> f64 {
    let name = format!("quiver_query_plans_total{{language=\"{language}\"}} ");
    let text = server.get("/metrics").await.text();
    let value = text.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or_else(|| panic!("no `{name}`"));
    value.parse().expect("a number")
}

/// Waits for a condition that follows an answer.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Logs the plans that run: those of requests, and none of what the server looks for in its own time.
fn logging(log: &Path) -> Options {
    let options = Options::default().env("RUST_LOG", "warn,quiver::plan=debug").log_to(log);
    options.env("QUIVER_RESOURCES__DISCOVERY_INTERVAL", "0s")
}

/// Digests that the server logged behind a place of its log.
fn logged(log: &Path, from: usize) -> BTreeSet<String> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let digest = |line: &str| Some(line.split("digest=").nth(1)?.trim_matches('"').get(..16)?.to_owned());
    text.get(from..).unwrap_or_default().lines().filter_map(digest).collect()
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/explain").join(format!("{name}.txt"))
}

/// What a reader sees of plans: the text of each, without what a run differs in from another.
fn readable(path: &str, shown: &Value) -> String {
    let mut out = format!("{path}\n");
    let all = plans(shown);
    for (at, plan) in all.iter().enumerate() {
        if all.len() > 1 {
            let _ = write!(out, "\nplan {} of {}\n", at + 1, all.len());
        }
        if plan["executed"] == true {
            out.push_str("executed: planning needs its rows\n");
        }
        let _ = write!(out, "\nlogical\n{}\n", plan["logical"].as_str().unwrap_or_default().trim_end());
        let _ = write!(out, "\nphysical\n{}\n", plan["physical"].as_str().unwrap_or_default().trim_end());
    }
    out
}

/// Says whether a plan is shown without having run: nothing is counted in it.
fn reads_nothing(plan: &Value) -> bool {
    let counts_none = |nodes: &Vec<Value>| nodes.iter().all(|node| node.get("rows").is_none());
    plan.get("totals").is_none() && plan["nodes"].as_array().is_none_or(counts_none)
}

async fn explained(server: &Server, path: &str, how: &str) -> Value {
    let answer: Answer = server.get(&url(path, Some(how))).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    let shown = answer.json();
    assert!(!digests(&shown).is_empty(), "{path}: no plan in {shown}");
    shown
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plan_that_is_shown_is_the_one_that_runs() {
    let dir = tempfile::tempdir().expect("a folder");
    let log = dir.path().join("log");
    let server = Server::start(&dir.path().join("data"), &logging(&log).env("QUIVER_QUERY__THREADS", 2)).await;
    fill(&server).await;
    let mut changed = Vec::new();
    for Route(name, path, language) in ROUTES {
        let shown = explained(&server, path, "true").await;
        // Only labels that are made of values must be known before there is a plan over them.
        let (ran, planned): (Vec<Value>, Vec<Value>) = plans(&shown).into_iter().partition(|p| p["executed"] == true);
        assert_eq!(!ran.is_empty(), *name == "query_count_values", "{path}: {shown}");
        assert!(planned.iter().all(reads_nothing), "{path}: {shown}");
        let (expected, file) = (digests(&shown), golden(name));
        let (before, from) =
            (plans_made(&server, language).await, std::fs::read_to_string(&log).map_or(0, |t| t.len()));
        let answer = server.get(&url(path, None)).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        until(&format!("{path}: no plan was made"), async || {
            (plans_made(&server, language).await > before).then_some(())
        })
        .await;
        let first = &expected[0];
        until(&format!("{path}: {first} is shown, but what ran is {:?}", logged(&log, from)), async || {
            logged(&log, from).contains(first).then_some(())
        })
        .await;
        let answered = logged(&log, from);
        let ran = explained(&server, path, "analyze").await;
        // Those that follow from the rows of the first, too.
        let analyzed: BTreeSet<String> = digests(&ran).into_iter().collect();
        assert_eq!(analyzed, answered, "{path}: analyze shows others than ran for the answer: {ran}");
        assert!(plans(&ran).last().is_some_and(|root| root["totals"].is_object()), "{path}: {ran}");
        let text = readable(path, &shown);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&file, text).expect("a file");
        } else if std::fs::read_to_string(&file).unwrap_or_default() != text {
            changed.push(format!("{}:\n{text}", file.display()));
        }
    }
    assert!(changed.is_empty(), "plans changed; look at them, then run with UPDATE=1:\n{}", changed.join("\n"));
    assert_eq!(server.stop(), Some(0));
}

/// An answer as values: a document, one for each line, or a text.
fn values(answer: &Answer) -> Value {
    let text = answer.text();
    let lines = || text.lines().map(serde_json::from_str::<Value>).collect::<Result<Value, _>>();
    serde_json::from_str(&text).or_else(|_| lines()).unwrap_or(Value::String(text))
}

/// What answers have in common: what differs, such as how long they took, is null.
fn common(one: &Value, other: &Value) -> Value {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            one.iter().filter_map(|(key, value)| Some((key.clone(), common(value, other.get(key)?)))).collect()
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            one.iter().zip(other).map(|(one, other)| common(one, other)).collect()
        }
        _ if one == other => one.clone(),
        _ => Value::Null,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_that_were_written_answer_the_same() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_QUERY__THREADS", 2);
    let server = Server::start(dir.path(), &options).await;
    fill(&server).await;
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(dir.path(), &options).await;
    let mut expected = Vec::new();
    for Route(_, path, _) in ROUTES {
        let shown = digests(&explained(&server, path, "true").await);
        let (first, second) = (server.get(&url(path, None)).await, server.get(&url(path, None)).await);
        assert_eq!(first.status, 200, "{path}: {}", first.text());
        let lasting = common(&values(&first), &values(&second));
        assert!(!lasting.is_null(), "{path}: each answer is another");
        expected.push((path, shown, lasting));
    }
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(dir.path(), &options.env("QUIVER_QUERY__THROUGH_CODEC", true)).await;
    for (path, shown, lasting) in expected {
        let found = server.get(&url(path, None)).await;
        assert_eq!(found.status, 200, "{path}: {}", found.text());
        assert_eq!(digests(&explained(&server, path, "true").await), shown, "{path}");
        assert_eq!(common(&values(&found), &lasting), lasting, "{path}");
    }
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_explanation_reads_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    fill(&server).await;
    assert_eq!(server.stop(), Some(0));
    // Nothing is in caches after a start.
    let server = Server::start(dir.path(), &Options::default()).await;
    for path in ["/traces/$t", "/traces?from=$ns&to=$ne", "/traces/operations?from=$ns&to=$ne&kind=client"] {
        let shown = explained(&server, path, "true").await;
        assert!(shown.get("totals").is_none(), "{shown}");
        assert!(plans(&shown).iter().all(|plan| plan.get("executed").is_none()), "{shown}");
        let ran = explained(&server, path, "analyze").await;
        let rows: u64 = plans(&ran).iter().filter_map(|plan| plan["nodes"][0]["rows"].as_u64()).sum();
        assert!(rows > 0, "{ran}");
    }
    // Its window ends now, so no two of its plans are the same.
    explained(&server, "/metrics-api/federate?match[]=m_total", "true").await;
    // What is wrong is said of an explanation, too.
    for path in [
        "/traces",
        "/metrics-api/api/v1/labels",
        "/metrics-api/api/v1/metadata",
        "/metrics-api/api/v1/query_exemplars?query=m_total",
        "/metrics-api/api/v1/status/tsdb",
        "/metrics-api/federate?match[]=m_total",
    ] {
        let path = format!("{path}{}explain=perhaps", if path.contains('?') { '&' } else { '?' });
        let refused = server.get(&path).await;
        assert_eq!(refused.status, 400, "{path}");
        assert!(refused.text().contains("`perhaps` is not one of true, analyze, false"), "{path}: {}", refused.text());
    }
    let refused = server.post("/metrics-api/api/v1/read?explain=perhaps", &[], read_request()).await;
    assert_eq!((refused.status, refused.text().starts_with("invalid parameter \"explain\"")), (400, true));
    assert_eq!(server.get("/traces?explain=true&sort=none").await.status, 400);
    assert_eq!(server.stop(), Some(0));
}

/// A remote read of all samples of `m_total`.
fn read_request() -> Vec<u8> {
    let mut query = vec![0x08];
    varint(&mut query, (NOON_S * 1000 - 60_000) as u64);
    query.push(0x10);
    varint(&mut query, (NOON_S * 1000 + 60_000) as u64);
    field(&mut query, 3, &message(&[(2, b"__name__"), (3, b"m_total")]));
    quiver_tests::bodies::compress(&message(&[(1, &query)]))
}

/// Asks, and waits until a plan is counted for it.
async fn counted(server: &Server, language: &str, asked: impl Future<Output = Answer>) -> Answer {
    let before = plans_made(server, language).await;
    let answer = asked.await;
    assert_eq!(answer.status, 200, "{language}: {}", answer.text());
    until(&format!("{language}: no plan was made"), async || {
        (plans_made(server, language).await > before).then_some(())
    })
    .await;
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_another_form_makes_plans() {
    let dir = tempfile::tempdir().expect("a folder");
    let log = dir.path().join("log");
    let server = Server::start(&dir.path().join("data"), &logging(&log)).await;
    fill(&server).await;
    let kind = [("content-type", "application/json")];
    let by_name = json!({"measures": ["Spans.count"], "dimensions": ["Spans.name"]});
    let load = json!({"query": by_name}).to_string().into_bytes();
    let drill = json!({"query": by_name, "measure": "Spans.count"}).to_string().into_bytes();
    // The plan that its own route shows is the one that runs.
    let shown = server.post("/olap-api/v1/explain", &kind, load.clone()).await.json();
    let digest = shown["digest"].as_str().unwrap_or_else(|| panic!("no digest in {shown}"));
    let from = std::fs::read_to_string(&log).map_or(0, |text| text.len());
    let loaded = counted(&server, "olap", server.post("/olap-api/v1/load", &kind, load)).await;
    assert!(loaded.text().contains("op 2"), "{}", loaded.text());
    until(&format!("{digest} is shown, but what ran is {:?}", logged(&log, from)), async || {
        logged(&log, from).contains(digest).then_some(())
    })
    .await;
    let drilled = counted(&server, "olap", server.post("/olap-api/v1/drill", &kind, drill)).await;
    assert!(drilled.text().contains("op 2"), "{}", drilled.text());
    let values = counted(&server, "olap", server.get("/olap-api/v1/meta/values?member=Spans.name")).await;
    assert!(values.text().contains("op 2"), "{}", values.text());
    let read = [("content-type", "application/x-protobuf"), ("content-encoding", "snappy")];
    counted(&server, "remote_read", server.post("/metrics-api/api/v1/read", &read, read_request())).await;
    counted(&server, "federation", server.get("/metrics-api/federate?match%5B%5D=m_total")).await;
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_makes_plans() {
    let dir = tempfile::tempdir().expect("a folder");
    let log = dir.path().join("log");
    let server = Server::start(&dir.path().join("data"), &logging(&log)).await;
    fill(&server).await;
    let from = std::fs::read_to_string(&log).map_or(0, |text| text.len());
    tokio::select! {
        answer = server.get("/select/logsql/tail?query=*") => panic!("the tail ended: {}", answer.text()),
        () = until("no plan of the tail ran", async || (!logged(&log, from).is_empty()).then_some(())) => {}
    }
    assert_eq!(server.stop(), Some(0));
}
