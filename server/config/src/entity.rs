//! An entity: as stored, as shown, and as drafted by a change.

use quiver_database::{Connection, Row, statement};
use serde_json::{Map, Value, json};

use crate::json::{text, time_text};
use crate::problem::{Problem, Result};

/// An entity as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Entity {
    /// Its id, which never changes.
    pub id: String,
    /// Its owner, see [`crate::Place`].
    pub owner: String,
    /// Incremented by each change.
    pub version: i64,
    pub(crate) created_ms: i64,
    pub(crate) updated_ms: i64,
    pub(crate) created_by: String,
    pub(crate) updated_by: String,
    /// Who manages it: `ui`, `builtin`, or a manager's name.
    pub managed_by: String,
    /// Its fields, without those that the server maintains, such as `id` and `version`.
    pub body: Map<String, Value>,
    /// What is never shown: hashes of secrets.
    pub sealed: Map<String, Value>,
}

impl Entity {
    pub(crate) const COLUMNS: &'static str =
        "id, owner, version, created_ms, updated_ms, created_by, updated_by, managed_by, body, sealed";

    pub(crate) fn read(row: &Row) -> Result<Self> {
        let json = |text: String| serde_json::from_str(&text).map_err(Problem::internal);
        Ok(Self {
            id: row.try_get(0)?,
            owner: row.try_get(1)?,
            version: row.try_get(2)?,
            created_ms: row.try_get(3)?,
            updated_ms: row.try_get(4)?,
            created_by: row.try_get(5)?,
            updated_by: row.try_get(6)?,
            managed_by: row.try_get(7)?,
            body: json(row.try_get(8)?)?,
            sealed: json(row.try_get(9)?)?,
        })
    }

    /// A text among its fields; empty where there is none.
    pub fn text(&self, field: &str) -> &str {
        text(&self.body, field)
    }

    /// Gives it as the API shows it.
    pub fn shown(&self) -> Map<String, Value> {
        self.shown_with(self.body.clone())
    }

    /// Like [`Self::shown`], moving the fields out of the entity.
    pub(crate) fn take_shown(&mut self) -> Map<String, Value> {
        let body = std::mem::take(&mut self.body);
        self.shown_with(body)
    }

    fn shown_with(&self, mut map: Map<String, Value>) -> Map<String, Value> {
        let kept: [(&str, Value); 7] = [
            ("id", json!(self.id)),
            ("version", json!(self.version)),
            ("createdAt", json!(time_text(self.created_ms))),
            ("updatedAt", json!(time_text(self.updated_ms))),
            ("createdBy", json!(self.created_by)),
            ("updatedBy", json!(self.updated_by)),
            ("managedBy", json!(self.managed_by)),
        ];
        map.extend(kept.map(|(key, value)| (key.to_owned(), value)));
        map
    }

    /// Makes an entity that is not stored.
    #[doc(hidden)]
    pub fn for_tests(id: &str, body: Value) -> Self {
        Self {
            id: id.to_owned(),
            owner: String::new(),
            version: 1,
            created_ms: 0,
            updated_ms: 0,
            created_by: String::new(),
            updated_by: String::new(),
            managed_by: "api".to_owned(),
            body: body.as_object().cloned().unwrap_or_default(),
            sealed: Map::new(),
        }
    }

    /// When it was changed, in Unix milliseconds.
    pub fn updated_ms(&self) -> i64 {
        self.updated_ms
    }

    /// Its ETag, with the quotes.
    pub fn etag(&self) -> String {
        format!("\"{}\"", self.version)
    }
}

/// The new content of an entity, before it is stored.
#[derive(Debug)]
pub struct DraftContent {
    /// Visible fields, checked and with defaults.
    pub body: Map<String, Value>,
    /// What is never shown: hashes of secrets, and services derived from other entities.
    pub sealed: Map<String, Value>,
    /// Values that the request gives for derived fields; they must equal the derived ones.
    pub said: Map<String, Value>,
    /// Places of the secrets that the request gives itself, as JSON Pointers.
    pub given: Vec<String>,
}

/// The difference between two bodies: `{field: {from, to}}`.
pub fn diff(before: &Map<String, Value>, after: &Map<String, Value>) -> Value {
    let mut found = Map::new();
    for key in before.keys().chain(after.keys()) {
        let (from, to) = (before.get(key).unwrap_or(&Value::Null), after.get(key).unwrap_or(&Value::Null));
        if from != to {
            found.insert(key.clone(), json!({"from": from, "to": to}));
        }
    }
    Value::Object(found)
}

/// Reads an entity within a transaction.
pub(crate) async fn find(db: &mut Connection, family: &str, id: &str) -> Result<Option<Entity>> {
    let sql = format!("SELECT {} FROM entity WHERE family = ? AND id = ?", Entity::COLUMNS);
    let row = statement(sql).bind(family).bind(id).fetch_optional(db).await?;
    row.as_ref().map(Entity::read).transpose()
}

/// Reads all entities of a family within a transaction.
pub(crate) async fn all_of(db: &mut Connection, family: &str) -> Result<Vec<Entity>> {
    let sql = format!("SELECT {} FROM entity WHERE family = ? ORDER BY id", Entity::COLUMNS);
    let rows = statement(sql).bind(family).fetch_all(db).await?;
    rows.iter().map(Entity::read).collect()
}
