//! The resources at the ends of a relationship: the relationships of a resource, and the types that an end allows.

use quiver_database::{Connection, statement};
use serde_json::{Map, Value};

use super::body::text;
use super::names::{RELATIONSHIPS, RESOURCES};
use crate::entity::Entity;
use crate::problem::Result;

/// Ids of the relationships of a resource.
pub(super) async fn of_resource(db: &mut Connection, id: &str) -> Result<Vec<String>> {
    let sql = "SELECT id FROM entity_link WHERE family = ? AND to_family = ? AND to_id = ?";
    let rows = statement(sql).bind(RELATIONSHIPS).bind(RESOURCES).bind(id).fetch_all(db).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// The service of a resource; empty: none.
pub(super) fn service_of(resource: &Entity) -> &str {
    text(&resource.body, "service")
}

/// Whether a list of types allows one; an empty list allows any.
pub(super) fn allows(of: &Map<String, Value>, key: &str, id: &str) -> bool {
    let list = of.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.is_empty() || list.iter().any(|v| v.as_str() == Some(id))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_that_ends_may_have() {
        let check = |of: Value, id: &str, expected: bool| {
            assert_eq!(allows(of.as_object().expect("an object"), "sourceTypeIds", id), expected, "{of} {id}");
        };
        check(json!({}), "a", true);
        check(json!({"sourceTypeIds": null}), "a", true);
        check(json!({"sourceTypeIds": []}), "a", true);
        check(json!({"sourceTypeIds": ["a", "b"]}), "b", true);
        check(json!({"sourceTypeIds": ["a", "b"]}), "c", false);
        check(json!({"sourceTypeIds": ["a"]}), "", false);
        check(json!({"targetTypeIds": ["a"]}), "b", true);
    }
}
