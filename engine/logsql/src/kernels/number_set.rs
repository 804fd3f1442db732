//! Sets of 128-bit numbers, which represent identifiers, short strings, and hashes of long strings.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use xxhash_rust::xxh3::xxh3_128;

const HASHER: FixedState = FixedState::with_seed(0x5eed);

#[derive(Debug, Default)]
pub(crate) struct NumberSet(HashTable<u128>);

impl NumberSet {
    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds one. Gives the bytes by which the set has grown.
    #[inline]
    pub(crate) fn insert(&mut self, number: u128) -> usize {
        match self.0.entry(HASHER.hash_one(number), |own| *own == number, |own| HASHER.hash_one(own)) {
            Entry::Occupied(_) => 0,
            Entry::Vacant(place) => {
                place.insert(number);
                2 * size_of::<u128>()
            }
        }
    }

    /// Adds the hash of a text. Of thousands of millions of texts two have one hash by a chance of less than one in 10^18.
    #[inline]
    pub(crate) fn insert_hash(&mut self, text: &[u8]) -> usize {
        self.insert(xxh3_128(text))
    }

    /// Makes room for so many in all. Numbers come out of another set in the order of its table: put into one that grows
    /// meanwhile, they would crowd at its beginning.
    pub(crate) fn reserve(&mut self, count: u64) {
        let more = usize::try_from(count).unwrap_or(usize::MAX).saturating_sub(self.0.len());
        self.0.reserve(more, |own| HASHER.hash_one(own));
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
}
