//! Columns of texts as plans hold them: `Utf8View`, `Utf8`, dictionaries of texts, what a scan gives as it is stored
//! ([`StoredField`]), times. Null and empty are the same.

use std::cell::OnceCell;

use arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, FixedSizeBinaryArray, Float64Array, Int64Array, StringArray,
    StringViewArray, TimestampNanosecondArray, UInt32Array,
};
use arrow::datatypes::{DataType, TimeUnit, UInt32Type};
use quiver_types::logs::{StoredField, write_float, write_int};
use quiver_types::text::EXACT_INTEGERS_MAX;
use quiver_types::write_hex;
use serde::{Deserialize, Serialize};

use super::values::{Rank, number, numeric, parse_float, push_rfc3339, rank, rank_of_int};

/// Texts of a column, whatever holds them.
#[derive(Debug, Clone)]
pub enum Texts {
    /// Text views (`Utf8View`), as plans pass texts on.
    View(StringViewArray),
    /// Plain texts (`Utf8`).
    Plain(StringArray),
    /// Codes, and what they stand for.
    Dictionary(UInt32Array, StringArray),
    /// Integers, written in decimal.
    Int(Int64Array),
    /// Numbers, written in decimal.
    Float(Float64Array),
    /// Identifiers, written as hex digits.
    Id(FixedSizeBinaryArray),
    /// Times, written as RFC 3339.
    Time(TimestampNanosecondArray),
    /// No row has the field.
    Missing,
}

/// A value of a column, read as far as the column has it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// Missing, or empty.
    Empty,
    /// A value that is written as an integer.
    Int(i64),
    /// A value that is written as a decimal number.
    Float(f64),
    /// Any other value.
    Text(&'a str),
}

impl Texts {
    /// Looks at a column; `None` for a type that holds no texts.
    pub fn of(array: &ArrayRef) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Utf8View => Self::View(array.as_string_view().clone()),
            DataType::Utf8 => Self::Plain(array.as_string().clone()),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => Self::Time(array.as_primitive().clone()),
            DataType::Null => Self::Missing,
            DataType::Dictionary(..) => Self::coded(array.as_dictionary_opt()?)?,
            DataType::Struct(_) => match StoredField::of(array)? {
                StoredField::Missing => Self::Missing,
                StoredField::Text(array) => Self::View(array),
                StoredField::Coded(array) => Self::coded(&array)?,
                StoredField::Int(array) => Self::Int(array),
                StoredField::Float(array) => Self::Float(array),
                StoredField::Id(array) => Self::Id(array),
            },
            _ => return None,
        })
    }

    fn coded(array: &DictionaryArray<UInt32Type>) -> Option<Self> {
        Some(Self::Dictionary(array.keys().clone(), array.values().as_string_opt()?.clone()))
    }

    /// The text of a row, empty when it is missing; what is not held as text is written to the buffer.
    #[inline]
    pub fn get<'a>(&'a self, row: usize, buffer: &'a mut String) -> &'a str {
        match self {
            Self::View(array) if array.is_valid(row) => array.value(row),
            Self::Plain(array) if array.is_valid(row) => array.value(row),
            Self::Dictionary(keys, values) => entry(keys, values, row).map_or("", |i| values.value(i)),
            Self::View(_) | Self::Plain(_) | Self::Missing => "",
            _ => {
                buffer.clear();
                if !self.is_empty(row) {
                    self.write(row, buffer);
                }
                buffer
            }
        }
    }

    fn write(&self, row: usize, out: &mut String) {
        match self {
            Self::Int(array) => write_int(array.value(row), out),
            Self::Float(array) => write_float(array.value(row), out),
            Self::Id(array) => write_hex(array.value(row), out),
            Self::Time(array) => push_rfc3339(out, array.value(row)),
            Self::View(_) | Self::Plain(_) | Self::Dictionary(..) | Self::Missing => {}
        }
    }

    /// Says whether the text of a row is empty.
    #[inline]
    pub fn is_empty(&self, row: usize) -> bool {
        match self {
            Self::View(array) => array.is_null(row) || array.views()[row] as u32 == 0,
            Self::Plain(array) => array.is_null(row) || array.value_length(row) == 0,
            Self::Dictionary(keys, values) => entry(keys, values, row).is_none_or(|i| values.value_length(i) == 0),
            Self::Int(array) => array.is_null(row),
            Self::Float(array) => array.is_null(row),
            Self::Id(array) => array.is_null(row),
            Self::Time(array) => array.is_null(row),
            Self::Missing => true,
        }
    }

    /// Says whether no row has a text, as far as that is known without a look at each.
    pub fn is_absent(&self) -> bool {
        match self {
            Self::View(array) => array.null_count() == array.len(),
            Self::Plain(array) => array.null_count() == array.len(),
            Self::Dictionary(keys, _) => keys.null_count() == keys.len(),
            Self::Int(array) => array.null_count() == array.len(),
            Self::Float(array) => array.null_count() == array.len(),
            Self::Id(array) => array.null_count() == array.len(),
            Self::Time(array) => array.null_count() == array.len(),
            Self::Missing => true,
        }
    }

    /// Gives the value of a row.
    #[inline]
    pub fn value<'a>(&'a self, row: usize, buffer: &'a mut String) -> Value<'a> {
        match self {
            Self::Int(array) if array.is_valid(row) => Value::Int(array.value(row)),
            // A number that is written with more digits is another thing to those who read texts.
            Self::Float(array) if array.is_valid(row) && array.value(row).abs() < EXACT_INTEGERS_MAX as f64 => {
                Value::Float(array.value(row))
            }
            _ => match self.get(row, buffer) {
                "" => Value::Empty,
                text => Value::Text(text),
            },
        }
    }
}

fn entry(keys: &UInt32Array, values: &StringArray, row: usize) -> Option<usize> {
    if keys.is_null(row) {
        return None;
    }
    let i = keys.value(row) as usize;
    (!values.is_null(i)).then_some(i)
}

/// A column of texts. What is read of dictionary entries is read once.
#[derive(Debug)]
pub struct TextColumn {
    texts: Texts,
    ranks: OnceCell<Vec<Rank>>,
}

/// Which values count as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NumberRule {
    /// Values without a unit: `1.5`, not `1.5KB` or `5ms`.
    Plain,
    /// Values with a unit as well: `1.5KB`, `5ms`.
    Units,
    /// Values with a unit, times and IPv4 addresses as well.
    Any,
}

impl NumberRule {
    /// Reads a value by the rule; NaN for what is no number.
    pub fn read(self, value: &str) -> f64 {
        match self {
            Self::Plain => parse_float(value),
            Self::Units => number(value),
            Self::Any => numeric(value),
        }
        .unwrap_or(f64::NAN)
    }
}

impl TextColumn {
    /// Looks at an array; `None` for a type that holds no texts.
    pub fn new(array: &ArrayRef) -> Option<Self> {
        Some(Self { texts: Texts::of(array)?, ranks: OnceCell::new() })
    }

    /// How it is held.
    pub fn texts(&self) -> &Texts {
        &self.texts
    }

    /// Gives the text of a row; what is not held as text is written to the buffer.
    #[inline]
    pub fn text<'a>(&'a self, row: usize, buffer: &'a mut String) -> &'a str {
        self.texts.get(row, buffer)
    }

    /// Says whether the text of a row is empty.
    #[inline]
    pub fn is_empty(&self, row: usize) -> bool {
        self.texts.is_empty(row)
    }

    /// Gives the length of the text of a row in bytes.
    pub fn len_of(&self, row: usize, buffer: &mut String) -> usize {
        match &self.texts {
            Texts::View(array) if !array.is_null(row) => array.views()[row] as u32 as usize,
            texts => texts.get(row, buffer).len(),
        }
    }

    /// Gives the rank of the text of a row, which is `text`.
    #[inline]
    pub fn rank(&self, row: usize, text: &str) -> Rank {
        match &self.texts {
            // A dictionary larger than the batch is shared by many; most of its entries are not needed here.
            Texts::Dictionary(keys, values) if values.len() <= keys.len() => {
                let ranks = self.ranks.get_or_init(|| values.iter().map(|v| rank(v.unwrap_or(""))).collect());
                entry(keys, values, row).map_or_else(|| rank(""), |i| ranks[i])
            }
            Texts::Int(array) if array.is_valid(row) => rank_of_int(array.value(row)),
            _ => rank(text),
        }
    }

    /// Gives all rows as numbers, NaN for what is none.
    pub fn numbers(&self, rows: usize, rule: NumberRule) -> Vec<f64> {
        match &self.texts {
            Texts::Dictionary(keys, values) if values.len() > rows => {
                (0..rows).map(|row| entry(keys, values, row).map_or(f64::NAN, |i| rule.read(values.value(i)))).collect()
            }
            Texts::Dictionary(keys, values) => {
                let read: Vec<f64> = values.iter().map(|v| v.map_or(f64::NAN, |v| rule.read(v))).collect();
                (0..rows).map(|row| entry(keys, values, row).map_or(f64::NAN, |i| read[i])).collect()
            }
            Texts::View(array) => {
                // Equal neighbours are read once; a view of up to twelve bytes is the text itself.
                let (mut last, mut value) = (None, f64::NAN);
                (0..rows)
                    .map(|row| {
                        if array.is_null(row) {
                            return f64::NAN;
                        }
                        let view = array.views()[row];
                        if last != Some(view) {
                            (last, value) = (Some(view), rule.read(array.value(row)));
                        }
                        value
                    })
                    .collect()
            }
            Texts::Time(array) if rule == NumberRule::Any => {
                (0..rows).map(|row| if array.is_null(row) { f64::NAN } else { array.value(row) as f64 }).collect()
            }
            Texts::Time(_) | Texts::Missing => vec![f64::NAN; rows],
            texts => {
                let mut buffer = String::new();
                let number = |row| match texts.value(row, &mut buffer) {
                    Value::Empty => f64::NAN,
                    Value::Int(value) => value as f64,
                    Value::Float(value) => value,
                    Value::Text(text) => rule.read(text),
                };
                (0..rows).map(number).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    fn texts(array: &ArrayRef) -> Vec<String> {
        let column = TextColumn::new(array).unwrap();
        let mut buffer = String::new();
        (0..array.len()).map(|row| column.text(row, &mut buffer).to_owned()).collect()
    }

    #[test]
    fn all_kinds_of_columns() {
        let plain = [Some("a"), None, Some(""), Some("1.5K"), Some("a longer text than twelve")];
        let dictionary: DictionaryArray<UInt32Type> = plain.iter().copied().collect();
        let arrays: [ArrayRef; 5] = [
            Arc::new(StringViewArray::from(plain.to_vec())),
            Arc::new(StringArray::from(plain.to_vec())),
            Arc::new(dictionary.clone()),
            StoredField::Text(StringViewArray::from(plain.to_vec())).into_array(5),
            StoredField::Coded(dictionary).into_array(5),
        ];
        for array in &arrays {
            let column = TextColumn::new(array).unwrap();
            assert_eq!(texts(array), ["a", "", "", "1.5K", "a longer text than twelve"]);
            let empty: Vec<bool> = (0..5).map(|row| column.is_empty(row)).collect();
            assert_eq!(empty, [false, true, true, false, false]);
            let numbers = column.numbers(5, NumberRule::Units);
            assert!(numbers[0].is_nan() && numbers[1].is_nan() && numbers[3] == 1500.0);
            assert!(column.numbers(5, NumberRule::Plain)[3].is_nan());
        }
        let time: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![Some(1_500_000_000), None]));
        assert_eq!(texts(&time), ["1970-01-01T00:00:01.5Z", ""]);
        assert_eq!(TextColumn::new(&time).unwrap().numbers(2, NumberRule::Any)[0], 1.5e9);
    }

    #[test]
    fn typed_values_are_what_their_texts_are() {
        let ints = vec![Some(-7), None, Some(0), Some(i64::MAX), Some((1 << 53) + 1)];
        let floats = vec![Some(0.25), None, Some(-0.0), Some(1e15), Some(1e23), Some(123_456.0)];
        for array in [StoredField::Int(ints.into()).into_array(5), StoredField::Float(floats.into()).into_array(6)] {
            let rows = array.len();
            let column = TextColumn::new(&array).unwrap();
            let plain: ArrayRef = Arc::new(StringArray::from(texts(&array)));
            let plain = TextColumn::new(&plain).unwrap();
            for rule in [NumberRule::Plain, NumberRule::Units, NumberRule::Any] {
                let bits = |column: &TextColumn| -> Vec<u64> {
                    column.numbers(rows, rule).into_iter().map(f64::to_bits).collect()
                };
                assert_eq!(bits(&column), bits(&plain), "{rule:?}");
            }
            let mut buffer = String::new();
            for row in 0..rows {
                let text = plain.text(row, &mut buffer).to_owned();
                let (own, other) = (column.rank(row, &text), plain.rank(row, &text));
                assert_eq!(format!("{own:?}"), format!("{other:?}"), "{text}");
            }
        }
    }

    /// Values of each kind, within a view and beyond it.
    const POOL: [&str; 13] = [
        "",
        "a",
        "ж",
        "7",
        "-1.5",
        "1.5KiB",
        "10ms",
        "0x1f",
        "10.0.0.1",
        "2024-01-01T00:00:00Z",
        "a longer text than twelve",
        "a longer text than thirteen",
        "1234567890.25",
    ];

    fn forms(values: &[Option<&str>]) -> [ArrayRef; 5] {
        let dictionary: DictionaryArray<UInt32Type> = values.iter().copied().collect();
        [
            Arc::new(StringViewArray::from(values.to_vec())),
            Arc::new(StringArray::from(values.to_vec())),
            Arc::new(dictionary.clone()),
            StoredField::Text(StringViewArray::from(values.to_vec())).into_array(values.len()),
            StoredField::Coded(dictionary).into_array(values.len()),
        ]
    }

    proptest! {
        /// Breaks if a form forgets that it is a part of a longer column, or takes a missing value for another.
        #[test]
        fn parts_of_each_form_are_what_their_texts_are(
            picked in vec(option::of(0..POOL.len()), 0..20), from in 0..20_usize, len in 0..20_usize,
        ) {
            let values: Vec<Option<&str>> = picked.iter().map(|at| at.map(|at| POOL[at])).collect();
            let from = from.min(values.len());
            let part = &values[from..(from + len).min(values.len())];
            for array in forms(&values) {
                let column = TextColumn::new(&array.slice(from, part.len())).unwrap();
                let mut buffer = String::new();
                for (row, value) in part.iter().enumerate() {
                    let text = value.unwrap_or_default();
                    prop_assert_eq!(column.text(row, &mut buffer), text);
                    prop_assert_eq!(column.is_empty(row), text.is_empty());
                    prop_assert_eq!(column.len_of(row, &mut buffer), text.len());
                    let (found, naive) = (column.rank(row, text), rank(text));
                    prop_assert_eq!(format!("{found:?}"), format!("{naive:?}"));
                    let naive = if text.is_empty() { Value::Empty } else { Value::Text(text) };
                    prop_assert_eq!(column.texts().value(row, &mut buffer), naive);
                }
                for rule in [NumberRule::Plain, NumberRule::Units, NumberRule::Any] {
                    let found = column.numbers(part.len(), rule).into_iter().map(f64::to_bits);
                    let naive = part.iter().map(|value| rule.read(value.unwrap_or_default()).to_bits());
                    prop_assert_eq!(found.collect::<Vec<_>>(), naive.collect::<Vec<_>>());
                }
            }
        }
    }
}
