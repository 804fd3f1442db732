//! `array_position`, and with it `x = ANY (list)`, for a list that is always NULL. Such an expression has no type, and
//! DataFusion's function fails on it at run time. asyncpg sends such calls when it looks up the types of arrays. A place to
//! begin at that is not in the list is no error, and rows are found in lists of rows.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray, Int64Array, ListArray, UInt64Array, make_comparator, new_null_array,
};
use arrow::compute::kernels::length::length;
use arrow::compute::{SortOptions, cast};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::functions_nested::position::array_position_udf;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use super::delegated_head::delegated_head;

/// DataFusion's function; NULL of a list without a type, and where the search begins behind the end.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Position(Arc<ScalarUDF>);

/// Gives the function with its name.
pub(super) fn function() -> (&'static str, Arc<ScalarUDF>) {
    ("array_position", Arc::new(ScalarUDF::from(Position(array_position_udf()))))
}

impl ScalarUDFImpl for Position {
    delegated_head!(0);

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if args.args.first().is_some_and(|list| list.data_type() == DataType::Null) {
            return Ok(ColumnarValue::Scalar(ScalarValue::UInt64(None)));
        }
        if let [list, _, from] = args.args.as_slice()
            && matches!(list.data_type(), DataType::List(_) | DataType::LargeList(_))
        {
            let is_constant = [list, from].iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
            let rows = if is_constant { 1 } else { args.number_rows };
            let within = places(&list.to_array(rows)?, &from.to_array(rows)?)?;
            args.args[2] = if is_constant {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&within, 0)?)
            } else {
                ColumnarValue::Array(Arc::new(within))
            };
        }
        if let [list, row, from @ ..] = args.args.as_slice()
            && matches!(list.data_type(), DataType::List(item) if matches!(item.data_type(), DataType::Struct(_)))
        {
            let (lists, wanted) = (list.to_array(args.number_rows)?, row.to_array(args.number_rows)?);
            let from = from.first().map(|from| from.to_array(args.number_rows)).transpose()?;
            let from = from.as_ref().map(AsArray::as_primitive::<Int64Type>);
            return Ok(ColumnarValue::Array(Arc::new(rows_found(lists.as_list(), &wanted, from)?)));
        }
        self.0.invoke_with_args(args)
    }
}

/// The places of rows in lists of rows, which DataFusion does not compare.
fn rows_found(lists: &ListArray, wanted: &ArrayRef, from: Option<&Int64Array>) -> Result<UInt64Array> {
    let kind = lists.values().data_type();
    let nulls = (*wanted.data_type() == DataType::Null).then(|| new_null_array(kind, wanted.len()));
    let compare = make_comparator(lists.values(), nulls.as_ref().unwrap_or(wanted), SortOptions::default())?;
    let offsets = lists.value_offsets();
    let place = |row: usize| {
        let (begin, end) = (offsets[row] as usize, offsets[row + 1] as usize);
        let first = begin + from.map_or(0, |from| from.value(row) as usize - 1);
        let found = (first..end).find(|at| compare(*at, row).is_eq())?;
        lists.is_valid(row).then_some((found - begin + 1) as u64)
    };
    Ok((0..lists.len()).map(place).collect())
}

/// The places at which searches begin, from 1 to the one behind each list. Those in lists that are NULL are of no account.
fn places(lists: &ArrayRef, from: &ArrayRef) -> Result<Int64Array> {
    let lengths = cast(&length(lists)?, &DataType::Int64)?;
    let (lengths, from) = (lengths.as_primitive::<Int64Type>(), cast(from, &DataType::Int64)?);
    let place = |(length, from): (Option<i64>, Option<i64>)| match (length, from) {
        (None, _) => Ok(1),
        (Some(_), None) => exec_err!("initial position must not be null"),
        (Some(length), Some(from)) => Ok(from.clamp(1, length + 1)),
    };
    lengths.iter().zip(from.as_primitive::<Int64Type>().iter()).map(place).collect::<Result<Vec<i64>>>().map(Into::into)
}

#[cfg(test)]
mod tests {
    use crate::testing::answered;

    #[tokio::test]
    async fn searches_begin_anywhere() {
        let from = "from (values (make_array(1, 2, 1), 2), (make_array(1), 3), (make_array(1), -1)) as t(a, n)";
        assert_eq!(answered(&format!("select array_position(a, 1, n) {from}")).await.unwrap(), ["3", "NULL", "1"]);
        let constant = "select array_position(make_array(1, 2), 2, 5), array_position(make_array(1, 2), 2, 0)";
        assert_eq!(answered(constant).await.unwrap(), ["NULL|2"]);
        assert!(answered(&format!("select array_position(a, 1, nullif(n, 3)) {from}")).await.is_err());
    }

    #[tokio::test]
    async fn rows_are_found_in_lists_of_rows() {
        let from =
            "from (values (make_array(struct(1, 'a'), struct(2, 'b')), 2), (make_array(struct(2, 'c')), 2)) as t(a, n)";
        let found = answered(&format!("select array_position(a, struct(n, 'b')) {from}")).await.unwrap();
        assert_eq!(found, ["2", "NULL"]);
        let behind = answered(&format!("select array_position(a, struct(n, 'b'), 3) {from}")).await.unwrap();
        assert_eq!(behind, ["NULL", "NULL"]);
    }
}
