//! From matchers to series: which parts may hold any, which series of them match, and which live ones.
//!
//! Access is applied where a source lists its series, so nothing above sees a series that the caller may not see.

use std::sync::Arc;

use quiver_types::stats::add;
use quiver_types::tables::metrics;
use quiver_types::{Access, Matcher, MillisRange, ReadStats};

use super::prune::{Pruned, literal_names, prune};
use crate::part::{Part, PartSeries};
use crate::snapshot::Snapshot;

/// How many parts are opened at once.
pub(crate) const PARTS_OPENED_AT_ONCE: usize = 16;

/// What is asked for: series that match one of the selectors (none: all series) and may have samples in the range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) access: &'a Access,
    pub(crate) selectors: &'a [Vec<Matcher>],
    pub(crate) range: MillisRange,
}

impl Question<'_> {
    /// Says whether no series can match, whatever is stored.
    pub(crate) fn is_void(&self) -> bool {
        let void = |matchers: &Vec<Matcher>| literal_names(matchers).is_some_and(|names| names.is_empty());
        self.range.min > self.range.max || (!self.selectors.is_empty() && self.selectors.iter().all(void))
    }

    /// Gives the parts that may hold an answer.
    pub(crate) fn parts(&self, snapshot: &Snapshot, stats: &ReadStats) -> (Vec<Arc<Part>>, Pruned) {
        let parts = snapshot.visible.table(metrics::TABLE.name);
        let (kept, pruned) = if self.is_void() {
            (Vec::new(), Pruned { total: parts.len(), name: parts.len(), ..Pruned::default() })
        } else {
            prune(parts, self.selectors, self.access, self.range)
        };
        add(&stats.parts_total, pruned.total as u64);
        add(&stats.parts_read, kept.len() as u64);
        (kept, pruned)
    }

    /// Gives the numbers of the matching series of a part.
    pub(crate) fn of_part(&self, series: &PartSeries) -> Vec<u32> {
        match self.selectors {
            [] => series.matching(&[], self.access, self.range),
            [matchers] => series.matching(matchers, self.access, self.range),
            several => {
                let lists = several.iter().map(|matchers| series.matching(matchers, self.access, self.range));
                let mut all: Vec<u32> = lists.flatten().collect();
                all.sort_unstable();
                all.dedup();
                all
            }
        }
    }
}
