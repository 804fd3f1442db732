//! One field of the rows of a block: its stored values and the rows they belong to.

mod conversion;
mod slicing;
mod values;

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{BooleanArray, BooleanBufferBuilder, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{filter, take};

use crate::error::{Context, Result};

pub(crate) use self::conversion::coded;
pub(crate) use self::values::{Values, dictionary};

/// If fewer than one in this many rows are selected, they are taken one by one.
const FEW_OF: usize = 64;

/// Ascending, disjoint ranges of rows of a block; `None` means all rows.
pub(crate) type Runs = Option<Arc<Vec<Range<u32>>>>;

/// Values, with the rows of the block that they belong to.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) values: Values,
    /// The rows that have values here; the first value is that of the first row. `None` means all rows.
    pub(crate) at: Runs,
}

impl Column {
    /// A column without any value.
    pub(crate) fn missing() -> Self {
        Self { values: Values::Missing, at: None }
    }

    /// A column with the same value in all rows.
    pub(crate) fn constant(value: impl Into<Arc<str>>) -> Self {
        Self { values: Values::Constant(value.into()), at: None }
    }

    /// Values for all rows of the block.
    pub(crate) fn whole(values: Values) -> Self {
        Self { values, at: None }
    }

    /// Values for the selected rows, without gaps.
    pub(crate) fn of_set(values: Values, rows: &BooleanBuffer) -> Self {
        let at = rows.set_slices().map(|(start, end)| start as u32..end as u32).collect();
        Self { values, at: Some(Arc::new(at)) }
    }

    /// Calls a function for each selected row, with the row of the block and the index of its value.
    pub(crate) fn for_each(&self, rows: &BooleanBuffer, mut f: impl FnMut(usize, usize)) {
        match &self.at {
            None => rows.set_indices().for_each(|row| f(row, row)),
            Some(ranges) => {
                let mut base = 0;
                for range in ranges.iter() {
                    let (start, len) = (range.start as usize, range.len());
                    rows.slice(start, len).set_indices().for_each(|i| f(start + i, base + i));
                    base += len;
                }
            }
        }
    }

    /// Like `for_each`, for the selected rows within a range.
    pub(crate) fn for_each_within(&self, rows: &BooleanBuffer, within: Range<usize>, mut f: impl FnMut(usize, usize)) {
        let mut base = 0;
        let whole = 0..rows.len() as u32;
        for range in self.at.as_deref().map_or(std::slice::from_ref(&whole), Vec::as_slice) {
            let (first, last) = (range.start as usize, range.end as usize);
            if first >= within.end {
                return;
            }
            let (start, end) = (first.max(within.start), last.min(within.end));
            if start < end {
                rows.slice(start, end - start).set_indices().for_each(|i| f(start + i, base + start - first + i));
            }
            base += range.len();
        }
    }

    /// Selects those of `rows` whose value passes a test.
    pub(crate) fn select(&self, rows: &BooleanBuffer, mut passes: impl FnMut(usize) -> bool) -> BooleanBuffer {
        if self.at.is_none() {
            return select_whole(rows, passes);
        }
        let mut bits = BooleanBufferBuilder::new(rows.len());
        bits.append_n(rows.len(), false);
        self.for_each(rows, |row, at| {
            if passes(at) {
                bits.set_bit(row, true);
            }
        });
        bits.finish()
    }

    /// Selects those of `rows` that have a value. (Stored values are never empty.)
    pub(crate) fn present(&self, rows: &BooleanBuffer) -> BooleanBuffer {
        match (&self.values, self.values.nulls(), &self.at) {
            (Values::Missing, ..) => BooleanBuffer::new_unset(rows.len()),
            (_, None, _) => rows.clone(),
            (_, Some(nulls), None) => rows & nulls.inner(),
            (_, Some(nulls), Some(_)) => self.select(rows, |at| nulls.is_valid(at)),
        }
    }

    /// The values that belong to the selected rows.
    fn chosen(&self, rows: &BooleanBuffer) -> BooleanBuffer {
        let Some(ranges) = &self.at else { return rows.clone() };
        let mut bits = BooleanBufferBuilder::new(ranges.iter().map(ExactSizeIterator::len).sum());
        for range in ranges.iter() {
            bits.append_buffer(&rows.slice(range.start as usize, range.len()));
        }
        bits.finish()
    }

    /// The values of the selected rows, without gaps.
    pub(crate) fn gather(&self, rows: &BooleanBuffer) -> Result<Values> {
        let chosen = self.chosen(rows);
        let count = chosen.count_set_bits();
        if count == chosen.len() {
            return Ok(self.values.clone());
        }
        // Usually one run is selected: a window of a block.
        let first = chosen.set_indices().next().unwrap_or(0);
        let one_run = first + count <= chosen.len() && chosen.slice(first, count).count_set_bits() == count;
        let only = one_run.then_some((first, first + count));
        self.values.map(|array| match only {
            Some((start, end)) => Ok(array.slice(start, end - start)),
            // The filter kernel would look at every row several times.
            None if count * FEW_OF < chosen.len() => {
                let places = UInt32Array::from_iter_values(chosen.set_indices().map(|at| at as u32));
                take(array, &places, None).internal("cannot take rows of a column")
            }
            None => filter(array, &BooleanArray::new(chosen, None)).internal("cannot filter a column"),
        })
    }
}

/// [`Column::select`] if there are values for all rows: in steps of 64 rows, which are usually all selected.
fn select_whole(rows: &BooleanBuffer, mut passes: impl FnMut(usize) -> bool) -> BooleanBuffer {
    let mut found: Vec<u64> = Vec::with_capacity(rows.len() / 64 + 1);
    for (wanted, first) in rows.bit_chunks().iter_padded().zip((0..).step_by(64)) {
        let mut word = 0;
        if wanted == u64::MAX {
            for bit in 0..64 {
                word |= u64::from(passes(first + bit)) << bit;
            }
        } else {
            let mut left = wanted;
            while left != 0 {
                let bit = left.trailing_zeros() as usize;
                word |= u64::from(passes(first + bit)) << bit;
                left &= left - 1;
            }
        }
        found.push(word);
    }
    BooleanBuffer::new(found.into(), 0, rows.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn texts(values: &Values, rows: usize) -> Vec<String> {
        let mut buffer = String::new();
        (0..rows).map(|i| values.text(i, &mut buffer).to_owned()).collect()
    }

    #[test]
    fn rows_are_selected_wherever_they_stand() {
        let values = Column::whole(Values::Missing);
        for len in [0, 1, 63, 64, 65, 200, 256] {
            for (from, step) in [(0, 1), (1, 1), (0, 3), (130, 1), (60, 70)] {
                let wanted = |row: usize| row >= from && (row - from).is_multiple_of(step);
                // Not from the first bit of a byte on.
                let rows = BooleanBuffer::collect_bool(len + 3, |i| i >= 3 && wanted(i - 3)).slice(3, len);
                let mut asked = Vec::new();
                let found = values.select(&rows, |at| {
                    asked.push(at);
                    at % 2 == 0
                });
                assert_eq!(asked, rows.set_indices().collect::<Vec<_>>(), "{len} from {from} by {step}");
                let even: Vec<usize> = asked.into_iter().filter(|at| at % 2 == 0).collect();
                assert_eq!((found.len(), found.set_indices().collect::<Vec<_>>()), (len, even));
            }
        }
    }

    #[test]
    fn values_of_some_rows() {
        let column = Column { values: Values::Int(vec![10, 11, 20].into()), at: Some(Arc::new(vec![2..4, 6..7])) };
        let rows = BooleanBuffer::collect_bool(8, |i| i == 3 || i == 6 || i == 0);
        assert_eq!(column.select(&rows, |at| at > 0).set_indices().collect::<Vec<_>>(), [3, 6]);
        assert_eq!(texts(&column.gather(&rows).expect("filters"), 2), ["11", "20"]);
        let within = |column: &Column, range: Range<usize>| {
            let mut found = Vec::new();
            column.for_each_within(&rows, range, |row, at| found.push((row, at)));
            found
        };
        let (all, first, last) = (within(&column, 0..8), within(&column, 0..4), within(&column, 4..8));
        assert_eq!((all, first, last), (vec![(3, 1), (6, 2)], vec![(3, 1)], vec![(6, 2)]));
        assert_eq!(within(&Column::whole(Values::Missing), 1..7), [(3, 3), (6, 6)]);
    }
}
