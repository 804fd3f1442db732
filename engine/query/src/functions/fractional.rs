//! Whole numbers that are divided with a fraction: `sum` of them is of a type in PostgreSQL that has one. Statements have it
//! put around such sums by `quiver_sql`.

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
