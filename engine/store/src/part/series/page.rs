//! A page of series in memory: identities, services, time ranges, and the row ranges of each series in the other files.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{TimestampMillisecondType, UInt64Type};
use hashbrown::HashMap;
use quiver_types::{Millis, MillisRange, SeriesId};

use super::super::PartMeta;

/// Series per page.
pub(crate) const PAGE_SERIES: u32 = 4096;

/// The rows of one series in one of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeriesRows {
    /// Number of the series within the part.
    pub series: u32,
    /// First row in the file.
    pub first: u64,
    /// Number of rows that belong to the series.
    pub rows: u64,
}

/// Each other file of a part by its kind, and the columns of `.series` with first row and number of rows there.
pub(super) const SIBLINGS: [(&str, [&str; 2]); 3] = [
    ("samples", ["samples_first", "samples_rows"]),
    ("histograms", ["histograms_first", "histograms_rows"]),
    ("exemplars", ["exemplars_first", "exemplars_rows"]),
];

/// Up to [`PAGE_SERIES`] series of a part.
#[derive(Debug, Default)]
pub struct SeriesPage {
    pub(super) first: u32,
    ids: Vec<SeriesId>,
    services: Vec<Arc<str>>,
    service_codes: Vec<u16>,
    /// First row of each series in samples, histograms and exemplars, followed by the end of the last one; empty if the
    /// part has no such file.
    starts: [Vec<u64>; 3],
    min_ts: Vec<Millis>,
    max_ts: Vec<Millis>,
    /// First series of each block of decoded samples, followed by the end of the page.
    pub(super) blocks: Vec<u32>,
}

impl SeriesPage {
    /// An empty page; `first` is the number of its first series.
    pub(super) fn starting(first: u32) -> Self {
        Self { first, ..Self::default() }
    }

    /// Numbers of the page's series.
    pub fn numbers(&self) -> Range<u32> {
        self.first..self.first + self.ids.len() as u32
    }

    fn at(&self, series: u32) -> usize {
        (series - self.first) as usize
    }

    /// Hash of a series' labels.
    pub fn id(&self, series: u32) -> SeriesId {
        self.ids[self.at(series)]
    }

    /// Distinct services of the page's series, unordered.
    pub fn services(&self) -> &[Arc<str>] {
        &self.services
    }

    /// Index of a series' service in [`Self::services`].
    pub fn service_code(&self, series: u32) -> usize {
        usize::from(self.service_codes[self.at(series)])
    }

    /// The service of a series; empty if it has none.
    pub fn service(&self, series: u32) -> &Arc<str> {
        &self.services[self.service_code(series)]
    }

    /// Rows of a series in `.samples`.
    pub fn samples(&self, series: u32) -> SeriesRows {
        self.rows(0, series)
    }

    /// Rows of a series in `.histograms`.
    pub fn hists(&self, series: u32) -> SeriesRows {
        self.rows(1, series)
    }

    /// Rows of a series in `.exemplars`.
    pub fn exemplars(&self, series: u32) -> SeriesRows {
        self.rows(2, series)
    }

    pub(super) fn rows(&self, sibling: usize, series: u32) -> SeriesRows {
        let (starts, at) = (&self.starts[sibling], self.at(series));
        let first = starts.get(at).copied().unwrap_or(0);
        let end = starts.get(at + 1).copied().unwrap_or(0);
        SeriesRows { series, first, rows: end - first }
    }

    /// Times of the first and last sample of a series.
    pub fn range(&self, series: u32) -> MillisRange {
        MillisRange::new(self.min_ts[self.at(series)], self.max_ts[self.at(series)])
    }

    /// The series in the same block of decoded samples (see `sample_blocks`) as a series. A block never crosses the end
    /// of a page.
    pub(crate) fn block(&self, series: u32) -> Range<u32> {
        let block = self.blocks.partition_point(|&start| start <= series) - 1;
        self.blocks[block]..self.blocks[block + 1]
    }

    pub(super) fn block_samples(&self, series: u32) -> u64 {
        let (block, starts) = (self.block(series), &self.starts[0]);
        let at = |series: u32| starts.get((series - self.first) as usize).copied().unwrap_or(0);
        at(block.end) - at(block.start)
    }

    /// Approximate size in memory.
    pub fn memory_bytes(&self) -> usize {
        let starts: usize = self.starts.iter().map(|s| 8 * s.len()).sum();
        let services: usize = self.services.iter().map(|s| s.len() + 32).sum();
        self.ids.len() * (16 + 2 + 16) + starts + services + 4 * self.blocks.len() + 256
    }

    /// Adds rows; `None` if the batch has other columns, or if row ranges are not consecutive.
    pub(super) fn add(&mut self, batch: &RecordBatch) -> Option<()> {
        let ids = batch.column_by_name("series_id")?.as_fixed_size_binary_opt()?;
        for i in 0..ids.len() {
            self.ids.push(SeriesId::from_bytes(ids.value(i).try_into().ok()?));
        }
        let services = batch.column_by_name("service")?.as_string_opt::<i32>()?;
        let known = self.services.iter().map(Arc::clone).zip(0..);
        let mut codes: HashMap<Arc<str>, u16, foldhash::fast::RandomState> = known.collect();
        let mut last = 0;
        for service in services {
            let service = service.unwrap_or("");
            if self.services.get(usize::from(last)).is_none_or(|s| **s != *service) {
                last = codes.get(service).copied().unwrap_or(self.services.len() as u16);
                if usize::from(last) == self.services.len() {
                    let service: Arc<str> = Arc::from(service);
                    self.services.push(Arc::clone(&service));
                    codes.insert(service, last);
                }
            }
            self.service_codes.push(last);
        }
        let times = |name: &str| {
            Some(batch.column_by_name(name)?.as_primitive_opt::<TimestampMillisecondType>()?.values().to_vec())
        };
        self.min_ts.extend(times("min_time")?);
        self.max_ts.extend(times("max_time")?);
        for (starts, (_, [first, rows])) in self.starts.iter_mut().zip(SIBLINGS) {
            let Some(firsts) = batch.column_by_name(first) else { continue };
            let firsts = firsts.as_primitive_opt::<UInt64Type>()?.values();
            let rows = batch.column_by_name(rows)?.as_primitive_opt::<UInt64Type>()?.values();
            for (&first, &rows) in firsts.iter().zip(rows) {
                // Each series must start where the previous one ends.
                if starts.last().is_some_and(|&end| end != first) {
                    return None;
                }
                if starts.is_empty() {
                    starts.push(first);
                }
                starts.push(first.checked_add(rows)?);
            }
        }
        Some(())
    }

    /// Tells whether row ranges start at 0 on the first page, and end at the end of the files on the last page.
    pub(super) fn fits(&self, meta: &PartMeta, series: u64) -> bool {
        SIBLINGS.iter().zip(&self.starts).all(|((kind, _), starts)| {
            let rows = meta.file(kind).map_or(0, |f| f.rows);
            let begins = self.first > 0 || starts.first().is_none_or(|&first| first == 0);
            let ends = u64::from(self.numbers().end) < series || starts.last().copied().unwrap_or(0) == rows;
            begins && ends
        })
    }
}

#[cfg(test)]
pub(super) mod tests;
