//! `to_char` with a pattern that differs from row to row. The type of the value decides whether it is a pattern for
//! numbers or for times; for constant patterns the pattern's words decide. `quiver_sql` translates calls to this
//! function.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::result_memory::Room;
use super::{number_format, time_format};

#[derive(Debug, PartialEq, Eq, Hash)]
struct RowFormat {
    number: Arc<ScalarUDF>,
    time: Arc<ScalarUDF>,
    signature: Signature,
}

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

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, TimestampNanosecondArray};

    use super::super::testing::{call, column, room, shown, texts};
    use super::*;

    #[test]
    fn patterns_are_of_what_they_are_for() {
        let function = function(&room());
        let some = |text: &str| Some(text.to_owned());
        let numbers = column(Int64Array::from(vec![Some(5), Some(5), None]));
        let found = call(&function, &[numbers, texts(&[Some("FM009"), Some("YYYY"), Some("9")])], 3).unwrap();
        assert_eq!(shown(&found), [some("005"), some("YYYY"), None]);
        let times = column(TimestampNanosecondArray::from(vec![Some(0), Some(0), Some(0)]));
        let found = call(&function, &[times, texts(&[Some("YYYY-MM-DD"), Some("999"), None])], 3).unwrap();
        assert_eq!(shown(&found), [some("1970-01-01"), some("999"), None]);
        for (types, said) in [
            (vec![DataType::Int64], "`to_char` takes a value and a pattern"),
            (vec![DataType::Boolean, DataType::Utf8], "is for a time or an interval, not for `Boolean`"),
        ] {
            let refused = function.coerce_types(&types).unwrap_err().to_string();
            assert!(refused.contains(said), "{refused}");
        }
    }
}
