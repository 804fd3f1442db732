//! Decoded samples of hot parts: blocks of neighbouring series as Arrow arrays, bounded by bytes (`architecture` 8).
//!
//! Decoding dominates queries over data that was read before. A block is admitted at its second use, so that one long
//! scan pushes nothing out, and a scan gives rows of a block out as views of its arrays, without a copy. Parts are
//! immutable, so nothing here is ever out of date.

use std::sync::Arc;

use arrow::array::{Float64Array, Int64Array};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use quiver_types::{Millis, MillisRange};
use xxhash_rust::xxh3::xxh3_64;

use crate::lru::{CacheStats, Lru};
use crate::part::PartId;
use crate::run::FloatRun;

/// Samples of a block; a longer series is a block by itself.
const BLOCK_SAMPLES: u64 = 1 << 16;
/// Uses that are remembered of blocks that are not (yet) held.
const SEEN_MAX: usize = 1 << 16;
/// Little is held while less than this part of the budget is taken.
const LITTLE_SHARE: u64 = 4;

/// The float samples of some neighbouring series of a part. Series that were sampled at the same times share these.
#[derive(Debug)]
pub(crate) struct SampleBlock {
    /// Number of the first series.
    first: u32,
    ts: Int64Array,
    values: Float64Array,
    /// Per series, where its times begin.
    ts_at: Vec<u32>,
    /// Per series, where its values begin; one more for the end.
    at: Vec<u32>,
}

/// Cuts series into blocks by their numbers of samples: gives the first series of each, then the number of series.
pub(crate) fn block_starts(samples: impl Iterator<Item = u64>) -> Vec<u32> {
    let (mut starts, mut rows, mut series) = (vec![0], 0, 0);
    for own in samples {
        if rows > 0 && rows + own > BLOCK_SAMPLES {
            starts.push(series);
            rows = 0;
        }
        rows += own;
        series += 1;
    }
    starts.push(series);
    starts
}

/// Where the samples of a series stand in the arrays of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Place of the first time in the array of times.
    pub(crate) ts: u32,
    /// Place of the first value in the array of values.
    pub(crate) values: u32,
    /// Number of samples.
    pub(crate) len: u32,
}

impl SampleBlock {
    /// Puts together what was decoded of the series from `first` on.
    pub(crate) fn new(first: u32, runs: &[FloatRun]) -> Self {
        let samples = runs.iter().map(FloatRun::len).sum();
        let (mut ts, mut values): (Vec<Millis>, _) = (Vec::new(), Vec::with_capacity(samples));
        let (mut ts_at, mut at) = (Vec::with_capacity(runs.len()), Vec::with_capacity(runs.len() + 1));
        let mut known: HashMap<u64, (u32, usize), FixedState> = HashMap::default();
        at.push(0);
        for run in runs {
            let bytes: Vec<u8> = run.ts.iter().flat_map(|t| t.to_le_bytes()).collect();
            let &mut (start, len) = known.entry(xxh3_64(&bytes)).or_insert((ts.len() as u32, usize::MAX));
            let start = start as usize;
            if len == usize::MAX || ts.get(start..start + len) != Some(&run.ts[..]) {
                let start = ts.len() as u32;
                ts.extend_from_slice(&run.ts);
                known.insert(xxh3_64(&bytes), (start, run.ts.len()));
                ts_at.push(start);
            } else {
                ts_at.push(start as u32);
            }
            values.extend_from_slice(&run.values);
            at.push(values.len() as u32);
        }
        ts.shrink_to_fit();
        Self { first, ts: Int64Array::from(ts), values: Float64Array::from(values), ts_at, at }
    }

    /// Times of all series of the block; series with the same times share them.
    pub(crate) fn ts(&self) -> &Int64Array {
        &self.ts
    }

    /// Values of all series of the block, one series after the other.
    pub(crate) fn values(&self) -> &Float64Array {
        &self.values
    }

    /// Gives where the samples of a series stand that lie in a range.
    pub(crate) fn place(&self, series: u32, range: MillisRange) -> Place {
        let i = (series - self.first) as usize;
        let (ts, values, len) = (self.ts_at[i], self.at[i], self.at[i + 1] - self.at[i]);
        let times = &self.ts.values()[ts as usize..(ts + len) as usize];
        let first = if times.first().is_none_or(|&t| t >= range.min) {
            0
        } else {
            times.partition_point(|&t| t < range.min) as u32
        };
        let end = if times.last().is_none_or(|&t| t <= range.max) {
            len
        } else {
            times.partition_point(|&t| t <= range.max) as u32
        };
        Place { ts: ts + first, values: values + first, len: end.saturating_sub(first) }
    }

    /// Gives times and values of a place.
    pub(crate) fn samples(&self, place: Place) -> (&[Millis], &[f64]) {
        let ts = place.ts as usize..(place.ts + place.len) as usize;
        let values = place.values as usize..(place.values + place.len) as usize;
        (&self.ts.values()[ts], &self.values.values()[values])
    }

    fn bytes(&self) -> u64 {
        (8 * self.ts.len() + 8 * self.values.len() + 4 * (self.ts_at.len() + self.at.len()) + 256) as u64
    }
}

type Key = (PartId, u32);

/// The cache of decoded blocks, which admits a block at its second use.
#[derive(Debug)]
pub(crate) struct SampleBlocks {
    blocks: Lru<Key, Arc<SampleBlock>>,
    bytes_max: u64,
    seen: Mutex<HashMap<Key, u8, FixedState>>,
}

impl SampleBlocks {
    /// Makes a cache of at most so many bytes; 0 switches it off.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { blocks: Lru::new(bytes_max, 4), bytes_max, seen: Mutex::default() }
    }

    pub(crate) fn get(&self, part: PartId, block: u32) -> Option<Arc<SampleBlock>> {
        if self.bytes_max == 0 { None } else { self.blocks.get(&(part, block)) }
    }

    /// Counts a use of a block that is not held, and says whether to decode the whole of it: from the second use on,
    /// later when only a small part of it is wanted. `again`: the same query will want it once more. While little is held the
    /// first use of most of a block is enough: nothing has to go for it, and it is not decoded twice.
    pub(crate) fn admits(&self, part: PartId, block: u32, (wanted, rows): (u64, u64), again: bool) -> bool {
        if self.bytes_max < 16 * rows {
            return false;
        }
        let uses = {
            let mut seen = self.seen.lock();
            if seen.len() >= SEEN_MAX {
                seen.clear();
            }
            let uses = seen.entry((part, block)).or_insert(0);
            *uses = uses.saturating_add(1);
            *uses
        };
        let enough = if wanted * 8 < rows { 4 } else { 2 };
        let little = self.blocks.stats().bytes + 16 * rows <= self.bytes_max / LITTLE_SHARE;
        if uses < enough && !((again || little) && wanted * 2 >= rows) {
            return false;
        }
        // When more is hot than there is room for, holding some of it beats replacing all of it again and again.
        let full = self.blocks.stats().bytes + 16 * rows > self.bytes_max;
        !full || uses.is_multiple_of(8)
    }

    pub(crate) fn insert(&self, part: PartId, block: u32, samples: &Arc<SampleBlock>) {
        self.seen.lock().remove(&(part, block));
        self.blocks.insert((part, block), Arc::clone(samples), samples.bytes());
    }

    /// Forgets parts that are gone.
    pub(crate) fn forget(&self, parts: &HashSet<PartId>) {
        self.blocks.retain(|key| !parts.contains(&key.0));
        self.seen.lock().retain(|key, _| !parts.contains(&key.0));
    }

    /// Gives its counters.
    pub(crate) fn stats(&self) -> CacheStats {
        self.blocks.stats()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn run(ts: &[Millis], value: f64) -> FloatRun {
        FloatRun { ts: ts.to_vec(), values: vec![value; ts.len()], start_ts: vec![] }
    }

    #[test]
    fn series_with_equal_times_share_them() {
        let runs = [run(&[1, 2, 3], 1.0), run(&[1, 2, 3], 2.0), run(&[], 0.0), run(&[2, 3], 3.0), run(&[1, 2, 3], 4.0)];
        let block = SampleBlock::new(10, &runs);
        assert_eq!((block.ts().len(), block.values().len()), (5, 11));
        for (series, run) in (10..).zip(&runs) {
            let place = block.place(series, MillisRange::ALL);
            assert_eq!(block.samples(place), (&run.ts[..], &run.values[..]));
        }
        let (ts, values) = block.samples(block.place(11, MillisRange::new(2, 2)));
        assert_eq!((ts, values), (&[2][..], &[2.0][..]));
        assert_eq!(block.place(11, MillisRange::new(9, 20)).len, 0);
        assert_eq!(block.place(11, MillisRange::new(-9, 0)).len, 0);
    }

    #[test]
    fn blocks_are_admitted_at_their_second_use() {
        let cache = SampleBlocks::new(1 << 20);
        let part = Uuid::now_v7();
        assert!(!cache.admits(part, 0, (40, 100), false));
        assert!(cache.admits(part, 0, (40, 100), false));
        assert!(cache.admits(part, 4, (50, 100), false), "little is held");
        let large = cache.bytes_max / LITTLE_SHARE / 16 + 1;
        assert!(!cache.admits(part, 1, (large, large), false), "much would be held");
        assert!(cache.admits(part, 5, (large, large), true), "wanted again by the same query");
        assert!((0..3).all(|_| !cache.admits(part, 2, (1, 100), false)) && cache.admits(part, 2, (1, 100), false));
        assert!(!cache.admits(part, 3, (100, 1 << 20), true), "more than there is room for");
        let block = Arc::new(SampleBlock::new(0, &[run(&[1], 1.0)]));
        cache.insert(part, 0, &block);
        assert!(cache.get(part, 0).is_some() && cache.get(part, 1).is_none());
        cache.forget(&HashSet::from([part]));
        assert_eq!((cache.stats().entries, cache.stats().bytes), (0, 0));
        assert!(SampleBlocks::new(0).get(part, 0).is_none());
    }
}
