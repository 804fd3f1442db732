//! Service accounts: programs that sign in with a secret.

use futures::future::BoxFuture;
use quiver_types::{Domain, Right};

use super::subject_rights;
use crate::family::{EntityChange, Family, no_builtin, no_links, no_rules, no_service};
use crate::fields::{Field, FieldKind};
use crate::problem::Result;

/// Service accounts: programs that sign in with a secret.
pub const SERVICE_ACCOUNTS: Family = Family {
    name: "rbac/service-accounts",
    path: "/platform-api/rbac/service-accounts",
    domain: Domain::Rbac,
    write: Right::Admin,
    title: "clientId",
    has_name: false,
    has_enabled: true,
    fields: &[Field::required("clientId", FieldKind::Login { min: 1, max: 200 })],
    unique: &[&["clientId"]],
    owners: &[],
    links: no_links,
    rules: no_rules,
    hook: Some(hook),
    service: no_service,
    builtin: no_builtin,
    ..Family::BASE
};

fn hook(change: EntityChange<'_>) -> BoxFuture<'_, Result<()>> {
    Box::pin(subject_rights::account_changes(change, "serviceAccount", "rbac/users"))
}
