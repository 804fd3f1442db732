//! Columns of spans with texts as dictionary codes and ids as bytes.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, DictionaryArray, Int32Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, UInt8Type};
use quiver_types::Result;
use quiver_types::spans::{code_each, coded_texts};

use super::super::column_access::other_type;
use super::super::columns::{KINDS, STATUSES};
use super::super::conventions::Form;
use super::cells::{Cell, First, column};
use crate::tables::cells::{CellKind, coded};
use crate::tables::convert::HEX;

/// The field of a column with texts as codes and ids as bytes.
pub(super) fn coded_field(field: &Field, cell: &Cell) -> Field {
    match cell {
        Cell::Text(_) | Cell::Kind(_) | Cell::Status(_) | Cell::First { kind: CellKind::Text, .. } => {
            field.clone().with_data_type(coded_texts())
        }
        _ => field.clone(),
    }
}

/// The field of a column of ids as bytes.
pub(super) fn bytes_field(field: &Field) -> Field {
    let size = if field.name() == "trace_id" { 16 } else { 8 };
    let marked = HashMap::from([(HEX.to_owned(), String::new())]);
    field.clone().with_data_type(DataType::FixedSizeBinary(size)).with_metadata(marked)
}

/// Computes a column with texts as codes and ids as bytes.
pub(super) fn coded_column(cell: &Cell, stored: &RecordBatch) -> Result<ArrayRef> {
    let few = |at: usize, names: &[&str]| -> Result<ArrayRef> {
        let numbers = stored.column(at).as_primitive_opt::<UInt8Type>().ok_or_else(|| other_type("a number"))?;
        let codes = Int32Array::from_iter_values(numbers.values().iter().map(|n| {
            let n = i32::from(*n);
            if (n as usize) < names.len() { n } else { 0 }
        }));
        let values = StringViewArray::from_iter_values(names);
        Ok(Arc::new(DictionaryArray::new(codes, Arc::new(values))))
    };
    Ok(match cell {
        Cell::Text(at) => Arc::new(coded(stored.column(*at)).ok_or_else(|| other_type("a text"))?),
        Cell::Kind(at) => few(*at, &KINDS)?,
        Cell::Status(at) => few(*at, &STATUSES)?,
        Cell::First { steps, kind: CellKind::Text, .. } => match one_of(steps, stored) {
            Some(texts) => texts,
            None => Arc::new(code_each(column(cell, stored)?.as_string_view())),
        },
        other => column(other, stored)?,
    })
}

/// The column of the only one of several attributes that any row has, if it applies to all span kinds. Its values are
/// converted once per text.
fn one_of(steps: &[First], stored: &RecordBatch) -> Option<ArrayRef> {
    let mut found = None;
    for step in steps {
        let texts = coded(stored.column(step.column))?;
        if texts.keys().null_count() == texts.len() || texts.values().null_count() == texts.values().len() {
            continue;
        }
        if found.is_some() || !step.kinds.is_empty() || step.before.is_some() {
            return None;
        }
        found = Some((texts, step.form));
    }
    let (texts, form) = found?;
    if form == Form::Same {
        return Some(Arc::new(texts));
    }
    let values = texts.values().as_string_view_opt()?;
    let formed = values.iter().map(|text| text.map(|text| form.apply(text, "")).filter(|text| !text.is_empty()));
    let formed: StringViewArray = formed.collect();
    Some(Arc::new(texts.with_values(Arc::new(formed))))
}
