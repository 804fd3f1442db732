//! Converts the body of a request to what is stored: checks each field, adds defaults, and collects all errors.

use serde_json::{Map, Value};

use super::System;
use crate::area::STAGED;
use crate::entity::{DraftContent, Entity};
use crate::family::{Family, KEPT};
use crate::fields::{Field, Mode, SECRET, fill};
use crate::problem::{FieldError, Problem, Result};

/// Most fields of a body that are checked.
const FIELDS_MAX: usize = 200;

/// How read-only fields in a body are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOnlyPolicy {
    /// An error if they differ from the stored value.
    Strict,
    /// Ignored; for imports.
    Lenient,
}

/// What a body is checked against.
pub(crate) struct Draft<'a> {
    pub(crate) family: &'static Family,
    pub(crate) before: Option<&'a Entity>,
    pub(crate) reading: ReadOnlyPolicy,
}

/// The JSON Pointer of a member.
fn pointer(key: &str) -> String {
    format!("/{}", crate::problem::shown(key).replace('~', "~0").replace('/', "~1"))
}

impl Draft<'_> {
    pub(crate) fn read(&self, input: Map<String, Value>, system: System) -> Result<DraftContent> {
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
                // It shows whether changes are waiting, and is sent back with an entity that was read.
                None if self.family.can_wait() && key == STAGED => {}
                None if self.family.derived.contains(&key.as_str()) => {
                    said.extend((self.reading == ReadOnlyPolicy::Strict).then(|| (key.clone(), value.clone())));
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
        Ok(DraftContent { body, sealed, said, given: Vec::new() })
    }

    fn read_only(&self, key: &str, value: &Value, stored: &Map<String, Value>, errors: &mut Vec<FieldError>) {
        if self.reading == ReadOnlyPolicy::Strict && stored.get(key) != Some(value) {
            errors.push(FieldError::new(pointer(key), "READ_ONLY_FIELD", "is set by the service"));
        }
    }
}

/// Checks a secret. Its hash is in `system`; the placeholder keeps the stored one.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::audit::audited;
    use crate::families::{RULES, USERS};

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    /// Checks a body; returns the errors if there are any.
    fn read(
        family: &'static Family,
        before: Option<&Entity>,
        reading: ReadOnlyPolicy,
        input: Value,
        system: System,
    ) -> Result<DraftContent, Vec<String>> {
        let draft = Draft { family, before, reading };
        let places = |problem: Problem| problem.errors.iter().map(|e| format!("{} {}", e.field, e.code)).collect();
        draft.read(map(input), system).map_err(places)
    }

    #[test]
    fn fields_of_the_service() {
        let strict = |before: Option<&Entity>, input: Value| {
            read(&USERS, before, ReadOnlyPolicy::Strict, input, System::default()).map(|drafted| drafted.body)
        };
        let refused = strict(None, json!({"username": "ann", "nmae": 1, "version": 7, "source": "oidc", "a/b~": 1}));
        let expected =
            ["/a~1b~0 UNKNOWN_FIELD", "/nmae UNKNOWN_FIELD", "/source READ_ONLY_FIELD", "/version READ_ONLY_FIELD"];
        assert_eq!(refused.unwrap_err(), expected);
        assert_eq!(strict(None, json!({"username": null})).unwrap_err(), ["/username REQUIRED"]);
        let made = strict(None, json!({"username": "ann", "email": null})).unwrap();
        assert_eq!((&made["source"], &made["email"], &made["enabled"]), (&json!("local"), &Value::Null, &json!(true)));
        // An entity may be sent back as it was shown; its read-only fields keep their stored values.
        let before = Entity::for_tests("i", json!({"username": "ann", "source": "oidc"}));
        let sent = json!({"username": "bob", "id": "i", "version": 1, "source": "oidc"});
        assert_eq!(strict(Some(&before), sent).unwrap()["source"], json!("oidc"));
        let sent = json!({"username": "bob", "id": "j", "version": 2});
        assert_eq!(strict(Some(&before), sent).unwrap_err(), ["/id READ_ONLY_FIELD", "/version READ_ONLY_FIELD"]);
        // Imports contain read-only fields of another server, which are ignored here.
        let sent = json!({"username": "bob", "id": "j", "version": 2, "source": "oidc", "createdAt": 5});
        let imported = read(&USERS, None, ReadOnlyPolicy::Lenient, sent.clone(), System::default()).unwrap();
        assert_eq!((&imported.body["source"], imported.body.get("version")), (&json!("local"), None));
        let system = System { body: map(json!({"source": "file"})), ..System::default() };
        assert_eq!(
            read(&USERS, Some(&before), ReadOnlyPolicy::Lenient, sent, system).unwrap().body["source"],
            json!("file")
        );
    }

    #[test]
    fn secrets_are_kept_by_what_stands_for_them() {
        let mut before = Entity::for_tests("i", json!({"username": "ann"}));
        before.sealed.insert("password".to_owned(), json!("old"));
        let sealed = |before: Option<&Entity>, password: Value, new: Option<&str>| {
            let sealed = new.map(|new| ("password".to_owned(), json!(new))).into_iter().collect();
            let input = json!({"username": "ann", "password": password});
            let drafted = read(&USERS, before, ReadOnlyPolicy::Strict, input, System { sealed, ..System::default() })?;
            assert_eq!(drafted.body.get("password"), None, "it is nowhere to be read");
            Ok::<_, Vec<String>>(drafted.sealed.get("password").cloned())
        };
        assert_eq!(sealed(Some(&before), json!(SECRET), None), Ok(Some(json!("old"))));
        assert_eq!(sealed(Some(&before), json!(null), None), Ok(None));
        assert_eq!(sealed(Some(&before), json!(SECRET), Some("new")), Ok(Some(json!("new"))));
        assert_eq!(sealed(None, json!(SECRET), Some("new")), Ok(Some(json!("new"))));
        assert_eq!(sealed(None, json!(SECRET), None), Err(vec!["/password REQUIRED".to_owned()]));
        // A plaintext here was not hashed.
        for plain in [json!("plain"), json!(5), json!({})] {
            assert_eq!(sealed(Some(&before), plain, None), Err(vec!["/password INVALID_TYPE".to_owned()]));
        }
        let body = json!({"username": "ann"});
        let kept = read(&USERS, Some(&before), ReadOnlyPolicy::Strict, body, System::default()).unwrap().sealed;
        assert_eq!(kept["password"], json!("old"), "nothing is said of it");
        before.sealed.insert(crate::access::SERVICES.to_owned(), json!(["cart"]));
        let shown = audited(&before);
        assert_eq!((&shown["password"], &shown["username"]), (&json!(SECRET), &json!("ann")));
        assert_eq!(shown.get(crate::access::SERVICES), None);
    }

    #[test]
    fn what_follows_from_others_is_heard() {
        let rule = json!({"group": "g", "expr": "up", "interval": "1m", "staged": true});
        let said = |reading: ReadOnlyPolicy| {
            let drafted = read(&RULES, None, reading, rule.clone(), System::default()).unwrap();
            assert!(!drafted.body.contains_key("interval") && !drafted.body.contains_key("staged"));
            Value::Object(drafted.said)
        };
        assert_eq!(said(ReadOnlyPolicy::Strict), json!({"interval": "1m"}));
        assert_eq!(said(ReadOnlyPolicy::Lenient), json!({}));
        let user = json!({"username": "ann", "staged": true, "interval": "1m"});
        let refused = read(&USERS, None, ReadOnlyPolicy::Lenient, user, System::default()).unwrap_err();
        assert_eq!(refused, ["/interval UNKNOWN_FIELD", "/staged UNKNOWN_FIELD"], "nothing of users can wait");
    }

    #[test]
    fn bodies_are_bounded() {
        let wrong = |count: usize| {
            let input = Value::Object((0..count).map(|n| (format!("x{n}"), json!(1))).collect());
            read(&USERS, None, ReadOnlyPolicy::Strict, input, System::default()).unwrap_err()
        };
        assert_eq!(wrong(FIELDS_MAX + 1), [" LIMIT_EXCEEDED"]);
        let listed = wrong(FIELDS_MAX);
        assert_eq!((listed.len(), listed[0].as_str()), (100, "/x0 UNKNOWN_FIELD"));
    }
}
