//! An in-memory copy of all accounts: their names, and what they hold. It is replaced after each change, so a request
//! never waits for a database, and stays in use while the database is unreachable.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use quiver_types::{Rights, Triple};

use crate::Secret;

/// The kind of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccountKind {
    /// A person, who signs in with a password; family `rbac/users`.
    User,
    /// A program, which signs in with a client secret; family `rbac/service-accounts`.
    Service,
}

impl AccountKind {
    /// The kind as written in subjects.
    pub fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Service => "serviceAccount",
        }
    }
}

/// A user or a service account.
#[derive(Debug, Clone)]
pub struct Account {
    /// Whether it is a person or a program.
    pub kind: AccountKind,
    /// Id of the entity; it never changes.
    pub id: String,
    /// Its name: `username`, `clientId`.
    pub name: String,
    /// Claim `email` of tokens with that scope; none: it is left out.
    pub email: Option<String>,
    /// Claim `name` of tokens with scope `profile`; empty: it is left out.
    pub display_name: String,
    /// Whether it may sign in.
    pub enabled: bool,
    /// Whether the password is temporary.
    pub must_change: bool,
    /// Hash of the password (PHC), or of the secret (SHA-256, hexadecimal).
    pub hash: Option<Secret>,
    /// Hash of the previous secret, and when that expires.
    pub old_hash: Option<(Secret, i64)>,
}

/// An API key.
#[derive(Debug, Clone)]
pub struct Key {
    /// Id of the entity in `rbac/keys`.
    pub entity_id: String,
    /// The twelve characters of the key that identify it.
    pub key_id: String,
    /// SHA-256 of the whole key, hexadecimal.
    pub hash: Secret,
    /// Kind and id of the owner.
    pub owner: (AccountKind, String),
    /// The owner's rights that it is limited to; `None`: all of them.
    pub rights: Option<Rights>,
    /// When it expires, in Unix milliseconds; `None`: never.
    pub expires_ms: Option<i64>,
    /// Networks that it may be used from; empty: any.
    pub networks: Vec<String>,
}

/// The subject of a binding.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum BoundTo {
    /// One account, by kind and id.
    Account(AccountKind, String),
    /// All members of a group: their ids.
    Members(Vec<String>),
    /// Everyone to whom an external issuer gives this role.
    ExternalRole(String),
}

/// A role binding: rights, subject, expiry.
#[derive(Debug, Clone)]
pub struct Grant {
    /// The subject that holds the grant.
    pub to: BoundTo,
    /// The rights that it gives.
    pub rights: Rights,
    /// Name of the role that gives it.
    pub role: String,
    /// When it expires, in Unix milliseconds; `None`: never.
    pub expires_ms: Option<i64>,
}

/// What a directory is made from.
#[derive(Debug, Clone, Default)]
pub struct Accounts {
    /// Users and service accounts.
    pub accounts: Vec<Account>,
    /// API keys of all accounts.
    pub keys: Vec<Key>,
    /// Role bindings, including expired ones.
    pub grants: Vec<Grant>,
}

/// The rights of a subject, and when they change by an expiry.
#[derive(Debug, Clone)]
struct Held {
    rights: Arc<Rights>,
    until_ms: i64,
}

/// All accounts, by kind and id and by name, with their keys and grants.
#[derive(Debug, Default)]
pub struct Directory {
    accounts: HashMap<(AccountKind, String), Arc<Account>>,
    names: HashMap<(AccountKind, String), String>,
    keys: HashMap<String, Arc<Key>>,
    of_account: HashMap<(AccountKind, String), Vec<usize>>,
    of_role: HashMap<String, Vec<usize>>,
    grants: Vec<Grant>,
    held: RwLock<HashMap<(AccountKind, String), Held>>,
}

/// Most subjects whose rights are cached.
const HELD_MAX: usize = 10_000;

impl Directory {
    /// Makes a directory.
    pub fn new(all: Accounts) -> Self {
        Self::of(all.accounts.into_iter().map(Arc::new), all.keys.into_iter().map(Arc::new), all.grants)
    }

    /// Makes a directory of accounts and keys that others keep, too.
    pub fn of(
        accounts: impl IntoIterator<Item = Arc<Account>>,
        keys: impl IntoIterator<Item = Arc<Key>>,
        grants: Vec<Grant>,
    ) -> Self {
        let mut directory = Self { grants, ..Self::default() };
        for account in accounts {
            let name = account.name.to_lowercase();
            directory.names.insert((account.kind, name), account.id.clone());
            directory.accounts.insert((account.kind, account.id.clone()), account);
        }
        for key in keys {
            directory.keys.insert(key.key_id.clone(), key);
        }
        for (i, grant) in directory.grants.iter().enumerate() {
            match &grant.to {
                BoundTo::Account(kind, id) => directory.of_account.entry((*kind, id.clone())).or_default().push(i),
                BoundTo::Members(ids) => {
                    for (id, kind) in ids.iter().flat_map(|id| [(id, AccountKind::User), (id, AccountKind::Service)]) {
                        directory.of_account.entry((kind, id.clone())).or_default().push(i);
                    }
                }
                BoundTo::ExternalRole(name) => directory.of_role.entry(name.clone()).or_default().push(i),
            }
        }
        directory
    }

    /// Says whether there is any user.
    pub fn has_users(&self) -> bool {
        self.accounts.keys().any(|(kind, _)| *kind == AccountKind::User)
    }

    /// Finds an account by id.
    pub fn account(&self, kind: AccountKind, id: &str) -> Option<&Arc<Account>> {
        self.accounts.get(&(kind, id.to_owned()))
    }

    /// Finds an account by name, in any case.
    pub fn named(&self, kind: AccountKind, name: &str) -> Option<&Arc<Account>> {
        self.account(kind, self.names.get(&(kind, name.to_lowercase()))?)
    }

    /// Finds a key by its twelve characters.
    pub fn key(&self, key_id: &str) -> Option<&Arc<Key>> {
        self.keys.get(key_id)
    }

    fn grants_of(&self, kind: AccountKind, id: &str, now_ms: i64) -> impl Iterator<Item = &Grant> {
        let places = self.of_account.get(&(kind, id.to_owned())).into_iter().flatten();
        places.map(|i| &self.grants[*i]).filter(move |g| g.expires_ms.is_none_or(|end| end > now_ms))
    }

    /// The rights of an account.
    pub fn rights(&self, kind: AccountKind, id: &str, now_ms: i64) -> Arc<Rights> {
        let account = (kind, id.to_owned());
        if let Some(held) = self.held.read().get(&account).filter(|h| now_ms < h.until_ms) {
            return Arc::clone(&held.rights);
        }
        let rights: Arc<Rights> =
            Arc::new(self.grants_of(kind, id, now_ms).flat_map(|g| g.rights.triples().to_vec()).collect());
        let until_ms = self.grants_of(kind, id, now_ms).filter_map(|g| g.expires_ms).min().unwrap_or(i64::MAX);
        let mut held = self.held.write();
        if held.len() >= HELD_MAX {
            held.clear();
        }
        held.insert(account, Held { rights: Arc::clone(&rights), until_ms });
        rights
    }

    /// The rights that roles of an external issuer give; unknown roles give none.
    pub fn rights_of_roles(&self, roles: &[String], now_ms: i64) -> Rights {
        let places = roles.iter().filter_map(|role| self.of_role.get(role)).flatten();
        let grants = places.map(|i| &self.grants[*i]).filter(|g| g.expires_ms.is_none_or(|end| end > now_ms));
        grants.flat_map(|g| g.rights.triples().to_vec()).collect()
    }

    /// Names of our roles that are bound to roles of an external issuer.
    pub fn roles_by_roles(&self, roles: &[String], now_ms: i64) -> Vec<String> {
        let places = roles.iter().filter_map(|role| self.of_role.get(role)).flatten();
        let grants = places.map(|i| &self.grants[*i]).filter(|g| g.expires_ms.is_none_or(|end| end > now_ms));
        grants.map(|g| g.role.clone()).collect()
    }

    /// Names of the roles of an account.
    pub fn roles(&self, kind: AccountKind, id: &str, now_ms: i64) -> Vec<String> {
        let mut roles: Vec<String> = self.grants_of(kind, id, now_ms).map(|g| g.role.clone()).collect();
        roles.sort_unstable();
        roles.dedup();
        roles
    }

    /// Each triple of an account, with the role that gives it.
    pub fn triples_by_role(&self, kind: AccountKind, id: &str, now_ms: i64) -> Vec<(Triple, String)> {
        let each = |g: &Grant| g.rights.triples().iter().map(|t| (t.clone(), g.role.clone())).collect::<Vec<_>>();
        self.grants_of(kind, id, now_ms).flat_map(each).collect()
    }

    /// Ids of users whose sessions end between this directory and a later one: they are gone or disabled, or have another
    /// password.
    pub fn ended_by(&self, later: &Self) -> Vec<String> {
        let ends = |user: &Account| match later.account(AccountKind::User, &user.id) {
            None => true,
            Some(now) => (user.enabled && !now.enabled) || user.hash != now.hash,
        };
        let users = self.accounts.values().filter(|account| account.kind == AccountKind::User);
        users.filter(|user| ends(user)).map(|user| user.id.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rights(text: &str) -> Rights {
        [Triple::of_json(&json!(text)).unwrap()].into_iter().collect()
    }

    /// Sessions end with what the user loses, and with nothing else that changes.
    #[test]
    fn users_that_are_let_in_no_longer() {
        let user = |id: &str, enabled, password: Option<&str>| Account {
            kind: AccountKind::User,
            id: id.to_owned(),
            name: id.to_owned(),
            email: None,
            display_name: String::new(),
            enabled,
            must_change: false,
            hash: password.map(Secret::new),
            old_hash: None,
        };
        let program = |id: &str, secret| Account { kind: AccountKind::Service, ..user(id, true, Some(secret)) };
        let directory = |accounts| Directory::new(Accounts { accounts, ..Accounts::default() });
        let before = directory(vec![
            user("as it was", true, Some("a")),
            user("renamed", true, Some("a")),
            user("let in again", false, Some("a")),
            user("disabled", true, Some("a")),
            user("another password", true, Some("a")),
            user("no password", true, Some("a")),
            user("gone", true, None),
            program("program", "a"),
            program("gone program", "a"),
        ]);
        let after = directory(vec![
            user("as it was", true, Some("a")),
            Account { name: "other".to_owned(), must_change: true, ..user("renamed", true, Some("a")) },
            user("let in again", true, Some("a")),
            user("disabled", false, Some("a")),
            user("another password", true, Some("b")),
            user("no password", true, None),
            user("new", true, Some("a")),
            program("program", "b"),
        ]);
        let mut ended = before.ended_by(&after);
        ended.sort_unstable();
        assert_eq!(ended, ["another password", "disabled", "gone", "no password"]);
        assert!(before.ended_by(&before).is_empty());
    }

    #[test]
    fn rights_end_with_their_bindings() {
        let grant = |to, text, expires_ms| Grant { to, rights: rights(text), role: text.to_owned(), expires_ms };
        let user = || BoundTo::Account(AccountKind::User, "u".to_owned());
        let directory = Directory::new(Accounts {
            grants: vec![
                grant(user(), "{view, logs, a}", None),
                grant(user(), "{view, logs, b}", Some(100)),
                grant(BoundTo::Members(vec!["u".to_owned(), "v".to_owned()]), "{view, logs, c}", None),
                grant(BoundTo::ExternalRole("ops".to_owned()), "{admin, *, *}", None),
            ],
            ..Accounts::default()
        });
        let services_of = |kind, id: &str, now| {
            directory.rights(kind, id, now).access(quiver_types::Right::View, quiver_types::Domain::Logs).patterns()
        };
        let services = |id: &str, now| services_of(AccountKind::User, id, now);
        assert_eq!(services("u", 50), ["a", "b", "c"]);
        // What is bound to a person is not bound to a program of the same id.
        assert_eq!(services_of(AccountKind::Service, "u", 50), ["c"], "as a member");
        assert_eq!(services("u", 100), ["a", "c"]);
        assert_eq!(services("v", 50), ["c"]);
        assert!(services("w", 50).is_empty());
        assert_eq!(directory.rights_of_roles(&["ops".to_owned(), "else".to_owned()], 0), Rights::full());
        assert_eq!(directory.rights_of_roles(&["else".to_owned()], 0), Rights::default());
    }
}
