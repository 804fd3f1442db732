//! Formats values as Go's `fmt` does.

use std::fmt::Write as _;

use quiver_types::time::duration::format_go;

use super::super::complex::complex_text;
use super::{ListKind, MapKind, Value, pairs};
use crate::text::{float_text, quote};

/// Whether structs are printed with the names of their fields, as `%+v` does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldNames {
    Hidden,
    Shown,
}

impl Value {
    /// Formats the value as Go's `fmt.Print` does.
    fn print(&self, out: &mut String, fields: FieldNames) {
        match self {
            Self::Nil => out.push_str("<nil>"),
            Self::Bool(value) => *out += &value.to_string(),
            Self::Int(value) => *out += &value.to_string(),
            Self::Uint(value) => *out += &value.to_string(),
            Self::Float(value) => *out += &float_text(*value),
            Self::Complex(real, imaginary) => *out += &complex_text(*real, *imaginary),
            Self::Text(text) | Self::Safe(_, text) | Self::Histogram(text) => out.push_str(text),
            Self::List(list) if list.kind == ListKind::Pairs => print_pairs(out, &list.items),
            Self::List(list) => {
                out.push('[');
                for (i, item) in list.items.iter().enumerate() {
                    if i > 0 {
                        out.push(' ');
                    }
                    item.print(out, fields);
                }
                out.push(']');
            }
            Self::Map(map) if map.kind == MapKind::Labels => print_pairs(out, &pairs(map)),
            Self::Map(map) => {
                out.push_str("map[");
                for (i, (name, value)) in map.entries.iter().enumerate() {
                    if i > 0 {
                        out.push(' ');
                    }
                    let _ = write!(out, "{name}:");
                    value.print(out, fields);
                }
                out.push(']');
            }
            Self::Struct(of) => {
                out.push('{');
                for (i, (name, _, value)) in of.fields.iter().enumerate() {
                    if i > 0 {
                        out.push(' ');
                    }
                    if fields == FieldNames::Shown {
                        let _ = write!(out, "{name}:");
                    }
                    value.print(out, fields);
                }
                out.push('}');
            }
            Self::Time(time) => *out += &time.to_string(),
            Self::Duration(nanos) => *out += &format_go(*nanos),
            Self::Named(_, _, name) => out.push_str(name),
        }
    }

    /// The output of `print`.
    pub fn printed(&self) -> String {
        let mut out = String::new();
        self.print(&mut out, FieldNames::Hidden);
        out
    }

    /// Whether it is a pointer in Go, which `fmt` shows at the top level.
    pub(in crate::template) fn is_pointer(&self) -> bool {
        matches!(self, Self::Struct(fields) if fields.type_name.starts_with('*'))
    }
}

fn print_pairs(out: &mut String, pairs: &[Value]) {
    for (i, pair) in pairs.iter().enumerate() {
        let Value::Struct(fields) = pair else { continue };
        if i > 0 {
            out.push_str(", ");
        }
        for (k, (_, _, value)) in fields.fields.iter().enumerate() {
            if k > 0 {
                out.push('=');
            }
            value.print(out, FieldNames::Hidden);
        }
    }
}

/// Formats values as Go's `fmt.Sprint` does: with a space between two that are not strings.
pub(in crate::template) fn sprint(values: &[Value]) -> String {
    let mut out = String::new();
    for (i, value) in values.iter().enumerate() {
        let texts = |v: &Value| matches!(v, Value::Text(_));
        if i > 0 && !texts(value) && !texts(&values[i - 1]) {
            out.push(' ');
        }
        if value.is_pointer() {
            out.push('&');
        }
        value.print(&mut out, FieldNames::Hidden);
    }
    out
}

/// Formats a value as Go's `%#v` does, for the types that templates have.
pub(in crate::template) fn go_syntax(value: &Value) -> String {
    match value {
        Value::Text(text) | Value::Safe(_, text) => quote(text),
        Value::List(list) => {
            let items: Vec<String> = list.items.iter().map(go_syntax).collect();
            format!("{}{{{}}}", list.kind.type_name(), items.join(", "))
        }
        Value::Map(map) => {
            let items: Vec<String> =
                map.entries.iter().map(|(name, value)| format!("{}:{}", quote(name), go_syntax(value))).collect();
            format!("{}{{{}}}", map.kind.type_name(), items.join(", "))
        }
        Value::Struct(fields) => {
            let items: Vec<String> =
                fields.fields.iter().map(|(name, _, value)| format!("{name}:{}", go_syntax(value))).collect();
            let (sign, name) = fields.type_name.strip_prefix('*').map_or(("", fields.type_name), |name| ("&", name));
            format!("{sign}{name}{{{}}}", items.join(", "))
        }
        Value::Uint(value) => format!("{value:#x}"),
        Value::Duration(nanos) => nanos.to_string(),
        value => value.printed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_as_go_does() {
        let labels = Value::text_map(MapKind::Labels, [("b", "2"), ("alertname", "A"), ("a", "<1>")]);
        assert_eq!(labels.printed(), "alertname=A, a=<1>, b=2");
        let list = Value::list(ListKind::Any, vec![Value::Int(1), Value::text("x"), Value::Nil]);
        assert_eq!(list.printed(), "[1 x <nil>]");
        assert_eq!(sprint(&[Value::Int(1), Value::Int(2), Value::text("a"), Value::text("b")]), "1 2ab");
    }

    #[test]
    fn printed_with_and_without_names() {
        let pair = Value::fields("*T", vec![("A", "a", Value::Int(1)), ("B", "", Value::text("x y"))]);
        let labels = Value::text_map(MapKind::Labels, [("a", "1"), ("b", "2")]);
        let plus = |value: &Value| {
            let mut out = String::new();
            value.print(&mut out, FieldNames::Shown);
            out
        };
        for (value, plain, named, go) in [
            (pair.clone(), "{1 x y}", "{A:1 B:x y}", "&T{A:1, B:\"x y\"}"),
            (
                Value::list(ListKind::Any, vec![pair.clone()]),
                "[{1 x y}]",
                "[{A:1 B:x y}]",
                "[]interface {}{&T{A:1, B:\"x y\"}}",
            ),
            (labels, "a=1, b=2", "a=1, b=2", "template.KV{\"a\":\"1\", \"b\":\"2\"}"),
            (
                Value::map(MapKind::Any, [("k".to_owned(), Value::Nil)].into()),
                "map[k:<nil>]",
                "map[k:<nil>]",
                "map[string]interface {}{\"k\":<nil>}",
            ),
            (Value::Uint(255), "255", "255", "0xff"),
            (Value::Duration(1_500_000_000), "1.5s", "1.5s", "1500000000"),
            (Value::Named("time.Month", 2, "February"), "February", "February", "February"),
            (Value::Float(1e21), "1e+21", "1e+21", "1e+21"),
        ] {
            assert_eq!(
                (value.printed().as_str(), plus(&value).as_str(), go_syntax(&value).as_str()),
                (plain, named, go)
            );
        }
        assert_eq!(
            sprint(&[pair.clone(), Value::Nil, Value::text("a"), Value::Int(1), Value::Bool(true)]),
            "&{1 x y} <nil>a1 true"
        );
        assert_eq!(sprint(&[]), "");
    }
}
