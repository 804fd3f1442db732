//! Roles: names for sets of permissions.

use futures::future::BoxFuture;
use quiver_types::{Domain, Right, Triple};
use serde_json::{Value, json};

use super::subject_rights::{self, ADMIN_ROLE_ID};
use crate::family::{EntityChange, Family, no_links, no_rules, no_service};
use crate::fields::{Field, FieldKind};
use crate::problem::Result;

/// The built-in role that views everything.
pub const VIEWER_ROLE_ID: &str = "00000000-0000-7000-8000-000000000002";
/// The built-in role that writes telemetry of all services.
pub const INGEST_ROLE_ID: &str = "00000000-0000-7000-8000-000000000005";

/// Roles: names for sets of permissions, built-in ones among them.
pub const ROLES: Family = Family {
    name: "rbac/roles",
    path: "/platform-api/rbac/roles",
    domain: Domain::Rbac,
    write: Right::Admin,
    title: "name",
    has_name: true,
    has_enabled: false,
    fields: &[Field::required("permissions", FieldKind::Triples { max: 1000 })],
    unique: &[&["name"]],
    owners: &[],
    links: no_links,
    rules: no_rules,
    hook: Some(hook),
    service: no_service,
    builtin,
    ..Family::BASE
};

fn builtin() -> Vec<(&'static str, Value)> {
    let role = |right: Right, text: &str| {
        let triple = Triple::new(right, None, quiver_types::Services::all()).to_json();
        json!({"name": text, "description": "built in", "permissions": [triple], "labels": {}})
    };
    vec![
        (ADMIN_ROLE_ID, role(Right::Admin, "admin")),
        (VIEWER_ROLE_ID, role(Right::View, "viewer")),
        ("00000000-0000-7000-8000-000000000003", role(Right::Edit, "editor")),
        ("00000000-0000-7000-8000-000000000004", role(Right::Operate, "operator")),
        (INGEST_ROLE_ID, role(Right::Ingest, "ingest")),
    ]
}

/// Callers cannot add rights to a role that they lack, and at least one administrator must remain.
fn hook(EntityChange { db, caller, before, after, .. }: EntityChange<'_>) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        if let Some(role) = after {
            subject_rights::only_own(caller, &subject_rights::triples(&role.body, "permissions"))?;
        }
        if before.is_some() { subject_rights::an_admin_stays(db, caller).await } else { Ok(()) }
    })
}
