//! Columns of tables out of stored columns: ids as hex, texts whose empty ones are NULL, maps, numbers out of texts.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayBuilder as _, ArrayRef, AsArray, FixedSizeBinaryArray, Float64Array, Int32DictionaryArray, Int64Array,
    MapArray, StringBuilder, StringViewArray, StructArray, make_view,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, TimeUnit};
use quiver_types::logs::Stored;
use quiver_types::push_hex;
use quiver_types::spans::AttributeKind;
use quiver_types::tables::spans::map;
use quiver_types::{Error, Result};
use serde::{Deserialize, Serialize};

/// A nullable text.
pub(super) fn text(name: impl Into<String>) -> Field {
    Field::new(name, DataType::Utf8View, true)
}

/// A time of a unit, in UTC.
pub(super) fn time(name: &str, unit: TimeUnit) -> Field {
    Field::new(name, DataType::Timestamp(unit, Some("UTC".into())), true)
}

/// A map of texts, entries in order of their keys.
pub(super) fn text_map(name: &str) -> Field {
    Field::new(name, map(), true)
}

/// Makes the empty texts of a column NULL.
pub(super) fn none_empty(texts: &StringViewArray) -> StringViewArray {
    // The low half of a view is the text's length.
    let filled = texts.views().iter().map(|view| *view as u32 != 0);
    let nulls: NullBuffer = filled.collect();
    let nulls = NullBuffer::union(texts.nulls(), Some(&nulls)).filter(|n| n.null_count() > 0);
    StringViewArray::new(texts.views().clone(), texts.data_buffers().to_vec(), nulls)
}

/// Gives a column of texts as views, empty ones as NULL.
pub(super) fn texts(column: &ArrayRef) -> Option<StringViewArray> {
    match column.data_type() {
        DataType::Utf8View => column.as_string_view_opt().map(none_empty),
        DataType::Utf8 => column.as_string_opt::<i32>().map(|texts| none_empty(&StringViewArray::from(texts))),
        _ => None,
    }
}

/// Gives texts by codes whose empty ones are NULL.
pub(super) fn coded(column: &ArrayRef) -> Option<Int32DictionaryArray> {
    let coded = column.as_any().downcast_ref::<Int32DictionaryArray>()?;
    let values = coded.values().as_string_view_opt()?;
    if values.views().iter().all(|view| *view as u32 != 0) {
        return Some(coded.clone());
    }
    Some(coded.with_values(Arc::new(none_empty(values))))
}

/// Gives texts by codes as views, empty ones as NULL.
pub(super) fn uncoded(column: &ArrayRef) -> Option<StringViewArray> {
    let coded = coded(column)?;
    // Texts that have a code each lie in the order of their rows.
    take(coded.values(), coded.keys(), None).ok()?.as_string_view_opt().cloned()
}

/// Writes ids as lower-case hex; ids of zeros are NULL where `zero_is_null`.
pub(crate) fn hex_ids(ids: &FixedSizeBinaryArray, zero_is_null: bool) -> StringViewArray {
    let (data, size) = (ids.value_data(), ids.value_size());
    let id = |row: usize| &data[row * size..(row + 1) * size];
    let mut digits = Vec::with_capacity(ids.len() * size * 2);
    let mut views = Vec::with_capacity(ids.len());
    for row in 0..ids.len() {
        let from = digits.len();
        push_hex(id(row), &mut digits);
        views.push(make_view(&digits[from..], 0, from as u32));
    }
    let is_filled = |row: usize| ids.is_valid(row) && id(row).iter().any(|byte| *byte != 0);
    let nulls =
        if zero_is_null { Some((0..ids.len()).map(is_filled).collect::<NullBuffer>()) } else { ids.nulls().cloned() };
    let nulls = nulls.filter(|n| n.null_count() > 0);
    StringViewArray::new(ScalarBuffer::from(views), [Buffer::from_vec(digits)], nulls)
}

/// Names of numbers out of a short list of short names; a number beyond it has the last.
pub(super) fn named(numbers: impl Iterator<Item = u8>, names: &[&str]) -> StringViewArray {
    let views: Vec<u128> = names.iter().map(|name| make_view(name.as_bytes(), 0, 0)).collect();
    debug_assert!(names.iter().all(|name| name.len() <= 12), "longer names do not fit into a view");
    let view = |n: u8| views.get(usize::from(n)).or(views.last()).copied().unwrap_or_default();
    let no_buffers: [Buffer; 0] = [];
    StringViewArray::new(numbers.map(view).collect::<Vec<_>>().into(), no_buffers, None)
}

/// Builds a column of maps from text to text, as the tables have them (`quiver_types::tables::spans::map`).
#[derive(Debug)]
pub struct TextMaps {
    keys: StringBuilder,
    values: StringBuilder,
    ends: Vec<i32>,
}

impl Default for TextMaps {
    fn default() -> Self {
        Self { keys: StringBuilder::new(), values: StringBuilder::new(), ends: vec![0] }
    }
}

impl TextMaps {
    /// Adds an entry to the current map; entries come in order of their keys.
    pub fn push(&mut self, key: &str, value: &str) {
        self.keys.append_value(key);
        self.values.append_value(value);
    }

    /// Ends the current map.
    pub fn end(&mut self) {
        self.ends.push(self.keys.len() as i32);
    }

    /// Gives the maps.
    ///
    /// # Errors
    /// Internal: only by a fault of ours.
    pub fn finish(mut self) -> Result<MapArray> {
        debug_assert_eq!(self.keys.len(), self.values.len());
        let DataType::Map(entries, sorted) = map() else { return Err(Error::internal("a map is no map")) };
        let DataType::Struct(fields) = entries.data_type() else {
            return Err(Error::internal("entries of a map are no structs"));
        };
        let columns: Vec<ArrayRef> = vec![Arc::new(self.keys.finish()), Arc::new(self.values.finish())];
        let structs = StructArray::new(fields.clone(), columns, None);
        let ends = OffsetBuffer::new(ScalarBuffer::from(self.ends));
        MapArray::try_new(Arc::clone(&entries), ends, structs, None, sorted)
            .map_err(|e| Error::internal("cannot build a map").with_source(e))
    }
}

/// What the values of a column that is found by name are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Texts; any other kind can be shown as one.
    Text,
    /// Whole numbers of 64 bits.
    Int,
    /// Numbers with a fraction, or of both kinds.
    Float,
}

impl Kind {
    /// The type of such a column.
    pub(super) fn data_type(self) -> DataType {
        match self {
            Self::Text => DataType::Utf8View,
            Self::Int => DataType::Int64,
            Self::Float => DataType::Float64,
        }
    }

    /// What the store reads attributes of spans as.
    pub(super) fn stored(self) -> AttributeKind {
        match self {
            Self::Text => AttributeKind::Text,
            Self::Int => AttributeKind::Int,
            Self::Float => AttributeKind::Double,
        }
    }

    /// What a text could be read as. Only numbers as they are written shortest count: `007` and `1e3` are texts.
    pub(super) fn of(text: &str) -> Self {
        let bytes = text.as_bytes();
        let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
        let plain = !digits.is_empty() && digits.iter().all(|b| b.is_ascii_digit() || *b == b'.');
        let padded = digits.len() > 1 && digits[0] == b'0' && digits[1] != b'.';
        if !plain || padded || digits[0] == b'.' || digits.ends_with(b".") || text == "-0" {
            return Self::Text;
        }
        match (text.parse::<i64>(), digits.contains(&b'.')) {
            (Ok(_), _) => Self::Int,
            // Too many digits: no double would give them back.
            (Err(_), false) => Self::Text,
            (Err(_), true) => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Self::Float,
                _ => Self::Text,
            },
        }
    }

    /// What holds both kinds.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Self::Text, _) | (_, Self::Text) => Self::Text,
            _ => Self::Float,
        }
    }
}

/// Gives a column of texts as what it was found to hold; empty ones are NULL.
///
/// # Errors
/// Execution: a value is no number, though those that were looked at are.
pub(super) fn typed(name: &str, values: &StringViewArray, kind: Kind) -> Result<ArrayRef> {
    let filled = |row: usize| (values.is_valid(row) && !values.value(row).is_empty()).then(|| values.value(row));
    let rows = 0..values.len();
    Ok(match kind {
        Kind::Text => Arc::new(none_empty(values)),
        Kind::Int => {
            let read = |text: &str| text.parse::<i64>().map_err(|_| kind.stored().mismatch(name, text));
            Arc::new(rows.map(|row| filled(row).map(read).transpose()).collect::<Result<Int64Array>>()?)
        }
        Kind::Float => {
            let read = |text: &str| text.parse::<f64>().map_err(|_| kind.stored().mismatch(name, text));
            Arc::new(rows.map(|row| filled(row).map(read).transpose()).collect::<Result<Float64Array>>()?)
        }
    })
}

/// The same of a column as the store holds it: numbers are not written and read again.
///
/// # Errors
/// Those of [`typed`].
pub(super) fn typed_stored(name: &str, column: &ArrayRef, kind: Kind) -> Result<ArrayRef> {
    let stored = Stored::of(column).ok_or_else(|| Error::internal(format!("`{name}` is no stored column")))?;
    let rows = column.len();
    match (stored, kind) {
        (Stored::Missing, _) => Ok(arrow::array::new_null_array(&kind.data_type(), rows)),
        (Stored::Int(values), Kind::Int) => Ok(Arc::new(values)),
        (Stored::Float(values), Kind::Float) => Ok(Arc::new(values)),
        (Stored::Int(values), Kind::Float) => {
            Ok(Arc::new(values.unary::<_, arrow::datatypes::Float64Type>(|v| v as f64)))
        }
        (Stored::Text(values), _) => typed(name, &values, kind),
        (other, _) => {
            let mut buffer = String::new();
            let mut texts = arrow::array::StringViewBuilder::with_capacity(rows);
            (0..rows).for_each(|row| texts.append_option(other.text(row, &mut buffer)));
            typed(name, &texts.finish(), kind)
        }
    }
}

/// What the values of a stored column are, all together; `None`: it has none.
pub(super) fn kind_of_stored(column: &ArrayRef) -> Option<Kind> {
    let both = |a: Option<Kind>, text: &str| match (a, text) {
        (a, "") => a,
        (Some(Kind::Text), _) => a,
        (None, text) => Some(Kind::of(text)),
        (Some(a), text) => Some(a.and(Kind::of(text))),
    };
    match Stored::of(column)? {
        Stored::Missing => None,
        Stored::Int(values) => (values.null_count() < values.len()).then_some(Kind::Int),
        Stored::Float(values) => (values.null_count() < values.len()).then_some(Kind::Float),
        Stored::Id(values) => (values.null_count() < values.len()).then_some(Kind::Text),
        Stored::Text(values) => values.iter().flatten().fold(None, both),
        coded @ Stored::Coded(_) => {
            let mut buffer = String::new();
            let mut kind = None;
            for row in 0..column.len() {
                kind = both(kind, coded.text(row, &mut buffer).unwrap_or_default());
            }
            kind
        }
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::ErrorKind;

    use super::*;

    #[test]
    fn kinds_of_texts() {
        let check = |text: &str, kind| assert_eq!(Kind::of(text), kind, "{text}");
        for text in ["0", "7", "-1", "9223372036854775807", "-9223372036854775808"] {
            check(text, Kind::Int);
        }
        for text in ["0.5", "-12.25", "9223372036854775808.5"] {
            check(text, Kind::Float);
        }
        for text in ["", "-", "-0", "007", "1e3", "+1", "1.", ".5", "0x10", "NaN", "9223372036854775808", "1.2.3", "a"]
        {
            check(text, Kind::Text);
        }
        assert_eq!(Kind::Int.and(Kind::Float), Kind::Float);
        assert_eq!(Kind::Int.and(Kind::Text), Kind::Text);
    }

    #[test]
    fn empty_texts_are_null() {
        let texts = StringViewArray::from(vec![Some("a"), Some(""), None, Some("a text longer than twelve bytes")]);
        let none = none_empty(&texts);
        let found: Vec<_> = none.iter().collect();
        assert_eq!(found, [Some("a"), None, None, Some("a text longer than twelve bytes")]);
        let numbers = StringViewArray::from(vec![Some("1"), Some(""), None, Some("-2")]);
        let ints = typed("n", &numbers, Kind::Int).unwrap();
        assert_eq!(
            ints.as_primitive::<arrow::datatypes::Int64Type>().iter().collect::<Vec<_>>(),
            [Some(1), None, None, Some(-2)]
        );
        let error = typed("n", &texts, Kind::Float).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Execution);
        assert!(error.message.contains("`n`") && error.message.contains("`a`"), "{error}");
    }

    #[test]
    fn ids_and_names() {
        let ids = FixedSizeBinaryArray::try_from_iter([vec![0u8; 8], vec![0, 1, 0xab, 0, 0, 0, 0, 255]].into_iter());
        let ids = ids.unwrap();
        assert_eq!(hex_ids(&ids, true).iter().collect::<Vec<_>>(), [None, Some("0001ab00000000ff")]);
        assert_eq!(hex_ids(&ids, false).value(0), "0000000000000000");
        let names = named([1u8, 0, 9].into_iter(), &["UNSET", "OK", "ERROR"]);
        assert_eq!(names.iter().flatten().collect::<Vec<_>>(), ["OK", "UNSET", "ERROR"]);
    }

    #[test]
    fn maps_are_built() {
        let mut maps = TextMaps::default();
        maps.push("a", "1");
        maps.push("b", "2");
        maps.end();
        maps.end();
        let maps = maps.finish().unwrap();
        assert_eq!(maps.data_type(), &map());
        assert_eq!((maps.value_length(0), maps.value_length(1)), (2, 0));
    }
}
