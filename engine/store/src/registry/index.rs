//! What readers need of the registry: label pairs as symbols, the pairs of each series, and a posting list for each
//! pair.
//!
//! A (label, value) pair is interned once, in the canonical encoding of `LabelSet`, and numbered. A series is the list
//! of its pairs' numbers, 4 bytes per label; its label set is their encodings concatenated. `matching` describes how
//! matchers are evaluated.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use quiver_types::label::{Pairs, push_pair};
use quiver_types::{LabelSet, SeriesId};
use roaring::RoaringBitmap;
use std::hash::BuildHasher;

use super::paged_table::PagedTable;
use super::postings::Postings;

/// A label pair.
#[derive(Debug)]
pub(crate) struct Pair {
    /// Canonical encoding: name and value, each preceded by its length.
    bytes: Arc<[u8]>,
    name: u32,
    /// Its position in the list of its name's pairs.
    position: u32,
    postings: Postings,
}

#[derive(Debug)]
struct Name {
    text: Arc<str>,
    pairs: Vec<u32>,
}

#[derive(Debug)]
struct Series {
    id: SeriesId,
    /// Numbers of its pairs in canonical order.
    pairs: Box<[u32]>,
}

/// Symbols, label sets and posting lists of all live series.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// In pages: while it grows by doubling, a list stands in memory twice.
    pairs: PagedTable<Pair>,
    free_pairs: Vec<u32>,
    by_bytes: HashTable<u32>,
    names: Vec<Option<Name>>,
    free_names: Vec<u32>,
    by_name: HashMap<Arc<str>, u32, FixedState>,
    series: PagedTable<Series>,
    all: RoaringBitmap,
    /// Heap memory of entries: pairs, lists of pairs, posting lists.
    heap_bytes: usize,
    scratch: Vec<u8>,
}

/// Memory of a pair besides its bytes: header of the shared bytes, hash entry, entry in its name's list.
const PAIR_BYTES: usize = 16 + 8 + 4;
/// Memory of a name besides its text: slab entry, map entry, headers.
const NAME_BYTES: usize = size_of::<Option<Name>>() + 64;
/// Average memory of one posting, in lists and bitmaps.
const POSTING_BYTES: usize = 4;

fn hash(bytes: &[u8]) -> u64 {
    FixedState::default().hash_one(bytes)
}

impl Index {
    fn pair(&self, number: u32) -> &Pair {
        self.pairs.get(number).expect("referred to by a live series or name")
    }

    fn find(&self, bytes: &[u8]) -> Option<u32> {
        self.by_bytes.find(hash(bytes), |&p| *self.pair(p).bytes == *bytes).copied()
    }

    /// Adds a series under an unused number.
    pub(crate) fn define(&mut self, number: u32, id: SeriesId, canonical: &[u8]) {
        let mut pairs = Vec::with_capacity(16);
        let mut scratch = std::mem::take(&mut self.scratch);
        for (name, value) in Pairs::new(canonical) {
            scratch.clear();
            push_pair(&mut scratch, name, value);
            let pair = match self.find(&scratch) {
                Some(pair) => {
                    self.pairs.get_mut(pair).expect("just found").postings.insert(number);
                    pair
                }
                None => self.intern(&scratch, name, number),
            };
            pairs.push(pair);
        }
        self.scratch = scratch;
        self.heap_bytes += pairs.len() * (4 + POSTING_BYTES);
        self.series.insert(number, Series { id, pairs: pairs.into() });
        self.all.insert(number);
    }

    fn intern(&mut self, bytes: &[u8], name: &str, number: u32) -> u32 {
        let name = self.by_name.get(name).copied().unwrap_or_else(|| self.define_name(name));
        let list = &mut self.names[name as usize].as_mut().expect("known by its text").pairs;
        let pair = Pair { bytes: bytes.into(), name, position: list.len() as u32, postings: Postings::One(number) };
        let at = self.free_pairs.pop().unwrap_or(self.pairs.len() as u32);
        list.push(at);
        self.pairs.insert(at, pair);
        let pairs = &self.pairs;
        self.by_bytes.insert_unique(hash(bytes), at, |&p| hash(&pairs.get(p).expect("live").bytes));
        self.heap_bytes += PAIR_BYTES + bytes.len();
        at
    }

    fn define_name(&mut self, name: &str) -> u32 {
        let text: Arc<str> = Arc::from(name);
        let number = self.free_names.pop().unwrap_or_else(|| {
            self.names.push(None);
            (self.names.len() - 1) as u32
        });
        self.heap_bytes += NAME_BYTES + name.len();
        self.by_name.insert(Arc::clone(&text), number);
        self.names[number as usize] = Some(Name { text, pairs: Vec::new() });
        number
    }

    /// Removes a series.
    pub(crate) fn remove(&mut self, number: u32) {
        let Some(series) = self.series.remove(number) else { return };
        self.all.remove(number);
        self.heap_bytes -= series.pairs.len() * (4 + POSTING_BYTES);
        for &at in &series.pairs {
            let Some(pair) = self.pairs.get_mut(at) else { continue };
            if !pair.postings.remove(number) {
                continue;
            }
            let pair = self.pairs.remove(at).expect("seen above");
            self.heap_bytes -= PAIR_BYTES + pair.bytes.len();
            if let Ok(entry) = self.by_bytes.find_entry(hash(&pair.bytes), |&p| p == at) {
                entry.remove();
            }
            let name = self.names[pair.name as usize].as_mut().expect("has this pair");
            let list = &mut name.pairs;
            list.swap_remove(pair.position as usize);
            if let Some(&moved) = list.get(pair.position as usize) {
                self.pairs.get_mut(moved).expect("in the list of its name").position = pair.position;
            }
            if list.is_empty() {
                // When the last pair of a name goes, the name goes as well.
                self.heap_bytes -= NAME_BYTES + name.text.len();
                self.by_name.remove(&name.text);
                self.names[pair.name as usize] = None;
                self.free_names.push(pair.name);
            }
            self.free_pairs.push(at);
        }
    }

    /// Number of series.
    pub(crate) fn len(&self) -> usize {
        self.series.len()
    }

    /// Number of label pairs.
    pub(crate) fn pairs_len(&self) -> usize {
        self.pairs.len()
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.heap_bytes + self.series.bytes() + self.pairs.bytes() + self.free_pairs.capacity() * 4
    }

    /// The identity of a live series.
    pub(crate) fn id(&self, number: u32) -> Option<SeriesId> {
        self.series.get(number).map(|s| s.id)
    }

    /// The label set of a live series; `scratch` is a reusable buffer.
    pub(crate) fn labels(&self, number: u32, scratch: &mut Vec<u8>) -> Option<(SeriesId, LabelSet)> {
        let series = self.series.get(number)?;
        scratch.clear();
        for &pair in &series.pairs {
            scratch.extend_from_slice(&self.pair(pair).bytes);
        }
        Some((series.id, LabelSet::from_canonical(scratch)))
    }

    /// The pairs of a live series in canonical order, as symbols.
    pub(crate) fn pairs_of(&self, number: u32) -> Option<(SeriesId, &[u32])> {
        self.series.get(number).map(|s| (s.id, &*s.pairs))
    }

    /// The canonical encoding of a pair.
    pub(crate) fn pair_bytes(&self, pair: u32) -> Arc<[u8]> {
        Arc::clone(&self.pair(pair).bytes)
    }

    /// Numbers of all live series.
    pub(super) fn all(&self) -> &RoaringBitmap {
        &self.all
    }

    pub(super) fn name(&self, text: &str) -> Option<u32> {
        self.by_name.get(text).copied()
    }

    pub(super) fn pairs_of_name(&self, name: u32) -> &[u32] {
        self.names.get(name as usize).and_then(Option::as_ref).map_or(&[], |name| &name.pairs)
    }

    /// The name and the encoding of a pair, if it exists.
    pub(super) fn pair_of(&self, pair: u32) -> Option<(u32, &Arc<[u8]>)> {
        self.pairs.get(pair).map(|pair| (pair.name, &pair.bytes))
    }

    /// The posting list of a pair.
    pub(super) fn postings(&self, pair: u32) -> Option<&Postings> {
        self.pairs.get(pair).map(|pair| &pair.postings)
    }

    /// The series that have a label with this value.
    pub(super) fn having(&self, name: &str, value: &str) -> RoaringBitmap {
        let mut bytes = Vec::with_capacity(name.len() + value.len() + 4);
        push_pair(&mut bytes, name, value);
        self.find(&bytes).map_or_else(RoaringBitmap::new, |pair| self.pair(pair).postings.to_bitmap())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(sets: &[&[(&str, &str)]]) -> Index {
        let mut index = Index::default();
        for (n, set) in sets.iter().enumerate() {
            let labels = LabelSet::from_pairs(set.iter().copied());
            index.define(n as u32, labels.id(), labels.canonical());
        }
        index
    }

    const SETS: &[&[(&str, &str)]] = &[
        &[("__name__", "up"), ("job", "a"), ("i", "1")],
        &[("__name__", "up"), ("job", "b"), ("i", "2")],
        &[("__name__", "up"), ("job", "a")],
        &[("__name__", "down"), ("job", "c"), ("i", "1")],
    ];

    #[test]
    fn removal_frees_pairs() {
        let mut index = index(SETS);
        let mut scratch = Vec::new();
        assert_eq!(index.labels(3, &mut scratch).expect("live").1, LabelSet::from_pairs(SETS[3].iter().copied()));
        assert_eq!((index.len(), index.pairs_len()), (4, 7));
        for n in [0, 3, 1] {
            index.remove(n);
            index.remove(n);
        }
        assert_eq!((index.len(), index.pairs_len()), (1, 2));
        assert_eq!(index.having("job", "a").iter().collect::<Vec<_>>(), [2]);
        assert!(index.having("i", "1").is_empty());
        assert_eq!((index.name("i"), index.names.iter().flatten().count()), (None, 2));
        let labels = LabelSet::from_pairs([("__name__", "new"), ("i", "1")]);
        index.define(9, labels.id(), labels.canonical());
        assert_eq!(index.having("i", "1").iter().collect::<Vec<_>>(), [9]);
        assert_eq!(index.labels(9, &mut scratch).expect("live").1, labels);
        index.remove(9);
        index.remove(2);
        assert_eq!((index.len(), index.pairs_len(), index.heap_bytes), (0, 0, 0));
    }

    /// Breaks if what holds the pairs grows at a stroke, uncounted, or stays when they have gone.
    #[test]
    fn pairs_take_what_is_counted() {
        let mut index = Index::default();
        let mut before = 0;
        for n in 0..10_000u32 {
            let labels = LabelSet::from_pairs([("i", n.to_string().as_str())]);
            index.define(n, labels.id(), labels.canonical());
            let least = index.pairs_len() * (size_of::<Pair>() + size_of::<Series>());
            assert!(index.bytes() > least && index.bytes() < before + (100 << 10), "{} at {n}", index.bytes());
            before = index.bytes();
        }
        (0..10_000).for_each(|n| index.remove(n));
        assert!(index.pairs.bytes() + index.series.bytes() < 4 << 10, "no page is left");
    }

    #[test]
    fn names_that_come_and_go_leave_nothing() {
        let mut index = Index::default();
        for n in 0..10_000u32 {
            let name = format!("label_{n}");
            let labels = LabelSet::from_pairs([("__name__", "m"), (name.as_str(), "x")]);
            index.define(n % 2, labels.id(), labels.canonical());
            if n > 0 {
                index.remove((n + 1) % 2);
            }
        }
        assert_eq!((index.len(), index.by_name.len()), (1, 2));
        assert!(index.names.len() <= 3 && index.pairs.len() <= 4, "{} {}", index.names.len(), index.pairs.len());
        assert!(index.bytes() < 100_000);
    }
}
