//! What clients of Prometheus ask about the server itself: rules, alerts, targets.
//!
//! Quiver scrapes nothing and sends to no Alertmanager, so the lists of targets are empty by nature. Source: Prometheus
//! 3.14 `web/api/v1/api.go` (`rules`, `alerts`, `targets`).

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::get;
use quiver_types::Result;
use serde_json::{Value, json};

use crate::encode::prometheus::{Envelope, error_response, success};
use crate::params::{Params, invalid};
use crate::state::AppState;

/// Routes of this family, below `/metrics-api`.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/api/v1/rules", get(rules))
        .route("/api/v1/alerts", get(async || constant(json!({"alerts": []}))))
        .route("/api/v1/targets", get(targets))
        .route("/api/v1/targets/metadata", get(async || constant(json!([]))))
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

/// Rules come with alerting; until then there is no group, and parameters are checked all the same.
async fn rules(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let checked = async {
        let params = Params::of(request, state.settings.form_bytes_max).await?;
        if let Some(other) = params.get("type").filter(|t| !matches!(t.to_lowercase().as_str(), "alert" | "record")) {
            return Err(invalid("type", &format!("not supported value {other:?}")));
        }
        crate::labels_api::selectors(&params)?;
        let token = params.get("group_next_token");
        match params.get("group_limit").map(str::parse::<i64>) {
            None if token.is_some() => {
                let text = "group_limit needs to be present in order to paginate over the groups";
                return Err(invalid("group_next_token", text));
            }
            Some(Err(_)) => return Err(invalid("group_limit", "group_limit needs to be a valid number")),
            Some(Ok(n)) if n <= 0 => return Err(invalid("group_limit", "group_limit needs to be greater than 0")),
            None | Some(Ok(_)) => {}
        }
        if let Some(token) = token {
            let text = format!("invalid group_next_token '{token}'. were rule groups changed?");
            return Err(invalid("group_next_token", &text));
        }
        Ok(json!({"groups": []}))
    };
    answer(checked.await, "/api/v1/rules")
}

async fn targets(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let checked = async {
        let params = Params::of(request, state.settings.form_bytes_max).await?;
        match params.get("state").map(str::to_lowercase).as_deref() {
            None | Some("active" | "dropped" | "any") => {}
            Some(other) => return Err(invalid("state", &format!("not supported value {other:?}"))),
        }
        Ok(json!({"activeTargets": [], "droppedTargets": [], "droppedTargetCounts": {}}))
    };
    answer(checked.await, "/api/v1/targets")
}
