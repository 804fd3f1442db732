//! `array_slice` with steps of any length. DataFusion's function adds a long step to a place until the sum turns around, and
//! takes steps beyond 32 bits for a fault of its own.

use std::sync::Arc;

use arrow::array::{AsArray as _, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_nested::extract::array_slice_udf;
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use super::delegated_head::delegated_head;

/// Longer than any list, and small enough that adding a position in a list cannot overflow.
const STEP_MAX: i64 = 1 << 30;

/// DataFusion's function with bounded steps.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Slices(Arc<ScalarUDF>);

/// Gives the function with its name.
pub(super) fn function() -> (&'static str, Arc<ScalarUDF>) {
    ("array_slice", Arc::new(ScalarUDF::from(Slices(array_slice_udf()))))
}

impl ScalarUDFImpl for Slices {
    delegated_head!(0);

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.0.inner().schema_name(args)
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Some(steps) = args.args.get_mut(3) {
            let is_constant = matches!(steps, ColumnarValue::Scalar(_));
            let given = cast(&steps.to_array(if is_constant { 1 } else { args.number_rows })?, &DataType::Int64)?;
            let bounded: Int64Array = given.as_primitive::<Int64Type>().unary(|step| step.clamp(-STEP_MAX, STEP_MAX));
            *steps = if is_constant {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&bounded, 0)?)
            } else {
                ColumnarValue::Array(Arc::new(bounded))
            };
        }
        self.0.invoke_with_args(args)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::answered;

    #[tokio::test]
    async fn long_steps_give_the_first_item() {
        for step in ["2", "2147483647", "2147483648", "4294967296", "9223372036854775807"] {
            let forth = format!("select array_slice(make_array(1, 2, 3), 2, 3, {step})");
            assert_eq!(answered(&forth).await.unwrap(), ["[2]"], "{forth}");
            let back = format!("select array_slice(make_array(1, 2, 3), 2, 1, -{step})");
            assert_eq!(answered(&back).await.unwrap(), ["[2]"], "{back}");
        }
        let columns =
            "select array_slice(make_array(1, 2, 3), 2, 3, s) from (values (2147483647), (1), (null)) as t(s)";
        assert_eq!(answered(columns).await.unwrap(), ["[2]", "[2, 3]", "NULL"]);
        assert!(answered("select array_slice(make_array(1, 2, 3), 2, 3, 0)").await.is_err());
    }
}
