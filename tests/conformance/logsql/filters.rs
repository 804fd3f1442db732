//! Filters over stored rows: row i is at second i of 1970, in the stream `job="foobar"`, `instance="host1:234"`.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use quiver_logsql::kernels::values::parse_rfc3339;
use quiver_logsql::{QueryScope, parse};
use quiver_query::{Limits, QueryContext};
use quiver_types::{Access, LabelSet, LogsBatch};
use serde_json::Value;

use super::world::{State, World};
use super::{Suite, Verdict, read, text};

/// The suites of this file: live and flushed rows.
pub(crate) fn suites(folder: &Path) -> Vec<Suite<'static>> {
    let suite = |name: &'static str, state: State| {
        let mut worlds: HashMap<String, World> = HashMap::new();
        Suite {
            name,
            cases: read(&folder.join("upstream/filters.jsonl")),
            run: Box::new(move |case: &Value| run(case, state, &mut worlds)),
        }
    };
    vec![suite("filters", State::Live), suite("filters_flushed", State::Flushed)]
}

fn run(case: &Value, state: State, worlds: &mut HashMap<String, World>) -> Verdict {
    let filter = text(case, "filter");
    if filter.contains("value_type") {
        return Verdict::Skipped("depends on the storage engine");
    }
    let key = case["columns"].to_string();
    if !worlds.contains_key(&key) {
        // Cases of one table stand together.
        worlds.clear();
        match World::with(vec![rows(&case["columns"])], state) {
            Ok(world) => _ = worlds.insert(key.clone(), world),
            Err(e) => return Verdict::Failed(e),
        }
    }
    let world = &worlds[&key];
    let query = match parse(&format!("{filter} | fields _time")) {
        Ok(query) => query,
        Err(e) => return Verdict::Failed(format!("`{filter}`: {e}")),
    };
    let limits = Limits { timeout: Duration::from_mins(5), ..Limits::default() };
    let ctx = QueryContext::new(Access::full(), limits).rehearsed(true);
    let scope = QueryScope { now_ns: i64::MAX / 2, ..QueryScope::default() };
    let found = match world.runtime.block_on(world.app.engines.logsql.collect(&query, &scope, &ctx)) {
        Ok(found) => found,
        Err(e) => return Verdict::Failed(format!("`{filter}`: {e}")),
    };
    let mut seconds: Vec<i64> = found
        .iter()
        .flat_map(|rows| rows.to_texts().expect("texts"))
        .map(|row| parse_rfc3339(&row[0].1).unwrap_or(-1) / 1_000_000_000)
        .collect();
    seconds.sort_unstable();
    let expected: Vec<i64> = case["expected_rows"].as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
    if seconds == expected {
        return Verdict::Passed;
    }
    Verdict::Failed(format!("`{filter}` over {}: rows {seconds:?}, expected {expected:?}", case["columns"]))
}

fn rows(columns: &Value) -> LogsBatch {
    let mut batch = LogsBatch { services: vec!["".into()], ..LogsBatch::default() };
    let labels = LabelSet::from_pairs([("instance", "host1:234"), ("job", "foobar")]);
    let stream = batch.push_stream(labels.canonical());
    let columns: Vec<(&str, Vec<&str>)> = columns
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, values)| {
            let name = if name.is_empty() { "_msg" } else { name.as_str() };
            (name, values.as_array().into_iter().flatten().map(|v| v.as_str().unwrap_or_default()).collect())
        })
        .collect();
    batch.names = columns.iter().map(|(name, _)| (*name).into()).chain(["instance".into(), "job".into()]).collect();
    let count = columns.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
    for row in 0..count {
        for (name, (_, values)) in columns.iter().enumerate() {
            if let Some(value) = values.get(row).filter(|value| !value.is_empty()) {
                batch.push_field(name as u32, value);
            }
        }
        for (i, value) in ["host1:234", "foobar"].into_iter().enumerate() {
            if !columns.iter().any(|(name, _)| *name == ["instance", "job"][i]) {
                batch.push_field((columns.len() + i) as u32, value);
            }
        }
        batch.end_row(row as i64 * 1_000_000_000, stream, 0, quiver_types::logs::RecordMarks::default());
    }
    batch
}
