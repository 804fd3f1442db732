//! Counts by key, for keys that come together.

use std::hash::Hash;

use super::{Counts, Map};

/// Counts by key. Of each name the key that it came with last is tried first: spans of a minute come together.
#[derive(Debug)]
pub(super) struct KeyedCounts<K> {
    rows: Vec<(K, Counts)>,
    of: Map<K, u32>,
    /// By name a row.
    last: Vec<u32>,
}

impl<K> Default for KeyedCounts<K> {
    fn default() -> Self {
        Self { rows: Vec::new(), of: Map::default(), last: Vec::new() }
    }
}

impl<K: Copy + Eq + Hash> KeyedCounts<K> {
    pub(super) fn of(&mut self, name: u32, key: K) -> &mut Counts {
        let name = name as usize;
        if self.last.len() <= name {
            self.last.resize(name + 1, u32::MAX);
        }
        let last = self.last[name] as usize;
        if self.rows.get(last).is_some_and(|row| row.0 == key) {
            return &mut self.rows[last].1;
        }
        let next = self.rows.len() as u32;
        let at = *self.of.entry(key).or_insert(next);
        if at == next {
            self.rows.push((key, Counts::default()));
        }
        self.last[name] = at;
        &mut self.rows[at as usize].1
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(K, Counts)> {
        self.rows.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_counted_under_whatever_name_it_comes() {
        let mut counts = KeyedCounts::<(i64, u32)>::default();
        let (first, second) = ((0, 7), (60, 7));
        for (name, key) in [(0, first), (0, first), (3, first), (0, second), (0, first), (1, second)] {
            counts.of(name, key).spans += 1;
        }
        let found: Vec<_> = counts.iter().map(|(key, of)| (*key, of.spans)).collect();
        assert_eq!(found, [(first, 4), (second, 2)]);
        assert_eq!(counts.len(), 2);
    }
}
