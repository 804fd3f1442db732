//! Checks and reads members of a body.

use quiver_config::{Problem, Result};
use serde_json::{Map, Value};

/// Refuses members that an operation does not know.
pub(crate) fn only_members(body: &Map<String, Value>, known: &[&str]) -> Result<()> {
    match body.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(Problem::field(format!("/{key}"), "UNKNOWN_FIELD", "there is no such field")),
        None => Ok(()),
    }
}

/// Reads a list of a body; an error if it has more than `max` items.
pub(super) fn list<'a>(body: &'a Map<String, Value>, key: &str, max: usize) -> Result<&'a [Value]> {
    match body.get(key) {
        None | Some(Value::Null) => Err(Problem::field(format!("/{key}"), "REQUIRED", "is required")),
        Some(Value::Array(items)) if items.len() <= max => Ok(items),
        Some(Value::Array(_)) => {
            let why = format!("must have at most {max} entries");
            Err(Problem::field(format!("/{key}"), "LIMIT_EXCEEDED", why))
        }
        Some(_) => Err(Problem::field(format!("/{key}"), "INVALID_TYPE", "must be a list")),
    }
}
