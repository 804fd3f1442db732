//! One field of the rows of a block: its values as they are stored, and which rows they belong to.

mod converted;
mod pieces;
mod stored;

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{BooleanArray, BooleanBufferBuilder, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{filter, take};

use crate::error::{Context, Result};

pub(crate) use self::converted::coded;
pub(crate) use self::stored::{Values, dictionary};

/// Rows that are fewer than one of so many are taken one by one.
const FEW_OF: usize = 64;

/// Runs of rows of a block, ascending and apart; `None`: all rows.
pub(crate) type Runs = Option<Arc<Vec<Range<u32>>>>;

/// Values with the rows of the block that they belong to.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) values: Values,
    /// Ranges of rows of the block, ascending; value 0 is the first row of the first. `None`: all rows.
    pub(crate) at: Runs,
}

impl Column {
    /// No row has it.
    pub(crate) fn missing() -> Self {
        Self { values: Values::Missing, at: None }
    }

    /// All rows have it.
    pub(crate) fn constant(value: impl Into<Arc<str>>) -> Self {
        Self { values: Values::Constant(value.into()), at: None }
    }

    /// Values of all rows of the block.
    pub(crate) fn whole(values: Values) -> Self {
        Self { values, at: None }
    }

    /// Values of the rows that are set, one behind the other.
    pub(crate) fn of_set(values: Values, rows: &BooleanBuffer) -> Self {
        let at = rows.set_slices().map(|(start, end)| start as u32..end as u32).collect();
        Self { values, at: Some(Arc::new(at)) }
    }

    /// Calls for each row that is set: row of the block, place of its value.
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

    /// The same for the rows of a range.
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

    /// Sets the rows of which the value passes; `rows` says which are of interest.
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

    /// Of the rows that are set, those that have a value. (What is stored is never empty.)
    pub(crate) fn present(&self, rows: &BooleanBuffer) -> BooleanBuffer {
        match (&self.values, self.values.nulls(), &self.at) {
            (Values::Missing, ..) => BooleanBuffer::new_unset(rows.len()),
            (_, None, _) => rows.clone(),
            (_, Some(nulls), None) => rows & nulls.inner(),
            (_, Some(nulls), Some(_)) => self.select(rows, |at| nulls.is_valid(at)),
        }
    }

    /// Which values belong to the rows that are set.
    fn chosen(&self, rows: &BooleanBuffer) -> BooleanBuffer {
        let Some(ranges) = &self.at else { return rows.clone() };
        let mut bits = BooleanBufferBuilder::new(ranges.iter().map(ExactSizeIterator::len).sum());
        for range in ranges.iter() {
            bits.append_buffer(&rows.slice(range.start as usize, range.len()));
        }
        bits.finish()
    }

    /// Gives the values of the rows that are set, one behind the other.
    pub(crate) fn gather(&self, rows: &BooleanBuffer) -> Result<Values> {
        let chosen = self.chosen(rows);
        let count = chosen.count_set_bits();
        if count == chosen.len() {
            return Ok(self.values.clone());
        }
        // Most often one run is chosen: a window of a block.
        let first = chosen.set_indices().next().unwrap_or(0);
        let one_run = first + count <= chosen.len() && chosen.slice(first, count).count_set_bits() == count;
        let only = one_run.then_some((first, first + count));
        self.values.map(|array| match only {
            Some((start, end)) => Ok(array.slice(start, end - start)),
            // To filter looks at each row several times.
            None if count * FEW_OF < chosen.len() => {
                let places = UInt32Array::from_iter_values(chosen.set_indices().map(|at| at as u32));
                take(array, &places, None).internal("cannot take rows of a column")
            }
            None => filter(array, &BooleanArray::new(chosen, None)).internal("cannot filter a column"),
        })
    }
}

/// [`Column::select`] where all rows have their values: 64 at a time, which most often are all of interest.
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
