//! `rate(value, time, series_id)`: how much counters rise per second, computed for each series and then summed. A value
//! below the one before it is a reset: the counter began again at 0 (as in PromQL's `rate`). Unlike there, nothing is
//! extrapolated to the time before the first sample or after the last one.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, LargeStringArray, ListArray,
};
use arrow::datatypes::{DataType, FieldRef, Float64Type, Int64Type, TimeUnit, TimestampMillisecondType};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};

use super::series_state::{BySeries, NAMES, SeriesGroups, Whole, counts, fields, lists, names_of};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Rate {
    signature: Signature,
}

pub(super) fn function() -> Arc<AggregateUDF> {
    let time = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    let signature = Signature::exact(vec![DataType::Float64, time, DataType::Utf8View], Volatility::Immutable);
    Arc::new(AggregateUDF::new_from_impl(Rate { signature }))
}

impl AggregateUDFImpl for Rate {
    fn name(&self) -> &'static str {
        "rate"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let types = [("series", NAMES), ("times", DataType::Int64), ("values", DataType::Float64)];
        Ok(fields(args.name, types))
    }

    fn accumulator(&self, _arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Whole(Counters::default())))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, _args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(Counters::default()))
    }
}

/// Time and value.
type Sample = (i64, f64);

/// Samples of all series of all groups, as they come.
#[derive(Debug, Default)]
struct Counters(BySeries<Vec<Sample>>);

fn held(samples: &Vec<Sample>) -> usize {
    samples.capacity() * size_of::<Sample>()
}

/// The samples of a batch: numbers, times and names of series.
fn samples_of<'a>(columns: &'a [ArrayRef]) -> Result<impl Fn(usize) -> Option<(&'a str, Sample)> + 'a> {
    let (Some(numbers), Some(times), Some(ids)) = (
        columns[0].as_primitive_opt::<Float64Type>(),
        columns[1].as_primitive_opt::<TimestampMillisecondType>(),
        columns[2].as_string_view_opt(),
    ) else {
        return exec_err!("a rate is made of numbers, times and series");
    };
    Ok(move |row| {
        let is_whole = numbers.is_valid(row) && times.is_valid(row) && ids.is_valid(row);
        is_whole.then(|| (ids.value(row), (times.value(row), numbers.value(row))))
    })
}

/// Lists of a state, with an entry for each sample.
fn state(lengths: &[usize], ids: ArrayRef, samples: &[Sample]) -> Result<Vec<ArrayRef>> {
    let times = Int64Array::from_iter_values(samples.iter().map(|sample| sample.0));
    let values = Float64Array::from_iter_values(samples.iter().map(|sample| sample.1));
    lists(lengths, [ids, Arc::new(times) as ArrayRef, Arc::new(values)])
}

impl Counters {
    fn add(&mut self, group: usize, id: &str, sample: Sample) {
        let samples = self.0.of(group, id);
        let before = held(samples);
        samples.push(sample);
        let more = held(samples) - before;
        self.0.held += more;
    }
}

/// What a counter rises a second; none: of one sample there is nothing to say.
fn rate_of(samples: &mut [(i64, f64)]) -> Option<f64> {
    samples.sort_by_key(|(time_ms, _)| *time_ms);
    let (first, last) = (samples.first()?, samples.last()?);
    let seconds = (last.0 - first.0) as f64 / 1_000.0;
    let rise = |pair: &[(i64, f64)]| if pair[1].1 < pair[0].1 { pair[1].1 } else { pair[1].1 - pair[0].1 };
    let risen: f64 = samples.windows(2).map(rise).sum();
    (seconds > 0.0).then_some(risen / seconds)
}

/// The rate of each group.
fn rates(groups: &BySeries<Vec<Sample>>) -> ArrayRef {
    let mut sums = vec![None; groups.groups];
    for entry in groups.sorted() {
        if let Some(rate) = rate_of(&mut entry.of.clone()) {
            sums[entry.group] = Some(sums[entry.group].unwrap_or(-0.0) + rate);
        }
    }
    Arc::new(sums.into_iter().collect::<Float64Array>())
}

impl SeriesGroups for Counters {
    fn room(&mut self, groups: usize) {
        self.0.room(groups);
    }

    fn values(&self) -> ArrayRef {
        rates(&self.0)
    }
}

impl GroupsAccumulator for Counters {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.0.room(total);
        let samples = samples_of(values)?;
        for (row, group) in groups.iter().enumerate().filter(|(row, _)| counts(filter, *row)) {
            if let Some((id, sample)) = samples(row) {
                self.add(*group, id, sample);
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.0.room(total);
        let lists: Option<Vec<&ListArray>> = states.iter().map(|state| state.as_list_opt::<i32>()).collect();
        let Some([ids, times, values]) = lists.as_deref() else {
            return exec_err!("a state of a rate is of another type");
        };
        let names = names_of(ids)?;
        let (times, values) =
            (times.values().as_primitive::<Int64Type>(), values.values().as_primitive::<Float64Type>());
        for (row, group) in groups.iter().enumerate().filter(|(row, _)| ids.is_valid(*row)) {
            let range = ids.value_offsets()[row] as usize..ids.value_offsets()[row + 1] as usize;
            for at in range {
                self.add(*group, names.value(at), (times.value(at), values.value(at)));
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        Ok(rates(&self.0.split(emit, held)))
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let out = self.0.split(emit, held);
        let sorted = out.sorted();
        let samples: Vec<Sample> = sorted.iter().flat_map(|entry| entry.of.iter().copied()).collect();
        state(&out.lengths(&sorted, Vec::len), out.ids(&sorted, Vec::len), &samples)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let samples = samples_of(values)?;
        let rows: Vec<_> = (0..values[0].len()).map(|row| samples(row).filter(|_| counts(filter, row))).collect();
        let lengths: Vec<usize> = rows.iter().map(|row| usize::from(row.is_some())).collect();
        let ids = LargeStringArray::from_iter_values(rows.iter().flatten().map(|(id, _)| id));
        let samples: Vec<Sample> = rows.iter().flatten().map(|(_, sample)| *sample).collect();
        state(&lengths, Arc::new(ids), &samples)
    }

    fn size(&self) -> usize {
        self.0.bytes()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::common::ScalarValue;

    use super::*;

    #[test]
    fn each_series_rises_for_itself() {
        let halves = [[("a", 0, 10.0), ("b", 0, 100.0)], [("b", 10_000, 200.0), ("a", 10_000, 5.0)]];
        let counters = |rows: &[(&str, i64, f64)]| {
            let mut counters = Counters::default();
            counters.room(1);
            for (id, time, value) in rows {
                counters.add(0, id, (*time, *value));
            }
            Whole(counters)
        };
        // `a` began again at 0 and rose by 5, `b` by 100.
        let expected = ScalarValue::Float64(Some(10.5));
        assert_eq!(counters(&halves.concat()).evaluate().unwrap(), expected);
        let mut merged = counters(&halves[0]);
        let states: Vec<ArrayRef> =
            counters(&halves[1]).state().unwrap().iter().map(|state| state.to_array().unwrap()).collect();
        merged.merge_batch(&states).unwrap();
        assert_eq!(merged.evaluate().unwrap(), expected);
        assert_eq!(counters(&[("a", 0, 1.0)]).evaluate().unwrap(), ScalarValue::Float64(None));
        let mut groups = merged.0;
        groups.add(1, "a", (0, 1.0));
        groups.add(1, "a", (1_000, 2.0));
        groups.room(2);
        let states = groups.state(EmitTo::First(1)).unwrap();
        groups.merge_batch(&states, &[1], 2).unwrap();
        let found = groups.evaluate(EmitTo::All).unwrap();
        assert_eq!(found.as_primitive::<Float64Type>().iter().collect::<Vec<_>>(), [Some(1.0), Some(10.5)]);
    }
}
