//! Extracts parts of a body: strings, the service, references to other entities.

use quiver_types::condition::{Condition, ConditionError};
use serde_json::{Map, Value};

use crate::family::{Link, OnDelete};
pub(crate) use crate::json::text;
use crate::problem::FieldError;

/// The strings of a list.
pub(crate) fn texts<'a>(body: &'a Map<String, Value>, key: &str) -> impl Iterator<Item = &'a str> {
    body.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// What the patterns of the conditions in a list of objects take in memory, in bytes.
pub(super) fn conditions_bytes(body: &Map<String, Value>, key: &str) -> usize {
    let items = body.get(key).and_then(Value::as_array).into_iter().flatten();
    let conditions = items.filter_map(|item| Condition::parse(item.get("condition")?).ok());
    conditions.map(|condition| condition.held_bytes()).sum()
}

/// The service, or pattern of services, in a field.
pub(super) fn pattern_service(body: &Map<String, Value>, key: &str) -> String {
    text(body, key).to_owned()
}

/// The reference in a field.
pub(super) fn id_link(
    body: &Map<String, Value>,
    key: &str,
    families: &'static [&'static str],
    on_delete: OnDelete,
) -> Vec<Link> {
    let link = |id: &str| Link { pointer: format!("/{key}"), families, id: id.to_owned(), on_delete };
    body.get(key).and_then(Value::as_str).map(link).into_iter().collect()
}

/// The references in a list of ids.
pub(super) fn ids_links(
    body: &Map<String, Value>,
    key: &str,
    families: &'static [&'static str],
    on_delete: OnDelete,
) -> Vec<Link> {
    let items = body.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let ids = items.iter().enumerate().filter_map(|(n, id)| Some((n, id.as_str()?)));
    let link = |(n, id): (usize, &str)| Link { pointer: format!("/{key}/{n}"), families, id: id.to_owned(), on_delete };
    ids.map(link).collect()
}

/// Adds the errors of a compiled condition.
pub(super) fn push_errors(found: Vec<ConditionError>, errors: &mut Vec<FieldError>) {
    errors.extend(found.into_iter().map(|e| FieldError::new(e.pointer, e.code, e.message)));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_fields_name() {
        let body = json!({"one": "a", "none": null, "many": ["a", 5, "b", null], "text": 5});
        let body = body.as_object().expect("an object");
        let one = |key: &str| id_link(body, key, &["x"], OnDelete::Detach);
        let many = |key: &str| ids_links(body, key, &["x", "y"], OnDelete::Refuse);
        let shown = |links: Vec<Link>| links.into_iter().map(|l| format!("{} {}", l.pointer, l.id)).collect::<Vec<_>>();
        assert_eq!(shown(one("one")), ["/one a"]);
        // Places are indexes of the list as it was sent.
        assert_eq!(shown(many("many")), ["/many/0 a", "/many/2 b"]);
        for key in ["none", "text", "missing", "many"] {
            assert!(one(key).is_empty(), "{key}");
        }
        for key in ["none", "text", "missing", "one"] {
            assert!(many(key).is_empty(), "{key}");
        }
        assert!(many("many").iter().all(|l| l.families == ["x", "y"] && l.on_delete == OnDelete::Refuse));
    }
}
