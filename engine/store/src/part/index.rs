//! The index of a part of metrics: which series have a label with a value.
//!
//! `.index` has one row per (label, value), sorted, and a directory of labels in its footer. A lookup reads only the
//! rows of its label: an equality reads the page that may hold the value and then one bitmap; a pattern reads the
//! values and then the bitmaps of those that match. Parts written before the directory existed have their index built
//! in memory from `.series` ([`MemoryIndex`]).

pub(super) mod memory;
mod union;

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch, StringArray};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use quiver_types::{ReadStats, read_stats};
use roaring::RoaringBitmap;

use super::FileMeta;
use super::byte_ranges::{Purpose, Selection};
use super::directory::Directory;
use super::footer::{Footer, damaged};
use super::reader::Part;
use super::series::split;
use crate::cache::{CachedPiece, Piece};
use crate::error::Result;

use memory::MemoryIndex;
use union::Union;

/// Column indexes of `.index`.
const VALUE: usize = 1;
const SERIES: usize = 2;

/// How many pages of values, or rows of bitmaps, are read at once.
const PAGES_AT_ONCE: usize = 64;
const BITMAPS_AT_ONCE: usize = 32 * 1024;
/// Only lookups of at most this size are cached; a scan would evict everything else.
const PAGES_KEPT: usize = 16;
const BITMAPS_KEPT: usize = 32;

/// The index of a part. Row numbers are those of `.index`, also for an index in memory.
#[derive(Debug)]
pub(crate) enum LabelIndex<'a> {
    /// Read from `.index`, page by page.
    File(FileIndex<'a>),
    /// Built in memory, for a part without an index file.
    Memory(Arc<MemoryIndex>),
}

/// The index of a part in its file.
#[derive(Debug)]
pub(crate) struct FileIndex<'a> {
    part: &'a Part,
    file: &'a FileMeta,
    footer: Arc<Footer>,
    directory: Arc<Directory>,
}

/// Memory reserved for a lookup, given back on drop.
struct LookupMemory<'a>(&'a ReadStats, usize);

impl<'a> LookupMemory<'a> {
    fn new(stats: &'a ReadStats, bytes: usize) -> Result<Self> {
        stats.take(bytes)?;
        stats.check()?;
        Ok(Self(stats, bytes))
    }
}

impl Drop for LookupMemory<'_> {
    fn drop(&mut self) {
        self.0.give_back(self.1);
    }
}

impl Part {
    /// The index of labels: from the file if it has one, else built in memory.
    ///
    /// # Errors
    /// As [`Part::series_pages`].
    pub(crate) async fn label_index(&self, stats: &ReadStats) -> Result<LabelIndex<'_>> {
        if let Some(file) = self.meta.file("index") {
            let footer = self.footer(file, stats).await?;
            if let Some(directory) = footer.directory(file)? {
                let directory = Arc::clone(directory);
                return Ok(LabelIndex::File(FileIndex { part: self, file, footer, directory }));
            }
        }
        let key = (self.meta.id, Piece::Index);
        if let Some(CachedPiece::Index(index)) = self.cache().series.get(&key) {
            read_stats::add(&stats.cache_hits, 1);
            return Ok(LabelIndex::Memory(index));
        }
        let _one = self.decoding().await;
        if let Some(CachedPiece::Index(index)) = self.cache().series.get(&key) {
            read_stats::add(&stats.cache_hits, 1);
            return Ok(LabelIndex::Memory(index));
        }
        read_stats::add(&stats.cache_misses, 1);
        let index = Arc::new(MemoryIndex::new(self.read_pairs(stats).await?));
        self.cache().series.insert(key, CachedPiece::Index(Arc::clone(&index)), index.memory_bytes());
        Ok(LabelIndex::Memory(index))
    }
}

impl LabelIndex<'_> {
    fn directory(&self) -> &Directory {
        match self {
            Self::File(index) => &index.directory,
            Self::Memory(index) => &index.directory,
        }
    }

    /// Label names, ascending.
    #[cfg(test)]
    pub(crate) fn names(&self) -> &[Arc<str>] {
        &self.directory().names
    }

    /// The rows of a label; `None` if no series has it.
    pub(crate) fn rows(&self, name: &str) -> Option<Range<u64>> {
        let directory = self.directory();
        let at = directory.names.binary_search_by(|n| (**n).cmp(name)).ok()?;
        Some(directory.starts[at]..directory.starts[at + 1])
    }

    /// Narrows the rows of a label to those whose values may start with a prefix. Returns ascending ranges.
    pub(crate) fn with_prefix(&self, rows: Range<u64>, prefix: &str) -> Vec<Range<u64>> {
        if prefix.is_empty() {
            return vec![rows];
        }
        match self {
            Self::File(index) => {
                let prefix = prefix.as_bytes();
                let may = |min: &[u8], max: &[u8]| &min[..min.len().min(prefix.len())] <= prefix && max >= prefix;
                let own = |page: Range<u64>| page.start.max(rows.start)..page.end.min(rows.end);
                index.pages_where(&rows, may).into_iter().map(own).collect()
            }
            Self::Memory(index) => {
                let list = &index.order[rows.start as usize..rows.end as usize];
                let first = list.partition_point(|&pair| index.table.value(pair) < prefix);
                let len = list[first..].partition_point(|&pair| index.table.value(pair).starts_with(prefix));
                let first = rows.start + first as u64;
                std::iter::once(first..first + len as u64).collect()
            }
        }
    }

    /// Calls `show` with the values of row ranges of one label, in order.
    ///
    /// # Errors
    /// As [`Part::series_pages`].
    pub(crate) async fn values(
        &self,
        runs: &[Range<u64>],
        stats: &ReadStats,
        show: &mut (dyn FnMut(u64, &str) + Send),
    ) -> Result<()> {
        match self {
            Self::File(index) => {
                let mut pages: Vec<Range<u64>> =
                    runs.iter().flat_map(|rows| index.pages_where(rows, |_, _| true)).collect();
                pages.dedup();
                let wanted = |row: u64| {
                    let run = runs.partition_point(|run| run.end <= row);
                    runs.get(run).is_some_and(|run| run.contains(&row))
                };
                let keep = pages.len() <= PAGES_KEPT;
                for pages in pages.chunks(PAGES_AT_ONCE) {
                    let (_taken, values) = index.pages(pages, keep, stats).await?;
                    for (page, values) in pages.iter().zip(&values) {
                        for (row, value) in (page.start..).zip(values.iter()).filter(|(row, _)| wanted(*row)) {
                            show(row, value.unwrap_or(""));
                        }
                    }
                }
            }
            Self::Memory(index) => {
                for (n, row) in runs.iter().cloned().flatten().enumerate() {
                    if n % 4096 == 0 {
                        stats.check()?;
                    }
                    show(row, index.value(row));
                }
            }
        }
        Ok(())
    }

    /// Finds the rows of a label that have one of the values; `wanted` must be ascending.
    ///
    /// # Errors
    /// As [`Part::series_pages`].
    pub(crate) async fn find(&self, rows: Range<u64>, wanted: &[&str], stats: &ReadStats) -> Result<Vec<u64>> {
        let mut found = Vec::new();
        match self {
            Self::File(index) => {
                let may = |min: &[u8], max: &[u8]| {
                    let first = wanted.partition_point(|value| value.as_bytes() < min);
                    wanted.get(first).is_some_and(|value| value.as_bytes() <= max)
                };
                let pages = index.pages_where(&rows, may);
                for pages in pages.chunks(PAGES_AT_ONCE) {
                    let (_taken, values) = index.pages(pages, pages.len() <= PAGES_KEPT, stats).await?;
                    for (page, values) in pages.iter().zip(&values) {
                        // The page may be shared with another label; only this label's rows are sorted.
                        let own = rows.start.max(page.start)..rows.end.min(page.end);
                        let at = |row: u64| values.value((row - page.start) as usize);
                        let mut from = own.start;
                        for value in wanted {
                            from += partition(own.end - from, |n| at(from + n) < *value);
                            if from < own.end && at(from) == *value {
                                found.push(from);
                            }
                        }
                    }
                }
            }
            Self::Memory(index) => {
                let mut from = rows.start;
                for value in wanted {
                    from += partition(rows.end - from, |n| index.value(from + n) < *value);
                    if from < rows.end && index.value(from) == *value {
                        found.push(from);
                    }
                }
            }
        }
        Ok(found)
    }

    /// The union of the series of some rows; `rows` must be ascending.
    ///
    /// # Errors
    /// As [`Part::series_pages`].
    pub(crate) async fn union(&self, rows: &[u64], stats: &ReadStats) -> Result<RoaringBitmap> {
        if let &[row] = rows {
            return self.one(row, stats).await.map(|one| (*one).clone());
        }
        let mut union = Union::default();
        for rows in rows.chunks(BITMAPS_AT_ONCE) {
            match self {
                Self::Memory(index) => {
                    stats.check()?;
                    for &row in rows {
                        union.add_list(index.postings.of(index.order[row as usize]));
                    }
                }
                Self::File(index) if rows.len() <= BITMAPS_KEPT => {
                    for one in index.several(rows, stats).await? {
                        union.add_bitmap(&one);
                    }
                }
                Self::File(index) => {
                    let (_taken, batches) = index.bitmaps(rows, stats).await?;
                    for batch in &batches {
                        for bytes in batch.column(0).as_binary::<i32>().iter().flatten() {
                            union.add(bytes).ok_or_else(|| damaged(&index.file.key, "a bitmap cannot be read"))?;
                        }
                    }
                }
            }
        }
        stats.take(union.bytes())?;
        Ok(union.finish())
    }

    /// The series of one row.
    ///
    /// # Errors
    /// As [`Part::series_pages`].
    pub(crate) async fn one(&self, row: u64, stats: &ReadStats) -> Result<Arc<RoaringBitmap>> {
        let one = match self {
            Self::Memory(index) => {
                let list = index.postings.of(index.order[row as usize]);
                Arc::new(RoaringBitmap::from_sorted_iter(list.iter().copied()).expect("ascending"))
            }
            Self::File(index) => {
                let mut found = index.several(&[row], stats).await?;
                found.pop().ok_or_else(|| damaged(&index.file.key, "it is shorter than it was written"))?
            }
        };
        stats.take(one.serialized_size())?;
        Ok(one)
    }

    /// The sum of the numbers of series of all rows.
    ///
    /// # Errors
    /// As [`Part::series_pages`].
    pub(crate) async fn count(&self, stats: &ReadStats) -> Result<u64> {
        let rows = self.directory().starts.last().copied().unwrap_or(0);
        let (mut sum, mut next) = (0, 0);
        while next < rows {
            let some: Vec<u64> = (next..(next + BITMAPS_AT_ONCE as u64).min(rows)).collect();
            next += some.len() as u64;
            self.each(&some, stats, &mut |_, series| sum += series.len()).await?;
        }
        Ok(sum)
    }

    /// Calls a function with the series of each row, in order; `rows` must be ascending.
    ///
    /// # Errors
    /// As [`Part::series_pages`].
    pub(crate) async fn each(
        &self,
        rows: &[u64],
        stats: &ReadStats,
        show: &mut (dyn FnMut(u64, &RoaringBitmap) + Send),
    ) -> Result<()> {
        for rows in rows.chunks(BITMAPS_AT_ONCE / 32) {
            match self {
                Self::Memory(index) => {
                    stats.check()?;
                    for &row in rows {
                        let list = index.postings.of(index.order[row as usize]);
                        show(row, &RoaringBitmap::from_sorted_iter(list.iter().copied()).expect("ascending"));
                    }
                }
                Self::File(index) => {
                    let (_taken, batches) = index.bitmaps(rows, stats).await?;
                    let bytes = batches.iter().flat_map(|batch| batch.column(0).as_binary::<i32>().iter().flatten());
                    for (&row, bytes) in rows.iter().zip(bytes) {
                        let bitmap = RoaringBitmap::deserialize_from(bytes);
                        let bitmap = bitmap.map_err(|_| damaged(&index.file.key, "a bitmap cannot be read"))?;
                        show(row, &bitmap);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Binary search: the first of `0..len` for which `before` is false.
fn partition(len: u64, before: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low.midpoint(high);
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

impl FileIndex<'_> {
    /// The pages of values that hold some of the rows and, by their bounds, may hold what is looked for.
    fn pages_where(&self, rows: &Range<u64>, may: impl Fn(&[u8], &[u8]) -> bool) -> Vec<Range<u64>> {
        let mut out = Vec::new();
        for (group, bounds) in self.footer.group_starts().windows(2).enumerate() {
            if bounds[1] <= rows.start || rows.end <= bounds[0] {
                continue;
            }
            let locations = self.footer.page_locations(group, VALUE);
            let column = self.footer.metadata().column_index().and_then(|c| c.get(group)?.get(VALUE));
            let start = |page: usize| locations.get(page).map_or(bounds[1], |p| bounds[0] + p.first_row_index as u64);
            let first = locations.partition_point(|p| bounds[0] + p.first_row_index as u64 <= rows.start);
            for page in first.saturating_sub(1)..locations.len() {
                let own = start(page)..start(page + 1);
                if own.start >= rows.end {
                    break;
                }
                let likely = match column {
                    Some(ColumnIndexMetaData::BYTE_ARRAY(index)) => {
                        match (index.min_value(page), index.max_value(page)) {
                            (Some(min), Some(max)) => may(min, max),
                            _ => true,
                        }
                    }
                    _ => true,
                };
                if likely {
                    out.push(own);
                }
            }
        }
        out
    }

    /// The values of some pages, from the cache or read.
    async fn pages<'s>(
        &self,
        pages: &[Range<u64>],
        keep: bool,
        stats: &'s ReadStats,
    ) -> Result<(LookupMemory<'s>, Vec<StringArray>)> {
        let cache = &self.part.cache().series;
        let id = self.part.meta.id;
        let held = |page: &Range<u64>| match cache.get(&(id, Piece::Values(page.start))) {
            Some(CachedPiece::Values(values)) => Some(values),
            _ => None,
        };
        let mut out: Vec<Option<StringArray>> = pages.iter().map(held).collect();
        let missing: Vec<Range<u64>> =
            pages.iter().zip(&out).filter(|(_, held)| held.is_none()).map(|(page, _)| page.clone()).collect();
        read_stats::add(&stats.cache_hits, (pages.len() - missing.len()) as u64);
        read_stats::add(&stats.cache_misses, missing.len() as u64);
        let cached: usize = out.iter().flatten().map(Array::get_array_memory_size).sum();
        let taken = LookupMemory::new(stats, cached + 2 * self.footer.decoded_bytes(&[VALUE], &missing))?;
        if !missing.is_empty() {
            read_stats::add(&stats.index_pages_read, missing.len() as u64);
            let batches = self.read(&missing, "value", stats).await?;
            let short = || damaged(&self.file.key, "it is shorter than it was written");
            let lens = missing.iter().map(|page| (page.end - page.start) as usize);
            let pieces = split(&batches, lens).ok_or_else(short)?;
            let mut read = Vec::with_capacity(missing.len());
            for (page, batches) in missing.iter().zip(pieces) {
                let texts = batches.iter().flat_map(|batch| batch.column(0).as_string::<i32>().iter());
                // Copied, because a slice would keep adjacent pages in memory.
                let values = StringArray::from(texts.map(|text| text.unwrap_or("")).collect::<Vec<_>>());
                if keep {
                    let bytes = values.get_array_memory_size() as u64 + 128;
                    cache.insert((id, Piece::Values(page.start)), CachedPiece::Values(values.clone()), bytes);
                }
                read.push(values);
            }
            let mut read = read.into_iter();
            out.iter_mut().filter(|values| values.is_none()).for_each(|values| *values = read.next());
        }
        Ok((taken, out.into_iter().flatten().collect()))
    }

    async fn read(&self, rows: &[Range<u64>], column: &'static str, stats: &ReadStats) -> Result<Vec<RecordBatch>> {
        let (part, file, footer) = (self.part, self.file, &*self.footer);
        part.read_batches(file, footer, Selection::of(rows, 8192).only(&[column]), Purpose::Query, stats).await
    }

    /// Reads the serialized bitmaps of some rows.
    async fn bitmaps<'s>(&self, rows: &[u64], stats: &'s ReadStats) -> Result<(LookupMemory<'s>, Vec<RecordBatch>)> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for &row in rows {
            match ranges.last_mut() {
                Some(last) if last.end == row => last.end = row + 1,
                _ => ranges.push(row..row + 1),
            }
        }
        let taken = LookupMemory::new(stats, self.footer.decoded_bytes(&[SERIES], &ranges))?;
        read_stats::add(
            &stats.index_pages_read,
            (rows.len() as u64).div_ceil(super::series_file::INDEX_PAGE_ROWS as u64),
        );
        let batches = self.read(&ranges, "series", stats).await?;
        if batches.iter().map(RecordBatch::num_rows).sum::<usize>() != rows.len() {
            return Err(damaged(&self.file.key, "it is shorter than it was written"));
        }
        Ok((taken, batches))
    }

    /// The series of a few rows, one bitmap each, from the cache or read.
    async fn several(&self, rows: &[u64], stats: &ReadStats) -> Result<Vec<Arc<RoaringBitmap>>> {
        let cache = &self.part.cache().series;
        let held = |row: &u64| match cache.get(&(self.part.meta.id, Piece::Postings(*row))) {
            Some(CachedPiece::Postings(series)) => Some(series),
            _ => None,
        };
        let mut out: Vec<Option<Arc<RoaringBitmap>>> = rows.iter().map(held).collect();
        let missing: Vec<u64> = rows.iter().zip(&out).filter(|(_, held)| held.is_none()).map(|(&row, _)| row).collect();
        read_stats::add(&stats.cache_hits, (rows.len() - missing.len()) as u64);
        read_stats::add(&stats.cache_misses, missing.len() as u64);
        if !missing.is_empty() {
            let (_taken, batches) = self.bitmaps(&missing, stats).await?;
            let bytes = batches.iter().flat_map(|batch| batch.column(0).as_binary::<i32>().iter().flatten());
            let mut read = Vec::with_capacity(missing.len());
            for (&row, bytes) in missing.iter().zip(bytes) {
                let series = RoaringBitmap::deserialize_from(bytes);
                let series = Arc::new(series.map_err(|_| damaged(&self.file.key, "a bitmap cannot be read"))?);
                let size = bytes.len() as u64 + 128;
                let key = (self.part.meta.id, Piece::Postings(row));
                cache.insert(key, CachedPiece::Postings(Arc::clone(&series)), size);
                read.push(series);
            }
            let mut read = read.into_iter();
            out.iter_mut().filter(|series| series.is_none()).for_each(|series| *series = read.next());
        }
        Ok(out.into_iter().flatten().collect())
    }
}

#[cfg(test)]
mod tests;
