//! Managed resources (`config-api` 4).

use futures::future::BoxFuture;
use quiver_database::Connection;
use quiver_types::{Domain, Right};
use serde_json::{Map, Value, json};

use super::body::{id_link, pattern_service, text, texts};
use super::names;
use super::relationship_checks::{end_fits, follow_service};
use super::resource_types::attributes_of;
use crate::entity::{DraftContent, Entity, find};
use crate::family::{ChangeContext, EntityChange, Family, OnDelete, Rows};
use crate::fields::{Field, FieldKind};
use crate::problem::{FieldError, Problem, Result};

/// Managed resources, made by people or discovered.
pub const RESOURCES: Family = Family {
    name: names::RESOURCES,
    path: "/platform-api/resources",
    domain: Domain::Resources,
    write: Right::Edit,
    title: "displayName",
    has_name: false,
    fields: &[
        Field::required("typeId", FieldKind::Id),
        Field::open("key", FieldKind::Text { min: 1, max: 1000 }, "null"),
        Field::open("displayName", FieldKind::Text { min: 1, max: 200 }, "null"),
        Field::open("attributes", FieldKind::Map { max: 300 }, "{}"),
        Field::open("tags", FieldKind::Texts { max: 64 }, "[]"),
        Field::open("service", FieldKind::Text { min: 1, max: 200 }, "null"),
        Field::open("state", FieldKind::Word(&["active", "inactive", "retired"]), "\"active\""),
        Field::open("source", FieldKind::Word(&["discovered", "manual", "import"]), "\"manual\""),
        Field::read_only("firstSeen", FieldKind::Time, "null"),
        Field::read_only("lastSeen", FieldKind::Time, "null"),
        Field::read_only("health", FieldKind::Word(&["ok", "warning", "critical", "unknown"]), "\"unknown\""),
    ],
    unique: &[&["typeId", "key"]],
    links: |body| id_link(body, "typeId", &["resource-types"], OnDelete::Refuse),
    rules: |body, errors| {
        if text(body, "service").contains('*') {
            errors.push(FieldError::new("/service", "PATTERN", "must be a name, not a pattern"));
        }
    },
    hook: Some(hook),
    service: |body| pattern_service(body, "service"),
    rows: Rows::Service,
    prepare: Some(prepare),
    ..Family::BASE
};

/// Validates the attributes against type and classes, and derives the key from them.
fn prepare<'a>(
    db: &'a mut Connection,
    making: &'a ChangeContext<'a>,
    draft: &'a mut DraftContent,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let id = text(&draft.body, "typeId").to_owned();
        let Some(of) = find(db, "resource-types", &id).await? else {
            return Err(Problem::field("/typeId", "UNKNOWN_REFERENCE", format!("there is no entity `{id}`")));
        };
        let known = attributes_of(db, &of.body).await?;
        let mut errors = Vec::new();
        if let Some(Value::Object(values)) = draft.body.get_mut("attributes") {
            known.check(values, &mut errors);
        }
        let keys: Vec<&str> = of
            .body
            .get("identityKeys")
            .and_then(Value::as_array)
            .map(|keys| keys.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let key = if keys.is_empty() {
            Some(text(&draft.body, "key").to_owned())
        } else {
            identity(&keys, &draft.body, &mut errors)
        };
        // If the key is derived from attributes, the stored one tells nothing about the new one.
        let stored = making.before.map(|before| text(&before.body, "key")).filter(|_| !keys.is_empty());
        let given = draft.body.get("key").and_then(Value::as_str).filter(|given| stored != Some(*given));
        let given = given.map(str::to_owned);
        match (given, key) {
            (_, None) => {}
            (None, Some(key)) if key.is_empty() => {
                errors.push(FieldError::new("/key", "REQUIRED", "is required: the type has no identity keys"));
            }
            (Some(given), Some(key)) if given != key => {
                let why = format!("the identity of this resource is `{key}`");
                errors.push(FieldError::new("/key", "INVALID_VALUE", why));
            }
            (_, Some(key)) => {
                if draft.body.get("displayName").is_none_or(Value::is_null) {
                    let name: String = key.chars().take(200).collect();
                    draft.body.insert("displayName".to_owned(), json!(name));
                }
                draft.body.insert("key".to_owned(), json!(key));
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(Problem::invalid(errors)) }
    })
}

/// Removes the key of a restored resource if it is derived from attributes: the type may use others by now.
pub(crate) async fn forget_key(db: &mut Connection, body: &mut Map<String, Value>) -> Result<()> {
    let of = find(db, "resource-types", text(body, "typeId")).await?;
    if of.is_some_and(|of| texts(&of.body, "identityKeys").next().is_some()) {
        body.remove("key");
    }
    Ok(())
}

/// Joins the values that identify a resource by `/`. In all but the last, `~` is escaped as `~0` and `/` as `~1`, as
/// in JSON pointers: so different identities have different keys, and a path at the end is not changed.
pub fn joined_key(parts: &[String]) -> String {
    let Some((last, before)) = parts.split_last() else { return String::new() };
    let mut key = String::new();
    for part in before {
        key.push_str(&part.replace('~', "~0").replace('/', "~1"));
        key.push('/');
    }
    key.push_str(last);
    key
}

/// The key derived from the values of the identity keys, in order.
pub(crate) fn identity(keys: &[&str], body: &Map<String, Value>, errors: &mut Vec<FieldError>) -> Option<String> {
    let mut parts = Vec::with_capacity(keys.len());
    for key in keys {
        match body.get("attributes").and_then(|a| a.get(*key)) {
            Some(Value::String(text)) => parts.push(text.clone()),
            Some(other) => parts.push(other.to_string()),
            None => {
                let at = format!("/attributes/{key}");
                if errors.iter().all(|e| e.field != at) {
                    errors.push(FieldError::new(at, "REQUIRED", "is part of the identity"));
                }
            }
        }
    }
    (parts.len() == keys.len()).then(|| joined_key(&parts))
}

/// The key of a resource derived from its attributes; `None` if its type defines no identity keys, or one of the
/// values is missing.
pub fn key_by_type(of: &Entity, resource: &Entity) -> Option<String> {
    let keys: Vec<&str> = texts(&of.body, "identityKeys").collect();
    (!keys.is_empty()).then(|| identity(&keys, &resource.body, &mut Vec::new())).flatten()
}

/// Relationships depend on the types of both ends, and are visible to callers who see both.
fn hook(EntityChange { db, before, after, .. }: EntityChange<'_>) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        let (Some(before), Some(after)) = (before, after) else { return Ok(()) };
        let changed = |key: &str| before.body.get(key) != after.body.get(key);
        if changed("typeId") {
            end_fits(db, after).await?;
        }
        if changed("service") { follow_service(db, &after.id).await } else { Ok(()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_made_of_what_makes_identity() {
        let check = |attributes: Value, expected: Option<&str>, lacks: &[&str]| {
            let mut errors = vec![FieldError::new("/attributes/known", "INVALID_TYPE", "told already")];
            let body = json!({ "attributes": attributes });
            let found = identity(&["a", "b", "known"], body.as_object().expect("an object"), &mut errors);
            let told: Vec<String> = errors[1..].iter().map(|e| format!("{} {}", e.field, e.code)).collect();
            assert_eq!((found.as_deref(), told), (expected, lacks.iter().map(|l| (*l).to_owned()).collect()), "{body}");
        };
        check(json!({"a": "x", "b": "y", "known": "z"}), Some("x/y/z"), &[]);
        check(json!({"a": 5, "b": true, "known": 0.5}), Some("5/true/0.5"), &[]);
        check(json!({"b": "", "a": "a/b", "known": ""}), Some("a~1b//"), &[]);
        check(json!({"b": "y", "known": 1}), None, &["/attributes/a REQUIRED"]);
        check(json!({}), None, &["/attributes/a REQUIRED", "/attributes/b REQUIRED"]);
        check(json!(null), None, &["/attributes/a REQUIRED", "/attributes/b REQUIRED"]);
        assert_eq!(identity(&[], &Map::new(), &mut Vec::new()).as_deref(), Some(""));
    }

    #[test]
    fn resources_are_of_one_service() {
        for (service, expected) in [(json!("cart"), None), (json!(null), None), (json!("ca*"), Some("/service"))] {
            let (body, mut errors) = (json!({ "service": service }), Vec::new());
            (RESOURCES.rules)(body.as_object().expect("an object"), &mut errors);
            assert_eq!(errors.first().map(|e| e.field.as_str()), expected, "{body}");
        }
    }

    #[test]
    fn no_two_identities_have_one_key() {
        let key = |parts: &[&str]| joined_key(&parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>());
        for (parts, expected) in [
            (&["cart"][..], "cart"),
            (&[], ""),
            (&["cart", "i1"], "cart/i1"),
            // The last or only value is not escaped.
            (&["/usr/bin/a~b"], "/usr/bin/a~b"),
            (&["h1", "/usr/bin/java"], "h1//usr/bin/java"),
            (&["shop/cart", "i1"], "shop~1cart/i1"),
            (&["shop", "cart/i1"], "shop/cart/i1"),
            (&["a~1b", "c"], "a~01b/c"),
            (&["", "", "x"], "//x"),
        ] {
            assert_eq!(key(parts), expected);
        }
        let letters = ["", "a", "/", "~", "~1", "a/", "/a", "~0"];
        let mut seen = std::collections::HashSet::new();
        for first in letters {
            for second in letters {
                for third in letters {
                    assert!(seen.insert(key(&[first, second, third])), "{first} {second} {third}");
                }
            }
        }
    }
}
