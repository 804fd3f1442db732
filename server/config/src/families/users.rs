//! Users: people.

use futures::future::BoxFuture;
use quiver_types::{Domain, Right};

use super::body::text;
use super::subject_rights;
use crate::entity::Entity;
use crate::family::{EntityChange, Family, no_builtin, no_links, no_rules, no_service};
use crate::fields::{Field, FieldKind, Mode};
use crate::problem::{Problem, Result};

/// Users: people who sign in with a password.
pub const USERS: Family = Family {
    name: "rbac/users",
    path: "/platform-api/rbac/users",
    domain: Domain::Rbac,
    write: Right::Admin,
    title: "username",
    has_name: false,
    has_enabled: true,
    fields: &[
        Field::required("username", FieldKind::Login { min: 3, max: 64 }),
        Field::open("email", FieldKind::Text { min: 3, max: 320 }, "null"),
        Field::open("displayName", FieldKind::Text { min: 0, max: 200 }, "\"\""),
        Field { name: "password", kind: FieldKind::Prose { max: 1024 }, mode: Mode::WriteOnly, default: "null" },
        Field::open("mustChangePassword", FieldKind::Bool, "false"),
        Field::open("attributes", FieldKind::Labels, "{}"),
        Field::read_only("source", FieldKind::Text { min: 1, max: 20 }, "\"local\""),
    ],
    unique: &[&["username"]],
    owners: &[],
    links: no_links,
    rules: no_rules,
    hook: Some(hook),
    service: no_service,
    builtin: no_builtin,
    ..Family::BASE
};

/// A user of another issuer gets no password here; for the rest, see [`subject_rights::account_changes`].
fn hook<'a>(change: EntityChange<'a>) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let password = |e: Option<&'a Entity>| e.and_then(|e| e.sealed.get("password"));
        let of_another = change.after.is_some_and(|e| text(&e.body, "source") == "oidc");
        if of_another && password(change.after).is_some_and(|new| Some(new) != password(change.before)) {
            let why = "whom another issuer knows has no password here";
            return Err(Problem::field("/password", "INVALID_VALUE", why));
        }
        subject_rights::account_changes(change, "user", "rbac/service-accounts").await
    })
}
