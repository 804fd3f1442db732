//! Sums that are divided: in PostgreSQL the `sum` of 64-bit integers is a `numeric`, so its quotient has a fraction.
//! `quiver_sql` puts this function around such sums.

use std::sync::Arc;

use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Fractional {
    signature: Signature,
}

/// Gives the function, of one value; what is no whole number stays as it is.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Fractional { signature: Signature::any(1, Volatility::Immutable) }))
}

impl ScalarUDFImpl for Fractional {
    fn name(&self) -> &'static str {
        "fractional"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [kind] if kind.is_integer() => Ok(DataType::Float64),
            [kind] => Ok(kind.clone()),
            _ => internal_err!("one value is divided"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = args.args.as_slice() else { return internal_err!("one value is divided") };
        if !value.data_type().is_integer() {
            return Ok(value.clone());
        }
        let values = value.to_array(args.number_rows)?;
        Ok(ColumnarValue::Array(cast(&values, &DataType::Float64)?))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Decimal128Array, Int32Array, UInt64Array};

    use super::super::testing::{call, column, shown};
    use super::*;

    #[test]
    fn whole_numbers_get_a_fraction() {
        let of = |values: ColumnarValue, rows: usize| shown(&call(&function(), &[values], rows).unwrap());
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of(column(Int32Array::from(vec![Some(-3), None])), 2), [some("-3.0"), None]);
        let most = call(&function(), &[column(UInt64Array::from(vec![u64::MAX]))], 1).unwrap();
        assert_eq!(most.data_type(), &DataType::Float64);
        let decimal = Decimal128Array::from(vec![150]).with_precision_and_scale(10, 2).unwrap();
        assert_eq!(of(column(decimal), 1), [some("1.50")], "it has one already");
        assert!(function().inner().return_type(&[]).is_err());
    }
}
