//! Split-block Bloom filters over 64-bit hashes of words, with the layout that Parquet uses: blocks of 256 bits, and a
//! word sets one bit in each of a block's eight 32-bit words. At 16 bits per distinct word, about one lookup in a
//! thousand is a false positive.

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use quiver_types::logs::words;
use xxhash_rust::xxh3::xxh3_64;

const SALT: [u32; 8] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];
/// Filter bits per distinct word.
const BITS: usize = 16;
const BLOCK_BYTES: usize = 32;

/// Hash of a word. It is part of the file format and must not change.
pub(crate) fn hash(word: &str) -> u64 {
    xxh3_64(word.as_bytes())
}

/// Size of the table of recently added hashes, which saves most lookups in the large set.
const RECENT: usize = 1024;

/// Collects the words of some values.
#[derive(Debug)]
pub(super) struct Words {
    all: HashSet<u64, FixedState>,
    /// Recently added hashes, placed by their low bits.
    recent: Box<[u64; RECENT]>,
}

impl Default for Words {
    fn default() -> Self {
        Self { all: HashSet::default(), recent: Box::new(none_recent()) }
    }
}

/// An empty table: each place holds a hash that could not be stored there, so that it matches none.
fn none_recent() -> [u64; RECENT] {
    std::array::from_fn(|at| !at as u64)
}

fn forget(recent: &mut [u64; RECENT], hash: u64) {
    let at = hash as usize % RECENT;
    recent[at] = !at as u64;
}

impl Words {
    /// Adds the words of a value.
    pub(super) fn add(&mut self, value: &str) {
        words(value).for_each(|word| self.add_hash(hash(word)));
    }

    /// Adds the hash of a word.
    #[inline]
    pub(super) fn add_hash(&mut self, hash: u64) {
        let recent = &mut self.recent[hash as usize % RECENT];
        if *recent != hash {
            *recent = hash;
            self.all.insert(hash);
        }
    }

    /// Number of distinct words.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Forgets all that was added.
    pub(super) fn clear(&mut self) {
        // Clear single places if few words were added, else the whole table.
        if self.all.len() < RECENT / 4 {
            self.all.iter().for_each(|hash| forget(&mut self.recent, *hash));
        } else {
            *self.recent = none_recent();
        }
        self.all.clear();
    }

    /// Builds the filter of all words added so far, and starts over. Empty if there were none.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        self.finish_with(BITS)
    }

    /// Like `finish`, with a given number of bits per word.
    pub(super) fn finish_with(&mut self, bits: usize) -> Vec<u8> {
        if self.all.is_empty() {
            return Vec::new();
        }
        let blocks = (self.all.len() * bits).div_ceil(BLOCK_BYTES * 8);
        let mut words = vec![[0u32; 8]; blocks];
        for &hash in &self.all {
            let block = &mut words[block_of(hash, blocks)];
            block.iter_mut().zip(mask(hash)).for_each(|(word, bit)| *word |= bit);
        }
        self.clear();
        words.iter().flatten().flat_map(|word| word.to_le_bytes()).collect()
    }
}

fn block_of(hash: u64, blocks: usize) -> usize {
    (((hash >> 32) * blocks as u64) >> 32) as usize
}

fn mask(hash: u64) -> [u32; 8] {
    SALT.map(|salt| 1 << ((hash as u32).wrapping_mul(salt) >> 27))
}

/// Tells whether a filter may contain the word with this hash. An empty filter contains none.
pub(crate) fn may_hold(filter: &[u8], hash: u64) -> bool {
    let blocks = filter.len() / BLOCK_BYTES;
    if blocks == 0 {
        return false;
    }
    let at = block_of(hash, blocks) * BLOCK_BYTES;
    let (words, _) = filter[at..at + BLOCK_BYTES].as_chunks::<4>();
    words.iter().zip(mask(hash)).all(|(word, bit)| u32::from_le_bytes(*word) & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_is_missed_and_few_are_invented() {
        let mut words = Words::default();
        assert!(words.finish().is_empty() && !may_hold(&[], hash("a")));
        for i in 0..5000 {
            words.add(&format!("user-{i} logged_in, again"));
        }
        let filter = words.finish();
        assert!(filter.len() < 5004 * 2 + BLOCK_BYTES, "{}", filter.len());
        for word in ["user", "logged_in", "again", "0", "4999"] {
            assert!(may_hold(&filter, hash(word)), "{word}");
        }
        let wrong = (5000..25_000).filter(|i| may_hold(&filter, hash(&i.to_string()))).count();
        assert!(wrong < 60, "{wrong} of 20,000");
    }
}
