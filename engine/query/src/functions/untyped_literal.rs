//! String literals beside values of a type that only the planner knows: `coalesce(time, '1970-01-01')`. In PostgreSQL
//! such a literal takes that type. `quiver_sql` wraps it in `literal`, which has no type of its own, so the other
//! values decide; once types are known, the rule `relational/literals` removes the wrapper.

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
