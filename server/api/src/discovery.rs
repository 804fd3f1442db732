//! Discovers resources in telemetry (`config-api` 4). The rules of resource types are applied to the distinct resources
//! that arrived since the last run, never to rows. What is found creates entities and relationships, or marks them as
//! still alive.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use quiver_config::families::{RELATIONSHIPS, RESOURCES};
use quiver_config::{Caller, ChangeMode, Condition as If, Op, Place, ResourceSighting, Result, ServiceAlerts, System};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::state::AppState;
use derivation::{DerivedResources, Key};
use inventory::{InventorySnapshot, KnownResource, by_id, kept_of};

mod derivation;
mod health;
mod inventory;
mod probe_queries;
mod probes;

pub(crate) use probe_queries::number;
pub(crate) use probes::identity_of;

/// How far a run reaches back before the last one, since telemetry may arrive late.
const LATE_MS: i64 = 120_000;
/// How far the first run reaches back.
const FIRST_MS: i64 = 15 * 60_000;
/// A resource's `lastSeen` is written when it is older than this.
const SEEN_MS: i64 = 60_000;
/// A discovered resource without telemetry for this long is inactive.
const INACTIVE_MS: i64 = 24 * 3_600_000;
/// The health of a resource without telemetry for this long is unknown.
const UNKNOWN_MS: i64 = 15 * 60_000;
/// Most resources that are read from the database at once.
const READ_AT_ONCE: usize = 500;

/// Runs discovery periodically until the server stops.
pub fn follow(state: Arc<AppState>, every: Duration, stop: CancellationToken) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        if every.is_zero() {
            return;
        }
        let (mut known, mut since) = (InventorySnapshot::default(), state.clock.now_ms() - FIRST_MS);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(every) => {}
            }
            let now = state.clock.now_ms();
            match discover(&state, &mut known, since - LATE_MS, now).await {
                Ok(()) => since = now,
                Err(problem) => tracing::warn!(cause = problem.cause, "resources cannot be discovered: {problem}"),
            }
        }
    })
}

async fn discover(state: &AppState, known: &mut InventorySnapshot, since_ms: i64, now_ms: i64) -> Result<()> {
    known.refresh(state).await?;
    let probes = probes::of_types(&known.types);
    let mut found = DerivedResources::default();
    for probe in &probes {
        probe_queries::run(state, probe, (since_ms, now_ms), &mut found).await?;
    }
    probe_queries::edges(state, (since_ms, now_ms), &mut found).await?;
    take_in(state, known, &found, now_ms).await?;
    ask_others(state, known, &found, now_ms).await?;
    let healths = keep_alive(state, known, &found, now_ms).await?;
    health::note(state, known, &healths, now_ms).await;
    Ok(())
}

/// Resources that this server would mark as inactive.
fn given_up(known: &InventorySnapshot, found: &DerivedResources, now_ms: i64) -> Vec<String> {
    let is_given_up = |kept: &KnownResource| {
        let is_silent = |for_ms: i64| kept.seen_ms.is_none_or(|last| now_ms - last >= for_ms);
        let is_unknown = kept.health != "unknown" && is_silent(UNKNOWN_MS);
        let is_gone = kept.is_discovered && kept.state == "active" && is_silent(INACTIVE_MS);
        kept.state != "retired" && (is_unknown || is_gone)
    };
    let silent = known.by_key.iter().filter(|&(key, kept)| !found.resources.contains_key(key) && is_given_up(kept));
    silent.map(|(_, kept)| kept.id.clone()).collect()
}

/// Reads those resources again: other servers on the same database may have received their telemetry, and note that
/// without a new revision.
async fn ask_others(
    state: &AppState,
    known: &mut InventorySnapshot,
    found: &DerivedResources,
    now_ms: i64,
) -> Result<()> {
    if state.config.is_shared() {
        for ids in given_up(known, found, now_ms).chunks(READ_AT_ONCE) {
            let read = state.config.find_all(&RESOURCES, ids).await?;
            let types = by_id(&known.types);
            known.by_key.extend(read.iter().map(|entity| kept_of(&types, entity)));
        }
    }
    Ok(())
}

fn caller() -> Caller {
    Caller { name: "discovery".to_owned(), manager: "api".to_owned(), override_managed: true, ..Caller::system() }
}

/// Creates entities for new resources and relationships, and removes the service of resources that several services
/// report.
async fn take_in(state: &AppState, known: &mut InventorySnapshot, found: &DerivedResources, now_ms: i64) -> Result<()> {
    let (config, caller) = (&state.config, caller());
    for (key, one) in &found.resources {
        let times = [("firstSeen", one.first_ms), ("lastSeen", one.last_ms.min(now_ms))];
        let times = times.map(|(name, ms)| (name.to_owned(), json!(quiver_config::json::time_text(ms))));
        let (op, system) = match known.by_key.get(key) {
            None => {
                let system = System { body: times.into_iter().collect(), ..System::default() };
                (Op::Create { id: None, body: entity_body(key, one) }, system)
            }
            Some(kept) => {
                let mut patch = Map::new();
                let is_of_others = !kept.service.is_empty() && one.services.iter().any(|s| *s != kept.service);
                if kept.is_discovered && is_of_others {
                    patch.insert("service".to_owned(), Value::Null);
                }
                if kept.state == "inactive" {
                    patch.insert("state".to_owned(), json!("active"));
                }
                if kept.has_old_key {
                    // The key is derived from the attributes again.
                    patch.insert("key".to_owned(), Value::Null);
                }
                if patch.is_empty() {
                    continue;
                }
                (Op::Patch { id: kept.id.clone(), patch, condition: If::None }, System::default())
            }
        };
        match config.change(&Place::of(&RESOURCES), &caller, op, system, ChangeMode::Apply).await {
            Ok(done) => known.by_key.extend(done.after.map(|after| (key.clone(), KnownResource::of(&after)))),
            // Another server created it first, or the limit of entities is reached.
            Err(problem) if problem.kind == quiver_config::ProblemKind::Busy => return Err(problem),
            Err(problem) => tracing::debug!(kind = key.kind, key = key.key, "a resource is not taken in: {problem}"),
        }
    }
    for link in &found.links {
        let Some(kind) = known.relationship_types.get(link.kind) else { continue };
        let (Some(from), Some(to)) = (known.by_key.get(&link.from), known.by_key.get(&link.to)) else { continue };
        let triple = (kind.clone(), from.id.clone(), to.id.clone());
        if from.id == to.id || known.relationships.contains(&triple) {
            continue;
        }
        let body = json!({"typeId": kind, "sourceId": from.id, "targetId": to.id, "origin": "discovered"});
        let Value::Object(body) = body else { continue };
        let op = Op::Create { id: None, body };
        match config.change(&Place::of(&RELATIONSHIPS), &caller, op, System::default(), ChangeMode::Apply).await {
            Err(problem) if problem.kind == quiver_config::ProblemKind::Busy => return Err(problem),
            Err(problem) => tracing::debug!(kind = link.kind, "a relationship is not taken in: {problem}"),
            Ok(_) => {}
        }
        known.relationships.insert(triple);
    }
    Ok(())
}

fn entity_body(key: &Key, one: &derivation::Resource) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("typeId".to_owned(), json!(key.kind));
    body.insert("displayName".to_owned(), json!(one.name));
    body.insert("attributes".to_owned(), Value::Object(one.attributes.clone()));
    body.insert("service".to_owned(), json!(one.service()));
    body.insert("source".to_owned(), json!("discovered"));
    body
}

/// The most severe firing alert of each service.
fn alerts_by_service(state: &AppState) -> ServiceAlerts {
    let labels = state.alertd.router.service_labels();
    let mut worst = ServiceAlerts::new();
    for alert in state.alertd.router.live() {
        let service = alert.service(labels);
        if !service.is_empty() {
            let critical = alert.get("severity") == "critical";
            *worst.entry(service.to_owned()).or_default() |= critical;
        }
    }
    worst
}

/// Records when resources were seen, their health, and which ones became inactive. Returns the health of all.
async fn keep_alive(
    state: &AppState,
    known: &mut InventorySnapshot,
    found: &DerivedResources,
    now_ms: i64,
) -> Result<health::HealthById> {
    let server = state.engines.store.installation().to_string();
    let alerts = state.config.share_alerts(&server, alerts_by_service(state), now_ms - UNKNOWN_MS).await?;
    let (mut seen, mut gone, mut healths) = (Vec::new(), Vec::new(), health::HealthById::new());
    for (key, kept) in &known.by_key {
        if kept.state == "retired" {
            continue;
        }
        let (stored, service) = (kept.seen_ms, kept.service.as_str());
        let told = found.resources.get(key).map(|one| one.last_ms.min(now_ms));
        let last = told.max(stored);
        let health = match alerts.get(service).filter(|_| !service.is_empty()) {
            Some(true) => "critical",
            Some(false) => "warning",
            None if last.is_some_and(|last| now_ms - last < UNKNOWN_MS) => "ok",
            None => "unknown",
        };
        healths.insert(kept.id.clone(), health);
        let older = told.is_some_and(|told| stored.is_none_or(|stored| told - stored >= SEEN_MS));
        if older || health != kept.health {
            // The stored time may be newer than what this server knows.
            let last_ms = told.filter(|told| stored.is_none_or(|stored| *told > stored));
            seen.push(ResourceSighting { id: kept.id.clone(), last_ms, health });
        }
        let silent = last.is_none_or(|last| now_ms - last > INACTIVE_MS);
        if silent && kept.is_discovered && kept.state == "active" {
            gone.push(kept.id.clone());
        }
    }
    if !seen.is_empty() {
        state.config.seen(&seen).await?;
        // This causes no change event, so it is recorded in `known` as well.
        let noted: HashMap<&str, &ResourceSighting> = seen.iter().map(|one| (one.id.as_str(), one)).collect();
        for kept in known.by_key.values_mut() {
            if let Some(one) = noted.get(kept.id.as_str()) {
                kept.note(one);
            }
        }
    }
    for id in gone {
        let patch = [("state".to_owned(), json!("inactive"))].into_iter().collect();
        let op = Op::Patch { id, patch, condition: If::None };
        state.config.change(&Place::of(&RESOURCES), &caller(), op, System::default(), ChangeMode::Apply).await?;
    }
    Ok(healths)
}

#[cfg(test)]
mod tests {
    use quiver_config::Entity;
    use quiver_config::json::time_text;

    use super::inventory::key_of;
    use super::*;

    /// Only resources that another server may have seen are read again before they are marked inactive.
    #[test]
    fn what_would_be_given_up() {
        const NOW: i64 = 1_800_000_000_000;
        let given_up = |silent_ms: Option<i64>, is_found: bool, more: &[(&str, &str)]| {
            let mut body = json!({"typeId": "t", "key": "k", "health": "ok", "state": "active", "source": "discovered",
                "lastSeen": silent_ms.map(|silent| time_text(NOW - silent))});
            for (name, value) in more {
                body[*name] = json!(value);
            }
            let entity = Entity::for_tests("one", body);
            let (mut known, mut found) = (InventorySnapshot::default(), DerivedResources::default());
            if is_found {
                let (attributes, services) = (Map::new(), std::collections::BTreeSet::new());
                let told = derivation::Resource { name: "k".into(), attributes, services, first_ms: NOW, last_ms: NOW };
                found.resources.insert(key_of(&entity), told);
            }
            known.by_key.insert(key_of(&entity), KnownResource::of(&entity));
            !given_up(&known, &found, NOW).is_empty()
        };
        let unknown = ("health", "unknown");
        assert!(!given_up(Some(UNKNOWN_MS - 1), false, &[]));
        assert!(given_up(Some(UNKNOWN_MS), false, &[]));
        assert!(given_up(None, false, &[]));
        assert!(!given_up(Some(UNKNOWN_MS), true, &[]), "it is told of here");
        assert!(!given_up(Some(UNKNOWN_MS), false, &[unknown]), "that is noted already");
        assert!(given_up(Some(INACTIVE_MS), false, &[unknown]));
        assert!(!given_up(Some(INACTIVE_MS), false, &[unknown, ("state", "inactive")]));
        assert!(!given_up(Some(INACTIVE_MS), false, &[unknown, ("source", "api")]));
        assert!(!given_up(Some(INACTIVE_MS), false, &[("state", "retired")]));
    }
}
