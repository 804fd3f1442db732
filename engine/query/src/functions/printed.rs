//! Times and intervals as texts in PostgreSQL's form (DuckDB's, but for the names of months); arrow has one of its own. The
//! rule [`crate::printed`] puts it into casts.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{ArrayRef, AsArray, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Field, FieldRef, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use chrono::{DateTime, Offset as _, TimeZone as _};
use datafusion::common::{exec_err, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

const SECOND_NS: u64 = 1_000_000_000;

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Printed {
    signature: Signature,
}

/// Gives the function, of one argument that [`is_printed`].
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(Printed { signature: Signature::any(1, Volatility::Immutable) })
}

/// Whether values of a type have a form of their own.
pub(crate) fn is_printed(kind: &DataType) -> bool {
    matches!(kind, DataType::Timestamp(..) | DataType::Interval(IntervalUnit::MonthDayNano))
}

impl ScalarUDFImpl for Printed {
    fn name(&self) -> &'static str {
        "printed"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [value] = args.arg_fields else { return internal_err!("one value is printed") };
        Ok(Arc::new(Field::new(self.name(), DataType::Utf8View, value.is_nullable())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = args.args.as_slice() else { return internal_err!("one value is printed") };
        let values = value.to_array(args.number_rows)?;
        Ok(ColumnarValue::Array(texts(&values)?))
    }
}

fn texts(values: &ArrayRef) -> Result<ArrayRef> {
    let mut out = StringViewBuilder::with_capacity(values.len());
    let mut text = String::new();
    match values.data_type() {
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            for interval in values.as_primitive::<IntervalMonthDayNanoType>() {
                text.clear();
                let Some(interval) = interval else {
                    out.append_null();
                    continue;
                };
                push_interval(interval, &mut text)?;
                out.append_value(&text);
            }
        }
        DataType::Timestamp(unit, zone) => {
            let per_second = match unit {
                TimeUnit::Second => 1,
                TimeUnit::Millisecond => 1_000,
                TimeUnit::Microsecond => 1_000_000,
                TimeUnit::Nanosecond => 1_000_000_000,
            };
            let zone = zone.as_deref().map(str::parse::<Tz>).transpose()?;
            let numbers = cast(values, &DataType::Int64)?;
            for number in numbers.as_primitive::<Int64Type>() {
                text.clear();
                let Some(number) = number else {
                    out.append_null();
                    continue;
                };
                let fraction = number.rem_euclid(per_second) * (1_000_000_000 / per_second);
                let utc = DateTime::from_timestamp(number.div_euclid(per_second), fraction as u32);
                let Some(utc) = utc else { return exec_err!("a time is too far away to be shown") };
                push_time(utc, zone, &mut text)?;
                out.append_value(&text);
            }
        }
        other => return internal_err!("`{other}` has no form of its own"),
    }
    Ok(Arc::new(out.finish()))
}

/// What is behind a second, without zeros at the end.
fn push_fraction(ns: u64, out: &mut String) -> fmt::Result {
    if ns > 0 {
        write!(out, ".{ns:09}")?;
        out.truncate(out.trim_end_matches('0').len());
    }
    Ok(())
}

fn push_time(utc: DateTime<chrono::Utc>, zone: Option<Tz>, out: &mut String) -> fmt::Result {
    let offset = zone.map(|zone| zone.offset_from_utc_datetime(&utc.naive_utc()).fix());
    let shown = match offset {
        Some(offset) => utc.with_timezone(&offset).naive_local(),
        None => utc.naive_utc(),
    };
    write!(out, "{}", shown.format("%Y-%m-%d %H:%M:%S"))?;
    push_fraction(u64::from(utc.timestamp_subsec_nanos()), out)?;
    if let Some(offset) = offset {
        let seconds = offset.local_minus_utc();
        let sign = if seconds < 0 { '-' } else { '+' };
        write!(out, "{sign}{:02}", seconds.abs() / 3_600)?;
        if seconds.abs() % 3_600 > 0 {
            write!(out, ":{:02}", seconds.abs() / 60 % 60)?;
        }
    }
    Ok(())
}

fn push_interval(interval: IntervalMonthDayNano, out: &mut String) -> fmt::Result {
    let parts = [
        (interval.months / 12, "year", "years"),
        (interval.months % 12, "mon", "mons"),
        (interval.days, "day", "days"),
    ];
    for (count, one, more) in parts.into_iter().filter(|(count, ..)| *count != 0) {
        let space = if out.is_empty() { "" } else { " " };
        write!(out, "{space}{count} {}", if count == 1 { one } else { more })?;
    }
    let ns = interval.nanoseconds.unsigned_abs();
    if ns > 0 || out.is_empty() {
        let space = if out.is_empty() { "" } else { " " };
        let sign = if interval.nanoseconds < 0 { "-" } else { "" };
        let seconds = ns / SECOND_NS;
        write!(out, "{space}{sign}{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)?;
        push_fraction(ns % SECOND_NS, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use arrow::array::{IntervalMonthDayNanoArray, TimestampMillisecondArray, TimestampNanosecondArray};

    use super::*;

    fn check(values: impl arrow::array::Array + 'static, expected: &[Option<&str>]) {
        let values: ArrayRef = Arc::new(values);
        let texts = texts(&values).unwrap();
        assert_eq!(texts.as_string_view().iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn times_and_intervals_look_as_in_postgresql() {
        check(
            TimestampNanosecondArray::from(vec![Some(1_704_067_200_250_000_000), None, Some(-1)]),
            &[Some("2024-01-01 00:00:00.25"), None, Some("1969-12-31 23:59:59.999999999")],
        );
        let moment = || TimestampMillisecondArray::from(vec![1_704_067_200_000]);
        check(moment().with_timezone("UTC"), &[Some("2024-01-01 00:00:00+00")]);
        check(moment().with_timezone("Asia/Kolkata"), &[Some("2024-01-01 05:30:00+05:30")]);
        check(moment().with_timezone("-03:00"), &[Some("2023-12-31 21:00:00-03")]);
        let interval = |months, days, ns| Some(IntervalMonthDayNano::new(months, days, ns));
        check(
            IntervalMonthDayNanoArray::from(vec![
                interval(14, 1, 7_384_500_000_000),
                interval(0, 0, 0),
                interval(0, -1, -5_400_000_000_000),
                interval(1, 2, 0),
                None,
            ]),
            &[
                Some("1 year 2 mons 1 day 02:03:04.5"),
                Some("00:00:00"),
                Some("-1 days -01:30:00"),
                Some("1 mon 2 days"),
                None,
            ],
        );
    }
}
