//! The label phase: from selectors to series, over parts and live generations (`engines` 1.1).
//!
//! [`StoreSource`] is the store's [`SeriesSource`]. A selector is resolved in three steps: parts are skipped by what
//! the catalog knows of them (`pruning`), the index of each other part gives series numbers (`matcher_resolution`), and the series
//! of all sources are merged by id into one table in series order (`union`, `union_cache`). The `Selection`
//! of the result says per source which of its series are in which row, so that the scan reads each source front to back.

mod dictionary;
mod exemplars;
mod labels;
mod live;
mod matcher_resolution;
mod matching;
mod pruning;
mod selection;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod union;
mod union_cache;

use std::sync::Arc;

use async_trait::async_trait;
use quiver_types::metrics::MetricMetadata;
use quiver_types::read_stats::add;
use quiver_types::source::SeriesExemplars;
use quiver_types::{
    Access, Error, ErrorKind, Matcher, Millis, MillisRange, ReadStats, Result, SelectedSeries, SeriesSelector,
    SeriesSnapshot, SeriesSource, SeriesTable, Version,
};

pub(crate) use selection::{LiveRows, PartRows, Selection};

use crate::metric_metadata::MetadataCache;
use crate::snapshot::{Snapshot, SnapshotPublisher};
use crate::threads::leave_callers_thread;

use labels::{LabelRequest, labels};
use live::LiveMatches;
use matcher_resolution::SelectorQuery;
use selection::selector_text;
use union::{SeriesList, is_one_list, unite};
use union_cache::{BaseCache, NarrowedSeries};

/// This part of the budget is for metadata of metrics.
const METADATA_SHARE: usize = 8;

/// Gives snapshots of a store; one per store, since it holds caches.
#[derive(Debug)]
pub struct StoreSource {
    shared: Arc<SnapshotPublisher>,
    caches: Arc<SelectCaches>,
}

#[derive(Debug)]
struct SelectCaches {
    base: BaseCache,
    metadata: MetadataCache,
}

impl StoreSource {
    /// Reads from what `shared` shows; keeps at most `cache_bytes` of resolved selectors.
    pub fn new(shared: Arc<SnapshotPublisher>, cache_bytes: usize) -> Self {
        // A part of the budget is enough for the metadata of some 100,000 metrics.
        let metadata = MetadataCache::new(cache_bytes / METADATA_SHARE);
        let caches = SelectCaches { base: BaseCache::new(cache_bytes - cache_bytes / METADATA_SHARE), metadata };
        Self { shared, caches: Arc::new(caches) }
    }
}

impl SeriesSource for StoreSource {
    fn snapshot(&self) -> Arc<dyn SeriesSnapshot> {
        let shared = Arc::clone(&self.shared);
        Arc::new(StoreSnapshot { snapshot: shared.snapshot(), shared, caches: Arc::clone(&self.caches) })
    }
}

/// One moment of a store.
#[derive(Debug)]
pub struct StoreSnapshot {
    snapshot: Snapshot,
    shared: Arc<SnapshotPublisher>,
    caches: Arc<SelectCaches>,
}

impl LiveRows {
    fn new(live: &LiveMatches, rows: Vec<u32>) -> Self {
        let slots = live.found.iter().map(|found| found.0);
        let mut pairs: Vec<(u32, u32)> = rows.into_iter().zip(slots).collect();
        pairs.sort_unstable();
        let (rows, slots) = pairs.into_iter().unzip();
        let may_have_histograms = live.found.iter().any(|found| found.2);
        Self { generation: Arc::clone(&live.generation), rows, slots, may_have_histograms }
    }
}

impl StoreSnapshot {
    /// Resolves a question: the table, and where its rows are.
    async fn resolve(&self, question: &SelectorQuery<'_>, stats: &ReadStats) -> Result<(Arc<SeriesTable>, Selection)> {
        let (parts, pruned) = question.parts(&self.snapshot, stats);
        if live::is_long(question, &self.snapshot) {
            leave_callers_thread().await;
        }
        let mut live = live::resolve(question, &self.snapshot, stats)?;
        let considered = parts.iter().map(|part| part.meta.series).sum::<u64>()
            + live.iter().map(|live| live.generation.series() as u64).sum::<u64>();
        let mut narrowed = self.caches.base.resolve(question, parts.clone(), stats).await?;
        if question.labels.is_some() && narrowed.ids.is_empty() {
            // The union begins with the largest, of which the others are parts mostly: its order is that of all.
            let largest = live.iter_mut().min_by_key(|live| std::cmp::Reverse(live.ids().len()));
            largest.map_or(Ok(()), |live| live.sort(stats))?;
        }
        if question.labels.is_some()
            && !live.is_empty()
            && !narrowed.ids.is_empty()
            && !is_one_list(&lists(&narrowed, &live))
        {
            // Live series stand between those of parts: where, only all of their labels tell.
            let whole = SelectorQuery { labels: None, ..*question };
            narrowed = self.caches.base.resolve(&whole, parts, stats).await?;
        }
        let mut selection = Selection {
            rows: 0,
            parts: Vec::new(),
            live: Vec::new(),
            seq: self.snapshot.seq,
            pruned,
            selector: selector_text(question.selectors),
            dropped: 0,
            considered,
        };
        let table = if live.is_empty() {
            selection.parts = narrowed.parts;
            narrowed.table
        } else {
            let union = unite(&lists(&narrowed, &live), question.labels.map(|names| &**names), stats).await?;
            let mut rows = union.rows.into_iter();
            let of_parts = rows.next().unwrap_or_default();
            let moved = !Arc::ptr_eq(&union.table, &narrowed.table);
            for mut part in narrowed.parts {
                if moved {
                    part.rows = Arc::new(part.rows.iter().map(|&row| of_parts[row as usize]).collect());
                }
                selection.parts.push(part);
            }
            selection.live = live.iter().zip(rows).map(|(live, rows)| LiveRows::new(live, rows)).collect();
            union.table
        };
        selection.rows = table.len();
        add(&stats.series, table.len() as u64);
        Ok((table, selection))
    }
}

/// The series of parts, and those of each live generation.
fn lists<'a>(parts: &'a NarrowedSeries, live: &'a [LiveMatches]) -> Vec<&'a dyn SeriesList> {
    let live = live.iter().map(|live| live as &dyn SeriesList);
    std::iter::once(parts as &dyn SeriesList).chain(live).collect()
}

#[async_trait]
impl SeriesSnapshot for StoreSnapshot {
    fn version(&self) -> Version {
        self.snapshot.version()
    }

    fn first_change(&self, since: Version, range: MillisRange) -> Option<Millis> {
        if since.dropped != self.shared.drops() {
            return Some(range.min);
        }
        self.shared.changes().first_after(since.written, range)
    }

    async fn select(&self, access: &Access, selector: &SeriesSelector, stats: &ReadStats) -> Result<SelectedSeries> {
        let selectors = access.selectors(std::slice::from_ref(&selector.matchers));
        let labels = selector.labels.as_ref();
        let question = SelectorQuery { access, selectors: &selectors, range: selector.range, labels };
        let (table, selection) = self.resolve(&question, stats).await?;
        let has_histograms = selection.has_histograms();
        Ok(SelectedSeries { table, has_histograms, keep: None, samples: Arc::new(selection) })
    }

    async fn label_names(
        &self,
        access: &Access,
        selectors: &[Vec<Matcher>],
        range: MillisRange,
        stats: &ReadStats,
    ) -> Result<Vec<String>> {
        let selectors = &access.selectors(selectors);
        labels(&SelectorQuery { access, selectors, range, labels: None }, LabelRequest::Names, &self.snapshot, stats)
            .await
    }

    async fn label_values(
        &self,
        access: &Access,
        name: &str,
        selectors: &[Vec<Matcher>],
        range: MillisRange,
        stats: &ReadStats,
    ) -> Result<Vec<String>> {
        let selectors = &access.selectors(selectors);
        labels(
            &SelectorQuery { access, selectors, range, labels: None },
            LabelRequest::Values(name),
            &self.snapshot,
            stats,
        )
        .await
    }

    async fn metadata(&self, access: &Access, metric: Option<&str>, stats: &ReadStats) -> Result<Vec<MetricMetadata>> {
        if access.is_narrowed() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "metadata of metrics has no labels that a segment could narrow",
            ));
        }
        self.caches.metadata.newest(&self.snapshot, access, metric, stats).await
    }

    async fn exemplars(
        &self,
        access: &Access,
        selectors: &[Vec<Matcher>],
        range: MillisRange,
        stats: &ReadStats,
    ) -> Result<Vec<SeriesExemplars>> {
        let selectors = &access.selectors(selectors);
        let (table, selection) = self.resolve(&SelectorQuery { access, selectors, range, labels: None }, stats).await?;
        exemplars::read(&table, &selection, range, stats).await
    }
}
