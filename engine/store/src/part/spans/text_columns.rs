//! Text columns of a part in the forms they can be read: plain, as views, or dictionary-encoded.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, FixedSizeBinaryArray, Float64Array, Int32Array, Int32DictionaryArray,
    Int64Array, StringArray, StringViewArray, new_null_array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, OffsetBuffer};
use arrow::compute::interleave;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use arrow::util::bit_chunk_iterator::BitChunks;
use quiver_types::spans::{Value, code_each};

use crate::error::{Context, Error, Result};

/// An attribute's column, downcast once: checking its type in each row would take longer than reading the row.
#[derive(Debug, Clone, Copy)]
pub(super) enum OwnValues<'c> {
    Text(&'c StringArray),
    View(&'c StringViewArray),
    Int(&'c Int64Array),
    Double(&'c Float64Array),
    Bool(&'c BooleanArray),
    Coded(&'c Int32Array, &'c StringArray),
    CodedView(&'c Int32Array, &'c StringViewArray),
}

impl<'c> OwnValues<'c> {
    /// `None` for a column of another type; it has no values.
    pub(super) fn of(column: &'c dyn Array) -> Option<Self> {
        Some(match column.data_type() {
            DataType::Utf8 => Self::Text(column.as_string::<i32>()),
            DataType::Utf8View => Self::View(column.as_string_view()),
            DataType::Int64 => Self::Int(column.as_primitive::<Int64Type>()),
            DataType::Float64 => Self::Double(column.as_primitive::<Float64Type>()),
            DataType::Boolean => Self::Bool(column.as_boolean()),
            DataType::Dictionary(..) => {
                let coded = column.as_any().downcast_ref::<Int32DictionaryArray>()?;
                match coded.values().as_string_view_opt() {
                    Some(views) => Self::CodedView(coded.keys(), views),
                    None => Self::Coded(coded.keys(), coded.values().as_string_opt::<i32>()?),
                }
            }
            _ => return None,
        })
    }

    /// Gives the value of a row.
    pub(super) fn get(self, row: usize) -> Option<Value<'c>> {
        match self {
            Self::Text(of) => of.is_valid(row).then(|| Value::Text(of.value(row))),
            Self::View(of) => of.is_valid(row).then(|| Value::Text(of.value(row))),
            Self::Int(of) => of.is_valid(row).then(|| Value::Int(of.value(row))),
            Self::Double(of) => of.is_valid(row).then(|| Value::Double(of.value(row))),
            Self::Bool(of) => of.is_valid(row).then(|| Value::Bool(of.value(row))),
            Self::Coded(codes, of) => codes.is_valid(row).then(|| Value::Text(of.value(codes.value(row) as usize))),
            Self::CodedView(codes, of) => codes.is_valid(row).then(|| Value::Text(of.value(codes.value(row) as usize))),
        }
    }
}

/// The value of an attribute's column in a row.
pub(super) fn own_value(column: &dyn Array, row: usize) -> Option<Value<'_>> {
    OwnValues::of(column)?.get(row)
}

/// Tells whether a column holds text, in any form.
pub(super) fn is_text(column: &ArrayRef) -> bool {
    match column.data_type() {
        DataType::Dictionary(_, values) => matches!(**values, DataType::Utf8 | DataType::Utf8View),
        other => matches!(other, DataType::Utf8 | DataType::Utf8View),
    }
}

/// Converts text to views of the same bytes.
pub(super) fn views(column: &ArrayRef) -> Result<ArrayRef> {
    let other = || Error::internal("a column of a part of spans is no text");
    match column.data_type() {
        DataType::Utf8View => Ok(Arc::clone(column)),
        DataType::Utf8 => Ok(Arc::new(StringViewArray::from(column.as_string::<i32>()))),
        _ => {
            let coded = column.as_any().downcast_ref::<Int32DictionaryArray>().ok_or_else(other)?;
            let texts = views(coded.values())?;
            arrow::compute::take(&texts, coded.keys(), None).internal("cannot read texts of spans")
        }
    }
}

/// Converts text to dictionary-encoded views ([`quiver_types::spans::coded_texts`]).
pub(super) fn coded(column: &ArrayRef) -> Result<ArrayRef> {
    match column.as_any().downcast_ref::<Int32DictionaryArray>() {
        Some(texts) if *texts.values().data_type() == DataType::Utf8View => Ok(Arc::clone(column)),
        Some(texts) => {
            let values = views(texts.values())?;
            let made = Int32DictionaryArray::try_new(texts.keys().clone(), values);
            Ok(Arc::new(made.internal("cannot read texts of spans")?))
        }
        None => Ok(Arc::new(code_each(views(column)?.as_string_view()))),
    }
}

/// Keeps rows whose text passes a test. Each distinct text is tested once, or only those of the remaining rows if there
/// are fewer of them.
pub(super) fn narrow_coded(texts: &Int32DictionaryArray, keep: &mut [bool], test: &dyn Fn(&str) -> bool) {
    let (codes, count) = (texts.keys(), texts.values().len());
    match (texts.values().as_string_view_opt(), texts.values().as_string_opt::<i32>()) {
        (Some(values), _) => narrow_by(codes, count, keep, |n| values.is_valid(n) && test(values.value(n))),
        (_, Some(values)) => narrow_by(codes, count, keep, |n| values.is_valid(n) && test(values.value(n))),
        _ => keep.fill(false),
    }
}

/// Up to this many rows with a value out of 64 are visited one by one.
const FEW_OF_64: u32 = 16;

/// Keeps rows whose code passes a test; codes are below `count`.
fn narrow_by(codes: &Int32Array, count: usize, keep: &mut [bool], passes: impl Fn(usize) -> bool) {
    // If nearly all texts are distinct, there are as many codes as rows, so test only the remaining rows.
    if keep.iter().filter(|keep| **keep).count() < count {
        for (row, keep) in keep.iter_mut().enumerate().filter(|(_, keep)| **keep) {
            *keep = codes.is_valid(row) && passes(codes.value(row) as usize);
        }
        return;
    }
    let verdicts: Vec<bool> = (0..count).map(passes).collect();
    let passes = |code: i32| verdicts.get(code as usize).copied().unwrap_or(false);
    // Often the test is only whether there is a text, and few rows have one: handle 64 rows at once.
    let all = verdicts.iter().all(|passes| *passes);
    let there = codes.nulls().map(|nulls| nulls.inner().bit_chunks());
    let mut there = there.iter().flat_map(BitChunks::iter_padded);
    let has_nulls = codes.nulls().is_some();
    for (keep, codes) in keep.chunks_mut(64).zip(codes.values().chunks(64)) {
        let mut having = if has_nulls { there.next().unwrap_or(0) } else { u64::MAX };
        if having == u64::MAX {
            if !all {
                for (keep, code) in keep.iter_mut().zip(codes) {
                    *keep &= passes(*code);
                }
            }
            continue;
        }
        if having.count_ones() > FEW_OF_64 {
            for (at, (keep, code)) in keep.iter_mut().zip(codes).enumerate() {
                *keep &= (having >> at & 1 == 1) & (all | passes(*code));
            }
            continue;
        }
        let mut passed = [false; 64];
        while having != 0 {
            let at = having.trailing_zeros() as usize;
            passed[at] = keep[at] && (all || passes(codes[at]));
            having &= having - 1;
        }
        keep.copy_from_slice(&passed[..keep.len()]);
    }
}

/// Keeps rows whose text passes a test; equal neighbours are tested once.
pub(super) fn narrow<'t>(value: impl Fn(usize) -> &'t str, keep: &mut [bool], test: &dyn Fn(&str) -> bool) {
    let mut last: Option<(&str, bool)> = None;
    for (i, keep) in keep.iter_mut().enumerate().filter(|(_, k)| **k) {
        let text = value(i);
        *keep = match last {
            Some((known, verdict)) if known == text => verdict,
            _ => {
                let verdict = test(text);
                last = Some((text, verdict));
                verdict
            }
        };
    }
}

/// Converts dictionary-encoded text to plain text; leaves other columns unchanged.
pub(super) fn plain(column: &ArrayRef) -> ArrayRef {
    let Some(coded) = column.as_any().downcast_ref::<Int32DictionaryArray>() else { return Arc::clone(column) };
    let Some(values) = coded.values().as_string_view_opt() else { return Arc::clone(column) };
    let texts: StringArray = coded.keys().iter().map(|code| code.map(|code| values.value(code as usize))).collect();
    Arc::new(texts)
}

/// The texts of a column as read and as views: columns that share the former can share the latter.
pub(super) type SharedTexts = Option<(ArrayRef, ArrayRef)>;

/// Like [`coded`], for consecutive pieces of a column: reuses the views of the previous piece if it has the same texts.
pub(super) fn coded_like(column: &ArrayRef, before: &mut SharedTexts) -> Result<ArrayRef> {
    let Some(texts) = column.as_any().downcast_ref::<Int32DictionaryArray>() else { return Ok(Arc::clone(column)) };
    let values = match before {
        Some((read, known)) if read.to_data().ptr_eq(&texts.values().to_data()) => Arc::clone(known),
        _ => views(texts.values())?,
    };
    *before = Some((Arc::clone(texts.values()), Arc::clone(&values)));
    let made = Int32DictionaryArray::try_new(texts.keys().clone(), values);
    Ok(Arc::new(made.internal("cannot read texts of spans")?))
}

/// Codes and views of a dictionary-encoded column; `None` for other columns.
fn codes_of(column: &ArrayRef) -> Option<(&Int32DictionaryArray, &StringViewArray)> {
    let coded = column.as_any().downcast_ref::<Int32DictionaryArray>()?;
    Some((coded, coded.values().as_string_view_opt()?))
}

/// Like [`gathered`] for identifiers, which are copied as bytes.
fn gathered_ids(columns: &[&FixedSizeBinaryArray], places: &[(usize, usize)]) -> Result<ArrayRef> {
    let size = columns.first().map_or(0, |column| column.value_length());
    let mut bytes = Vec::with_capacity(places.len() * size as usize);
    for &(column, row) in places {
        bytes.extend_from_slice(columns[column].value(row));
    }
    let nulls = gathered_nulls(columns.iter().map(|column| column.nulls()), places);
    let ids = FixedSizeBinaryArray::try_new(size, bytes.into(), nulls).internal("cannot gather rows of spans")?;
    Ok(Arc::new(ids))
}

/// Which of the gathered rows have a value; `None` if all have one.
fn gathered_nulls<'c>(
    columns: impl Iterator<Item = Option<&'c NullBuffer>>,
    places: &[(usize, usize)],
) -> Option<NullBuffer> {
    let nulls: Vec<Option<&NullBuffer>> = columns.collect();
    let is_there = |n: usize| {
        let (column, row) = places[n];
        nulls[column].is_none_or(|nulls| nulls.is_valid(row))
    };
    let some = nulls.iter().any(Option::is_some);
    some.then(|| NullBuffer::new(BooleanBuffer::collect_bool(places.len(), is_there)))
}

/// Like [`gathered`] for codes. There are about fifty such columns, so values and nulls are gathered separately for
/// speed.
fn gathered_codes(columns: &[&Int32Array], nulls: Option<NullBuffer>, places: &[(usize, usize)]) -> Int32Array {
    let mut codes: Vec<i32> = Vec::with_capacity(places.len());
    for of_column in places.chunk_by(|a, b| a.0 == b.0) {
        let values = columns[of_column[0].0].values();
        codes.extend(of_column.iter().map(|&(_, row)| values[row]));
    }
    Int32Array::new(codes.into(), nulls)
}

/// Like [`gathered`] for codes of different texts, as plain text. Most of these columns have a value in few rows.
fn gathered_texts(
    columns: &[(&Int32Array, &StringViewArray)],
    nulls: Option<NullBuffer>,
    places: &[(usize, usize)],
) -> Result<ArrayRef> {
    let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(places.len() + 1));
    ends.push(0);
    for (n, &(column, row)) in places.iter().enumerate() {
        if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(n)) {
            let (codes, values) = columns[column];
            bytes.extend_from_slice(values.value(codes.value(row) as usize).as_bytes());
        }
        ends.push(i32::try_from(bytes.len()).internal("texts of spans are larger than 2 GiB")?);
    }
    let texts = StringArray::try_new(OffsetBuffer::new(ends.into()), bytes.into(), nulls);
    Ok(Arc::new(texts.internal("cannot gather rows of spans")?))
}

/// Gathers rows, given as pairs of column and row. Dictionary-encoded text stays encoded if all columns with values
/// share the same texts; else the result has texts of its own.
pub(super) fn gathered(columns: &[&ArrayRef], places: &[(usize, usize)]) -> Result<ArrayRef> {
    if let Some(ids) = columns.iter().map(|column| column.as_fixed_size_binary_opt()).collect::<Option<Vec<_>>>() {
        return gathered_ids(&ids, places);
    }
    let Some(texts) = columns.iter().map(|column| codes_of(column)).collect::<Option<Vec<_>>>() else {
        let arrays: Vec<&dyn Array> = columns.iter().map(|column| &***column).collect();
        return interleave(&arrays, places).internal("cannot gather rows of spans");
    };
    let mut having = texts.iter().filter(|(coded, _)| coded.null_count() < coded.len());
    let without_value = || Ok(new_null_array(&DataType::Utf8, places.len()));
    let Some((first, _)) = having.next() else { return without_value() };
    let nulls = gathered_nulls(texts.iter().map(|(coded, _)| coded.nulls()), places);
    if nulls.as_ref().is_some_and(|nulls| nulls.null_count() == places.len()) {
        return without_value();
    }
    if having.all(|(other, _)| Arc::ptr_eq(first.values(), other.values())) {
        let codes: Vec<&Int32Array> = texts.iter().map(|(coded, _)| coded.keys()).collect();
        let made = Int32DictionaryArray::try_new(gathered_codes(&codes, nulls, places), Arc::clone(first.values()));
        return Ok(Arc::new(made.internal("cannot gather rows of spans")?));
    }
    let texts: Vec<(&Int32Array, &StringViewArray)> = texts.iter().map(|(coded, own)| (coded.keys(), *own)).collect();
    gathered_texts(&texts, nulls, places)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn texts_are_tested_once_or_by_the_rows_that_are_left() {
        let texts = [Some("a"), None, Some("b"), Some("c"), Some("a"), Some("d")];
        let column: ArrayRef = Arc::new(texts.into_iter().collect::<StringArray>());
        let dictionary: Int32DictionaryArray = texts.into_iter().collect();
        let check = |texts: &ArrayRef, keep: &[bool], expected: &[bool], tests: usize| {
            let (mut keep, tested) = (keep.to_vec(), Cell::new(0));
            let test = |text: &str| {
                tested.set(tested.get() + 1);
                text < "c"
            };
            let texts = texts.as_any().downcast_ref::<Int32DictionaryArray>().unwrap();
            narrow_coded(texts, &mut keep, &test);
            assert_eq!((&keep[..], tested.get()), (expected, tests));
        };
        let (all, passed) = ([true; 6], [true, false, true, false, true, false]);
        let dictionary: ArrayRef = Arc::new(dictionary);
        check(&dictionary, &all, &passed, 4);
        check(&coded(&dictionary).unwrap(), &all, &passed, 4);
        // A code for each row.
        check(&coded(&column).unwrap(), &all, &passed, 5);
        let few = [false, true, true, true, false, false];
        for texts in [dictionary, coded(&column).unwrap()] {
            check(&texts, &few, &[false, false, true, false, false, false], 2);
        }
    }

    #[test]
    fn rows_pass_by_their_codes_wherever_they_lie() {
        // Rows with few texts, with many, with all, at any place of a longer column.
        for (every, is_there) in [(1, true), (2, true), (3, true), (40, true), (3, false)] {
            for (offset, rows) in [(0, 64), (0, 200), (3, 129), (61, 70)] {
                let text = |row: usize| (row.is_multiple_of(every) == is_there).then(|| ["a", "b", "d"][row % 3]);
                let column: Int32DictionaryArray = (0..offset + rows).map(text).collect();
                let column = column.slice(offset, rows);
                let wanted = |row: usize| row % 7 != 2;
                for least in ["", "b", "x"] {
                    let mut keep: Vec<bool> = (0..rows).map(wanted).collect();
                    narrow_coded(&column, &mut keep, &|text| text >= least);
                    let passes = |row: usize| wanted(row) && text(offset + row).is_some_and(|text| text >= least);
                    let expected: Vec<bool> = (0..rows).map(passes).collect();
                    assert_eq!(keep, expected, "{every} {is_there} {offset} {rows} {least}");
                }
            }
        }
    }
}
