//! Values as they are stored: text, coded, typed, constant, or missing.
//!
//! For filters and query languages every value is text. Typed values are used only if their exact text can be restored.
//! So a filter may compare numbers if its hints allow, and everything else can ask for the text.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, FixedSizeBinaryArray, Float64Array, Int64Array, StringArray,
    StringViewArray, UInt32Array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, UInt32Type};

use crate::error::{Error, Result};
use crate::logs::typed_text;

/// Values as they are stored. Nulls are missing values.
#[derive(Debug, Clone)]
pub(crate) enum Values {
    /// No row has the field.
    Missing,
    /// All rows have this value.
    Constant(Arc<str>),
    /// Text.
    Text(StringViewArray),
    /// Dictionary-encoded text.
    Coded(DictionaryArray<UInt32Type>),
    /// Integers.
    Int(Int64Array),
    /// Decimal numbers.
    Float(Float64Array),
    /// IPv4 addresses.
    Ipv4(UInt32Array),
    /// Times in nanoseconds; in text with this number of fractional digits (`None`: without trailing zeros).
    Time(Int64Array, Option<u8>),
    /// Lower-case hex digits.
    Hex(FixedSizeBinaryArray),
}

impl Values {
    /// Wraps an array read from a file; `digits` are the fractional digits of times.
    ///
    /// # Errors
    /// Internal: a type that no column has.
    pub(crate) fn of(array: &ArrayRef, digits: Option<u8>) -> Result<Self> {
        use arrow::datatypes::{Float64Type, Int64Type, TimestampNanosecondType};
        Ok(match array.data_type() {
            DataType::Utf8View => Self::Text(array.as_string_view().clone()),
            DataType::Dictionary(..) => {
                Self::Coded(array.as_dictionary_opt::<UInt32Type>().internal_none("a dictionary")?.clone())
            }
            DataType::Int64 => Self::Int(array.as_primitive::<Int64Type>().clone()),
            DataType::Float64 => Self::Float(array.as_primitive::<Float64Type>().clone()),
            DataType::UInt32 => Self::Ipv4(array.as_primitive::<UInt32Type>().clone()),
            DataType::Timestamp(..) => {
                let times = array.as_primitive_opt::<TimestampNanosecondType>().internal_none("times")?;
                Self::Time(Int64Array::new(times.values().clone(), times.nulls().cloned()), digits)
            }
            DataType::FixedSizeBinary(_) => Self::Hex(array.as_fixed_size_binary().clone()),
            other => return Err(Error::internal(format!("a column of logs has type {other}"))),
        })
    }

    #[inline]
    pub(super) fn nulls(&self) -> Option<&NullBuffer> {
        match self {
            Self::Missing | Self::Constant(_) => None,
            Self::Text(a) => a.nulls(),
            Self::Coded(a) => a.nulls(),
            Self::Int(a) | Self::Time(a, _) => a.nulls(),
            Self::Float(a) => a.nulls(),
            Self::Ipv4(a) => a.nulls(),
            Self::Hex(a) => a.nulls(),
        }
    }

    /// Tells whether a value is missing.
    #[inline]
    pub(crate) fn is_null(&self, i: usize) -> bool {
        matches!(self, Self::Missing) || self.nulls().is_some_and(|n| n.is_null(i))
    }

    /// A value as text; empty if it is missing. `buffer` holds the text of typed values.
    pub(crate) fn text<'a>(&'a self, i: usize, buffer: &'a mut String) -> &'a str {
        if self.is_null(i) {
            return "";
        }
        buffer.clear();
        match self {
            Self::Missing => "",
            Self::Constant(c) => c,
            Self::Text(a) => a.value(i),
            Self::Coded(a) => dictionary(a).map_or("", |d| d.value(a.keys().value(i) as usize)),
            _ => {
                self.write(i, buffer);
                buffer
            }
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Missing | Self::Constant(_) => 0,
            Self::Text(a) => a.get_array_memory_size(),
            Self::Coded(a) => a.get_array_memory_size(),
            Self::Int(a) | Self::Time(a, _) => a.get_array_memory_size(),
            Self::Float(a) => a.get_array_memory_size(),
            Self::Ipv4(a) => a.get_array_memory_size(),
            Self::Hex(a) => a.get_array_memory_size(),
        }
    }

    /// Appends the text of a value.
    #[inline]
    pub(super) fn write(&self, i: usize, out: &mut String) {
        match self {
            Self::Int(a) => typed_text::write_int(a.value(i), out),
            Self::Float(a) => typed_text::write_float(a.value(i), out),
            Self::Ipv4(a) => typed_text::write_ipv4(a.value(i), out),
            Self::Time(a, digits) => typed_text::write_time(a.value(i), *digits, out),
            Self::Hex(a) => typed_text::write_hex(a.value(i), out),
            _ => {}
        }
    }
}

/// The values of a dictionary.
pub(crate) fn dictionary(array: &DictionaryArray<UInt32Type>) -> Option<&StringArray> {
    array.values().as_any().downcast_ref()
}

trait InternalNone<T> {
    fn internal_none(self, what: &str) -> Result<T>;
}

impl<T> InternalNone<T> for Option<T> {
    fn internal_none(self, what: &str) -> Result<T> {
        self.ok_or_else(|| Error::internal(format!("a column of logs does not hold {what}")))
    }
}
