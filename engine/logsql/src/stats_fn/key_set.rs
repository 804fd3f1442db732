//! A set of byte strings in one buffer: no allocation per entry. Identifiers of 32 hex digits, of which there may be many,
//! are kept as numbers.

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
    /// Entries of 32 lower-case hex digits.
    hex: HashTable<u128>,
}

impl KeySet {
    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.table.len() + self.hex.len()
    }

    /// Adds an entry. Gives the bytes by which the set has grown.
    pub(super) fn insert(&mut self, key: &[u8]) -> usize {
        let Self { bytes, table, hex } = self;
        if let Some(number) = read_hex(key) {
            let hash = HASHER.hash_one(number);
            if hex.find(hash, |own| *own == number).is_some() {
                return 0;
            }
            hex.insert_unique(hash, number, |own| HASHER.hash_one(own));
            return 2 * size_of::<u128>();
        }
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

    /// Calls a function with each entry, in any order.
    pub(super) fn each(&self, mut call: impl FnMut(&[u8])) {
        self.table.iter().for_each(|place| call(&self.bytes[place.0..][..place.1 as usize]));
        for number in &self.hex {
            let mut digits = [0; 32];
            for (digit, byte) in digits.chunks_exact_mut(2).zip(number.to_be_bytes()) {
                digit[0] = DIGITS[usize::from(byte >> 4)];
                digit[1] = DIGITS[usize::from(byte & 15)];
            }
            call(&digits);
        }
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Value of each byte as a lower-case hex digit; 255 for what is none.
const VALUES: [u8; 256] = {
    let mut values = [255; 256];
    let mut i = 0;
    while i < 16 {
        values[DIGITS[i] as usize] = i as u8;
        i += 1;
    }
    values
};

/// Reads 32 lower-case hex digits.
fn read_hex(key: &[u8]) -> Option<u128> {
    let digits: &[u8; 32] = key.try_into().ok()?;
    let (mut number, mut all) = (0u128, 0u8);
    for half in digits.chunks_exact(16) {
        let mut part = 0u64;
        for digit in half {
            let value = VALUES[usize::from(*digit)];
            all |= value;
            part = part << 4 | u64::from(value & 15);
        }
        number = number << 64 | u128::from(part);
    }
    (all < 16).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_once() {
        let mut set = KeySet::default();
        let keys = ["", "a", "00f3a9b4c1d2e3f4a5b6c7d8e9f0a1b2", "00F3A9B4C1D2E3F4A5B6C7D8E9F0A1B2", "00f3a9b4"];
        for key in keys.iter().chain(&keys) {
            set.insert(key.as_bytes());
        }
        let mut found = Vec::new();
        set.each(|key| found.push(String::from_utf8(key.to_vec()).expect("text")));
        found.sort_unstable();
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        assert_eq!((set.len(), found), (5, keys.into_iter().map(str::to_owned).collect()));
    }
}
