//! Template values: what Go's reflection sees, as far as rules and notifications need it.

mod json;
mod print;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::time::Time;
pub(super) use print::{go_syntax, sprint};

/// A value. Cloning shares large contents.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing: printed as `<no value>`.
    Nil,
    /// Boolean.
    Bool(bool),
    /// Integer.
    Int(i64),
    /// Unsigned integer.
    Uint(u64),
    /// Floating-point number.
    Float(f64),
    /// Complex number: real and imaginary part.
    Complex(f64, f64),
    /// String.
    Text(Arc<str>),
    /// String that needs no escaping in a certain context.
    Safe(Safe, Arc<str>),
    /// List.
    List(Arc<List>),
    /// Map.
    Map(Arc<Map>),
    /// Struct.
    Struct(Arc<Struct>),
    /// A time.
    Time(Time),
    /// Duration in nanoseconds.
    Duration(i64),
    /// A month or weekday: type, number and name.
    Named(&'static str, i64, &'static str),
    /// A native histogram, as text.
    Histogram(Arc<str>),
}

/// The context in which a string needs no escaping.
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
    /// Its type, which determines its methods.
    pub kind: ListKind,
    /// The items.
    pub items: Vec<Value>,
    weight: usize,
}

/// The type of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListKind {
    /// Values of any type.
    Any,
    /// Strings.
    Texts,
    /// Numbers of one of Go's types.
    Numbers(&'static str),
    /// Samples of a query result.
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
    /// The name of the type in Go.
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

/// A map.
#[derive(Debug, Clone, PartialEq)]
pub struct Map {
    /// Its type.
    pub kind: MapKind,
    /// The entries.
    pub entries: BTreeMap<String, Value>,
    weight: usize,
}

/// The type of a map. A missing entry is the empty string, except in `Any`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapKind {
    /// Values of any type.
    Any,
    /// Strings.
    Texts,
    /// A label set of a message.
    Labels,
}

impl MapKind {
    /// The name of the type in Go.
    pub fn type_name(self) -> &'static str {
        match self {
            Self::Any => "map[string]interface {}",
            Self::Texts => "map[string]string",
            Self::Labels => "template.KV",
        }
    }

    /// The value of a missing entry.
    pub fn zero(self) -> Value {
        match self {
            Self::Any => Value::Nil,
            Self::Texts | Self::Labels => Value::text(""),
        }
    }
}

/// A struct: fields in the order of declaration.
#[derive(Debug, Clone, PartialEq)]
pub struct Struct {
    /// The name of the type in Go.
    pub type_name: &'static str,
    /// Name, name in JSON, and value of each field; without a name in JSON it is left out there.
    pub fields: Vec<(&'static str, &'static str, Value)>,
}

impl Value {
    /// Makes a string.
    pub fn text(text: impl AsRef<str>) -> Self {
        Self::Text(Arc::from(text.as_ref()))
    }

    /// Makes a list.
    pub fn list(kind: ListKind, items: Vec<Self>) -> Self {
        let weight = heavy(items.iter());
        Self::List(Arc::new(List { kind, items, weight }))
    }

    /// Makes a map.
    pub fn map(kind: MapKind, entries: BTreeMap<String, Self>) -> Self {
        let names = entries.keys().map(String::len).sum();
        let weight = heavy(entries.values()).saturating_add(names);
        Self::Map(Arc::new(Map { kind, entries, weight }))
    }

    /// The approximate size of the value when printed: a value contained several times counts each time, although it
    /// is stored once.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Text(text) | Self::Safe(_, text) => size_of::<Self>() + text.len(),
            Self::List(list) => list.weight,
            Self::Map(map) => map.weight,
            Self::Struct(fields) => heavy(fields.fields.iter().map(|(_, _, value)| value)),
            _ => size_of::<Self>(),
        }
    }

    /// Makes a list of strings.
    pub fn texts(items: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        Self::list(ListKind::Texts, items.into_iter().map(Self::text).collect())
    }

    /// Makes a map of strings.
    pub fn text_map<'a>(kind: MapKind, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let entries = pairs.into_iter().map(|(name, value)| (name.to_owned(), Self::text(value))).collect();
        Self::map(kind, entries)
    }

    /// Makes a struct.
    pub fn fields(type_name: &'static str, fields: Vec<(&'static str, &'static str, Self)>) -> Self {
        Self::Struct(Arc::new(Struct { type_name, fields }))
    }

    /// The name of the type in Go.
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

    /// Whether it counts as true: it is not the zero value of its type.
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

    /// The string, if it is one.
    pub fn as_text(&self) -> Option<&Arc<str>> {
        match self {
            Self::Text(text) | Self::Safe(_, text) => Some(text),
            _ => None,
        }
    }
}

/// The weight of a container.
fn heavy<'a>(values: impl Iterator<Item = &'a Value>) -> usize {
    values.fold(size_of::<Value>(), |sum, value| sum.saturating_add(value.weight()))
}

/// The pairs of a label set: `alertname` first, then by name.
pub(super) fn pairs(map: &Map) -> Vec<Value> {
    let first = map.entries.get_key_value("alertname");
    let rest = map.entries.iter().filter(|(name, _)| *name != "alertname");
    first.into_iter().chain(rest).map(|(name, value)| pair(name, value)).collect()
}

fn pair(name: &str, value: &Value) -> Value {
    Value::fields("template.Pair", vec![("Name", "Name", Value::text(name)), ("Value", "Value", value.clone())])
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// A value contained twice counts twice, although it is stored once.
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
