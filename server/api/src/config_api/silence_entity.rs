//! Silences as configuration entities, and the history of their changes.

use quiver_alertd::router::SilenceDone;
use quiver_alerting::silences::Silence;
use quiver_config::families::SILENCES;
use quiver_config::json::time_text;
use quiver_config::{Caller, Entity, ExternalEntity};
use serde_json::json;

use crate::alerting::alerts::matcher_form::matchers_shown;
use crate::state::AppState;

const MS: i64 = 1_000_000;

/// A time in the format of entities.
pub(super) fn time(ns: i64) -> String {
    time_text(ns.div_euclid(MS))
}

/// A silence as an entity.
pub(super) fn entity(silence: &Silence, now: i64) -> Entity {
    let body = json!({
        "matchers": matchers_shown(silence), "startsAt": time(silence.starts_at), "endsAt": time(silence.ends_at),
        "comment": silence.comment, "description": silence.description, "labels": silence.labels,
        "state": silence.state(now).as_str(),
    });
    Entity::from(ExternalEntity {
        id: silence.id.clone(),
        version: silence.version,
        times_ms: (silence.created_at.div_euclid(MS), silence.updated_at.div_euclid(MS)),
        by: (silence.created_by.clone(), silence.updated_by.clone()),
        body: body.as_object().cloned().unwrap_or_default(),
    })
}

/// Notes changes in history and audit log. If that fails the changes stay in force.
pub(crate) async fn note(state: &AppState, caller: &Caller, all: &[SilenceDone]) {
    let now = state.alertd.router.now();
    let mut rows: Vec<(&'static str, Option<Entity>, Entity)> = Vec::new();
    for done in all.iter().filter(|done| done.changed()) {
        if let Some((was, is)) = &done.ended {
            rows.push(("DELETE", Some(entity(was, now)), entity(is, now)));
        }
        let is_over = done.after.ends_at <= now;
        let action = match &done.before {
            None => "CREATE",
            Some(_) if is_over => "DELETE",
            Some(_) => "UPDATE",
        };
        rows.push((action, done.before.as_ref().map(|s| entity(s, now)), entity(&done.after, now)));
    }
    for (action, before, after) in rows {
        if let Err(problem) = state.config.note_outside(&SILENCES, caller, action, (before.as_ref(), &after)).await {
            tracing::error!(id = after.id, cause = problem.cause, "a change of a silence cannot be noted");
        }
    }
}
