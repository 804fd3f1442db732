//! Reads the batches of scans: one row per series, with its samples as lists. Slices point into the batch; only
//! histograms are copied.

use arrow::array::{AsArray, ListArray, ListViewArray, RecordBatch, UInt32Array};
use arrow::datatypes::{Float64Type, Int64Type, UInt32Type};
use datafusion::error::{DataFusionError, Result};
use quiver_types::histogram::read_histogram;
use quiver_types::{Histogram, Millis, ResetHint};

use crate::kernel::{Block, Grid, SeriesSamples};

/// A batch of a sample scan.
#[derive(Debug)]
pub(crate) struct SampleBatch {
    rows: UInt32Array,
    ts: Option<ListViewArray>,
    values: Option<ListViewArray>,
    start_ts: Option<ListArray>,
    hist_ts: Option<ListArray>,
    hist_start_ts: Option<ListArray>,
    hists: Option<ListArray>,
}

/// Reusable buffers for the data of a series that is not in its batch.
#[derive(Debug, Default)]
pub(crate) struct SampleBuffers {
    ts: Vec<Millis>,
    values: Vec<f64>,
    hist_ts: Vec<Millis>,
    hists: Vec<Histogram>,
}

fn shape() -> DataFusionError {
    DataFusionError::Internal("a batch that is no sample scan's".into())
}

impl SampleBatch {
    /// Takes the columns of a batch.
    pub(crate) fn new(batch: &RecordBatch) -> Result<Self> {
        let list = |name: &str| batch.column_by_name(name).and_then(|c| c.as_list_opt::<i32>()).cloned();
        let view = |name: &str| batch.column_by_name(name).and_then(|c| c.as_list_view_opt::<i32>()).cloned();
        let rows = batch.column_by_name("row").and_then(|c| c.as_primitive_opt::<UInt32Type>()).ok_or_else(shape)?;
        let taken = Self {
            rows: rows.clone(),
            ts: view("ts"),
            values: view("v"),
            start_ts: list("start_ts"),
            hist_ts: list("h_ts"),
            hist_start_ts: list("h_start_ts"),
            hists: list("h"),
        };
        if taken.ts.is_none() != taken.values.is_none() || taken.hist_ts.is_none() != taken.hists.is_none() {
            return Err(shape());
        }
        Ok(taken)
    }

    /// Number of series.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Row of a series in its table.
    pub(crate) fn row(&self, idx: usize) -> u32 {
        self.rows.value(idx)
    }

    /// The samples of a series, including stale markers.
    pub(crate) fn series<'a>(&'a self, idx: usize, buffers: &'a mut SampleBuffers) -> Result<SeriesSamples<'a>> {
        self.read_hists(idx, buffers)?;
        self.samples(idx, buffers)
    }

    /// The samples of a series, including stale markers, its histograms without their buckets.
    pub(crate) fn series_without_buckets<'a>(
        &'a self,
        idx: usize,
        buffers: &'a mut SampleBuffers,
    ) -> Result<SeriesSamples<'a>> {
        self.read_hists(idx, buffers)?;
        if !buffers.hists.is_empty() {
            buffers.hists = crate::histogram::stats_only(&buffers.hists);
        }
        self.samples(idx, buffers)
    }

    fn read_hists(&self, idx: usize, buffers: &mut SampleBuffers) -> Result<()> {
        let hists = self.hists.as_ref().map_or(0..0, |l| span(l, idx));
        buffers.hists.clear();
        if !hists.is_empty() {
            let column = self.hists.as_ref().and_then(|l| l.values().as_struct_opt()).ok_or_else(shape)?;
            for i in hists {
                buffers.hists.push(read_histogram(column, i).ok_or_else(shape)?);
            }
        }
        Ok(())
    }

    fn samples<'a>(&'a self, idx: usize, buffers: &'a SampleBuffers) -> Result<SeriesSamples<'a>> {
        Ok(SeriesSamples {
            ts: viewed::<Int64Type>(self.ts.as_ref(), idx)?,
            values: viewed::<Float64Type>(self.values.as_ref(), idx)?,
            start_ts: slice::<Int64Type>(self.start_ts.as_ref(), idx)?,
            hist_ts: slice::<Int64Type>(self.hist_ts.as_ref(), idx)?,
            hists: &buffers.hists,
            hist_start_ts: slice::<Int64Type>(self.hist_start_ts.as_ref(), idx)?,
        })
    }
}

fn refill<T>(buffer: &mut Vec<T>, items: impl Iterator<Item = T>) {
    buffer.clear();
    buffer.extend(items);
}

fn span(list: &ListArray, idx: usize) -> std::ops::Range<usize> {
    let offsets = list.value_offsets();
    offsets[idx] as usize..offsets[idx + 1] as usize
}

fn slice<T: arrow::datatypes::ArrowPrimitiveType>(list: Option<&ListArray>, idx: usize) -> Result<&[T::Native]> {
    let Some(list) = list else { return Ok(&[]) };
    let values = list.values().as_primitive_opt::<T>().ok_or_else(shape)?;
    Ok(&values.values()[span(list, idx)])
}

fn viewed<T: arrow::datatypes::ArrowPrimitiveType>(list: Option<&ListViewArray>, idx: usize) -> Result<&[T::Native]> {
    let Some(list) = list else { return Ok(&[]) };
    let values = list.values().as_primitive_opt::<T>().ok_or_else(shape)?;
    let start = list.value_offsets()[idx] as usize;
    Ok(&values.values()[start..start + list.value_sizes()[idx] as usize])
}

/// Reads a row of a step matrix as samples on its grid, for the inner query of a subquery.
///
/// Counter reset hints are not valid between the samples that a subquery selects; only `gauge` stays.
pub(crate) fn grid_samples<'a>(
    block: &Block,
    idx: usize,
    hists: &[(u32, u32, Histogram)],
    grid: &Grid,
    buffers: &'a mut SampleBuffers,
) -> SeriesSamples<'a> {
    let (values, present) = block.row(idx);
    let there = || (0..grid.steps).filter(|&s| present[s]);
    refill(&mut buffers.ts, there().map(|s| grid.at(s)));
    refill(&mut buffers.values, there().map(|s| values[s]));
    refill(&mut buffers.hist_ts, hists.iter().map(|h| grid.at(h.1 as usize)));
    let unhinted = |h: &Histogram| {
        let reset_hint = if h.reset_hint == ResetHint::Gauge { ResetHint::Gauge } else { ResetHint::Unknown };
        Histogram { reset_hint, ..h.clone() }
    };
    refill(&mut buffers.hists, hists.iter().map(|h| unhinted(&h.2)));
    SeriesSamples {
        ts: &buffers.ts,
        values: &buffers.values,
        start_ts: &[],
        hist_ts: &buffers.hist_ts,
        hists: &buffers.hists,
        hist_start_ts: &[],
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Float64Array, Int64Array};
    use arrow::buffer::ScalarBuffer;
    use arrow::datatypes::{DataType, Field};

    use super::*;
    use crate::histogram::testing::exponential;

    /// Views of 100, 101, 102 … as times or values: from where, and how many.
    fn views(views: &[(i32, i32)], of_times: bool) -> ArrayRef {
        let kind = if of_times { DataType::Int64 } else { DataType::Float64 };
        let values: ArrayRef = if of_times {
            Arc::new(Int64Array::from_iter_values(100..110))
        } else {
            Arc::new(Float64Array::from_iter_values((100..110).map(f64::from)))
        };
        let (starts, sizes): (Vec<i32>, Vec<i32>) = views.iter().copied().unzip();
        let field = Arc::new(Field::new("item", kind, false));
        Arc::new(
            ListViewArray::try_new(field, ScalarBuffer::from(starts), ScalarBuffer::from(sizes), values, None)
                .expect("views"),
        )
    }

    fn scanned(of: &[(i32, i32)]) -> RecordBatch {
        let rows: ArrayRef = Arc::new(UInt32Array::from_iter_values((0..of.len() as u32).map(|row| 10 + row)));
        RecordBatch::try_from_iter([("row", rows), ("ts", views(of, true)), ("v", views(of, false))]).expect("a batch")
    }

    fn series(batch: &SampleBatch, idx: usize) -> (u32, Vec<i64>, Vec<f64>) {
        let mut buffers = SampleBuffers::default();
        let samples = batch.series(idx, &mut buffers).expect("a series");
        (batch.row(idx), samples.ts.to_vec(), samples.values.to_vec())
    }

    #[test]
    fn views_need_not_be_in_order() {
        let batch = scanned(&[(2, 3), (0, 2), (9, 0), (2, 1)]);
        let taken = SampleBatch::new(&batch).expect("a batch of samples");
        assert_eq!(taken.len(), 4);
        assert_eq!(series(&taken, 0), (10, vec![102, 103, 104], vec![102.0, 103.0, 104.0]));
        assert_eq!(series(&taken, 1), (11, vec![100, 101], vec![100.0, 101.0]));
        assert_eq!(series(&taken, 2), (12, vec![], vec![]));
        assert_eq!(series(&taken, 3), (13, vec![102], vec![102.0]));
        // A part of a batch has the lists of the whole.
        let part = SampleBatch::new(&batch.slice(1, 2)).expect("a batch of samples");
        assert_eq!((part.len(), series(&part, 0)), (2, (11, vec![100, 101], vec![100.0, 101.0])));
        assert_eq!(SampleBatch::new(&batch.slice(4, 0)).expect("a batch of samples").len(), 0);
    }

    #[test]
    fn what_is_no_scan_is_refused() {
        let batch = scanned(&[(0, 1)]);
        let columns = |names: &[usize]| batch.project(names).expect("columns");
        assert!(SampleBatch::new(&columns(&[0, 1, 2])).is_ok());
        assert!(SampleBatch::new(&columns(&[0])).is_ok(), "of histograms alone there might be none");
        assert!(SampleBatch::new(&columns(&[0, 1])).is_err(), "times without values");
        assert!(SampleBatch::new(&columns(&[1, 2])).is_err(), "nobody's samples");
        // Values in the place of times.
        let rows = Arc::clone(batch.column(0));
        let swapped =
            RecordBatch::try_from_iter([("row", rows), ("ts", views(&[(0, 1)], false)), ("v", views(&[(0, 1)], true))]);
        let swapped = SampleBatch::new(&swapped.expect("a batch")).expect("its columns have the names");
        assert!(swapped.series(0, &mut SampleBuffers::default()).is_err());
    }

    /// A subquery has samples where its steps have values; what its histograms say of resets holds no longer.
    #[test]
    fn steps_become_samples() {
        let hist = |step: u32, reset_hint| (1, step, Histogram { reset_hint, ..exponential(0, 1, &[2.0]) });
        let block = Block {
            rows: vec![7, 8],
            steps: 4,
            values: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
            present: vec![true, false, true, true, false, true, false, false],
            hists: vec![hist(0, ResetHint::Gauge), hist(2, ResetHint::Reset), hist(3, ResetHint::NotReset)],
        };
        let grid = Grid { start: -1000, step_ms: 500, steps: 4 };
        let mut buffers = SampleBuffers::default();
        let first = grid_samples(&block, 0, &[], &grid, &mut buffers);
        assert_eq!((first.ts, first.values), (&[-1000, 0, 500][..], &[1.0, 3.0, 4.0][..]));
        assert!(first.hist_ts.is_empty() && first.hists.is_empty() && first.start_ts.is_empty());
        // The buffers are those of the series before.
        let second = grid_samples(&block, 1, &block.hists, &grid, &mut buffers);
        assert_eq!((second.ts, second.values, second.hist_ts), (&[-500][..], &[6.0][..], &[-1000, 0, 500][..]));
        let hints: Vec<ResetHint> = second.hists.iter().map(|h| h.reset_hint).collect();
        assert_eq!(hints, [ResetHint::Gauge, ResetHint::Unknown, ResetHint::Unknown]);
        assert!(second.hists.iter().all(|h| h.count == 2.0));
    }
}
