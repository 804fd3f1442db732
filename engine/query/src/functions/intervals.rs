//! What PostgreSQL calculates with intervals and arrow does not: intervals times and by numbers, and which of two is longer.

use std::sync::Arc;

use arrow::array::{AsArray, Decimal128Array, IntervalMonthDayNanoArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit};
use datafusion::common::{exec_err, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

const DAY_NS: i64 = 86_400_000_000_000;
/// Days of a month where there is no calendar to look them up in.
const MONTH_DAYS: i64 = 30;
/// Digits of the length of the longest interval.
const DIGITS: u8 = 38;

/// What is calculated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Asked {
    Product,
    Quotient,
    Length,
}

/// A function of an interval, and of a number.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Calculation {
    asked: Asked,
    signature: Signature,
}

fn function(asked: Asked) -> ScalarUDF {
    let kind = DataType::Interval(IntervalUnit::MonthDayNano);
    let types = if asked == Asked::Length { vec![kind] } else { vec![kind, DataType::Float64] };
    ScalarUDF::from(Calculation { asked, signature: Signature::exact(types, Volatility::Immutable) })
}

/// An interval times a number.
pub(crate) fn product() -> ScalarUDF {
    function(Asked::Product)
}

/// An interval by a number.
pub(crate) fn quotient() -> ScalarUDF {
    function(Asked::Quotient)
}

/// The length of an interval in nanoseconds, by which it compares with others.
pub(crate) fn length() -> ScalarUDF {
    function(Asked::Length)
}

impl ScalarUDFImpl for Calculation {
    fn name(&self) -> &'static str {
        match self.asked {
            Asked::Product => "interval_product",
            Asked::Quotient => "interval_quotient",
            Asked::Length => "interval_length",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(match self.asked {
            Asked::Product | Asked::Quotient => DataType::Interval(IntervalUnit::MonthDayNano),
            Asked::Length => DataType::Decimal128(DIGITS, 0),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(intervals) = args.args.first() else { return internal_err!("an interval is lacking") };
        let intervals = intervals.to_array(args.number_rows)?;
        let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
        if self.asked == Asked::Length {
            let lengths: Decimal128Array = intervals.iter().map(|interval| interval.map(length_of)).collect();
            let lengths = lengths.with_precision_and_scale(DIGITS, 0)?;
            return Ok(ColumnarValue::Array(Arc::new(lengths)));
        }
        let Some(numbers) = args.args.get(1) else { return internal_err!("a number is lacking") };
        let numbers = cast(&numbers.to_array(args.number_rows)?, &DataType::Float64)?;
        let mut out = IntervalMonthDayNanoArray::builder(intervals.len());
        for (interval, number) in intervals.iter().zip(numbers.as_primitive::<Float64Type>().iter()) {
            let (Some(interval), Some(number)) = (interval, number) else {
                out.append_null();
                continue;
            };
            if self.asked == Asked::Quotient && number == 0.0 {
                return exec_err!("an interval is divided by zero");
            }
            let is_product = self.asked == Asked::Product;
            let scaled = scaled(interval, |part| if is_product { part * number } else { part / number });
            let Some(scaled) = scaled else { return exec_err!("an interval is too long") };
            out.append_value(scaled);
        }
        Ok(ColumnarValue::Array(Arc::new(out.finish())))
    }
}

fn length_of(interval: IntervalMonthDayNano) -> i128 {
    let days = i64::from(interval.months) * MONTH_DAYS + i64::from(interval.days);
    i128::from(days) * i128::from(DAY_NS) + i128::from(interval.nanoseconds)
}

/// An interval whose parts are scaled: what is left of a month goes to the days, and of a day to the time.
fn scaled(interval: IntervalMonthDayNano, scale: impl Fn(f64) -> f64) -> Option<IntervalMonthDayNano> {
    let within = |value: f64, most: f64| (value.abs() <= most).then_some(value);
    let months = scale(f64::from(interval.months));
    // What calculating leaves beside a whole number is none of the interval's: 0.3 months are 9 days.
    let settled = |days: f64| (days * 1e9).round() / 1e9;
    let days_of_months = settled((months - months.trunc()) * MONTH_DAYS as f64);
    let days = scale(f64::from(interval.days)) + days_of_months;
    let time = scale(interval.nanoseconds as f64) + (days - days.trunc()) * DAY_NS as f64;
    let months = within(months.trunc(), f64::from(i32::MAX))? as i32;
    let days = within(days.trunc(), f64::from(i32::MAX))? as i32;
    let nanoseconds = within(time.round(), 9.2e18)? as i64;
    Some(IntervalMonthDayNano::new(months, days, nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_scaled_as_in_postgresql() {
        let hour = DAY_NS / 24;
        let check = |interval: (i32, i32, i64), by: f64, expected: (i32, i32, i64)| {
            let interval = IntervalMonthDayNano::new(interval.0, interval.1, interval.2);
            let found = scaled(interval, |part| part * by).unwrap();
            assert_eq!((found.months, found.days, found.nanoseconds), expected, "{interval:?} * {by}");
        };
        check((0, 1, 0), 2.0, (0, 2, 0));
        check((0, 0, hour), 1.5, (0, 0, hour + hour / 2));
        check((1, 0, 0), 0.5, (0, 15, 0));
        check((1, 0, 0), 2.3, (2, 9, 0));
        check((0, 1, 0), -0.5, (0, 0, -12 * hour));
        assert_eq!(scaled(IntervalMonthDayNano::new(1, 0, 0), |part| part * 1e300), None);
        assert_eq!(scaled(IntervalMonthDayNano::new(1, 0, 0), |_| f64::NAN), None);
    }

    #[test]
    fn a_day_is_as_long_as_its_hours() {
        let of = |months, days, ns| length_of(IntervalMonthDayNano::new(months, days, ns));
        assert_eq!(of(0, 1, 0), of(0, 0, DAY_NS));
        assert_eq!(of(1, 0, 0), of(0, 30, 0));
        assert!(of(0, 0, 25 * DAY_NS / 24) > of(0, 1, 0));
    }
}
