//! `array_position`, and with it `x = ANY (list)`, for a list that is always NULL. Such an expression has no type, and
//! DataFusion's function fails on it at run time. asyncpg sends such calls when it looks up the types of arrays.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_nested::position::array_position_udf;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use super::delegated_head::delegated_head;

/// DataFusion's function; NULL of a list without a type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Position(Arc<ScalarUDF>);

/// Gives the function with its name.
pub(super) fn function() -> (&'static str, Arc<ScalarUDF>) {
    ("array_position", Arc::new(ScalarUDF::from(Position(array_position_udf()))))
}

impl ScalarUDFImpl for Position {
    delegated_head!(0);

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if args.args.first().is_some_and(|list| list.data_type() == DataType::Null) {
            return Ok(ColumnarValue::Scalar(ScalarValue::UInt64(None)));
        }
        self.0.invoke_with_args(args)
    }
}
