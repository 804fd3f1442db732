//! Encodes values as Go's `encoding/json` does.

use std::fmt::Write as _;

use super::Value;

impl Value {
    /// Appends the value as JSON, as Go's `json.Marshal` does.
    pub fn json(&self, out: &mut String) {
        match self {
            Self::Nil | Self::Histogram(_) | Self::Complex(..) => out.push_str("null"),
            Self::Bool(value) => *out += &value.to_string(),
            Self::Int(value) | Self::Duration(value) | Self::Named(_, value, _) => *out += &value.to_string(),
            Self::Uint(value) => *out += &value.to_string(),
            Self::Float(value) => *out += &json_number(*value),
            Self::Text(text) | Self::Safe(_, text) => json_text(out, text),
            Self::Time(time) => json_text(out, &time.rfc3339()),
            Self::List(list) => {
                out.push('[');
                for (i, item) in list.items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    item.json(out);
                }
                out.push(']');
            }
            Self::Map(map) => json_object(out, map.entries.iter().map(|(name, value)| (name.as_str(), value))),
            Self::Struct(fields) => {
                json_object(
                    out,
                    fields.fields.iter().filter(|f| !f.1.is_empty()).map(|(_, name, value)| (*name, value)),
                );
            }
        }
    }
}

fn json_object<'a>(out: &mut String, pairs: impl Iterator<Item = (&'a str, &'a Value)>) {
    out.push('{');
    for (i, (name, value)) in pairs.enumerate() {
        if i > 0 {
            out.push(',');
        }
        json_text(out, name);
        out.push(':');
        value.json(out);
    }
    out.push('}');
}

/// Encodes a number as Go does: with an exponent below 1e-6 and from 1e21 on.
fn json_number(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{value:e}");
        return if size < 1.0 { text } else { text.replace('e', "e+") };
    }
    value.to_string()
}

/// Encodes a string as Go does: `<`, `>` and `&` are escaped, too.
fn json_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}') => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::super::super::time::Time;
    use super::super::{ListKind, MapKind};
    use super::*;

    fn json(value: &Value) -> String {
        let mut out = String::new();
        value.json(&mut out);
        out
    }

    #[test]
    fn written_as_json() {
        let fields = vec![("A", "a", Value::Int(1)), ("B", "", Value::Int(2)), ("C", "c", Value::Nil)];
        for (value, expected) in [
            (Value::Nil, "null"),
            (Value::Complex(1.0, 2.0), "null"),
            (Value::Bool(true), "true"),
            (Value::Int(i64::MIN), "-9223372036854775808"),
            (Value::Uint(u64::MAX), "18446744073709551615"),
            (Value::Duration(1_500_000_000), "1500000000"),
            (Value::Named("time.Month", 2, "February"), "2"),
            (Value::Float(1e20), "100000000000000000000"),
            (Value::Float(-1e21), "-1e+21"),
            (Value::Float(1e-6), "0.000001"),
            (Value::Float(1.5e-7), "1.5e-7"),
            (Value::Float(-0.0), "-0"),
            (Value::text("a\"\\/\u{8}\u{c}\n\r\t\u{1}"), r#""a\"\\/\b\f\n\r\t\u0001""#),
            (Value::text("<&>\u{2028}é🙂"), "\"\\u003c\\u0026\\u003e\\u2028é🙂\""),
            (Value::Time(Time::zero()), "\"0001-01-01T00:00:00Z\""),
            (Value::list(ListKind::Any, vec![]), "[]"),
            (Value::list(ListKind::Any, vec![Value::Int(1), Value::list(ListKind::Any, vec![])]), "[1,[]]"),
            (
                Value::text_map(MapKind::Labels, [("b", "2"), ("alertname", "A"), ("a", "<1>")]),
                r#"{"a":"\u003c1\u003e","alertname":"A","b":"2"}"#,
            ),
            (Value::Float(1e21), "1e+21"),
            (Value::Float(1e-7), "1e-7"),
            (Value::Float(0.5), "0.5"),
            (Value::text_map(MapKind::Texts, [("b", ""), ("<", "x")]), "{\"\\u003c\":\"x\",\"b\":\"\"}"),
            (Value::fields("T", fields), "{\"a\":1,\"c\":null}"),
        ] {
            assert_eq!(json(&value), expected);
        }
    }
}
