//! Variables in conditions: `$name` as a value, which is set when a segment is used.

use serde_json::{Map, Value};

use super::ConditionError;

/// Replaces `$name` by values. In a list, a variable stands for all its values; elsewhere it must have exactly one.
/// `$$` escapes a leading dollar sign.
///
/// # Errors
/// A variable has no value, or several where one is needed.
pub fn bind(condition: &Value, variables: &Map<String, Value>) -> Result<Value, ConditionError> {
    bound(condition, variables, "")
}

fn bound(value: &Value, variables: &Map<String, Value>, at: &str) -> Result<Value, ConditionError> {
    match value {
        Value::Object(map) => {
            let each = map.iter().map(|(key, value)| {
                let below = format!("{at}/{key}");
                let whole = matches!(key.as_str(), "field" | "op");
                let inner = if whole { value.clone() } else { bound(value, variables, &below)? };
                Ok((key.clone(), inner))
            });
            each.collect::<Result<Map<_, _>, _>>().map(Value::Object)
        }
        Value::Array(items) => {
            let mut list = Vec::with_capacity(items.len());
            for (n, item) in items.iter().enumerate() {
                match (item, bound(item, variables, &format!("{at}/{n}"))?) {
                    (Value::String(_), Value::Array(several)) => list.extend(several),
                    (_, one) => list.push(one),
                }
            }
            Ok(Value::Array(list))
        }
        Value::String(text) => match text.strip_prefix('$') {
            Some(literal) if literal.starts_with('$') => Ok(Value::String(literal.to_owned())),
            Some(name) if !name.is_empty() => match variables.get(name) {
                Some(found) if !found.is_null() => Ok(found.clone()),
                _ => Err(ConditionError::new(at, "REQUIRED", format!("variable `{name}` has no value"))),
            },
            _ => Ok(value.clone()),
        },
        other => Ok(other.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values() {
        let Value::Object(variables) = json!({"env": "prod", "zones": ["a", "b"]}) else { panic!("an object") };
        let check = |condition: Value, expected: Value| {
            assert_eq!(bind(&condition, &variables).unwrap(), expected, "{condition}");
        };
        let leaf = |value: Value| json!({"field": "$x", "op": "in", "value": value});
        check(leaf(json!("$env")), leaf(json!("prod")));
        check(leaf(json!("$zones")), leaf(json!(["a", "b"])));
        check(leaf(json!(["$zones", "c"])), leaf(json!(["a", "b", "c"])));
        check(leaf(json!("$$env")), leaf(json!("$env")));
        check(leaf(json!("$")), leaf(json!("$")));
        let missing = bind(&json!({"all": [leaf(json!("$no"))]}), &variables).unwrap_err();
        assert_eq!((missing.pointer.as_str(), missing.code), ("/all/0/value", "REQUIRED"));
    }
}
