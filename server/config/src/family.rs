//! A family as data, and who asks.

use std::net::IpAddr;

use futures::future::BoxFuture;
use quiver_database::Connection;
use quiver_types::{Domain, Right, Rights};
use serde_json::{Map, Value, json};

use crate::area::{Area, STAGED};
use crate::entity::{DraftContent, Entity};
use crate::fields::{Field, FieldKind, Mode};
use crate::filter::Class;
use crate::problem::{FieldError, Result};

/// What happens to an entity when another one is deleted that it refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDelete {
    /// The deletion is refused: 409 `REFERENCED`.
    Refuse,
    /// It is deleted, too.
    Cascade,
    /// The reference is removed.
    Detach,
}

impl OnDelete {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Cascade => "cascade",
            Self::Detach => "detach",
        }
    }
}

/// A reference from one entity to another.
#[derive(Debug, Clone)]
pub struct Link {
    /// JSON Pointer to the reference in the body; empty for the owner in the path.
    pub pointer: String,
    /// The families that the id may belong to.
    pub families: &'static [&'static str],
    /// Id of the entity that is referred to.
    pub id: String,
    /// What happens to the referring entity on deletion.
    pub on_delete: OnDelete,
}

/// Gives what the regular expressions of an entity take in memory, in bytes, where they stay compiled.
pub(crate) type PatternsBytes = fn(&Map<String, Value>) -> usize;

/// A check that needs more than the entity itself. It runs within the transaction, after the change.
pub type Hook = for<'a> fn(EntityChange<'a>) -> BoxFuture<'a, Result<()>>;

/// A change of an entity, as it is checked by a [`Hook`].
pub struct EntityChange<'a> {
    /// The transaction in which it was made.
    pub db: &'a mut Connection,
    /// The caller who makes the change.
    pub caller: &'a Caller,
    /// When it was made, as Unix time.
    pub now_ms: i64,
    /// The entity before the change; `None`: it is new.
    pub before: Option<&'a Entity>,
    /// The entity after the change; `None`: it was deleted.
    pub after: Option<&'a Entity>,
}

impl std::fmt::Debug for EntityChange<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids = [self.before, self.after].map(|entity| entity.map(|entity| &entity.id));
        f.debug_struct("EntityChange").field("ids", &ids).finish_non_exhaustive()
    }
}

/// Completes or refuses an entity before it is stored, depending on other entities.
pub type Prepare =
    for<'a> fn(&'a mut Connection, &'a ChangeContext<'a>, &'a mut DraftContent) -> BoxFuture<'a, Result<()>>;

/// An entity that is being created or changed.
pub struct ChangeContext<'a> {
    /// Who changes it.
    pub caller: &'a Caller,
    /// Its id, if it has one already.
    pub id: Option<&'a str>,
    /// The entity before the change; `None`: it is new.
    pub before: Option<&'a Entity>,
    /// The default interval of rule groups.
    pub group_interval: &'a str,
    /// Makes a unique id, for parts of the entity that need one.
    pub new_id: &'a (dyn Fn() -> String + Send + Sync),
}

impl std::fmt::Debug for ChangeContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeContext").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Who sees which entities of a family (`identity-and-access` 3 and 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// Everyone who passes the table of rights.
    Open,
    /// Seen by callers who may see all services of the entity, written by those who may write all of them.
    Service,
    /// As `Service`, but writing only needs the right for the first service, and view of the others.
    First,
    /// Shared ones are seen by everyone, private ones by their owner, who may write them without any right.
    Private,
    /// Seen by anyone who knows the id. The owner may write them without any right, and lists show only those that the
    /// caller may write.
    ById,
}

/// A family of entities.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "what families do or do not, each for itself")]
pub struct Family {
    /// Its name in audit rows and references: the path without its area.
    pub name: &'static str,
    /// Its collection path; `{owner}` stands for the owner's collection and id.
    pub path: &'static str,
    /// Domain of the rights to read and change it.
    pub domain: Domain,
    /// The right needed to change it.
    pub write: Right,
    /// The field that names an entity.
    pub title: &'static str,
    /// Whether entities have `name`.
    pub has_name: bool,
    /// Whether entities have `enabled`.
    pub has_enabled: bool,
    /// Whether its entities have routes of their own instead of the common ones.
    pub own_paths: bool,
    /// Fields besides the common ones.
    pub fields: &'static [Field],
    /// Fields that are unique together, within the owner.
    pub unique: &'static [&'static [&'static str]],
    /// Families that the owner in the path may belong to; empty: no owner.
    pub owners: &'static [&'static str],
    /// Gives the references of an entity.
    pub links: fn(&Map<String, Value>) -> Vec<Link>,
    /// Checks conditions that involve several fields.
    pub rules: fn(&Map<String, Value>, &mut Vec<FieldError>),
    /// What the regular expressions of an entity take in memory, in bytes, where they stay compiled; `None`: it has none.
    pub patterns_bytes: Option<PatternsBytes>,
    /// Checks conditions that involve several entities.
    pub hook: Option<Hook>,
    /// The service that an entity is about; empty: none.
    pub service: fn(&Map<String, Value>) -> String,
    /// Built-in entities: id and body.
    pub builtin: fn() -> Vec<(&'static str, Value)>,
    /// Which of its entities a caller sees.
    pub rows: Rows,
    /// Most entities of the whole family, over all owners.
    pub entities_max: i64,
    /// The natural order of an ordered family: fields, and whether they are descending. The last one is `position`.
    pub natural: &'static [(&'static str, bool)],
    /// What follows from other entities.
    pub prepare: Option<Prepare>,
    /// Whether its entities form one configuration with those of the other families that set this; it is checked as a
    /// whole after each change.
    pub composes: bool,
    /// Fields that are shown but computed from other entities.
    pub derived: &'static [&'static str],
    /// Whether built-in entities may be changed (they can never be deleted).
    pub builtin_open: bool,
}

/// Fields of all families.
const COMMON: [Field; 2] = [
    Field::open("description", FieldKind::Prose { max: 4000 }, "\"\""),
    Field::open("labels", FieldKind::Labels, "{}"),
];
const NAME: Field = Field::required("name", FieldKind::Text { min: 1, max: 200 });
const ENABLED: Field = Field::open("enabled", FieldKind::Bool, "true");
/// Fields that the server maintains besides the body.
pub const KEPT: [&str; 7] = ["id", "createdAt", "updatedAt", "createdBy", "updatedBy", "version", "managedBy"];

impl Family {
    /// A family without anything of its own, for `..Family::BASE`.
    pub(crate) const BASE: Self = Self {
        name: "",
        path: "",
        domain: Domain::System,
        write: Right::Edit,
        title: "name",
        has_name: true,
        has_enabled: false,
        own_paths: false,
        fields: &[],
        unique: &[&["name"]],
        owners: &[],
        links: no_links,
        rules: no_rules,
        patterns_bytes: None,
        hook: None,
        service: no_service,
        builtin: no_builtin,
        rows: Rows::Open,
        entities_max: 100_000,
        natural: &[],
        prepare: None,
        composes: false,
        derived: &[],
        builtin_open: false,
    };

    /// All fields of the body.
    pub fn all_fields(&self) -> impl Iterator<Item = Field> {
        let name = self.has_name.then_some(NAME);
        let enabled = self.has_enabled.then_some(ENABLED);
        name.into_iter().chain(enabled).chain(COMMON).chain(self.fields.iter().copied())
    }

    /// Gives a field of the body.
    pub(crate) fn field(&self, name: &str) -> Option<Field> {
        self.all_fields().find(|f| f.name == name)
    }

    /// Says whether the first part of a dotted path is a field that can be read.
    pub(crate) fn can_be_read(&self, path: &str) -> bool {
        let first = path.split('.').next().unwrap_or_default();
        KEPT.contains(&first)
            || self.can_wait() && first == STAGED
            || self.derived.contains(&first)
            || self.field(first).is_some_and(|f| f.mode != Mode::WriteOnly)
    }

    /// The class of the values at a path, if the path is a stored field.
    pub(crate) fn class_of(&self, path: &str) -> Option<Class> {
        match path {
            "createdAt" | "updatedAt" => Some(Class::Time),
            "version" => Some(Class::Number),
            _ if KEPT.contains(&path) => Some(Class::Text),
            // Derived fields are not stored as they are shown.
            _ if self.derived.contains(&path) => None,
            _ => self.kind_of(path).and_then(Class::of),
        }
    }

    /// Says whether all its entities have one order, which a single list of ids can set; those of a tree have one per
    /// parent.
    pub fn is_one_row(&self) -> bool {
        !self.natural.is_empty() && self.field("parentId").is_none()
    }

    /// Says whether changes of its entities can wait for a deploy.
    pub fn can_wait(&self) -> bool {
        Area::of(self.name).is_some()
    }

    /// The text that names an entity.
    pub(crate) fn title_of(&self, body: &Map<String, Value>) -> String {
        body.get(self.title).and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// The kind of a field of the body.
    pub fn kind_of(&self, name: &str) -> Option<FieldKind> {
        self.field(name).map(|field| field.kind)
    }
}

/// For families of entities without a service.
pub(crate) fn no_service(_: &Map<String, Value>) -> String {
    String::new()
}

/// For families without rules over several fields.
pub(crate) fn no_rules(_: &Map<String, Value>, _: &mut Vec<FieldError>) {}

/// For families without built-in entities.
pub(crate) fn no_builtin() -> Vec<(&'static str, Value)> {
    Vec::new()
}

/// For families without references.
pub(crate) fn no_links(_: &Map<String, Value>) -> Vec<Link> {
    Vec::new()
}

/// Restrictions of an API key besides its rights.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyBounds {
    /// When it expires, in Unix milliseconds; `None`: never.
    pub expires_ms: Option<i64>,
    /// Networks that it may be used from; empty: any.
    pub networks: Vec<String>,
}

/// Who makes a request, by what means and with which rights. Reads and changes are checked against it and recorded
/// under it.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Stable identity: `user:<id>`, `serviceAccount:<id>`, `oidc:<issuer>:<subject>`, `system`.
    pub subject: String,
    /// The local user of a caller with a token of another issuer.
    pub external_id: Option<String>,
    /// Name that people know the caller by; it may change.
    pub name: String,
    /// `user`, `serviceAccount`, `system`, `anonymous`.
    pub kind: &'static str,
    /// Address of the client; `None`: unknown, or the server itself.
    pub ip: Option<IpAddr>,
    /// Id of the HTTP request, by which its log lines and audit entries are found.
    pub request_id: String,
    /// What it may do.
    pub rights: Rights,
    /// The restrictions of the API key that was used.
    pub key: Option<KeyBounds>,
    /// The manager that it writes as: `api`, `ui`, `file`, `deploy:<source>`, `builtin`.
    pub manager: String,
    /// Whether it may overwrite what another manager owns.
    pub override_managed: bool,
}

impl Caller {
    pub(crate) const SETUP: &'static str = "setup";

    /// The server itself, before there is an administrator.
    pub fn setup() -> Self {
        Self { subject: Self::SETUP.to_owned(), ..Self::system() }
    }

    /// The service itself.
    pub fn system() -> Self {
        Self {
            subject: "system".to_owned(),
            external_id: None,
            name: "system".to_owned(),
            kind: "system",
            ip: None,
            request_id: String::new(),
            rights: Rights::full(),
            key: None,
            manager: "api".to_owned(),
            override_managed: false,
        }
    }

    /// Its account: the family, and the id.
    pub fn account(&self) -> Option<(&'static str, &str)> {
        if let Some(id) = &self.external_id {
            return Some(("rbac/users", id));
        }
        match self.subject.split_once(':')? {
            ("user", id) => Some(("rbac/users", id)),
            ("serviceAccount", id) => Some(("rbac/service-accounts", id)),
            _ => None,
        }
    }

    /// The fields of an audit row that describe the caller.
    pub(crate) fn audit_members(&self) -> Map<String, Value> {
        let members = json!({
            "actor": self.name, "actorType": self.kind, "actorId": self.subject,
            "ip": self.ip.map(|ip| ip.to_string()), "requestId": self.request_id,
        });
        match members {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }
}
