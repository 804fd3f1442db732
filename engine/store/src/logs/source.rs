//! Snapshots of logs for the query language, and the streams they contain.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use quiver_types::logs::{LogSnapshot, LogSource, StreamId, StreamInfo, StreamSelector};
use quiver_types::{Access, LabelSet, MillisRange, ReadStats, Result, Version};

use super::live_blocks::LiveStreams;
use super::part_selection::StreamSearch;
use super::stream_selection::StreamTest;
use crate::snapshot::{Snapshot, SnapshotPublisher};

/// Provides snapshots of a store's logs.
#[derive(Debug)]
pub struct StoreLogs {
    shared: Arc<SnapshotPublisher>,
}

impl StoreLogs {
    /// Reads what `shared` publishes.
    pub fn new(shared: Arc<SnapshotPublisher>) -> Self {
        Self { shared }
    }
}

impl LogSource for StoreLogs {
    fn snapshot(&self) -> Arc<dyn LogSnapshot> {
        Arc::new(StoreLogSnapshot { snapshot: self.shared.snapshot(), shared: Arc::clone(&self.shared) })
    }
}

/// The logs of a store at one moment.
#[derive(Debug)]
pub struct StoreLogSnapshot {
    pub(super) snapshot: Snapshot,
    pub(super) shared: Arc<SnapshotPublisher>,
}

#[async_trait]
impl LogSnapshot for StoreLogSnapshot {
    async fn streams(
        &self,
        access: &Access,
        selector: &StreamSelector,
        range: (i64, i64),
        stats: &Arc<ReadStats>,
    ) -> Result<Vec<StreamInfo>> {
        let mut found: BTreeMap<StreamId, LabelSet> = BTreeMap::new();
        for generation in &self.snapshot.visible.generations {
            let view = generation.log_view(range, self.snapshot.seq);
            let streams = LiveStreams::new(view.streams, view.index, access, stats);
            let chosen = streams.set(StreamTest::Selector(selector)).await?;
            for (chunk, rows) in &view.chunks {
                let slots = chunk.rows.slots[..*rows].iter();
                for &slot in slots.filter(|&&slot| chosen.contains(slot) && streams.allows(slot)) {
                    let stream = streams.stream(slot);
                    found.entry(stream.id).or_insert_with(|| stream.labels.clone());
                }
            }
        }
        StreamSearch { access, selector, range, stats }.in_parts(&self.snapshot, &mut found).await?;
        Ok(found.into_iter().map(|(id, labels)| StreamInfo { id, labels }).collect())
    }

    fn version(&self) -> Option<Version> {
        Some(self.snapshot.version())
    }

    fn is_unchanged(&self, since: Version, range: MillisRange) -> bool {
        self.snapshot.is_unchanged(&self.shared, self.shared.log_changes(), since, range)
    }
}
