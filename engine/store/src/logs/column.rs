//! One field of the rows of a block, as it is stored: text, coded, typed, the same everywhere, or nowhere.
//!
//! For filters and languages every value is text. Typed values are written only when their text comes back exactly, so
//! a filter may compare numbers where its hints allow, and anything else asks the text.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder, DictionaryArray, FixedSizeBinaryArray, Float64Array,
    Int64Array, MutableArrayData, StringArray, StringBuilder, StringViewArray, UInt32Array, make_array, make_view,
};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::{cast, concat, filter, take};
use arrow::datatypes::{DataType, UInt32Type};
use foldhash::fast::FixedState;
use quiver_types::logs::{ID_BYTES, Stored};

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

/// Rows that are fewer than one of so many are taken one by one.
const FEW_OF: usize = 64;
/// Texts of up to so many bytes stand in their view.
const VIEW_INLINE_BYTES: usize = 12;

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
            Self::Float(a) => text::write_float(a.value(i), out),
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

    /// Values of the rows that are set, one behind the other.
    pub(crate) fn of_set(values: Values, rows: &BooleanBuffer) -> Self {
        let at = rows.set_slices().map(|(start, end)| start as u32..end as u32).collect();
        Self { values, at: Some(Arc::new(at)) }
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

    /// The same for the rows of a range.
    pub(crate) fn for_each_within(&self, rows: &BooleanBuffer, within: Range<usize>, mut f: impl FnMut(usize, usize)) {
        let mut base = 0;
        let whole = 0..rows.len() as u32;
        for range in self.at.as_deref().map_or(std::slice::from_ref(&whole), Vec::as_slice) {
            let (first, last) = (range.start as usize, range.end as usize);
            if first >= within.end {
                return;
            }
            let (start, end) = (first.max(within.start), last.min(within.end));
            if start < end {
                rows.slice(start, end - start).set_indices().for_each(|i| f(start + i, base + start - first + i));
            }
            base += range.len();
        }
    }

    /// Sets the rows of which the value passes; `rows` says which are of interest.
    pub(crate) fn select(&self, rows: &BooleanBuffer, mut passes: impl FnMut(usize) -> bool) -> BooleanBuffer {
        if self.at.is_none() {
            return select_whole(rows, passes);
        }
        let mut bits = BooleanBufferBuilder::new(rows.len());
        bits.append_n(rows.len(), false);
        self.for_each(rows, |row, at| {
            if passes(at) {
                bits.set_bit(row, true);
            }
        });
        bits.finish()
    }

    /// Of the rows that are set, those that have a value. (What is stored is never empty.)
    pub(crate) fn present(&self, rows: &BooleanBuffer) -> BooleanBuffer {
        match (&self.values, self.values.nulls(), &self.at) {
            (Values::Missing, ..) => BooleanBuffer::new_unset(rows.len()),
            (_, None, _) => rows.clone(),
            (_, Some(nulls), None) => rows & nulls.inner(),
            (_, Some(nulls), Some(_)) => self.select(rows, |at| nulls.is_valid(at)),
        }
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
        let count = chosen.count_set_bits();
        if count == chosen.len() {
            return Ok(self.values.clone());
        }
        // Most often one run is chosen: a window of a block.
        let first = chosen.set_indices().next().unwrap_or(0);
        let one_run = first + count <= chosen.len() && chosen.slice(first, count).count_set_bits() == count;
        let only = one_run.then_some((first, first + count));
        self.values.map(|array| match only {
            Some((start, end)) => Ok(array.slice(start, end - start)),
            // To filter looks at each row several times.
            None if count * FEW_OF < chosen.len() => {
                let places = UInt32Array::from_iter_values(chosen.set_indices().map(|at| at as u32));
                take(array, &places, None).internal("cannot take rows of a column")
            }
            None => filter(array, &BooleanArray::new(chosen, None)).internal("cannot filter a column"),
        })
    }
}

impl Values {
    /// The values that a function makes of the array that holds these.
    fn map(&self, make: impl FnOnce(&dyn Array) -> Result<ArrayRef>) -> Result<Self> {
        let array: &dyn Array = match self {
            Self::Missing | Self::Constant(_) => return Ok(self.clone()),
            Self::Text(a) => a,
            Self::Coded(a) => a,
            Self::Int(a) | Self::Time(a, _) => a,
            Self::Float(a) => a,
            Self::Ipv4(a) => a,
            Self::Hex(a) => a,
        };
        Ok(match (Self::of(&make(array)?, None)?, self) {
            (Self::Int(a), Self::Time(_, digits)) => Self::Time(a, *digits),
            (values, _) => values,
        })
    }

    /// Some of the values, which hold no memory of the others (those of one dictionary share it).
    pub(crate) fn cut(&self, range: Range<usize>) -> Result<Self> {
        let own = self.map(|array| {
            let data = array.to_data();
            let mut own = MutableArrayData::new(vec![&data], false, range.len());
            own.try_extend(0, range.start, range.end).internal("cannot cut a column")?;
            Ok(make_array(own.freeze()))
        })?;
        Ok(if let Self::Text(a) = own { Self::Text(a.gc()) } else { own })
    }

    /// Puts values of the same column together, each with its number of rows. Coded ones become text: they have tables
    /// of their own.
    pub(crate) fn concat(pieces: &[(Self, usize)]) -> Result<Self> {
        if let [(only, _)] = pieces {
            return Ok(only.clone());
        }
        let array = |(values, rows): &(Self, usize)| -> ArrayRef {
            match values {
                Self::Int(a) | Self::Time(a, _) => Arc::new(a.clone()),
                Self::Float(a) => Arc::new(a.clone()),
                Self::Ipv4(a) => Arc::new(a.clone()),
                Self::Hex(a) => Arc::new(a.clone()),
                Self::Missing | Self::Constant(_) | Self::Text(_) | Self::Coded(_) => Arc::new(values.to_text(*rows)),
            }
        };
        let arrays: Vec<ArrayRef> = pieces.iter().map(array).collect();
        let whole = concat(&arrays.iter().map(AsRef::as_ref).collect::<Vec<_>>()).internal("cannot join pages")?;
        Ok(match (Self::of(&whole, None)?, pieces.first()) {
            (Self::Int(a), Some((Self::Time(_, digits), _))) => Self::Time(a, *digits),
            (values, _) => values,
        })
    }

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
                // The texts of a dictionary are known to be good, and not looked at again.
                let texts = cast(a, &DataType::Utf8View).expect("a dictionary of texts is one of views, too");
                texts.as_string_view().clone()
            }
            Self::Hex(a) => {
                let width = 2 * a.value_length() as usize;
                let mut text = Vec::with_capacity(rows * width);
                let view = |i: usize| {
                    if a.is_null(i) {
                        return 0;
                    }
                    let start = text.len();
                    text::push_hex(a.value(i), &mut text);
                    make_view(&text[start..], 0, start as u32)
                };
                let views: Vec<u128> = (0..rows).map(view).collect();
                StringViewArray::new(views.into(), vec![text.into()], a.nulls().cloned())
            }
            _ => {
                // Texts that fit in a view are not kept beside it.
                let mut long = String::new();
                let view = |i: usize| {
                    if self.is_null(i) {
                        return 0;
                    }
                    let start = long.len();
                    self.write(i, &mut long);
                    let view = make_view(&long.as_bytes()[start..], 0, start as u32);
                    if long.len() - start <= VIEW_INLINE_BYTES {
                        long.truncate(start);
                    }
                    view
                };
                let views: Vec<u128> = (0..rows).map(view).collect();
                StringViewArray::new(views.into(), vec![long.into_bytes().into()], self.nulls().cloned())
            }
        }
    }

    /// As a column of stored values of so many rows.
    pub(crate) fn to_stored(&self, rows: usize) -> Stored {
        match self {
            Self::Missing => Stored::Missing,
            Self::Constant(c) => Stored::Coded(coded(vec![0; rows], vec![c.to_string()])),
            // Of a dictionary much larger than the rows most entries are not needed.
            Self::Coded(a) if a.values().len() > 1024 && a.values().len() / 4 > rows => {
                Stored::Text(self.to_text(rows))
            }
            Self::Coded(a) => Stored::Coded(a.clone()),
            Self::Int(a) => Stored::Int(a.clone()),
            Self::Float(a) => Stored::Float(a.clone()),
            Self::Hex(a) if a.value_length() as usize == ID_BYTES => Stored::Id(a.clone()),
            Self::Ipv4(a) => coded_addresses(a).map_or_else(|| Stored::Text(self.to_text(rows)), Stored::Coded),
            Self::Text(_) | Self::Time(..) | Self::Hex(_) => Stored::Text(self.to_text(rows)),
        }
    }
}

/// [`Column::select`] where all rows have their values: 64 at a time, which most often are all of interest.
fn select_whole(rows: &BooleanBuffer, mut passes: impl FnMut(usize) -> bool) -> BooleanBuffer {
    let mut found: Vec<u64> = Vec::with_capacity(rows.len() / 64 + 1);
    for (wanted, first) in rows.bit_chunks().iter_padded().zip((0..).step_by(64)) {
        let mut word = 0;
        if wanted == u64::MAX {
            for bit in 0..64 {
                word |= u64::from(passes(first + bit)) << bit;
            }
        } else {
            let mut left = wanted;
            while left != 0 {
                let bit = left.trailing_zeros() as usize;
                word |= u64::from(passes(first + bit)) << bit;
                left &= left - 1;
            }
        }
        found.push(word);
    }
    BooleanBuffer::new(found.into(), 0, rows.len())
}

/// Rows after which addresses that hardly come again are no longer coded.
const ADDRESSES_TRIED: usize = 4096;

/// Addresses by code: whoever groups by them has no text to compare, and each is written once. `None`: most of them
/// differ.
fn coded_addresses(array: &UInt32Array) -> Option<DictionaryArray<UInt32Type>> {
    let mut known: HashMap<u32, u32, FixedState> = HashMap::default();
    let mut keys: Vec<u32> = Vec::with_capacity(array.len());
    let (mut texts, mut text) = (StringBuilder::new(), String::new());
    for (row, address) in array.values().iter().enumerate() {
        if row == ADDRESSES_TRIED && known.len() * 4 > row * 3 {
            return None;
        }
        if array.is_null(row) {
            keys.push(0);
            continue;
        }
        let next = known.len() as u32;
        let code = *known.entry(*address).or_insert(next);
        if code == next {
            text.clear();
            text::write_ipv4(*address, &mut text);
            texts.append_value(&text);
        }
        keys.push(code);
    }
    let keys = UInt32Array::new(keys.into(), array.nulls().cloned());
    Some(DictionaryArray::new(keys, Arc::new(texts.finish())))
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
            let stored = match values.to_stored(rows) {
                Stored::Missing => Values::Missing,
                Stored::Text(a) => Values::Text(a),
                Stored::Coded(a) => Values::Coded(a),
                Stored::Int(a) => Values::Int(a),
                Stored::Float(a) => Values::Float(a),
                Stored::Id(a) => Values::Hex(a),
            };
            assert_eq!(texts(&stored, rows), expected);
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
    fn addresses_that_come_again_are_coded() {
        let of = |rows: u32, apart: u32| -> Values {
            Values::Ipv4((0..rows).map(|row| (row % 7 > 0).then_some(row % apart)).collect())
        };
        let Stored::Coded(few) = of(10_000, 100).to_stored(10_000) else { panic!("by code") };
        assert_eq!((few.len(), few.values().len(), few.null_count()), (10_000, 100, 10_000usize.div_ceil(7)));
        let rows = |values: &Values| texts(values, 10_000);
        assert_eq!(rows(&Values::Coded(few)), rows(&of(10_000, 100)));
        let Stored::Text(many) = of(10_000, 9_000).to_stored(10_000) else { panic!("as text") };
        assert_eq!(rows(&Values::Text(many)), rows(&of(10_000, 9_000)));
        let none = Values::Ipv4(vec![None, None].into()).to_stored(2);
        assert!(matches!(none, Stored::Coded(array) if array.null_count() == 2));
    }

    #[test]
    fn pages_are_put_together() {
        let pages = |a: Values, b: Values| Values::concat(&[(a, 2), (b, 1)]).expect("of one column");
        let time = |v: Vec<i64>| Values::Time(v.into(), Some(0));
        let both = pages(time(vec![0, 1_000_000_000]), time(vec![2_000_000_000]));
        assert_eq!(texts(&both, 3), ["1970-01-01T00:00:00Z", "1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z"]);
        let coded = |v: Vec<Option<&str>>| Values::Coded(v.into_iter().collect());
        assert_eq!(texts(&pages(coded(vec![Some("a"), None]), coded(vec![Some("b")])), 3), ["a", "", "b"]);
        assert_eq!(texts(&pages(Values::Int(vec![1, 2].into()), Values::Int(vec![3].into())), 3), ["1", "2", "3"]);
    }

    #[test]
    fn some_values_are_those_and_a_cut_holds_no_others() {
        let long = |i: usize| (!i.is_multiple_of(7)).then(|| format!("a text that no view holds, the number {i}"));
        let number = |i: usize| (!i.is_multiple_of(5)).then_some(i as i64);
        let hex = (0..1000usize).map(|i| (i % 3 > 0).then(|| i.to_le_bytes()));
        let hex = FixedSizeBinaryArray::try_from_sparse_iter_with_size(hex, 8).expect("eight bytes");
        let all: Vec<Option<String>> = (0..1000).map(long).collect();
        for values in [
            Values::Text(all.iter().map(Option::as_deref).collect()),
            Values::Text((0..1000).map(|i| Some(i.to_string())).collect()),
            Values::Int((0..1000).map(number).collect()),
            Values::Time((0..1000).map(number).collect(), Some(9)),
            Values::Hex(hex),
            Values::Coded((0..1000).map(|i| [Some("a"), None, Some("b")][i % 3]).collect()),
        ] {
            let cut = values.cut(130..230).expect("cut");
            assert_eq!(texts(&cut, 100), texts(&values, 1000)[130..230]);
            let (own, whole) = (cut.memory_bytes(), values.memory_bytes());
            assert!(own < whole, "{own} of {whole} bytes");
            let (all, column) = (texts(&values, 1000), Column::whole(values));
            for step in [2, 300] {
                let rows = BooleanBuffer::collect_bool(1000, |i| i % step == 1);
                let chosen: Vec<String> = rows.set_indices().map(|i| all[i].clone()).collect();
                assert_eq!(texts(&column.gather(&rows).expect("gathered"), chosen.len()), chosen, "one of {step}");
            }
        }
        assert!(matches!(Values::Missing.cut(1..3), Ok(Values::Missing)));
    }

    #[test]
    fn rows_are_selected_wherever_they_stand() {
        let values = Column::whole(Values::Missing);
        for len in [0, 1, 63, 64, 65, 200, 256] {
            for (from, step) in [(0, 1), (1, 1), (0, 3), (130, 1), (60, 70)] {
                let wanted = |row: usize| row >= from && (row - from).is_multiple_of(step);
                // Not from the first bit of a byte on.
                let rows = BooleanBuffer::collect_bool(len + 3, |i| i >= 3 && wanted(i - 3)).slice(3, len);
                let mut asked = Vec::new();
                let found = values.select(&rows, |at| {
                    asked.push(at);
                    at % 2 == 0
                });
                assert_eq!(asked, rows.set_indices().collect::<Vec<_>>(), "{len} from {from} by {step}");
                let even: Vec<usize> = asked.into_iter().filter(|at| at % 2 == 0).collect();
                assert_eq!((found.len(), found.set_indices().collect::<Vec<_>>()), (len, even));
            }
        }
    }

    #[test]
    fn values_of_some_rows() {
        let column = Column { values: Values::Int(vec![10, 11, 20].into()), at: Some(Arc::new(vec![2..4, 6..7])) };
        let rows = BooleanBuffer::collect_bool(8, |i| i == 3 || i == 6 || i == 0);
        assert_eq!(column.select(&rows, |at| at > 0).set_indices().collect::<Vec<_>>(), [3, 6]);
        assert_eq!(texts(&column.gather(&rows).expect("filters"), 2), ["11", "20"]);
        let within = |column: &Column, range: Range<usize>| {
            let mut found = Vec::new();
            column.for_each_within(&rows, range, |row, at| found.push((row, at)));
            found
        };
        let (all, first, last) = (within(&column, 0..8), within(&column, 0..4), within(&column, 4..8));
        assert_eq!((all, first, last), (vec![(3, 1), (6, 2)], vec![(3, 1)], vec![(6, 2)]));
        assert_eq!(within(&Column::whole(Values::Missing), 1..7), [(3, 3), (6, 6)]);
    }
}
