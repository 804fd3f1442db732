//! What clients of Prometheus ask about the server itself: rules, alerts, targets.
//!
//! Quiver scrapes nothing and sends to no Alertmanager, so the lists of targets are empty by nature. Source: Prometheus
//! 3.14 `web/api/v1/api.go` (`rules`, `alerts`, `targets`).

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::get;
use quiver_promql::parser::parse_selectors;
use quiver_query::Pace;
use quiver_types::{Error, ErrorKind, Result};
use serde_json::{Value, json};

use crate::encode::prometheus::{Envelope, error_response, success};
use crate::labels_api::selectors;
use crate::metrics::phases::Language;
use crate::params::{Params, invalid};
use crate::state::AppState;

/// Routes of this family, below `/metrics-api`.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/api/v1/rules", get(rules))
        .route("/api/v1/alerts", get(async || constant(json!({"alerts": []}))))
        .route("/api/v1/targets", get(targets))
        .route("/api/v1/targets/metadata", get(target_metadata))
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
        let params = Params::of(&state, request).await?;
        check_selectors(&state, &params).await?;
        if let Some(other) = params.get("type").filter(|t| !matches!(t.to_lowercase().as_str(), "alert" | "record")) {
            return Err(invalid("type", &format!("not supported value {other:?}")));
        }
        if let Some(text) = params.get("exclude_alerts").map(str::to_lowercase)
            && !matches!(text.as_str(), "1" | "t" | "true" | "0" | "f" | "false")
        {
            let text = format!("error converting exclude_alerts: strconv.ParseBool: parsing {text:?}: invalid syntax");
            return Err(invalid("exclude_alerts", &text));
        }
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

async fn check_selectors(state: &AppState, params: &Params) -> Result<()> {
    let ctx = state.context(Language::Series);
    let (params, inner) = (params.clone(), ctx.clone());
    state.engine.run(&ctx, async move { selectors(&params, &inner).map(drop) }).await
}

/// There is no target, so there is no metadata of any; parameters are checked all the same.
async fn target_metadata(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let checked = async {
        let params = Params::of(&state, request).await?;
        if params.get("limit").is_some_and(|text| text.parse::<i64>().is_err()) {
            return Err(Error::invalid("limit must be a number"));
        }
        if let Some(text) = params.get("match_target").map(str::to_owned) {
            let ctx = state.context(Language::Series);
            let pace = Pace::new(&ctx, "query preparation");
            let read = async move { parse_selectors([text.as_str()], Some(&pace)).map(drop).map_err(Error::from) };
            state.engine.run(&ctx, read).await.map_err(|e| match e.kind {
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
        match params.get("state").map(str::to_lowercase).as_deref() {
            None | Some("active" | "dropped" | "any") => {}
            Some(other) => return Err(invalid("state", &format!("not supported value {other:?}"))),
        }
        Ok(json!({"activeTargets": [], "droppedTargets": [], "droppedTargetCounts": {}}))
    };
    answer(checked.await, "/api/v1/targets")
}
