//! Merges the roll-ups of parts. Counts add up, except for traces with spans in several parts: some of those spans may
//! be the same, and a parent may turn up in another part. So these spans are rolled up again, once for each part and
//! once all together, and the sum is corrected by the difference.

use std::ops::Range;
use std::sync::Arc;

use quiver_types::spans::{RollupRow, RollupRows, RollupSum};
use quiver_types::{ReadStats, SpansBatch};

use super::steps::Input;
use crate::error::Result;
use crate::part::Part;
use crate::part::spans::roll_up;

/// Maximum number of rows of shared traces for that. With more, or with more than a quarter of all rows, the roll-up is
/// built anew from all rows.
const SHARED_ROWS_MAX: u64 = 256 * 1024;

/// The roll-up of all inputs together; `None` if it is better to build it from their rows, or if those of shared traces,
/// all of which are read at once for it, are estimated to take more than so many bytes.
pub(super) async fn merged(
    parts: &[Arc<Part>],
    inputs: &[Input],
    bytes_max: u64,
    stats: &ReadStats,
) -> Result<Option<Vec<RollupRow>>> {
    let shared = shared(inputs);
    let rows: u64 = shared.iter().map(|ranges| count(ranges)).sum();
    let total: u64 = inputs.iter().map(|input| input.index.total).sum();
    if rows > SHARED_ROWS_MAX.min(total / 4) || rows_bytes(parts, &shared, stats).await? > bytes_max {
        return Ok(None);
    }
    let mut sum = RollupSum::default();
    for part in parts {
        for batch in part.whole_rollup(stats).await? {
            let rows = RollupRows::of(&batch)?;
            (0..batch.num_rows()).filter_map(|i| rows.row(i)).for_each(|row| sum.add(row));
        }
    }
    let mut all: Vec<SpansBatch> = Vec::new();
    for (part, ranges) in parts.iter().zip(&shared).filter(|(_, ranges)| !ranges.is_empty()) {
        let batches = part.span_batches(ranges, stats).await?;
        roll_up(&batches)?.iter().for_each(|row| sum.remove(row));
        all.extend(batches);
    }
    roll_up(&all)?.into_iter().for_each(|row| sum.add(row));
    Ok(Some(sum.rows()))
}

fn count(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// Estimates the bytes of some rows of each part, which are taken to be as large as the others of the part.
pub(crate) async fn rows_bytes(parts: &[Arc<Part>], rows: &[Vec<Range<u64>>], stats: &ReadStats) -> Result<u64> {
    let mut sum = 0;
    for (part, rows) in parts.iter().zip(rows).filter(|(_, rows)| !rows.is_empty()) {
        let share = count(rows) as f64 / part.meta.rows.max(1) as f64;
        sum += (part.span_bytes(&(0..part.meta.rows), stats).await? as f64 * share) as u64;
    }
    Ok(sum)
}

/// For each input, the rows of traces that another input may have spans of, too.
fn shared(inputs: &[Input]) -> Vec<Vec<Range<u64>>> {
    let entries =
        inputs.iter().enumerate().flat_map(|(n, input)| input.index.entries().map(move |(hash, _)| (hash, n)));
    let mut all: Vec<(u32, usize)> = entries.collect();
    all.sort_unstable();
    let mut hashes: Vec<u32> =
        all.windows(2).filter(|w| w[0].0 == w[1].0 && w[0].1 != w[1].1).map(|w| w[0].0).collect();
    hashes.dedup();
    let of_input = |input: &Input| -> Vec<Range<u64>> {
        let entries = input.index.entries().filter(|(hash, _)| hashes.binary_search(hash).is_ok());
        let mut ranges: Vec<Range<u64>> = entries.map(|(_, rows)| rows).collect();
        ranges.sort_unstable_by_key(|r| r.start);
        ranges
    };
    inputs.iter().map(of_input).collect()
}

/// Removes and returns the entries up to a minute. An hour's entry belongs to the first output with rows of that hour.
pub(super) fn take_until(rows: &mut Vec<RollupRow>, minute: i64) -> Vec<RollupRow> {
    let (taken, left) = std::mem::take(rows).into_iter().partition(|row| row.minute <= minute);
    *rows = left;
    taken
}
