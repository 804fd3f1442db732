//! A set of byte strings in one buffer: no allocation per entry.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

const HASHER: FixedState = FixedState::with_seed(0x5eed);

/// The set.
#[derive(Debug, Default)]
pub(super) struct KeySet {
    bytes: Vec<u8>,
    /// Where each entry stands in the buffer.
    table: HashTable<(usize, u32)>,
}

impl KeySet {
    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Adds an entry. Gives the bytes by which the set has grown.
    pub(super) fn insert(&mut self, key: &[u8]) -> usize {
        let Self { bytes, table } = self;
        let at = |place: &(usize, u32)| &bytes[place.0..][..place.1 as usize];
        let hash = HASHER.hash_one(key);
        if table.find(hash, |place| at(place) == key).is_some() {
            return 0;
        }
        // Values have at most a few megabytes.
        table.insert_unique(hash, (bytes.len(), key.len() as u32), |place| HASHER.hash_one(at(place)));
        bytes.extend_from_slice(key);
        key.len() + 2 * size_of::<(usize, u32)>()
    }

    /// Gives the entries, in any order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.table.iter().map(|place| &self.bytes[place.0..][..place.1 as usize])
    }
}
