//! Groups by short texts. A query of many groups spends its time waiting for memory: a look at a table of a hundred thousand
//! groups and one at the text of the group found. Here rows are looked up some hundred at once, and what they will need is
//! touched first, so that the waits lie beside each other; tables of libraries look at one key after the other.

use std::hint::black_box;

/// Looked up at once: their places and texts fit in the nearest cache.
const AT_ONCE: usize = 256;
/// Places of the smallest table.
const PLACES_MIN: usize = 1024;
/// A place without a group.
const EMPTY: (u32, u32) = (0, u32::MAX);

/// So many, and half of them.
fn with_half(count: usize) -> usize {
    count.saturating_add(count / 2)
}

/// Groups by the views of their texts, which stand elsewhere: each place has half of a hash and a group. Places are in the
/// order of the halves, so that a table grows from its beginning to its end.
#[derive(Debug, Default)]
pub(super) struct Shorts {
    /// A third of them is empty at least.
    places: Vec<(u32, u32)>,
    len: usize,
    /// The halves of the hashes of the texts at hand.
    halves: Vec<u32>,
}

impl Shorts {
    /// Bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<(u32, u32)>() + self.halves.capacity() * size_of::<u32>()
    }

    pub(super) fn clear(&mut self) {
        self.places.fill(EMPTY);
        self.len = 0;
    }

    /// Where a half is looked for first.
    #[inline]
    fn place(&self, half: u32) -> usize {
        ((u64::from(half) * self.places.len() as u64) >> 32) as usize
    }

    /// Where it is looked for next.
    #[inline]
    fn next(&self, at: usize) -> usize {
        if at + 1 == self.places.len() { 0 } else { at + 1 }
    }

    /// Makes room for so many groups more.
    fn reserve(&mut self, more: usize) {
        let least = with_half(self.len + more);
        if least <= self.places.len() {
            return;
        }
        let places = least.max(2 * self.places.len()).max(PLACES_MIN);
        let before = std::mem::replace(&mut self.places, vec![EMPTY; places]);
        for (half, group) in before.into_iter().filter(|place| *place != EMPTY) {
            let mut at = self.place(half);
            while self.places[at] != EMPTY {
                at = self.next(at);
            }
            self.places[at] = (half, group);
        }
    }

    /// Appends the group of each of `views` to `groups`. A view that has none gets the next: it is appended to `known`, the
    /// views of all groups.
    pub(super) fn number(
        &mut self,
        views: &[u128],
        hash: impl Fn(u128) -> u64,
        known: &mut Vec<u128>,
        groups: &mut Vec<u32>,
    ) {
        groups.reserve(views.len());
        for views in views.chunks(AT_ONCE) {
            self.reserve(views.len());
            self.halves.clear();
            self.halves.extend(views.iter().map(|view| hash(*view) as u32));
            self.touch(known);
            for (at, view) in views.iter().enumerate() {
                groups.push(self.group(self.halves[at], *view, known));
            }
        }
    }

    /// The group of one view, as [`Self::number`] gives it.
    pub(super) fn one(&mut self, view: u128, hash: u64, known: &mut Vec<u128>) -> u32 {
        self.reserve(1);
        self.group(hash as u32, view, known)
    }

    /// Brings near what the texts at hand will need: the sums say nothing.
    fn touch(&self, known: &[u128]) {
        let places = self.halves.iter().map(|half| self.places[self.place(*half)].1);
        let sum = places.fold(0u32, u32::wrapping_add);
        let Some(last) = known.len().checked_sub(1) else { return };
        // A second pass, now that the places are here. Of an empty place whatever is near: a branch would be guessed wrong.
        let texts = self.halves.iter().map(|half| known[last.min(self.places[self.place(*half)].1 as usize)] as u32);
        black_box(texts.fold(sum, u32::wrapping_add));
    }

    #[inline]
    fn group(&mut self, half: u32, view: u128, known: &mut Vec<u128>) -> u32 {
        let mut at = self.place(half);
        loop {
            let (own, group) = self.places[at];
            if (own, group) == EMPTY {
                let group = known.len() as u32;
                known.push(view);
                self.places[at] = (half, group);
                self.len += 1;
                return group;
            }
            if own == half && known[group as usize] == view {
                return group;
            }
            at = self.next(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Groups are numbered in the order of their first rows, however their hashes collide and however often the table grows.
    #[test]
    fn groups_are_those_of_a_plain_map() {
        let spread = |view: u128| (view as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        // Of few hashes, of one, and of those at the end of the table: the search goes on at its beginning.
        let hashes: [&dyn Fn(u128) -> u64; 4] = [&spread, &|view| view as u64 % 7, &|_| 0, &|_| u64::from(u32::MAX)];
        for (hash, values) in hashes.into_iter().zip([50_000, 2000, 700, 700]) {
            let (mut shorts, mut known) = (Shorts::default(), Vec::new());
            let mut expected: HashMap<u128, u32> = HashMap::new();
            let mut value = 1u64;
            for rows in [0, 1, 255, 256, 257, 3000, 5] {
                let mut views = Vec::new();
                for _ in 0..rows {
                    value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    views.push(u128::from((value >> 33) % values));
                }
                let mut groups = Vec::new();
                shorts.number(&views, hash, &mut known, &mut groups);
                for (view, group) in views.iter().zip(&groups) {
                    let next = expected.len() as u32;
                    assert_eq!(*group, *expected.entry(*view).or_insert(next));
                }
                assert_eq!(groups.len(), rows);
            }
            assert_eq!((shorts.len, known.len()), (expected.len(), expected.len()));
            assert!(shorts.places.len() >= with_half(shorts.len), "{} places", shorts.places.len());
        }
    }

    #[test]
    fn what_was_given_out_is_forgotten() {
        let (mut shorts, mut known, mut groups) = (Shorts::default(), Vec::new(), Vec::new());
        let hash = |view: u128| view as u64;
        shorts.number(&[5, 6, 5], hash, &mut known, &mut groups);
        assert_eq!(groups, [0, 1, 0]);
        let bytes = shorts.bytes();
        assert!(bytes >= PLACES_MIN * 8);
        shorts.clear();
        known.clear();
        groups.clear();
        shorts.number(&[6, 7], hash, &mut known, &mut groups);
        assert_eq!((groups, known), (vec![0, 1], vec![6, 7]));
        assert_eq!(shorts.bytes(), bytes, "the table serves again");
    }
}
