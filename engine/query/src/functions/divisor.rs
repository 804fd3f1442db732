//! A divisor that must not be zero, as in PostgreSQL, where a quotient of floating-point numbers by zero is an error like one
//! of whole numbers. Statements have it put around the divisors of their outputs by `quiver_sql`.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _};
use arrow::compute::kernels::cmp::eq;
use arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type};
use arrow::error::ArrowError;
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Divisor {
    signature: Signature,
}

/// Gives the function, of one value, which it gives back.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Divisor { signature: Signature::any(1, Volatility::Immutable) }))
}

impl ScalarUDFImpl for Divisor {
    fn name(&self) -> &'static str {
        "divisor"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [kind] = types else { return internal_err!("one divisor is looked at") };
        Ok(kind.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [value] = args.arg_fields else { return internal_err!("one divisor is looked at") };
        Ok(Arc::new(Field::new(self.name(), value.data_type().clone(), value.is_nullable())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = args.args.as_slice() else { return internal_err!("one divisor is looked at") };
        let values = match value {
            ColumnarValue::Array(values) => Arc::clone(values),
            ColumnarValue::Scalar(value) => value.to_array()?,
        };
        if has_zero(&values)? {
            return Err(ArrowError::DivideByZero.into());
        }
        Ok(value.clone())
    }
}

/// Whether there is a zero among values; among those that are no numbers there is none.
fn has_zero(values: &ArrayRef) -> Result<bool> {
    // Arrow tells 0 from -0.
    Ok(match values.data_type() {
        DataType::Float32 => values.as_primitive::<Float32Type>().iter().flatten().any(|number| number == 0.0),
        DataType::Float64 => values.as_primitive::<Float64Type>().iter().flatten().any(|number| number == 0.0),
        kind if kind.is_integer() || kind.is_decimal() => {
            eq(values, &ScalarValue::new_zero(kind)?.to_scalar()?)?.true_count() > 0
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, Decimal128Array, Float32Array, Float64Array, Int64Array, StringArray};

    use super::super::testing::{call, column, shown};
    use super::*;

    #[test]
    fn zeros_are_found() {
        let check = |values: ArrayRef, expected: bool| {
            assert_eq!(has_zero(&values).unwrap(), expected, "{}", values.data_type());
        };
        check(Arc::new(Float64Array::from(vec![Some(1.5), None, Some(-0.0)])), true);
        check(Arc::new(Float64Array::from(vec![Some(f64::NAN), None])), false);
        check(Arc::new(Int64Array::from(vec![Some(1), Some(0)])), true);
        check(Arc::new(Int64Array::from(vec![Some(1), None])), false);
        check(Arc::new(Decimal128Array::from(vec![Some(0)])), true);
        check(Arc::new(StringArray::from(vec!["0"])), false);
    }

    #[test]
    fn divisors_are_given_back_or_refused() {
        let given = column(Float64Array::from(vec![Some(0.5), None]));
        assert_eq!(shown(&call(&function(), &[given], 2).unwrap()), [Some("0.5".to_owned()), None]);
        for zero in [
            column(Float32Array::from(vec![1.0, -0.0])),
            ColumnarValue::Scalar(ScalarValue::from(0_i64)),
            ColumnarValue::Scalar(ScalarValue::Decimal128(Some(0), 10, 2)),
        ] {
            let refused = call(&function(), &[zero], 2).unwrap_err().to_string();
            assert!(refused.to_lowercase().contains("divide by zero"), "{refused}");
        }
        assert!(call(&function(), &[ColumnarValue::Scalar(ScalarValue::Int64(None))], 2).is_ok());
    }
}
