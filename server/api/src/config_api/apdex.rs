//! Which Apdex threshold counts (`config-api` 3.6).

use std::sync::Arc;

use axum::Router;
use axum::routing::MethodFilter;
use futures::future::BoxFuture;
use quiver_config::families::{APDEX_THRESHOLDS, RUM_MS, RUM_TRANSACTIONS, SERVICE_MS, TRANSACTIONS};
use quiver_config::{Entity, Problem, Result, must_have};
use quiver_types::condition::Glob;
use quiver_types::{Domain, Right};
use serde_json::{Value, json};

use super::{Answer, Ask, special_at};
use crate::state::AppState;

pub(super) fn routes() -> Router<Arc<AppState>> {
    let at = format!("{}/effective", APDEX_THRESHOLDS.path);
    Router::new().route(&at, special_at(&APDEX_THRESHOLDS, MethodFilter::GET, effective))
}

/// A threshold that counts, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Threshold {
    pub(crate) threshold_ms: i64,
    pub(crate) errors_frustrate: bool,
    pub(crate) source: &'static str,
    pub(crate) id: Option<String>,
}

fn text<'a>(entity: &'a Entity, key: &str) -> &'a str {
    entity.body.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Says whether a name is the one given, or fits it as a pattern.
pub(super) fn names(pattern: &str, name: &str) -> bool {
    pattern == name || pattern.contains(['*', '{']) && Glob::parse(pattern, false).is_ok_and(|g| g.matches(name))
}

/// Finds the most specific threshold: key transaction, operation, service, `*`, built in.
pub(crate) fn find(
    thresholds: &[Entity],
    transactions: &[Entity],
    signal: &str,
    service: &str,
    operation: Option<&str>,
) -> Threshold {
    let of = |entity: &Entity, key: &str, source| {
        let ms = entity.body.get(key).and_then(Value::as_i64)?;
        let errors_frustrate = entity.body.get("errorsFrustrate") != Some(&Value::Bool(false));
        Some(Threshold { threshold_ms: ms, errors_frustrate, source, id: Some(entity.id.clone()) })
    };
    let owner = if signal == "rum" { "application" } else { "service" };
    let key = operation.and_then(|operation| {
        let fits = |e: &&Entity| text(e, owner) == service && names(text(e, "transactionName"), operation);
        let enabled = |e: &&Entity| e.body.get("enabled") == Some(&Value::Bool(true));
        transactions.iter().filter(enabled).filter(fits).find_map(|e| of(e, "apdexThresholdMs", "keyTransaction"))
    });
    let own = |name: &str, source, wanted: &dyn Fn(&str) -> bool| {
        let fits =
            |e: &&Entity| text(e, "signal") == signal && text(e, "service") == name && wanted(text(e, "operation"));
        // Of several patterns the longest says most.
        let best = thresholds.iter().filter(fits).max_by_key(|e| text(e, "operation").len());
        best.and_then(|e| of(e, "thresholdMs", source))
    };
    let fits = |pattern: &str| !pattern.is_empty() && operation.is_some_and(|o| names(pattern, o));
    key.or_else(|| own(service, "operation", &fits))
        .or_else(|| own(service, "service", &str::is_empty))
        .or_else(|| own("*", "operation", &fits))
        .or_else(|| own("*", "default", &str::is_empty))
        .unwrap_or_else(|| {
            let threshold_ms = if signal == "rum" { RUM_MS } else { SERVICE_MS };
            Threshold { threshold_ms, errors_frustrate: true, source: "builtin", id: None }
        })
}

impl Ask {
    /// The threshold of a service or an operation of it.
    pub(crate) async fn threshold(&self, signal: &str, service: &str, operation: Option<&str>) -> Result<Threshold> {
        let thresholds = self.config.all(&APDEX_THRESHOLDS).await?;
        let keys = if signal == "rum" { &RUM_TRANSACTIONS } else { &TRANSACTIONS };
        let transactions = self.config.all(keys).await?;
        let mut found = find(&thresholds, &transactions, signal, service, operation);
        // The threshold is told also where its entity is not.
        let family = if found.source == "keyTransaction" { keys } else { &APDEX_THRESHOLDS };
        let entity = thresholds.iter().chain(&transactions).find(|e| Some(&e.id) == found.id.as_ref());
        if entity.is_some_and(|e| !family.is_visible(&self.caller, e)) {
            found.id = None;
        }
        Ok(found)
    }
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
        let found = ask.threshold(signal, service, ask.parameter("operation")?).await?;
        Ok(Answer::ok(json!({
            "thresholdMs": found.threshold_ms, "source": found.source, "id": found.id,
            "errorsFrustrate": found.errors_frustrate,
        })))
    })
}
