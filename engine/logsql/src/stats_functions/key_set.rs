//! A set of byte strings in one buffer: no allocation per entry. Identifiers of 32 hex digits, of which there may be many,
//! are kept as numbers, short texts as their views.

use std::hash::BuildHasher;

use arrow::array::make_view;
use datafusion::common::Result;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use quiver_types::push_hex;

use super::state_bytes::{Reader, put_bytes, put_u64, put_u128};
use crate::kernels::number_set::NumberSet;

const HASHER: FixedState = FixedState::with_seed(0x5eed);
/// Bytes of a text that a view holds.
const VIEW_BYTES: usize = 12;

/// Distinct keys, held as shortly as each allows.
#[derive(Debug, Default)]
pub(super) struct KeySet {
    /// Entries of 32 lower-case hex digits.
    ids: NumberSet,
    /// Views of entries of up to twelve bytes.
    short: NumberSet,
    bytes: Vec<u8>,
    /// Where each other entry stands in the buffer.
    table: HashTable<(usize, u32)>,
}

/// Writes the numbers of each set behind their count.
fn encode_numbers(sets: &[&NumberSet], out: &mut Vec<u8>) {
    // For all of them at once: what has room for one set alone moves to twice the room when the next count comes.
    out.reserve(sets.iter().map(|set| size_of::<u64>() + set.len() * size_of::<u128>()).sum());
    for set in sets {
        put_u64(out, set.len() as u64);
        set.iter().for_each(|number| put_u128(out, number));
    }
}

impl KeySet {
    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.table.len() + self.ids.len() + self.short.len()
    }

    /// Adds an entry. Gives the bytes by which the set has grown.
    pub(super) fn insert(&mut self, key: &[u8]) -> usize {
        if key.len() <= VIEW_BYTES {
            return self.short.insert(make_view(key, 0, 0));
        }
        if let Some(number) = read_hex(key) {
            return self.ids.insert(number);
        }
        let Self { bytes, table, .. } = self;
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
        for view in self.short.iter() {
            let bytes = view.to_le_bytes();
            call(&bytes[4..4 + (view as u32) as usize]);
        }
        let mut digits = Vec::with_capacity(32);
        for number in self.ids.iter() {
            digits.clear();
            push_hex(&number.to_be_bytes(), &mut digits);
            call(&digits);
        }
    }

    /// Writes all entries.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        encode_numbers(&[&self.ids, &self.short], out);
        self.table.iter().for_each(|place| put_bytes(out, &self.bytes[place.0..][..place.1 as usize]));
    }

    /// Adds entries that were written, until there are so many. Gives the bytes by which the set has grown.
    pub(super) fn merge(&mut self, from: &mut Reader<'_>, most: u64) -> Result<usize> {
        let mut grown = 0;
        for ids in [true, false] {
            let numbers = from.u128s()?;
            let own = if ids { &mut self.ids } else { &mut self.short };
            // A set with a limit holds more than is taken.
            own.reserve((numbers.len() as u64).min(most));
            for number in numbers {
                if self.len() as u64 >= most {
                    break;
                }
                grown += if ids { self.ids.insert(number) } else { self.short.insert(number) };
            }
        }
        while !from.is_empty() && (self.len() as u64) < most {
            grown += self.insert(from.bytes()?);
        }
        Ok(grown)
    }
}

/// Distinct keys that are counted only: long ones are held as their hashes.
#[derive(Debug, Default)]
pub(super) struct KeyCount {
    /// Keys of 32 lower-case hex digits.
    ids: NumberSet,
    /// Views of keys of up to twelve bytes.
    short: NumberSet,
    /// Hashes of all others.
    hashes: NumberSet,
}

impl KeyCount {
    /// Number of keys.
    pub(super) fn len(&self) -> usize {
        self.ids.len() + self.short.len() + self.hashes.len()
    }

    /// Adds a key. Gives the bytes by which the set has grown.
    pub(super) fn insert(&mut self, key: &[u8]) -> usize {
        if key.len() <= VIEW_BYTES {
            return self.short.insert(make_view(key, 0, 0));
        }
        match read_hex(key) {
            Some(number) => self.ids.insert(number),
            None => self.hashes.insert_hash(key),
        }
    }

    /// Adds the key whose 32 hex digits are those of a number.
    #[inline]
    pub(super) fn insert_id(&mut self, number: u128) -> usize {
        self.ids.insert(number)
    }

    /// Writes all keys.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        encode_numbers(&[&self.ids, &self.short, &self.hashes], out);
    }

    /// Adds keys that were written, until there are so many. Gives the bytes by which the set has grown.
    pub(super) fn merge(&mut self, from: &mut Reader<'_>, most: u64) -> Result<usize> {
        let (mut grown, mut left) = (0, most.saturating_sub(self.len() as u64));
        for set in [&mut self.ids, &mut self.short, &mut self.hashes] {
            let numbers = from.u128s()?;
            // A set with a limit holds more than is taken.
            set.reserve((numbers.len() as u64).min(most));
            for number in numbers {
                if left == 0 {
                    break;
                }
                let more = set.insert(number);
                grown += more;
                left -= u64::from(more > 0);
            }
        }
        Ok(grown)
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
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

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

    #[test]
    fn sets_are_joined() {
        let of = |numbers: std::ops::Range<u128>| {
            let mut set = KeyCount::default();
            numbers.for_each(|n| _ = set.insert_id(n << 64 | n));
            set.insert(b"short");
            let mut bytes = Vec::new();
            set.encode(&mut bytes);
            bytes
        };
        let (first, second) = (of(0..1000), of(500..3000));
        assert!(second.capacity() < second.len() + second.len() / 4, "no room beyond what is written");
        let mut set = KeyCount::default();
        let grown = set.merge(&mut Reader(&first), u64::MAX).expect("whole");
        assert_eq!((set.len(), grown), (1001, 1001 * 2 * size_of::<u128>()));
        set.merge(&mut Reader(&second), u64::MAX).expect("whole");
        assert_eq!(set.len(), 3001);
        let mut few = KeyCount::default();
        few.merge(&mut Reader(&second), 10).expect("whole");
        assert!(few.len() == 10 && few.ids.capacity() < 100, "room for what is taken");
        assert!(KeyCount::default().merge(&mut Reader(&first[..100]), u64::MAX).is_err());
        assert!(KeyCount::default().merge(&mut Reader(&u64::MAX.to_le_bytes()), u64::MAX).is_err());
    }

    #[test]
    fn long_keys_that_are_counted_take_as_much_as_short_ones() {
        let mut set = KeyCount::default();
        let grown: Vec<usize> = ["a", &"long ".repeat(1000)].map(|key| set.insert(key.as_bytes())).to_vec();
        assert_eq!(grown, [2 * size_of::<u128>(); 2]);
    }

    fn keys() -> impl Strategy<Value = Vec<String>> {
        vec(prop_oneof!["[0-9a-f]{32}", "[0-9a-fA-F]{31,33}", "[ab]{0,2}", "[ab]{11,13}", ".{0,20}"], 0..20)
    }

    fn set_of(keys: &[String]) -> (KeySet, BTreeSet<Vec<u8>>) {
        let mut set = KeySet::default();
        for key in keys {
            _ = set.insert(key.as_bytes());
        }
        (set, keys.iter().map(|key| key.as_bytes().to_vec()).collect())
    }

    fn entries(set: &KeySet) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        set.each(|key| all.push(key.to_vec()));
        all.sort();
        all
    }

    proptest! {
        #[test]
        fn sets_are_those_of_plain_texts(a in keys(), b in keys(), most in 0..40_u64) {
            let ((mut first, mut all), (second, more)) = (set_of(&a), set_of(&b));
            prop_assert_eq!((first.len(), entries(&first)), (all.len(), all.iter().cloned().collect::<Vec<_>>()));
            let mut bytes = Vec::new();
            second.encode(&mut bytes);
            let mut few = KeySet::default();
            few.merge(&mut Reader(&bytes), most).expect("whole");
            prop_assert_eq!(few.len() as u64, most.min(more.len() as u64));
            prop_assert!(entries(&few).iter().all(|key| more.contains(key)));
            let grown = first.merge(&mut Reader(&bytes), u64::MAX).expect("whole");
            prop_assert_eq!(grown == 0, more.is_subset(&all));
            let mut counted = KeyCount::default();
            for key in &a {
                counted.insert(key.as_bytes());
            }
            prop_assert_eq!(counted.len(), all.len());
            let (mut other, mut bytes) = (KeyCount::default(), Vec::new());
            for key in &b {
                other.insert(key.as_bytes());
            }
            other.encode(&mut bytes);
            let mut few = KeyCount::default();
            few.merge(&mut Reader(&bytes), most).expect("whole");
            prop_assert_eq!(few.len() as u64, most.min(more.len() as u64));
            counted.merge(&mut Reader(&bytes), u64::MAX).expect("whole");
            all.extend(more);
            prop_assert_eq!(counted.len(), all.len());
            prop_assert_eq!(entries(&first), all.into_iter().collect::<Vec<_>>());
        }
    }
}
