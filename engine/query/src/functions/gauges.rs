//! `gauge_avg`, `gauge_sum`, `gauge_first`, `gauge_last` `(series_id, time, value)`: what series of a gauge give together, each
//! series with one value: the plain mean of its samples (then the mean, or the sum, over series), its first or last one (then
//! the sum). NULL is left out; no samples give NULL.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, ListArray, StringViewArray, TimestampMillisecondArray,
};
use arrow::datatypes::{DataType, FieldRef, Float64Type, Int64Type, TimeUnit, TimestampMillisecondType};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

use super::series_state::{fields, list};

/// What a series gives, and what is made of all series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// Mean of means.
    Avg,
    /// Sum of means.
    Sum,
    /// Sum of first values.
    First,
    /// Sum of last values.
    Last,
}

const KINDS: [(Kind, &str); 4] =
    [(Kind::Avg, "gauge_avg"), (Kind::Sum, "gauge_sum"), (Kind::First, "gauge_first"), (Kind::Last, "gauge_last")];

/// One of the four, which differ in what they take of a series and how they bring series together.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Gauge {
    kind: Kind,
    signature: Signature,
}

/// Gives the functions.
pub(super) fn functions() -> Vec<Arc<AggregateUDF>> {
    let make = |(kind, _): (Kind, &str)| {
        let time = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
        let signature = Signature::exact(vec![DataType::Utf8View, time, DataType::Float64], Volatility::Immutable);
        Arc::new(AggregateUDF::new_from_impl(Gauge { kind, signature }))
    };
    KINDS.map(make).into()
}

/// Fields of a state: lists with an entry for each series.
fn state_types() -> [(&'static str, DataType); 7] {
    [
        ("series", DataType::Utf8View),
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
        Ok(Box::new(Group { kind: self.kind, series: HashMap::new(), bytes: 0 }))
    }
}

/// Samples of one series.
#[derive(Debug, Clone, Copy)]
struct Series {
    sum: f64,
    count: i64,
    first: (i64, f64),
    last: (i64, f64),
}

/// All series of a group.
#[derive(Debug)]
struct Group {
    kind: Kind,
    series: HashMap<String, Series>,
    bytes: usize,
}

impl Group {
    fn add(&mut self, id: &str, more: Series) {
        if let Some(known) = self.series.get_mut(id) {
            known.sum += more.sum;
            known.count += more.count;
            if more.first.0 < known.first.0 {
                known.first = more.first;
            }
            if more.last.0 > known.last.0 {
                known.last = more.last;
            }
        } else {
            self.bytes += id.len() + 2 * size_of::<(String, Series)>();
            self.series.insert(id.to_owned(), more);
        }
    }

    /// Series in order of their names, so that a sum is the same however rows came.
    fn sorted(&self) -> Vec<(&String, &Series)> {
        let mut all: Vec<_> = self.series.iter().collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        all
    }
}

impl Accumulator for Group {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (Some(ids), Some(times), Some(values)) = (
            values[0].as_string_view_opt(),
            values[1].as_primitive_opt::<TimestampMillisecondType>(),
            values[2].as_primitive_opt::<Float64Type>(),
        ) else {
            return exec_err!("a gauge is made of series, times and numbers");
        };
        let (ids, times, values): (&StringViewArray, &TimestampMillisecondArray, &Float64Array) = (ids, times, values);
        for row in 0..ids.len() {
            if ids.is_valid(row) && times.is_valid(row) && values.is_valid(row) {
                let at = (times.value(row), values.value(row));
                self.add(ids.value(row), Series { sum: at.1, count: 1, first: at, last: at });
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let of = |one: &Series| match self.kind {
            Kind::Avg | Kind::Sum => one.sum / one.count as f64,
            Kind::First => one.first.1,
            Kind::Last => one.last.1,
        };
        let sum: f64 = self.sorted().into_iter().map(|(_, one)| of(one)).sum();
        let count = self.series.len();
        let value = if self.kind == Kind::Avg { sum / count as f64 } else { sum };
        Ok(ScalarValue::Float64((count > 0).then_some(value)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.bytes
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let all = self.sorted();
        let doubles = |of: fn(&Series) -> f64| -> ArrayRef {
            Arc::new(Float64Array::from_iter_values(all.iter().map(|(_, one)| of(one))))
        };
        let longs = |of: fn(&Series) -> i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(all.iter().map(|(_, one)| of(one))))
        };
        let ids: ArrayRef = Arc::new(StringViewArray::from_iter_values(all.iter().map(|(id, _)| id.as_str())));
        Ok(vec![
            list(ids),
            list(doubles(|one| one.sum)),
            list(longs(|one| one.count)),
            list(longs(|one| one.first.0)),
            list(doubles(|one| one.first.1)),
            list(longs(|one| one.last.0)),
            list(doubles(|one| one.last.1)),
        ])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let lists: Option<Vec<&ListArray>> = states.iter().map(|state| state.as_list_opt::<i32>()).collect();
        let Some([ids, sums, counts, first_times, firsts, last_times, lasts]) = lists.as_deref() else {
            return exec_err!("a state of a gauge is of another type");
        };
        for row in (0..ids.len()).filter(|row| ids.is_valid(*row)) {
            let double = |list: &ListArray| list.value(row).as_primitive::<Float64Type>().clone();
            let long = |list: &ListArray| list.value(row).as_primitive::<Int64Type>().clone();
            let ids = ids.value(row);
            let (sums, counts, firsts, lasts) = (double(sums), long(counts), double(firsts), double(lasts));
            let (first_times, last_times) = (long(first_times), long(last_times));
            for (at, id) in ids.as_string_view().iter().enumerate() {
                let one = Series {
                    sum: sums.value(at),
                    count: counts.value(at),
                    first: (first_times.value(at), firsts.value(at)),
                    last: (last_times.value(at), lasts.value(at)),
                };
                self.add(id.unwrap_or_default(), one);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(kind: Kind, rows: &[(&str, i64, f64)]) -> Group {
        let mut group = Group { kind, series: HashMap::new(), bytes: 0 };
        let ids = StringViewArray::from_iter_values(rows.iter().map(|r| r.0));
        let times = TimestampMillisecondArray::from_iter_values(rows.iter().map(|r| r.1)).with_timezone("UTC");
        let values = Float64Array::from_iter_values(rows.iter().map(|r| r.2));
        group.update_batch(&[Arc::new(ids), Arc::new(times), Arc::new(values)]).unwrap();
        group
    }

    #[test]
    fn each_series_counts_once() {
        let halves = [&[("a", 1, 2.0), ("b", 1, 10.0)][..], &[("a", 3, 6.0), ("a", 2, 4.0)][..]];
        for (kind, expected) in [(Kind::Avg, 7.0), (Kind::Sum, 14.0), (Kind::First, 12.0), (Kind::Last, 16.0)] {
            let mut whole = group(kind, &halves.concat());
            assert_eq!(whole.evaluate().unwrap(), ScalarValue::Float64(Some(expected)), "{kind:?}");
            let mut merged = group(kind, halves[0]);
            let states: Vec<ArrayRef> =
                group(kind, halves[1]).state().unwrap().iter().map(|s| s.to_array().unwrap()).collect();
            merged.merge_batch(&states).unwrap();
            assert_eq!(merged.evaluate().unwrap(), ScalarValue::Float64(Some(expected)), "{kind:?} in parts");
        }
        assert_eq!(group(Kind::Sum, &[]).evaluate().unwrap(), ScalarValue::Float64(None));
    }
}
