//! `array_has_all` and `array_has_any` (`@>`, `<@`, `&&`) with PostgreSQL's treatment of NULL. DataFusion's functions
//! treat NULL lists as empty if no list of a batch has items, refuse untyped NULLs, and take NULL items for equal,
//! which they never are in PostgreSQL.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, BooleanArray, GenericListArray, OffsetSizeTrait};
use arrow::buffer::{BooleanBuffer, NullBuffer, OffsetBuffer};
use arrow::compute::{filter, is_not_null};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_nested::array_has::{array_has_all_udf, array_has_any_udf};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use super::delegated_head::delegated_head;

/// One of the two functions; NULL if one of the lists is NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ContainmentFunction(Arc<ScalarUDF>);

/// Gives the functions with their names.
pub(super) fn functions() -> [(&'static str, Arc<ScalarUDF>); 2] {
    [("array_has_all", array_has_all_udf()), ("array_has_any", array_has_any_udf())]
        .map(|(name, inner)| (name, Arc::new(ScalarUDF::from(ContainmentFunction(inner)))))
}

impl ScalarUDFImpl for ContainmentFunction {
    delegated_head!(0);

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
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
        let mut lacking = Vec::new();
        if let Some(sought) = args.args.get_mut(1)
            && let Some((present, rows)) = present(sought)?
        {
            (*sought, lacking) = (present, rows);
        }
        // For `array_has_all` no item may be NULL.
        if self.name() != "array_has_all" {
            lacking.clear();
        }
        let rows = args.number_rows;
        let found = self.0.invoke_with_args(args)?;
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        if nulls.is_none() && lacking.is_empty() {
            return Ok(found);
        }
        let found = found.into_array(rows)?;
        let found = found.as_boolean();
        // A constant list is stored once.
        let lacks = |row: usize| lacking.get(row).or(lacking.first()).is_some_and(|lacks| *lacks);
        let values = BooleanBuffer::collect_bool(found.len(), |row| found.value(row) && !lacks(row));
        let nulls = NullBuffer::union(found.nulls(), nulls.as_ref());
        Ok(ColumnarValue::Array(Arc::new(BooleanArray::new(values, nulls))))
    }
}

/// Lists without their NULL items, and which lists had such; `None` if none had.
fn present(lists: &ColumnarValue) -> Result<Option<(ColumnarValue, Vec<bool>)>> {
    let array = match lists {
        ColumnarValue::Array(lists) => Arc::clone(lists),
        ColumnarValue::Scalar(list) => list.to_array()?,
    };
    let found = match array.data_type() {
        DataType::List(item) => without_nulls(array.as_list::<i32>(), item)?,
        DataType::LargeList(item) => without_nulls(array.as_list::<i64>(), item)?,
        _ => None,
    };
    let Some((present, lacking)) = found else { return Ok(None) };
    let present = match lists {
        ColumnarValue::Array(_) => ColumnarValue::Array(present),
        ColumnarValue::Scalar(_) => ColumnarValue::Scalar(ScalarValue::try_from_array(&present, 0)?),
    };
    Ok(Some((present, lacking)))
}

fn without_nulls<O: OffsetSizeTrait>(
    lists: &GenericListArray<O>,
    item: &FieldRef,
) -> Result<Option<(ArrayRef, Vec<bool>)>> {
    let offsets = lists.value_offsets();
    let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else { return Ok(None) };
    let start = first.as_usize();
    let items = lists.values().slice(start, last.as_usize() - start);
    if items.logical_null_count() == 0 {
        return Ok(None);
    }
    let is_there = is_not_null(&items)?;
    let (mut lengths, mut lacking) = (Vec::with_capacity(lists.len()), Vec::with_capacity(lists.len()));
    for ends in offsets.windows(2) {
        let length = (ends[1] - ends[0]).as_usize();
        let there = is_there.values().slice(ends[0].as_usize() - start, length).count_set_bits();
        lengths.push(there);
        lacking.push(there < length);
    }
    let offsets = OffsetBuffer::from_lengths(lengths);
    let items = filter(&items, &is_there)?;
    let lists = GenericListArray::<O>::try_new(Arc::clone(item), offsets, items, lists.nulls().cloned())?;
    Ok(Some((Arc::new(lists), lacking)))
}

#[cfg(test)]
mod tests {
    use arrow::array::ListArray;
    use arrow::datatypes::Int64Type;

    use super::super::testing::{call, column};
    use super::*;

    fn lists(rows: Vec<Option<Vec<Option<i64>>>>) -> ColumnarValue {
        column(ListArray::from_iter_primitive::<Int64Type, _, _>(rows))
    }

    fn truths(found: &ArrayRef) -> Vec<Option<bool>> {
        found.as_boolean().iter().collect()
    }

    /// Guards against treating NULL lists as empty ones.
    #[test]
    fn lists_that_lack_have_no_answer() {
        let [(_, all), (_, any)] = functions();
        let some = |items: &[i64]| Some(items.iter().copied().map(Some).collect::<Vec<_>>());
        let left = lists(vec![some(&[1, 2]), some(&[]), None, some(&[1]), some(&[1, 2])]);
        let right = lists(vec![some(&[2]), some(&[]), some(&[]), None, some(&[3])]);
        let both = [left.clone(), right];
        assert_eq!(truths(&call(&all, &both, 5).unwrap()), [Some(true), Some(true), None, None, Some(false)]);
        assert_eq!(truths(&call(&any, &both, 5).unwrap()), [Some(true), Some(false), None, None, Some(false)]);
        // Lists without any items, and lists that are NULL in all rows.
        let empty = lists(vec![None, some(&[])]);
        assert_eq!(truths(&call(&all, &[empty.clone(), empty.clone()], 2).unwrap()), [None, Some(true)]);
        assert_eq!(truths(&call(&any, &[empty.clone(), empty], 2).unwrap()), [None, Some(false)]);
        let kind = DataType::new_list(DataType::Int64, true);
        let none = ColumnarValue::Scalar(ScalarValue::try_from(&kind).unwrap());
        assert_eq!(truths(&call(&all, &[left, none], 5).unwrap()), [None; 5]);
    }

    #[test]
    fn nothing_is_the_same_as_nothing() {
        let [(_, all), (_, any)] = functions();
        let left = || lists(vec![Some(vec![Some(1), None]), Some(vec![None]), Some(vec![Some(2), None]), None]);
        let right = lists(vec![Some(vec![None, Some(1)]), Some(vec![]), Some(vec![Some(2)]), Some(vec![None])]);
        let both = [left(), right];
        assert_eq!(truths(&call(&all, &both, 4).unwrap()), [Some(false), Some(true), Some(true), None]);
        assert_eq!(truths(&call(&any, &both, 4).unwrap()), [Some(true), Some(false), Some(true), None]);
        let items = ListArray::from_iter_primitive::<Int64Type, _, _>(vec![Some(vec![None, Some(2)])]);
        let constant = || ColumnarValue::Scalar(ScalarValue::List(Arc::new(items.clone())));
        let none = [Some(false), Some(false), Some(false), None];
        assert_eq!(truths(&call(&all, &[left(), constant()], 4).unwrap()), none);
        assert_eq!(
            truths(&call(&any, &[left(), constant()], 4).unwrap()),
            [Some(false), Some(false), Some(true), None]
        );
        // A slice of a longer column.
        let sliced = ColumnarValue::Array(left().into_array(4).unwrap().slice(2, 2));
        let found = call(&all, &[sliced.clone(), sliced], 2).unwrap();
        assert_eq!(truths(&found), [Some(false), None]);
    }
}
