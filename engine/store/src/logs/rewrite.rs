//! Reads a part of logs from front to back for compaction: windows of rows, with the columns converted to those of the
//! new part.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanBufferBuilder, FixedSizeBinaryArray, Float64Array, Int64Array, TimestampNanosecondArray,
    UInt32Array, new_null_array,
};
use arrow::buffer::{BooleanBuffer, Buffer};

use super::block::{Block, STEP_ROWS};
use super::column::Values;
use super::row_group::GroupBlock;
use super::typed_text;
use crate::error::{Error, Result};
use crate::memtable::log_streams::LiveStream;
use crate::part::Part;
use crate::part::logs::{ColumnKind, LogColumns, PartLogs, array_type};

/// Consecutive rows of a part.
pub(crate) struct Window {
    pub(crate) time: Vec<i64>,
    /// Severities, 0 for none; `None` if no row of the part has one.
    pub(crate) severity: Option<Vec<u8>>,
    /// Observed times, 0 for none; `None` if no row of the part has one.
    pub(crate) observed: Option<Vec<i64>>,
    /// The columns of the new part, then the overflow map if it has one.
    pub(crate) columns: Vec<ArrayRef>,
    /// Streams, each with the end of its rows.
    streams: Vec<(Arc<LiveStream>, usize)>,
}

impl Window {
    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.time.len()
    }

    /// The stream of a row.
    pub(crate) fn stream(&self, row: usize) -> &Arc<LiveStream> {
        let at = self.streams.partition_point(|s| s.1 <= row);
        &self.streams[at].0
    }

    /// The end of the rows of a row's stream.
    pub(crate) fn stream_end(&self, row: usize) -> usize {
        let at = self.streams.partition_point(|s| s.1 <= row);
        self.streams[at].1
    }
}

/// How much of a part is a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowSize {
    /// Most rows.
    pub(crate) rows: usize,
    /// Most bytes of them, as estimated from the sizes of pages, unless one row has more.
    pub(crate) bytes: u64,
}

impl WindowSize {
    /// The end of the window that begins at a row of a row group, of which the bytes of a row are known for each
    /// [`STEP_ROWS`] rows.
    fn end(self, from: usize, len: usize, row_bytes: &[f32]) -> usize {
        let most = len.min(from.saturating_add(self.rows));
        let mut left = self.bytes as f32;
        let mut at = from;
        while at < most {
            let step_end = ((at / STEP_ROWS + 1) * STEP_ROWS).min(most);
            let of_row = row_bytes.get(at / STEP_ROWS).copied().unwrap_or(0.0).max(1.0);
            let fitting = (left / of_row) as usize;
            if fitting < step_end - at {
                return (at + fitting).max(from + 1);
            }
            left -= of_row * (step_end - at) as f32;
            at = step_end;
        }
        most
    }
}

/// Reads the windows of a part.
pub(crate) struct WindowReader {
    part: Arc<Part>,
    logs: Arc<PartLogs>,
    columns: Arc<LogColumns>,
    with_overflow: bool,
    window: WindowSize,
    group: usize,
    at: usize,
    block: Option<GroupBlock>,
    /// Of the block: bytes of a row, by [`STEP_ROWS`] rows.
    row_bytes: Vec<f32>,
}

impl WindowReader {
    pub(crate) fn new(
        part: Arc<Part>,
        logs: Arc<PartLogs>,
        columns: Arc<LogColumns>,
        with_overflow: bool,
        window: WindowSize,
    ) -> Self {
        let row_bytes = Vec::new();
        Self { part, logs, columns, with_overflow, window, group: 0, at: 0, block: None, row_bytes }
    }

    /// The next window; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Window>> {
        let block = loop {
            match &mut self.block {
                Some(block) if self.at < Block::len(block) => break block,
                _ if self.group >= self.logs.groups() => return Ok(None),
                none => {
                    let block = GroupBlock::for_job(Arc::clone(&self.part), Arc::clone(&self.logs), self.group);
                    let all = BooleanBuffer::new_set(Block::len(&block));
                    self.row_bytes = block.row_bytes(&|_| true, &all);
                    *none = Some(block);
                    self.group += 1;
                    self.at = 0;
                }
            }
        };
        let len = Block::len(block);
        let range = self.at..self.window.end(self.at, len, &self.row_bytes);
        self.at = range.end;
        block.forget();
        let rows = mask(&range, len);
        let count = range.len();
        let Values::Time(times, _) = block.times(&rows).await?.gather(&rows)? else {
            return Err(Error::internal("a part of logs without times"));
        };
        let severity = match block.severity(&rows).await?.gather(&rows)? {
            Values::Int(numbers) => Some(numbers.iter().map(|n| n.unwrap_or(0) as u8).collect()),
            _ => None,
        };
        let observed = match block.observed(&rows).await?.gather(&rows)? {
            Values::Time(times, _) => Some(times.iter().map(Option::unwrap_or_default).collect()),
            _ => None,
        };
        let mut columns = Vec::with_capacity(self.columns.columns.len() + 1);
        for plan in &self.columns.columns {
            let values = block.field(&plan.name, &rows).await?.gather(&rows)?;
            columns.push(as_kind(&values, plan.kind, count)?);
        }
        if self.with_overflow {
            let of_columns = self.columns.columns.iter().map(|c| c.name.as_str());
            let without: Vec<&str> = of_columns.chain(self.columns.constants.keys().map(String::as_str)).collect();
            columns.push(Arc::new(block.rest(&without, &rows).await?));
        }
        let streams = block.streams_within(&range);
        Ok(Some(Window { time: times.values().to_vec(), severity, observed, columns, streams }))
    }
}

fn mask(range: &Range<usize>, len: usize) -> BooleanBuffer {
    let mut bits = BooleanBufferBuilder::new(len);
    bits.append_n(range.start, false);
    bits.append_n(range.len(), true);
    bits.append_n(len - range.end, false);
    bits.finish()
}

/// Converts values to an array of a kind. The kinds of the new part were chosen so that this is possible.
fn as_kind(values: &Values, kind: ColumnKind, rows: usize) -> Result<ArrayRef> {
    let other = || Error::internal(format!("a column of logs cannot become {kind:?}"));
    Ok(match (kind, values) {
        (ColumnKind::Text | ColumnKind::Coded, values) => Arc::new(values.to_text(rows)),
        (kind, Values::Missing) => new_null_array(&array_type(kind), rows),
        (ColumnKind::Int, Values::Int(a)) => Arc::new(a.clone()),
        (ColumnKind::Float, Values::Float(a)) => Arc::new(a.clone()),
        (ColumnKind::Ipv4, Values::Ipv4(a)) => Arc::new(a.clone()),
        (ColumnKind::Hex(_), Values::Hex(a)) => Arc::new(a.clone()),
        (ColumnKind::Time(_), Values::Time(a, _)) => {
            let nulls = a.nulls().cloned();
            Arc::new(TimestampNanosecondArray::new(a.values().clone(), nulls).with_timezone("UTC"))
        }
        (ColumnKind::Int, Values::Constant(c)) => {
            Arc::new(Int64Array::from(vec![typed_text::read_int(c).ok_or_else(other)?; rows]))
        }
        (ColumnKind::Float, Values::Constant(c)) => {
            let value = typed_text::read_float(c, &mut String::new()).ok_or_else(other)?;
            Arc::new(Float64Array::from(vec![value; rows]))
        }
        (ColumnKind::Ipv4, Values::Constant(c)) => {
            Arc::new(UInt32Array::from(vec![typed_text::read_ipv4(c).ok_or_else(other)?; rows]))
        }
        (ColumnKind::Time(_), Values::Constant(c)) => {
            let (nanos, _) = typed_text::read_time(c).ok_or_else(other)?;
            Arc::new(TimestampNanosecondArray::from(vec![nanos; rows]).with_timezone("UTC"))
        }
        (ColumnKind::Hex(len), Values::Constant(c)) => {
            let mut bytes = Vec::new();
            if !typed_text::read_hex(c, &mut bytes) || bytes.len() != usize::from(len) {
                return Err(other());
            }
            let all = bytes.repeat(rows);
            Arc::new(FixedSizeBinaryArray::new(i32::from(len), Buffer::from_vec(all), None))
        }
        _ => return Err(other()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_end_by_rows_and_by_bytes() {
        // 64 rows of 10 bytes, 64 of 1000, 32 of a million.
        let row_bytes = [10.0, 10.0, 1e3, 1e3, 1e6];
        let ends = |rows: usize, bytes: u64| {
            let (size, mut out) = (WindowSize { rows, bytes }, Vec::new());
            while out.last().is_none_or(|&last| last < 160) {
                out.push(size.end(out.last().copied().unwrap_or(0), 160, &row_bytes));
            }
            out
        };
        assert_eq!(ends(1000, u64::MAX), [160]);
        assert_eq!(ends(100, u64::MAX), [100, 160]);
        assert_eq!(ends(1000, 35_000_000), [160]);
        assert_eq!(ends(1000, 10_700_640)[..2], [138, 148]);
        // 640 bytes, then as many of 1000 as fit; each row of a million by itself.
        let small = ends(1000, 20_000);
        assert_eq!(small[..3], [83, 103, 123]);
        assert_eq!((small[3], small.len()), (128, 36));
        assert_eq!(ends(1000, 1).len(), 160);
        assert_eq!(ends(1000, 1)[..3], [1, 2, 3]);
    }
}
