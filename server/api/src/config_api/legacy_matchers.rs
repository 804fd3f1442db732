//! Matchers in the syntax of older Alertmanagers, accepted in imports: `match: {a: b}` becomes `a="b"`, `match_re:
//! {a: b}` becomes `a=~"^(?:b)$"`, as in deploys.

use quiver_alerting::matchers::{matcher, show};
use quiver_config::families::{INHIBIT_RULES, ROUTES};
use quiver_config::{Family, FieldError, Problem, Result};
use quiver_types::MatchOp;
use serde_json::{Map, Value};

/// An old field: its name, the operator of its matchers, and the field that they move to.
type Old = (&'static str, MatchOp, &'static str);

const OF_ROUTES: [Old; 2] = [("match", MatchOp::Equal, "matchers"), ("match_re", MatchOp::Regex, "matchers")];
const OF_INHIBIT_RULES: [Old; 4] = [
    ("source_match", MatchOp::Equal, "source_matchers"),
    ("source_match_re", MatchOp::Regex, "source_matchers"),
    ("target_match", MatchOp::Equal, "target_matchers"),
    ("target_match_re", MatchOp::Regex, "target_matchers"),
];

/// Rewrites the old fields in all items of an import.
///
/// # Errors
/// A value that is not a string, or a pattern that does not compile.
pub(super) fn rewrite(items: &mut [Value], family: &Family) -> Result<()> {
    let fields: &[Old] = match family.name {
        name if name == ROUTES.name => &OF_ROUTES,
        name if name == INHIBIT_RULES.name => &OF_INHIBIT_RULES,
        _ => return Ok(()),
    };
    let mut errors = Vec::new();
    for (n, item) in items.iter_mut().enumerate() {
        let Value::Object(item) = item else { continue };
        for &(old, op, new) in fields {
            rewrite_one(item, (old, op, new), &format!("/items/{n}/{old}"), &mut errors);
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(Problem::invalid(errors)) }
}

fn rewrite_one(
    item: &mut Map<String, Value>,
    (old, op, new): (&str, MatchOp, &str),
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let Some(Value::Object(pairs)) = item.get(old) else { return };
    let mut texts = Vec::new();
    for (name, value) in pairs {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(truth) => truth.to_string(),
            _ => {
                errors.push(FieldError::new(format!("{path}/{name}"), "INVALID_TYPE", "must be a text"));
                continue;
            }
        };
        let value = if op == MatchOp::Regex { format!("^(?:{value})$") } else { value };
        match matcher(name, op, value) {
            Ok(made) => texts.push(Value::String(show(&made))),
            Err(e) => errors.push(FieldError::new(format!("{path}/{name}"), "INVALID_MATCHER", e.message)),
        }
    }
    item.remove(old);
    let there = item.entry(new).or_insert_with(|| Value::Array(Vec::new()));
    if there.is_null() {
        *there = Value::Array(Vec::new());
    }
    // A value that is not a list is reported by the validation of fields.
    if let Value::Array(all) = there {
        all.extend(texts);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rewritten() {
        let mut items = vec![json!({"receiver": "a", "match": {"x": "1", "n": 2}, "match_re": {"y": "b|c"},
            "matchers": ["z=\"q\""]})];
        rewrite(&mut items, &ROUTES).unwrap();
        let expected = json!(["z=\"q\"", "n=\"2\"", "x=\"1\"", "y=~\"^(?:b|c)$\""]);
        assert_eq!(items[0], json!({"receiver": "a", "matchers": expected}));
        let mut items = vec![json!({"source_match": {"a": "b"}, "target_match_re": {"c": "d.*"}, "equal": ["x"]})];
        rewrite(&mut items, &INHIBIT_RULES).unwrap();
        let (source, target) = (json!(["a=\"b\""]), json!(["c=~\"^(?:d.*)$\""]));
        assert_eq!(items[0], json!({"source_matchers": source, "target_matchers": target, "equal": ["x"]}));
        let mut bad = vec![json!({}), json!({"match_re": {"a": "("}, "match": {"b": []}})];
        let told = rewrite(&mut bad, &ROUTES).unwrap_err();
        let fields: Vec<&str> = told.errors.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(fields, ["/items/1/match/b", "/items/1/match_re/a"]);
    }
}
