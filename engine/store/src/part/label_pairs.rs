//! A table of the label pairs of many series: each distinct (label, value) is stored once, and each series has the
//! numbers of its pairs.
//!
//! A series takes 4 bytes per label it has, however many label names exist overall. Inverted, with the pairs sorted,
//! the table is an index from each pair to the series that have it.

use std::hash::BuildHasher;

use hashbrown::HashTable;

/// Distinct texts, numbered; number 0 is the empty text.
#[derive(Debug)]
pub(super) struct Texts {
    pub(super) list: Vec<Box<str>>,
    numbers: HashTable<u32>,
    hasher: foldhash::fast::FixedState,
}

impl Default for Texts {
    fn default() -> Self {
        Self { list: vec![Box::from("")], numbers: HashTable::new(), hasher: foldhash::fast::FixedState::default() }
    }
}

impl Texts {
    /// The number of a text; adds it if it is new.
    pub(super) fn number(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let hash = self.hasher.hash_one(text);
        let Self { list, numbers, hasher } = self;
        if let Some(&number) = numbers.find(hash, |&n| *list[n as usize] == *text) {
            return number;
        }
        let number = list.len() as u32;
        list.push(Box::from(text));
        numbers.insert_unique(hash, number, |&n| hasher.hash_one(&*list[n as usize]));
        number
    }

    /// Numbers of all texts except the empty one, sorted by text.
    pub(super) fn sorted(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (1..self.list.len() as u32).collect();
        order.sort_unstable_by(|&a, &b| self.list[a as usize].cmp(&self.list[b as usize]));
        order
    }
}

/// Label pairs of many series; see the module documentation.
#[derive(Debug, Default)]
pub(super) struct PairTable {
    /// Label names. Number 0, the empty name, is never a label.
    pub(super) names: Texts,
    /// For each label, how many series have it.
    pub(super) present: Vec<u32>,
    /// For each pair, the number of its label name.
    labels: Vec<u32>,
    /// All values concatenated, and the end of each.
    texts: String,
    ends: Vec<usize>,
    numbers: HashTable<u32>,
    hasher: foldhash::fast::FixedState,
    /// Pairs of all series concatenated, and the end of each series.
    pairs: Vec<u32>,
    series_ends: Vec<usize>,
}

impl PairTable {
    /// Appends a series; its labels must be sorted by name.
    pub(super) fn push<'a>(&mut self, labels: impl Iterator<Item = (&'a str, &'a str)>) {
        // Most series have the same labels as the previous one, and many of its values.
        let (mut before, end) = (self.series_start(self.len().saturating_sub(1)), self.pairs.len());
        for (name, value) in labels {
            let guess = (before < end).then(|| self.pairs[before]);
            before += 1;
            let known = guess.map(|pair| self.labels[pair as usize]).filter(|&l| *self.names.list[l as usize] == *name);
            let label = known.unwrap_or_else(|| self.names.number(name));
            if self.present.len() <= label as usize {
                self.present.resize(label as usize + 1, 0);
            }
            self.present[label as usize] += 1;
            let same = guess.filter(|&pair| known.is_some() && self.value(pair) == value);
            let pair = same.unwrap_or_else(|| self.number(label, value));
            self.pairs.push(pair);
        }
        self.series_ends.push(self.pairs.len());
    }

    fn number(&mut self, label: u32, value: &str) -> u32 {
        let hash = self.hasher.hash_one((label, value));
        let known = self.numbers.find(hash, |&n| self.labels[n as usize] == label && self.value(n) == value);
        if let Some(&number) = known {
            return number;
        }
        let number = self.labels.len() as u32;
        self.labels.push(label);
        self.texts.push_str(value);
        self.ends.push(self.texts.len());
        let Self { labels, texts, ends, numbers, hasher, .. } = self;
        let text = |n: usize| &texts[if n == 0 { 0 } else { ends[n - 1] }..ends[n]];
        numbers.insert_unique(hash, number, |&n| hasher.hash_one((labels[n as usize], text(n as usize))));
        number
    }

    /// Number of series.
    pub(super) fn len(&self) -> usize {
        self.series_ends.len()
    }

    fn series_start(&self, series: usize) -> usize {
        if series == 0 { 0 } else { self.series_ends[series - 1] }
    }

    /// The pairs of a series, sorted by name.
    pub(super) fn of(&self, series: usize) -> &[u32] {
        if series >= self.len() { &[] } else { &self.pairs[self.series_start(series)..self.series_ends[series]] }
    }

    /// The number of a pair's label name.
    pub(super) fn label(&self, pair: u32) -> u32 {
        self.labels[pair as usize]
    }

    /// The label name of a pair.
    pub(super) fn name(&self, pair: u32) -> &str {
        &self.names.list[self.label(pair) as usize]
    }

    /// The value of a pair.
    pub(super) fn value(&self, pair: u32) -> &str {
        let n = pair as usize;
        &self.texts[if n == 0 { 0 } else { self.ends[n - 1] }..self.ends[n]]
    }

    /// All pairs, sorted by name, then value.
    pub(super) fn sorted(&self) -> Vec<u32> {
        let mut ranks = vec![0u32; self.names.list.len()];
        self.names.sorted().into_iter().zip(1..).for_each(|(name, rank)| ranks[name as usize] = rank);
        let mut order: Vec<u32> = (0..self.labels.len() as u32).collect();
        let rank = |pair: u32| ranks[self.label(pair) as usize];
        order.sort_unstable_by(|&a, &b| rank(a).cmp(&rank(b)).then_with(|| self.value(a).cmp(self.value(b))));
        order
    }

    /// Inverts the table.
    pub(super) fn postings(&self) -> Postings {
        let mut starts = vec![0usize; self.labels.len() + 1];
        self.pairs.iter().for_each(|&pair| starts[pair as usize + 1] += 1);
        for pair in 1..starts.len() {
            starts[pair] += starts[pair - 1];
        }
        let mut next = starts.clone();
        let mut series = vec![0u32; self.pairs.len()];
        for number in 0..self.len() {
            for &pair in self.of(number) {
                series[next[pair as usize]] = number as u32;
                next[pair as usize] += 1;
            }
        }
        Postings { starts, series }
    }

    /// Frees what is only needed while the table is built; names and values stay.
    pub(super) fn forget_series(&mut self) {
        (self.pairs, self.series_ends, self.numbers) = (Vec::new(), Vec::new(), HashTable::new());
        self.texts.shrink_to_fit();
    }

    /// Approximate size in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let names: usize = self.names.list.iter().map(|name| name.len() + 32).sum();
        names + self.texts.len() + 20 * self.labels.len() + 4 * self.pairs.len() + 8 * self.series_ends.len()
    }
}

/// For each pair, the series that have it, ascending.
#[derive(Debug)]
pub(super) struct Postings {
    starts: Vec<usize>,
    series: Vec<u32>,
}

impl Postings {
    /// The series that have a pair.
    pub(super) fn of(&self, pair: u32) -> &[u32] {
        &self.series[self.starts[pair as usize]..self.starts[pair as usize + 1]]
    }

    /// Approximate size in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        8 * self.starts.len() + 4 * self.series.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_and_postings() {
        let mut table = PairTable::default();
        let sets: [&[(&str, &str)]; 5] =
            [&[("a", "x"), ("b", "x")], &[("a", "x"), ("c", "1")], &[], &[("b", "a"), ("c", "1")], &[("a", "y")]];
        for set in &sets {
            table.push(set.iter().copied());
        }
        for (n, set) in sets.iter().enumerate() {
            let read: Vec<_> = table.of(n).iter().map(|&p| (table.name(p), table.value(p))).collect();
            assert_eq!(read, *set);
        }
        let postings = table.postings();
        let all: Vec<_> =
            table.sorted().iter().map(|&p| (table.name(p), table.value(p), postings.of(p).to_vec())).collect();
        let expected = [
            ("a", "x", vec![0, 1]),
            ("a", "y", vec![4]),
            ("b", "a", vec![3]),
            ("b", "x", vec![0]),
            ("c", "1", vec![1, 3]),
        ];
        assert_eq!(all, expected);
        assert_eq!(table.present[1..], [3, 2, 2]);
    }

    #[test]
    fn a_label_costs_the_series_that_have_it() {
        let bytes = |names: usize| {
            let mut table = PairTable::default();
            for n in 0..3000 {
                let name = format!("label_{:04}", n % names);
                table.push([("common", "x"), (name.as_str(), "y")].into_iter());
            }
            table.memory_bytes()
        };
        // A name and a pair each, some 70 bytes: not a column.
        assert!(bytes(3000) < bytes(3) + 3000 * 100, "{} {}", bytes(3), bytes(3000));
    }
}
