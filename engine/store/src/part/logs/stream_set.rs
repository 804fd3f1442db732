//! Sets of streams of a part or a memtable generation, by number; and the encoding of a list of streams as runs.

use std::ops::Range;

use arrow::buffer::{BooleanBuffer, Buffer};

/// A set of streams, one bit per stream of the part: for a million streams it takes 125 kB. Sets are combined a word at
/// a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamSet(BooleanBuffer);

/// Builds a set from runs.
#[derive(Debug)]
pub(crate) struct StreamSetBuilder {
    words: Vec<u64>,
    len: usize,
}

impl StreamSetBuilder {
    /// Starts with an empty set, of a part with this many streams.
    pub(crate) fn new(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(64)], len }
    }

    /// Adds a run of streams; numbers beyond the last stream are ignored.
    pub(crate) fn add(&mut self, run: Range<u32>) {
        let (start, end) = (run.start as usize, (run.end as usize).min(self.len));
        if start >= end {
            return;
        }
        let (first, last) = (start / 64, (end - 1) / 64);
        let (low, high) = (u64::MAX << (start % 64), u64::MAX >> (63 - (end - 1) % 64));
        if first == last {
            self.words[first] |= low & high;
            return;
        }
        self.words[first] |= low;
        self.words[first + 1..last].fill(u64::MAX);
        self.words[last] |= high;
    }

    /// The finished set.
    pub(crate) fn finish(self) -> StreamSet {
        StreamSet(BooleanBuffer::new(Buffer::from_vec(self.words), 0, self.len))
    }
}

impl StreamSet {
    /// The empty set.
    pub(crate) fn none(len: usize) -> Self {
        Self(BooleanBuffer::new_unset(len))
    }

    /// The set of all streams.
    pub(crate) fn all(len: usize) -> Self {
        Self(BooleanBuffer::new_set(len))
    }

    /// The set of the streams for which a function returns true.
    pub(crate) fn of(len: usize, takes: impl FnMut(usize) -> bool) -> Self {
        Self(BooleanBuffer::collect_bool(len, takes))
    }

    /// Tells whether a stream is in the set.
    pub(crate) fn contains(&self, stream: u32) -> bool {
        (stream as usize) < self.0.len() && self.0.value(stream as usize)
    }

    /// The streams that are in both sets.
    pub(crate) fn and(&self, other: &Self) -> Self {
        Self(&self.0 & &other.0)
    }

    /// The streams that are in either set.
    pub(crate) fn or(&self, other: &Self) -> Self {
        Self(&self.0 | &other.0)
    }

    /// Complement within the part's streams.
    pub(crate) fn not(&self) -> Self {
        Self(!&self.0)
    }

    /// Number of streams in the set.
    pub(crate) fn count(&self) -> u64 {
        self.0.count_set_bits() as u64
    }

    /// Tells whether any stream of a range is in the set.
    pub(crate) fn any_in(&self, range: &Range<u32>) -> bool {
        self.runs_in(range).next().is_some()
    }

    /// The runs of the set within a range.
    pub(crate) fn runs_in(&self, range: &Range<u32>) -> impl Iterator<Item = Range<u32>> {
        let start = (range.start as usize).min(self.0.len());
        let end = (range.end as usize).clamp(start, self.0.len());
        let bits = self.0.slice(start, end - start);
        let runs: Vec<Range<u32>> =
            bits.set_slices().map(|(from, to)| (start + from) as u32..(start + to) as u32).collect();
        runs.into_iter()
    }

    /// Memory of a set for this number of streams.
    pub(crate) fn bytes_of(streams: usize) -> usize {
        streams.div_ceil(8) + 64
    }
}

/// Encodes ascending numbers as runs: LEB128 of twice the distance from the end of the previous run, plus 1 if the run
/// is longer than one; if so, LEB128 of its length minus 2 follows.
pub(super) fn push_runs(numbers: &[u32], out: &mut Vec<u8>) {
    let (mut at, mut end) = (0, 0u64);
    while at < numbers.len() {
        let first = u64::from(numbers[at]);
        let len = numbers[at..].iter().zip(first..).take_while(|(n, expected)| u64::from(**n) == *expected).count();
        push_leb128((first - end) << 1 | u64::from(len > 1), out);
        if len > 1 {
            push_leb128(len as u64 - 2, out);
        }
        at += len;
        end = first + len as u64;
    }
}

/// Calls a function for each run of an encoded list; `None` if it is malformed.
pub(crate) fn each_run(mut bytes: &[u8], mut visit: impl FnMut(Range<u32>)) -> Option<()> {
    let mut end = 0u64;
    while !bytes.is_empty() {
        let head = read_leb128(&mut bytes)?;
        let start = end.checked_add(head >> 1)?;
        let len = if head & 1 == 1 { read_leb128(&mut bytes)?.checked_add(2)? } else { 1 };
        end = start.checked_add(len).filter(|end| u32::try_from(*end).is_ok())?;
        visit(start as u32..end as u32);
    }
    Some(())
}

fn push_leb128(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn read_leb128(bytes: &mut &[u8]) -> Option<u64> {
    let (mut value, mut shift) = (0u64, 0);
    loop {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        if shift > 56 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which hold one")]

    use super::*;

    #[test]
    fn lists_come_back() {
        let check = |numbers: &[u32], most: usize| {
            let mut bytes = Vec::new();
            push_runs(numbers, &mut bytes);
            assert!(bytes.len() <= most, "{}", bytes.len());
            let mut back = Vec::new();
            assert_eq!(each_run(&bytes, |run| back.extend(run)), Some(()));
            assert_eq!(back, numbers);
        };
        check(&[], 0);
        check(&[0], 1);
        check(&[63, 64, 200, 201, 202, 4_000_000_000], 12);
        check(&(7..100_000).collect::<Vec<_>>(), 4);
        check(&(0..1000).map(|i| i * 3).collect::<Vec<_>>(), 1000);
        for bad in [&[0x80][..], &[1], &[0xff; 12]] {
            assert_eq!(each_run(bad, |_| {}), None, "{bad:?}");
        }
    }

    #[test]
    fn sets() {
        for (start, end) in [(0, 0), (0, 1), (5, 64), (63, 65), (64, 128), (10, 200), (190, 500), (300, 400)] {
            let mut builder = StreamSetBuilder::new(200);
            builder.add(start..end);
            let set = builder.finish();
            assert_eq!(set, StreamSet::of(200, |i| (start as usize..end as usize).contains(&i)), "{start}..{end}");
            assert_eq!(set.count() + set.not().count(), 200);
        }
        let even = StreamSet::of(100, |i| i % 2 == 0);
        let low = StreamSet::of(100, |i| i < 10);
        assert_eq!(even.and(&low).runs_in(&(3..9)).collect::<Vec<_>>(), [4..5, 6..7, 8..9]);
        assert_eq!(low.or(&even.not()).runs_in(&(0..13)).collect::<Vec<_>>(), [0..10, 11..12]);
        assert!(low.any_in(&(9..50)) && !low.any_in(&(10..50)) && !low.any_in(&(200..300)));
        assert!(low.contains(9) && !low.contains(10) && !low.contains(4000));
    }
    /// Sets made of runs in any order, and what is asked of them, against a list of truths.
    #[test]
    fn sets_of_many_runs() {
        let mut seed = 7u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for len in [0usize, 1, 63, 64, 65, 300] {
            let (mut builder, mut model) = (StreamSetBuilder::new(len), vec![false; len]);
            for _ in 0..random(8) {
                let start = random(310) as u32;
                let end = start + random(90) as u32;
                builder.add(start..end);
                (start..end).for_each(|n| model.get_mut(n as usize).into_iter().for_each(|there| *there = true));
            }
            let set = builder.finish();
            assert_eq!(set, StreamSet::of(len, |n| model[n]));
            assert_eq!(set.count(), model.iter().filter(|there| **there).count() as u64);
            for start in (0..320).step_by(13) {
                let range = start..start + random(70) as u32;
                let inside = |n: &u32| model.get(*n as usize).copied().unwrap_or(false);
                let expected: Vec<u32> = range.clone().filter(inside).collect();
                let runs: Vec<Range<u32>> = set.runs_in(&range).collect();
                assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start), "{runs:?}");
                assert_eq!(set.any_in(&range), !expected.is_empty());
                assert_eq!(runs.into_iter().flatten().collect::<Vec<u32>>(), expected, "{range:?} of {len}");
            }
            let (all, none) = (StreamSet::all(len), StreamSet::none(len));
            assert_eq!((all.count(), none.count(), all.not()), (len as u64, 0, none.clone()));
            assert_eq!((set.and(&all), set.or(&none), set.and(&set.not())), (set.clone(), set.clone(), none));
        }
    }

    #[test]
    fn runs_end_within_the_numbers_that_there_are() {
        let runs = |bytes: &[u8]| {
            let mut runs = Vec::new();
            each_run(bytes, |run| runs.push(run)).map(|()| runs)
        };
        // A single number; then, one further, a run of three.
        assert_eq!(runs(&[5 << 1]), Some(vec![5..6]));
        assert_eq!(runs(&[5 << 1, 1 << 1 | 1, 1]), Some(vec![5..6, 7..10]));
        let mut last = Vec::new();
        push_runs(&[u32::MAX - 1], &mut last);
        assert_eq!(runs(&last), Some(vec![u32::MAX - 1..u32::MAX]));
        let head = |distance: u64| {
            let mut bytes = Vec::new();
            push_leb128(distance << 1, &mut bytes);
            bytes
        };
        assert_eq!(runs(&head(u64::from(u32::MAX))), None, "a run would end beyond 32 bits");
        assert_eq!(runs(&head(u64::MAX >> 9)), None);
        assert_eq!(runs(&[1, 0x80]), None, "a length that does not end");
        // Ten bytes of a number are one too many.
        assert_eq!(runs(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0]), None);
    }
}
