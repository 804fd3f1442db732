//! `time_part(field, x)`: a field of times, dates and intervals, where each row may ask for another one. DataFusion's
//! `date_part` takes constant fields, and `quiver_sql` leaves these to it. As in PostgreSQL, the result is a double.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BooleanArray, Float64Array, PrimitiveArray, StringArray, new_null_array,
};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{DatePart, cast, date_part, nullif};
use arrow::datatypes::{
    DataType, Int32Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::intervals::{micros_of, seconds_of, spread_out};
use crate::time_literals::{era, unit_name};

const MINUTE_MICROS: i64 = 60_000_000;
const DAY_SECONDS: f64 = 86_400.0;
/// The Julian day on which 1970 began.
const JULIAN: f64 = 2_440_588.0;

#[derive(Debug, PartialEq, Eq, Hash)]
struct TimePart {
    signature: Signature,
}

/// Gives the function, of a field and a time, a date or an interval.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(TimePart { signature: Signature::user_defined(Volatility::Immutable) }))
}

/// What a value is read as; none: it has no fields.
fn read_as(kind: &DataType) -> Option<DataType> {
    Some(match kind {
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        kind if kind.is_string() || kind.is_null() => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Date32 | DataType::Date64 => DataType::Date32,
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Interval(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Duration(_) => kind.clone(),
        _ => return None,
    })
}

impl ScalarUDFImpl for TimePart {
    fn name(&self) -> &'static str {
        "time_part"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [field, value] = types else { return plan_err!("`date_part` takes a field and a time") };
        match read_as(value) {
            Some(read) if field.is_string() || field.is_null() => Ok(vec![DataType::Utf8, read]),
            _ => plan_err!("No function matches `date_part` of `{field}` and `{value}`: it takes a field and a time"),
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [fields, values] = args.args.as_slice() else { return internal_err!("a time has a field") };
        let (fields, values) = (fields.to_array(args.number_rows)?, values.to_array(args.number_rows)?);
        Ok(ColumnarValue::Array(parts(fields.as_string(), &values)?))
    }
}

/// The fields of the rows, those of one name at a time.
fn parts(fields: &StringArray, values: &ArrayRef) -> Result<ArrayRef> {
    let values = match values.data_type() {
        DataType::Duration(_) => spread_out(values)?,
        _ => ArrayRef::clone(values),
    };
    // Rows without a time ask for nothing.
    let asking = (0..values.len()).filter(|row| fields.is_valid(*row) && values.is_valid(*row));
    let different: BTreeSet<String> = asking.map(|row| fields.value(row).to_lowercase()).collect();
    let mut out = new_null_array(&DataType::Float64, values.len());
    for field in different {
        let is_other = |own: Option<&str>| Some(own.is_none_or(|own| own.to_lowercase() != field));
        let others: BooleanArray = fields.iter().map(is_other).collect();
        // Rows with another field are NULL here, so that they cannot fail for this one.
        let own = nullif(&values, &others)?;
        let found: ArrayRef = Arc::new(part(&field, &own)?);
        out = zip(&others, &out, &found)?;
    }
    Ok(out)
}

/// A field, in lower case, of times of one type.
fn part(field: &str, values: &ArrayRef) -> Result<Float64Array> {
    let unit = unit_name(field).unwrap_or(field);
    let found = match values.data_type() {
        DataType::Interval(_) => of_intervals(unit, values),
        DataType::Time64(_) => of_clocks(unit, values)?,
        DataType::Date32 => of_days(unit, &cast(values, &DataType::Timestamp(TimeUnit::Microsecond, None))?)?,
        _ => of_days(unit, values)?,
    };
    if let Some(found) = found {
        return Ok(found);
    }
    let kind = match values.data_type() {
        DataType::Interval(_) => "interval",
        DataType::Time64(_) => "time without time zone",
        DataType::Timestamp(_, Some(_)) => "timestamp with time zone",
        _ => "timestamp without time zone",
    };
    let is_known = calendar(unit).is_some()
        || era(unit).is_some()
        || unit.starts_with("timezone")
        || matches!(unit, "second" | "millisecond" | "microsecond" | "epoch" | "julian");
    if is_known {
        exec_err!("unit \"{field}\" not supported for type {kind}")
    } else {
        exec_err!("unit \"{field}\" not recognized for type {kind}")
    }
}

/// The field of a calendar or a clock as arrow knows it.
fn calendar(unit: &str) -> Option<DatePart> {
    Some(match unit {
        "minute" => DatePart::Minute,
        "hour" => DatePart::Hour,
        "day" => DatePart::Day,
        "dow" => DatePart::DayOfWeekSunday0,
        "isodow" => DatePart::DayOfWeekMonday1,
        "doy" => DatePart::DayOfYear,
        "week" => DatePart::Week,
        "isoyear" => DatePart::YearISO,
        "month" => DatePart::Month,
        "quarter" => DatePart::Quarter,
        "year" => DatePart::Year,
        _ => return None,
    })
}

/// Parts of a second by their name, of a number of microseconds.
fn of_micros(unit: &str, micros: f64) -> Option<f64> {
    Some(match unit {
        "second" => micros / 1e6,
        "millisecond" => micros / 1e3,
        "microsecond" => micros,
        _ => return None,
    })
}

fn numbers(values: &ArrayRef, part: DatePart) -> Result<PrimitiveArray<Int32Type>> {
    Ok(date_part(values.as_ref(), part)?.as_primitive::<Int32Type>().clone())
}

/// Fields of timestamps; none: they do not have it.
fn of_days(unit: &str, values: &ArrayRef) -> Result<Option<Float64Array>> {
    let is_zoned = matches!(values.data_type(), DataType::Timestamp(_, Some(_)));
    if let Some(known) = calendar(unit) {
        let found = numbers(values, known)?;
        // There is no year zero.
        let is_year = unit == "year";
        return Ok(Some(found.unary(|number| f64::from(if is_year && number <= 0 { number - 1 } else { number }))));
    }
    if let Some((years, less)) = era(unit) {
        let of = |year: i32| (i64::from(year) + less).div_euclid(years) as f64;
        return Ok(Some(numbers(values, DatePart::Year)?.unary(of)));
    }
    let micros = values.as_primitive::<TimestampMicrosecondType>();
    if of_micros(unit, 0.0).is_some() {
        let of = |micros: i64| of_micros(unit, micros.rem_euclid(MINUTE_MICROS) as f64).unwrap_or_default();
        return Ok(Some(micros.unary(of)));
    }
    Ok(match unit {
        "epoch" => Some(micros.unary(|micros| micros as f64 / 1e6)),
        "julian" => Some(micros.unary(|micros| micros as f64 / 1e6 / DAY_SECONDS + JULIAN)),
        // They are shown in UTC.
        "timezone" | "timezone_hour" | "timezone_minute" if is_zoned => Some(micros.unary(|_| 0.0)),
        _ => None,
    })
}

/// Fields of times of a day.
fn of_clocks(unit: &str, values: &ArrayRef) -> Result<Option<Float64Array>> {
    if let Some(known) = calendar(unit).filter(|_| matches!(unit, "hour" | "minute")) {
        return Ok(Some(numbers(values, known)?.unary(f64::from)));
    }
    let micros = cast(values, &DataType::Int64)?;
    let micros = micros.as_primitive::<Int64Type>();
    if of_micros(unit, 0.0).is_some() {
        let of = |micros: i64| of_micros(unit, (micros % MINUTE_MICROS) as f64).unwrap_or_default();
        return Ok(Some(micros.unary(of)));
    }
    Ok((unit == "epoch").then(|| micros.unary(|micros| micros as f64 / 1e6)))
}

/// Fields of intervals: years are of their months, and hours of their time.
fn of_intervals(unit: &str, values: &ArrayRef) -> Option<Float64Array> {
    let intervals = values.as_primitive::<IntervalMonthDayNanoType>();
    if of_micros(unit, 0.0).is_some() {
        let micros = |interval| micros_of(interval).and_then(|micros| of_micros(unit, f64::from(micros)));
        return Some(intervals.iter().map(|interval| interval.and_then(micros)).collect());
    }
    if let Some((years, _)) = era(unit) {
        return Some(intervals.unary(|interval| (i64::from(interval.months / 12) / years) as f64));
    }
    Some(match unit {
        "year" => intervals.unary(|interval| f64::from(interval.months / 12)),
        "quarter" => intervals.unary(|interval| f64::from(interval.months % 12 / 3 + 1)),
        "month" => intervals.unary(|interval| f64::from(interval.months % 12)),
        "day" => intervals.unary(|interval| f64::from(interval.days)),
        "hour" => intervals.unary(|interval| (interval.nanoseconds / 3_600_000_000_000) as f64),
        "minute" => intervals.unary(|interval| (interval.nanoseconds / 60_000_000_000 % 60) as f64),
        "epoch" => intervals.unary(seconds_of),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::answered;

    /// The fields of a value, each asked for by a row of its own, as they are shown.
    async fn fields(value: &str, names: &[&str]) -> Result<Vec<String>, String> {
        let rows: Vec<String> = names.iter().enumerate().map(|(at, name)| format!("({at}, '{name}')")).collect();
        let statement = format!("select time_part(f, {value}) from (values {}) as t(n, f) order by n", rows.join(", "));
        // What PostgreSQL says of it is the cause, which SQL tells.
        answered(&statement)
            .await
            .map_err(|e| std::error::Error::source(&e).map_or(e.message.clone(), ToString::to_string))
    }

    #[tokio::test]
    async fn each_row_asks_for_a_field() {
        let time = "timestamp '2024-03-05 06:07:08.9'";
        let asked = ["year", "MONTHS", "day", "hours", "min", "second", "ms", "us", "epoch", "dow", "isodow", "doy"];
        let expected =
            ["2024.0", "3.0", "5.0", "6.0", "7.0", "8.9", "8900.0", "8900000.0", "1709618828.9", "2.0", "2.0", "65.0"];
        assert_eq!(fields(time, &asked).await.unwrap(), expected);
        let asked = ["isoyear", "week", "quarter", "century", "decade", "millennium"];
        assert_eq!(fields(time, &asked).await.unwrap(), ["2024.0", "10.0", "1.0", "21.0", "202.0", "3.0"]);
        assert_eq!(fields("date '2000-01-01'", &["julian", "hour"]).await.unwrap(), ["2451545.0", "0.0"]);
        assert_eq!(fields("make_date(-44, 3, 15)", &["year", "month"]).await.unwrap(), ["-44.0", "3.0"]);
        let zoned = "to_timestamp(90)";
        assert_eq!(fields(zoned, &["timezone", "minute", "second"]).await.unwrap(), ["0.0", "1.0", "30.0"]);
        let clock = "cast('06:07:08.5' as time)";
        assert_eq!(fields(clock, &["hour", "minute", "sec", "epoch"]).await.unwrap(), ["6.0", "7.0", "8.5", "22028.5"]);
        let interval = "interval '-26 months 40 days 50 hours 61 minutes 1.5 seconds'";
        let asked = ["year", "month", "quarter", "day", "hour", "minute", "second", "decade"];
        let expected = ["-2.0", "-2.0", "1.0", "40.0", "51.0", "1.0", "1.5", "0.0"];
        assert_eq!(fields(interval, &asked).await.unwrap(), expected);
        let between = "(timestamp '2024-01-03 01:00:00' - timestamp '2024-01-01 00:00:00')";
        assert_eq!(fields(between, &["day", "hour", "epoch"]).await.unwrap(), ["2.0", "1.0", "176400.0"]);
    }

    #[tokio::test]
    async fn rows_without_a_field_or_a_time_have_none() {
        let of = "(values (1, 'year', timestamp '2024-03-05 00:00:00'), (2, null, timestamp '2024-03-05 00:00:00'), \
                  (3, 'nothing', null), (4, 'day', timestamp '2024-03-05 00:00:00')) as t(n, f, x)";
        let found = answered(&format!("select time_part(f, x) from {of} order by n")).await.unwrap();
        assert_eq!(found, ["2024.0", "NULL", "NULL", "5.0"]);
        for (value, field, said) in [
            (
                "timestamp '2024-03-05 00:00:00'",
                "foo",
                "unit \"foo\" not recognized for type timestamp without time zone",
            ),
            ("timestamp '2024-03-05 00:00:00'", "timezone", "not supported for type timestamp without time zone"),
            ("cast('06:07' as time)", "year", "unit \"year\" not supported for type time without time zone"),
            ("interval '1 day'", "week", "unit \"week\" not supported for type interval"),
        ] {
            let error = fields(value, &["hour", field]).await.unwrap_err();
            assert!(error.contains(said), "{value}: {error}");
        }
        assert!(answered("select time_part('year', 5)").await.is_err());
    }
}
