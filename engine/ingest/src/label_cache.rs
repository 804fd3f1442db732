//! A cache of label sets, which senders repeat with every request: bytes on the wire → canonical bytes and series id.
//!
//! Checking, ordering and hashing the labels of a series costs several times as much as its sample. The key is the
//! XXH3-128 of the wire bytes, the same hash that identifies series at rest; if labels come from several places (OTLP:
//! resource, scope, metric, point) it is the hash of the keys of these. A label set that is not in the cache is simply
//! decoded, so a full or empty cache only costs time.

use std::sync::LazyLock;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use quiver_types::SeriesId;

/// Label sets of all senders and formats.
pub(crate) static KNOWN: LazyLock<LabelCache> = LazyLock::new(LabelCache::default);

const SHARDS: usize = 16;
/// What an entry takes beside its canonical bytes.
const ENTRY_BYTES: usize = 96;
/// A full shard starts anew when so many times its entries were not found: other series are being sent now.
const MISSES_PER_ENTRY: usize = 8;

#[derive(Debug)]
struct CachedLabelSet {
    id: SeriesId,
    canonical: Box<[u8]>,
}

#[derive(Debug, Default)]
struct Shard {
    known: HashMap<u128, CachedLabelSet, FixedState>,
    bytes: usize,
    /// Misses since the cache became full.
    missed: usize,
}

/// Remembers label sets by their bytes on the wire.
#[derive(Debug, Default)]
pub(crate) struct LabelCache {
    shards: [Mutex<Shard>; SHARDS],
}

impl LabelCache {
    fn shard(&self, key: SeriesId) -> &Mutex<Shard> {
        &self.shards[(key.0 >> 124) as usize % SHARDS]
    }

    /// Calls with canonical bytes and id when they are known.
    #[inline]
    pub(crate) fn with<T>(&self, key: SeriesId, f: impl FnOnce(&[u8], SeriesId) -> T) -> Option<T> {
        let shard = self.shard(key).lock();
        shard.known.get(&key.0).map(|known| f(&known.canonical, known.id))
    }

    /// Remembers a valid label set, as long as all of them together take no more than `bytes_max`: 64 MiB hold some
    /// 250,000 series.
    pub(crate) fn insert(&self, key: SeriesId, canonical: &[u8], id: SeriesId, bytes_max: usize) {
        let cost = canonical.len() + ENTRY_BYTES;
        let shard_bytes_max = bytes_max / SHARDS;
        if cost > shard_bytes_max / 16 {
            return;
        }
        let mut shard = self.shard(key).lock();
        if shard.bytes + cost > shard_bytes_max {
            shard.missed += 1;
            if shard.missed < MISSES_PER_ENTRY * shard.known.len() {
                return;
            }
            *shard = Shard::default();
        }
        if shard.known.insert(key.0, CachedLabelSet { id, canonical: canonical.into() }).is_none() {
            shard.bytes += cost;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_MAX: usize = 64 << 20;

    fn key(n: u32) -> SeriesId {
        SeriesId::of(&n.to_be_bytes())
    }

    #[test]
    fn what_was_put_in_comes_back() {
        let cache = LabelCache::default();
        assert!(cache.with(key(1), |_, _| ()).is_none());
        cache.insert(key(1), b"abc", key(7), BYTES_MAX);
        cache.insert(key(1), b"abc", key(7), BYTES_MAX);
        assert_eq!(cache.with(key(1), |c, id| (c.to_vec(), id)), Some((b"abc".to_vec(), key(7))));
        let bytes: usize = cache.shards.iter().map(|s| s.lock().bytes).sum();
        assert_eq!(bytes, 3 + ENTRY_BYTES);
    }

    #[test]
    fn it_stays_within_its_bounds_and_follows_the_senders() {
        let cache = LabelCache::default();
        let bytes = || cache.shards.iter().map(|s| s.lock().bytes).max().unwrap();
        let long = vec![b'x'; BYTES_MAX / SHARDS / 16];
        cache.insert(key(0), &long, key(0), BYTES_MAX);
        assert_eq!(bytes(), 0, "too long to be worth it");
        let canonical = [b'x'; 4000];
        let entries = (BYTES_MAX / (canonical.len() + ENTRY_BYTES)) as u32;
        (0..entries * 2).for_each(|n| cache.insert(key(n), &canonical, key(n), BYTES_MAX));
        assert!(bytes() <= BYTES_MAX / SHARDS);
        assert!(cache.with(key(0), |_, _| ()).is_some(), "the first stay");
        (0..entries * 20).for_each(|n| cache.insert(key(n + entries * 2), &canonical, key(n), BYTES_MAX));
        assert!(bytes() <= BYTES_MAX / SHARDS);
        assert!(cache.with(key(0), |_, _| ()).is_none(), "nobody asks for them any more");
    }

    #[test]
    fn little_memory_means_fewer_series() {
        let count = |bytes_max: usize| {
            let cache = LabelCache::default();
            (0..100_000).for_each(|n| cache.insert(key(n), b"canonical bytes", key(n), bytes_max));
            cache.shards.iter().map(|shard| shard.lock().known.len()).sum::<usize>()
        };
        let (all, few) = (count(BYTES_MAX), count(1 << 20));
        assert!(all == 100_000 && few * (15 + ENTRY_BYTES) <= 1 << 20 && few > 8000, "{few} of {all} series");
    }
}
