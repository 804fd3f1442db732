//! `row_bound(n, 'LIMIT')`: checks a computed number of rows (`LIMIT (SELECT …)`), which must not be negative.
//! `quiver_sql` puts it around such expressions.

use std::sync::Arc;

use arrow::array::AsArray as _;
use arrow::compute::min;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bound {
    signature: Signature,
}

/// Gives the function, of a number and the word before it; NULL of NULL.
pub(super) fn function() -> Arc<ScalarUDF> {
    let signature = Signature::exact(vec![DataType::Int64, DataType::Utf8], Volatility::Immutable);
    Arc::new(ScalarUDF::from(Bound { signature }))
}

impl ScalarUDFImpl for Bound {
    fn name(&self) -> &'static str {
        "row_bound"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [bounds, ColumnarValue::Scalar(word)] = args.args.as_slice() else {
            return exec_err!("`row_bound` takes a number and a word");
        };
        let numbers = bounds.to_array(args.number_rows)?;
        if min(numbers.as_primitive::<Int64Type>()).is_some_and(|least| least < 0) {
            return exec_err!("{} must not be negative", word.try_as_str().flatten().unwrap_or_default());
        }
        Ok(bounds.clone())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;

    use super::super::testing::{call, column, shown, text};
    use super::*;

    #[test]
    fn bounds_are_not_negative() {
        let of = |numbers: Vec<Option<i64>>| {
            let rows = numbers.len();
            call(&function(), &[column(Int64Array::from(numbers)), text("OFFSET")], rows)
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(shown(&of(vec![Some(0), None, Some(3)]).unwrap()), [some("0"), None, some("3")]);
        let refused = of(vec![Some(5), Some(-1)]).unwrap_err().to_string();
        assert!(refused.contains("OFFSET must not be negative"), "{refused}");
    }
}
