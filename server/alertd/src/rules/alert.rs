//! Converts an alert of a rule to the form that the router takes.

use std::sync::Arc;

use quiver_alerting::dispatch::Alert;
use quiver_alerting::rules::{ActiveAlert, AlertState, EvaluationSettings};
use quiver_alerting::template::query_escape;
use quiver_types::{LabelSet, Millis};

/// Makes what the router takes of an alert of a rule.
pub(super) fn to_router(
    alert: &ActiveAlert,
    expr: &str,
    setting: &EvaluationSettings,
    external_url: &str,
    now: i64,
) -> Alert {
    let ns = |ms: Millis| ms.saturating_mul(1_000_000);
    let external = setting.external_labels.iter().map(|(n, v)| (n.as_str(), v.as_str()));
    let lacking = external.filter(|(name, _)| alert.labels.get(name).is_empty());
    let labels = LabelSet::from_pairs(alert.labels.iter().filter(|(_, v)| !v.is_empty()).chain(lacking));
    let ends = match alert.state {
        AlertState::Inactive => alert.resolved_at,
        _ => alert.valid_until,
    };
    let annotations = if alert.annotations.values().any(String::is_empty) {
        let told = alert.annotations.iter().filter(|(_, text)| !text.is_empty());
        Arc::new(told.map(|(name, text)| (name.clone(), text.clone())).collect())
    } else {
        Arc::clone(&alert.annotations)
    };
    let starts_at = ns(alert.fired_at.unwrap_or(alert.active_at));
    Alert {
        labels,
        annotations,
        starts_at,
        ends_at: ends.map_or(starts_at, ns).max(starts_at),
        is_timeout: false,
        updated_at: now,
        generator_url: format!("{external_url}/graph?g0.expr={}&g0.tab=1", query_escape(expr)).into(),
    }
}
