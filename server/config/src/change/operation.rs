//! A change: what is requested, under which condition, and what it did.

use serde_json::{Map, Value, json};

use crate::entity::{Entity, diff};
use crate::problem::{Problem, ProblemKind, Result};

/// A condition on the present entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// No condition: the last writer wins.
    None,
    /// It exists (`If-Match: *`).
    Exists,
    /// It has one of these versions.
    Versions(Vec<i64>),
    /// It has none of these versions (`If-None-Match`).
    Others(Vec<i64>),
    /// It does not exist (`If-None-Match: *`), so no change of an existing one is meant.
    Absent,
}

impl Condition {
    /// Checks the condition.
    ///
    /// # Errors
    /// `VERSION_CONFLICT`, with the present entity.
    pub fn check(&self, present: &Entity) -> Result<()> {
        let text = match self {
            Self::Versions(versions) if !versions.contains(&present.version) => "the entity has changed meanwhile",
            Self::Others(versions) if versions.contains(&present.version) => "the entity has this version",
            Self::Absent => "there is one with this id",
            _ => return Ok(()),
        };
        Err(Problem::new(ProblemKind::Precondition, "VERSION_CONFLICT", text)
            .with("current", Value::Object(present.shown()))
            .with("etag", json!(present.etag())))
    }
}

/// A change.
#[derive(Debug, Clone)]
pub enum Op {
    /// Creates an entity, with the given id or a new one.
    Create {
        /// Its id.
        id: Option<String>,
        /// Its fields.
        body: Map<String, Value>,
    },
    /// Replaces the body.
    Replace {
        /// Id of the entity.
        id: String,
        /// Its fields.
        body: Map<String, Value>,
        /// The condition.
        condition: Condition,
    },
    /// Changes some fields (RFC 7396).
    Patch {
        /// Id of the entity.
        id: String,
        /// The merge patch.
        patch: Map<String, Value>,
        /// The condition.
        condition: Condition,
    },
    /// Deletes the entity.
    Delete {
        /// Id of the entity.
        id: String,
        /// The condition.
        condition: Condition,
    },
    /// Restores a former version.
    Restore {
        /// Id of the entity.
        id: String,
        /// The version to restore.
        version: i64,
    },
}

impl Op {
    pub(crate) fn id(&self) -> Option<&str> {
        match self {
            Self::Create { id, .. } => id.as_deref(),
            Self::Replace { id, .. } | Self::Patch { id, .. } | Self::Delete { id, .. } | Self::Restore { id, .. } => {
                Some(id)
            }
        }
    }

    pub(crate) fn action(&self) -> &'static str {
        match self {
            Self::Create { .. } => "CREATE",
            Self::Replace { .. } | Self::Patch { .. } => "UPDATE",
            Self::Delete { .. } => "DELETE",
            Self::Restore { .. } => "RESTORE",
        }
    }

    pub(super) fn fields_mut(&mut self) -> Option<&mut Map<String, Value>> {
        match self {
            Self::Create { body, .. } | Self::Replace { body, .. } => Some(body),
            Self::Patch { patch, .. } => Some(patch),
            _ => None,
        }
    }
}

/// What the server itself sets in an entity, in addition to the request.
#[derive(Debug, Clone, Default)]
pub struct System {
    /// Read-only fields.
    pub body: Map<String, Value>,
    /// Hashes of secrets.
    pub sealed: Map<String, Value>,
    /// For a restored entity: when and by whom it was created.
    pub made: Option<(i64, String)>,
}

/// The outcome of a change.
#[derive(Debug, Clone)]
pub struct ChangeOutcome {
    /// `CREATE`, `UPDATE`, `DELETE`, `RESTORE`.
    pub action: &'static str,
    /// The entity before.
    pub before: Option<Entity>,
    /// The entity after.
    pub after: Option<Entity>,
    /// Whether the entity was changed by it.
    pub changed: bool,
    /// Name of the family.
    pub family: &'static str,
    /// Places of the secrets that the request gives itself, as JSON Pointers; it keeps the others.
    pub given: Vec<String>,
}

impl ChangeOutcome {
    /// The differences: an object of fields with `{from, to}`.
    pub fn diff(&self) -> Value {
        let body = |e: &Option<Entity>| e.as_ref().map(|e| e.body.clone()).unwrap_or_default();
        diff(&body(&self.before), &body(&self.after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::external_entities::ExternalEntity;

    fn entity(version: i64) -> Entity {
        let (times_ms, by) = ((0, 0), (String::new(), String::new()));
        Entity::from(ExternalEntity { id: "e".to_owned(), version, times_ms, by, body: Map::new() })
    }

    #[test]
    fn conditions_hold_or_tell_what_is_there() {
        for (condition, expected) in [
            (Condition::None, None),
            (Condition::Exists, None),
            (Condition::Versions(vec![3]), None),
            (Condition::Versions(vec![1, 3]), None),
            (Condition::Versions(vec![2]), Some("the entity has changed meanwhile")),
            // Without any of our tags no version can match.
            (Condition::Versions(Vec::new()), Some("the entity has changed meanwhile")),
            (Condition::Others(vec![2]), None),
            (Condition::Others(Vec::new()), None),
            (Condition::Others(vec![2, 3]), Some("the entity has this version")),
            (Condition::Absent, Some("there is one with this id")),
        ] {
            let told = condition.check(&entity(3)).err();
            assert_eq!(told.as_ref().map(|problem| problem.detail.as_str()), expected, "{condition:?}");
            if let Some(problem) = told {
                assert_eq!((problem.kind, problem.code), (ProblemKind::Precondition, "VERSION_CONFLICT"));
                assert_eq!((&problem.more["etag"], &problem.more["current"]["id"]), (&json!("\"3\""), &json!("e")));
            }
        }
    }

    #[test]
    fn changes_are_called_as_the_audit_log_has_them() {
        let (id, body) = (|| "1".to_owned(), Map::new);
        for (op, action, named, has_fields) in [
            (Op::Create { id: None, body: body() }, "CREATE", None, true),
            (Op::Create { id: Some(id()), body: body() }, "CREATE", Some("1"), true),
            (Op::Replace { id: id(), body: body(), condition: Condition::None }, "UPDATE", Some("1"), true),
            (Op::Patch { id: id(), patch: body(), condition: Condition::None }, "UPDATE", Some("1"), true),
            (Op::Delete { id: id(), condition: Condition::None }, "DELETE", Some("1"), false),
            (Op::Restore { id: id(), version: 1 }, "RESTORE", Some("1"), false),
        ] {
            assert_eq!((op.action(), op.id()), (action, named), "{op:?}");
            let mut op = op;
            assert_eq!(op.fields_mut().is_some(), has_fields, "{op:?}");
        }
    }
}
