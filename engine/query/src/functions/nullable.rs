//! Marks a value as one that may be NULL, whatever its column says. A scalar subquery returns NULL if it has no row,
//! but the planner takes its result to be as the column is, and would remove a test for NULL.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Optional {
    signature: Signature,
}

/// Gives the function, of one argument of any type. As a constant it would be none that may be NULL, so it is no function
/// that is evaluated while a statement is planned.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Optional { signature: Signature::any(1, Volatility::Volatile) }))
}

impl ScalarUDFImpl for Optional {
    fn name(&self) -> &'static str {
        "optional"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [kind] = types else { return plan_err!("`optional` takes one value") };
        Ok(kind.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [field] = args.arg_fields else { return plan_err!("`optional` takes one value") };
        Ok(Arc::new(field.as_ref().clone().with_nullable(true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Some(value) = args.args.into_iter().next() {
            Ok(value)
        } else {
            internal_err!("`optional` takes one value")
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn a_value_may_be_null() {
        let field: FieldRef = Arc::new(Field::new("a", DataType::Int64, false));
        let args = ReturnFieldArgs { arg_fields: &[field], scalar_arguments: &[None] };
        let found = function().return_field_from_args(args).unwrap();
        assert!(found.is_nullable());
        assert_eq!(found.data_type(), &DataType::Int64);
    }
}
