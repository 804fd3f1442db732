//! Values of an attribute as a column of one type.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Builder, Int64Builder, StringViewBuilder};
use arrow::datatypes::DataType;
use serde::{Deserialize, Serialize};

use super::Value;
use crate::{Error, ErrorKind, Result};

/// What values of an attribute are read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AttributeKind {
    /// Texts (`Utf8View`).
    Text,
    /// Whole numbers (`Int64`).
    Int,
    /// Numbers with fractions (`Float64`).
    Double,
}

impl AttributeKind {
    /// The type of such a column.
    pub fn data_type(self) -> DataType {
        match self {
            Self::Text => DataType::Utf8View,
            Self::Int => DataType::Int64,
            Self::Double => DataType::Float64,
        }
    }

    /// What one value is; an empty text says nothing.
    pub fn of(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Int(_) => Some(Self::Int),
            Value::Double(number) if number.is_finite() => Some(Self::Double),
            Value::Text("") => None,
            _ => Some(Self::Text),
        }
    }

    /// Gives the kind that can hold values of both: text where one is text, else numbers with fractions.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Self::Text, _) | (_, Self::Text) => Self::Text,
            _ => Self::Double,
        }
    }

    /// The error of a value that has another type than the column `name`. Its cause is a message without the value, for
    /// callers who may not see the row.
    pub fn mismatch(self, name: &str, text: &str) -> Error {
        let what = if self == Self::Int { "whole numbers" } else { "numbers" };
        let text: String = text.chars().take(40).collect();
        let says = |value: &str| {
            format!(
                "column `{name}` was found to hold {what}, but an older row has {value}; read it as text out of its map: \
                 `attr(fields, 'name')` of logs, `attr(attributes, 'name')` of spans"
            )
        };
        let without = WithoutValue(says("something else"));
        Error::new(ErrorKind::Execution, says(&format!("`{text}`"))).with_source(without)
    }
}

/// The message of an error about a value, without the value: the row may be hidden from the caller.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct WithoutValue(pub String);

/// What is known of the values of an attribute without reading them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownKind {
    /// There are no values.
    None,
    /// All are of one kind.
    All(AttributeKind),
    /// Only the rows tell.
    Unknown,
}

impl KnownKind {
    /// What is known of both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::None, known) | (known, Self::None) => known,
            (Self::All(a), Self::All(b)) => Self::All(a.and(b)),
        }
    }
}

enum Values {
    Text(StringViewBuilder),
    Int(Int64Builder),
    Double(Float64Builder),
}

/// Builds a column out of values as they come.
pub struct AttributeValues<'n> {
    name: &'n str,
    values: Values,
}

impl<'n> AttributeValues<'n> {
    /// Begins a column; `name` is for errors.
    pub fn new(name: &'n str, kind: AttributeKind) -> Self {
        let values = match kind {
            AttributeKind::Text => Values::Text(StringViewBuilder::new()),
            AttributeKind::Int => Values::Int(Int64Builder::new()),
            AttributeKind::Double => Values::Double(Float64Builder::new()),
        };
        Self { name, values }
    }

    /// Appends a value; none, and an empty text among numbers, is null.
    ///
    /// # Errors
    /// Execution: the value is no number.
    pub fn push(&mut self, value: Option<Value<'_>>) -> Result<()> {
        let value = value
            .filter(|value| !matches!((&self.values, value), (Values::Int(_) | Values::Double(_), Value::Text(""))));
        match (&mut self.values, value) {
            (Values::Text(out), value) => out.append_option(value.map(Value::text)),
            (Values::Int(out), None) => out.append_null(),
            (Values::Double(out), None) => out.append_null(),
            (Values::Int(out), Some(Value::Int(number))) => out.append_value(number),
            (Values::Double(out), Some(Value::Double(number))) => out.append_value(number),
            (Values::Double(out), Some(Value::Int(number))) => out.append_value(number as f64),
            (Values::Int(out), Some(other)) => {
                let text = other.text();
                out.append_value(text.parse().map_err(|_| AttributeKind::Int.mismatch(self.name, &text))?);
            }
            (Values::Double(out), Some(other)) => {
                let text = other.text();
                out.append_value(text.parse().map_err(|_| AttributeKind::Double.mismatch(self.name, &text))?);
            }
        }
        Ok(())
    }

    /// Gives the column.
    pub fn finish(self) -> ArrayRef {
        match self.values {
            Values::Text(mut out) => Arc::new(out.finish()),
            Values::Int(mut out) => Arc::new(out.finish()),
            Values::Double(mut out) => Arc::new(out.finish()),
        }
    }
}

impl std::fmt::Debug for AttributeValues<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AttributeValues").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array as _, AsArray as _};
    use arrow::datatypes::{Float64Type, Int64Type};

    use super::*;

    #[test]
    fn values_become_one_type() {
        let column = |kind, values: &[Option<Value<'_>>]| {
            let mut out = AttributeValues::new("n", kind);
            values.iter().try_for_each(|value| out.push(*value)).map(|()| out.finish())
        };
        let values = [Some(Value::Int(7)), None, Some(Value::Text("")), Some(Value::Text("-2"))];
        let ints = column(AttributeKind::Int, &values).unwrap();
        assert_eq!(ints.as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [Some(7), None, None, Some(-2)]);
        let doubles = column(AttributeKind::Double, &[Some(Value::Int(7)), Some(Value::Double(0.5))]).unwrap();
        assert_eq!(doubles.as_primitive::<Float64Type>().values(), &[7.0, 0.5]);
        let texts = column(AttributeKind::Text, &[Some(Value::Int(7)), None, Some(Value::Bool(true))]).unwrap();
        assert_eq!(texts.as_string_view().iter().collect::<Vec<_>>(), [Some("7"), None, Some("true")]);
        let wrong = column(AttributeKind::Int, &[Some(Value::Text("seven"))]).unwrap_err();
        assert!(wrong.kind == ErrorKind::Execution && wrong.to_string().contains("older row has `seven`"), "{wrong}");
        assert_eq!(texts.null_count(), 1);
    }

    #[test]
    fn kinds_join() {
        use AttributeKind::{Double, Int, Text};
        assert_eq!([Int.and(Int), Int.and(Double), Double.and(Text)], [Int, Double, Text]);
        let of = [Value::Int(1), Value::Double(f64::NAN), Value::Text(""), Value::Bool(true)].map(AttributeKind::of);
        assert_eq!(of, [Some(Int), Some(Text), None, Some(Text)]);
    }

    #[test]
    fn what_is_known_together() {
        use AttributeKind::{Double, Int, Text};
        use KnownKind::{All, None, Unknown};
        for (one, other, both) in [
            (None, None, None),
            (None, All(Int), All(Int)),
            (All(Int), All(Int), All(Int)),
            (All(Int), All(Double), All(Double)),
            (All(Double), All(Text), All(Text)),
            (None, Unknown, Unknown),
            (All(Int), Unknown, Unknown),
            (Unknown, Unknown, Unknown),
        ] {
            assert_eq!((one.and(other), other.and(one)), (both, both), "{one:?} {other:?}");
        }
    }

    #[test]
    fn numbers_that_are_written_otherwise() {
        let push = |kind: AttributeKind, value: Value<'_>| {
            let mut out = AttributeValues::new("n", kind);
            out.push(Some(value)).map(|()| out.finish())
        };
        let int = |value: Value<'_>| {
            push(AttributeKind::Int, value).ok().map(|column| column.as_primitive::<Int64Type>().value(0))
        };
        assert_eq!(int(Value::Double(7.0)), Some(7), "a double without a fraction");
        assert_eq!(int(Value::Text("9223372036854775807")), Some(i64::MAX));
        for other in [
            Value::Double(7.5),
            Value::Text("7.0"),
            Value::Text(" 7"),
            Value::Text("9223372036854775808"),
            Value::Bool(true),
        ] {
            assert_eq!(int(other), None, "{other:?}");
        }
        let double = |value: Value<'_>| {
            push(AttributeKind::Double, value).ok().map(|column| column.as_primitive::<Float64Type>().value(0))
        };
        assert_eq!(double(Value::Text("-1.5e3")), Some(-1500.0));
        assert_eq!(double(Value::Text("long")), None);
        let long = "é".repeat(50);
        let error = push(AttributeKind::Double, Value::Text(&long)).expect_err("it is no number").to_string();
        assert!(error.starts_with("column `n` was found to hold numbers, but an older row has `é"), "{error}");
        assert_eq!(error.matches('é').count(), 40, "long texts are cut");
    }
}
