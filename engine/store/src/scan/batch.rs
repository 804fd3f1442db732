//! Builds the batches of a sample scan: one row per series, with its samples as lists.
//!
//! The samples of a series come as one run per source. Runs that do not overlap in time are copied one after the other;
//! overlapping ones are merged by the rule for equal times in `series_run`.

use std::sync::{Arc, LazyLock, OnceLock};

use arrow::array::{ArrayRef, Float64Array, Int64Array, ListArray, ListViewArray, RecordBatch, UInt32Array};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use quiver_types::histogram::{HistogramBuilder, histogram_fields};
use quiver_types::{Millis, SampleRequest};
use smallvec::SmallVec;

use crate::sample_blocks::{Place, SampleBlock};
use crate::series_run::{FloatRun, HistRun, better_float};

fn item(data_type: DataType) -> FieldRef {
    Arc::new(Field::new("item", data_type, false))
}

/// A column value for series without histograms.
static NO_HISTOGRAMS: LazyLock<ArrayRef> = LazyLock::new(|| Arc::new(HistogramBuilder::default().finish()));

/// The schema of a scan before projection; each variant is created once.
pub(super) fn schema(request: &SampleRequest) -> SchemaRef {
    static MADE: [OnceLock<SchemaRef>; 8] = [const { OnceLock::new() }; 8];
    let bits = [request.floats, request.start_times, request.histograms];
    let which = bits.iter().fold(0, |n, &bit| n * 2 + usize::from(bit));
    Arc::clone(MADE[which].get_or_init(|| make_schema(request)))
}

fn make_schema(request: &SampleRequest) -> SchemaRef {
    let list = |name: &str, t: DataType| Field::new(name, DataType::List(item(t)), false);
    let view = |name: &str, t: DataType| Field::new(name, DataType::ListView(item(t)), false);
    let mut fields = vec![Field::new("row", DataType::UInt32, false)];
    if request.floats {
        fields.extend([view("ts", DataType::Int64), view("v", DataType::Float64)]);
        if request.start_times {
            fields.push(list("start_ts", DataType::Int64));
        }
    }
    if request.histograms {
        let histogram = DataType::Struct(histogram_fields());
        fields.extend([list("h_ts", DataType::Int64), list("h_start_ts", DataType::Int64), list("h", histogram)]);
    }
    Arc::new(Schema::new(fields))
}

/// Samples of a series from one source; `starts` is empty if no start time is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct FloatView<'a> {
    ts: &'a [Millis],
    values: &'a [f64],
    starts: &'a [Millis],
}

/// Samples of one series, one view per source.
pub(super) type FloatViews<'a> = SmallVec<[FloatView<'a>; 8]>;

impl<'a> FloatView<'a> {
    pub(super) fn new(run: &'a FloatRun) -> Self {
        Self { ts: &run.ts, values: &run.values, starts: &run.start_ts }
    }

    pub(super) fn of_block(block: &'a SampleBlock, place: Place) -> Self {
        let (ts, values) = block.samples(place);
        Self { ts, values, starts: &[] }
    }

    fn start(&self, i: usize) -> Millis {
        self.starts.get(i).copied().unwrap_or(0)
    }

    fn last_ts(&self) -> Millis {
        self.ts[self.ts.len() - 1]
    }

    /// Splits off the first `n` samples.
    fn split(&mut self, n: usize) -> Self {
        let (ts, ts_rest) = self.ts.split_at(n);
        let (values, values_rest) = self.values.split_at(n);
        let (starts, starts_rest) = self.starts.split_at(n.min(self.starts.len()));
        *self = Self { ts: ts_rest, values: values_rest, starts: starts_rest };
        Self { ts, values, starts }
    }
}

/// Float samples of the rows so far. A row's `starts` are empty if no start time is known. Consecutive rows with the
/// same times, such as series of one target, share them: this halves the copying, and operators that look for time
/// windows find them only once.
#[derive(Debug)]
struct Floats {
    ts: Vec<Millis>,
    values: Vec<f64>,
    /// For each row, the index where its times start.
    ts_at: Vec<i32>,
    /// End of each row's values, after a leading zero.
    ends: Vec<i32>,
    /// Start of the current row's times.
    row_ts: usize,
    starts: Vec<Millis>,
    start_ends: Vec<i32>,
    /// Whether the current row has start times.
    row_has_starts: bool,
}

impl Floats {
    fn new() -> Self {
        let (ends, start_ends) = (vec![0], vec![0]);
        Self {
            ts: Vec::new(),
            values: Vec::new(),
            ts_at: Vec::new(),
            ends,
            row_ts: 0,
            starts: Vec::new(),
            start_ends,
            row_has_starts: false,
        }
    }

    fn copy(&mut self, view: &FloatView<'_>) {
        self.ts.extend_from_slice(view.ts);
        self.copy_values(view);
    }

    fn copy_values(&mut self, view: &FloatView<'_>) {
        self.values.extend_from_slice(view.values);
        if self.row_has_starts {
            let len = self.starts.len() + view.ts.len();
            self.starts.extend_from_slice(view.starts);
            self.starts.resize(len, 0);
        }
    }

    fn push(&mut self, ts: Millis, (value, start): (f64, Millis)) {
        self.ts.push(ts);
        self.values.push(value);
        if self.row_has_starts {
            self.starts.push(start);
        }
    }

    /// If the views, concatenated, have the same times as the previous row, the index where those start.
    fn times_before(&self, views: &FloatViews<'_>) -> Option<usize> {
        let (&at, [.., start, end]) = (self.ts_at.last()?, &self.ends[..]) else { return None };
        let mut before = &self.ts[at as usize..][..(end - start) as usize];
        for view in views {
            let (own, rest) = before.split_at_checked(view.ts.len())?;
            if own != view.ts {
                return None;
            }
            before = rest;
        }
        before.is_empty().then_some(at as usize)
    }

    /// Appends the samples of a series, except those at the given times.
    fn append(&mut self, views: &mut FloatViews<'_>, without: &[Millis], with_starts: bool) {
        let (first, first_start) = (self.values.len(), self.starts.len());
        self.row_ts = self.ts.len();
        views.retain(|v| !v.ts.is_empty());
        self.row_has_starts = with_starts && views.iter().any(|v| !v.starts.is_empty());
        if !views.is_sorted_by_key(|v| v.ts[0]) {
            views.sort_by_key(|v| v.ts[0]);
        }
        if views.windows(2).all(|w| w[0].last_ts() < w[1].ts[0]) {
            match self.times_before(views) {
                // With samples to drop, the row needs times of its own.
                Some(at) if without.is_empty() => {
                    self.row_ts = at;
                    views.iter().for_each(|view| self.copy_values(view));
                }
                _ => views.iter().for_each(|view| self.copy(view)),
            }
        } else {
            self.merge(views);
        }
        if !without.is_empty() {
            self.drop_times(first, first_start, without);
        }
        if self.starts[first_start..].iter().all(|&start| start == 0) {
            self.starts.truncate(first_start);
        }
    }

    /// Merges overlapping views.
    fn merge(&mut self, views: &mut FloatViews<'_>) {
        while !views.is_empty() {
            let mut first = 0;
            let mut next_ts = None::<Millis>;
            for (i, view) in views.iter().enumerate().skip(1) {
                let ts = view.ts[0];
                let other = if ts < views[first].ts[0] { std::mem::replace(&mut first, i) } else { i };
                let other_ts = views[other].ts[0];
                next_ts = Some(next_ts.map_or(other_ts, |next| next.min(other_ts)));
            }
            let ts = views[first].ts[0];
            if next_ts == Some(ts) {
                let mut best: Option<(f64, Millis)> = None;
                for view in views.iter_mut().filter(|v| v.ts[0] == ts) {
                    let sample = (view.values[0], view.start(0));
                    best = Some(best.map_or(sample, |best| better_float(best, sample)));
                    view.split(1);
                }
                if let Some(best) = best {
                    self.push(ts, best);
                }
            } else {
                let view = &mut views[first];
                let n = next_ts.map_or(view.ts.len(), |next| view.ts.partition_point(|&t| t < next));
                let run = view.split(n);
                self.copy(&run);
            }
            views.retain(|v| !v.ts.is_empty());
        }
    }

    /// Drops samples of the current row at the given ascending times; its values start at `first`.
    fn drop_times(&mut self, first: usize, first_start: usize, times: &[Millis]) {
        let first_ts = self.row_ts;
        let mut kept = 0;
        let mut at = 0;
        for i in 0..self.ts.len() - first_ts {
            let ts = self.ts[first_ts + i];
            at += times[at..].partition_point(|&t| t < ts);
            if times.get(at) == Some(&ts) {
                continue;
            }
            self.ts[first_ts + kept] = ts;
            self.values[first + kept] = self.values[first + i];
            if self.row_has_starts {
                self.starts[first_start + kept] = self.starts[first_start + i];
            }
            kept += 1;
        }
        self.ts.truncate(first_ts + kept);
        self.values.truncate(first + kept);
        if self.row_has_starts {
            self.starts.truncate(first_start + kept);
        }
    }

    fn end_row(&mut self) {
        self.ts_at.push(self.row_ts as i32);
        self.ends.push(self.values.len() as i32);
        self.start_ends.push(self.starts.len() as i32);
    }
}

/// Histograms of the rows so far.
#[derive(Debug, Default)]
struct Hists {
    ts: Vec<Millis>,
    starts: Vec<Millis>,
    /// Created with the first histogram, because it has many columns.
    builder: Option<HistogramBuilder>,
    ends: Vec<i32>,
    start_ends: Vec<i32>,
}

impl Hists {
    fn new() -> Self {
        Self { ends: vec![0], start_ends: vec![0], ..Self::default() }
    }

    fn append(&mut self, run: &HistRun) {
        self.ts.extend_from_slice(&run.ts);
        self.starts.extend_from_slice(&run.start_ts);
        let builder = self.builder.get_or_insert_default();
        run.hists.iter().for_each(|h| builder.push(h));
    }

    fn end_row(&mut self) {
        self.ends.push(self.ts.len() as i32);
        self.start_ends.push(self.starts.len() as i32);
    }
}

/// Collects whole series until the batch is full.
#[derive(Debug)]
pub(super) struct BatchBuilder {
    request: SampleRequest,
    schema: SchemaRef,
    rows: Vec<u32>,
    floats: Floats,
    hists: Hists,
}

impl BatchBuilder {
    pub(super) fn new(request: SampleRequest) -> Self {
        Self { schema: schema(&request), request, rows: Vec::new(), floats: Floats::new(), hists: Hists::new() }
    }

    /// Number of rows so far.
    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Number of samples so far; a histogram counts as ten.
    pub(super) fn weight(&self) -> usize {
        self.floats.values.len() + 10 * self.hists.ts.len()
    }

    /// Adds a series. A histogram hides the float sample at the same time, even if histograms were not requested. A
    /// series without samples is skipped.
    pub(super) fn push(&mut self, row: u32, floats: &mut FloatViews<'_>, hists: &HistRun) {
        let before = self.floats.values.len();
        if self.request.floats {
            self.floats.append(floats, &hists.ts, self.request.start_times);
        }
        let has_hists = self.request.histograms && !hists.is_empty();
        if has_hists {
            self.hists.append(hists);
        }
        if self.floats.values.len() > before || has_hists {
            self.rows.push(row);
            self.floats.end_row();
            self.hists.end_row();
        }
    }

    /// Returns the batch and starts a new one.
    pub(super) fn finish(&mut self) -> arrow::error::Result<RecordBatch> {
        let floats = std::mem::replace(&mut self.floats, Floats::new());
        let mut hists = std::mem::replace(&mut self.hists, Hists::new());
        let times = |values: Vec<Millis>| Arc::new(Int64Array::from(values)) as ArrayRef;
        let mut columns: Vec<ArrayRef> = vec![Arc::new(UInt32Array::from(std::mem::take(&mut self.rows)))];
        if self.request.floats {
            let sizes: Vec<i32> = floats.ends.windows(2).map(|w| w[1] - w[0]).collect();
            let mut starts = floats.ends;
            starts.pop();
            columns.push(view(floats.ts_at, sizes.clone(), times(floats.ts))?);
            columns.push(view(starts, sizes, Arc::new(Float64Array::from(floats.values)))?);
            if self.request.start_times {
                columns.push(list(offsets(floats.start_ends), times(floats.starts))?);
            }
        }
        if self.request.histograms {
            let ends = offsets(hists.ends);
            columns.push(list(ends.clone(), times(hists.ts))?);
            columns.push(list(offsets(hists.start_ends), times(hists.starts))?);
            let hists = hists.builder.take().map_or_else(|| Arc::clone(&NO_HISTOGRAMS), |mut h| Arc::new(h.finish()));
            columns.push(list(ends, hists)?);
        }
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
    }
}

/// Makes a batch of rows that lie in one decoded block, without copying their samples. Blocks contain no start times.
pub(super) fn of_block(
    request: &SampleRequest,
    rows: Vec<u32>,
    places: &[Place],
    block: &SampleBlock,
) -> arrow::error::Result<RecordBatch> {
    let sizes: Vec<i32> = places.iter().map(|p| p.len as i32).collect();
    let ts = view(places.iter().map(|p| p.ts as i32).collect(), sizes.clone(), Arc::new(block.ts().clone()))?;
    let values = places.iter().map(|p| p.values as i32).collect();
    let values = view(values, sizes, Arc::new(block.values().clone()))?;
    let rows_len = rows.len();
    let mut columns: Vec<ArrayRef> = vec![Arc::new(UInt32Array::from(rows)), ts, values];
    let ends = || offsets(vec![0; rows_len + 1]);
    let times = || Arc::new(Int64Array::from(Vec::<Millis>::new())) as ArrayRef;
    if request.start_times {
        columns.push(list(ends(), times())?);
    }
    if request.histograms {
        let none = Arc::clone(&NO_HISTOGRAMS);
        columns.extend([list(ends(), times())?, list(ends(), times())?, list(ends(), none)?]);
    }
    RecordBatch::try_new(schema(request), columns)
}

fn view(starts: Vec<i32>, sizes: Vec<i32>, values: ArrayRef) -> arrow::error::Result<ArrayRef> {
    let (starts, sizes) = (ScalarBuffer::from(starts), ScalarBuffer::from(sizes));
    Ok(Arc::new(ListViewArray::try_new(item(values.data_type().clone()), starts, sizes, values, None)?))
}

fn offsets(ends: Vec<i32>) -> OffsetBuffer<i32> {
    OffsetBuffer::new(ScalarBuffer::from(ends))
}

fn list(ends: OffsetBuffer<i32>, values: ArrayRef) -> arrow::error::Result<ArrayRef> {
    Ok(Arc::new(ListArray::try_new(item(values.data_type().clone()), ends, values, None)?))
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::{Float64Type, Int64Type};
    use quiver_types::{Histogram, MillisRange, stale_nan};
    use smallvec::smallvec;

    use super::*;

    fn check(views: &[&[(Millis, f64, Millis)]], without: &[Millis], expected: &[(Millis, f64, Millis)]) {
        let runs: Vec<FloatRun> = views
            .iter()
            .map(|samples| {
                let mut run = FloatRun::default();
                for &(ts, value, start) in *samples {
                    run.push(ts, value, start);
                }
                run
            })
            .collect();
        let mut floats = Floats::new();
        let before = FloatRun { ts: vec![0], values: vec![0.0], start_ts: vec![] };
        floats.append(&mut smallvec![FloatView::new(&before)], &[], true);
        floats.append(&mut runs.iter().map(FloatView::new).collect(), without, true);
        let (ts, values) = (&floats.ts[1..], &floats.values[1..]);
        assert_eq!(ts, expected.iter().map(|s| s.0).collect::<Vec<_>>());
        let bits = |v: &[f64]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(values), bits(&expected.iter().map(|s| s.1).collect::<Vec<_>>()));
        let starts: Vec<_> = expected.iter().map(|s| s.2).collect();
        assert_eq!(floats.starts, if starts.iter().all(|&s| s == 0) { vec![] } else { starts });
    }

    #[test]
    fn runs_merge_by_the_equal_key_rule() {
        let stale = stale_nan();
        check(&[], &[], &[]);
        check(&[&[(1, 1.0, 0), (2, 2.0, 0)], &[(3, 3.0, 0)]], &[], &[(1, 1.0, 0), (2, 2.0, 0), (3, 3.0, 0)]);
        check(&[&[(3, 3.0, 0)], &[(1, 1.0, 0), (2, 2.0, 0)]], &[], &[(1, 1.0, 0), (2, 2.0, 0), (3, 3.0, 0)]);
        check(&[&[(1, 1.0, 0), (4, 4.0, 0)], &[(2, 2.0, 1)]], &[], &[(1, 1.0, 0), (2, 2.0, 1), (4, 4.0, 0)]);
        check(&[&[(1, 5.0, 0), (4, stale, 0)], &[(1, 2.0, 1), (4, -1.0, 0)]], &[], &[(1, 5.0, 0), (4, -1.0, 0)]);
        check(&[&[(1, 5.0, 3)], &[(1, 5.0, 7)], &[(1, 5.0, 0)]], &[], &[(1, 5.0, 7)]);
        check(&[&[(1, 5.0, 0)], &[(1, 2.0, 7)], &[(1, 5.0, 0)]], &[], &[(1, 5.0, 0)]);
        check(&[&[(1, 1.0, 2), (2, 2.0, 0), (3, 3.0, 2)]], &[0, 2, 3], &[(1, 1.0, 2)]);
        check(&[&[(1, 1.0, 0), (2, 2.0, 9)]], &[2, 5], &[(1, 1.0, 0)]);
    }

    #[test]
    fn series_without_samples_are_left_out() {
        let request = SampleRequest { floats: true, histograms: false, ..SampleRequest::default() };
        let mut builder = BatchBuilder::new(request);
        let mut hists = HistRun::default();
        hists.push(1, Histogram::default(), 0);
        let run = FloatRun { ts: vec![1], values: vec![1.0], start_ts: vec![] };
        builder.push(3, &mut smallvec![FloatView::new(&run)], &hists);
        builder.push(4, &mut smallvec![], &HistRun::default());
        builder.push(5, &mut smallvec![FloatView::new(&run)], &HistRun::default());
        let batch = builder.finish().expect("a batch");
        assert_eq!((batch.num_rows(), builder.rows()), (1, 0));
    }

    fn run(samples: &[(Millis, f64, Millis)]) -> FloatRun {
        let mut run = FloatRun::default();
        for &(ts, value, start) in samples {
            run.push(ts, value, start);
        }
        run
    }

    /// The times of a column by row.
    fn times_of(batch: &RecordBatch, name: &str) -> Vec<Vec<Millis>> {
        let column = &batch[name];
        let row = |at: usize| match column.as_list_view_opt::<i32>() {
            Some(views) => views.value(at),
            None => column.as_list::<i32>().value(at),
        };
        (0..batch.num_rows()).map(|at| row(at).as_primitive::<Int64Type>().values().to_vec()).collect()
    }

    fn rows_of(batch: &RecordBatch) -> Vec<u32> {
        batch["row"].as_primitive::<arrow::datatypes::UInt32Type>().values().to_vec()
    }

    #[test]
    fn rows_of_the_same_times_share_them() {
        let request = SampleRequest { histograms: true, start_times: true, ..SampleRequest::default() };
        let mut builder = BatchBuilder::new(request);
        let none = HistRun::default();
        let mut hists = HistRun::default();
        hists.push(2, Histogram::default(), 0);
        let whole = run(&[(1, 1.0, 0), (2, 2.0, 0), (3, 3.0, 0)]);
        let (first, last) = (run(&[(1, 4.0, 0)]), run(&[(2, 5.0, 9), (3, 6.0, 0)]));
        let (less, more) =
            (run(&[(1, 7.0, 0), (2, 8.0, 0)]), run(&[(1, 7.0, 0), (2, 8.0, 0), (3, 0.0, 0), (4, 9.0, 0)]));
        builder.push(0, &mut smallvec![FloatView::new(&whole)], &none);
        builder.push(1, &mut smallvec![FloatView::new(&last), FloatView::new(&first)], &none);
        builder.push(2, &mut smallvec![FloatView::new(&whole)], &hists);
        builder.push(3, &mut smallvec![FloatView::new(&whole)], &none);
        builder.push(4, &mut smallvec![FloatView::new(&less)], &none);
        builder.push(5, &mut smallvec![FloatView::new(&more)], &none);
        builder.push(6, &mut smallvec![FloatView::new(&more)], &none);
        builder.push(7, &mut smallvec![], &hists);
        builder.push(8, &mut smallvec![FloatView::new(&whole)], &none);
        assert_eq!(builder.weight(), 3 + 3 + 2 + 3 + 2 + 4 + 4 + 3 + 2 * 10);
        let batch = builder.finish().expect("a batch");
        let (whole, more) = (vec![1, 2, 3], vec![1, 2, 3, 4]);
        let times = [&whole, &whole, &vec![1, 3], &whole, &vec![1, 2], &more, &more, &vec![], &whole].map(Clone::clone);
        assert_eq!(times_of(&batch, "ts"), times);
        let values = batch["v"].as_list_view::<i32>();
        let values_of = |row: usize| values.value(row).as_primitive::<Float64Type>().values().to_vec();
        assert_eq!(
            (values_of(1), values_of(2), values_of(6)),
            (vec![4.0, 5.0, 6.0], vec![1.0, 3.0], vec![7.0, 8.0, 0.0, 9.0])
        );
        assert_eq!(times_of(&batch, "start_ts")[1], [0, 9, 0]);
        let ts = batch["ts"].as_list_view::<i32>();
        assert_eq!(ts.values().len(), 3 + 2 + 3 + 2 + 4 + 3, "two of them stand once");
        assert_eq!((ts.value_offset(0), ts.value_offset(5)), (ts.value_offset(1), ts.value_offset(6)));
    }

    #[test]
    fn start_times_and_histograms_stand_beside_their_samples() {
        let request = SampleRequest { histograms: true, start_times: true, ..SampleRequest::default() };
        let mut builder = BatchBuilder::new(request);
        let (with, without) = (run(&[(1, 1.0, 0), (2, 2.0, 5), (3, 3.0, 0)]), run(&[(1, 1.0, 0), (4, 4.0, 0)]));
        let mut hists = HistRun::default();
        hists.push(3, Histogram::default(), 0);
        hists.push(9, Histogram { count: 2.0, ..Histogram::default() }, 7);
        builder.push(0, &mut smallvec![FloatView::new(&with)], &HistRun::default());
        builder.push(2, &mut smallvec![FloatView::new(&without)], &HistRun::default());
        // A histogram hides the float at its time.
        builder.push(5, &mut smallvec![FloatView::new(&with), FloatView::new(&without)], &hists);
        builder.push(7, &mut smallvec![], &hists);
        assert_eq!((builder.rows(), builder.weight()), (4, 3 + 2 + 3 + 2 * 20));
        let batch = builder.finish().expect("a batch");
        assert_eq!(rows_of(&batch), [0, 2, 5, 7]);
        assert_eq!(times_of(&batch, "ts"), [vec![1, 2, 3], vec![1, 4], vec![1, 2, 4], vec![]]);
        assert_eq!(times_of(&batch, "start_ts"), [vec![0, 5, 0], vec![], vec![0, 5, 0], vec![]]);
        assert_eq!(times_of(&batch, "h_ts"), [vec![], vec![], vec![3, 9], vec![3, 9]]);
        assert_eq!(times_of(&batch, "h_start_ts"), [vec![], vec![], vec![0, 7], vec![0, 7]]);
        assert_eq!(batch["h"].as_list::<i32>().value(3).len(), 2);
        let empty = builder.finish().expect("an empty one");
        assert_eq!((empty.num_rows(), empty.schema()), (0, batch.schema()), "it begins anew");
    }

    /// What was not asked for is not there, and what hides floats does so all the same.
    #[test]
    fn columns_are_those_that_were_asked_for() {
        let mut hists = HistRun::default();
        hists.push(2, Histogram::default(), 0);
        let floats = run(&[(1, 1.0, 5), (2, 2.0, 6)]);
        let names = |floats: bool, start_times: bool, histograms: bool| {
            let request = SampleRequest { floats, histograms, start_times, ..SampleRequest::default() };
            schema(&request).fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(true, false, false), "row ts v");
        assert_eq!(names(true, true, false), "row ts v start_ts");
        assert_eq!(names(false, true, false), "row", "start times are those of floats");
        assert_eq!(names(false, false, true), "row h_ts h_start_ts h");
        assert_eq!(names(true, true, true), "row ts v start_ts h_ts h_start_ts h");
        let mut builder = BatchBuilder::new(SampleRequest::default());
        builder.push(1, &mut smallvec![FloatView::new(&floats)], &hists);
        let batch = builder.finish().expect("a batch");
        assert_eq!((batch.num_columns(), times_of(&batch, "ts")), (3, vec![vec![1]]));
        let mut builder =
            BatchBuilder::new(SampleRequest { floats: false, histograms: true, ..SampleRequest::default() });
        builder.push(1, &mut smallvec![FloatView::new(&floats)], &HistRun::default());
        builder.push(2, &mut smallvec![FloatView::new(&floats)], &hists);
        assert_eq!(rows_of(&builder.finish().expect("a batch")), [2], "a series without histograms has nothing");
    }

    #[test]
    fn rows_of_a_block_are_views_of_it() {
        let runs = [run(&[(1, 1.0, 0), (2, 2.0, 0), (3, 3.0, 0)]), run(&[]), run(&[(2, 5.0, 0), (9, 6.0, 0)])];
        let block = SampleBlock::new(10, &runs);
        let places = [(10, 2, 3), (12, 0, 5), (11, 0, 99), (10, 7, 8)];
        let places = places.map(|(series, min, max)| block.place(series, MillisRange::new(min, max)));
        for (start_times, histograms) in [(false, false), (true, false), (true, true)] {
            let request = SampleRequest { histograms, start_times, ..SampleRequest::default() };
            let batch = of_block(&request, vec![4, 5, 6, 7], &places, &block).expect("a batch");
            assert_eq!((batch.schema(), rows_of(&batch)), (schema(&request), vec![4, 5, 6, 7]));
            assert_eq!(times_of(&batch, "ts"), [vec![2, 3], vec![2], vec![], vec![]]);
            let values = batch["v"].as_list_view::<i32>();
            let first = values.value(0);
            assert_eq!(first.as_primitive::<Float64Type>().values().to_vec(), [2.0, 3.0]);
            if start_times {
                assert_eq!(times_of(&batch, "start_ts"), [const { Vec::<Millis>::new() }; 4]);
            }
            if histograms {
                assert_eq!(times_of(&batch, "h_ts"), [const { Vec::<Millis>::new() }; 4]);
            }
        }
    }
}
