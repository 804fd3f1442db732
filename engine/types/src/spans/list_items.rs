//! The items of attribute values that are lists.

use serde_json::Value as Json;

use super::Value;

/// Says whether a value in OTLP/JSON is a list.
pub fn is_list(otlp: &str) -> bool {
    otlp.trim_start().strip_prefix('{').is_some_and(|rest| rest.trim_start().starts_with("\"arrayValue\""))
}

/// Says whether an item of a list in OTLP/JSON passes a test; `None` for what is no list. Items that are lists or maps
/// pass none.
pub fn any_item(otlp: &str, mut test: impl FnMut(Value<'_>) -> bool) -> Option<bool> {
    if !is_list(otlp) {
        return None;
    }
    let json: Json = serde_json::from_str(otlp).ok()?;
    let items = json.get("arrayValue")?.get("values").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    Some(items.iter().filter_map(scalar).any(&mut test))
}

/// Reads a value in OTLP/JSON that is neither a list nor a map.
fn scalar(any: &Json) -> Option<Value<'_>> {
    let (kind, value) = any.as_object()?.iter().next()?;
    match kind.as_str() {
        "stringValue" | "bytesValue" => value.as_str().map(Value::Text),
        "intValue" => match value.as_str() {
            Some(text) => text.parse().ok().map(Value::Int),
            None => value.as_i64().map(Value::Int),
        },
        "doubleValue" => match value.as_str() {
            // NaN and infinities are texts there.
            Some(text) => text.parse().ok().map(Value::Double),
            None => value.as_f64().map(Value::Double),
        },
        "boolValue" => value.as_bool().map(Value::Bool),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_lists_only() {
        let list = r#"{"arrayValue":{"values":[{"stringValue":"a"},{"intValue":"5"},{"doubleValue":"NaN"},
            {"boolValue":true},{"arrayValue":{"values":[{"stringValue":"inner"}]}}]}}"#;
        let holds = |wanted: Value<'_>| any_item(list, |item| item == wanted);
        assert_eq!(holds(Value::Text("a")), Some(true));
        assert_eq!(holds(Value::Int(5)), Some(true));
        assert_eq!(holds(Value::Bool(true)), Some(true));
        assert_eq!(holds(Value::Text("inner")), Some(false));
        assert_eq!(any_item(list, |item| matches!(item, Value::Double(v) if v.is_nan())), Some(true));
        assert_eq!(any_item(r#"{"arrayValue":{}}"#, |_| true), Some(false));
        assert_eq!(any_item(r#"{"kvlistValue":{"values":[]}}"#, |_| true), None);
    }
}
