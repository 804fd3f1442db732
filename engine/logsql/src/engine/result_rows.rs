//! Rows of a result: a batch, and how its columns are read as the fields of rows.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::buffer::Buffer;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use quiver_query::{QueryReservation, from_datafusion};
use quiver_types::{Error, Result};

use crate::rows::{Rest, Shape, Texts, texts};

/// A batch that shows less than half of the text buffers that it keeps alive is copied, if they have at least this
/// many bytes.
const PINNED_BYTES_MIN: usize = 64 * 1024;

/// Some rows of a result: a batch, and the meaning of its columns.
#[derive(Clone)]
pub struct Rows {
    pub(super) shape: Arc<Shape>,
    pub(super) batch: RecordBatch,
    /// The batch's share of the query's memory, held until its last slice is dropped.
    pub(super) memory: Option<Arc<QueryReservation>>,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows of {}", self.batch.num_rows(), self.shape)
    }
}

/// What is done with the fields of a row.
type RowVisitor<'a> = dyn FnMut(&mut dyn Iterator<Item = (&str, &str)>) + 'a;

impl Rows {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.batch.num_rows()
    }

    /// Says whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives `len` rows from one on, without a copy.
    #[must_use]
    pub fn slice(&self, from: usize, len: usize) -> Self {
        Self { shape: Arc::clone(&self.shape), batch: self.batch.slice(from, len), memory: self.memory.clone() }
    }

    /// Calls `row` for each row with its non-empty fields (name, value): first the columns in their order, then fields
    /// without a column, by name.
    ///
    /// # Errors
    /// Internal: a column does not hold text.
    pub fn each_row(&self, mut row: impl FnMut(&mut dyn Iterator<Item = (&str, &str)>)) -> Result<()> {
        self.visit(&mut row)
    }

    /// Compiled once, not for each caller.
    fn visit(&self, row: &mut RowVisitor<'_>) -> Result<()> {
        let mut columns: Vec<(&str, Texts)> = self
            .shape
            .names()
            .zip(self.batch.columns())
            .map(|(name, column)| Ok((name, texts(column)?)))
            .collect::<datafusion::error::Result<_>>()
            .map_err(from_datafusion)?;
        // A query may name a thousand fields, most of which no row has.
        columns.retain(|(_, texts)| !texts.is_absent());
        let rest = Rest::of(&self.batch, &self.shape);
        let mut scratch = vec![String::new(); columns.len()];
        for i in 0..self.len() {
            let own: Vec<(&str, &str)> =
                columns.iter().zip(&mut scratch).map(|((name, texts), s)| (*name, texts.get(i, s))).collect();
            let more = rest.iter().flat_map(|rest| rest.row(i));
            row(&mut own.into_iter().chain(more).filter(|(_, value)| !value.is_empty()));
        }
        Ok(())
    }

    /// Copies the names and values of each row, without empty ones.
    ///
    /// # Errors
    /// As [`Self::each_row`].
    pub fn to_texts(&self) -> Result<Vec<Vec<(String, String)>>> {
        let mut all = Vec::with_capacity(self.len());
        self.each_row(|fields| all.push(fields.map(|(n, v)| (n.to_owned(), v.to_owned())).collect()))?;
        Ok(all)
    }
}

/// Copies texts that are a small part of their buffers, such as a few rows of a block, so that the buffers can be
/// freed.
pub(super) fn unpinned(batch: RecordBatch) -> Result<RecordBatch> {
    let of_its_own = |column: &ArrayRef| -> ArrayRef {
        let Some(texts) = column.as_string_view_opt() else { return Arc::clone(column) };
        let held: usize = texts.data_buffers().iter().map(Buffer::capacity).sum();
        let pins = held > PINNED_BYTES_MIN && texts.total_buffer_bytes_used() < held / 2;
        if pins { Arc::new(texts.gc()) } else { Arc::clone(column) }
    };
    let columns: Vec<ArrayRef> = batch.columns().iter().map(of_its_own).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let batch = RecordBatch::try_new_with_options(batch.schema(), columns, &options);
    batch.map_err(|e| Error::internal("cannot give out a batch").with_source(e))
}

#[cfg(test)]
mod tests {
    use arrow::array::{StringViewArray, UInt64Array};
    use datafusion::common::utils::memory::get_record_batch_memory_size;

    use super::*;
    use crate::rows::{Column, ColumnStorage, RestBuilder, batch};

    fn rows() -> Rows {
        let shape = Shape::of_texts(["b", "a"]).with_rest();
        let mut rest = RestBuilder::new(3);
        let maps: [&[(&str, &str)]; 3] = [&[("c", "1"), ("d", "2")], &[], &[("c", "")]];
        for fields in maps {
            for (name, value) in fields {
                rest.push(name, value);
            }
            rest.end_row();
        }
        let column = |values: [&str; 3]| -> ArrayRef { Arc::new(StringViewArray::from_iter_values(values)) };
        let columns = vec![column(["x", "", "é"]), column(["", "", "y"]), rest.finish().expect("a map")];
        let batch = batch(&shape, columns, 3).expect("rows");
        Rows { shape: Arc::new(shape), batch, memory: None }
    }

    fn texts(rows: &Rows) -> Vec<String> {
        let text = |row: Vec<(String, String)>| {
            row.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        rows.to_texts().expect("texts").into_iter().map(text).collect()
    }

    #[test]
    fn rows_have_the_fields_that_are_not_empty() {
        let rows = rows();
        assert_eq!(texts(&rows), ["b=x c=1 d=2", "", "b=é a=y"]);
        assert_eq!(texts(&rows.slice(1, 2)), ["", "b=é a=y"]);
        assert_eq!(texts(&rows.slice(0, 2).slice(0, 1)), ["b=x c=1 d=2"]);
        let none = rows.slice(3, 0);
        assert!(none.is_empty() && texts(&none).is_empty());
        assert_eq!(format!("{rows:?}"), "3 rows of b, a, *");
        let counts = Shape { columns: vec![Column { name: "n".to_owned(), kind: ColumnStorage::Count }], rest: false };
        let batch = batch(&counts, vec![Arc::new(UInt64Array::from(vec![1])) as ArrayRef], 1).expect("rows");
        let counts = Rows { shape: Arc::new(counts), batch, memory: None };
        assert!(counts.to_texts().is_err(), "a number of rows is no text");
    }

    #[test]
    fn few_rows_let_their_block_go() {
        let block = |rows: usize| {
            let texts = (0..rows).map(|i| format!("a text that is longer than a view {i:08}"));
            let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
            batch(&Shape::of_texts(["a"]), vec![texts], rows).expect("rows")
        };
        let large = block(2000);
        let few = unpinned(large.slice(10, 3)).expect("rows");
        assert_eq!(few, large.slice(10, 3));
        let bytes = get_record_batch_memory_size(&few);
        assert!(bytes < PINNED_BYTES_MIN / 8, "{bytes}");
        // Most of a block, and a part of a small one, stay where they are.
        for part in [large.slice(0, 1900), block(50).slice(0, 1)] {
            let kept = unpinned(part.clone()).expect("rows");
            assert_eq!(get_record_batch_memory_size(&kept), get_record_batch_memory_size(&part));
        }
    }
}
