//! A text that is written out beside values of a type that the planner alone knows: `coalesce(time, '1970-01-01')`. In
//! PostgreSQL it is of their type. Statements have `literal` put around such texts by `quiver_sql`: it is of no type, so that
//! the others say of which it is, and gone once types are given, see `relational/literals`.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// What it is called.
pub(crate) const NAME: &str = "literal";

#[derive(Debug, PartialEq, Eq, Hash)]
struct Literal {
    signature: Signature,
}

/// Gives the function, of one text.
pub(crate) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Literal { signature: Signature::any(1, Volatility::Immutable) }))
}

impl ScalarUDFImpl for Literal {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Null)
    }

    /// A text that is written out is not NULL.
    fn return_field_from_args(&self, _args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(NAME, DataType::Null, false)))
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("a literal was given no type")
    }
}
