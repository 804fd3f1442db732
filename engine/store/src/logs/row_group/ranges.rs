//! Decides which ranges of rows are read for a selection of rows.

use std::ops::Range;
use std::sync::Arc;

use arrow::buffer::BooleanBuffer;

/// Ranges with a smaller gap than this are read as one.
const GAP_ROWS: usize = 64;
/// If there are more ranges than this, wider gaps are bridged.
const RUNS_MAX: usize = 2048;

/// Tells whether ranges contain all selected rows.
pub(super) fn covers(at: Option<&Arc<Vec<Range<u32>>>>, rows: &BooleanBuffer) -> bool {
    let Some(ranges) = at else { return true };
    rows.set_slices().all(|(start, end)| {
        let found = ranges.partition_point(|r| (r.end as usize) <= start);
        ranges.get(found).is_some_and(|r| r.start as usize <= start && end <= r.end as usize)
    })
}

/// The ranges to read for selected rows; `None` means all rows.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which hold one")]

    use super::*;

    fn set(len: usize, rows: impl IntoIterator<Item = usize>) -> BooleanBuffer {
        let mut bits = vec![false; len];
        for row in rows {
            bits[row] = true;
        }
        BooleanBuffer::from(bits)
    }

    #[test]
    fn runs_join_what_is_near() {
        let check = |rows: &[usize], expected: &[Range<u32>]| {
            assert_eq!(runs(&set(1000, rows.iter().copied())).as_deref(), Some(expected), "{rows:?}");
        };
        check(&[], &[]);
        check(&[0], &[0..1]);
        check(&[999], &[999..1000]);
        check(&[7, 8, 9], &[7..10]);
        // Between the two lie as many rows as are read along, then one more.
        check(&[10, 11 + GAP_ROWS], &[10..76]);
        check(&[10, 12 + GAP_ROWS], &[10..11, 76..77]);
        check(&[0, 50, 100, 300, 999], &[0..101, 300..301, 999..1000]);
    }

    /// Breaks if skipping a few rows costs more than reading them.
    #[test]
    fn most_of_a_group_is_read_as_a_whole() {
        assert_eq!(runs(&set(1000, 0..749)), Some(vec![0..749]));
        assert_eq!(runs(&set(1000, 0..750)), None);
        assert_eq!(runs(&set(1000, (0..1000).step_by(50))), None);
        assert_eq!(runs(&set(1, [0])), None);
        assert_eq!(runs(&set(0, [])), None);
    }

    #[test]
    fn very_many_runs_are_joined_over_wider_gaps() {
        let rows = |count: usize| set(4_000_000, (0..count).map(|n| n * 100));
        assert_eq!(runs(&rows(RUNS_MAX)).map(|found| found.len()), Some(RUNS_MAX));
        let end = (RUNS_MAX * 100 + 1) as u32;
        assert_eq!(runs(&rows(RUNS_MAX + 1)), Some(vec![0..end]));
    }

    /// What is read for some rows holds them, for any rows that are few.
    #[test]
    fn runs_cover_the_rows_that_they_are_made_of() {
        for step in [1, 3, 63, 64, 65, 66, 67, 200] {
            for first in [0, 1, 500] {
                let rows = set(2000, (first..first + 400).step_by(step));
                let found = runs(&rows).map(Arc::new);
                assert!(covers(found.as_ref(), &rows), "{first} by {step}");
            }
        }
    }

    #[test]
    fn rows_are_covered_by_single_ranges() {
        let ranges = Arc::new(vec![5..8, 10..12]);
        let cases: [(&[usize], bool); 9] = [
            (&[], true),
            (&[5, 6, 7], true),
            (&[5, 10, 11], true),
            (&[4], false),
            (&[7, 8], false),
            (&[9], false),
            (&[7, 8, 9, 10], false),
            (&[12], false),
            (&[5, 19], false),
        ];
        for (rows, covered) in cases {
            let rows = set(20, rows.iter().copied());
            assert_eq!(covers(Some(&ranges), &rows), covered, "{rows:?}");
            assert!(covers(None, &rows));
        }
        assert!(!covers(Some(&Arc::default()), &set(20, [0])));
        assert!(covers(Some(&Arc::default()), &set(20, [])));
    }
}
