//! Checks existing relationships against a change of their type, or of the type of a resource at one end:
//! contradictions are refused, since such relationships could not be changed any more (`config-api` 4).

use std::collections::{HashMap, HashSet};

use futures::TryStreamExt;
use futures::future::BoxFuture;
use quiver_database::{Connection, statement};
use serde_json::{Map, Value, json};

use super::body::text;
use super::names::{RELATIONSHIP_TYPES, RELATIONSHIPS, RESOURCES};
use super::relationship_ends::{allows, of_resource, service_of};
use crate::access::SERVICES;
use crate::entity::{Entity, find};
use crate::family::EntityChange;
use crate::problem::{Problem, Result};

/// Most resources whose types are read by one statement.
const READ_AT_ONCE: usize = 500;

/// The ends of a relationship.
struct Ends {
    source: String,
    target: String,
}

/// Checks the relationships of a type after it has changed.
pub(super) fn hook(EntityChange { db, before, after, .. }: EntityChange<'_>) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        let (Some(before), Some(after)) = (before, after) else { return Ok(()) };
        let changed = |key: &str| before.body.get(key) != after.body.get(key);
        let ends = [("sourceTypeIds", true), ("targetTypeIds", false)];
        let ends = ends.into_iter().filter(|(key, _)| changed(key) && takes_some(&after.body, key));
        let ends: Vec<(&str, bool)> = ends.collect();
        let cardinality = text(&after.body, "cardinality");
        let fewer = changed("cardinality") && cardinality != "n:m";
        let acyclic = changed("acyclic") && after.body.get("acyclic") == Some(&json!(true));
        if ends.is_empty() && !fewer && !acyclic {
            return Ok(());
        }
        let all = of_type(db, &after.id).await?;
        for (key, is_source) in ends {
            let ids = all.iter().map(|one| if is_source { &one.source } else { &one.target });
            fits(db, &after.body, key, ids.map(String::as_str).collect()).await?;
        }
        if fewer && !is_so_few(&all, cardinality) {
            let why = format!("relationships that are there are not {cardinality}");
            return Err(Problem::field("/cardinality", "INVALID_VALUE", why));
        }
        if acyclic && has_circle(&all) {
            return Err(Problem::cycle("/acyclic", "relationships that are there close a circle"));
        }
        Ok(())
    })
}

fn takes_some(of: &Map<String, Value>, key: &str) -> bool {
    of.get(key).and_then(Value::as_array).is_some_and(|list| !list.is_empty())
}

/// The relationships of a type, streamed; only their ends are kept in memory.
async fn of_type(db: &mut Connection, kind: &str) -> Result<Vec<Ends>> {
    let sql = "SELECT body FROM entity WHERE family = ? AND id IN \
        (SELECT id FROM entity_link WHERE to_family = ? AND to_id = ? AND family = ?)";
    let select = statement(sql).bind(RELATIONSHIPS).bind(RELATIONSHIP_TYPES);
    let mut rows = select.bind(kind).bind(RELATIONSHIPS).fetch_on(db);
    let mut all = Vec::new();
    while let Some(row) = rows.try_next().await? {
        let body: Map<String, Value> = serde_json::from_str(&row.try_get::<String>(0)?).map_err(Problem::internal)?;
        let end = |key: &str| text(&body, key).to_owned();
        all.push(Ends { source: end("sourceId"), target: end("targetId") });
    }
    Ok(all)
}

/// Whether a list of types allows the types of some resources.
async fn fits(db: &mut Connection, of: &Map<String, Value>, key: &str, ids: HashSet<&str>) -> Result<()> {
    let ids: Vec<&str> = ids.into_iter().collect();
    for some in ids.chunks(READ_AT_ONCE) {
        let places = vec!["?"; some.len()].join(", ");
        let sql = format!("SELECT body FROM entity WHERE family = ? AND id IN ({places})");
        let select = statement(sql).bind(RESOURCES);
        let select = some.iter().fold(select, |select, id| select.bind(*id));
        for row in select.fetch_all(&mut *db).await? {
            let body: Map<String, Value> =
                serde_json::from_str(&row.try_get::<String>(0)?).map_err(Problem::internal)?;
            if !allows(of, key, text(&body, "typeId")) {
                let why = "relationships that are there have resources of other types";
                return Err(Problem::field(format!("/{key}"), "INVALID_VALUE", why));
            }
        }
    }
    Ok(())
}

fn is_so_few(all: &[Ends], cardinality: &str) -> bool {
    let once = |end: fn(&Ends) -> &str| {
        let mut seen = HashSet::with_capacity(all.len());
        all.iter().all(|one| seen.insert(end(one)))
    };
    (!matches!(cardinality, "1:1" | "n:1") || once(|one| one.source.as_str()))
        && (!matches!(cardinality, "1:1" | "1:n") || once(|one| one.target.as_str()))
}

/// Whether there is a cycle: removes resources without incoming edges one after the other; what remains is on cycles,
/// or reachable from them.
fn has_circle(all: &[Ends]) -> bool {
    let mut next: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut coming: HashMap<&str, usize> = HashMap::new();
    for one in all {
        next.entry(&one.source).or_default().push(&one.target);
        coming.entry(&one.source).or_default();
        *coming.entry(&one.target).or_default() += 1;
    }
    let mut open: Vec<&str> = coming.iter().filter(|(_, count)| **count == 0).map(|(id, _)| *id).collect();
    let mut taken = 0;
    while let Some(id) = open.pop() {
        taken += 1;
        for &target in next.get(id).into_iter().flatten() {
            if let Some(count) = coming.get_mut(target) {
                *count -= 1;
                if *count == 0 {
                    open.push(target);
                }
            }
        }
    }
    taken < coming.len()
}

/// Checks that the types of a resource's relationships allow its new type.
pub(super) async fn end_fits(db: &mut Connection, resource: &Entity) -> Result<()> {
    let id = resource.id.as_str();
    for relationship in of_resource(db, id).await? {
        let Some(one) = find(db, RELATIONSHIPS, &relationship).await? else { continue };
        let Some(of) = find(db, RELATIONSHIP_TYPES, text(&one.body, "typeId")).await? else { continue };
        for (end, list) in [("sourceId", "sourceTypeIds"), ("targetId", "targetTypeIds")] {
            if text(&one.body, end) == id && !allows(&of.body, list, text(&resource.body, "typeId")) {
                let why = "relationships of this resource do not take resources of this type";
                return Err(Problem::field("/typeId", "INVALID_VALUE", why));
            }
        }
    }
    Ok(())
}

/// Updates the services of a resource's relationships.
pub(super) async fn follow_service(db: &mut Connection, id: &str) -> Result<()> {
    for relationship in of_resource(db, id).await? {
        let Some(mut entity) = find(db, RELATIONSHIPS, &relationship).await? else { continue };
        let mut services = Vec::with_capacity(2);
        for end in ["sourceId", "targetId"] {
            let resource = find(db, RESOURCES, text(&entity.body, end)).await?;
            services.push(resource.as_ref().map(|r| service_of(r).to_owned()).unwrap_or_default());
        }
        entity.sealed.insert(SERVICES.to_owned(), json!(services));
        let sealed = serde_json::to_string(&entity.sealed).map_err(Problem::internal)?;
        let sql = "UPDATE entity SET sealed = ? WHERE family = ? AND id = ?";
        statement(sql).bind(sealed).bind(RELATIONSHIPS).bind(&relationship).execute(&mut *db).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pairs: &[(&str, &str)]) -> Vec<Ends> {
        let one = |(source, target): &(&str, &str)| Ends { source: (*source).to_owned(), target: (*target).to_owned() };
        pairs.iter().map(one).collect()
    }

    #[test]
    fn circles_are_found_wherever_they_are() {
        let check = |pairs: &[(&str, &str)], expected: bool| assert_eq!(has_circle(&all(pairs)), expected, "{pairs:?}");
        check(&[], false);
        check(&[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")], false);
        check(&[("a", "b"), ("b", "a")], true);
        check(&[("x", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("c", "y")], true);
        check(&[("a", "b"), ("c", "d"), ("d", "c")], true);
    }

    #[test]
    fn cardinalities_count_ends() {
        let check = |pairs: &[(&str, &str)], word: &str, expected: bool| {
            assert_eq!(is_so_few(&all(pairs), word), expected, "{pairs:?} {word}");
        };
        let (fan_out, fan_in) = ([("a", "b"), ("a", "c")], [("a", "c"), ("b", "c")]);
        let words = [("1:1", false, false), ("1:n", true, false), ("n:1", false, true), ("n:m", true, true)];
        for (word, out, inwards) in words {
            check(&fan_out, word, out);
            check(&fan_in, word, inwards);
        }
    }
}
