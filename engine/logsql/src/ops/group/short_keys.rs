//! Groups by short texts. The view of such a text is the text itself, so a row is looked up by one number: no text is read, and
//! no keys are compared one by one.

use hashbrown::HashTable;

/// Groups by the views of their texts.
#[derive(Debug, Default)]
pub(super) struct Shorts(HashTable<ShortKey>);

/// A group in the table, with its view: whoever finds one looks at no other memory. In four parts, as it takes 20 bytes so and else 32.
#[derive(Debug)]
struct ShortKey {
    view: [u32; 4],
    group: u32,
}

impl ShortKey {
    fn new(view: u128, group: u32) -> Self {
        Self { view: [view as u32, (view >> 32) as u32, (view >> 64) as u32, (view >> 96) as u32], group }
    }

    #[inline]
    fn view(&self) -> u128 {
        self.view.iter().rev().fold(0, |view, part| view << 32 | u128::from(*part))
    }
}

impl Shorts {
    /// Bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        self.0.allocation_size()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Appends the group of each of `views` to `groups`. A view that has none gets the next: it is appended to `known`, the
    /// views of all groups in their order.
    pub(super) fn number(
        &mut self,
        views: &[u128],
        hash: impl Fn(u128) -> u64,
        known: &mut Vec<u128>,
        groups: &mut Vec<u32>,
    ) {
        groups.extend(views.iter().map(|view| self.one(*view, &hash, known)));
    }

    /// The group of one view, as [`Self::number`] gives it.
    #[inline]
    pub(super) fn one(&mut self, view: u128, hash: &impl Fn(u128) -> u64, known: &mut Vec<u128>) -> u32 {
        let own = hash(view);
        if let Some(slot) = self.0.find(own, |slot| slot.view() == view) {
            return slot.group;
        }
        let group = known.len() as u32;
        known.push(view);
        self.0.insert_unique(own, ShortKey::new(view, group), |slot| hash(slot.view()));
        group
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Groups are numbered in the order of their first rows, however their hashes collide and however often the table grows.
    #[test]
    fn groups_are_those_of_a_plain_map() {
        let spread = |view: u128| (view as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Of many hashes, of few and of one.
        let hashes: [&dyn Fn(u128) -> u64; 4] = [&spread, &|view| view as u64 % 7, &|_| 0, &|_| u64::MAX];
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
                    assert_eq!(shorts.one(*view, &hash, &mut known), *group);
                }
                assert_eq!(groups.len(), rows);
            }
            assert_eq!(known.len(), expected.len());
            assert!(shorts.bytes() >= known.len() * size_of::<u32>(), "{} bytes", shorts.bytes());
        }
    }

    #[test]
    fn what_was_given_out_is_forgotten() {
        let (mut shorts, mut known, mut groups) = (Shorts::default(), Vec::new(), Vec::new());
        let hash = |view: u128| view as u64;
        shorts.number(&[5, 6, 5], hash, &mut known, &mut groups);
        assert_eq!(groups, [0, 1, 0]);
        let bytes = shorts.bytes();
        assert!(bytes > 0);
        shorts.clear();
        known.clear();
        groups.clear();
        shorts.number(&[6, 7], hash, &mut known, &mut groups);
        assert_eq!((groups, known), (vec![0, 1], vec![6, 7]));
        assert_eq!(shorts.bytes(), bytes, "the table serves again");
    }
}
