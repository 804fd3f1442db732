//! Health, own metrics, and operations that only an operator may perform (`guard` decides who that is).

mod queries;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{HeaderMap, StatusCode, header};
use quiver_store::BackupRequest;
use quiver_types::{Error, Result};
use serde::Deserialize;
use serde_json::json;

use crate::configuration_backup::SavedConfiguration;
use crate::encode::json::json_answer;
use crate::error::{plain, plain_error};
use crate::handlers::boxed;
use crate::params::{Params, invalid};
use crate::state::AppState;

/// Routes of this family.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/health/live", get(boxed(|| async { plain(StatusCode::OK, "live") })))
        .route("/health/ready", get(boxed(ready)))
        .route("/-/healthy", get(boxed(|| async { plain(StatusCode::OK, "OK") })))
        .route("/-/ready", get(boxed(ready_in_short)))
        // Where Vector looks before it sends to `/loki/api/v1/push`: Loki's place.
        .route("/ready", get(boxed(ready_in_short)))
        .route("/metrics", get(boxed(metrics)))
        .route("/admin/flush", post(boxed(flush)))
        .route("/admin/compact", post(boxed(compact)))
        .route("/admin/reload", post(boxed(reload)))
        .route("/admin/backup", post(boxed(backup)))
        .merge(queries::routes())
}

/// Says whether requests are served: after replay, until the server begins to stop.
pub(crate) async fn ready(State(state): State<Arc<AppState>>) -> Response {
    if state.process.stopping.load(Relaxed) {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "stopping");
    }
    if let Some(reason) = state.engines.store.trouble().await {
        return plain(StatusCode::SERVICE_UNAVAILABLE, &reason);
    }
    let mut notes = state.engines.store.notes();
    notes.extend(state.alertd.notes());
    // Not ill, but something that an operator should know.
    let told: String = notes.iter().flat_map(|note| ["\nnote: ", note.as_str()]).collect();
    plain(StatusCode::OK, format!("ready{told}"))
}

/// The same as Alertmanager says it, for clients that look for it at the root.
async fn ready_in_short(state: State<Arc<AppState>>) -> Response {
    let answer = ready(state).await;
    if answer.status() == StatusCode::OK { plain(StatusCode::OK, "OK") } else { answer }
}

async fn metrics(State(state): State<Arc<AppState>>) -> Response {
    let content_type = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (content_type, crate::metrics::exposition::text(&state)).into_response()
}

async fn flush(State(state): State<Arc<AppState>>) -> Response {
    done(state.engines.store.flush_all().await, "flushed", "/admin/flush")
}

async fn compact(State(state): State<Arc<AppState>>, RawQuery(query): RawQuery) -> Response {
    let store = &state.engines.store;
    let compacted = match is_forced(query.as_deref()) {
        Ok(true) => store.compact_all().await,
        Ok(false) => store.compact_due().await,
        Err(e) => return plain_error(&e, "/admin/compact"),
    };
    done(compacted, "compacted", "/admin/compact")
}

/// Whether `force` asks for a merge that is not due yet.
fn is_forced(query: Option<&str>) -> Result<bool> {
    let params = Params::read(&http::Method::GET, &HeaderMap::new(), query, b"")?;
    match params.one("force")? {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(invalid("force", "true or false")),
    }
}

/// Reads settings anew. All or nothing: with a setting that is not valid the old ones stay.
async fn reload(State(state): State<Arc<AppState>>) -> Response {
    // Reads files.
    let reloaded = tokio::task::spawn_blocking(move || state.reloader.reload()).await;
    match reloaded {
        Ok(Some(Ok(done))) => json_answer(&json!({"applied": done.applied, "needsRestart": done.needs_restart})),
        Ok(Some(Err(e))) => plain_error(&e, "/admin/reload"),
        Ok(None) => plain(StatusCode::NOT_IMPLEMENTED, "this server does not read settings anew"),
        Err(e) => plain_error(&Error::internal("a reload met a fault of ours").with_source(e), "/admin/reload"),
    }
}

/// What `POST /admin/backup` takes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BackupBody {
    to: String,
    keep: Option<usize>,
}

async fn backup(State(state): State<Arc<AppState>>, headers: HeaderMap, body: Bytes) -> Response {
    const ROUTE: &str = "/admin/backup";
    // A page in a browser on this machine can send a form here, but no JSON.
    let json = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
    if !json.is_some_and(|v| v.split(';').next().is_some_and(|v| v.trim().eq_ignore_ascii_case("application/json"))) {
        return plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "`Content-Type: application/json` is needed");
    }
    let request: BackupBody = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(e) => return plain_error(&Error::invalid(format!("a body like {{\"to\":\"…\"}} is needed: {e}")), ROUTE),
    };
    let is_relative = !request.to.contains("://") && !std::path::Path::new(&request.to).is_absolute();
    if is_relative && !request.to.is_empty() {
        // Below which folder this server runs is nothing that its callers know.
        let text = format!("`to` is `{}`; a folder of the server's machine is named by its whole path", request.to);
        return plain_error(&Error::invalid(text), ROUTE);
    }
    let configuration = SavedConfiguration { config: state.config.clone(), version: state.settings.version };
    let request = BackupRequest { to: request.to, keep: request.keep };
    match state.engines.store.backup_with(&request, Some(&configuration)).await {
        Ok(report) => axum::Json(report).into_response(),
        Err(e) => plain_error(&e, ROUTE),
    }
}

fn done(result: Result<()>, word: &str, route: &str) -> Response {
    match result {
        Ok(()) => plain(StatusCode::OK, word),
        Err(e) => plain_error(&e, route),
    }
}
