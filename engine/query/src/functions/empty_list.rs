//! A list, or an empty list in place of NULL: the result of `ARRAY(SELECT …)` over no rows. `quiver_sql` puts it around
//! such subqueries. `coalesce` would not do: it would contain the subquery twice, once to test it for NULL.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, ListArray, Scalar, new_empty_array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::is_not_null;
use arrow::compute::kernels::zip::zip;
use arrow::datatypes::DataType;
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

#[derive(Debug, PartialEq, Eq, Hash)]
struct OrEmpty {
    signature: Signature,
}

/// Gives the function, of one list; what is no list stays as it is.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(OrEmpty { signature: Signature::any(1, Volatility::Immutable) }))
}

impl ScalarUDFImpl for OrEmpty {
    fn name(&self) -> &'static str {
        "or_empty"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [kind] = types else { return internal_err!("one list is looked at") };
        Ok(kind.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = args.args.as_slice() else { return internal_err!("one list is looked at") };
        let lists = value.to_array(args.number_rows)?;
        Ok(ColumnarValue::Array(or_empty(&lists)?))
    }
}

fn or_empty(lists: &ArrayRef) -> Result<ArrayRef> {
    let DataType::List(item) = lists.data_type() else { return Ok(Arc::clone(lists)) };
    if lists.as_list::<i32>().null_count() == 0 {
        return Ok(Arc::clone(lists));
    }
    let no_items = new_empty_array(item.data_type());
    let empty = ListArray::new(Arc::clone(item), OffsetBuffer::from_lengths([0]), no_items, None);
    Ok(zip(&is_not_null(lists)?, lists, &Scalar::new(empty))?)
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn lists_that_lack_have_no_items() {
        let lists = |rows: Vec<Option<Vec<Option<i64>>>>| -> ArrayRef {
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(rows))
        };
        let found = or_empty(&lists(vec![Some(vec![Some(1), None]), None, Some(vec![])])).unwrap();
        assert_eq!(&found, &lists(vec![Some(vec![Some(1), None]), Some(vec![]), Some(vec![])]));
        let other: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(1)]));
        assert_eq!(&or_empty(&other).unwrap(), &other);
    }
}
