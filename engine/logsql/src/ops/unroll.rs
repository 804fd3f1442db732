//! `unroll`: one row per item of JSON arrays.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewBuilder, UInt32Array};
use arrow::compute::take_record_batch;
use datafusion::error::Result;
use quiver_types::logs::LogFilter;

use super::cells::{assemble, mask, too_large};
use crate::pieces::{Made, ValueMap};
use crate::rowfn;
use crate::rows::{Rest, Shape, push_text, texts_of};

/// Most bytes that one row may become.
const ROW_BYTES_MAX: usize = 64 << 20;

/// Repeats each row for its items; rows that a condition leaves out stay as they are.
pub(crate) fn unroll(fields: Vec<String>, condition: Option<LogFilter>, input: Shape, output: Shape) -> ValueMap {
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
            taken += 1;
            let values: Vec<&str> = sources.iter().zip(&mut scratch).map(|(s, buffer)| s.get(row, buffer)).collect();
            if mask.as_ref().is_some_and(|mask| !mask.value(row)) {
                builders.iter_mut().zip(&values).for_each(|(builder, value)| push_text(builder, value));
                from.push(row as u32);
                continue;
            }
            let made = rowfn::unroll(&values);
            // What is repeated: a view for each column, and all that has no column.
            let repeated = rest.iter().flat_map(|rest| rest.row(row)).map(|(name, value)| name.len() + value.len());
            let row_bytes = 16 * (input.columns.len() + fields.len()) + repeated.sum::<usize>();
            let row_bytes = made.len() * row_bytes;
            if row_bytes > ROW_BYTES_MAX {
                return Err(too_large("the rows that `unroll` makes of one", ROW_BYTES_MAX));
            }
            bytes += row_bytes;
            for items in made {
                builders.iter_mut().zip(&items).for_each(|(builder, item)| push_text(builder, item));
                from.push(row as u32);
            }
        }
        let repeated = take_record_batch(rows, &UInt32Array::from(from))?;
        let arrays = builders.iter_mut().map(|b| Arc::new(b.finish()) as ArrayRef);
        let made: Vec<(&str, ArrayRef)> = fields.iter().map(String::as_str).zip(arrays).collect();
        Ok(Made { batch: assemble(&repeated, &input, &output, &made)?, taken, bytes })
    })
}
