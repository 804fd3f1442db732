//! Caches of what every query needs of a part: footers with page indexes, pages of series and labels, and hot blocks of
//! remote files. Bounded by bytes, least recently used go first.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow::array::StringArray;
use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use roaring::RoaringBitmap;

use crate::decoded::DecodedCache;
use crate::part::logs::{ColumnIndex, KeptPiece, PartLogs, StreamPiece};
use crate::part::spans::{SpanIndex, TraceFilter};
use crate::part::{Footer, MemoryIndex, PartId, SeriesPage};
use crate::sample_blocks::SampleBlocks;

/// A map that forgets the least recently used entries; bounded by the sum of the entries' own sizes. Sharded by key.
#[derive(Debug)]
pub struct Lru<K, V> {
    shards: Box<[Mutex<Shard<K, V>>]>,
    shard_bytes_max: u64,
    hasher: foldhash::fast::RandomState,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Debug)]
struct Shard<K, V> {
    entries: HashMap<K, Entry<V>, foldhash::fast::RandomState>,
    /// Keys by last use.
    order: BTreeMap<u64, K>,
    clock: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    bytes: u64,
    used: u64,
}

/// What a cache holds and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStats {
    /// Look-ups that it answered.
    pub hits: u64,
    /// Look-ups that it did not.
    pub misses: u64,
    /// Entries that it holds now.
    pub entries: u64,
    /// Bytes of the entries that it holds now, as they were told when they were put in.
    pub bytes: u64,
}

impl<K: Hash + Eq + Clone, V: Clone> Lru<K, V> {
    /// Makes a cache of at most so many bytes. An entry greater than a shard's part of them is never kept.
    pub fn new(bytes_max: u64, shards: usize) -> Self {
        let shard = || Shard { entries: HashMap::default(), order: BTreeMap::new(), clock: 0, bytes: 0 };
        Self {
            shards: (0..shards).map(|_| Mutex::new(shard())).collect(),
            shard_bytes_max: bytes_max / shards as u64,
            hasher: foldhash::fast::RandomState::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    fn shard(&self, key: &K) -> &Mutex<Shard<K, V>> {
        &self.shards[(self.hasher.hash_one(key) >> 32) as usize % self.shards.len()]
    }

    /// Gives an entry and marks it as used.
    pub fn get(&self, key: &K) -> Option<V> {
        let mut shard = self.shard(key).lock();
        let shard = &mut *shard;
        let Some(entry) = shard.entries.get_mut(key) else {
            self.misses.fetch_add(1, Relaxed);
            return None;
        };
        self.hits.fetch_add(1, Relaxed);
        shard.clock += 1;
        if let Some(key) = shard.order.remove(&entry.used) {
            shard.order.insert(shard.clock, key);
        }
        entry.used = shard.clock;
        Some(entry.value.clone())
    }

    /// Adds or replaces an entry, and forgets old ones to make room.
    pub fn insert(&self, key: K, value: V, bytes: u64) {
        let mut shard = self.shard(&key).lock();
        shard.remove(&key);
        if bytes > self.shard_bytes_max {
            return;
        }
        while shard.bytes + bytes > self.shard_bytes_max {
            let Some((_, oldest)) = shard.order.pop_first() else { break };
            if let Some(entry) = shard.entries.remove(&oldest) {
                shard.bytes -= entry.bytes;
            }
        }
        shard.clock += 1;
        shard.bytes += bytes;
        let used = shard.clock;
        shard.order.insert(used, key.clone());
        shard.entries.insert(key, Entry { value, bytes, used });
    }

    /// Forgets an entry.
    pub fn remove(&self, key: &K) {
        self.shard(key).lock().remove(key);
    }

    /// Forgets the entries whose keys are not kept.
    pub fn retain(&self, keep: impl Fn(&K) -> bool) {
        for shard in &self.shards {
            let shard = &mut *shard.lock();
            let (order, bytes) = (&mut shard.order, &mut shard.bytes);
            shard.entries.retain(|key, entry| {
                let kept = keep(key);
                if !kept {
                    order.remove(&entry.used);
                    *bytes -= entry.bytes;
                }
                kept
            });
        }
    }

    /// Forgets all entries; hits and misses go on counting.
    pub fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.entries.clear();
            shard.order.clear();
            shard.bytes = 0;
        }
    }

    /// Bytes of all entries.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().bytes).sum()
    }

    /// Gives its counters.
    pub fn stats(&self) -> CacheStats {
        let (mut entries, mut bytes) = (0, 0);
        for shard in &self.shards {
            let shard = shard.lock();
            entries += shard.entries.len() as u64;
            bytes += shard.bytes;
        }
        CacheStats { hits: self.hits.load(Relaxed), misses: self.misses.load(Relaxed), entries, bytes }
    }
}

impl<K: Hash + Eq, V> Shard<K, V> {
    fn remove(&mut self, key: &K) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&entry.used);
            self.bytes -= entry.bytes;
        }
    }
}

/// What is kept of the series of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Piece {
    /// A page of series, by number.
    Page(u32),
    /// Values of a label, by the first row of their page.
    Values(u64),
    /// The series of one (label, value), by row.
    Postings(u64),
    /// The index of a part without one on disk.
    Index,
}

/// What is kept under a [`Piece`] of the same kind.
#[derive(Debug, Clone)]
pub(crate) enum Held {
    /// A page of series.
    Page(Arc<SeriesPage>),
    /// Values of a page of a label.
    Values(StringArray),
    /// Numbers of the series that have a value.
    Postings(Arc<RoaringBitmap>),
    /// The index of a part, made in memory.
    Index(Arc<MemoryIndex>),
}

/// The caches of a store.
#[derive(Debug)]
pub struct Caches {
    /// Footers with page indexes, by part and kind of file.
    pub footers: Lru<(PartId, u8), Arc<Footer>>,
    /// Pages of series and of the index of their labels.
    pub(crate) series: Lru<(PartId, Piece), Held>,
    /// Where traces are.
    pub(crate) span_indexes: Lru<PartId, Arc<SpanIndex>>,
    /// Filters of trace ids.
    pub(crate) traces: Lru<PartId, Arc<TraceFilter>>,
    /// Checked blocks of remote files, by part, kind of file and number of the block.
    pub blocks: Lru<(PartId, u8, u32), Bytes>,
    /// What is known of parts of logs.
    pub(crate) logs: Lru<PartId, Arc<PartLogs>>,
    /// What was read of their streams.
    pub(crate) streams: Lru<(PartId, StreamPiece), KeptPiece>,
    /// Filters of words of parts of logs, by column.
    pub(crate) words: Lru<(PartId, String), Arc<ColumnIndex>>,
    /// Decoded columns of logs.
    pub(crate) decoded: DecodedCache,
    /// Decoded samples of metrics.
    pub(crate) samples: SampleBlocks,
}

impl Caches {
    /// Splits a budget: half of it goes to what is decoded, and over a remote store half of the rest to hot blocks.
    pub fn new(bytes_max: u64, remote: bool) -> Self {
        let decoded = bytes_max / 2;
        let blocks = if remote { (bytes_max - decoded) / 2 } else { 0 };
        // Shares that are not in use hold nothing: the sum is a bound, not what is taken.
        let logs = (bytes_max - decoded - blocks) / 2;
        let rest = bytes_max - decoded - blocks - logs;
        Self {
            footers: Lru::new(rest / 4, 4),
            // One shard: the index of a part that was written before there was one on disk must fit when it can.
            series: Lru::new(rest / 2, 1),
            span_indexes: Lru::new(rest / 4, 1),
            blocks: Lru::new(blocks, 8),
            logs: Lru::new(logs / 8, 2),
            // Columns of blocks, pages of labels: many of some 20 kB, and the codes of a label, which must fit, too.
            streams: Lru::new(logs / 2, 1),
            traces: Lru::new(logs / 8, 1),
            words: Lru::new(logs / 4, 1),
            decoded: DecodedCache::new(decoded / 2),
            samples: SampleBlocks::new(decoded / 2),
        }
    }

    /// Forgets all that is kept of parts that are gone: nobody asks for it any more, and others want the room.
    pub fn forget(&self, parts: &[PartId]) {
        if parts.is_empty() {
            return;
        }
        for part in parts {
            self.logs.remove(part);
            self.span_indexes.remove(part);
            self.traces.remove(part);
            for kind in 0..=u8::try_from(crate::part::KINDS.len()).unwrap_or(u8::MAX) {
                self.footers.remove(&(*part, kind));
            }
        }
        let gone: HashSet<PartId> = parts.iter().copied().collect();
        self.series.retain(|(part, _)| !gone.contains(part));
        self.blocks.retain(|(part, ..)| !gone.contains(part));
        self.words.retain(|(part, _)| !gone.contains(part));
        self.streams.retain(|(part, _)| !gone.contains(part));
        self.decoded.forget(&gone);
        self.samples.forget(&gone);
    }

    /// Gives the counters of each cache with its name.
    pub fn stats(&self) -> [(&'static str, CacheStats); 9] {
        [
            ("footers", self.footers.stats()),
            ("series", self.series.stats()),
            ("blocks", self.blocks.stats()),
            ("logs", self.logs.stats()),
            ("streams", self.streams.stats()),
            ("traces", self.traces.stats()),
            ("words", self.words.stats()),
            ("samples", self.samples.stats()),
            ("decoded", self.decoded.stats()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_the_least_recently_used() {
        let lru = Lru::new(10, 1);
        for k in 0..3 {
            lru.insert(k, k * 10, 3);
        }
        assert_eq!(lru.get(&0), Some(0));
        lru.insert(3, 30, 4);
        assert_eq!((lru.get(&0), lru.get(&1), lru.get(&2), lru.get(&3)), (Some(0), None, Some(20), Some(30)));
        lru.insert(4, 40, 11);
        assert_eq!(lru.get(&4), None, "too large");
        lru.insert(0, 1, 1);
        assert_eq!(lru.get(&0), Some(1));
        lru.remove(&0);
        assert_eq!(lru.stats(), CacheStats { hits: 5, misses: 2, entries: 2, bytes: 7 });
        lru.insert(7, 1, 1);
        lru.retain(|k| *k != 7);
        assert_eq!((lru.get(&7), lru.stats().bytes, lru.stats().entries, lru.bytes()), (None, 7, 2, 7));
        lru.clear();
        assert_eq!(lru.stats().bytes, 0);
    }

    /// A cache by another way: a list, the most recently used entry last.
    #[derive(Default)]
    struct List {
        entries: Vec<(u64, u64, u64)>,
        hits: u64,
        misses: u64,
    }

    impl List {
        fn get(&mut self, key: u64) -> Option<u64> {
            let Some(at) = self.entries.iter().position(|entry| entry.0 == key) else {
                self.misses += 1;
                return None;
            };
            self.hits += 1;
            let entry = self.entries.remove(at);
            self.entries.push(entry);
            Some(entry.1)
        }

        fn insert(&mut self, key: u64, value: u64, bytes: u64, bytes_max: u64) {
            self.entries.retain(|entry| entry.0 != key);
            if bytes > bytes_max {
                return;
            }
            while self.bytes() + bytes > bytes_max {
                self.entries.remove(0);
            }
            self.entries.push((key, value, bytes));
        }

        fn bytes(&self) -> u64 {
            self.entries.iter().map(|entry| entry.2).sum()
        }
    }

    #[test]
    fn whatever_is_done_it_holds_what_a_list_would() {
        const BYTES_MAX: u64 = 40;
        let (lru, mut list, mut seed) = (Lru::new(BYTES_MAX, 1), List::default(), 7u64);
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for step in 0..5000 {
            let (key, value, bytes) = (random(20), random(1000), random(BYTES_MAX / 4));
            match random(20) {
                0 => {
                    lru.remove(&key);
                    list.entries.retain(|entry| entry.0 != key);
                }
                1 => {
                    lru.retain(|kept| kept % 7 != key % 7);
                    list.entries.retain(|entry| entry.0 % 7 != key % 7);
                }
                // Larger than all of it: what stood there goes all the same.
                2 => {
                    lru.insert(key, value, BYTES_MAX + 1);
                    list.insert(key, value, BYTES_MAX + 1, BYTES_MAX);
                }
                3..10 => {
                    lru.insert(key, value, bytes);
                    list.insert(key, value, bytes, BYTES_MAX);
                }
                _ => assert_eq!(lru.get(&key), list.get(key), "step {step}"),
            }
            let (entries, bytes) = (list.entries.len() as u64, list.bytes());
            let expected = CacheStats { hits: list.hits, misses: list.misses, entries, bytes };
            assert_eq!((lru.stats(), lru.bytes()), (expected, bytes), "step {step}");
        }
    }

    #[test]
    fn shards_share_the_budget() {
        let lru = Lru::new(800, 8);
        lru.insert(0, 0, 101);
        assert_eq!(lru.stats().entries, 0, "larger than a shard's part");
        for key in 0..10_000 {
            lru.insert(key, key, 25);
        }
        // However keys fall, each shard has room for four.
        assert_eq!((lru.stats().entries, lru.bytes()), (32, 800));
        let held = (0..10_000).filter(|key| lru.get(key) == Some(*key)).count();
        assert_eq!(held, 32);
        assert_eq!((lru.stats().hits, lru.stats().misses), (32, 10_000 - 32));
        lru.clear();
        assert_eq!((lru.get(&9_999), lru.bytes(), lru.stats().entries), (None, 0, 0));
        lru.insert(1, 1, 0);
        assert_eq!((lru.get(&1), lru.bytes()), (Some(1), 0), "what takes nothing is kept");
    }

    #[test]
    fn parts_that_are_gone_leave_nothing() {
        let (gone, other) = (PartId::from_u128(1), PartId::from_u128(2));
        let caches = Caches::new(64 << 20, true);
        let values = |text: &str| Held::Values(StringArray::from(vec![text]));
        for part in [gone, other] {
            caches.series.insert((part, Piece::Values(0)), values("a"), 10);
            caches.series.insert((part, Piece::Page(3)), values("b"), 10);
            caches.series.insert((part, Piece::Postings(0)), Held::Postings(Arc::default()), 10);
            for block in 0..5 {
                caches.blocks.insert((part, 1, block), Bytes::from_static(b"block"), 5);
            }
        }
        caches.forget(&[]);
        assert_eq!((caches.series.stats().entries, caches.blocks.stats().entries), (6, 10));
        caches.forget(&[gone, PartId::from_u128(9)]);
        assert_eq!((caches.series.stats().entries, caches.blocks.stats().entries), (3, 5));
        assert!(caches.series.get(&(gone, Piece::Page(3))).is_none());
        assert!(matches!(caches.series.get(&(other, Piece::Values(0))), Some(Held::Values(_))));
        assert_eq!(caches.blocks.get(&(other, 1, 4)).as_deref(), Some(&b"block"[..]));
        caches.forget(&[other]);
        let left: u64 = caches.stats().iter().map(|(_, stats)| stats.entries + stats.bytes).sum();
        assert_eq!(left, 0);
    }

    /// A local disk is kept by the system: no share of the budget is set aside for its blocks.
    #[test]
    fn blocks_are_kept_of_remote_files_alone() {
        for (remote, kept) in [(false, 0), (true, 1)] {
            let caches = Caches::new(1 << 20, remote);
            caches.blocks.insert((PartId::nil(), 0, 0), Bytes::from_static(b"x"), 1);
            assert_eq!(caches.blocks.stats().entries, kept, "{remote}");
        }
        let none = Caches::new(0, true);
        none.words.insert((PartId::nil(), "a".to_owned()), Arc::new(ColumnIndex { filters: Vec::new() }), 1);
        assert_eq!(none.stats().iter().map(|(_, stats)| stats.entries).sum::<u64>(), 0);
    }
}
