//! Reading what scans give: one row per series, its samples as lists. Slices point into the batch, nothing is copied
//! but histograms.

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

/// Buffers that a series needs beside its batch.
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

    /// Gives the samples of a series, stale markers included; with `stats_only` histograms without their buckets.
    pub(crate) fn series<'a>(
        &'a self,
        idx: usize,
        stats_only: bool,
        buffers: &'a mut SampleBuffers,
    ) -> Result<SeriesSamples<'a>> {
        let hists = self.hists.as_ref().map_or(0..0, |l| span(l, idx));
        buffers.hists.clear();
        if !hists.is_empty() {
            let column = self.hists.as_ref().and_then(|l| l.values().as_struct_opt()).ok_or_else(shape)?;
            for i in hists {
                buffers.hists.push(read_histogram(column, i).ok_or_else(shape)?);
            }
            if stats_only {
                buffers.hists = crate::histogram::stats_only(&buffers.hists);
            }
        }
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

/// Reads a row of a step matrix as samples on its grid: the inner query of a subquery.
///
/// Hints about counter resets no longer hold between the samples that a subquery picks, only `gauge` stays.
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
