//! The table of families: one file each, one line here.

use crate::family::Family;

mod bindings;
mod groups;
mod keys;
mod roles;
mod service_accounts;
mod standing;
mod users;

pub use bindings::BINDINGS;
pub use groups::GROUPS;
pub use keys::KEYS;
pub use roles::{ADMIN_ROLE_ID, INGEST_ROLE_ID, ROLES, VIEWER_ROLE_ID};
pub use service_accounts::SERVICE_ACCOUNTS;
pub use users::USERS;

/// All families.
pub const FAMILIES: &[&Family] = &[&ROLES, &USERS, &SERVICE_ACCOUNTS, &GROUPS, &BINDINGS, &KEYS];

/// Finds a family by its name.
pub fn family(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|f| f.name == name).copied()
}

/// For families of entities without a service.
fn no_service(_: &serde_json::Map<String, serde_json::Value>) -> String {
    String::new()
}

/// For families without rules over several fields.
fn no_rules(_: &serde_json::Map<String, serde_json::Value>, _: &mut Vec<crate::problem::FieldError>) {}

/// For families without entities that are always there.
fn no_builtin() -> Vec<(&'static str, serde_json::Value)> {
    Vec::new()
}

/// For families that name no others.
fn no_links(_: &serde_json::Map<String, serde_json::Value>) -> Vec<crate::family::Link> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_defaults() {
        for (i, one) in FAMILIES.iter().enumerate() {
            assert!(FAMILIES[..i].iter().all(|other| other.name != one.name && other.path != one.path), "{}", one.name);
            assert!(
                one.path.starts_with('/') && one.path.trim_start_matches("/platform-api/") == one.name
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
}
