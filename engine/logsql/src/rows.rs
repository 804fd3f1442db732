//! Rows between operators.
//!
//! A batch has one column per field that the query names: text (`Utf8View`), values as they are stored (`StoredField`, as scans
//! give them for grouping), or, for `_time`, nanoseconds. Missing and empty are the same: null, or an empty text.
//! When the query needs fields that it does not name (`*`, `prefix*`), a last column `__q_rest` (a map of text to text)
//! holds all fields that have no column. A field is never in both places: each name that a query mentions has a column
//! from the source on, so that what a pipe makes under it goes to the column and never to the map.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, MapArray, StringArray, StringBuilder, StringViewBuilder, StructArray,
    new_null_array,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::error::{DataFusionError, Result};
use quiver_types::logs::{REST, StoredField};
use serde::{Deserialize, Serialize};

pub(crate) use crate::kernels::columns::Texts;

/// How a column of texts is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum ColumnStorage {
    /// Texts that were read or made (`Utf8View`).
    Text,
    /// As it is stored (`StoredField`).
    Stored,
    /// `Timestamp(ns, UTC)`, shown as text.
    Time,
    /// No field: how many rows a row stands for ([`LogForm::Counted`](quiver_types::logs::LogForm)).
    Count,
}

/// A column of the batches: the name of its field, and how its values are held.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: ColumnStorage,
}

/// The columns that all batches of a stream have, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) columns: Vec<Column>,
    /// Whether one more column follows: a map of all fields without a column of their own.
    pub(crate) rest: bool,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.columns.iter().map(|c| c.name.as_str()).chain(self.rest.then_some("*")).collect();
        f.write_str(&names.join(", "))
    }
}

impl Shape {
    /// Columns of texts, with these names; no map of other fields.
    pub(crate) fn of_texts<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        let columns = names.into_iter().map(|name| Column { name: name.into(), kind: ColumnStorage::Text }).collect();
        Self { columns, rest: false }
    }

    /// The same columns, with a map of all other fields.
    #[cfg(test)]
    pub(crate) fn with_rest(self) -> Self {
        Self { rest: true, ..self }
    }

    /// Place of the column of a field; `None`: the field is in the map, or nowhere.
    pub(crate) fn index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// Names of the columns.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|c| c.name.as_str())
    }

    /// The same with text columns for these fields, new ones at the end.
    pub(crate) fn with_texts<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut shape = self.clone();
        for name in names {
            match shape.index(name) {
                Some(i) => shape.columns[i].kind = ColumnStorage::Text,
                None => shape.columns.push(Column { name: name.to_owned(), kind: ColumnStorage::Text }),
            }
        }
        shape
    }

    /// The Arrow schema.
    pub(crate) fn schema(&self) -> SchemaRef {
        let mut fields: Vec<Field> = self.columns.iter().map(Column::field).collect();
        if self.rest {
            fields.push(rest_field());
        }
        Arc::new(Schema::new(fields))
    }
}

impl Column {
    fn field(&self) -> Field {
        let (data_type, nullable) = match self.kind {
            ColumnStorage::Text => (DataType::Utf8View, true),
            ColumnStorage::Stored => (StoredField::data_type(), true),
            ColumnStorage::Count => (DataType::UInt64, true),
            ColumnStorage::Time => (DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())), true),
        };
        Field::new(&self.name, data_type, nullable)
    }
}

fn entry_fields() -> Fields {
    vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, false)].into()
}

fn rest_field() -> Field {
    let entries = Field::new("entries", DataType::Struct(entry_fields()), false);
    Field::new(REST, DataType::Map(Arc::new(entries), true), false)
}

/// Makes a batch; there may be no column, so the number of rows is given.
pub(crate) fn batch(shape: &Shape, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(shape.schema(), columns, &options)?)
}

/// The column of a field in a batch; nothing when there is none.
pub(crate) fn texts_of(batch: &RecordBatch, shape: &Shape, name: &str) -> Result<Texts> {
    shape.index(name).map_or(Ok(Texts::Missing), |i| texts(batch.column(i)))
}

/// A column as texts.
pub(crate) fn texts(array: &ArrayRef) -> Result<Texts> {
    Texts::of(array)
        .ok_or_else(|| DataFusionError::Internal(format!("a column of {} holds no texts", array.data_type())))
}

/// Appends a text; the empty text, which is the same as no field, becomes null.
pub(crate) fn push_text(builder: &mut StringViewBuilder, text: &str) {
    if text.is_empty() { builder.append_null() } else { builder.append_value(text) }
}

/// A column as plain text.
pub(crate) fn as_view(array: &ArrayRef) -> Result<ArrayRef> {
    if array.data_type() == &DataType::Utf8View {
        return Ok(Arc::clone(array));
    }
    let texts = texts(array)?;
    let mut builder = StringViewBuilder::with_capacity(array.len());
    let mut scratch = String::new();
    for row in 0..array.len() {
        push_text(&mut builder, texts.get(row, &mut scratch));
    }
    Ok(Arc::new(builder.finish()))
}

/// A column of nothing.
pub(crate) fn missing(rows: usize) -> ArrayRef {
    new_null_array(&DataType::Utf8View, rows)
}

/// The map of all fields without a column.
#[derive(Debug, Clone)]
pub(crate) struct Rest {
    offsets: OffsetBuffer<i32>,
    names: StringArray,
    values: StringArray,
}

impl Rest {
    /// Looks at the map column of a batch, if it has one.
    pub(crate) fn of(batch: &RecordBatch, shape: &Shape) -> Option<Self> {
        if !shape.rest {
            return None;
        }
        let map = batch.column(batch.num_columns() - 1).as_map();
        let names = map.keys().as_string::<i32>().clone();
        Some(Self { offsets: map.offsets().clone(), names, values: map.values().as_string::<i32>().clone() })
    }

    /// Names and values of a row.
    pub(crate) fn row(&self, row: usize) -> impl Iterator<Item = (&str, &str)> {
        let (start, end) = (self.offsets[row] as usize, self.offsets[row + 1] as usize);
        (start..end).map(|i| (self.names.value(i), self.values.value(i))).filter(|(_, value)| !value.is_empty())
    }
}

/// Builds a map column row by row.
#[derive(Debug)]
pub(crate) struct RestBuilder {
    offsets: Vec<i32>,
    names: StringBuilder,
    values: StringBuilder,
    entries: usize,
}

impl RestBuilder {
    pub(crate) fn new(rows: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Self { offsets, names: StringBuilder::new(), values: StringBuilder::new(), entries: 0 }
    }

    /// Adds a field to the row that is being built; the caller sees to it that names are unique. Empty ones are left out.
    pub(crate) fn push(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.names.append_value(name);
            self.values.append_value(value);
            self.entries += 1;
        }
    }

    pub(crate) fn end_row(&mut self) {
        self.offsets.push(self.entries as i32);
    }

    pub(crate) fn finish(mut self) -> Result<ArrayRef> {
        let columns: Vec<ArrayRef> = vec![Arc::new(self.names.finish()), Arc::new(self.values.finish())];
        let entries = StructArray::try_new(entry_fields(), columns, None)?;
        let DataType::Map(field, sorted) = rest_field().data_type().clone() else {
            return Err(DataFusionError::Internal("the map column is a map".into()));
        };
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        Ok(Arc::new(MapArray::try_new(field, offsets, entries, None, sorted)?))
    }
}

/// A map column without entries.
pub(crate) fn empty_rest(rows: usize) -> Result<ArrayRef> {
    let mut builder = RestBuilder::new(rows);
    (0..rows).for_each(|_| builder.end_row());
    builder.finish()
}

/// The map column of a row's fields but some: what stays when fields get columns or go.
pub(crate) fn rest_without(rest: &Rest, rows: usize, gone: impl Fn(&str) -> bool) -> Result<ArrayRef> {
    let mut builder = RestBuilder::new(rows);
    for row in 0..rows {
        rest.row(row).filter(|(name, _)| !gone(name)).for_each(|(name, value)| builder.push(name, value));
        builder.end_row();
    }
    builder.finish()
}

/// Makes a column of sort keys, which compare as bytes.
pub(crate) fn binary(values: Vec<Vec<u8>>) -> ArrayRef {
    Arc::new(BinaryArray::from_iter_values(values))
}

/// How many of the first rows have texts of no more than so many bytes together; at least one. Views may show one text
/// very many times, so a batch can stand for far more bytes than it holds.
pub(crate) fn rows_within(batch: &RecordBatch, bytes: usize) -> usize {
    let has_texts = |column: &ArrayRef| matches!(column.data_type(), DataType::Utf8View | DataType::Map(..));
    if !batch.columns().iter().any(has_texts) {
        return batch.num_rows();
    }
    let mut of_row = vec![0; batch.num_rows()];
    for column in batch.columns() {
        if let Some(views) = column.as_string_view_opt() {
            // The low half of a view is the length of its text.
            of_row.iter_mut().zip(views.views()).for_each(|(sum, view)| *sum += *view as u32 as usize);
        } else if let Some(map) = column.as_map_opt() {
            let (rows, texts) = (map.offsets(), map.values().as_string::<i32>().value_offsets());
            let end = |row: i32| texts[row as usize] as usize;
            of_row.iter_mut().zip(rows.windows(2)).for_each(|(sum, row)| *sum += end(row[1]) - end(row[0]));
        }
    }
    let mut sum = 0;
    let fitting = of_row.iter().take_while(|row| {
        sum += **row;
        sum <= bytes
    });
    fitting.count().max(1).min(batch.num_rows())
}

/// Names, each once, in order of first occurrence.
pub(crate) fn unique(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut seen = HashSet::new();
    names.into_iter().filter(|name| seen.insert(name.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(texts: &[&str]) -> ArrayRef {
        let mut builder = StringViewBuilder::new();
        for text in texts {
            push_text(&mut builder, text);
        }
        Arc::new(builder.finish())
    }

    fn rest(rows: &[&[(&str, &str)]]) -> ArrayRef {
        let mut builder = RestBuilder::new(rows.len());
        for row in rows {
            row.iter().for_each(|(name, value)| builder.push(name, value));
            builder.end_row();
        }
        builder.finish().expect("a map")
    }

    #[test]
    fn rows_are_counted_by_what_their_texts_take() {
        let shape = Shape::of_texts(["a"]).with_rest();
        let long = "0123456789abcdef";
        let columns = vec![view(&["xx", "", long]), rest(&[&[("b", "yyy")], &[], &[("b", "z"), ("c", "")]])];
        let rows = batch(&shape, columns, 3).expect("rows");
        let check = |bytes: usize, expected: usize| assert_eq!(rows_within(&rows, bytes), expected, "{bytes}");
        check(0, 1);
        check(5, 2);
        check(21, 2);
        check(22, 3);
        check(usize::MAX, 3);
        assert_eq!(rows_within(&rows.slice(0, 0), 9), 0);
        assert_eq!(rows_within(&rows.slice(2, 1), 9), 1, "one at least");
    }

    #[test]
    fn a_map_has_what_is_not_empty_and_not_gone() {
        let shape = Shape::of_texts(["a"]).with_rest();
        let all: &[&[(&str, &str)]] = &[&[("b", "1"), ("c", ""), ("d", "2")], &[], &[("b", "3")]];
        let rows = batch(&shape, vec![missing(3), rest(all)], 3).expect("rows");
        let map = Rest::of(&rows, &shape).expect("a map");
        let of = |map: &Rest| -> Vec<String> {
            (0..3).map(|row| map.row(row).flat_map(|(name, value)| [name, value]).collect()).collect()
        };
        assert_eq!(of(&map), ["b1d2", "", "b3"]);
        let fewer = rest_without(&map, 3, |name| name == "b").expect("a map");
        let rows = batch(&shape, vec![missing(3), fewer], 3).expect("rows");
        assert_eq!(of(&Rest::of(&rows, &shape).expect("a map")), ["d2", "", ""]);
        assert!(Rest::of(&rows, &Shape::of_texts(["a"])).is_none());
    }

    #[test]
    fn shapes() {
        let time = Column { name: "t".to_owned(), kind: ColumnStorage::Time };
        let shape =
            Shape { columns: vec![time, Column { name: "a".to_owned(), kind: ColumnStorage::Stored }], rest: true };
        let made = shape.with_texts(["b", "t", "b"]);
        let kinds: Vec<(&str, ColumnStorage)> = made.columns.iter().map(|c| (c.name.as_str(), c.kind)).collect();
        assert_eq!(kinds, [("t", ColumnStorage::Text), ("a", ColumnStorage::Stored), ("b", ColumnStorage::Text)]);
        assert_eq!((made.to_string(), made.index("b"), made.index("*")), ("t, a, b, *".to_owned(), Some(2), None));
        assert_eq!(unique(["b", "a", "b"].map(str::to_owned)), ["b", "a"]);
    }

    #[test]
    fn columns_of_each_kind_become_plain_text() {
        use arrow::array::{DictionaryArray, Int32Array, TimestampNanosecondArray};
        let coded: DictionaryArray<arrow::datatypes::UInt32Type> = [Some("x"), None].into_iter().collect();
        let columns: [(ArrayRef, [&str; 2]); 6] = [
            (view(&["é", ""]), ["é", ""]),
            (Arc::new(StringArray::from(vec!["", "b"])), ["", "b"]),
            (Arc::new(TimestampNanosecondArray::from(vec![Some(1_500_000_000), None])), ["1970-01-01T00:00:01.5Z", ""]),
            (StoredField::Int(vec![None, Some(-7)].into()).into_array(2), ["", "-7"]),
            (StoredField::Coded(coded).into_array(2), ["x", ""]),
            (StoredField::Missing.into_array(2), ["", ""]),
        ];
        for (column, want) in columns {
            let plain = as_view(&column).expect("texts");
            assert_eq!(plain.data_type(), &DataType::Utf8View);
            let plain = texts(&plain).expect("texts");
            let mut scratch = String::new();
            let found = [0, 1].map(|row| plain.get(row, &mut scratch).to_owned());
            assert_eq!(found, want, "{}", column.data_type());
        }
        let wrong: ArrayRef = Arc::new(Int32Array::from(vec![1]));
        let error = as_view(&wrong).expect_err("no texts");
        assert!(error.to_string().contains("a column of Int32 holds no texts"), "{error}");
    }

    #[test]
    fn batches_without_columns_have_rows() {
        let none = batch(&Shape::default(), Vec::new(), 5).expect("rows");
        assert_eq!((none.num_rows(), none.num_columns()), (5, 0));
        assert!(matches!(texts_of(&none, &Shape::default(), "a"), Ok(Texts::Missing)));
        assert!(batch(&Shape::of_texts(["a"]), Vec::new(), 5).is_err());
        assert!(batch(&Shape::of_texts(["a"]), vec![missing(4)], 5).is_err());
        let empty = batch(&Shape::of_texts(["a"]).with_rest(), vec![missing(2), empty_rest(2).expect("a map")], 2)
            .expect("rows");
        let map = Rest::of(&empty, &Shape::of_texts(["a"]).with_rest()).expect("a map");
        assert_eq!((0..2).map(|row| map.row(row).count()).sum::<usize>(), 0);
    }

    #[test]
    fn a_part_of_a_batch_has_its_own_maps() {
        let shape = Shape::of_texts(["a"]).with_rest();
        let all: &[&[(&str, &str)]] = &[&[("b", "1")], &[("b", "2"), ("c", "3")], &[], &[("d", "4")]];
        let rows = batch(&shape, vec![view(&["w", "x", "y", "z"]), rest(all)], 4).expect("rows");
        for (from, len) in [(0, 4), (1, 2), (1, 3), (3, 1), (4, 0)] {
            let part = rows.slice(from, len);
            let map = Rest::of(&part, &shape).expect("a map");
            let found: Vec<Vec<(&str, &str)>> = (0..len).map(|row| map.row(row).collect()).collect();
            assert_eq!(found, all[from..from + len], "{from} {len}");
            assert_eq!(rows_within(&part, usize::MAX), len);
        }
    }
}
