//! The argument of `to_timestamp(seconds)`. A double cannot represent every millisecond exactly, DataFusion truncates
//! instead of rounding, and it returns arbitrary times for `NaN` and for values out of range. `quiver_sql` wraps such
//! arguments in this function, which rounds them to microseconds, as PostgreSQL does, and fails for values that are no
//! time.

use std::sync::Arc;

use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::DataType;
use datafusion::common::{exec_err, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

/// Microseconds of more years than there are.
const EXACT: DataType = DataType::Decimal128(24, 6);

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExactSeconds {
    signature: Signature,
}

/// Gives the function, of one value; what is no double stays as it is.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(ExactSeconds { signature: Signature::any(1, Volatility::Immutable) }))
}

impl ScalarUDFImpl for ExactSeconds {
    fn name(&self) -> &'static str {
        "exact_seconds"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [kind] if kind.is_floating() => Ok(EXACT),
            [kind] => Ok(kind.clone()),
            _ => internal_err!("one value is a number of seconds"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = args.args.as_slice() else { return internal_err!("one value is a number of seconds") };
        if !value.data_type().is_floating() {
            return Ok(value.clone());
        }
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let Ok(seconds) = cast_with_options(&value.to_array(args.number_rows)?, &EXACT, &options) else {
            return exec_err!("`to_timestamp` takes seconds within the times that there are");
        };
        Ok(ColumnarValue::Array(seconds))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray as _, Float64Array, Int64Array};
    use arrow::datatypes::{Decimal128Type, Field, Int64Type};
    use datafusion::config::ConfigOptions;

    use super::*;

    fn made(value: ColumnarValue) -> Result<ColumnarValue> {
        let kind = value.data_type();
        let gives = if kind.is_floating() { EXACT } else { kind.clone() };
        function().invoke_with_args(ScalarFunctionArgs {
            args: vec![value],
            arg_fields: vec![Arc::new(Field::new("f", kind, true))],
            number_rows: 3,
            return_field: Arc::new(Field::new("f", gives, true)),
            config_options: Arc::new(ConfigOptions::default()),
        })
    }

    #[test]
    fn doubles_are_rounded_to_microseconds() {
        let doubles = Float64Array::from(vec![Some(1_700_000_000.123), Some(-0.5), None]);
        let ColumnarValue::Array(exact) = made(ColumnarValue::Array(Arc::new(doubles))).unwrap() else {
            panic!("no array")
        };
        let exact: Vec<Option<i128>> = exact.as_primitive::<Decimal128Type>().iter().collect();
        assert_eq!(exact, [Some(1_700_000_000_123_000), Some(-500_000), None]);
        for beyond in [f64::NAN, f64::INFINITY, 1e300] {
            let doubles = Float64Array::from(vec![Some(beyond); 3]);
            let error = made(ColumnarValue::Array(Arc::new(doubles))).unwrap_err();
            assert!(error.to_string().contains("`to_timestamp` takes seconds"), "{error}");
        }
    }

    #[test]
    fn others_stay_as_they_are() {
        let whole = Int64Array::from(vec![1, 2, 3]);
        let ColumnarValue::Array(same) = made(ColumnarValue::Array(Arc::new(whole))).unwrap() else {
            panic!("no array")
        };
        assert_eq!(same.as_primitive::<Int64Type>().values(), &[1, 2, 3]);
    }
}
