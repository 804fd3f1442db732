//! Health, own metrics, and what only an operator may do (`guard` says who that is).

mod queries;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{StatusCode, header};
use quiver_types::{Error, Result};
use serde_json::json;

use crate::error::{plain, plain_error};
use crate::params::Params;
use crate::state::AppState;

/// Routes of this family.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/health/live", get(|| async { plain(StatusCode::OK, "live") }))
        .route("/health/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/admin/flush", post(flush))
        .route("/admin/compact", post(compact))
        .route("/admin/reload", post(reload))
        .merge(queries::routes())
}

/// Says whether requests are served: after replay, until the server begins to stop.
pub(crate) async fn ready(State(state): State<Arc<AppState>>) -> Response {
    if state.stopping.load(Relaxed) {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "stopping");
    }
    if let Some(reason) = state.store.trouble().await {
        return plain(StatusCode::SERVICE_UNAVAILABLE, &reason);
    }
    plain(StatusCode::OK, "ready")
}

async fn metrics(State(state): State<Arc<AppState>>) -> Response {
    let content_type = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (content_type, crate::metrics::exposition(&state)).into_response()
}

async fn flush(State(state): State<Arc<AppState>>) -> Response {
    done(state.store.flush_all().await, "flushed", "/admin/flush")
}

async fn compact(State(state): State<Arc<AppState>>, RawQuery(query): RawQuery) -> Response {
    let params = Params::read(&http::Method::GET, &http::HeaderMap::new(), query.as_deref(), b"");
    let force = match params.as_ref().map(|p| p.get("force")) {
        Ok(None | Some("false")) => false,
        Ok(Some("true")) => true,
        _ => return plain_error(&Error::invalid("invalid parameter `force`: true or false"), "/admin/compact"),
    };
    done(state.store.compact_all(force).await, "compacted", "/admin/compact")
}

/// Reads settings anew. All or nothing: with a setting that is not valid the old ones stay.
async fn reload(State(state): State<Arc<AppState>>) -> Response {
    // Reads files.
    let reloaded = tokio::task::spawn_blocking(move || state.reloader.reload()).await;
    match reloaded {
        Ok(Some(Ok(done))) => {
            let body = json!({"applied": done.applied, "needsRestart": done.needs_restart});
            ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
        }
        Ok(Some(Err(e))) => plain_error(&e, "/admin/reload"),
        Ok(None) => plain(StatusCode::NOT_IMPLEMENTED, "this server does not read settings anew"),
        Err(e) => plain_error(&Error::internal("a reload met a fault of ours").with_source(e), "/admin/reload"),
    }
}

fn done(result: Result<()>, word: &str, route: &str) -> Response {
    match result {
        Ok(()) => plain(StatusCode::OK, word),
        Err(e) => plain_error(&e, route),
    }
}
