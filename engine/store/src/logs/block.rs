//! A block: rows that are filtered and returned together, either a live batch or a row group of a part.
//!
//! Filters and output work on blocks only. Every request to a block names the rows that still matter, so that a block
//! in a file reads only the pages that hold them.

use std::collections::BTreeMap;

use arrow::array::MapArray;
use arrow::buffer::BooleanBuffer;
use async_trait::async_trait;
use quiver_types::ReadStats;
use quiver_types::logs::{LogFilter, OBSERVED_TIME, SEVERITY_NUMBER, STREAM, STREAM_ID, TIME, ValueMatcher};

use super::column::{Column, Values};
use super::stream_selection::StreamTest;
use super::stream_values::{StreamValue, with_computed};
use crate::error::Result;

/// Rows that one figure of [`Block::row_bytes`] covers.
pub(crate) const STEP_ROWS: usize = 32;

/// Rows that are filtered and returned together.
#[async_trait]
pub(crate) trait Block: Send {
    /// Number of rows.
    fn len(&self) -> usize;

    /// The rows that the caller may see.
    async fn allowed(&mut self) -> Result<BooleanBuffer>;

    /// Those of the rows that may match a filter, according to statistics and indexes.
    async fn candidates(&mut self, _filter: &LogFilter, rows: BooleanBuffer) -> Result<BooleanBuffer> {
        Ok(rows)
    }

    /// Those of the rows whose time lies in one of the ranges.
    async fn in_time(&mut self, ranges: &[(i64, i64)], rows: &BooleanBuffer) -> Result<BooleanBuffer>;

    /// Times of the rows ([`Values::Time`]).
    async fn times(&mut self, rows: &BooleanBuffer) -> Result<Column>;

    /// Severity numbers of the rows ([`Values::Int`]; missing if there is none).
    async fn severity(&mut self, rows: &BooleanBuffer) -> Result<Column>;

    /// Observed times of the rows ([`Values::Time`]; missing if unknown).
    async fn observed(&mut self, rows: &BooleanBuffer) -> Result<Column>;

    /// Those of the rows whose stream passes a test.
    async fn in_streams(&mut self, rows: &BooleanBuffer, test: StreamTest<'_>) -> Result<BooleanBuffer>;

    /// For each of the rows, a value that depends on the stream; without gaps.
    async fn of_streams(&mut self, value: &StreamValue, rows: &BooleanBuffer) -> Result<Values>;

    /// The streams of the rows: some values of each stream, and its number of rows.
    async fn by_streams(&mut self, values: &[StreamValue], rows: &BooleanBuffer) -> Result<(Vec<Values>, Vec<u64>)>;

    /// Tells whether a value that depends on the stream is cheaper to read from its column.
    fn reads_instead(&self, _value: &StreamValue) -> bool {
        false
    }

    /// How a field depends on a row's stream; `None` if it does not, or if that is unknown.
    fn of_stream(&self, _name: &str) -> Option<StreamValue> {
        None
    }

    /// A field of the rows.
    async fn field(&mut self, name: &str, rows: &BooleanBuffer) -> Result<Column>;

    /// Names, with a prefix, of the fields that have a column.
    fn names(&self, prefix: &str) -> Vec<String>;

    /// Those of the rows that match in a field without a column whose name has a prefix.
    async fn overflow(
        &mut self,
        prefix: &str,
        matcher: &dyn ValueMatcher,
        rows: &BooleanBuffer,
    ) -> Result<BooleanBuffer>;

    /// Reads a column for these rows in advance; it will be requested window by window.
    async fn prefetch(&mut self, _name: &str, _rows: &BooleanBuffer) -> Result<()> {
        Ok(())
    }

    /// Like `prefetch`, for [`Block::rest`].
    async fn prefetch_rest(&mut self, _without: &[&str], _rows: &BooleanBuffer) -> Result<()> {
        Ok(())
    }

    /// Estimated bytes of all rows, once read, in the wanted columns.
    fn wanted_bytes(&self, wanted: &dyn Fn(&str) -> bool) -> u64;

    /// Estimated bytes of one of the rows, once read, in the wanted columns: one figure for each [`STEP_ROWS`] rows of
    /// the block, which is only valid if any of those is selected.
    fn row_bytes(&self, wanted: &dyn Fn(&str) -> bool, rows: &BooleanBuffer) -> Vec<f32>;

    /// Announces that rows will be requested window by window, with [`Block::forget_wide`] in between. Returns whether
    /// columns are read for that, or are in memory anyway.
    fn sweep(&mut self) -> bool {
        false
    }

    /// While sweeping: restricts the rows that will be requested, until the next call.
    fn narrow(&mut self, _rows: &BooleanBuffer) {}

    /// Whether columns are read into memory for this block, rather than being there anyway.
    fn is_read(&self) -> bool {
        false
    }

    /// Frees columns that take much memory.
    fn forget_wide(&mut self) {}

    /// Statistics of reads since the last call.
    fn take_stats(&mut self) -> ReadStats {
        ReadStats::default()
    }

    /// Memory of what was read.
    fn bytes(&self) -> usize {
        0
    }

    /// Adds, for each field except those in [`COMPUTED`], how many of the rows have it.
    async fn field_counts(&mut self, rows: &BooleanBuffer, out: &mut BTreeMap<String, u64>) -> Result<()>;

    /// Calls a function for each field of the rows that has no column.
    async fn each_overflow(
        &mut self,
        rows: &BooleanBuffer,
        visit: &mut (dyn for<'a> FnMut(&'a str, &'a str) + Send),
    ) -> Result<()>;

    /// All fields of the rows except some, sorted by name.
    async fn rest(&mut self, without: &[&str], rows: &BooleanBuffer) -> Result<MapArray>;
}

/// Names that every row has but that are not fields.
pub(crate) const COMPUTED: [&str; 3] = [TIME, STREAM, STREAM_ID];

/// How a column of a block depends on the row's stream, if it does.
pub(crate) fn of_stream(block: &dyn Block, name: &str) -> Option<StreamValue> {
    with_computed(name, |name| block.of_stream(name))
}

/// Like `of_stream`, but only values that are not cheaper to read from a column.
pub(crate) fn given_by_stream(block: &dyn Block, name: &str) -> Option<StreamValue> {
    of_stream(block, name).filter(|value| !block.reads_instead(value))
}

/// A column of a block by name, including computed ones.
pub(crate) async fn column(block: &mut dyn Block, name: &str, rows: &BooleanBuffer) -> Result<Column> {
    match (name, given_by_stream(block, name)) {
        (TIME, _) => block.times(rows).await,
        (SEVERITY_NUMBER, _) => block.severity(rows).await,
        (OBSERVED_TIME, _) => block.observed(rows).await,
        (_, Some(StreamValue::Same(value))) if value.is_empty() => Ok(Column::missing()),
        (_, Some(StreamValue::Same(value))) => Ok(Column::constant(value)),
        (_, Some(value)) => {
            let values = block.of_streams(&value, rows).await?;
            Ok(if rows.count_set_bits() == rows.len() { Column::whole(values) } else { Column::of_set(values, rows) })
        }
        (name, None) => block.field(name, rows).await,
    }
}

/// The values of a column for the selected rows, without gaps.
pub(crate) async fn values(block: &mut dyn Block, name: &str, rows: &BooleanBuffer) -> Result<Values> {
    match given_by_stream(block, name) {
        None | Some(StreamValue::Same(_)) => column(block, name, rows).await?.gather(rows),
        Some(value) => block.of_streams(&value, rows).await,
    }
}
