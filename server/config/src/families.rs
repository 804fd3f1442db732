//! The table of families: one file each, and one line here.

use crate::family::Family;

mod alerting_settings;
mod apdex_thresholds;
mod attributes;
mod bindings;
pub(crate) mod body;
mod ci_ancestors;
mod ci_classes;
mod ci_descendants;
mod detection_rules;
mod extraction_rules;
mod groups;
mod keys;
pub(crate) mod names;
mod policy;
mod processes;
mod relationship_checks;
mod relationship_ends;
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
mod subject_rights;
mod transactions;
mod users;

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
pub use resource_types::{RESOURCE_TYPES, SERVICE_TYPE_ID};
pub use resources::{RESOURCES, joined_key, key_by_type};
pub(crate) use resources::{forget_key, identity};
pub use roles::{INGEST_ROLE_ID, ROLES, VIEWER_ROLE_ID};
pub(crate) use rules::of_group;
pub use rules::{RULE_GROUPS, RULES, RUN_AS, RUN_BY};
pub use saved_views::SAVED_VIEWS;
pub use segments::{SEGMENTS, SIGNALS, is_of_type};
pub use service_accounts::SERVICE_ACCOUNTS;
pub use silences::SILENCES;
pub use subject_rights::ADMIN_ROLE_ID;
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

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value};

    use super::*;
    use crate::area::Area;
    use crate::problem::FieldError;

    /// What rules find in a body: the field and the code of each error.
    pub(super) fn found_by(rules: fn(&Map<String, Value>, &mut Vec<FieldError>), body: Value) -> Vec<String> {
        let Value::Object(body) = body else { panic!("an object") };
        let mut errors = Vec::new();
        rules(&body, &mut errors);
        errors.into_iter().map(|error| format!("{} {}", error.field, error.code)).collect()
    }

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
            assert_eq!(one.composes, Area::of(one.name) == Some(Area::Policy), "{}", one.name);
            for (id, body) in (one.builtin)() {
                assert!(uuid::Uuid::try_parse(id).is_ok() && body.is_object(), "{id}");
            }
        }
    }
}
