//! `interval_trunc(unit, x)`: truncates an interval, or the difference of two times. A statement does not always show
//! whether the argument is that or a time, which is passed on to DataFusion's `date_trunc`, except for centuries and
//! the like.

use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, IntervalMonthDayNanoArray};
use arrow::compute::kernels::numeric::sub;
use arrow::compute::{DatePart, cast, date_part};
use arrow::datatypes::{DataType, Int32Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit};
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::functions::datetime::date_trunc;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::intervals::spread_out;
use crate::time_literals::era;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Truncated {
    signature: Signature,
}

/// Gives the function.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Truncated { signature: Signature::user_defined(Volatility::Immutable) }))
}

fn is_length(kind: &DataType) -> bool {
    matches!(kind, DataType::Interval(_) | DataType::Duration(_))
}

impl ScalarUDFImpl for Truncated {
    fn name(&self) -> &'static str {
        "interval_trunc"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [unit, value] if unit.is_string() => Ok(vec![
                DataType::Utf8,
                match value {
                    DataType::Duration(_) | DataType::Timestamp(..) => value.clone(),
                    DataType::Date32 | DataType::Date64 => DataType::Timestamp(TimeUnit::Nanosecond, None),
                    _ => DataType::Interval(IntervalUnit::MonthDayNano),
                },
            ]),
            _ => plan_err!("`date_trunc` takes a unit and a time or an interval"),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [_, time @ DataType::Timestamp(..)] => Ok(time.clone()),
            _ => Ok(DataType::Interval(IntervalUnit::MonthDayNano)),
        }
    }

    /// Times are passed to DataFusion if it knows the unit.
    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let is_time = match args.as_slice() {
            [unit, value] => !is_length(&info.get_data_type(value)?) && unit.as_literal().and_then(era_of).is_none(),
            _ => false,
        };
        Ok(if is_time {
            ExprSimplifyResult::Simplified(date_trunc().call(args))
        } else {
            ExprSimplifyResult::Original(args)
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [units, values] = args.args.as_slice() else { return exec_err!("`date_trunc` takes a unit and a value") };
        if !is_length(&values.data_type()) {
            let era = match units {
                ColumnarValue::Scalar(unit) => era_of(unit),
                ColumnarValue::Array(_) => None,
            };
            return match era {
                Some(era) => begun(era, args),
                None => date_trunc().invoke_with_args(args),
            };
        }
        let (units, values) = (units.to_array(args.number_rows)?, values.to_array(args.number_rows)?);
        let units = cast(&units, &DataType::Utf8)?;
        let values = if matches!(values.data_type(), DataType::Duration(_)) {
            spread_out(&values)?
        } else {
            cast(&values, &DataType::Interval(IntervalUnit::MonthDayNano))?
        };
        let mut out = IntervalMonthDayNanoArray::builder(values.len());
        for (unit, value) in units.as_string::<i32>().iter().zip(values.as_primitive::<IntervalMonthDayNanoType>()) {
            match unit.zip(value) {
                None => out.append_null(),
                Some((unit, value)) => match truncated(unit, value) {
                    Some(value) => out.append_value(value),
                    None => return exec_err!("an interval has no unit `{unit}`"),
                },
            }
        }
        Ok(ColumnarValue::Array(Arc::new(out.finish())))
    }
}

fn era_of(unit: &ScalarValue) -> Option<(i64, i64)> {
    era(unit.try_as_str()??)
}

/// The beginnings of the centuries (or the like) that contain times.
fn begun((years, less): (i64, i64), mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
    let rows = args.number_rows;
    args.args[0] = ColumnarValue::Scalar(ScalarValue::from("year"));
    let begun = date_trunc().invoke_with_args(args)?.to_array(rows)?;
    let since = |year: i32| {
        let years = (i64::from(year) + less).rem_euclid(years);
        IntervalMonthDayNano::new(12 * years as i32, 0, 0)
    };
    let year = date_part(begun.as_ref(), DatePart::Year)?;
    let since = year.as_primitive::<Int32Type>().unary::<_, IntervalMonthDayNanoType>(since);
    Ok(ColumnarValue::Array(sub(&begun, &since)?))
}

/// An interval truncated towards zero; `None` if intervals do not have the unit.
fn truncated(unit: &str, value: IntervalMonthDayNano) -> Option<IntervalMonthDayNano> {
    const SECOND_NS: i64 = 1_000_000_000;
    let unit = unit.to_lowercase();
    let length = match unit.as_str() {
        "microsecond" | "microseconds" => 1_000,
        "millisecond" | "milliseconds" => 1_000_000,
        "second" | "seconds" => SECOND_NS,
        "minute" | "minutes" => 60 * SECOND_NS,
        "hour" | "hours" => 3_600 * SECOND_NS,
        "day" | "days" => return Some(IntervalMonthDayNano::new(value.months, value.days, 0)),
        other => {
            let months = match other {
                "month" | "months" => 1,
                "quarter" => 3,
                "year" | "years" => 12,
                "decade" | "decades" => 120,
                "century" | "centuries" => 1_200,
                "millennium" | "millennia" => 12_000,
                _ => return None,
            };
            return Some(IntervalMonthDayNano::new(value.months - value.months % months, 0, 0));
        }
    };
    Some(IntervalMonthDayNano::new(value.months, value.days, value.nanoseconds - value.nanoseconds % length))
}

#[cfg(test)]
mod tests {
    use arrow::array::{DurationSecondArray, TimestampNanosecondArray};
    use arrow::datatypes::TimestampNanosecondType;
    use chrono::{DateTime, Utc};

    use super::super::testing::{call, column, text, texts};
    use super::*;

    #[test]
    fn intervals_are_cut_off_as_in_postgresql() {
        let hour = 3_600_000_000_000;
        let check = |unit: &str, value: (i32, i32, i64), expected: (i32, i32, i64)| {
            let found = truncated(unit, IntervalMonthDayNano::new(value.0, value.1, value.2));
            assert_eq!(found, Some(IntervalMonthDayNano::new(expected.0, expected.1, expected.2)), "{unit}");
        };
        check("hour", (0, 1, 2 * hour + 5), (0, 1, 2 * hour));
        check("Seconds", (14, 3, -1_500_000_000), (14, 3, -1_000_000_000));
        check("day", (14, 3, 30 * hour), (14, 3, 0));
        check("month", (14, 45, hour), (14, 0, 0));
        check("quarter", (14, 1, 0), (12, 0, 0));
        check("year", (-30, 5, 0), (-24, 0, 0));
        check("century", (2_500, 0, 0), (2_400, 0, 0));
        assert_eq!(truncated("week", IntervalMonthDayNano::new(0, 7, 0)), None);
    }

    #[test]
    fn times_are_left_to_the_planner() {
        let function = function();
        let time = DataType::Timestamp(TimeUnit::Nanosecond, None);
        assert_eq!(
            function.inner().coerce_types(&[DataType::Utf8View, DataType::Date32]).unwrap(),
            [DataType::Utf8, time.clone()]
        );
        assert_eq!(function.inner().return_type(&[DataType::Utf8, time.clone()]).unwrap(), time);
        assert!(function.inner().coerce_types(&[time]).is_err());
    }

    fn ns(text: &str) -> i64 {
        text.parse::<DateTime<Utc>>().unwrap().timestamp_nanos_opt().unwrap()
    }

    #[test]
    fn eras_begin_where_they_do_in_postgresql() {
        for (unit, time, begun) in [
            ("decade", "2024-05-06T07:08:09Z", "2020-01-01T00:00:00Z"),
            ("decade", "2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
            ("decades", "1969-12-31T23:59:59Z", "1960-01-01T00:00:00Z"),
            ("Century", "2000-12-31T23:59:59Z", "1901-01-01T00:00:00Z"),
            ("century", "2001-01-01T00:00:00Z", "2001-01-01T00:00:00Z"),
            ("millennium", "2024-05-06T00:00:00Z", "2001-01-01T00:00:00Z"),
            ("year", "2024-05-06T00:00:00Z", "2024-01-01T00:00:00Z"),
            ("day", "2024-05-06T07:08:09Z", "2024-05-06T00:00:00Z"),
        ] {
            let times = column(TimestampNanosecondArray::from(vec![Some(ns(time)), None]));
            let found = call(&function(), &[text(unit), times], 2).unwrap();
            let expected = TimestampNanosecondArray::from(vec![Some(ns(begun)), None]);
            assert_eq!(found.as_primitive::<TimestampNanosecondType>(), &expected, "{unit} {time}");
        }
    }

    #[test]
    fn lengths_are_cut_off_row_by_row() {
        let lengths = column(DurationSecondArray::from(vec![Some(93_784), Some(93_784), Some(-93_784), None]));
        let units = texts(&[Some("hour"), None, Some("day"), Some("day")]);
        let found = call(&function(), &[units, lengths.clone()], 4).unwrap();
        let of = |days, ns| Some(IntervalMonthDayNano::new(0, days, ns));
        let expected = IntervalMonthDayNanoArray::from(vec![of(1, 7_200_000_000_000), None, of(-1, 0), None]);
        assert_eq!(found.as_primitive::<IntervalMonthDayNanoType>(), &expected);
        let refused = call(&function(), &[text("week"), lengths], 4).unwrap_err().to_string();
        assert!(refused.contains("an interval has no unit `week`"), "{refused}");
        for (unit, expected) in [("microseconds", 1_234_567_000), ("milliseconds", 1_234_000_000), ("MINUTE", 0)] {
            let found = truncated(unit, IntervalMonthDayNano::new(0, 0, 1_234_567_891)).unwrap();
            assert_eq!(found.nanoseconds, expected, "{unit}");
        }
        for (unit, expected) in [("decades", -120), ("quarter", -135), ("months", -137), ("millennia", 0)] {
            assert_eq!(truncated(unit, IntervalMonthDayNano::new(-137, 9, 9)).unwrap().months, expected, "{unit}");
        }
    }
}
