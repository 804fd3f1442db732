//! Groups: users and service accounts that are bound together.

use futures::future::BoxFuture;
use quiver_types::{Domain, Right};
use serde_json::{Map, Value};

use super::subject_rights;
use crate::entity::Entity;
use crate::family::{EntityChange, Family, Link, OnDelete, no_builtin, no_rules, no_service};
use crate::fields::{Field, FieldKind};
use crate::problem::Result;

/// Groups of users and service accounts; a binding of a group counts for all members.
pub const GROUPS: Family = Family {
    name: "rbac/groups",
    path: "/platform-api/rbac/groups",
    domain: Domain::Rbac,
    write: Right::Admin,
    title: "name",
    has_name: true,
    has_enabled: false,
    fields: &[Field::open("members", FieldKind::Ids { max: 10_000 }, "[]")],
    unique: &[&["name"]],
    owners: &[],
    links,
    rules: no_rules,
    hook: Some(hook),
    service: no_service,
    builtin: no_builtin,
    ..Family::BASE
};

fn links(body: &Map<String, Value>) -> Vec<Link> {
    let members = body.get("members").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let link = |(n, id): (usize, &Value)| Link {
        pointer: format!("/members/{n}"),
        families: &["rbac/users", "rbac/service-accounts"],
        id: id.as_str().unwrap_or_default().to_owned(),
        on_delete: OnDelete::Detach,
    };
    members.iter().enumerate().map(link).collect()
}

/// Adding a member grants it the rights of the group.
fn hook(EntityChange { db, caller, now_ms, before, after }: EntityChange<'_>) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        let members = |e: &Entity| links(&e.body).into_iter().map(|l| l.id).collect::<Vec<_>>();
        let old = before.map(members).unwrap_or_default();
        if let Some(group) = after.filter(|g| members(g).iter().any(|m| !old.contains(m))) {
            let held = subject_rights::rights_of(db, now_ms, "group", &group.id).await?;
            subject_rights::only_own(caller, held.triples())?;
        }
        if before.is_some() { subject_rights::an_admin_stays(db, caller).await } else { Ok(()) }
    })
}
