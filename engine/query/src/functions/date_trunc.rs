//! `date_trunc(unit, x)`. DataFusion's function takes timestamps only; this one also takes intervals and differences of
//! timestamps, and also knows units such as `century`. It is a function, and not a rewrite of the statement, because
//! the types of columns are known only once the statement is planned.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BooleanArray, IntervalMonthDayNanoArray, PrimitiveArray, StringArray,
    TimestampNanosecondArray, new_null_array,
};
use arrow::compute::kernels::numeric::sub;
use arrow::compute::kernels::zip::zip;
use arrow::compute::{DatePart, cast, date_part, min, nullif};
use arrow::datatypes::{
    ArrowTimestampType, DataType, Field, FieldRef, Int32Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
    IntervalUnit, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use datafusion::common::{ScalarValue, exec_datafusion_err, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::functions::datetime::date_trunc;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::intervals::spread_out;
use crate::time_literals::{era, unit_name};

const SECOND_NS: i64 = 1_000_000_000;
/// Units of one length.
const STEPS_NS: [(&str, i64); 6] = [
    ("microsecond", 1_000),
    ("millisecond", 1_000_000),
    ("second", SECOND_NS),
    ("minute", 60 * SECOND_NS),
    ("hour", 3_600 * SECOND_NS),
    ("day", 86_400 * SECOND_NS),
];
/// Times before this one may lie in a unit that begins before the least time there is.
const FIRST_WHOLE: i64 = i64::MIN + 86_400 * SECOND_NS;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Truncated {
    /// DataFusion's function, for everything but lengths of time.
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

pub(super) fn function() -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::from(Truncated { inner: date_trunc(), signature }))
}

fn is_length(kind: &DataType) -> bool {
    matches!(kind, DataType::Interval(_) | DataType::Duration(_))
}

impl ScalarUDFImpl for Truncated {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [unit, length] if is_length(length) && (unit.is_string() || unit.is_null()) => {
                let is_difference = matches!(length, DataType::Duration(_));
                let length =
                    if is_difference { length.clone() } else { DataType::Interval(IntervalUnit::MonthDayNano) };
                Ok(vec![DataType::Utf8, length])
            }
            [unit, value] => {
                let field = |kind: &DataType| Arc::new(Field::new("argument", kind.clone(), true));
                // A date begins at a point in time.
                let moment = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
                let is_date = matches!(value, DataType::Date32 | DataType::Date64);
                let value = if is_date { &moment } else { value };
                let Ok(given) = fields_with_udf(&[field(unit), field(value)], &*self.inner) else {
                    return plan_err!(
                        "No function matches `date_trunc` of `{unit}` and `{value}`: it takes a unit and a time or an interval"
                    );
                };
                Ok(given.iter().map(|field| field.data_type().clone()).collect())
            }
            _ => plan_err!("No function matches `date_trunc` of {} arguments: it takes a unit and a time", types.len()),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [_, length] if is_length(length) => Ok(DataType::Interval(IntervalUnit::MonthDayNano)),
            [_, time] if !time.is_null() => Ok(time.clone()),
            _ => Ok(DataType::Timestamp(TimeUnit::Nanosecond, None)),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match args.arg_fields {
            [unit, length] if is_length(length.data_type()) => {
                let kind = DataType::Interval(IntervalUnit::MonthDayNano);
                Ok(Arc::new(Field::new(self.name(), kind, unit.is_nullable() || length.is_nullable())))
            }
            [unit, _] if unit.is_nullable() => {
                let field = self.inner.return_field_from_args(args)?;
                Ok(Arc::new(field.as_ref().clone().with_nullable(true)))
            }
            _ => self.inner.return_field_from_args(args),
        }
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [units, values] = args.args.as_slice() else { return exec_err!("`date_trunc` takes a unit and a value") };
        if !is_length(&values.data_type()) {
            return match units {
                ColumnarValue::Scalar(unit) if unit.is_null() => {
                    Ok(ColumnarValue::Scalar(ScalarValue::try_new_null(args.return_field.data_type())?))
                }
                ColumnarValue::Scalar(_) => self.by_unit(args),
                ColumnarValue::Array(units) => {
                    let units = cast(units, &DataType::Utf8)?;
                    self.by_units(units.as_string::<i32>(), &args)
                }
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

impl Truncated {
    /// Times that are truncated by one unit.
    fn by_unit(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Some(ColumnarValue::Scalar(unit)) = args.args.first_mut()
            && let Some(known) = unit.try_as_str().flatten().and_then(unit_name)
        {
            *unit = ScalarValue::from(known);
        }
        let era = match args.args.first() {
            Some(ColumnarValue::Scalar(unit)) => era_of(unit),
            _ => None,
        };
        match era {
            Some(era) => self.begun(era, args),
            None => self.of_times(args),
        }
    }

    /// Times that are truncated by the units beside them: DataFusion takes one unit at a time.
    fn by_units(&self, units: &StringArray, args: &ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let [_, times] = args.args.as_slice() else { return exec_err!("`date_trunc` takes a unit and a value") };
        let times = times.to_array(rows)?;
        let different: BTreeSet<String> = units.iter().flatten().map(str::to_lowercase).collect();
        let mut out = new_null_array(args.return_field.data_type(), rows);
        for unit in different {
            let is_other = |own: Option<&str>| Some(own.is_none_or(|own| own.to_lowercase() != unit));
            let others: BooleanArray = units.iter().map(is_other).collect();
            let own = ColumnarValue::Array(nullif(&times, &others)?);
            let mut args = args.clone();
            args.args = vec![ColumnarValue::Scalar(ScalarValue::from(unit.as_str())), own];
            let begun = self.by_unit(args)?.to_array(rows)?;
            out = zip(&others, &out, &begun)?;
        }
        Ok(ColumnarValue::Array(out))
    }

    /// Calls DataFusion's function with times that it can calculate with: it takes what stands under NULLs along, where
    /// aggregates leave the least number there is, and does not see where the beginning of a unit is no time.
    fn of_times(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let step = args.args.first().and_then(step_ns);
        match (args.args.get_mut(1), step) {
            (Some(ColumnarValue::Array(times)), step) => {
                let (cleared, least) = match times.data_type() {
                    DataType::Timestamp(TimeUnit::Second, _) => cleared::<TimestampSecondType>(times),
                    DataType::Timestamp(TimeUnit::Millisecond, _) => cleared::<TimestampMillisecondType>(times),
                    DataType::Timestamp(TimeUnit::Microsecond, _) => cleared::<TimestampMicrosecondType>(times),
                    DataType::Timestamp(TimeUnit::Nanosecond, _) => cleared::<TimestampNanosecondType>(times),
                    _ => (None, None),
                };
                if let Some(cleared) = cleared {
                    *times = cleared;
                }
                if let DataType::Timestamp(TimeUnit::Nanosecond, zone) = times.data_type()
                    && least.is_some_and(|least| least < FIRST_WHOLE)
                    && let Some(step) = step
                    // Longer ones of a zone are checked.
                    && (zone.is_none() || step <= 60 * SECOND_NS)
                {
                    let begun = times.as_primitive::<TimestampNanosecondType>().try_unary(|time| floored(time, step));
                    let begun: TimestampNanosecondArray = begun?;
                    return Ok(ColumnarValue::Array(Arc::new(begun.with_data_type(times.data_type().clone()))));
                }
            }
            // Of constants DataFusion cuts fractions of seconds off towards 1970.
            (Some(ColumnarValue::Scalar(ScalarValue::TimestampNanosecond(Some(time), zone))), Some(step))
                if step < SECOND_NS =>
            {
                let begun = ScalarValue::TimestampNanosecond(Some(floored(*time, step)?), zone.clone());
                return Ok(ColumnarValue::Scalar(begun));
            }
            _ => {}
        }
        self.inner.invoke_with_args(args)
    }

    /// The beginnings of the centuries (or the like) that contain times.
    fn begun(&self, (years, less): (i64, i64), mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        args.args[0] = ColumnarValue::Scalar(ScalarValue::from("year"));
        let begun = self.of_times(args)?.to_array(rows)?;
        let since = |year: i32| {
            let years = (i64::from(year) + less).rem_euclid(years);
            IntervalMonthDayNano::new(12 * years as i32, 0, 0)
        };
        let year = date_part(begun.as_ref(), DatePart::Year)?;
        let since = year.as_primitive::<Int32Type>().unary::<_, IntervalMonthDayNanoType>(since);
        Ok(ColumnarValue::Array(sub(&begun, &since)?))
    }
}

/// Times with zeros under their NULLs, where they have any, and the least of them.
fn cleared<T: ArrowTimestampType>(times: &ArrayRef) -> (Option<ArrayRef>, Option<i64>) {
    let times = times.as_primitive::<T>();
    let least = min(times);
    if times.null_count() == 0 {
        return (None, least);
    }
    let cleared: PrimitiveArray<T> = times.unary_opt(Some);
    (Some(Arc::new(cleared.with_data_type(times.data_type().clone()))), least)
}

/// The length of a constant unit, in ns; none: its length differs, or there is no such unit.
fn step_ns(unit: &ColumnarValue) -> Option<i64> {
    let ColumnarValue::Scalar(unit) = unit else { return None };
    let unit = unit.try_as_str()??;
    STEPS_NS.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, step)| step)
}

/// The last multiple of a step that is not behind a time.
fn floored(time: i64, step: i64) -> Result<i64> {
    let begun = time.checked_sub(time.rem_euclid(step));
    begun.ok_or_else(|| exec_datafusion_err!("Timestamp out of range: `date_trunc` of {time} ns since 1970"))
}

fn era_of(unit: &ScalarValue) -> Option<(i64, i64)> {
    era(unit.try_as_str()??)
}

/// An interval truncated towards zero; `None` if intervals do not have the unit.
fn truncated(unit: &str, value: IntervalMonthDayNano) -> Option<IntervalMonthDayNano> {
    let unit = unit.to_lowercase();
    let length = match unit_name(&unit).unwrap_or(unit.as_str()) {
        "microsecond" => 1_000,
        "millisecond" => 1_000_000,
        "second" => SECOND_NS,
        "minute" => 60 * SECOND_NS,
        "hour" => 3_600 * SECOND_NS,
        "day" => return Some(IntervalMonthDayNano::new(value.months, value.days, 0)),
        other => {
            let months = match other {
                "month" => 1,
                "quarter" => 3,
                "year" => 12,
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
    use arrow::array::{DurationSecondArray, TimestampSecondArray};
    use arrow::buffer::NullBuffer;
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
        check("mins", (0, 0, hour + 61_000_000_000), (0, 0, hour + 60_000_000_000));
        assert_eq!(truncated("week", IntervalMonthDayNano::new(0, 7, 0)), None);
    }

    #[test]
    fn types_say_what_is_cut_off() {
        let function = function();
        let given = |types: &[DataType]| function.inner().coerce_types(types);
        let time = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let length = DataType::Interval(IntervalUnit::MonthDayNano);
        let moment = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
        assert_eq!(given(&[DataType::Utf8, DataType::Date32]).unwrap(), [DataType::Utf8, moment]);
        let years = DataType::Interval(IntervalUnit::YearMonth);
        assert_eq!(given(&[DataType::Utf8View, years]).unwrap(), [DataType::Utf8, length.clone()]);
        assert_eq!(function.inner().return_type(&[DataType::Utf8, time.clone()]).unwrap(), time);
        assert_eq!(function.inner().return_type(&[DataType::Utf8, length.clone()]).unwrap(), length);
        for wrong in [&[time.clone()][..], &[DataType::Utf8, DataType::Boolean], &[DataType::Int64, length]] {
            let refused = given(wrong).unwrap_err().to_string();
            assert!(refused.contains("No function matches `date_trunc`"), "{refused}");
        }
    }

    #[test]
    fn units_are_null_or_differ_by_row() {
        let function = function();
        let null = || ColumnarValue::Scalar(ScalarValue::Null);
        let length = column(IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(1, 2, 3)]));
        let found = call(&function, &[null(), length], 1).unwrap();
        assert_eq!((found.data_type(), found.is_null(0)), (&DataType::Interval(IntervalUnit::MonthDayNano), true));
        let time = DataType::Timestamp(TimeUnit::Nanosecond, None);
        for unit in [null(), ColumnarValue::Scalar(ScalarValue::Utf8(None))] {
            let found = call(&function, &[unit, column(TimestampNanosecondArray::from(vec![1, 2]))], 2).unwrap();
            assert_eq!((found.data_type(), found.null_count()), (&time, 2));
        }
        let moment = ns("2024-05-06T07:08:09Z");
        let units = texts(&[Some("hour"), Some("HOUR"), Some("decade"), None, Some("year"), Some("year")]);
        let times = [Some(moment), Some(moment), Some(moment), Some(moment), None, Some(moment)];
        let found = call(&function, &[units, column(TimestampNanosecondArray::from(times.to_vec()))], 6).unwrap();
        let (hour, year) = (Some(ns("2024-05-06T07:00:00Z")), Some(ns("2024-01-01T00:00:00Z")));
        let expected = [hour, hour, Some(ns("2020-01-01T00:00:00Z")), None, None, year];
        assert_eq!(found.as_primitive::<TimestampNanosecondType>(), &TimestampNanosecondArray::from(expected.to_vec()));
        let wrong = texts(&[Some("fortnight")]);
        assert!(call(&function, &[wrong, column(TimestampNanosecondArray::from(vec![1]))], 1).is_err());
    }

    #[test]
    fn what_stands_under_null_is_no_time() {
        let nulls = |valid: &[bool]| Some(NullBuffer::from(valid.to_vec()));
        let (day, noon) = (86_400_000_000_000, 43_200_000_000_000);
        let values = vec![i64::MIN, day + noon, i64::MAX];
        for unit in ["microsecond", "hour", "day", "month", "century"] {
            let times = TimestampNanosecondArray::new(values.clone().into(), nulls(&[false, true, false]));
            let found = call(&function(), &[text(unit), column(times.with_timezone("UTC"))], 3).unwrap();
            assert_eq!((found.is_null(0), found.is_null(1), found.is_null(2)), (true, false, true), "{unit}");
            assert_eq!(found.data_type(), &DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())));
        }
        let times = TimestampNanosecondArray::new(values.into(), nulls(&[false, true, false]));
        let found = call(&function(), &[text("day"), column(times)], 3).unwrap();
        assert_eq!(found.as_primitive::<TimestampNanosecondType>().iter().collect::<Vec<_>>(), [None, Some(day), None]);
        let seconds = TimestampSecondArray::new(vec![i64::MIN, 100].into(), nulls(&[false, true]));
        let found = call(&function(), &[text("minute"), column(seconds)], 2).unwrap();
        assert_eq!(found.as_primitive::<TimestampSecondType>().iter().collect::<Vec<_>>(), [None, Some(60)]);
    }

    #[test]
    fn units_that_begin_before_all_times_are_out_of_range() {
        let least = i64::MIN + 5_000;
        let times = || column(TimestampNanosecondArray::from(vec![Some(-1), Some(least), None]));
        let found = call(&function(), &[text("Microsecond"), times()], 3).unwrap();
        let found: Vec<_> = found.as_primitive::<TimestampNanosecondType>().iter().collect();
        assert_eq!(found, [Some(-1_000), Some(least - least.rem_euclid(1_000)), None]);
        for unit in ["hour", "day", "month", "decade"] {
            let refused = call(&function(), &[text(unit), times()], 3).unwrap_err().to_string();
            assert!(refused.contains("out of range"), "{refused}");
        }
    }

    #[test]
    fn constants_before_1970_are_cut_off_backwards() {
        let time = ColumnarValue::Scalar(ScalarValue::TimestampNanosecond(Some(-1_500), None));
        for (unit, expected) in [("microsecond", -2_000), ("millisecond", -1_000_000), ("second", -SECOND_NS)] {
            let found = call(&function(), &[text(unit), time.clone()], 1).unwrap();
            assert_eq!(found.as_primitive::<TimestampNanosecondType>().value(0), expected, "{unit}");
        }
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
