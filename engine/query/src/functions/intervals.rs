//! PostgreSQL's arithmetic of intervals that Arrow lacks: multiplication and division by numbers, comparison by
//! length, differences of times in days, and seconds with their fraction.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array, Float64Array, Int32Array, IntervalMonthDayNanoArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::{exec_err, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

const DAY_NS: i64 = 86_400_000_000_000;
const MINUTE_NS: i64 = 60_000_000_000;
const DAY_SECONDS: f64 = 86_400.0;
/// Days of a month outside of a calendar.
const MONTH_DAYS: i64 = 30;
/// Days of a year there.
const YEAR_DAYS: f64 = 365.25;
/// Digits of the length of the longest interval.
pub(crate) const LENGTH_DIGITS: u8 = 38;

/// What is computed; [`Self::Length`] and those behind it take no number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum IntervalOperation {
    Product,
    Quotient,
    Length,
    Spread,
    Micros,
    Seconds,
}

/// A function of an interval, and of a number.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Calculation {
    asked: IntervalOperation,
    signature: Signature,
}

fn function(asked: IntervalOperation) -> ScalarUDF {
    let kind = DataType::Interval(IntervalUnit::MonthDayNano);
    let signature = match asked {
        IntervalOperation::Product | IntervalOperation::Quotient => {
            Signature::exact(vec![kind, DataType::Float64], Volatility::Immutable)
        }
        IntervalOperation::Length | IntervalOperation::Micros | IntervalOperation::Seconds => {
            Signature::exact(vec![kind], Volatility::Immutable)
        }
        IntervalOperation::Spread => Signature::any(1, Volatility::Immutable),
    };
    ScalarUDF::from(Calculation { asked, signature })
}

/// An interval multiplied by a number.
pub(crate) fn product() -> ScalarUDF {
    function(IntervalOperation::Product)
}

/// An interval divided by a number.
pub(crate) fn quotient() -> ScalarUDF {
    function(IntervalOperation::Quotient)
}

/// The length of an interval in nanoseconds, by which intervals are compared.
pub(crate) fn length() -> ScalarUDF {
    function(IntervalOperation::Length)
}

/// The interval in days and time that equals the difference of two times, which Arrow represents as a duration.
pub(crate) fn spread() -> ScalarUDF {
    function(IntervalOperation::Spread)
}

/// The microseconds of an interval within its minute. Arrow computes them in nanoseconds, which overflow beyond two
/// seconds.
pub(crate) fn micros() -> ScalarUDF {
    function(IntervalOperation::Micros)
}

/// The seconds of an interval as its epoch: a year has 365.25 days, and what is left of the months 30 each. DataFusion takes
/// all months for 30 days.
pub(crate) fn seconds() -> ScalarUDF {
    function(IntervalOperation::Seconds)
}

impl ScalarUDFImpl for Calculation {
    fn name(&self) -> &'static str {
        match self.asked {
            IntervalOperation::Product => "interval_product",
            IntervalOperation::Quotient => "interval_quotient",
            IntervalOperation::Length => "interval_length",
            IntervalOperation::Spread => "interval_spread",
            IntervalOperation::Micros => "interval_micros",
            IntervalOperation::Seconds => "interval_seconds",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(match self.asked {
            IntervalOperation::Product | IntervalOperation::Quotient | IntervalOperation::Spread => {
                DataType::Interval(IntervalUnit::MonthDayNano)
            }
            IntervalOperation::Length => DataType::Decimal128(LENGTH_DIGITS, 0),
            IntervalOperation::Micros => DataType::Int32,
            IntervalOperation::Seconds => DataType::Float64,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(intervals) = args.args.first() else { return internal_err!("an interval is lacking") };
        let intervals = intervals.to_array(args.number_rows)?;
        if self.asked == IntervalOperation::Spread {
            return Ok(ColumnarValue::Array(spread_out(&intervals)?));
        }
        let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
        if self.asked == IntervalOperation::Length {
            let lengths: Decimal128Array = intervals.iter().map(|interval| interval.map(length_of)).collect();
            let lengths = lengths.with_precision_and_scale(LENGTH_DIGITS, 0)?;
            return Ok(ColumnarValue::Array(Arc::new(lengths)));
        }
        if self.asked == IntervalOperation::Micros {
            let micros: Int32Array = intervals.iter().map(|interval| interval.and_then(micros_of)).collect();
            return Ok(ColumnarValue::Array(Arc::new(micros)));
        }
        if self.asked == IntervalOperation::Seconds {
            let seconds: Float64Array = intervals.iter().map(|interval| interval.map(seconds_of)).collect();
            return Ok(ColumnarValue::Array(Arc::new(seconds)));
        }
        let Some(numbers) = args.args.get(1) else { return internal_err!("a number is lacking") };
        let numbers = cast(&numbers.to_array(args.number_rows)?, &DataType::Float64)?;
        let mut out = IntervalMonthDayNanoArray::builder(intervals.len());
        for (interval, number) in intervals.iter().zip(numbers.as_primitive::<Float64Type>().iter()) {
            let (Some(interval), Some(number)) = (interval, number) else {
                out.append_null();
                continue;
            };
            if self.asked == IntervalOperation::Quotient && number == 0.0 {
                return exec_err!("an interval is divided by zero");
            }
            let is_product = self.asked == IntervalOperation::Product;
            let scaled = scaled(interval, |part| if is_product { part * number } else { part / number });
            let Some(scaled) = scaled else { return exec_err!("an interval is too long") };
            out.append_value(scaled);
        }
        Ok(ColumnarValue::Array(Arc::new(out.finish())))
    }
}

/// Converts durations to intervals of days and time.
pub(super) fn spread_out(lengths: &ArrayRef) -> Result<ArrayRef> {
    let per_day = match lengths.data_type() {
        DataType::Duration(TimeUnit::Second) => 86_400,
        DataType::Duration(TimeUnit::Millisecond) => 86_400_000,
        DataType::Duration(TimeUnit::Microsecond) => 86_400_000_000,
        DataType::Duration(TimeUnit::Nanosecond) => DAY_NS,
        other => return internal_err!("`{other}` is no length"),
    };
    let lengths = cast(lengths, &DataType::Int64)?;
    let mut out = IntervalMonthDayNanoArray::builder(lengths.len());
    for length in lengths.as_primitive::<Int64Type>() {
        let Some(length) = length else {
            out.append_null();
            continue;
        };
        let Ok(days) = i32::try_from(length / per_day) else { return exec_err!("an interval is too long") };
        // The time has the sign of the days.
        out.append_value(IntervalMonthDayNano::new(0, days, length % per_day * (DAY_NS / per_day)));
    }
    Ok(Arc::new(out.finish()))
}

/// The length of an interval in nanoseconds.
pub(crate) fn length_of(interval: IntervalMonthDayNano) -> i128 {
    let days = i64::from(interval.months) * MONTH_DAYS + i64::from(interval.days);
    i128::from(days) * i128::from(DAY_NS) + i128::from(interval.nanoseconds)
}

/// The time of an interval within its minute, in microseconds.
pub(super) fn micros_of(interval: IntervalMonthDayNano) -> Option<i32> {
    i32::try_from(interval.nanoseconds % MINUTE_NS / 1_000).ok()
}

/// The epoch of an interval, in seconds.
pub(super) fn seconds_of(interval: IntervalMonthDayNano) -> f64 {
    let (years, months) = (f64::from(interval.months / 12), f64::from(interval.months % 12));
    let days = years * YEAR_DAYS + months * MONTH_DAYS as f64 + f64::from(interval.days);
    days * DAY_SECONDS + interval.nanoseconds as f64 / 1e9
}

/// Scales the parts of an interval: fractions of months are carried to days, and those of days to the time.
fn scaled(interval: IntervalMonthDayNano, scale: impl Fn(f64) -> f64) -> Option<IntervalMonthDayNano> {
    parts_scaled((f64::from(interval.months), f64::from(interval.days), interval.nanoseconds as f64), scale)
}

/// The average of intervals from the sums of their parts; `None` if it is out of range.
pub(super) fn mean(months: i64, days: i64, nanoseconds: i128, count: i64) -> Option<IntervalMonthDayNano> {
    parts_scaled((months as f64, days as f64, nanoseconds as f64), |part| part / count as f64)
}

/// Interpolates between two intervals.
pub(super) fn between(
    low: IntervalMonthDayNano,
    high: IntervalMonthDayNano,
    part: f64,
) -> Option<IntervalMonthDayNano> {
    let way = IntervalMonthDayNano::new(
        high.months.checked_sub(low.months)?,
        high.days.checked_sub(low.days)?,
        high.nanoseconds.checked_sub(low.nanoseconds)?,
    );
    let way = scaled(way, |whole| whole * part)?;
    Some(IntervalMonthDayNano::new(
        low.months.checked_add(way.months)?,
        low.days.checked_add(way.days)?,
        low.nanoseconds.checked_add(way.nanoseconds)?,
    ))
}

fn parts_scaled(parts: (f64, f64, f64), scale: impl Fn(f64) -> f64) -> Option<IntervalMonthDayNano> {
    let within = |value: f64, most: f64| (value.abs() <= most).then_some(value);
    // Rounding errors of the multiplication are removed: 0.3 months are 9 days.
    let settled = |value: f64| (value * 1e6).round() / 1e6;
    let (months, days) = (scale(parts.0), scale(parts.1));
    let days_of_months = settled((months - months.trunc()) * MONTH_DAYS as f64);
    // Days from months and own days may have different signs: the fractions are carried to the time, and full days of
    // it back.
    let left = settled((days - days.trunc() + days_of_months - days_of_months.trunc()) * DAY_SECONDS);
    let whole = (left / DAY_SECONDS).trunc();
    let time = scale(parts.2) + (left - whole * DAY_SECONDS) * 1e9;
    let months = within(months.trunc(), f64::from(i32::MAX))? as i32;
    let days = within(days.trunc() + days_of_months.trunc() + whole, f64::from(i32::MAX))? as i32;
    let nanoseconds = within(time.round(), 9.2e18)? as i64;
    Some(IntervalMonthDayNano::new(months, days, nanoseconds))
}

#[cfg(test)]
mod tests {
    use arrow::array::{DurationNanosecondArray, DurationSecondArray};
    use datafusion::common::ScalarValue;

    use super::super::testing::{call, column, draws, shown};
    use super::*;

    type Parts = (i32, i32, i64);

    fn interval((months, days, ns): Parts) -> IntervalMonthDayNano {
        IntervalMonthDayNano::new(months, days, ns)
    }

    fn intervals(parts: &[Option<Parts>]) -> IntervalMonthDayNanoArray {
        parts.iter().map(|parts| parts.map(interval)).collect()
    }

    #[test]
    fn years_have_a_quarter_of_a_day_more() {
        for (parts, expected) in [
            ((1, 0, 0), 2_592_000.0),
            ((12, 0, 0), 31_557_600.0),
            ((13, 1, 1_000_000_000), 34_236_001.0),
            ((-14, 0, 0), -36_741_600.0),
            ((0, 0, -500_000_000), -0.5),
        ] {
            assert_eq!(seconds_of(interval(parts)).to_string(), expected.to_string(), "{parts:?}");
        }
    }

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
        check((1, -1, 0), -0.5, (0, -15, 12 * hour));
        check((1, -1, 0), 0.1, (0, 3, -2 * hour - 24 * (hour / 60)));
        check((5, 5, 0), 0.35, (1, 24, 6 * hour));
        assert_eq!(mean(1, 1, 0, 2), Some(IntervalMonthDayNano::new(0, 15, 12 * hour)));
        let (low, high) = (IntervalMonthDayNano::new(0, 0, 2 * hour), IntervalMonthDayNano::new(0, 1, 0));
        assert_eq!(between(low, high, 0.5), Some(IntervalMonthDayNano::new(0, 0, 13 * hour)));
        assert_eq!(scaled(IntervalMonthDayNano::new(1, 0, 0), |part| part * 1e300), None);
        assert_eq!(scaled(IntervalMonthDayNano::new(1, 0, 0), |_| f64::NAN), None);
    }

    #[test]
    fn lengths_are_days_and_time() {
        let check = |lengths: ArrayRef, expected: &[Option<(i32, i64)>]| {
            let found = spread_out(&lengths).unwrap();
            let found = found.as_primitive::<IntervalMonthDayNanoType>().iter();
            let found: Vec<_> = found.map(|i| i.map(|i| (i.days, i.nanoseconds))).collect();
            assert_eq!(found, expected);
        };
        let ns = DurationNanosecondArray::from(vec![Some(DAY_NS + 5), None, Some(-DAY_NS - 5)]);
        check(Arc::new(ns), &[Some((1, 5)), None, Some((-1, -5))]);
        check(Arc::new(DurationSecondArray::from(vec![86_401])), &[Some((1, 1_000_000_000))]);
        let long: ArrayRef = Arc::new(DurationSecondArray::from(vec![i64::MAX]));
        assert!(spread_out(&long).is_err());
    }

    #[test]
    fn a_day_is_as_long_as_its_hours() {
        let of = |months, days, ns| length_of(IntervalMonthDayNano::new(months, days, ns));
        assert_eq!(of(0, 1, 0), of(0, 0, DAY_NS));
        assert_eq!(of(1, 0, 0), of(0, 30, 0));
        assert!(of(0, 0, 25 * DAY_NS / 24) > of(0, 1, 0));
    }

    #[test]
    fn intervals_are_multiplied_and_divided() {
        let hour = DAY_NS / 24;
        let given = || column(intervals(&[Some((1, 0, 0)), Some((0, 1, hour)), None, Some((0, 0, 0))]));
        let by = |number: f64| ColumnarValue::Scalar(ScalarValue::from(number));
        let check = |function: ScalarUDF, number: ColumnarValue, expected: &[Option<Parts>]| {
            let found = call(&function, &[given(), number], 4).unwrap();
            assert_eq!(found.as_primitive::<IntervalMonthDayNanoType>(), &intervals(expected));
        };
        check(product(), by(3.0), &[Some((3, 0, 0)), Some((0, 3, 3 * hour)), None, Some((0, 0, 0))]);
        check(product(), by(0.0), &[Some((0, 0, 0)), Some((0, 0, 0)), None, Some((0, 0, 0))]);
        check(quotient(), by(2.0), &[Some((0, 15, 0)), Some((0, 0, 12 * hour + hour / 2)), None, Some((0, 0, 0))]);
        check(quotient(), by(-1.0), &[Some((-1, 0, 0)), Some((0, -1, -hour)), None, Some((0, 0, 0))]);
        let numbers = column(Float64Array::from(vec![None, Some(1.0), Some(0.0), Some(5.0)]));
        check(quotient(), numbers, &[None, Some((0, 1, hour)), None, Some((0, 0, 0))]);
        for (function, number, said) in [
            (quotient(), 0.0, "an interval is divided by zero"),
            (quotient(), -0.0, "an interval is divided by zero"),
            (product(), 1e300, "an interval is too long"),
            (product(), f64::NAN, "an interval is too long"),
            (product(), f64::INFINITY, "an interval is too long"),
            (quotient(), 1e-300, "an interval is too long"),
        ] {
            let refused = call(&function, &[given(), by(number)], 4).unwrap_err().to_string();
            assert!(refused.contains(said), "{number}: {refused}");
        }
    }

    #[test]
    fn whole_factors_leave_nothing_over() {
        let mut draw = draws(81);
        for _ in 0..1_000 {
            let mut part = |most: usize| draw(2 * most) as i64 - most as i64;
            let (months, days, ns) = (part(1_000) as i32, part(1_000) as i32, part(100_000_000));
            let factor = part(50) as i32;
            let one = interval((months, days, ns));
            let expected = interval((months * factor, days * factor, ns * i64::from(factor)));
            assert_eq!(scaled(one, |part| part * f64::from(factor)), Some(expected), "{one:?} * {factor}");
            if factor > 0 {
                let sums = (i64::from(months * factor), i64::from(days * factor), i128::from(ns) * i128::from(factor));
                assert_eq!(mean(sums.0, sums.1, sums.2, i64::from(factor)), Some(one), "{factor} of {one:?}");
            }
            let other = interval((part(1_000) as i32, part(1_000) as i32, part(100_000_000)));
            assert_eq!((between(one, other, 0.0), between(one, other, 1.0)), (Some(one), Some(other)));
        }
        let (least, most) = (interval((i32::MIN, 0, 0)), interval((i32::MAX, 0, 0)));
        assert_eq!(between(least, most, 0.5), None);
        assert_eq!(between(interval((0, 0, i64::MIN)), interval((0, 0, 1)), 0.5), None);
    }

    #[test]
    fn seconds_of_intervals_have_a_fraction() {
        let given = [Some((1, 3, 14_706_700_000_000)), Some((0, 0, -1_250_000_000)), None, Some((0, 0, i64::MIN))];
        let found = shown(&call(&micros(), &[column(intervals(&given))], 4).unwrap());
        let expected = [Some(6_700_000), Some(-1_250_000), None, Some(-16_854_775)];
        assert_eq!(found, expected.map(|micros| micros.map(|micros: i32| micros.to_string())));
    }

    #[test]
    fn lengths_are_numbers() {
        let given = column(intervals(&[Some((0, 1, -5)), Some((i32::MAX, i32::MAX, i64::MAX)), None]));
        let longest = (i128::from(i32::MAX) * 31) * i128::from(DAY_NS) + i128::from(i64::MAX);
        let found = shown(&call(&length(), &[given], 3).unwrap());
        assert_eq!(found, [Some((DAY_NS - 5).to_string()), Some(longest.to_string()), None]);
        let lengths = column(DurationNanosecondArray::from(vec![Some(DAY_NS + 5), None]));
        let found = call(&spread(), &[lengths], 2).unwrap();
        assert_eq!(found.as_primitive::<IntervalMonthDayNanoType>(), &intervals(&[Some((0, 1, 5)), None]));
        let wrong: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
        assert!(spread_out(&wrong).unwrap_err().to_string().contains("`Float64` is no length"));
    }
}
