//! The series of a part, in pages: identities, services, time ranges, and the row ranges of each series in the other
//! files.
//!
//! A query decodes only pages that hold selected series, and no labels. Of a page with few selected series it keeps
//! only those. Pages are cached; labels are read by `index` and `labels`.

pub(super) mod page;

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use quiver_types::{MillisRange, ReadStats, read_stats};

use super::FileMeta;
use super::byte_ranges::{Purpose, Selection};
use super::footer::damaged;
use super::reader::Part;
use super::run_reader::LABEL_BYTES;
use crate::cache::{CachedPiece, Piece};
use crate::error::Result;
use crate::sample_blocks::block_starts;

use page::{PAGE_SERIES, SIBLINGS, SeriesPage, SeriesRows};

/// If fewer than one in this many series of a page are selected, a query keeps only those instead of the whole page.
const FEW: usize = 16;

/// Splits batches that were read in one go into pieces with the given numbers of rows; `None` if the numbers do not
/// match.
pub(super) fn split(batches: &[RecordBatch], lens: impl Iterator<Item = usize>) -> Option<Vec<Vec<RecordBatch>>> {
    let (mut at, mut from) = (0, 0);
    let mut out = Vec::new();
    for mut len in lens {
        let mut piece = Vec::with_capacity(1);
        while len > 0 {
            let batch = batches.get(at)?;
            let rows = len.min(batch.num_rows() - from);
            if rows > 0 {
                piece.push(batch.slice(from, rows));
            }
            (len, from) = (len - rows, from + rows);
            if from == batch.num_rows() {
                (at, from) = (at + 1, 0);
            }
        }
        out.push(piece);
    }
    Some(out)
}

/// Merges ascending numbers of equally sized pages into row ranges.
fn rows_of_pages(pages: &[u32], series: u64) -> Vec<Range<u64>> {
    let mut out: Vec<Range<u64>> = Vec::new();
    for &page in pages {
        let start = u64::from(page) * u64::from(PAGE_SERIES);
        let end = (start + u64::from(PAGE_SERIES)).min(series);
        match out.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => out.push(start..end),
        }
    }
    out
}

impl Part {
    fn series_file(&self) -> Result<&FileMeta> {
        self.meta.file("series").ok_or_else(|| damaged(&self.meta.id.to_string(), "the part has no series file"))
    }

    pub(crate) fn series_count(&self) -> u32 {
        self.meta.file("series").map_or(0, |file| file.rows) as u32
    }

    /// The page that holds a series.
    ///
    /// # Errors
    /// As [`Part::series_pages`].
    pub async fn series_page(&self, series: u32, stats: &ReadStats) -> Result<Arc<SeriesPage>> {
        let pages = self.pages(&[series / PAGE_SERIES], Purpose::Query, stats).await?;
        let file = self.series_file()?;
        pages.into_iter().next().ok_or_else(|| damaged(&file.key, "it is shorter than it was written"))
    }

    /// The pages that hold some series, from the cache or read; `numbers` must be ascending.
    ///
    /// # Errors
    /// Damaged: a file is damaged or gone. Unavailable: the store does not answer. Those of the memory gate.
    pub async fn series_pages(&self, numbers: &[u32], stats: &ReadStats) -> Result<Vec<Arc<SeriesPage>>> {
        let mut pages: Vec<u32> = numbers.chunk_by(|a, b| a / PAGE_SERIES == b / PAGE_SERIES).map(|c| c[0]).collect();
        for number in &mut pages {
            *number /= PAGE_SERIES;
        }
        self.pages(&pages, Purpose::Query, stats).await
    }

    pub(super) async fn pages(
        &self,
        wanted: &[u32],
        purpose: Purpose,
        stats: &ReadStats,
    ) -> Result<Vec<Arc<SeriesPage>>> {
        let mut out: Vec<Option<Arc<SeriesPage>>> = Vec::with_capacity(wanted.len());
        for &page in wanted {
            let held =
                self.cache().series.get(&(self.meta.id, Piece::Page(page))).filter(|_| purpose == Purpose::Query);
            out.push(if let Some(CachedPiece::Page(page)) = held { Some(page) } else { None });
        }
        let missing: Vec<u32> = wanted.iter().zip(&out).filter(|(_, o)| o.is_none()).map(|(&page, _)| page).collect();
        read_stats::add(&stats.cache_hits, (wanted.len() - missing.len()) as u64);
        read_stats::add(&stats.cache_misses, missing.len() as u64);
        let mut read = self.read_pages(&missing, purpose, stats).await?.into_iter();
        for out in &mut out {
            if out.is_none() {
                *out = read.next();
            }
        }
        Ok(out.into_iter().flatten().collect())
    }

    /// Reads all series and the whole index a few pages at a time, like a query would; returns the number of series.
    ///
    /// # Errors
    /// As [`Part::series_pages`]; also if the index does not cover every label of every series.
    pub(crate) async fn confirm_series(&self, stats: &ReadStats) -> Result<u64> {
        const PAGES: usize = 16;
        let file = self.series_file()?;
        let pages: Vec<u32> = (0..self.series_count().div_ceil(PAGE_SERIES)).collect();
        let (mut series, mut pairs) = (0u64, 0u64);
        for pages in pages.chunks(PAGES) {
            for page in self.pages(pages, Purpose::Job, stats).await? {
                series += u64::from(page.numbers().end - page.numbers().start);
            }
            let first = pages.first().map_or(0, |page| page * PAGE_SERIES);
            let end = pages.last().map_or(0, |page| (page + 1) * PAGE_SERIES).min(self.series_count());
            let mut next = first;
            while next < end {
                // Each may have many kilobytes.
                let some = self.series_within(next..end, LABEL_BYTES, stats).await?;
                next = some.end;
                let sets = self.label_sets(some, Purpose::Job, stats).await?;
                pairs += sets.iter().map(|set| set.iter().count() as u64).sum::<u64>();
            }
        }
        let indexed = match self.meta.file("index") {
            Some(_) => self.label_index(stats).await?.count(stats).await?,
            None => 0,
        };
        if indexed != pairs {
            return Err(damaged(&file.key, &format!("it has {pairs} labels and its index knows {indexed}")));
        }
        Ok(series)
    }

    async fn read_pages(&self, missing: &[u32], purpose: Purpose, stats: &ReadStats) -> Result<Vec<Arc<SeriesPage>>> {
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        let file = self.series_file()?;
        let footer = self.footer(file, stats).await?;
        let mut columns = vec!["series_id", "service", "min_time", "max_time"];
        let siblings = SIBLINGS.iter().filter(|(kind, _)| self.meta.file(kind).is_some());
        columns.extend(siblings.flat_map(|(_, columns)| columns));
        read_stats::add(&stats.index_pages_read, missing.len() as u64);
        let ranges = rows_of_pages(missing, footer.rows());
        let size = PAGE_SERIES as usize;
        let batches =
            self.read_batches(file, &footer, Selection::of(&ranges, size).only(&columns), purpose, stats).await?;
        let lens = missing.iter().map(|&page| {
            let start = u64::from(page) * u64::from(PAGE_SERIES);
            (footer.rows().saturating_sub(start)).min(u64::from(PAGE_SERIES)) as usize
        });
        let short = || damaged(&file.key, "it is shorter than it was written");
        let mut out = Vec::with_capacity(missing.len());
        for (&number, batches) in missing.iter().zip(split(&batches, lens).ok_or_else(short)?) {
            let mut page = SeriesPage::starting(number * PAGE_SERIES);
            for batch in &batches {
                page.add(batch).ok_or_else(|| damaged(&file.key, "its columns are not those of series"))?;
            }
            if !page.fits(&self.meta, footer.rows()) {
                return Err(damaged(&file.key, "its rows are not those of its siblings"));
            }
            let samples = page.numbers().map(|series| page.samples(series).rows);
            page.blocks = block_starts(samples).into_iter().map(|start| start + page.first).collect();
            let page = Arc::new(page);
            if purpose == Purpose::Query {
                let bytes = page.memory_bytes() as u64;
                self.cache().series.insert(
                    (self.meta.id, Piece::Page(number)),
                    CachedPiece::Page(Arc::clone(&page)),
                    bytes,
                );
            }
            out.push(page);
        }
        Ok(out)
    }
}

/// What is kept of one selected series.
#[derive(Debug, Clone, Copy)]
struct Few {
    series: u32,
    rows: [(u64, u32); 3],
    range: MillisRange,
    block: (u32, u32),
    block_samples: u64,
}

#[derive(Debug)]
enum PageSelection {
    Page(Arc<SeriesPage>),
    Few(Vec<Few>),
}

/// What a query knows about the series it selected in a part.
#[derive(Debug, Default)]
pub struct ChosenSeries {
    /// Pages by number, ascending.
    pages: Vec<(u32, PageSelection)>,
}

impl ChosenSeries {
    /// Keeps what a query needs of its series, and reserves the memory for it. `numbers` must be ascending and lie in
    /// the pages.
    ///
    /// # Errors
    /// Those of the memory gate.
    pub(crate) fn new(pages: &[Arc<SeriesPage>], numbers: &[u32], stats: &ReadStats) -> Result<Self> {
        let mut out = Vec::with_capacity(pages.len());
        let mut rest = numbers;
        for page in pages {
            let (here, after) = rest.split_at(rest.partition_point(|&n| n < page.numbers().end));
            rest = after;
            if here.is_empty() {
                continue;
            }
            let number = page.first / PAGE_SERIES;
            if here.len() * FEW >= page.numbers().len() {
                stats.take(page.memory_bytes())?;
                out.push((number, PageSelection::Page(Arc::clone(page))));
                continue;
            }
            stats.take(size_of_val(here) / size_of::<u32>() * size_of::<Few>())?;
            let few = here.iter().map(|&series| {
                let rows = [0, 1, 2].map(|sibling| page.rows(sibling, series)).map(|r| (r.first, r.rows as u32));
                let block = page.block(series);
                let (block, block_samples) = ((block.start, block.end), page.block_samples(series));
                Few { series, rows, range: page.range(series), block, block_samples }
            });
            out.push((number, PageSelection::Few(few.collect())));
        }
        Ok(Self { pages: out })
    }

    fn kept(&self, series: u32) -> &PageSelection {
        let page = series / PAGE_SERIES;
        let first = self.pages.first().map_or(0, |(number, _)| *number);
        // Pages are usually consecutive.
        let guess = self.pages.get((page - first) as usize).filter(|(number, _)| *number == page);
        let found = guess.or_else(|| Some(&self.pages[self.pages.binary_search_by_key(&page, |p| p.0).ok()?]));
        &found.expect("asked for a chosen series").1
    }

    fn few(list: &[Few], series: u32) -> &Few {
        let at = list.binary_search_by_key(&series, |few| few.series);
        &list[at.expect("asked for a chosen series")]
    }

    fn rows(&self, sibling: usize, series: u32) -> SeriesRows {
        match self.kept(series) {
            PageSelection::Page(page) => page.rows(sibling, series),
            PageSelection::Few(list) => {
                let (first, rows) = Self::few(list, series).rows[sibling];
                SeriesRows { series, first, rows: u64::from(rows) }
            }
        }
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

    /// Times of the first and last sample of a series.
    pub fn range(&self, series: u32) -> MillisRange {
        match self.kept(series) {
            PageSelection::Page(page) => page.range(series),
            PageSelection::Few(list) => Self::few(list, series).range,
        }
    }

    /// The series in the same block of decoded samples as a series.
    pub(crate) fn block(&self, series: u32) -> Range<u32> {
        match self.kept(series) {
            PageSelection::Page(page) => page.block(series),
            PageSelection::Few(list) => {
                let (start, end) = Self::few(list, series).block;
                start..end
            }
        }
    }

    pub(crate) fn block_samples(&self, series: u32) -> u64 {
        match self.kept(series) {
            PageSelection::Page(page) => page.block_samples(series),
            PageSelection::Few(list) => Self::few(list, series).block_samples,
        }
    }

    /// Number of pages that hold the selected series.
    pub(crate) fn pages(&self) -> usize {
        self.pages.len()
    }
}

#[cfg(test)]
mod tests;
