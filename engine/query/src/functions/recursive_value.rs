//! `recursive_value(x)`: marks an output of the recursive term of a `WITH RECURSIVE`. The planner casts it to the type
//! of the first term, even if the value does not fit. The mark tells such a cast from one that the statement contains.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// The name of the mark.
pub const RECURSIVE_VALUE: &str = "recursive_value";

#[derive(Debug, PartialEq, Eq, Hash)]
struct RecursiveValue {
    signature: Signature,
}

/// Gives the function, of one argument of any type, which it returns.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(RecursiveValue { signature: Signature::any(1, Volatility::Immutable) }))
}

impl ScalarUDFImpl for RecursiveValue {
    fn name(&self) -> &'static str {
        RECURSIVE_VALUE
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [kind] = types else { return plan_err!("`{RECURSIVE_VALUE}` takes one value") };
        Ok(kind.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [field] = args.arg_fields else { return plan_err!("`{RECURSIVE_VALUE}` takes one value") };
        Ok(Arc::clone(field))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Some(value) = args.args.into_iter().next() {
            Ok(value)
        } else {
            internal_err!("`{RECURSIVE_VALUE}` takes one value")
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::Field;

    use super::super::testing::{call, column, shown};
    use super::*;

    #[test]
    fn a_value_stays_as_it_is() {
        let found = call(&function(), &[column(Int64Array::from(vec![Some(1), None]))], 2).unwrap();
        assert_eq!(shown(&found), [Some("1".to_owned()), None]);
        for is_nullable in [true, false] {
            let field: FieldRef = Arc::new(Field::new("a", DataType::Int64, is_nullable));
            let args = ReturnFieldArgs { arg_fields: &[Arc::clone(&field)], scalar_arguments: &[None] };
            assert_eq!(function().return_field_from_args(args).unwrap(), field);
        }
    }
}
