//! Checks that a divisor is not zero: in PostgreSQL division by zero is an error also for floating-point numbers.
//! `quiver_sql` wraps the divisors in outputs, and the planner adds the dividend, since NULL divided by zero is NULL.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, BooleanArray};
use arrow::compute::kernels::cmp::eq;
use arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type};
use arrow::error::ArrowError;
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Divisor {
    signature: Signature,
}

/// The function: returns the divisor, its first argument; the second is the dividend.
pub(super) fn function() -> Arc<ScalarUDF> {
    let takes = vec![TypeSignature::Any(1), TypeSignature::Any(2)];
    Arc::new(ScalarUDF::from(Divisor { signature: Signature::one_of(takes, Volatility::Immutable) }))
}

impl ScalarUDFImpl for Divisor {
    fn name(&self) -> &'static str {
        "divisor"
    }

    /// Columns keep the names that they had before the dividend was added.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let Some(divisor) = args.first() else { return internal_err!("one divisor is looked at") };
        Ok(format!("{}({})", self.name(), divisor.schema_name()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let ([kind] | [kind, _]) = types else { return internal_err!("one divisor is looked at") };
        Ok(kind.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let ([value] | [value, _]) = args.arg_fields else { return internal_err!("one divisor is looked at") };
        Ok(Arc::new(Field::new(self.name(), value.data_type().clone(), value.is_nullable())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (value, divided) = match args.args.as_slice() {
            [value] => (value, None),
            [value, divided] => (value, Some(divided)),
            _ => return internal_err!("one divisor is looked at"),
        };
        let (values, is_constant) = match value {
            ColumnarValue::Array(values) => (Arc::clone(values), false),
            ColumnarValue::Scalar(value) => (value.to_array()?, true),
        };
        let Some(zeros) = zeros(&values)?.filter(|zeros| zeros.true_count() > 0) else { return Ok(value.clone()) };
        let is_divided = match divided {
            None => true,
            Some(ColumnarValue::Scalar(divided)) => !divided.is_null(),
            Some(ColumnarValue::Array(divided)) => {
                let nulls = divided.logical_nulls();
                let is_there = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                let is_zero = |row: usize| is_constant || (zeros.is_valid(row) && zeros.value(row));
                (0..divided.len()).any(|row| is_zero(row) && is_there(row))
            }
        };
        if is_divided { Err(ArrowError::DivideByZero.into()) } else { Ok(value.clone()) }
    }
}

/// Which values are zero; `None` if they are no numbers.
fn zeros(values: &ArrayRef) -> Result<Option<BooleanArray>> {
    // Arrow's comparison distinguishes 0 from -0.
    Ok(Some(match values.data_type() {
        DataType::Float32 => BooleanArray::from_unary(values.as_primitive::<Float32Type>(), |number| number == 0.0),
        DataType::Float64 => BooleanArray::from_unary(values.as_primitive::<Float64Type>(), |number| number == 0.0),
        kind if kind.is_integer() || kind.is_decimal() => eq(values, &ScalarValue::new_zero(kind)?.to_scalar()?)?,
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Decimal128Array, Float32Array, Float64Array, Int64Array, StringArray};

    use super::super::testing::{call, column, shown};
    use super::*;

    #[test]
    fn zeros_are_found() {
        let check = |values: ArrayRef, expected: bool| {
            let found = zeros(&values).unwrap().is_some_and(|zeros| zeros.true_count() > 0);
            assert_eq!(found, expected, "{}", values.data_type());
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

    #[test]
    fn nothing_may_be_divided_by_zero() {
        let zeros = || column(Int64Array::from(vec![Some(0), Some(2), None]));
        let zero = || ColumnarValue::Scalar(ScalarValue::from(0.0));
        let rows = |first: Option<f64>| column(Float64Array::from(vec![first, Some(1.0), None]));
        let nulls = || column(Float64Array::from(vec![None, None, None]));
        let constant = |value: Option<i64>| ColumnarValue::Scalar(ScalarValue::Int64(value));
        for (divisor, divided, is_taken) in [
            (zeros(), rows(None), true),
            (zeros(), rows(Some(1.0)), false),
            (zero(), rows(None), false),
            (zero(), nulls(), true),
            (zeros(), constant(None), true),
            (zeros(), constant(Some(1)), false),
        ] {
            let found = call(&function(), &[divisor.clone(), divided.clone()], 3);
            assert_eq!(found.is_ok(), is_taken, "{divided:?} by {divisor:?}");
        }
    }
}
