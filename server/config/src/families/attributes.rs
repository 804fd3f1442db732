//! Attributes declared by classes and types, and the validation of resources' values against them.

use serde_json::{Map, Value};

use super::body::text;
use crate::fields::{Field, FieldKind};
use crate::json::time_of;
use crate::problem::{FieldError, shown};

/// Most attributes per class or type.
pub(super) const ATTRIBUTES_MAX: usize = 100;
/// Longest string value, in characters.
const TEXT_CHARS_MAX: usize = 4000;

/// Fields of an attribute declaration.
pub(super) const ATTRIBUTE: &[Field] = &[
    Field::required("key", FieldKind::Text { min: 1, max: 100 }),
    Field::open("type", FieldKind::Word(&["string", "int", "double", "bool", "timestamp"]), "\"string\""),
    Field::open("required", FieldKind::Bool, "false"),
    Field::open("enum", FieldKind::Json, "null"),
    Field::open("default", FieldKind::Json, "null"),
];

/// Checks the declared attributes of a class or type: unique names, valid defaults.
pub(super) fn rules(body: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let all = body.get("attributes").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut seen: Vec<&str> = Vec::new();
    for (n, attribute) in all.iter().filter_map(Value::as_object).enumerate() {
        let mut put = |key: &str, code, why: &str| {
            errors.push(FieldError::new(format!("/attributes/{n}/{key}"), code, why));
        };
        let key = text(attribute, "key");
        if seen.contains(&key) {
            put("key", "INVALID_VALUE", "is given more than once");
        }
        seen.push(key);
        let kind = text(attribute, "type");
        match attribute.get("enum") {
            None | Some(Value::Null) => {}
            Some(Value::Array(items)) if items.iter().all(|v| is_of(v, kind)) && !items.is_empty() => {}
            Some(_) => put("enum", "INVALID_TYPE", "must be a list of values of the attribute's type"),
        }
        let default = attribute.get("default").filter(|v| !v.is_null());
        let values = attribute.get("enum").and_then(Value::as_array);
        match default {
            Some(value) if !is_of(value, kind) => {
                put("default", "INVALID_TYPE", "must be of the attribute's type");
            }
            Some(value) if values.is_some_and(|values| !values.contains(value)) => {
                put("default", "INVALID_VALUE", "is none of the values that the attribute takes");
            }
            _ => {}
        }
    }
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "int" => value.is_i64() || value.is_u64(),
        "double" => value.is_number(),
        "bool" => value.is_boolean(),
        "timestamp" => value.as_str().is_some_and(|t| time_of(t).is_some()),
        _ => value.as_str().is_some_and(|t| t.chars().count() <= TEXT_CHARS_MAX),
    }
}

/// All attributes that a resource may have.
#[derive(Debug, Default)]
pub(super) struct Attributes(Vec<Map<String, Value>>);

impl Attributes {
    /// Adds the attributes declared by a class or type; those already known take precedence.
    pub(super) fn add(&mut self, body: &Map<String, Value>) {
        let all = body.get("attributes").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for attribute in all.iter().filter_map(Value::as_object) {
            if self.find(text(attribute, "key")).is_none() {
                self.0.push(attribute.clone());
            }
        }
    }

    fn find(&self, key: &str) -> Option<&Map<String, Value>> {
        self.0.iter().find(|a| text(a, "key") == key)
    }

    pub(super) fn type_of(&self, key: &str) -> Option<&str> {
        self.find(key).map(|a| text(a, "type"))
    }

    /// Validates the values of a resource, and adds defaults.
    pub(super) fn check(&self, values: &mut Map<String, Value>, errors: &mut Vec<FieldError>) {
        values.retain(|_, value| !value.is_null());
        for (key, value) in values.iter() {
            let at = format!("/attributes/{}", shown(key).replace('~', "~0").replace('/', "~1"));
            let Some(declared) = self.find(key) else {
                errors.push(FieldError::new(at, "UNKNOWN_FIELD", "neither type nor class have such an attribute"));
                continue;
            };
            let kind = text(declared, "type");
            if !is_of(value, kind) {
                errors.push(FieldError::new(at, "INVALID_TYPE", format!("must be of type {kind}")));
            } else if declared.get("enum").and_then(Value::as_array).is_some_and(|any| !any.contains(value)) {
                errors.push(FieldError::new(at, "INVALID_VALUE", "is none of the values that the attribute takes"));
            }
        }
        for declared in &self.0 {
            let key = text(declared, "key");
            if values.contains_key(key) {
                continue;
            }
            match declared.get("default").filter(|v| !v.is_null()) {
                Some(default) => {
                    values.insert(key.to_owned(), default.clone());
                }
                None if declared.get("required") == Some(&Value::Bool(true)) => {
                    errors.push(FieldError::new(format!("/attributes/{key}"), "REQUIRED", "is required"));
                }
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    fn shown(errors: Vec<FieldError>) -> Vec<String> {
        errors.into_iter().map(|error| format!("{} {}", error.field, error.code)).collect()
    }

    #[test]
    fn values_of_types() {
        for (kind, good, bad) in [
            (
                "string",
                vec![json!(""), json!("x"), json!("é".repeat(TEXT_CHARS_MAX))],
                vec![json!(1), json!(null), json!("é".repeat(TEXT_CHARS_MAX + 1))],
            ),
            (
                "int",
                vec![json!(0), json!(-1), json!(i64::MIN), json!(u64::MAX)],
                vec![json!(1.5), json!("1"), json!(true)],
            ),
            ("double", vec![json!(1.5), json!(1), json!(-1e300)], vec![json!("1.5"), json!(false)]),
            ("bool", vec![json!(true), json!(false)], vec![json!("true"), json!(0)]),
            (
                "timestamp",
                vec![json!("2026-01-31T12:00:00Z"), json!("2026-01-31T12:00:00.5+01:00")],
                vec![json!("2026-01-31"), json!(1_769_860_800)],
            ),
        ] {
            assert!(good.iter().all(|value| is_of(value, kind)), "{kind}");
            assert!(!bad.iter().any(|value| is_of(value, kind)), "{kind}");
        }
    }

    #[test]
    fn declared() {
        let check = |attributes: Value, expected: &[&str]| {
            let mut errors = Vec::new();
            rules(&map(json!({"attributes": attributes})), &mut errors);
            assert_eq!(shown(errors), expected, "{attributes}");
        };
        check(json!([]), &[]);
        check(json!([{"key": "a", "type": "string"}, {"key": "A", "type": "int"}]), &[]);
        check(
            json!([{"key": "a", "type": "string"}, {"key": "a", "type": "int"}]),
            &["/attributes/1/key INVALID_VALUE"],
        );
        check(json!([{"key": "a", "type": "int", "enum": [1, 2], "default": 2}]), &[]);
        check(json!([{"key": "a", "type": "int", "enum": [1, "2"]}]), &["/attributes/0/enum INVALID_TYPE"]);
        check(json!([{"key": "a", "type": "int", "enum": []}]), &["/attributes/0/enum INVALID_TYPE"]);
        check(json!([{"key": "a", "type": "int", "enum": 5}]), &["/attributes/0/enum INVALID_TYPE"]);
        check(json!([{"key": "a", "type": "int", "default": "2"}]), &["/attributes/0/default INVALID_TYPE"]);
        check(
            json!([{"key": "a", "type": "int", "enum": [1], "default": 2}]),
            &["/attributes/0/default INVALID_VALUE"],
        );
        check(
            json!([{"key": "a", "type": "int", "enum": ["1"], "default": "1"}]),
            &["/attributes/0/enum INVALID_TYPE", "/attributes/0/default INVALID_TYPE"],
        );
    }

    /// The nearest declaration counts: first that of the type, then those of its classes.
    #[test]
    fn values_are_checked_against_what_is_declared() {
        let mut all = Attributes::default();
        all.add(&map(json!({"attributes": [
            {"key": "n", "type": "int", "required": true, "default": null},
            {"key": "color", "type": "string", "enum": ["red", "blue"], "default": "red"},
        ]})));
        all.add(&map(json!({"attributes": [
            {"key": "n", "type": "string", "default": "x"},
            {"key": "on", "type": "bool", "required": true, "default": false},
        ]})));
        assert_eq!((all.type_of("n"), all.type_of("on"), all.type_of("none")), (Some("int"), Some("bool"), None));
        let check = |values: Value, expected: Value, refused: &[&str]| {
            let (mut values, mut errors) = (map(values), Vec::new());
            all.check(&mut values, &mut errors);
            assert_eq!(
                (Value::Object(values), shown(errors)),
                (expected, refused.iter().map(|r| (*r).to_owned()).collect())
            );
        };
        check(json!({"n": 1}), json!({"n": 1, "color": "red", "on": false}), &[]);
        check(json!({"n": 1, "color": "blue", "on": true}), json!({"n": 1, "color": "blue", "on": true}), &[]);
        // Null counts as missing: a default replaces it, if there is one.
        check(json!({"n": null, "color": null}), json!({"color": "red", "on": false}), &["/attributes/n REQUIRED"]);
        check(
            json!({"n": "1", "on": true}),
            json!({"n": "1", "color": "red", "on": true}),
            &["/attributes/n INVALID_TYPE"],
        );
        check(
            json!({"n": 1, "color": "green", "a/b": 1}),
            json!({"n": 1, "color": "green", "a/b": 1, "on": false}),
            &["/attributes/a~1b UNKNOWN_FIELD", "/attributes/color INVALID_VALUE"],
        );
    }
}
