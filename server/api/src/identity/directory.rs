//! From entities to the picture of accounts that requests are checked against.

use std::collections::HashMap;

use quiver_auth::{Account, AccountKind, Accounts, BoundTo, Directory, Grant, Key, Secret};
use quiver_config::Entity;
use quiver_config::json::time_of;
use quiver_types::{Rights, Triple};
use serde_json::Value;

/// All entities of access.
#[derive(Debug)]
pub(super) struct Entities {
    pub(super) users: Vec<Entity>,
    pub(super) services: Vec<Entity>,
    pub(super) groups: Vec<Entity>,
    pub(super) roles: Vec<Entity>,
    pub(super) bindings: Vec<Entity>,
    pub(super) keys: Vec<Entity>,
}

fn text<'a>(entity: &'a Entity, field: &str) -> &'a str {
    entity.body.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn time(entity: &Entity, field: &str) -> Option<i64> {
    entity.body.get(field).and_then(Value::as_str).and_then(time_of)
}

fn flag(entity: &Entity, field: &str) -> bool {
    entity.body.get(field).and_then(Value::as_bool).unwrap_or(false)
}

fn sealed(entity: &Entity, field: &str) -> Option<Secret> {
    entity.sealed.get(field).and_then(Value::as_str).map(Secret::new)
}

fn texts(value: Option<&Value>) -> Option<Vec<String>> {
    Some(value?.as_array()?.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect())
}

fn triples(value: Option<&Value>) -> Option<Vec<Triple>> {
    Some(value?.as_array()?.iter().filter_map(|v| Triple::of_json(v).ok()).collect())
}

fn account(kind: AccountKind, entity: &Entity) -> Account {
    let (name, hash) = match kind {
        AccountKind::User => ("username", "password"),
        AccountKind::Service => ("clientId", "secret"),
    };
    let old = sealed(entity, "oldSecret").zip(entity.sealed.get("oldSecretUntil").and_then(Value::as_i64));
    Account {
        kind,
        id: entity.id.clone(),
        name: text(entity, name).to_owned(),
        email: entity.body.get("email").and_then(Value::as_str).map(str::to_owned),
        display_name: text(entity, "displayName").to_owned(),
        enabled: flag(entity, "enabled"),
        must_change: flag(entity, "mustChangePassword"),
        hash: sealed(entity, hash),
        old_hash: old,
    }
}

fn key(entity: &Entity) -> Option<Key> {
    let kinds = [("rbac/users/", AccountKind::User), ("rbac/service-accounts/", AccountKind::Service)];
    let owner = kinds.iter().find_map(|(prefix, kind)| Some((*kind, entity.owner.strip_prefix(prefix)?.to_owned())))?;
    Some(Key {
        entity_id: entity.id.clone(),
        key_id: text(entity, "keyId").to_owned(),
        hash: sealed(entity, "key")?,
        owner,
        rights: triples(entity.body.get("permissions")).map(|t| t.into_iter().collect()),
        expires_ms: time(entity, "expiresAt"),
        networks: texts(entity.body.get("allowedCidrs")).unwrap_or_default(),
    })
}

/// Makes the picture.
pub(super) fn picture(all: &Entities) -> Directory {
    let users = all.users.iter().map(|e| account(AccountKind::User, e));
    let services = all.services.iter().map(|e| account(AccountKind::Service, e));
    let roles: HashMap<&str, (&str, Vec<Triple>)> = all
        .roles
        .iter()
        .map(|e| (e.id.as_str(), (text(e, "name"), triples(e.body.get("permissions")).unwrap_or_default())))
        .collect();
    let members: HashMap<&str, Vec<String>> =
        all.groups.iter().map(|e| (e.id.as_str(), texts(e.body.get("members")).unwrap_or_default())).collect();
    let grant = |binding: &Entity| {
        let (role, given) = roles.get(text(binding, "roleId"))?;
        let part = |name: &str| binding.body.get("subject").and_then(|s| s.get(name)).and_then(Value::as_str);
        let id = part("id")?;
        let to = match part("type")? {
            "user" => BoundTo::Account(AccountKind::User, id.to_owned()),
            "serviceAccount" => BoundTo::Account(AccountKind::Service, id.to_owned()),
            "group" => BoundTo::Members(members.get(id).cloned().unwrap_or_default()),
            "externalRole" => BoundTo::ExternalRole(id.to_owned()),
            _ => return None,
        };
        Some(Grant {
            to,
            rights: Rights::narrowed(given, texts(binding.body.get("services")).as_deref()),
            role: (*role).to_owned(),
            expires_ms: time(binding, "expiresAt"),
        })
    };
    Directory::new(Accounts {
        accounts: users.chain(services).collect(),
        keys: all.keys.iter().filter_map(key).collect(),
        grants: all.bindings.iter().filter_map(grant).collect(),
    })
}
