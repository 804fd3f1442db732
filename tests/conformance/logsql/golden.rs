//! Rows, queries and results of our own, with the rows in three states, below HTTP.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quiver_ingest::logs::{FieldOptions, JsonLines, LogsContext, LogsLimits};
use quiver_logsql::request_params::{last_moment, time_param};
use quiver_logsql::{QueryScope, parse};
use quiver_query::{Limits, QueryContext};
use quiver_types::{Access, Clock, LogsBatch, SystemClock};
use serde_json::{Map, Value};

use super::world::{STATES, State, World};
use super::{Suite, Verdict, read, text};

/// The suites of this file.
pub(crate) fn suites(folder: &Path) -> Vec<Suite<'static>> {
    STATES
        .into_iter()
        .map(|state| {
            let world = World::with(dataset(&folder.join("golden/dataset.jsonl")), state);
            let name = match state {
                State::Live => "golden",
                State::Flushed => "golden_flushed",
                State::Compacted => "golden_compacted",
            };
            Suite {
                name,
                cases: read(&folder.join("golden/queries.jsonl")),
                run: Box::new(move |case: &Value| match &world {
                    Ok(world) => run(case, world),
                    Err(e) => Verdict::Failed(e.clone()),
                }),
            }
        })
        .collect()
}

fn dataset(path: &Path) -> Vec<LogsBatch> {
    let text = std::fs::read_to_string(path).expect("the dataset is text");
    let parameter = |name: &str| (name == "_stream_fields").then_some("app,env,host");
    let service: Arc<[String]> = Arc::new([]);
    let options = FieldOptions::read(parameter, |_| None, &service).expect("valid options");
    let now_ns = SystemClock.now_ms() * 1_000_000;
    let ctx = LogsContext {
        options: Arc::new(options),
        limits: LogsLimits::default(),
        now_ns,
        future_max_ns: i64::MAX,
        sender: None,
    };
    let mut batches = Vec::new();
    // Several batches, so that parts differ in what they hold.
    let lines: Vec<&str> = text.lines().collect();
    for lines in lines.chunks(700) {
        let mut decoder = JsonLines::new(&ctx);
        decoder.feed(lines.join("\n").as_bytes());
        decoder.finish();
        batches.extend(decoder.rows.take_all());
    }
    batches
}

type Row = Map<String, Value>;

fn ask(world: &World, query: &str, params: &Value) -> Result<Vec<Row>, String> {
    let query = parse(query).map_err(|e| e.to_string())?;
    let now_ns = SystemClock.now_ms() * 1_000_000;
    let time = |name: &str| params[name].as_str().and_then(|text| time_param(text, now_ns));
    let scope = QueryScope {
        now_ns: time("time").or(time("end")).unwrap_or(now_ns) - 1,
        start_ns: time("start"),
        end_ns: time("end").map(last_moment),
        extra: Vec::new(),
    };
    let limits = Limits { timeout: Duration::from_mins(5), ..Limits::default() };
    let ctx = QueryContext::new(Access::full(), limits).rehearsed(world.state == State::Flushed);
    let found =
        world.runtime.block_on(world.app.engines.logsql.collect(&query, &scope, &ctx)).map_err(|e| e.to_string())?;
    let mut all = Vec::new();
    for rows in found {
        for row in rows.to_texts().map_err(|e| e.to_string())? {
            let mut row: Row = row.into_iter().map(|(name, value)| (name, Value::String(value))).collect();
            if let Some(id) = row.get_mut("_stream_id") {
                *id = "<stream_id>".into();
            }
            if !row.is_empty() {
                all.push(row);
            }
        }
    }
    Ok(all)
}

fn run(case: &Value, world: &World) -> Verdict {
    let mut query = text(case, "query").to_owned();
    for (name, var) in case["vars"].as_object().into_iter().flatten() {
        match variable(world, var) {
            Ok(value) => query = query.replace(&format!("${name}"), &value),
            Err(e) => return Verdict::Failed(e),
        }
    }
    let found = ask(world, &query, &case["params"]);
    let compare = text(case, "compare");
    if compare == "error" {
        let optional = case["optional"].as_bool() == Some(true) || case["newer_rejects"].as_bool() == Some(true);
        return if found.is_err() || optional {
            Verdict::Passed
        } else {
            Verdict::Failed(format!("`{query}` is no error"))
        };
    }
    let found = match found {
        Ok(found) => found,
        Err(_) if case["newer_rejects"].as_bool() == Some(true) => return Verdict::Passed,
        Err(e) => return Verdict::Failed(format!("`{query}`: {e}")),
    };
    let expected: Vec<Row> = case
        .get("rows_newer")
        .unwrap_or(&case["rows"])
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
        .cloned()
        .collect();
    if compare == "subset" {
        if found.len() != expected.len() {
            return Verdict::Failed(format!("`{query}`: {} rows, expected {}", found.len(), expected.len()));
        }
        let whole = case["superset_query"].as_str().map(|q| ask(world, q, &case["params"]));
        return match whole {
            Some(Ok(whole)) if found.iter().any(|row| !whole.contains(row)) => {
                Verdict::Failed(format!("`{query}`: a row is not in the whole answer"))
            }
            Some(Err(e)) => Verdict::Failed(e),
            _ => Verdict::Passed,
        };
    }
    let (mut found, mut expected) = (prepared(found, case), prepared(expected, case));
    if compare == "multiset" {
        found.sort_by_key(|row| Value::Object(row.clone()).to_string());
        expected.sort_by_key(|row| Value::Object(row.clone()).to_string());
    }
    let tolerance = case["tolerance"].as_f64();
    let same = found.len() == expected.len() && found.iter().zip(&expected).all(|(a, b)| same_row(a, b, tolerance));
    if same {
        return Verdict::Passed;
    }
    let odd = found.iter().zip(&expected).find(|(a, b)| !same_row(a, b, tolerance));
    Verdict::Failed(format!("`{query}`: {} rows, expected {}; first odd pair {odd:?}", found.len(), expected.len()))
}

fn variable(world: &World, var: &Value) -> Result<String, String> {
    let query = parse(text(var, "query")).map_err(|e| e.to_string())?;
    let scope = QueryScope { now_ns: SystemClock.now_ms() * 1_000_000, ..QueryScope::default() };
    let ctx = QueryContext::new(Access::full(), Limits::default());
    let found =
        world.runtime.block_on(world.app.engines.logsql.collect(&query, &scope, &ctx)).map_err(|e| e.to_string())?;
    let rows = found.iter().flat_map(|rows| rows.to_texts().expect("texts"));
    let mut values = rows.flatten().filter(|(name, _)| name == text(var, "field")).map(|(_, value)| value);
    values.next().ok_or_else(|| "the variable has no value".to_owned())
}

/// JSON texts as the case compares them.
fn prepared(mut rows: Vec<Row>, case: &Value) -> Vec<Row> {
    let names = |key: &str| -> Vec<String> {
        case[key].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let parsed = |value: &Value| value.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    for row in &mut rows {
        for name in names("json_fields") {
            if let Some(value) = row.get(&name).and_then(parsed) {
                row.insert(name, value);
            }
        }
        for name in names("json_set_fields") {
            let Some(value) = row.get(&name) else { continue };
            // What was recorded is a list of JSON texts already.
            let recorded = value.is_array();
            let items = if recorded { Some(value.clone()) } else { parsed(value) };
            let mut texts: Vec<String> = items
                .as_ref()
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(|item| match item {
                    Value::String(text) if recorded => normal_text(text),
                    item => item.to_string(),
                })
                .collect();
            texts.sort();
            row.insert(name, Value::from(texts));
        }
    }
    rows
}

/// A JSON text in one spelling.
fn normal_text(text: &str) -> String {
    serde_json::from_str::<Value>(text).map_or_else(|_| text.to_owned(), |value| value.to_string())
}

fn same_row(a: &Row, b: &Row, tolerance: Option<f64>) -> bool {
    a.len() == b.len()
        && a.iter()
            .all(|(name, value)| b.get(name).is_some_and(|other| value == other || near(value, other, tolerance)))
}

fn near(a: &Value, b: &Value, tolerance: Option<f64>) -> bool {
    let number = |v: &Value| v.as_str().and_then(|text| text.parse::<f64>().ok());
    match (tolerance, number(a), number(b)) {
        (Some(tolerance), Some(x), Some(y)) => {
            (x - y).abs() <= tolerance * x.abs().max(y.abs()) || (x.is_nan() && y.is_nan())
        }
        _ => false,
    }
}
