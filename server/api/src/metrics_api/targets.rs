//! Target endpoints of Prometheus.
//!
//! Quiver scrapes nothing and sends to no Alertmanager, so the lists of targets are always empty. Source: Prometheus
//! 3.14 `web/api/v1/api.go` (`targets`).

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::get;
use quiver_promql::parser::parse_selectors;
use quiver_promql::query::TREE_BYTES;
use quiver_query::Pace;
use quiver_types::{Error, ErrorKind, Result};
use serde_json::{Value, json};

use crate::encode::prometheus::{Envelope, error_response, success};
use crate::handlers::boxed;
use crate::metrics::phases::Language;
use crate::params::{Params, invalid};
use crate::state::AppState;

/// Routes of this family, below `/metrics-api`.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/api/v1/targets", get(boxed(targets)))
        .route("/api/v1/targets/metadata", get(boxed(target_metadata)))
        .route(
            "/api/v1/alertmanagers",
            get(async || constant(json!({"activeAlertmanagers": [], "droppedAlertmanagers": []}))),
        )
}

fn constant(data: Value) -> Response {
    success(&Envelope::default(), data.to_string().as_bytes())
}

fn answer(data: Result<Value>, route: &str) -> Response {
    match data {
        Ok(data) => success(&Envelope::default(), data.to_string().as_bytes()),
        Err(e) => error_response(&e, route),
    }
}

/// There are no targets, so no metadata; parameters are checked all the same.
async fn target_metadata(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let checked = async {
        let params = Params::of(&state, request).await?;
        if params.get("limit").is_some_and(|text| text.parse::<i64>().is_err()) {
            return Err(Error::invalid("limit must be a number"));
        }
        if let Some(text) = params.get("match_target").map(str::to_owned) {
            let ctx = state.context(Language::Series);
            let _text = state.engines.promql.reserve_text(&text, TREE_BYTES, &ctx)?;
            let pace = Pace::new(&ctx, "query preparation");
            let read = async move { parse_selectors([text.as_str()], Some(&pace)).map(drop).map_err(Error::from) };
            state.engines.query.run(&ctx, read).await.map_err(|e| match e.kind {
                ErrorKind::Invalid => invalid("match_target", &e.message),
                _ => e,
            })?;
        }
        Ok(json!([]))
    };
    answer(checked.await, "/api/v1/targets/metadata")
}

async fn targets(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let checked = async {
        let params = Params::of(&state, request).await?;
        // As in Prometheus: any other state shows nothing, and the count of dropped targets is present only if they
        // are shown.
        let counts = match params.get("state").map(str::to_lowercase).as_deref() {
            None | Some("" | "dropped" | "any") => json!({}),
            Some(_) => Value::Null,
        };
        Ok(json!({"activeTargets": [], "droppedTargets": [], "droppedTargetCounts": counts}))
    };
    answer(checked.await, "/api/v1/targets")
}
