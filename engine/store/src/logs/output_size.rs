//! Limits the rows per output batch when one column holds all other fields of a row.
//!
//! Such a column repeats the names and values of all fields, so it is far larger than the data that was read for it, and
//! the windows of a scan do not limit it. Rows are therefore returned in batches of about [`OUTPUT_BYTES`]: the first is
//! sized by an estimate, later ones by the actual size of those before.

use arrow::array::RecordBatch;
use quiver_types::Result;
use quiver_types::logs::LogForm;
use quiver_types::scan::{ScanMemory, batch_bytes};

use super::block::Block;
use super::scan::Scan;

/// Approximate bytes of a batch.
const OUTPUT_BYTES: usize = 4 << 20;
/// A batch has at least so many rows, if there are as many.
const PART_ROWS_MIN: usize = 32;
/// Expected bytes of a field beside its name: an offset, a short value, and room of the builders.
const ENTRY_BYTES: usize = 48;
/// Expected bytes of a row whose fields are not known.
const UNKNOWN_BYTES: usize = 256;

/// The size of returned rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OutputSize {
    /// Expected bytes of a row; 0: no column holds all other fields, and rows take about what is read for them.
    row_bytes: usize,
}

impl OutputSize {
    /// What is expected of the rows of a block.
    pub(super) fn of(block: &dyn Block, scan: &Scan) -> Self {
        let columns = &scan.request.columns;
        if scan.request.form != LogForm::Rows || !scan.projection.contains(&columns.len()) {
            return Self::default();
        }
        let names = block.names("").into_iter().filter(|name| columns.iter().all(|column| column.name != *name));
        let bytes: usize = names.map(|name| name.len() + ENTRY_BYTES).sum();
        Self { row_bytes: bytes.max(UNKNOWN_BYTES) }
    }

    /// Reserves memory beside the `held` bytes to return `copies` copies of some of the `most` rows; gives how many.
    ///
    /// # Errors
    /// Those of the memory, where there is no room for few of them either.
    pub(super) fn reserve(self, most: usize, copies: usize, held: usize, memory: &dyn ScanMemory) -> Result<usize> {
        if self.row_bytes == 0 {
            return Ok(most);
        }
        let mut rows = (OUTPUT_BYTES / self.row_bytes).max(PART_ROWS_MIN).min(most);
        loop {
            match memory.try_resize(held + rows * self.row_bytes * copies) {
                Err(_) if rows > PART_ROWS_MIN => rows = (rows / 2).max(PART_ROWS_MIN),
                reserved => return reserved.map(|()| rows),
            }
        }
    }

    /// Learns from rows that are returned.
    pub(super) fn measure(&mut self, batch: &RecordBatch) {
        if self.row_bytes > 0 && batch.num_rows() > 0 {
            self.row_bytes = (batch_bytes(batch) / batch.num_rows()).max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, StringArray};

    use super::*;
    use crate::scan::testing::Within;

    #[test]
    fn as_many_rows_as_there_is_room_for() {
        let size = OutputSize { row_bytes: 400 };
        let with = |bytes: usize, copies: usize| size.reserve(50_000, copies, 1000, &Within::new(bytes));
        assert_eq!(with(usize::MAX, 1).expect("room"), OUTPUT_BYTES / 400);
        assert_eq!(with(3 << 20, 1).expect("room for half"), OUTPUT_BYTES / 400 / 2);
        assert_eq!(with(3 << 20, 2).expect("room for a fourth"), OUTPUT_BYTES / 400 / 4);
        assert_eq!(with(1000 + 400 * PART_ROWS_MIN, 1).expect("room for few"), PART_ROWS_MIN);
        with(999 + 400 * PART_ROWS_MIN, 1).expect_err("no room");
        assert_eq!(size.reserve(10, 1, 0, &Within::new(4000)).expect("room for all"), 10);
        assert_eq!(OutputSize::default().reserve(50_000, 1, 0, &Within::new(0)).expect("not asked"), 50_000);
    }

    #[test]
    fn what_is_returned_tells_the_size_of_the_next() {
        let text: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(1000); 100]));
        let batch = RecordBatch::try_from_iter([("text", text)]).expect("a batch");
        let mut size = OutputSize { row_bytes: UNKNOWN_BYTES };
        size.measure(&batch);
        assert!((1000..2100).contains(&size.row_bytes), "{size:?}");
        let before = size;
        size.measure(&batch.slice(0, 0));
        assert_eq!(size, before);
        let mut none = OutputSize::default();
        none.measure(&batch);
        assert_eq!(none, OutputSize::default());
    }
}
