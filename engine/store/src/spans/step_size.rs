//! Decides how many rows of a part a scan decodes in one step.
//!
//! All columns of 64 Ki spans may take a hundred megabytes, which exist before they can be counted. So a step has as many
//! rows as take about [`STEP_BYTES`], estimated from the sizes of the columns in the part and from the previous step, and
//! its memory is reserved before it is decoded. If the reservation fails, the step is made short.

use std::ops::Range;

use arrow::array::RecordBatch;
use quiver_types::ReadStats;
use quiver_types::scan::{ScanMemory, batch_bytes};

use crate::error::Result;
use crate::part::Part;

/// The most rows of a step.
const ROWS_MAX: u64 = 64 * 1024;
/// A step has at least so many rows, if there are as many.
const ROWS_MIN: u64 = 8 * 1024;
/// About the bytes of a step.
const STEP_BYTES: u64 = 16 << 20;

/// The size of decoded rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StepSize {
    /// Expected bytes of a row; 0: it is not known.
    row_bytes: u64,
}

impl StepSize {
    /// Of some rows of a part; few of them are one step, however long they are.
    ///
    /// # Errors
    /// The footer of the part cannot be read.
    pub(super) async fn of_part(part: &Part, rows: &[Range<u64>], columns: &[&str], stats: &ReadStats) -> Result<Self> {
        let count: u64 = rows.iter().map(|range| range.end - range.start).sum();
        let Some(first) = rows.first().filter(|_| count > ROWS_MIN) else { return Ok(Self::default()) };
        Ok(Self { row_bytes: part.span_row_bytes(first.start, columns, stats).await? })
    }

    /// Of what a step gave of the rows that it looked at; few of them tell nothing.
    pub(super) fn after(self, given: &[RecordBatch], rows: u64) -> Self {
        if rows < ROWS_MIN {
            return self;
        }
        Self { row_bytes: given.iter().map(batch_bytes).sum::<usize>() as u64 / rows }
    }

    /// The most rows of a step.
    pub(super) fn rows(self) -> u64 {
        (STEP_BYTES / self.row_bytes.max(1)).clamp(ROWS_MIN, ROWS_MAX)
    }

    /// Reserves memory for the next step, of at most the rows that are `left`; gives how many it may have. Few rows are
    /// decoded in any case: what they take is counted then.
    pub(super) fn reserve(self, left: u64, memory: &dyn ScanMemory) -> u64 {
        let mut rows = self.rows().min(left);
        while memory.try_resize((rows * self.row_bytes) as usize).is_err() && rows > ROWS_MIN {
            rows = (rows / 2).max(ROWS_MIN);
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, StringArray};

    use super::*;
    use crate::scan::testing::Within;

    #[test]
    fn long_rows_are_decoded_few_at_once() {
        for (row_bytes, rows) in [(0, ROWS_MAX), (1, ROWS_MAX), (256, ROWS_MAX), (1024, 16 * 1024), (1 << 20, ROWS_MIN)]
        {
            assert_eq!(StepSize { row_bytes }.rows(), rows, "{row_bytes} bytes");
        }
    }

    #[test]
    fn memory_is_asked_for_before() {
        let (size, most) = (StepSize { row_bytes: 1024 }, 16 * 1024);
        let with = |bytes: usize, left: u64| {
            let memory = Within::new(bytes);
            (size.reserve(left, &memory), memory.taken())
        };
        assert_eq!(with(usize::MAX, 1 << 20), (most, 16 << 20));
        assert_eq!(with(usize::MAX, 100), (100, 100 << 10), "there are no more");
        assert_eq!(with(9 << 20, 1 << 20), (ROWS_MIN, 8 << 20));
        assert_eq!(with(1 << 20, 1 << 20), (ROWS_MIN, 0), "few rows are decoded without");
    }

    #[test]
    fn a_step_tells_the_size_of_the_next() {
        let text: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(1000); 100]));
        let batch = RecordBatch::try_from_iter([("text", text)]).expect("a batch");
        let given = vec![batch; 1000];
        let after = StepSize::default().after(&given, 100_000);
        assert!((1000..2100).contains(&after.row_bytes), "{after:?}");
        assert_eq!(after.after(&given[..10], 1000), after, "these are few");
        assert_eq!(after.after(&[], 100_000), StepSize::default());
    }
}
