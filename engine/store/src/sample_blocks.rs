//! A cache of decoded samples of hot parts: blocks of neighbouring series as Arrow arrays, bounded by bytes
//! (`architecture` 8).
//!
//! Decoding dominates queries over data that was read before. A block is admitted at its second use, so that one long
//! scan evicts nothing, and a scan returns rows of a block as views of its arrays, without a copy. Parts are immutable,
//! so nothing here is ever stale. If only an hour of a part that spans a day is read, the block covers the [`Window`]
//! around that hour, since decoding and keeping the whole would cost much for a small part of it.

use std::sync::Arc;

use arrow::array::{Float64Array, Int64Array};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use quiver_types::{Millis, MillisRange};
use xxhash_rust::xxh3::xxh3_64;

use crate::lru::{CacheStats, Lru, Room};
use crate::part::PartId;
use crate::series_run::FloatRun;

/// Samples of a block; a longer series is a block by itself.
const BLOCK_SAMPLES: u64 = 1 << 16;
/// Blocks of which uses are remembered.
const SEEN_MAX: usize = 1 << 17;
/// Little is held while less than this part of the budget is taken.
const LITTLE_SHARE: u64 = 4;

/// The times that a block holds of a part. Those of a part of its whole time are aligned, so that ranges that move on with
/// the clock, as those of dashboards do, find what was decoded for the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Window(MillisRange);

impl Window {
    /// All that the part holds.
    pub(crate) const WHOLE: Self = Self(MillisRange::ALL);
    /// Parts that last longer than so many windows are read by windows.
    const LONGER: i64 = 4;
    /// A window is aligned to a power of two of at least so many milliseconds.
    const STEP_MS_MIN: u64 = 1 << 16;

    /// The window of a part that lasts from the first to the last time of `part` in which `range` lies; it is at most
    /// twice as long as the range, or some two minutes longer.
    pub(crate) fn around(range: MillisRange, part: MillisRange) -> Self {
        let asked = MillisRange::new(range.min.max(part.min), range.max.min(part.max));
        let Some(length) = asked.max.checked_sub(asked.min).filter(|length| *length >= 0) else { return Self::WHOLE };
        let step = (length.unsigned_abs() / 4 + 1).next_power_of_two().max(Self::STEP_MS_MIN).cast_signed();
        let min = asked.min.div_euclid(step).checked_mul(step);
        let max = asked.max.div_euclid(step).checked_add(1).and_then(|steps| steps.checked_mul(step));
        let (Some(min), Some(end)) = (min, max) else { return Self::WHOLE };
        let longer = part.max.saturating_sub(part.min) / Self::LONGER;
        if end.saturating_sub(min) > longer { Self::WHOLE } else { Self(MillisRange::new(min, end - 1)) }
    }

    /// What is read of each series.
    pub(crate) fn range(self) -> MillisRange {
        self.0
    }

    /// Estimates how many of the samples of a part, evenly spread over its time, lie in the window; one where there are any.
    pub(crate) fn samples_of(self, samples: u64, part: MillisRange) -> u64 {
        if self == Self::WHOLE {
            return samples;
        }
        let length = |range: MillisRange| (range.max as f64 - range.min as f64) + 1.0;
        ((samples as f64 * (length(self.0) / length(part)).min(1.0)) as u64).max(1).min(samples)
    }
}

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

    /// Copies the samples at a place of the block.
    pub(crate) fn run(&self, place: Place) -> FloatRun {
        let (ts, values) = self.samples(place);
        FloatRun { ts: ts.to_vec(), values: values.to_vec(), start_ts: Vec::new() }
    }

    fn bytes(&self) -> u64 {
        (8 * self.ts.len() + 8 * self.values.len() + 4 * (self.ts_at.len() + self.at.len()) + 256) as u64
    }
}

/// What a use of a block costs, in samples.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Use {
    /// Decoded for what is asked, whole pages of each series.
    pub(crate) wanted: u64,
    /// Decoded for all series of the block.
    pub(crate) decoded: u64,
    /// Kept of these: those in the window.
    pub(crate) kept: u64,
    /// Whether the same query will want the block once more.
    pub(crate) read_repeatedly: bool,
}

impl Use {
    /// Tells whether only a small part of the block is wanted.
    pub(crate) fn is_small(self) -> bool {
        self.wanted * 8 < self.decoded
    }
}

/// Part, first series, times.
type Key = (PartId, u32, Window);

/// The cache of decoded blocks, which admits a block at its second use.
#[derive(Debug)]
pub(crate) struct SampleBlocks {
    blocks: Lru<Key, Arc<SampleBlock>>,
    bytes_max: u64,
    /// How often a block was wanted that was not held, whichever of its times: who looks at one hour of some series
    /// looks at others, too.
    seen: Mutex<HashMap<(PartId, u32), u32, FixedState>>,
}

impl SampleBlocks {
    /// Makes a cache that has a share of a room; 0 switches it off.
    pub(crate) fn within(room: &Arc<Room>, share: u64) -> Self {
        Self { blocks: Lru::within(room, share, 4), bytes_max: share, seen: Mutex::default() }
    }

    /// Gives the block of these times, or the whole one.
    pub(crate) fn get(&self, part: PartId, block: u32, window: Window) -> Option<Arc<SampleBlock>> {
        if self.bytes_max == 0 {
            return None;
        }
        let whole = || (window != Window::WHOLE).then(|| self.blocks.get(&(part, block, Window::WHOLE))).flatten();
        self.blocks.get(&(part, block, window)).or_else(whole)
    }

    /// Counts a use of a block that is not held, and says whether to decode the whole of it: from the second use on; when
    /// only a small part of it is wanted, once that was decoded so often that the whole costs no more. The first use of
    /// most of a block is enough if the query reads it repeatedly, or while little is held: then nothing has to go for it,
    /// and it is not decoded twice.
    pub(crate) fn admits(&self, (part, block): (PartId, u32), own: Use) -> bool {
        let Use { wanted, decoded, kept, read_repeatedly } = own;
        if self.bytes_max < 16 * kept {
            return false;
        }
        let uses = {
            let mut seen = self.seen.lock();
            if seen.len() >= SEEN_MAX {
                // Those that were wanted once go, others are half as warm.
                seen.retain(|_, uses| {
                    *uses /= 2;
                    *uses > 0
                });
            }
            let uses = seen.entry((part, block)).or_insert(0);
            *uses = uses.saturating_add(1);
            *uses
        };
        let enough = if own.is_small() { decoded / wanted.max(1) } else { 2 };
        let little = self.blocks.bytes() + 16 * kept <= self.bytes_max / LITTLE_SHARE;
        if u64::from(uses) < enough && !((read_repeatedly || little) && wanted * 2 >= decoded) {
            return false;
        }
        // When more is hot than there is room for, holding some of it beats replacing all of it again and again. Blocks that
        // are always asked for together take turns, so that no query decodes all of them.
        let turn = block.wrapping_mul(0x9e37_79b1) >> 29;
        self.blocks.has_room(16 * kept) || uses.wrapping_add(turn).is_multiple_of(8)
    }

    pub(crate) fn insert(&self, key: (PartId, u32, Window), samples: &Arc<SampleBlock>) {
        self.blocks.insert(key, Arc::clone(samples), samples.bytes());
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

    fn share_of(bytes: u64) -> SampleBlocks {
        SampleBlocks::within(&Room::new(bytes), bytes)
    }

    #[test]
    fn a_window_lies_around_what_is_asked_of_a_longer_part() {
        const HOUR: Millis = 3_600_000;
        let day = MillisRange::new(1_700_000_000_000, 1_700_000_000_000 + 24 * HOUR);
        let at = |from: Millis, to: Millis| MillisRange::new(day.min + from, day.min + to);
        for asked in [at(3 * HOUR, 4 * HOUR), at(5, 6), at(HOUR, HOUR), at(0, 2 * HOUR)] {
            let window = Window::around(asked, day);
            let Window(range) = window;
            assert!(range.min <= asked.min && asked.max <= range.max, "{asked:?} {window:?}");
            let length = range.max - range.min + 1;
            assert!(length <= (2 * (asked.max - asked.min)).max(3 << 16), "{asked:?} {window:?}");
            assert_eq!(range.min.rem_euclid(1 << 16), 0, "aligned");
            let samples = window.samples_of(24 * 3600, day);
            assert!((samples as f64 - length as f64 / 1000.0).abs() < 2.0, "{samples} {window:?}");
        }
        // As the clock goes on it stays the same for a while.
        let windows: HashSet<Window> =
            (0..60).map(|minute| Window::around(at(minute * 60_000, minute * 60_000 + 2 * HOUR), day)).collect();
        assert!(windows.len() <= 5, "{windows:?}");
        // Ranges that begin or end outside of the part are cut first.
        let cut = Window::around(MillisRange::new(i64::MIN, day.min + HOUR), day);
        assert_ne!(cut, Window::WHOLE);
        assert!(cut.range().max - cut.range().min <= 2 * HOUR, "{cut:?}");
        for much in [MillisRange::ALL, at(0, 6 * HOUR), at(-HOUR, 24 * HOUR), at(25 * HOUR, 26 * HOUR), at(1, 0)] {
            assert_eq!(Window::around(much, day), Window::WHOLE, "{much:?}");
        }
        assert_eq!(Window::around(at(0, 1), at(0, 1000)), Window::WHOLE, "a short part");
        assert_eq!(Window::around(MillisRange::new(i64::MAX - 5, i64::MAX), MillisRange::ALL), Window::WHOLE);
        assert_eq!((Window::WHOLE.samples_of(7, day), Window::around(at(5, 6), day).samples_of(1, day)), (7, 1));
    }

    #[test]
    fn a_whole_block_answers_for_its_windows() {
        let (cache, part) = (share_of(1 << 20), Uuid::now_v7());
        let window = Window(MillisRange::new(0, 1 << 20));
        let block = Arc::new(SampleBlock::new(0, &[run(&[1], 1.0)]));
        cache.insert((part, 0, window), &block);
        assert!(cache.get(part, 0, window).is_some() && cache.get(part, 0, Window::WHOLE).is_none());
        assert!(cache.get(part, 0, Window(MillisRange::new(0, 2 << 20))).is_none());
        cache.insert((part, 1, Window::WHOLE), &block);
        assert!(cache.get(part, 1, window).is_some() && cache.get(part, 2, window).is_none());
    }

    #[test]
    fn blocks_take_turns_where_there_is_no_room() {
        let (cache, part) = (share_of(1 << 20), Uuid::now_v7());
        let own = Use { wanted: 1000, decoded: 1000, kept: 1000, read_repeatedly: false };
        for block in [u32::MAX - 1, u32::MAX] {
            cache.blocks.insert((part, block, Window::WHOLE), Arc::new(SampleBlock::new(0, &[])), 1 << 19);
        }
        let mut admitted = HashMap::<u32, u32>::new();
        for _ in 0..16 {
            let blocks = (0..400).map(|block| block * 7).filter(|&block| cache.admits((part, block), own));
            let blocks: Vec<u32> = blocks.collect();
            assert!(blocks.len() < 100, "{} at once", blocks.len());
            for block in blocks {
                *admitted.entry(block).or_default() += 1;
            }
        }
        assert_eq!(admitted.len(), 400, "each has its turn");
        assert!(admitted.values().all(|&times| times <= 2));
    }

    #[test]
    fn uses_of_many_blocks_are_remembered() {
        let (cache, part) = (share_of(1 << 20), Uuid::now_v7());
        let cold = Use { wanted: 100, decoded: 300, kept: 300, read_repeatedly: false };
        assert!(!cache.admits((part, 0), cold) && cache.admits((part, 0), cold));
        (1..SEEN_MAX as u32).for_each(|block| assert!(!cache.admits((part, block), cold)));
        assert!(!cache.admits((part, u32::MAX), cold));
        assert!(cache.seen.lock().len() < 3, "those of one use went");
        assert!(cache.admits((part, 0), cold), "it is still warm");
    }

    #[test]
    fn blocks_are_admitted_at_their_second_use() {
        let (cache, whole) = (share_of(1 << 20), Window::WHOLE);
        let part = Uuid::now_v7();
        let own = |wanted: u64, decoded: u64| Use { wanted, decoded, kept: decoded, read_repeatedly: false };
        assert!(!cache.admits((part, 0), own(40, 100)));
        assert!(cache.admits((part, 0), own(40, 100)));
        assert!(cache.admits((part, 4), own(50, 100)), "little is held");
        let large = cache.bytes_max / LITTLE_SHARE / 16 + 1;
        assert!(!cache.admits((part, 1), own(large, large)), "much would be held");
        let repeated = |own: Use| Use { read_repeatedly: true, ..own };
        assert!(cache.admits((part, 5), repeated(own(large, large))), "wanted again by the same query");
        let little = |cache: &SampleBlocks| cache.admits((part, 2), own(5, 100));
        assert!((1..20).all(|_| !little(&cache)) && little(&cache), "a twentieth, twenty times");
        assert!(!cache.admits((part, 3), repeated(own(100, 1 << 20))), "more than there is room for");
        let window = Use { wanted: 100, decoded: 1 << 20, kept: 200, read_repeatedly: true };
        assert!(window.is_small() && !cache.admits((part, 6), window), "all pages for a few samples");
        let block = Arc::new(SampleBlock::new(0, &[run(&[1], 1.0)]));
        cache.insert((part, 0, whole), &block);
        assert!(cache.get(part, 0, whole).is_some() && cache.get(part, 1, whole).is_none());
        cache.forget(&HashSet::from([part]));
        assert_eq!((cache.stats().entries, cache.stats().bytes), (0, 0));
        assert!(share_of(0).get(part, 0, whole).is_none());
    }
}
