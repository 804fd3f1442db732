//! Records health changes of resources as rows of `resource_health`: the health at a minute follows from the rows
//! before it.

use std::collections::HashMap;

use quiver_config::json::text;
use quiver_types::Result;
use quiver_types::tables::history::{TableRows, services_text};
use quiver_types::tables::usage::RESOURCE_HEALTH;

use super::inventory::{HealthRow, InventorySnapshot};
use crate::state::AppState;
use crate::usage::rows::{made, texts, times};

/// Health by resource id; retired resources are left out.
pub(super) type HealthById = HashMap<String, &'static str>;

fn cause(health: &str) -> &'static str {
    match health {
        "critical" | "warning" => "alert",
        "unknown" => "no data",
        _ => "",
    }
}

/// The differences between current health and the newest rows.
fn changes(known: &InventorySnapshot, healths: &HealthById) -> Vec<(String, HealthRow)> {
    let kinds: HashMap<&str, &str> = known.types.iter().map(|t| (t.id.as_str(), text(&t.body, "key"))).collect();
    let mut changes = Vec::new();
    for (key, kept) in &known.by_key {
        let Some(&health) = healths.get(&kept.id) else { continue };
        let is_so = |noted: &HealthRow| noted.health == health && noted.service == kept.service;
        if known.noted.get(&kept.id).is_some_and(is_so) {
            continue;
        }
        let kind = kinds.get(key.kind.as_str()).copied().unwrap_or_default();
        let noted = HealthRow { kind: kind.to_owned(), service: kept.service.clone(), health };
        changes.push((kept.id.clone(), noted));
    }
    for (id, noted) in known.noted.iter().filter(|(id, _)| !healths.contains_key(*id)) {
        let gone = HealthRow { kind: noted.kind.clone(), service: noted.service.clone(), health: "" };
        changes.push((id.clone(), gone));
    }
    changes
}

fn rows(changes: &[(String, HealthRow)], now_ms: i64) -> Result<TableRows> {
    let each = || changes.iter().map(|(_, noted)| noted);
    let columns = vec![
        times(each().map(|_| now_ms)),
        texts(changes.iter().map(|(id, _)| id)),
        texts(each().map(|noted| &noted.kind)),
        texts(each().map(|noted| noted.health)),
        texts(each().map(|noted| cause(noted.health))),
        texts(each().map(|noted| services_text([&noted.service]))),
    ];
    made(&RESOURCE_HEALTH, columns)
}

/// Writes the changes since the last run. A failed write is repeated in the next run.
pub(super) async fn note(state: &AppState, known: &mut InventorySnapshot, healths: &HealthById, now_ms: i64) {
    let changes = changes(known, healths);
    if changes.is_empty() || !state.metrics.usage.is_on() {
        return;
    }
    let written = match rows(&changes, now_ms) {
        Ok(rows) => state.engines.store.write_rows(vec![rows]).await,
        Err(error) => Err(error),
    };
    if let Err(error) = written {
        tracing::warn!(%error, "changes of the health of resources could not be written down");
        return;
    }
    for (id, noted) in changes {
        if noted.health.is_empty() {
            known.noted.remove(&id);
        } else {
            known.noted.insert(id, noted);
        }
    }
}

#[cfg(test)]
mod tests {
    use quiver_config::Entity;
    use serde_json::json;

    use super::super::derivation::Key;
    use super::super::inventory::KnownResource;
    use super::*;

    #[test]
    fn rows_are_made_of_what_changed() {
        let types = vec![Entity::for_tests("t1", json!({"key": "host"}))];
        let mut known = InventorySnapshot { types, ..InventorySnapshot::default() };
        for (id, service) in [("a", "cart"), ("b", "")] {
            let key = Key { kind: "t1".to_owned(), key: id.to_owned() };
            let body = json!({"typeId": "t1", "service": service});
            known.by_key.insert(key, KnownResource::of(&Entity::for_tests(id, body)));
        }
        let mut look = |healths: &[(&str, &'static str)]| {
            let healths: HealthById = healths.iter().map(|(id, health)| ((*id).to_owned(), *health)).collect();
            let all = changes(&known, &healths);
            assert_eq!(rows(&all, 5).unwrap().rows.num_rows(), all.len());
            let mut told: Vec<String> =
                all.iter().map(|(id, n)| format!("{id} {} {} {}", n.kind, n.service, n.health)).collect();
            told.sort_unstable();
            for (id, noted) in all {
                if noted.health.is_empty() { _ = known.noted.remove(&id) } else { _ = known.noted.insert(id, noted) }
            }
            told
        };
        assert_eq!(look(&[("a", "ok"), ("b", "unknown")]), ["a host cart ok", "b host  unknown"]);
        assert_eq!(look(&[("a", "ok"), ("b", "unknown")]), [""; 0]);
        assert_eq!(look(&[("a", "critical"), ("b", "unknown")]), ["a host cart critical"]);
        assert_eq!(look(&[("b", "unknown")]), ["a host cart "], "it is gone");
        assert_eq!(look(&[("b", "unknown")]), [""; 0]);
    }
}
