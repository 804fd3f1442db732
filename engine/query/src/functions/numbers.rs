//! Integer division (`div`), and the histogram bucket of a number (`width_bucket`).

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, DynComparator, Float64Array, Int64Array, make_comparator};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use arrow::error::ArrowError;
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum NumberOperation {
    Quotient,
    Bucket,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Numbers {
    asked: NumberOperation,
    signature: Signature,
}

pub(super) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [NumberOperation::Quotient, NumberOperation::Bucket].into_iter().map(|asked| {
        Arc::new(ScalarUDF::from(Numbers { asked, signature: Signature::user_defined(Volatility::Immutable) }))
    })
}

impl ScalarUDFImpl for Numbers {
    fn name(&self) -> &'static str {
        match self.asked {
            NumberOperation::Quotient => "div",
            NumberOperation::Bucket => "width_bucket",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let is_number = |kind: &DataType| kind.is_numeric() || kind.is_null();
        if let (
            NumberOperation::Bucket,
            [value, DataType::List(end) | DataType::LargeList(end) | DataType::FixedSizeList(end, _)],
        ) = (self.asked, types)
        {
            let kind = if is_number(value) && is_number(end.data_type()) {
                Some(DataType::Float64)
            } else {
                comparison_coercion(value, end.data_type())
            };
            return match kind {
                Some(kind) => Ok(vec![kind.clone(), DataType::new_list(kind, true)]),
                None => {
                    plan_err!("`width_bucket` takes ends that `{value}` is compared with, not `{}`", end.data_type())
                }
            };
        }
        if let Some(other) = types.iter().find(|kind| !is_number(kind)) {
            return plan_err!("`{}` takes numbers, not `{other}`", self.name());
        }
        let is_whole = |kind: &DataType| kind.is_integer() || kind.is_null();
        match (self.asked, types) {
            (NumberOperation::Quotient, [left, right]) => {
                let kind = if is_whole(left) && is_whole(right) { DataType::Int64 } else { DataType::Float64 };
                Ok(vec![kind; 2])
            }
            (NumberOperation::Bucket, [_, _, _, count]) if is_whole(count) => {
                Ok(vec![DataType::Float64, DataType::Float64, DataType::Float64, DataType::Int64])
            }
            (NumberOperation::Quotient, _) => plan_err!("`div` takes two numbers"),
            (NumberOperation::Bucket, _) => {
                plan_err!("`width_bucket` takes a number, two ends and a whole number of buckets")
            }
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match (self.asked, types.first()) {
            (NumberOperation::Quotient, Some(DataType::Float64)) => DataType::Float64,
            _ => DataType::Int64,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        if let (NumberOperation::Bucket, [value, ends]) = (self.asked, args.args.as_slice()) {
            return ends_reached(value, ends, rows);
        }
        let columns = args.args.iter().map(|value| value.to_array(rows)).collect::<Result<Vec<_>>>()?;
        Ok(match (self.asked, columns.as_slice()) {
            (NumberOperation::Quotient, [left, right]) if *left.data_type() == DataType::Float64 => {
                let pairs = left.as_primitive::<Float64Type>().iter().zip(right.as_primitive::<Float64Type>());
                let quotients = pairs.map(|(left, right)| left.zip(right).map(quotient).transpose());
                ColumnarValue::Array(Arc::new(quotients.collect::<Result<Float64Array>>()?))
            }
            (NumberOperation::Quotient, [left, right]) => {
                let pairs = left.as_primitive::<Int64Type>().iter().zip(right.as_primitive::<Int64Type>());
                let quotients = pairs.map(|(left, right)| left.zip(right).map(whole_quotient).transpose());
                ColumnarValue::Array(Arc::new(quotients.collect::<Result<Int64Array>>()?))
            }
            (NumberOperation::Bucket, [value, low, high, count]) => {
                let ends = low.as_primitive::<Float64Type>().iter().zip(high.as_primitive::<Float64Type>());
                let within = value.as_primitive::<Float64Type>().iter().zip(count.as_primitive::<Int64Type>());
                let buckets = within.zip(ends).map(|((value, count), (low, high))| {
                    let (Some(value), Some(count), Some(low), Some(high)) = (value, count, low, high) else {
                        return Ok(None);
                    };
                    bucket(value, low, high, count).map(Some)
                });
                ColumnarValue::Array(Arc::new(buckets.collect::<Result<Int64Array>>()?))
            }
            _ => return exec_err!("`{}` takes other arguments", self.name()),
        })
    }
}

/// Of ends in their order the number of those that a value has reached.
fn ends_reached(value: &ColumnarValue, ends: &ColumnarValue, rows: usize) -> Result<ColumnarValue> {
    let values = value.to_array(rows)?;
    // A constant list is there once.
    let is_constant = matches!(ends, ColumnarValue::Scalar(_));
    let lists = ends.to_array(if is_constant { 1 } else { rows })?;
    let Some(lists) = lists.as_list_opt::<i32>() else { return exec_err!("`width_bucket` takes a list of ends") };
    if lists.values().null_count() > 0 {
        return exec_err!("`width_bucket`: an end is NULL");
    }
    let compared = comparator(&values, lists.values())?;
    let offsets = lists.value_offsets();
    let buckets = (0..rows).map(|row| {
        let at = if is_constant { 0 } else { row };
        if values.is_null(row) || lists.is_null(at) {
            return None;
        }
        let first = offsets[at] as usize;
        let (mut from, mut to) = (first, offsets[at + 1] as usize);
        while from < to {
            let middle = from.midpoint(to);
            if compared(row, middle).is_lt() {
                to = middle;
            } else {
                from = middle + 1;
            }
        }
        Some((from - first) as i64)
    });
    Ok(ColumnarValue::Array(Arc::new(buckets.collect::<Int64Array>())))
}

/// Compares a value of one array with one of another. Of doubles both zeros are equal, and what is no number comes last.
fn comparator(values: &ArrayRef, ends: &ArrayRef) -> Result<DynComparator> {
    let numbers = |array: &ArrayRef| array.as_primitive_opt::<Float64Type>().cloned();
    let (Some(values), Some(ends)) = (numbers(values), numbers(ends)) else {
        return Ok(make_comparator(values, ends, SortOptions::default())?);
    };
    Ok(Box::new(move |row, end| {
        let (value, end) = (values.value(row), ends.value(end));
        let unequal = if value.is_nan() { Ordering::Greater } else { Ordering::Less };
        value.partial_cmp(&end).unwrap_or(unequal)
    }))
}

fn quotient((left, right): (f64, f64)) -> Result<f64> {
    if right == 0.0 { Err(ArrowError::DivideByZero.into()) } else { Ok((left / right).trunc()) }
}

fn whole_quotient((left, right): (i64, i64)) -> Result<i64> {
    if right == 0 {
        return Err(ArrowError::DivideByZero.into());
    }
    if let Some(quotient) = left.checked_div(right) { Ok(quotient) } else { exec_err!("a whole number is too large") }
}

/// The bucket from 1 on of those between two ends; 0 before the first end, one more than there are behind the other.
fn bucket(value: f64, low: f64, high: f64, count: i64) -> Result<i64> {
    let is_usable = count > 0 && count < i64::MAX && low.is_finite() && high.is_finite() && !value.is_nan();
    if !is_usable || high - low == 0.0 {
        return exec_err!("`width_bucket` takes two different ends, and at least one bucket");
    }
    // Ends the wrong way round count downwards.
    let (value, low, high) = if low > high { (-value, -low, -high) } else { (value, low, high) };
    Ok(if value < low {
        0
    } else if value >= high {
        count + 1
    } else {
        // Between the least and the largest double there is more than one of them.
        let whole = high - low;
        let part = if whole.is_finite() {
            (value - low) / whole
        } else {
            (value / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0)
        };
        ((part * count as f64) as i64).min(count - 1) + 1
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{ListArray, StringArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::Field;
    use datafusion::common::ScalarValue;

    use super::super::testing::{call, column, draws, shown};
    use super::*;

    #[test]
    fn buckets_lie_between_their_ends() {
        let check = |value: f64, low: f64, high: f64, count: i64, expected: i64| {
            assert_eq!(bucket(value, low, high, count).unwrap(), expected, "{value} {low} {high}");
        };
        check(5.35, 0.024, 10.06, 5, 3);
        check(-1.0, 0.0, 10.0, 5, 0);
        check(10.0, 0.0, 10.0, 5, 6);
        check(0.0, 0.0, 10.0, 5, 1);
        check(9.0, 10.0, 0.0, 5, 1);
        check(10.0, 10.0, 0.0, 5, 1);
        check(0.0, 10.0, 0.0, 5, 6);
        assert!(bucket(1.0, 1.0, 1.0, 5).is_err() && bucket(1.0, 0.0, 2.0, 0).is_err());
        check(f64::INFINITY, 0.0, 10.0, 5, 6);
        check(f64::NEG_INFINITY, 0.0, 10.0, 5, 0);
        check(f64::INFINITY, 10.0, 0.0, 5, 0);
        // Ends whose distance is no double.
        check(0.0, -f64::MAX, f64::MAX, 4, 3);
        check(-f64::MAX, -f64::MAX, f64::MAX, 4, 1);
        check(f64::MAX, -f64::MAX, f64::MAX, 4, 5);
        check(0.0, f64::MAX, -f64::MAX, 4, 3);
        for (value, low, high, count) in [
            (f64::NAN, 0.0, 1.0, 5),
            (1.0, f64::NAN, 1.0, 5),
            (1.0, 0.0, f64::INFINITY, 5),
            (1.0, 0.0, -0.0, 5),
            (1.0, 0.0, 2.0, -1),
            (1.0, 0.0, 2.0, i64::MAX),
        ] {
            let refused = bucket(value, low, high, count).unwrap_err().to_string();
            assert!(refused.contains("two different ends, and at least one bucket"), "{refused}");
        }
    }

    #[test]
    fn ends_are_counted_that_are_reached() {
        let check = |ends: Vec<Option<f64>>| -> Result<Vec<Option<i64>>> {
            let ends = ListArray::from_iter_primitive::<Float64Type, _, _>([Some(ends)]);
            let ends = ColumnarValue::Scalar(ScalarValue::List(Arc::new(ends)));
            let values = Float64Array::from(vec![Some(0.5), Some(5.0), Some(f64::NAN), None]);
            let found = ends_reached(&ColumnarValue::Array(Arc::new(values)), &ends, 4)?.into_array(4)?;
            Ok(found.as_primitive::<Int64Type>().iter().collect())
        };
        assert_eq!(check(vec![Some(1.0), Some(5.0)]).unwrap(), [Some(0), Some(2), Some(2), None]);
        assert_eq!(check(Vec::new()).unwrap(), [Some(0), Some(0), Some(0), None]);
        assert!(check(vec![None]).is_err());
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "d"]));
        let lists = ListArray::new(
            Arc::new(Field::new_list_field(DataType::Utf8, true)),
            OffsetBuffer::from_lengths([2, 0, 2]),
            Arc::new(StringArray::from(vec!["b", "c", "b", "c"])),
            None,
        );
        let found = ends_reached(&ColumnarValue::Array(texts), &ColumnarValue::Array(Arc::new(lists)), 3).unwrap();
        let found = found.into_array(3).unwrap();
        assert_eq!(found.as_primitive::<Int64Type>().values(), &[0, 0, 2]);
    }

    #[test]
    fn quotients_are_cut_off() {
        assert_eq!((whole_quotient((-7, 2)).unwrap(), quotient((7.5, -2.0)).unwrap().to_string()), (-3, "-3".into()));
        assert!(whole_quotient((1, 0)).is_err() && whole_quotient((i64::MIN, -1)).is_err());
        assert!(quotient((1.0, 0.0)).is_err());
    }

    /// A value lies between the ends of its bucket.
    #[test]
    fn buckets_hold_their_values() {
        let mut draw = draws(61);
        for _ in 0..1_000 {
            let (low, width, count) = (draw(200) as f64 - 100.0, (draw(64) + 1) as f64, draw(8) as i64 + 1);
            let high = low + width * count as f64;
            let value = draw(1_200) as f64 / 2.0 - 150.0;
            let found = bucket(value, low, high, count).unwrap();
            let expected = ((value - low) / width).floor().clamp(-1.0, count as f64) as i64 + 1;
            assert_eq!(found, expected, "{value} of {low} to {high} in {count}");
            // Turned around they count from the other end, and an end belongs to the bucket that it begins.
            let turned = bucket(value, high, low, count).unwrap();
            let expected = ((high - value) / width).floor().clamp(-1.0, count as f64) as i64 + 1;
            assert_eq!(turned, expected, "{value} of {high} down to {low} in {count}");
        }
    }

    #[test]
    fn calls_take_numbers_of_all_types() {
        let [div, bucket]: [Arc<ScalarUDF>; 2] = functions().collect::<Vec<_>>().try_into().unwrap();
        let some = |text: &str| Some(text.to_owned());
        let whole = column(Int64Array::from(vec![Some(7), Some(-7), None]));
        let halves = column(Float64Array::from(vec![Some(2.0), Some(2.0), Some(2.0)]));
        let two = ColumnarValue::Scalar(ScalarValue::from(2_i32));
        assert_eq!(shown(&call(&div, &[whole.clone(), two], 3).unwrap()), [some("3"), some("-3"), None]);
        assert_eq!(shown(&call(&div, &[whole.clone(), halves], 3).unwrap()), [some("3.0"), some("-3.0"), None]);
        let ends = [0.0, 10.0].map(|end| ColumnarValue::Scalar(ScalarValue::from(end)));
        let five = ColumnarValue::Scalar(ScalarValue::from(5_i64));
        let args = [whole, ends[0].clone(), ends[1].clone(), five];
        assert_eq!(shown(&call(&bucket, &args, 3).unwrap()), [some("4"), some("0"), None]);
        for (function, types, said) in [
            (&div, vec![DataType::Utf8, DataType::Int64], "`div` takes numbers, not `Utf8`"),
            (&div, vec![DataType::Int64], "`div` takes two numbers"),
            (&bucket, vec![DataType::Int64; 3], "a number, two ends and a whole number of buckets"),
            (
                &bucket,
                vec![DataType::Int64, DataType::Int64, DataType::Int64, DataType::Float64],
                "a whole number of buckets",
            ),
            (
                &bucket,
                vec![DataType::Boolean, DataType::new_list(DataType::Date32, true)],
                "takes ends that `Boolean` is compared with, not `Date32`",
            ),
        ] {
            let refused = function.coerce_types(&types).unwrap_err().to_string();
            assert!(refused.contains(said), "{types:?}: {refused}");
        }
    }
}
