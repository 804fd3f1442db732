//! From matchers to series: which parts may hold any, which series of them match, and which live ones.
//!
//! Access is applied where a source lists its series, so nothing above sees a series that the caller may not see.

use std::sync::Arc;

use quiver_types::stats::add;
use quiver_types::tables::metrics;
use quiver_types::{Access, Matcher, MillisRange, ReadStats, Result};
use roaring::RoaringBitmap;

use super::matching::matching;
use super::prune::{Pruned, literal_names, prune};
use crate::part::{Part, SeriesPage};
use crate::snapshot::Snapshot;

/// How many parts are opened at once.
pub(crate) const PARTS_OPENED_AT_ONCE: usize = 16;

/// What is asked for: series that match one of the selectors (none: all series) and may have samples in the range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) access: &'a Access,
    pub(crate) selectors: &'a [Vec<Matcher>],
    pub(crate) range: MillisRange,
    /// Labels that the table needs; `None`: all.
    pub(crate) labels: Option<&'a Arc<[String]>>,
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
        if self.access.is_full() {
            add(&stats.series_considered, kept.iter().map(|part| part.meta.series).sum());
        }
        (kept, pruned)
    }

    /// Gives the numbers of the matching series of a part, whoever may see them and whatever their times are.
    pub(crate) async fn of_part(&self, part: &Part, stats: &ReadStats) -> Result<Vec<u32>> {
        let series = part.series_count();
        if self.selectors.iter().all(Vec::is_empty) {
            stats.take(series as usize * size_of::<u32>())?;
            return Ok((0..series).collect());
        }
        part.warm(stats).await;
        let index = part.label_index(stats).await?;
        let mut found: Option<RoaringBitmap> = None;
        for matchers in self.selectors {
            let own = matching(part, &index, matchers, stats).await?;
            found = Some(found.map_or_else(|| own.clone(), |found| found | &own));
        }
        let found = found.unwrap_or_default();
        stats.take(found.len() as usize * size_of::<u32>())?;
        Ok(found.into_iter().collect())
    }

    /// Keeps the series that the caller may see; `numbers` ascend and lie in the pages.
    pub(crate) fn keep_allowed(&self, pages: &[Arc<SeriesPage>], numbers: &mut Vec<u32>) {
        if self.access.is_full() {
            return;
        }
        let allowed: Vec<Vec<bool>> =
            pages.iter().map(|page| page.services().iter().map(|s| self.access.allows(s)).collect()).collect();
        let mut at = 0;
        numbers.retain(|&number| {
            while pages[at].numbers().end <= number {
                at += 1;
            }
            allowed[at][pages[at].service_code(number)]
        });
    }
}
