//! `rate(value, time, series_id)`: how much counters rise a second, each series for itself, then the sum over series. A
//! value below the one before it is a reset: the counter began again at 0 (PromQL's `rate`). Nothing is said of a time
//! before the first sample or after the last one, so that there is no extrapolation to the ends of a range.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, ListArray, StringViewArray};
use arrow::datatypes::{DataType, FieldRef, Float64Type, Int64Type, TimeUnit, TimestampMillisecondType};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

use super::series_state::{fields, list};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Rate {
    signature: Signature,
}

/// Gives the function.
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
        let types = [("series", DataType::Utf8View), ("times", DataType::Int64), ("values", DataType::Float64)];
        Ok(fields(args.name, types))
    }

    fn accumulator(&self, _arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Counters::default()))
    }
}

/// Samples of all series of a group: times and values, as they come.
#[derive(Debug, Default)]
struct Counters {
    series: BTreeMap<String, Vec<(i64, f64)>>,
    bytes: usize,
}

impl Counters {
    fn add(&mut self, id: &str, time_ms: i64, value: f64) {
        self.bytes += 2 * size_of::<(i64, f64)>();
        if let Some(samples) = self.series.get_mut(id) {
            samples.push((time_ms, value));
        } else {
            self.bytes += id.len() + 2 * size_of::<(String, Vec<(i64, f64)>)>();
            self.series.insert(id.to_owned(), vec![(time_ms, value)]);
        }
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

impl Accumulator for Counters {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (Some(numbers), Some(times), Some(ids)) = (
            values[0].as_primitive_opt::<Float64Type>(),
            values[1].as_primitive_opt::<TimestampMillisecondType>(),
            values[2].as_string_view_opt(),
        ) else {
            return exec_err!("a rate is made of numbers, times and series");
        };
        for ((number, time_ms), id) in numbers.iter().zip(times.iter()).zip(ids.iter()) {
            if let (Some(number), Some(time_ms), Some(id)) = (number, time_ms, id) {
                self.add(id, time_ms, number);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let rates: Vec<f64> = self.series.values_mut().filter_map(|samples| rate_of(samples)).collect();
        Ok(ScalarValue::Float64((!rates.is_empty()).then(|| rates.iter().sum())))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.bytes
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let all = || self.series.iter().flat_map(|(id, samples)| samples.iter().map(move |sample| (id, sample)));
        let ids: ArrayRef = Arc::new(StringViewArray::from_iter_values(all().map(|(id, _)| id.as_str())));
        let times: ArrayRef = Arc::new(Int64Array::from_iter_values(all().map(|(_, sample)| sample.0)));
        let values: ArrayRef = Arc::new(Float64Array::from_iter_values(all().map(|(_, sample)| sample.1)));
        Ok(vec![list(ids), list(times), list(values)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let lists: Option<Vec<&ListArray>> = states.iter().map(|state| state.as_list_opt::<i32>()).collect();
        let Some([ids, times, values]) = lists.as_deref() else {
            return exec_err!("a state of a rate is of another type");
        };
        for ((ids, times), values) in ids.iter().zip(times.iter()).zip(values.iter()) {
            let (Some(ids), Some(times), Some(values)) = (ids, times, values) else { continue };
            let (times, values) = (times.as_primitive::<Int64Type>(), values.as_primitive::<Float64Type>());
            for (at, id) in ids.as_string_view().iter().enumerate() {
                self.add(id.unwrap_or_default(), times.value(at), values.value(at));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_rises_for_itself() {
        let halves = [[("a", 0, 10.0), ("b", 0, 100.0)], [("b", 10_000, 200.0), ("a", 10_000, 5.0)]];
        let counters = |rows: &[(&str, i64, f64)]| {
            let mut counters = Counters::default();
            for (id, time, value) in rows {
                counters.add(id, *time, *value);
            }
            counters
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
    }
}
