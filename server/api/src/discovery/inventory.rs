//! Resources and relationships remembered between two runs: few fields of each, since their number depends on the
//! senders.

use std::collections::{HashMap, HashSet};

use quiver_config::families::{RELATIONSHIP_TYPES, RELATIONSHIPS, RESOURCE_TYPES, RESOURCES, key_by_type};
use quiver_config::json::text;
use quiver_config::{Entity, ResourceSighting, Result};

use super::derivation::Key;
use crate::state::AppState;

/// What is known as of one revision.
#[derive(Default)]
pub(super) struct InventorySnapshot {
    pub(super) revision: Option<u64>,
    pub(super) types: Vec<Entity>,
    pub(super) by_key: HashMap<Key, KnownResource>,
    pub(super) relationship_types: HashMap<String, String>,
    pub(super) relationships: HashSet<(String, String, String)>,
    /// The newest health rows, by ids of resources.
    pub(super) noted: HashMap<String, HealthRow>,
}

/// What is remembered of a resource besides its key.
#[derive(Debug)]
pub(super) struct KnownResource {
    pub(super) id: String,
    /// Name of the service that it belongs to; empty: none.
    pub(super) service: String,
    pub(super) state: &'static str,
    pub(super) health: &'static str,
    pub(super) is_discovered: bool,
    /// Whether its stored key has the format of an earlier release.
    pub(super) has_old_key: bool,
    pub(super) seen_ms: Option<i64>,
}

/// The newest health row of a resource.
#[derive(Debug)]
pub(super) struct HealthRow {
    pub(super) kind: String,
    pub(super) service: String,
    /// Empty: the resource is gone.
    pub(super) health: &'static str,
}

/// The word if it is one of these; otherwise empty.
fn word(of: &str, words: &[&'static str]) -> &'static str {
    words.iter().find(|word| **word == of).copied().unwrap_or_default()
}

impl KnownResource {
    pub(super) fn of(entity: &Entity) -> Self {
        let part = |key: &str| text(&entity.body, key);
        Self {
            id: entity.id.clone(),
            service: part("service").to_owned(),
            state: word(part("state"), &["active", "inactive", "retired"]),
            health: word(part("health"), &["ok", "warning", "critical", "unknown"]),
            is_discovered: part("source") == "discovered",
            has_old_key: false,
            seen_ms: quiver_config::json::time_of(part("lastSeen")),
        }
    }

    /// Records what was written about a resource.
    pub(super) fn note(&mut self, seen: &ResourceSighting) {
        self.seen_ms = seen.last_ms.or(self.seen_ms);
        self.health = seen.health;
    }
}

pub(super) fn key_of(entity: &Entity) -> Key {
    Key { kind: text(&entity.body, "typeId").to_owned(), key: text(&entity.body, "key").to_owned() }
}

/// Types by their ids.
pub(super) fn by_id(types: &[Entity]) -> HashMap<&str, &Entity> {
    types.iter().map(|of| (of.id.as_str(), of)).collect()
}

/// What is remembered of a resource, under the key that its attributes yield, which is the one that telemetry yields.
pub(super) fn kept_of(types: &HashMap<&str, &Entity>, entity: &Entity) -> (Key, KnownResource) {
    let own = key_of(entity);
    let follows = types.get(own.kind.as_str()).and_then(|of| key_by_type(of, entity));
    let has_old_key = follows.as_ref().is_some_and(|key| *key != own.key);
    let kept = KnownResource { has_old_key, ..KnownResource::of(entity) };
    (Key { kind: own.kind, key: follows.unwrap_or(own.key) }, kept)
}

impl InventorySnapshot {
    /// Reads what changed since the last run.
    pub(super) async fn refresh(&mut self, state: &AppState) -> Result<()> {
        let revision = state.config.revision();
        if self.revision == Some(revision) {
            return Ok(());
        }
        self.types = state.config.all(&RESOURCE_TYPES).await?;
        let mut by_key: HashMap<Key, KnownResource> = HashMap::new();
        let types = by_id(&self.types);
        let keep = |entity: Entity| by_key.extend([kept_of(&types, &entity)]);
        state.config.for_each(&RESOURCES, keep).await?;
        self.by_key = by_key;
        let kinds = state.config.all(&RELATIONSHIP_TYPES).await?;
        self.relationship_types = kinds.iter().map(|e| (text(&e.body, "key").to_owned(), e.id.clone())).collect();
        let mut triples = HashSet::new();
        let keep = |entity: Entity| {
            let part = |key: &str| text(&entity.body, key).to_owned();
            triples.insert((part("typeId"), part("sourceId"), part("targetId")));
        };
        state.config.for_each(&RELATIONSHIPS, keep).await?;
        self.relationships = triples;
        self.revision = Some(revision);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_kept_follows_what_is_written() {
        let entity = |body| Entity::for_tests("one", body);
        let mut kept = KnownResource::of(&entity(json!({"service": "cart", "state": "inactive", "health": "warning",
            "source": "discovered", "lastSeen": "1970-01-01T00:00:05.000Z", "attributes": {"a": "b"}})));
        assert_eq!((&*kept.id, &*kept.service, kept.state, kept.health), ("one", "cart", "inactive", "warning"));
        assert!(kept.is_discovered);
        assert_eq!(kept.seen_ms, Some(5000));
        kept.note(&ResourceSighting { id: "one".to_owned(), last_ms: None, health: "ok" });
        assert_eq!((kept.seen_ms, kept.health), (Some(5000), "ok"));
        kept.note(&ResourceSighting { id: "one".to_owned(), last_ms: Some(7000), health: "unknown" });
        assert_eq!((kept.seen_ms, kept.health), (Some(7000), "unknown"));
        let bare = KnownResource::of(&entity(json!({"source": "api", "service": null})));
        assert_eq!((&*bare.service, bare.state, bare.health, bare.seen_ms), ("", "", "", None));
        assert!(!bare.is_discovered);
    }

    /// Would fail if resources stored under an old key were looked up by it: they would be discovered again as
    /// duplicates.
    #[test]
    fn resources_are_known_by_what_makes_their_identity() {
        let types = [
            Entity::for_tests("t", json!({"identityKeys": ["a", "b"]})),
            Entity::for_tests("free", json!({"identityKeys": []})),
        ];
        let known = |kind: &str, key: &str, attributes: serde_json::Value| {
            let body = json!({"typeId": kind, "key": key, "attributes": attributes});
            let (found, kept) = kept_of(&by_id(&types), &Entity::for_tests("one", body));
            (found.key, kept.has_old_key)
        };
        let ends = json!({"a": "shop/cart", "b": "i1"});
        assert_eq!(known("t", "shop/cart/i1", ends.clone()), ("shop~1cart/i1".to_owned(), true));
        assert_eq!(known("t", "shop~1cart/i1", ends.clone()), ("shop~1cart/i1".to_owned(), false));
        assert_eq!(known("t", "cart/i1", json!({"a": "cart", "b": "i1"})), ("cart/i1".to_owned(), false));
        assert_eq!(known("t", "cart", json!({"a": "cart"})), ("cart".to_owned(), false), "one lacks");
        assert_eq!(known("free", "mine", ends.clone()), ("mine".to_owned(), false));
        assert_eq!(known("gone", "mine", ends), ("mine".to_owned(), false));
    }

    /// The largest allowed number of resources takes only some dozens of megabytes.
    #[test]
    fn little_is_kept_of_each() {
        assert!(size_of::<(Key, KnownResource)>() <= 192, "{} bytes", size_of::<(Key, KnownResource)>());
    }
}
