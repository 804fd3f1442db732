//! Digits after the decimal point: `scale`, `min_scale` (without trailing zeros), and `trim_scale`, which removes
//! trailing zeros. `scale` of a double is refused: nobody knows how many digits the `numeric` had that it was made
//! from.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, Int32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Float64Type};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::decimals::is_open_numeric;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ScaleOperation {
    All,
    Least,
    Trimmed,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Scale {
    asked: ScaleOperation,
    signature: Signature,
}

pub(super) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [ScaleOperation::All, ScaleOperation::Least, ScaleOperation::Trimmed].into_iter().map(|asked| {
        Arc::new(ScalarUDF::from(Scale { asked, signature: Signature::user_defined(Volatility::Immutable) }))
    })
}

impl ScalarUDFImpl for Scale {
    fn name(&self) -> &'static str {
        match self.asked {
            ScaleOperation::All => "scale",
            ScaleOperation::Least => "min_scale",
            ScaleOperation::Trimmed => "trim_scale",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [kind] if kind.is_integer() => Ok(vec![kind.clone()]),
            [DataType::Decimal128(precision, scale)] => Ok(vec![DataType::Decimal128(*precision, *scale)]),
            [DataType::Null] => Ok(vec![DataType::Decimal128(38, 0)]),
            [kind] if kind.is_floating() && self.asked == ScaleOperation::All => {
                plan_err!("No function matches: function scale(double precision) does not exist")
            }
            [kind] if kind.is_numeric() => Ok(vec![DataType::Float64]),
            _ => plan_err!("No function matches: `{}` takes a number", self.name()),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match (self.asked, types) {
            (ScaleOperation::Trimmed, [kind]) if kind.is_integer() => kind.clone(),
            (ScaleOperation::Trimmed, _) => DataType::Float64,
            _ => DataType::Int32,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = args.args.as_slice() else { return exec_err!("`{}` takes a number", self.name()) };
        let values = value.to_array(args.number_rows)?;
        if self.asked == ScaleOperation::Trimmed {
            return Ok(ColumnarValue::Array(cast(&values, args.return_field.data_type())?));
        }
        Ok(ColumnarValue::Array(Arc::new(digits(&values, self.asked == ScaleOperation::Least))))
    }
}

/// Digits behind the points of numbers; NULL of what is no number.
fn digits(values: &ArrayRef, is_least: bool) -> Int32Array {
    match values.data_type() {
        DataType::Decimal128(_, scale) => {
            let scale = i32::from(*scale).max(0);
            let is_least = is_least || is_open_numeric(values.data_type());
            let of = |number: i128| if is_least { least(number, scale) } else { scale };
            values.as_primitive::<Decimal128Type>().iter().map(|number| number.map(of)).collect()
        }
        DataType::Float64 => {
            let mut text = String::new();
            let mut of = |number: f64| {
                text.clear();
                let _ = write!(text, "{number}");
                let behind = text.split_once('.').map_or(0, |(_, behind)| behind.len());
                number.is_finite().then(|| i32::try_from(behind).unwrap_or(i32::MAX))
            };
            values.as_primitive::<Float64Type>().iter().map(|number| number.and_then(&mut of)).collect()
        }
        _ => (0..values.len()).map(|row| values.is_valid(row).then_some(0)).collect(),
    }
}

/// Digits behind the point of a decimal without zeros at the end.
fn least(mut number: i128, mut scale: i32) -> i32 {
    while scale > 0 && number % 10 == 0 {
        (number, scale) = (number / 10, scale - 1);
    }
    scale
}

#[cfg(test)]
mod tests {
    use arrow::array::{Decimal128Array, Float64Array, Int64Array};

    use super::super::testing::named;
    use super::*;

    #[test]
    fn digits_are_counted() {
        let check = |values: ArrayRef, all: &[Option<i32>], least: &[Option<i32>]| {
            assert_eq!(digits(&values, false).iter().collect::<Vec<_>>(), all);
            assert_eq!(digits(&values, true).iter().collect::<Vec<_>>(), least);
        };
        let decimals = Decimal128Array::from(vec![Some(84_100), Some(0), None, Some(-5)]);
        let decimals = decimals.with_precision_and_scale(20, 4).unwrap();
        check(Arc::new(decimals), &[Some(4), Some(4), None, Some(4)], &[Some(2), Some(0), None, Some(4)]);
        let open = Decimal128Array::from(vec![15_000_000_000, 1]).with_precision_and_scale(38, 10).unwrap();
        check(Arc::new(open), &[Some(1), Some(10)], &[Some(1), Some(10)]);
        let doubles = Float64Array::from(vec![Some(8.41), Some(1e-7), Some(100.0), None, Some(f64::NAN)]);
        let expected = [Some(2), Some(7), Some(0), None, None];
        check(Arc::new(doubles), &expected, &expected);
        check(Arc::new(Int64Array::from(vec![Some(10), None])), &[Some(0), None], &[Some(0), None]);
    }
    #[test]
    fn scale_is_of_decimals() {
        let given = |name: &str, kind: DataType| named(functions(), name).inner().coerce_types(&[kind]);
        for kind in [DataType::Float64, DataType::Float32] {
            let refused = given("scale", kind).unwrap_err().to_string();
            assert!(refused.contains("function scale(double precision) does not exist"), "{refused}");
        }
        assert_eq!(given("trim_scale", DataType::Float32).unwrap(), [DataType::Float64]);
        assert_eq!(given("scale", DataType::Decimal128(9, 4)).unwrap(), [DataType::Decimal128(9, 4)]);
        assert_eq!(given("scale", DataType::Int16).unwrap(), [DataType::Int16]);
        assert!(given("scale", DataType::Null).is_ok() && given("min_scale", DataType::Utf8).is_err());
    }
}
