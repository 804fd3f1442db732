//! A block: rows that are filtered and given out together, of a live batch or of a row group of a part.
//!
//! Filters and output know blocks only. What a block is asked for names the rows that still matter, so that one that
//! lies in a file reads just the pages that hold them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{DictionaryArray, MapArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::UInt32Type;
use async_trait::async_trait;
use quiver_types::ReadStats;
use quiver_types::logs::{
    LogFilter, OBSERVED_TIME, SEVERITY_NUMBER, STREAM, STREAM_ID, TIME, ValueMatcher, stream_text,
};
use quiver_types::tables::logs::SERVICE;

use super::column::{Column, Values, coded};
use crate::error::Result;
use crate::memtable::logs::LiveStream;

/// Rows that [`Block::row_bytes`] tells of together.
pub(crate) const STEP_ROWS: usize = 32;

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

    /// When these rows were observed ([`Values::Time`]; missing = not told).
    async fn observed(&mut self, rows: &BooleanBuffer) -> Result<Column>;

    /// Of these rows, those of streams that pass.
    fn in_streams(&self, rows: &BooleanBuffer, passes: &mut (dyn FnMut(&LiveStream) -> bool + Send)) -> BooleanBuffer;

    /// Code of the stream of each of these rows, one behind the other, and what the codes stand for.
    fn streams(&self, rows: &BooleanBuffer) -> (Vec<u32>, Vec<Arc<LiveStream>>);

    /// Streams of these rows, each with its number of rows.
    fn stream_counts(&self, rows: &BooleanBuffer) -> Vec<(Arc<LiveStream>, u64)> {
        let (keys, streams) = self.streams(rows);
        let mut counts = vec![0; streams.len()];
        keys.into_iter().for_each(|key| counts[key as usize] += 1);
        streams.into_iter().zip(counts).collect()
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

    /// Bytes of one row once it is read, about, in the columns that are wanted: a figure for each [`STEP_ROWS`] rows;
    /// none when all rows together take no more than `least`.
    fn row_bytes(&self, wanted: &dyn Fn(&str) -> bool, least: u64) -> Vec<f32>;

    /// From now on rows are asked for window by window, with [`Block::forget_wide`] between; says whether columns are read
    /// for it, or are there anyway.
    fn sweep(&mut self) -> bool {
        false
    }

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

/// A value that is the same in all rows of a stream.
#[derive(Debug)]
pub(crate) enum StreamValue {
    /// All labels.
    Text,
    /// The identifier.
    Id,
    /// The service.
    Service,
    /// The label of this name.
    Label(String),
    /// The same in all streams; empty: none has it.
    Same(Arc<str>),
}

impl StreamValue {
    /// The value in rows of a stream.
    pub(crate) fn of<'a>(&'a self, stream: &'a LiveStream) -> Cow<'a, str> {
        match self {
            Self::Text => stream_text(&stream.labels).into(),
            Self::Id => format!("{:?}", stream.id).into(),
            Self::Service => (&*stream.service).into(),
            Self::Label(name) => stream.labels.get(name).into(),
            Self::Same(value) => (&**value).into(),
        }
    }
}

/// How a column of a block follows from the stream of a row, if it does.
pub(crate) fn of_stream(block: &dyn Block, name: &str) -> Option<StreamValue> {
    match name {
        TIME | SEVERITY_NUMBER | OBSERVED_TIME => None,
        STREAM => Some(StreamValue::Text),
        STREAM_ID => Some(StreamValue::Id),
        SERVICE => Some(StreamValue::Service),
        _ => block.of_stream(name),
    }
}

/// A column of a block by name, computed ones too.
pub(crate) async fn column(block: &mut dyn Block, name: &str, rows: &BooleanBuffer) -> Result<Column> {
    match (name, of_stream(block, name)) {
        (TIME, _) => block.times(rows).await,
        (SEVERITY_NUMBER, _) => block.severity(rows).await,
        (OBSERVED_TIME, _) => block.observed(rows).await,
        (_, Some(StreamValue::Same(value))) if value.is_empty() => Ok(Column::missing()),
        (_, Some(StreamValue::Same(value))) => Ok(Column::constant(value)),
        (_, Some(value)) => {
            let values = by_stream(block, &value, rows);
            Ok(if rows.count_set_bits() == rows.len() { Column::whole(values) } else { Column::of_set(values, rows) })
        }
        (name, None) => block.field(name, rows).await,
    }
}

/// The values of a column by name of the rows that are set, one behind the other.
pub(crate) async fn values(block: &mut dyn Block, name: &str, rows: &BooleanBuffer) -> Result<Values> {
    match of_stream(block, name) {
        None | Some(StreamValue::Same(_)) => column(block, name, rows).await?.gather(rows),
        Some(value) => Ok(by_stream(block, &value, rows)),
    }
}

fn by_stream(block: &dyn Block, value: &StreamValue, rows: &BooleanBuffer) -> Values {
    let (keys, streams) = block.streams(rows);
    let texts = streams.iter().map(|s| value.of(s).into_owned()).collect();
    without_empty(Values::Coded(coded(keys, texts)))
}

/// No service and no label are empty texts; in answers they are missing.
fn without_empty(values: Values) -> Values {
    let Values::Coded(array) = values else { return values };
    let empty: Vec<bool> = super::column::dictionary(&array).into_iter().flatten().map(|v| v == Some("")).collect();
    if !empty.contains(&true) {
        return Values::Coded(array);
    }
    let keys = array.keys().iter().map(|k| k.filter(|&k| !empty[k as usize])).collect();
    Values::Coded(DictionaryArray::<UInt32Type>::new(keys, Arc::clone(array.values())))
}
