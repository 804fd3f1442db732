//! Attribute keys and values, as the store counts them column by column.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use super::{AttributeKind, Place, SpanColumn, SpanFilter, Value};

/// Values of a key are told apart up to here.
pub const TAG_CARDINALITY_MAX: usize = 10_000;
/// About what a key or a value takes in memory beside its text while it is counted, in bytes.
pub const TAG_BYTES: usize = 160;
/// What the hash of a value takes in memory while values are told apart, in bytes.
pub const TAG_HASH_BYTES: usize = 16;
/// Values that are counted when they are asked for.
pub const TAG_VALUES_MAX: usize = 200_000;

/// What of attributes is asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TagRequest {
    /// The spans whose attributes are counted.
    pub filter: SpanFilter,
    /// Where attributes stand; none: anywhere.
    pub place: Option<Place>,
    /// Values of this key; none: all keys.
    pub key: Option<String>,
}

impl TagRequest {
    /// Says whether attributes of a place are asked for.
    pub fn asks(&self, place: Place) -> bool {
        self.place.is_none_or(|asked| asked == place)
    }

    /// Gives the columns that hold what is asked for. Those of one key are not to be read as texts: a place may have it
    /// more than once.
    pub fn columns(&self) -> Vec<SpanColumn> {
        let of = |place: Place| match (&self.key, place) {
            (Some(key), _) => vec![SpanColumn::Attribute(place, key.clone(), AttributeKind::Text)],
            (None, Place::Span) => vec![SpanColumn::Own("attributes")],
            (None, Place::Resource) => vec![SpanColumn::Context("resource"), SpanColumn::Context("service")],
            (None, Place::Event) => vec![SpanColumn::Own("events")],
            (None, Place::Link) => vec![SpanColumn::Own("links")],
            (None, Place::Scope) => vec![SpanColumn::Context("scope_attributes")],
        };
        Place::ALL.into_iter().filter(|place| self.asks(*place)).flat_map(of).collect()
    }
}

/// Types of values, in the order of the bits of [`tag_kind`].
const KINDS: [&str; 6] = ["string", "number", "bool", "bytes", "list", "map"];

/// Gives the bit of a value's type.
pub fn tag_kind(value: Value<'_>) -> u8 {
    match value {
        Value::Text(_) => 1,
        Value::Int(_) | Value::Double(_) => 2,
        Value::Bool(_) => 4,
        Value::Bytes(_) => 8,
        Value::Json(json) if json.starts_with("{\"kvlistValue\"") => 32,
        Value::Json(_) => 16,
    }
}

/// The bit of doubles where [`tag_value_kind`] tells them from integers.
pub const TAG_DOUBLE: u8 = 64;

/// Gives the bit of a value's type, that of doubles apart: what the rows of one key have, where [`tag_kind`] is what keys
/// have.
pub fn tag_value_kind(value: Value<'_>) -> u8 {
    if matches!(value, Value::Double(_)) { TAG_DOUBLE } else { tag_kind(value) }
}

/// Gives the name of a set of types.
pub fn tag_kind_name(kinds: u8) -> &'static str {
    if kinds.is_power_of_two() { KINDS.get(kinds.trailing_zeros() as usize).unwrap_or(&"mixed") } else { "mixed" }
}

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let field = |name: &str, kind| Field::new(name, kind, false);
    Arc::new(Schema::new(vec![
        field("place", DataType::UInt8),
        field("text", DataType::Utf8),
        field("kinds", DataType::UInt8),
        field("spans", DataType::UInt64),
        field("hashes", DataType::Binary),
    ]))
});

/// Gives the columns of the answer. Of all keys: place (its number in [`Place::ALL`]), key, types of its values, spans
/// that have it, and the hashes of its values, 8 bytes each, up to [`TAG_CARDINALITY_MAX`]. Of one key: a value as text,
/// the types that it has, and the spans that have it, each span once. A key or value may come in several rows, which add up.
pub fn tag_schema() -> SchemaRef {
    Arc::clone(&SCHEMA)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(place: Option<Place>, key: Option<&str>) -> Vec<SpanColumn> {
        TagRequest { filter: SpanFilter::All, place, key: key.map(str::to_owned) }.columns()
    }

    #[test]
    fn columns_of_what_is_asked_for() {
        let all = ask(None, None);
        let of_places: Vec<SpanColumn> = Place::ALL.into_iter().flat_map(|place| ask(Some(place), None)).collect();
        assert_eq!(all, of_places);
        assert_eq!(ask(Some(Place::Resource), None), [SpanColumn::Context("resource"), SpanColumn::Context("service")]);
        let text = |place| SpanColumn::Attribute(place, "a b".to_owned(), AttributeKind::Text);
        assert_eq!(ask(Some(Place::Span), Some("a b")), [text(Place::Span)]);
        assert_eq!(ask(None, Some("a b")), Place::ALL.map(text));
    }

    #[test]
    fn types_of_values_are_bits() {
        let map = r#"{"kvlistValue":{"values":[]}}"#;
        let list = r#"{"arrayValue":{"values":[]}}"#;
        for (value, kind, name) in [
            (Value::Text(""), 1, "string"),
            (Value::Int(0), 2, "number"),
            (Value::Double(f64::NAN), 2, "number"),
            (Value::Bool(false), 4, "bool"),
            (Value::Bytes(&[]), 8, "bytes"),
            (Value::Json(list), 16, "list"),
            (Value::Json(map), 32, "map"),
        ] {
            assert_eq!((tag_kind(value), tag_kind_name(kind)), (kind, name), "{value:?}");
            let told_apart = if matches!(value, Value::Double(_)) { TAG_DOUBLE } else { kind };
            assert_eq!(tag_value_kind(value), told_apart, "{value:?}");
        }
    }

    #[test]
    fn several_types_are_mixed() {
        for kinds in [0, 1 | 2, 8 | 16 | 32, TAG_DOUBLE, 128, u8::MAX] {
            assert_eq!(tag_kind_name(kinds), "mixed", "{kinds}");
        }
    }
}
