//! Columns of texts of a part, however they are read: as they are, as views, by codes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32DictionaryArray, StringArray, StringViewArray};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use quiver_types::spans::{Value, code_each};

use crate::error::{Context, Error, Result};

/// Gives the value of a row of an own column.
pub(super) fn own_value(column: &dyn Array, row: usize) -> Option<Value<'_>> {
    if column.is_null(row) {
        return None;
    }
    match column.data_type() {
        DataType::Utf8 => Some(Value::Text(column.as_string::<i32>().value(row))),
        DataType::Utf8View => Some(Value::Text(column.as_string_view().value(row))),
        DataType::Int64 => Some(Value::Int(column.as_primitive::<Int64Type>().value(row))),
        DataType::Float64 => Some(Value::Double(column.as_primitive::<Float64Type>().value(row))),
        DataType::Boolean => Some(Value::Bool(column.as_boolean().value(row))),
        DataType::Dictionary(..) => {
            let coded = column.as_any().downcast_ref::<Int32DictionaryArray>()?;
            let (code, values) = (coded.keys().value(row) as usize, coded.values());
            Some(Value::Text(match values.as_string_view_opt() {
                Some(views) => views.value(code),
                None => values.as_string_opt::<i32>()?.value(code),
            }))
        }
        _ => None,
    }
}

/// Says whether a column is of texts, however they are read.
pub(super) fn is_text(column: &ArrayRef) -> bool {
    match column.data_type() {
        DataType::Dictionary(_, values) => matches!(**values, DataType::Utf8 | DataType::Utf8View),
        other => matches!(other, DataType::Utf8 | DataType::Utf8View),
    }
}

/// Gives texts as views of the same bytes.
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

/// Gives texts as views by codes ([`quiver_types::spans::coded_texts`]).
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

/// Keeps rows whose text passes; each text is tested once.
pub(super) fn narrow_coded(texts: &Int32DictionaryArray, keep: &mut [bool], test: &dyn Fn(&str) -> bool) {
    let verdicts: Vec<bool> = match (texts.values().as_string_view_opt(), texts.values().as_string_opt::<i32>()) {
        (Some(values), _) => values.iter().map(|text| text.is_some_and(test)).collect(),
        (_, Some(values)) => values.iter().map(|text| text.is_some_and(test)).collect(),
        _ => return keep.fill(false),
    };
    for (keep, key) in keep.iter_mut().zip(texts.keys().values()) {
        *keep &= verdicts.get(*key as usize).copied().unwrap_or(false);
    }
    if let Some(nulls) = texts.keys().nulls() {
        keep.iter_mut().zip(nulls).for_each(|(keep, is_there)| *keep &= is_there);
    }
}

/// Keeps rows whose text passes; equal neighbours are tested once.
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

/// Gives texts by codes as texts of their own; other columns as they are.
pub(super) fn plain(column: &ArrayRef) -> ArrayRef {
    let Some(coded) = column.as_any().downcast_ref::<Int32DictionaryArray>() else { return Arc::clone(column) };
    let Some(values) = coded.values().as_string_view_opt() else { return Arc::clone(column) };
    let texts: StringArray = coded.keys().iter().map(|code| code.map(|code| values.value(code as usize))).collect();
    Arc::new(texts)
}
