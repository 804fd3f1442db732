//! The order in which a sealed generation is flushed: its series in series order, per day.
//!
//! Distinct label pairs are ranked once by text; then series are compared as lists of small numbers. Built once per
//! generation, without holding the registry's lock while sorting.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use quiver_types::label::{METRIC_NAME, Pairs};
use quiver_types::{LabelSet, SeriesId};

use crate::registry::Registry;

/// A series, with the position of its pairs.
#[derive(Debug, Clone, Copy)]
struct Entry {
    id: SeriesId,
    slot: u32,
    /// Rank of the metric name's pair plus one; 0 if there is none.
    metric: u32,
    /// Number of labels before the metric name in canonical order.
    before_metric: u32,
    first: u32,
    end: u32,
}

/// The series of a generation in series order.
#[derive(Debug)]
pub(crate) struct Order {
    entries: Vec<Entry>,
    /// Ranks of all pairs except metric names, entry by entry.
    ranks: Vec<u32>,
    /// Canonical encoding of pairs by rank.
    pairs: Vec<Arc<[u8]>>,
    /// For each day, indexes in `entries` of the series that have rows on it, ascending.
    days: BTreeMap<i32, Vec<u32>>,
}

impl Order {
    /// Builds the order. `numbers[slot]` is the number of a series in the registry; `days_of` calls back with the days
    /// of a slot's rows (repetitions are allowed).
    pub(crate) fn build(registry: &Registry, numbers: &[u32], days_of: impl Fn(u32, &mut dyn FnMut(i32))) -> Self {
        let (mut entries, mut ranks, pairs) = collect(registry, numbers);
        let texts: Vec<(&str, &str)> =
            pairs.iter().map(|p| Pairs::new(p).next().expect("interned from a pair")).collect();
        let mut sorted: Vec<u32> = (0..pairs.len() as u32).collect();
        sorted.sort_unstable_by_key(|&p| texts[p as usize]);
        let mut rank_of = vec![0u32; pairs.len()];
        for (rank, &pair) in sorted.iter().enumerate() {
            rank_of[pair as usize] = rank as u32;
        }
        for r in &mut ranks {
            *r = rank_of[*r as usize];
        }
        entries.iter_mut().filter(|e| e.metric > 0).for_each(|e| e.metric = rank_of[e.metric as usize - 1] + 1);
        entries.sort_unstable_by(|a, b| {
            let others = |e: &Entry| &ranks[e.first as usize..e.end as usize];
            a.metric.cmp(&b.metric).then_with(|| others(a).cmp(others(b)))
        });
        let by_rank = sorted.iter().map(|&p| Arc::clone(&pairs[p as usize])).collect();
        let mut days: BTreeMap<i32, Vec<u32>> = BTreeMap::new();
        for (at, entry) in entries.iter().enumerate() {
            days_of(entry.slot, &mut |day| {
                let list = days.entry(day).or_default();
                if list.last() != Some(&(at as u32)) {
                    list.push(at as u32);
                }
            });
        }
        Self { entries, ranks, pairs: by_rank, days }
    }

    /// Number of series with rows on a day.
    pub(crate) fn len(&self, day: i32) -> usize {
        self.days.get(&day).map_or(0, Vec::len)
    }

    /// Slot, id and labels of the n-th series of a day.
    pub(crate) fn series(&self, day: i32, n: usize) -> Option<(u32, SeriesId, LabelSet)> {
        let entry = &self.entries[*self.days.get(&day)?.get(n)? as usize];
        let others = &self.ranks[entry.first as usize..entry.end as usize];
        let (before, after) = others.split_at(entry.before_metric as usize);
        let metric = entry.metric.checked_sub(1);
        let mut bytes = Vec::with_capacity(256);
        for rank in before.iter().copied().chain(metric).chain(after.iter().copied()) {
            bytes.extend_from_slice(&self.pairs[rank as usize]);
        }
        Some((entry.slot, entry.id, LabelSet::from_canonical(&bytes)))
    }
}

/// Copies from the registry what sorting needs; pairs are renumbered from 0 in order of first use.
fn collect(registry: &Registry, numbers: &[u32]) -> (Vec<Entry>, Vec<u32>, Vec<Arc<[u8]>>) {
    let mut entries = Vec::with_capacity(numbers.len());
    let mut flat = Vec::with_capacity(numbers.len() * 8);
    let mut pairs: Vec<Arc<[u8]>> = Vec::new();
    let mut is_metric: Vec<bool> = Vec::new();
    let mut seen: HashMap<u32, u32, FixedState> = HashMap::default();
    for (chunk_at, chunk) in numbers.chunks(4096).enumerate() {
        registry.with_index(|index| {
            for (at, &number) in chunk.iter().enumerate() {
                let (id, list) = index.pairs_of(number).expect("a generation keeps its series");
                let slot = (chunk_at * 4096 + at) as u32;
                let first = flat.len() as u32;
                let mut entry = Entry { id, slot, metric: 0, before_metric: 0, first, end: first };
                for &pair in list {
                    let local = *seen.entry(pair).or_insert_with(|| {
                        let bytes = index.pair_bytes(pair);
                        is_metric.push(Pairs::new(&bytes).next().is_some_and(|(name, _)| name == METRIC_NAME));
                        pairs.push(bytes);
                        (pairs.len() - 1) as u32
                    });
                    if is_metric[local as usize] {
                        entry.metric = local + 1;
                        entry.before_metric = flat.len() as u32 - first;
                    } else {
                        flat.push(local);
                    }
                }
                entry.end = flat.len() as u32;
                entries.push(entry);
            }
        });
    }
    (entries, flat, pairs)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn order_is_series_order(sets in prop::collection::vec(prop::collection::btree_map(
            prop_oneof!["[A-c]{1,2}", Just("__name__".to_owned())], "[a-c]{1,2}", 0..5), 1..30)) {
            let mut sets: Vec<LabelSet> =
                sets.iter().map(|s| LabelSet::from_pairs(s.iter().map(|(a, b)| (a.as_str(), b.as_str())))).collect();
            sets.sort_by(|a, b| a.canonical().cmp(b.canonical()));
            sets.dedup();
            let registry = Registry::default();
            let mut numbers = Vec::new();
            registry.attach(1, 0, sets.iter().map(|l| (l.id(), l.canonical())), usize::MAX, |a| match a {
                crate::registry::AttachOutcome::New(n) => numbers.push(n),
                other => panic!("{other:?}"),
            });
            let order = Order::build(&registry, &numbers, |_, day| { day(3); day(3) });
            let got: Vec<LabelSet> = (0..order.len(3)).map(|n| order.series(3, n).unwrap().2).collect();
            let slots: Vec<LabelSet> = (0..order.len(3)).map(|n| sets[order.series(3, n).unwrap().0 as usize].clone()).collect();
            sets.sort_by(LabelSet::cmp_series);
            prop_assert_eq!(&got, &sets);
            prop_assert_eq!(&slots, &sets);
            prop_assert_eq!(order.len(4), 0);
        }
    }
}
