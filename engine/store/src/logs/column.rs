//! One field of the rows of a block, as it is stored: text, coded, typed, the same everywhere, or nowhere.
//!
//! For filters and languages every value is text. Typed values are written only when their text comes back exactly, so
//! a filter may compare numbers where its hints allow, and anything else asks the text.

use std::fmt::Write as _;
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, BooleanBufferBuilder, DictionaryArray, FixedSizeBinaryArray, Float64Array,
    Int64Array, StringArray, StringBuilder, StringViewArray, StringViewBuilder, UInt32Array, make_view,
};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::filter;
use arrow::datatypes::{DataType, UInt32Type};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};

use super::text;
use crate::error::{Context, Error, Result};

/// Values as stored. Nulls are missing.
#[derive(Debug, Clone)]
pub(crate) enum Values {
    /// No row has the field.
    Missing,
    /// All rows have this value.
    Constant(Arc<str>),
    /// Text.
    Text(StringViewArray),
    /// Text by code.
    Coded(DictionaryArray<UInt32Type>),
    /// Integers.
    Int(Int64Array),
    /// Decimal numbers.
    Float(Float64Array),
    /// Addresses.
    Ipv4(UInt32Array),
    /// Times in nanoseconds, written with so many digits after the second (none: without zeros at the end).
    Time(Int64Array, Option<u8>),
    /// Lower-case hex digits.
    Hex(FixedSizeBinaryArray),
}

/// Runs of rows of a block, ascending and apart; `None`: all rows.
pub(crate) type Runs = Option<Arc<Vec<Range<u32>>>>;

/// Values with the rows of the block that they belong to.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) values: Values,
    /// Ranges of rows of the block, ascending; value 0 is the first row of the first. `None`: all rows.
    pub(crate) at: Runs,
}

impl Values {
    /// Takes an array as it comes out of a file; `digits`: of times.
    ///
    /// # Errors
    /// Internal: a type that no column has.
    pub(crate) fn of(array: &ArrayRef, digits: Option<u8>) -> Result<Self> {
        use arrow::array::AsArray;
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

    fn nulls(&self) -> Option<&NullBuffer> {
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

    /// Says whether a value is missing.
    pub(crate) fn is_null(&self, i: usize) -> bool {
        matches!(self, Self::Missing) || self.nulls().is_some_and(|n| n.is_null(i))
    }

    /// The value as a number, of types whose text is a number to every filter.
    pub(crate) fn number(&self, i: usize) -> Option<f64> {
        match self {
            Self::Int(a) | Self::Time(a, _) => Some(a.value(i) as f64),
            Self::Float(a) => Some(a.value(i)),
            Self::Ipv4(a) => Some(f64::from(a.value(i))),
            _ => None,
        }
    }

    /// A value as text; empty when it is missing. `buffer` holds the text of typed values.
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

    /// Bytes in memory.
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

    fn write(&self, i: usize, out: &mut String) {
        match self {
            Self::Int(a) => text::write_int(a.value(i), out),
            Self::Float(a) => {
                // Writing to a text cannot fail.
                let _ = write!(out, "{}", a.value(i));
            }
            Self::Ipv4(a) => text::write_ipv4(a.value(i), out),
            Self::Time(a, digits) => text::write_time(a.value(i), *digits, out),
            Self::Hex(a) => text::write_hex(a.value(i), out),
            _ => {}
        }
    }
}

/// Gives the values of a dictionary.
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

impl Column {
    /// No row has it.
    pub(crate) fn missing() -> Self {
        Self { values: Values::Missing, at: None }
    }

    /// All rows have it.
    pub(crate) fn constant(value: impl Into<Arc<str>>) -> Self {
        Self { values: Values::Constant(value.into()), at: None }
    }

    /// Values of all rows of the block.
    pub(crate) fn whole(values: Values) -> Self {
        Self { values, at: None }
    }

    /// Calls for each row that is set: row of the block, place of its value.
    pub(crate) fn for_each(&self, rows: &BooleanBuffer, mut f: impl FnMut(usize, usize)) {
        match &self.at {
            None => rows.set_indices().for_each(|row| f(row, row)),
            Some(ranges) => {
                let mut base = 0;
                for range in ranges.iter() {
                    let (start, len) = (range.start as usize, range.len());
                    rows.slice(start, len).set_indices().for_each(|i| f(start + i, base + i));
                    base += len;
                }
            }
        }
    }

    /// Sets the rows of which the value passes; `rows` says which are of interest.
    pub(crate) fn select(&self, rows: &BooleanBuffer, mut passes: impl FnMut(usize) -> bool) -> BooleanBuffer {
        let mut bits = BooleanBufferBuilder::new(rows.len());
        bits.append_n(rows.len(), false);
        self.for_each(rows, |row, at| {
            if passes(at) {
                bits.set_bit(row, true);
            }
        });
        bits.finish()
    }

    /// Which values belong to the rows that are set.
    fn chosen(&self, rows: &BooleanBuffer) -> BooleanBuffer {
        let Some(ranges) = &self.at else { return rows.clone() };
        let mut bits = BooleanBufferBuilder::new(ranges.iter().map(ExactSizeIterator::len).sum());
        for range in ranges.iter() {
            bits.append_buffer(&rows.slice(range.start as usize, range.len()));
        }
        bits.finish()
    }

    /// Gives the values of the rows that are set, one behind the other.
    pub(crate) fn gather(&self, rows: &BooleanBuffer) -> Result<Values> {
        let chosen = self.chosen(rows);
        if chosen.count_set_bits() == chosen.len() {
            return Ok(self.values.clone());
        }
        let mut runs = chosen.set_slices();
        let only = match (runs.next(), runs.next()) {
            (Some(run), None) => Some(run),
            _ => None,
        };
        let mask = BooleanArray::new(chosen, None);
        let of = |array: &dyn Array| match only {
            Some((start, end)) => Ok(array.slice(start, end - start)),
            None => filter(array, &mask).internal("cannot filter a column"),
        };
        Ok(match &self.values {
            Values::Missing | Values::Constant(_) => self.values.clone(),
            Values::Text(a) => Values::of(&of(a)?, None)?,
            Values::Coded(a) => Values::of(&of(a)?, None)?,
            Values::Int(a) => Values::of(&of(a)?, None)?,
            Values::Float(a) => Values::of(&of(a)?, None)?,
            Values::Ipv4(a) => Values::of(&of(a)?, None)?,
            Values::Time(a, digits) => match Values::of(&of(a)?, None)? {
                Values::Int(a) => Values::Time(a, *digits),
                other => other,
            },
            Values::Hex(a) => Values::of(&of(a)?, None)?,
        })
    }
}

impl Values {
    /// As a column of text of so many rows.
    pub(crate) fn to_text(&self, rows: usize) -> StringViewArray {
        match self {
            Self::Text(a) => a.clone(),
            Self::Missing => StringViewArray::new_null(rows),
            Self::Constant(c) => {
                let buffer = arrow::buffer::Buffer::from(c.as_bytes());
                let view = make_view(c.as_bytes(), 0, 0);
                StringViewArray::new(vec![view; rows].into(), vec![buffer], None)
            }
            Self::Coded(a) => {
                let Some(dictionary) = dictionary(a) else { return StringViewArray::new_null(rows) };
                let offsets = dictionary.value_offsets();
                let view = |i: usize| make_view(dictionary.value(i).as_bytes(), 0, offsets[i] as u32);
                let keys = a.keys();
                let views: Vec<u128> = if dictionary.len() <= 2 * keys.len() {
                    let all: Vec<u128> = (0..dictionary.len()).map(view).collect();
                    // Codes of missing values mean nothing.
                    keys.values().iter().map(|&k| all.get(k as usize).copied().unwrap_or(0)).collect()
                } else {
                    keys.iter().map(|k| k.map_or(0, |k| view(k as usize))).collect()
                };
                let views = match keys.nulls() {
                    Some(nulls) => (0..views.len()).map(|i| if nulls.is_null(i) { 0 } else { views[i] }).collect(),
                    None => views,
                };
                StringViewArray::new(views.into(), vec![dictionary.values().clone()], keys.nulls().cloned())
            }
            _ => {
                let mut out = StringViewBuilder::with_capacity(rows);
                let mut buffer = String::new();
                for i in 0..rows {
                    if self.is_null(i) {
                        out.append_null();
                    } else {
                        buffer.clear();
                        self.write(i, &mut buffer);
                        out.append_value(&buffer);
                    }
                }
                out.finish()
            }
        }
    }

    /// As a column of coded text of so many rows.
    pub(crate) fn to_coded(&self, rows: usize) -> DictionaryArray<UInt32Type> {
        match self {
            Self::Coded(a) => match dictionary(a) {
                Some(values) if values.len() > 1024 && values.len() / 4 > rows => {
                    code(rows, |i| (!a.is_null(i)).then(|| values.value(a.keys().value(i) as usize)))
                }
                _ => a.clone(),
            },
            Self::Missing => {
                let values: ArrayRef = Arc::new(StringArray::new_null(0));
                let nulls = NullBuffer::new_null(rows);
                DictionaryArray::new(UInt32Array::new(vec![0; rows].into(), Some(nulls)), values)
            }
            Self::Constant(c) => {
                let values: ArrayRef = Arc::new(StringArray::from(vec![&**c]));
                DictionaryArray::new(UInt32Array::from(vec![0; rows]), values)
            }
            Self::Text(a) => code(rows, |i| (!a.is_null(i)).then(|| a.value(i))),
            Self::Int(a) => code_bits(rows, |i| a.value(i) as u64, self),
            Self::Float(a) => code_bits(rows, |i| a.value(i).to_bits(), self),
            Self::Ipv4(a) => code_bits(rows, |i| u64::from(a.value(i)), self),
            Self::Time(a, _) => code_bits(rows, |i| a.value(i) as u64, self),
            Self::Hex(a) => {
                let mut first: Vec<usize> = Vec::new();
                let same = |first: &[usize], key: u32, bytes: &[u8]| a.value(first[key as usize]) == bytes;
                let hasher = FixedState::default();
                let mut table: HashTable<u32> = HashTable::new();
                let mut keys = Vec::with_capacity(rows);
                for i in 0..rows {
                    if a.is_null(i) {
                        keys.push(None);
                        continue;
                    }
                    let bytes = a.value(i);
                    let hash = hasher.hash_one(bytes);
                    let known = table.find(hash, |&k| same(&first, k, bytes)).copied();
                    keys.push(Some(known.unwrap_or_else(|| {
                        let key = first.len() as u32;
                        first.push(i);
                        table.insert_unique(hash, key, |&k| hasher.hash_one(a.value(first[k as usize])));
                        key
                    })));
                }
                dictionary_of(keys.into_iter().collect(), &first, self)
            }
        }
    }
}

/// Codes texts in order of their first appearance.
fn code<'a>(rows: usize, text: impl Fn(usize) -> Option<&'a str>) -> DictionaryArray<UInt32Type> {
    let hasher = FixedState::default();
    let mut table: HashTable<u32> = HashTable::new();
    let mut values: Vec<&'a str> = Vec::new();
    let keys: UInt32Array = (0..rows)
        .map(|i| {
            text(i).map(|text| {
                let hash = hasher.hash_one(text);
                if let Some(&known) = table.find(hash, |&k| values[k as usize] == text) {
                    return known;
                }
                let key = values.len() as u32;
                values.push(text);
                table.insert_unique(hash, key, |&k| hasher.hash_one(values[k as usize]));
                key
            })
        })
        .collect();
    DictionaryArray::new(keys, Arc::new(StringArray::from_iter_values(values)))
}

/// Codes values by their bits.
fn code_bits(rows: usize, bits: impl Fn(usize) -> u64, values: &Values) -> DictionaryArray<UInt32Type> {
    let mut known: HashMap<u64, u32, FixedState> = HashMap::default();
    // Where each value stands first.
    let mut first: Vec<usize> = Vec::new();
    let mut last = None;
    let keys: UInt32Array = (0..rows)
        .map(|i| {
            if values.is_null(i) {
                return None;
            }
            let bits = bits(i);
            if let Some((before, key)) = last
                && before == bits
            {
                return Some(key);
            }
            let key = *known.entry(bits).or_insert_with(|| {
                first.push(i);
                first.len() as u32 - 1
            });
            last = Some((bits, key));
            Some(key)
        })
        .collect();
    dictionary_of(keys, &first, values)
}

/// Makes a coded column whose texts are those of some values.
fn dictionary_of(keys: UInt32Array, at: &[usize], values: &Values) -> DictionaryArray<UInt32Type> {
    let mut texts = StringBuilder::with_capacity(at.len(), at.len() * 8);
    let mut buffer = String::new();
    at.iter().for_each(|&i| texts.append_value(values.text(i, &mut buffer)));
    DictionaryArray::new(keys, Arc::new(texts.finish()))
}

/// Makes a coded column of codes and their texts.
pub(crate) fn coded(keys: Vec<u32>, values: Vec<String>) -> DictionaryArray<UInt32Type> {
    DictionaryArray::new(keys.into(), Arc::new(StringArray::from_iter_values(values)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(values: &Values, rows: usize) -> Vec<String> {
        let mut buffer = String::new();
        (0..rows).map(|i| values.text(i, &mut buffer).to_owned()).collect()
    }

    #[test]
    fn every_form_gives_the_same_text() {
        let check = |values: Values, expected: &[&str]| {
            let rows = expected.len();
            assert_eq!(texts(&values, rows), expected);
            let text = Values::Text(values.to_text(rows));
            assert_eq!(texts(&text, rows), expected);
            let coded = Values::Coded(values.to_coded(rows));
            assert_eq!(texts(&coded, rows), expected);
            assert_eq!(texts(&Values::Text(coded.to_text(rows)), rows), expected);
            let rows_set = BooleanBuffer::collect_bool(rows, |i| i % 2 == 0);
            let gathered = Column::whole(values).gather(&rows_set).expect("filters");
            let even: Vec<&str> = expected.iter().copied().step_by(2).collect();
            assert_eq!(texts(&gathered, even.len()), even);
        };
        check(Values::Missing, &["", "", ""]);
        check(Values::Constant("x".into()), &["x", "x", "x"]);
        check(Values::Int(vec![Some(-5), None, Some(i64::MAX)].into()), &["-5", "", "9223372036854775807"]);
        check(Values::Float(vec![Some(0.25), None, Some(1e21)].into()), &["0.25", "", "1000000000000000000000"]);
        check(Values::Ipv4(vec![Some(0x0102_0304), None, Some(u32::MAX)].into()), &["1.2.3.4", "", "255.255.255.255"]);
        check(
            Values::Time(vec![Some(1_741_600_001_500_000_000), None].into(), Some(3)),
            &["2025-03-10T09:46:41.500Z", ""],
        );
        let long = "a text that is longer than twelve bytes";
        check(Values::Text(StringViewArray::from(vec![Some(long), None, Some("b")])), &[long, "", "b"]);
        check(
            Values::Coded(vec![Some(long), None, Some("b"), Some(long)].into_iter().collect()),
            &[long, "", "b", long],
        );
        let hex = FixedSizeBinaryArray::try_from_sparse_iter_with_size(vec![Some([1, 0xab]), None].into_iter(), 2);
        check(Values::Hex(hex.expect("two bytes")), &["01ab", ""]);
    }

    #[test]
    fn values_of_some_rows() {
        let column = Column { values: Values::Int(vec![10, 11, 20].into()), at: Some(Arc::new(vec![2..4, 6..7])) };
        let rows = BooleanBuffer::collect_bool(8, |i| i == 3 || i == 6 || i == 0);
        assert_eq!(column.select(&rows, |at| at > 0).set_indices().collect::<Vec<_>>(), [3, 6]);
        assert_eq!(texts(&column.gather(&rows).expect("filters"), 2), ["11", "20"]);
    }
}
