//! Scrollable cursors: rows that were read are kept, so that they can be fetched again in either direction.

use std::collections::HashSet;

use arrow::array::{Array as _, ArrayData, RecordBatch, UInt32Array};
use arrow::buffer::NullBuffer;
use arrow::compute::take_record_batch;
use quiver_query::QueryReservation;
use quiver_types::{Error, Result};

use super::command::Motion;

/// The rows of such a cursor that were read, and its place among them.
#[derive(Debug, Default)]
pub(super) struct ScrollableRows {
    batches: Vec<RecordBatch>,
    /// The number of rows up to the end of each batch.
    ends: Vec<usize>,
    /// Addresses of the buffers that are held: batches may be slices of the same ones.
    buffers: HashSet<usize>,
    /// What they take of the memory of the query.
    pub(super) memory: Option<QueryReservation>,
    /// Whether the query has no more rows.
    is_whole: bool,
    /// The current row, from 1. 0: before the first; one more than there are rows: behind the last.
    position: usize,
}

/// Rows that a motion gives, by their places from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowSpan {
    first: usize,
    pub(super) rows: usize,
    /// Whether the last one is given first.
    is_backward: bool,
}

impl RowSpan {
    const NONE: Self = Self { first: 1, rows: 0, is_backward: false };
}

impl ScrollableRows {
    /// How many rows are held.
    fn rows(&self) -> usize {
        self.ends.last().copied().unwrap_or_default()
    }

    /// Whether more rows must be read before a motion.
    pub(super) fn lacks_rows(&self, motion: Motion) -> bool {
        let needed = match motion {
            Motion::Forward(None) => usize::MAX,
            Motion::Forward(Some(rows)) => self.position.saturating_add(rows as usize),
            // Rows up to the current one are held.
            Motion::Backward(_) => 0,
            Motion::Absolute(place) => usize::try_from(place).unwrap_or(usize::MAX),
            Motion::Relative(rows) => self.position.saturating_add(usize::try_from(rows).unwrap_or_default()),
        };
        !self.is_whole && self.rows() < needed
    }

    /// Holds rows. Returns the bytes that they take in addition to those that are held.
    pub(super) fn push(&mut self, batch: RecordBatch) -> usize {
        let added = batch.columns().iter().map(|column| added_bytes(&column.to_data(), &mut self.buffers));
        let bytes: usize = added.sum();
        self.ends.push(self.rows() + batch.num_rows());
        self.batches.push(batch);
        bytes
    }

    /// Notes that the query has no more rows.
    pub(super) fn end(&mut self) {
        self.is_whole = true;
    }

    /// Moves the cursor, and returns the rows that it passes, all of which have been read before.
    ///
    /// As PostgreSQL 15 (`pquery.c`: `DoPortalRunFetch`): if there are fewer rows than asked for, the cursor is then after
    /// the last row or before the first; if there are exactly as many, it is on the last one that was returned.
    pub(super) fn move_by(&mut self, motion: Motion) -> RowSpan {
        match motion {
            Motion::Forward(Some(0)) | Motion::Backward(Some(0)) | Motion::Relative(0) => self.go_to(self.position),
            Motion::Forward(wanted) => {
                let (first, left) = (self.position + 1, self.rows().saturating_sub(self.position));
                let rows = wanted.map_or(left, |wanted| left.min(wanted as usize));
                let is_beyond = wanted.is_none_or(|wanted| rows < wanted as usize);
                self.position = if is_beyond { self.rows() + 1 } else { self.position + rows };
                RowSpan { first, rows, is_backward: false }
            }
            Motion::Backward(wanted) => {
                let before = self.position.saturating_sub(1);
                let rows = wanted.map_or(before, |wanted| before.min(wanted as usize));
                let first = before + 1 - rows;
                let is_beyond = wanted.is_none_or(|wanted| rows < wanted as usize);
                self.position = if is_beyond { 0 } else { first };
                RowSpan { first, rows, is_backward: true }
            }
            Motion::Absolute(place) => {
                let distance = usize::try_from(place.unsigned_abs()).unwrap_or(usize::MAX);
                self.go_to(if place < 0 { (self.rows() + 1).saturating_sub(distance) } else { distance })
            }
            Motion::Relative(rows) => {
                let distance = usize::try_from(rows.unsigned_abs()).unwrap_or(usize::MAX);
                self.go_to(if rows < 0 {
                    self.position.saturating_sub(distance)
                } else {
                    self.position.saturating_add(distance)
                })
            }
        }
    }

    /// Goes to a row, or before the first or behind the last one.
    fn go_to(&mut self, place: usize) -> RowSpan {
        self.position = place.min(self.rows() + 1);
        if (1..=self.rows()).contains(&place) {
            RowSpan { first: place, rows: 1, is_backward: false }
        } else {
            RowSpan::NONE
        }
    }

    /// Rows of a span behind those that were given already, at most `most`; `None` at its end.
    ///
    /// # Errors
    /// Internal: only by a bug.
    pub(super) fn piece(&self, span: RowSpan, given: usize, most: usize) -> Result<Option<RecordBatch>> {
        let left = span.rows.saturating_sub(given).min(most);
        if left == 0 {
            return Ok(None);
        }
        let place = if span.is_backward { span.first + span.rows - 1 - given } else { span.first + given };
        let nth = self.ends.partition_point(|end| *end < place);
        let Some(batch) = self.batches.get(nth) else { return Err(Error::internal("a cursor has lost rows")) };
        let at = place - 1 - (self.ends[nth] - batch.num_rows());
        if !span.is_backward {
            return Ok(Some(batch.slice(at, left.min(batch.num_rows() - at))));
        }
        let rows = left.min(at + 1);
        if batch.num_columns() == 0 {
            return Ok(Some(batch.slice(0, rows)));
        }
        let places = UInt32Array::from_iter_values((0..rows).map(|back| (at - back) as u32));
        let turned = take_record_batch(batch, &places);
        turned.map(Some).map_err(|e| Error::internal("cannot turn rows round").with_source(e))
    }
}

/// The bytes of buffers that are not among those that are held, to which they are added.
fn added_bytes(data: &ArrayData, held: &mut HashSet<usize>) -> usize {
    let mut bytes = 0;
    for buffer in data.buffers().iter().chain(data.nulls().map(NullBuffer::buffer)) {
        if held.insert(buffer.data_ptr().addr().get()) {
            bytes += buffer.capacity();
        }
    }
    for child in data.child_data() {
        bytes += added_bytes(child, held);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, AsArray as _, Int64Array};
    use arrow::datatypes::Int64Type;

    use super::*;

    /// Rows 1 to 5, in two batches; `read`: as many of these batches have come.
    fn cursor(read: usize) -> ScrollableRows {
        let column = |values: Vec<i64>| Arc::new(Int64Array::from(values)) as ArrayRef;
        let mut rows = ScrollableRows::default();
        for values in [vec![1, 2, 3], vec![4, 5]].into_iter().take(read) {
            rows.push(RecordBatch::try_from_iter([("n", column(values))]).unwrap());
        }
        rows.is_whole = read > 1;
        rows
    }

    /// The rows that a motion gives, in pieces of two at most.
    fn given(cursor: &mut ScrollableRows, motion: Motion) -> Vec<i64> {
        let span = cursor.move_by(motion);
        let mut found = Vec::new();
        while let Some(piece) = cursor.piece(span, found.len(), 2).unwrap() {
            assert!((1..=2).contains(&piece.num_rows()));
            found.extend(piece.column(0).as_primitive::<Int64Type>().values().iter());
        }
        assert_eq!(found.len(), span.rows);
        found
    }

    #[test]
    fn motions_are_those_of_postgresql() {
        use Motion::{Absolute, Backward, Forward, Relative};
        let mut rows = cursor(2);
        for (step, (motion, expected, position)) in [
            (Forward(Some(0)), vec![], 0),
            (Backward(Some(1)), vec![], 0),
            (Forward(Some(2)), vec![1, 2], 2),
            (Forward(Some(0)), vec![2], 2),
            (Backward(Some(1)), vec![1], 1),
            (Backward(Some(1)), vec![], 0),
            (Forward(Some(5)), vec![1, 2, 3, 4, 5], 5),
            (Forward(Some(1)), vec![], 6),
            (Forward(Some(1)), vec![], 6),
            (Forward(Some(0)), vec![], 6),
            (Backward(Some(1)), vec![5], 5),
            (Backward(Some(3)), vec![4, 3, 2], 2),
            (Backward(None), vec![1], 0),
            (Forward(None), vec![1, 2, 3, 4, 5], 6),
            (Backward(None), vec![5, 4, 3, 2, 1], 0),
            (Absolute(4), vec![4], 4),
            (Absolute(-1), vec![5], 5),
            (Absolute(-5), vec![1], 1),
            (Absolute(-6), vec![], 0),
            (Absolute(6), vec![], 6),
            (Relative(-1), vec![5], 5),
            (Relative(-3), vec![2], 2),
            (Relative(2), vec![4], 4),
            (Relative(0), vec![4], 4),
            (Relative(i64::MAX), vec![], 6),
            (Relative(i64::MIN), vec![], 0),
            (Absolute(0), vec![], 0),
            (Absolute(i64::MIN), vec![], 0),
            (Absolute(i64::MAX), vec![], 6),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!((given(&mut rows, motion), rows.position), (expected, position), "step {step}: {motion:?}");
        }
    }

    #[test]
    fn rows_are_read_as_far_as_they_are_needed() {
        use Motion::{Absolute, Backward, Forward, Relative};
        let mut rows = cursor(1);
        for (motion, lacks) in [
            (Forward(Some(3)), false),
            (Forward(Some(4)), true),
            (Forward(None), true),
            (Backward(None), false),
            (Absolute(3), false),
            (Absolute(4), true),
            (Absolute(0), false),
            (Absolute(-1), true),
            (Relative(4), true),
            (Relative(-4), false),
        ] {
            assert_eq!(rows.lacks_rows(motion), lacks, "{motion:?}");
        }
        rows.move_by(Forward(Some(3)));
        assert!(rows.lacks_rows(Relative(1)) && !rows.lacks_rows(Relative(0)));
        rows.end();
        assert!(!rows.lacks_rows(Forward(None)) && !rows.lacks_rows(Absolute(-1)));
    }

    #[test]
    fn no_rows_have_a_beginning_and_an_end() {
        use Motion::{Absolute, Backward, Forward};
        let mut rows = ScrollableRows::default();
        rows.end();
        for (motion, position) in
            [(Forward(Some(1)), 1), (Backward(Some(1)), 0), (Absolute(-1), 0), (Absolute(1), 1), (Forward(None), 1)]
        {
            assert_eq!((rows.move_by(motion).rows, rows.position), (0, position), "{motion:?}");
        }
    }

    #[test]
    fn buffers_that_batches_share_count_once() {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
        let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
        let mut rows = ScrollableRows::default();
        assert!(rows.push(batch.slice(0, 10)) >= 8000, "it keeps all of them");
        assert_eq!(rows.push(batch.slice(10, 990)), 0);
        assert_eq!((rows.rows(), given(&mut rows, Motion::Absolute(11))), (1000, vec![10]));
    }
}
