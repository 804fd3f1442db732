//! Converts step matrices to record batches and back.
//!
//! Columns: `row` `UInt32`, the row in the operator's `SeriesTable`; `v` `FixedSizeList<Float64, S>`, one value per
//! step, null if there is none; and if native histograms are possible `h` `List<Struct{step, hist}>`, histograms by
//! step. A row occurs in one batch only, and has at least one value. Child buffers are passed on without copying.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray, Float64Array, ListArray, StructArray, UInt32Array};
use arrow::buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Fields, Float64Type, Schema, SchemaRef, UInt32Type};
use arrow::record_batch::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use quiver_types::Histogram;
use quiver_types::histogram::{HistogramBuilder, histogram_fields, read_histogram};

use crate::kernel::Block;

/// Target number of values per batch.
pub(crate) const VALUES_PER_BATCH: usize = 128 * 1024;

/// Histograms of so many bytes also end a batch.
const HISTOGRAM_BYTES_PER_BATCH: usize = 4 << 20;
/// Where histograms are possible, this fraction (1/n) of the rows of a batch is taken at a time.
const WITH_HISTOGRAMS: usize = 64;
/// Rows of more steps count before they are made; of fewer, a batch is small.
const FEW_STEPS: usize = 8 * 1024;

pub(crate) fn rows_per_batch(steps: usize) -> usize {
    (VALUES_PER_BATCH / steps.max(1)).max(1)
}

fn histogram_item() -> Fields {
    Fields::from(vec![
        Field::new("step", DataType::UInt32, false),
        Field::new("hist", DataType::Struct(histogram_fields()), false),
    ])
}

/// The schema of a step matrix.
pub(crate) fn matrix_schema(steps: usize, histograms: bool) -> SchemaRef {
    let item = Arc::new(Field::new("item", DataType::Float64, true));
    let mut fields = vec![
        Field::new("row", DataType::UInt32, false),
        Field::new("v", DataType::FixedSizeList(item, steps as i32), false),
    ];
    if histograms {
        let item = Arc::new(Field::new("item", DataType::Struct(histogram_item()), false));
        fields.push(Field::new("h", DataType::List(item), false));
    }
    Arc::new(Schema::new(fields))
}

/// Converts a block to a batch. If the block has histograms, the schema must have the column `h`.
pub(crate) fn to_batch(block: Block, schema: &SchemaRef) -> Result<RecordBatch> {
    let Block { rows, steps, values, present, hists } = block;
    let count = rows.len();
    let nulls = Some(NullBuffer::new(BooleanBuffer::from(present))).filter(|n| n.null_count() > 0);
    let child = Float64Array::new(ScalarBuffer::from(values), nulls);
    let item = Arc::new(Field::new("item", DataType::Float64, true));
    let matrix = FixedSizeListArray::try_new(item, steps as i32, Arc::new(child), None)?;
    let mut columns: Vec<ArrayRef> = vec![Arc::new(UInt32Array::from(rows)), Arc::new(matrix)];
    if schema.fields().len() > 2 {
        let mut builder = HistogramBuilder::default();
        let mut at = Vec::with_capacity(hists.len());
        let mut lengths = vec![0usize; count];
        for (row, step, histogram) in &hists {
            builder.push(histogram);
            at.push(*step);
            lengths[*row as usize] += 1;
        }
        let items: Vec<ArrayRef> = vec![Arc::new(UInt32Array::from(at)), Arc::new(builder.finish())];
        let items = StructArray::try_new(histogram_item(), items, None)?;
        let item = Arc::new(Field::new("item", DataType::Struct(histogram_item()), false));
        columns.push(Arc::new(ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), Arc::new(items), None)?));
    } else if !hists.is_empty() {
        return Err(DataFusionError::Internal("histograms in a matrix that can hold none".into()));
    }
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// Converts a batch to a block; takes its values without copying if they are not shared.
pub(crate) fn to_block(batch: RecordBatch) -> Result<Block> {
    let shape = || DataFusionError::Internal("a batch that is no step matrix".into());
    if batch.num_columns() < 2 {
        return Err(shape());
    }
    let rows = batch.column(0).as_primitive_opt::<UInt32Type>().ok_or_else(shape)?.values().to_vec();
    let matrix = batch.column(1).as_fixed_size_list_opt().ok_or_else(shape)?.clone();
    let mut hists = Vec::new();
    if let Some(column) = batch.columns().get(2) {
        let lists = column.as_list_opt::<i32>().ok_or_else(shape)?;
        let items = lists.values().as_struct_opt().ok_or_else(shape)?;
        let steps = items.column(0).as_primitive_opt::<UInt32Type>().ok_or_else(shape)?;
        let histograms = items.column(1).as_struct_opt().ok_or_else(shape)?;
        for (row, range) in lists.offsets().windows(2).enumerate() {
            for i in range[0] as usize..range[1] as usize {
                let histogram = read_histogram(histograms, i).ok_or_else(shape)?;
                hists.push((row as u32, steps.value(i), histogram));
            }
        }
    }
    drop(batch);
    let steps = matrix.value_length() as usize;
    let (offset, len) = (matrix.value_offset(0) as usize, matrix.len() * steps);
    let (_, _, child, _) = matrix.into_parts();
    let values = child.as_primitive_opt::<Float64Type>().ok_or_else(shape)?.slice(offset, len);
    drop(child);
    let present = values.nulls().map_or_else(|| vec![true; values.len()], |n| n.iter().collect());
    let (_, buffer, _) = values.into_parts();
    let values = match buffer.into_inner().into_vec::<f64>() {
        Ok(vec) => vec,
        Err(shared) => ScalarBuffer::<f64>::from(shared).to_vec(),
    };
    Ok(Block { rows, steps, values, present, hists })
}

/// Bytes of a histogram at a step.
pub(crate) fn histogram_bytes(histogram: &Histogram) -> usize {
    histogram.memory_bytes() + 2 * size_of::<u32>()
}

/// Bytes that histograms of a block take until they are in a batch, which has a copy of them.
pub(crate) fn histograms_bytes(bytes: usize) -> usize {
    bytes.saturating_mul(2)
}

/// Collects rows into blocks of a suitable size.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    schema: SchemaRef,
    block: Block,
    rows_max: usize,
    /// Bytes of the histograms in the block.
    histogram_bytes: usize,
}

impl BlockBuilder {
    /// Creates a builder for batches with a schema.
    pub(crate) fn new(steps: usize, schema: SchemaRef) -> Self {
        Self { schema, block: Block::new(steps), rows_max: rows_per_batch(steps), histogram_bytes: 0 }
    }

    /// Number of rows to take at a time.
    pub(crate) fn rows_max(&self) -> usize {
        if self.schema.fields().len() > 2 { (self.rows_max / WITH_HISTOGRAMS).max(1) } else { self.rows_max }
    }

    /// Bytes of the rows so far that count before they are made.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.block.rows.len() * self.row_bytes() + histograms_bytes(self.histogram_bytes)
    }

    /// Bytes of a row besides its histograms; 0 where it has few steps.
    pub(crate) fn row_bytes(&self) -> usize {
        let steps = self.block.steps;
        if steps > FEW_STEPS { steps * (size_of::<f64>() + 2) } else { 0 }
    }

    /// Appends an empty row; returns its values and presence to be filled.
    pub(crate) fn row(&mut self, row: u32) -> (&mut [f64], &mut [bool]) {
        let at = self.block.rows.len() * self.block.steps;
        self.block.rows.push(row);
        self.block.values.resize(at + self.block.steps, 0.0);
        self.block.present.resize(at + self.block.steps, false);
        (&mut self.block.values[at..], &mut self.block.present[at..])
    }

    /// Appends histograms to the last row.
    pub(crate) fn histograms(&mut self, hists: impl IntoIterator<Item = (u32, Histogram)>) {
        let idx = (self.block.rows.len() - 1) as u32;
        let before = self.block.hists.len();
        self.block.hists.extend(hists.into_iter().map(|(step, h)| (idx, step, h)));
        self.histogram_bytes += self.block.hists[before..].iter().map(|h| histogram_bytes(&h.2)).sum::<usize>();
    }

    /// Removes the last row if it is empty; returns the number of its values.
    pub(crate) fn end_row(&mut self) -> usize {
        let at = (self.block.rows.len() - 1) * self.block.steps;
        let idx = (self.block.rows.len() - 1) as u32;
        let floats = self.block.present[at..].iter().filter(|p| **p).count();
        let hists = self.block.hists.iter().rev().take_while(|h| h.0 == idx).count();
        if floats + hists == 0 {
            self.block.rows.pop();
            self.block.values.truncate(at);
            self.block.present.truncate(at);
        }
        floats + hists
    }

    /// Returns a batch if there are enough rows.
    pub(crate) fn full(&mut self) -> Result<Option<RecordBatch>> {
        let is_full = self.block.rows.len() >= self.rows_max || self.histogram_bytes >= HISTOGRAM_BYTES_PER_BATCH;
        if is_full { self.flush() } else { Ok(None) }
    }

    /// Returns a batch of the remaining rows.
    pub(crate) fn flush(&mut self) -> Result<Option<RecordBatch>> {
        if self.block.rows.is_empty() {
            return Ok(None);
        }
        let block = std::mem::replace(&mut self.block, Block::new(0));
        self.block = Block::new(block.steps);
        self.histogram_bytes = 0;
        to_batch(block, &self.schema).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let block = Block {
            rows: vec![3, 1],
            steps: 2,
            values: vec![1.0, f64::NAN, 0.0, 4.0],
            present: vec![true, true, false, true],
            hists: vec![(1, 0, Histogram { count: 5.0, ..Histogram::default() })],
        };
        let batch = to_batch(block.clone(), &matrix_schema(2, true)).unwrap();
        let sliced = to_block(batch.slice(1, 1)).unwrap();
        assert_eq!((sliced.rows, sliced.values[1], sliced.hists.len()), (vec![1], 4.0, 1));
        let address = batch.column(1).as_fixed_size_list().values().as_primitive::<Float64Type>().values().as_ptr();
        let back = to_block(batch).unwrap();
        assert_eq!(back.values.as_ptr(), address, "no copy");
        assert_eq!((back.rows, back.present, back.hists), (block.rows, block.present, block.hists));
        assert!(back.values[1].is_nan());
    }

    #[test]
    fn builder_leaves_out_empty_rows() {
        let mut b = BlockBuilder::new(2, matrix_schema(2, false));
        b.row(0);
        assert_eq!(b.end_row(), 0);
        let (values, present) = b.row(1);
        (values[1], present[1]) = (5.0, true);
        assert_eq!(b.end_row(), 1);
        let batch = b.flush().unwrap().unwrap();
        assert_eq!(batch.num_rows(), 1);
        assert!(b.flush().unwrap().is_none());
    }

    #[test]
    fn what_is_no_matrix_is_refused() {
        let block = || Block { rows: vec![3], steps: 1, values: vec![1.0], present: vec![true], ..Block::default() };
        let batch = to_batch(block(), &matrix_schema(1, true)).unwrap();
        for columns in [&[0][..], &[1, 0], &[0, 0], &[0, 1, 1]] {
            assert!(to_block(batch.project(columns).unwrap()).is_err(), "{columns:?}");
        }
        assert!(to_block(batch.project(&[0, 1]).unwrap()).is_ok());
        let with_histogram = Block { hists: vec![(0, 0, Histogram::default())], ..block() };
        assert!(to_batch(with_histogram, &matrix_schema(1, false)).is_err(), "there is no place for it");
    }

    #[test]
    fn batches_are_of_a_good_size() {
        assert_eq!((rows_per_batch(0), rows_per_batch(1)), (VALUES_PER_BATCH, VALUES_PER_BATCH));
        assert_eq!((rows_per_batch(1000), rows_per_batch(VALUES_PER_BATCH), rows_per_batch(usize::MAX)), (131, 1, 1));
        let steps = VALUES_PER_BATCH / 3;
        let mut out = BlockBuilder::new(steps, matrix_schema(steps, true));
        assert_eq!((out.rows_max(), out.row_bytes()), (1, 10 * steps), "each may have many histograms");
        assert_eq!(BlockBuilder::new(steps, matrix_schema(steps, false)).rows_max(), 3);
        let mut sizes = Vec::new();
        for row in 0..8 {
            let (values, present) = out.row(row);
            (values[0], present[0]) = (f64::from(row), row % 4 != 3);
            if row == 7 {
                out.histograms([(1, Histogram::default())]);
            }
            // Row 3 has nothing, row 7 a histogram only.
            assert_eq!(out.end_row(), usize::from(row != 3), "{row}");
            sizes.extend(out.full().unwrap().map(|batch| batch.num_rows()));
        }
        sizes.extend(out.flush().unwrap().map(|batch| batch.num_rows()));
        assert_eq!(sizes, [3, 3, 1]);
    }

    #[test]
    fn many_histograms_end_a_batch() {
        let wide = Histogram { positive: vec![1.0; HISTOGRAM_BYTES_PER_BATCH / 16], ..Histogram::default() };
        let mut out = BlockBuilder::new(3, matrix_schema(3, true));
        let mut sizes = Vec::new();
        for row in 0..5 {
            out.row(row);
            out.histograms([(1, wide.clone())]);
            out.end_row();
            let bytes = out.memory_bytes();
            assert!(bytes >= HISTOGRAM_BYTES_PER_BATCH, "{bytes}");
            sizes.push(out.full().unwrap().map_or(0, |batch| batch.num_rows()));
        }
        assert_eq!((sizes, out.row_bytes()), (vec![0, 2, 0, 2, 0], 0));
    }
}
