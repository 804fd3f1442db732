//! Numbers distinct texts in the order of their first appearance; used by groups and distinct counts, which store each
//! text once.

use std::hash::BuildHasher as _;
use std::mem::size_of;

use hashbrown::{DefaultHashBuilder, HashTable};

/// Runs of bytes one behind the other, each with a number.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Numbers, each with the hash of its bytes: to grow and to tell texts apart, the texts are seldom looked at.
    table: HashTable<(u32, u32)>,
    hasher: DefaultHashBuilder,
}

/// Makes room in a table that is full, for four times as much while it is small: to grow is to move all that is there.
pub(crate) fn make_room<T>(table: &mut HashTable<T>, hash: impl Fn(&T) -> u64) {
    const FIRST: usize = 112;
    const SMALL: usize = 1 << 18;
    let len = table.len();
    if len == table.capacity() {
        table.reserve(if len < SMALL { (3 * len).max(FIRST) } else { len }, hash);
    }
}

/// A table's hash of half of one: tables look at both ends.
pub(crate) fn spread(half: u32) -> u64 {
    u64::from(half) << 32 | u64::from(half)
}

impl Texts {
    /// Count of numbers given out.
    pub(crate) fn len(&self) -> u32 {
        self.ends.len() as u32
    }

    /// Skips a number, which then stands for nothing.
    pub(crate) fn skip(&mut self) {
        self.ends.push(self.bytes.len());
    }

    fn get(bytes: &[u8], ends: &[usize], at: u32) -> std::ops::Range<usize> {
        debug_assert!(ends.len() > at as usize && bytes.len() >= ends[at as usize]);
        let start = (at as usize).checked_sub(1).map_or(0, |before| ends[before]);
        start..ends[at as usize]
    }

    /// The bytes that a number stands for.
    pub(crate) fn value(&self, at: u32) -> &[u8] {
        &self.bytes[Self::get(&self.bytes, &self.ends, at)]
    }

    /// The number that stands for these bytes, and whether it is new.
    pub(crate) fn number(&mut self, text: &[u8]) -> (u32, bool) {
        let Self { bytes, ends, table, hasher } = self;
        let half = hasher.hash_one(text) as u32;
        let same = |(known, at): &(u32, u32)| *known == half && bytes[Self::get(bytes, ends, *at)] == *text;
        if let Some((_, found)) = table.find(spread(half), same) {
            return (*found, false);
        }
        let at = ends.len() as u32;
        let hash = |(half, _): &(u32, u32)| spread(*half);
        make_room(table, hash);
        table.insert_unique(spread(half), (half, at), hash);
        bytes.extend_from_slice(text);
        ends.push(bytes.len());
        (at, true)
    }

    /// Memory in use, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>() + self.table.capacity() * 9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_keep_their_numbers_as_the_table_grows() {
        let mut texts = Texts::default();
        for round in 0..2 {
            for at in 0..5000_u32 {
                assert_eq!(texts.number(format!("text {at}").as_bytes()), (at, round == 0));
            }
        }
        assert_eq!(texts.value(4321), b"text 4321");
        assert!(texts.size() >= 5000 * (9 + size_of::<usize>() + 6));
    }
}
