//! Divides a scan: rows into partitions, and partitions into windows that are read at once.
//!
//! Both are based on an estimate of the samples to decode per row: what a part says about a series, scaled by the share
//! of its time that the range covers, plus whole pages.

use std::ops::Range;

use quiver_types::MillisRange;

use crate::part::{ChosenSeries, PAGE_ROWS};
use crate::select::Selection;

/// A partition with fewer samples is not worth a thread.
const PARTITION_SAMPLES_MIN: u64 = 1 << 15;
/// Samples of each part in a window: many pages, so that pages read by two windows hardly matter.
const WINDOW_SAMPLES_PER_PART: u64 = 1 << 17;
/// Limits for a window over all parts, in samples. The upper one bounds the memory, at about 24 bytes each.
const WINDOW_SAMPLES: Range<u64> = (1 << 17)..(1 << 20);
/// Weight of a series of a memtable generation; counting its samples would be too expensive.
pub(super) const LIVE_WEIGHT: u32 = 64;
/// How many samples a histogram counts as.
pub(super) const HIST_WEIGHT: u64 = 10;

/// Estimated samples to decode, per row.
#[derive(Debug)]
pub(super) struct Weights(Vec<u32>);

impl Weights {
    pub(super) fn new(selection: &Selection, range: MillisRange) -> Self {
        let mut weights = vec![1u32; selection.rows];
        for part in &selection.parts {
            for (&row, &number) in part.rows.iter().zip(part.numbers.iter()) {
                let weight = &mut weights[row as usize];
                *weight = weight.saturating_add(samples_in(&part.series, number, range));
            }
        }
        for &row in selection.live.iter().flat_map(|live| &live.rows) {
            weights[row as usize] = weights[row as usize].saturating_add(LIVE_WEIGHT);
        }
        Self(weights)
    }

    /// Splits the rows into at most `partitions` ranges of about equal weight; fewer if there is little to read.
    pub(super) fn partitions(&self, partitions: usize) -> Vec<Range<u32>> {
        let total: u64 = self.0.iter().map(|&w| u64::from(w)).sum();
        let wanted = (total / PARTITION_SAMPLES_MIN).clamp(1, partitions.max(1) as u64);
        let (mut out, mut start, mut sum) = (Vec::with_capacity(wanted as usize), 0, 0u64);
        for (row, &weight) in (0..).zip(&self.0) {
            sum += u64::from(weight);
            let cut = total * (out.len() as u64 + 1) / wanted;
            if sum >= cut && (out.len() as u64) + 1 < wanted {
                out.push(start..row + 1);
                start = row + 1;
            }
        }
        out.push(start..self.0.len() as u32);
        out
    }

    /// End of the window that starts at a row; the window has at least one row.
    pub(super) fn window_end(&self, rows: Range<u32>, parts: usize) -> u32 {
        let wanted = parts as u64 * WINDOW_SAMPLES_PER_PART;
        let limit = wanted.clamp(WINDOW_SAMPLES.start, WINDOW_SAMPLES.end);
        let mut sum = 0;
        for row in rows.clone() {
            sum += u64::from(self.0[row as usize]);
            if sum >= limit {
                return row + 1;
            }
        }
        rows.end
    }

    /// Estimated samples of some rows.
    pub(super) fn samples(&self, rows: Range<u32>) -> u64 {
        self.0[rows.start as usize..rows.end as usize].iter().map(|&w| u64::from(w)).sum()
    }
}

/// Estimates what is decoded of a part's series for the range; a histogram counts as [`HIST_WEIGHT`].
pub(super) fn samples_in(series: &ChosenSeries, number: u32, range: MillisRange) -> u32 {
    let rows = series.samples(number).rows + HIST_WEIGHT * series.hists(number).rows;
    decoded(rows, series.range(number), range) as u32
}

/// Like `samples_in`, for floats only.
pub(super) fn floats_in(series: &ChosenSeries, number: u32, range: MillisRange) -> u64 {
    decoded(series.samples(number).rows, series.range(number), range)
}

/// Estimates how many of these rows, which are spread over `own`, are decoded for the range.
fn decoded(rows: u64, own: MillisRange, range: MillisRange) -> u64 {
    if range.min <= own.min && own.max <= range.max {
        return rows;
    }
    // In floating point, because the range may be all of time and overflow.
    let (min, max) = (own.min.max(range.min) as f64, own.max.min(range.max) as f64);
    let share = (max - min + 1.0) / (own.max as f64 - own.min as f64 + 1.0);
    // Pages are decoded completely, so up to a page is added for the ends.
    rows.min((rows as f64 * share.clamp(0.0, 1.0)) as u64 + PAGE_ROWS as u64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which hold one")]

    use super::*;

    #[test]
    fn rows_are_cut_evenly() {
        let check = |weights: Vec<u32>, partitions: usize, expected: &[Range<u32>]| {
            assert_eq!(Weights(weights).partitions(partitions), expected);
        };
        let big = PARTITION_SAMPLES_MIN as u32;
        check(vec![], 4, &[0..0]);
        check(vec![1; 10], 4, &[0..10]);
        check(vec![big; 4], 2, &[0..2, 2..4]);
        check(vec![big; 2], 8, &[0..1, 1..2]);
        check(vec![3 * big, 1, 1, 1], 2, &[0..1, 1..4]);
        check(vec![1, 1, 3 * big], 2, &[0..3, 3..3]);
    }

    #[test]
    fn windows_hold_whole_rows() {
        let weights = Weights(vec![100_000; 10]);
        assert_eq!(weights.window_end(0..10, 1), 2);
        assert_eq!(weights.window_end(9..10, 1), 10);
        assert_eq!(weights.window_end(0..10, 100), 10);
        assert_eq!(weights.samples(2..4), 200_000);
    }
}
