//! The newest sample of each series, with its own time. (A rollup returns values at the steps of a query, without the
//! times of the samples.)

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, ListArray, UInt32Array};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef, UInt32Type};
use arrow::record_batch::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use quiver_types::histogram::{HistogramBuilder, histogram_fields, read_histogram};
use quiver_types::{Histogram, Millis, is_stale};
use serde::{Deserialize, Serialize};

use super::driver::{Worker, drive};
use super::operator_encoding::{self, Form};
use super::samples::{SampleBatch, SampleBuffers};
use super::{Batches, Env, Spread, StepOperator};
use crate::kernel::SeriesSamples;
use crate::run_state::RunState;

/// Used in `Newest::places` for a series that is not in the result.
pub(crate) const NOT_WANTED: u32 = u32::MAX;

/// Column with the places, by which results are sorted.
pub(crate) const PLACE: &str = "row";

/// Takes samples; returns one row for each series that has not ended.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Newest {
    /// Place in the result of each series of the scan.
    pub(crate) places: Vec<u32>,
    /// Whether histograms are possible in the result.
    pub(crate) histograms: bool,
}

/// The schema: place, time, and a float or else a list of one histogram.
fn newest_schema(histograms: bool) -> SchemaRef {
    let mut fields = vec![
        Field::new(PLACE, DataType::UInt32, false),
        Field::new("ts", DataType::Int64, false),
        Field::new("v", DataType::Float64, true),
    ];
    if histograms {
        fields.push(Field::new("h", DataType::List(item()), false));
    }
    Arc::new(Schema::new(fields))
}

fn item() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::Struct(histogram_fields()), false))
}

impl StepOperator for Newest {
    fn name(&self) -> &'static str {
        "NewestSample"
    }

    fn detail(&self) -> String {
        format!("series={}", self.places.iter().filter(|place| **place != NOT_WANTED).count())
    }

    fn schema(&self) -> SchemaRef {
        newest_schema(self.histograms)
    }

    fn spread(&self) -> Spread {
        Spread::Each
    }

    fn written(&self) -> Result<Vec<u8>> {
        operator_encoding::body(self)
    }

    fn open(self: Arc<Self>, mut inputs: Vec<SendableRecordBatchStream>, env: Env) -> Batches {
        let input = inputs.swap_remove(0);
        drive(input, NewestWorker { newest: self, buffers: SampleBuffers::default(), run: env.run })
    }
}

impl Form for Newest {
    const KIND: &'static str = "Newest";
}

struct NewestWorker {
    newest: Arc<Newest>,
    buffers: SampleBuffers,
    run: Arc<RunState>,
}

impl Worker for NewestWorker {
    fn push(&mut self, batch: RecordBatch) -> Result<Vec<RecordBatch>> {
        self.run.hold(0)?;
        let batch = SampleBatch::new(&batch)?;
        let mut rows = Rows::default();
        for idx in 0..batch.len() {
            let place = self.newest.places[batch.row(idx) as usize];
            if place == NOT_WANTED {
                continue;
            }
            let samples = batch.series(idx, &mut self.buffers)?;
            self.run.did(1 + samples.hists.len())?;
            if let Some(last) = last(&samples) {
                rows.push(place, last);
            }
        }
        if rows.places.is_empty() { Ok(vec![]) } else { rows.finish(self.newest.histograms).map(|batch| vec![batch]) }
    }
}

/// A sample: a float or a histogram.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Last<'a> {
    Float(Millis, f64),
    Histogram(Millis, &'a Histogram),
}

/// The newest sample; `None` if it marks the end of the series.
fn last<'a>(samples: &SeriesSamples<'a>) -> Option<Last<'a>> {
    let float = samples.ts.last().zip(samples.values.last());
    let hist = samples.hist_ts.last().zip(samples.hists.last());
    match (float, hist) {
        (Some((ts, v)), hist) if hist.is_none_or(|(t, _)| t < ts) => (!is_stale(*v)).then_some(Last::Float(*ts, *v)),
        (_, Some((ts, h))) => (!h.is_stale()).then_some(Last::Histogram(*ts, h)),
        _ => None,
    }
}

/// The columns of a batch.
#[derive(Default)]
struct Rows {
    places: Vec<u32>,
    ts: Vec<Millis>,
    values: Vec<Option<f64>>,
    hists: HistogramBuilder,
}

impl Rows {
    fn push(&mut self, place: u32, last: Last<'_>) {
        self.places.push(place);
        match last {
            Last::Float(ts, v) => {
                self.ts.push(ts);
                self.values.push(Some(v));
            }
            Last::Histogram(ts, h) => {
                self.ts.push(ts);
                self.values.push(None);
                self.hists.push(h);
            }
        }
    }

    fn finish(mut self, histograms: bool) -> Result<RecordBatch> {
        // A row without a float has a histogram.
        let lengths: Vec<usize> = self.values.iter().map(|v| usize::from(v.is_none())).collect();
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from(self.places)),
            Arc::new(Int64Array::from(self.ts)),
            Arc::new(Float64Array::from(self.values)),
        ];
        if histograms {
            let hists = Arc::new(self.hists.finish());
            columns.push(Arc::new(ListArray::try_new(item(), OffsetBuffer::from_lengths(lengths), hists, None)?));
        } else if !self.hists.is_empty() {
            return Err(DataFusionError::Internal("histograms in a scan that can give none".into()));
        }
        Ok(RecordBatch::try_new(newest_schema(histograms), columns)?)
    }
}

/// The value of a sample.
#[derive(Debug, Clone, PartialEq)]
pub enum NewestValue {
    /// A float; never the stale marker.
    Float(f64),
    /// A native histogram; never stale.
    Histogram(Box<Histogram>),
}

/// Calls a function for each row of a batch from [`Newest`], with place, time, and the float or histogram.
pub(crate) fn each_row(
    batch: &RecordBatch,
    mut visit: impl FnMut(u32, Millis, NewestValue) -> quiver_types::Result<()>,
) -> quiver_types::Result<()> {
    let shape = || quiver_types::Error::internal("a batch that has no newest samples");
    let places = batch.column(0).as_primitive_opt::<UInt32Type>().ok_or_else(shape)?;
    let times = batch.column(1).as_primitive_opt::<Int64Type>().ok_or_else(shape)?;
    let values = batch.column(2).as_primitive_opt::<Float64Type>().ok_or_else(shape)?;
    let lists = batch.columns().get(3).map(|column| column.as_list_opt::<i32>().ok_or_else(shape)).transpose()?;
    for idx in 0..batch.num_rows() {
        let value = if values.is_valid(idx) {
            NewestValue::Float(values.value(idx))
        } else {
            let lists = lists.ok_or_else(shape)?;
            let hists = lists.values().as_struct_opt().ok_or_else(shape)?;
            let hist = read_histogram(hists, lists.value_offsets()[idx] as usize).ok_or_else(shape)?;
            NewestValue::Histogram(Box::new(hist))
        };
        visit(places.value(idx), times.value(idx), value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(count: f64) -> Histogram {
        Histogram { count, ..Histogram::default() }
    }

    #[test]
    fn the_newest_of_both_kinds() {
        let stale = f64::from_bits(0x7ff0_0000_0000_0002);
        let (hists, ended) = ([histogram(1.0), histogram(2.0)], [Histogram::stale()]);
        let floats = SeriesSamples { ts: &[10, 20], values: &[1.0, 2.0], ..SeriesSamples::default() };
        assert_eq!(last(&floats), Some(Last::Float(20, 2.0)));
        let both = SeriesSamples { hist_ts: &[5, 30], hists: &hists, ..floats };
        assert_eq!(last(&both), Some(Last::Histogram(30, &hists[1])));
        let both = SeriesSamples { hist_ts: &[5, 15], hists: &hists, ..floats };
        assert_eq!(last(&both), Some(Last::Float(20, 2.0)));
        assert_eq!(last(&SeriesSamples { values: &[1.0, stale], ..floats }), None);
        assert_eq!(last(&SeriesSamples { hist_ts: &[30], hists: &ended, ..floats }), None);
        assert_eq!(last(&SeriesSamples::default()), None);
    }

    #[test]
    fn rows_come_back() {
        let hist = histogram(3.0);
        let mut rows = Rows::default();
        rows.push(7, Last::Float(10, 1.5));
        rows.push(2, Last::Histogram(20, &hist));
        rows.push(0, Last::Float(30, f64::INFINITY));
        let batch = rows.finish(true).unwrap();
        let mut found = Vec::new();
        // Rows that were cut out of a batch point into lists of all of it.
        for batch in [batch.slice(1, 2), batch.slice(0, 1)] {
            each_row(&batch, |place, ts, value| {
                found.push((place, ts, value));
                Ok(())
            })
            .unwrap();
        }
        let float = NewestValue::Float;
        let expected =
            [(2, 20, NewestValue::Histogram(Box::new(hist))), (0, 30, float(f64::INFINITY)), (7, 10, float(1.5))];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_scan_without_histograms_has_no_column_of_them() {
        let mut rows = Rows::default();
        rows.push(7, Last::Float(10, 1.5));
        let batch = rows.finish(false).unwrap();
        assert_eq!((batch.num_columns(), batch.schema()), (3, newest_schema(false)));
        let hist = histogram(1.0);
        let mut rows = Rows::default();
        rows.push(7, Last::Histogram(10, &hist));
        assert!(rows.finish(false).is_err());
    }
}
