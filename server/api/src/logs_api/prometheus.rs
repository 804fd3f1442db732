//! `stats_query` and `stats_query_range`: results of `stats` in the form of the Prometheus API.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use quiver_logsql::ast::Query;
use quiver_logsql::kernels::values::parse_rfc3339;
use quiver_logsql::{StatsColumns, by_step, stats_columns};
use quiver_types::Result;
use serde_json::{Map, Value, json as value};

use super::{Ask, json};
use crate::error::plain_error;
use crate::state::AppState;

pub(super) async fn stats_query(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let asked = async {
        let ask = Ask::of(&state, request).await?;
        let columns = stats_columns(&ask.query)?;
        if let Some(plans) = ask.explained(&state, &ask.query).await? {
            return Ok(plans);
        }
        let mut result = Vec::new();
        each_value(&state, &ask, &ask.query, &columns, |metric, _, text| {
            result.push(value!({ "metric": metric, "value": [seconds(ask.time_ns), text] }));
        })
        .await?;
        Ok(success("vector", &result))
    };
    asked.await.unwrap_or_else(|e| plain_error(&e, "/select/logsql/stats_query"))
}

pub(super) async fn stats_query_range(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let asked = async {
        let ask = Ask::of(&state, request).await?;
        let (step_ns, step) = ask.step()?;
        let (query, columns) = by_step(ask.query.clone(), (step_ns, &step))?;
        if let Some(plans) = ask.explained(&state, &query).await? {
            return Ok(plans);
        }
        let mut series: BTreeMap<String, (Map<String, Value>, BTreeMap<i64, String>)> = BTreeMap::new();
        each_value(&state, &ask, &query, &columns, |mut metric, row, text| {
            metric.remove("_time");
            let time = row.iter().find(|(name, _)| name == "_time").and_then(|(_, text)| parse_rfc3339(text));
            if let Some(ns) = time {
                let key = Value::Object(metric.clone()).to_string();
                series.entry(key).or_insert_with(|| (metric, BTreeMap::new())).1.insert(ns, text.to_owned());
            }
        })
        .await?;
        let result: Vec<Value> = series
            .into_values()
            .map(|(metric, points)| {
                let values: Vec<Value> = points.into_iter().map(|(ns, text)| value!([seconds(ns), text])).collect();
                value!({ "metric": metric, "values": values })
            })
            .collect();
        Ok(success("matrix", &result))
    };
    asked.await.unwrap_or_else(|e| plain_error(&e, "/select/logsql/stats_query_range"))
}

/// Calls back for each result: its labels, its row, its text.
async fn each_value(
    state: &AppState,
    ask: &Ask,
    query: &Query,
    columns: &StatsColumns,
    mut call: impl FnMut(Map<String, Value>, &[(String, String)], &str),
) -> Result<()> {
    for rows in state.logsql.collect(query, &ask.scope, &ask.ctx).await? {
        for row in rows.to_texts()? {
            let text = |name: &str| row.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
            for name in &columns.values {
                let Some(result) = text(name) else { continue };
                let mut metric = Map::new();
                metric.insert("__name__".to_owned(), name.clone().into());
                for label in &columns.labels {
                    metric.insert(label.clone(), text(label).unwrap_or_default().into());
                }
                call(metric, &row, result);
            }
        }
    }
    Ok(())
}

/// Unix seconds; without a fraction where there is none.
fn seconds(ns: i64) -> Value {
    if ns % 1_000_000_000 == 0 { (ns / 1_000_000_000).into() } else { ((ns / 1_000_000) as f64 / 1e3).into() }
}

fn success(kind: &str, result: &[Value]) -> Response {
    json(value!({ "status": "success", "data": { "resultType": kind, "result": result } }).to_string())
}
