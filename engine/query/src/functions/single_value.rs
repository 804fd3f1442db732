//! The only item of a list: the result of a scalar subquery that looks up a value for each row. Such a subquery
//! collects its rows into a list, so that more than one row can be reported as an error, and only if a row asks for the
//! value.

use std::sync::Arc;

use arrow::array::{Array as _, AsArray, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::DataType;
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sole {
    signature: Signature,
}

/// Gives the function, of a list; NULL of none and of an empty one.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Sole { signature: Signature::any(1, Volatility::Immutable) }))
}

impl ScalarUDFImpl for Sole {
    fn name(&self) -> &'static str {
        "sole"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        if let [DataType::List(item)] = types { Ok(item.data_type().clone()) } else { plan_err!("`sole` takes a list") }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [lists] = args.args.as_slice() else { return exec_err!("`sole` takes a list") };
        let lists = lists.to_array(args.number_rows)?;
        let Some(lists) = lists.as_list_opt::<i32>() else { return exec_err!("`sole` takes a list") };
        let mut places = UInt64Array::builder(lists.len());
        for (row, ends) in lists.offsets().windows(2).enumerate() {
            let items = if lists.is_null(row) { 0 } else { ends[1] - ends[0] };
            match items {
                0 => places.append_null(),
                1 => places.append_value(u64::from(ends[0].unsigned_abs())),
                _ => return exec_err!("a subquery that stands for a value gives more than one row"),
            }
        }
        Ok(ColumnarValue::Array(take(lists.values(), &places.finish(), None)?))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, ListArray};
    use arrow::datatypes::{Field, Int64Type};
    use datafusion::common::config::ConfigOptions;

    use super::*;

    fn of(lists: Vec<Option<Vec<Option<i64>>>>) -> Result<ArrayRef> {
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(lists);
        let number_rows = lists.len();
        let args = ScalarFunctionArgs {
            arg_fields: vec![Arc::new(Field::new("list", lists.data_type().clone(), true))],
            args: vec![ColumnarValue::Array(Arc::new(lists))],
            number_rows,
            return_field: Arc::new(Field::new("sole", DataType::Int64, true)),
            config_options: Arc::new(ConfigOptions::default()),
        };
        function().invoke_with_args(args)?.into_array(number_rows)
    }

    #[test]
    fn one_item_or_none() {
        let found = of(vec![Some(vec![Some(5)]), None, Some(vec![]), Some(vec![None])]).unwrap();
        let expected = [Some(5), None, None, None];
        assert_eq!(found.as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), expected);
        let several = of(vec![Some(vec![Some(5), Some(6)])]).unwrap_err();
        assert!(several.to_string().contains("more than one row"), "{several}");
    }
}
