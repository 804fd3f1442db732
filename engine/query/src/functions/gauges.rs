//! `gauge_avg`, `gauge_sum`, `gauge_first`, `gauge_last` `(series_id, time, value)`: aggregates gauges over series.
//! Each series contributes one value: the mean of its samples (then averaged or summed), or its first or last sample
//! (then summed). NULLs are ignored; without samples the result is NULL.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, LargeStringArray, ListArray, StringViewArray,
    TimestampMillisecondArray,
};
use arrow::datatypes::{DataType, FieldRef, Float64Type, Int64Type, TimeUnit, TimestampMillisecondType};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};

use super::series_state::{BySeries, NAMES, SeriesGroups, Whole, counts, fields, lists, names_of};

/// How samples of a series, and then series, are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum GaugeKind {
    /// The mean of means.
    Avg,
    /// The sum of means.
    Sum,
    /// The sum of first values.
    First,
    /// The sum of last values.
    Last,
}

const KINDS: [(GaugeKind, &str); 4] = [
    (GaugeKind::Avg, "gauge_avg"),
    (GaugeKind::Sum, "gauge_sum"),
    (GaugeKind::First, "gauge_first"),
    (GaugeKind::Last, "gauge_last"),
];

/// One of the four functions.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Gauge {
    kind: GaugeKind,
    signature: Signature,
}

pub(super) fn functions() -> Vec<Arc<AggregateUDF>> {
    let make = |(kind, _): (GaugeKind, &str)| {
        let time = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
        let signature = Signature::exact(vec![DataType::Utf8View, time, DataType::Float64], Volatility::Immutable);
        Arc::new(AggregateUDF::new_from_impl(Gauge { kind, signature }))
    };
    KINDS.map(make).into()
}

/// The fields of a state: lists with one entry per series.
fn state_types() -> [(&'static str, DataType); 7] {
    [
        ("series", NAMES),
        ("sums", DataType::Float64),
        ("counts", DataType::Int64),
        ("first_times", DataType::Int64),
        ("firsts", DataType::Float64),
        ("last_times", DataType::Int64),
        ("lasts", DataType::Float64),
    ]
}

impl AggregateUDFImpl for Gauge {
    fn name(&self) -> &str {
        KINDS.iter().find(|(kind, _)| *kind == self.kind).map_or("gauge", |(_, name)| name)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(fields(args.name, state_types()))
    }

    fn accumulator(&self, _arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Whole(Groups::new(self.kind))))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, _args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(Groups::new(self.kind)))
    }
}

/// The samples of one series.
#[derive(Debug, Clone, Copy)]
struct Series {
    sum: f64,
    count: i64,
    first: (i64, f64),
    last: (i64, f64),
}

impl Default for Series {
    /// No samples: -0 is the neutral element of addition.
    fn default() -> Self {
        Self { sum: -0.0, count: 0, first: (i64::MAX, f64::NAN), last: (i64::MIN, f64::NAN) }
    }
}

impl Series {
    fn add(&mut self, more: &Self) {
        let is_new = self.count == 0;
        self.sum += more.sum;
        self.count += more.count;
        if is_new || more.first.0 < self.first.0 {
            self.first = more.first;
        }
        if is_new || more.last.0 > self.last.0 {
            self.last = more.last;
        }
    }

    fn of_sample(at: (i64, f64)) -> Self {
        Self { sum: at.1, count: 1, first: at, last: at }
    }
}

/// The series of all groups so far.
#[derive(Debug)]
struct Groups {
    kind: GaugeKind,
    of: BySeries<Series>,
}

/// The samples of a batch with their series ids.
struct Samples<'a> {
    ids: &'a StringViewArray,
    times: &'a TimestampMillisecondArray,
    values: &'a Float64Array,
}

impl<'a> Samples<'a> {
    fn of(columns: &'a [ArrayRef]) -> Result<Self> {
        let (Some(ids), Some(times), Some(values)) = (
            columns[0].as_string_view_opt(),
            columns[1].as_primitive_opt::<TimestampMillisecondType>(),
            columns[2].as_primitive_opt::<Float64Type>(),
        ) else {
            return exec_err!("a gauge is made of series, times and numbers");
        };
        Ok(Self { ids, times, values })
    }

    /// The id of the series and the sample as a series of its own; `None` if something is NULL.
    fn row(&self, row: usize) -> Option<(&'a str, Series)> {
        let is_whole = self.ids.is_valid(row) && self.times.is_valid(row) && self.values.is_valid(row);
        is_whole.then(|| (self.ids.value(row), Series::of_sample((self.times.value(row), self.values.value(row)))))
    }
}

/// Lists of a state: `ids`, and what all series have.
fn state(lengths: &[usize], ids: ArrayRef, series: &[Series]) -> Result<Vec<ArrayRef>> {
    let doubles =
        |of: fn(&Series) -> f64| -> ArrayRef { Arc::new(Float64Array::from_iter_values(series.iter().map(of))) };
    let longs = |of: fn(&Series) -> i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values(series.iter().map(of))) };
    let values = [
        ids,
        doubles(|one| one.sum),
        longs(|one| one.count),
        longs(|one| one.first.0),
        doubles(|one| one.first.1),
        longs(|one| one.last.0),
        doubles(|one| one.last.1),
    ];
    lists(lengths, values)
}

impl Groups {
    fn new(kind: GaugeKind) -> Self {
        Self { kind, of: BySeries::default() }
    }

    fn found(&self, groups: &BySeries<Series>) -> ArrayRef {
        let of = |one: &Series| match self.kind {
            GaugeKind::Avg | GaugeKind::Sum => one.sum / one.count as f64,
            GaugeKind::First => one.first.1,
            GaugeKind::Last => one.last.1,
        };
        let mut sums = vec![(-0.0, 0_u64); groups.groups];
        for entry in groups.sorted() {
            let (sum, count) = &mut sums[entry.group];
            *sum += of(&entry.of);
            *count += 1;
        }
        let value = |(sum, count): (f64, u64)| if self.kind == GaugeKind::Avg { sum / count as f64 } else { sum };
        Arc::new(sums.into_iter().map(|one| (one.1 > 0).then(|| value(one))).collect::<Float64Array>())
    }
}

impl SeriesGroups for Groups {
    fn room(&mut self, groups: usize) {
        self.of.room(groups);
    }

    fn values(&self) -> ArrayRef {
        self.found(&self.of)
    }
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.of.room(total);
        let samples = Samples::of(values)?;
        for (row, group) in groups.iter().enumerate().filter(|(row, _)| counts(filter, *row)) {
            if let Some((id, sample)) = samples.row(row) {
                self.of.of(*group, id).add(&sample);
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.of.room(total);
        let lists: Option<Vec<&ListArray>> = states.iter().map(|state| state.as_list_opt::<i32>()).collect();
        let Some([ids, sums, counts, first_times, firsts, last_times, lasts]) = lists.as_deref() else {
            return exec_err!("a state of a gauge is of another type");
        };
        let double = |list: &ListArray| list.values().as_primitive::<Float64Type>().clone();
        let long = |list: &ListArray| list.values().as_primitive::<Int64Type>().clone();
        let (sums, counts, firsts, lasts) = (double(sums), long(counts), double(firsts), double(lasts));
        let (first_times, last_times) = (long(first_times), long(last_times));
        let names = names_of(ids)?;
        for (row, group) in groups.iter().enumerate().filter(|(row, _)| ids.is_valid(*row)) {
            let range = ids.value_offsets()[row] as usize..ids.value_offsets()[row + 1] as usize;
            for at in range {
                let one = Series {
                    sum: sums.value(at),
                    count: counts.value(at),
                    first: (first_times.value(at), firsts.value(at)),
                    last: (last_times.value(at), lasts.value(at)),
                };
                self.of.of(*group, names.value(at)).add(&one);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let out = self.of.split(emit, |_| 0);
        Ok(self.found(&out))
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let out = self.of.split(emit, |_| 0);
        let sorted = out.sorted();
        let series: Vec<Series> = sorted.iter().map(|entry| entry.of).collect();
        state(&out.lengths(&sorted, |_| 1), out.ids(&sorted, |_| 1), &series)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let samples = Samples::of(values)?;
        let row = |row: usize| samples.row(row).filter(|_| counts(filter, row));
        let rows: Vec<_> = (0..values[0].len()).map(row).collect();
        let lengths: Vec<usize> = rows.iter().map(|row| usize::from(row.is_some())).collect();
        let ids = LargeStringArray::from_iter_values(rows.iter().flatten().map(|(id, _)| id));
        let series: Vec<Series> = rows.iter().flatten().map(|(_, sample)| *sample).collect();
        state(&lengths, Arc::new(ids), &series)
    }

    fn size(&self) -> usize {
        self.of.bytes()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::UInt32Array;
    use arrow::compute::take;
    use datafusion::common::ScalarValue;

    use super::*;

    fn columns(rows: &[(&str, i64, f64)]) -> Vec<ArrayRef> {
        let ids = StringViewArray::from_iter_values(rows.iter().map(|r| r.0));
        let times = TimestampMillisecondArray::from_iter_values(rows.iter().map(|r| r.1)).with_timezone("UTC");
        let values = Float64Array::from_iter_values(rows.iter().map(|r| r.2));
        vec![Arc::new(ids), Arc::new(times), Arc::new(values)]
    }

    fn whole(kind: GaugeKind, rows: &[(&str, i64, f64)]) -> Whole<Groups> {
        let mut whole = Whole(Groups::new(kind));
        whole.update_batch(&columns(rows)).unwrap();
        whole
    }

    const HALVES: [&[(&str, i64, f64)]; 2] = [&[("a", 1, 2.0), ("b", 1, 10.0)], &[("a", 3, 6.0), ("a", 2, 4.0)]];

    #[test]
    fn each_series_counts_once() {
        for (kind, expected) in
            [(GaugeKind::Avg, 7.0), (GaugeKind::Sum, 14.0), (GaugeKind::First, 12.0), (GaugeKind::Last, 16.0)]
        {
            let mut all = whole(kind, &HALVES.concat());
            assert_eq!(all.evaluate().unwrap(), ScalarValue::Float64(Some(expected)), "{kind:?}");
            assert_eq!(all.evaluate().unwrap(), ScalarValue::Float64(Some(expected)), "{kind:?}: it stays");
            let mut merged = whole(kind, HALVES[0]);
            let states: Vec<ArrayRef> =
                whole(kind, HALVES[1]).state().unwrap().iter().map(|s| s.to_array().unwrap()).collect();
            merged.merge_batch(&states).unwrap();
            assert_eq!(merged.evaluate().unwrap(), ScalarValue::Float64(Some(expected)), "{kind:?} in parts");
        }
        let mut none = Whole(Groups::new(GaugeKind::Sum));
        assert_eq!(none.evaluate().unwrap(), ScalarValue::Float64(None));
        let states: Vec<ArrayRef> = none.state().unwrap().iter().map(|s| s.to_array().unwrap()).collect();
        assert!(states.iter().all(|state| state.as_list::<i32>().value(0).is_empty()));
    }

    fn numbers(found: &ArrayRef) -> Vec<Option<f64>> {
        found.as_primitive::<Float64Type>().iter().collect()
    }

    /// Groups that are emitted one after another, states, and ignored rows.
    #[test]
    fn groups_are_apart() {
        let rows = columns(&[("b", 1, 1.0), ("a", 1, 2.0), ("b", 2, 3.0), ("c", 1, 4.0), ("b", 3, 100.0)]);
        let groups = [0, 1, 0, 2, 2];
        let filter = BooleanArray::from(vec![Some(true), Some(true), Some(true), Some(true), None]);
        let mut all = Groups::new(GaugeKind::Last);
        all.update_batch(&rows, &groups, Some(&filter), 4).unwrap();
        assert_eq!(numbers(&all.evaluate(EmitTo::First(1)).unwrap()), [Some(3.0)]);
        // The former third group is the second one now.
        all.update_batch(&columns(&[("c", 9, 7.0), ("d", 9, 1.0)]), &[1, 2], None, 3).unwrap();
        assert_eq!(numbers(&all.evaluate(EmitTo::All).unwrap()), [Some(2.0), Some(7.0), Some(1.0)]);
        assert_eq!(all.size(), Groups::new(GaugeKind::Last).size(), "all is given back");
        let states = all.convert_to_state(&rows, Some(&filter)).unwrap();
        all.merge_batch(&states, &groups, 3).unwrap();
        let states = all.state(EmitTo::All).unwrap();
        all.merge_batch(&states, &[2, 1, 0], 3).unwrap();
        assert_eq!(numbers(&all.evaluate(EmitTo::All).unwrap()), [Some(4.0), Some(2.0), Some(3.0)]);
    }

    /// Guards against states or maps per group: these took four kilobytes each.
    #[test]
    fn a_group_takes_little() {
        const GROUPS: usize = 100_000;
        let rows: Vec<_> = (0..GROUPS as i64).map(|n| ("a series of a name as long as ids are", n, 1.0)).collect();
        let mut all = Groups::new(GaugeKind::Avg);
        all.update_batch(&columns(&rows), &(0..GROUPS).collect::<Vec<_>>(), None, GROUPS).unwrap();
        assert!(all.size() < GROUPS * 300, "{}", all.size());
        let state: usize = all.state(EmitTo::All).unwrap().iter().map(Array::get_array_memory_size).sum();
        assert!(state < GROUPS * 150, "{state}");
    }

    /// Spilled states are sorted in pieces and read back group by group. Guards against pieces that hold the ids of
    /// all series, and against ids that stay when their last group has left: spilled groups then did not fit in
    /// memory.
    #[test]
    fn pieces_and_groups_that_are_left_hold_their_own_series_alone() {
        const GROUPS: usize = 10_000;
        const PIECE: usize = 100;
        let ids: Vec<String> = (0..GROUPS).map(|n| format!("a series of a long name of its own: {n:08}")).collect();
        let rows: Vec<_> = ids.iter().map(|id| (id.as_str(), 1, 1.0)).collect();
        let groups: Vec<usize> = (0..GROUPS).collect();
        let mut all = Groups::new(GaugeKind::Avg);
        all.update_batch(&columns(&rows), &groups, None, GROUPS).unwrap();
        let most = all.size() / 10;
        let states = all.state(EmitTo::All).unwrap();
        let some = UInt32Array::from_iter_values(0..PIECE as u32);
        let pieces: Vec<ArrayRef> = states.iter().map(|state| take(state, &some, None).unwrap()).collect();
        let taken: usize = pieces.iter().map(Array::get_array_memory_size).sum();
        assert!(taken < PIECE * 300, "{taken}");
        // Like states that are read back in order: all groups but the last one leave each time.
        let mut read = Groups::new(GaugeKind::Avg);
        let mut given = Vec::new();
        for from in (0..GROUPS).step_by(PIECE) {
            let piece: Vec<ArrayRef> = states.iter().map(|state| state.slice(from, PIECE)).collect();
            let held = usize::from(from > 0);
            read.merge_batch(&piece, &(held..held + PIECE).collect::<Vec<_>>(), held + PIECE).unwrap();
            assert!(read.size() < most, "{} at {from}", read.size());
            given.extend(numbers(&read.evaluate(EmitTo::First(held + PIECE - 1)).unwrap()));
        }
        given.extend(numbers(&read.evaluate(EmitTo::All).unwrap()));
        assert_eq!(given, vec![Some(1.0); GROUPS]);
    }
}
