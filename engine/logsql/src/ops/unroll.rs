//! `unroll`: one row per item of JSON arrays.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewBuilder, UInt32Array};
use arrow::compute::take_record_batch;
use datafusion::error::Result;
use quiver_types::logs::LogFilter;

use super::cells::{assemble, mask};
use crate::pieces::{Made, ValueMap};
use crate::rowfn;
use crate::rows::{Rest, Shape, push_text, texts_of};

/// Repeats each row for its items; rows that a condition leaves out stay as they are. A row with very many items is left in
/// the middle, and gone on with in the next piece.
pub(crate) fn unroll(fields: Vec<String>, condition: Option<LogFilter>, input: Shape, output: Shape) -> ValueMap {
    // Items of the first row that were given out before.
    let mut given = 0;
    Box::new(move |rows, room| {
        let mask = mask(condition.as_ref(), rows, &input)?;
        let sources = fields.iter().map(|name| texts_of(rows, &input, name)).collect::<Result<Vec<_>>>()?;
        let mut builders: Vec<_> = fields.iter().map(|_| StringViewBuilder::new()).collect();
        let mut from: Vec<u32> = Vec::with_capacity(rows.num_rows());
        let mut scratch = vec![String::new(); fields.len()];
        let (rest, mut taken, mut bytes) = (Rest::of(rows, &input), 0, 0);
        for row in 0..rows.num_rows() {
            if bytes >= room {
                break;
            }
            let values: Vec<&str> = sources.iter().zip(&mut scratch).map(|(s, buffer)| s.get(row, buffer)).collect();
            if mask.as_ref().is_some_and(|mask| !mask.value(row)) {
                builders.iter_mut().zip(&values).for_each(|(builder, value)| push_text(builder, value));
                from.push(row as u32);
                taken += 1;
                continue;
            }
            let made = rowfn::unroll(&values);
            // What is repeated: a view for each column, and all that has no column.
            let repeated = rest.iter().flat_map(|rest| rest.row(row)).map(|(name, value)| name.len() + value.len());
            let item_bytes = 16 * (input.columns.len() + fields.len()) + repeated.sum::<usize>();
            let left = made.get(given..).unwrap_or_default();
            let fitting = left.len().min((room - bytes).div_ceil(item_bytes));
            for items in &left[..fitting] {
                builders.iter_mut().zip(items).for_each(|(builder, item)| push_text(builder, item));
                from.push(row as u32);
            }
            bytes += fitting * item_bytes;
            if fitting < left.len() {
                given += fitting;
                break;
            }
            given = 0;
            taken += 1;
        }
        let repeated = take_record_batch(rows, &UInt32Array::from(from))?;
        let arrays = builders.iter_mut().map(|b| Arc::new(b.finish()) as ArrayRef);
        let made: Vec<(&str, ArrayRef)> = fields.iter().map(String::as_str).zip(arrays).collect();
        Ok(Made { batch: assemble(&repeated, &input, &output, &made)?, taken, bytes })
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, StringViewArray};

    use super::*;

    #[test]
    fn a_row_with_many_items_comes_in_pieces() {
        let shape = Shape::of_texts(["list"], false);
        let lists = ["[1,2]", "[]", "[\"a\",\"b\",\"c\",\"d\",\"e\"]", "[3]"];
        let mut rows =
            crate::rows::batch(&shape, vec![Arc::new(StringViewArray::from_iter_values(lists))], 4).expect("rows");
        let mut unroll = unroll(vec!["list".into()], None, shape.clone(), shape);
        // Room for two items.
        let (room, mut all, mut pieces) = (2 * 16 * 2, Vec::new(), 0);
        while rows.num_rows() > 0 {
            let made = unroll(&rows, room).expect("unrolled");
            assert!(made.batch.num_rows() <= 2);
            all.extend(made.batch.column(0).as_string_view().iter().map(|v| v.unwrap_or_default().to_owned()));
            rows = rows.slice(made.taken, rows.num_rows() - made.taken);
            pieces += 1;
        }
        assert_eq!(all, ["1", "2", "", "a", "b", "c", "d", "e", "3"]);
        assert!(pieces >= 5, "{pieces}");
    }
}
