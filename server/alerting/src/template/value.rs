//! Values of templates: what Go's reflection would see, as far as rules and notifications show it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use quiver_types::time::duration::format_go;

use super::complex::complex_text;
use super::time::Time;
use crate::text::{float_text, quote};

/// A value. Cloning shares what is large.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing: printed as `<no value>`.
    Nil,
    /// Truth.
    Bool(bool),
    /// Whole number.
    Int(i64),
    /// Whole number without sign.
    Uint(u64),
    /// Number.
    Float(f64),
    /// Complex number: real and imaginary part.
    Complex(f64, f64),
    /// Text.
    Text(Arc<str>),
    /// Text that is not escaped again in its place.
    Safe(Safe, Arc<str>),
    /// List.
    List(Arc<List>),
    /// Mapping.
    Map(Arc<Map>),
    /// Fields with fixed names.
    Struct(Arc<Struct>),
    /// A time.
    Time(Time),
    /// Nanoseconds.
    Duration(i64),
    /// A month or day of the week: number and name.
    Named(&'static str, i64, &'static str),
    /// A native histogram, as it is shown.
    Histogram(Arc<str>),
}

/// Where a text may stand as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Safe {
    /// HTML.
    Html,
    /// A URL.
    Url,
}

/// A list.
#[derive(Debug, Clone, PartialEq)]
pub struct List {
    /// What it holds, which decides about its methods.
    pub kind: ListKind,
    /// The items.
    pub items: Vec<Value>,
    weight: usize,
}

/// What a list holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListKind {
    /// Values of any type.
    Any,
    /// Texts.
    Texts,
    /// Numbers of one of Go's kinds.
    Numbers(&'static str),
    /// Samples of a query.
    Query,
    /// Names or values of a label set.
    Strings,
    /// Pairs of a label set.
    Pairs,
    /// Alerts of a message.
    Alerts,
    /// Some alerts of a message.
    AlertSlice,
}

impl ListKind {
    /// Gives Go's name of the type.
    pub fn type_name(self) -> &'static str {
        match self {
            Self::Any => "[]interface {}",
            Self::Texts => "[]string",
            Self::Numbers(name) => name,
            Self::Query => "template.queryResult",
            Self::Strings => "template.Strings",
            Self::Pairs => "template.Pairs",
            Self::Alerts => "template.Alerts",
            Self::AlertSlice => "[]template.Alert",
        }
    }
}

/// A mapping.
#[derive(Debug, Clone, PartialEq)]
pub struct Map {
    /// What it holds.
    pub kind: MapKind,
    /// The entries.
    pub entries: BTreeMap<String, Value>,
    weight: usize,
}

/// What a mapping holds; a missing entry gives the empty text, unless the mapping holds anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapKind {
    /// Values of any type.
    Any,
    /// Texts.
    Texts,
    /// A label set of a message.
    Labels,
}

impl MapKind {
    /// Gives Go's name of the type.
    pub fn type_name(self) -> &'static str {
        match self {
            Self::Any => "map[string]interface {}",
            Self::Texts => "map[string]string",
            Self::Labels => "template.KV",
        }
    }

    /// Gives what a missing entry is.
    pub fn zero(self) -> Value {
        match self {
            Self::Any => Value::Nil,
            Self::Texts | Self::Labels => Value::text(""),
        }
    }
}

/// Fields with fixed names, in the order of their declaration.
#[derive(Debug, Clone, PartialEq)]
pub struct Struct {
    /// Go's name of the type.
    pub type_name: &'static str,
    /// The fields, with their names in JSON; an empty one is not written.
    pub fields: Vec<(&'static str, &'static str, Value)>,
}

impl Value {
    /// Makes a text.
    pub fn text(text: impl AsRef<str>) -> Self {
        Self::Text(Arc::from(text.as_ref()))
    }

    /// Makes a list.
    pub fn list(kind: ListKind, items: Vec<Self>) -> Self {
        let weight = heavy(items.iter());
        Self::List(Arc::new(List { kind, items, weight }))
    }

    /// Makes a mapping.
    pub fn map(kind: MapKind, entries: BTreeMap<String, Self>) -> Self {
        let names = entries.keys().map(String::len).sum();
        let weight = heavy(entries.values()).saturating_add(names);
        Self::Map(Arc::new(Map { kind, entries, weight }))
    }

    /// What it takes when all that it holds is written out, more or less: another may be in it many times, though it is
    /// kept once.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Text(text) | Self::Safe(_, text) => size_of::<Self>() + text.len(),
            Self::List(list) => list.weight,
            Self::Map(map) => map.weight,
            Self::Struct(fields) => heavy(fields.fields.iter().map(|(_, _, value)| value)),
            _ => size_of::<Self>(),
        }
    }

    /// Makes a list of texts.
    pub fn texts(items: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        Self::list(ListKind::Texts, items.into_iter().map(Self::text).collect())
    }

    /// Makes a mapping of texts.
    pub fn text_map<'a>(kind: MapKind, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let entries = pairs.into_iter().map(|(name, value)| (name.to_owned(), Self::text(value))).collect();
        Self::map(kind, entries)
    }

    /// Makes fields.
    pub fn fields(type_name: &'static str, fields: Vec<(&'static str, &'static str, Self)>) -> Self {
        Self::Struct(Arc::new(Struct { type_name, fields }))
    }

    /// Gives Go's name of the type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Nil => "<nil>",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint64",
            Self::Float(_) => "float64",
            Self::Complex(..) => "complex128",
            Self::Text(_) => "string",
            Self::Safe(Safe::Html, _) => "template.HTML",
            Self::Safe(Safe::Url, _) => "template.URL",
            Self::List(list) => list.kind.type_name(),
            Self::Map(map) => map.kind.type_name(),
            Self::Struct(fields) => fields.type_name,
            Self::Time(_) => "time.Time",
            Self::Duration(_) => "time.Duration",
            Self::Named(name, ..) => name,
            Self::Histogram(_) => "*histogram.FloatHistogram",
        }
    }

    /// Says whether it counts as true: not the zero of its type.
    pub fn truth(&self) -> bool {
        match self {
            Self::Nil => false,
            Self::Bool(value) => *value,
            Self::Int(value) | Self::Duration(value) | Self::Named(_, value, _) => *value != 0,
            Self::Uint(value) => *value != 0,
            Self::Float(value) => *value != 0.0,
            Self::Complex(real, imaginary) => *real != 0.0 || *imaginary != 0.0,
            Self::Text(text) | Self::Safe(_, text) => !text.is_empty(),
            Self::List(list) => !list.items.is_empty(),
            Self::Map(map) => !map.entries.is_empty(),
            Self::Struct(_) | Self::Time(_) | Self::Histogram(_) => true,
        }
    }

    /// Gives the text of a text.
    pub fn as_text(&self) -> Option<&Arc<str>> {
        match self {
            Self::Text(text) | Self::Safe(_, text) => Some(text),
            _ => None,
        }
    }

    /// Writes it as Go's `fmt.Print` does; `plus` as `%+v`.
    pub fn print(&self, out: &mut String, plus: bool) {
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
                    item.print(out, plus);
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
                    value.print(out, plus);
                }
                out.push(']');
            }
            Self::Struct(fields) => {
                out.push('{');
                for (i, (name, _, value)) in fields.fields.iter().enumerate() {
                    if i > 0 {
                        out.push(' ');
                    }
                    if plus {
                        let _ = write!(out, "{name}:");
                    }
                    value.print(out, plus);
                }
                out.push('}');
            }
            Self::Time(time) => *out += &time.to_string(),
            Self::Duration(nanos) => *out += &format_go(*nanos),
            Self::Named(_, _, name) => out.push_str(name),
        }
    }

    /// Gives what `print` writes.
    pub fn printed(&self) -> String {
        let mut out = String::new();
        self.print(&mut out, false);
        out
    }

    /// Says whether Go has a pointer to it, which its `fmt` tells of a value that stands alone.
    pub(super) fn is_pointer(&self) -> bool {
        matches!(self, Self::Struct(fields) if fields.type_name.starts_with('*'))
    }

    /// Gives it as JSON, as Go's `json.Marshal` writes it.
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

/// Writes a number as Go's JSON does: with an exponent below 1e-6 and from 1e21 on.
fn json_number(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{value:e}");
        return if size < 1.0 { text } else { text.replace('e', "e+") };
    }
    value.to_string()
}

/// Writes a text as Go's JSON does: `<`, `>` and `&` are escaped, too.
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

/// The weight of what holds others.
fn heavy<'a>(values: impl Iterator<Item = &'a Value>) -> usize {
    values.fold(size_of::<Value>(), |sum, value| sum.saturating_add(value.weight()))
}

/// Gives the pairs of a label set: `alertname` first, then by name.
pub(super) fn pairs(map: &Map) -> Vec<Value> {
    let first = map.entries.get_key_value("alertname");
    let rest = map.entries.iter().filter(|(name, _)| *name != "alertname");
    first.into_iter().chain(rest).map(|(name, value)| pair(name, value)).collect()
}

fn pair(name: &str, value: &Value) -> Value {
    Value::fields("template.Pair", vec![("Name", "Name", Value::text(name)), ("Value", "Value", value.clone())])
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
            value.print(out, false);
        }
    }
}

/// Writes values as Go's `fmt.Sprint` does: a space between two that are no texts.
pub(super) fn sprint(values: &[Value]) -> String {
    let mut out = String::new();
    for (i, value) in values.iter().enumerate() {
        let texts = |v: &Value| matches!(v, Value::Text(_));
        if i > 0 && !texts(value) && !texts(&values[i - 1]) {
            out.push(' ');
        }
        if value.is_pointer() {
            out.push('&');
        }
        value.print(&mut out, false);
    }
    out
}

/// Writes a value as Go's `%#v` does, as far as templates meet it.
pub(super) fn go_syntax(value: &Value) -> String {
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
        let mut json = String::new();
        labels.json(&mut json);
        assert_eq!(json, r#"{"a":"\u003c1\u003e","alertname":"A","b":"2"}"#);
        let list = Value::list(ListKind::Any, vec![Value::Int(1), Value::text("x"), Value::Nil]);
        assert_eq!(list.printed(), "[1 x <nil>]");
        assert_eq!(sprint(&[Value::Int(1), Value::Int(2), Value::text("a"), Value::text("b")]), "1 2ab");
        assert_eq!(
            (json_number(1e21), json_number(1e-7), json_number(0.5)),
            ("1e+21".into(), "1e-7".into(), "0.5".into())
        );
    }

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
            (Value::text_map(MapKind::Texts, [("b", ""), ("<", "x")]), "{\"\\u003c\":\"x\",\"b\":\"\"}"),
            (Value::fields("T", fields), "{\"a\":1,\"c\":null}"),
        ] {
            assert_eq!(json(&value), expected);
        }
    }

    #[test]
    fn what_counts_as_true() {
        let list = |items| Value::list(ListKind::Any, items);
        for (value, expected) in [
            (Value::Nil, false),
            (Value::Bool(false), false),
            (Value::Int(-1), true),
            (Value::Uint(0), false),
            (Value::Float(0.0), false),
            (Value::Float(-0.0), false),
            (Value::Float(f64::NAN), true),
            (Value::Complex(0.0, 0.0), false),
            (Value::Complex(0.0, 1.0), true),
            (Value::text(""), false),
            (Value::text("false"), true),
            (Value::Safe(Safe::Html, "".into()), false),
            (list(vec![]), false),
            (list(vec![Value::Nil]), true),
            (Value::text_map(MapKind::Labels, []), false),
            (Value::fields("T", vec![]), true),
            (Value::Time(Time::zero()), true),
            (Value::Duration(0), false),
            (Value::Duration(1), true),
        ] {
            assert_eq!(value.truth(), expected, "{value:?}");
        }
    }

    #[test]
    fn printed_with_and_without_names() {
        let pair = Value::fields("*T", vec![("A", "a", Value::Int(1)), ("B", "", Value::text("x y"))]);
        let labels = Value::text_map(MapKind::Labels, [("a", "1"), ("b", "2")]);
        let plus = |value: &Value| {
            let mut out = String::new();
            value.print(&mut out, true);
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

    /// What holds another twice is twice as heavy, though both are kept once.
    #[test]
    fn weights() {
        let own = size_of::<Value>();
        assert_eq!(Value::text("abc").weight(), own + 3);
        let mut value = Value::list(ListKind::Any, vec![Value::text("abc"), Value::Nil]);
        assert_eq!(value.weight(), 3 * own + 3);
        assert_eq!(Value::map(MapKind::Any, [("name".to_owned(), value.clone())].into()).weight(), 4 * own + 7);
        assert_eq!(Value::fields("T", vec![("A", "a", value.clone())]).weight(), 4 * own + 3);
        let before = value.weight();
        value = Value::list(ListKind::Any, vec![value.clone(), value]);
        assert_eq!(value.weight(), 2 * before + own);
        for _ in 0..100 {
            value = Value::list(ListKind::Any, vec![value.clone(), value]);
        }
        assert_eq!(value.weight(), usize::MAX);
    }
}
