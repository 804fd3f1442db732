//! How the rows of one part are read: those that may match are found in its index and filters, and then read step by
//! step, first the columns of the filter and then the others of the rows that match.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{Schema, SchemaRef};
use quiver_types::read_stats;
use quiver_types::spans::SpanFilter;
use quiver_types::tables::spans::MINUTE_NS;

use super::{ScanRun, services};
use crate::error::Result;
use crate::part::Part;
use crate::part::spans::{PartRows, SpanIndex, SpanRows, needed, without};
use crate::spans::evaluation::{mask, matching, matching_of};
use crate::spans::step_size::StepSize;

/// Up to this many rows are read with all columns at once.
const SMALL_ROWS: u64 = 4096;

/// A part whose rows are read step by step.
#[derive(Debug)]
pub(in crate::spans) struct OpenPart {
    part: Arc<Part>,
    /// The rows that are still to be read.
    pub(super) ranges: VecDeque<Range<u64>>,
    index: Arc<SpanIndex>,
    schema: SchemaRef,
    /// The filter with and without its condition on start times; the latter is for rows of minutes completely within
    /// the time window.
    filters: [Arc<FilterColumns>; 2],
    window: (i64, i64),
    /// The size of its rows, with all columns needed.
    pub(in crate::spans) size: StepSize,
}

/// A filter, the columns it examines, and those that the result needs in addition.
#[derive(Debug)]
struct FilterColumns {
    filter: SpanFilter,
    first: Vec<String>,
    rest: Vec<String>,
}

/// The filter without conditions on start times that apply to all of it.
fn without_starts(filter: &SpanFilter) -> SpanFilter {
    match filter {
        SpanFilter::Starts(..) => SpanFilter::All,
        SpanFilter::And(all) => {
            all.iter().filter(|f| !matches!(f, SpanFilter::Starts(..))).cloned().fold(SpanFilter::All, SpanFilter::and)
        }
        other => other.clone(),
    }
}

impl OpenPart {
    /// Takes the next rows, at most so many; also returns their number.
    pub(in crate::spans) fn next_rows(&mut self, most: u64) -> (Vec<Range<u64>>, u64) {
        let (mut step, mut taken) = (Vec::new(), 0);
        while taken < most
            && let Some(range) = self.ranges.pop_front()
        {
            let end = range.end.min(range.start + most - taken);
            taken += end - range.start;
            step.push(range.start..end);
            if end < range.end {
                self.ranges.push_front(end..range.end);
            }
        }
        (step, taken)
    }

    /// The filter for some rows: the one without start times if all of them are within the time window.
    fn wanted(&self, step: &[Range<u64>]) -> &FilterColumns {
        let (min, max) = self.index.minutes_of(step.first().map_or(0, |r| r.start)..step.last().map_or(0, |r| r.end));
        let inside = self.window.0 <= min.saturating_mul(MINUTE_NS)
            && max.saturating_add(1).saturating_mul(MINUTE_NS).saturating_sub(1) <= self.window.1;
        &self.filters[usize::from(inside)]
    }

    /// Reads rows with all columns needed, texts dictionary-encoded, and tells which of them match.
    pub(in crate::spans) async fn read_coded(
        &self,
        scan: &ScanRun,
        step: &[Range<u64>],
    ) -> Result<Vec<(SpanRows, Vec<bool>)>> {
        let wanted = self.wanted(step);
        let columns: Vec<&str> = wanted.first.iter().chain(&wanted.rest).map(String::as_str).collect();
        let read = self.part.span_rows_all_coded(step, &columns, &scan.stats).await?;
        let masked = |rows: SpanRows| {
            let keep = matching(&PartRows::new(&rows), &wanted.filter, &scan.access, &scan.stats)?;
            Ok((rows, keep))
        };
        read.into_iter().map(masked).collect()
    }

    /// Reads columns for the result.
    async fn answer(&self, scan: &ScanRun, rows: &[Range<u64>], columns: &[&str]) -> Result<Vec<SpanRows>> {
        if scan.views {
            self.part.span_rows_viewed(rows, columns, &scan.stats).await
        } else {
            self.part.span_rows(rows, columns, &scan.stats).await
        }
    }

    /// Reads the matching rows, one batch per row group. If there are many rows, first reads the filter's columns, then
    /// the others only for rows that match.
    pub(super) async fn read(&self, scan: &ScanRun, step: &[Range<u64>], rows: u64) -> Result<Vec<RecordBatch>> {
        let columns = &scan.request.columns;
        if rows <= SMALL_ROWS {
            let rows = self.read_few(scan, step).await?;
            return if rows.is_empty() { Ok(Vec::new()) } else { Ok(vec![rows.project(columns, &scan.stats)?]) };
        }
        let wanted = self.wanted(step);
        let first: Vec<&str> = wanted.first.iter().map(String::as_str).collect();
        let rest: Vec<&str> = wanted.rest.iter().map(String::as_str).collect();
        let mut out = Vec::new();
        for group in self.part.span_row_groups(step, &scan.stats).await? {
            let whole = self.part.span_rows_are_whole(&group, &first).then(|| group.widened());
            let (group, inside) = whole.map_or((group, None), |(group, inside)| (group, Some(inside)));
            let found = self.part.span_rows_kept(&group, &first, &self.schema, &scan.stats).await?;
            let inside = inside.unwrap_or_else(|| vec![true; found.len()]);
            let keep = matching_of(inside, &PartRows::new(&found), &wanted.filter, &scan.access, &scan.stats)?;
            let keep = mask(&keep);
            let (kept, rows) = (keep.true_count(), keep.values().len());
            if kept == 0 {
                continue;
            }
            // If nearly all rows are wanted, it is faster to read all of them without skipping.
            let (all, most) = (kept == rows, kept * 2 > rows);
            let group = if most { group } else { group.with(left(&group.rows, keep.values())) };
            // A few rows: the query that found them probably showed their traces, which left the pages in the cache.
            let paged = if most {
                None
            } else {
                self.part.span_rows_paged(&group.rows, &rest, &self.schema, &scan.stats).await?
            };
            let others = match paged {
                Some(known) => known,
                None => self.part.span_rows_kept(&group, &rest, &self.schema, &scan.stats).await?,
            };
            let found = if all { found } else { found.filter_by(&keep)? };
            let others = if all || !most { others } else { others.filter_by(&keep)? };
            out.push(found.beside(&others)?.project(columns, &scan.stats)?);
        }
        Ok(out)
    }

    /// Reads the matching rows of a step with few rows.
    async fn read_few(&self, scan: &ScanRun, step: &[Range<u64>]) -> Result<SpanRows> {
        let wanted = self.wanted(step);
        let names: Vec<&str> = wanted.first.iter().chain(&wanted.rest).map(String::as_str).collect();
        let read = match self.part.span_rows_paged(step, &names, &self.schema, &scan.stats).await? {
            Some(kept) => vec![kept],
            None => self.answer(scan, step, &names).await?,
        };
        let keep = |rows: &SpanRows| matching(&PartRows::new(rows), &wanted.filter, &scan.access, &scan.stats);
        let masks = read.iter().map(keep).collect::<Result<Vec<Vec<bool>>>>()?;
        let kept = read.iter().zip(&masks).map(|(rows, keep)| rows.filter(keep)).collect::<Result<Vec<_>>>()?;
        SpanRows::concat(&kept)
    }
}

/// The rows of some ranges that are kept, as ranges.
fn left(step: &[Range<u64>], keep: &BooleanBuffer) -> Vec<Range<u64>> {
    let mut out: Vec<Range<u64>> = Vec::new();
    let mut at = 0;
    for range in step {
        let rows = ((range.end - range.start) as usize).min(keep.len() - at);
        // Go from run to run: looking at each row would cost as much as reading it.
        for (start, end) in keep.slice(at, rows).set_slices() {
            let (start, end) = (range.start + start as u64, range.start + end as u64);
            match out.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => out.push(start..end),
            }
        }
        at += rows;
    }
    out
}

/// Opens a part: finds the rows that may match, and the columns that are needed of them.
///
/// # Errors
/// Those of reading its index, filters and columns.
pub(in crate::spans) async fn open(scan: &ScanRun, part: Arc<Part>) -> Result<OpenPart> {
    let filter = &scan.request.filter;
    let index = match filter.traces() {
        Some(ids) => part.trace_index(ids, &scan.stats).await?,
        None => part.span_index(&scan.stats).await?,
    };
    let timely = index.starts(filter.start_bounds());
    let ranges: Vec<Range<u64>> = match filter.traces() {
        Some(ids) => {
            let cut = |r: Range<u64>| r.start.max(timely.start)..r.end.min(timely.end);
            index.traces(ids.iter()).into_iter().map(cut).filter(|r| r.start < r.end).collect()
        }
        None if timely.is_empty() => Vec::new(),
        None => vec![timely],
    };
    let ranges = if ranges.is_empty() {
        ranges
    } else {
        let schema = part.span_columns(&scan.stats).await?;
        let mut excluded = index.filters.excluded(filter, &index.keys, &|name| schema.column_with_name(name).is_some());
        if filter.leaves_out_repeats() {
            let found = scan.repeats.of_part(&scan.snapshot, &part, &scan.stats).await?;
            excluded.extend_from_slice(&found.repeats.rows);
        }
        excluded.extend(index.slowest.excluded(filter, services(filter).as_deref(), &scan.access));
        excluded.sort_unstable_by_key(|range| range.start);
        ranges.into_iter().flat_map(|range| without(range, &excluded)).collect()
    };
    let columns = |filter: SpanFilter, schema: &SchemaRef| {
        let (first, rest) = needed(&filter, &scan.request.columns, !scan.access.is_full(), schema, &index.keys);
        Arc::new(FilterColumns { filter, first, rest })
    };
    let schema = if ranges.is_empty() {
        Arc::new(Schema::empty())
    } else {
        read_stats::add(&scan.stats.parts_read, 1);
        part.span_columns(&scan.stats).await?
    };
    let (window, whole) = (filter.start_bounds(), columns(filter.clone(), &schema));
    let is_any_time = window == (i64::MIN, i64::MAX);
    let inside = if is_any_time { Arc::clone(&whole) } else { columns(without_starts(filter), &schema) };
    let columns: Vec<&str> = whole.first.iter().chain(&whole.rest).map(String::as_str).collect();
    let size = StepSize::of_part(&part, &ranges, &columns, &scan.stats).await?;
    Ok(OpenPart { part, ranges: ranges.into(), window, filters: [whole, inside], size, index, schema })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which hold one")]

    use super::{BooleanBuffer, SpanFilter, left, without_starts};

    #[test]
    fn what_is_left_are_runs() {
        let keep = |text: &str| text.bytes().map(|b| b == b'x').collect::<BooleanBuffer>();
        assert_eq!(left(&[3..8], &keep("xx.x.")), [3..5, 6..7]);
        // A run goes on in the next range where that begins at its end, and there alone.
        assert_eq!(left(&[0..2, 2..4, 9..12], &keep(".xx..xx")), [1..3, 10..12]);
        assert_eq!(left(&[0..2, 5..7], &keep("xxxx")), [0..2, 5..7]);
        assert!(left(&[0..3], &keep("...")).is_empty());
        assert!(left(&[], &keep("")).is_empty());
        let long = keep(&".xx.......x".repeat(20));
        let runs: Vec<_> = (0..20).flat_map(|i| [i * 11 + 1..i * 11 + 3, i * 11 + 10..i * 11 + 11]).collect();
        assert_eq!(left(&[0..100, 100..220], &long), runs);
    }

    #[test]
    fn conditions_on_starts_go_where_all_are_bound_by_them() {
        let (starts, root) = (|| SpanFilter::Starts(1, 5), || SpanFilter::Root);
        let check = |filter: SpanFilter, expected: &SpanFilter| {
            assert_eq!(without_starts(&filter).to_string(), expected.to_string(), "{filter}");
        };
        check(starts(), &SpanFilter::All);
        check(starts().and(root()), &root());
        check(starts().and(root()).and(SpanFilter::Status(2)).and(starts()), &root().and(SpanFilter::Status(2)));
        // One of several, and what it is not, is looked at in each row.
        let kept = [SpanFilter::Or(vec![starts(), root()]), SpanFilter::Not(Box::new(starts())), root()];
        for filter in kept {
            check(filter.clone(), &filter);
        }
    }
}
