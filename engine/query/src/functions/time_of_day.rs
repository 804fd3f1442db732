//! Hour, minute and second as the time since midnight, from which `make_time`, `make_timestamp` and
//! `make_timestamptz` are computed. Values out of range are errors, and seconds have six decimals. With a fourth argument
//! (`true`) the end of the day is out of range, too: no time of a day shows `24:00` here, and `00:00` would be another one.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, IntervalMonthDayNanoArray};
use arrow::datatypes::{
    DataType, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::{exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Clock {
    signature: Signature,
}

pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Clock { signature: Signature::user_defined(Volatility::Immutable) }))
}

impl ScalarUDFImpl for Clock {
    fn name(&self) -> &'static str {
        "time_of_day"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let is_number = |kind: &DataType| kind.is_numeric() || kind.is_null() || kind.is_string();
        match types {
            [parts @ .., DataType::Boolean] if parts.len() == 3 && parts.iter().all(is_number) => {
                Ok(vec![DataType::Int64, DataType::Int64, DataType::Float64, DataType::Boolean])
            }
            parts if parts.len() == 3 && parts.iter().all(is_number) => {
                Ok(vec![DataType::Int64, DataType::Int64, DataType::Float64])
            }
            _ => plan_err!("No function matches: a time of a day has an hour, a minute and a second, not {types:?}"),
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Interval(IntervalUnit::MonthDayNano))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let columns =
            args.args.iter().map(|value| value.to_array(args.number_rows)).collect::<Result<Vec<ArrayRef>>>()?;
        let [hours, minutes, seconds, of_day @ ..] = columns.as_slice() else {
            return internal_err!("a time of a day has three parts");
        };
        let latest = if of_day.is_empty() { MICROS_PER_DAY } else { MICROS_PER_DAY - 1 };
        let (hours, minutes) = (hours.as_primitive::<Int64Type>(), minutes.as_primitive::<Int64Type>());
        let rows = hours.iter().zip(minutes.iter()).zip(seconds.as_primitive::<Float64Type>().iter());
        let times = rows.map(|((hour, minute), second)| match (hour, minute, second) {
            (Some(hour), Some(minute), Some(second)) => since_midnight(hour, minute, second, latest).map(Some),
            _ => Ok(None),
        });
        let times: IntervalMonthDayNanoArray = times.collect::<Result<_>>()?;
        Ok(ColumnarValue::Array(Arc::new(times)))
    }
}

/// As PostgreSQL's `float_time_overflows`, accepts second 60, and hour 24 if all else is 0. `latest`: the last time that is
/// accepted, in microseconds.
fn since_midnight(hour: i64, minute: i64, second: f64, latest: i64) -> Result<IntervalMonthDayNano> {
    let micros = (second * MICROS_PER_SECOND as f64).round_ties_even();
    let is_known = (0..=24).contains(&hour)
        && (0..=59).contains(&minute)
        && (0.0..=(60 * MICROS_PER_SECOND) as f64).contains(&micros);
    let micros = if is_known { (hour * 60 + minute) * 60 * MICROS_PER_SECOND + micros as i64 } else { i64::MAX };
    if micros > latest {
        return exec_err!("time field value out of range: {hour}:{minute:02}:{second:02}");
    }
    Ok(IntervalMonthDayNanoType::make_value(0, 0, micros * 1_000))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int32Array};

    use super::super::testing::{call, column, shown};
    use super::*;

    #[test]
    fn clocks_show_no_other_times() {
        for (hour, minute, second, expected) in [
            (0, 0, 0.0, Some(0)),
            (24, 0, 0.0, Some(86_400_000_000)),
            (23, 59, 60.0, Some(86_400_000_000)),
            (23, 59, 59.999_999_9, Some(86_400_000_000)),
            (8, 15, 23.5, Some(29_723_500_000)),
            (24, 0, 0.000_001, None),
            (24, 1, 0.0, None),
            (25, 0, 0.0, None),
            (-1, 0, 0.0, None),
            (1, 60, 0.0, None),
            (1, -1, 0.0, None),
            (1, 0, 60.5, None),
            (1, 0, -0.5, None),
            (1, 0, f64::NAN, None),
            (1, 0, f64::INFINITY, None),
            (i64::MAX, i64::MAX, 0.0, None),
        ] {
            match (since_midnight(hour, minute, second, MICROS_PER_DAY), expected) {
                (Ok(time), Some(micros)) => assert_eq!((time.days, time.nanoseconds), (0, micros * 1_000), "{hour}"),
                (Err(error), None) => assert!(error.to_string().contains("out of range: "), "{error}"),
                (found, expected) => panic!("{hour}:{minute}:{second}: {found:?} against {expected:?}"),
            }
        }
    }

    #[test]
    fn the_end_of_a_day_is_no_time_of_it() {
        let latest = MICROS_PER_DAY - 1;
        for (hour, minute, second) in [(24, 0, 0.0), (23, 59, 60.0), (23, 59, 59.999_999_9)] {
            assert!(since_midnight(hour, minute, second, latest).is_err(), "{hour}:{minute}:{second}");
        }
        assert!(since_midnight(23, 59, 59.999_999, latest).is_ok());
    }

    #[test]
    fn what_lacks_a_part_is_no_time() {
        let hours = column(Int32Array::from(vec![Some(1), None, Some(3)]));
        let minutes = column(Int32Array::from(vec![Some(1), Some(2), None]));
        let seconds = column(Float64Array::from(vec![Some(1.0), Some(2.0), Some(3.0)]));
        let found = shown(&call(&function(), &[hours, minutes, seconds], 3).unwrap());
        assert!(found[0].is_some() && found[1].is_none() && found[2].is_none(), "{found:?}");
    }
}
