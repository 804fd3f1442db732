//! Sorts the series of a generation in series order by their own label pairs. Columns would need a place for every
//! label in every series: if series have different labels, that is a hundred times as much.

use std::cmp::Ordering;
use std::sync::Arc;

use quiver_types::label::{METRIC_NAME, Pairs};
use quiver_types::{ReadStats, Result};

use super::{ByPair, LiveMatches, by_chunk};

/// Estimated memory of a pair: entries in a map and in a list, and its rank.
const PAIR_BYTES: usize = 64;
/// Memory of a series: the end of its pairs, and its place in the order.
const SERIES_BYTES: usize = size_of::<usize>() + size_of::<u32>();
/// Memory of a pair of a series, in a list that grows by doubling.
const PLACE_BYTES: usize = 2 * size_of::<u32>();

/// The labels of some series: for each the ranks of its pairs, with that of the metric name first.
struct Ranks {
    pairs: Vec<u32>,
    /// End of each series' pairs.
    ends: Vec<usize>,
    /// Pairs with a metric name have the ranks from 1 to this one.
    metrics: u32,
}

impl Ranks {
    /// Reads the labels of series; also returns the memory that was reserved for them.
    fn read(live: &LiveMatches, stats: &ReadStats) -> Result<(Self, usize)> {
        let mut taken = live.found.len() * SERIES_BYTES;
        stats.take(taken)?;
        let (mut ranks, mut ends) = (Vec::new(), Vec::with_capacity(live.found.len()));
        let mut seen: ByPair<Arc<[u8]>> = ByPair::default();
        let mut outcome = Ok(());
        by_chunk(live.generation.registry(), &live.found, |index, number| {
            let pairs = index.pairs_of(number).map_or(&[][..], |(_, pairs)| pairs);
            let known = seen.len();
            if outcome.is_ok() {
                ranks.extend_from_slice(pairs);
                for &pair in pairs {
                    seen.entry(pair).or_insert_with(|| index.pair_bytes(pair));
                }
                let bytes = pairs.len() * PLACE_BYTES + (seen.len() - known) * PAIR_BYTES;
                taken += bytes;
                outcome = stats.take(bytes);
            }
            ends.push(ranks.len());
        });
        outcome?;
        stats.check()?;
        let mut pairs: Vec<(u32, Arc<[u8]>)> = seen.into_iter().collect();
        pairs.sort_unstable_by(|a, b| compare_pairs(&a.1, &b.1));
        let is_metric = |bytes: &[u8]| Pairs::new(bytes).next().is_some_and(|(name, _)| name == METRIC_NAME);
        let metrics = pairs.partition_point(|(_, bytes)| is_metric(bytes)) as u32;
        let rank_of: ByPair<u32> = pairs.iter().map(|(pair, _)| *pair).zip(1..).collect();
        for pair in &mut ranks {
            *pair = rank_of[&*pair];
        }
        let mut own = Self { pairs: ranks, ends, metrics };
        (0..own.ends.len()).for_each(|series| own.metric_first(series));
        Ok((own, taken))
    }

    fn of(&self, series: usize) -> &[u32] {
        let first = series.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.pairs[first..self.ends[series]]
    }

    /// Moves the metric name's pair to the front; pairs of a series come sorted by label name.
    fn metric_first(&mut self, series: usize) {
        let metrics = self.metrics;
        let first = series.checked_sub(1).map_or(0, |before| self.ends[before]);
        let of = &mut self.pairs[first..self.ends[series]];
        if let Some(at) = of.iter().position(|&rank| rank <= metrics) {
            of[..=at].rotate_right(1);
        }
    }

    /// Compares series like `LabelSet::cmp_series`; a series without a metric name comes before all others.
    fn compare(&self, a: usize, b: usize) -> Ordering {
        let split = |series| match self.of(series) {
            [metric, labels @ ..] if *metric <= self.metrics => (*metric, labels),
            labels => (0, labels),
        };
        split(a).cmp(&split(b))
    }
}

/// Compares pairs in canonical encoding: metric names first, then by name and value.
fn compare_pairs(a: &[u8], b: &[u8]) -> Ordering {
    let (a, b) = (Pairs::new(a).next(), Pairs::new(b).next());
    let key = |pair: Option<(&str, &str)>| pair.is_none_or(|(name, _)| name != METRIC_NAME);
    key(a).cmp(&key(b)).then_with(|| a.cmp(&b))
}

impl LiveMatches {
    /// Sorts the series in series order, without building label columns.
    ///
    /// # Errors
    /// Those of the memory gate.
    pub(crate) fn sort(&mut self, stats: &ReadStats) -> Result<()> {
        let (ranks, taken) = Ranks::read(self, stats)?;
        let mut order: Vec<u32> = (0..self.found.len() as u32).collect();
        order.sort_unstable_by(|&a, &b| ranks.compare(a as usize, b as usize));
        drop(ranks);
        stats.give_back(taken);
        self.ids = order.iter().map(|&at| self.ids[at as usize]).collect();
        self.found = order.iter().map(|&at| self.found[at as usize]).collect();
        self.sorted = true;
        Ok(())
    }
}
