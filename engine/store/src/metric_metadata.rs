//! Type, help and unit of metrics: the newest row of each metric that the caller may see, over parts and live rows.
//!
//! Parts hold few distinct rows, which are written again every day. The merged rows of a snapshot's parts are cached
//! within a budget; for a later snapshot only the parts that are new in it are read.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use futures::StreamExt;
use parking_lot::Mutex;
use quiver_types::metrics::MetricMetadata;
use quiver_types::read_stats::add;
use quiver_types::tables::metric_metadata;
use quiver_types::time::day_of;
use quiver_types::{Access, ReadStats, Result};

use crate::error::leave_out;
use crate::metric_metadata_rows::{MetadataRow, metadata_rows, newest_rows};
use crate::part::{Part, PartId};
use crate::snapshot::Snapshot;

/// What the metadata of a metric take beside their longer texts.
const METADATA_BYTES: usize = 160;
const PARTS_READ_AT_ONCE: usize = 8;

/// What the parts of the set that was asked for last say.
#[derive(Debug)]
pub(crate) struct MetadataCache {
    bytes_max: usize,
    kept: Mutex<Option<OfParts>>,
}

/// Newest rows per metric and service of one set of parts.
#[derive(Debug, Clone)]
struct OfParts {
    parts: Vec<PartId>,
    rows: Arc<Vec<MetadataRow>>,
}

/// What rows that are being read have taken of the query's memory.
#[derive(Debug)]
struct RowMemory<'a> {
    stats: &'a ReadStats,
    bytes: usize,
}

impl RowMemory<'_> {
    fn more(&mut self, bytes: usize) -> Result<()> {
        self.stats.take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Gives back what is beyond this.
    fn shrink_to(&mut self, bytes: usize) {
        self.stats.give_back(self.bytes.saturating_sub(bytes));
        self.bytes = self.bytes.min(bytes);
    }
}

fn memory_bytes(rows: &[MetadataRow]) -> usize {
    rows.iter().map(MetadataRow::memory_bytes).sum()
}

/// About what the rows of a batch take as such, beside the batch.
fn rows_bytes(batch: &RecordBatch) -> usize {
    let texts = |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or_default();
    batch.num_rows() * METADATA_BYTES + batch.columns().iter().map(texts).sum::<usize>()
}

impl MetadataCache {
    /// Keeps at most so many bytes; what is larger is read anew each time.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, kept: Mutex::default() }
    }

    async fn of_parts(&self, snapshot: &Snapshot, stats: &ReadStats) -> Result<Arc<Vec<MetadataRow>>> {
        let parts = snapshot.visible.table(metric_metadata::TABLE.name);
        let ids: Vec<PartId> = parts.iter().map(|p| p.meta.id).collect();
        add(&stats.parts_total, parts.len() as u64);
        let kept = self.kept.lock().clone();
        if let Some(kept) = kept.as_ref().filter(|kept| kept.parts == ids) {
            add(&stats.cache_hits, 1);
            return Ok(Arc::clone(&kept.rows));
        }
        add(&stats.cache_misses, 1);
        let known: HashSet<PartId> = kept.iter().flat_map(|kept| kept.parts.iter().copied()).collect();
        let fresh: Vec<Arc<Part>> = parts.iter().filter(|p| !known.contains(&p.meta.id)).cloned().collect();
        add(&stats.parts_read, fresh.len() as u64);
        let mut taken = RowMemory { stats, bytes: 0 };
        taken.more(kept.as_ref().map_or(0, |kept| memory_bytes(&kept.rows)))?;
        let mut rows = kept.map_or_else(Vec::new, |kept| kept.rows.to_vec());
        // What is gone was merged into others of its day, or its day was dropped.
        let days: HashSet<i32> = parts.iter().map(|p| p.meta.day).collect();
        rows.retain(|row| days.contains(&day_of(row.ts)));
        let mut read =
            futures::stream::iter(fresh).map(|part| async move { part.rows(stats).await }).buffered(PARTS_READ_AT_ONCE);
        let mut whole = true;
        while let Some(batches) = read.next().await {
            let batches = match batches {
                Ok(batches) => batches,
                Err(e) => {
                    leave_out(stats, e)?;
                    whole = false;
                    continue;
                }
            };
            for batch in batches {
                taken.more(rows_bytes(&batch))?;
                rows.extend(metadata_rows(&batch)?);
            }
            // Days repeat each other: without this a month of parts would stand in memory at once.
            rows = newest_rows(rows);
            taken.shrink_to(memory_bytes(&rows));
        }
        let rows = Arc::new(rows);
        let fits = whole && memory_bytes(&rows) <= self.bytes_max;
        if fits {
            // The cache's budget has them.
            taken.shrink_to(0);
        }
        *self.kept.lock() = fits.then(|| OfParts { parts: ids, rows: Arc::clone(&rows) });
        Ok(rows)
    }

    /// Gives the newest metadata of each metric (or of one), sorted by metric. Of several rows at one time the greatest
    /// text wins, so that the order of reading does not matter.
    pub(crate) async fn newest(
        &self,
        snapshot: &Snapshot,
        access: &Access,
        metric: Option<&str>,
        stats: &ReadStats,
    ) -> Result<Vec<MetricMetadata>> {
        let of_parts = self.of_parts(snapshot, stats).await?;
        let wanted = |name: &str, service: &str| access.allows(service) && metric.is_none_or(|metric| metric == name);
        let mut live: Vec<MetadataRow> = Vec::new();
        for generation in &snapshot.visible.generations {
            let rows = generation.wanted_metadata(snapshot.seq, wanted, |bytes| stats.take(bytes))?;
            live.extend(rows.into_iter().map(|(ts, metadata, service)| MetadataRow { ts, metadata, service }));
        }
        let mut by_metric: BTreeMap<&str, &MetadataRow> = BTreeMap::new();
        for row in of_parts.iter().chain(&live) {
            let name = row.metadata.metric.as_str();
            if wanted(name, &row.service) {
                let known = by_metric.entry(name).or_insert(row);
                *known = (*known).max(row);
            }
        }
        let bytes = |row: &&MetadataRow| row.metadata.metric.len() + row.metadata.help.len() + METADATA_BYTES;
        stats.take(by_metric.values().map(bytes).sum())?;
        Ok(by_metric.into_values().map(|row| row.metadata.clone()).collect())
    }
}
