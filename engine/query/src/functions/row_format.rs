//! `to_char` with a pattern of each row: whether it is one of numbers or of times is said by what it is for, and not by its
//! words, as where it is a constant. Statements are put into it by `quiver_sql`.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::held::Room;
use super::{number_format, time_format};

#[derive(Debug, PartialEq, Eq, Hash)]
struct RowFormat {
    number: Arc<ScalarUDF>,
    time: Arc<ScalarUDF>,
    signature: Signature,
}

/// Gives the function.
pub(super) fn function(room: &Room) -> Arc<ScalarUDF> {
    let (number, time) = (number_format::to_char(room), time_format::function(room));
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::from(RowFormat { number, time, signature }))
}

impl RowFormat {
    /// The function for a type of values.
    fn of(&self, kind: &DataType) -> &ScalarUDF {
        if kind.is_numeric() { &self.number } else { &self.time }
    }
}

impl ScalarUDFImpl for RowFormat {
    fn name(&self) -> &'static str {
        "row_to_char"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [value, _] = types else { return plan_err!("`to_char` takes a value and a pattern") };
        self.of(value).coerce_types(types)
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value, _] = args.arg_fields.as_slice() else { return plan_err!("`to_char` takes a value and a pattern") };
        self.of(value.data_type()).invoke_with_args(args)
    }
}
