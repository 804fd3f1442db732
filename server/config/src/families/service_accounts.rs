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

/// As for users: whoever sets the secret gets the rights of the account.
fn hook(EntityChange { db, caller, now_ms, before, after }: EntityChange<'_>) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        let Some(account) = before else {
            return match after {
                Some(new) => subject_rights::id_is_its_own(db, "rbac/users", &new.id).await,
                None => Ok(()),
            };
        };
        let held = subject_rights::rights_of(db, now_ms, "serviceAccount", &account.id).await?;
        subject_rights::only_own(caller, held.triples())?;
        subject_rights::an_admin_stays(db, caller).await
    })
}
