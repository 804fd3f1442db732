//! Builds the directory that requests are checked against from the stored entities.

use std::sync::Arc;

use quiver_auth::{Account, AccountKind, BoundTo, Directory, Grant, Key, Secret};
use quiver_config::families::{BINDINGS, GROUPS, KEYS, ROLES, SERVICE_ACCOUNTS, USERS};
use quiver_config::json::time_of;
use quiver_config::{Config, Entity, FamilyCache};
use quiver_types::{Rights, Triple};
use serde_json::Value;

/// What is kept of all entities that concern access.
#[derive(Debug, Default)]
pub(super) struct Parts {
    users: FamilyCache<Arc<Account>>,
    services: FamilyCache<Arc<Account>>,
    /// Ids of the members of groups.
    groups: FamilyCache<Vec<String>>,
    roles: FamilyCache<Role>,
    bindings: FamilyCache<Option<RoleBinding>>,
    keys: FamilyCache<Option<Arc<Key>>>,
}

/// A role: its name, and what it gives.
#[derive(Debug)]
struct Role {
    name: String,
    gives: Vec<Triple>,
}

/// Who has a role.
#[derive(Debug)]
struct RoleBinding {
    role_id: String,
    /// Kind of subject, and its id.
    subject: (String, String),
    /// The services that it is narrowed to.
    services: Option<Vec<String>>,
    expires_ms: Option<i64>,
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
        name: entity.text(name).to_owned(),
        email: entity.body.get("email").and_then(Value::as_str).map(str::to_owned),
        display_name: entity.text("displayName").to_owned(),
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
        key_id: entity.text("keyId").to_owned(),
        hash: sealed(entity, "key")?,
        owner,
        rights: triples(entity.body.get("permissions")).map(|t| t.into_iter().collect()),
        expires_ms: time(entity, "expiresAt"),
        networks: texts(entity.body.get("allowedCidrs")).unwrap_or_default(),
    })
}

fn user(entity: &Entity) -> Arc<Account> {
    Arc::new(account(AccountKind::User, entity))
}

fn service(entity: &Entity) -> Arc<Account> {
    Arc::new(account(AccountKind::Service, entity))
}

fn members(group: &Entity) -> Vec<String> {
    texts(group.body.get("members")).unwrap_or_default()
}

fn role(entity: &Entity) -> Role {
    let gives = triples(entity.body.get("permissions")).unwrap_or_default();
    Role { name: entity.text("name").to_owned(), gives }
}

fn binding(entity: &Entity) -> Option<RoleBinding> {
    let part =
        |name: &str| entity.body.get("subject").and_then(|s| s.get(name)).and_then(Value::as_str).map(str::to_owned);
    Some(RoleBinding {
        role_id: entity.text("roleId").to_owned(),
        subject: (part("type")?, part("id")?),
        services: texts(entity.body.get("services")),
        expires_ms: time(entity, "expiresAt"),
    })
}

impl Parts {
    /// Reads what has changed; says whether something has.
    ///
    /// # Errors
    /// When the database is unreachable.
    pub(super) async fn follow(&mut self, config: &Config) -> quiver_config::Result<bool> {
        let mut changed = config.follow(&USERS, &mut self.users, |entity| user(&entity)).await?;
        changed |= config.follow(&SERVICE_ACCOUNTS, &mut self.services, |entity| service(&entity)).await?;
        changed |= config.follow(&GROUPS, &mut self.groups, |entity| members(&entity)).await?;
        changed |= config.follow(&ROLES, &mut self.roles, |entity| role(&entity)).await?;
        changed |= config.follow(&BINDINGS, &mut self.bindings, |entity| binding(&entity)).await?;
        changed |= config.follow(&KEYS, &mut self.keys, |entity| key(&entity).map(Arc::new)).await?;
        Ok(changed)
    }

    /// Builds the directory.
    pub(super) fn picture(&self) -> Directory {
        let accounts = self.users.values().chain(self.services.values()).cloned();
        let keys = self.keys.values().flatten().cloned();
        Directory::of(accounts, keys, self.bindings.values().flatten().filter_map(|b| self.grant(b)).collect())
    }

    fn grant(&self, binding: &RoleBinding) -> Option<Grant> {
        let role = self.roles.get(&binding.role_id)?;
        let (kind, id) = &binding.subject;
        let to = match kind.as_str() {
            "user" => BoundTo::Account(AccountKind::User, id.clone()),
            "serviceAccount" => BoundTo::Account(AccountKind::Service, id.clone()),
            "group" => BoundTo::Members(self.groups.get(id).cloned().unwrap_or_default()),
            "externalRole" => BoundTo::ExternalRole(id.clone()),
            _ => return None,
        };
        Some(Grant {
            to,
            rights: Rights::narrowed(&role.gives, binding.services.as_deref()),
            role: role.name.clone(),
            expires_ms: binding.expires_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_somebodys_and_have_a_secret() {
        let mut entity = Entity::for_tests(
            "e",
            json!({"keyId": "abc", "expiresAt": "1970-01-01T00:00:01Z", "allowedCidrs": ["10.0.0.0/8"]}),
        );
        entity.sealed.insert("key".to_owned(), json!("hash"));
        for owner in ["", "rbac/groups/g1", "u1"] {
            entity.owner = owner.to_owned();
            assert!(key(&entity).is_none(), "`{owner}`");
        }
        for (owner, kind) in [("rbac/users/u1", AccountKind::User), ("rbac/service-accounts/u1", AccountKind::Service)]
        {
            entity.owner = owner.to_owned();
            let found = key(&entity).unwrap();
            assert_eq!((found.owner, found.key_id.as_str()), ((kind, "u1".to_owned()), "abc"));
            assert_eq!((found.expires_ms, found.networks), (Some(1000), vec!["10.0.0.0/8".to_owned()]));
            assert_eq!(found.hash.expose(), "hash");
            assert!(found.rights.is_none(), "all that its owner may");
        }
        entity.body.insert("permissions".to_owned(), json!(["{view, logs, *}", "nonsense"]));
        let rights = key(&entity).unwrap().rights.unwrap();
        let may = |triple: &str| rights.covers(&Triple::of_json(&json!(triple)).unwrap());
        assert!(may("{view, logs, cart}") && !may("{edit, logs, cart}") && !may("{view, traces, cart}"));
        entity.sealed.clear();
        assert!(key(&entity).is_none(), "nobody can show it");
    }

    #[test]
    fn accounts_of_people_and_programs() {
        let mut entity = Entity::for_tests(
            "u",
            json!({"username": "me", "clientId": "bot", "email": null, "enabled": true, "mustChangePassword": 1}),
        );
        entity.sealed.insert("password".to_owned(), json!("phc"));
        let user = account(AccountKind::User, &entity);
        assert_eq!((user.name.as_str(), user.email, user.enabled, user.must_change), ("me", None, true, false));
        assert_eq!((user.hash.as_ref().map(Secret::expose), user.old_hash.is_none()), (Some("phc"), true));
        // A former secret stays valid for a while, but only if its end is known.
        entity.sealed.insert("oldSecret".to_owned(), json!("old"));
        let service = account(AccountKind::Service, &entity);
        assert_eq!((service.name.as_str(), service.hash.is_none(), service.old_hash.is_none()), ("bot", true, true));
        entity.sealed.insert("oldSecretUntil".to_owned(), json!(5));
        let old = account(AccountKind::Service, &entity).old_hash.unwrap();
        assert_eq!((old.0.expose(), old.1), ("old", 5));
    }

    /// Entities as they are stored.
    struct Entities {
        users: Vec<Entity>,
        services: Vec<Entity>,
        groups: Vec<Entity>,
        roles: Vec<Entity>,
        bindings: Vec<Entity>,
        keys: Vec<Entity>,
    }

    /// What is kept of some entities.
    fn kept<T>(entities: &[Entity], make: impl Fn(&Entity) -> T) -> FamilyCache<T> {
        let mut kept = FamilyCache::default();
        for entity in entities {
            kept.keep(entity.clone(), |entity| make(&entity));
        }
        kept
    }

    fn picture(all: &Entities) -> Directory {
        let parts = Parts {
            users: kept(&all.users, user),
            services: kept(&all.services, service),
            groups: kept(&all.groups, members),
            roles: kept(&all.roles, role),
            bindings: kept(&all.bindings, super::binding),
            keys: kept(&all.keys, |entity| key(entity).map(Arc::new)),
        };
        parts.picture()
    }

    fn entities() -> Entities {
        let user = |id: &str| Entity::for_tests(id, json!({"username": id, "enabled": true}));
        let role = |id: &str, permissions: &[&str]| {
            Entity::for_tests(id, json!({"name": format!("role {id}"), "permissions": permissions}))
        };
        Entities {
            users: vec![user("ann"), user("bob")],
            services: vec![Entity::for_tests("bot", json!({"clientId": "bot", "enabled": true}))],
            groups: vec![Entity::for_tests("g", json!({"members": ["ann", 7, "bob"]}))],
            roles: vec![role("see", &["{view, logs, *}", "nonsense"]), role("edit", &["{edit, logs, *}"])],
            bindings: Vec::new(),
            keys: Vec::new(),
        }
    }

    fn binding(role: &str, subject: Value, more: Value) -> Entity {
        let mut entity = Entity::for_tests(&format!("{role} {subject}"), more);
        entity.body.insert("roleId".to_owned(), json!(role));
        entity.body.insert("subject".to_owned(), subject);
        entity
    }

    /// The triples that an account has at a time, each with its role.
    fn held(bindings: Vec<Entity>, id: &str, now_ms: i64) -> Vec<String> {
        let picture = picture(&Entities { bindings, ..entities() });
        let kind = if id == "bot" { AccountKind::Service } else { AccountKind::User };
        let all = picture.triples_by_role(kind, id, now_ms).into_iter();
        let mut all: Vec<String> = all.map(|(triple, role)| format!("{triple} by {role}")).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn bindings_give_what_their_role_says_to_whom_they_name() {
        let user = || json!({"type": "user", "id": "ann"});
        let see = ["{view, logs, *} by role see".to_owned()];
        let plain = || vec![binding("see", user(), json!({}))];
        assert_eq!(held(plain(), "ann", 0), see, "what is no permission in a role gives nothing");
        for other in ["bob", "bot", "Ann", ""] {
            assert!(held(plain(), other, 0).is_empty(), "{other}");
        }
        let group = || vec![binding("see", json!({"type": "group", "id": "g"}), json!({}))];
        for (id, count) in [("ann", 1), ("bob", 1), ("bot", 0), ("7", 0), ("g", 0)] {
            assert_eq!(held(group(), id, 0).len(), count, "{id}");
        }
        let service = vec![binding("edit", json!({"type": "serviceAccount", "id": "bot"}), json!({}))];
        assert_eq!(held(service, "bot", 0), ["{edit, logs, *} by role edit"]);
        // Bindings without a subject or role, and those of deleted groups, grant nothing and do not affect others.
        for (role, subject) in [
            ("see", json!({"type": "team", "id": "ann"})),
            ("see", json!({"type": "user"})),
            ("see", json!({"id": "ann"})),
            ("see", json!("ann")),
            ("see", json!(null)),
            ("gone", user()),
            ("see", json!({"type": "group", "id": "gone"})),
            ("see", json!({"type": "externalRole", "id": "ann"})),
        ] {
            let both = vec![binding(role, subject.clone(), json!({})), binding("see", user(), json!({}))];
            assert_eq!(held(both, "ann", 0), see, "{role} {subject}");
        }
        let external = picture(&Entities {
            bindings: vec![binding("see", json!({"type": "externalRole", "id": "ops"}), json!({}))],
            ..entities()
        });
        assert_eq!(external.roles_by_roles(&["dev".to_owned(), "ops".to_owned()], 0), ["role see"]);
        assert!(external.roles_by_roles(&["Ops".to_owned()], 0).is_empty());
    }

    #[test]
    fn bindings_end_and_are_narrowed() {
        let user = || json!({"type": "user", "id": "ann"});
        let until = |text: Value| vec![binding("see", user(), json!({ "expiresAt": text }))];
        for (expires_at, now_ms, count) in [
            (json!("1970-01-01T00:00:05Z"), 4_999, 1),
            (json!("1970-01-01T00:00:05Z"), 5_000, 0),
            (json!("1970-01-01T01:00:05+01:00"), 4_999, 1),
            (json!(null), i64::MAX, 1),
        ] {
            assert_eq!(held(until(expires_at.clone()), "ann", now_ms).len(), count, "{expires_at} at {now_ms}");
        }
        let narrowed = |services: Value| held(vec![binding("see", user(), json!({ "services": services }))], "ann", 0);
        assert_eq!(narrowed(json!(null)), ["{view, logs, *} by role see"]);
        assert_eq!(
            narrowed(json!(["cart", "web*"])),
            ["{view, logs, cart} by role see", "{view, logs, web*} by role see"]
        );
    }

    #[test]
    fn accounts_of_both_kinds_are_found_apart() {
        let mut all = entities();
        all.services.push(Entity::for_tests("ann", json!({"clientId": "Program", "enabled": false})));
        let mut key = Entity::for_tests("k", json!({"keyId": "abc"}));
        key.owner = "rbac/users/ann".to_owned();
        all.keys.push(key.clone());
        assert!(picture(&all).key("abc").is_none(), "nobody can show it");
        key.sealed.insert("key".to_owned(), json!("hash"));
        all.keys = vec![key];
        let picture = picture(&all);
        assert_eq!(picture.key("abc").map(|key| key.owner.clone()), Some((AccountKind::User, "ann".to_owned())));
        let name = |kind, id: &str| picture.account(kind, id).map(|account| (account.name.clone(), account.enabled));
        assert_eq!(name(AccountKind::User, "ann"), Some(("ann".to_owned(), true)));
        assert_eq!(name(AccountKind::Service, "ann"), Some(("Program".to_owned(), false)));
        assert_eq!(name(AccountKind::Service, "bob"), None);
        assert_eq!(
            picture.named(AccountKind::Service, "PROGRAM").map(|account| account.id.clone()),
            Some("ann".to_owned())
        );
        assert!(picture.named(AccountKind::User, "program").is_none());
    }
}
