//! Reads `.histograms`: native histograms.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StructArray};
use arrow::datatypes::TimestampMillisecondType;
use quiver_types::histogram::{histogram_fields, read_histogram};
use quiver_types::{MillisRange, ReadStats, read_stats};

use super::byte_ranges::{Purpose, Selection};
use super::footer::damaged;
use super::reader::Part;
use super::{FileMeta, SeriesRows, StartTimes};
use crate::error::Result;
use crate::series_run::HistRun;

const BATCH_ROWS: usize = 4096;

impl Part {
    /// Reads the native histograms of series within a time range. Returns one run per entry of `wanted`; `wanted` must
    /// be ascending row ranges (from [`super::PartSeries::hists`]).
    ///
    /// # Errors
    /// As [`Part::read_floats`].
    pub async fn read_hists(
        &self,
        wanted: &[SeriesRows],
        range: MillisRange,
        starts: StartTimes,
        stats: &ReadStats,
    ) -> Result<Vec<HistRun>> {
        self.hists_for(wanted, range, starts, Purpose::Query, stats).await
    }

    pub(super) async fn hists_for(
        &self,
        wanted: &[SeriesRows],
        range: MillisRange,
        starts: StartTimes,
        purpose: Purpose,
        stats: &ReadStats,
    ) -> Result<Vec<HistRun>> {
        let mut out = vec![HistRun::default(); wanted.len()];
        let Some(file) = self.meta.file("histograms").filter(|_| wanted.iter().any(|w| w.rows > 0)) else {
            return Ok(out);
        };
        let footer = self.footer(file, stats).await?;
        read_stats::add(&stats.pages_total, footer.pages());
        let batches =
            self.read_batches(file, &footer, Selection::of(&spans(wanted), BATCH_ROWS), purpose, stats).await?;
        let mut rows = RowsOf::new(wanted);
        for batch in batches {
            let columns = HistColumns::of(file, &batch)?;
            for row in 0..batch.num_rows() {
                let Some(i) = rows.next() else { return Err(damaged(&file.key, "it has more rows than asked for")) };
                let ts = columns.ts.as_primitive::<TimestampMillisecondType>().value(row);
                if !range.contains(ts) {
                    continue;
                }
                let known = columns.starts.as_primitive::<TimestampMillisecondType>();
                let start = if starts == StartTimes::Read && known.is_valid(row) { known.value(row) } else { 0 };
                let hist =
                    read_histogram(&columns.hists, row).ok_or_else(|| damaged(&file.key, "it holds no histograms"))?;
                out[i].push(ts, hist, start);
            }
        }
        if !rows.done() {
            return Err(damaged(&file.key, "it has fewer rows than asked for"));
        }
        read_stats::add(&stats.samples, out.iter().map(|r| r.len() as u64).sum());
        Ok(out)
    }
}

struct HistColumns {
    ts: ArrayRef,
    starts: ArrayRef,
    hists: StructArray,
}

impl HistColumns {
    fn of(file: &FileMeta, batch: &RecordBatch) -> Result<Self> {
        let time = |name: &str| {
            let column =
                batch.column_by_name(name).filter(|c| c.as_primitive_opt::<TimestampMillisecondType>().is_some());
            column.cloned().ok_or_else(|| damaged(&file.key, "it lacks a column of times"))
        };
        let fields = histogram_fields();
        let columns: Option<Vec<ArrayRef>> = fields.iter().map(|f| batch.column_by_name(f.name()).cloned()).collect();
        let columns = columns.ok_or_else(|| damaged(&file.key, "it lacks a column of histograms"))?;
        let hists = StructArray::try_new(fields, columns, None);
        let hists = hists.map_err(|e| damaged(&file.key, "its columns are of other types").with_source(e))?;
        Ok(Self { ts: time("ts")?, starts: time("start_ts")?, hists })
    }
}

/// Row ranges of series, with adjacent ones joined.
pub(super) fn spans(wanted: &[SeriesRows]) -> Vec<Range<u64>> {
    let mut out: Vec<Range<u64>> = Vec::new();
    for w in wanted.iter().filter(|w| w.rows > 0) {
        match out.last_mut() {
            Some(last) if last.end == w.first => last.end += w.rows,
            _ => out.push(w.first..w.first + w.rows),
        }
    }
    out
}

/// Tells, row by row, which entry of `wanted` the row belongs to.
pub(super) struct RowsOf<'a> {
    wanted: &'a [SeriesRows],
    at: usize,
    used: u64,
}

impl<'a> RowsOf<'a> {
    pub(super) fn new(wanted: &'a [SeriesRows]) -> Self {
        Self { wanted, at: 0, used: 0 }
    }

    pub(super) fn next(&mut self) -> Option<usize> {
        while self.wanted.get(self.at)?.rows == self.used {
            self.at += 1;
            self.used = 0;
        }
        self.used += 1;
        Some(self.at)
    }

    pub(super) fn done(&self) -> bool {
        let rest: u64 = self.wanted[self.at.min(self.wanted.len())..].iter().map(|w| w.rows).sum();
        rest == self.used
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which hold one")]

    use super::*;

    fn wanted(list: &[(u64, u64)]) -> Vec<SeriesRows> {
        list.iter().zip(0..).map(|(&(first, rows), series)| SeriesRows { series, first, rows }).collect()
    }

    #[test]
    fn rows_that_touch_are_read_as_one() {
        let check = |list: &[(u64, u64)], expected: &[Range<u64>]| {
            assert_eq!(spans(&wanted(list)), expected, "{list:?}");
        };
        check(&[], &[]);
        check(&[(5, 0)], &[]);
        check(&[(0, 3), (3, 4)], &[0..7]);
        check(&[(0, 3), (4, 1)], &[0..3, 4..5]);
        // Series without rows stand between others and part them in nothing.
        check(&[(0, 3), (3, 0), (3, 1), (9, 0)], &[0..4]);
    }

    #[test]
    fn each_row_belongs_to_the_entry_that_asked_for_it() {
        let list = wanted(&[(0, 0), (4, 2), (6, 0), (6, 1), (9, 0)]);
        let mut rows = RowsOf::new(&list);
        assert!(!rows.done(), "three rows are wanted");
        assert_eq!([rows.next(), rows.next()], [Some(1), Some(1)]);
        assert!(!rows.done(), "one is left");
        assert_eq!(rows.next(), Some(3));
        assert!(rows.done());
        assert_eq!(rows.next(), None, "nobody asked for a fourth");
        let (none, empty) = (wanted(&[]), wanted(&[(7, 0)]));
        for list in [&none, &empty] {
            let mut rows = RowsOf::new(list);
            assert!(rows.done() && rows.next().is_none());
        }
    }
}
