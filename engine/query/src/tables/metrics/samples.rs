//! Makes rows of `metric_samples` from series whose samples are lists.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, Float64Array, ListArray, ListViewArray, RecordBatch, TimestampMillisecondArray, UInt32Array,
    new_null_array,
};
use arrow::compute::take;
use arrow::datatypes::{Float64Type, Int64Type, SchemaRef, UInt32Type};
use datafusion::error::Result as DataFusionResult;
use quiver_types::{Error, Result, SelectedSeries, SeriesTable, is_stale};

use super::columns::{BEFORE_MS, INCREASE};
use super::labels::LabelCells;
use crate::encoding::context::At;
use crate::tables::convert::{BATCH_BYTES, BATCH_ROWS, Convert, ConvertedBatches, batch};
use crate::tables::encoding::{WrittenConvert, WrittenSamples};

/// Converts stored series.
#[derive(Debug)]
pub(in crate::tables) struct SampleRows {
    schema: SchemaRef,
    cells: LabelCells,
    table: Arc<SeriesTable>,
    filter: String,
    /// Samples before this time in ms are read only to compute the increase of later ones.
    from_ms: i64,
}

impl SampleRows {
    /// Plans the columns of a schema.
    pub(super) fn new(
        schema: SchemaRef,
        cells: LabelCells,
        selected: &SelectedSeries,
        filter: String,
        from_ms: i64,
    ) -> Self {
        Self { schema, cells, table: Arc::clone(&selected.table), filter, from_ms }
    }

    /// Reads the form that [`Convert::written`] returns.
    pub(in crate::tables) fn read(rows: WrittenSamples, at: &At<'_>) -> DataFusionResult<Arc<dyn Convert>> {
        let schema = at.forms.read_schema(&rows.schema)?;
        let cells = LabelCells::new(&schema, &rows.service_labels);
        let WrittenSamples { table, filter, from_ms, .. } = rows;
        Ok(Arc::new(Self { schema, cells, table, filter, from_ms }))
    }
}

impl Convert for SampleRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn convert(self: Arc<Self>, stored: RecordBatch) -> ConvertedBatches {
        let mut walk = match Walk::new(stored) {
            Ok(walk) => walk,
            Err(error) => return Box::new(std::iter::once(Err(error))),
        };
        Box::new(std::iter::from_fn(move || {
            let runs = walk.next_runs(&|series| self.cells.map_bytes(&self.table, series));
            (!runs.is_empty()).then(|| self.batch(&walk, &runs))
        }))
    }

    fn detail(&self) -> String {
        format!(", filter={}, series={}", self.filter, self.table.len())
    }

    fn written(&self, at: &At<'_>) -> DataFusionResult<Option<WrittenConvert>> {
        Ok(Some(WrittenConvert::Samples(WrittenSamples {
            schema: at.write_schema(&self.schema)?,
            service_labels: Arc::clone(self.cells.service_labels()),
            table: Arc::clone(&self.table),
            filter: self.filter.clone(),
            from_ms: self.from_ms,
        })))
    }
}

/// Consecutive samples of one series in a column.
#[derive(Debug, Clone)]
struct SampleRun {
    /// Row of the stored batch.
    row: usize,
    histograms: bool,
    /// Their range in the values of the list.
    at: Range<usize>,
}

/// Walks through a stored batch in runs: for each series its float samples come before its histograms.
#[derive(Debug)]
struct Walk {
    rows: UInt32Array,
    floats: Option<(ListViewArray, ListViewArray)>,
    starts: Option<ListArray>,
    histograms: Option<(ListArray, ListArray, Option<ListArray>)>,
    row: usize,
    in_histograms: bool,
    done: usize,
}

impl Walk {
    fn new(stored: RecordBatch) -> Result<Self> {
        let other = || Error::internal("a scan of samples has other columns");
        let rows = stored.column_by_name("row").and_then(|c| c.as_primitive_opt::<UInt32Type>()).ok_or_else(other)?;
        let view = |name: &str| stored.column_by_name(name).and_then(|c| c.as_list_view_opt::<i32>()).cloned();
        let list = |name: &str| stored.column_by_name(name).and_then(|c| c.as_list_opt::<i32>()).cloned();
        Ok(Self {
            rows: rows.clone(),
            floats: view("ts").zip(view("v")),
            starts: list("start_ts"),
            histograms: list("h_ts").zip(list("h")).map(|(times, values)| (times, values, list("h_start_ts"))),
            row: 0,
            in_histograms: false,
            done: 0,
        })
    }

    /// All samples of the current kind in the current row.
    fn all(&self) -> Range<usize> {
        self.all_in(self.row, self.in_histograms)
    }

    /// All samples of the kind and row of a run.
    fn all_of(&self, run: &SampleRun) -> Range<usize> {
        self.all_in(run.row, run.histograms)
    }

    fn all_in(&self, row: usize, histograms: bool) -> Range<usize> {
        if histograms {
            return self.histograms.as_ref().map_or(0..0, |(times, ..)| {
                times.value_offsets()[row] as usize..times.value_offsets()[row + 1] as usize
            });
        }
        self.floats.as_ref().map_or(0..0, |(times, _)| {
            let from = times.value_offset(row) as usize;
            from..from + times.value_size(row) as usize
        })
    }

    /// The next runs, with at most [`BATCH_ROWS`] samples together, and about [`BATCH_BYTES`] of what is repeated for each:
    /// so many bytes for a sample of a series.
    fn next_runs(&mut self, repeated: &dyn Fn(u32) -> usize) -> Vec<SampleRun> {
        let (mut runs, mut left, mut room) = (Vec::new(), BATCH_ROWS, BATCH_BYTES);
        while left > 0 && self.row < self.rows.len() {
            let all = self.all();
            let from = all.start + self.done;
            if from < all.end {
                let bytes = repeated(self.rows.value(self.row)).max(1);
                let most = left.min(room / bytes);
                if most == 0 && !runs.is_empty() {
                    break;
                }
                let made = most.max(1).min(all.end - from);
                runs.push(SampleRun { row: self.row, histograms: self.in_histograms, at: from..from + made });
                left -= made;
                room = room.saturating_sub(made * bytes);
                self.done += made;
            }
            if all.start + self.done >= all.end {
                self.done = 0;
                self.row += usize::from(self.in_histograms);
                self.in_histograms = !self.in_histograms;
            }
        }
        runs
    }

    /// The start time of a sample; `None` if the row has no start times.
    fn start(&self, run: &SampleRun, sample: usize) -> Option<i64> {
        let list = if run.histograms { self.histograms.as_ref()?.2.as_ref()? } else { self.starts.as_ref()? };
        let (from, to) = (list.value_offsets()[run.row] as usize, list.value_offsets()[run.row + 1] as usize);
        let first = if run.histograms {
            self.histograms.as_ref()?.0.value_offsets()[run.row] as usize
        } else {
            self.floats.as_ref()?.0.value_offset(run.row) as usize
        };
        let at = from + (sample - first);
        let value = (at < to).then(|| list.values().as_primitive::<Int64Type>().value(at))?;
        Some(value).filter(|start| *start != 0)
    }
}

/// The rows of an output batch, column by column.
#[derive(Debug, Default)]
struct Rows {
    /// For each row, the index of its run.
    runs: Vec<u32>,
    times: Vec<i64>,
    starts: Vec<Option<i64>>,
    values: Vec<Option<f64>>,
    increases: Vec<Option<f64>>,
    /// For each row, the index of its histogram in the stored column.
    histograms: Vec<Option<u32>>,
}

impl Rows {
    fn of(walk: &Walk, runs: &[SampleRun], with_starts: bool, increases_from: Option<i64>, from_ms: i64) -> Self {
        let mut rows = Self::default();
        for (n, run) in runs.iter().enumerate() {
            // Series that were scraped together share their times, so values have offsets of their own.
            let list = if run.histograms {
                let list = walk.histograms.as_ref();
                list.map(|(times, values, _)| (times.values(), values.value_offsets()[run.row], values.values()))
            } else {
                let list = walk.floats.as_ref();
                list.map(|(times, values)| (times.values(), values.value_offset(run.row), values.values()))
            };
            let Some((times, first, values)) = list else { continue };
            let times = times.as_primitive::<Int64Type>();
            let floats = values.as_primitive_opt::<Float64Type>();
            let sums = values.as_struct_opt().and_then(|h| h.column_by_name("sum")?.as_primitive_opt::<Float64Type>());
            let (all, first) = (walk.all_of(run), first as usize);
            for time_at in run.at.clone() {
                let at = first + (time_at - all.start);
                let time = times.value(time_at);
                if time < from_ms {
                    continue;
                }
                // A histogram is a stale marker if its sum is one.
                if floats.or(sums).is_some_and(|values| is_stale(values.value(at))) {
                    continue;
                }
                rows.runs.push(n as u32);
                rows.times.push(time);
                if with_starts {
                    rows.starts.push(walk.start(run, time_at));
                }
                if let Some(reach) = increases_from {
                    let until = |floats: &Float64Array| {
                        increase(&times.values()[all.start..=time_at], &floats.values()[first..=at], reach)
                    };
                    rows.increases.push(floats.and_then(until));
                }
                rows.values.push(floats.map(|values| values.value(at)));
                rows.histograms.push(run.histograms.then_some(at as u32));
            }
        }
        rows
    }
}

impl SampleRows {
    fn batch(&self, walk: &Walk, runs: &[SampleRun]) -> Result<RecordBatch> {
        let with_starts = self.schema.column_with_name("start_time").is_some();
        let increases_from = self.schema.column_with_name(INCREASE).map(|_| BEFORE_MS);
        let rows = Rows::of(walk, runs, with_starts, increases_from, self.from_ms);
        let failed = |e| Error::internal("cannot repeat the labels of a series").with_source(e);
        let series: Vec<u32> = runs.iter().map(|run| walk.rows.value(run.row)).collect();
        let repeats = UInt32Array::from(rows.runs.clone());
        let labels = self.cells.columns(&self.table, &series)?;
        let column = |(at, labels): (usize, Option<ArrayRef>)| -> Result<ArrayRef> {
            if let Some(labels) = labels {
                return take(&labels, &repeats, None).map_err(failed);
            }
            let field = self.schema.field(at);
            Ok(match field.name().as_str() {
                "time" => Arc::new(TimestampMillisecondArray::from(rows.times.clone()).with_timezone("UTC")),
                "start_time" => Arc::new(TimestampMillisecondArray::from(rows.starts.clone()).with_timezone("UTC")),
                "value" => Arc::new(Float64Array::from(rows.values.clone())),
                INCREASE => Arc::new(Float64Array::from(rows.increases.clone())),
                "histogram" => histograms(walk, &rows, field.data_type())?,
                other => return Err(Error::internal(format!("samples have no column `{other}`"))),
            })
        };
        let columns = labels.into_iter().enumerate().map(column).collect::<Result<Vec<_>>>()?;
        batch(&self.schema, columns, rows.times.len())
    }
}

/// The increase of a counter between the last two of these samples; `None` if the earlier one is more than `reach` ms
/// older. After a reset the counter starts at 0.
fn increase(times: &[i64], values: &[f64], reach: i64) -> Option<f64> {
    let (last, before) = values.split_last()?;
    let at = before.iter().rposition(|value| !is_stale(*value))?;
    if times.last()? - times.get(at)? > reach {
        return None;
    }
    Some(if *last < before[at] { *last } else { last - before[at] })
}

/// The histogram of each row, NULL for float samples.
fn histograms(walk: &Walk, rows: &Rows, data_type: &arrow::datatypes::DataType) -> Result<ArrayRef> {
    let failed = |e| Error::internal("cannot gather histograms").with_source(e);
    let Some((_, lists, _)) = walk.histograms.as_ref().filter(|_| rows.histograms.iter().any(Option::is_some)) else {
        return Ok(new_null_array(data_type, rows.times.len()));
    };
    take(lists.values(), &UInt32Array::from(rows.histograms.clone()), None).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Builder, Int64Array, Int64Builder, ListViewBuilder};
    use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
    use quiver_types::series::SeriesTableBuilder;
    use quiver_types::stale_nan;

    use super::*;
    use crate::tables::cells::{text, text_map, time};

    #[test]
    fn counters_rise_from_the_sample_before() {
        let (times, values) = ([0, 10, 20, 30, 4_000_000], [5.0, 7.0, stale_nan(), 3.0, 9.0]);
        let at = |at: usize| increase(&times[..=at], &values[..=at], BEFORE_MS);
        assert_eq!((at(0), at(1), at(3)), (None, Some(2.0), Some(3.0)), "a reset begins at 0");
        assert_eq!(at(4), None, "too old to rise from");
    }

    #[test]
    fn series_of_the_same_times_have_their_own_values() {
        let schema: SchemaRef = Arc::new(Schema::new(vec![
            time("time", TimeUnit::Millisecond),
            Field::new("value", DataType::Float64, true),
            Field::new(INCREASE, DataType::Float64, true),
            text("name"),
        ]));
        let mut table = SeriesTableBuilder::default();
        table.push([("__name__", "a")]);
        table.push([("__name__", "b")]);
        let cells = LabelCells::new(&schema, &Vec::new().into());
        let rows =
            SampleRows { schema, cells, table: Arc::new(table.finish()), filter: String::new(), from_ms: i64::MIN };
        let views = |offsets: Vec<i32>, values: ArrayRef| {
            let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
            Arc::new(ListViewArray::new(item, offsets.into(), vec![2, 2].into(), values, None)) as ArrayRef
        };
        let stored = RecordBatch::try_from_iter([
            ("row", Arc::new(UInt32Array::from(vec![0, 1])) as ArrayRef),
            ("ts", views(vec![0, 0], Arc::new(Int64Array::from(vec![1, 2])))),
            ("v", views(vec![0, 2], Arc::new(Float64Array::from(vec![1.0, 2.0, 5.0, 9.0])))),
        ]);
        let out: Vec<_> = Arc::new(rows).convert(stored.unwrap()).map(Result::unwrap).collect();
        let floats = |at: usize| out[0].column(at).as_primitive::<Float64Type>().iter().collect::<Vec<_>>();
        assert_eq!(floats(1), [1.0, 2.0, 5.0, 9.0].map(Some));
        assert_eq!(floats(2), [None, Some(1.0), None, Some(4.0)]);
    }

    #[test]
    fn series_become_rows() {
        let schema: SchemaRef = Arc::new(Schema::new(vec![
            time("time", TimeUnit::Millisecond),
            Field::new("value", DataType::Float64, true),
            text("name"),
            text("labels.mode"),
        ]));
        let mut table = SeriesTableBuilder::default();
        table.push([("__name__", "cpu"), ("mode", "idle")]);
        table.push([("__name__", "up")]);
        let cells = LabelCells::new(&schema, &Vec::new().into());
        assert_eq!(cells.labels().unwrap(), ["__name__", "mode"]);
        let rows =
            SampleRows { schema, cells, table: Arc::new(table.finish()), filter: String::new(), from_ms: i64::MIN };
        let (mut times, mut values) =
            (ListViewBuilder::new(Int64Builder::new()), ListViewBuilder::new(Float64Builder::new()));
        for samples in [vec![(1, 0.5), (2, stale_nan())], vec![(3, 7.0)]] {
            for (ts, v) in samples {
                times.values().append_value(ts);
                values.values().append_value(v);
            }
            times.append(true);
            values.append(true);
        }
        let stored = RecordBatch::try_from_iter([
            ("row", Arc::new(UInt32Array::from(vec![1, 0])) as ArrayRef),
            ("ts", Arc::new(times.finish()) as ArrayRef),
            ("v", Arc::new(values.finish()) as ArrayRef),
        ]);
        let out: Vec<_> = Arc::new(rows).convert(stored.unwrap()).map(Result::unwrap).collect();
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].column(1).as_primitive::<Float64Type>().values(), &[0.5, 7.0], "no stale marker");
        assert_eq!(out[0].column(2).as_string_view().iter().collect::<Vec<_>>(), [Some("up"), Some("cpu")]);
        assert_eq!(out[0].column(3).as_string_view().iter().collect::<Vec<_>>(), [None, Some("idle")]);
    }

    /// Converts one series with these samples in one stored row, and returns the batches.
    fn of_series(
        columns: Vec<Field>,
        samples: &[(i64, f64)],
        starts: Option<Vec<i64>>,
        from_ms: i64,
    ) -> Vec<RecordBatch> {
        let schema: SchemaRef = Arc::new(Schema::new(columns));
        let mut table = SeriesTableBuilder::default();
        table.push([("__name__", "a")]);
        let cells = LabelCells::new(&schema, &Vec::new().into());
        let rows = SampleRows { schema, cells, table: Arc::new(table.finish()), filter: String::new(), from_ms };
        let (mut times, mut values) =
            (ListViewBuilder::new(Int64Builder::new()), ListViewBuilder::new(Float64Builder::new()));
        times.append_value(samples.iter().map(|(time, _)| Some(*time)));
        values.append_value(samples.iter().map(|(_, value)| Some(*value)));
        let mut stored = vec![
            ("row", Arc::new(UInt32Array::from(vec![0])) as ArrayRef),
            ("ts", Arc::new(times.finish()) as ArrayRef),
            ("v", Arc::new(values.finish()) as ArrayRef),
        ];
        if let Some(starts) = starts {
            let starts = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(starts.into_iter().map(Some))]);
            stored.push(("start_ts", Arc::new(starts)));
        }
        Arc::new(rows).convert(RecordBatch::try_from_iter(stored).unwrap()).map(Result::unwrap).collect()
    }

    fn value() -> Field {
        Field::new("value", DataType::Float64, true)
    }

    fn rise() -> Field {
        Field::new(INCREASE, DataType::Float64, true)
    }

    fn floats(batches: &[RecordBatch], column: usize) -> Vec<Option<f64>> {
        batches.iter().flat_map(|batch| batch.column(column).as_primitive::<Float64Type>().iter()).collect()
    }

    #[test]
    fn long_series_are_cut_and_rise_across_the_cut() {
        let samples: Vec<(i64, f64)> = (0..10_000).map(|n| (n * 1_000, (n * n) as f64)).collect();
        let out = of_series(vec![value(), rise(), text("name")], &samples, None, i64::MIN);
        assert_eq!(out.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [BATCH_ROWS, 10_000 - BATCH_ROWS]);
        assert_eq!(floats(&out, 0), samples.iter().map(|(_, value)| Some(*value)).collect::<Vec<_>>());
        // The values are squares, so from n - 1 to n it increases by n² - (n - 1)².
        let expected: Vec<Option<f64>> = (0..10_000_i32).map(|n| (n > 0).then_some(f64::from(2 * n - 1))).collect();
        assert_eq!(floats(&out, 1), expected);
        assert!(out.iter().all(|batch| batch.column(2).as_string_view().iter().all(|name| name == Some("a"))));
    }

    /// Breaks if batches are limited by the number of samples: labels are repeated for each of them.
    #[test]
    fn samples_with_long_labels_come_few_at_once() {
        let schema: SchemaRef = Arc::new(Schema::new(vec![value(), text_map("labels")]));
        let mut table = SeriesTableBuilder::default();
        let long = "x".repeat(BATCH_BYTES / 10);
        table.push([("__name__", "a"), ("long", long.as_str())]);
        table.push([("__name__", "b"), ("short", "y")]);
        let cells = LabelCells::new(&schema, &Vec::new().into());
        let table = Arc::new(table.finish());
        let rows = SampleRows { schema, cells, table, filter: String::new(), from_ms: i64::MIN };
        let (mut times, mut values) =
            (ListViewBuilder::new(Int64Builder::new()), ListViewBuilder::new(Float64Builder::new()));
        for series in 0..3_i64 {
            times.append_value((0..15).map(Some));
            values.append_value((0..15).map(|n| Some((series * 15 + n) as f64)));
        }
        let stored = RecordBatch::try_from_iter([
            ("row", Arc::new(UInt32Array::from(vec![1, 0, 1])) as ArrayRef),
            ("ts", Arc::new(times.finish()) as ArrayRef),
            ("v", Arc::new(values.finish()) as ArrayRef),
        ]);
        let out: Vec<_> = Arc::new(rows).convert(stored.unwrap()).map(Result::unwrap).collect();
        assert_eq!(out.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [24, 21]);
        assert_eq!(floats(&out, 0), (0..45).map(|n| Some(f64::from(n))).collect::<Vec<_>>());
        let lengths = |batch: &RecordBatch| {
            let values = batch.column(1).as_map().values().as_string::<i32>().clone();
            values.iter().flatten().map(str::len).collect::<Vec<_>>()
        };
        let expected = [vec![1; 15], vec![long.len(); 15], vec![1; 15]].concat();
        assert_eq!(out.iter().flat_map(lengths).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn samples_before_the_range_are_only_risen_from() {
        let samples = [(0, 1.0), (10, 4.0), (20, stale_nan()), (30, 6.0), (40, f64::INFINITY), (50, f64::NAN)];
        let out = of_series(vec![time("time", TimeUnit::Millisecond), rise()], &samples, None, 5);
        let times = out[0].column(0).as_primitive::<arrow::datatypes::TimestampMillisecondType>().values().to_vec();
        assert_eq!(times, [10, 30, 40, 50], "a NaN of a sender is a sample, a stale marker is none");
        let rises = floats(&out, 1);
        assert_eq!(rises[..3], [Some(3.0), Some(2.0), Some(f64::INFINITY)]);
        assert!(rises[3].is_some_and(f64::is_nan));
        let none = of_series(vec![value()], &samples, None, 60);
        assert_eq!(none.iter().map(RecordBatch::num_rows).sum::<usize>(), 0);
        assert!(of_series(vec![value()], &[], None, i64::MIN).iter().all(|batch| batch.num_rows() == 0));
    }

    #[test]
    fn start_times_may_be_missing() {
        let started = |starts| {
            let out =
                of_series(vec![time("start_time", TimeUnit::Millisecond)], &[(5, 1.0), (6, 2.0), (7, 3.0)], starts, 6);
            out[0].column(0).as_primitive::<arrow::datatypes::TimestampMillisecondType>().iter().collect::<Vec<_>>()
        };
        assert_eq!(started(Some(vec![1, 2, 0])), [Some(2), None], "0 is none");
        assert_eq!(started(Some(vec![1, 2])), [Some(2), None], "fewer than samples");
        assert_eq!(started(Some(vec![])), [None, None]);
        assert_eq!(started(None), [None, None]);
    }

    #[test]
    fn what_is_no_series_is_an_error() {
        let schema: SchemaRef = Arc::new(Schema::new(vec![value()]));
        let cells = LabelCells::new(&schema, &Vec::new().into());
        let table = Arc::new(SeriesTableBuilder::default().finish());
        let rows = Arc::new(SampleRows { schema, cells, table, filter: "all".to_owned(), from_ms: 0 });
        assert_eq!(rows.detail(), ", filter=all, series=0");
        let other = RecordBatch::try_from_iter([("row", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]).unwrap();
        let error = rows.convert(other).next().unwrap().unwrap_err();
        assert_eq!(error.message, "a scan of samples has other columns");
    }
}
