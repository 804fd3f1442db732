//! Which ranges of rows are read for rows that are set.

use std::ops::Range;
use std::sync::Arc;

use arrow::buffer::BooleanBuffer;

/// Rows closer than this are read as one run.
const GAP_ROWS: usize = 64;
/// More runs than this are joined over wider gaps.
const RUNS_MAX: usize = 2048;

/// Says whether ranges hold all rows that are set.
pub(super) fn covers(at: Option<&Arc<Vec<Range<u32>>>>, rows: &BooleanBuffer) -> bool {
    let Some(ranges) = at else { return true };
    rows.set_slices().all(|(start, end)| {
        let found = ranges.partition_point(|r| (r.end as usize) <= start);
        ranges.get(found).is_some_and(|r| r.start as usize <= start && end <= r.end as usize)
    })
}

/// Runs of rows to read for those that are set; `None`: all of them.
pub(super) fn runs(rows: &BooleanBuffer) -> Option<Vec<Range<u32>>> {
    let mut gap = GAP_ROWS;
    loop {
        let mut out: Vec<Range<u32>> = Vec::new();
        for (start, end) in rows.set_slices() {
            match out.last_mut() {
                Some(last) if start <= last.end as usize + gap => last.end = end as u32,
                _ => out.push(start as u32..end as u32),
            }
        }
        if out.iter().map(ExactSizeIterator::len).sum::<usize>() * 4 >= rows.len() * 3 {
            return None;
        }
        if out.len() <= RUNS_MAX {
            return Some(out);
        }
        gap *= 4;
    }
}
