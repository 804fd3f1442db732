//! Maps that evict the least recently used entries, bounded by bytes: alone, or several in one shared budget, in which
//! each has a guaranteed share and borrows what the others do not use.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use parking_lot::Mutex;

/// An entry may take at most this fraction (1/n) of the room.
const ENTRY_SHARE: u64 = 2;

/// A budget in bytes that several maps share. A map always gets its share: what others have borrowed is evicted first.
pub(crate) struct Room {
    bytes_max: u64,
    held: AtomicU64,
    /// Counts uses, which orders the entries of all maps.
    clock: AtomicU64,
    maps: Mutex<Vec<Weak<dyn Borrower>>>,
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("bytes_max", &self.bytes_max).field("held", &self.held).finish_non_exhaustive()
    }
}

impl Room {
    /// Makes a budget. The shares of its maps must not exceed it in sum.
    pub(crate) fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { bytes_max, held: AtomicU64::new(0), clock: AtomicU64::new(0), maps: Mutex::default() })
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Relaxed)
    }

    /// Says whether a map could hold this many bytes if it were empty and the others held no more than their shares.
    fn reaches(&self, bytes: u64, own: &dyn Borrower) -> bool {
        let kept: u64 = self.maps.lock().iter().filter_map(Weak::upgrade).map(|map| map.kept()).sum();
        kept.saturating_sub(own.kept()) + bytes <= self.bytes_max
    }

    /// Evicts entries of maps that exceed their share, the least recently used first, until everything fits.
    fn fit(&self) {
        if self.held.load(Relaxed) <= self.bytes_max {
            return;
        }
        let maps = self.maps.lock();
        while self.held.load(Relaxed) > self.bytes_max {
            let borrowers = maps.iter().filter_map(Weak::upgrade).filter(|map| map.borrows());
            let oldest = borrowers.filter_map(|map| Some((map.oldest()?, map))).min_by_key(|(used, _)| *used);
            // If there is none, other threads are adding entries right now and will evict in turn.
            let Some((_, map)) = oldest else { break };
            map.forget_oldest();
        }
    }
}

/// A map as the room sees it.
trait Borrower: Send + Sync {
    /// Says whether it holds more than its share.
    fn borrows(&self) -> bool;

    /// Bytes that others cannot claim: what it holds, up to its share.
    fn kept(&self) -> u64;

    /// The last use of its least recently used entry.
    fn oldest(&self) -> Option<u64>;

    /// Evicts that entry.
    fn forget_oldest(&self);
}

/// A map that evicts the least recently used entries; bounded by the sum of their sizes. Sharded by key.
#[derive(Debug)]
pub struct Lru<K, V> {
    entries: Arc<Entries<K, V>>,
    hasher: foldhash::fast::RandomState,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Debug)]
struct Entries<K, V> {
    shards: Box<[Mutex<Shard<K, V>>]>,
    room: Arc<Room>,
    share: u64,
    entry_bytes_max: u64,
    bytes: AtomicU64,
}

#[derive(Debug)]
struct Shard<K, V> {
    entries: HashMap<K, Entry<V>, foldhash::fast::RandomState>,
    /// Keys by last use.
    order: BTreeMap<u64, K>,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    bytes: u64,
    used: u64,
}

/// Size and use of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStats {
    /// Look-ups that it answered.
    pub hits: u64,
    /// Look-ups that it did not.
    pub misses: u64,
    /// Entries that it holds now.
    pub entries: u64,
    /// Bytes of the entries that it holds now, as given on insertion.
    pub bytes: u64,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static, V: Clone + Send + Sync + 'static> Lru<K, V> {
    /// Makes a map with its own budget.
    pub fn new(bytes_max: u64, shards: usize) -> Self {
        Self::with(Room::new(bytes_max), bytes_max, bytes_max, shards)
    }

    /// Makes a map that can always hold its share of a room, and more while others leave it unused. With a share of 0
    /// it holds nothing.
    pub(crate) fn within(room: &Arc<Room>, share: u64, shards: usize) -> Self {
        Self::with(Arc::clone(room), share, room.bytes_max / ENTRY_SHARE, shards)
    }

    fn with(room: Arc<Room>, share: u64, entry_bytes_max: u64, shards: usize) -> Self {
        let shard = || Shard { entries: HashMap::default(), order: BTreeMap::new() };
        let shards = (0..shards).map(|_| Mutex::new(shard())).collect();
        let entries = Arc::new(Entries { shards, room, share, entry_bytes_max, bytes: AtomicU64::new(0) });
        let map: Weak<dyn Borrower> = Arc::<Entries<K, V>>::downgrade(&entries);
        entries.room.maps.lock().push(map);
        Self {
            entries,
            hasher: foldhash::fast::RandomState::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    fn shard(&self, key: &K) -> &Mutex<Shard<K, V>> {
        let shards = &self.entries.shards;
        &shards[(self.hasher.hash_one(key) >> 32) as usize % shards.len()]
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
        let used = self.entries.room.tick();
        if let Some(key) = shard.order.remove(&entry.used) {
            shard.order.insert(used, key);
        }
        entry.used = used;
        Some(entry.value.clone())
    }

    /// Says whether an entry of this size could be added without evicting one of the same map.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let Entries { room, share, .. } = &*self.entries;
        self.bytes() + bytes <= *share || room.held.load(Relaxed) + bytes <= room.bytes_max
    }

    /// Adds or replaces an entry, and evicts others to make room. Not added if it is larger than half of a shared
    /// room, than the whole of a separate one, or than what the shares of the other maps leave.
    pub fn insert(&self, key: K, value: V, bytes: u64) {
        self.remove(&key);
        let Entries { room, share, entry_bytes_max, .. } = &*self.entries;
        if bytes > *entry_bytes_max || *share == 0 || (bytes > *share && !room.reaches(bytes, &*self.entries)) {
            return;
        }
        self.entries.take(bytes);
        room.fit();
        let mut shard = self.shard(&key).lock();
        let used = room.tick();
        // Another thread may have added the same key meanwhile.
        self.entries.give_back(shard.remove(&key));
        shard.order.insert(used, key.clone());
        shard.entries.insert(key, Entry { value, bytes, used });
    }

    /// Forgets an entry.
    pub fn remove(&self, key: &K) {
        self.entries.give_back(self.shard(key).lock().remove(key));
    }

    /// Forgets the entries whose keys are not kept.
    pub fn retain(&self, keep: impl Fn(&K) -> bool) {
        for shard in &self.entries.shards {
            let shard = &mut *shard.lock();
            let (order, mut bytes) = (&mut shard.order, 0);
            shard.entries.retain(|key, entry| {
                let kept = keep(key);
                if !kept {
                    order.remove(&entry.used);
                    bytes += entry.bytes;
                }
                kept
            });
            self.entries.give_back(bytes);
        }
    }

    /// Forgets all entries; hits and misses go on counting.
    pub fn clear(&self) {
        self.retain(|_| false);
    }

    /// Bytes of all entries.
    pub fn bytes(&self) -> u64 {
        self.entries.bytes.load(Relaxed)
    }

    /// Gives its counters.
    pub fn stats(&self) -> CacheStats {
        let entries = self.entries.shards.iter().map(|shard| shard.lock().entries.len() as u64).sum();
        CacheStats { hits: self.hits.load(Relaxed), misses: self.misses.load(Relaxed), entries, bytes: self.bytes() }
    }
}

impl<K, V> Entries<K, V> {
    fn take(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.room.held.fetch_add(bytes, Relaxed);
    }

    fn give_back(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Relaxed);
        self.room.held.fetch_sub(bytes, Relaxed);
    }
}

impl<K, V> Drop for Entries<K, V> {
    fn drop(&mut self) {
        self.give_back(self.bytes.load(Relaxed));
    }
}

impl<K: Hash + Eq + Send + Sync, V: Send + Sync> Borrower for Entries<K, V> {
    fn borrows(&self) -> bool {
        self.bytes.load(Relaxed) > self.share
    }

    fn kept(&self) -> u64 {
        self.bytes.load(Relaxed).min(self.share)
    }

    fn oldest(&self) -> Option<u64> {
        self.shards.iter().filter_map(|shard| shard.lock().oldest()).min()
    }

    fn forget_oldest(&self) {
        let by_age = |shard: &&Mutex<Shard<K, V>>| shard.lock().oldest().unwrap_or(u64::MAX);
        let Some(shard) = self.shards.iter().min_by_key(by_age) else { return };
        let mut shard = shard.lock();
        if let Some((_, key)) = shard.order.pop_first() {
            self.give_back(shard.remove(&key));
        }
    }
}

impl<K: Hash + Eq, V> Shard<K, V> {
    /// Removes an entry; gives its bytes.
    fn remove(&mut self, key: &K) -> u64 {
        let Some(entry) = self.entries.remove(key) else { return 0 };
        self.order.remove(&entry.used);
        entry.bytes
    }

    fn oldest(&self) -> Option<u64> {
        self.order.first_key_value().map(|(used, _)| *used)
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
        lru.insert(0, 0, 801);
        assert_eq!(lru.stats().entries, 0, "larger than all of it");
        lru.insert(0, 0, 800);
        assert_eq!(lru.bytes(), 800, "as large as all of it");
        for key in 0..10_000 {
            lru.insert(key, key, 25);
        }
        // However keys fall: the last ones are held.
        assert_eq!((lru.stats().entries, lru.bytes()), (32, 800));
        let held: Vec<u64> = (0..10_000).filter(|key| lru.get(key) == Some(*key)).collect();
        assert_eq!(held, (9_968..10_000).collect::<Vec<_>>());
        assert_eq!((lru.stats().hits, lru.stats().misses), (32, 10_000 - 32));
        lru.clear();
        assert_eq!((lru.get(&9_999), lru.bytes(), lru.stats().entries), (None, 0, 0));
        lru.insert(1, 1, 0);
        assert_eq!((lru.get(&1), lru.bytes()), (Some(1), 0), "what takes nothing is kept");
    }

    /// What one map leaves free the others use; it has it back when it asks.
    #[test]
    fn maps_of_a_room_borrow_what_others_leave_free() {
        let room = Room::new(100);
        let (a, b, none) = (Lru::within(&room, 60, 2), Lru::within(&room, 40, 1), Lru::within(&room, 0, 1));
        for key in 0..20 {
            a.insert(key, (), 10);
        }
        assert_eq!((a.bytes(), b.has_room(40), b.has_room(41), a.has_room(1)), (100, true, false, false));
        none.insert(1, (), 0);
        assert_eq!(none.stats().entries, 0, "it has no share");
        for key in 0..4 {
            b.insert(key, (), 10);
        }
        assert_eq!((a.bytes(), b.bytes()), (60, 40), "borrowed bytes went, and no more");
        assert!((14..20).all(|key| a.get(&key).is_some()), "the oldest went first");
        b.insert(4, (), 10);
        assert_eq!((a.bytes(), b.bytes(), b.get(&0)), (60, 40, None), "beyond its share it replaces its own");
        a.clear();
        b.insert(5, (), 50);
        assert_eq!(b.bytes(), 90);
        b.insert(6, (), 51);
        assert_eq!(b.get(&6), None, "more than a half of the room");
        a.insert(1, (), 20);
        assert_eq!((a.bytes(), b.bytes(), b.get(&5)), (20, 80, Some(())));
        drop(b);
        assert!(a.has_room(80) && !a.has_room(81), "what is gone holds nothing");
    }

    #[test]
    fn what_others_keep_is_not_for_large_entries() {
        let room = Room::new(100);
        let (a, b) = (Lru::within(&room, 60, 1), Lru::within(&room, 40, 1));
        (0..6).for_each(|key| a.insert(key, (), 10));
        b.insert(0, (), 10);
        b.insert(1, (), 50);
        assert_eq!((a.bytes(), b.bytes(), b.get(&1)), (60, 10, None), "nothing went for what cannot be kept");
        a.remove(&0);
        b.insert(1, (), 50);
        assert_eq!((a.bytes(), b.bytes(), b.get(&1)), (50, 50, Some(())), "others keep less");
    }

    /// Threads that add and look up at once: no more than the room is held, and all of it is given back.
    #[test]
    fn threads_share_a_room() {
        let room = Room::new(1000);
        let maps = [Lru::within(&room, 500, 2), Lru::within(&room, 300, 1)];
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let maps = &maps;
                scope.spawn(move || {
                    for n in 0..5000u64 {
                        let map = &maps[(n % 3 / 2) as usize];
                        map.insert(n * (thread + 1) % 97, n, n % 41);
                        map.get(&(n % 97));
                        if n % 501 == 0 {
                            map.retain(|key| key % 2 == 0);
                        }
                    }
                });
            }
        });
        let counted = |map: &Lru<u64, u64>| -> u64 {
            map.entries.shards.iter().flat_map(|s| s.lock().entries.values().map(|e| e.bytes).collect::<Vec<_>>()).sum()
        };
        assert_eq!(maps.each_ref().map(Lru::bytes), maps.each_ref().map(counted));
        assert!(room.held.load(Relaxed) <= 1000 && room.held.load(Relaxed) > 900, "{room:?}");
        maps.iter().for_each(Lru::clear);
        assert_eq!(room.held.load(Relaxed), 0);
    }
}
