//! A block: rows that are filtered and given out together, of a live batch or of a row group of a part.
//!
//! Filters and output know blocks only. What a block is asked for names the rows that still matter, so that one that
//! lies in a file reads just the pages that hold them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{DictionaryArray, MapArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::UInt32Type;
use async_trait::async_trait;
use quiver_types::ReadStats;
use quiver_types::logs::{LogFilter, SEVERITY_NUMBER, STREAM, STREAM_ID, TIME, ValueMatcher, stream_text};
use quiver_types::tables::logs::SERVICE;

use super::column::{Column, Values, coded};
use crate::error::Result;
use crate::memtable::logs::LiveStream;

/// See the module.
#[async_trait]
pub(crate) trait Block: Send {
    /// Number of rows.
    fn len(&self) -> usize;

    /// Rows that the caller may see.
    fn allowed(&self) -> BooleanBuffer;

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

    /// Of these rows, those of streams that pass.
    fn in_streams(&self, rows: &BooleanBuffer, passes: &mut (dyn FnMut(&LiveStream) -> bool + Send)) -> BooleanBuffer;

    /// Code of the stream of each of these rows, one behind the other, and what the codes stand for.
    fn streams(&self, rows: &BooleanBuffer) -> (Vec<u32>, Vec<Arc<LiveStream>>);

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

    /// All fields of these rows but those named, in name order.
    async fn rest(&mut self, without: &[&str], rows: &BooleanBuffer) -> Result<MapArray>;
}

/// Names that every row has without their being fields.
pub(crate) const COMPUTED: [&str; 3] = [TIME, STREAM, STREAM_ID];

/// A column of a block by name, computed ones too.
pub(crate) async fn column(block: &mut dyn Block, name: &str, rows: &BooleanBuffer) -> Result<Column> {
    let coded = |block: &dyn Block, text: &dyn Fn(&LiveStream) -> String| {
        let (keys, streams) = block.streams(rows);
        let values = Values::Coded(coded(keys, streams.iter().map(|s| text(s)).collect()));
        if rows.count_set_bits() == rows.len() { Column::whole(values) } else { Column::of_set(values, rows) }
    };
    match name {
        TIME => block.times(rows).await,
        STREAM => Ok(coded(block, &|s| stream_text(&s.labels))),
        STREAM_ID => Ok(coded(block, &|s| format!("{:?}", s.id))),
        SERVICE => {
            let column = coded(block, &|s| s.service.to_string());
            Ok(Column { values: without_empty(column.values), at: column.at })
        }
        SEVERITY_NUMBER => block.severity(rows).await,
        _ => block.field(name, rows).await,
    }
}

/// No service is the empty text in files; in answers it is missing.
fn without_empty(values: Values) -> Values {
    let Values::Coded(array) = values else { return values };
    let Some(at) = super::column::dictionary(&array).and_then(|d| d.iter().position(|v| v == Some(""))) else {
        return Values::Coded(array);
    };
    let keys = array.keys().iter().map(|k| k.filter(|&k| k as usize != at)).collect();
    Values::Coded(DictionaryArray::<UInt32Type>::new(keys, Arc::clone(array.values())))
}
