//! What the caches keep of a log part: the metadata that is known before any row is read, and the word filters of its
//! columns.

use std::ops::Range;
use std::sync::Arc;

use arrow::buffer::BooleanBuffer;
use bytes::Bytes;
use parquet::basic::Type;

use super::super::footer::Footer;
use super::columns::{LogColumns, Optional};
use crate::memtable::log_streams::LiveStream;

#[derive(Debug, Clone)]
pub(crate) struct PartStream {
    pub(crate) stream: Arc<LiveStream>,
    /// Its rows in the part's `.rows`.
    pub(crate) rows: Range<u64>,
    /// Times of its first and last row, in Unix nanoseconds.
    pub(crate) range: (i64, i64),
}

/// Metadata of a part, known before any row is read; kept in memory.
#[derive(Debug)]
pub(crate) struct PartLogs {
    pub(crate) columns: LogColumns,
    /// The part's streams; `None` if there are so many that they are read in blocks on demand.
    pub(crate) streams: Option<Vec<PartStream>>,
    /// Whether streams have many rows each. If so, values that depend only on the stream are looked up per stream.
    pub(crate) long_streams: bool,
    /// The footer of `.rows`.
    pub(crate) footer: Arc<Footer>,
    pub(crate) has: Optional,
    /// Times of the first and last row of each row group.
    pub(crate) group_ranges: Vec<(i64, i64)>,
}

/// The word filters of a column: first row, number of rows, filter.
#[derive(Debug)]
pub(crate) struct ColumnIndex {
    pub(crate) filters: Vec<(u64, u64, Bytes)>,
}

impl ColumnIndex {
    /// Approximate size in memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.filters.iter().map(|f| f.2.len() as u64 + 48).sum::<u64>() + 64
    }
}

impl PartLogs {
    pub(crate) fn group_rows(&self, group: usize) -> Range<u64> {
        let starts = self.footer.group_starts();
        starts[group]..starts[group + 1]
    }

    /// Estimates how many values a field has: a column that takes so many bits a row tells some power of two of them apart.
    pub(crate) fn values_about(&self, field: &str) -> u64 {
        let Some(at) = self.columns.find(field) else { return 1 };
        let column = &self.columns.columns[at];
        if let (true, Some(streams)) = (column.of_stream, &self.streams) {
            return streams.len() as u64;
        }
        let bytes: u64 = (0..self.groups()).map(|group| self.column_bytes(group, field)).sum();
        let bits = bytes * 8 / column.rows.max(1);
        1u64.checked_shl(bits.min(64) as u32).unwrap_or(u64::MAX).min(column.rows)
    }

    /// Number of row groups.
    pub(crate) fn groups(&self) -> usize {
        self.footer.group_starts().len() - 1
    }

    /// Pages of a column of a row group that contain selected rows: the page's number, and its rows within the group.
    /// `None` if there are more than `most`, or if the page index is missing.
    pub(crate) fn pages_of(
        &self,
        group: usize,
        column: &str,
        rows: &BooleanBuffer,
        most: usize,
    ) -> Option<Vec<(u32, Range<usize>)>> {
        let locations = self.footer.page_locations(group, self.footer.column(column)?);
        let mut out: Vec<(u32, Range<usize>)> = Vec::new();
        for (start, end) in rows.set_slices() {
            let mut next = out.last().map_or(0, |(_, range)| range.end).max(start);
            while next < end {
                let page = locations.partition_point(|p| p.first_row_index as usize <= next).checked_sub(1)?;
                let last = locations.get(page + 1).map_or(rows.len(), |p| p.first_row_index as usize);
                if out.len() == most {
                    return None;
                }
                out.push((page as u32, locations[page].first_row_index as usize..last));
                next = last;
            }
        }
        Some(out)
    }

    /// Number of pages of a column of a row group; 0 if unknown.
    pub(crate) fn pages(&self, group: usize, column: &str) -> usize {
        self.footer.column(column).map_or(0, |at| self.footer.page_locations(group, at).len())
    }

    /// Uncompressed size of a column of a row group.
    pub(crate) fn column_bytes(&self, group: usize, column: &str) -> u64 {
        let chunks = self.footer.metadata().row_group(group).columns();
        self.footer.column(column).map_or(0, |at| chunks[at].uncompressed_size() as u64)
    }

    /// Leaf columns of a row group that belong to wanted columns, each with its estimated size as text.
    fn wanted_leaves(&self, group: usize, wanted: &dyn Fn(&str) -> bool) -> Vec<(usize, u64)> {
        let metadata = self.footer.metadata();
        let columns = metadata.file_metadata().schema_descr().columns().iter().zip(metadata.row_group(group).columns());
        columns
            .enumerate()
            .filter(|(_, (column, _))| column.path().parts().first().is_some_and(|name| wanted(name)))
            .map(|(leaf, (column, chunk))| {
                // Hex digits take twice as much as the bytes, and both are in memory at once.
                let times = if column.physical_type() == Type::FIXED_LEN_BYTE_ARRAY { 3 } else { 1 };
                (leaf, times * chunk.uncompressed_size() as u64)
            })
            .collect()
    }

    /// Estimated size, as text, of the wanted columns of a row group.
    pub(crate) fn wanted_bytes(&self, group: usize, wanted: &dyn Fn(&str) -> bool) -> u64 {
        self.wanted_leaves(group, wanted).iter().map(|(_, bytes)| bytes).sum()
    }

    /// Estimated size, as text, of one row of the wanted columns of a row group: one figure per `step` rows in which
    /// any row is selected.
    pub(crate) fn row_bytes(
        &self,
        group: usize,
        step: usize,
        wanted: &dyn Fn(&str) -> bool,
        rows: &BooleanBuffer,
    ) -> Vec<f32> {
        let mut out = vec![0.0; rows.len().div_ceil(step)];
        let mut steps: Vec<usize> = Vec::new();
        for (start, end) in rows.set_slices() {
            let first = steps.last().map_or(0, |last| last + 1).max(start / step);
            steps.extend(first..end.div_ceil(step));
        }
        for (leaf, bytes) in self.wanted_leaves(group, wanted) {
            let pages = self.footer.page_locations(group, leaf);
            for (at, page) in pages.iter().enumerate() {
                let first = page.first_row_index as usize;
                let end = pages.get(at + 1).map_or(rows.len(), |next| next.first_row_index as usize);
                let each = bytes as f32 / pages.len() as f32 / end.saturating_sub(first).max(1) as f32;
                let from = steps.partition_point(|&step_at| step_at < first / step);
                for &at in steps[from..].iter().take_while(|&&step_at| step_at < end.div_ceil(step)) {
                    let here = end.min((at + 1) * step).saturating_sub(first.max(at * step));
                    out[at] += each * here as f32 / step as f32;
                }
            }
        }
        out
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let streams = self.streams.iter().flatten();
        let streams = streams.map(|s| s.stream.labels.canonical().len() + 160).sum::<usize>();
        let columns = self.columns.columns.iter().map(|c| c.name.len() + 64).sum::<usize>();
        (streams + columns + self.group_ranges.len() * 16 + 1024) as u64
    }
}
