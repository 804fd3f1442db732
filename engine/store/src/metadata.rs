//! Type, help and unit of metrics: the newest row of each metric that the caller may see, over parts and live rows.
//!
//! Parts hold few distinct rows, written anew daily; what the parts of a snapshot say together is kept until the set of
//! parts changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use parking_lot::Mutex;
use quiver_types::metrics::MetricMetadata;
use quiver_types::stats::add;
use quiver_types::tables::metric_metadata;
use quiver_types::{Access, ReadStats, Result};

use crate::error::leave_out;
use crate::metadata_rows::{MetadataRow, metadata_rows, newest_rows};
use crate::part::PartId;
use crate::snapshot::Snapshot;

/// What the metadata of a metric take beside their longer texts.
const METADATA_BYTES: usize = 160;
const PARTS_READ_AT_ONCE: usize = 8;

/// Newest rows per metric and service of one set of parts.
type OfParts = (Vec<PartId>, Arc<Vec<MetadataRow>>);

/// What the parts of the set that was asked for last say.
#[derive(Debug, Default)]
pub(crate) struct MetadataCache(Mutex<Option<OfParts>>);

impl MetadataCache {
    async fn of_parts(&self, snapshot: &Snapshot, stats: &ReadStats) -> Result<Arc<Vec<MetadataRow>>> {
        let parts = snapshot.visible.table(metric_metadata::TABLE.name);
        let ids: Vec<PartId> = parts.iter().map(|p| p.meta.id).collect();
        add(&stats.parts_total, parts.len() as u64);
        if let Some((of, rows)) = &*self.0.lock()
            && *of == ids
        {
            add(&stats.cache_hits, 1);
            return Ok(Arc::clone(rows));
        }
        add(&stats.cache_misses, 1);
        add(&stats.parts_read, parts.len() as u64);
        let mut read = futures::stream::iter(parts.to_vec())
            .map(|part| async move { part.rows(stats).await })
            .buffered(PARTS_READ_AT_ONCE);
        let (mut rows, mut whole) = (Vec::new(), true);
        while let Some(batches) = read.next().await {
            let batches = match batches {
                Ok(batches) => batches,
                Err(e) => {
                    leave_out(stats, e)?;
                    whole = false;
                    continue;
                }
            };
            for batch in &batches {
                rows.extend(metadata_rows(batch)?);
            }
            // Days repeat each other: without this a month of parts would stand in memory at once.
            rows = newest_rows(rows);
        }
        let rows = Arc::new(rows);
        if whole {
            *self.0.lock() = Some((ids, Arc::clone(&rows)));
        }
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
        let live: Vec<MetadataRow> = (snapshot.visible.generations.iter())
            .flat_map(|generation| generation.metadata(snapshot.seq))
            .map(|(ts, metadata, service)| MetadataRow { ts, metadata, service })
            .collect();
        let mut by_metric: BTreeMap<&str, &MetadataRow> = BTreeMap::new();
        for row in of_parts.iter().chain(&live) {
            let name = row.metadata.metric.as_str();
            if access.allows(&row.service) && metric.is_none_or(|metric| metric == name) {
                let known = by_metric.entry(name).or_insert(row);
                *known = (*known).max(row);
            }
        }
        let bytes = |row: &&MetadataRow| row.metadata.metric.len() + row.metadata.help.len() + METADATA_BYTES;
        stats.take(by_metric.values().map(bytes).sum())?;
        Ok(by_metric.into_values().map(|row| row.metadata.clone()).collect())
    }
}
