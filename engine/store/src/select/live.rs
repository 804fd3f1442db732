//! Series of live generations: found by number, with labels from the registry's symbols, without building label sets.
//!
//! All generations of a process share one registry, so matchers are evaluated once for all of them. Labels are coded by
//! the number of their (label, value) pair: a text is decoded once per distinct pair, not once per series.

mod order;

use std::sync::Arc;

use async_trait::async_trait;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use quiver_types::label::Pairs;
use quiver_types::read_stats::add;
use quiver_types::{Matcher, ReadStats, Result, SeriesId};
use roaring::RoaringBitmap;

use super::dictionary::CodedColumn;
use super::matcher_resolution::SelectorQuery;
use super::union::SeriesList;
use crate::memtable::Generation;
use crate::registry::{Index, Registry};
use crate::snapshot::Snapshot;

/// Series that are read in one hold of the lock; a writer waiting for it delays acknowledgements.
const SERIES_PER_LOCK: usize = 4096;
/// Series of all generations that are looked through at once, without giving others a turn first.
const SHORT_SERIES: usize = 1 << 14;
/// Estimated memory of a label, and of a value, besides texts and codes.
const TEXT_BYTES: usize = 128;
/// Estimated memory to remember that a pair was seen.
const PAIR_BYTES: usize = 16;

/// Maps the number of a pair to what was derived from it.
pub(crate) type ByPair<T> = HashMap<u32, T, foldhash::fast::RandomState>;

/// The matching series of a generation.
pub(crate) struct LiveMatches {
    pub(crate) generation: Arc<Generation>,
    /// Slot, registry number, and whether there are histograms; sorted by slot, or in series order.
    pub(crate) found: Vec<(u32, u32, bool)>,
    ids: Vec<SeriesId>,
    /// Whether `found` is in series order.
    sorted: bool,
}

/// Says whether resolving a question may take long: generations of many series are looked through.
pub(crate) fn is_long(question: &SelectorQuery<'_>, snapshot: &Snapshot) -> bool {
    let all: usize = asked_of(question, snapshot).map(|generation| generation.series()).sum();
    all > SHORT_SERIES
}

/// The generations that may have samples in the range of a question.
fn asked_of<'a>(question: &SelectorQuery<'_>, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a Arc<Generation>> {
    let asked = question.range;
    let inside = move |generation: &&Arc<Generation>| generation.range().is_some_and(|range| range.overlaps(&asked));
    snapshot.visible.generations.iter().filter(inside)
}

/// Resolves a question over the generations of a snapshot; those without a match are left out.
///
/// # Errors
/// Those of the memory gate.
pub(crate) fn resolve(
    question: &SelectorQuery<'_>,
    snapshot: &Snapshot,
    stats: &ReadStats,
) -> Result<Vec<LiveMatches>> {
    if question.is_void() {
        return Ok(Vec::new());
    }
    let mut out = Vec::new();
    let mut numbers: Option<(&Arc<Registry>, RoaringBitmap)> = None;
    for generation in asked_of(question, snapshot) {
        let registry = generation.registry();
        if question.access.is_full() {
            add(&stats.series_considered, generation.series() as u64);
        }
        let known = numbers.take().filter(|(of, _)| Arc::ptr_eq(of, registry));
        let (_, matching) = numbers.insert(known.unwrap_or_else(|| (registry, matching(registry, question.selectors))));
        let found = generation.held_slots(matching, question.access, question.range, snapshot.seq);
        if !found.is_empty() {
            stats.take(found.len() * (size_of::<(u32, u32, bool)>() + size_of::<SeriesId>()))?;
            stats.check()?;
            let mut ids = Vec::with_capacity(found.len());
            by_chunk(registry, &found, |index, number| ids.extend(index.id(number)));
            assert_eq!(ids.len(), found.len(), "a generation that is held keeps its series");
            out.push(LiveMatches { generation: Arc::clone(generation), found, ids, sorted: false });
        }
    }
    Ok(out)
}

fn matching(registry: &Registry, selectors: &[Vec<Matcher>]) -> RoaringBitmap {
    match selectors {
        [] => registry.matching(&[]),
        several => several.iter().map(|matchers| registry.matching(matchers)).reduce(|a, b| a | b).unwrap_or_default(),
    }
}

fn by_chunk(registry: &Registry, found: &[(u32, u32, bool)], mut read: impl FnMut(&Index, u32)) {
    for chunk in found.chunks(SERIES_PER_LOCK) {
        registry.with_index(|index| chunk.iter().for_each(|&(_, number, _)| read(index, number)));
    }
}

impl LiveMatches {
    /// Calls a function once for each distinct (label, value) pair of the series.
    ///
    /// # Errors
    /// Those of the memory gate, and of the function.
    pub(crate) fn for_pairs(&self, stats: &ReadStats, mut show: impl FnMut(&str, &str) -> Result<()>) -> Result<()> {
        let mut seen: ByPair<()> = ByPair::default();
        let mut outcome = Ok(());
        by_chunk(self.generation.registry(), &self.found, |index, number| {
            let Some((_, pairs)) = index.pairs_of(number) else { return };
            for &pair in pairs {
                if outcome.is_ok()
                    && seen.insert(pair, ()).is_none()
                    && let Some((name, value)) = Pairs::new(&index.pair_bytes(pair)).next()
                {
                    outcome = stats.take(PAIR_BYTES).and_then(|()| show(name, value));
                }
            }
        });
        outcome
    }
}

/// A column being built; values in order of appearance.
struct LabelColumnBuilder {
    name: Arc<str>,
    values: Vec<Arc<str>>,
    codes: Vec<u32>,
}

/// Codes the labels of some series.
struct Coder<'a> {
    rows: usize,
    /// Labels that are wanted; `None` means all.
    names: Option<&'a [String]>,
    stats: &'a ReadStats,
    columns: Vec<LabelColumnBuilder>,
    by_name: HashMap<Arc<str>, u32, foldhash::fast::RandomState>,
    /// Column and code of each pair; `None` if the label is not wanted.
    places: ByPair<Option<(u32, u32)>>,
}

impl<'a> Coder<'a> {
    fn new(rows: usize, names: Option<&'a [String]>, stats: &'a ReadStats) -> Self {
        let (by_name, places) = (HashMap::default(), ByPair::default());
        Self { rows, names, stats, columns: Vec::new(), by_name, places }
    }

    /// Column and code of a pair. Each label has a code for every series, even where it is absent, so its memory is
    /// reserved when it first appears: there may be as many names as series.
    fn place(&mut self, index: &Index, pair: u32) -> Result<Option<(u32, u32)>> {
        let vacant = match self.places.entry(pair) {
            Entry::Occupied(known) => return Ok(*known.get()),
            Entry::Vacant(vacant) => vacant,
        };
        let bytes = index.pair_bytes(pair);
        let Some((name, value)) = Pairs::new(&bytes).next() else { return Ok(None) };
        if self.names.is_some_and(|names| names.iter().all(|wanted| wanted != name)) {
            return Ok(*vacant.insert(None));
        }
        let column = if let Some(&column) = self.by_name.get(name) {
            column
        } else {
            self.stats.take(TEXT_BYTES + name.len() + self.rows * size_of::<u32>())?;
            self.stats.check()?;
            let name: Arc<str> = Arc::from(name);
            let codes = vec![0; self.rows];
            self.columns.push(LabelColumnBuilder { name: Arc::clone(&name), values: vec![Arc::from("")], codes });
            self.by_name.insert(name, self.columns.len() as u32 - 1);
            self.columns.len() as u32 - 1
        };
        self.stats.take(TEXT_BYTES + value.len())?;
        let values = &mut self.columns[column as usize].values;
        values.push(Arc::from(value));
        Ok(*vacant.insert(Some((column, values.len() as u32 - 1))))
    }

    /// Codes the pairs of a row's series.
    fn add(&mut self, index: &Index, pairs: &[u32], row: usize) -> Result<()> {
        for &pair in pairs {
            if let Some((column, code)) = self.place(index, pair)? {
                self.columns[column as usize].codes[row] = code;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Vec<CodedColumn> {
        self.columns.sort_by(|a, b| a.name.cmp(&b.name));
        self.columns.into_iter().map(|c| CodedColumn::sorted(c.name, &c.values, c.codes)).collect()
    }
}

#[async_trait]
impl SeriesList for LiveMatches {
    fn ids(&self) -> &[SeriesId] {
        &self.ids
    }

    fn is_sorted(&self) -> bool {
        // Series come in the order in which they first appeared, unless they have been sorted.
        self.sorted
    }

    async fn columns(
        &self,
        places: Option<&[u32]>,
        names: Option<&[String]>,
        stats: &ReadStats,
    ) -> Result<Vec<CodedColumn>> {
        let some: Vec<_>;
        let found = match places {
            None => &self.found,
            Some(places) => {
                some = places.iter().map(|&i| self.found[i as usize]).collect();
                &some
            }
        };
        let mut coder = Coder::new(found.len(), names, stats);
        let (mut row, mut outcome) = (0, Ok(()));
        by_chunk(self.generation.registry(), found, |index, number| {
            if outcome.is_ok() {
                outcome = coder.add(index, index.pairs_of(number).map_or(&[][..], |(_, pairs)| pairs), row);
                row += 1;
            }
        });
        outcome?;
        Ok(coder.finish())
    }
}
