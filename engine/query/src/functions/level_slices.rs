//! `level_slices(list, from, to, …)`: slices of lists of lists with a range of places for each level, from the outermost one
//! on (`x[1:2][2:3]` in PostgreSQL). Levels without a range are taken whole. Where a range holds no place, or there are more
//! ranges than levels, the list is empty; NULL where a bound is. DataFusion's `array_slice` knows one level.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray, BooleanArray, Int64Array, ListArray, UInt64Array};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::{nullif, take};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

/// First and last place of a level for each row, from 1.
type Ranges = Vec<(i64, i64)>;

#[derive(Debug, PartialEq, Eq, Hash)]
struct LevelSlices {
    signature: Signature,
}

/// Gives the function, of a list and pairs of bounds.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(LevelSlices { signature: Signature::user_defined(Volatility::Immutable) }))
}

impl ScalarUDFImpl for LevelSlices {
    fn name(&self) -> &'static str {
        "level_slices"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [list, bounds @ ..] = types else { return plan_err!("a slice is one of a list") };
        if !matches!(list, DataType::List(_) | DataType::Null) || bounds.is_empty() || !bounds.len().is_multiple_of(2) {
            return plan_err!("slices are of lists, and not of `{list}`");
        }
        Ok([list.clone()].into_iter().chain(bounds.iter().map(|_| DataType::Int64)).collect())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [list, ..] = types else { return internal_err!("a slice is one of a list") };
        Ok(list.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let columns = args.args.iter().map(|value| value.to_array(args.number_rows));
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let [list, bounds @ ..] = columns.as_slice() else { return internal_err!("a slice is one of a list") };
        if list.data_type().is_null() {
            return Ok(ColumnarValue::Array(ArrayRef::clone(list)));
        }
        let bounds: Vec<&Int64Array> = bounds.iter().map(AsArray::as_primitive::<Int64Type>).collect();
        Ok(ColumnarValue::Array(sliced(list, &bounds)?))
    }
}

fn sliced(lists: &ArrayRef, bounds: &[&Int64Array]) -> Result<ArrayRef> {
    let rows = lists.len();
    let place = |bound: &Int64Array, row: usize| if bound.is_valid(row) { bound.value(row) } else { 0 };
    let range = |pair: &[&Int64Array]| -> Ranges {
        (0..rows).map(|row| (place(pair[0], row).max(1), place(pair[1], row))).collect()
    };
    let mut ranges: Vec<Ranges> = bounds.chunks_exact(2).map(range).collect();
    let is_too_deep = ranges.len() > depth(lists.data_type());
    ranges.truncate(if is_too_deep { 1 } else { ranges.len() });
    for row in 0..rows {
        if is_too_deep || is_empty(lists, row, &ranges) {
            ranges[0][row] = (1, 0);
        }
    }
    let all: Vec<(usize, usize)> = (0..rows).map(|row| (row, row)).collect();
    let found = cut(lists, &all, &ranges)?;
    let lacks: BooleanArray = (0..rows).map(|row| Some(bounds.iter().any(|bound| bound.is_null(row)))).collect();
    Ok(nullif(&found, &lacks)?)
}

/// How many levels of lists a type has.
fn depth(kind: &DataType) -> usize {
    match kind {
        DataType::List(item) => 1 + depth(item.data_type()),
        _ => 0,
    }
}

/// Whether a range of a level holds no place. The lists of a level are alike, so that the first one tells.
fn is_empty(lists: &ArrayRef, row: usize, ranges: &[Ranges]) -> bool {
    let (mut values, mut at) = (lists, row);
    for range in ranges {
        let Some(list) = values.as_list_opt::<i32>() else { return true };
        let (low, high) = range[row];
        if low > high.min(i64::from(list.value_length(at))) {
            return true;
        }
        (at, values) = (list.value_offsets()[at] as usize, list.values());
    }
    false
}

/// The lists at some places, each with its row, cut to the ranges of these rows.
fn cut(values: &ArrayRef, places: &[(usize, usize)], ranges: &[Ranges]) -> Result<ArrayRef> {
    let Some((range, inner_ranges)) = ranges.split_first() else {
        let places: UInt64Array = places.iter().map(|(at, _)| Some(*at as u64)).collect();
        return Ok(take(values.as_ref(), &places, None)?);
    };
    let (Some(list), DataType::List(item)) = (values.as_list_opt::<i32>(), values.data_type()) else {
        return internal_err!("a level has lists");
    };
    let (mut ends, mut kept, mut valid) = (vec![0_i32], Vec::new(), Vec::with_capacity(places.len()));
    for (at, row) in places.iter().copied() {
        let (low, high) = range[row];
        let high = high.min(i64::from(list.value_length(at)));
        let begin = list.value_offsets()[at] as usize;
        kept.extend((low..=high).map(|place| (begin + place as usize - 1, row)));
        ends.push(kept.len() as i32);
        valid.push(list.is_valid(at));
    }
    let inner = cut(list.values(), &kept, inner_ranges)?;
    let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), ends, inner, Some(NullBuffer::from(valid)))?))
}

#[cfg(test)]
mod tests {
    use crate::testing::answered;

    #[tokio::test]
    async fn each_level_has_a_range() {
        let lists = "make_array(make_array(1, 2, 3), make_array(4, 5, 6))";
        for (bounds, expected) in [
            ("1, 2, 1, 1", "[[1], [4]]"),
            ("2, 2, 2, 3", "[[5, 6]]"),
            ("0, 1, -5, 2", "[[1, 2]]"),
            ("1, 1", "[[1, 2, 3]]"),
            ("1, 2147483647, 3, 2147483647", "[[3], [6]]"),
            ("5, 6, 1, 1", "[]"),
            ("1, 2, 4, 5", "[]"),
            ("2, 1, 1, 1", "[]"),
            ("1, 2, 1, 1, 1, 1", "[]"),
            ("1, null, 1, 1", "NULL"),
            ("1, 1, null, 1", "NULL"),
        ] {
            let statement = format!("select level_slices({lists}, {bounds})");
            assert_eq!(answered(&statement).await.unwrap(), [expected], "{statement}");
        }
        let three = format!("make_array({lists}, {lists})");
        let found = answered(&format!("select level_slices({three}, 1, 2, 2, 2)")).await.unwrap();
        assert_eq!(found, ["[[[4, 5, 6]], [[4, 5, 6]]]"]);
        assert!(answered("select level_slices('x', 1, 2)").await.is_err());
    }

    #[tokio::test]
    async fn rows_have_their_own() {
        let of = "(values (1, make_array(make_array(1, 2), make_array(3, 4)), 2), (2, make_array(make_array(5), make_array(6)), 1), \
                  (3, null, 1), (4, make_array(make_array(7, 8)), 1)) as t(n, x, y)";
        let found = answered(&format!("select level_slices(x, 1, y, 2, 2) from {of} order by n")).await.unwrap();
        assert_eq!(found, ["[[2], [4]]", "[]", "NULL", "[[8]]"]);
    }
}
