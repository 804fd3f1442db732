//! The table of families: one file each, one line here.

use quiver_types::condition::ConditionError;
use serde_json::{Map, Value};

use crate::family::{Family, Link, OnDelete};
use crate::problem::FieldError;

mod alerting_settings;
mod apdex_thresholds;
mod attributes;
mod bindings;
mod ci_below;
mod ci_classes;
mod detection_rules;
mod extraction_rules;
mod groups;
mod keys;
mod policy;
mod processes;
mod related;
mod relationships;
mod resource_kinds;
mod resource_types;
mod resources;
mod roles;
mod rules;
mod saved_views;
mod segments;
mod service_accounts;
mod silences;
mod standing;
mod transactions;
mod users;

pub(crate) use alerting_settings::says;
pub use alerting_settings::{ALERTING_SETTINGS, SETTINGS_ID};
pub use apdex_thresholds::APDEX_THRESHOLDS;
pub use bindings::BINDINGS;
pub use ci_classes::{CI_CLASSES, CI_SUBCLASSES};
pub use detection_rules::{DETECTION_RULES, RUM_DETECTION_RULES, TOO_SLOW};
pub use extraction_rules::EXTRACTION_RULES;
pub use groups::GROUPS;
pub use keys::KEYS;
pub use policy::{
    EMPTY_RECEIVER, EMPTY_RECEIVER_ID, GLOBAL_ID, INHIBIT_RULES, POLICY_GLOBAL, RECEIVERS, ROOT_ROUTE_ID, ROUTES,
    TEMPLATES, TIME_INTERVALS,
};
pub use processes::{PROCESSES, steps};
pub use relationships::{RELATIONSHIP_TYPES, RELATIONSHIPS};
pub use resource_kinds::ResourceKind;
pub(crate) use resource_types::texts;
pub use resource_types::{RESOURCE_TYPES, SERVICE_TYPE_ID};
pub use resources::{RESOURCES, joined_key, key_by_type};
pub(crate) use resources::{forget_key, identity};
pub use roles::{ADMIN_ROLE_ID, INGEST_ROLE_ID, ROLES, VIEWER_ROLE_ID};
pub use rules::{RULE_GROUPS, RULES, RUN_AS, RUN_BY};
pub use saved_views::SAVED_VIEWS;
pub use segments::{SEGMENTS, SIGNALS, is_of_type};
pub use service_accounts::SERVICE_ACCOUNTS;
pub use silences::SILENCES;
pub use transactions::{RUM_TRANSACTIONS, TRANSACTIONS};
pub use users::USERS;

/// All families; what is built in may name what stands further up.
pub const FAMILIES: &[&Family] = &[
    &ROLES,
    &USERS,
    &SERVICE_ACCOUNTS,
    &GROUPS,
    &BINDINGS,
    &KEYS,
    &DETECTION_RULES,
    &TRANSACTIONS,
    &RUM_DETECTION_RULES,
    &RUM_TRANSACTIONS,
    &PROCESSES,
    &SEGMENTS,
    &SAVED_VIEWS,
    &APDEX_THRESHOLDS,
    &EXTRACTION_RULES,
    &CI_CLASSES,
    &CI_SUBCLASSES,
    &RESOURCE_TYPES,
    &RESOURCES,
    &RELATIONSHIP_TYPES,
    &RELATIONSHIPS,
    &RULE_GROUPS,
    &RULES,
    &RECEIVERS,
    &ROUTES,
    &TIME_INTERVALS,
    &INHIBIT_RULES,
    &TEMPLATES,
    &POLICY_GLOBAL,
    &ALERTING_SETTINGS,
    &SILENCES,
];

/// Finds a family by its name.
pub fn family(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|f| f.name == name).copied()
}

/// For families of entities without a service.
pub(crate) fn no_service(_: &Map<String, Value>) -> String {
    String::new()
}

/// For families without rules over several fields.
pub(crate) fn no_rules(_: &Map<String, Value>, _: &mut Vec<FieldError>) {}

/// For families without entities that are always there.
pub(crate) fn no_builtin() -> Vec<(&'static str, Value)> {
    Vec::new()
}

/// For families that name no others.
pub(crate) fn no_links(_: &Map<String, Value>) -> Vec<Link> {
    Vec::new()
}

/// A text of a body; empty where there is none.
pub(crate) fn text<'a>(body: &'a Map<String, Value>, key: &str) -> &'a str {
    body.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The service, or the pattern of services, that a field names.
fn pattern_service(body: &Map<String, Value>, key: &str) -> String {
    text(body, key).to_owned()
}

/// The entity that a field names.
fn id_link(body: &Map<String, Value>, key: &str, families: &'static [&'static str], on_delete: OnDelete) -> Vec<Link> {
    let link = |id: &str| Link { pointer: format!("/{key}"), families, id: id.to_owned(), on_delete };
    body.get(key).and_then(Value::as_str).map(link).into_iter().collect()
}

/// The entities that a list of ids names.
fn ids_links(
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

/// Takes over what is wrong with a compiled form.
fn push_errors(found: Vec<ConditionError>, errors: &mut Vec<FieldError>) {
    errors.extend(found.into_iter().map(|e| FieldError::new(e.pointer, e.code, e.message)));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_and_defaults() {
        for (i, one) in FAMILIES.iter().enumerate() {
            assert!(FAMILIES[..i].iter().all(|other| other.name != one.name && other.path != one.path), "{}", one.name);
            assert!(
                one.path.starts_with('/')
                    && ["/platform-api/", "/rulesapi/", "/rulesapi/rulepolicy/", "/"]
                        .iter()
                        .any(|area| one.path.strip_prefix(area) == Some(one.name))
                    || one.path.contains("{owner}")
            );
            for field in one.all_fields() {
                field.default_value();
            }
            assert!(one.field(one.title).is_some(), "{}", one.name);
            for (id, body) in (one.builtin)() {
                assert!(uuid::Uuid::try_parse(id).is_ok() && body.is_object(), "{id}");
            }
        }
    }

    #[test]
    fn what_fields_name() {
        let body = json!({"one": "a", "none": null, "many": ["a", 5, "b", null], "text": 5});
        let body = body.as_object().expect("an object");
        let one = |key: &str| id_link(body, key, &["x"], OnDelete::Detach);
        let many = |key: &str| ids_links(body, key, &["x", "y"], OnDelete::Refuse);
        let shown = |links: Vec<Link>| links.into_iter().map(|l| format!("{} {}", l.pointer, l.id)).collect::<Vec<_>>();
        assert_eq!(shown(one("one")), ["/one a"]);
        // Places are those of the list as it was sent.
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
