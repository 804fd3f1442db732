//! Special behaviour of the access families: secrets that are shown once, sessions that end with a password.

use std::sync::Arc;

use quiver_auth::{AccountKind, Directory, OsRandom, Subject, api_key, sha256_hex};
use quiver_config::{ChangeOutcome, System};
use serde_json::json;

use super::request::Ask;
use crate::identity::Identities;

/// Values generated for a new entity, and which of them the response shows this one time.
#[derive(Debug, Default)]
pub(super) struct GeneratedValues {
    pub(super) system: System,
    pub(super) shown: Vec<(&'static str, String)>,
}

/// Generates the secrets of a new entity.
pub(super) fn made(ask: &Ask) -> GeneratedValues {
    let mut made = GeneratedValues::default();
    match ask.place.family.name {
        "rbac/keys" => {
            let key = api_key::make(&OsRandom);
            let id = api_key::id_of(&key).unwrap_or_default().to_owned();
            made.system.body.insert("keyId".to_owned(), json!(id));
            made.system.sealed.insert("key".to_owned(), json!(sha256_hex(key.as_bytes())));
            made.shown.push(("key", key));
        }
        "rbac/service-accounts" => {
            let secret = api_key::make_secret(&OsRandom);
            made.system.sealed.insert("secret".to_owned(), json!(sha256_hex(secret.as_bytes())));
            made.shown.push(("secret", secret));
        }
        _ => {}
    }
    made
}

/// Runs the side effects of a change.
pub(super) async fn after(ask: &Ask, done: &ChangeOutcome) {
    if ask.place.family.name != "rbac/users" {
        return;
    }
    let Some(before) = &done.before else { return };
    let password = |e: &quiver_config::Entity| e.sealed.get("password").cloned();
    let enabled = |e: &quiver_config::Entity| e.body.get("enabled").cloned();
    let ended = done.after.as_ref().is_none_or(|after| {
        password(after) != password(before)
            || (enabled(after) != enabled(before) && enabled(after) == Some(json!(false)))
    });
    if ended && let Ok(identities) = ask.identities() {
        end_sessions(identities, &before.id).await;
    }
}

async fn end_sessions(identities: &Identities, user: &str) {
    let subject = Subject::Account(AccountKind::User, user.to_owned());
    if let Err(error) = identities.auth.end_sessions(&subject, None).await {
        tracing::error!(cause = error.source.as_ref().map(ToString::to_string), "{error}");
    }
}

/// All accounts before a change of many users; `None` for entities of other families.
pub(super) fn accounts(ask: &Ask) -> Option<Arc<Directory>> {
    let identities = ask.identities().ok().filter(|_| ask.place.family.name == "rbac/users")?;
    Some(identities.auth.directory())
}

/// Lets a change of many entities take effect, and runs the side effects of each: `before` are the accounts before it.
pub(super) async fn after_many(ask: &Ask, before: Option<Arc<Directory>>) {
    ask.acts().await;
    let (Some(before), Ok(identities)) = (before, ask.identities()) else { return };
    for user in before.ended_by(&identities.auth.directory()) {
        end_sessions(identities, &user).await;
    }
}
