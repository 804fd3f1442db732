//! Lists the running queries, and cancels one of them.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::{delete, get, post};
use chrono::{DateTime, SecondsFormat};
use http::StatusCode;
use quiver_query::Query;
use quiver_types::read_stats;
use serde_json::{Value, json};

use crate::encode::json::json_answer;
use crate::error::plain;
use crate::handlers::boxed;
use crate::state::AppState;

pub(super) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/admin/queries", get(boxed(list)))
        .route("/admin/queries/{id}", delete(boxed(cancel)))
        .route("/admin/queries/{id}/cancel", post(boxed(cancel)))
}

async fn list(State(state): State<Arc<AppState>>) -> Response {
    let shown: Vec<Value> = state.engines.query.running().list().iter().map(|query| show(&state, query)).collect();
    json_answer(&json!({"queries": shown}))
}

fn show(state: &AppState, query: &Query) -> Value {
    let (asked, elapsed) = (&query.asked, query.began.elapsed());
    let started_ms = state.clock.now_ms().saturating_sub(elapsed.as_millis() as i64);
    let started = DateTime::from_timestamp_millis(started_ms);
    let (memory, memory_peak) = query.memory();
    json!({
        "id": query.id.to_string(),
        "requestId": asked.request_id,
        "language": asked.language,
        "query": asked.text,
        "times": asked.times,
        "started": started.map(|t| t.to_rfc3339_opts(SecondsFormat::Millis, true)),
        "elapsedMs": elapsed.as_micros() as f64 / 1e3,
        "phase": query.phase().word(),
        "standing": asked.standing,
        "memoryBytes": memory,
        "memoryPeakBytes": memory_peak,
        "samples": read_stats::get(&query.stats.samples),
        "values": read_stats::get(&query.stats.values),
        "bytesRead": read_stats::get(&query.stats.bytes_read),
        "path": asked.path,
        "peer": asked.peer.map(|peer| peer.to_string()),
        "caller": asked.caller,
        "cancelled": query.is_stopped(),
    })
}

async fn cancel(State(state): State<Arc<AppState>>, Path(id): Path<String>) -> Response {
    let Some(query) = id.parse().ok().and_then(|id| state.engines.query.running().cancel(id)) else {
        return plain(StatusCode::NOT_FOUND, format!("no query `{id}` is under way"));
    };
    let asked = &query.asked;
    tracing::info!(query_id = query.id, cancelled_request_id = %asked.request_id, "an operator ended a query");
    json_answer(&json!({"id": query.id.to_string(), "requestId": asked.request_id, "cancelled": true}))
}
