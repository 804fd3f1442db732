//! What readers need of the registry: label pairs as symbols, the pairs of each series, postings per pair.
//!
//! A pair (label, value) is interned once, in the canonical bytes of `LabelSet`, and has a number; a series is the
//! list of its pairs' numbers, 4 bytes a label, and its label set is their bytes one after the other. A matcher looks
//! at each distinct value of its label once, unites the postings of those that fit, and so never walks series.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use quiver_types::label::{Pairs, push_pair};
use quiver_types::{LabelSet, MatchOp, Matcher, SeriesId};
use roaring::RoaringBitmap;
use std::hash::BuildHasher;

use super::paged::Paged;
use super::postings::{Postings, Union};

/// A label pair.
#[derive(Debug)]
pub(crate) struct Pair {
    /// Canonical bytes: name and value, each with its length.
    bytes: Arc<[u8]>,
    name: u32,
    /// Where it stands in the list of its name.
    position: u32,
    postings: Postings,
}

#[derive(Debug)]
struct Name {
    pairs: Vec<u32>,
}

#[derive(Debug)]
struct Series {
    id: SeriesId,
    /// Pairs in canonical order.
    pairs: Box<[u32]>,
}

/// Symbols, label sets and postings of all live series.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pairs: Vec<Option<Pair>>,
    free_pairs: Vec<u32>,
    by_bytes: HashTable<u32>,
    names: Vec<Name>,
    by_name: HashMap<Arc<str>, u32, FixedState>,
    series: Paged<Series>,
    all: RoaringBitmap,
    /// Heap bytes of entries: pairs, lists of pairs, postings.
    heap_bytes: usize,
    scratch: Vec<u8>,
}

/// What a pair costs beside its bytes: slab entry, header of the shared bytes, hash entry, entry in its name's list.
const PAIR_BYTES: usize = size_of::<Option<Pair>>() + 16 + 8 + 4;
/// What one posting costs, on average of lists and bitmaps.
const POSTING_BYTES: usize = 4;

fn hash(bytes: &[u8]) -> u64 {
    FixedState::default().hash_one(bytes)
}

fn pair_text(bytes: &[u8]) -> (&str, &str) {
    Pairs::new(bytes).next().expect("interned from a pair")
}

impl Index {
    fn pair(&self, number: u32) -> &Pair {
        self.pairs[number as usize].as_ref().expect("referred to by a live series or name")
    }

    fn find(&self, bytes: &[u8]) -> Option<u32> {
        self.by_bytes.find(hash(bytes), |&p| *self.pair(p).bytes == *bytes).copied()
    }

    /// Adds a series under a number greater than all before.
    pub(crate) fn define(&mut self, number: u32, id: SeriesId, canonical: &[u8]) {
        let mut pairs = Vec::with_capacity(16);
        let mut scratch = std::mem::take(&mut self.scratch);
        for (name, value) in Pairs::new(canonical) {
            scratch.clear();
            push_pair(&mut scratch, name, value);
            let pair = match self.find(&scratch) {
                Some(pair) => {
                    self.pairs[pair as usize].as_mut().expect("just found").postings.push(number);
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
        let name = if let Some(&name) = self.by_name.get(name) {
            name
        } else {
            self.by_name.insert(Arc::from(name), self.names.len() as u32);
            self.names.push(Name { pairs: Vec::new() });
            (self.names.len() - 1) as u32
        };
        let list = &mut self.names[name as usize].pairs;
        let pair = Pair { bytes: bytes.into(), name, position: list.len() as u32, postings: Postings::One(number) };
        let at = self.free_pairs.pop().unwrap_or_else(|| {
            self.pairs.push(None);
            (self.pairs.len() - 1) as u32
        });
        list.push(at);
        self.pairs[at as usize] = Some(pair);
        let pairs = &self.pairs;
        self.by_bytes.insert_unique(hash(bytes), at, |&p| hash(&pairs[p as usize].as_ref().expect("live").bytes));
        self.heap_bytes += PAIR_BYTES + bytes.len();
        at
    }

    /// Takes a series out.
    pub(crate) fn remove(&mut self, number: u32) {
        let Some(series) = self.series.remove(number) else { return };
        self.all.remove(number);
        self.heap_bytes -= series.pairs.len() * (4 + POSTING_BYTES);
        for &at in &series.pairs {
            let Some(pair) = self.pairs[at as usize].as_mut() else { continue };
            if !pair.postings.remove(number) {
                continue;
            }
            let pair = self.pairs[at as usize].take().expect("seen above");
            self.heap_bytes -= PAIR_BYTES + pair.bytes.len();
            if let Ok(entry) = self.by_bytes.find_entry(hash(&pair.bytes), |&p| p == at) {
                entry.remove();
            }
            let list = &mut self.names[pair.name as usize].pairs;
            list.swap_remove(pair.position as usize);
            if let Some(&moved) = list.get(pair.position as usize) {
                self.pairs[moved as usize].as_mut().expect("in the list of its name").position = pair.position;
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
        self.pairs.len() - self.free_pairs.len()
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.heap_bytes + self.series.bytes()
    }

    /// Gives the identity of a live series.
    pub(crate) fn id(&self, number: u32) -> Option<SeriesId> {
        self.series.get(number).map(|s| s.id)
    }

    /// Gives the label set of a live series; `scratch` is a buffer to build it in.
    pub(crate) fn labels(&self, number: u32, scratch: &mut Vec<u8>) -> Option<(SeriesId, LabelSet)> {
        let series = self.series.get(number)?;
        scratch.clear();
        for &pair in &series.pairs {
            scratch.extend_from_slice(&self.pair(pair).bytes);
        }
        Some((series.id, LabelSet::from_canonical(scratch)))
    }

    /// Gives the pairs of a live series in canonical order, as symbols.
    pub(crate) fn pairs_of(&self, number: u32) -> Option<(SeriesId, &[u32])> {
        self.series.get(number).map(|s| (s.id, &*s.pairs))
    }

    /// Gives the canonical bytes of a pair.
    pub(crate) fn pair_bytes(&self, pair: u32) -> Arc<[u8]> {
        Arc::clone(&self.pair(pair).bytes)
    }

    /// Gives the numbers of the series that all matchers match.
    pub(crate) fn matching(&self, matchers: &[Matcher]) -> RoaringBitmap {
        let mut order: Vec<&Matcher> = matchers.iter().collect();
        order.sort_by_key(|m| match m.op {
            MatchOp::Equal if !m.value.is_empty() => 0,
            MatchOp::Regex => 1,
            _ => 2,
        });
        let mut found: Option<RoaringBitmap> = None;
        for matcher in order {
            self.narrow(matcher, &mut found);
            if found.as_ref().is_some_and(RoaringBitmap::is_empty) {
                break;
            }
        }
        found.unwrap_or_else(|| self.all.clone())
    }

    /// Keeps of `found` (none: everything) what a matcher matches.
    fn narrow(&self, matcher: &Matcher, found: &mut Option<RoaringBitmap>) {
        let takes_empty = matcher.matches_empty();
        let Some(&name) = self.by_name.get(matcher.name.as_str()) else {
            if !takes_empty {
                *found = Some(RoaringBitmap::new());
            }
            return;
        };
        let pairs = &self.names[name as usize].pairs;
        let few = found.as_ref().filter(|f| f.len() * 4 < pairs.len() as u64 && single(matcher).is_none());
        if let Some(candidates) = few {
            *found = Some(self.narrow_few(matcher, name, candidates));
        } else if takes_empty {
            let misses = self.postings_where(matcher, pairs, false);
            let base = found.take().unwrap_or_else(|| self.all.clone());
            *found = Some(if misses.is_empty() { base } else { base - misses });
        } else {
            let hits = self.postings_where(matcher, pairs, true);
            *found = Some(match found.take() {
                Some(base) => base & hits,
                None => hits,
            });
        }
    }

    /// Unites the postings of the values that the matcher matches (`wanted`) or does not match.
    fn postings_where(&self, matcher: &Matcher, pairs: &[u32], wanted: bool) -> RoaringBitmap {
        if let Some(value) = single(matcher) {
            // `a="x"` needs what has x; `a!="x"` takes the empty value and needs the same to leave it out.
            let mut bytes = Vec::with_capacity(matcher.name.len() + value.len() + 4);
            push_pair(&mut bytes, &matcher.name, value);
            return self.find(&bytes).map_or_else(RoaringBitmap::new, |p| self.pair(p).postings.to_bitmap());
        }
        let mut union = Union::default();
        for &pair in pairs {
            let pair = self.pair(pair);
            if matcher.matches(pair_text(&pair.bytes).1) == wanted {
                union.add(&pair.postings);
            }
        }
        union.finish()
    }

    /// Judges the candidates one by one, each distinct value once: cheaper when the label has far more values.
    fn narrow_few(&self, matcher: &Matcher, name: u32, candidates: &RoaringBitmap) -> RoaringBitmap {
        let mut judged: HashMap<u32, bool, FixedState> = HashMap::default();
        let takes_empty = matcher.matches_empty();
        let keep = |number: &u32| {
            let Some(series) = self.series.get(*number) else { return false };
            match series.pairs.iter().find(|&&p| self.pair(p).name == name) {
                None => takes_empty,
                Some(&p) => *judged.entry(p).or_insert_with(|| matcher.matches(pair_text(&self.pair(p).bytes).1)),
            }
        };
        RoaringBitmap::from_sorted_iter(candidates.iter().filter({
            let mut keep = keep;
            move |n| keep(n)
        }))
        .expect("a subset in order")
    }
}

/// The one value that decides a matcher without looking at others.
fn single(matcher: &Matcher) -> Option<&str> {
    match matcher.op {
        MatchOp::Equal | MatchOp::NotEqual if !matcher.value.is_empty() => Some(&matcher.value),
        _ => None,
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
    fn matchers() {
        let index = index(SETS);
        let check = |matchers: &[(&str, MatchOp, &str)], expected: &[u32]| {
            let matchers: Vec<_> = matchers.iter().map(|(n, o, v)| Matcher::new(*n, *o, *v).expect("valid")).collect();
            assert_eq!(index.matching(&matchers).iter().collect::<Vec<_>>(), expected, "{matchers:?}");
        };
        use MatchOp::{Equal, NotEqual, NotRegex, Regex};
        check(&[], &[0, 1, 2, 3]);
        check(&[("__name__", Equal, "up")], &[0, 1, 2]);
        check(&[("__name__", Equal, "up"), ("job", Equal, "a")], &[0, 2]);
        check(&[("__name__", Equal, "none")], &[]);
        check(&[("i", Equal, "")], &[2]);
        check(&[("i", NotEqual, "")], &[0, 1, 3]);
        check(&[("i", NotEqual, "1")], &[1, 2]);
        check(&[("i", Regex, "1|")], &[0, 2, 3]);
        check(&[("i", Regex, ".*")], &[0, 1, 2, 3]);
        check(&[("i", Regex, ".+")], &[0, 1, 3]);
        check(&[("i", NotRegex, ".+")], &[2]);
        check(&[("i", NotRegex, "1")], &[1, 2]);
        check(&[("i", NotRegex, "1|")], &[1]);
        check(&[("job", Regex, "a|c"), ("i", Equal, "1")], &[0, 3]);
        check(&[("unknown", Equal, "")], &[0, 1, 2, 3]);
        check(&[("unknown", NotEqual, "x")], &[0, 1, 2, 3]);
        check(&[("unknown", Equal, "x")], &[]);
        check(&[("unknown", NotRegex, ".*")], &[]);
    }

    #[test]
    fn few_candidates_are_judged_one_by_one() {
        let mut index = index(SETS);
        for n in 4..200u32 {
            let value = format!("v{n}");
            let labels = LabelSet::from_pairs([("__name__", "many"), ("i", value.as_str())]);
            index.define(n, labels.id(), labels.canonical());
        }
        let check = |op, pattern: &str, expected: &[u32]| {
            let m = [Matcher::equal("__name__", "up"), Matcher::new("i", op, pattern).expect("valid")];
            assert_eq!(index.matching(&m).iter().collect::<Vec<_>>(), expected, "{pattern}");
        };
        check(MatchOp::Regex, "1|v.*", &[0]);
        check(MatchOp::Regex, "1|", &[0, 2]);
        check(MatchOp::NotRegex, "1", &[1, 2]);
        check(MatchOp::NotEqual, "1", &[1, 2]);
        check(MatchOp::NotEqual, "", &[0, 1]);
        check(MatchOp::Equal, "", &[2]);
    }

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
        assert_eq!(index.matching(&[Matcher::equal("job", "a")]).iter().collect::<Vec<_>>(), [2]);
        assert!(index.matching(&[Matcher::equal("i", "1")]).is_empty());
        let labels = LabelSet::from_pairs([("__name__", "new"), ("i", "1")]);
        index.define(9, labels.id(), labels.canonical());
        assert_eq!(index.matching(&[Matcher::equal("i", "1")]).iter().collect::<Vec<_>>(), [9]);
        assert_eq!(index.labels(9, &mut scratch).expect("live").1, labels);
        index.remove(9);
        index.remove(2);
        assert_eq!((index.len(), index.pairs_len(), index.heap_bytes), (0, 0, 0));
    }
}
