//! The sign before whole numbers. The least number of a type has no opposite: DataFusion gives the number itself.

use std::sync::Arc;

use arrow::compute::kernels::numeric::neg;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable as _, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use crate::functions::typed_as;

/// The number whose sign an expression changes, if that is a whole number that may have no opposite.
pub(super) fn negated<'e>(expr: &'e Expr, schema: &DFSchema) -> Result<Option<&'e Expr>> {
    let Expr::Negative(number) = expr else { return Ok(None) };
    let is_whole = typed_as(number).get_type(schema)?.is_signed_integer();
    Ok(is_whole.then_some(number.as_ref()))
}

/// The checked function.
pub(super) fn function() -> ScalarUDF {
    ScalarUDF::from(CheckedNegation { signature: Signature::any(1, Volatility::Immutable) })
}

/// The opposite of a whole number; an error where its type has none.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedNegation {
    signature: Signature,
}

impl ScalarUDFImpl for CheckedNegation {
    fn name(&self) -> &'static str {
        "checked_neg"
    }

    /// Columns keep the names that they had with the sign.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let [number] = args else { return internal_err!("a sign stands before one number") };
        Ok(format!("(- {})", number.schema_name()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [kind] = types else { return internal_err!("a sign stands before one number") };
        Ok(kind.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [number] = args.arg_fields else { return internal_err!("a sign stands before one number") };
        Ok(Arc::new(Field::new(self.name(), number.data_type().clone(), number.is_nullable())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [number] = args.args.as_slice() else { return internal_err!("a sign stands before one number") };
        Ok(match number {
            ColumnarValue::Array(numbers) => ColumnarValue::Array(neg(numbers.as_ref())?),
            ColumnarValue::Scalar(number) => {
                let opposite = neg(number.to_array()?.as_ref())?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&opposite, 0)?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::answered;

    #[tokio::test]
    async fn least_numbers_have_no_opposite() {
        for (kind, least) in [("smallint", i64::from(i16::MIN)), ("int", i64::from(i32::MIN)), ("bigint", i64::MIN)] {
            let from = |number: i64| format!("from (values (arrow_cast('{number}', '{}'))) as t(n)", arrow_name(kind));
            let error = answered(&format!("select -n {}", from(least))).await.unwrap_err();
            // The overflow is named in the cause, not in the outer message.
            assert!(format!("{error:?}").to_lowercase().contains("overflow"), "{kind}: {error:?}");
            let greatest = answered(&format!("select -n {}", from(least + 1))).await.unwrap();
            assert_eq!(greatest, [(-(least + 1)).to_string()], "{kind}");
        }
        assert_eq!(answered("select -n from (values (1.5)) as t(n)").await.unwrap(), ["-1.5"]);
    }

    fn arrow_name(kind: &str) -> &'static str {
        match kind {
            "smallint" => "Int16",
            "int" => "Int32",
            _ => "Int64",
        }
    }
}
