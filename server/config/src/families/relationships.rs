//! Relationships between resources, and their types (`config-api` 4).

use std::collections::HashSet;

use futures::future::BoxFuture;
use quiver_database::Connection;
use quiver_types::{Domain, Right};
use serde_json::{Map, Value, json};

use super::body::{id_link, ids_links, text};
use super::names;
use super::relationship_checks::hook;
use super::relationship_ends::{allows, of_resource, service_of};
use super::resources::RESOURCES;
use crate::access::SERVICES;
use crate::entity::{DraftContent, Entity, find};
use crate::family::{ChangeContext, Family, OnDelete, Rows};
use crate::fields::{Field, FieldKind};
use crate::json::time_of;
use crate::problem::{FieldError, Problem, Result};

/// Most resources that the search for a cycle visits.
const SEARCHED_MAX: usize = 100_000;

/// Types of relationships, which say which resources may be related.
pub const RELATIONSHIP_TYPES: Family = Family {
    name: names::RELATIONSHIP_TYPES,
    path: "/platform-api/relationship-types",
    domain: Domain::Resources,
    write: Right::Edit,
    fields: &[
        Field::required("key", FieldKind::Slug),
        Field::open("forwardLabel", FieldKind::Text { min: 0, max: 200 }, "\"\""),
        Field::open("reverseLabel", FieldKind::Text { min: 0, max: 200 }, "\"\""),
        Field::open("sourceTypeIds", FieldKind::Ids { max: 200 }, "[]"),
        Field::open("targetTypeIds", FieldKind::Ids { max: 200 }, "[]"),
        Field::open("cardinality", FieldKind::Word(&["1:1", "1:n", "n:1", "n:m"]), "\"n:m\""),
        Field::open("acyclic", FieldKind::Bool, "false"),
        Field::open("impact", FieldKind::Word(&["none", "forward", "reverse"]), "\"none\""),
    ],
    unique: &[&["key"], &["name"]],
    links: |body| {
        let mut links = ids_links(body, "sourceTypeIds", &["resource-types"], OnDelete::Refuse);
        links.extend(ids_links(body, "targetTypeIds", &["resource-types"], OnDelete::Refuse));
        links
    },
    hook: Some(hook),
    builtin,
    ..Family::BASE
};

/// Relationships of a type from one managed resource to another.
pub const RELATIONSHIPS: Family = Family {
    name: names::RELATIONSHIPS,
    path: "/platform-api/resource-relationships",
    domain: Domain::Resources,
    write: Right::Edit,
    title: "description",
    has_name: false,
    fields: &[
        Field::required("typeId", FieldKind::Id),
        Field::required("sourceId", FieldKind::Id),
        Field::required("targetId", FieldKind::Id),
        Field::open("attributes", FieldKind::Map { max: 100 }, "{}"),
        Field::open("origin", FieldKind::Word(&["discovered", "manual", "import"]), "\"manual\""),
        Field::open("confidence", FieldKind::Number { min: 0.0, max: 1.0 }, "1"),
        Field::open("validFrom", FieldKind::Time, "null"),
        Field::open("validTo", FieldKind::Time, "null"),
    ],
    unique: &[&["typeId", "sourceId", "targetId"]],
    links: |body| {
        let mut links = id_link(body, "typeId", &["relationship-types"], OnDelete::Refuse);
        links.extend(id_link(body, "sourceId", &["resources"], OnDelete::Cascade));
        links.extend(id_link(body, "targetId", &["resources"], OnDelete::Cascade));
        links
    },
    rules: |body, errors| {
        if text(body, "sourceId") == text(body, "targetId") {
            errors.push(FieldError::new("/targetId", "INVALID_VALUE", "a resource is not related to itself"));
        }
        let time = |key: &str| body.get(key).and_then(Value::as_str).and_then(time_of);
        if let (Some(from), Some(to)) = (time("validFrom"), time("validTo"))
            && to <= from
        {
            errors.push(FieldError::new("/validTo", "OUT_OF_RANGE", "must be after `validFrom`"));
        }
    },
    rows: Rows::First,
    prepare: Some(prepare),
    ..Family::BASE
};

fn builtin() -> Vec<(&'static str, Value)> {
    let one = |id, key: &str, forward: &str, reverse: &str, impact: &str, acyclic: bool| {
        let body = json!({"key": key, "name": key.replace('_', " "), "description": "built in", "forwardLabel": forward,
            "reverseLabel": reverse, "impact": impact, "acyclic": acyclic});
        (id, body)
    };
    vec![
        one("00000000-0000-7000-8000-000000000201", "depends_on", "depends on", "is needed by", "reverse", false),
        one("00000000-0000-7000-8000-000000000202", "calls", "calls", "is called by", "reverse", false),
        one("00000000-0000-7000-8000-000000000203", "runs_on", "runs on", "runs", "reverse", false),
        one("00000000-0000-7000-8000-000000000204", "contains", "contains", "is part of", "forward", true),
        one("00000000-0000-7000-8000-000000000205", "connects_to", "connects to", "is connected from", "none", false),
        one("00000000-0000-7000-8000-000000000206", "member_of", "is member of", "has member", "none", false),
    ]
}

/// Checks that both ends have the types that the relationship's type requires, and that neither its cardinality nor
/// its ordering is violated.
fn prepare<'a>(
    db: &'a mut Connection,
    making: &'a ChangeContext<'a>,
    draft: &'a mut DraftContent,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let body = &draft.body;
        let id = |key: &str| text(body, key).to_owned();
        let (kind, source, target) = (id("typeId"), id("sourceId"), id("targetId"));
        let mut errors = Vec::new();
        let mut found = Vec::with_capacity(3);
        for (family, key, id) in [
            (&RELATIONSHIP_TYPES, "typeId", &kind),
            (&RESOURCES, "sourceId", &source),
            (&RESOURCES, "targetId", &target),
        ] {
            let entity = find(db, family.name, id).await?;
            let seen = entity.filter(|e| family.is_visible(making.caller, e));
            if seen.is_none() {
                let why = format!("there is no entity `{id}`");
                errors.push(FieldError::new(format!("/{key}"), "UNKNOWN_REFERENCE", why));
            }
            found.extend(seen);
        }
        let [of, from, to] = &found[..] else { return Err(Problem::invalid(errors)) };
        for (key, list, end) in [("sourceId", "sourceTypeIds", from), ("targetId", "targetTypeIds", to)] {
            if !allows(&of.body, list, text(&end.body, "typeId")) {
                let why = format!("`{}` does not take resources of this type here", text(&of.body, "key"));
                errors.push(FieldError::new(format!("/{key}"), "INVALID_VALUE", why));
            }
        }
        if !errors.is_empty() {
            return Err(Problem::invalid(errors));
        }
        let services = json!([service_of(from), service_of(to)]);
        keep_cardinality(db, making.id, &of.body, (&kind, &source, &target)).await?;
        if of.body.get("acyclic") == Some(&json!(true)) && leads_to(db, &kind, &target, &source, making.id).await? {
            return Err(Problem::cycle("/targetId", "this would close a circle, which its type does not allow"));
        }
        draft.sealed.insert(SERVICES.to_owned(), services);
        Ok(())
    })
}

/// The relationships of a type that start or end at a resource.
async fn edges(db: &mut Connection, kind: &str, resource: &str, end: &str, but: Option<&str>) -> Result<Vec<Entity>> {
    let mut found = Vec::new();
    for id in of_resource(db, resource).await? {
        if Some(id.as_str()) == but {
            continue;
        }
        let entity = find(db, RELATIONSHIPS.name, &id).await?;
        found.extend(entity.filter(|e| text(&e.body, "typeId") == kind && text(&e.body, end) == resource));
    }
    Ok(found)
}

async fn keep_cardinality(
    db: &mut Connection,
    own: Option<&str>,
    of: &Map<String, Value>,
    (kind, source, target): (&str, &str, &str),
) -> Result<()> {
    let cardinality = text(of, "cardinality");
    let ends = [("1:1 n:1", source, "sourceId", "targetId"), ("1:1 1:n", target, "targetId", "sourceId")];
    for (single, resource, end, other) in ends {
        if !single.contains(cardinality) {
            continue;
        }
        let far = if end == "sourceId" { target } else { source };
        let taken = edges(db, kind, resource, end, own).await?;
        if taken.iter().any(|e| text(&e.body, other) != far) {
            let why = format!("`{}` is {cardinality}, and this end has one already", text(of, "key"));
            return Err(Problem::field(format!("/{end}"), "INVALID_VALUE", why));
        }
    }
    Ok(())
}

/// Whether relationships of a type lead from one resource to another, directly or indirectly.
async fn leads_to(db: &mut Connection, kind: &str, from: &str, to: &str, but: Option<&str>) -> Result<bool> {
    let (mut seen, mut open) = (HashSet::from([from.to_owned()]), vec![from.to_owned()]);
    while let Some(at) = open.pop() {
        if at == to {
            return Ok(true);
        }
        if seen.len() > SEARCHED_MAX {
            let why = format!("more than {SEARCHED_MAX} resources would have to be searched for a circle");
            return Err(Problem::field("/targetId", "LIMIT_EXCEEDED", why));
        }
        for edge in edges(db, kind, &at, "sourceId", but).await? {
            let next = text(&edge.body, "targetId").to_owned();
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_times_of_relationships() {
        let check = |body: Value, expected: &[&str]| {
            let mut errors = Vec::new();
            (RELATIONSHIPS.rules)(body.as_object().expect("an object"), &mut errors);
            let found: Vec<String> = errors.into_iter().map(|e| format!("{} {}", e.field, e.code)).collect();
            assert_eq!(found, expected, "{body}");
        };
        let (before, after) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.001Z");
        check(json!({"sourceId": "a", "targetId": "b"}), &[]);
        check(json!({"sourceId": "a", "targetId": "a"}), &["/targetId INVALID_VALUE"]);
        check(json!({"sourceId": "a", "targetId": "b", "validFrom": before, "validTo": after}), &[]);
        check(json!({"sourceId": "a", "targetId": "b", "validFrom": before}), &[]);
        check(json!({"sourceId": "a", "targetId": "b", "validTo": before, "validFrom": null}), &[]);
        let out = "/validTo OUT_OF_RANGE";
        check(json!({"sourceId": "a", "targetId": "b", "validFrom": before, "validTo": before}), &[out]);
        check(json!({"sourceId": "a", "targetId": "b", "validFrom": after, "validTo": before}), &[out]);
        // The same moment in another zone.
        let elsewhere = "2026-01-01T01:00:00+01:00";
        check(json!({"sourceId": "a", "targetId": "b", "validFrom": before, "validTo": elsewhere}), &[out]);
        let both = json!({"sourceId": "a", "targetId": "a", "validFrom": after, "validTo": before});
        check(both, &["/targetId INVALID_VALUE", out]);
    }

    #[test]
    fn what_is_built_in_is_told_apart() {
        let all = builtin();
        let ids: HashSet<&str> = all.iter().map(|(id, _)| *id).collect();
        let keys: HashSet<&str> = all.iter().filter_map(|(_, body)| body["key"].as_str()).collect();
        let names: HashSet<&str> = all.iter().filter_map(|(_, body)| body["name"].as_str()).collect();
        assert_eq!((ids.len(), keys.len(), names.len()), (all.len(), all.len(), all.len()));
        assert_eq!(all.iter().filter(|(_, body)| body["acyclic"] == json!(true)).count(), 1, "parts make no circle");
        for (id, body) in &all {
            let impact = body["impact"].as_str().unwrap_or_default();
            assert!(["none", "forward", "reverse"].contains(&impact), "{id}");
        }
    }
}
