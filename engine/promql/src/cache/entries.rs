//! The cached results, limited in bytes; the least recently used are evicted first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use quiver_types::{Access, Version};

use crate::result::StepResult;

/// Cache key: queries with the same key differ only in start and end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// The expression, printed.
    pub(crate) expr: String,
    /// Step in milliseconds.
    pub(crate) step_ms: i64,
    /// Remainder of the steps' times modulo the step.
    pub(crate) phase_ms: i64,
    /// Lookback of instant selectors, in milliseconds.
    pub(crate) lookback_ms: i64,
    /// What the caller may see; results are only shared between equal access rights.
    pub(crate) access: Access,
}

/// A result, with the state of the data that it reflects.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) result: Arc<StepResult>,
    /// Version of the source before the query was evaluated.
    pub(crate) version: Version,
}

/// Caches results; see the module documentation.
#[derive(Debug)]
pub struct ResultCache {
    bytes_max: usize,
    kept: Mutex<CacheState>,
    steps_kept: AtomicU64,
    steps_evaluated: AtomicU64,
}

#[derive(Debug, Default)]
struct CacheState {
    entries: HashMap<Key, Slot, RandomState>,
    bytes: usize,
    clock: u64,
}

#[derive(Debug)]
struct Slot {
    entry: Entry,
    bytes: usize,
    used: u64,
}

/// What a cache holds and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultCacheStats {
    /// Number of cached results.
    pub entries: u64,
    /// Bytes they take, including keys.
    pub bytes: u64,
    /// Steps that were answered from the cache.
    pub steps_kept: u64,
    /// Steps that had to be evaluated, of queries that could have been cached.
    pub steps_evaluated: u64,
}

impl ResultCache {
    /// Creates a cache with a limit in bytes; with 0 it caches nothing.
    pub fn new(bytes_max: usize) -> Self {
        let (steps_kept, steps_evaluated) = Default::default();
        Self { bytes_max, kept: Mutex::default(), steps_kept, steps_evaluated }
    }

    /// Tells whether it caches anything.
    pub(crate) fn is_on(&self) -> bool {
        self.bytes_max > 0
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Entry> {
        let mut kept = self.kept.lock();
        kept.clock += 1;
        let clock = kept.clock;
        let slot = kept.entries.get_mut(key)?;
        slot.used = clock;
        Some(slot.entry.clone())
    }

    pub(crate) fn put(&self, key: Key, entry: Entry) {
        let text = key.expr.len() + size_of::<Key>() + size_of::<Slot>();
        let bytes = text + entry.result.memory_bytes();
        // A single result must not evict all others.
        if bytes > self.bytes_max / 8 {
            return;
        }
        let mut kept = self.kept.lock();
        kept.clock += 1;
        let slot = Slot { entry, bytes, used: kept.clock };
        kept.bytes += bytes;
        if let Some(before) = kept.entries.insert(key, slot) {
            kept.bytes -= before.bytes;
        }
        while kept.bytes > self.bytes_max {
            let oldest = kept.entries.iter().min_by_key(|(_, slot)| slot.used).map(|(key, _)| key.clone());
            let Some(slot) = oldest.and_then(|key| kept.entries.remove(&key)) else { break };
            kept.bytes -= slot.bytes;
        }
    }

    /// Counts steps for the statistics.
    pub(crate) fn count(&self, kept: usize, evaluated: usize) {
        self.steps_kept.fetch_add(kept as u64, Relaxed);
        self.steps_evaluated.fetch_add(evaluated as u64, Relaxed);
    }

    /// Statistics of the cache.
    pub fn stats(&self) -> ResultCacheStats {
        let kept = self.kept.lock();
        ResultCacheStats {
            entries: kept.entries.len() as u64,
            bytes: kept.bytes as u64,
            steps_kept: self.steps_kept.load(Relaxed),
            steps_evaluated: self.steps_evaluated.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::SeriesTable;

    use super::*;
    use crate::kernel::{Block, Grid};

    #[test]
    fn the_oldest_go_when_room_is_short() {
        let key =
            |expr: &str| Key { expr: expr.to_owned(), step_ms: 1, phase_ms: 0, lookback_ms: 1, access: Access::full() };
        let entry = |cells: usize| {
            let block = Block { rows: vec![0], steps: cells, values: vec![0.0; cells], ..Block::default() };
            let grid = Grid { start: 0, step_ms: 1, steps: cells };
            let table = Arc::new(SeriesTable::unlabelled());
            let result = StepResult { table, grid, blocks: Arc::new(vec![block]), order: Arc::new(vec![(0, 0, 0)]) };
            Entry { result: Arc::new(result), version: Version { written: 1, dropped: 0 } }
        };
        let cache = ResultCache::new(100_000);
        (0..8).for_each(|i| cache.put(key(&format!("e{i}")), entry(1000)));
        assert_eq!(cache.stats().entries, 8);
        assert!(cache.get(&key("e0")).is_some());
        (8..14).for_each(|i| cache.put(key(&format!("e{i}")), entry(1000)));
        assert!(cache.get(&key("e0")).is_some() && cache.get(&key("e1")).is_none());
        assert!(cache.stats().bytes <= 100_000);
        cache.put(key("large"), entry(10_000));
        assert!(cache.get(&key("large")).is_none(), "an eighth of the room at most");
    }

    #[test]
    fn what_is_kept_is_what_was_put_last() {
        let key = |step_ms: i64, phase_ms: i64| Key {
            expr: "m".to_owned(),
            step_ms,
            phase_ms,
            lookback_ms: 1,
            access: Access::full(),
        };
        let entry = |written: u64, cells: usize| {
            let block = Block { rows: vec![0], steps: cells, values: vec![0.0; cells], ..Block::default() };
            let table = Arc::new(SeriesTable::unlabelled());
            let grid = Grid { start: 0, step_ms: 1, steps: cells };
            let result = StepResult { table, grid, blocks: Arc::new(vec![block]), order: Arc::new(vec![(0, 0, 0)]) };
            Entry { result: Arc::new(result), version: Version { written, dropped: 0 } }
        };
        let cache = ResultCache::new(100_000);
        cache.put(key(15, 0), entry(1, 1000));
        let before = cache.stats().bytes;
        cache.put(key(15, 0), entry(2, 500));
        let stats = cache.stats();
        assert!(stats.entries == 1 && stats.bytes < before, "{stats:?}: the smaller one took the place of the larger");
        assert_eq!(cache.get(&key(15, 0)).map(|kept| kept.version.written), Some(2));
        // Other steps are other results.
        assert!(cache.get(&key(15, 1)).is_none() && cache.get(&key(30, 0)).is_none());
        let off = ResultCache::new(0);
        off.put(key(15, 0), entry(1, 1));
        assert!(!off.is_on() && cache.is_on() && off.get(&key(15, 0)).is_none());
        assert_eq!((off.stats().entries, off.stats().bytes), (0, 0));
        cache.count(3, 4);
        cache.count(0, 5);
        assert_eq!((cache.stats().steps_kept, cache.stats().steps_evaluated), (3, 9));
    }
}
