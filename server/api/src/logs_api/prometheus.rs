//! `stats_query` and `stats_query_range`: results of `stats` in the form of the Prometheus API.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use quiver_logsql::ast::Query;
use quiver_logsql::kernels::values::{parse_rfc3339, push_json_string};
use quiver_logsql::{StatsColumns, by_step, stats_columns};
use quiver_types::Result;
use quiver_types::logs::TIME;

use super::Ask;
use super::answer::{self, ENTRY_BYTES, text_bytes};
use crate::error::plain_error;
use crate::state::AppState;

/// A series: which result it is, and the values of its labels.
type Key = (usize, Vec<String>);

pub(super) async fn stats_query(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let asked = async {
        let ask = Ask::of(&state, request).await?;
        let columns = stats_columns(&ask.query)?;
        if let Some(plans) = ask.explained(&state, &ask.query).await? {
            return Ok(plans);
        }
        let memory = state.logsql.collected("series", &ask.ctx);
        let mut result: Vec<(Key, String)> = Vec::new();
        each_value(&state, &ask, &ask.query, &columns, |key, _, text| {
            memory.add(key_bytes(&key) + text_bytes(text))?;
            result.push((key, text.to_owned()));
            Ok(())
        })
        .await?;
        let at = seconds(ask.time_ns);
        let item = move |(key, text): (Key, String)| {
            let mut out = metric(&columns, &key);
            let _ = write!(out, ",\"value\":[{at},");
            push_json_string(&mut out, &text);
            out.push_str("]}");
            out
        };
        Ok(answer::list(VECTOR, result.into_iter().map(item), END, memory))
    };
    asked.await.unwrap_or_else(|e| plain_error(&e, "/select/logsql/stats_query"))
}

pub(super) async fn stats_query_range(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let asked = async {
        let ask = Ask::of(&state, request).await?;
        let ((step_ns, step), offset) = (ask.step()?, ask.offset()?);
        let offset = offset.as_ref().map(|(ns, text)| (*ns, text.as_str()));
        let (query, mut columns) = by_step(ask.query.clone(), (step_ns, &step), offset)?;
        if let Some(plans) = ask.explained(&state, &query).await? {
            return Ok(plans);
        }
        // The time is no label of a series over time.
        columns.labels.retain(|label| label != TIME);
        let memory = state.logsql.collected("series", &ask.ctx);
        let mut series: BTreeMap<Key, BTreeMap<i64, String>> = BTreeMap::new();
        each_value(&state, &ask, &query, &columns, |key, time, text| {
            let Some(ns) = time else { return Ok(()) };
            if !series.contains_key(&key) {
                memory.add(key_bytes(&key))?;
            }
            // The point, and its text when the series is written.
            memory.add(2 * text_bytes(text))?;
            series.entry(key).or_default().insert(ns, text.to_owned());
            Ok(())
        })
        .await?;
        let item = move |(key, points): (Key, BTreeMap<i64, String>)| {
            let mut out = metric(&columns, &key);
            out.push_str(",\"values\":[");
            for (i, (ns, text)) in points.iter().enumerate() {
                let _ = write!(out, "{}[{},", if i > 0 { "," } else { "" }, seconds(*ns));
                push_json_string(&mut out, text);
                out.push(']');
            }
            out.push_str("]}");
            out
        };
        Ok(answer::list(MATRIX, series.into_iter().map(item), END, memory))
    };
    asked.await.unwrap_or_else(|e| plain_error(&e, "/select/logsql/stats_query_range"))
}

/// Calls back for each result: its series, its time, its text.
async fn each_value(
    state: &AppState,
    ask: &Ask,
    query: &Query,
    columns: &StatsColumns,
    mut call: impl FnMut(Key, Option<i64>, &str) -> Result<()>,
) -> Result<()> {
    let (mut labels, mut values) =
        (vec![String::new(); columns.labels.len()], vec![String::new(); columns.values.len()]);
    let read = state.logsql.each_row(query, &ask.scope, &ask.ctx, |row| {
        labels.iter_mut().chain(&mut values).for_each(String::clear);
        let mut time = None;
        for (name, value) in row {
            if name == TIME {
                time = parse_rfc3339(value);
            }
            if let Some(i) = columns.labels.iter().position(|label| label == name) {
                labels[i].push_str(value);
            }
            if let Some(i) = columns.values.iter().position(|own| own == name) {
                values[i].push_str(value);
            }
        }
        // A result without a value, as `min` of a field that no row has, is an empty text.
        values.iter().enumerate().try_for_each(|(i, value)| call((i, labels.clone()), time, value))
    });
    read.await
}

fn key_bytes((_, labels): &Key) -> usize {
    ENTRY_BYTES + labels.iter().map(|label| text_bytes(label)).sum::<usize>()
}

/// `{"metric":{..}`.
fn metric(columns: &StatsColumns, (value, labels): &Key) -> String {
    let mut out = String::from("{\"metric\":{\"__name__\":");
    push_json_string(&mut out, &columns.values[*value]);
    for (name, label) in columns.labels.iter().zip(labels) {
        out.push(',');
        push_json_string(&mut out, name);
        out.push(':');
        push_json_string(&mut out, label);
    }
    out.push('}');
    out
}

/// Unix seconds; without a fraction where there is none.
fn seconds(ns: i64) -> String {
    if ns % 1_000_000_000 == 0 { (ns / 1_000_000_000).to_string() } else { ((ns / 1_000_000) as f64 / 1e3).to_string() }
}

const VECTOR: &str = "{\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[";
const MATRIX: &str = "{\"status\":\"success\",\"data\":{\"resultType\":\"matrix\",\"result\":[";
const END: &str = "]}}";
