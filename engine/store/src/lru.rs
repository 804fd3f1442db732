//! What caches are made of: a map that is bounded by bytes and forgets what was used least recently, and its counters.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hashbrown::HashMap;
use parking_lot::Mutex;

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
}
