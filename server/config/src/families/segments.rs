//! Segments: named filters over all signals (`config-api` 3.5).

use futures::future::BoxFuture;
use quiver_database::Connection;
use quiver_types::condition::{Condition, bind};
use quiver_types::{Domain, Right};
use serde_json::{Map, Value, json};

use super::body::text;
use crate::entity::DraftContent;
use crate::family::{ChangeContext, Family, Rows};
use crate::fields::{Field, FieldKind};
use crate::problem::{FieldError, Result};

/// Most variables per segment.
const VARIABLES_MAX: usize = 20;
/// Signals that conditions may apply to.
pub const SIGNALS: [&str; 5] = ["metrics", "logs", "spans", "rum", "alerts"];

const VARIABLE: &[Field] = &[
    Field::required("name", FieldKind::Text { min: 1, max: 64 }),
    Field::open("type", FieldKind::Word(&["string", "number", "bool"]), "\"string\""),
    Field::open("multi", FieldKind::Bool, "false"),
    Field::open("default", FieldKind::Json, "null"),
];

const CONDITIONS: &[Field] = &[
    Field::open("metrics", FieldKind::Json, "null"),
    Field::open("logs", FieldKind::Json, "null"),
    Field::open("spans", FieldKind::Json, "null"),
    Field::open("rum", FieldKind::Json, "null"),
    Field::open("alerts", FieldKind::Json, "null"),
];

/// Segments: named conditions on metrics, logs, spans and more, which restrict pages and queries.
pub const SEGMENTS: Family = Family {
    name: "segments",
    path: "/platform-api/segments",
    domain: Domain::Segments,
    write: Right::Edit,
    fields: &[
        Field::required("key", FieldKind::Slug),
        Field::open("visibility", FieldKind::Word(&["private", "shared"]), "\"private\""),
        Field::read_only("owner", FieldKind::Text { min: 0, max: 300 }, "null"),
        Field::open("variables", FieldKind::List { of: VARIABLE, max: VARIABLES_MAX }, "[]"),
        Field::open(
            "conditions",
            FieldKind::Object(CONDITIONS),
            "{\"metrics\":null,\"logs\":null,\"spans\":null,\"rum\":null,\"alerts\":null}",
        ),
        Field::open("strict", FieldKind::Bool, "false"),
    ],
    unique: &[&["key"], &["name"]],
    rules,
    rows: Rows::Private,
    prepare: Some(prepare),
    ..Family::BASE
};

fn is_name(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Whether a value is valid for a variable of this type.
pub fn is_of_type(value: &Value, kind: &str, multi: bool) -> bool {
    match value {
        Value::Array(items) if multi => items.iter().all(|item| is_of_type(item, kind, false)),
        _ => match kind {
            "number" => value.is_number(),
            "bool" => value.is_boolean(),
            _ => value.is_string(),
        },
    }
}

/// Checks that the conditions compile with the defaults of their variables, or with a sample value of their type.
fn rules(body: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let mut values = Map::new();
    let variables = body.get("variables").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (n, variable) in variables.iter().filter_map(Value::as_object).enumerate() {
        let mut put = |key: &str, code, why: &str| {
            errors.push(FieldError::new(format!("/variables/{n}/{key}"), code, why));
        };
        let (name, kind) = (text(variable, "name"), text(variable, "type"));
        let multi = variable.get("multi") == Some(&json!(true));
        if !is_name(name) {
            put("name", "PATTERN", "must be of letters, digits and `_`, and not begin with a digit");
        }
        if values.contains_key(name) {
            put("name", "INVALID_VALUE", "is given more than once");
        }
        let default = variable.get("default").filter(|v| !v.is_null());
        if default.is_some_and(|value| !is_of_type(value, kind, multi)) {
            put("default", "INVALID_TYPE", "must be of the variable's type");
        }
        let any = match kind {
            "number" => json!(1),
            "bool" => json!(true),
            _ => json!("x"),
        };
        let any = if multi { json!([any]) } else { any };
        values.insert(name.to_owned(), default.cloned().unwrap_or(any));
    }
    let conditions = body.get("conditions").and_then(Value::as_object);
    for (signal, condition) in conditions.into_iter().flatten().filter(|(_, c)| !c.is_null()) {
        let place = format!("/conditions/{signal}");
        let mut put = |at: &str, code, why: String| errors.push(FieldError::new(format!("{place}{at}"), code, why));
        match bind(condition, &values) {
            Err(unbound) => put(&unbound.pointer, "UNKNOWN_REFERENCE", unbound.message),
            Ok(bound) => {
                let found = Condition::parse(&bound).err().unwrap_or_default();
                for e in found {
                    put(&e.pointer, e.code, e.message);
                }
            }
        }
    }
}

/// The creator of an entity becomes its owner.
pub(super) fn prepare<'a>(
    _: &'a mut Connection,
    making: &'a ChangeContext<'a>,
    draft: &'a mut DraftContent,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        if draft.body.get("owner").is_none_or(Value::is_null) {
            draft.body.insert("owner".to_owned(), json!(making.caller.subject));
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::found_by;
    use super::*;

    fn told(body: Value) -> Vec<String> {
        found_by(rules, body)
    }

    #[test]
    fn variables() {
        let check = |variables: Value, expected: &[&str]| {
            assert_eq!(told(json!({"variables": variables})), expected, "{variables}");
        };
        check(json!([]), &[]);
        check(json!([{"name": "a_1", "type": "string", "default": null}]), &[]);
        for name in ["1a", "a b", "a-b", "a.b", "é", "$a"] {
            check(json!([{"name": name, "type": "string"}]), &["/variables/0/name PATTERN"]);
        }
        check(
            json!([{"name": "a", "type": "string"}, {"name": "a", "type": "bool"}]),
            &["/variables/1/name INVALID_VALUE"],
        );
        // Names are case-sensitive.
        check(json!([{"name": "a", "type": "string"}, {"name": "A", "type": "string"}]), &[]);
        for (kind, default, multi, is_good) in [
            ("string", json!("x"), false, true),
            ("string", json!(1), false, false),
            ("string", json!(["x"]), false, false),
            ("string", json!(["x", "y"]), true, true),
            ("string", json!([]), true, true),
            ("string", json!("x"), true, true),
            ("string", json!(["x", 1]), true, false),
            ("number", json!(1.5), false, true),
            ("number", json!("1.5"), false, false),
            ("number", json!([1, 2]), true, true),
            ("bool", json!(false), false, true),
            ("bool", json!(0), false, false),
            ("bool", json!({}), false, false),
            ("string", json!([["x"]]), true, false),
        ] {
            let expected: &[&str] = if is_good { &[] } else { &["/variables/0/default INVALID_TYPE"] };
            check(json!([{"name": "a", "type": kind, "default": default, "multi": multi}]), expected);
        }
    }

    /// Conditions must be valid whatever their variables contain.
    #[test]
    fn conditions() {
        let check = |conditions: Value, variables: Value, expected: &[&str]| {
            let found = told(json!({"conditions": conditions, "variables": variables}));
            assert_eq!(found, expected, "{conditions}");
        };
        let leaf = json!({"field": "a", "op": "eq", "value": "x"});
        check(json!({"logs": leaf, "spans": null}), json!([]), &[]);
        check(json!({"logs": {"all": []}}), json!([]), &["/conditions/logs/all REQUIRED"]);
        check(json!({"logs": {"any": []}, "metrics": leaf}), json!([]), &["/conditions/logs/any REQUIRED"]);
    }
}
