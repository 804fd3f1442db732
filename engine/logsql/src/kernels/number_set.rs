//! Sets of 128-bit numbers, which represent identifiers, short strings, and hashes of long strings.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use xxhash_rust::xxh3::xxh3_128;

const HASHER: FixedState = FixedState::with_seed(0x5eed);
/// Bytes that a number takes in the mean of a table that grows.
const NUMBER_BYTES: usize = 2 * size_of::<u128>();
/// Numbers that are hashed together: the machine then fetches the places of several while it looks at one.
const AT_ONCE: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct NumberSet(HashTable<u128>);

#[inline]
fn hash(number: &u128) -> u64 {
    HASHER.hash_one(number)
}

impl NumberSet {
    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds one. Gives the bytes by which the set has grown.
    #[inline]
    pub(crate) fn insert(&mut self, number: u128) -> usize {
        match self.0.entry(hash(&number), |own| *own == number, hash) {
            Entry::Occupied(_) => 0,
            Entry::Vacant(place) => {
                place.insert(number);
                NUMBER_BYTES
            }
        }
    }

    /// Adds the hash of a text. Of thousands of millions of texts two have one hash by a chance of less than one in 10^18.
    #[inline]
    pub(crate) fn insert_hash(&mut self, text: &[u8]) -> usize {
        self.insert(xxh3_128(text))
    }

    /// Adds numbers until the set has grown by `most` entries. Gives the bytes by which it has grown.
    pub(crate) fn insert_all(&mut self, mut numbers: impl Iterator<Item = u128>, most: u64) -> usize {
        let before = self.len();
        let (mut some, mut hashes) = ([0; AT_ONCE], [0; AT_ONCE]);
        loop {
            let left = most - (self.len() - before) as u64;
            let places = some.iter_mut().take(if left < AT_ONCE as u64 { left.min(1) as usize } else { AT_ONCE });
            let count = places.zip(numbers.by_ref()).fold(0, |count, (place, number)| {
                *place = number;
                count + 1
            });
            if count == 0 {
                return (self.len() - before) * NUMBER_BYTES;
            }
            for (hashed, number) in hashes.iter_mut().zip(&some[..count]) {
                *hashed = hash(number);
            }
            for (hashed, number) in hashes.iter().zip(&some[..count]) {
                if self.0.find(*hashed, |own| own == number).is_none() {
                    self.0.insert_unique(*hashed, *number, hash);
                }
            }
        }
    }

    /// Makes room for so many in all. Numbers come out of another set in the order of its table: put into one that grows
    /// meanwhile, they would crowd at its beginning.
    pub(crate) fn reserve(&mut self, count: u64) {
        let more = usize::try_from(count).unwrap_or(usize::MAX).saturating_sub(self.0.len());
        self.0.reserve(more, hash);
    }

    /// The numbers, in any order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u128> {
        self.0.iter().copied()
    }

    /// For how many there is room.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_there_once() {
        let mut set = NumberSet::default();
        assert_eq!([7, 8, 7].map(|number| set.insert(number) > 0), [true, true, false]);
        assert_eq!(["a", "", "b", "a"].map(|text| set.insert_hash(text.as_bytes()) > 0), [true, true, true, false]);
        set.reserve(100);
        assert!(set.capacity() >= 100);
        assert_eq!((set.len(), set.iter().filter(|number| *number < 10).count()), (5, 2));
    }

    /// Breaks where numbers are taken from the iterator and not put in, or more are put in than there is a place for.
    #[test]
    fn numbers_are_added_until_there_are_enough() {
        for (most, expected) in [(0, 0), (1, 1), (31, 31), (32, 32), (33, 33), (2500, 2500), (u64::MAX, 3000)] {
            let mut set = NumberSet::default();
            let mut numbers = (0..6000).map(|n: u128| n / 2);
            assert_eq!(set.insert_all(numbers.by_ref(), most), expected * NUMBER_BYTES, "{most}");
            assert_eq!(set.len(), expected);
            assert!(set.iter().all(|number| number < expected as u128));
            assert_eq!(set.insert_all(0..2, u64::MAX), (2 - expected.min(2)) * NUMBER_BYTES);
        }
    }
}
