//! Makes columns of tables from stored columns: ids as hex, texts with empty ones as NULL, maps, numbers read from
//! texts.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayBuilder as _, ArrayRef, AsArray, FixedSizeBinaryArray, Float64Array, Int32DictionaryArray, Int64Array,
    MapArray, StringBuilder, StringViewArray, StructArray, TimestampMillisecondArray, make_view,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, TimeUnit};
use quiver_types::logs::StoredField;
use quiver_types::push_hex;
use quiver_types::spans::AttributeKind;
use quiver_types::tables::columns::map;
use quiver_types::{Error, Result};
use serde::{Deserialize, Serialize};

/// A nullable text.
pub(super) fn text(name: impl Into<String>) -> Field {
    Field::new(name, DataType::Utf8View, true)
}

/// A nullable time of a unit, in UTC.
pub(super) fn time(name: &str, unit: TimeUnit) -> Field {
    Field::new(name, DataType::Timestamp(unit, Some("UTC".into())), true)
}

/// A nullable map from text to text, sorted by key.
pub(super) fn text_map(name: &str) -> Field {
    Field::new(name, map(), true)
}

/// A column of one text per row; empty texts become NULL.
pub(super) fn text_column<'r, R>(rows: &'r [R], of: impl Fn(&'r R) -> &'r str) -> ArrayRef {
    Arc::new(rows.iter().map(|row| Some(of(row)).filter(|t| !t.is_empty())).collect::<StringViewArray>())
}

/// A column of times in Unix milliseconds, one per row.
pub(super) fn time_column<R>(rows: &[R], of: impl Fn(&R) -> Option<i64>) -> ArrayRef {
    Arc::new(rows.iter().map(of).collect::<TimestampMillisecondArray>().with_timezone("UTC"))
}

/// Replaces empty texts by NULL.
pub(super) fn none_empty(texts: &StringViewArray) -> StringViewArray {
    // The low 32 bits of a view are the text's length.
    let filled = texts.views().iter().map(|view| *view as u32 != 0);
    let nulls: NullBuffer = filled.collect();
    let nulls = NullBuffer::union(texts.nulls(), Some(&nulls)).filter(|n| n.null_count() > 0);
    StringViewArray::new(texts.views().clone(), texts.data_buffers().to_vec(), nulls)
}

/// A column of texts as string views, with empty ones as NULL; `None` if the column has another type.
pub(super) fn texts(column: &ArrayRef) -> Option<StringViewArray> {
    match column.data_type() {
        DataType::Utf8View => column.as_string_view_opt().map(none_empty),
        DataType::Utf8 => column.as_string_opt::<i32>().map(|texts| none_empty(&StringViewArray::from(texts))),
        _ => None,
    }
}

/// Dictionary-coded texts with empty ones as NULL; `None` if the column has another type.
pub(super) fn coded(column: &ArrayRef) -> Option<Int32DictionaryArray> {
    let coded = column.as_any().downcast_ref::<Int32DictionaryArray>()?;
    let values = coded.values().as_string_view_opt()?;
    if values.views().iter().all(|view| *view as u32 != 0) {
        return Some(coded.clone());
    }
    Some(coded.with_values(Arc::new(none_empty(values))))
}

/// Dictionary-coded texts as string views, with empty ones as NULL; `None` if the column has another type.
pub(super) fn uncoded(column: &ArrayRef) -> Option<StringViewArray> {
    let coded = coded(column)?;
    // If each text is used once, the texts are already in the order of the rows.
    take(coded.values(), coded.keys(), None).ok()?.as_string_view_opt().cloned()
}

/// Ids as lower-case hex.
pub(crate) fn hex_ids(ids: &FixedSizeBinaryArray) -> StringViewArray {
    hex_ids_with(ids, ids.nulls().cloned())
}

/// Ids as lower-case hex; ids of zeros become NULL.
pub(crate) fn hex_ids_or_null(ids: &FixedSizeBinaryArray) -> StringViewArray {
    let (data, size) = (ids.value_data(), ids.value_size());
    let is_filled = |row: usize| ids.is_valid(row) && data[row * size..(row + 1) * size].iter().any(|byte| *byte != 0);
    hex_ids_with(ids, Some((0..ids.len()).map(is_filled).collect()))
}

fn hex_ids_with(ids: &FixedSizeBinaryArray, nulls: Option<NullBuffer>) -> StringViewArray {
    let (data, size) = (ids.value_data(), ids.value_size());
    let id = |row: usize| &data[row * size..(row + 1) * size];
    let mut digits = Vec::with_capacity(ids.len() * size * 2);
    let mut views = Vec::with_capacity(ids.len());
    for row in 0..ids.len() {
        let from = digits.len();
        push_hex(id(row), &mut digits);
        views.push(make_view(&digits[from..], 0, from as u32));
    }
    let nulls = nulls.filter(|n| n.null_count() > 0);
    StringViewArray::new(ScalarBuffer::from(views), [Buffer::from_vec(digits)], nulls)
}

/// Looks up names by number; a number beyond the list gets the last name.
pub(super) fn named(numbers: impl Iterator<Item = u8>, names: &[&str]) -> StringViewArray {
    let views: Vec<u128> = names.iter().map(|name| make_view(name.as_bytes(), 0, 0)).collect();
    debug_assert!(names.iter().all(|name| name.len() <= 12), "longer names do not fit into a view");
    let view = |n: u8| views.get(usize::from(n)).or(views.last()).copied().unwrap_or_default();
    let no_buffers: [Buffer; 0] = [];
    StringViewArray::new(numbers.map(view).collect::<Vec<_>>().into(), no_buffers, None)
}

/// Bytes of an entry of a map of texts beside its texts: where both end.
pub(crate) const ENTRY_BYTES: usize = 2 * size_of::<i32>();

/// Builds a column of maps from text to text, of the type that tables have (`quiver_types::tables::columns::map`).
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
    /// Adds an entry to the current map; entries must come in order of their keys.
    pub fn push(&mut self, key: &str, value: &str) {
        self.keys.append_value(key);
        self.values.append_value(value);
    }

    /// Ends the current map.
    pub fn end(&mut self) {
        self.ends.push(self.keys.len() as i32);
    }

    /// Returns the maps.
    ///
    /// # Errors
    ///
    /// Internal only.
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

/// The kind of values in a column that is found by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum CellKind {
    /// Texts; values of any other kind can be shown as text.
    Text,
    /// 64-bit integers.
    Int,
    /// Floating-point numbers, or both these and integers.
    Float,
}

impl CellKind {
    /// The type of such a column.
    pub(super) fn data_type(self) -> DataType {
        match self {
            Self::Text => DataType::Utf8View,
            Self::Int => DataType::Int64,
            Self::Float => DataType::Float64,
        }
    }

    /// The kind as which the store reads span attributes.
    pub(super) fn stored(self) -> AttributeKind {
        match self {
            Self::Text => AttributeKind::Text,
            Self::Int => AttributeKind::Int,
            Self::Float => AttributeKind::Double,
        }
    }

    /// The kind that a text can be read as. Only canonical numbers count: `007` and `1e3` are texts.
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
            // It has more digits than a double can return.
            (Err(_), false) => Self::Text,
            (Err(_), true) => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Self::Float,
                _ => Self::Text,
            },
        }
    }

    /// The kind that can hold values of both.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Self::Text, _) | (_, Self::Text) => Self::Text,
            _ => Self::Float,
        }
    }
}

/// Converts texts to a kind; empty texts become NULL.
///
/// # Errors
///
/// Execution: a value is no number, although all that were probed are.
pub(super) fn typed(name: &str, values: &StringViewArray, kind: CellKind) -> Result<ArrayRef> {
    let filled = |row: usize| (values.is_valid(row) && !values.value(row).is_empty()).then(|| values.value(row));
    let rows = 0..values.len();
    Ok(match kind {
        CellKind::Text => Arc::new(none_empty(values)),
        CellKind::Int => {
            let read = |text: &str| text.parse::<i64>().map_err(|_| kind.stored().mismatch(name, text));
            Arc::new(rows.map(|row| filled(row).map(read).transpose()).collect::<Result<Int64Array>>()?)
        }
        CellKind::Float => {
            let read = |text: &str| text.parse::<f64>().map_err(|_| kind.stored().mismatch(name, text));
            Arc::new(rows.map(|row| filled(row).map(read).transpose()).collect::<Result<Float64Array>>()?)
        }
    })
}

/// Like [`typed`] for a stored column: numbers are not printed and parsed again.
///
/// # Errors
///
/// Those of [`typed`].
pub(super) fn typed_stored(name: &str, column: &ArrayRef, kind: CellKind) -> Result<ArrayRef> {
    let stored = StoredField::of(column).ok_or_else(|| Error::internal(format!("`{name}` is no stored column")))?;
    let rows = column.len();
    match (stored, kind) {
        (StoredField::Missing, _) => Ok(arrow::array::new_null_array(&kind.data_type(), rows)),
        (StoredField::Int(values), CellKind::Int) => Ok(Arc::new(values)),
        (StoredField::Float(values), CellKind::Float) => Ok(Arc::new(values)),
        (StoredField::Int(values), CellKind::Float) => {
            Ok(Arc::new(values.unary::<_, arrow::datatypes::Float64Type>(|v| v as f64)))
        }
        (StoredField::Text(values), _) => typed(name, &values, kind),
        (other, _) => {
            let mut buffer = String::new();
            let mut texts = arrow::array::StringViewBuilder::with_capacity(rows);
            (0..rows).for_each(|row| texts.append_option(other.text(row, &mut buffer)));
            typed(name, &texts.finish(), kind)
        }
    }
}

/// The kind that can hold all values of a stored column; `None` if it has no values.
pub(super) fn kind_of_stored(column: &ArrayRef) -> Option<CellKind> {
    let both = |a: Option<CellKind>, text: &str| match (a, text) {
        (a, "") => a,
        (Some(CellKind::Text), _) => a,
        (None, text) => Some(CellKind::of(text)),
        (Some(a), text) => Some(a.and(CellKind::of(text))),
    };
    match StoredField::of(column)? {
        StoredField::Missing => None,
        StoredField::Int(values) => (values.null_count() < values.len()).then_some(CellKind::Int),
        StoredField::Float(values) => (values.null_count() < values.len()).then_some(CellKind::Float),
        StoredField::Id(values) => (values.null_count() < values.len()).then_some(CellKind::Text),
        StoredField::Text(values) => values.iter().flatten().fold(None, both),
        coded @ StoredField::Coded(_) => {
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
    use arrow::array::{DictionaryArray, Int32Array, StringArray, UInt32Array};
    use arrow::datatypes::UInt32Type;
    use arrow::util::display::array_value_to_string;
    use quiver_types::ErrorKind;

    use super::*;

    /// The rows of a column as texts.
    fn shown(column: &dyn Array) -> Vec<Option<String>> {
        (0..column.len()).map(|at| column.is_valid(at).then(|| array_value_to_string(column, at).unwrap())).collect()
    }

    #[test]
    fn kinds_of_texts() {
        let check = |text: &str, kind| assert_eq!(CellKind::of(text), kind, "{text}");
        for text in ["0", "7", "-1", "9223372036854775807", "-9223372036854775808"] {
            check(text, CellKind::Int);
        }
        for text in ["0.5", "-12.25", "9223372036854775808.5"] {
            check(text, CellKind::Float);
        }
        for text in ["", "-", "-0", "007", "1e3", "+1", "1.", ".5", "0x10", "NaN", "9223372036854775808", "1.2.3", "a"]
        {
            check(text, CellKind::Text);
        }
        assert_eq!(CellKind::Int.and(CellKind::Float), CellKind::Float);
        assert_eq!(CellKind::Int.and(CellKind::Text), CellKind::Text);
    }

    #[test]
    fn empty_texts_are_null() {
        let texts = StringViewArray::from(vec![Some("a"), Some(""), None, Some("a text longer than twelve bytes")]);
        let none = none_empty(&texts);
        let found: Vec<_> = none.iter().collect();
        assert_eq!(found, [Some("a"), None, None, Some("a text longer than twelve bytes")]);
        let numbers = StringViewArray::from(vec![Some("1"), Some(""), None, Some("-2")]);
        let ints = typed("n", &numbers, CellKind::Int).unwrap();
        assert_eq!(
            ints.as_primitive::<arrow::datatypes::Int64Type>().iter().collect::<Vec<_>>(),
            [Some(1), None, None, Some(-2)]
        );
        let error = typed("n", &texts, CellKind::Float).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Execution);
        assert!(error.message.contains("`n`") && error.message.contains("`a`"), "{error}");
    }

    #[test]
    fn ids_and_names() {
        let ids = FixedSizeBinaryArray::try_from_iter([vec![0u8; 8], vec![0, 1, 0xab, 0, 0, 0, 0, 255]].into_iter());
        let ids = ids.unwrap();
        assert_eq!(hex_ids_or_null(&ids).iter().collect::<Vec<_>>(), [None, Some("0001ab00000000ff")]);
        assert_eq!(hex_ids(&ids).value(0), "0000000000000000");
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

    #[test]
    fn what_holds_two_kinds() {
        for (a, b, expected) in [
            (CellKind::Int, CellKind::Int, CellKind::Int),
            (CellKind::Float, CellKind::Float, CellKind::Float),
            (CellKind::Int, CellKind::Float, CellKind::Float),
            (CellKind::Int, CellKind::Text, CellKind::Text),
            (CellKind::Float, CellKind::Text, CellKind::Text),
            (CellKind::Text, CellKind::Text, CellKind::Text),
        ] {
            assert_eq!((a.and(b), b.and(a)), (expected, expected), "{a:?} {b:?}");
        }
        for number in [i64::MIN, -1_000, -1, 0, 1, 9_007_199_254_740_993, i64::MAX] {
            assert_eq!(CellKind::of(&number.to_string()), CellKind::Int, "{number}");
        }
        for text in ["1.5.", "--1", "1-", "1 ", " 1", "1_000", "-", "٣", "0.", "-.5", "00.5", "-007", "1,5", "∞"] {
            assert_eq!(CellKind::of(text), CellKind::Text, "{text}");
        }
    }

    #[test]
    fn texts_come_in_two_forms() {
        let rows = vec![Some("a"), Some(""), None, Some("more than twelve bytes")];
        let expected = [Some("a"), None, None, Some("more than twelve bytes")];
        let columns: [ArrayRef; 2] =
            [Arc::new(StringArray::from(rows.clone())), Arc::new(StringViewArray::from(rows.clone()))];
        for column in columns {
            assert_eq!(texts(&column).unwrap().iter().collect::<Vec<_>>(), expected, "{}", column.data_type());
        }
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        assert!(texts(&numbers).is_none());
        let full = none_empty(&StringViewArray::from(vec!["a", "b"]));
        assert!(full.nulls().is_none(), "a column without NULLs says so");
        assert_eq!(none_empty(&StringViewArray::from(Vec::<&str>::new())).len(), 0);
    }

    #[test]
    fn texts_by_codes_lose_their_empty_ones() {
        let values: ArrayRef = Arc::new(StringViewArray::from(vec!["", "a", "unused"]));
        let keys = Int32Array::from(vec![Some(1), Some(0), None, Some(1)]);
        let column: ArrayRef = Arc::new(DictionaryArray::new(keys.clone(), values));
        let found = uncoded(&column).unwrap();
        assert_eq!(found.iter().collect::<Vec<_>>(), [Some("a"), None, None, Some("a")]);
        assert_eq!(coded(&column).unwrap().keys(), &keys, "rows keep their codes");
        let others: [ArrayRef; 2] = [
            Arc::new(StringViewArray::from(vec!["a"])),
            Arc::new(DictionaryArray::new(
                Int32Array::from(vec![0]),
                Arc::new(StringArray::from(vec!["a"])) as ArrayRef,
            )),
        ];
        for other in others {
            assert!(coded(&other).is_none() && uncoded(&other).is_none(), "{}", other.data_type());
        }
    }

    #[test]
    fn stored_columns_become_what_was_found() {
        let id =
            FixedSizeBinaryArray::try_from_sparse_iter_with_size([Some([0xab_u8; 16]), None].into_iter(), 16).unwrap();
        let by_code = |texts: Vec<&str>| {
            let codes = UInt32Array::from_iter_values(0..texts.len() as u32);
            StoredField::Coded(DictionaryArray::<UInt32Type>::new(codes, Arc::new(StringArray::from(texts))))
        };
        let texts = |texts: Vec<Option<&str>>| StoredField::Text(StringViewArray::from(texts));
        let ints = || StoredField::Int(Int64Array::from(vec![Some(-7), None]));
        let floats = || StoredField::Float(Float64Array::from(vec![Some(0.5), None]));
        let hex = "ab".repeat(16);
        for (stored, kind, found, expected) in [
            (StoredField::Missing, CellKind::Int, None, [None, None]),
            (ints(), CellKind::Int, Some(CellKind::Int), [Some("-7"), None]),
            (ints(), CellKind::Float, Some(CellKind::Int), [Some("-7.0"), None]),
            (ints(), CellKind::Text, Some(CellKind::Int), [Some("-7"), None]),
            (floats(), CellKind::Float, Some(CellKind::Float), [Some("0.5"), None]),
            (floats(), CellKind::Text, Some(CellKind::Float), [Some("0.5"), None]),
            (texts(vec![Some("7"), Some("")]), CellKind::Int, Some(CellKind::Int), [Some("7"), None]),
            (texts(vec![Some("7"), Some("0.5")]), CellKind::Float, Some(CellKind::Float), [Some("7.0"), Some("0.5")]),
            (texts(vec![Some("7"), Some("x")]), CellKind::Text, Some(CellKind::Text), [Some("7"), Some("x")]),
            (texts(vec![Some(""), None]), CellKind::Text, None, [None, None]),
            (by_code(vec!["3", "4"]), CellKind::Int, Some(CellKind::Int), [Some("3"), Some("4")]),
            (by_code(vec!["3", "b"]), CellKind::Text, Some(CellKind::Text), [Some("3"), Some("b")]),
            (StoredField::Id(id), CellKind::Text, Some(CellKind::Text), [Some(hex.as_str()), None]),
        ] {
            let case = format!("{stored:?} as {kind:?}");
            let column = stored.into_array(2);
            assert_eq!(kind_of_stored(&column), found, "{case}");
            let made = typed_stored("n", &column, kind).unwrap_or_else(|e| panic!("{case}: {e}"));
            assert_eq!(made.data_type(), &kind.data_type(), "{case}");
            assert_eq!(shown(&made), expected.map(|text| text.map(str::to_owned)), "{case}");
        }
    }

    #[test]
    fn what_is_of_another_kind_is_an_error() {
        let fraction = StoredField::Float(Float64Array::from(vec![1.5])).into_array(1);
        let error = typed_stored("load", &fraction, CellKind::Int).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Execution);
        assert!(error.message.contains("`load`") && error.message.contains("`1.5`"), "{error}");
        let long = StoredField::Text(StringViewArray::from(vec!["9223372036854775808"])).into_array(1);
        assert!(typed_stored("n", &long, CellKind::Int).is_err());
        let plain: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        assert_eq!(typed_stored("n", &plain, CellKind::Int).unwrap_err().kind, ErrorKind::Internal);
        assert_eq!(kind_of_stored(&plain), None);
    }

    #[test]
    fn ids_are_their_bytes() {
        let mut seed = 1_u64;
        let ids: Vec<Option<[u8; 16]>> = (0..100)
            .map(|row| {
                let id = [0; 16].map(|_: u8| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (seed >> 56) as u8
                });
                (row % 7 != 3).then_some(id)
            })
            .collect();
        let column = FixedSizeBinaryArray::try_from_sparse_iter_with_size(ids.iter().copied(), 16).unwrap();
        let expected: Vec<Option<String>> = ids.iter().map(|id| id.map(|id| quiver_types::hex(&id))).collect();
        for texts in [hex_ids(&column), hex_ids_or_null(&column)] {
            assert_eq!(shown(&texts), expected);
        }
        let cut = column.slice(50, 9);
        assert_eq!(shown(&hex_ids_or_null(&cut)), expected[50..59]);
    }

    #[test]
    fn maps_keep_any_text() {
        let mut maps = TextMaps::default();
        maps.end();
        maps.push("", "");
        maps.push("ключ", "a value\nof two lines");
        maps.end();
        let maps = maps.finish().unwrap();
        assert_eq!((maps.len(), maps.null_count(), maps.value_length(0)), (2, 0, 0));
        let entries = maps.value(1);
        let column = |at: usize| shown(entries.column(at)).into_iter().flatten().collect::<Vec<_>>();
        assert_eq!(
            (column(0), column(1)),
            (vec![String::new(), "ключ".into()], vec![String::new(), "a value\nof two lines".into()])
        );
        let none = TextMaps::default().finish().unwrap();
        assert_eq!((none.len(), none.data_type()), (0, &map()));
    }
}
