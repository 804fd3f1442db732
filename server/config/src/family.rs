//! A family as data, and who asks.

use std::net::IpAddr;

use futures::future::BoxFuture;
use quiver_database::Connection;
use quiver_types::{Domain, Right, Rights};
use serde_json::{Map, Value, json};

use crate::area::{Area, STAGED};
use crate::entity::{Drafted, Entity};
use crate::fields::{Field, Kind, Mode};
use crate::filter::Class;
use crate::problem::{FieldError, Result};

/// What becomes of an entity when one is deleted that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDelete {
    /// What is named stays: 409 `REFERENCED`.
    Refuse,
    /// It goes along.
    Cascade,
    /// It forgets the name.
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

/// One entity names another.
#[derive(Debug, Clone)]
pub struct Link {
    /// Where: a JSON Pointer; empty for the owner in the path.
    pub pointer: String,
    /// The families in which the id may be.
    pub families: &'static [&'static str],
    /// Id of the entity that is named.
    pub id: String,
    /// What becomes of the one that names.
    pub on_delete: OnDelete,
}

/// A check that needs more than the entity: it reads within the transaction, after the change.
pub type Hook = for<'a> fn(
    &'a mut Connection,
    &'a Caller,
    i64,
    Option<&'a Entity>,
    Option<&'a Entity>,
) -> BoxFuture<'a, Result<()>>;

/// What a family puts into an entity before it is stored, or refuses: what follows from other entities.
pub type Prepare = for<'a> fn(&'a mut Connection, &'a Making<'a>, &'a mut Drafted) -> BoxFuture<'a, Result<()>>;

/// An entity that is being made or changed.
pub struct Making<'a> {
    /// Who makes it.
    pub caller: &'a Caller,
    /// Its id, where it has one already.
    pub id: Option<&'a str>,
    /// The entity as it was; none: it is new.
    pub before: Option<&'a Entity>,
    /// The interval of groups of rules that name none.
    pub group_interval: &'a str,
    /// Makes an id that nothing else has, for parts of the entity that need one.
    pub new_id: &'a (dyn Fn() -> String + Send + Sync),
}

impl std::fmt::Debug for Making<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Making").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Who sees which entities of a family (`identity-and-access` 3 and 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// Whoever may come at all; the table of rights has asked.
    Open,
    /// Who may see all services that the entity is about, and may write it who may write all of them.
    Service,
    /// As `Service`; to write it, the right for the first service and view of the others is enough.
    First,
    /// Shared ones everybody, private ones their owner, who writes them without any right.
    Private,
    /// Whoever knows the id. Their owner writes them without any right, and lists show only those that one may write.
    ById,
}

/// A family of entities.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "what families do or do not, each for itself")]
pub struct Family {
    /// Its name in audit and references: the path without its area.
    pub name: &'static str,
    /// Its collection path; `{owner}` stands for the owner's collection and id.
    pub path: &'static str,
    /// Domain of the rights that reading and changing it need.
    pub domain: Domain,
    /// The right that is needed to change it.
    pub write: Right,
    /// The field that names an entity.
    pub title: &'static str,
    /// Whether entities have `name`.
    pub has_name: bool,
    /// Whether entities have `enabled`.
    pub has_enabled: bool,
    /// Whether its entities are reached by paths of its own instead of those of the contract.
    pub own_paths: bool,
    /// Fields beside the common ones.
    pub fields: &'static [Field],
    /// Fields that are unique together, within the owner.
    pub unique: &'static [&'static [&'static str]],
    /// Families of the owner that the path names, if there is one.
    pub owners: &'static [&'static str],
    /// Gives the other entities that an entity names.
    pub links: fn(&Map<String, Value>) -> Vec<Link>,
    /// Checks what must hold between several fields.
    pub rules: fn(&Map<String, Value>, &mut Vec<FieldError>),
    /// Checks what must hold between several entities.
    pub hook: Option<Hook>,
    /// The service that an entity is about; empty: none.
    pub service: fn(&Map<String, Value>) -> String,
    /// Entities that are always there: id and body.
    pub builtin: fn() -> Vec<(&'static str, Value)>,
    /// Which of its entities a caller sees.
    pub rows: Rows,
    /// Most entities of the whole family, owners together; more are refused.
    pub entities_max: i64,
    /// The natural order of an ordered family: fields with whether they descend. Its last one is `position`.
    pub natural: &'static [(&'static str, bool)],
    /// What follows from other entities.
    pub prepare: Option<Prepare>,
    /// Whether its entities make a whole with those of the other families that do; it is checked after each change.
    pub composes: bool,
    /// Fields that are shown and follow from other entities.
    pub derived: &'static [&'static str],
    /// Whether those that are always there may be changed, though not deleted.
    pub builtin_open: bool,
}

/// Fields of all families.
const COMMON: [Field; 2] =
    [Field::open("description", Kind::Prose { max: 4000 }, "\"\""), Field::open("labels", Kind::Labels, "{}")];
const NAME: Field = Field::required("name", Kind::Text { min: 1, max: 200 });
const ENABLED: Field = Field::open("enabled", Kind::Bool, "true");
/// Fields that the service keeps beside the body.
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

    /// What the values at a path are, where the field itself stands there.
    pub(crate) fn class_of(&self, path: &str) -> Option<Class> {
        match path {
            "createdAt" | "updatedAt" => Some(Class::Time),
            "version" => Some(Class::Number),
            _ if KEPT.contains(&path) => Some(Class::Text),
            // What is shown need not be what is stored.
            _ if self.derived.contains(&path) => None,
            _ => self.kind_of(path).and_then(Class::of),
        }
    }

    /// Says whether all its entities stand in one order, which one list of ids gives; those of a tree do below each parent.
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
    pub fn kind_of(&self, name: &str) -> Option<Kind> {
        self.field(name).map(|field| field.kind)
    }
}

/// For families of entities without a service.
pub(crate) fn no_service(_: &Map<String, Value>) -> String {
    String::new()
}

/// For families without rules over several fields.
pub(crate) fn no_rules(_: &Map<String, Value>, _: &mut Vec<FieldError>) {}

/// For families without entities that are always there.
pub(crate) fn no_builtin() -> Vec<(&'static str, Value)> {
    Vec::new()
}

/// For families that name no others.
pub(crate) fn no_links(_: &Map<String, Value>) -> Vec<Link> {
    Vec::new()
}

/// What bounds an API key beside its rights.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyBounds {
    /// Until when it is good, in Unix milliseconds; none: for ever.
    pub expires_ms: Option<i64>,
    /// Networks that it may be used from; empty: any.
    pub networks: Vec<String>,
}

/// Who asks, by what and with which rights: what changes and reads are checked against and noted under.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Stable: `user:<id>`, `serviceAccount:<id>`, `oidc:<issuer>:<subject>`, `system`.
    pub subject: String,
    /// The user that somebody of another issuer is here.
    pub external_id: Option<String>,
    /// Name that people know the caller by; it may change.
    pub name: String,
    /// `user`, `serviceAccount`, `system`, `anonymous`.
    pub kind: &'static str,
    /// Address of the client; none: it is not known, or the service itself asks.
    pub ip: Option<IpAddr>,
    /// Id of the HTTP request, by which its log lines and audit entries are found.
    pub request_id: String,
    /// What it may do.
    pub rights: Rights,
    /// The bounds of the API key by which it came.
    pub key: Option<KeyBounds>,
    /// By what it writes: `api`, `ui`, `file`, `deploy:<source>`, `builtin`.
    pub manager: String,
    /// Whether it writes what another manager owns.
    pub override_managed: bool,
}

impl Caller {
    pub(crate) const SETUP: &'static str = "setup";

    /// The service itself, before there is an administrator.
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

    /// The members of an audit row that say who.
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
