//! A cache of decoded columns of row groups: decoding is most of the cost of a warm query.
//!
//! A column of a row group is admitted at its second use; dictionary columns stay dictionary-encoded. Columns of
//! distinct texts are kept only if the whole column fits in a fraction of the budget, or one scan of log messages would
//! evict everything else. For look-ups of single rows, decoded pages are kept in the same way: of logs by column, of
//! spans with all flat columns, and of indexes of traces that are too large to be kept as a whole.
//!
//! While little of the budget is used, columns and pages of logs are admitted at their first use, since nothing has to
//! be evicted for them. What would be read and decoded only for the cache still waits for a second use: pages of a
//! column that the first reader did not ask for, further columns of a page of spans.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, RecordBatch};
use arrow::datatypes::Schema;
use hashbrown::HashSet;

use crate::logs::column::Values;
use crate::lru::{CacheStats, Lru, Room};
use crate::part::PartId;

/// Part, row group, column, page.
type Key = (PartId, u32, Arc<str>, u32);

/// Instead of a page: the whole column of the row group.
const WHOLE: u32 = u32::MAX;
/// Largest page that is cached, in bytes (dictionary codes come with a dictionary of their own).
pub(crate) const PAGE_BYTES_MAX: u64 = 384 * 1024;
/// Instead of a column: all flat columns of a page of spans.
const ROWS: &str = "";
/// Instead of a column: entries of the index of traces, by the first row instead of a page. No column has this name.
const ENTRIES: &str = "\0";
/// Largest page with all flat columns that is cached, in bytes.
pub(crate) const ROWS_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// How many first uses are remembered, so that a second one is recognized.
const SEEN_MAX: u64 = 64 * 1024;
/// All row groups of a column together may take at most this fraction (1/n) of the budget.
const COLUMN_SHARE: u64 = 4;
/// The cache counts as nearly empty while less than this fraction (1/n) of the budget is taken.
const LITTLE_SHARE: u64 = 4;

/// A cached value.
#[derive(Debug, Clone)]
enum CachedColumn {
    /// A column of logs.
    Values(Values),
    /// A column of spans.
    Array(ArrayRef),
    /// A page of spans (without rows if it is too large to be cached), or rows of their index.
    Rows(Arc<RecordBatch>),
}

impl CachedColumn {
    fn values(self) -> Option<Values> {
        match self {
            Self::Values(values) => Some(values),
            Self::Array(_) | Self::Rows(_) => None,
        }
    }
}

fn entries_key(part: PartId, rows: &Range<u64>) -> Key {
    // A part has less than 2^32 spans, and no more traces.
    (part, 0, ENTRIES.into(), rows.start as u32)
}

/// The cache of decoded columns and pages.
#[derive(Debug)]
pub(crate) struct DecodedCache {
    columns: Lru<Key, CachedColumn>,
    seen: Lru<Key, ()>,
    bytes_max: u64,
}

impl DecodedCache {
    /// Makes a cache with a guaranteed share of a shared budget.
    pub(crate) fn within(room: &Arc<Room>, share: u64) -> Self {
        Self { columns: Lru::within(room, share, 4), seen: Lru::new(SEEN_MAX, 4), bytes_max: share }
    }

    /// Makes a cache with a budget of its own, in bytes; 0 switches it off.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self::within(&Room::new(bytes_max), bytes_max)
    }

    /// Gives a column of a row group.
    pub(crate) fn get(&self, part: PartId, group: usize, column: &str) -> Option<Values> {
        if self.bytes_max == 0 {
            return None;
        }
        self.columns.get(&(part, group as u32, column.into(), WHOLE)).and_then(CachedColumn::values)
    }

    /// Gives a column of a row group of spans.
    pub(crate) fn array(&self, part: PartId, group: usize, column: &str) -> Option<ArrayRef> {
        if self.bytes_max == 0 {
            return None;
        }
        match self.columns.get(&(part, group as u32, column.into(), WHOLE)) {
            Some(CachedColumn::Array(array)) => Some(array),
            _ => None,
        }
    }

    /// Caches a column of one of `groups` row groups of spans, if it fits.
    pub(crate) fn insert_array(&self, part: PartId, group: usize, column: &str, array: &ArrayRef, groups: usize) {
        let bytes = array.get_array_memory_size() as u64;
        if self.has_room(bytes, groups) {
            let key = (part, group as u32, column.into(), WHOLE);
            self.columns.insert(key, CachedColumn::Array(Arc::clone(array)), bytes);
        }
    }

    /// Says whether a column that is about to be read should be cached; records the use.
    pub(crate) fn wants(&self, part: PartId, group: usize, column: &str) -> bool {
        self.wants_page(part, group, column, WHOLE)
    }

    /// Like [`Self::wants`] if caching means reading more than was requested: the first request does not wait for that.
    pub(crate) fn wants_more(&self, part: PartId, group: usize, column: &str) -> bool {
        self.is_used_again((part, group as u32, column.into(), WHOLE))
    }

    /// Like [`Self::wants`], for a page.
    pub(crate) fn wants_page(&self, part: PartId, group: usize, column: &str, page: u32) -> bool {
        self.is_used_again((part, group as u32, column.into(), page)) || self.keeps_little()
    }

    /// Like [`Self::wants_more`], for a page.
    pub(crate) fn wants_more_page(&self, part: PartId, group: usize, column: &str, page: u32) -> bool {
        self.is_used_again((part, group as u32, column.into(), page))
    }

    fn is_used_again(&self, key: Key) -> bool {
        if self.bytes_max == 0 {
            return false;
        }
        let again = self.seen.get(&key).is_some();
        if !again {
            self.seen.insert(key, (), 1);
        }
        again
    }

    /// Says whether the cache is nearly empty, so that it admits values at their first use.
    fn keeps_little(&self) -> bool {
        self.columns.bytes() < self.bytes_max / LITTLE_SHARE
    }

    /// Says whether a column of `bytes` in one of `groups` row groups fits.
    pub(crate) fn has_room(&self, bytes: u64, groups: usize) -> bool {
        bytes * groups as u64 * COLUMN_SHARE <= self.bytes_max
    }

    /// Caches a column of one of `groups` row groups, if it fits.
    pub(crate) fn insert(&self, part: PartId, group: usize, column: &str, values: &Values, groups: usize) {
        let bytes = values.memory_bytes() as u64;
        if self.has_room(bytes, groups) {
            let key = (part, group as u32, column.into(), WHOLE);
            self.columns.insert(key, CachedColumn::Values(values.clone()), bytes);
        }
    }

    /// Gives a page of a column of a row group.
    pub(crate) fn page(&self, part: PartId, group: usize, column: &str, page: u32) -> Option<Values> {
        if self.bytes_max == 0 {
            return None;
        }
        self.columns.get(&(part, group as u32, column.into(), page)).and_then(CachedColumn::values)
    }

    /// Caches a page, if it fits.
    pub(crate) fn insert_page(&self, part: PartId, group: usize, column: &str, page: u32, values: &Values) {
        let bytes = values.memory_bytes() as u64;
        if bytes <= PAGE_BYTES_MAX {
            let key = (part, group as u32, column.into(), page);
            self.columns.insert(key, CachedColumn::Values(values.clone()), bytes);
        }
    }

    /// Gives a page of a column of a row group of spans.
    pub(crate) fn page_array(&self, part: PartId, group: usize, column: &str, page: u32) -> Option<ArrayRef> {
        if self.bytes_max == 0 {
            return None;
        }
        match self.columns.get(&(part, group as u32, column.into(), page)) {
            Some(CachedColumn::Array(array)) => Some(array),
            _ => None,
        }
    }

    /// Caches a page of a column of spans, if it fits.
    pub(crate) fn insert_page_array(&self, part: PartId, group: usize, column: &str, page: u32, array: &ArrayRef) {
        let bytes = array.get_array_memory_size() as u64;
        if bytes <= PAGE_BYTES_MAX {
            let key = (part, group as u32, column.into(), page);
            self.columns.insert(key, CachedColumn::Array(Arc::clone(array)), bytes);
        }
    }

    /// Gives a page of spans; one without rows was too large, and is not worth reading again for the cache.
    pub(crate) fn rows(&self, part: PartId, group: usize, page: u32) -> Option<Arc<RecordBatch>> {
        if self.bytes_max == 0 {
            return None;
        }
        match self.columns.get(&(part, group as u32, ROWS.into(), page)) {
            Some(CachedColumn::Rows(rows)) => Some(rows),
            _ => None,
        }
    }

    /// Says whether a page of spans that is about to be read should be cached; records the use.
    pub(crate) fn wants_rows(&self, part: PartId, group: usize, page: u32) -> bool {
        self.has_room(ROWS_BYTES_MAX, 1) && self.is_used_again((part, group as u32, ROWS.into(), page))
    }

    /// Caches a page of spans, or the fact that it is too large.
    pub(crate) fn insert_rows(&self, part: PartId, group: usize, page: u32, rows: &Arc<RecordBatch>) {
        let bytes = rows.get_array_memory_size() as u64;
        let (rows, bytes) = if bytes <= ROWS_BYTES_MAX {
            (Arc::clone(rows), bytes)
        } else {
            (Arc::new(RecordBatch::new_empty(Arc::new(Schema::empty()))), 1)
        };
        self.columns.insert((part, group as u32, ROWS.into(), page), CachedColumn::Rows(rows), bytes);
    }

    /// Gives rows of the index of traces of a part.
    pub(crate) fn entries(&self, part: PartId, rows: &Range<u64>) -> Option<Arc<RecordBatch>> {
        match self.columns.get(&entries_key(part, rows)) {
            Some(CachedColumn::Rows(found)) if found.num_rows() as u64 == rows.end - rows.start => Some(found),
            _ => None,
        }
    }

    /// Says whether rows of such an index that are about to be read should be cached; records the use.
    pub(crate) fn wants_entries(&self, part: PartId, rows: &Range<u64>) -> bool {
        self.is_used_again(entries_key(part, rows))
    }

    /// Caches rows of such an index, if they fit.
    pub(crate) fn insert_entries(&self, part: PartId, rows: &Range<u64>, found: &RecordBatch) {
        let bytes = found.get_array_memory_size() as u64;
        if bytes <= PAGE_BYTES_MAX {
            self.columns.insert(entries_key(part, rows), CachedColumn::Rows(Arc::new(found.clone())), bytes);
        }
    }

    /// Drops the entries of parts that no longer exist.
    pub(crate) fn forget(&self, parts: &HashSet<PartId>) {
        self.columns.retain(|key| !parts.contains(&key.0));
        self.seen.retain(|key| !parts.contains(&key.0));
    }

    /// Gives its counters.
    pub(crate) fn stats(&self) -> CacheStats {
        self.columns.stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_at_the_second_use_and_only_while_it_fits() {
        let (part, other) = (PartId::from_u128(7), PartId::from_u128(8));
        let values = Values::Int(vec![1i64; 1000].into());
        let cache = DecodedCache::new(values.memory_bytes() as u64 * 8 * LITTLE_SHARE);
        for page in 0..8 {
            cache.insert_page(other, 0, "z", page, &values);
        }
        assert!(!cache.wants(part, 0, "a") && cache.wants(part, 0, "a") && !cache.wants(part, 1, "a"));
        cache.insert(part, 0, "a", &values, 1);
        assert!(cache.get(part, 0, "a").is_some() && cache.get(part, 0, "b").is_none());
        cache.insert(part, 0, "b", &values, 1000);
        assert!(cache.get(part, 0, "b").is_none());
        assert_eq!(cache.stats().entries, 9);
        assert!(!cache.wants_page(part, 0, "c", 3) && cache.wants_page(part, 0, "c", 3));
        cache.insert_page(part, 0, "c", 3, &values);
        assert!(cache.page(part, 0, "c", 3).is_some() && cache.page(part, 0, "c", 4).is_none());
        assert!(cache.get(part, 0, "c").is_none());
        assert!(!DecodedCache::new(0).wants(part, 0, "a"));
        cache.forget(&HashSet::from([part]));
        assert_eq!(cache.stats().entries, 8);
        assert!(!cache.wants(part, 0, "a"), "as if it had never been");
        cache.forget(&HashSet::from([other]));
        assert_eq!((cache.stats().entries, cache.stats().bytes), (0, 0));
    }

    #[test]
    fn little_is_kept_until_a_part_of_the_budget_is_taken() {
        let values = Values::Int(vec![1i64; 1000].into());
        let cache = DecodedCache::new(values.memory_bytes() as u64 * LITTLE_SHARE * 2);
        let part = PartId::from_u128(7);
        for page in 0..2 {
            assert!(cache.wants_page(part, 0, "a", page), "page {page}");
            cache.insert_page(part, 0, "a", page, &values);
        }
        assert!(!cache.wants(part, 0, "b"));
        cache.forget(&HashSet::from([part]));
        assert!(!cache.wants_more(part, 0, "c") && cache.wants_more(part, 0, "c"), "more than is asked for");
        assert!(cache.wants(part, 0, "b") && !DecodedCache::new(0).wants(part, 0, "b"));
    }

    #[test]
    fn pages_of_spans_are_kept_or_known_to_be_too_large() {
        let rows = |count: usize| {
            let array: ArrayRef = Arc::new(arrow::array::Int64Array::from(vec![1; count]));
            Arc::new(RecordBatch::try_from_iter([("n", array)]).unwrap())
        };
        let part = PartId::from_u128(7);
        let cache = DecodedCache::new(ROWS_BYTES_MAX * COLUMN_SHARE);
        assert!(!cache.wants_rows(part, 2, 3) && cache.wants_rows(part, 2, 3) && cache.rows(part, 2, 3).is_none());
        cache.insert_rows(part, 2, 3, &rows(1000));
        assert_eq!(cache.rows(part, 2, 3).map(|kept| kept.num_rows()), Some(1000));
        assert!(cache.page(part, 2, ROWS, 3).is_none() && cache.rows(part, 2, 4).is_none());
        cache.insert_rows(part, 2, 4, &rows(ROWS_BYTES_MAX as usize / 8 + 1));
        assert_eq!(cache.rows(part, 2, 4).map(|kept| kept.num_rows()), Some(0));
        let ids: ArrayRef = Arc::new(arrow::array::Int64Array::from(vec![1; 1000]));
        assert!(!cache.wants_more_page(part, 2, "id", 3) && cache.wants_more_page(part, 2, "id", 3));
        cache.insert_page_array(part, 2, "id", 3, &ids);
        assert_eq!(cache.page_array(part, 2, "id", 3).map(|kept| kept.len()), Some(1000));
        assert!(cache.page_array(part, 2, "id", 4).is_none() && cache.array(part, 2, "id").is_none());
        let small = DecodedCache::new(ROWS_BYTES_MAX);
        assert!(!small.wants_rows(part, 2, 3) && !small.wants_rows(part, 2, 3), "no page would have room");
    }
}
