//! `array_has_all` and `array_has_any` (`@>`, `<@`, `&&`) of lists that lack. DataFusion's look for the items of a batch first,
//! and answer where there are none as of lists without items; a NULL without a type they refuse.

use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, BooleanArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_nested::array_has::{array_has_all_udf, array_has_any_udf};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

/// One of them, which gives NULL where one of the lists is.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Contained(Arc<ScalarUDF>);

/// Gives the functions with their names.
pub(super) fn functions() -> [(&'static str, Arc<ScalarUDF>); 2] {
    [("array_has_all", array_has_all_udf()), ("array_has_any", array_has_any_udf())]
        .map(|(name, inner)| (name, Arc::new(ScalarUDF::from(Contained(inner)))))
}

impl ScalarUDFImpl for Contained {
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

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.0.inner().return_field_from_args(args)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.0.inner().coerce_types(types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let lacks = |value: &ColumnarValue| match value {
            ColumnarValue::Scalar(value) => value.is_null(),
            ColumnarValue::Array(lists) => *lists.data_type() == DataType::Null,
        };
        if args.args.iter().any(lacks) {
            return Ok(ColumnarValue::Scalar(ScalarValue::Boolean(None)));
        }
        let mut nulls: Option<NullBuffer> = None;
        for value in &args.args {
            if let ColumnarValue::Array(lists) = value {
                nulls = NullBuffer::union(nulls.as_ref(), lists.nulls());
            }
        }
        let rows = args.number_rows;
        let found = self.0.invoke_with_args(args)?;
        let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) else { return Ok(found) };
        let found = found.into_array(rows)?;
        let found = found.as_boolean();
        let nulls = NullBuffer::union(found.nulls(), Some(&nulls));
        Ok(ColumnarValue::Array(Arc::new(BooleanArray::new(found.values().clone(), nulls))))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, ListArray};
    use arrow::datatypes::Int64Type;

    use super::super::testing::{call, column};
    use super::*;

    fn lists(rows: Vec<Option<Vec<Option<i64>>>>) -> ColumnarValue {
        column(ListArray::from_iter_primitive::<Int64Type, _, _>(rows))
    }

    fn truths(found: &ArrayRef) -> Vec<Option<bool>> {
        found.as_boolean().iter().collect()
    }

    /// Breaks where lists that lack are answered as lists without items.
    #[test]
    fn lists_that_lack_have_no_answer() {
        let [(_, all), (_, any)] = functions();
        let some = |items: &[i64]| Some(items.iter().copied().map(Some).collect::<Vec<_>>());
        let left = lists(vec![some(&[1, 2]), some(&[]), None, some(&[1]), some(&[1, 2])]);
        let right = lists(vec![some(&[2]), some(&[]), some(&[]), None, some(&[3])]);
        let both = [left.clone(), right];
        assert_eq!(truths(&call(&all, &both, 5).unwrap()), [Some(true), Some(true), None, None, Some(false)]);
        assert_eq!(truths(&call(&any, &both, 5).unwrap()), [Some(true), Some(false), None, None, Some(false)]);
        // Where no list has items, and where one of them is NULL for all rows.
        let empty = lists(vec![None, some(&[])]);
        assert_eq!(truths(&call(&all, &[empty.clone(), empty.clone()], 2).unwrap()), [None, Some(true)]);
        assert_eq!(truths(&call(&any, &[empty.clone(), empty], 2).unwrap()), [None, Some(false)]);
        let kind = DataType::new_list(DataType::Int64, true);
        let none = ColumnarValue::Scalar(ScalarValue::try_from(&kind).unwrap());
        assert_eq!(truths(&call(&all, &[left, none], 5).unwrap()), [None; 5]);
    }
}
