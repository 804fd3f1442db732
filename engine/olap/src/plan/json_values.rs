//! Converts result columns to JSON without loss in any client (`olap-api.md` 6.2).

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Int64Type, TimestampNanosecondType};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use quiver_query::functions::interval_texts;
use quiver_types::text::EXACT_INTEGERS_MAX;
use serde_json::Value;

use crate::dates::zone::{Walls, write_wall};
use crate::error::OlapResult;

/// Converts a column; instants are formatted in `zone`.
///
/// # Errors
///
/// Types that have no JSON form.
pub fn cells(column: &ArrayRef, zone: chrono_tz::Tz) -> OlapResult<Vec<Value>> {
    let engine = |e: arrow::error::ArrowError| crate::OlapError::from(datafusion::error::DataFusionError::from(e));
    // Columns of type Null, and dictionaries that hold NULL, have no bitmap of their own that says so.
    let nulls = column.logical_nulls();
    let is_null = |i: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(i));
    let each = |f: &mut dyn FnMut(usize) -> Value| {
        (0..column.len()).map(|i| if is_null(i) { Value::Null } else { f(i) }).collect::<Vec<_>>()
    };
    let as_type = |ty: &DataType| cast_with_options(column, ty, &CastOptions::default()).map_err(engine);
    Ok(match column.data_type() {
        DataType::Timestamp(_, tz) => {
            let is_instant = tz.is_some();
            let ty = DataType::Timestamp(arrow::datatypes::TimeUnit::Nanosecond, tz.clone());
            let (times, own) = (as_type(&ty)?, as_type(&DataType::Int64)?);
            let times = times.as_primitive::<TimestampNanosecondType>();
            let own = own.as_primitive::<Int64Type>();
            let mut walls = Walls::new(zone);
            each(&mut |i| {
                // Coarser units reach further: times are clamped to the range of nanoseconds.
                let time = match own.value(i) {
                    _ if times.is_valid(i) => times.value(i),
                    ..0 => i64::MIN,
                    _ => i64::MAX,
                };
                write_wall(if is_instant { walls.wall_ns(time) } else { time }).into()
            })
        }
        DataType::Boolean => each(&mut |i| column.as_boolean().value(i).into()),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::UInt8 | DataType::UInt16 => {
            let numbers = as_type(&DataType::Int64)?;
            each(&mut |i| numbers.as_primitive::<Int64Type>().value(i).into())
        }
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            let numbers = as_type(&DataType::Float64)?;
            each(&mut |i| double(numbers.as_primitive::<arrow::datatypes::Float64Type>().value(i)))
        }
        // 64-bit integers, decimals and texts become JSON strings.
        DataType::Utf8View => each(&mut |i| column.as_string_view().value(i).into()),
        DataType::Int64 => each(&mut |i| column.as_primitive::<Int64Type>().value(i).to_string().into()),
        // As SQL shows them.
        DataType::Interval(_) | DataType::Duration(_) => {
            let texts = interval_texts(column)?;
            each(&mut |i| texts.as_string_view().value(i).into())
        }
        _ => {
            let options = FormatOptions::default();
            let shown = ArrayFormatter::try_new(column, &options).map_err(engine)?;
            each(&mut |i| shown.value(i).to_string().into())
        }
    })
}

/// A double as a JSON number: whole numbers without a fraction, NaN and infinities as null.
fn double(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() <= EXACT_INTEGERS_MAX as f64 { (value as i64).into() } else { value.into() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        BooleanArray, Decimal128Array, DictionaryArray, DurationNanosecondArray, Float32Array, Float64Array,
        Int16Array, Int32Array, Int64Array, IntervalMonthDayNanoArray, NullArray, StringArray, StringViewArray,
        TimestampMicrosecondArray, TimestampNanosecondArray, UInt64Array,
    };
    use arrow::datatypes::IntervalMonthDayNano;
    use chrono_tz::Tz;
    use serde_json::json;

    use super::*;

    fn check(column: impl Array + 'static, zone: Tz, expected: Value) {
        let column: ArrayRef = Arc::new(column);
        assert_eq!(Value::from(cells(&column, zone).unwrap()), expected, "{column:?}");
    }

    /// Clients that read numbers as doubles must get the same value, and NULL must stay null.
    #[test]
    fn numbers_are_exact_in_every_client() {
        check(Int16Array::from(vec![Some(i16::MIN), None]), Tz::UTC, json!([-32_768, null]));
        check(
            Int64Array::from(vec![Some(i64::MAX), Some(5), None]),
            Tz::UTC,
            json!(["9223372036854775807", "5", null]),
        );
        check(UInt64Array::from(vec![u64::MAX]), Tz::UTC, json!(["18446744073709551615"]));
        let decimals = Decimal128Array::from(vec![Some(-12_345), Some(0), None]);
        check(decimals.with_precision_and_scale(8, 2).unwrap(), Tz::UTC, json!(["-123.45", "0.00", null]));
        check(BooleanArray::from(vec![Some(true), None]), Tz::UTC, json!([true, null]));
        check(StringArray::from(vec![Some("a\"b"), Some(""), None]), Tz::UTC, json!(["a\"b", "", null]));
        check(StringViewArray::from(vec![Some("x"), None]), Tz::UTC, json!(["x", null]));
    }

    /// A member whose text is `NULL` has a column without a bitmap of nulls, and was an empty text.
    #[test]
    fn nulls_without_a_bitmap_are_null() {
        check(NullArray::new(2), Tz::UTC, json!([null, null]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
        let keys = Int32Array::from(vec![Some(1), Some(0), None]);
        check(DictionaryArray::new(keys, texts), Tz::UTC, json!([null, "a", null]));
    }

    #[test]
    fn doubles_are_numbers_of_json() {
        let values = vec![Some(1.5), Some(3.0), Some(-0.0), Some(f64::NAN), Some(f64::INFINITY), None];
        check(Float64Array::from(values), Tz::UTC, json!([1.5, 3, 0, null, null, null]));
        // The largest double with exact integer neighbours, and one beyond.
        let great = vec![9_007_199_254_740_992.0, 1e300];
        check(Float64Array::from(great), Tz::UTC, json!([9_007_199_254_740_992_i64, 1e300]));
        check(Float32Array::from(vec![0.5, f32::NEG_INFINITY]), Tz::UTC, json!([0.5, null]));
    }

    /// An interval and what lies between two times are one type to clients.
    #[test]
    fn intervals_are_those_of_sql() {
        let intervals = [Some(IntervalMonthDayNano::new(1, 2, 11_045_500_000_000)), None];
        let shown = json!(["1 mon 2 days 03:04:05.5", null]);
        check(IntervalMonthDayNanoArray::from(intervals.to_vec()), Tz::UTC, shown);
        let lengths = vec![Some(90_061_500_000_000), None];
        check(DurationNanosecondArray::from(lengths), Tz::UTC, json!(["1 day 01:01:01.5", null]));
    }

    /// Wall times must not be shifted by a zone, and times out of the range of nanoseconds must not become 1970.
    #[test]
    fn times_are_rendered_in_their_zone() {
        const AT: i64 = 1_774_915_200_123_456_789;
        let instants = || TimestampNanosecondArray::from(vec![Some(AT), None]).with_timezone("UTC");
        check(instants(), Tz::UTC, json!(["2026-03-31T00:00:00.123", null]));
        check(instants(), Tz::Europe__Berlin, json!(["2026-03-31T02:00:00.123", null]));
        check(TimestampNanosecondArray::from(vec![AT]), Tz::Europe__Berlin, json!(["2026-03-31T00:00:00.123"]));
        let far = vec![Some(AT / 1_000), Some(253_402_214_400_000_000), Some(-62_135_596_800_000_000), None];
        let ends = [i64::MAX, i64::MIN].map(write_wall);
        check(
            TimestampMicrosecondArray::from(far),
            Tz::Europe__Berlin,
            json!(["2026-03-31T00:00:00.123", ends[0], ends[1], null]),
        );
    }
}
