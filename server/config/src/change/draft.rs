//! From what a request says to what is stored: fields one by one, defaults, all errors at once.

use serde_json::{Map, Value, json};

use super::System;
use crate::document::Entity;
use crate::family::{Family, KEPT};
use crate::fields::{Field, Mode, SECRET, fill};
use crate::problem::{FieldError, Problem, Result};
use crate::staged::STAGED;

/// Most fields of a body that are looked at.
const FIELDS_MAX: usize = 200;

/// How fields of the service in a body are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Those that differ are refused.
    Strict,
    /// They are ignored: imports.
    Lenient,
}

/// What a body is read against.
pub(crate) struct Draft<'a> {
    pub(crate) family: &'static Family,
    pub(crate) before: Option<&'a Entity>,
    pub(crate) reading: Reading,
}

/// What is going to be stored.
#[derive(Debug)]
pub struct Drafted {
    /// Fields.
    pub body: Map<String, Value>,
    /// What nobody reads: hashes of secrets, and services that follow from other entities.
    pub sealed: Map<String, Value>,
    /// What a request says of fields that follow from other entities, where it may not differ.
    pub said: Map<String, Value>,
}

/// The JSON Pointer of a member.
fn pointer(key: &str) -> String {
    format!("/{}", crate::json::shown(key).replace('~', "~0").replace('/', "~1"))
}

impl Draft<'_> {
    pub(crate) fn read(&self, input: Map<String, Value>, system: System) -> Result<Drafted> {
        let stored = self.before.map(Entity::shown).unwrap_or_default();
        let mut sealed = self.before.map(|b| b.sealed.clone()).unwrap_or_default();
        let (mut body, mut said, mut errors) = (Map::new(), Map::new(), Vec::new());
        if input.len() > FIELDS_MAX {
            return Err(Problem::field("", "LIMIT_EXCEEDED", format!("has more than {FIELDS_MAX} fields")));
        }
        for (key, value) in &input {
            match self.family.field(key) {
                Some(field) if field.mode == Mode::ReadOnly => self.read_only(key, value, &stored, &mut errors),
                Some(field) if field.mode == Mode::WriteOnly => {
                    secret(field, value, &system, &mut sealed, &mut errors);
                }
                Some(_) if value.is_null() => {}
                Some(field) => {
                    let value = field.kind.check(value, &pointer(key), &mut errors);
                    body.insert(key.clone(), value);
                }
                None if KEPT.contains(&key.as_str()) => self.read_only(key, value, &stored, &mut errors),
                // It says how things stand, and comes back with what was read.
                None if self.family.can_wait() && key == STAGED => {}
                None if self.family.derived.contains(&key.as_str()) => {
                    said.extend((self.reading == Reading::Strict).then(|| (key.clone(), value.clone())));
                }
                None => errors.push(FieldError::new(pointer(key), "UNKNOWN_FIELD", "there is no such field")),
            }
        }
        for field in self.family.all_fields() {
            let missing = !body.contains_key(field.name);
            if field.mode == Mode::Required && missing {
                errors.push(FieldError::new(pointer(field.name), "REQUIRED", "is required"));
            }
            if field.mode == Mode::ReadOnly {
                let value = system.body.get(field.name).or_else(|| stored.get(field.name)).cloned();
                body.insert(field.name.to_owned(), value.unwrap_or_else(|| field.default_value()));
            }
        }
        fill(&mut body, self.family.all_fields());
        if errors.is_empty() {
            (self.family.rules)(&body, &mut errors);
        }
        if !errors.is_empty() {
            return Err(Problem::invalid(errors));
        }
        sealed.extend(system.sealed);
        Ok(Drafted { body, sealed, said })
    }

    fn read_only(&self, key: &str, value: &Value, stored: &Map<String, Value>, errors: &mut Vec<FieldError>) {
        if self.reading == Reading::Strict && stored.get(key) != Some(value) {
            errors.push(FieldError::new(pointer(key), "READ_ONLY_FIELD", "is set by the service"));
        }
    }
}

/// A secret comes hashed in `system`; the text that stands for it keeps what is stored.
fn secret(field: Field, value: &Value, system: &System, sealed: &mut Map<String, Value>, errors: &mut Vec<FieldError>) {
    match value {
        Value::Null => {
            sealed.remove(field.name);
        }
        Value::String(text) if text == SECRET => {
            if !sealed.contains_key(field.name) && !system.sealed.contains_key(field.name) {
                errors.push(FieldError::new(pointer(field.name), "REQUIRED", "no secret is stored that could be kept"));
            }
        }
        _ => errors.push(FieldError::new(pointer(field.name), "INVALID_TYPE", "must be a text")),
    }
}

/// As an audit row shows an entity: that there are secrets, not which.
pub(crate) fn audited(entity: &Entity) -> Value {
    let mut map = entity.shown();
    for key in entity.sealed.keys().filter(|key| *key != crate::access::SERVICES) {
        map.insert(key.clone(), json!(SECRET));
    }
    Value::Object(map)
}
