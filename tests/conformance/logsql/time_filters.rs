//! Time filters over stored rows, in all states of the rows.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use quiver_logsql::ast::{Filter, Query, TimeFilter};
use quiver_logsql::kernels::values::parse_rfc3339;
use quiver_logsql::{QueryScope, parse};
use quiver_query::{Limits, QueryContext};
use quiver_types::{Access, LabelSet, LogsBatch};
use serde_json::Value;

use super::world::{STATES, State, World};
use super::{Suite, Verdict, read};

/// The suites of this file.
pub(crate) fn suites(folder: &Path) -> Vec<Suite<'static>> {
    let suite = |state: State| {
        let mut worlds: HashMap<String, World> = HashMap::new();
        Suite {
            name: match state {
                State::Live => "time_filters",
                State::Flushed => "time_filters_flushed",
                State::Compacted => "time_filters_compacted",
            },
            cases: read(&folder.join("upstream/time_filters.jsonl")),
            run: Box::new(move |case: &Value| match run(case, state, &mut worlds) {
                Ok(()) => Verdict::Passed,
                Err(e) => Verdict::Failed(format!("{} {}: {e}", case["filter"], case["filter_struct"])),
            }),
        }
    };
    STATES.into_iter().map(suite).collect()
}

fn run(case: &Value, state: State, worlds: &mut HashMap<String, World>) -> Result<(), String> {
    let times: Vec<i64> = case["timestamps_ns"].as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
    let key = format!("{times:?}");
    if !worlds.contains_key(&key) {
        worlds.clear();
        worlds.insert(key.clone(), World::with(vec![rows(&times)], state)?);
    }
    let world = &worlds[&key];
    let mut query =
        parse(&format!("{} | fields _time", case["filter"].as_str().unwrap_or("*"))).map_err(|e| e.to_string())?;
    let mut queries = vec![query.clone()];
    if let Some(filter) = of_struct(&case["filter_struct"]) {
        query.filter = Filter::Time(filter);
        // The reference's own form of the filter, whether there is a text for it or not.
        queries.push(query);
        queries.retain(|q| case["filter"].is_string() || q.filter != Filter::All);
    }
    let expected: Vec<i64> = case["expected_rows"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|row| times.get(row.as_u64()? as usize).copied())
        .collect();
    for query in &queries {
        let found = ask(world, query)?;
        if found != expected {
            return Err(format!("`{query}` selects {found:?}, expected {expected:?}"));
        }
    }
    Ok(())
}

/// The filter that the case's structure describes. The sign of `offset` there is the older one.
fn of_struct(filter: &Value) -> Option<TimeFilter> {
    let number = |name: &str| filter[name].as_i64().unwrap_or(0);
    let (offset_ns, text) = (-number("offset"), filter.to_string());
    match super::text(filter, "$type") {
        "filterDayRange" => {
            Some(TimeFilter::DayRange { start_ns: number("start"), end_ns: number("end"), offset_ns, text })
        }
        "filterWeekRange" => Some(TimeFilter::WeekRange {
            first_day: number("startDay") as u8,
            last_day: number("endDay") as u8,
            offset_ns,
            text,
        }),
        _ => None,
    }
}

fn ask(world: &World, query: &Query) -> Result<Vec<i64>, String> {
    let ctx = QueryContext::new(Access::full(), Limits { timeout: Duration::from_mins(5), ..Limits::default() });
    let scope = QueryScope { now_ns: i64::MAX / 2, ..QueryScope::default() };
    let found =
        world.runtime.block_on(world.app.engines.logsql.collect(query, &scope, &ctx)).map_err(|e| e.to_string())?;
    let mut times: Vec<i64> = found
        .iter()
        .flat_map(|rows| rows.to_texts().expect("texts"))
        .filter_map(|row| parse_rfc3339(&row[0].1))
        .collect();
    times.sort_unstable();
    Ok(times)
}

fn rows(times: &[i64]) -> LogsBatch {
    let mut batch = LogsBatch { services: vec!["".into()], names: vec!["_msg".into()], ..LogsBatch::default() };
    let stream = batch.push_stream(LabelSet::from_pairs([("job", "foobar")]).canonical());
    for time in times {
        batch.push_field(0, "m");
        batch.end_row(*time, stream, 0, quiver_types::logs::RecordMarks::default());
    }
    batch
}
