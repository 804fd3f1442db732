//! Role bindings: who has which role, for which services.

use futures::future::BoxFuture;
use quiver_types::{Domain, Right};
use serde_json::{Map, Value};

use super::subject_rights;
use crate::family::{EntityChange, Family, Link, OnDelete, no_builtin, no_rules, no_service};
use crate::fields::{Field, FieldKind};
use crate::problem::Result;

/// Role bindings: a role for an account, a group, or a role of an external issuer, optionally until a time.
pub const BINDINGS: Family = Family {
    name: "rbac/bindings",
    path: "/platform-api/rbac/bindings",
    domain: Domain::Rbac,
    write: Right::Admin,
    title: "description",
    has_name: false,
    has_enabled: false,
    fields: &[
        Field::required("subject", FieldKind::Subject),
        Field::required("roleId", FieldKind::Id),
        Field::open("services", FieldKind::Services { max: 1000 }, "null"),
        Field::open("expiresAt", FieldKind::Time, "null"),
    ],
    unique: &[&["subject", "roleId", "services"]],
    owners: &[],
    links,
    rules: no_rules,
    hook: Some(hook),
    service: no_service,
    builtin: no_builtin,
    ..Family::BASE
};

fn links(body: &Map<String, Value>) -> Vec<Link> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let role = Link {
        pointer: "/roleId".to_owned(),
        families: &["rbac/roles"],
        id: text(body.get("roleId")),
        on_delete: OnDelete::Refuse,
    };
    let subject = body.get("subject");
    let families: &[&str] = match subject.and_then(|s| s.get("type")).and_then(Value::as_str) {
        Some("user") => &["rbac/users"],
        Some("serviceAccount") => &["rbac/service-accounts"],
        Some("group") => &["rbac/groups"],
        // A role of an external issuer is only a name.
        _ => return vec![role],
    };
    let id = text(subject.and_then(|s| s.get("id")));
    vec![role, Link { pointer: "/subject/id".to_owned(), families, id, on_delete: OnDelete::Cascade }]
}

/// Callers cannot grant rights that they lack, and at least one administrator must remain.
fn hook(EntityChange { db, caller, before, after, .. }: EntityChange<'_>) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        if let Some(binding) = after {
            let given = subject_rights::given_by(db, &binding.body).await?;
            subject_rights::only_own(caller, given.triples())?;
        }
        if before.is_some() { subject_rights::an_admin_stays(db, caller).await } else { Ok(()) }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::families::GROUPS;

    fn named(family: &Family, body: Value) -> Vec<(String, Vec<&'static str>, String, OnDelete)> {
        let links = (family.links)(body.as_object().expect("an object"));
        links.into_iter().map(|l| (l.pointer, l.families.to_vec(), l.id, l.on_delete)).collect()
    }

    #[test]
    fn subjects_and_roles_are_named() {
        let role = || ("/roleId".to_owned(), vec!["rbac/roles"], "r".to_owned(), OnDelete::Refuse);
        for (kind, family) in
            [("user", "rbac/users"), ("serviceAccount", "rbac/service-accounts"), ("group", "rbac/groups")]
        {
            let found = named(&BINDINGS, json!({"roleId": "r", "subject": {"type": kind, "id": "s"}}));
            // A binding is deleted with its subject; its role cannot be deleted.
            let subject = ("/subject/id".to_owned(), vec![family], "s".to_owned(), OnDelete::Cascade);
            assert_eq!(found, [role(), subject], "{kind}");
        }
        for subject in [json!({"type": "externalRole", "id": "s"}), json!({"id": "s"}), json!(null)] {
            assert_eq!(named(&BINDINGS, json!({"roleId": "r", "subject": subject})), [role()], "{subject}");
        }
    }

    #[test]
    fn members_are_named_one_by_one() {
        let member = |n: usize, id: &str| {
            let families = vec!["rbac/users", "rbac/service-accounts"];
            (format!("/members/{n}"), families, id.to_owned(), OnDelete::Detach)
        };
        assert_eq!(named(&GROUPS, json!({"members": ["a", "b"]})), [member(0, "a"), member(1, "b")]);
        for none in [json!({}), json!({"members": null}), json!({"members": []})] {
            assert!(named(&GROUPS, none.clone()).is_empty(), "{none}");
        }
    }
}
