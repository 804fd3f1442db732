//! `array_position`, and with it `x = ANY (list)`, of a list that is always NULL: such an output has no type, and
//! DataFusion's function refuses it when it runs. asyncpg's look-up of types asks so for each type of array.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_nested::position::array_position_udf;
use datafusion::logical_expr::{ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature};

/// DataFusion's function; NULL of a list without a type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Position(Arc<ScalarUDF>);

/// Gives the function with its name.
pub(super) fn function() -> (&'static str, Arc<ScalarUDF>) {
    ("array_position", Arc::new(ScalarUDF::from(Position(array_position_udf()))))
}

impl ScalarUDFImpl for Position {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn aliases(&self) -> &[String] {
        self.0.aliases()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.0.inner().return_type(types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if args.args.first().is_some_and(|list| list.data_type() == DataType::Null) {
            return Ok(ColumnarValue::Scalar(ScalarValue::UInt64(None)));
        }
        self.0.invoke_with_args(args)
    }
}
