//! Values of results, of the types that attributes have: how an answer writes them is known where answers are written.

use std::cmp::Ordering;

use quiver_types::spans::Value;

/// What a field of a span is, or a number that was worked out of several spans. In order of types, then of values.
#[derive(Debug, Clone)]
pub enum FieldValue {
    /// There is no value.
    Nil,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A double.
    Double(f64),
    /// A length of time in nanoseconds.
    Nanos(i64),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A list or a map, in the form in which spans hold it ([`Value::Json`]).
    Structure(String),
}

impl FieldValue {
    /// Takes the value of an attribute.
    pub(super) fn of(value: Value<'_>) -> Self {
        match value {
            Value::Text(text) => Self::Text(text.to_owned()),
            Value::Int(number) => Self::Int(number),
            Value::Double(number) => Self::Double(number),
            Value::Bool(value) => Self::Bool(value),
            Value::Bytes(bytes) => Self::Bytes(bytes.to_vec()),
            Value::Json(json) => Self::Structure(json.to_owned()),
        }
    }

    /// Makes a text of it.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Takes a number that was worked out: an integer where it is one.
    pub(super) fn number(number: f64) -> Self {
        const INT_END: f64 = 9_223_372_036_854_775_808.0;
        if number.fract() == 0.0 && (-INT_END..INT_END).contains(&number) {
            Self::Int(number as i64)
        } else {
            Self::Double(number)
        }
    }

    /// The text that it is.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// What it takes in memory beside itself.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Self::Nil | Self::Bool(_) | Self::Int(_) | Self::Double(_) | Self::Nanos(_) => 0,
            Self::Text(text) | Self::Structure(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    fn type_place(&self) -> u8 {
        match self {
            Self::Nil => 0,
            Self::Bool(_) => 1,
            Self::Int(_) => 2,
            Self::Double(_) => 3,
            Self::Nanos(_) => 4,
            Self::Text(_) => 5,
            Self::Bytes(_) => 6,
            Self::Structure(_) => 7,
        }
    }
}

impl Ord for FieldValue {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(left), Self::Bool(right)) => left.cmp(right),
            (Self::Int(left), Self::Int(right)) | (Self::Nanos(left), Self::Nanos(right)) => left.cmp(right),
            (Self::Double(left), Self::Double(right)) => left.total_cmp(right),
            (Self::Text(left), Self::Text(right)) | (Self::Structure(left), Self::Structure(right)) => left.cmp(right),
            (Self::Bytes(left), Self::Bytes(right)) => left.cmp(right),
            _ => self.type_place().cmp(&other.type_place()),
        }
    }
}

impl PartialOrd for FieldValue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for FieldValue {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for FieldValue {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_attributes_keep_their_type() {
        for (value, expected) in [
            (Value::Text("a"), FieldValue::text("a")),
            (Value::Int(i64::MIN), FieldValue::Int(i64::MIN)),
            (Value::Double(2.0), FieldValue::Double(2.0)),
            (Value::Double(f64::NAN), FieldValue::Double(f64::NAN)),
            (Value::Bool(true), FieldValue::Bool(true)),
            (Value::Bytes(b"ab"), FieldValue::Bytes(b"ab".to_vec())),
            (Value::Json("[]"), FieldValue::Structure("[]".to_owned())),
        ] {
            assert_eq!(FieldValue::of(value), expected);
        }
    }

    /// Breaks if a number becomes an integer that it is not: beyond `i64` it would be its end.
    #[test]
    fn whole_numbers_are_integers() {
        for (number, expected) in [
            (5.0, FieldValue::Int(5)),
            (-0.0, FieldValue::Int(0)),
            (2.5, FieldValue::Double(2.5)),
            (-9_223_372_036_854_775_808.0, FieldValue::Int(i64::MIN)),
            (9_223_372_036_854_775_808.0, FieldValue::Double(9_223_372_036_854_775_808.0)),
            (1e300, FieldValue::Double(1e300)),
            (f64::INFINITY, FieldValue::Double(f64::INFINITY)),
        ] {
            assert_eq!(FieldValue::number(number), expected, "{number}");
        }
    }

    #[test]
    fn types_and_values_are_told_apart_and_ordered() {
        let ordered = [
            FieldValue::Nil,
            FieldValue::Bool(false),
            FieldValue::Bool(true),
            FieldValue::Int(9),
            FieldValue::Int(10),
            FieldValue::Double(-1.0),
            FieldValue::Double(9.0),
            FieldValue::Nanos(9),
            FieldValue::text("10"),
            FieldValue::text("9"),
            FieldValue::text("nil"),
            FieldValue::Bytes(vec![9]),
            FieldValue::Structure("9".to_owned()),
        ];
        assert!(ordered.is_sorted());
        for (n, one) in ordered.iter().enumerate() {
            assert_eq!(ordered.iter().filter(|other| *other == one).count(), 1, "{one:?} at {n}");
        }
    }

    #[test]
    fn what_is_held_beside_a_value() {
        let of = |value: FieldValue| (value.held_bytes(), value.as_text().map(str::len));
        assert_eq!(of(FieldValue::text("four")), (4, Some(4)));
        assert_eq!(of(FieldValue::Bytes(vec![1; 3])), (3, None));
        assert_eq!(of(FieldValue::Structure("[1]".to_owned())), (3, None));
        assert_eq!(of(FieldValue::Int(5)), (0, None));
    }
}
