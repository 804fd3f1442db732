//! A block: rows that are filtered and given out together, of a live batch or of a row group of a part.
//!
//! Filters and output know blocks only. What a block is asked for names the rows that still matter, so that one that
//! lies in a file reads just the pages that hold them.

use std::collections::BTreeMap;

use arrow::array::MapArray;
use arrow::buffer::BooleanBuffer;
use async_trait::async_trait;
use quiver_types::ReadStats;
use quiver_types::logs::{LogFilter, OBSERVED_TIME, SEVERITY_NUMBER, STREAM, STREAM_ID, TIME, ValueMatcher};

use super::choose::StreamTest;
use super::column::{Column, Values};
use super::stream_values::{StreamValue, with_computed};
use crate::error::Result;

/// Rows that [`Block::row_bytes`] tells of together.
pub(crate) const STEP_ROWS: usize = 32;

/// See the module.
#[async_trait]
pub(crate) trait Block: Send {
    /// Number of rows.
    fn len(&self) -> usize;

    /// Rows that the caller may see.
    async fn allowed(&mut self) -> Result<BooleanBuffer>;

    /// Of these rows, those that a filter may match as far as statistics and indexes know.
    async fn candidates(&mut self, _filter: &LogFilter, rows: BooleanBuffer) -> Result<BooleanBuffer> {
        Ok(rows)
    }

    /// Of these rows, those whose time lies in one of the ranges.
    async fn in_time(&mut self, ranges: &[(i64, i64)], rows: &BooleanBuffer) -> Result<BooleanBuffer>;

    /// Times of these rows ([`Values::Time`]).
    async fn times(&mut self, rows: &BooleanBuffer) -> Result<Column>;

    /// Severity numbers of these rows ([`Values::Int`]; missing = none).
    async fn severity(&mut self, rows: &BooleanBuffer) -> Result<Column>;

    /// When these rows were observed ([`Values::Time`]; missing = not told).
    async fn observed(&mut self, rows: &BooleanBuffer) -> Result<Column>;

    /// Of these rows, those of streams that pass.
    async fn in_streams(&mut self, rows: &BooleanBuffer, test: StreamTest<'_>) -> Result<BooleanBuffer>;

    /// A value that follows from the stream, of each of these rows, one behind the other.
    async fn of_streams(&mut self, value: &StreamValue, rows: &BooleanBuffer) -> Result<Values>;

    /// The streams of these rows: some values of each, and its number of rows.
    async fn by_streams(&mut self, values: &[StreamValue], rows: &BooleanBuffer) -> Result<(Vec<Values>, Vec<u64>)>;

    /// Says whether a value that follows from the stream is read for less from its column.
    fn reads_instead(&self, _value: &StreamValue) -> bool {
        false
    }

    /// How a field follows from the stream of a row; `None`: it does not, or that is not known.
    fn of_stream(&self, _name: &str) -> Option<StreamValue> {
        None
    }

    /// A field of these rows.
    async fn field(&mut self, name: &str, rows: &BooleanBuffer) -> Result<Column>;

    /// Names with a prefix of the fields that have a column.
    fn names(&self, prefix: &str) -> Vec<String>;

    /// Of these rows, those that match in a field without a column whose name has a prefix.
    async fn overflow(
        &mut self,
        prefix: &str,
        matcher: &dyn ValueMatcher,
        rows: &BooleanBuffer,
    ) -> Result<BooleanBuffer>;

    /// Reads a column that will be asked for, window by window, of these rows.
    async fn prefetch(&mut self, _name: &str, _rows: &BooleanBuffer) -> Result<()> {
        Ok(())
    }

    /// The same for [`Block::rest`].
    async fn prefetch_rest(&mut self, _without: &[&str], _rows: &BooleanBuffer) -> Result<()> {
        Ok(())
    }

    /// Bytes of all rows once they are read, about, in the columns that are wanted.
    fn wanted_bytes(&self, wanted: &dyn Fn(&str) -> bool) -> u64;

    /// Bytes of one of these rows once it is read, about, in the columns that are wanted: a figure for each [`STEP_ROWS`]
    /// rows of the block, which means something where any of them is set.
    fn row_bytes(&self, wanted: &dyn Fn(&str) -> bool, rows: &BooleanBuffer) -> Vec<f32>;

    /// From now on rows are asked for window by window, with [`Block::forget_wide`] between; says whether columns are read
    /// for it, or are there anyway.
    fn sweep(&mut self) -> bool {
        false
    }

    /// Of a block that is read so: until it is told others, no rows than these are asked for.
    fn narrow(&mut self, _rows: &BooleanBuffer) {}

    /// Forgets columns that take much memory.
    fn forget_wide(&mut self) {}

    /// What was read since it was last asked.
    fn take_stats(&mut self) -> ReadStats {
        ReadStats::default()
    }

    /// Bytes of memory of what was read.
    fn bytes(&self) -> usize {
        0
    }

    /// Adds how many of these rows have each field that is none of [`COMPUTED`].
    async fn field_counts(&mut self, rows: &BooleanBuffer, out: &mut BTreeMap<String, u64>) -> Result<()>;

    /// Calls for each field of these rows that has no column.
    async fn each_overflow(
        &mut self,
        rows: &BooleanBuffer,
        visit: &mut (dyn for<'a> FnMut(&'a str, &'a str) + Send),
    ) -> Result<()>;

    /// All fields of these rows but those named, in name order.
    async fn rest(&mut self, without: &[&str], rows: &BooleanBuffer) -> Result<MapArray>;
}

/// Names that every row has without their being fields.
pub(crate) const COMPUTED: [&str; 3] = [TIME, STREAM, STREAM_ID];

/// How a column of a block follows from the stream of a row, if it does.
pub(crate) fn of_stream(block: &dyn Block, name: &str) -> Option<StreamValue> {
    with_computed(name, |name| block.of_stream(name))
}

/// The same of values that are not read for less from a column.
pub(crate) fn given_by_stream(block: &dyn Block, name: &str) -> Option<StreamValue> {
    of_stream(block, name).filter(|value| !block.reads_instead(value))
}

/// A column of a block by name, computed ones too.
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

/// The values of a column by name of the rows that are set, one behind the other.
pub(crate) async fn values(block: &mut dyn Block, name: &str, rows: &BooleanBuffer) -> Result<Values> {
    match given_by_stream(block, name) {
        None | Some(StreamValue::Same(_)) => column(block, name, rows).await?.gather(rows),
        Some(value) => block.of_streams(&value, rows).await,
    }
}
