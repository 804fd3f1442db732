//! The blocks of a scan, live batches and row groups of parts, handed out one by one. A part is opened when its first
//! row group is requested.
//!
//! The batches and parts are selected when the scan is planned. What is found out about them (which streams match,
//! which row groups a part has) belongs to the run that needs it.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use quiver_types::logs::LogRequest;
use quiver_types::read_stats::add;
use quiver_types::{Access, ReadStats, Result};

use super::block::Block;
use super::live_blocks::{LiveBlock, LiveStreams};
use super::part_selection::{PartScan, PruneCounts};
use super::row_group::Group;
use crate::error::leave_out;
use crate::memtable::logs::LogsView;
use crate::part::Part;
use crate::snapshot::Snapshot;

/// A block that is not open yet.
#[derive(Debug, Clone)]
pub(super) enum Handle {
    Live(LiveBlock),
    Group(Group),
}

impl Handle {
    /// Bounds of the block's times.
    pub(super) fn range(&self) -> (i64, i64) {
        match self {
            Self::Live(block) => block.chunk.range,
            Self::Group(group) => group.range(),
        }
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Live(block) => block.rows,
            Self::Group(group) => group.len(),
        }
    }

    /// Opens the block for reading.
    pub(super) fn open(&self) -> Box<dyn Block> {
        match self {
            Self::Live(block) => Box::new(block.clone()),
            Self::Group(group) => Box::new(group.open()),
        }
    }
}

/// What a scan reads: generations with rows in its time range, and parts that were not pruned.
#[derive(Debug)]
pub(super) struct Sources {
    live: Vec<LogsView>,
    parts: Vec<Arc<Part>>,
    pub(super) pruned: PruneCounts,
}

impl Sources {
    pub(super) fn new(snapshot: &Snapshot, access: &Access, request: &LogRequest) -> Self {
        let range = request.filter.time_bounds();
        let views = snapshot.visible.generations.iter().map(|generation| generation.log_view(range, snapshot.seq));
        let live = views.filter(|view| !view.chunks.is_empty()).collect();
        let (parts, pruned) = super::part_selection::choose(snapshot, access, request);
        Self { live, parts, pruned }
    }

    /// Total rows of all blocks, before filtering.
    pub(super) fn rows(&self) -> u64 {
        let live = self.live.iter().flat_map(|view| &view.chunks).map(|(_, rows)| *rows as u64);
        live.sum::<u64>() + self.parts.iter().map(|part| part.meta.rows).sum::<u64>()
    }

    /// Estimates how many values a field has; `None`: rows are not in parts yet, or nothing is known of a part.
    pub(super) fn values_about(&self, field: &str) -> Option<u64> {
        let of_part = |part: &Arc<Part>| Some(part.cache().logs.get(&part.meta.id)?.values_about(field));
        if self.live.is_empty() { self.parts.iter().map(of_part).sum() } else { None }
    }

    /// Number of parts to read.
    pub(super) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Number of generations to read.
    pub(super) fn generations(&self) -> usize {
        self.live.len()
    }
}

/// All blocks of one run of a scan.
#[derive(Debug)]
pub(super) struct Blocks {
    live: Vec<LiveBlock>,
    parts: Vec<Arc<PartScan>>,
    /// Statistics of the query.
    pub(super) stats: Arc<ReadStats>,
}

impl Blocks {
    /// Starts a run whose reads count for a query.
    pub(super) fn new(sources: &Sources, access: &Access, request: &Arc<LogRequest>, stats: Arc<ReadStats>) -> Self {
        let mut live = Vec::new();
        for LogsView { chunks, streams, index } in sources.live.iter().cloned() {
            let streams = Arc::new(LiveStreams::new(streams, index, access, &stats));
            let block = |(chunk, rows)| LiveBlock { chunk, rows, streams: Arc::clone(&streams) };
            live.extend(chunks.into_iter().map(block));
        }
        let parts = sources.parts.iter().map(|part| Arc::new(PartScan::new(part, access, request))).collect();
        add(&stats.parts_total, sources.pruned.total as u64);
        Self { live, parts, stats }
    }

    /// A queue of all blocks.
    pub(super) fn queue(self: &Arc<Self>) -> Queue {
        Queue {
            blocks: Arc::clone(self),
            ready: Mutex::new(self.live.iter().cloned().map(Handle::Live).collect()),
            parts: tokio::sync::Mutex::new(self.parts.iter().cloned().collect()),
        }
    }

    /// Live blocks, and the parts that are not open yet.
    pub(super) fn by_time(&self) -> (Vec<Handle>, Vec<Arc<PartScan>>) {
        (self.live.iter().cloned().map(Handle::Live).collect(), self.parts.clone())
    }
}

/// Number of remote parts that are opened concurrently, as each takes several round trips.
const REMOTE_PARTS: usize = 8;

/// How many parts are opened together. Local parts are opened one by one, so that a scan which stops early opens no
/// more than needed.
pub(super) fn at_once(part: &PartScan) -> usize {
    if part.part.is_remote() { REMOTE_PARTS } else { 1 }
}

/// Opens parts concurrently.
pub(super) async fn open(parts: impl Iterator<Item = Arc<PartScan>>, stats: &Arc<ReadStats>) -> Result<Vec<Handle>> {
    let open = |part: Arc<PartScan>| async move { part.groups(stats).await };
    let mut out = Vec::new();
    for groups in futures::future::join_all(parts.map(open)).await {
        match groups {
            Ok(groups) => out.extend(groups.into_iter().map(Handle::Group)),
            Err(e) => leave_out(stats, e)?,
        }
    }
    Ok(out)
}

/// Hands out blocks to partitions.
#[derive(Debug)]
pub(super) struct Queue {
    blocks: Arc<Blocks>,
    ready: Mutex<VecDeque<Handle>>,
    parts: tokio::sync::Mutex<VecDeque<Arc<PartScan>>>,
}

impl Queue {
    /// The next block; `None` if there are no more.
    pub(super) async fn next(&self) -> Result<Option<Handle>> {
        loop {
            if let Some(handle) = self.ready.lock().pop_front() {
                return Ok(Some(handle));
            }
            let mut parts = self.parts.lock().await;
            // Another partition may have opened a part in the meantime.
            if !self.ready.lock().is_empty() {
                continue;
            }
            let Some(first) = parts.front() else { return Ok(None) };
            let count = at_once(first).min(parts.len());
            let opened = open(parts.drain(..count), &self.blocks.stats).await?;
            self.ready.lock().extend(opened);
        }
    }
}
