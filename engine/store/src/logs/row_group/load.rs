//! Reads columns of a row group: of which rows, and whether through the cache of decoded values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, MapArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::UInt8Type;
use quiver_types::Result;
use quiver_types::logs::SEVERITY_NUMBER;
use quiver_types::read_stats::add;
use quiver_types::tables::logs as table;

use super::GroupBlock;
use super::ranges::{covers, runs};
use crate::decoded_cache::PAGE_BYTES_MAX;
use crate::error::Error;
use crate::logs::column::{Column, Runs, Values};
use crate::logs::open_part::OpenedLogPart;
use crate::part::Purpose;
use crate::part::logs::GroupRows;

/// Rows in more pages of a row group than this are not looked up in cached pages.
const PAGES_MAX: usize = 32;
/// Reading more than one in this many rows takes as long as reading all of them.
const MOST_ROWS: usize = 4;
/// Reading more than one in this many pages takes as long as reading all of them.
const MOST_PAGES: usize = 2;
/// A column counts as read completely if at most one in this many pages is not needed.
const ALL_PAGES: usize = 8;
/// Minimum memory of a decoded value; in files, codes take less.
const VALUE_BYTES: u64 = 4;

/// What may be cached.
#[derive(Debug, Clone, Copy)]
enum CacheUnit {
    /// A page of a column.
    Page(u32),
    /// A column that is read completely anyway.
    Column,
    /// A column of which more is read in order to cache it.
    More,
}

impl GroupBlock {
    /// Reads an array from the file, for at least the selected rows.
    async fn read(&mut self, name: &str, rows: &BooleanBuffer) -> Result<(ArrayRef, Runs)> {
        let runs = runs(rows);
        let whole = 0..self.len() as u32;
        let wanted = runs.as_deref().unwrap_or(std::slice::from_ref(&whole));
        let OpenedLogPart { part, logs, .. } = &*self.opened;
        let selected = GroupRows { logs, group: self.group, rows: wanted };
        let array = part.read_log_column(selected, name, self.purpose, &self.stats).await?;
        self.bytes += array.get_array_memory_size();
        Ok((array, runs.map(Arc::new)))
    }

    /// A column of the file, for at least the selected rows.
    pub(super) async fn load(&mut self, name: &str, digits: Option<u8>, rows: &BooleanBuffer) -> Result<Column> {
        if let Some(known) = self.loaded.get(name)
            && covers(known.at.as_ref(), rows)
        {
            return Ok(known.clone());
        }
        let column = self.load_new(name, digits, rows).await?;
        self.loaded.insert(name.to_owned(), column.clone());
        Ok(column)
    }

    async fn load_new(&mut self, name: &str, digits: Option<u8>, rows: &BooleanBuffer) -> Result<Column> {
        let opened = Arc::clone(&self.opened);
        let cache = opened.part.decoded();
        let is_job = self.purpose == Purpose::Job;
        if !is_job && let Some(values) = cache.get(opened.part.meta.id, self.group, name) {
            add(&self.stats.cache_hits, 1);
            return Ok(Column::whole(values));
        }
        let most = self.takes_most(name, rows);
        if !(is_job || most)
            && let Some(column) = self.load_pages(name, digits, rows).await?
        {
            return Ok(column);
        }
        // Do not read a whole column for the cache if it would not fit.
        let bytes = opened.logs.column_bytes(self.group, name).max(rows.len() as u64 * VALUE_BYTES);
        let has_room = cache.has_room(bytes, opened.logs.groups());
        let admitted = !is_job && most && has_room && {
            let column = if self.takes_all(name, rows) { CacheUnit::Column } else { CacheUnit::More };
            self.admits(name, column)
        };
        let all = BooleanBuffer::new_set(rows.len());
        let (array, at) = self.read(name, if admitted { &all } else { rows }).await?;
        let values = values_of(name, &array, digits)?;
        if admitted && at.is_none() {
            cache.insert(opened.part.meta.id, self.group, name, &values, opened.logs.groups());
        }
        Ok(Column { values, at })
    }

    /// Tells whether reading some rows of a column takes about as long as reading all. If the group is read in windows,
    /// the rows of all windows count.
    fn takes_most(&self, name: &str, rows: &BooleanBuffer) -> bool {
        let logs = &self.opened.logs;
        let rows = self.narrowed.as_ref().filter(|_| self.sweep.is_some()).unwrap_or(rows);
        let pages = logs.pages(self.group, name) / MOST_PAGES;
        rows.count_set_bits() * MOST_ROWS >= rows.len() || logs.pages_of(self.group, name, rows, pages).is_none()
    }

    /// Tells whether (nearly) all pages of a column are read for some rows anyway.
    fn takes_all(&self, name: &str, rows: &BooleanBuffer) -> bool {
        let logs = &self.opened.logs;
        let rows = self.narrowed.as_ref().filter(|_| self.sweep.is_some()).unwrap_or(rows);
        let pages = logs.pages(self.group, name);
        logs.pages_of(self.group, name, rows, pages - pages.div_ceil(ALL_PAGES)).is_none()
    }

    /// Tells whether a column that is about to be read, or a page of it, should be cached; records its use. Reads by
    /// successive windows count as one use.
    fn admits(&mut self, name: &str, kept: CacheUnit) -> bool {
        let (cache, part) = (self.opened.part.decoded(), self.opened.part.meta.id);
        let page = if let CacheUnit::Page(page) = kept { Some(page) } else { None };
        let is_new = self.sweep.as_mut().is_none_or(|asked| asked.insert((name.to_owned(), page)));
        is_new
            && match kept {
                CacheUnit::Page(page) => cache.wants_page(part, self.group, name, page),
                CacheUnit::Column => cache.wants(part, self.group, name),
                CacheUnit::More => cache.wants_more(part, self.group, name),
            }
    }

    /// Reads a few rows of a column from cached pages; `None` if they are not cached. Decompressing whole pages for
    /// single rows is the main cost of looking up a few rows.
    async fn load_pages(&mut self, name: &str, digits: Option<u8>, rows: &BooleanBuffer) -> Result<Option<Column>> {
        let opened = Arc::clone(&self.opened);
        let (part, cache) = (opened.part.meta.id, opened.part.decoded());
        // Pages that are too large would not be cached.
        let fit =
            opened.logs.column_bytes(self.group, name) <= opened.logs.pages(self.group, name) as u64 * PAGE_BYTES_MAX;
        let pages = opened.logs.pages_of(self.group, name, rows, PAGES_MAX);
        let Some(pages) = pages.filter(|pages| fit && !pages.is_empty()) else { return Ok(None) };
        let mut found: Vec<_> = pages.iter().map(|p| cache.page(part, self.group, name, p.0)).collect();
        let (mut missing, mut wanted) = (Vec::new(), true);
        for ((page, range), _) in pages.iter().zip(&found).filter(|(_, known)| known.is_none()) {
            wanted &= self.admits(name, CacheUnit::Page(*page));
            missing.push(range.start as u32..range.end as u32);
        }
        if !wanted {
            return Ok(None);
        }
        add(&self.stats.cache_hits, (pages.len() - missing.len()) as u64);
        if !missing.is_empty() {
            // In one call: the fixed costs of a read are higher than those of a page.
            let selected = GroupRows { logs: &opened.logs, group: self.group, rows: &missing };
            let array = opened.part.read_log_column(selected, name, self.purpose, &self.stats).await?;
            let (read, mut next) = (values_of(name, &array, digits)?, 0);
            for ((page, range), known) in pages.iter().zip(&mut found).filter(|(_, known)| known.is_none()) {
                let own = read.cut(next..next + range.len())?;
                next += range.len();
                cache.insert_page(part, self.group, name, *page, &own);
                *known = Some(own);
            }
        }
        let mut chosen = Vec::with_capacity(pages.len());
        for ((_, range), values) in pages.into_iter().zip(found.into_iter().flatten()) {
            let rows = rows.slice(range.start, range.len());
            chosen.push((Column::whole(values).gather(&rows)?, rows.count_set_bits()));
        }
        let values = Values::concat(&chosen)?;
        self.bytes += values.memory_bytes();
        Ok(Some(Column::of_set(values, rows)))
    }

    /// The overflow map for some rows.
    pub(super) async fn map(&mut self, rows: &BooleanBuffer) -> Result<Option<(MapArray, Runs)>> {
        if !self.opened.logs.has.overflow {
            return Ok(None);
        }
        if let Some((map, at)) = &self.overflow
            && covers(at.as_ref(), rows)
        {
            return Ok(Some((map.clone(), at.clone())));
        }
        let (array, at) = self.read(table::FIELDS, rows).await?;
        let map = array.as_map_opt().ok_or_else(|| Error::internal("the overflow map is none"))?.clone();
        self.overflow = Some((map.clone(), at.clone()));
        Ok(Some((map, at)))
    }
}

/// Converts an array from a file to the values of a column.
fn values_of(name: &str, array: &ArrayRef, digits: Option<u8>) -> Result<Values> {
    if name != SEVERITY_NUMBER {
        return Values::of(array, digits);
    }
    let numbers = array.as_primitive_opt::<UInt8Type>();
    let numbers = numbers.ok_or_else(|| Error::internal("severities are of another type"))?;
    Ok(Values::Int(numbers.iter().map(|n| n.map(i64::from)).collect::<Int64Array>()))
}
