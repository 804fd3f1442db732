//! Configuration as YAML, in exports and imports.

use quiver_alerting::config::integrations_json;
use quiver_config::families::RECEIVERS;
use quiver_config::{Family, FieldKind, Problem, ProblemKind, Result};
use quiver_yaml::{Node, NodeKind as Shape, read as read_nodes};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Parses a document. In string fields `yes`, `012` and `1.50` stay strings.
///
/// # Errors
/// `MALFORMED_YAML`, with line and column.
pub(super) fn read(bytes: &[u8], family: &Family) -> Result<Value> {
    let malformed = |line: u32, column: u32, why: &str| {
        Problem::new(ProblemKind::Malformed, "MALFORMED_YAML", format!("{why} (line {line}, column {column})"))
            .with("line", json!(line))
            .with("column", json!(column))
    };
    let text = std::str::from_utf8(bytes).map_err(|_| malformed(1, 1, "is not UTF-8"))?;
    let mut documents = read_nodes(text).map_err(|e| malformed(e.place.line, e.place.column, &e.message))?.into_iter();
    let (first, more) = (documents.next(), documents.next());
    if let Some(more) = more {
        return Err(malformed(more.place.line, more.place.column, "a second document"));
    }
    let Some(root) = first else { return Ok(Value::Null) };
    let Shape::Map(pairs) = &root.kind else { return Ok(plain(&root)) };
    let each = pairs.iter().map(|(key, node)| {
        let value = match (&*key.text, &node.kind) {
            ("items", Shape::List(items)) => items.iter().map(|item| entity(item, family)).collect(),
            _ => plain(node),
        };
        (key.text.clone(), value)
    });
    Ok(Value::Object(each.collect()))
}

fn entity(node: &Node, family: &Family) -> Value {
    let Shape::Map(pairs) = &node.kind else { return plain(node) };
    let of = |name: &str, value: &Node| {
        // The fields of integrations depend on their kind.
        let integrations = if family.name == RECEIVERS.name { integrations_json(name, value) } else { None };
        integrations.unwrap_or_else(|| typed(value, family.kind_of(name)))
    };
    Value::Object(pairs.iter().map(|(key, value)| (key.text.clone(), of(&key.text, value))).collect())
}

fn typed(node: &Node, kind: Option<FieldKind>) -> Value {
    match (kind, &node.kind) {
        (
            Some(
                FieldKind::Text { .. }
                | FieldKind::Login { .. }
                | FieldKind::Prose { .. }
                | FieldKind::Time
                | FieldKind::Id
                | FieldKind::Word(_)
                | FieldKind::Slug
                | FieldKind::Duration
                | FieldKind::Offset,
            ),
            Shape::Scalar { text, .. },
        ) => Value::String(text.clone()),
        (Some(FieldKind::Labels), Shape::Map(pairs)) => {
            let each = pairs.iter().map(|(key, v)| (key.text.clone(), typed(v, Some(FieldKind::Prose { max: 0 }))));
            Value::Object(each.collect())
        }
        (
            Some(
                FieldKind::Texts { .. }
                | FieldKind::Ids { .. }
                | FieldKind::Services { .. }
                | FieldKind::Networks { .. },
            ),
            Shape::List(items),
        ) => items.iter().map(|item| typed(item, Some(FieldKind::Prose { max: 0 }))).collect(),
        (Some(FieldKind::Object(fields)), Shape::Map(pairs)) => {
            let kind = |name: &str| fields.iter().find(|f| f.name == name).map(|f| f.kind);
            Value::Object(pairs.iter().map(|(key, v)| (key.text.clone(), typed(v, kind(&key.text)))).collect())
        }
        (Some(FieldKind::List { of, .. }), Shape::List(items)) => {
            items.iter().map(|item| typed(item, Some(FieldKind::Object(of)))).collect()
        }
        _ => plain(node),
    }
}

/// Converts a node by YAML's core schema.
fn plain(node: &Node) -> Value {
    match &node.kind {
        Shape::Null => Value::Null,
        Shape::List(items) => items.iter().map(plain).collect(),
        Shape::Map(pairs) => Value::Object(pairs.iter().map(|(key, v)| (key.text.clone(), plain(v))).collect()),
        Shape::Scalar { text, plain: false, .. } => Value::String(text.clone()),
        Shape::Scalar { text, .. } => match text.as_str() {
            "true" | "True" | "TRUE" => Value::Bool(true),
            "false" | "False" | "FALSE" => Value::Bool(false),
            other => number(other).unwrap_or_else(|| Value::String(other.to_owned())),
        },
    }
}

fn number(text: &str) -> Option<Value> {
    let digits = text.trim_start_matches(['-', '+']);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    if let Ok(whole) = text.parse::<i64>() {
        return Some(json!(whole));
    }
    if let Ok(whole) = text.parse::<u64>() {
        return Some(json!(whole));
    }
    text.parse::<f64>().ok().filter(|n| n.is_finite()).map(|n| json!(n))
}

/// Writes a value in block style. Strings are double-quoted, so that none is taken for another type.
pub(crate) fn write(value: &Value) -> String {
    let mut out = String::new();
    block(value, 0, &mut out);
    out
}

/// Writes an entry of a list that stands so deep.
pub(super) fn entry(item: &Value, depth: usize, out: &mut String) {
    out.push_str(&"  ".repeat(depth));
    out.push_str("- ");
    match item {
        Value::Object(map) if !map.is_empty() => block(item, depth + 1, out),
        other => {
            let _ = writeln!(out, "{}", line(other));
        }
    }
}

fn block(value: &Value, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (n, (key, value)) in map.iter().enumerate() {
                // The first key of a list entry is on the line of its dash.
                if n > 0 || !out.ends_with("- ") {
                    out.push_str(&indent);
                }
                out.push_str(&key_text(key));
                out.push(':');
                below(value, depth + 1, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                entry(item, depth, out);
            }
        }
        other => {
            let _ = writeln!(out, "{}", line(other));
        }
    }
}

fn below(value: &Value, depth: usize, out: &mut String) {
    let is_block = match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    if is_block {
        out.push('\n');
        block(value, depth, out);
    } else {
        let _ = writeln!(out, " {}", line(value));
    }
}

/// A scalar as JSON, which is valid YAML if characters are escaped that YAML does not allow.
fn line(value: &Value) -> String {
    let is_escaped =
        |c: char| matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    let text = value.to_string();
    if !text.contains(is_escaped) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_escaped(c) {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

fn key_text(key: &str) -> String {
    let is_word = key.starts_with(|c: char| c.is_ascii_alphabetic()) && key.chars().all(|c| c.is_ascii_alphanumeric());
    let is_value = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&&*key.to_ascii_lowercase());
    if is_word && !is_value { key.to_owned() } else { line(&json!(key)) }
}

#[cfg(test)]
mod tests {
    use quiver_config::families::{PROCESSES, SEGMENTS};

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let exported = json!({"format": "quiver/1", "family": "segments", "items": [
            {"key": "012", "name": "yes: \"no\"\n", "labels": {"a b": "1.50", "null": ""}, "strict": false,
             "variables": [{"name": "n", "multi": true, "default": [1, 2.5, "x"]}],
             "conditions": {"logs": {"all": [{"field": "a", "op": "eq", "value": 7}, []], "empty": {}}}},
            {"key": "b", "name": "- é # '", "variables": []},
        ]});
        let text = write(&exported);
        assert_eq!(read(text.as_bytes(), &SEGMENTS).unwrap(), exported, "{text}");
    }

    /// JSON allows some characters unescaped that YAML does not: an export could not be imported.
    #[test]
    fn letters_that_yaml_does_not_take_are_escaped() {
        let odd: String =
            ('\0'..='\u{a0}').chain("\u{2028}\u{2029}\u{feff}\u{fffe}\u{ffff}\u{1f600}".chars()).collect();
        let exported = json!({"a": {(odd.clone()): [&odd, [&odd], {"b": &odd}]}, "plain": odd});
        let text = write(&exported);
        assert_eq!(read(text.as_bytes(), &SEGMENTS).unwrap(), exported, "{text}");
        assert_eq!(write(&json!({"a": "\u{7f}\u{85}é\u{ffff}"})), "a: \"\\u007f\\u0085é\\uffff\"\n");
    }

    #[test]
    fn texts_stay_texts() {
        let text = "items:\n- name: 012\n  description: yes\n  labels: {a: 1.50}\n  timeout: 24h\n  steps:\n  - {name: 1, kind: log, optional: true}\n";
        let read = read(text.as_bytes(), &PROCESSES).unwrap();
        let item = &read["items"][0];
        assert_eq!(
            (&item["name"], &item["description"], &item["labels"]["a"]),
            (&json!("012"), &json!("yes"), &json!("1.50"))
        );
        assert_eq!((&item["steps"][0]["name"], &item["steps"][0]["optional"]), (&json!("1"), &json!(true)));
        let text = "items:\n- name: 010\n  opsgenie_configs: [{api_key: 012, note: no, update_alerts: true}]\n";
        let entry = json!({"api_key": "012", "note": "no", "update_alerts": true});
        let expected = json!({"name": "010", "opsgenie_configs": [entry]});
        assert_eq!(super::read(text.as_bytes(), &RECEIVERS).unwrap()["items"][0], expected);
    }

    /// Would fail if a string were taken for a number, or a number lost digits, in an export and import.
    #[test]
    fn numbers_and_words_of_plain_scalars() {
        for (text, expected) in [
            ("0", json!(0)),
            ("-7", json!(-7)),
            ("+7", json!(7)),
            ("012", json!(12)),
            ("9223372036854775807", json!(i64::MAX)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("9223372036854775808", json!(9_223_372_036_854_775_808_u64)),
            ("18446744073709551615", json!(u64::MAX)),
            ("18446744073709551616", json!(1.844_674_407_370_955_2e19)),
            ("1.5", json!(1.5)),
            ("-0.0", json!(-0.0)),
            (".5", json!(0.5)),
            ("5.", json!(5.0)),
            ("1e3", json!(1000.0)),
            ("-2.5E-1", json!(-0.25)),
            ("true", json!(true)),
            ("False", json!(false)),
            ("~", json!(null)),
            ("null", json!(null)),
            // A number out of range, or one followed by other characters, is a string.
            ("1e999", json!("1e999")),
            ("1_000", json!("1_000")),
            ("24h", json!("24h")),
            ("1.2.3", json!("1.2.3")),
            ("2024-01-05", json!("2024-01-05")),
            ("inf", json!("inf")),
            ("nan", json!("nan")),
            ("yes", json!("yes")),
            ("TrUe", json!("TrUe")),
            ("'7'", json!("7")),
            ("\"true\"", json!("true")),
        ] {
            let text = format!("a: {text}\n");
            assert_eq!(read(text.as_bytes(), &SEGMENTS).unwrap()["a"], expected, "{text}");
        }
        let numbers = json!({"a": [u64::MAX, i64::MIN, 1e300, 5e-324, 0.1, 5.0, -0.0, 1e16]});
        assert_eq!(read(write(&numbers).as_bytes(), &SEGMENTS).unwrap(), numbers);
    }

    #[test]
    fn what_is_malformed() {
        for (text, line) in [("a: 1\na: 2\n", 2), ("a: [\n", 2), ("a: !ruby/object x\n", 1), ("a: 1\n---\nb: 2\n", 3)] {
            let problem = read(text.as_bytes(), &SEGMENTS).unwrap_err();
            assert_eq!((problem.code, problem.kind), ("MALFORMED_YAML", ProblemKind::Malformed), "{text}");
            assert!(problem.more["line"].as_u64().is_some_and(|l| l <= line), "{text} {problem:?}");
        }
    }
}
