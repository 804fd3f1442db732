//! The effective Apdex threshold (`config-api` 3.6).

use std::sync::Arc;

use axum::Router;
use axum::routing::MethodFilter;
use futures::future::BoxFuture;
use quiver_config::families::{APDEX_THRESHOLDS, RUM_TRANSACTIONS, TRANSACTIONS};
use quiver_config::{Problem, Result, must_have};
use quiver_types::{Domain, Right};
use serde_json::{Value, json};

use super::operation::special_at;
use super::request::Ask;
use super::response::Answer;
use crate::effects::query_configuration;
use crate::state::AppState;

pub(super) fn routes() -> Router<Arc<AppState>> {
    let at = format!("{}/effective", APDEX_THRESHOLDS.path);
    Router::new().route(&at, special_at(&APDEX_THRESHOLDS, MethodFilter::GET, effective))
}

fn effective<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&["service", "operation", "signal"])?;
        let service = ask.parameter("service")?.filter(|s| !s.is_empty());
        let service = service.ok_or_else(|| Problem::parameter("`service` is required"))?;
        must_have(&ask.caller, Right::View, Domain::Apdex, service)?;
        let signal = ask.parameter("signal")?.unwrap_or("service");
        if !matches!(signal, "service" | "rum") {
            return Err(Problem::parameter("`signal` must be service or rum"));
        }
        let operation = ask.parameter("operation")?;
        let judging = query_configuration::judging(&ask.config, signal == "rum").await?;
        // The given name may be that of an operation or of a transaction.
        let found = judging.threshold(service, operation, operation);
        let keys = if signal == "rum" { &RUM_TRANSACTIONS } else { &TRANSACTIONS };
        let family = if found.source == "keyTransaction" { keys } else { &APDEX_THRESHOLDS };
        // The threshold is shown even if the caller may not see its entity.
        let id = match found.id {
            Some(id) => {
                let entity = ask.config.find(family, id).await?;
                entity.filter(|e| family.is_visible(&ask.caller, e)).map_or(Value::Null, |e| json!(e.id))
            }
            None => Value::Null,
        };
        Ok(Answer::ok(json!({
            "thresholdMs": found.threshold_ms as i64, "source": found.source, "id": id,
            "errorsFrustrate": found.errors_frustrate,
        })))
    })
}
