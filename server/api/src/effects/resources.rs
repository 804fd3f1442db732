//! Managed resources and their relationships as table rows.

use std::collections::HashMap;

use quiver_config::families::{
    CI_CLASSES, CI_SUBCLASSES, RELATIONSHIP_TYPES, RELATIONSHIPS, RESOURCE_TYPES, RESOURCES,
};
use quiver_config::json::text;
use quiver_config::json::time_of;
use quiver_config::{Config, Entity, Family};
use quiver_query::tables::resources::{
    ManagedRelationship, ManagedResource, RelatedResource, relationship_rows, resource_rows,
};
use quiver_types::Result;
use quiver_types::query_configuration::Resources;
use serde_json::{Map, Value};

/// The fields of the rows: labels and descriptions may be most of a resource.
const OF_RESOURCES: [&str; 10] =
    ["typeId", "displayName", "key", "state", "health", "service", "source", "attributes", "firstSeen", "lastSeen"];
const OF_RELATIONSHIPS: [&str; 7] = ["typeId", "sourceId", "targetId", "origin", "confidence", "validFrom", "validTo"];

fn time(entity: &Entity, key: &str) -> Option<i64> {
    entity.body.get(key).and_then(Value::as_str).and_then(time_of)
}

async fn entities_of(config: &Config, family: &Family) -> Result<Vec<Entity>> {
    config.all(family).await.map_err(super::unavailable)
}

/// All entities of a large family, each with these fields alone.
async fn all_with(config: &Config, family: &Family, fields: &[&str]) -> Result<Vec<Entity>> {
    let mut found = Vec::new();
    let take = |mut entity: Entity| {
        entity.body.retain(|field, _| fields.contains(&field.as_str()));
        entity.sealed.clear();
        found.push(entity);
    };
    config.for_each(family, take).await.map_err(super::unavailable)?;
    Ok(found)
}

fn by_id(entities: &[Entity]) -> HashMap<&str, &Entity> {
    entities.iter().map(|entity| (entity.id.as_str(), entity)).collect()
}

/// The key of the entity with an id.
fn key_of<'a>(known: &HashMap<&str, &'a Entity>, id: &str) -> &'a str {
    known.get(id).map_or("", |entity| text(&entity.body, "key"))
}

/// Attributes as strings, ordered by key.
fn attributes(entity: &Entity) -> Vec<(&str, String)> {
    let all = entity.body.get("attributes").and_then(Value::as_object).into_iter().flat_map(Map::iter);
    let mut all: Vec<(&str, String)> = all
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| (key.as_str(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        .collect();
    all.sort_unstable();
    all
}

/// All rows.
///
/// # Errors
/// Unavailable: the database is unreachable.
pub(super) async fn rows(config: &Config) -> Result<Resources> {
    let (types, classes) = (entities_of(config, &RESOURCE_TYPES).await?, entities_of(config, &CI_CLASSES).await?);
    let (subclasses, relations) =
        (entities_of(config, &CI_SUBCLASSES).await?, entities_of(config, &RELATIONSHIP_TYPES).await?);
    let resources = all_with(config, &RESOURCES, &OF_RESOURCES).await?;
    let relationships = all_with(config, &RELATIONSHIPS, &OF_RELATIONSHIPS).await?;
    let (types, classes) = (by_id(&types), by_id(&classes));
    let (subclasses, relations) = (by_id(&subclasses), by_id(&relations));
    let mut degrees: HashMap<&str, i64> = HashMap::new();
    for relationship in &relationships {
        for end in ["sourceId", "targetId"] {
            *degrees.entry(text(&relationship.body, end)).or_default() += 1;
        }
    }
    let known = by_id(&resources);
    let end = |entity: &Entity, key: &str| {
        let Some(entity) = known.get(text(&entity.body, key)) else { return RelatedResource::default() };
        RelatedResource {
            id: &entity.id,
            display_name: text(&entity.body, "displayName"),
            kind: key_of(&types, text(&entity.body, "typeId")),
            service: text(&entity.body, "service"),
        }
    };
    let listed = resources.iter().map(|entity| {
        let kind = types.get(text(&entity.body, "typeId"));
        let of_kind = |key: &str| kind.map_or("", |kind| text(&kind.body, key));
        ManagedResource {
            id: &entity.id,
            display_name: text(&entity.body, "displayName"),
            key: text(&entity.body, "key"),
            kind: of_kind("key"),
            ci_class: key_of(&classes, of_kind("ciClassId")),
            ci_subclass: key_of(&subclasses, of_kind("ciSubclassId")),
            state: text(&entity.body, "state"),
            health: text(&entity.body, "health"),
            service: text(&entity.body, "service"),
            source: text(&entity.body, "source"),
            attributes: attributes(entity),
            first_seen_ms: time(entity, "firstSeen"),
            last_seen_ms: time(entity, "lastSeen"),
            relationships: degrees.get(entity.id.as_str()).copied().unwrap_or_default(),
        }
    });
    let listed: Vec<ManagedResource<'_>> = listed.collect();
    let related = relationships.iter().map(|entity| ManagedRelationship {
        id: &entity.id,
        kind: key_of(&relations, text(&entity.body, "typeId")),
        source: end(entity, "sourceId"),
        target: end(entity, "targetId"),
        origin: text(&entity.body, "origin"),
        confidence: entity.body.get("confidence").and_then(Value::as_f64),
        valid_from_ms: time(entity, "validFrom"),
        valid_to_ms: time(entity, "validTo"),
    });
    let related: Vec<ManagedRelationship<'_>> = related.collect();
    Ok(Resources { resources: Some(resource_rows(&listed)?), relationships: Some(relationship_rows(&related)?) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn attributes_are_texts_in_order_of_their_keys() {
        let check = |body: Value, expected: &[(&str, &str)]| {
            let entity = Entity::for_tests("r", body);
            let found = attributes(&entity);
            let found: Vec<(&str, &str)> = found.iter().map(|(key, value)| (*key, value.as_str())).collect();
            assert_eq!(found, expected);
        };
        check(json!({}), &[]);
        check(json!({"attributes": null}), &[]);
        check(
            json!({"attributes": {"zone": "eu", "cores": 4, "gone": null, "spot": true, "disk": {"gb": 1}}}),
            &[("cores", "4"), ("disk", "{\"gb\":1}"), ("spot", "true"), ("zone", "eu")],
        );
    }

    #[test]
    fn what_is_named_is_shown_by_its_key() {
        let types = [Entity::for_tests("t1", json!({"key": "host"})), Entity::for_tests("t2", json!({"key": 5}))];
        let known = by_id(&types);
        for (id, expected) in [("t1", "host"), ("t2", ""), ("t3", ""), ("", "")] {
            assert_eq!(key_of(&known, id), expected, "{id}");
        }
    }

    #[test]
    fn times_that_are_none_are_left_out() {
        let entity = Entity::for_tests("r", json!({"firstSeen": "1970-01-01T00:00:02Z", "lastSeen": "yesterday"}));
        for (key, expected) in [("firstSeen", Some(2000)), ("lastSeen", None), ("validFrom", None)] {
            assert_eq!(time(&entity, key), expected, "{key}");
        }
    }
}
