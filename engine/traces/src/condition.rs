//! `filter=`: the conditions of `config-api` 1.6 as filters of spans.

use std::sync::Arc;

use quiver_types::matcher::{affordable, builder};
use quiver_types::spans::{AttributeTest, Place, SpanFilter, TextTest};
use serde_json::Value;

use crate::params::{ParamError, kind};

const DEPTH_MAX: usize = 5;
const LEAVES_MAX: usize = 50;
const REGEX_BYTES_MAX: usize = 1024;

type Result<T> = std::result::Result<T, ParamError>;

fn wrong(reason: impl Into<String>) -> ParamError {
    ParamError::new("filter", reason)
}

/// Reads a condition.
///
/// # Errors
/// Not a condition, too deep or too long.
pub(crate) fn parse(text: &str) -> Result<SpanFilter> {
    let value: Value = serde_json::from_str(text).map_err(|e| wrong(format!("not JSON: {e}")))?;
    let mut leaves = 0;
    condition(&value, 0, &mut leaves)
}

fn condition(value: &Value, depth: usize, leaves: &mut usize) -> Result<SpanFilter> {
    if depth > DEPTH_MAX {
        return Err(wrong(format!("nested deeper than {DEPTH_MAX}")));
    }
    let object = value.as_object().ok_or_else(|| wrong("a condition is an object"))?;
    let list = |of: &Value, leaves: &mut usize| -> Result<Vec<SpanFilter>> {
        let list = of.as_array().ok_or_else(|| wrong("`all` and `any` hold a list"))?;
        list.iter().map(|one| condition(one, depth + 1, leaves)).collect()
    };
    for (key, of) in object {
        match key.as_str() {
            "all" => return Ok(SpanFilter::And(list(of, leaves)?)),
            "any" => return Ok(SpanFilter::Or(list(of, leaves)?)),
            "not" => return Ok(SpanFilter::Not(Box::new(condition(of, depth + 1, leaves)?))),
            "field" | "op" | "value" | "caseSensitive" => {}
            other => return Err(wrong(format!("unknown member `{other}`"))),
        }
    }
    *leaves += 1;
    if *leaves > LEAVES_MAX {
        return Err(wrong(format!("more than {LEAVES_MAX} conditions")));
    }
    let field = value["field"].as_str().filter(|f| !f.is_empty()).ok_or_else(|| wrong("a condition has no `field`"))?;
    let op = value["op"].as_str().ok_or_else(|| wrong("a condition has no `op`"))?;
    let sensitive = value.get("caseSensitive").and_then(Value::as_bool).unwrap_or(true);
    leaf(field, op, &value["value"], sensitive)
}

fn text_of(value: &Value) -> Result<String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        _ => Err(wrong("`value` is neither a text nor a number")),
    }
}

fn number_of(value: &Value) -> Result<f64> {
    let number = value.as_f64().or_else(|| value.as_str().and_then(|t| t.parse().ok()));
    number.filter(|n: &f64| n.is_finite()).ok_or_else(|| wrong("`value` is no number"))
}

/// A test of a value, or its opposite.
fn leaf(field: &str, op: &str, value: &Value, sensitive: bool) -> Result<SpanFilter> {
    let regex = |pattern: String| -> Result<AttributeTest> {
        let pattern = if sensitive { pattern } else { format!("(?i){pattern}") };
        affordable(&pattern).map_err(|e| wrong(e.message))?;
        let built = builder(&pattern).build();
        let regex = built.map_err(|_| wrong(format!("`{pattern}` is no regular expression")))?;
        Ok(AttributeTest::Text(TextTest::Regex(Arc::new(regex))))
    };
    let escaped = |text: &str| regex::escape(text);
    let next_up = |n: f64| if n == f64::MAX { n } else { n.next_up() };
    let test = match op {
        "ne" => {
            // A field that is missing is not equal to anything.
            return Ok(SpanFilter::Not(Box::new(leaf(field, "eq", value, sensitive)?)));
        }
        "exists" => {
            let there = apply(field, AttributeTest::Exists)?;
            return Ok(if value == &Value::Bool(false) { SpanFilter::Not(Box::new(there)) } else { there });
        }
        "in" => {
            let list = value.as_array().ok_or_else(|| wrong("`in` needs a list"))?;
            let any = list.iter().map(|one| leaf(field, "eq", one, sensitive));
            return Ok(SpanFilter::Or(any.collect::<Result<_>>()?));
        }
        "eq" if sensitive => AttributeTest::equals(&text_of(value)?),
        "eq" => regex(format!("^(?:{})$", escaped(&text_of(value)?)))?,
        "contains" if sensitive => AttributeTest::Text(TextTest::Contains(text_of(value)?)),
        "contains" => regex(escaped(&text_of(value)?))?,
        "startsWith" if sensitive => AttributeTest::Text(TextTest::Prefix(text_of(value)?)),
        "startsWith" => regex(format!("^{}", escaped(&text_of(value)?)))?,
        "endsWith" => regex(format!("{}$", escaped(&text_of(value)?)))?,
        "glob" => regex(glob(&text_of(value)?))?,
        "regex" => {
            let pattern = text_of(value)?;
            if pattern.len() > REGEX_BYTES_MAX {
                return Err(wrong("a regular expression is longer than 1024 bytes"));
            }
            regex(pattern)?
        }
        "ge" => AttributeTest::Number(number_of(value)?, f64::MAX),
        "gt" => AttributeTest::Number(next_up(number_of(value)?), f64::MAX),
        "le" => AttributeTest::Number(f64::MIN, number_of(value)?),
        "lt" => AttributeTest::Number(f64::MIN, number_of(value)?.next_down()),
        "between" => match value.as_array().map(Vec::as_slice) {
            Some([min, max]) => AttributeTest::Number(number_of(min)?, number_of(max)?),
            _ => return Err(wrong("`between` needs a list of two numbers")),
        },
        other => return Err(wrong(format!("unknown op `{other}`"))),
    };
    apply(field, test)
}

/// `*` is one segment of a path, `**` anything, `{name}` one segment.
fn glob(pattern: &str) -> String {
    let mut out = String::from("^");
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("**") {
            out.push_str(".*");
            rest = after;
        } else if c == '*' {
            out.push_str("[^/]*");
            rest = &rest[1..];
        } else if c == '{' && rest.contains('}') {
            out.push_str("[^/]+");
            rest = rest.split_once('}').map_or("", |(_, after)| after);
        } else {
            out.push_str(&regex::escape(&rest[..c.len_utf8()]));
            rest = &rest[c.len_utf8()..];
        }
    }
    out.push('$');
    out
}

fn apply(field: &str, test: AttributeTest) -> Result<SpanFilter> {
    let text = |test: AttributeTest| match test {
        AttributeTest::Text(test) => Ok(test),
        AttributeTest::Equals(text, _) => Ok(TextTest::Is(text)),
        AttributeTest::Exists => Ok(TextTest::Prefix(String::new())),
        AttributeTest::Number(..) => Err(wrong(format!("`{field}` is no number"))),
    };
    Ok(match field {
        "span.name" => SpanFilter::Name(text(test)?),
        "service.name" => SpanFilter::Service(text(test)?),
        "span.kind" => match test {
            AttributeTest::Equals(name, _) => SpanFilter::Kinds(vec![kind("filter", &name)?]),
            _ => return Err(wrong("`span.kind` takes `eq`, `ne` and `in`")),
        },
        "span.status" => match test {
            AttributeTest::Equals(name, _) => {
                let state = ["unset", "ok", "error"].iter().position(|s| name.eq_ignore_ascii_case(s));
                SpanFilter::Status(state.ok_or_else(|| wrong(format!("`{name}` is no status")))? as u8)
            }
            _ => return Err(wrong("`span.status` takes `eq`, `ne` and `in`")),
        },
        "span.durationMs" => match test {
            AttributeTest::Number(min, max) => SpanFilter::Duration((min * 1e6) as i64, (max * 1e6) as i64),
            AttributeTest::Equals(_, Some(ms)) => SpanFilter::Duration((ms * 1e6) as i64, (ms * 1e6) as i64),
            _ => return Err(wrong("`span.durationMs` is a number")),
        },
        other => {
            let at = |place, key: &str| SpanFilter::Attribute {
                place: Some(place),
                key: key.to_owned(),
                test: test.clone(),
            };
            if let Some(key) = other.strip_prefix("resource.") {
                at(Place::Resource, key)
            } else if let Some(key) = other.strip_prefix("attributes.") {
                at(Place::Span, key)
            } else {
                // A bare key: the span's, and where it has none, the resource's.
                let missing = SpanFilter::Attribute {
                    place: Some(Place::Span),
                    key: other.to_owned(),
                    test: AttributeTest::Exists,
                };
                let of_resource = SpanFilter::And(vec![SpanFilter::Not(Box::new(missing)), at(Place::Resource, other)]);
                SpanFilter::Or(vec![at(Place::Span, other), of_resource])
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions() {
        let check = |text: &str, expected: &str| assert_eq!(parse(text).unwrap().to_string(), expected, "{text}");
        check(r#"{"field":"span.name","op":"eq","value":"GET /"}"#, r#"name = "GET /""#);
        check(r#"{"field":"attributes.n","op":"ge","value":5}"#, &format!("span.n in [5, {}]", f64::MAX));
        check(r#"{"all":[{"field":"span.status","op":"eq","value":"error"}]}"#, "(status = 2)");
        check(r#"{"not":{"field":"resource.a","op":"exists"}}"#, "not resource.a exists");
        check(r#"{"field":"span.durationMs","op":"between","value":[1,2]}"#, "duration in [1000000, 2000000]");
        let SpanFilter::Attribute { test, .. } =
            parse(r#"{"field":"attributes.p","op":"glob","value":"/cart/*/{id}"}"#).unwrap()
        else {
            panic!("an attribute")
        };
        assert!(test.matches(quiver_types::spans::Value::Text("/cart/a/1")));
        assert!(!test.matches(quiver_types::spans::Value::Text("/cart/a/b/1")));
        for bad in [
            "",
            "[]",
            "{}",
            r#"{"field":"a"}"#,
            r#"{"field":"a","op":"x"}"#,
            r#"{"field":"a","op":"regex","value":"("}"#,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let mut deep = r#"{"field":"a","op":"exists"}"#.to_owned();
        for _ in 0..6 {
            deep = format!(r#"{{"not":{deep}}}"#);
        }
        assert!(parse(&deep).is_err());
    }
}
